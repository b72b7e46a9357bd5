"""Arguments and options that several commands share."""

from __future__ import annotations

import json
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
# Each option has two forms where its default is another one for INDEX and for a new index.
_DIRECTIONS = "Directions kept per document, the k of its subspace."
Directions = Annotated[
    int | None,
    typer.Option(
        "-k",
        "--directions",
        min=1,
        help=f"{_DIRECTIONS}  \\[default: 32]",
        show_default=False,
    ),
]
KeptDirections = Annotated[
    int | None,
    typer.Option("-k", "--directions", min=1, help=_DIRECTIONS, show_default=False),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_PATH",
        help="Name or path of a model; by default the one INDEX was made with.",
        show_default=False,
    ),
]
ModelOfNew = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_PATH",
        help="Name or path of a model; by default the one INDEX was made with, and for a new index "
        "a small one that needs no network.",
        show_default=False,
    ),
]
AnyModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_PATH",
        help="Name or path of a model; by default a small one that needs no network.",
        show_default=False,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="How documents become subspaces: plus or paper; auto chooses one of them by the first "
        "documents of a new index."
    ),
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
        help="What a document becomes: subspaces; or single vectors, searched by exact, sketch (for "
        "very many), voyager or faiss, or kept in a vector database, milvus or qdrant."
    ),
]
Uri = Annotated[
    str | None,
    typer.Option(
        help="Address of the vector database: https://host:port, or a path for an embedded one; "
        "by default next to INDEX. Credentials are read from MILVUS_TOKEN or QDRANT_API_KEY."
    ),
]
BackendOptions = Annotated[
    str | None,
    typer.Option(metavar="JSON", help='Options of the backend, such as {"index_type": "HNSW"}.'),
]
KeepTokens = Annotated[
    str | None,
    typer.Option(
        help="Keep token embeddings beside single vectors, float16 or int8, to re-rank by MaxSim."
    ),
]
Override = Annotated[bool, typer.Option("--override", help="Replace the index if there is one.")]
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


def kind_settings(
    backend: str | None, keep_tokens: str | None, uri: str | None, backend_options: str | None
) -> dict[str, Any]:
    """Return the kind and the settings of an index from the options of a command."""
    from ..indexes.registry import ANN, DATABASES

    known = (SUBSPACES, "exact", *ANN, *DATABASES)
    if backend is not None and backend not in known:
        raise ValueError(f"--backend must be one of {', '.join(known)}, got {backend!r}")
    if uri is not None and backend not in DATABASES:
        raise ValueError(f"--uri needs --backend {' or '.join(DATABASES)}")
    vectors = {
        "backend": backend,
        "keep_tokens": keep_tokens,
        "uri": uri,
        "backend_options": _json_options(backend_options),
    }
    if backend == SUBSPACES:
        if keep_tokens is not None or backend_options is not None:
            raise ValueError(
                "--keep-tokens and --backend-options need a --backend of single vectors, such as "
                "exact"
            )
        return {"single_vector": False}
    return {"single_vector": None if backend is None else True, **vectors}


def _json_options(given: str | None) -> dict[str, Any] | None:
    try:
        options = None if given is None else json.loads(given)
    except ValueError:
        options = given
    if options is not None and not isinstance(options, dict):
        raise ValueError(f'--backend-options takes JSON such as {{"ef": 200}}, got {given!r}')
    return options


def fields_of(names: list[str] | None) -> Fields:
    """Return the names of the fields of records."""
    from ..corpus.records import Fields

    given = dict(name.split("=", 1) for name in names or [] if "=" in name)
    is_known = given.keys() <= {"id", "text", "title"} and all(given.values())
    if len(given) < len(names or []) or not is_known:
        raise ValueError("--field takes id=NAME, text=NAME or title=NAME, each once")
    return Fields(**given)


def counted(n: int, passages: int = 0, files: int = 0, unit: str = "passage") -> str:
    """Return a number of documents in words: passages or pages of files, and others.

    Examples
    --------
    >>> counted(84, passages=84, files=26), counted(1)
    ('84 passages of 26 files', '1 document')
    >>> counted(90, passages=84, files=26)
    '84 passages of 26 files and 6 other documents'
    >>> counted(1, passages=1, files=1, unit="page")
    '1 page of 1 file'
    """
    others = max(n - passages, 0)
    if not passages:
        return _several(others, "document")
    of_files = f"{_several(passages, unit)} of {_several(files, 'file')}"
    return f"{of_files} and {_several(others, 'other document')}" if others else of_files


def _several(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


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

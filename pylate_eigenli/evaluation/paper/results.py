"""The numbers of all tables of the EigenLI paper.

``paper_results.csv`` has one row per printed number; a column that does not apply is empty:

========== =====================================================================================
table      the label of the table in the paper
model      the token encoder; empty for a mean over models
dataset    one of the 13 BEIR or 8 ViDoRe-v3 datasets; empty for a mean over datasets
method     EigenLI, EigenLI-SV, KMeans++, Ward, Full MaxSim or MUVERA
k          vectors kept of a document
centered   1 if each text's tokens had their mean subtracted, without renormalisation
bits       bits per dimension of the product quantizer
baseline   the method that ``method`` is compared with
statistic  empty for a measurement; ``am`` and ``gm``, the arithmetic and geometric mean over
           datasets; ``delta``, centered minus uncentered
metric     Recall, nDCG, MRR, or Time (of compression)
cutoff     ranks the metric looks at
value      as printed, with all its decimals: metrics as fractions, improvements over a baseline
           in percent, times as multiples of the baseline's
========== =====================================================================================

The paper's Recall is truncated: it divides by the smaller of the cutoff and the number of relevant
documents, which is why TREC-COVID's falls as the cutoff grows.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

Statistic = Literal["value", "am", "gm", "delta"]
_Names = dict[str, list[str]]

# The paper's names, each with other names on Hugging Face, in BEIR and in MTEB. MTEB's later
# versions of a task (".v2", "HardNegatives", "Nano") have other data and must not match.
_DATA = json.loads((files(__package__) / "paper_names.json").read_text("utf-8"))
TABLES: dict[str, str] = _DATA["tables"]
MODELS: _Names = _DATA["models"]
BEIR: _Names = _DATA["beir"]
VIDORE: _Names = _DATA["vidore"]
METHODS: _Names = _DATA["methods"]

ENCODING: dict[str, Any] = {
    "document_length": 512,
    "query_length": 32,
    "do_query_expansion": True,
    "skiplist_words": [],  # punctuation is kept
}
"""How the paper encodes texts: arguments of ``pylate.models.ColBERT``."""

_NAMES: dict[str, _Names] = {
    "table": {table: [] for table in TABLES},
    "model": MODELS,
    "dataset": {**BEIR, **VIDORE},
    "method": METHODS,
    "metric": _DATA["metrics"],
}
# The fields of a number that hold names, and of which kind.
_KINDS = {**{kind: kind for kind in _NAMES}, "baseline": "method"}


@dataclass(frozen=True)
class Cell:
    """One number printed in the paper, with so many decimals; see the module for its fields."""

    table: str
    model: str | None
    dataset: str | None
    method: str
    k: int | None
    centered: bool | None
    bits: int | None
    baseline: str | None
    statistic: Statistic
    metric: str
    cutoff: int | None
    value: float
    decimals: int

    @property
    def text(self) -> str:
        """The number as printed."""
        return f"{self.value:.{self.decimals}f}"


def canonical(kind: str, name: str) -> str:
    """Return the paper's name; case, punctuation and a leading ``owner/`` do not matter.

    Examples
    --------
    >>> canonical("model", "answerdotai/answerai-colbert-small-v1")
    'AnswerAI-ColBERT-small'
    >>> canonical("dataset", "QuoraRetrieval")
    'Quora'
    """
    asked = _squeeze(name.rstrip("/").rpartition("/")[2])
    for official, others in _NAMES[kind].items():
        if asked in map(_squeeze, (official, *others)):
            return official
    raise ValueError(f"the paper has no {kind} {name!r}; it has {', '.join(_NAMES[kind])}")


@cache
def load() -> tuple[Cell, ...]:
    """Return every number of the paper, in the order of its tables."""
    source = files(__package__) / "paper_results.csv"
    with source.open(encoding="utf-8") as lines:
        return tuple(_cell(row) for row in csv.DictReader(lines))


def select(**wanted: str | int | bool | None) -> list[Cell]:
    """Return the numbers that match all given fields of :class:`Cell`, in the order of the tables.

    Names are matched as in :func:`canonical`; an unknown name raises a ``ValueError``.

    Examples
    --------
    >>> cells = select(table="beir_ndcg", dataset="scifact", method="Ward", cutoff=10)
    >>> {cell.k: cell.value for cell in cells}
    {8: 0.5484, 16: 0.6071, 32: 0.6387}
    """
    given = {
        field: canonical(_KINDS[field], str(want)) if field in _KINDS else want
        for field, want in wanted.items()
        if want is not None
    }
    return [
        cell
        for cell in load()
        if all(getattr(cell, field) == want for field, want in given.items())
    ]


def _squeeze(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _cell(row: dict[str, str]) -> Cell:
    return Cell(
        table=row["table"],
        model=row["model"] or None,
        dataset=row["dataset"] or None,
        method=row["method"],
        k=int(row["k"]) if row["k"] else None,
        centered=row["centered"] == "1" if row["centered"] else None,
        bits=int(row["bits"]) if row["bits"] else None,
        baseline=row["baseline"] or None,
        statistic=cast(Statistic, row["statistic"] or "value"),
        metric=row["metric"],
        cutoff=int(row["cutoff"]) if row["cutoff"] else None,
        value=float(row["value"]),
        decimals=len(row["value"].partition(".")[2]),
    )

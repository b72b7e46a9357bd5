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
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

Statistic = Literal["value", "am", "gm", "delta"]
_Names = dict[str, tuple[str, ...]]

TABLES = {
    "beir_geomean_32": "EigenLI, k=32, over each baseline on BEIR: mean improvement, %",
    "vidore_geomean_32": "EigenLI, k=32, over each baseline on ViDoRe-v3: mean improvement, %",
    "sv_geomean": "EigenLI-SV, k=32, over MUVERA on BEIR: mean improvement, %",
    "centering_macro": "EigenLI-SV and MUVERA, centered or not: means over BEIR",
    "sv_quant_recall": "EigenLI-SV, product-quantized, against MaxSim: mean Recall change, %",
    "sv_quant_ndcg": "EigenLI-SV, product-quantized, against MaxSim: mean nDCG change, %",
    "compression_overhead": "Time to compress the documents, as a multiple of EigenLI's",
    "beir_recall": "ColBERTv2 on BEIR: Recall",
    "beir_ndcg": "ColBERTv2 on BEIR: nDCG",
    "beir_mrr": "ColBERTv2 on BEIR: MRR",
    "sv_recall": "EigenLI-SV and MUVERA with ColBERTv2 on BEIR: Recall",
    "sv_ndcg": "EigenLI-SV and MUVERA with ColBERTv2 on BEIR: nDCG",
    "answerai_all": "AnswerAI-ColBERT-small on BEIR: all metrics",
    "gte_all": "GTE-ModernColBERT on BEIR: all metrics",
    "anisotropic_centering_at10": "EigenLI-SV and MUVERA, centered or not, on each BEIR dataset",
    "vidore_recall": "ColQwen3 on ViDoRe-v3: Recall",
    "vidore_ndcg": "ColQwen3 on ViDoRe-v3: nDCG",
}

ENCODING: dict[str, Any] = {
    "document_length": 512,
    "query_length": 32,
    "do_query_expansion": True,
    "skiplist_words": [],  # punctuation is kept
}
"""How the paper encodes texts: arguments of ``pylate.models.ColBERT``."""

# The paper's name, then other names on Hugging Face, in BEIR and in MTEB. MTEB's later versions of
# a task (".v2", "HardNegatives", "Nano") have other data and must not match.
MODELS: _Names = {
    "ColBERTv2": ("colbertv2.0",),
    "AnswerAI-ColBERT-small": ("answerai-colbert-small-v1",),
    "GTE-ModernColBERT": ("GTE-ModernColBERT-v1",),
    "ColQwen3": ("tomoro-colqwen3-embed-4b",),
}
BEIR: _Names = {
    "ArguAna": (),
    "Climate-FEVER": (),
    "DBPedia-Entity": ("DBPedia",),
    "FEVER": (),
    "FiQA": ("FiQA2018",),
    "HotpotQA": (),
    "MS MARCO": (),
    "NQ": (),
    "Quora": ("QuoraRetrieval",),
    "SCIDOCS": (),
    "SciFact": (),
    "TREC-COVID": (),
    "Webis-Touche2020": ("Touche2020",),
}
VIDORE: _Names = {
    "HR": ("Vidore3HrRetrieval", "vidore_v3_hr"),
    "Fin-EN": ("Vidore3FinanceEnRetrieval", "vidore_v3_finance_en"),
    "Fin-FR": ("Vidore3FinanceFrRetrieval", "vidore_v3_finance_fr"),
    "Ind.": ("Vidore3IndustrialRetrieval", "vidore_v3_industrial"),
    "Phar.": ("Vidore3PharmaceuticalsRetrieval", "vidore_v3_pharmaceuticals"),
    "CS": ("Vidore3ComputerScienceRetrieval", "vidore_v3_computer_science"),
    "Ener.": ("Vidore3EnergyRetrieval", "vidore_v3_energy"),
    "Phys.": ("Vidore3PhysicsRetrieval", "vidore_v3_physics"),
}
METHODS: _Names = {
    "EigenLI": ("EigenLI-MV",),
    "EigenLI-SV": (),
    "KMeans++": (),
    "Ward": (),
    "Full MaxSim": ("MaxSim", "Full"),
    "MUVERA": (),
}
METRICS: _Names = {"Recall": ("R",), "nDCG": ("n",), "MRR": ("M",), "Time": ()}

_NAMES: dict[str, _Names] = {
    "table": dict.fromkeys(TABLES, ()),
    "model": MODELS,
    "dataset": {**BEIR, **VIDORE},
    "method": METHODS,
    "metric": METRICS,
}
# The fields of a number that hold names, and of which kind.
_KINDS = {**{kind: kind for kind in _NAMES}, "baseline": "method"}


@dataclass(frozen=True)
class Cell:
    """One number printed in the paper; see the module for what each field means.

    ``decimals`` is the number of decimals printed.

    Examples
    --------
    >>> cell = select(table="beir_recall", dataset="SciFact", method="EigenLI", k=32)[0]
    >>> cell.metric, cell.dataset
    ('Recall', 'SciFact')
    """

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
    """Return the paper's name for ``name``.

    Case, punctuation and a leading ``owner/`` do not matter.

    Examples
    --------
    >>> canonical("model", "answerdotai/answerai-colbert-small-v1")
    'AnswerAI-ColBERT-small'
    >>> canonical("dataset", "QuoraRetrieval")
    'Quora'
    """
    known = _aliases(kind)
    try:
        return known[_squeeze(name.rstrip("/").rpartition("/")[2])]
    except KeyError:
        raise ValueError(
            f"the paper has no {kind} {name!r}; it has {', '.join(_NAMES[kind])}"
        ) from None


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


def value(
    *,
    model: str,
    dataset: str,
    method: str,
    metric: str,
    cutoff: int,
    k: int | None = None,
    centered: bool = False,
) -> float:
    """Return the one measurement the paper reports for these settings, as a fraction.

    Raises
    ------
    LookupError
        If the paper has none, or several with different ``k``.

    Examples
    --------
    >>> value(model="colbert-ir/colbertv2.0", dataset="SciFact", method="EigenLI", k=32,
    ...       metric="nDCG", cutoff=10)
    0.6841
    """
    cells = select(
        model=model,
        dataset=dataset,
        method=method,
        k=k,
        centered=centered,
        statistic="value",
        metric=metric,
        cutoff=cutoff,
    )
    asked = f"{metric}@{cutoff} of {method} with {model} on {dataset}"
    if not cells:
        with_k = "" if k is None else f" at k={k}"
        raise LookupError(
            f"the paper has no {'centered' if centered else 'uncentered'} {asked}{with_k}"
        )
    sizes = sorted({cell.k for cell in cells if cell.k is not None})
    if len(sizes) > 1:
        raise LookupError(f"the paper has {asked} at k={sizes}: give k")
    return cells[0].value


@cache
def _aliases(kind: str) -> dict[str, str]:
    return {
        _squeeze(name): official
        for official, others in _NAMES[kind].items()
        for name in (official, *others)
    }


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

"""The paper's numbers are all there and are read correctly."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise, product
from typing import Any

import pytest
from typer.testing import CliRunner

from pylate_eigenli.cli import app
from pylate_eigenli.evaluation.paper import results as paper
from pylate_eigenli.evaluation.paper.results import BEIR, METHODS, MODELS, TABLES, VIDORE, Cell

CUTOFFS = (10, 100, 1000)
SIZES = (8, 16, 32)
COMPRESSED = [(method, k) for method in ("EigenLI", "KMeans++", "Ward") for k in SIZES]
GRID = [*COMPRESSED, ("Full MaxSim", None)]
SINGLE_VECTOR = [("EigenLI-SV", 32), ("MUVERA", None)]
ALL_METRICS = ("Recall", "nDCG", "MRR")
MEASURED: dict[str, tuple[Any, ...]] = {
    "beir_recall": (BEIR, GRID, ["Recall"], CUTOFFS),
    "beir_ndcg": (BEIR, GRID, ["nDCG"], CUTOFFS),
    "beir_mrr": (BEIR, GRID, ["MRR"], CUTOFFS),
    "vidore_recall": (VIDORE, GRID, ["Recall"], CUTOFFS[:2]),
    "vidore_ndcg": (VIDORE, GRID, ["nDCG"], CUTOFFS[:2]),
    "sv_recall": (BEIR, SINGLE_VECTOR, ["Recall"], CUTOFFS),
    "sv_ndcg": (BEIR, SINGLE_VECTOR, ["nDCG"], CUTOFFS),
    "answerai_all": (BEIR, [*GRID, ("MUVERA", None)], ALL_METRICS, CUTOFFS),
    "gte_all": (BEIR, [*GRID, ("MUVERA", None)], ALL_METRICS, CUTOFFS),
}
SUMMARIES = {
    "beir_geomean_32": 3 * 3 * 2 * 9,
    "vidore_geomean_32": 3 * 2 * 4,
    "sv_geomean": 3 * 2 * 9,
    "centering_macro": 2 * 2 * 9 * 3,
    "sv_quant_recall": 4 * 3,
    "sv_quant_ndcg": 4 * 3,
    "compression_overhead": 4 * 2 * 2,
}


class TestCompleteness:
    @pytest.mark.parametrize("table", MEASURED)
    def test_a_table_holds_every_combination_once(self, table: str) -> None:
        datasets, runs, metrics, cutoffs = MEASURED[table]
        expected = Counter(product(datasets, runs, metrics, cutoffs))
        cells = paper.select(table=table)
        assert Counter((c.dataset, (c.method, c.k), c.metric, c.cutoff) for c in cells) == expected
        assert len({cell.model for cell in cells}) == 1

    def test_the_effect_of_centering_is_there_for_every_dataset(self) -> None:
        models = ("AnswerAI-ColBERT-small", "GTE-ModernColBERT")
        states = ((False, "value"), (True, "value"), (None, "delta"))
        cells = paper.select(table="anisotropic_centering_at10")
        assert Counter(
            (c.model, c.dataset, (c.method, c.k), c.metric, (c.centered, c.statistic))
            for c in cells
        ) == Counter(product(models, BEIR, SINGLE_VECTOR, ALL_METRICS, states))
        assert {cell.cutoff for cell in cells} == {10}

    @pytest.mark.parametrize(("table", "numbers"), SUMMARIES.items())
    def test_a_summary_holds_as_many_different_means_as_it_should(
        self, table: str, numbers: int
    ) -> None:
        cells = paper.select(table=table)
        assert len({_setting(cell) for cell in cells}) == len(cells) == numbers

    def test_there_are_no_other_tables(self) -> None:
        described = set(MEASURED) | set(SUMMARIES) | {"anisotropic_centering_at10"}
        assert set(TABLES) == {cell.table for cell in paper.load()} == described

    def test_names_are_the_paper_s(self) -> None:
        cells = paper.load()
        assert {cell.model for cell in cells} == {*MODELS, None}
        assert {cell.dataset for cell in cells} == {*BEIR, *VIDORE, None}
        assert {cell.method for cell in cells} == set(METHODS)
        assert {cell.baseline for cell in cells} == set(METHODS) - {"EigenLI-SV"} | {None}


class TestValues:
    def test_measurements_are_fractions(self) -> None:
        assert all(0 <= cell.value <= 1 for cell in paper.select(statistic="value"))

    def test_measurements_are_printed_to_four_decimals_but_for_full_maxsim_on_images(self) -> None:
        fewer = [cell for cell in paper.select(statistic="value") if cell.decimals != 4]
        assert {(cell.model, cell.method) for cell in fewer} == {("ColQwen3", "Full MaxSim")}

    def test_mrr_never_falls_with_the_cutoff(self) -> None:
        self._assert_rising(paper.select(metric="MRR", statistic="value"))

    def test_truncated_recall_falls_only_where_relevant_documents_abound(self) -> None:
        cells = paper.select(metric="Recall", statistic="value")
        self._assert_rising([cell for cell in cells if cell.dataset != "TREC-COVID"])

    def test_the_arithmetic_mean_is_never_below_the_geometric(self) -> None:
        geometric = {_setting(cell, "statistic"): cell for cell in paper.select(statistic="gm")}
        arithmetic = {_setting(cell, "statistic"): cell for cell in paper.select(statistic="am")}
        assert geometric
        assert all(cell.value <= arithmetic[key].value for key, cell in geometric.items())

    def test_muvera_is_centered_where_and_only_where_the_paper_says(self) -> None:
        for table in MEASURED:
            for cell in paper.select(table=table):
                anisotropic = table in ("answerai_all", "gte_all")
                assert cell.centered is (cell.method == "MUVERA" and anisotropic)

    def test_text_is_what_the_file_holds(self) -> None:
        (cell,) = paper.select(
            table="vidore_recall", dataset="Fin-EN", method="Full MaxSim", cutoff=10
        )
        assert cell.text == "0.680"

    @staticmethod
    def _assert_rising(cells: list[Cell]) -> None:
        runs: dict[tuple[object, ...], list[Cell]] = {}
        for cell in cells:
            runs.setdefault(_setting(cell, "cutoff"), []).append(cell)
        for run in runs.values():
            run.sort(key=lambda cell: cell.cutoff or 0)
            assert all(a.value <= b.value for a, b in pairwise(run)), run


class TestAccess:
    @pytest.mark.parametrize(
        ("kind", "alias", "official"),
        [
            ("model", "colbert-ir/colbertv2.0", "ColBERTv2"),
            ("model", "answerdotai/answerai-colbert-small-v1", "AnswerAI-ColBERT-small"),
            ("model", "lightonai/GTE-ModernColBERT-v1", "GTE-ModernColBERT"),
            ("model", "/models/GTE-ModernColBERT-v1/", "GTE-ModernColBERT"),
            ("model", "TomoroAI/tomoro-colqwen3-embed-4b", "ColQwen3"),
            ("dataset", "scifact", "SciFact"),
            ("dataset", "BeIR/climate-fever", "Climate-FEVER"),
            ("dataset", "DBPedia", "DBPedia-Entity"),
            ("dataset", "FiQA2018", "FiQA"),
            ("dataset", "MSMARCO", "MS MARCO"),
            ("dataset", "TRECCOVID", "TREC-COVID"),
            ("dataset", "Touche2020", "Webis-Touche2020"),
            ("dataset", "Vidore3PharmaceuticalsRetrieval", "Phar."),
            ("dataset", "vidore/vidore_v3_computer_science", "CS"),
            ("method", "k-means++", "KMeans++"),
            ("method", "maxsim", "Full MaxSim"),
            ("metric", "ndcg", "nDCG"),
        ],
    )
    def test_other_names_are_understood(self, kind: Any, alias: str, official: str) -> None:
        assert paper.canonical(kind, alias) == official

    @pytest.mark.parametrize("other", ["NanoSciFact", "ClimateFEVER.v2", "Touche2020Retrieval.v3"])
    def test_other_versions_of_a_dataset_are_other_datasets(self, other: str) -> None:
        with pytest.raises(ValueError, match=f"no dataset '{other}'; it has ArguAna, "):
            paper.canonical("dataset", other)

    def test_every_filter_holds(self) -> None:
        wanted = {
            "table": "gte_all",
            "model": "GTE-ModernColBERT",
            "dataset": "NQ",
            "method": "Ward",
            "k": 16,
            "centered": False,
            "statistic": "value",
            "metric": "MRR",
            "cutoff": 100,
        }
        (cell,) = paper.select(**wanted)  # type: ignore[arg-type]
        assert {field: getattr(cell, field) for field in wanted} == wanted
        assert cell.value == 0.4378
        for field in wanted:
            looser = paper.select(**{**wanted, field: None})  # type: ignore[arg-type]
            assert cell in looser


class TestCommand:
    def test_without_arguments_it_lists_the_tables(self) -> None:
        result = run()
        assert result.exit_code == 0, result.output
        assert all(table in result.stdout for table in TABLES)
        listing = json.loads(run("--json").stdout)
        assert [entry["table"] for entry in listing] == list(TABLES)
        assert sum(entry["numbers"] for entry in listing) == len(paper.load())

    @pytest.mark.parametrize("table", TABLES)
    def test_a_table_is_printed_whole(self, table: str) -> None:
        result = run(table)
        assert result.exit_code == 0, result.output
        printed = Counter(result.stdout.replace("│", " ").split())
        assert Counter(cell.text for cell in paper.select(table=table)) <= printed

    def test_filters_apply_to_a_table_and_to_all(self) -> None:
        options = ("--dataset", "scifact", "--method", "eigenli", "-k", "32", "--metric", "mrr")
        one = json.loads(run("beir_mrr", *options, "--json").stdout)
        assert [(row["cutoff"], row["value"]) for row in one] == [
            (10, 0.6593),
            (100, 0.6626),
            (1000, 0.6629),
        ]
        every = json.loads(run(*options, "--json").stdout)
        assert {row["table"] for row in every} == {"beir_mrr", "answerai_all", "gte_all"}
        narrowed = json.loads(run(*options, "--model", "ColBERTv2", "--json").stdout)
        assert narrowed == one

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (["no_such_table"], "error: the paper has no table 'no_such_table'; it has "),
            (["--dataset", "nope"], "error: the paper has no dataset 'nope'; it has "),
            (["gte_all", "--model", "ColBERTv2"], "error: the paper has no such number"),
        ],
    )
    def test_what_the_paper_lacks_is_one_line_on_stderr(
        self, arguments: list[str], error: str
    ) -> None:
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(error)
        assert len(result.stderr.splitlines()) == 1

    def test_a_bad_option_is_a_usage_error(self) -> None:
        assert run("-k", "none").exit_code == 2


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["paper", *arguments], env={"COLUMNS": "80"})


def _setting(cell: Cell, *but: str) -> tuple[object, ...]:
    """Return all that says what the number of a cell is, except the fields named."""
    return tuple(v for field, v in vars(cell).items() if field not in ("value", "decimals", *but))

"""The paper's visual experiments: ColQwen3 on ViDoRe-v3 with EigenLI and full MaxSim, and its numbers.

    pip install "pylate-eigenli[mteb,vision]"
    python examples/vidore_colqwen3.py [MODEL] [TASK...]

MODEL is by default the paper's, which needs a GPU; TASKs are names of mteb tasks, by default those
of the paper. Compressed pages and results are kept in the folder "vidore", so that an interrupted
run continues.
"""

import sys

import mteb
from rich.console import Console
from rich.table import Table

from pylate_eigenli.evaluation.mteb_search import CompressedSearch
from pylate_eigenli.evaluation.paper import results as paper
from pylate_eigenli.models.vision import VisionColBERT

METHODS = {"eigenli-8": 8, "eigenli-16": 16, "eigenli-32": 32, "full": None}
CUTOFFS = (10, 100)

name = sys.argv[1] if len(sys.argv) > 1 else "TomoroAI/tomoro-colqwen3-embed-4b"
names = sys.argv[2:] or [aliases[0] for aliases in paper.VIDORE.values()]
# Questions in six languages about pages in one or two.
tasks = mteb.get_tasks(tasks=names)

model = VisionColBERT(name)  # with the model's own number of visual tokens: 1,280


def printed(task: str, k: int | None, cutoff: int) -> str:
    """Return the paper's nDCG."""
    method = "Full MaxSim" if k is None else "EigenLI"
    (cell,) = paper.select(table="vidore_ndcg", dataset=task, method=method, k=k, cutoff=cutoff)
    return cell.text


table = Table("task", "method", *(f"nDCG@{c}{whose}" for c in CUTOFFS for whose in ("", ", paper")))
for task in tasks:
    for method, k in METHODS.items():
        search = CompressedSearch(
            model, method, chunk_size=64, cache_folder="vidore/pages", name=name
        )
        evaluated = mteb.evaluate(
            search, task, encode_kwargs={"batch_size": 4}, cache=mteb.ResultCache("vidore")
        )
        (result,) = evaluated.task_results
        row = [task.metadata.name, method]
        for cutoff in CUTOFFS:
            scores = [languages[f"ndcg_at_{cutoff}"] for languages in result.scores["test"]]
            row += [f"{sum(scores) / len(scores):.4f}", printed(row[0], k, cutoff)]
        table.add_row(*row)
Console().print(table)

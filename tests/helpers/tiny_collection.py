"""A collection in BEIR's layout whose every text the tiny model has words for."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ["apple", "grass", "leaf", "sky", "sea", "fruit", "water", "plant", "sun"]
TEXTS = [f"the {a} is a {b}" for a in WORDS for b in WORDS]


def tiny_collection(folder: Path) -> Path:
    """Write 81 documents, and 5 queries with the texts of the first 5."""
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": str(i), "text": t}) + "\n" for i, t in enumerate(TEXTS))
    with (folder / "queries.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": f"q{i}", "text": TEXTS[i]}) + "\n" for i in range(5))
    rows = "".join(f"q{i}\t{i}\t1\n" for i in range(5))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder

"""Collections in BEIR's folder layout: corpus.jsonl, queries.jsonl and qrels/<split>.tsv."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Collection:
    """Documents, queries and relevance judgements.

    Parameters
    ----------
    name
        Name of the folder.
    corpus
        Text by document id: title and text, as BEIR joins them.
    queries
        Text by query id, of the judged queries only.
    qrels
        Relevance by query id and document id.
    ignore_identical_ids
        Whether to ignore a document with the id of the query, unless it is judged relevant. BEIR
        always does, because the queries of ArguAna and Quora are documents too. Turn it off for
        collections that number both documents and queries from 1.

    Examples
    --------
    >>> corpus, queries = {"d1": "Apples are red."}, {"q1": "apples"}
    >>> Collection("fruit", corpus, queries, {"q1": {"d1": 1}}).qrels["q1"]
    {'d1': 1}
    """

    name: str
    corpus: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    ignore_identical_ids: bool = True

    def answers(self, query: str, ranking: Iterable[str]) -> list[str]:
        """Return the documents of a ranking that count as answers to a query."""
        judged = self.qrels.get(query, {})
        if not self.ignore_identical_ids or judged.get(query, 0) > 0:
            return list(ranking)
        return [document for document in ranking if document != query]


def load(folder: str | Path, split: str = "test") -> Collection:
    """Read a collection; an error names a file that is missing or broken."""
    folder = Path(folder)
    qrels: dict[str, dict[str, int]] = {}
    path = folder / "qrels" / f"{split}.tsv"
    with _open(path) as file:
        for number, row in enumerate(csv.reader(file, delimiter="\t"), start=1):
            if number == 1 and not row[-1].lstrip("-").isdigit():
                continue  # the header
            if len(row) != 3:
                raise ValueError(f"{path}, line {number}: expected 3 columns, got {len(row)}")
            qrels.setdefault(row[0], {})[row[1]] = int(row[2])
    corpus = {
        str(row["_id"]): f"{row.get('title', '')} {row['text']}".strip()
        for row in _rows(folder / "corpus.jsonl")
    }
    queries = {
        str(row["_id"]): str(row["text"])
        for row in _rows(folder / "queries.jsonl")
        if str(row["_id"]) in qrels
    }
    missing = qrels.keys() - queries.keys()
    if missing:
        raise ValueError(f"{path}: query {min(missing)!r} is not in queries.jsonl")
    return Collection(folder.name, corpus, queries, qrels)


def _open(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: not a folder in BEIR's layout")
    return path.open(encoding="utf-8", newline="")


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                row["_id"], row["text"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: {error!r}") from error
            rows.append(row)
    return rows

"""A task of mteb's ViDoRe-v3 whose pages are drawn here."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from helpers.rendered import sheet
from mteb.tasks.retrieval.multilingual.vidore3_bench_retrieval import Vidore3HrRetrieval

TOPICS = ["revenue", "holidays", "training", "pensions", "safety", "travel", "tax", "parking"]
PAGES = {f"page-{i}": sheet(f"{i}. {topic}") for i, topic in enumerate(TOPICS)}
QUESTIONS = {
    f"query-{language}-{topic}": f"{topic}? ({language})"
    for language in ("english", "french", "german", "italian", "portuguese", "spanish")
    for topic in TOPICS[:4]
}


class LocalHr(Vidore3HrRetrieval):
    """Which page is relevant to which question is up to whoever makes the task."""

    def __init__(self, relevant: dict[str, str], **options: Any) -> None:
        super().__init__(**options)
        self.relevant = relevant

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        self.dataset = {language: {"test": self.split(language)} for language in self.hf_subsets}
        self.data_loaded = True

    def split(self, language: str) -> dict[str, Any]:
        asked = {query: text for query, text in QUESTIONS.items() if language in query}
        return {
            "corpus": Dataset.from_dict({"id": list(PAGES), "image": list(PAGES.values())}),
            "queries": Dataset.from_dict({"id": list(asked), "text": list(asked.values())}),
            "relevant_docs": {query: {self.relevant[query]: 1} for query in asked},
            "top_ranked": None,
        }

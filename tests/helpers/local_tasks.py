"""Tasks of mteb's own classes whose data is made here."""

from __future__ import annotations

from datasets import Dataset
from helpers.tiny_collection import TEXTS
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from PIL import Image


def metadata(name: str, task_type: str = "Retrieval", **options) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        description="A test.",
        reference=None,
        dataset={"path": f"local/{name}", "revision": "1"},
        type=task_type,
        eval_splits=["test"],
        main_score="ndcg_at_10",
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        sample_creation=None,
        bibtex_citation=None,
        **{"eval_langs": ["eng-Latn"], "category": "t2t", "modalities": ["text"], **options},
    )


class Known(AbsTaskRetrieval):
    """Find the text that the query is. Queries and documents have the same ids."""

    metadata = metadata("LocalRetrieval")
    k_values = (1, 5, 10)

    def load_data(self, num_proc=None, **kwargs) -> None:
        self.dataset = {subset: {"test": self.split(subset)} for subset in self.hf_subsets}
        self.data_loaded = True

    def split(self, subset: str) -> dict:
        texts = [text.replace("the", "a") if subset == "a" else text for text in TEXTS]
        ids = [f"d{i}" for i in range(len(texts))]
        asked = ids[::7]
        return {
            "corpus": Dataset.from_dict({"id": ids, "title": [""] * len(ids), "text": texts}),
            "queries": Dataset.from_dict({"id": asked, "text": texts[::7]}),
            "relevant_docs": {query: self.relevant(int(query[1:])) for query in asked},
            "top_ranked": self.top_ranked(asked, ids),
        }

    def relevant(self, i: int) -> dict[str, int]:
        return {f"d{i}": 1}

    def top_ranked(self, asked: list[str], ids: list[str]) -> dict[str, list[str]] | None:
        return None


class Reranked(Known):
    """As above, but to be chosen out of some candidates."""

    metadata = metadata("LocalReranking", "Reranking")

    def top_ranked(self, asked, ids):
        return {q: ids[int(q[1:]) % 11 :: 11] for q in asked}

    def relevant(self, i):
        return {f"d{i % 11}": 1}


class TwoSubsets(Known):
    metadata = metadata("LocalSubsets", eval_langs={"a": ["eng-Latn"], "the": ["eng-Latn"]})


class Pictures(AbsTaskRetrieval):
    """Find the picture of a colour by its name, as ViDoRe's tasks find pages."""

    metadata = metadata("LocalPictures", category="t2i", modalities=["text", "image"])
    k_values = (1, 5, 10)

    def load_data(self, num_proc=None, **kwargs) -> None:
        colours = ["red", "green", "blue"]
        pictures = [Image.new("RGB", (4, 4), colour) for colour in colours]
        split = {
            "corpus": Dataset.from_dict({"id": colours, "image": pictures}),
            "queries": Dataset.from_dict({"id": colours, "text": colours}),
            "relevant_docs": {colour: {colour: 1} for colour in colours},
            "top_ranked": None,
        }
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


class Composed(Pictures):
    """As above, but queries are a picture and a text."""

    metadata = metadata("LocalComposed", category="it2i", modalities=["text", "image"])

    def load_data(self, num_proc=None, **kwargs) -> None:
        super().load_data()
        split = self.dataset["default"]["test"]
        rows = {"id": split["queries"]["id"], "text": split["queries"]["text"]}
        split["queries"] = Dataset.from_dict({**rows, "image": list(split["corpus"]["image"])})


class WithoutSelf(Known):
    """As ArguAna: the query itself is in the corpus and no answer."""

    metadata = metadata("LocalSelf")
    ignore_identical_ids = True

    def relevant(self, i):
        return {f"d{(i // 9) * 9 + (i + 1) % 9}": 1}

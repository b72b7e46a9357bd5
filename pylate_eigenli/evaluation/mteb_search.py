"""Any late-interaction model with any method of the evaluation, as a model that mteb can search with.

``mteb.evaluate(CompressedSearch(model, "eigenli-32"), tasks)`` runs retrieval, reranking and
multilingual tasks. The corpus is encoded and compressed in chunks, so that there are never more
tokens in memory than those of one chunk. Documents of the query's own id, as ArguAna has them, are
left in: mteb removes them from the results of the tasks for which they do not count.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from .. import __version__
from ..tokens import TokenBatch, collect
from .embeddings import identity
from .methods import MultiVector, method
from .plaid import Plaid
from .scanning import Parts, Scan
from .stored_parts import StoredParts

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta


class CompressedSearch:
    """A model of mteb's ``SearchProtocol`` that searches compressed documents.

    Parameters
    ----------
    model
        A ``pylate.models.ColBERT`` or its name or path, or anything with such an ``encode``; or an
        encoder of mteb that returns several vectors per text or image, such as its wrappers of
        PyLate, ColPali and ColQwen models.
    method
        A name that :func:`pylate_eigenli.evaluation.methods.method` understands, or ``"plaid"``,
        which cannot do without the tokens of the whole corpus.
    chunk_size
        Number of documents that are encoded at a time.
    cache_folder
        Keep compressed chunks in this folder and read them from there: a run that was interrupted
        goes on with the first chunk that is missing, and a search has one chunk in memory. PLAID
        does not use it.
    name
        What to call a model that is given as an object and does not say its name.

    Examples
    --------
    >>> class Letters:
    ...     def encode(self, texts, *, is_query, **options):
    ...         return [np.eye(26)[[ord(letter) - 97 for letter in text]] for text in texts]
    >>> search = CompressedSearch(Letters(), "eigenli-4", name="some/letters")
    >>> search.mteb_model_meta.name
    'some/letters-eigenli-4'

    It is then ``mteb.evaluate(search, mteb.get_tasks(["SciFact", "AskUbuntuDupQuestions"]))``.
    """

    def __init__(
        self,
        model: Any,
        method: str = "eigenli-32",
        *,
        chunk_size: int = 1024,
        cache_folder: str | Path | None = None,
        name: str | None = None,
    ) -> None:
        try:
            import mteb  # noqa: F401
        except ImportError as error:
            raise ImportError(
                'CompressedSearch needs mteb: `pip install "pylate-eigenli[mteb]"`'
            ) from error
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be positive, got {chunk_size}")
        self.method = method
        self.chunk_size = chunk_size
        self.cache_folder = cache_folder
        self._searcher = self._new_searcher()
        if isinstance(model, str):
            from pylate import models

            model, name = models.ColBERT(model_name_or_path=model), model
        self.model = model
        self.name = name or _name_of(model)
        self.mteb_model_meta = _meta(model, self.name, method)
        self._ids: list[str] = []

    def index(
        self,
        corpus: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Mapping[str, Any],
        num_proc: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Encode and compress a corpus, a ``datasets.Dataset`` with a column ``id``."""
        context: dict[str, Any] = {
            "task_metadata": task_metadata,
            "hf_split": hf_split,
            "hf_subset": hf_subset,
            "encode_kwargs": encode_kwargs,
            "num_proc": num_proc,
        }
        self._searcher = self._new_searcher()
        self._ids = list(corpus["id"])
        bar = tqdm(
            total=len(self._ids),
            desc=f"Compressing {task_metadata.name} ({self.method})",
            disable=not encode_kwargs.get("show_progress_bar", True),
        )
        with bar:
            for begin in range(0, len(self._ids), self.chunk_size):
                end = min(begin + self.chunk_size, len(self._ids))
                chunk = corpus.select(range(begin, end))
                self._searcher.append(
                    self._key(chunk, task_metadata, hf_split, hf_subset),
                    partial(self._encode, chunk, is_query=False, **context),
                )
                bar.update(end - begin)

    def search(
        self,
        queries: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        encode_kwargs: Mapping[str, Any],
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        num_proc: int | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the best ``top_k`` documents by query id and document id.

        ``top_ranked`` has the ids of the documents to choose from by query id, if not all.
        """
        if not self._ids:
            raise ValueError("there is nothing to search: index a corpus first")
        tokens = self._encode(
            queries,
            is_query=True,
            task_metadata=task_metadata,
            hf_split=hf_split,
            hf_subset=hf_subset,
            encode_kwargs=encode_kwargs,
            num_proc=num_proc,
        )
        candidates = None
        if top_ranked is not None:
            rows = {document: row for row, document in enumerate(self._ids)}
            candidates = [
                np.array([rows[document] for document in top_ranked.get(query, ())], np.int64)
                for query in queries["id"]
            ]
        return {
            query: {
                self._ids[row]: score
                for row, score in zip(hits.rows.tolist(), hits.scores.tolist(), strict=True)
            }
            for query, hits in zip(
                queries["id"], self._searcher.search(tokens, top_k, candidates), strict=True
            )
        }

    def _new_searcher(self) -> Scan | Plaid:
        if self.method == "plaid":
            return Plaid()
        parts: Parts = {} if self.cache_folder is None else StoredParts(self.cache_folder)
        return Scan(method(self.method), parts)

    def _encode(
        self,
        dataset: Any,
        *,
        is_query: bool,
        task_metadata: Any,
        encode_kwargs: Mapping[str, Any],
        num_proc: int | None,
        **where: str,
    ) -> TokenBatch:
        """Return the token vectors of the rows of a dataset."""
        from mteb._create_dataloaders import create_dataloader
        from mteb.models.abs_encoder import get_prompt
        from mteb.types import PromptType

        prompt_type = PromptType("query" if is_query else "document")
        batches = create_dataloader(
            dataset,
            task_metadata=task_metadata,
            prompt_type=prompt_type,
            batch_size=encode_kwargs.get("batch_size", 32),
            num_proc=num_proc,
        )
        if _is_pylate(self.model):
            prompt = get_prompt(getattr(self.model, "prompts", None), task_metadata, prompt_type)
            embeddings = self.model.encode(
                [item for batch in batches for item in batch.get("image", batch.get("text"))],
                is_query=is_query,
                # Ours shows the progress of the corpus, not that of each chunk.
                **{**encode_kwargs, "show_progress_bar": False},
                **({"prompt": prompt} if prompt else {}),
            )
        else:
            # mteb's PyLate models hide their encode, so that mteb itself searches with PLAID.
            encode = getattr(self.model, "encode", None) or self.model._encode
            embeddings = encode(
                batches,
                task_metadata=task_metadata,
                prompt_type=prompt_type,
                **where,
                **encode_kwargs,
            )
        return collect(embeddings, device="cpu", names=[f"item {i!r}" for i in dataset["id"]])

    def _key(self, chunk: Any, task_metadata: Any, *where: str) -> str:
        """Return a hash of all that the compressed documents of a chunk depend on.

        Images are known by their ids and the revision of the dataset.
        """
        columns = [column for column in ("id", "title", "text") if column in chunk.column_names]
        known_by = [
            __version__,
            identity(self.model, self.name),
            self.mteb_model_meta.revision,
            self.method,
            task_metadata.name,
            task_metadata.dataset,
            where,
            [list(chunk[column]) for column in columns],
        ]
        return hashlib.sha256(json.dumps(known_by, default=str).encode()).hexdigest()[:32]


def _is_pylate(model: Any) -> bool:
    """Whether a model encodes lists, as PyLate's do, and not the dataloaders of mteb."""
    encode = getattr(model, "encode", None)
    return encode is not None and "is_query" in inspect.signature(encode).parameters


def _meta(model: Any, name: str, method_name: str) -> ModelMeta:
    """Return what mteb files results under: a name with the method, so that none are mixed up."""
    import mteb
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    base = getattr(model, "mteb_model_meta", None)
    if base is None:
        local = Path(name).exists() or "/" not in name
        try:
            base = mteb.get_model_meta(name, fetch_from_hf=False)
        except KeyError:
            base = ModelMeta.create_empty(
                {"name": f"local/{Path(name).name}" if local else name, "framework": ["PyLate"]}
            )
    multi_vector = method_name == "plaid" or isinstance(method(method_name), MultiVector)
    lengths = {
        option: getattr(model, option)
        for option in ("query_length", "document_length")
        if hasattr(model, option)
    }
    return base.model_copy(
        update={
            "name": f"{base.name}-{method_name}",
            "adapted_from": base.name,
            "loader": None,
            "model_type": ["late-interaction"],
            "modalities": getattr(model, "modalities", base.modalities),
            "similarity_fn_name": ScoringFunction.MAX_SIM
            if multi_vector
            else ScoringFunction.CUSTOM,
            "experiment_kwargs": {**(base.experiment_kwargs or {}), **lengths} or None,
        }
    )


def _name_of(model: Any) -> str:
    try:
        if hasattr(model, "mteb_model_meta"):
            return str(model.mteb_model_meta.name)
        return str(model[0].auto_model.config._name_or_path)
    except (TypeError, IndexError, AttributeError):
        raise ValueError(f"the {type(model).__name__} does not say its name: give name=") from None

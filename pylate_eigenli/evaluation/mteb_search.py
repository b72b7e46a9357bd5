"""CompressedSearch: a late-interaction model and a method of the evaluation, as a model for mteb.

``mteb.evaluate(CompressedSearch(model, "eigenli-32"), tasks)`` runs retrieval, reranking and
multilingual tasks. The corpus is encoded and compressed in chunks, so that only the tokens of one
chunk are in memory. Documents with the id of the query, as in ArguAna, stay in the results: mteb
removes them in the tasks where they do not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from .. import __version__
from ..errors import check_positive, require
from ..models.fingerprint import fingerprint
from ..models.text_models import adapted, is_multi_vector, load_model, takes_lists
from ..tokens import TokenBatch, collect
from . import mteb_internals
from .methods import Method, parse

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta


class CompressedSearch:
    """A model of mteb's ``SearchProtocol`` that searches compressed documents.

    Parameters
    ----------
    model
        A ``pylate.models.ColBERT``, or an object with the same ``encode``; a
        ``sentence_transformers.MultiVectorEncoder``; the name or path of either; or an encoder of
        mteb that returns several vectors per text or image, such as its wrappers of ColPali and
        ColQwen models.
    method
        A name, see :func:`pylate_eigenli.evaluation.methods.parse`.
    chunk_size
        Number of documents that are encoded at a time.
    cache_folder
        Keep compressed corpora in this folder: an interrupted run continues after the last complete
        chunk. By default they are in a temporary folder.
    name
        Name of a model that is given as an object and has none.

    Examples
    --------
    >>> class Letters:
    ...     def encode(self, texts, *, is_query, **options):
    ...         return [np.eye(26)[[ord(letter) - 97 for letter in text]] for text in texts]
    >>> search = CompressedSearch(Letters(), "eigenli-4", name="some/letters")
    >>> search.mteb_model_meta.name
    'some/letters-eigenli-4'

    Then run ``mteb.evaluate(search, mteb.get_tasks(["SciFact", "AskUbuntuDupQuestions"]))``.
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
        require("mteb", "mteb", "CompressedSearch")
        check_positive(chunk_size=chunk_size)
        self.method = method
        self.chunk_size = chunk_size
        self.cache_folder = cache_folder
        self._spec = parse(method)
        self._spec.check()
        self._method: Method | None = None
        self._files = ExitStack()  # closes the method, and deletes its temporary folder
        if isinstance(model, str):
            model, name = load_model(model), model
        self.model = self._encoder = model
        if is_multi_vector(model):  # mteb's own wrapper knows its prompts and modalities
            from mteb.models import MultiVectorWrapper

            self._encoder = MultiVectorWrapper(model)
        self.name = name or _name_of(model)
        self.mteb_model_meta = _meta(model, self.name, method, self._spec.family.is_maxsim)
        self._ids: list[str] = []

    def index(
        self,
        corpus: Any,
        *,
        task_metadata: Any,
        encode_kwargs: Mapping[str, Any],
        **context: Any,
    ) -> None:
        """Encode and compress a corpus, a ``datasets.Dataset`` with a column ``id``."""
        self._ids = list(corpus["id"])
        where = (context["hf_split"], context["hf_subset"])
        method = self._open(self._key(corpus, task_metadata, *where))
        bar = tqdm(
            total=len(self._ids),
            initial=len(method),
            desc=f"Compressing {task_metadata.name} ({self.method})",
            disable=not encode_kwargs.get("show_progress_bar", True),
        )
        with bar:
            for begin in range(len(method), len(self._ids), self.chunk_size):
                chunk = corpus.select(range(begin, min(begin + self.chunk_size, len(self._ids))))
                method.add(self._encode(chunk, False, task_metadata, encode_kwargs, **context))
                bar.update(len(chunk))
        method.finish()

    def search(
        self,
        queries: Any,
        *,
        task_metadata: Any,
        top_k: int,
        encode_kwargs: Mapping[str, Any],
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **context: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the best ``top_k`` documents by query id and document id.

        ``top_ranked`` has the ids of the documents to choose from by query id, if not all.
        """
        if self._method is None:
            raise ValueError("there is nothing to search: index a corpus first")
        tokens = self._encode(queries, True, task_metadata, encode_kwargs, **context)
        self._method.fit_queries(tokens)
        candidates = None
        if top_ranked is not None:
            rows = {document: row for row, document in enumerate(self._ids)}
            candidates = [
                np.array([rows[document] for document in top_ranked.get(query, ())], np.int64)
                for query in queries["id"]
            ]
        found = self._method.search(tokens, top_k, candidates)
        return {
            query: {self._ids[row]: float(score) for row, score in zip(*hits, strict=True)}
            for query, hits in zip(queries["id"], found, strict=True)
        }

    def _open(self, key: str) -> Method:
        """Open the method for a corpus and close the one for the corpus before."""
        self._files.close()
        if self.cache_folder:
            folder = Path(self.cache_folder) / key
        else:
            folder = Path(self._files.enter_context(TemporaryDirectory(prefix="eigenli-mteb-")))
        self._method = self._files.enter_context(closing(self._spec.open(folder)))
        return self._method

    def _encode(
        self,
        dataset: Any,
        is_query: bool,
        task_metadata: Any,
        encode_kwargs: Mapping[str, Any],
        num_proc: int | None = None,
        **where: Any,
    ) -> TokenBatch:
        """Return the token vectors of the rows of a dataset."""
        batches = mteb_internals.batches(
            dataset,
            task_metadata,
            is_query=is_query,
            batch_size=encode_kwargs.get("batch_size", 32),
            num_proc=num_proc,
        )
        options = dict(encode_kwargs)
        if takes_lists(self._encoder):
            modality = self._modality(task_metadata, is_query)
            inputs = [item for batch in batches for item in batch[modality]]
            prompts = getattr(self.model, "prompts", None)
            prompt = mteb_internals.prompt_of(prompts, task_metadata, is_query=is_query)
            # Our bar shows the progress of the corpus, not that of each chunk.
            options |= {"show_progress_bar": False, **({"prompt": prompt} if prompt else {})}
            embeddings: Any = adapted(self._encoder).encode(inputs, is_query=is_query, **options)
        else:
            options |= {"task_metadata": task_metadata, **where}
            embeddings = mteb_internals.encode(self._encoder, batches, is_query, options)
        return collect(embeddings, device="cpu", names=[f"item {i!r}" for i in dataset["id"]])

    def _modality(self, task_metadata: Any, is_query: bool) -> str:
        """Return what the model is given of queries or documents: their texts or their images."""
        of_task = mteb_internals.modalities(task_metadata, is_query=is_query)
        if len(of_task) > 1:
            noun = "queries" if is_query else "documents"
            raise ValueError(
                f"the {noun} of {task_metadata.name} are {' and '.join(of_task)} at once, and "
                f"{self.name} encodes one of them: give an encoder of mteb that takes both"
            )
        return of_task[0]

    def _key(self, corpus: Any, task_metadata: Any, *where: str) -> str:
        """Return a hash of everything that a compressed corpus depends on.

        Images are identified by their ids and the revision of the dataset.
        """
        known_by = [
            __version__,
            self.name,
            self.mteb_model_meta.revision,
            self.method,
            task_metadata.name,
            task_metadata.dataset,
            where,
        ]
        digest = hashlib.sha256(json.dumps(known_by, default=str).encode())
        columns = [column for column in ("id", "title", "text") if column in corpus.column_names]
        for begin in range(0, len(corpus), self.chunk_size):
            chunk = corpus.select(range(begin, min(begin + self.chunk_size, len(corpus))))
            rows = [list(row) for row in zip(*(chunk[column] for column in columns), strict=True)]
            # Without the brackets, so that the hash does not depend on the chunks.
            digest.update(json.dumps(rows, default=str)[1:-1].encode() + b",")
        return digest.hexdigest()[:32]


def _meta(model: Any, name: str, method_name: str, is_maxsim: bool) -> ModelMeta:
    """Return the model's description for mteb; its name includes the method."""
    import mteb
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    base = getattr(model, "mteb_model_meta", None)
    if base is None:
        local = Path(name).exists() or "/" not in name
        framework = "Sentence Transformers" if is_multi_vector(model) else "PyLate"
        try:
            base = mteb.get_model_meta(name, fetch_from_hf=False)
        except KeyError:
            base = ModelMeta.create_empty(
                {"name": f"local/{Path(name).name}" if local else name, "framework": [framework]}
            )
    # mteb finds results without experiment_kwargs by default: only what the checkpoint does not say.
    saved = getattr(model, "_model_config", {})
    lengths = {
        option: getattr(model, option)
        for option in ("query_length", "document_length")
        if getattr(model, option, None) != saved.get(option, getattr(model, option, None))
    }
    return base.model_copy(
        update={
            # mteb makes a folder of the name.
            "name": f"{base.name}-{re.sub('[^A-Za-z0-9.+_-]+', '-', method_name)}",
            "revision": fingerprint(model, name),
            "adapted_from": base.name,
            "loader": None,
            "model_type": ["late-interaction"],
            "modalities": getattr(model, "modalities", base.modalities),
            # Other scores are inner products of packed vectors.
            "similarity_fn_name": (
                ScoringFunction.MAX_SIM if is_maxsim else ScoringFunction.DOT_PRODUCT
            ),
            "experiment_kwargs": {**(base.experiment_kwargs or {}), **lengths} or None,
        }
    )


def _name_of(model: Any) -> str:
    try:
        if hasattr(model, "mteb_model_meta"):
            return str(model.mteb_model_meta.name)
        return str(model[0].auto_model.config._name_or_path)
    except (TypeError, IndexError, AttributeError):
        raise ValueError(f"the {type(model).__name__} has no name: give name=") from None

"""Options of PyLate's other indexes that mean nothing here: refused with what to use instead."""

from __future__ import annotations

from collections.abc import Iterable

_WITHOUT_CLUSTERS = (
    "kmeans_niters max_points_per_centroid n_samples_kmeans n_ivf_probe seed num_leaves "
    "num_leaves_to_search training_sample_size dimensions_per_block "
    "anisotropic_quantization_threshold use_autopilot"
)
_INSTEAD = {
    "embedding_size": "leave it out: the dimension is that of the first document",
    "store_embeddings": 'EigenLISVIndex(keep_tokens="float16") keeps token embeddings',
    "nbits": 'dtype="int8" here, or EigenLISVIndex(dtype="int4" or "binary")',
    "use_fast": "leave it out: the search is compiled and exact",
    "use_triton": "leave it out: the kernels are compiled with numba",
    "n_full_scores": "EigenLISVIndex(n_candidates=...) re-ranks as many",
    "num_threads": "torch.set_num_threads(...) sets the number of threads",
    "low_memory": "EigenLIIndex(memory_limit=...) bounds the memory of searches",
    "batch_size": "add_documents(..., batch_size=...) takes it",
    "num_neighbors": "the k of a search is the number of results",
    "verbose": "show_progress=False hides the progress bar",
    "verbose_level": "show_progress=False hides the progress bar",
    **dict.fromkeys(
        ("M", "ef_construction", "ef_search"),
        'EigenLISVIndex(backend="voyager", backend_options={...}) has a graph with this option',
    ),
    **dict.fromkeys(
        _WITHOUT_CLUSTERS.split(),
        "leave it out: documents are compressed one by one, without clusters",
    ),
}


def refuse(index: type, options: Iterable[str], device: object = None) -> None:
    """Raise an error for options that an index does not have.

    Examples
    --------
    >>> refuse(dict, ["nbits"])
    Traceback (most recent call last):
        ...
    TypeError: dict has no option 'nbits': dtype="int8" here, or EigenLISVIndex(dtype="int4" or "binary")
    """
    for name in options:
        raise TypeError(
            f"{index.__name__} has no option {name!r}"
            + (f": {_INSTEAD[name]}" if name in _INSTEAD else "")
        )
    if isinstance(device, (list, tuple)):
        raise TypeError(
            f"{index.__name__} computes on one device: device must be a string such as "
            f"{device[0] if device else 'cpu'!r}, not {device!r}"
        )

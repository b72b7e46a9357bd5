"""Single vectors for other search engines: what an index holds as a file, and queries to match.

The vector of a document packs the projector on its subspace (:mod:`pylate_eigenli.vectors.packing`); its
inner product with the vector of a query is the score that the index would give.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from ..vectors.rows import DTYPES, RowDtype, encode, scale_of
from .eigenli import EigenLIIndex, Settings
from .index_vectors import IndexVectors
from .databases.limits import check_dimension
from ..storage import DocumentId, Snapshot
from ..storage.disk import TEMPORARY_SUFFIX, sync_folder
from ..vectors.encoder import SVSettings
from .single_vector import EigenLISVIndex
from ..tokens import collect
from ..vectors.packing import document_norm, pack_moments, pack_queries

ExportFormat = Literal["npy", "parquet"]

_FORMATS: dict[str, ExportFormat] = {".npy": "npy", ".parquet": "parquet"}
_BATCH_BYTES = 16 << 20
_LAYOUT = "diagonal, then sqrt(2) times the upper triangle row by row"


class _Batch(NamedTuple):
    """Documents as they are written: ids, vectors (n, D) and, for int8, scales (n,)."""

    ids: list[DocumentId]
    vectors: NDArray[Any]
    scales: NDArray[np.float32] | None


@dataclass(frozen=True)
class _Source:
    """The vectors of an index and how to export them."""

    vectors: IndexVectors
    settings: Settings | SVSettings
    dtype: RowDtype
    batch_size: int
    show_progress: bool

    def batches(self) -> Iterator[_Batch]:
        with tqdm(
            total=len(self.vectors.snapshot),
            desc="Exporting vectors",
            unit="doc",
            disable=not self.show_progress,
        ) as progress:
            for rows in self.vectors.batches(self.batch_size):
                columns = encode("vector", self.vectors.vectors(rows), self.dtype)
                ids = self.vectors.ids(rows)
                yield _Batch(ids, columns["vector"], columns.get(scale_of("vector")))
                progress.update(len(rows))

    def describe(self) -> dict[str, Any]:
        """Return what somebody who has only the vectors has to know, as JSON values."""
        d = self.vectors.d
        description: dict[str, Any] = {
            "k": self.settings.k,
            "d": d,
            "dim": self.vectors.dim,
            "layout": _LAYOUT,
            "short_documents": self.settings.short_documents,
            "filter": self.settings.filter,
        }
        if self.vectors.projected:
            description |= {"layout": "projected", "centred": True}
        if self.vectors.projections is not None or self.settings.filter != "hard":
            return description
        norms = np.concatenate(
            [
                document_norm(np.diff(s.offsets)[s.alive], s.column("floor")[s.alive], d)
                for s in self.vectors.snapshot.segments
            ]
        )
        extremes = {"norm_min": float(norms.min()), "norm_max": float(norms.max())}
        return description | {name: round(norm, 6) for name, norm in extremes.items()}


def export(
    index: EigenLIIndex | EigenLISVIndex,
    path: str | os.PathLike[str],
    *,
    format: ExportFormat | None = None,
    dtype: RowDtype = "float32",
    store: str | None = None,
    batch_size: int | None = None,
    show_progress: bool = True,
) -> None:
    """Write the single vectors of all documents of an index to a file, in the order of insertion.

    Vectors are computed from the stored subspaces, or are those that an ``EigenLISVIndex`` keeps,
    a batch at a time, so memory stays small however many there are. The file gets its name when
    it is complete: a failed or interrupted export leaves what was there before, or nothing.

    ``"npy"``
        One (documents, D) array, which ``np.load(path, mmap_mode="r")`` opens without reading it.
        Beside ``name.npy`` there is ``name.ids.json``, the list of ids, and for int8
        ``name.scales.npy``: row i stands for ``scales[i] * vectors[i]``.
    ``"parquet"``
        The columns ``id``, ``vector`` (a list of fixed size) and for int8 ``scale``. Ids are int64
        if all of them are integers, and strings otherwise. The schema's metadata has, under
        ``pylate_eigenli``, a JSON object with what the vectors are: k, d, dim, layout, filter, and
        norm_min and norm_max, the least and greatest length of a vector (of an ``EigenLIIndex``
        whose filter is hard), or that they are projected and therefore centred.

    Where all lengths are equal a search by cosine or L2 finds the same as one by inner product;
    otherwise :func:`pylate_eigenli.vectors.packing.cosine_ready` makes it so. Searches by inner product
    among int8 vectors have to apply the scales; those by cosine need not.

    Parameters
    ----------
    index
        The index.
    path
        The file to write, in a folder that exists; replaced if it is there.
    format
        By default what the suffix of the path says.
    dtype
        Type of the numbers. For int8 every vector has a scale of its own.
    store
        The search engine that the file is meant for, one of
        :data:`pylate_eigenli.indexes.databases.limits.MAX_DIMENSIONS`: vectors too long for it are refused.
    batch_size
        Number of documents to write at a time; in Parquet these are a row group. By default 16 MB
        of vectors.
    show_progress
        Whether to show a progress bar.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import torch
    >>> from pylate_eigenli import EigenLIIndex
    >>> folder = tempfile.mkdtemp()
    >>> index = EigenLIIndex(folder, k=2, show_progress=False)
    >>> index = index.add_documents(["first", "second"], torch.eye(8).reshape(2, 4, 8))
    >>> export(index, f"{folder}/vectors.npy", show_progress=False)
    >>> np.load(f"{folder}/vectors.npy", mmap_mode="r").shape
    (2, 36)
    """
    path = Path(path)
    chosen = format or _FORMATS.get(path.suffix)
    if chosen is None:
        raise ValueError(f"{path} ends in none of {', '.join(_FORMATS)}: say which format it is")
    if chosen not in _FORMATS.values():
        raise ValueError(f"format must be one of {', '.join(_FORMATS.values())}, got {format!r}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist")
    vectors = IndexVectors.of(index)
    if store is not None:
        check_dimension(store, vectors.dim)
    size = _checked_batch_size(batch_size, vectors.dim, dtype)
    source = _Source(vectors, index.settings, dtype, size, show_progress)
    write = _write_npy if chosen == "npy" else _write_parquet
    write(source, path)


def documents_vectors(
    index: EigenLIIndex | EigenLISVIndex, batch_size: int | None = None
) -> Iterator[tuple[list[DocumentId], NDArray[np.float32]]]:
    """Yield the ids and single vectors of all documents, in the order of insertion.

    Parameters
    ----------
    index
        The index.
    batch_size
        Number of documents to yield at a time. By default 16 MB of vectors.

    Yields
    ------
    A list of ids and their vectors, of shape (documents, D), float32; D is d (d + 1) / 2 unless
    the index has a projection.
    """
    vectors = IndexVectors.of(index)
    size = _checked_batch_size(batch_size, vectors.dim, "float32")
    return ((vectors.ids(rows), vectors.vectors(rows).numpy()) for rows in vectors.batches(size))


def queries_vectors(
    queries_embeddings: Any, index: EigenLIIndex | EigenLISVIndex | None = None
) -> NDArray[np.float32]:
    """Return the single vectors of queries, for a search by inner product.

    Inner products are the scores, or differ from them by a constant per query where vectors are
    projected.

    Parameters
    ----------
    queries_embeddings
        A list of (tokens, d) arrays, tensors or nested lists, a zero-padded 3-D batch, or one 2-D
        array for a single query.
    index
        The index that the documents' vectors come from, if it does more to queries than that:
        has projections, centres tokens, or uses an idf or a background.

    Returns
    -------
    Shape: (queries, D), float32.

    Examples
    --------
    >>> import numpy as np
    >>> queries_vectors([np.array([[0.6, 0.8], [1.0, 0.0]])]).round(3)
    array([[1.36 , 0.64 , 0.679]], dtype=float32)
    """
    if index is None:
        packed = pack_moments(collect(queries_embeddings, device="cpu", names="query"))
    else:
        snapshot = index._snapshot
        if index.dim is None:
            raise ValueError(f"the index {index.index_name!r} holds no documents")
        queries = index._queries(snapshot, queries_embeddings, None, None)
        if isinstance(index, EigenLIIndex):
            packed = pack_queries(queries.tokens, queries.against)
        else:
            packed = index._projections(snapshot).query_vectors(queries)[0]
    vectors: NDArray[np.float32] = packed.numpy()
    return vectors


def _checked_batch_size(batch_size: int | None, dim: int, dtype: RowDtype) -> int:
    if batch_size is None:
        return max(1, _BATCH_BYTES // (dim * np.dtype(dtype).itemsize))
    if batch_size < 1:
        raise ValueError(f"batch_size must be positive, got {batch_size}")
    return batch_size


# --- writing ------------------------------------------------------------------------------------


@contextmanager
def _files(paths: Sequence[Path]) -> Iterator[Sequence[BinaryIO]]:
    """Open files that get their names, the last one last, if the ``with`` block ends well."""
    temporary = [path.with_name(path.name + TEMPORARY_SUFFIX) for path in paths]
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(open(path, "wb")) for path in temporary]
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        if len(paths) > 1:
            # Whenever the last file is there, the others are those that belong to it.
            paths[-1].unlink(missing_ok=True)
            sync_folder(paths[-1].parent)
        for name, path in zip(temporary, paths, strict=True):
            os.replace(name, path)
        sync_folder(paths[-1].parent)
    finally:
        for name in temporary:
            name.unlink(missing_ok=True)


def _write_npy(source: _Source, path: Path) -> None:
    name = path.name.removesuffix(".npy")
    ids_path, scales_path = (path.with_name(name + end) for end in (".ids.json", ".scales.npy"))
    scaled = source.dtype == "int8"
    n = len(source.vectors.snapshot)
    with _files([ids_path, *([scales_path] if scaled else []), path]) as (ids, *scales, vectors):
        # Written in sequence and not through a map: a full disk is then an error, not a crash.
        _write_header(vectors, source.dtype, (n, source.vectors.dim))
        for file in scales:
            _write_header(file, "float32", (n,))
        separator = b"["
        for batch in source.batches():
            ids.write(separator + json.dumps(batch.ids, ensure_ascii=False)[1:-1].encode())
            separator = b", "
            vectors.write(batch.vectors.data)
            for file in scales:
                assert batch.scales is not None
                file.write(batch.scales.data)
        ids.write(b"]\n")
    if not scaled:
        scales_path.unlink(missing_ok=True)  # of an earlier export, whose vectors were replaced


def _write_header(file: BinaryIO, dtype: str, shape: tuple[int, ...]) -> None:
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _write_parquet(source: _Source, path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            'Parquet files need pyarrow: pip install "pylate-eigenli[export]"'
        ) from error
    number = pa.from_numpy_dtype(np.dtype(source.dtype))
    integers = _are_int64(source.vectors.snapshot)
    fields = [
        pa.field("id", pa.int64() if integers else pa.string(), nullable=False),
        pa.field(
            "vector",
            pa.list_(pa.field("element", number, False), source.vectors.dim),
            nullable=False,
        ),
    ]
    if source.dtype == "int8":
        fields.append(pa.field("scale", pa.float32(), nullable=False))
    schema = pa.schema(fields, {"pylate_eigenli": json.dumps(source.describe())})
    # Parquet knows no 8-bit numbers; a dictionary of 256 entries makes them take one byte again.
    dictionary = ["vector.list.element"] if source.dtype == "int8" else False
    with (
        _files([path]) as (file,),
        pq.ParquetWriter(
            file, schema, use_dictionary=dictionary, write_statistics=["id"], compression="none"
        ) as writer,
    ):
        for batch in source.batches():
            ids = batch.ids if integers else [str(document_id) for document_id in batch.ids]
            flat = pa.array(batch.vectors.reshape(-1))
            columns = [
                pa.array(ids, fields[0].type),
                pa.FixedSizeListArray.from_arrays(flat, type=fields[1].type),
            ]
            if batch.scales is not None:
                columns.append(pa.array(batch.scales))
            table = pa.Table.from_arrays(columns, schema=schema)
            writer.write_table(table, row_group_size=len(ids))


def _are_int64(snapshot: Snapshot) -> bool:
    """Whether ids can be a column of integers; refuse those that as strings would be the same."""
    integers = {i for i in snapshot if isinstance(i, int)}
    if len(integers) == len(snapshot):
        return all(-(2**63) <= i < 2**63 for i in integers)
    as_strings = {str(i) for i in integers}
    for document_id in snapshot:
        if document_id in as_strings:
            raise ValueError(
                f"the ids {document_id} and {document_id!r} would be the same string in Parquet: "
                'export to "npy", which keeps them apart'
            )
    return False

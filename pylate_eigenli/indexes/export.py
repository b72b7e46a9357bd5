"""Export of single vectors for other search engines.

The vector of a document packs the projector on its subspace (:mod:`pylate_eigenli.vectors.packing`); its
inner product with the vector of a query is the score that the index would give.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import torch
from tqdm.auto import tqdm

from ..errors import check_choice, require
from ..storage import DocumentId, Snapshot
from ..storage.disk import TEMPORARY_SUFFIX, check_no_folder, delete_file, sync_folder
from ..vectors.rows import ROW_DTYPES, RowDtype, StoredRows
from .base import DocumentIndex
from .documents import Progress

_Batches: TypeAlias = Iterator[tuple[list[DocumentId], StoredRows]]

_LAYOUT = "diagonal, then sqrt(2) times the upper triangle row by row"


def export(
    index: DocumentIndex[Any, Any],
    path: str | os.PathLike[str],
    *,
    dtype: RowDtype = "float32",
    batch_size: int | None = None,
    show_progress: bool = True,
) -> None:
    """Write the single vectors of all documents of an index to a file, in the order of insertion.

    Vectors are computed from the stored subspaces, or are those that an ``EigenLISVIndex`` keeps,
    a batch at a time, so memory stays small however many there are. The file gets its name when
    it is complete: a failed or interrupted export leaves what was there before, or nothing.

    ``.npy``
        One (documents, D) array, which ``np.load(path, mmap_mode="r")`` opens without reading it.
        Beside ``name.npy`` there is ``name.ids.json``, the list of ids, and for int8
        ``name.scales.npy``: row i stands for ``scales[i] * vectors[i]``.
    ``.parquet``
        The columns ``id``, ``vector`` (a list of fixed size) and for int8 ``scale``. Ids are int64
        if all of them are integers, and strings otherwise. The schema's metadata has, under
        ``pylate_eigenli``, a JSON object with what the vectors are: k, d, dim, layout, filter, idf,
        background, that they are projected and therefore centred, if they are, and under
        ``queries`` the name of the file beside it.

    Beside either there is ``name.queries.safetensors``. Whoever has only these files and the token
    embeddings of queries gets the scores of the index: they are the inner products of the vectors
    with ``QueryEncoder.load("name.queries.safetensors")(queries_embeddings).vectors``, see
    :class:`pylate_eigenli.indexes.query_encoder.QueryEncoder`; of int8 vectors, times their scales.

    Parameters
    ----------
    index
        The index.
    path
        The file to write, ``.npy`` or ``.parquet``, in a folder that exists; replaced if it is there.
    dtype
        Type of the numbers. For int8 every vector has a scale of its own.
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
    >>> index = EigenLIIndex(folder, k=2, preset="paper", show_progress=False)
    >>> index = index.add_documents(["first", "second"], torch.eye(8).reshape(2, 4, 8))
    >>> export(index, f"{folder}/vectors.npy", show_progress=False)
    >>> np.load(f"{folder}/vectors.npy", mmap_mode="r").shape
    (2, 36)
    """
    path = Path(path)
    check_choice(f"the suffix of {path}", path.suffix, (".npy", ".parquet"))
    check_choice("dtype", dtype, ROW_DTYPES)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist")
    if not isinstance(index, DocumentIndex):
        raise TypeError(
            f"expected an EigenLIIndex or an EigenLISVIndex, got {type(index).__name__}"
        )
    if index.in_database:
        raise ValueError(
            f"the documents of {index.index_name!r} are in a database: export them from there, or "
            "read them with index.vectors()"
        )
    if not len(index):
        raise ValueError(f"the index {index.index_name!r} holds no documents")
    write = _write_npy if path.suffix == ".npy" else _write_parquet
    with tqdm(
        total=len(index), desc="Exporting vectors", unit="doc", disable=not show_progress
    ) as progress:
        write(index, path, dtype, _batches(index, dtype, batch_size, progress))


def _batches(
    index: DocumentIndex[Any, Any], dtype: RowDtype, batch_size: int | None, progress: Progress
) -> _Batches:
    for ids, vectors in index.vectors(batch_size=batch_size):
        yield ids, StoredRows.encode(torch.from_numpy(vectors), dtype)
        progress.update(len(ids))


def _description(index: DocumentIndex[Any, Any]) -> dict[str, Any]:
    """Return what the vectors are, as JSON values."""
    settings, codec = index.settings, index._collection.codec(index._snapshot)
    assert index.dim is not None
    description: dict[str, Any] = {
        "k": settings.k,
        "d": codec.subspaces.transforms.dim(index.dim),
        "dim": index.vector_dim,
        "layout": _LAYOUT,
        "short_documents": settings.short_documents,
        "filter": settings.filter,
        "idf": settings.idf,
        "background": settings.background,
    }
    if codec.encoder.projection is not None:
        description |= {"layout": "projected", "centred": True}
    return description


# --- writing ------------------------------------------------------------------------------------


@contextmanager
def _files(paths: Sequence[Path]) -> Iterator[Sequence[BinaryIO]]:
    """Open files that get their names, in this order, if the ``with`` block succeeds."""
    temporary = [path.with_name(path.name + TEMPORARY_SUFFIX) for path in paths]
    for path in paths:
        check_no_folder(path)
    try:
        for path in temporary:
            delete_file(path)  # it may be a link, or a pipe that nobody reads
        with ExitStack() as stack:
            files = [stack.enter_context(open(path, "xb")) for path in temporary]
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


def _write_npy(
    index: DocumentIndex[Any, Any], path: Path, dtype: RowDtype, batches: _Batches
) -> None:
    name = path.name.removesuffix(".npy")
    ids_path, scales_path = (path.with_name(name + end) for end in (".ids.json", ".scales.npy"))
    scaled = dtype == "int8"
    paths = [ids_path, _queries_path(path), *([scales_path] if scaled else []), path]
    with _files(paths) as (ids, queries, *scales, vectors):
        queries.write(index.query_encoder().to_bytes())
        # Written in sequence and not through a map: a full disk is then an error, not a crash.
        _write_header(vectors, dtype, (len(index), index.vector_dim))
        for file in scales:
            _write_header(file, "float32", (len(index),))
        separator = b"["
        for part, rows in batches:
            ids.write(separator + json.dumps(part, ensure_ascii=False)[1:-1].encode())
            separator = b", "
            vectors.write(rows.values.data)
            for file in scales:
                assert rows.scales is not None
                file.write(rows.scales.data)
        ids.write(b"]\n")
    if not scaled:
        scales_path.unlink(missing_ok=True)  # of an earlier export, whose vectors were replaced


def _queries_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.queries.safetensors")


def _write_header(file: BinaryIO, dtype: str, shape: tuple[int | None, ...]) -> None:
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _write_parquet(
    index: DocumentIndex[Any, Any], path: Path, dtype: RowDtype, batches: _Batches
) -> None:
    pa = require("pyarrow", "export", "writing a Parquet file")
    pq = require("pyarrow.parquet", "export", "writing a Parquet file")
    number = pa.field("element", pa.from_numpy_dtype(np.dtype(dtype)), False)
    integers = _are_int64(index._snapshot)
    fields = [
        pa.field("id", pa.int64() if integers else pa.string(), nullable=False),
        pa.field("vector", pa.list_(number, index.vector_dim), nullable=False),
    ]
    if dtype == "int8":
        fields.append(pa.field("scale", pa.float32(), nullable=False))
    beside = _queries_path(path)
    description = {**_description(index), "queries": beside.name}
    schema = pa.schema(fields, {"pylate_eigenli": json.dumps(description)})
    # Parquet knows no 8-bit numbers; a dictionary of 256 entries makes them take one byte again.
    dictionary = ["vector.list.element"] if dtype == "int8" else False
    with (
        _files([beside, path]) as (queries, file),
        pq.ParquetWriter(
            file, schema, use_dictionary=dictionary, write_statistics=["id"], compression="none"
        ) as writer,
    ):
        queries.write(index.query_encoder().to_bytes())
        for ids, rows in batches:
            columns = [
                pa.array(ids if integers else list(map(str, ids)), fields[0].type),
                pa.FixedSizeListArray.from_arrays(
                    pa.array(rows.values.reshape(-1)), type=fields[1].type
                ),
            ]
            if rows.scales is not None:
                columns.append(pa.array(rows.scales))
            table = pa.Table.from_arrays(columns, schema=schema)
            writer.write_table(table, row_group_size=len(ids))


def _are_int64(snapshot: Snapshot) -> bool:
    """Whether all ids are integers of 64 bits; raise an error if two are the same string."""
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

"""Crash-safe storage of named NumPy columns for documents.

An index is a folder::

    manifest.json                            the committed state: file names, sizes, checksums
    segment-000007.safetensors               documents, written once
    segment-000007.dead-000012.safetensors   tombstones: the documents removed since then
    collection-000003.safetensors            arrays of the whole collection
    writer.lock, writer.json                 the lock of the writer, and its process and host

A writer adds files and then replaces the manifest in one atomic step, so a crash at any moment
leaves the state before or after the transaction.  Readers map the files of one state and can keep
it as long as they want.
"""

from .ids import DocumentId
from .segment import Segment
from .snapshot import Snapshot
from .store import Store
from .transaction import Transaction

__all__ = ["DocumentId", "Segment", "Snapshot", "Store", "Transaction"]

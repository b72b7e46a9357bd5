"""Crash-safe storage of named NumPy columns for documents.

An index is a folder::

    manifest.json                       the committed state: names, sizes and checksums
    segment-000007.safetensors          documents, written once
    segment-000007.dead-000012.safetensors   which of them were removed since
    collection-000003.safetensors       arrays that belong to the collection as a whole
    writer.lock                         held by the writer; writer.json says who that is

A writer adds files and then replaces the manifest in one step, so that a crash at any moment
leaves the state before the transaction or the state after it.  Readers map the files of one
state and keep it for as long as they like.
"""

from .ids import DocumentId
from .segment import Segment
from .snapshot import Snapshot
from .store import Store
from .transaction import Transaction

__all__ = ["DocumentId", "Segment", "Snapshot", "Store", "Transaction"]

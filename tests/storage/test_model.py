"""After any operations, a store holds the same documents as a dictionary."""

from __future__ import annotations

import shutil
import tempfile

import numpy as np
from helpers.contents import assert_sound, contents, document_columns
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pylate_eigenli.storage import Store

some_ids = st.lists(
    st.one_of(st.integers(0, 40), st.integers(0, 9).map(str), st.sampled_from(["", "é\n", "\0"])),
    unique_by=lambda i: (type(i), i),
    min_size=1,
    max_size=25,
)


class ModelOfAStore(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([1, 300, 1500, 10**6]))
    def start(self, segment_bytes):
        self.folder = tempfile.mkdtemp()
        self.segment_bytes = segment_bytes
        self.documents = {}
        self.meta = {}
        self.count = 0
        self.reader = Store(self.folder)
        self.reopen()

    def teardown(self):
        shutil.rmtree(self.folder)

    @rule()
    def reopen(self):
        self.store = Store(self.folder, segment_bytes=self.segment_bytes)

    @rule(ids=some_ids)
    def add_or_replace(self, ids):
        with self.store.transaction() as tx:
            self._append(tx, self.documents, ids)

    @rule(data=st.data())
    def remove(self, data):
        with self.store.transaction() as tx:
            self._remove(tx, self.documents, data)

    @rule(data=st.data(), batches=st.lists(some_ids, min_size=1, max_size=3))
    def do_several_things_at_once(self, data, batches):
        added = set()
        with self.store.transaction() as tx:
            for batch in batches:
                removed = self._remove(tx, self.documents, data)
                added -= set(removed)
                fresh = [i for i in batch if i not in added]
                self._append(tx, self.documents, fresh)
                added |= set(fresh)
            self.meta["batches"] = tx.meta["batches"] = len(batches)

    @rule(data=st.data(), ids=some_ids)
    def fail(self, data, ids):
        imagined = dict(self.documents)
        try:
            with self.store.transaction() as tx:
                self._remove(tx, imagined, data)
                self._append(tx, imagined, ids)
                tx.meta["failed"] = True
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    @rule()
    def compact(self):
        self.store.compact()

    @rule(ids=some_ids)
    def clear_and_start_over(self, ids):
        with self.store.transaction() as tx:
            tx.clear()
            self.documents.clear()
            self.meta.clear()
            self._append(tx, self.documents, ids)

    @invariant()
    def store_and_dictionary_agree(self):
        expected = [
            (i, {"code": [value, -value], "token": [[float(value)]] * length})
            for i, (value, length) in self.documents.items()
        ]
        self.reader.refresh()
        for store in (self.store, self.reader):
            found = contents(store.snapshot)
            assert found["documents"] == expected
            assert [type(i) for i, _ in found["documents"]] == [type(i) for i in self.documents]
            assert found["meta"] == self.meta
            absent = [i for i in range(41) if i not in self.documents]
            assert (store.snapshot.locate(absent) == -1).all()
        if self.store.snapshot.generation:
            assert_sound(self.store)

    def _append(self, tx, documents, ids):
        values = list(range(self.count, self.count + len(ids)))
        self.count += len(ids)
        lengths = [value % 5 for value in values]
        tx.append(ids, **document_columns(values, lengths))
        for document_id, value, length in zip(ids, values, lengths, strict=True):
            documents.pop(document_id, None)
            documents[document_id] = (value, length)

    def _remove(self, tx, documents, data):
        chosen = data.draw(st.lists(st.sampled_from(sorted(documents, key=repr)), unique=True)
                           if documents else st.just([]))  # fmt: skip
        tx.remove(np.array(chosen, dtype=object))
        for document_id in chosen:
            del documents[document_id]
        return chosen


ModelOfAStore.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestModelOfAStore = ModelOfAStore.TestCase

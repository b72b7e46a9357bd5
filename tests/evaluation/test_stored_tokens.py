"""Stored vectors survive a crash and come back as they were written."""

from __future__ import annotations

import numpy as np
import pytest

from pylate_eigenli.evaluation import embeddings
from pylate_eigenli.evaluation.embeddings import StoredTokens
from pylate_eigenli.tokens import collect


def batch(n, seed=0):
    rng = np.random.default_rng(seed)
    return collect([np.float16(rng.standard_normal((i % 3 + 1, 4))) for i in range(n)])


def test_batches_come_back_as_they_were(tmp_path):
    stored = StoredTokens(tmp_path)
    batches = [batch(3, 1), batch(1, 2), batch(5, 3)]
    for each in batches:
        stored.append(each)
    for opened in (stored, StoredTokens(tmp_path)):
        assert len(opened) == 9
        assert [begin for begin, _ in opened] == [0, 3, 4]
        for (_, found), expected in zip(opened, batches, strict=True):
            np.testing.assert_array_equal(found.tokens.float(), expected.tokens)
            np.testing.assert_array_equal(found.offsets, expected.offsets)


def test_a_killed_writer_leaves_what_was_there(tmp_path, monkeypatch):
    stored = StoredTokens(tmp_path)
    stored.append(batch(3))

    def killed(path, payload):
        path.with_name(path.name + ".tmp").write_bytes(payload[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(embeddings, "replace_file", killed)
        with pytest.raises(KeyboardInterrupt):
            stored.append(batch(2))
    reopened = StoredTokens(tmp_path)
    assert len(reopened) == 3
    reopened.append(batch(2))
    assert [len(part) for _, part in reopened] == [3, 2]

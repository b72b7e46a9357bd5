"""Uploads to a server: nothing lost, nothing twice, nothing said that should stay secret."""

from __future__ import annotations

import json
import shutil
import socket

import numpy as np
import pytest
import torch
from benchmarks import synthetic
from tqdm.auto import tqdm

from pylate_eigenli import EigenLISVIndex, SVProjection, TokenProjection
from pylate_eigenli.errors import UploadError
from pylate_eigenli.indexes import databases
from pylate_eigenli.indexes.databases import NAMES, DatabaseOptions, check_dimension, upload
from pylate_eigenli.indexes.databases.upload import Upload, Uploader, back_off, batches, verify
from pylate_eigenli.indexes.registry import type_of

D, K, N = 24, 6, 120


@pytest.fixture(scope="module")
def documents():
    return synthetic.documents(N, tokens=20, d=D)


@pytest.fixture(scope="module")
def queries():
    return synthetic.queries(4, tokens=5, d=D)


@pytest.fixture
def qdrant(tmp_path):
    pytest.importorskip("qdrant_client")

    def make(**options):
        options = {"uri": ":memory:", "k": K, "show_progress": False, **options}
        return EigenLISVIndex(str(tmp_path), backend="qdrant", **options)

    return make


class FailingServer:
    """A server in memory that fails as often as it is told to: what no real one does on demand."""

    bytes_per_number = 4

    def __init__(self, failures=0, loses=(), retries=3, workers=3):
        self.options = DatabaseOptions(retries=retries, workers=workers)
        self.embedded = False
        self.failures = failures
        self.loses = loses
        self.held = {}
        self.sizes = []

    def upsert(self, ids, vectors, rows):
        self.sizes.append(vectors.nbytes)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone for a moment")
        self.held.update((i, v) for i, v in zip(ids, vectors, strict=True) if i not in self.loses)

    def missing(self, ids):
        return [i for i in ids if i not in self.held]

    def count(self):
        return len(self.held)

    def is_transient(self, error):
        return isinstance(error, ConnectionError)


def send(server, n=500, dim=20_000):
    with tqdm(disable=True) as progress, Uploader(server, progress) as uploader:
        for begin in range(0, n, 200):
            ids = list(range(begin, min(begin + 200, n)))
            uploader.put(Upload(ids, np.ones((len(ids), dim), np.float32), None))
    verify(server, list(range(n)))


class TestUpload:
    @pytest.fixture(autouse=True)
    def no_waiting(self, monkeypatch):
        monkeypatch.setattr(upload, "back_off", lambda attempt: 0.0)

    def test_batches_are_sized_by_bytes_and_all_arrive(self):
        server = FailingServer()
        send(server)
        assert server.count() == 500
        assert max(server.sizes) <= upload.BATCH_BYTES
        assert len(server.sizes) == 3

    def test_long_rows_make_smaller_batches_and_one_too_long_is_refused(self):
        vectors = np.zeros((4, 10), np.float32)
        rows = [bytes(10 << 20), b"", b"", bytes(10 << 20)]
        sizes = [len(batch.ids) for batch in batches(Upload([1, 2, 3, 4], vectors, rows), 4)]
        assert sizes == [3, 1]
        with pytest.raises(ValueError, match="document 2 takes 53 MB"):
            list(batches(Upload([1, 2], vectors[:2], [b"", bytes(40 << 20)]), 4))

    def test_passing_failures_are_repeated(self):
        server = FailingServer(failures=3)
        send(server)
        assert server.count() == 500
        assert len(server.sizes) == 3 + 3

    def test_lasting_failures_are_reported_and_the_rest_can_follow(self):
        server = FailingServer(failures=4, workers=1)
        with pytest.raises(UploadError, match=r"from 0 on .* in 4 attempts \(gone for a moment\)"):
            send(server)
        send(server)
        assert server.count() == 500

    def test_documents_that_did_not_arrive_are_named(self):
        with pytest.raises(UploadError, match=r"2 of 500 documents .* 498; .*: 7, 400"):
            send(FailingServer(loses=(7, 400)))


def test_delays_grow_up_to_half_a_minute():
    for attempt in range(12):
        longest = min(0.5 * 2**attempt, 30.0)
        assert longest / 2 <= back_off(attempt) <= longest


class TestTransientErrors:
    """Where there is no server at all, real clients say so; that may pass, a bad request not."""

    @pytest.fixture
    def nowhere(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            return f"http://127.0.0.1:{free.getsockname()[1]}"

    def test_of_qdrant(self, nowhere):
        pytest.importorskip("qdrant_client")
        options = {"quantization": "scalar", "search": {"hnsw_ef": 64}, "timeout": 1.0}
        server = databases.connect("qdrant", nowhere, None, "x", options)
        for call in (
            lambda: server.upsert([1], np.ones((1, 3), np.float32), [b"rows"]),
            lambda: server.search(np.ones((1, 3), np.float32), 3, subset=[1, "1"]),
        ):
            with pytest.raises(Exception, match="refused") as error:
                call()
            assert server.is_transient(error.value)
        with pytest.raises(ValueError, match="64 bits") as error:
            server.upsert([2**63], np.ones((1, 3), np.float32), None)
        assert not server.is_transient(error.value)

    def test_of_milvus(self, real_milvus):
        options = {"collection": "missing", "timeout": 1.0}
        server = databases.connect("milvus", real_milvus.uri, None, "x", options)
        with pytest.raises(Exception, match="missing") as error:
            server.upsert([1], np.ones((1, 3), np.float32), None)
        assert not server.is_transient(error.value)


class TestKilledServer:
    def test_a_resumed_upload_ends_with_exactly_the_right_documents(
        self, real_milvus, tmp_path, documents, queries
    ):
        index = EigenLISVIndex(
            str(tmp_path),
            k=K,
            preset="paper",  # which does not depend on the first documents that arrived
            backend="milvus",
            uri=real_milvus.uri,
            backend_options={"collection": "killed", "workers": 1, "retries": 0, "timeout": 2.0},
            show_progress=False,
        )

        def until_killed():
            for i, tokens in enumerate(documents):
                if i == 70:
                    real_milvus.kill()
                yield tokens

        with pytest.raises(UploadError, match="add the same documents again"):
            index.add_documents(range(N), until_killed(), batch_size=20)
        real_milvus.start()
        index.close()
        index = EigenLISVIndex(str(tmp_path), show_progress=False)  # remembers the server
        left = index.missing(range(N))
        assert 0 < len(left) < N
        index.add_documents(range(N), documents)
        assert len(index) == N
        found = index(queries, k=N + 10)
        assert all(sorted(hit["id"] for hit in hits) == list(range(N)) for hits in found)
        local = EigenLISVIndex(
            str(tmp_path), "local", k=K, preset="paper", dtype="float32", show_progress=False
        )
        for ours, theirs in zip(
            found, local.add_documents(range(N), documents)(queries, N), strict=True
        ):
            scores = {hit["id"]: hit["score"] for hit in theirs}
            assert all(hit["score"] == pytest.approx(scores[hit["id"]], rel=1e-4) for hit in ours)
        index.close()


class TestWhileOthersWrite:
    """Several indexes of the same documents, as several processes would have them."""

    @pytest.fixture
    def make(self, tmp_path):
        pytest.importorskip("milvus_lite")
        opened = []

        def make(**options):
            options = {"k": K, "backend": "milvus", "show_progress": False, **options}
            opened.append(EigenLISVIndex(str(tmp_path), **options))
            return opened[-1]

        yield make
        for index in opened:
            index.close()

    def test_whoever_comes_second_goes_on_with_what_the_first_has_fixed(
        self, make, documents, queries
    ):
        one, other = make(), make()
        one.add_documents(range(60), documents[:60])
        other.add_documents(range(60, N), documents[60:])
        assert len(one) == len(other) == N
        one.refresh()
        assert other(queries, k=5) == one(queries, k=5)
        third = make()
        third._collection.store.close()  # as it was before the others began
        with pytest.raises(ValueError, match="dimension 5, expected 24"):
            third.add_documents([1], documents[:1, :, :5])

    def test_documents_removed_after_they_were_found_are_left_out(
        self, make, documents, queries, monkeypatch
    ):
        index, other = make(keep_tokens="float16"), make()
        index.add_documents(range(N), documents)
        before = index(queries, k=5, rerank="maxsim")
        store, gone = index._documents, before[0][0]["id"]
        fetch = store._fetched

        def removed_first(state, ids):
            other.refresh()
            other.remove_documents([gone])
            monkeypatch.setattr(store, "_fetched", fetch)
            return fetch(state, ids)

        monkeypatch.setattr(store, "_fetched", removed_first)
        hits = index(queries[:1], k=4, rerank="maxsim")[0]
        assert [hit["id"] for hit in hits] == [hit["id"] for hit in before[0][1:]]


class TestSettings:
    def test_an_embedded_database_is_found_from_anywhere(
        self, tmp_path, documents, queries, monkeypatch
    ):
        pytest.importorskip("qdrant_client")
        for folder in ("here", "there"):
            (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / "here")
        options = {"k": K, "backend": "qdrant", "uri": "./database", "show_progress": False}
        with EigenLISVIndex(str(tmp_path), **options) as index:
            expected = index.add_documents(range(N), documents)(queries)
        monkeypatch.chdir(tmp_path / "there")
        with EigenLISVIndex(str(tmp_path)) as index:
            assert index(queries) == expected
        assert not list((tmp_path / "there").iterdir())

    def test_a_database_that_is_gone_is_not_taken_for_an_empty_one(self, tmp_path, documents):
        pytest.importorskip("qdrant_client")
        options = {"k": K, "backend": "qdrant", "show_progress": False}
        with EigenLISVIndex(str(tmp_path / "x"), "index", **options) as index:
            index.add_documents(range(N), documents)
        (database,) = (tmp_path / "x").glob("*.qdrant*")
        shutil.rmtree(database)
        with (
            EigenLISVIndex(str(tmp_path / "x"), "index") as index,
            pytest.raises(ValueError, match="has lost the documents of"),
        ):
            len(index)
        with EigenLISVIndex(str(tmp_path / "x"), "index", override=True, **options) as index:
            assert len(index) == 0

    def test_a_folder_remembers_its_backend(self, tmp_path, documents):
        pytest.importorskip("qdrant_client")
        with EigenLISVIndex(str(tmp_path), k=K, backend="qdrant", show_progress=False) as index:
            assert index.in_database
            index.add_documents([1, 2], documents[:2])
        with EigenLISVIndex(str(tmp_path)) as index:
            assert index.in_database
            assert len(index) == 2
        with pytest.raises(ValueError, match="made with backend='qdrant', not 'exact'"):
            EigenLISVIndex(str(tmp_path), backend="exact")

    def test_tokens_that_are_not_kept_are_asked_for(self, qdrant, documents, queries):
        kept = qdrant(index_name="kept", keep_tokens="float16").add_documents(range(N), documents)
        index = qdrant(tokens_of=lambda ids: [documents[i] for i in ids])
        index.add_documents(range(N), documents)
        for rerank in ("maxsim", "eigenli"):
            for ours, theirs in zip(
                index(queries, 5, rerank=rerank), kept(queries, 5, rerank=rerank), strict=True
            ):
                assert [hit["id"] for hit in ours] == [hit["id"] for hit in theirs]

    def test_projections_are_kept_beside_the_server(self, qdrant, documents, queries, tmp_path):
        projection = TokenProjection.fit(documents, dim=12)
        local = EigenLISVIndex(
            str(tmp_path),
            "local",
            preset="paper",
            k=K,
            dtype="float32",
            token_projection=projection,
        ).add_documents(range(N), documents)
        served = qdrant(
            preset="paper", token_projection=projection, keep_bases=True, rerank="eigenli"
        )
        served.add_documents(range(N), documents)
        for ours, theirs in zip(served(queries, k=5), local(queries, k=5), strict=True):
            assert [hit["id"] for hit in ours] == [hit["id"] for hit in theirs]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"dtype": "int8"}, 'dtype must be "float32"'),
            ({"backend_options": {"depth": 1}}, "qdrant backend has no option 'depth', only"),
            ({"backend_options": {"workers": 0}}, "workers"),
            ({"backend_options": {"quantization": "ternary"}}, "quantization"),
        ],
    )
    def test_bad_ones_are_named_before_anything_is_written(
        self, qdrant, tmp_path, options, message
    ):
        with pytest.raises(ValueError, match=message):
            qdrant(**options)
        assert not list(tmp_path.iterdir())

    def test_a_collection_of_somebody_else_is_left_alone(self, tmp_path, documents):
        pytest.importorskip("milvus_lite")
        uri = str(tmp_path / "shared.db")
        options = {"k": K, "backend": "milvus", "uri": uri, "show_progress": False}
        one = EigenLISVIndex(str(tmp_path / "one"), **options).add_documents([1], documents[:1])
        other = EigenLISVIndex(str(tmp_path / "other"), **options)
        with pytest.raises(ValueError, match="not of this index"):
            other.add_documents([2], documents[1:2])
        other.close()  # and the embedded database stays open for the one that still uses it
        assert len(one) == 1
        one.close()


class TestDimensions:
    @pytest.mark.parametrize("store", NAMES)
    def test_every_limit_is_met_by_the_projections_it_proposes(self, store):
        limit = type_of(store).max_dimensions
        check_dimension(store, limit)
        with pytest.raises(ValueError, match=rf"SVProjection.fit\(vectors, dim={limit}\)") as error:
            check_dimension(store, limit + 1)
        d = int(str(error.value).rpartition("dim=")[2].rstrip(")"))
        check_dimension(store, d * (d + 1) // 2)
        assert (d + 1) * (d + 2) // 2 > limit

    def test_too_long_vectors_are_refused_before_anything_is_sent(self, qdrant, tmp_path):
        tokens = synthetic.documents(1, tokens=3, d=512)
        index = qdrant()
        with pytest.raises(ValueError, match="qdrant takes vectors of at most 65,535 dimensions"):
            index.add_documents([1], tokens)
        assert len(index) == 0
        assert index.dim is None
        vectors = np.random.default_rng(0).normal(size=(4, 512 * 513 // 2)).astype(np.float32)
        projection = SVProjection.fit(torch.from_numpy(vectors), dim=3)
        index = qdrant(projection=projection, preset="paper").add_documents([1], tokens)
        assert len(index) == 1


class TestSecrets:
    def test_are_taken_from_the_environment_and_written_nowhere(
        self, real_milvus, tmp_path, documents, monkeypatch, caplog
    ):
        monkeypatch.setenv("MILVUS_TOKEN", "root:from-the-environment")
        options = {"collection": "secrets", "index_type": "IVF_SQ8", "index_params": {"nlist": 4}}
        with EigenLISVIndex(
            str(tmp_path),
            k=K,
            backend="milvus",
            uri=real_milvus.uri,
            backend_options=options,
            show_progress=False,
        ) as index:
            index.add_documents([1, 2, 3], documents[:3])
            assert "from-the-environment" not in repr(vars(index))
            assert "from-the-environment" not in repr(index)
        written = b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
        assert b"from-the-environment" not in written
        assert "from-the-environment" not in caplog.text
        manifest = json.loads((tmp_path / "eigenli-sv" / "manifest.json").read_text())
        assert real_milvus.uri in json.dumps(manifest)

    def test_in_a_uri_are_refused_without_being_repeated(self, tmp_path):
        pytest.importorskip("pymilvus")
        with pytest.raises(ValueError, match="MILVUS_TOKEN") as error:
            EigenLISVIndex(str(tmp_path), backend="milvus", uri="https://root:hunter2@host:19530")
        assert "hunter2" not in str(error.value)

    def test_and_uris_are_refused_where_nothing_is_served(self, tmp_path):
        for option in ("uri", "token"):
            with pytest.raises(ValueError, match=f"{option} is for the backends milvus and qdrant"):
                EigenLISVIndex(str(tmp_path), **{option: "x"})

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
import safetensors.numpy
import torch
from helpers.definition import unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli import (
    EigenLIIndex,
    EigenLISVIndex,
    IndexFormatError,
    TokenProjection,
    UnknownDocumentError,
)
from pylate_eigenli.indexes.export import export
from pylate_eigenli.indexes.query_encoder import QueryEncoder
from pylate_eigenli.vectors.packing import pack_subspaces, packed_dim
from pylate_eigenli.vectors.projection import SVProjection
from pylate_eigenli.vectors.rows import StoredRows

D, K = 12, 5
seeds = st.integers(0, 2**32 - 1)


def texts(n, seed=0, d=D):
    """Token embeddings of documents, some of fewer tokens than directions are kept."""
    rng = np.random.default_rng(seed)
    return [unit_rows(rng, int(m), d) for m in rng.integers(1, 20, n)]


def make_index(folder, ids, documents, **options):
    index = EigenLIIndex(str(folder), show_progress=False, **{"k": K, "preset": "paper", **options})
    return index.add_documents(ids, documents, batch_size=7)


def save(index, path, **options):
    export(index, path, show_progress=False, **options)
    return path


@pytest.fixture
def index(tmp_path):
    """Documents added, replaced and removed, in several files."""
    index = make_index(tmp_path / "indexes", [f"doc {i}" for i in range(20)], texts(20, 0))
    index.add_documents(["new", "doc 3"], texts(2, 1))
    index.remove_documents(["doc 0", "doc 7", "doc 19"])
    return index.add_documents(["doc 7"], texts(1, 2))


ORDER = [f"doc {i}" for i in range(20) if i not in (0, 3, 7, 19)] + ["new", "doc 3", "doc 7"]


def expected_vectors(index):
    """The vectors of a small index in the order of insertion, by its own public methods."""
    bases = index.bases(ORDER)
    ranks = np.array([len(basis) for basis in bases])
    floors = ((K - ranks) / (D - ranks)).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(ranks)])
    return pack_subspaces(torch.from_numpy(np.concatenate(bases)), offsets, floors).numpy()


class TestScores:
    @settings(max_examples=20, deadline=None)
    @given(seed=seeds, d=st.integers(1, 20), data=st.data())
    def test_dot_products_of_exported_vectors_are_those_of_the_index(
        self, tmp_path_factory, seed, d, data
    ):
        folder = tmp_path_factory.mktemp("scores")
        options = {
            "k": data.draw(st.integers(1, d)),
            "dtype": data.draw(st.sampled_from(["float32", "float16", "int8"])),
            "short_documents": data.draw(st.sampled_from(["fill", "truncate"])),
        }
        index = make_index(folder, range(15), texts(15, seed, d), **options)
        queries = texts(4, seed + 1, d)
        vectors = np.load(save(index, folder / "vectors.npy"))
        scores = index.encode_queries(queries).vectors @ vectors.T
        for found, row in zip(index(queries, k=15), scores, strict=True):
            for hit in found:
                # A score near zero, of a query of mass 1 or more, has no digits to compare.
                assert row[hit["id"]] == pytest.approx(hit["score"], rel=1e-5, abs=1e-5)

    def test_a_single_query_or_a_padded_batch_will_do(self, index):
        queries = texts(3)
        padded = np.zeros((3, 20, D), np.float32)
        for i, query in enumerate(queries):
            padded[i, : len(query)] = query
        one_by_one = np.concatenate([index.encode_queries(query).vectors for query in queries])
        assert one_by_one.shape == (3, packed_dim(D))
        assert one_by_one.dtype == np.float32
        encoded = index.encode_queries(padded)
        np.testing.assert_allclose(encoded.vectors, one_by_one, atol=1e-6)
        assert encoded.constants.tolist() == [0.0] * 3
        with pytest.raises(ValueError, match="query 1: token 0 contains NaN"):
            index.encode_queries([queries[0], np.full((1, D), np.nan)])


class TestQueries:
    """The files alone, and raw embeddings of queries, rank as the index does."""

    @pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
    @pytest.mark.parametrize(
        "options",
        [
            {"preset": "plus"},
            {"preset": "plus", "fitted": True},
            {"idf": 0.4, "background": 0.5, "centering": "both"},
            {"preset": "plus", "dtype": "int8", "projected": True},
        ],
        ids=str,
    )
    def test_rank_as_the_index_does(self, tmp_path, name, options):
        documents, queries = texts(60, 3), texts(5, 4)
        given = {"k": K, "show_progress": False, **options}
        fitted, projected = (given.pop(key, False) for key in ("fitted", "projected"))
        if projected:
            given["token_projection"] = TokenProjection.fit(documents, dim=9)
            index = EigenLISVIndex(str(tmp_path), "plain", **{**given, "dtype": "float32"})
            index.add_documents(range(60), documents)
            given["projection"] = SVProjection.fit((v for _, v in index.vectors()), dim=30)
        kind = EigenLISVIndex if projected else EigenLIIndex
        index = kind(str(tmp_path), "exported", **given).add_documents(range(60), documents)
        if fitted:
            index.fit_queries(queries)
        path = save(index, tmp_path / name)
        encoded = QueryEncoder.load(tmp_path / "v.queries.safetensors")(queries)
        if name == "v.npy":
            vectors = np.load(path)
        else:
            table = pytest.importorskip("pyarrow.parquet").read_table(path)
            vectors = np.array(table["vector"].to_pylist())
            facts = json.loads(table.schema.metadata[b"pylate_eigenli"])
            assert facts["queries"] == "v.queries.safetensors"
            assert facts["background"] == index.settings.background
        products = encoded.vectors @ vectors.T + encoded.constants[:, None]
        for hits, row in zip(index(queries, k=60), products, strict=True):
            scores = [hit["score"] for hit in hits]
            order = [hit["id"] for hit in hits]
            np.testing.assert_allclose(row[order], scores, atol=1e-4 * np.abs(row).max())

    def test_a_file_that_is_none_is_refused_by_name(self, index, tmp_path):
        path = save(index, tmp_path / "v.npy")
        for wrong in (path, tmp_path / "v.ids.json"):
            with pytest.raises(IndexFormatError, match="has no recipe for queries"):
                QueryEncoder.load(wrong)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(IndexFormatError, match="pipe is not a file"):
            QueryEncoder.load(tmp_path / "pipe")

    def test_a_link_to_a_recipe_is_read(self, index, tmp_path):
        save(index, tmp_path / "v.npy")
        (tmp_path / "link").symlink_to("v.queries.safetensors")  # as in the cache of the Hub
        assert QueryEncoder.load(tmp_path / "link").dim == D

    @pytest.mark.parametrize(
        "options", [{"preset": "plus"}, {"idf": 0.4, "background": 0.5}], ids=str
    )
    def test_a_forged_recipe_is_refused_when_it_is_loaded(self, tmp_path, options):
        index = EigenLIIndex(str(tmp_path), k=K, show_progress=False, **options)
        recipe = index.add_documents(range(60), texts(60, 3)).query_encoder().to_bytes()
        arrays, forged = safetensors.numpy.load(recipe), tmp_path / "forged.safetensors"
        length = int.from_bytes(recipe[:8], "little")
        facts = json.loads(json.loads(recipe[8 : 8 + length])["__metadata__"]["pylate_eigenli"])

        def refuse(arrays, **changed):
            metadata = {"pylate_eigenli": json.dumps({**facts, **changed})}
            forged.write_bytes(safetensors.numpy.save(arrays, metadata))
            with pytest.raises(IndexFormatError, match=r"forged.safetensors has no recipe"):
                QueryEncoder.load(forged)

        for name in [name for name in arrays if name.startswith("filter")]:
            for change in (
                lambda a: a[:, :-1],
                lambda a: a.reshape(1, -1),
                lambda a: a.astype(np.int64),
                lambda a: a * np.float32(np.nan),
                lambda a: np.zeros((0, 0), np.float32),
            ):
                refuse({**arrays, name: np.ascontiguousarray(change(arrays[name]))})
        for dim in (None, True, 0, -1, 2**62, 0.5, "8", [D], D + 1):
            refuse(arrays, dim=dim)
        for share in (None, 10**30, -1e308, float("nan")):
            refuse(arrays, share=share)

    @pytest.mark.parametrize("index_type", [EigenLIIndex, EigenLISVIndex])
    def test_inner_products_with_queries_are_the_scores_of_the_index(self, tmp_path, index_type):
        documents, queries = texts(60, 5), texts(4, 6)
        options = {"filter": "ridge", "background": 0.75, "centering": "both", "dtype": "float32"}
        index = index_type(str(tmp_path), k=K, show_progress=False, **options)
        with pytest.raises(ValueError, match="holds no documents"):
            index.encode_queries(queries)
        index.add_documents(range(60), documents)
        ((ids, vectors),) = index.vectors(batch_size=1000)
        products = index.encode_queries(queries).vectors @ vectors.T
        for hits, row in zip(index(queries, k=len(ids)), products, strict=True):
            scores = {hit["id"]: hit["score"] for hit in hits}
            np.testing.assert_allclose(row, [scores[i] for i in ids], atol=1e-4)


class TestNpy:
    @pytest.mark.parametrize("batch_size", [None, 1, 4, 1000])
    def test_holds_the_living_documents_in_the_order_of_insertion(
        self, index, tmp_path, batch_size
    ):
        path = save(index, tmp_path / "v.npy", batch_size=batch_size)
        vectors = np.load(path, mmap_mode="r")
        assert isinstance(vectors, np.memmap)
        assert vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, expected_vectors(index))
        assert json.loads((tmp_path / "v.ids.json").read_text(encoding="utf-8")) == ORDER

    def test_integers_and_strings_stay_what_they_are(self, tmp_path):
        ids = [7, "7", 2**70, "é\n\"'", -1]
        index = make_index(tmp_path, ids, texts(5))
        save(index, tmp_path / "v.npy", batch_size=2)
        read = json.loads((tmp_path / "v.ids.json").read_text(encoding="utf-8"))
        assert [(type(i), i) for i in read] == [(type(i), i) for i in ids]

    def test_float16_is_the_nearest(self, index, tmp_path):
        vectors = np.load(save(index, tmp_path / "v.npy", dtype="float16"))
        np.testing.assert_array_equal(vectors, expected_vectors(index).astype(np.float16))

    def test_int8_is_within_half_a_step(self, index, tmp_path):
        vectors = np.load(save(index, tmp_path / "v.npy", dtype="int8"))
        scales = np.load(tmp_path / "v.scales.npy")
        assert (vectors.dtype, scales.dtype) == (np.int8, np.float32)
        assert scales.shape == (len(ORDER),)
        error = np.abs(vectors * scales[:, None] - expected_vectors(index))
        assert (error <= 0.5001 * scales[:, None]).all()

    def test_scales_of_an_earlier_export_do_not_stay(self, index, tmp_path):
        save(index, tmp_path / "v.npy", dtype="int8")
        save(index, tmp_path / "v.npy", dtype="float16")
        assert not (tmp_path / "v.scales.npy").exists()


class TestParquet:
    @pytest.fixture(autouse=True)
    def pq(self):
        return pytest.importorskip("pyarrow.parquet")

    @pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
    def test_holds_the_living_documents_in_the_order_of_insertion(self, pq, index, tmp_path, dtype):
        path = save(index, tmp_path / "v.parquet", dtype=dtype, batch_size=4)
        table = pq.read_table(path)
        assert table.column("id").to_pylist() == ORDER
        kind = table.schema.field("vector").type
        assert (kind.list_size, np.dtype(kind.value_type.to_pandas_dtype())) == (
            packed_dim(D),
            dtype,
        )
        vectors = np.stack(table.column("vector").to_numpy())
        save(index, tmp_path / "v.npy", dtype=dtype)
        np.testing.assert_array_equal(vectors, np.load(tmp_path / "v.npy"))
        assert table.column_names == ["id", "vector"] + ["scale"] * (dtype == "int8")
        if dtype == "int8":
            scales = np.load(tmp_path / "v.scales.npy")
            np.testing.assert_array_equal(table.column("scale").to_numpy(), scales)

    def test_a_batch_is_a_row_group(self, pq, index, tmp_path):
        file = pq.ParquetFile(save(index, tmp_path / "v.parquet", batch_size=8))
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert groups == [8, 8, 3]

    def test_int8_takes_a_byte_per_number(self, tmp_path):
        index = make_index(tmp_path, range(200), texts(200, d=40))
        sizes = [
            save(index, tmp_path / f"{dtype}.parquet", dtype=dtype).stat().st_size
            for dtype in ("int8", "float16", "float32")
        ]
        assert np.array(sizes) / (200 * packed_dim(40)) == pytest.approx([1, 2, 4], rel=0.15)

    @pytest.mark.parametrize(
        ("ids", "kind", "written"),
        [
            (["a", "7"], "string", ["a", "7"]),
            ([3, -(2**63)], "int64", [3, -(2**63)]),
            ([3, 2**63], "string", ["3", str(2**63)]),
            ([3, "a"], "string", ["3", "a"]),
        ],
    )
    def test_ids_are_integers_if_all_of_them_are(self, pq, tmp_path, ids, kind, written):
        index = make_index(tmp_path, ids, texts(2))
        column = pq.read_table(save(index, tmp_path / "v.parquet")).column("id")
        assert (str(column.type), column.to_pylist()) == (kind, written)

    def test_ids_that_would_be_the_same_string_are_refused(self, tmp_path):
        index = make_index(tmp_path, ["a", 7, "7"], texts(3))
        with pytest.raises(ValueError, match="the ids 7 and '7'"):
            save(index, tmp_path / "v.parquet")
        assert not list(tmp_path.glob("v.*"))

    def test_says_what_the_vectors_are(self, pq, index, tmp_path):
        schema = pq.read_schema(save(index, tmp_path / "v.parquet"))
        about = json.loads(schema.metadata[b"pylate_eigenli"])
        assert (about["k"], about["d"], about["dim"]) == (K, D, packed_dim(D))
        assert "diagonal" in about["layout"]

    def test_pandas_reads_it(self, index, tmp_path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.read_parquet(save(index, tmp_path / "v.parquet"))
        assert frame["id"].tolist() == ORDER
        np.testing.assert_array_equal(np.stack(frame["vector"]), expected_vectors(index))

    def test_duckdb_finds_what_the_index_finds(self, index, tmp_path):
        duckdb = pytest.importorskip("duckdb")
        path = save(index, tmp_path / "v.parquet")
        query = texts(1, seed=9)[0]
        vector = index.encode_queries(query).vectors[0].tolist()
        found = duckdb.execute(
            f"SELECT id, list_inner_product(vector, ?::FLOAT[]) AS score FROM '{path}' "
            "ORDER BY score DESC LIMIT 5",
            [vector],
        ).fetchall()
        assert [i for i, _ in found] == [hit["id"] for hit in index(query, k=5)[0]]


class TestFailure:
    @pytest.mark.parametrize("name", ["v.npy", "v.parquet"])
    @pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
    def test_leaves_what_was_there_before(self, index, tmp_path, monkeypatch, name, error):
        if name.endswith("parquet"):
            pytest.importorskip("pyarrow")
        folder = tmp_path / "exports"
        folder.mkdir()
        self.fail_after(monkeypatch, 2, error)
        with pytest.raises(type(error)):
            save(index, folder / name, dtype="int8", batch_size=5)
        assert not list(folder.iterdir())
        monkeypatch.undo()
        save(index, folder / name, dtype="int8")
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.fail_after(monkeypatch, 2, error)
        with pytest.raises(type(error)):
            save(index, folder / name, batch_size=5)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    @staticmethod
    def fail_after(monkeypatch, n, error):
        calls, encode = iter(range(100)), StoredRows.encode

        def failing(*args):
            if next(calls) == n:
                raise error
            return encode(*args)

        monkeypatch.setattr(StoredRows, "encode", failing)

    @pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("mine")])
    def test_nothing_is_written_through_what_lies_in_the_way(self, index, tmp_path, make):
        (tmp_path / "mine").write_text("mine")
        for name in ("v.npy", "v.npy.tmp", "v.queries.safetensors.tmp"):
            make(tmp_path / name)
        path = save(index, tmp_path / "v.npy")
        assert path.is_file()
        assert not path.is_symlink()
        assert (tmp_path / "mine").read_text() == "mine"
        (tmp_path / "w.npy").mkdir()
        with pytest.raises(IndexFormatError, match=r"w.npy is not a file"):
            save(index, tmp_path / "w.npy")

    def test_what_a_killed_export_left_is_overwritten(self, index, tmp_path):
        (tmp_path / "v.npy.tmp").write_bytes(b"x" * 10**5)
        vectors = np.load(save(index, tmp_path / "v.npy"))
        np.testing.assert_array_equal(vectors, expected_vectors(index))
        assert not (tmp_path / "v.npy.tmp").exists()


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "options", "error", "message"),
        [
            ("v.csv", {}, ValueError, r"v\.csv must be one of \.npy, \.parquet, got '\.csv'"),
            ("v.npy", {"dtype": "int4"}, ValueError, "dtype must be one of .* got 'int4'"),
            (
                "v.npy",
                {"batch_size": 0},
                ValueError,
                "batch_size must be a positive integer, got 0",
            ),
            ("missing/v.npy", {}, FileNotFoundError, "missing does not exist"),
        ],
    )
    def test_of_bad_arguments_write_nothing(self, index, tmp_path, name, options, error, message):
        with pytest.raises(error, match=message):
            save(index, tmp_path / name, **options)
        assert [path.name for path in tmp_path.iterdir()] == ["indexes"]

    def test_of_an_index_without_documents(self, tmp_path):
        index = EigenLIIndex(str(tmp_path), index_name="nothing", k=K, show_progress=False)
        for _ in range(2):
            with pytest.raises(ValueError, match="the index 'nothing' holds no documents"):
                save(index, tmp_path / "v.npy")
            index.add_documents(["a"], texts(1)).remove_documents(["a"])

    def test_of_anything_but_an_index_of_subspaces(self, tmp_path):
        with pytest.raises(TypeError, match=r"expected an EigenLIIndex or .*, got dict"):
            save({}, tmp_path / "v.npy")

    def test_of_parquet_without_pyarrow_say_how_to_get_it(self, index, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ImportError, match=r'pip install "pylate-eigenli\[export\]"'):
            save(index, tmp_path / "v.parquet")
        save(index, tmp_path / "v.npy")


def test_progress_is_shown_unless_it_is_not_wanted(index, tmp_path, capsys):
    save(index, tmp_path / "v.npy")
    assert capsys.readouterr().err == ""
    export(index, tmp_path / "v.npy")
    assert f"{len(ORDER)}/{len(ORDER)}" in capsys.readouterr().err


class TestVectors:
    def test_come_in_batches_without_a_file(self, index):
        batches = list(index.vectors(batch_size=8))
        assert [len(ids) for ids, _ in batches] == [8, 8, 3]
        assert [i for ids, _ in batches for i in ids] == ORDER
        expected = expected_vectors(index)
        np.testing.assert_array_equal(np.concatenate([v for _, v in batches]), expected)
        assert SVProjection.fit((v for _, v in index.vectors()), dim=4).dim == 4

    def test_of_chosen_documents_come_in_the_order_of_the_ids(self, index):
        expected = expected_vectors(index)
        chosen = ["doc 7", "doc 1", "new", "doc 1", "doc 18"]
        ((ids, vectors),) = index.vectors(chosen)
        assert ids == chosen
        np.testing.assert_array_equal(vectors, expected[[ORDER.index(i) for i in chosen]])
        with pytest.raises(UnknownDocumentError, match="no document 'doc 0'"):
            list(index.vectors(["doc 1", "doc 0"]))
        with pytest.raises(ValueError, match="batch_size must be a positive integer, got 0"):
            list(index.vectors(batch_size=0))

    def test_of_an_empty_index_are_none(self, tmp_path):
        index = EigenLIIndex(str(tmp_path), k=K, show_progress=False)
        assert list(index.vectors()) == []
        assert index.vector_dim is None

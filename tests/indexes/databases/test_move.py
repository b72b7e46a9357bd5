"""An index moves to a server, or into a file, without anything being encoded again."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from benchmarks import synthetic
from typer.testing import CliRunner

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, SVProjection, TokenProjection
from pylate_eigenli.cli import app
from pylate_eigenli.indexes.databases.move import move
from pylate_eigenli.indexes.export import export

D, K, N = 16, 5, 60


@pytest.fixture(scope="module")
def documents():
    return synthetic.documents(N, tokens=20, d=D)


@pytest.fixture(scope="module")
def queries():
    return synthetic.queries(4, tokens=5, d=D)


def fill(index, documents):
    """Documents added, replaced and removed; ids of both kinds."""
    index.add_documents([f"doc {i}" for i in range(40)], documents[:40])
    index.remove_documents([f"doc {i}" for i in range(5)])
    return index.add_documents([*range(19), "doc 7"], documents[40:])


def same(one, other, rel=1e-4):
    for a, b in zip(one, other, strict=True):
        assert [hit["id"] for hit in a] == [hit["id"] for hit in b]
        for x, y in zip(a, b, strict=True):
            assert x["score"] == pytest.approx(y["score"], rel=rel)


class TestMove:
    @pytest.fixture(autouse=True)
    def needs_qdrant(self):
        pytest.importorskip("qdrant_client")

    @pytest.mark.parametrize("preset", ["paper", "plus"])
    def test_subspaces_give_the_same_results_on_the_server(
        self, tmp_path, documents, queries, preset
    ):
        index = EigenLIIndex(str(tmp_path), k=K, preset=preset, show_progress=False)
        index = fill(index, documents)
        moved = move(index, "qdrant", uri=":memory:", show_progress=False)
        assert len(moved) == len(index)
        same(moved(queries, k=10), index(queries, k=10))
        same(moved(queries, k=10, rerank="eigenli"), index(queries, k=10))

    @pytest.mark.parametrize(
        "options",
        [
            {"dtype": "int8", "keep_tokens": "int8"},
            {"dtype": "binary", "keep_bases": True},
            {"dtype": "float16", "projected": True},
        ],
        ids=str,
    )
    def test_vectors_move_as_they_are_kept(self, tmp_path, documents, queries, options):
        options = dict(options)
        if options.pop("projected", False):
            tokens = TokenProjection.fit(documents, dim=12)
            plain = EigenLIIndex(str(tmp_path), "plain", k=K, show_progress=False)
            plain.add_documents(range(N), tokens.transform(documents))
            vectors = np.concatenate([v for _, v in plain.vectors()])
            projection = SVProjection.fit(torch.from_numpy(vectors), dim=40)
            options |= {"projection": projection, "token_projection": tokens}
        index = fill(EigenLISVIndex(str(tmp_path), k=K, show_progress=False, **options), documents)
        moved = move(index, "qdrant", uri=":memory:", show_progress=False)
        same(moved(queries, k=10), index(queries, k=10), rel=1e-3)
        for rerank in ("maxsim", "eigenli"):
            if "keep_tokens" in options or (rerank == "eigenli" and "keep_bases" in options):
                same(moved(queries, 5, rerank=rerank), index(queries, 5, rerank=rerank))

    def test_vectors_can_be_projected_on_their_way(self, tmp_path, documents, queries):
        options = {"k": K, "preset": "paper", "show_progress": False}
        index = EigenLISVIndex(str(tmp_path), dtype="float32", **options)
        index = fill(index, documents)
        subspaces = EigenLIIndex(str(tmp_path), "subspaces", **options)
        vectors = np.concatenate([v for _, v in fill(subspaces, documents).vectors()])
        everything = SVProjection.fit(torch.from_numpy(vectors), dim=len(vectors) - 1)
        for source, name in ((index, "a"), (subspaces, "b")):
            moved = move(
                source,
                "qdrant",
                uri=":memory:",
                index_name=name,
                projection=everything,
                show_progress=False,
            )
            assert moved.settings.projection == len(vectors) - 1
            same(moved(queries, k=5), index(queries, k=5), rel=1e-2)
        index = EigenLISVIndex(str(tmp_path), "p", projection=everything, **options)
        index = fill(index, documents)
        with pytest.raises(ValueError, match="projected already"):
            move(index, "qdrant", uri=":memory:", projection=everything)

    def test_it_goes_on_where_it_was_interrupted(self, tmp_path, documents, queries):
        index = fill(EigenLIIndex(str(tmp_path), k=K, show_progress=False), documents)
        with move(index, "qdrant", show_progress=False) as moved:
            moved.remove_documents(["doc 9", 3])
        for only_missing in (True, False):
            with move(index, "qdrant", only_missing=only_missing, show_progress=False) as moved:
                assert len(moved) == len(index)
                same(moved(queries, k=10), index(queries, k=10))


class TestFiles:
    def test_projected_vectors_rank_as_the_index_does(self, tmp_path, documents, queries):
        tokens = TokenProjection.fit(documents, dim=12)
        index = EigenLISVIndex(str(tmp_path), k=K, token_projection=tokens, show_progress=False)
        fill(index, documents)
        export(index, tmp_path / "v.npy", show_progress=False)
        vectors = np.load(tmp_path / "v.npy")
        ids = json.loads((tmp_path / "v.ids.json").read_text())
        scores = index.encode_queries(queries).vectors @ vectors.T
        for hits, row in zip(index(queries, k=5), scores, strict=True):
            assert [hit["id"] for hit in hits] == [ids[i] for i in np.argsort(-row)[:5]]

    @pytest.mark.parametrize("index_type", [EigenLIIndex, EigenLISVIndex])
    def test_inner_products_with_queries_are_the_scores_of_the_index(
        self, tmp_path, documents, queries, index_type
    ):
        options = {"filter": "ridge", "background": 0.75, "centering": "both", "dtype": "float32"}
        index = index_type(str(tmp_path), k=K, show_progress=False, **options)
        with pytest.raises(ValueError, match="holds no documents"):
            index.encode_queries(queries)
        fill(index, documents)
        ((ids, vectors),) = index.vectors(batch_size=1000)
        products = index.encode_queries(queries).vectors @ vectors.T
        for hits, row in zip(index(queries, k=len(ids)), products, strict=True):
            scores = {hit["id"]: hit["score"] for hit in hits}
            np.testing.assert_allclose(row, [scores[i] for i in ids], atol=1e-4)


class TestCommand:
    def test_moves_to_milvus_and_the_new_index_answers(self, tmp_path, documents, queries):
        pytest.importorskip("milvus_lite")
        index = fill(EigenLIIndex(str(tmp_path), "x", k=K, show_progress=False), documents)
        uri, options = str(tmp_path / "moved.db"), '{"index_type": "FLAT"}'
        command = ["export", str(tmp_path / "x"), "--to", "milvus", "--uri", uri]
        done = CliRunner().invoke(app, [*command, "--options", options])
        assert done.exit_code == 0, done.output
        assert f"{len(index)} documents" in done.stdout
        with EigenLISVIndex(str(tmp_path), "x-milvus") as moved:
            same(moved(queries, k=10), index(queries, k=10))

    def test_indexes_texts_straight_to_a_server_which_is_remembered(
        self, tmp_path, tiny_model, real_milvus
    ):
        texts = {f"d{i}": f"the {thing} is red" for i, thing in enumerate(("apple", "sun"))}
        corpus = tmp_path / "corpus.jsonl"
        corpus.write_text("".join(json.dumps({"id": i, "text": texts[i]}) + "\n" for i in texts))

        def command(name, *arguments):
            folder = str(tmp_path / "commanded")
            return CliRunner().invoke(app, [name, folder, *map(str, arguments), "--json"])

        uri = ["--uri", real_milvus.uri]
        done = command(
            "index", corpus, *uri, "--backend", "milvus", "--model", tiny_model, "--directions", 4
        )
        assert done.exit_code == 0, done.output
        hits = json.loads(command("search", "the sun").stdout)["hits"]
        assert {hit["id"]: hit["snippet"] for hit in hits} == texts
        assert not list(tmp_path.glob("*.db"))
        assert "--uri needs --backend" in command("index", corpus, *uri).stderr

    def test_writes_files(self, tmp_path, documents):
        index = fill(EigenLISVIndex(str(tmp_path), "x", k=K, show_progress=False), documents)
        for name in ("npy", "parquet"):
            if name == "parquet":
                pytest.importorskip("pyarrow")
                index.remove_documents(list(range(19)))
            path = tmp_path / f"v.{name}"
            done = CliRunner().invoke(
                app, ["export", str(tmp_path / "x"), "--to", name, "--uri", str(path)]
            )
            assert done.exit_code == 0, done.output
            assert path.stat().st_size > 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["nowhere", "--to", "npy", "--uri", "v.npy"], "there is no index in nowhere"),
            (["x", "--to", "npy"], "--to npy needs --uri"),
        ],
    )
    def test_fails_in_one_line(self, arguments, message):
        done = CliRunner().invoke(app, ["export", *arguments])
        assert done.exit_code == 1
        assert f"error: {message}" in done.stderr

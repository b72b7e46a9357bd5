"""An index becomes another one, or a file, without anything being encoded again."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from benchmarks import synthetic
from typer.testing import CliRunner

from pylate_eigenli import (
    EigenLIIndex,
    EigenLISVIndex,
    SVProjection,
    TextIndex,
    TokenProjection,
)
from pylate_eigenli.cli import app
from pylate_eigenli.corpus.committing import verify
from pylate_eigenli.indexes.open_index import open_index

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


@pytest.fixture(scope="module")
def sources(tmp_path_factory, documents, queries):
    """Indexes of both kinds, with all that can be kept."""
    folder, made = str(tmp_path_factory.mktemp("sources")), {}
    for name, options in {
        "tokens": {"keep_tokens": "float16"},
        "bases": {"keep_bases": True},
        "vectors": {"dtype": "float32"},
    }.items():
        index = EigenLISVIndex(folder, name, k=K, preset="plus", show_progress=False, **options)
        made[name] = fill(index, documents).fit_queries(queries)
    index = EigenLIIndex(folder, "subspaces", k=D, preset="plus", show_progress=False)
    made["subspaces"] = fill(index, documents).fit_queries(queries)
    return made


class TestConversion:
    @pytest.mark.parametrize(
        "options",
        [
            {"dtype": "float32", "single_vector": True},
            {"dtype": "int8", "backend": "voyager"},
            {"backend": "qdrant", "uri": ":memory:"},
            {"keep_bases": True, "rerank": "eigenli"},
            {"single_vector": False, "dtype": "float32"},
            {"idf": 0.0},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("source", ["tokens", "bases", "vectors", "subspaces"])
    def test_finds_what_the_source_finds(self, sources, queries, tmp_path, source, options):
        for needs in ("voyager", "qdrant_client"):
            if options.get("backend", "") in needs:
                pytest.importorskip(needs)
        index, before = sources[source], sources[source].generation
        if source == "vectors" and (
            "keep_bases" in options or options.get("single_vector") is False
        ):
            with pytest.raises(ValueError, match="keeps vectors, which bases cannot be made of"):
                index.convert(tmp_path / "new", **options)
            assert index.generation == before
            assert not len(open_index(tmp_path / "new"))
            return
        new = index.convert(tmp_path / "new", **options)
        assert len(new) == len(index)
        assert index.generation == before
        assert new.knows_queries
        exact = {"rerank": "eigenli"} if source == "bases" else {}
        depth = {"k": len(index)}
        scores = [
            [{hit["id"]: hit["score"] for hit in hits} for hits in results]
            for results in (index(queries, **depth, **exact), new(queries, **depth))
        ]
        if source != "tokens" or options.get("single_vector") is not False:  # k of 5 or all
            for one, other in zip(*scores, strict=True):
                assert one.keys() == other.keys()
                limit = 0.05 * max(map(abs, one.values()))
                assert max(abs(one[i] - other[i]) for i in one) < limit
        if not new.in_database:
            assert open_index(tmp_path / "new", rerank=options.get("rerank"))(queries) == new(
                queries
            )

    def test_of_kept_tokens_is_as_if_made_anew(self, sources, documents, queries, tmp_path):
        options = {"k": 3, "filter": "hard", "preset": "plus", "dtype": "float32"}
        new = sources["tokens"].convert(tmp_path / "new", **options)
        anew = EigenLISVIndex(str(tmp_path), "anew", show_progress=False, **options)
        kept = sources["tokens"].get_documents_embeddings([list(new._snapshot)])[0]
        anew.add_documents(list(new._snapshot), kept).fit_queries(queries)
        same(new(queries), anew(queries))
        assert sources["tokens"].convert(tmp_path / "auto", preset="auto").settings.auto

    def test_codes_become_other_codes_and_tokens_give_precision_back(
        self, sources, queries, tmp_path
    ):
        small = sources["tokens"].convert(tmp_path / "small", dtype="binary")
        assert small.nbytes < sources["tokens"].nbytes
        assert small.agreement is not None
        large = small.convert(tmp_path / "large", dtype="float32")
        exact = sources["vectors"]
        overlap = [
            {hit["id"] for hit in a} & {hit["id"] for hit in b}
            for a, b in zip(large(queries), exact(queries), strict=True)
        ]
        assert sum(map(len, overlap)) >= 0.9 * 10 * len(queries)
        codes = exact.convert(tmp_path / "codes", dtype="int4")
        assert codes.settings.dtype == "int4"

    @pytest.mark.parametrize(
        ("source", "options", "message"),
        [
            ("subspaces", {"preset": "paper"}, "filter='hard' instead of 'ridge' needs the tokens"),
            ("subspaces", {"preset": "auto"}, 'preset="auto" needs the tokens'),
            ("bases", {"k": 3}, "k=3 instead of 5 needs the tokens"),
            ("vectors", {"keep_tokens": "int8"}, "keeps vectors, which tokens cannot be made of"),
            ("vectors", {"backend": "voyager", "dtype": "int3"}, "dtype must be one of"),
        ],
    )
    def test_that_needs_what_is_not_kept_says_so(self, sources, tmp_path, source, options, message):
        with pytest.raises(ValueError, match=message):
            sources[source].convert(tmp_path / "new", **options)
        assert not (tmp_path / "new").exists()

    def test_takes_no_folder_that_is_in_use(self, sources, tmp_path):
        index = sources["subspaces"]
        with pytest.raises(ValueError, match="is the index itself"):
            index.convert(index._collection.path, dtype="int8", override=True)
        index.convert(tmp_path / "new")
        with pytest.raises(ValueError, match="holds an index: choose another folder"):
            index.convert(tmp_path / "new", dtype="int8")
        assert index.convert(tmp_path / "new", dtype="int8", override=True).settings.dtype == "int8"
        with pytest.raises(ValueError, match="holds no documents"):
            open_index(tmp_path / "empty").convert(tmp_path / "of empty")

    def test_projections_go_along_or_are_made_on_the_way(self, tmp_path, documents, queries):
        tokens = TokenProjection.fit(documents, dim=12)
        options = {"k": K, "preset": "paper", "show_progress": False, "token_projection": tokens}
        index = fill(EigenLISVIndex(str(tmp_path), dtype="float32", **options), documents)
        vectors = np.concatenate([v for _, v in index.vectors()])
        everything = SVProjection.fit(torch.from_numpy(vectors), dim=len(vectors) - 1)
        projected = index.convert(tmp_path / "a", projection=everything)
        assert projected.settings.projection == len(vectors) - 1
        same(projected(queries, k=5), index(queries, k=5), rel=1e-2)
        again = projected.convert(tmp_path / "b")
        same(again(queries, k=5), projected(queries, k=5))
        other = SVProjection.fit(torch.from_numpy(vectors), dim=3)
        with pytest.raises(ValueError, match="projected already"):
            projected.convert(tmp_path / "c", projection=other)

    def test_to_a_database_goes_on_where_it_was_interrupted(self, tmp_path, documents, queries):
        pytest.importorskip("qdrant_client")
        index = EigenLIIndex(str(tmp_path), k=K, preset="paper", show_progress=False)
        index = fill(index, documents)
        with index.convert(tmp_path / "served", backend="qdrant") as served:
            served.remove_documents(["doc 9", 3])
        with index.convert(tmp_path / "served", backend="qdrant") as served:
            assert len(served) == len(index)
            same(served(queries, idf=0.5), index(queries, idf=0.5))


class TestCommand:
    def test_moves_to_milvus_and_the_new_index_answers(self, tmp_path, documents, queries):
        pytest.importorskip("milvus_lite")
        index = fill(EigenLIIndex(str(tmp_path), "x", k=K, show_progress=False), documents)
        uri, options = str(tmp_path / "moved.db"), '{"index_type": "FLAT"}'
        command = ["convert", str(tmp_path / "x"), str(tmp_path / "x-milvus"), "--uri", uri]
        done = CliRunner().invoke(
            app, [*command, "--backend", "milvus", "--backend-options", options]
        )
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
            done = CliRunner().invoke(app, ["export", str(tmp_path / "x"), str(path)])
            assert done.exit_code == 0, done.output
            assert path.stat().st_size > 0

    def test_takes_texts_metadata_and_the_model_along(self, tmp_path, tiny_model):
        pytest.importorskip("qdrant_client")
        texts = ["the apple is red", "the sun is red", "the sun sets"]
        source = TextIndex(tmp_path / "texts", tiny_model, k=4)
        source.add(texts, ids=[1, "b", 3], metadata=[{"n": i} for i in range(3)])
        for arguments in (["--dtype", "int8", "--backend", "exact"], ["--backend", "qdrant"]):
            folder = tmp_path / arguments[-1]
            done = CliRunner().invoke(
                app, ["convert", str(source.path), str(folder), *arguments, "--json"]
            )
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout) == {"documents": 3, "index": str(folder)}
            with TextIndex(folder) as converted:
                assert converted.model == source.model
                found, known = converted.search("the sun"), source.search("the sun")
                assert sorted(hit.text for hit in found) == sorted(texts)
                assert found[0].id == known[0].id
                assert [hit.id for hit in converted.search("sun", where={"n": 2})] == [3]
                converted.remove(1)
            assert verify(folder) == []
        assert len(source) == 3

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["export", "nowhere", "v.npy"], "there is no index in nowhere"),
            (["convert", "nowhere", "there"], "there is no index in nowhere"),
            (["convert", "nowhere", "there", "--uri", "x"], "--uri needs --backend"),
        ],
    )
    def test_fails_in_one_line(self, arguments, message):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1
        assert f"error: {message}" in done.stderr

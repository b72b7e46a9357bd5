"""Metadata stay with their documents, and filters find exactly what they say."""

from __future__ import annotations

import sqlite3
import time

import pytest

from pylate_eigenli.corpus.catalogue import ALWAYS, Catalogue
from pylate_eigenli.corpus.committing import verify
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.metadata import parse_where
from pylate_eigenli.corpus.text_index import TextIndex
from pylate_eigenli.models.text_encoder import TextEncoder

TEXTS = ["the apple is a red fruit", "the sky is blue", "the sea is blue water", "green grass"]
METADATA = [
    {"lang": "en", "year": 2019, "checked": True},
    {"lang": "de", "year": 2021.5},
    {"lang": "en", "year": 2024, "checked": False},
    {"lang": "1", "year": "2020", "note": None},
]
BACKENDS = [
    {},
    {"single_vector": True, "backend": "exact"},
    {"single_vector": True, "backend": "voyager"},
    {"single_vector": True, "backend": "qdrant"},
    {"single_vector": True, "backend": "milvus"},
]


def made(folder, model, **settings):
    index = TextIndex(folder, str(model), k=4, **settings)
    assert index.add(TEXTS, ids=["a", "b", 3, "d"], metadata=METADATA) == ["a", "b", 3, "d"]
    return index


def found(index, **where):
    return {hit.id for hit in index.search("blue", where=where)}


@pytest.fixture
def index(tmp_path, tiny_model):
    with made(tmp_path / "index", tiny_model) as index:
        yield index


@pytest.mark.parametrize("settings", BACKENDS, ids=lambda s: s.get("backend", "subspaces"))
def test_a_filter_is_exact_in_every_backend_and_after_every_change(settings, tmp_path, tiny_model):
    libraries = {"qdrant": "qdrant_client", "milvus": "milvus_lite", "voyager": "voyager"}
    pytest.importorskip(libraries.get(settings.get("backend", ""), "sqlite3"))
    with made(tmp_path / "index", tiny_model, **settings) as index:
        assert found(index, lang="en") == {"a", 3}
        (hit,) = index.search("red fruit", where={"lang": "en", "year": {"lt": 2020}})
        assert (hit.id, hit.text, hit.metadata) == ("a", TEXTS[0], METADATA[0])
        index.add([TEXTS[0]], ids=["a"], metadata=[{"lang": "fr"}])
        index.remove(3)
        assert found(index, lang=["en", "fr"]) == {"a"}
        assert index.search("blue", where={"lang": "en"}) == []
        if not index.index.in_database:
            index.compact()
        assert found(index, lang=["fr", "de"]) == {"a", "b"}
    assert verify(tmp_path / "index") == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"lang": ["de", "1"]}, {"b", "d"}),
        ({"lang": []}, set()),
        ({"lang": ["en", *map(str, range(300_000))]}, {"a", 3, "d"}),
        ({"lang": 1}, set()),
        ({"checked": True}, {"a"}),
        ({"checked": 1}, set()),
        ({"year": 2024.0}, {3}),
        ({"year": {"gte": 2019, "lt": 2024}}, {"a", "b"}),
        ({"year": {"gte": "2000"}}, {"d"}),
        ({"year": {"gt": 2019}, "lang": "en"}, {3}),
        ({}, {"a", "b", 3, "d"}),
    ],
)
def test_conditions(index, where, expected):
    assert {hit.id for hit in index.search("blue", where=where)} == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("lang=de", {"lang": ["de"]}),
        ("year=2024", {"year": ["2024", 2024]}),
        ("checked=true", {"checked": ["true", True]}),
        ("year=NaN", {"year": ["NaN"]}),
        (f"year={2**63}", {"year": [str(2**63)]}),
        ("name=a=b<c", {"name": ["a=b<c"]}),
        ("name=", {"name": [""]}),
        ("year>2020 year<=2024.5", {"year": {"gt": 2020, "lte": 2024.5}}),
        ("date>=2020-01-31", {"date": {"gte": "2020-01-31"}}),
    ],
)
def test_written_conditions(written, expected):
    assert parse_where(written.split()) == expected


@pytest.mark.parametrize("written", ["lang", "=en", "year>1 year>2", "year>1 year=2"])
def test_conditions_written_in_another_way_are_refused(written):
    with pytest.raises(ValueError, match=r"is like KEY=VALUE|cannot be combined"):
        parse_where(written.split())


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"language": "en"}, "no document has the metadata 'language'; known are checked, lang"),
        ({"note": "x"}, "known are"),
        ({"year": {"above": 3}}, "must be some of gt, gte, lt, lte, got 'above'"),
        ({"year": {"gte": True}}, "must be a number or a string"),
        ({"year": None}, "must be a string, a number or a boolean, got a NoneType"),
        ("lang", "where must be a dictionary"),
    ],
)
def test_a_wrong_filter_is_named(index, where, message):
    with pytest.raises((TypeError, ValueError), match=message):
        index.search("blue", where=where)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": [{"tags": ["a"]}]}, "'tags' of document 0 must be a string"),
        ({"metadata": [{"x": float("nan")}]}, "is not a number"),
        ({"metadata": [{"x": 2**63}]}, "more than 64 bits"),
        ({"metadata": [{1: "x"}]}, "the key 1"),
        ({"metadata": ["x"]}, "must be a dictionary, got a str"),
        ({"metadata": []}, "there are 1 texts, but 0 metadata"),
        ({"ids": ["a", "b"]}, "there are 1 texts, but 2 ids"),
        ({"titles": [7]}, "must be strings, got a int"),
    ],
)
def test_bad_texts_and_metadata_change_nothing(index, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        index.add(["red"], **options)
    for texts in ("red", [""], [7]):
        with pytest.raises((TypeError, ValueError)):
            index.add(texts)
    assert len(index) == 4


def test_texts_without_ids_are_not_added_twice(index):
    first = index.add(["red sun", "red sun", "yellow sun"])
    assert index.add(["red sun"]) == first[:1] == first[1:2]
    assert len(index) == 6


def test_a_reader_filters_by_the_metadata_of_its_own_state(index):
    with TextIndex(index.path) as reader:
        index.add([TEXTS[0]], ids=["a"], metadata=[{"lang": "fr"}])
        assert found(reader, lang="en") == {"a", 3}
        reader.index.refresh()
        assert found(reader, lang="en") == {3}


def test_several_questions_and_explanations(index):
    assert [[hit.id for hit in hits] for hits in index.search(TEXTS[:2], top=1)] == [["a"], ["b"]]
    (hit,) = index.search("red fruit", top=1)
    explained = index.explain("red fruit", hit.id)
    assert sum(share for _, share in explained) == pytest.approx(hit.score, rel=1e-5)
    assert {"red", "fruit"} <= {token for token, _ in explained}
    with pytest.raises(ValueError, match="a query is empty"):
        index.search(" ")


def test_catalogues_from_before_metadata_open_and_take_them(index):
    with sqlite3.connect(index.catalogue.path) as connection:
        connection.executescript(
            "DROP TRIGGER metadata_follows; DROP TABLE metadata; DROP INDEX files; "
            "PRAGMA user_version = 3; UPDATE texts SET checksum = 0"
        )
    with TextIndex(index.path) as old:
        assert old.search("red fruit", top=1)[0].metadata == {}
        with pytest.raises(ValueError, match="no document of the index has metadata"):
            found(old, lang="en")
        old.add(["red"], ids=["new"], metadata=[{"lang": "en"}])
        assert found(old, lang="en") == {"new"}


def test_altered_metadata_are_found(index):
    with sqlite3.connect(index.catalogue.path) as connection:
        connection.execute("UPDATE metadata SET value = 'xx' WHERE id = '\"a\"' AND key = 'lang'")
    assert verify(index.path) == [
        f'{index.catalogue.path} is damaged: the row of document "a" is altered'
    ]


def test_a_filter_of_a_large_collection_is_fast(tmp_path):
    catalogue = Catalogue(tmp_path)
    lang = ["en", "de", "fr", "es"]
    documents = [
        Document(i, "text " * 100, metadata={"lang": lang[i % 4], "n": i}) for i in range(20_000)
    ]
    catalogue.put(documents, ALWAYS)
    begin = time.perf_counter()
    assert len(catalogue.matching({"lang": "en", "n": {"lt": 1000}})) == 250
    assert time.perf_counter() - begin < 1


def test_files_and_records_are_read_with_their_metadata(tmp_path, tiny_model):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "fruit.txt").write_text("the apple is a red fruit")
    records = tmp_path / "records.jsonl"
    records.write_text(
        '{"id": 1, "text": "blue sky", "lang": "en", "tags": ["a"], "none": null}\n'
        '{"_id": "2", "text": "green leaf", "metadata": {"lang": "de"}}\n'
    )
    with TextIndex(tmp_path / "index", str(tiny_model), k=4) as index:
        assert index.add([folder, records]) == ["fruit.txt#1", 1, "2"]
        (hit,) = index.search("blue", where={"lang": "en"})
        assert (hit.id, hit.metadata) == (1, {"lang": "en", "tags": '["a"]'})
        assert found(index, lang="de") == {"2"}
        (hit,) = [hit for hit in index.search("red") if hit.id == "fruit.txt#1"]
        assert (hit.file, hit.text) == ("fruit.txt", "the apple is a red fruit")
        (folder / "fruit.txt").write_text("the apple is green")
        assert index.add(folder) == ["fruit.txt#1"]
        assert index.get(["fruit.txt#1"])[0].text == "the apple is green"
        with pytest.raises(FileNotFoundError):
            index.add([folder, tmp_path / "nowhere"])


class TestAdd:
    def test_what_is_the_same_is_not_encoded_again_but_other_metadata_are_kept(
        self, index, tmp_path, monkeypatch
    ):
        encoded = []
        encode = TextEncoder.encode_documents

        def counted(encoder, documents, *options):
            encoded.extend(documents)
            return encode(encoder, documents, *options)

        monkeypatch.setattr(TextEncoder, "encode_documents", counted)
        (tmp_path / "a.txt").write_text("green grass")
        for times, lang in ((1, "en"), (1, "en"), (2, "de")):
            assert index.add(tmp_path / "a.txt", metadata={"lang": lang}) == ["a.txt#1"]
            index.add(TEXTS, ids=["a", "b", 3, "d"], metadata=METADATA)
            assert encoded == ["a\ngreen grass"] * times
        assert found(index, lang="de") == {"b", "a.txt#1"}

    def test_one_dictionary_is_for_all_texts(self, index):
        assert index.add(["red sea", "blue sea"], metadata={"lang": "it"})
        assert len(found(index, lang="it")) == 2

    def test_tables_are_read_by_the_names_of_their_fields(self, index, tmp_path):
        (tmp_path / "a.csv").write_text("words,year\nred sun,1999\n")
        (table,) = index.add([tmp_path / "a.csv"], fields={"text": "words"})
        assert found(index, year={"lt": 2000}) == {table}

    def test_names_of_files_are_not_taken_for_texts(self, index, tmp_path):
        (tmp_path / "a.txt").write_text("green grass")
        with pytest.raises(ValueError, match=r"a\.txt' is a file or folder: Path\("):
            index.add([str(tmp_path / "a.txt")])
        with pytest.raises(TypeError, match="cannot be added together"):
            index.add([tmp_path, "green grass"])
        with pytest.raises(ValueError, match="files have names"):
            index.add([tmp_path], ids=["a"])
        assert len(index) == 4

"""Sources: every kind of file becomes documents, and a bad one is named."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylate_eigenli.corpus.sources import open_source, passages
from pylate_eigenli.corpus.text_store import TextDocument
from pylate_eigenli.corpus.words import count_words

PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj
4 0 obj<</Length 52>>stream
BT /F 12 Tf 20 50 Td (Yellow plants need water) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
6 0 obj<</Title(Plants)>>endobj
trailer<</Root 1 0 R/Info 6 0 R>>
"""


def read(source, document_length=100):
    parts = open_source(str(source)).parts(document_length)
    return [document for part in parts for document in part.documents]


class TestFolders:
    def test_every_kind_of_file_is_read(self, tmp_path):
        pytest.importorskip("pypdfium2")
        (tmp_path / "deep").mkdir()
        (tmp_path / "a.txt").write_bytes(b"caf\xe9 and tea")
        (tmp_path / "b.md").write_text("# The heading #\n\nBody of it.")
        (tmp_path / "c.html").write_text(
            "<head><title>A &amp; B</title><style>p {}</style></head><p>one <b>two</b>"
            "<script>alert(1)</script><p>three"
        )
        (tmp_path / "deep" / "d.PDF").write_bytes(PDF)
        (tmp_path / "ignored.bin").write_bytes(b"\0")
        assert open_source(str(tmp_path)).total == 4
        assert read(tmp_path) == [
            TextDocument("a.txt#1", "caf\ufffd and tea", "a"),
            TextDocument("b.md#1", "Body of it.", "The heading"),
            TextDocument("c.html#1", "one two\nthree", "A & B"),
            TextDocument("deep/d.PDF#1", "Yellow plants need water", "Plants"),
        ]

    def test_long_files_become_passages_that_a_model_reads_whole(self, tmp_path):
        (tmp_path / "long.txt").write_text("one two three four five six seven. " * 30)
        documents = read(tmp_path / "long.txt", document_length=20)
        assert [document.id for document in documents[:2]] == ["long.txt#1", "long.txt#2"]
        assert all(len(document.text.split()) <= 13 for document in documents)

    def test_a_folder_without_any_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="holds no files to index"):
            open_source(str(tmp_path))

    def test_a_broken_file_is_named_and_keeps_no_other_out(self, tmp_path):
        pytest.importorskip("pypdfium2")
        (tmp_path / "broken.pdf").write_bytes(b"not a PDF")
        (tmp_path / "fine.txt").write_text("fine")
        source = open_source(str(tmp_path))
        assert [len(part.documents) for part in source.parts(100)] == [0, 1]
        (line,) = source.unreadable
        assert line.startswith(f"{tmp_path / 'broken.pdf'} cannot be read")
        with pytest.raises(ValueError, match=r"broken\.pdf cannot be read"):
            read(tmp_path / "broken.pdf")

    def test_a_page_that_is_missing_is_a_broken_file(self, tmp_path):
        pytest.importorskip("pypdfium2")
        (tmp_path / "a.pdf").write_bytes(PDF.replace(b"3 0 R", b"9 0 R"))
        (tmp_path / "b.txt").write_text("fine")
        source = open_source(str(tmp_path))
        assert [part.file for part in source.parts(100)] == [None, "b.txt"]
        (line,) = source.unreadable
        assert line.startswith(f"{tmp_path / 'a.pdf'} cannot be read")

    def test_without_a_reader_of_pdfs_they_are_named_with_what_they_need(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setitem(sys.modules, "pypdfium2", None)
        (tmp_path / "a.pdf").write_bytes(PDF)
        (tmp_path / "b.txt").write_text("fine")
        source = open_source(str(tmp_path))
        assert [len(part.documents) for part in source.parts(100)] == [0, 1]
        assert source.unreadable[0].endswith('need `pip install "pylate-eigenli[pdf]"`')

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
    def test_names_that_are_not_text_are_read_and_told_apart(self, tmp_path):
        for name in (b"caf\xe8.txt", b"caf\xe9.txt"):
            Path(os.fsdecode(os.fsencode(tmp_path / "x")[:-1] + name)).write_text("coffee")
        documents = read(tmp_path)
        assert [document.id for document in documents] == [
            r"caf\xe8.txt#1",
            r"caf\xe9.txt#1",
        ]
        for document in documents:
            assert document.title.encode()

    def test_an_empty_file_is_a_part_with_its_name(self, tmp_path):
        (tmp_path / "empty.txt").write_text(" \n")
        (part,) = open_source(str(tmp_path)).parts(100)
        assert (part.documents, part.file) == ([], "empty.txt")

    def test_byte_order_marks_are_no_part_of_a_text(self, tmp_path):
        (tmp_path / "a.md").write_text("# Heading\n\nBody.", encoding="utf-8-sig")
        (tmp_path / "b.txt").write_text("wide é", encoding="utf-16")
        (tmp_path / "c.txt").write_bytes("big é".encode("utf-16-be").join([b"\xfe\xff", b""]))
        assert [(document.title, document.text) for document in read(tmp_path)] == [
            ("Heading", "Body."),
            ("b", "wide é"),
            ("c", "big é"),
        ]

    @pytest.mark.parametrize(
        ("page", "title", "text"),
        [
            ("<title>Page</title><body>one<svg><title>Icon</title></svg> two", "Page", "one two"),
            ("<body>one<svg><text>drawn</text></svg>", "p", "onedrawn"),
            ("<head><title>Page</title><meta charset=utf-8><p>one<p>two", "Page", "one\ntwo"),
            ("<head><title>Page</title> one <b>two</b>", "Page", "one two"),
            ("<head><style>p {}</style><script>1 < 2</script></head>one", "p", "one"),
        ],
    )
    def test_pages_show_what_a_browser_would(self, tmp_path, page, title, text):
        (tmp_path / "p.html").write_text(page)
        assert read(tmp_path) == [TextDocument("p.html#1", text, title)]

    def test_what_is_hidden_is_left_out(self, tmp_path):
        (tmp_path / ".git").mkdir()
        (tmp_path / "folder.txt").mkdir()
        for name in (".git/description.txt", ".draft.md", "folder.txt/seen.txt"):
            (tmp_path / name).write_text("text")
        assert [document.id for document in read(tmp_path)] == ["folder.txt/seen.txt#1"]


class TestJsonLines:
    def test_beir_folders_files_and_stdin_give_the_same(self, tmp_path, monkeypatch):
        rows = [{"_id": "7", "text": "sea", "title": "Blue"}, {"id": 7, "text": "half \ud800"}]
        lines = "".join(json.dumps(row) + "\n\n" for row in rows)
        (tmp_path / "corpus.jsonl").write_text(lines)
        wanted = [TextDocument("7", "sea", "Blue"), TextDocument(7, "half ?", "")]
        assert read(tmp_path) == read(tmp_path / "corpus.jsonl") == wanted
        assert open_source(str(tmp_path)).total == 2
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert read("-") == wanted

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "line 2"),
            ("[]", "expected an object"),
            ('{"text": "no id"}', '"id"'),
            ('{"id": true, "text": ""}', '"id"'),
            ('{"id": 1, "text": 2}', '"text"'),
            ('{"id": "\\ud800", "text": ""}', "not valid Unicode"),
            ("caf\udce9", "utf-8"),
        ],
    )
    def test_a_bad_line_is_named(self, line, message, tmp_path):
        path = tmp_path / "bad.jsonl"
        path.write_bytes(b'{"id": 1, "text": "fine"}\n' + os.fsencode(line))
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}, line 2: ")

    def test_a_byte_order_mark_is_no_part_of_the_first_record(self, tmp_path):
        path = tmp_path / "marked.jsonl"
        path.write_text('{"id": 1, "text": "fine"}\n', encoding="utf-8-sig")
        assert read(path) == [TextDocument(1, "fine")]

    def test_what_was_looked_at_first_is_read_again(self, tmp_path):
        for name, text in (("a.txt", ""), ("b.txt", "one"), ("c.txt", "two")):
            (tmp_path / name).write_text(text)
        source, first = open_source(str(tmp_path)).peeked(100)
        assert [document.text for document in first] == ["one"]
        assert [part.file for part in source.parts(100)] == ["a.txt", "b.txt", "c.txt"]


@given(st.text(alphabet="ab.\n !海ไ\u3002", max_size=200), st.integers(1, 8))
def test_passages_hold_every_letter_once_and_no_more_words_than_allowed(text, words):
    cut = passages(text, words)
    assert "".join("".join(cut).split()) == "".join(text.split())
    assert all(1 <= count_words(passage) <= words for passage in cut)


@given(st.text(alphabet="ab.\n !", max_size=200), st.integers(1, 8))
def test_passages_are_cut_between_the_words_of_scripts_with_spaces(text, words):
    text = " ".join(part[:24] for part in text.split())
    cut = passages(text, words)
    assert " ".join(cut).split() == text.split()
    assert all(1 <= len(passage.split()) <= words for passage in cut)


@pytest.mark.parametrize(
    "text",
    [
        "東京は日本の首都です。人口は約千四百万人で、世界最大の都市圏の一つです。" * 20,
        "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย" * 20,
        "https://example.org/" + "a1b2c3d4/" * 200,
    ],
    ids=["Japanese", "Thai", "address"],
)
def test_what_has_no_spaces_is_cut_into_passages_that_a_model_reads(text):
    cut = passages(text, words=50)
    assert len(cut) > 1
    assert "".join(cut) == text
    assert all(count_words(passage) <= 50 for passage in cut)

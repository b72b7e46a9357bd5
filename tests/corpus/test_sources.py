"""Sources: every kind of file becomes documents, and a bad one is named."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from helpers.tiny_model import words_tokenizer

from pylate_eigenli.corpus import readers, records
from pylate_eigenli.corpus.document import Document
from pylate_eigenli.corpus.hits import snippet
from pylate_eigenli.corpus.page_files import read_pdf
from pylate_eigenli.corpus.passages import Cutter
from pylate_eigenli.corpus.readers import READERS, read_html, read_markdown, suffix_of
from pylate_eigenli.corpus.records import Fields
from pylate_eigenli.corpus.sources import open_source

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


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def word_document(path, body, title="", before=""):
    """Write a Word document with paragraphs in XML."""
    with ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", f"{before}<w:document {WORD}>{body}</w:document>")
        archive.writestr(
            "docProps/core.xml", f"<core xmlns:dc='dc'><dc:title>{title}</dc:title></core>"
        )


def cutter(length=100):
    return Cutter(words_tokenizer(), length)


def read(source, length=100, fields=None):
    parts = open_source(str(source), fields).parts(cutter(length))
    documents = [document for part in parts for document in part.documents]
    return [replace(document, file=None, fingerprint="") for document in documents]


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
            Document("a.txt#1", "café and tea", "a"),
            Document("b.md#1", "Body of it.", "The heading"),
            Document("c.html#1", "one two\n\nthree", "A & B"),
            Document("deep/d.PDF#1", "Yellow plants need water", "Plants", page=1),
        ]

    def test_long_files_become_passages_that_a_model_reads_whole(self, tmp_path):
        (tmp_path / "long.txt").write_text("one two three four five six seven. " * 30)
        documents = read(tmp_path / "long.txt", length=20)
        assert [document.id for document in documents[:2]] == ["long.txt#1", "long.txt#2"]
        lengths = {len(words_tokenizer().encode(document.whole).ids) for document in documents}
        assert max(lengths) <= 20

    def test_a_folder_without_any_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="holds no files to index"):
            open_source(str(tmp_path))

    def test_a_broken_file_is_named_and_keeps_no_other_out(self, tmp_path):
        pytest.importorskip("pypdfium2")
        (tmp_path / "broken.pdf").write_bytes(b"not a PDF")
        (tmp_path / "fine.txt").write_text("fine")
        source = open_source(str(tmp_path))
        assert [len(part.documents) for part in source.parts(cutter())] == [0, 1]
        (line,) = source.unreadable
        assert line.startswith(f"{tmp_path / 'broken.pdf'} cannot be read")
        with pytest.raises(ValueError, match=r"broken\.pdf cannot be read"):
            read(tmp_path / "broken.pdf")

    def test_a_page_that_is_missing_is_a_broken_file(self, tmp_path):
        pytest.importorskip("pypdfium2")
        (tmp_path / "a.pdf").write_bytes(PDF.replace(b"3 0 R", b"9 0 R"))
        (tmp_path / "b.txt").write_text("fine")
        source = open_source(str(tmp_path))
        assert [part.file for part in source.parts(cutter())] == [None, "b.txt"]
        (line,) = source.unreadable
        assert line.startswith(f"{tmp_path / 'a.pdf'} cannot be read")

    def test_without_a_reader_of_pdfs_the_reason_names_what_they_need(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "pypdfium2", None)
        (tmp_path / "a.pdf").write_bytes(PDF)
        with pytest.raises(ImportError, match=r'pypdfium2: pip install "pylate-eigenli\[pdf\]"'):
            read_pdf(tmp_path / "a.pdf")

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
        (part,) = open_source(str(tmp_path)).parts(cutter())
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

    def test_what_is_left_out_is_named(self, tmp_path):
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "folder")
        (tmp_path / "noise.txt").write_bytes(bytes(range(1, 256)) * 4)
        (tmp_path / "zeros.md").write_bytes(b"one\0two")
        (tmp_path / "empty.txt").touch()
        (tmp_path / "fine.txt").write_text("fine")
        for name in ("a.png", "b.png", "LICENSE"):
            (tmp_path / name).touch()
        (tmp_path / "lost.txt").symlink_to("nowhere")
        os.mkfifo(tmp_path / "pipe.txt")
        source = open_source(str(tmp_path))
        parts = list(source.parts(cutter()))
        assert [document.id for part in parts for document in part.documents] == ["fine.txt#1"]
        not_files = {"lost.txt": "is a link to nothing", "pipe.txt": "is not a file"}
        lines = {f"{tmp_path / name} {why}" for name, why in not_files.items()}
        assert lines <= set(source.unreadable)
        assert [line for line in source.unreadable if line not in lines] == [
            f"{tmp_path / 'link'} is a link to a folder; index the folder itself",
            "3 files of other types: .png (2), no suffix (1)",
            f"{tmp_path / 'empty.txt'} has no text",
            *(
                f"{tmp_path / name} cannot be read: it is not text, whatever its name says"
                for name in ("noise.txt", "zeros.md")
            ),
        ]

    @pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv.gz"])
    def test_a_file_that_disappears_is_named_and_keeps_no_other_out(self, tmp_path, name):
        (tmp_path / name).write_text("{}")
        (tmp_path / "fine.txt").write_text("fine")
        source = open_source(str(tmp_path))
        (tmp_path / name).unlink()
        parts = list(source.parts(cutter()))
        assert [document.id for part in parts for document in part.documents] == ["fine.txt#1"]
        assert [part.is_cut_short for part in parts] == [name != "a.txt", False]
        (line,) = source.unreadable
        assert line.startswith(f"{tmp_path / name} cannot be read: ")

    def test_a_broken_byte_does_not_spoil_the_other_letters(self, tmp_path):
        (tmp_path / "a.txt").write_bytes("café ".encode() + b"\xe9")
        assert [document.text for document in read(tmp_path)] == ["café \ufffd"]

    @pytest.mark.parametrize(
        ("page", "title", "text"),
        [
            ("<title>Page</title><body>one<svg><title>Icon</title></svg> two", "Page", "one two"),
            ("<body>one<svg><text>drawn</text></svg>", "p", "onedrawn"),
            ("<head><title>Page</title><meta charset=utf-8><p>one<p>two", "Page", "one\n\ntwo"),
            ("<head><title>Page</title> one <b>two</b>", "Page", "one two"),
            ("<head><style>p {}</style><script>1 < 2</script></head>one", "p", "one"),
            (
                "<!doctype html>1 < 2 &lt; 3<!-- > --><p title='a>b' x=it's>two",
                "p",
                "1 < 2 < 3\n\ntwo",
            ),
            ("<TITLE>A <b></TITLE><P>one<BR/>two</P >", "A <b>", "one\n\ntwo"),
        ],
    )
    def test_pages_show_what_a_browser_would(self, tmp_path, page, title, text):
        (tmp_path / "p.html").write_text(page)
        assert read(tmp_path) == [Document("p.html#1", text, title)]

    @pytest.mark.parametrize(
        "page",
        [
            "<svg>" * 200_000,
            "<title><svg>" * 100_000 + "</svg>" * 100_000,
            "<div>x" * 200_000,
            *(part * 100_000 for part in ("<a ", '<a b="', "<!--", "<![CDATA[", "</", "<script>")),
        ],
        ids=["svg", "closed", "div", "a", "value", "comment", "cdata", "end", "script"],
    )
    def test_nested_pages_take_linear_time(self, tmp_path, page):
        (tmp_path / "p.html").write_text(page)
        begin = time.perf_counter()
        read_html(tmp_path / "p.html")
        assert time.perf_counter() - begin < 20  # quadratic: minutes

    def test_a_heading_with_many_spaces_takes_linear_time(self, tmp_path):
        (tmp_path / "a.md").write_text("# x" + " " * 1_000_000 + "y ##\nBody.")
        title, ((_, text),) = read_markdown(tmp_path / "a.md")
        assert (title.split(), text) == (["x", "y"], "Body.")

    def test_a_file_that_changes_changes_its_fingerprint(self, tmp_path):
        path = tmp_path / "a.txt"
        seen = set()
        for text in ("one", "one more"):
            path.write_text(text)
            (part,) = open_source(str(tmp_path)).parts(cutter())
            assert {document.fingerprint for document in part.documents} == {part.fingerprint}
            seen.add(part.fingerprint)
        assert len(seen) == 2

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
        wanted = [Document("7", "sea", "Blue"), Document(7, "half ?", "")]
        assert read(tmp_path) == read(tmp_path / "corpus.jsonl") == wanted
        assert open_source(str(tmp_path)).total == 2
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert read("-") == wanted

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "it is not JSON: .* at character 2"),
            ("[]", "expected an object with named fields"),
            ("[" * 100_000, "recursion"),
            ('{"id": 1, "body": "no text"}', "no field 'text' among 'id', 'body': name the one"),
            ('{"id": true, "text": ""}', "'id'"),
            ('{"id": 1, "text": 2}', "'text'"),
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
        assert read(path) == [Document(1, "fine")]

    def test_a_pipe_is_read_once(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.jsonl")
        writer = threading.Thread(
            target=(tmp_path / "pipe.jsonl").write_text, args=('{"id": 1, "text": "sea"}\n' * 3,)
        )
        writer.start()
        assert read(tmp_path / "pipe.jsonl") == [Document(1, "sea")] * 3
        writer.join()

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("empty.jsonl", '{"id": 1, "text": "fine"}\n' + "\n" * 3000),
            ("line.jsonl", '{"id": 1, "text": "fine"}\n{"id": 2, "text": "' + "x" * 3000),
            ("quotes.csv", 'id,text\n1,fine\n2,"' + "without an end\n" * 200),
            ("cells.csv", "id,text\n1,fine\n2" + ',"\n"' * 2000),
        ],
    )
    def test_a_record_without_an_end_is_refused(self, name, text, tmp_path, monkeypatch):
        monkeypatch.setattr(records, "RECORD_BYTES", 2000)
        (tmp_path / name).write_text(text)
        parts = iter(open_source(tmp_path / name).parts(cutter()))
        assert next(parts).documents[0].text == "fine"
        with pytest.raises(ValueError, match=rf"{name}, line \d+: the record has more than"):
            next(parts)


class TestTables:
    @pytest.mark.parametrize(
        ("name", "table"),
        [
            ("a.csv", 'id,title,text,year,code\n7,Sea,"blue, and\nwide",2024,007\n'),
            ("a.csv", '\ufeffid;title;text;year;code\r\n7;Sea;"blue, and\nwide";2024;007\r\n'),
            ("a.tsv", 'id\ttitle\ttext\tyear\tcode\n7\tSea\t"blue, and\nwide"\t2024\t007\n'),
        ],
        ids=["comma", "semicolon", "tab"],
    )
    def test_a_row_is_a_document_and_its_other_cells_are_metadata(self, tmp_path, name, table):
        row = Document("7", "blue, and\nwide", "Sea", metadata={"year": 2024, "code": "007"})
        (tmp_path / name).write_text(table, newline="")
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(table.encode()))
        assert read(tmp_path / name) == read(tmp_path / f"{name}.gz") == [row]

    def test_fields_have_the_names_that_are_given(self, tmp_path):
        (tmp_path / "a.csv").write_text("url,body,title\nx,12,2001\n,two,\n")
        named, unnamed = read(tmp_path / "a.csv", fields=Fields(id="url", text="body"))
        assert named == Document("x", "12", "2001")  # not numbers
        assert (len(unnamed.id), unnamed.text, unnamed.metadata) == (16, "two", {})

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (b"id,words\n1,one\n", "line 2: there is no field 'text' among 'id', 'words'"),
            (b"id,text\n1,one\n2,two,three\n", "line 3: it has more cells"),
            (b"id,text\n1,one\0two\n", "line 2: it is not text"),
        ],
    )
    def test_a_bad_row_is_named_and_keeps_no_other_file_out(self, tmp_path, table, message):
        (tmp_path / "a.csv").write_bytes(table)
        (tmp_path / "b.jsonl").write_text('{"id": 1, "text": "fine"}\n')
        (tmp_path / "c.jsonl.gz").write_bytes(b"not gzip")
        source = open_source(str(tmp_path))
        parts = [part for part in source.parts(cutter()) if part.documents]
        assert parts[-1].documents == [Document(1, "fine")]
        table, packed = source.unreadable
        assert message in table
        assert packed == f"{tmp_path / 'c.jsonl.gz'}, line 0: Not a gzipped file (b'no')"


class TestWordDocuments:
    def test_paragraphs_are_read_and_what_is_said_twice_or_deleted_is_not(self, tmp_path):
        body = (
            "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>one </w:t></w:r>"
            "<w:r><w:t>two</w:t><w:tab/><w:t>three</w:t></w:r></w:p>"
            "<w:p><w:r><w:delText>gone</w:delText><w:t>four</w:t></w:r>"
            "<w:Choice><w:t>!</w:t></w:Choice><w:Fallback><w:t>!</w:t></w:Fallback></w:p>"
        )
        word_document(tmp_path / "a.docx", body, title="Numbers")
        assert read(tmp_path) == [Document("a.docx#1", "one two three\n\nfour!", "Numbers")]

    def test_entities_and_other_files_are_refused(self, tmp_path):
        laughs = "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;'>]>"
        word_document(tmp_path / "a.docx", "<w:t>&b;</w:t>", before=laughs)
        (tmp_path / "b.docx").write_text("not a Word document")
        source = open_source(str(tmp_path))
        assert not [part for part in source.parts(cutter()) if part.documents]
        entities, other = source.unreadable
        assert "it defines entities" in entities
        assert "it is no Word document" in other


class TestBounds:
    def test_no_more_of_a_file_is_read_or_unpacked_than_a_bound(self, tmp_path, monkeypatch):
        monkeypatch.setattr(readers, "MAX_BYTES", 1 << 20)
        text = "x" * (1 << 20)
        (tmp_path / "large.txt").write_text(text + "x")
        (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(text.encode() * 2))
        word_document(tmp_path / "bomb.docx", f"<w:t>{text}</w:t>")
        for name in ("large.txt", "bomb.txt.gz", "bomb.docx"):
            with pytest.raises(ValueError, match="it has more than 1 MB"):
                READERS[suffix_of(Path(name))](tmp_path / name)

    def test_a_model_is_not_given_more_than_any_reads(self):
        endless = "word " * 10_000_000
        assert len(Document(1, endless, endless).whole) < 2_100_000
        assert len(snippet(endless, "word")) < 250

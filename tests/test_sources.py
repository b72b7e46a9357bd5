"""Sources: every kind of file becomes documents, and a bad one is named."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylate_eigenli.sources import open_source, passages
from pylate_eigenli.texts import TextDocument

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
    return [document for part in parts for document in part]


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
        assert [len(part) for part in source.parts(100)] == [0, 1]
        (line,) = source.unreadable
        assert line.startswith(f"{tmp_path / 'broken.pdf'} cannot be read")
        with pytest.raises(ValueError, match=r"broken\.pdf cannot be read"):
            read(tmp_path / "broken.pdf")

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
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        assert read("-") == wanted

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "line 2"),
            ("[]", "expected an object"),
            ('{"text": "no id"}', '"id"'),
            ('{"id": true, "text": ""}', '"id"'),
            ('{"id": 1, "text": 2}', '"text"'),
        ],
    )
    def test_a_bad_line_is_named(self, line, message, tmp_path):
        path = tmp_path / "bad.jsonl"
        path.write_text('{"id": 1, "text": "fine"}\n' + line)
        with pytest.raises(ValueError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}, line 2: ")


@given(st.text(alphabet="ab.\n !", max_size=200), st.integers(1, 8))
def test_passages_hold_every_word_once_and_no_more_than_allowed(text, words):
    cut = passages(text, words)
    assert " ".join(cut).split() == text.split()
    assert all(1 <= len(passage.split()) <= words for passage in cut)

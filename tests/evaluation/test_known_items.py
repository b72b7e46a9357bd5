"""A known item can be found only by what remains of it."""

from __future__ import annotations

import pytest

from pylate_eigenli.evaluation.known_items import (
    MIN_QUERY_WORDS,
    MIN_REST_WORDS,
    known_items,
    split_first_sentence,
)
from pylate_eigenli.models.standard_library import Document

REST = "Word " * MIN_REST_WORDS


class TestSplitFirstSentence:
    @pytest.mark.parametrize(
        ("body", "sentence", "rest"),
        [
            ("Compress data. Use a level.", "Compress data.", "Use a level."),
            ("Compress data.\nuse a level", "Compress data.", "use a level"),
            ("Compress\n    data. Use it.", "Compress data.", "Use it."),
            ("Compress data\n\nUse a level.", "Compress data", "Use a level."),
            ("Read e.g. a file. Use it.", "Read e.g. a file.", "Use it."),
            ("Read version 2.5 of it. `level` is 9.", "Read version 2.5 of it.", "`level` is 9."),
            ("Is it compressed? Yes.", "Is it compressed?", "Yes."),
            ("Compress data.", "Compress data.", ""),
        ],
    )
    def test_a_sentence_ends_at_its_stop_or_paragraph(
        self, body: str, sentence: str, rest: str
    ) -> None:
        assert split_first_sentence(body) == (sentence, rest)

    @pytest.mark.parametrize(
        "body",
        [
            "range(stop) -> range object\n\nReturn an object.",
            "T.lower() -> str\n\nReturn a copy.",
            "Popen(args)\n\nRun a program.",
            "usage: python -m this\n\nPrint it.",
            "No end in sight",
            "",
        ],
    )
    def test_what_opens_without_a_sentence_is_not_split(self, body: str) -> None:
        assert split_first_sentence(body) is None


class TestKnownItems:
    def test_every_query_leaves_its_document(self, library: list[Document]) -> None:
        bodies = {document.id: document.body for document in library}
        items = known_items(library, 10**9)
        assert len(items) > 500
        for item in items:
            whole = " ".join(bodies[item.document.id].split())
            rest = " ".join(item.document.body.split())
            assert whole == f"{item.query} {rest}"

    def test_only_long_enough_parts_qualify(self, library: list[Document]) -> None:
        for item in known_items(library, 10**9):
            assert len(item.query.split()) >= MIN_QUERY_WORDS
            assert len(item.document.body.split()) >= MIN_REST_WORDS

    def test_a_shared_sentence_is_no_query(self) -> None:
        shared = "Return a copy of it all."
        documents = [
            Document("a", f"{shared} {REST}"),
            Document("b", f"{shared} Too short."),
            Document("c", f"Return only this very one. {REST}"),
        ]
        assert [item.document.id for item in known_items(documents, 10)] == ["c"]

    def test_size_is_an_upper_bound(self) -> None:
        documents = [Document(f"d{i}", f"Return the thing number {i}. {REST}") for i in range(20)]
        assert len(known_items(documents, 7)) == 7
        assert known_items(documents, 7) == known_items(documents, 7)

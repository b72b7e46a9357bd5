"""Codes keep the order of exact scores, on tokens with the spectrum of real models; the guard sees if not."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from pylate_eigenli import EigenLISVIndex
from pylate_eigenli.indexes.agreement import ENOUGH
from pylate_eigenli.vectors.encoder import VectorEncoder

D, DOCUMENTS, QUERIES = 64, 400, 40
# Of answerai-colbert-small-v1: 84% of the energy of a document lies in one direction common to all.
COMMON = {"isotropic": 0.0, "anisotropic": 0.84}
# The share of the 10 best by exact scores that codes find, at least.
KEPT = {"int8": 0.98, "int4": 0.95, "int2": 0.9, "binary": 0.85}


def tokens(common: float, seed: int, items: int, length: int, topics: torch.Tensor) -> list:
    """Unit tokens: a common direction, the topics of the item, and a falling spectrum beside them."""
    random = torch.Generator().manual_seed(seed)
    spectrum = torch.arange(1, D + 1) ** -0.5
    mean = torch.nn.functional.normalize(torch.randn(D, generator=torch.manual_seed(1)), dim=0)
    made = []
    for item in range(items):
        about = topics[(item * 7 + torch.arange(3)) % len(topics)]
        chosen = about[torch.randint(3, (length,), generator=random)]
        rest = chosen + 0.7 * torch.randn(length, D, generator=random) * spectrum
        rest = torch.nn.functional.normalize(rest, dim=1)
        made.append(common**0.5 * mean + (1 - common) ** 0.5 * rest)
    return [torch.nn.functional.normalize(item, dim=1) for item in made]


@pytest.fixture(scope="module", params=COMMON)
def collection(request) -> tuple[list, list]:
    topics = torch.nn.functional.normalize(
        torch.randn(120, D, generator=torch.Generator().manual_seed(2)), dim=1
    )
    common = COMMON[request.param]
    return (
        tokens(common, 3, DOCUMENTS, 60, topics),
        tokens(common, 4, QUERIES, 16, topics),
    )


@pytest.fixture(scope="module")
def anisotropic() -> list:
    topics = torch.nn.functional.normalize(torch.randn(120, D), dim=1)
    return tokens(COMMON["anisotropic"], 3, DOCUMENTS, 60, topics)


def found(folder, preset: str, dtype: str, documents: list, queries: list) -> list[set]:
    index = EigenLISVIndex(
        str(folder), dtype, k=16, preset=preset, dtype=dtype, show_progress=False
    )
    index.add_documents(range(len(documents)), documents)
    return [{hit["id"] for hit in hits} for hits in index(queries, k=10)]


class TestCodes:
    @pytest.mark.parametrize("preset", ["paper", "plus"])
    @pytest.mark.parametrize("dtype", KEPT)
    def test_find_what_exact_scores_find(self, tmp_path, collection, dtype, preset):
        exact = found(tmp_path, preset, "float32", *collection)
        coded = found(tmp_path, preset, dtype, *collection)
        kept = np.mean([len(a & b) / 10 for a, b in zip(exact, coded, strict=True)])
        assert kept >= KEPT[dtype]

    @pytest.mark.parametrize("dtype", KEPT)
    def test_grow_by_one_byte_a_token_dimension(self, tmp_path, anisotropic, dtype):
        index = EigenLISVIndex(
            str(tmp_path), k=16, preset="paper", dtype=dtype, show_progress=False
        )
        index.add_documents(range(DOCUMENTS), anisotropic)
        (segment,) = index._snapshot.segments
        assert segment.column("vector_row").shape == (DOCUMENTS, D)


class TestGuard:
    @pytest.mark.parametrize("dtype", KEPT)
    def test_says_how_well_codes_agree(self, tmp_path, collection, dtype):
        index = EigenLISVIndex(
            str(tmp_path), k=16, preset="paper", dtype=dtype, show_progress=False
        )
        assert index.agreement is None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.add_documents(range(DOCUMENTS), collection[0])
        agreement = index.agreement
        assert agreement is not None
        assert ENOUGH <= agreement <= 1
        reopened = EigenLISVIndex(str(tmp_path), show_progress=False)
        assert reopened.agreement == index.agreement

    def test_more_bits_agree_more(self, tmp_path, collection):
        agreements = []
        for dtype in ("binary", "int2", "int4", "int8"):
            index = EigenLISVIndex(
                str(tmp_path), dtype, k=16, preset="paper", dtype=dtype, show_progress=False
            )
            agreements.append(index.add_documents(range(DOCUMENTS), collection[0]).agreement)
        assert agreements == sorted(agreements)

    def test_names_the_remedy_when_codes_collapse(self, tmp_path, anisotropic, monkeypatch):
        """As they did before the row of the mean token was kept apart."""
        fitted = VectorEncoder.centred_on

        def without_row(*given):
            encoder = fitted(*given)
            axis = torch.nn.functional.normalize(encoder.centre, dim=0)
            return replace(encoder, axis=axis, mean_row=None)

        monkeypatch.setattr(VectorEncoder, "centred_on", without_row)
        index = EigenLISVIndex(
            str(tmp_path), k=16, preset="paper", dtype="binary", show_progress=False
        )
        with pytest.warns(UserWarning, match="dtype='binary' .* more bits, or standardise"):
            index.add_documents(range(DOCUMENTS), anisotropic)
        assert index.agreement < ENOUGH

    @pytest.mark.parametrize("dtype", ["float32", "float16"])
    def test_is_silent_about_floats(self, tmp_path, anisotropic, dtype):
        index = EigenLISVIndex(
            str(tmp_path), k=16, preset="paper", dtype=dtype, show_progress=False
        )
        assert index.add_documents(range(DOCUMENTS), anisotropic).agreement is None

    def test_needs_some_documents(self, tmp_path, anisotropic):
        index = EigenLISVIndex(
            str(tmp_path), k=16, preset="paper", dtype="binary", show_progress=False
        )
        assert index.add_documents(range(3), anisotropic[:3]).agreement is None

    def test_takes_documents_that_are_all_alike(self, tmp_path):
        index = EigenLISVIndex(str(tmp_path), k=4, dtype="binary", show_progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            index.add_documents(range(30), [torch.eye(8)[:5]] * 30)
        assert index.agreement == pytest.approx(1)


@pytest.mark.parametrize("dtype", ["int8", "binary"])
@pytest.mark.parametrize("preset", ["plus", "paper"])
def test_scores_of_codes_do_not_depend_on_the_other_queries(tmp_path, dtype, preset):
    generator = torch.Generator().manual_seed(0)
    documents = torch.nn.functional.normalize(torch.randn(60, 12, 8, generator=generator), dim=-1)
    with EigenLISVIndex(
        str(tmp_path), k=4, dtype=dtype, preset=preset, show_progress=False
    ) as index:
        index.add_documents(range(60), list(documents))
        for query in documents[:20, :8]:
            assert index([query, query, query], k=5)[1] == index([query], k=5)[0]

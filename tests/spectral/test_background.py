"""Spectral idf, background subtraction and centring."""

import base64

import numpy as np
import pytest
import torch
from helpers.definition import unit_rows

from pylate_eigenli import EigenLIIndex, EigenLISVIndex, analyze, compress
from pylate_eigenli.indexes.collection import stored_background
from pylate_eigenli.scores.training import _without_background
from pylate_eigenli.spectral.background import Background, shares_by_evidence
from pylate_eigenli.tokens import collect
from pylate_eigenli.vectors.packing import pack_subspaces, unpack

D, K, N = 10, 3, 40


@pytest.fixture
def documents():
    rng = np.random.default_rng(0)
    return [unit_rows(rng, int(rng.integers(1, 25)), D) for _ in range(N)]


@pytest.fixture
def queries():
    rng = np.random.default_rng(1)
    return [unit_rows(rng, n, D) for n in (1, 4, 7)]


def matrices(documents):
    subspaces = compress(documents, K)
    packed = pack_subspaces(subspaces.rows, subspaces.offsets, subspaces.floors.numpy())
    return unpack(packed).double().numpy()


def expected_scores(documents, query, idf, background):
    """The definition, in float64: tr(F (M_Q - b tr(M_Q) G))."""
    f = matrices(documents)
    g = f.mean(0) / np.trace(f.mean(0))
    values, vectors = np.linalg.eigh(g)
    q = query.astype(np.float64) @ (vectors * values**-idf) @ vectors.T
    moment = q.T @ q
    common = (vectors * values ** (1 - 2 * idf)) @ vectors.T
    moment = moment - background * np.trace(moment) * common / np.trace(common)
    return np.einsum("nij,ij->n", f, moment)


def scores(index, query, **options):
    found = {hit["id"]: hit["score"] for hit in index(query, k=N, **options)[0]}
    return np.array([found[i] for i in sorted(found)])


def make_eigenli(folder, **options):
    options = {"preset": "paper", **options}
    return EigenLIIndex(str(folder), k=K, dtype="float32", show_progress=False, **options)


def make_sv(folder, **options):
    options = {"preset": "paper", **options}
    return EigenLISVIndex(str(folder), k=K, dtype="float32", show_progress=False, **options)


@pytest.mark.parametrize("make", [make_eigenli, make_sv])
class TestSearch:
    @pytest.mark.parametrize(
        ("idf", "background"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.5), (0.4, 0.25)]
    )
    def test_scores_by_the_definition(self, tmp_path, documents, queries, make, idf, background):
        index = make(tmp_path).add_documents(range(N), documents)
        for query in queries:
            np.testing.assert_allclose(
                scores(index, query, idf=idf, background=background),
                expected_scores(documents, query, idf, background),
                atol=2e-5 * len(query) * D ** (2 * idf),
            )

    def test_uses_the_options_of_the_index_by_default(self, tmp_path, documents, queries, make):
        index = make(tmp_path, idf=0.4, background=0.25).add_documents(range(N), documents)
        assert index(queries) == index(queries, idf=0.4, background=0.25)
        assert index(queries) != index(queries, idf=0)
        index.close()
        assert type(index)(str(tmp_path)).settings.idf == 0.4

    def test_of_one_query_equals_a_batch(self, tmp_path, documents, queries, make):
        index = make(tmp_path, idf=0.4, background=0.75).add_documents(range(N), documents)
        for together, query in zip(index(queries), queries, strict=True):
            (alone,) = index(query)
            assert [hit["id"] for hit in alone] == [hit["id"] for hit in together]
            assert [hit["score"] for hit in alone] == pytest.approx(
                [hit["score"] for hit in together], abs=1e-5
            )

    def test_of_a_subset_equals_a_full_search(self, tmp_path, documents, queries, make):
        index = make(tmp_path, idf=0.4, background=0.75).add_documents(range(N), documents)
        everything = scores(index, queries[1])
        np.testing.assert_allclose(
            scores(index, queries[1], subset=[3, 7, 30]), everything[[3, 7, 30]], atol=1e-5
        )

    @pytest.mark.parametrize("options", [{"idf": -0.1}, {"idf": 9}, {"background": 1.5}])
    def test_refuses_options_out_of_range(self, tmp_path, documents, queries, make, options):
        index = make(tmp_path).add_documents(range(N), documents)
        (name,) = options
        with pytest.raises(ValueError, match=name):
            index(queries, **options)

    @pytest.mark.parametrize("preset", ["paper", "plus"])
    def test_no_document_scores_higher_than_the_highest_score(
        self, tmp_path, documents, queries, make, preset
    ):
        index = make(tmp_path, preset=preset).add_documents(range(N), documents)
        for query, highest in zip(queries, index.highest_scores(queries), strict=True):
            assert scores(index, query).max() <= highest * (1 + 1e-5)
            if preset == "paper":  # unit tokens: the mass of the query is their number
                assert highest == pytest.approx(len(query), rel=1e-5)

    def test_of_an_empty_index_finds_nothing(self, tmp_path, queries, make):
        assert make(tmp_path, idf=0.4, background=0.75)(queries) == [[], [], []]


@pytest.mark.parametrize("share", [0.0, 0.5], ids=["counted", "kept"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int4", "binary"])
class TestUpdates:
    def test_keep_the_background_exact(self, tmp_path, documents, dtype, share):
        """Added, replaced and removed in any order: as if made anew."""
        options = {"k": K, "dtype": dtype, "background": share, "show_progress": False}
        kind = EigenLISVIndex if dtype in ("int4", "binary") else EigenLIIndex
        index = kind(str(tmp_path), "changed", **options)
        index.add_documents(range(20), documents[:20])
        index.add_documents(range(10, 30), documents[10:30][::-1])
        index.remove_documents([0, 5, 29])
        index.add_documents(range(20, 40), documents[20:40], batch_size=7)
        index.remove_documents([1, 2, 3, 4, 6, 7, 8, 9])
        index.compact()
        snapshot = index._snapshot
        background = index._documents.background(snapshot)
        assert (stored_background(snapshot) is not None) == bool(share)
        assert background.documents == len(index) == 30
        from_scratch = Background.empty(D)
        for segment in snapshot.segments:
            living = np.flatnonzero(segment.alive)
            matrix = index._collection.codec(snapshot).matrix_sum(segment, living)
            from_scratch = from_scratch.plus(matrix, len(living))
        np.testing.assert_allclose(background.mean, from_scratch.mean, atol=1e-6)


@pytest.mark.parametrize("make", [make_eigenli, make_sv])
def test_what_is_left_of_many_documents_has_the_background_of_few(tmp_path, make):
    rng = np.random.default_rng(2)
    many = [unit_rows(rng, 6, D) for _ in range(3000)]
    options = {"short_documents": "truncate", "background": 0.5}
    index = make(tmp_path / "many", **options).add_documents(range(3000), many, batch_size=700)
    index.remove_documents(range(4, 3000))
    left = index._documents.background(index._snapshot)
    again = [
        index._collection.codec(index._snapshot).matrix_sum(segment, np.flatnonzero(segment.alive))
        for segment in index._snapshot.segments
    ]
    np.testing.assert_allclose(left.total, sum(again), atol=1e-9)
    index.remove_documents(range(4))
    assert not index._documents.background(index._snapshot).total.any()


class TestBackground:
    def test_is_read_from_an_old_manifest(self):
        x = np.random.default_rng(0).standard_normal((5, 5))
        upper = (x + x.T)[np.triu_indices(5)].astype("<f8")
        encoded = base64.b64encode(upper.tobytes()).decode("ascii")
        background = Background.from_json({"dim": 5, "documents": 7, "total": encoded})
        assert background.documents == 7
        assert (background.total == x + x.T).all()

    def test_is_a_document_frequency(self, tmp_path):
        """Of four documents three hold the first direction."""
        eye = np.eye(4, dtype=np.float32)
        index = EigenLIIndex(str(tmp_path), k=1, short_documents="truncate", show_progress=False)
        index.add_documents(range(4), [eye[:1], eye[:1], eye[:1], eye[1:2]])
        mean = index._documents.background(index._snapshot).mean
        np.testing.assert_allclose(np.diag(mean), [0.75, 0.25, 0, 0], atol=1e-3)


class TestEvidence:
    """A query loses more of the background, the more independent tokens it has."""

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.75])
    def test_nine_independent_tokens_lose_the_share_and_more_lose_more(self, share):
        moments = torch.stack([torch.diag((torch.arange(40) < n).float()) for n in range(1, 41)])
        shares = shares_by_evidence(moments, share)
        assert shares[8] == pytest.approx(share)
        assert (shares.diff() > 0).all()
        assert ((shares > 0) & (shares < 1)).all()

    def test_of_three_quarters_is_r_of_r_and_three(self):
        tokens = torch.randn(5, 12, 8, generator=torch.Generator().manual_seed(0))
        moments = tokens.mT @ tokens
        eigenvalues = torch.linalg.eigvalsh(moments)
        r = eigenvalues.sum(1) ** 2 / eigenvalues.square().sum(1)
        torch.testing.assert_close(shares_by_evidence(moments, 0.75), r / (r + 3))

    @pytest.mark.parametrize("scale", [1e-16, 3.0, 1e16])
    def test_is_not_changed_by_longer_or_repeated_tokens(self, scale):
        query = torch.from_numpy(unit_rows(np.random.default_rng(0), 7, D))
        (plain,) = shares_by_evidence((query.mT @ query)[None], 0.75)
        changed = scale * query.repeat(4, 1)
        (other,) = shares_by_evidence((changed.mT @ changed)[None], 0.75)
        torch.testing.assert_close(plain, other)

    @pytest.mark.parametrize("share", [0.0, 1.0])
    def test_nothing_and_all_are_the_same_for_every_query(self, share):
        moments = torch.stack([torch.eye(4), torch.ones(4, 4), torch.zeros(4, 4)])
        assert shares_by_evidence(moments, share).tolist() == [share] * 3

    def test_is_counted_where_tokens_are_standardised(self, tmp_path, documents, queries):
        plus = make_eigenli(tmp_path / "plus", preset="plus").add_documents(range(N), documents)
        known = plus._queries(plus._snapshot, queries, None, None)
        moments = torch.stack([tokens.mT @ tokens for tokens in known.tokens])
        torch.testing.assert_close(known.shares, shares_by_evidence(moments, 0.75))
        paper = make_eigenli(tmp_path / "paper").add_documents(range(N), documents)
        known = paper._queries(paper._snapshot, queries, None, 0.75)
        assert known.shares.tolist() == [0.75] * 3

    def test_is_the_same_in_training(self):
        tokens = torch.randn(4, 9, 6, generator=torch.Generator().manual_seed(1))
        moments = tokens.mT @ tokens
        traces = moments.diagonal(dim1=-2, dim2=-1).sum(-1)
        left = _without_background(moments, 0.75).diagonal(dim1=-2, dim2=-1).sum(-1)
        torch.testing.assert_close(1 - left / traces, shares_by_evidence(moments, 0.75))


class TestCentering:
    def test_equals_centering_by_hand(self, tmp_path, documents, queries):
        centred = make_eigenli(tmp_path / "ours", centering="both")
        by_hand = make_eigenli(tmp_path / "by hand")
        some = [x for x in documents if len(x) > 1]
        centred.add_documents(range(len(some)), some)
        by_hand.add_documents(range(len(some)), [x - x.mean(0) for x in some])
        query = queries[2]
        np.testing.assert_allclose(
            scores(centred, query), scores(by_hand, query - query.mean(0)), rtol=1e-4, atol=1e-5
        )

    @pytest.mark.parametrize("make", [make_eigenli, make_sv])
    def test_on_the_corpus_mean_equals_centering_by_hand(self, tmp_path, documents, queries, make):
        mean = analyze(documents).mean
        centred = make(tmp_path / "ours", corpus_mean=mean).add_documents(range(N), documents)
        by_hand = make(tmp_path / "by hand").add_documents(range(N), [x - mean for x in documents])
        np.testing.assert_allclose(
            scores(centred, queries[2]), scores(by_hand, queries[2] - mean), rtol=1e-4, atol=1e-5
        )
        again = make(tmp_path / "ours", corpus_mean=mean)
        assert again.settings == centred.settings
        with pytest.raises(ValueError, match="corpus_mean has 3 dimensions, tokens have 10"):
            make(tmp_path / "other", corpus_mean=[0.1] * 3).add_documents(range(N), documents)

    def test_of_documents_only_is_an_option(self, tmp_path, documents, queries):
        one_sided = make_sv(tmp_path, centering="documents").add_documents(range(N), documents)
        assert one_sided(queries[1])[0][0]["score"] != 0
        with pytest.raises(ValueError, match="centering must be one of none, both, documents"):
            EigenLIIndex(str(tmp_path), "other", centering="queries")

    def test_makes_equal_tokens_zero(self, tmp_path):
        token = unit_rows(np.random.default_rng(2), 1, D)
        batch = collect([np.repeat(token, 7, axis=0), token]).centred()
        assert not batch.tokens.any()
        index = EigenLIIndex(str(tmp_path), k=K, centering="both", show_progress=False)
        index.add_documents(["same", "other"], [np.repeat(token, 7, axis=0), np.eye(D)[:4]])
        (hits,) = index(np.eye(D)[:2], k=2)
        assert [hit["id"] for hit in hits] == ["other", "same"]
        assert torch.isfinite(torch.tensor([hit["score"] for hit in hits])).all()

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks import synthetic
from helpers.definition import unit_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from pylate_eigenli import EigenLIIndex, EigenLISVIndex
from pylate_eigenli.tokens import LONGEST_QUERY_TOKEN, collect, pad, split_items


def padded(items, rows=None):
    """Stack matrices with rows of zeros behind them, and the mask that tells them apart."""
    rows = rows or max(len(x) for x in items)
    batch = np.zeros((len(items), rows, items[0].shape[1]), np.float32)
    mask = np.zeros(batch.shape[:2], bool)
    for i, x in enumerate(items):
        batch[i, : len(x)], mask[i, : len(x)] = x, True
    return batch, mask


@pytest.fixture
def items():
    rng = np.random.default_rng(0)
    # Multiples of 1/128 are the same number in every dtype.
    return [np.round(unit_rows(rng, n, 6) * 128) / 128 + 1 / 128 for n in (3, 1, 5)]


def assert_holds(batch, items):
    assert len(batch) == len(items)
    assert batch.lengths.tolist() == [len(x) for x in items]
    assert batch.tokens.is_contiguous()
    for got, expected in zip(batch, items, strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)


class TestForms:
    """Whatever form the same embeddings come in, the batch is the same."""

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_arrays(self, items, dtype):
        assert_holds(collect([x.astype(dtype) for x in items]), items)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_tensors(self, items, dtype):
        assert_holds(collect([torch.from_numpy(x).to(dtype) for x in items]), items)

    def test_nested_lists(self, items):
        assert_holds(collect([x.tolist() for x in items]), items)

    def test_lists_of_rows(self, items):
        assert_holds(collect([list(x) for x in items]), items)
        assert_holds(collect([list(torch.from_numpy(x)) for x in items]), items)

    def test_tuples_and_generators(self, items):
        assert_holds(collect(tuple(items)), items)
        assert_holds(collect(x for x in items), items)

    def test_a_mixture(self, items):
        mixture = [items[0].tolist(), torch.from_numpy(items[1]).half(), items[2]]
        assert_holds(collect(mixture), items)

    def test_padding_of_zeros(self, items):
        batch, _ = padded(items, rows=7)
        assert_holds(collect(batch), items)
        assert_holds(collect(torch.from_numpy(batch)), items)

    def test_zero_rows_anywhere(self, items):
        assert_holds(collect([np.insert(x, [0, 1, len(x)], 0, axis=0) for x in items]), items)

    def test_padding_with_a_mask(self, items):
        batch, mask = padded(items, rows=7)
        batch[~mask] = np.nan  # nobody looks at what is masked
        for given_mask in (mask, mask.astype(np.int64), torch.from_numpy(mask), mask.tolist()):
            assert_holds(collect(batch, mask=given_mask), items)

    def test_views_that_are_read_only_reversed_or_strided(self, items):
        frozen = [x.copy() for x in items]
        for x in frozen:
            x.flags.writeable = False
        assert_holds(collect(frozen), items)
        assert_holds(collect([x[::-1, ::-1] for x in items]), [x[::-1, ::-1] for x in items])
        assert_holds(collect([np.repeat(x, 2, axis=1)[:, ::2] for x in items]), items)
        assert_holds(collect([np.asfortranarray(x) for x in items]), items)

    def test_tensors_that_require_gradients(self, items):
        batch = collect([torch.from_numpy(x).requires_grad_() for x in items])
        assert not batch.tokens.requires_grad
        assert_holds(batch, items)

    def test_a_single_item(self, items):
        for form in (items[0], torch.from_numpy(items[0]), items[0].tolist(), list(items[0])):
            assert_holds(collect(form), items[:1])

    def test_the_requested_dtype(self, items):
        assert collect(items).tokens.dtype == torch.float32
        assert collect(items, dtype=torch.float64).tokens.dtype == torch.float64

    def test_the_arrays_of_the_caller_do_not_change(self, items):
        before = [x.copy() for x in items]
        collect(items).tokens.mul_(2)
        for x, y in zip(items, before, strict=True):
            np.testing.assert_array_equal(x, y)

    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 5), st.integers(0, 9)
    )
    def test_ragged_and_padded_agree(self, lengths, d, extra):
        rng = np.random.default_rng(0)
        items = [unit_rows(rng, n, d) for n in lengths]
        batch, mask = padded(items, rows=max(lengths) + extra)
        assert_holds(collect(items), items)
        assert_holds(collect(batch), items)
        assert_holds(collect(batch, mask=mask), items)


class TestErrors:
    """Every refusal names the item, and the token if it is one."""

    @pytest.mark.parametrize("empty", [[], (), iter([]), np.zeros((0, 3, 4))])
    def test_no_items(self, empty):
        with pytest.raises(ValueError, match="no document was given"):
            collect(empty)

    def test_no_tokens(self, items):
        with pytest.raises(ValueError, match="document 1 has no tokens"):
            collect([items[0], np.zeros((0, 6))])

    def test_only_zeros(self, items):
        with pytest.raises(ValueError, match=r"document 2 has no tokens: .* zero or masked"):
            collect([*items[:2], np.zeros((3, 6))])

    def test_everything_masked(self, items):
        batch, mask = padded(items)
        mask[1] = False
        with pytest.raises(ValueError, match="document 1 has no tokens"):
            collect(batch, mask=mask)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_values_that_are_not_finite(self, items, value):
        items[2][3, 4] = value
        with pytest.raises(ValueError, match="document 2: token 3 contains NaN or infinite"):
            collect(items)

    def test_values_whose_squares_are_not_finite(self, items):
        items[2][3] *= 1e30
        with pytest.raises(ValueError, match="document 2: token 3 has a length that overflows"):
            collect(items)

    def test_tokens_so_long_that_scores_would_overflow(self, items):
        items[2][3] *= 1e17 / np.linalg.norm(items[2][3])
        with pytest.raises(ValueError, match=r"query 2: token 3 has the length 1e\+17, more than"):
            collect(items, names="query", longest=LONGEST_QUERY_TOKEN)
        assert len(collect(items)) == 3  # the subspace of a document does not depend on lengths

    def test_the_longest_tokens_find_what_others_find(self, tmp_path):
        documents = synthetic.documents(50, tokens=12, d=16)
        queries = synthetic.queries(3, tokens=5, d=16)
        for index_type in (EigenLIIndex, EigenLISVIndex):
            index = index_type(
                str(tmp_path), index_type.kind, k=4, preset="paper", show_progress=False
            )
            index.add_documents(range(50), documents)
            with pytest.raises(ValueError, match=r"query 0: token 0 has the length 1e\+17"):
                index(queries * 1e17)
            for length in (1e-6, 0.99 * LONGEST_QUERY_TOKEN):
                for hits, expected in zip(index(queries * length), index(queries), strict=True):
                    assert [hit["id"] for hit in hits] == [hit["id"] for hit in expected]

    def test_the_longest_tokens_have_finite_scores_where_tokens_are_standardised(self, tmp_path):
        for index_type in (EigenLIIndex, EigenLISVIndex):
            index = index_type(
                str(tmp_path), index_type.kind, k=4, preset="plus", show_progress=False
            )
            index.add_documents(range(50), synthetic.documents(50, tokens=12, d=16))
            queries = 0.99 * LONGEST_QUERY_TOKEN * synthetic.queries(3, tokens=5, d=16)
            scores = np.array([[hit["score"] for hit in hits] for hits in index(queries, k=50)])
            assert scores.shape == (3, 50)
            assert np.isfinite(scores).all()

    def test_the_position_of_a_bad_token_includes_padding(self, items):
        items[2][0] = 0
        items[2][3, 4] = np.nan
        with pytest.raises(ValueError, match="document 2: token 3 "):
            collect(items)

    def test_another_dimension(self, items):
        with pytest.raises(ValueError, match="document 1 has dimension 5, expected 6"):
            collect([items[0], np.ones((2, 5))])
        with pytest.raises(ValueError, match="document 0 has dimension 6, expected 8"):
            collect(items, dim=8)

    def test_no_dimension(self):
        with pytest.raises(ValueError, match="document 0 has dimension 0"):
            collect([np.zeros((3, 0))])

    def test_a_vector_in_place_of_a_matrix(self, items):
        with pytest.raises(ValueError, match="not 1-D"):
            collect(np.ones(6))
        with pytest.raises(ValueError, match=r"document 1: expected .* got shape \(6,\)"):
            collect([items[0], np.ones(6)])

    def test_too_many_dimensions(self, items):
        with pytest.raises(ValueError, match="not 4-D"):
            collect(np.ones((2, 3, 4, 5)))
        with pytest.raises(ValueError, match=r"document 0: .* shape \(1, 3, 6\)"):
            collect([items[0][None]])

    @pytest.mark.parametrize("nonsense", ["text", object(), [[1.0, 2.0], [3.0]], np.array([["a"]])])
    def test_an_item_that_is_not_a_matrix(self, items, nonsense):
        with pytest.raises(TypeError, match="document 1 is not a matrix of token vectors"):
            collect([items[0], nonsense])

    def test_a_mask_of_another_size(self, items):
        batch, mask = padded(items)
        with pytest.raises(ValueError, match="mask has 2 rows for 3 items"):
            collect(batch, mask=mask[:2])
        with pytest.raises(ValueError, match="document 0 has 5 tokens, but its mask has 4"):
            collect(batch, mask=mask[:, :4])

    def test_errors_use_the_names_of_items(self, items):
        items[1][0, 0] = np.nan
        with pytest.raises(ValueError, match=r"^query 1: token 0"):
            collect(items, names="query")
        with pytest.raises(ValueError, match=r"^the second: token 0"):
            collect(items, names=["the first", "the second", "the third"])


class TestSplitItems:
    def test_a_generator_is_not_consumed(self):
        pulled = []
        items = split_items(pulled.append(i) or np.ones((1, 2)) for i in range(3))
        assert pulled == []
        next(iter(items))
        assert pulled == [0]

    def test_an_empty_list_has_no_items(self):
        assert list(split_items([])) == []


class TestPad:
    def test_short_items_are_padded_with_zeros(self, items):
        expected, _ = padded(items)
        for form in (items, [torch.from_numpy(x) for x in items], [x.tolist() for x in items]):
            np.testing.assert_array_equal(pad(form).numpy(), expected)

    def test_a_padded_batch_is_returned_unchanged(self, items):
        batch, _ = padded(items)
        tensor = torch.from_numpy(batch)
        assert pad(tensor) is tensor
        np.testing.assert_array_equal(pad(batch).numpy(), batch)

    def test_gradients_pass(self, items):
        leaves = [torch.from_numpy(x).requires_grad_() for x in items]
        pad(leaves).sum().backward()
        assert all((leaf.grad == 1).all() for leaf in leaves)

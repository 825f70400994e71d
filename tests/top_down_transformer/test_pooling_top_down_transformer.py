"""Pooling: against plain loops, for any kernel, stride and padding; and its memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models.models.segment_pooling import Segments, align, pool, segment_of_units
from tests.references import top_down_transformer as reference


@st.composite
def poolings(draw):
    kernel = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    weights = [draw(st.none() | st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=n, max_size=n)) for n in lengths]
    if any(row is None for row in weights):
        weights = None
    return kernel, draw(st.integers(1, kernel)), lengths, weights, draw(st.integers(0, 9)), draw(st.booleans())


@settings(max_examples=50, deadline=None)
@given(poolings())
def test_any_pooling_equals_plain_loops(drawn):
    kernel, stride, lengths, weights, extra, on_the_left = drawn
    length = max(lengths) + extra
    states = torch.randn(len(lengths), length, 3, dtype=torch.double, requires_grad=True)
    exists = torch.zeros(len(lengths), length, dtype=torch.bool)
    importance = None if weights is None else torch.rand(len(lengths), length, dtype=torch.double)
    places = [slice(length - n, length) if on_the_left else slice(0, n) for n in lengths]
    for row, place in enumerate(places):
        exists[row, place] = True
        if importance is not None:
            importance[row, place] = torch.tensor(weights[row], dtype=torch.double)

    pooled = pool(align(Segments(states, exists, importance)), kernel, stride)
    for row, place in enumerate(places):
        want, shares = reference.pool(
            list(states[row, place]), weights[row] if weights else [1.0] * lengths[row], kernel, stride
        )
        found = pooled.exists[row]
        assert found.tolist() == [True] * len(want) + [False] * (len(found) - len(want))
        got = pooled.states[row][found]
        torch.testing.assert_close(got, torch.stack(want), rtol=0, atol=1e-12)
        direction = torch.randn_like(got)
        gradients = [
            torch.autograd.grad((rows * direction).sum(), states, retain_graph=True)[0]
            for rows in (got, torch.stack(want))
        ]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
        if weights:  # up to a factor
            share = torch.tensor(shares, dtype=torch.double)
            ratio = pooled.importance[row][found] * (max(weights[row]) or 1.0)
            torch.testing.assert_close(ratio, share, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(dtype):
    """A tagger may be very sure of a window; its tokens' weights still decide."""
    states, exists = torch.randn(1, 24, 8), torch.ones(1, 24, dtype=torch.bool)
    importance = torch.rand(1, 24) * 1e-9
    importance[0, :3] = 1.0
    expected = pool(Segments(states, exists, importance), 4, 3).states
    with torch.autocast("cpu", dtype):
        assert torch.equal(pool(Segments(states, exists, importance), 4, 3).states, expected)


def test_documents_that_begin_at_the_first_place_are_not_copied():
    units = Segments(torch.randn(2, 8, 3), torch.ones(2, 8, dtype=torch.bool), None)
    assert align(units) is units


@pytest.mark.parametrize("kernel", [24, 32, 240])
def test_overlap_costs_no_memory(kernel):
    """What pooling keeps for the backward pass does not grow with how often a token is in a window."""
    states = torch.randn(1, 4800, 16, requires_grad=True)
    units = Segments(states, torch.ones(1, 4800, dtype=torch.bool), torch.rand(1, 4800))
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        pool(units, kernel, 24)
    assert sum(kept.values()) < states.untyped_storage().nbytes()


def test_segments_may_be_on_another_device_than_units():
    segments = Segments(torch.zeros(1, 2, 4), torch.ones(1, 2, dtype=torch.bool), None)
    exists = torch.ones(1, 8, dtype=torch.bool)
    assert segment_of_units(exists.to("meta"), segments, 4).is_meta
    assert segment_of_units(exists, segments, 4).tolist() == [[0] * 4 + [1] * 4]

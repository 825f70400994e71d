"""A cache with room: what it holds is what one holds that copies all for each token."""

import copy

import pytest
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache, StaticCache, StaticLayer
from transformers.models.bart import BartConfig

from hier_models import HatBartConfig, HatBartForConditionalGeneration
from hier_models.models import growing_cache
from hier_models.models.growing_cache import ROOM, GrowingLayer, let_grow


@pytest.fixture
def kernel(compiled, monkeypatch):
    """That of this checkout."""
    monkeypatch.setattr(growing_cache, "kernels", lambda: compiled)


@pytest.fixture(params=["compiled", "torch"])
def either(request, monkeypatch):
    """With the kernel, and without."""
    library = request.getfixturevalue("compiled") if request.param == "compiled" else None
    monkeypatch.setattr(growing_cache, "kernels", lambda: library)


def layers():
    """A layer with room, and one without, to be treated alike."""
    return GrowingLayer(), DynamicLayer()


def states(tokens, rows=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, 2, tokens, size, generator=generator) for size in (4, 3)]


def same(pair):
    one, other = pair
    assert one.get_seq_length() == other.get_seq_length()
    assert torch.equal(one.keys, other.keys)
    assert torch.equal(one.values, other.values)


@torch.no_grad()
def test_tokens_beams_and_crops(either):
    pair, generator = layers(), torch.Generator().manual_seed(1)
    for step in range(3 * ROOM):
        for layer in pair:
            found = layer.update(*states(2 if step == 5 else 1, seed=step))
            assert found[0] is layer.keys
        order = torch.randint(0, 6, (6,), generator=generator)
        for layer in pair:
            layer.reorder_cache(order)
        if step == ROOM + 3:
            for layer in pair:
                layer.crop(-4)
        same(pair)


@pytest.mark.parametrize("threads", [1, 3])
@torch.no_grad()
def test_beams_that_have_most_in_common_are_moved_within_the_room(kernel, monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(growing_cache, "LEAST_OF_THREAD", 10)
    pair, begins, kept = layers(), [], []
    move = growing_cache._move
    monkeypatch.setattr(growing_cache, "_move", lambda *given: begins.append(given[2].tolist()) or move(*given))
    orders = [[0, 0, 0, 3, 3, 3], [1, 0, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [2, 2, 1, 3, 5, 3], [0, 1, 2, 5, 4, 3]]
    for step in range(2 * ROOM + 5):
        for layer in pair:
            layer.update(*states(1, seed=step))
        place = pair[0].keys.data_ptr()
        order = torch.tensor(orders[step % 5 if step else 0])
        for layer in pair:
            layer.reorder_cache(order)
        kept.append(pair[0].keys.data_ptr() == place)
        same(pair)
        if step == ROOM:  # what was forgotten is not remembered
            for layer in pair:
                layer.crop(-5)
                layer.reorder_cache(torch.tensor([3, 4, 5, 0, 1, 2]))
            same(pair)
    assert all(kept)
    assert begins[0] == begins[1] == [1, 0, 0, 1, 0, 0]  # keys and values
    assert begins[2:8:2] == [[1, 1, 2, 2, 2, 2], [3] * 6, [1, 1, 1, 4, 1, 1]]


@pytest.mark.parametrize("wrong", [-1, 6])
@torch.no_grad()
def test_rows_that_are_not_there_are_refused(either, wrong):
    layer = GrowingLayer()
    layer.update(*states(2))
    kept = layer.keys.clone()
    with pytest.raises((IndexError, RuntimeError), match="out of range"):
        layer.reorder_cache(torch.tensor([0, 1, 2, 3, 4, wrong]))
    assert torch.equal(layer.keys, kept)


@torch.no_grad()
def test_nothing_is_moved_that_a_branch_reads(kernel):
    begun = layers()
    for layer in begun:
        layer.update(*states(4))
        layer.reorder_cache(torch.tensor([0] * 6))
        layer.update(*states(1))
    branches = [copy.copy(layer) for layer in begun]
    for order in ([1, 0, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]):
        for layer in begun:
            layer.reorder_cache(torch.tensor(order))
            layer.update(*states(1, seed=1))
        same(begun)
        same(branches)
    for layer in branches:
        layer.reorder_cache(torch.tensor([2, 2, 2, 1, 1, 1]))
    same(branches)
    same(begun)


@torch.no_grad()
def test_other_numbers_of_rows_and_resets(either):
    pair = layers()
    for layer in pair:
        layer.update(*states(5))
        layer.batch_repeat_interleave(2)
        layer.update(*states(1, rows=12))
        layer.reorder_cache(torch.tensor([0, 0, 7]))
        layer.update(*states(1, rows=3))
        layer.batch_select_indices(torch.tensor([2, 0]))
        layer.update(*states(ROOM, rows=2))
    same(pair)
    for layer in pair:
        layer.reset()
        assert layer.get_seq_length() == 0
        layer.update(*states(2))
    same(pair)


@torch.no_grad()
def test_nothing_is_copied_where_there_is_room():
    layer = GrowingLayer()
    layer.update(*states(1))
    places = layer.keys.data_ptr(), layer.values.data_ptr()
    layer.update(*states(ROOM - 1))
    assert (layer.keys.data_ptr(), layer.values.data_ptr()) == places
    layer.update(*states(1))
    assert layer.keys.data_ptr() != places[0]


@torch.no_grad()
def test_a_copy_is_a_copy():
    one, _ = layers()
    one.update(*states(3))
    other = copy.deepcopy(one)
    one.update(*states(1, seed=1))
    other.update(*states(1, seed=2))
    assert torch.equal(one.keys[:, :, :3], other.keys[:, :, :3])
    assert not torch.equal(one.keys, other.keys)


@torch.no_grad()
def test_branches_do_not_write_over_each_other(either):
    begun = layers()
    for layer in begun:
        layer.update(*states(3))
    branches = [copy.copy(layer) for layer in begun]
    for layer in begun:
        layer.update(*states(1, seed=1))
    for layer in branches:
        layer.update(*states(1, seed=2))
    same(begun)
    same(branches)
    held = [layer.keys for layer in begun]
    for layer in begun:
        layer.crop(-2)
        layer.update(*states(1, seed=3))
        layer.reorder_cache(torch.tensor([5, 4, 3, 2, 1, 0]))
        layer.update(*states(1, seed=4))
    same(begun)
    same(branches)
    assert torch.equal(*held)


@torch.no_grad()
def test_other_types_and_other_numbers_of_rows_are_as_before():
    pair = layers()
    for layer in pair:
        layer.update(*states(2))
        layer.update(*(of.double() for of in states(1)))
        assert layer.keys.dtype == torch.float64
        layer.update(*(of.double() for of in states(1)))
        layer.update(*states(1))
    same(pair)
    for layer in pair:
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            layer.update(*states(1, rows=1))


def test_with_gradients_nothing_is_written_over(either):
    pair = layers()
    with torch.inference_mode():
        for layer in pair:
            layer.update(*states(3))
            layer.reorder_cache(torch.tensor([1, 0, 3, 2, 5, 4]))
    with torch.no_grad():  # what was made in inference mode may not be written to
        for layer in pair:
            layer.update(*(of.clone() for of in states(1)))
            layer.reorder_cache(torch.tensor([1, 0, 3, 2, 5, 4]))
    same(pair)
    kept = [layer.keys.clone() for layer in pair]
    earlier = [layer.keys for layer in pair]
    for layer in pair:
        keys, values = (of.requires_grad_() for of in states(1, seed=3))
        (layer.update(keys, values)[0].square().sum()).backward()
        assert keys.grad is not None
    same(pair)
    assert all(torch.equal(now, before) for now, before in zip(earlier, kept, strict=True))


@torch.no_grad()
def test_which_caches_are_let_grow():
    config = BartConfig(decoder_layers=1)
    begun, others = (
        DynamicCache(config=config),
        (DynamicCache(offloading=True), StaticCache(config, max_cache_len=4), None),
    )
    begun.update(*states(2), 0)
    for cache in (begun, *others):
        let_grow(cache)
    assert type(begun.layers[0]) is DynamicLayer
    assert type(others[1].layers[0]) is StaticLayer
    let_grow(empty := DynamicCache(config=config))
    assert type(empty.layers[0]) is GrowingLayer


@pytest.mark.parametrize("beams", [1, 3])
def test_models_write_the_same(beams, monkeypatch):
    config = HatBartConfig(
        vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, hierarchical_layers=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model = HatBartForConditionalGeneration(config).eval()
    ids = torch.tensor([[0, 5, 6, 0, 7, 8, 2], [0, 9, 10, 11, 12, 13, 2]])
    asked = dict.fromkeys(("min_new_tokens", "max_new_tokens"), 2 * ROOM)
    asked |= {"num_beams": beams, "return_dict_in_generate": True}
    found = model.generate(ids, **asked)
    assert isinstance(found.cache, EncoderDecoderCache)
    assert {type(layer) for layer in found.cache.self_attention_cache.layers} == {GrowingLayer}
    monkeypatch.setattr("hier_models.models.seq2seq_head.let_grow", lambda cache: None)
    assert torch.equal(model.generate(ids, **asked).sequences, found.sequences)


@torch.no_grad()
def test_layers_of_a_cache_find_once_what_moves(kernel, monkeypatch):
    cache, plain = DynamicCache(config=BartConfig(decoder_layers=3)), [DynamicLayer() for _ in range(3)]
    let_grow(cache)
    beams, generator = torch.arange(6), torch.Generator().manual_seed(2)
    found, select = [], torch.Tensor.index_select
    monkeypatch.setattr(
        torch.Tensor, "index_select", lambda *given: found.append(given[0].dtype) or select(*given)
    )  # of origins, once a step; of keys where they are copied
    for step in range(5):
        for number, layers_of_both in enumerate(zip(cache.layers, plain, strict=True)):
            for layer in layers_of_both:
                layer.update(*states(1, seed=10 * step + number))
        beams.copy_(torch.randint(0, 6, (6,), generator=generator))  # in place: what was found is of other beams
        del found[:]
        cache.reorder_cache(beams)
        assert found.count(torch.int64) == 1
        for layer in plain:
            layer.reorder_cache(beams)
        for pair in zip(cache.layers, plain, strict=True):
            same(pair)

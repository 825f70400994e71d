"""The state of the GRU decoder between steps, apart from generation."""

import copy

import pytest
import torch

from hier_models import HamConfig, HamForConditionalGeneration


SOURCE = torch.tensor([[7, 8, 9], [5, 2, 6]])
TARGET = torch.tensor([[2, 7, 8, 4], [2, 9, 11, 3]])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return HamForConditionalGeneration(HamConfig(vocab_size=30, d_model=8, attention_depth=3)).eval()


@pytest.fixture
@torch.no_grad()
def cache(model):
    return model(SOURCE, decoder_input_ids=TARGET[:, :3], use_cache=True).cache


def logits(model, source, target, cache=None):
    return model(source, decoder_input_ids=target, cache=cache, use_cache=cache is not None).logits[:, -1]


def test_sequences_are_repeated_and_selected(model, cache):
    """What attention needs of the source goes along."""
    expected = logits(model, SOURCE, TARGET)
    cache.batch_repeat_interleave(2)
    assert cache.batch_size == 4
    got = logits(model, SOURCE.repeat_interleave(2, dim=0), TARGET[:, 3:].repeat_interleave(2, dim=0), cache)
    torch.testing.assert_close(got, expected.repeat_interleave(2, dim=0))
    cache = model(SOURCE, decoder_input_ids=TARGET[:, :3], use_cache=True).cache
    cache.batch_select_indices(torch.tensor([1]))
    torch.testing.assert_close(logits(model, SOURCE[1:], TARGET[1:, 3:], cache), expected[1:])


def test_tokens_are_taken_back(model, cache):
    with pytest.raises(ValueError, match="`tokens_to_remove` must be 0 or negative, got 1"):
        cache.crop(1)
    cache.crop(0)
    cache.crop(-2)
    assert cache.get_seq_length() == 1
    torch.testing.assert_close(logits(model, SOURCE, TARGET[:, 1:], cache), logits(model, SOURCE, TARGET))


def test_states_before_a_reordering_are_gone(model, cache):
    cache.reorder_cache(torch.tensor([0, 1]))
    assert cache.get_seq_length() == 3
    with pytest.raises(ValueError, match="at most the 0 tokens whose states are kept, got -1"):
        cache.crop(-1)
    torch.testing.assert_close(logits(model, SOURCE, TARGET[:, 3:], cache), logits(model, SOURCE, TARGET))


def test_copies_leave_the_source_out(model, cache):
    other = copy.deepcopy(cache)
    assert cache.memory is not None
    assert other.memory is None
    torch.testing.assert_close(logits(model, SOURCE, TARGET[:, 3:], other), logits(model, SOURCE, TARGET))
    assert cache.get_seq_length() == 3


def test_a_cache_forgets(model, cache):
    cache.reset()
    assert (cache.get_seq_length(), cache.batch_size, cache.is_initialized, cache.memory) == (0, -1, False, None)
    torch.testing.assert_close(logits(model, SOURCE[:1], TARGET[:1], cache), logits(model, SOURCE[:1], TARGET[:1]))


def test_beams_are_reordered(model):
    source, swapped = SOURCE[:1].expand(2, -1), torch.tensor([1, 0])
    cache = model(source, decoder_input_ids=TARGET[:, :3], use_cache=True).cache
    cache.reorder_cache(swapped)
    target = torch.cat([TARGET[swapped, :3], TARGET[:, 3:]], dim=1)
    torch.testing.assert_close(logits(model, source, TARGET[:, 3:], cache), logits(model, source, target))

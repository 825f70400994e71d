"""Operators of torch that are not public: there, missing, changed, and what models do without them."""

import pytest
import torch

from hier_models import HighlightTransformerConfig, HighlightTransformerModel
from hier_models.models import flash_highlighting, highlight_attention, torch_kernels


TRIALS = {"flash_attention": "flash_attention_works", "int8_product": "int8_product_works"}


@pytest.fixture(params=TRIALS)
def operator(request):
    """Name of an operator, whose trial is forgotten before and after."""
    trial = getattr(torch_kernels, TRIALS[request.param])
    trial.cache_clear()
    yield request.param
    trial.cache_clear()


def test_this_torch_has_them(operator):
    assert getattr(torch_kernels, TRIALS[operator])()


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError, ValueError, NotImplementedError])
def test_one_that_is_missing_or_takes_other_arguments_is_not_used(operator, error, monkeypatch):
    def fail(*arguments, **settings):
        raise error("this torch is another one")

    monkeypatch.setattr(torch_kernels, operator, fail)
    assert not getattr(torch_kernels, TRIALS[operator])()


def test_one_that_gives_something_else_is_not_used(operator, monkeypatch):
    kernel = getattr(torch_kernels, operator)

    def change(*arguments, **settings):
        found = kernel(*arguments, **settings)
        return (found[0], found[1] * 0.7) if isinstance(found, tuple) else found * 1.1  # another base of logarithms

    monkeypatch.setattr(torch_kernels, operator, change)
    assert not getattr(torch_kernels, TRIALS[operator])()


def test_a_backward_that_changed_is_not_used(monkeypatch):
    monkeypatch.setattr(
        torch_kernels, "flash_attention_backward", lambda grad, *others, **settings: (grad, grad, grad)
    )
    torch_kernels.flash_attention_works.cache_clear()
    try:
        assert not torch_kernels.flash_attention_works()
    finally:
        torch_kernels.flash_attention_works.cache_clear()


def test_each_is_tried_once(operator, monkeypatch):
    trial = getattr(torch_kernels, TRIALS[operator])
    assert trial()
    monkeypatch.setattr(torch_kernels, operator, None)
    assert trial()


def test_trial_in_training_in_mixed_precision(operator):
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert getattr(torch_kernels, TRIALS[operator])()


@pytest.mark.parametrize("how", ["weighted", "additive", "only"])
def test_highlighting_is_the_same_without_the_flash_kernel(how, monkeypatch):
    torch.manual_seed(0)
    shape = {"encoder_layers": 1, "encoder_attention_heads": 3, "highlight_heads": 2, "encoder_ffn_dim": 20}
    config = HighlightTransformerConfig(
        **shape, vocab_size=60, d_model=12, decoder_layers=1, decoder_attention_heads=2, highlighting=how
    )
    encoder = HighlightTransformerModel(config).encoder.eval()
    document = {
        "input_ids": torch.arange(5, 25)[None],
        "phrase_positions": torch.tensor([[[1, 4], [2, 6], [17, 20]]]),
        "phrase_values": torch.tensor([[0.5, 2.0, 1.0]]),
    }
    expected = encoder(**document).last_hidden_state

    def missing(*arguments, **settings):
        raise AttributeError("no such operator")

    monkeypatch.setattr(flash_highlighting, "flash_attention", missing)
    with pytest.raises(AttributeError):
        encoder(**document)
    monkeypatch.setattr(highlight_attention, "flash_attention_works", lambda: False)
    torch.testing.assert_close(encoder(**document).last_hidden_state, expected)

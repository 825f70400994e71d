"""The operator of torch that is not public: there, missing, changed, and what models do without it."""

import pytest
import torch

from hier_models import HighlightTransformerConfig, HighlightTransformerModel
from hier_models.models import flash_highlighting, highlight_attention, torch_kernels


@pytest.fixture
def works():
    """The trial, which is forgotten before and after."""
    torch_kernels.flash_attention_works.cache_clear()
    yield torch_kernels.flash_attention_works
    torch_kernels.flash_attention_works.cache_clear()


def test_this_torch_has_it(works):
    assert works()


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError, ValueError, NotImplementedError])
def test_one_that_is_missing_or_takes_other_arguments_is_not_used(works, error, monkeypatch):
    def fail(*arguments, **settings):
        raise error("this torch is another one")

    monkeypatch.setattr(torch_kernels, "flash_attention", fail)
    assert not works()


def test_one_that_gives_something_else_is_not_used(works, monkeypatch):
    kernel = torch_kernels.flash_attention

    def change(*arguments, **settings):
        attended, normalizer = kernel(*arguments, **settings)
        return attended, normalizer * 0.7  # another base of logarithms

    monkeypatch.setattr(torch_kernels, "flash_attention", change)
    assert not works()


def test_a_backward_that_changed_is_not_used(works, monkeypatch):
    monkeypatch.setattr(
        torch_kernels, "flash_attention_backward", lambda grad, *others, **settings: (grad, grad, grad)
    )
    assert not works()


def test_it_is_tried_once(works, monkeypatch):
    assert works()
    monkeypatch.setattr(torch_kernels, "flash_attention", None)
    assert works()


def test_trial_in_training_in_mixed_precision(works):
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert works()


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

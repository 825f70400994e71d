"""The operator of torch that is not public: there, missing, changed, and what models do without it."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hier_models import HighlightTransformerConfig, HighlightTransformerModel
from hier_models.models import flash_highlighting, highlight_attention, torch_kernels
from tests.cases import local_attention
from tests.references.windowed_flash import windowed_flash


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


def test_trial_in_gradient_checkpointing(works):
    """What it keeps for its own gradients is none of the checkpoint's, whose second time has no trial."""
    states = torch.randn(1, 2, 10, 8, requires_grad=True)
    checkpoint(lambda inputs: local_attention(inputs, inputs, inputs, 4), states, use_reentrant=False).sum().backward()
    assert works.cache_info().misses == 1


@pytest.mark.parametrize("around", [torch.inference_mode, lambda: torch.device("meta"), torch.no_grad])
def test_trial_is_a_matter_of_torch_and_not_of_the_first_call(works, around):
    with around():
        assert works()


def test_trial_of_windows(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(torch_kernels, "windowed_flash", windowed_flash)
    states = torch.randn(10, requires_grad=True)

    def attend(inputs):
        assert torch_kernels.tries_well(torch_kernels.windowed_trial, cpu, torch.bfloat16)
        return inputs.sin()

    checkpoint(attend, states, use_reentrant=False).sum().backward()
    assert torch.equal(states.grad, states.cos())


@pytest.mark.parametrize("change", [{"half": 1}, {"scale": 0.7}, {"starts": torch.tensor([0, 10])}])
def test_windows_that_mean_something_else_are_not_used(change, monkeypatch):
    def other(*states, **settings):
        return windowed_flash(*states, **(settings | change))

    monkeypatch.setattr(torch_kernels, "windowed_flash", other)
    assert not torch_kernels.tries_well(torch_kernels.windowed_trial, torch.device("cpu"), torch.float16)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_trial_of_windows_while_compiling(monkeypatch):
    monkeypatch.setattr(torch_kernels, "windowed_flash", windowed_flash)
    torch_kernels._tried_windowed_flash.cache_clear()

    def attend(inputs):
        works = torch_kernels._windowed_flash_works_on(torch.device("cpu"), torch.bfloat16)
        return inputs.sin() if works else inputs

    states = torch.randn(10)
    assert torch.equal(torch.compile(attend, backend="eager", fullgraph=True)(states), states.sin())
    torch_kernels._tried_windowed_flash.cache_clear()


def test_windows_are_for_gpus_in_half_precision():
    for dtype in (torch.bfloat16, torch.float32):
        assert not torch_kernels.windowed_flash_works(torch.empty(1, 1, 4, 8, dtype=dtype))


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

"""The loss of tokens: cross entropy and its gradient, without the logits in float32 beside themselves."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BartConfig

from hier_models.models import losses
from hier_models.models.losses import classification_loss, token_loss


def make(dtype: torch.dtype, tokens: int = 5, classes: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, tokens, classes, generator=generator, dtype=torch.float64) * 8
    labels = torch.randint(0, classes, (2, tokens), generator=generator)
    labels[0, 1] = labels[1, -1] = -100
    return logits.to(dtype).requires_grad_(), labels


def in_chunks_of(tokens: int, monkeypatch: pytest.MonkeyPatch, classes: int = 11) -> None:
    monkeypatch.setattr(losses, "NUMBERS_AT_ONCE", tokens * classes)


@pytest.mark.parametrize("how", ["at once", "in chunks", "for the compiler"])
@pytest.mark.parametrize("num_items", [None, 3, torch.tensor(7)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_is_cross_entropy_forwards_and_backwards(dtype, num_items, how, monkeypatch):
    if how == "in chunks":
        in_chunks_of(3, monkeypatch)
    if how == "for the compiler":
        monkeypatch.setattr(losses, "is_compiling", lambda: True)
    logits, labels = make(dtype)
    exact = logits.detach().double().requires_grad_()
    wanted = nn.functional.cross_entropy(
        exact.flatten(0, 1), labels.flatten(), reduction="mean" if num_items is None else "sum"
    ) / (1 if num_items is None else num_items)
    loss = token_loss(logits, labels, num_items)
    (3 * loss).backward()
    (3 * wanted).backward()
    bound = {torch.float64: 1e-14, torch.float32: 1e-6}.get(dtype, 2e-2)
    torch.testing.assert_close(loss.double(), wanted, rtol=bound, atol=bound)
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=bound, atol=bound)
    assert logits.grad.dtype == dtype
    assert not logits.grad[0, 1].any()


def test_the_number_of_items_may_be_on_another_device():
    logits, labels = make(torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=True):  # as on two GPUs, which nothing is computed on
        loss = token_loss(logits.detach().to("cuda:1"), labels.to("cuda:1"), torch.tensor(7, device="cuda:0"))
        kinds = torch.tensor([1, 0], device="cuda:1")
        config = BartConfig(problem_type="single_label_classification")
        other = classification_loss(
            config, torch.zeros(2, 3, device="cuda:1"), kinds, torch.tensor(2, device="cuda:0")
        )
    assert loss.device == other.device == torch.device("cuda:1")


def test_labels_may_be_of_32_bits():
    logits, labels = make(torch.float32)
    assert torch.equal(token_loss(logits, labels.int()), token_loss(logits, labels))


def test_without_labels_it_is_what_cross_entropy_is():
    logits, labels = make(torch.float32)
    assert token_loss(logits, torch.full_like(labels, -100), None).isnan()
    assert token_loss(logits, torch.full_like(labels, -100), 4) == 0


@pytest.mark.parametrize("tokens", [100, 3])
@pytest.mark.parametrize("label", [11, -1])
def test_labels_that_are_none(label: int, tokens: int, monkeypatch):
    in_chunks_of(tokens, monkeypatch)
    logits, labels = make(torch.float32)
    labels[0, 0] = label
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        token_loss(logits, labels, None)


@pytest.mark.parametrize("tokens", [1000, 3])
def test_half_precision_is_summed_in_float32(tokens: int, monkeypatch):
    in_chunks_of(tokens, monkeypatch)
    logits, labels = make(torch.bfloat16, tokens=400)
    assert token_loss(logits, labels, None).dtype == torch.float32
    wanted = nn.functional.cross_entropy(logits.detach().double().flatten(0, 1), labels.flatten())
    torch.testing.assert_close(token_loss(logits, labels, None).double(), wanted, rtol=1e-6, atol=1e-6)


class LargestFloat32(TorchDispatchMode):
    """The numbers of the largest tensor in float32 that anything makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.dtype == torch.float32:
            self.numbers = max(self.numbers, made.numel())
        return made


def test_nothing_in_float32_is_as_large_as_the_logits(monkeypatch):
    in_chunks_of(4, monkeypatch)
    logits, labels = make(torch.bfloat16, tokens=400)
    with LargestFloat32() as largest:
        token_loss(logits, labels, None).backward()
    assert 400 < largest.numbers <= 2 * 400  # the labels' log probabilities

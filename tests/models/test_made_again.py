"""A function and a linear layer of which the backward pass finds the function's input only."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from hier_models.models import attention_products
from hier_models.models.attention_products import made_again


@pytest.fixture
def linear():
    torch.manual_seed(0)
    return nn.Linear(12, 5).double()


@pytest.fixture
def inputs():
    return torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)


def gradients(output, *leaves, **settings):
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad((output * weights).sum(), leaves, **settings)


def plainly(function, inputs, linear, draws=False):
    return linear(function(inputs))


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_autocast", [True, False])
def test_values_and_gradients_are_those_of_what_keeps_all(linear, inputs, has_bias, dtype, is_autocast):
    if not has_bias:
        linear = nn.Linear(12, 5, bias=False).double()
    leaf, linear = inputs.detach().to(dtype).requires_grad_(), linear.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_autocast):
        want, got = (make(functional.gelu, leaf, linear, draws=False) for make in (plainly, made_again))
    assert torch.equal(got, want)
    assert got.dtype == want.dtype
    leaves = (leaf, *linear.parameters())
    for one, other, at in zip(gradients(got, *leaves), gradients(want, *leaves), leaves, strict=True):
        assert torch.equal(one, other)
        assert one.dtype == at.dtype


def kept(make, *arguments):
    found = []
    with torch.autograd.graph.saved_tensors_hooks(lambda each: found.append(each) or each, lambda each: each):
        make(*arguments)
    return [tuple(each.shape) for each in found]


def test_only_the_input_and_the_weight_are_kept(linear, inputs):
    assert kept(made_again, functional.gelu, inputs, linear, False) == [(2, 7, 12), (5, 12)]
    assert len(kept(plainly, functional.gelu, inputs, linear)) > 2


def test_gradients_of_gradients(linear, inputs):
    weight = linear.weight
    both = []
    for make in (plainly, made_again):
        first = gradients(make(torch.tanh, inputs, linear, draws=False), inputs, weight, create_graph=True)
        both.append(torch.autograd.grad(sum(one.square().sum() for one in first), (inputs, weight)))
    torch.testing.assert_close(both[1], both[0])


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_frozen_layer_gets_no_gradient(linear, inputs, frozen):
    getattr(linear, frozen).requires_grad_(False)
    made_again(functional.gelu, inputs, linear, draws=False).sum().backward()
    assert getattr(linear, frozen).grad is None
    assert inputs.grad is not None
    assert linear.weight.grad is not None or frozen == "weight"


def test_another_layer_is_called(linear, inputs, monkeypatch):
    """An adapter, a layer with a hook: what they do is done, and kept no more than by a plain layer."""

    class Adapter(nn.Linear):
        def forward(self, states):
            return super().forward(states) * 2

    adapter = Adapter(12, 5).double()
    adapter.load_state_dict(linear.state_dict())
    expected = gradients(made_again(functional.gelu, inputs, linear, False) * 2, inputs)
    hooked = nn.Linear(12, 5).double()
    hooked.load_state_dict(linear.state_dict())
    hooked.register_forward_hook(lambda module, arguments, output: output * 2)
    monkeypatch.setattr(attention_products, "_ThenLinear", None)
    for layer in (adapter, hooked):
        output = made_again(functional.gelu, inputs, layer, False)
        torch.testing.assert_close(gradients(output, inputs), expected)
        assert (2, 7, 5) not in kept(made_again, functional.gelu, inputs, layer, False)


def test_what_is_drawn_is_drawn_again(linear, inputs):
    def drop(states):
        return functional.dropout(states, p=0.5)

    torch.manual_seed(1)
    want = gradients(plainly(drop, inputs, linear), inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(gradients(made_again(drop, inputs, linear, draws=True), inputs), want)

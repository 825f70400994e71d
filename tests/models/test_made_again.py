"""A function and a linear layer of which the backward pass finds the function's input only."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from hier_models import HatBartConfig, HatBartForConditionalGeneration
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


def plainly(function, inputs, linear, is_pure=True):
    return linear(function(inputs))


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_autocast", [True, False])
def test_values_and_gradients_are_those_of_what_keeps_all(linear, inputs, has_bias, dtype, is_autocast):
    if not has_bias:
        linear = nn.Linear(12, 5, bias=False).double()
    leaf, linear = inputs.detach().to(dtype).requires_grad_(), linear.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_autocast):
        want, got = (make(functional.gelu, leaf, linear, is_pure=True) for make in (plainly, made_again))
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
    assert kept(made_again, functional.gelu, inputs, linear, True) == [(2, 7, 12), (5, 12)]
    assert len(kept(plainly, functional.gelu, inputs, linear)) > 2


def test_gradients_of_gradients(linear, inputs):
    weight = linear.weight
    both = []
    for make in (plainly, made_again):
        first = gradients(make(torch.tanh, inputs, linear, is_pure=True), inputs, weight, create_graph=True)
        both.append(torch.autograd.grad(sum(one.square().sum() for one in first), (inputs, weight)))
    torch.testing.assert_close(both[1], both[0])


def test_many_gradients_at_once(linear, inputs):
    both = []
    for make in (plainly, made_again):
        output = make(functional.gelu, inputs, linear, is_pure=True)
        several = torch.randn(3, *output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        both.append(torch.autograd.grad(output, (inputs, linear.weight), several, is_grads_batched=True))
    torch.testing.assert_close(both[1], both[0])


def test_autocast_is_as_it_was_when_it_is_made_again(linear, inputs):
    seen = []

    def look(states):
        seen.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        return states.tanh()

    with torch.autocast("cpu", dtype=torch.float16):
        output = made_again(look, inputs.detach().float().requires_grad_(), linear.float(), is_pure=True)
    output.float().sum().backward()
    assert seen == [(True, torch.float16)] * 2


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_frozen_layer_gets_no_gradient(linear, inputs, frozen):
    getattr(linear, frozen).requires_grad_(False)
    made_again(functional.gelu, inputs, linear, is_pure=True).sum().backward()
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
    expected = gradients(made_again(functional.gelu, inputs, linear, True) * 2, inputs)
    hooked = nn.Linear(12, 5).double()
    hooked.load_state_dict(linear.state_dict())
    hooked.register_forward_hook(lambda module, arguments, output: output * 2)
    replaced = nn.Linear(12, 5).double()  # as accelerate does, which offloads weights
    replaced.load_state_dict(linear.state_dict())
    replaced.forward = lambda states: nn.Linear.forward(replaced, states) * 2
    monkeypatch.setattr(attention_products, "_ThenLinear", None)
    for layer in (adapter, hooked, replaced):
        output = made_again(functional.gelu, inputs, layer, True)
        torch.testing.assert_close(gradients(output, inputs), expected)
        assert (2, 7, 5) not in kept(made_again, functional.gelu, inputs, layer, True)


def test_what_is_drawn_is_drawn_again(linear, inputs):
    def drop(states):
        return functional.dropout(states, p=0.5)

    torch.manual_seed(1)
    want = gradients(plainly(drop, inputs, linear), inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(gradients(made_again(drop, inputs, linear, is_pure=False), inputs), want)


def test_an_adapter_draws_again_what_it_drew(linear, inputs):
    layer = nn.Sequential(nn.Dropout(0.5), linear)  # as LoRA's on what it reads
    torch.manual_seed(1)
    want = gradients(plainly(functional.gelu, inputs, layer), inputs, linear.weight)
    torch.manual_seed(1)
    got = gradients(made_again(functional.gelu, inputs, layer, is_pure=True), inputs, linear.weight)
    torch.testing.assert_close(got, want)


def test_an_activation_with_weights_learns_them():
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = HatBartConfig(**sizes, **heads, vocab_size=20, d_model=8, activation_function="prelu")
    model = HatBartForConditionalGeneration(config)
    model(input_ids=torch.tensor([[0, 5, 6, 2]]), labels=torch.tensor([[7, 8, 2]])).loss.backward()
    slopes = [weight.grad for name, weight in model.named_parameters() if "activation_fn" in name]
    assert slopes
    assert all(slope.abs() > 0 for slope in slopes)

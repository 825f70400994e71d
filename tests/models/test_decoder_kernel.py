"""The compiled kernels of a step of decoding: they find what the modules find whose place they take."""

import copy
import functools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from hier_models.models import attention_kernel, copy_mechanism, decoder_kernel
from hier_models.models.attention_products import cpu_has
from hier_models.models.bart_body import BodyAttention
from hier_models.models.copy_mechanism import mix_log_probabilities
from hier_models.models.decoder_kernel import MOST_OF_HEAD, MOST_ROWS, add_and_norm, multiply
from hier_models.models.growing_cache import ROOM
from hier_models.models.kernels import AVX2, INSTRUCTIONS
from hier_models.pipelines import int8_hier
from hier_models.pipelines.int8_hier import to_int8
from tests.cases import CASES, collate, make_model


# What is put aside, so that the kernels are those of the other instructions.
WITH_AVX512 = pytest.param(None, marks=pytest.mark.skipif(not all(map(cpu_has, INSTRUCTIONS)), reason="no AVX-512"))
WITH_AVX2 = pytest.param("avx512_f", marks=pytest.mark.skipif(not all(map(cpu_has, AVX2)), reason="no AVX2"))
FAMILIES = {
    "hat_bart_options": {},
    "highlight_transformer": {},  # norms before
    "highlight_transformer_bart": {},
    "top_down_transformer": {},
}


@pytest.fixture(params=[WITH_AVX512, WITH_AVX2], ids=["avx512", "avx2"])
def calls(request, compiled, monkeypatch):
    """The names of the kernels that were asked, of this checkout; torch has one thread."""
    found = []
    functions = decoder_kernel._functions.__wrapped__

    @functools.cache  # what is made for one library is not looked at again for another
    def counted(library, variant):
        made = functions(library, variant)
        for name, kernel in vars(made).items():
            if name != "gelu_float32":  # which is called from inside
                setattr(made, name, lambda *given, name=name, kernel=kernel: found.append(name) or kernel(*given))
        return made

    monkeypatch.setattr(decoder_kernel, "_functions", counted)
    monkeypatch.setattr(decoder_kernel, "kernels", lambda: compiled)
    monkeypatch.setattr(attention_kernel, "kernels", lambda: compiled)
    monkeypatch.setattr(attention_kernel, "cpu_has", lambda name: name != request.param and cpu_has(name))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    return found


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def rows_of(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 1), (48, 2), (16, 33), (384, 130), (1024, 7)])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 6, 7, MOST_ROWS])
def test_few_rows_are_multiplied_as_by_torch(calls, rows, inputs, outputs, bias):
    layer, states = nn.Linear(inputs, outputs, bias=bias), rows_of(rows, inputs)
    found = multiply(layer, states)
    assert calls == ["linear_float32"]
    assert (found - layer.double()(states.double())).abs().max() < 1e-6 * inputs**0.5
    layer.float()
    assert torch.equal(found, torch.cat([multiply(layer, row[None]) for row in states]))


@pytest.mark.parametrize("sharpness", [1.0, 30.0, 300.0])
@pytest.mark.parametrize(("rows", "size", "tokens"), [(1, 10, 5), (4, 16, 1), (7, 1000, 300), (64, 2003, 40)])
def test_what_is_copied_is_mixed_as_by_torch(calls, rows, size, tokens, sharpness, monkeypatch):
    scores, gate = sharpness * rows_of(rows, 1, size), sharpness * rows_of(rows, 1, 1, seed=1)
    scores[0, 0, 0] = -torch.inf  # a token that is barred
    weights = (sharpness * rows_of(rows, 1, tokens, seed=2)).softmax(-1)
    weights[-1] = 0  # nothing to copy
    ids = torch.randint(0, min(size, 50), (rows, tokens), generator=torch.Generator().manual_seed(3))
    found = mix_log_probabilities(scores, gate, weights, ids)
    assert calls == ["mix_float32"]
    monkeypatch.setattr(decoder_kernel, "kernels", lambda: None)
    expected = mix_log_probabilities(*(of.double() for of in (scores, gate, weights)), ids)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-5)


def test_mixing_takes_more_threads_and_refuses_what_is_no_token(calls, monkeypatch):
    scores, gate, weights = rows_of(5, 1, 32), rows_of(5, 1, 1, seed=1), rows_of(5, 1, 4, seed=2).softmax(-1)
    ids = torch.arange(20).view(5, 4)
    expected = mix_log_probabilities(scores, gate, weights, ids)
    monkeypatch.setattr(decoder_kernel, "LEAST_OF_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert torch.equal(mix_log_probabilities(scores, gate, weights, ids), expected)
    turned = scores.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert torch.equal(mix_log_probabilities(turned, gate, weights, ids.t().contiguous().t()), expected)
    assert calls == ["mix_float32"] * 5
    for wrong in (-1, 32):
        with pytest.raises((IndexError, RuntimeError), match="index"):
            mix_log_probabilities(
                scores, gate, weights, ids.index_put((torch.tensor(0), torch.tensor(2)), torch.tensor(wrong))
            )


def test_what_is_no_number_is_mixed_to_none(calls):
    scores = rows_of(2, 1, 40)
    scores[0, 0, 17] = torch.nan
    found = mix_log_probabilities(scores, rows_of(2, 1, 1), rows_of(2, 1, 3).softmax(-1), torch.zeros(2, 3).long())
    assert calls == ["mix_float32"]
    assert found[0].isnan().all()
    assert not found[1].isnan().any()


def test_a_head_takes_more_rows(calls):
    for outputs, asked in ((8 * 16, 1), (8 * 16 - 1, 0)):
        layer, states = nn.Linear(16, outputs), rows_of(MOST_OF_HEAD, 16)
        torch.testing.assert_close(multiply(layer, states), layer(states))
        assert len(calls) == asked
        multiply(layer, rows_of(MOST_OF_HEAD + 1, 16))
        assert len(calls) == asked
        del calls[:]


@pytest.mark.parametrize("threads", [2, 3])
def test_a_large_layer_is_shared_out_among_threads(calls, monkeypatch, threads):
    layer, states = nn.Linear(1024, 2049), rows_of(4, 1, 1024)
    alone = multiply(layer, states)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert torch.equal(multiply(layer, states), alone)
    assert len(calls) == 1 + threads
    assert alone.shape == (4, 1, 2049)


def test_other_layers_and_states_are_left_to_torch(calls):
    layer, states = nn.Linear(64, 48), rows_of(3, 64)
    assert torch.equal(multiply(layer, rows_of(MOST_ROWS + 1, 64)), layer(rows_of(MOST_ROWS + 1, 64)))
    assert multiply(layer, rows_of(0, 64)).shape == (0, 48)
    assert torch.equal(multiply(copy.deepcopy(layer).double(), states.double()), layer.double()(states.double()))
    layer.float()
    with torch.autocast("cpu"):
        assert multiply(layer, states).dtype == torch.bfloat16
    with torch.enable_grad():
        assert multiply(layer, states).requires_grad
    narrow, adapted, strided = nn.Linear(24, 48), copy.deepcopy(layer), copy.deepcopy(layer)
    multiply(narrow, rows_of(3, 24))
    adapted.forward = lambda states: states + 1  # as accelerate does
    assert torch.equal(multiply(adapted, states), states + 1)
    strided.weight = nn.Parameter(torch.randn(64, 48).t())
    torch.testing.assert_close(multiply(strided, states), strided(states))
    hooked, seen = copy.deepcopy(layer), []
    hooked.register_forward_hook(lambda *_: seen.append(1))
    multiply(hooked, states)
    assert seen
    multiply(nn.Sequential(layer), states)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        multiply(layer, rows_of(3, 32))
    assert not calls
    assert multiply(layer, rows_of(64)).shape == (48,)
    assert torch.equal(multiply(layer, rows_of(64, 3).t()), multiply(layer, rows_of(64, 3).t().contiguous()))
    assert len(calls) == 3


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_who_watches_torchs_operations_sees_them(calls):
    layer, states = nn.Linear(64, 48).requires_grad_(False), rows_of(3, 64)
    found = torch.jit.trace(lambda states: multiply(layer, states), states, check_trace=False)(states)
    assert torch.equal(found, layer(states))
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert multiply(layer, torch.empty(3, 64)).shape == (3, 48)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    seen = []
    multiply(layer, states)
    handle.remove()
    assert seen == [layer]
    assert not calls


@pytest.mark.parametrize("width", [16, 48, 384])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_norms_are_those_of_torch(calls, monkeypatch, rows, width):
    norm, states, update = nn.LayerNorm(width, eps=1e-5), 3 + rows_of(rows, width), rows_of(rows, width, seed=1)
    norm.weight.copy_(rows_of(width, seed=2))
    norm.bias.copy_(rows_of(width, seed=3))
    exact = copy.deepcopy(norm).double()
    both, alone = add_and_norm(norm, states, update), add_and_norm(norm, states)
    assert calls == ["norm_float32"] * 2
    torch.testing.assert_close(both.double(), exact(states.double() + update.double()), rtol=0, atol=5e-6)
    torch.testing.assert_close(alone.double(), exact(states.double()), rtol=0, atol=5e-6)
    assert torch.equal(alone[-1:], add_and_norm(norm, states[-1:]))
    monkeypatch.setattr(decoder_kernel, "LEAST_OF_NORMS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(both, add_and_norm(norm, states, update))
    assert torch.equal(both.view(rows, 1, width), add_and_norm(norm, states[:, None], update[:, None]))
    large = 1e4 + states  # a mean that is large beside what differs from it
    torch.testing.assert_close(add_and_norm(norm, large).double(), exact(large.double()), rtol=0, atol=1e-2)


def test_other_norms_are_left_to_torch(calls):
    states, update = rows_of(3, 64), rows_of(3, 64, seed=1)
    for norm in (nn.LayerNorm(64, elementwise_affine=False), nn.LayerNorm(64, bias=False), nn.LayerNorm((3, 64))):
        assert torch.equal(add_and_norm(norm, states, update), norm(states + update))
    norm = nn.LayerNorm(64)
    assert torch.equal(add_and_norm(norm, states, update[:1]), norm(states + update[:1]))
    assert torch.equal(add_and_norm(norm.double(), states.double()), norm(states.double()))
    norm.bfloat16()
    narrow, other = states.bfloat16(), update.bfloat16()
    assert torch.equal(add_and_norm(norm, narrow, other), norm(narrow + other))
    assert add_and_norm(norm.float(), rows_of(0, 64)).shape == (0, 64)
    assert not calls


def with_gelu(name, head_dim=32, **kwargs):
    """A family, with heads that the kernels of a step take; in the tiny size of other tests they are smaller."""
    sizes = {"d_model": 128, "copy_head": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 128 // head_dim}
    return make_model(CASES[name], std=0.1, activation_function="gelu", use_copy=True, **sizes, **kwargs)


def scores_of(model, name, documents=2, steps=ROOM + 3, **kwargs):
    """Logits of all steps; the documents of a batch have other lengths."""
    case = CASES[name]
    batch = collate(case, [case.make_document(17 - 5 * number, number) for number in range(documents)])
    settings = {"output_logits": True, "return_dict_in_generate": True, "eos_token_id": None, "pad_token_id": 1}
    torch.manual_seed(0)
    return torch.stack(model.generate(**batch, **settings, max_new_tokens=steps, **kwargs).logits)


@pytest.fixture
def both_ways(calls, monkeypatch):
    """Generate with the kernel of whole layers and without, and compare; how often it was asked."""

    def run(model, name, **kwargs):
        del calls[:]
        with_it = scores_of(model, name, **kwargs)
        asked = calls.count("decoder_layer")
        with monkeypatch.context() as context:
            context.setattr(copy_mechanism, "decoder_step", lambda *_: None)
            without = scores_of(model, name, **kwargs)
        assert with_it.shape == without.shape
        torch.testing.assert_close(with_it, without, rtol=1e-5, atol=2e-4)
        return asked

    return run


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("head_dim", attention_kernel.HEAD_DIMS)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_finds_what_its_parts_find(both_ways, name, head_dim, beams):
    steps = ROOM + 3  # which the room of a cache does not hold
    assert both_ways(with_gelu(name, head_dim), name, num_beams=beams, steps=steps) == 2 * (steps - 1)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_in_int8(both_ways, monkeypatch, name):
    monkeypatch.setattr(int8_hier, "why_no_int8", lambda: None)
    model = with_gelu(name)
    assert both_ways(to_int8(model), name, num_beams=2, steps=9) == 2 * 8


def test_what_a_layer_writes_into_the_cache_is_what_its_parts_write(calls, monkeypatch):
    model, case = with_gelu("hat_bart_options"), CASES["hat_bart_options"]
    batch = collate(case, [case.make_document(17, 0), case.make_document(9, 1)])
    encoded = model.get_encoder()(**batch)
    caches = []
    for step in (decoder_kernel.decoder_step, lambda *_: None):
        monkeypatch.setattr(copy_mechanism, "decoder_step", step)
        cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
        outputs = []
        for ids in torch.randint(5, 50, (7, 2, 1), generator=torch.Generator().manual_seed(0)):
            prepared = model.prepare_inputs_for_generation(ids, cache=cache, encoder_outputs=encoded, use_cache=True)
            prepared |= {"decoder_input_ids": ids, "attention_mask": batch["attention_mask"]}
            outputs.append(model(**prepared, output_copying=True))
        caches.append((cache, outputs))
    assert calls.count("decoder_layer") == 2 * 6
    (one, found), (other, wanted) = caches
    for layer, same in zip(one.self_attention_cache.layers, other.self_attention_cache.layers, strict=True):
        assert layer.get_seq_length() == 7
        torch.testing.assert_close((layer.keys, layer.values), (same.keys, same.values), rtol=0, atol=1e-4)
    for output, same in zip(found, wanted, strict=True):
        torch.testing.assert_close(output.copy_attentions, same.copy_attentions, rtol=0, atol=1e-5)
        torch.testing.assert_close(output.copy_probability, same.copy_probability, rtol=0, atol=1e-5)


def test_branches_of_a_cache_do_not_write_into_each_other(calls):
    model, case = with_gelu("hat_bart_options"), CASES["hat_bart_options"]
    encoded = model.get_encoder()(**collate(case, [case.make_document(17, 0)]))
    cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))

    def step(cache, token):
        ids = torch.tensor([[token]])
        prepared = model.prepare_inputs_for_generation(ids, cache=cache, encoder_outputs=encoded, use_cache=True)
        return model(**prepared | {"decoder_input_ids": ids, "input_ids": None}).logits

    step(cache, 7)
    step(cache, 8)
    branch = copy.copy(cache)
    branch.self_attention_cache = copy.copy(cache.self_attention_cache)
    branch.self_attention_cache.layers = [copy.copy(layer) for layer in cache.self_attention_cache.layers]
    one, _ = step(cache, 9), step(branch, 10)
    kept = [layer.keys.clone() for layer in cache.self_attention_cache.layers]
    step(branch, 11)
    assert all(map(torch.equal, kept, (layer.keys for layer in cache.self_attention_cache.layers)))
    assert cache.get_seq_length() == 3
    assert branch.get_seq_length() == 4
    assert one.shape[1] == 1
    assert calls.count("decoder_layer") == 2 * 4


def change_activation(model):
    for layer in model.get_decoder().layers:
        layer.activation_fn = nn.ReLU()


def hook(of):
    def change(model):
        for layer in model.get_decoder().layers:
            layer.get_submodule(of).register_forward_hook(lambda *_: None)

    return change


def test_what_is_put_in_the_place_of_a_layers_parts_is_looked_at(both_ways):
    model = with_gelu("hat_bart_options")
    first, second = model.get_decoder().layers
    for change, asked in (
        (lambda: None, 2),
        (lambda: first.fc1.weight.mul_(2), 2),  # in place
        (lambda: setattr(first.fc1.weight, "data", first.fc1.weight * 0.5), 2),
        (lambda: setattr(first.self_attn.q_proj, "bias", None), 2),
        (lambda: setattr(first, "fc2", nn.Linear(32, 128)), 2),
        (lambda: setattr(second, "final_layer_norm", nn.LayerNorm(128, eps=0.5)), 2),
        (lambda: setattr(second, "fc2", nn.Sequential(second.fc2)), 1),
        (lambda: setattr(second, "fc2", second.fc2[0]), 2),
        (lambda: setattr(first.encoder_attn, "forward", lambda *given, **named: calls_of(first, *given, **named)), 1),
        (lambda: delattr(first.encoder_attn, "forward"), 2),
        (lambda: model.double(), 0),
        (lambda: model.float(), 2),
    ):
        change()
        assert both_ways(model, "hat_bart_options", steps=3, num_beams=2) == 2 * asked


def test_what_a_layer_is_made_of_is_looked_up_once(both_ways, monkeypatch):
    made = []
    plan = decoder_kernel._Plan

    def counted(*given):
        made.append(given)
        return plan(*given)

    monkeypatch.setattr(decoder_kernel, "_Plan", counted)
    model = with_gelu("hat_bart_options")
    assert both_ways(model, "hat_bart_options", steps=9) == 2 * 8
    assert both_ways(model, "hat_bart_options", steps=9, num_beams=3) == 2 * 8
    assert len(made) == 2


def calls_of(layer, *given, **named):
    return type(layer.encoder_attn).forward(layer.encoder_attn, *given, **named)


def test_threads_do_not_disturb_each_other(calls):
    model, case = with_gelu("hat_bart_options"), CASES["hat_bart_options"]
    batches = [collate(case, [case.make_document(17 - number, number)]) for number in range(4)]

    def write(batch):
        return model.generate(**batch, num_beams=2, max_new_tokens=30, min_new_tokens=30, pad_token_id=1)

    wanted = [write(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert all(map(torch.equal, pool.map(write, batches), wanted))
    assert calls.count("decoder_layer") == 2 * 29 * 4 * 6


class OtherAttention(BodyAttention):
    """One that a user made."""


def swap_attention(model):
    for layer in model.get_decoder().layers:
        layer.self_attn.__class__ = OtherAttention


def in_training(model):
    for layer in model.get_decoder().layers:
        layer.encoder_attn.train()


@pytest.mark.parametrize(
    "change",
    [
        change_activation,
        *map(hook, ("self_attn", "encoder_attn.q_proj", "hierarchical_attn.out_proj", "fc2", "final_layer_norm")),
        in_training,
        swap_attention,
        lambda model: model.set_attn_implementation("eager"),
        lambda model: model.double(),
    ],
)
def test_other_layers_are_left_to_their_parts(both_ways, change):
    model = with_gelu("hat_bart_options")
    change(model)
    assert both_ways(model, "hat_bart_options", steps=4) == 0


@pytest.mark.parametrize(
    ("kwargs", "asked"),
    [
        ({"num_beams": MOST_ROWS // 2}, 2 * 3),
        ({"num_beams": MOST_ROWS // 2 + 1}, 0),
        ({"output_attentions": True}, 0),
        ({"output_hidden_states": True}, 0),
        ({"cache_implementation": "static"}, 0),
        ({"use_cache": False}, 0),
    ],
)
def test_other_steps_are_left_to_its_parts(both_ways, kwargs, asked):
    assert both_ways(with_gelu("hat_bart_options"), "hat_bart_options", steps=4, **kwargs) == asked


def test_a_cache_that_does_not_grow_is_left_to_its_parts(calls):
    model, case = with_gelu("hat_bart_options"), CASES["hat_bart_options"]
    batch = collate(case, [case.make_document(17, 0)])
    for own in (StaticCache(model.config, max_cache_len=9), DynamicCache()):
        cache = EncoderDecoderCache(own, DynamicCache())
        for ids in ([[5]], [[6]]):
            model(**batch, decoder_input_ids=torch.tensor(ids), cache=cache)
    assert "decoder_layer" not in calls


def test_how_many_rows_one_thread_takes(both_ways, monkeypatch):
    model = with_gelu("hat_bart_options")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 100)
    assert both_ways(model, "hat_bart_options", num_beams=2, steps=4) == 2 * 3
    assert both_ways(model, "hat_bart_options", num_beams=3, steps=4) == 0
    monkeypatch.setattr(decoder_kernel, "MOST_OF_LAYER", 128 * 32 - 1)
    assert both_ways(model, "hat_bart_options", num_beams=2, steps=4) == 0
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert both_ways(model, "hat_bart_options", num_beams=2, steps=4) == 2 * 3


def test_no_memory_is_said(calls, monkeypatch):
    model, functions = with_gelu("hat_bart_options"), decoder_kernel._functions
    monkeypatch.setattr(
        decoder_kernel,
        "_functions",
        lambda *given: SimpleNamespace(**vars(functions(*given)) | {"decoder_layer": lambda *_: 1}),
    )
    with pytest.raises(MemoryError, match="no memory for a decoder's layer of 2 rows"):
        scores_of(model, "hat_bart_options", steps=4)


@pytest.mark.parametrize("library", [None, SimpleNamespace()])
def test_an_older_library_and_none_are_done_without(monkeypatch, library):
    model = with_gelu("hat_bart_options")
    wanted = scores_of(model, "hat_bart_options", steps=4)
    monkeypatch.setattr(decoder_kernel, "_functions", decoder_kernel._functions.__wrapped__)
    monkeypatch.setattr(decoder_kernel, "kernels", lambda: library)
    torch.testing.assert_close(scores_of(model, "hat_bart_options", steps=4), wanted, rtol=1e-5, atol=2e-4)

"""Linear layers in int8, `dtype="int8"`: what they give, what is left, what is said where it or another is no gain."""

import copy
import json
import logging
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import pipeline
from transformers.activations import GELUActivation

import hier_models
from hier_models.models.attention_products import cpu_has
from hier_models.models.kernels import functions_of
from hier_models.pipelines import document_pipeline_hier, int8_hier, int8_kernel
from hier_models.pipelines.int8_hier import ROWS_AT_ONCE, Int8Linear, to_int8, why_no_int8
from hier_models.pipelines.int8_kernel import VARIANTS
from tests.cases import CASES, collate, make_model
from tests.conftest import DOCUMENTS


TEXT = (
    "The old bridge over the river was closed on Friday, after engineers had found cracks in two of its pillars. "
    "Buses now take the road along the dam, which is nine miles longer. The council wants to repair the bridge by May."
)


SHAPES = [(1, 1), (16, 18), (63, 7), (64, 48), (65, 130), (130, 33), (1500, 21)]  # inputs and outputs


@pytest.fixture
def trial():
    """The trial, which is forgotten before and after."""
    why_no_int8.cache_clear()
    yield why_no_int8
    why_no_int8.cache_clear()


@pytest.fixture
def always(monkeypatch):
    """Int8 also where this machine is slower with it."""
    monkeypatch.setattr(int8_hier, "why_no_int8", lambda: None)


def test_layer_against_plain_loops():
    torch.manual_seed(0)
    linear = nn.Linear(19, 17).requires_grad_(False)
    states = torch.randn(2, 3, 19)
    states[0, 1] = 0
    got = Int8Linear(linear)(states)
    for place in [(0, 0), (0, 1), (1, 2)]:
        row = states[place].double()
        scale = row.abs().max() / 127
        numbers = [round(float(value / scale)) if scale else 0 for value in row]
        for output in range(17):
            weights = linear.weight[output].double()
            weight_scale = weights.abs().max() / 127
            total = sum(number * round(float(w / weight_scale)) for number, w in zip(numbers, weights, strict=True))
            want = total * scale * weight_scale + linear.bias[output]
            assert got[(*place, output)].item() == pytest.approx(want.item(), abs=1e-5)
    assert (got - linear(states)).norm() < 0.02 * linear(states).norm()


@pytest.mark.parametrize("bias", [True, False])
def test_a_row_gets_alone_what_it_gets_in_a_batch(bias):
    layer = Int8Linear(nn.Linear(64, 48, bias=bias))
    states = torch.randn(ROWS_AT_ONCE + 45, 64) * torch.tensor([1e-3, 1, 10, 1e3, 0, 1, 1]).repeat(43)[:, None]
    assert torch.equal(layer(states), torch.cat([layer(row[None]) for row in states]))


def variant_of(param):
    """Which of the kernels, which this CPU may not run."""
    return pytest.param(
        param, marks=pytest.mark.skipif(not all(map(cpu_has, VARIANTS[param])), reason="not on this CPU")
    )


@pytest.fixture(params=list(map(variant_of, VARIANTS)), ids=["avx512_vnni", "avx2"])
def kernel_calls(request, compiled, monkeypatch):
    """How often the compiled kernels were asked, of this checkout, as on a machine with AVX512-VNNI and no AMX."""
    found = []

    def counted(kernel):
        return lambda *arguments: found.append(arguments) or kernel(*arguments)

    library = functions_of(compiled, request.param, int8_kernel.SIGNATURES)
    for name in ("linear_int8", "linear_int8_rows"):
        setattr(library, name, counted(getattr(library, name)))
    take(monkeypatch, library)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    return found


def take(monkeypatch, library):
    """Let layers find these functions."""
    found = int8_kernel.Kernels(library, int8_kernel.FEW_ROWS, int8_kernel.MANY_ROWS)
    monkeypatch.setattr(int8_kernel, "find_kernels", lambda: found)


def with_operators(layer, rows, dtype=None):
    found = rows.new_empty(len(rows), layer.out_features, dtype=dtype or layer.weight_scale.dtype)
    with torch.no_grad():
        layer.multiply(rows, found)
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 9, 64, 256, 265])
def test_the_compiled_kernel_gives_every_bit(kernel_calls, rows, inputs, outputs, bias):
    torch.manual_seed(rows)
    layer = Int8Linear(nn.Linear(inputs, outputs, bias=bias))
    states = torch.randn(rows, inputs) * torch.tensor([1.0, 1e-3, 1e30, 1e-42, 0.0]).repeat(53)[:rows, None]
    wide = torch.zeros(rows, 2, inputs + 3)
    wide[:, 1, 2:-1] = states
    assert torch.equal(layer(states), with_operators(layer, states))
    assert torch.equal(layer(wide[:, 1, 2:-1]), layer(states))  # rows that lie elsewhere
    assert len(kernel_calls) == 3


@pytest.mark.parametrize("outputs", [7, 64, 130])
def test_gelu_is_the_same_for_few_rows_and_for_many(kernel_calls, outputs):
    """Also for those between, whose products are torch's, and up to rounding what torch makes of them."""
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(70, outputs))
    states = 9 * torch.randn(300, 70)
    states[7] = torch.nan
    want = nn.functional.gelu(layer(states))
    layer.activation = GELUActivation()
    got = layer(states)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6, equal_nan=True)
    parts = torch.cat([layer(rows) for rows in states.split([1, 64, 65, 170])])
    assert torch.equal(parts.nan_to_num(1.0), got.nan_to_num(1.0))


def test_gelu_of_numbers_far_from_zero(kernel_calls):
    library = int8_kernel.find_kernels().library
    numbers = torch.cat([torch.linspace(-30, 30, 1003), torch.tensor([torch.inf, torch.nan, 1e30, -1e30, -0.0])])
    want = nn.functional.gelu(numbers.double()).float()
    int8_kernel._run_gelu(library, found := numbers.clone()[None], threads=1)
    torch.testing.assert_close(found[0], want, rtol=1e-6, atol=2e-6, equal_nan=True)


def test_what_comes_after_a_layer_is_taken_into_it(always):
    """GELU alone; what another function makes of its products is left where it is."""
    for function in ("gelu", "relu"):
        model = make_model(CASES["hat_bart"], activation_function=function)
        kept = model.model.encoder.layers[0].activation_fn
        layer = to_int8(to_int8(model)).model.encoder.layers[0]
        assert (layer.fc1.activation is kept) == (function == "gelu")
        assert (layer.activation_fn is kept) == (function == "relu")
    other = nn.Module()
    other.fc1, other.act = nn.Linear(20, 20), GELUActivation()
    assert to_int8(other).fc1.activation is None


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(63, 7), (130, 129)])
@pytest.mark.parametrize("rows", [5, 300])
def test_bfloat16_goes_in_and_comes_out_to_the_bit(kernel_calls, rows, inputs, outputs, bias):
    torch.manual_seed(rows)
    layer = Int8Linear(nn.Linear(inputs, outputs, bias=bias))
    states = torch.randn(rows, inputs).bfloat16()
    assert torch.equal(layer(states), with_operators(layer, states.float()))
    layer.attends = SimpleNamespace(_attn_implementation="sdpa")
    for given in (states, states.float() * 1.01):
        assert layer(given).dtype == torch.bfloat16
        assert torch.equal(layer(given), with_operators(layer, given.float()).bfloat16())
        assert torch.equal(with_operators(layer, given, torch.bfloat16), layer(given))
    assert len(kernel_calls) == 7
    layer.attends = SimpleNamespace(_attn_implementation="eager")  # for its weights, of float32
    assert layer(states).dtype == torch.float32


@pytest.mark.parametrize("rows", [3, 300])
def test_what_is_no_number_stays_so(kernel_calls, rows):
    layer = Int8Linear(nn.Linear(70, 20))
    states = torch.randn(rows, 70)
    states[0, 69], states[1, 3] = torch.nan, torch.inf
    found, wanted = layer(states), with_operators(layer, states)
    assert found[0].isnan().all()
    assert not found[1].isfinite().any()
    assert not wanted[:2].isfinite().any()
    assert torch.equal(found[2:], wanted[2:])
    layer.attends = SimpleNamespace(_attn_implementation="sdpa")
    assert layer(states)[0].isnan().all()
    assert torch.equal(layer(states)[2:], found[2:].bfloat16())


@pytest.mark.parametrize(("threads", "pieces"), [(2, 2), (3, 3), (100, 5)])
def test_a_large_layer_is_shared_out_among_threads(kernel_calls, monkeypatch, threads, pieces):
    monkeypatch.setattr(int8_kernel, "LEAST_OF_THREAD", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    layer, states = Int8Linear(nn.Linear(16, 37)), torch.randn(2, 16)
    found = layer(states)
    assert len(kernel_calls) == pieces
    assert sorted(arguments[-2:] for arguments in kernel_calls)[0][0] == 0
    assert sum(last - first for *_, first, last in kernel_calls) == 37
    assert torch.equal(found, with_operators(layer, states))


@pytest.mark.parametrize("threads", [2, 3, 100])
def test_many_rows_are_shared_out_among_threads(kernel_calls, monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    layer, states = Int8Linear(nn.Linear(200, 137)), torch.randn(int8_kernel.MANY_ROWS + 9, 200)
    assert torch.equal(layer(states), with_operators(layer, states))
    assert len(kernel_calls) == int8_kernel.PIECES * threads
    assert sum(count for *_, count, _, _ in kernel_calls) == len(states)


def test_other_rows_and_layers_take_torchs_operators(kernel_calls):
    torch.manual_seed(0)
    linear, states = nn.Linear(64, 48), torch.randn(3, 64)
    layer = Int8Linear(linear)
    with torch.no_grad():
        for count in (int8_kernel.FEW_ROWS + 1, int8_kernel.MANY_ROWS - 1, 0):
            layer(torch.randn(count, 64))
        for dtype in (torch.bfloat16, torch.float64):
            moved = Int8Linear(linear).to(dtype)
            assert torch.equal(moved(states.to(dtype)), with_operators(moved, states.to(dtype)))
            assert not moved(states).isnan().any()
        for bias in (torch.randn(96)[::2], torch.ones(1).expand(48), torch.randn(48).double()):
            other = Int8Linear(linear)
            other.bias = nn.Parameter(bias, requires_grad=False)
            assert torch.equal(other(states), with_operators(other, states))
    assert not kernel_calls


def test_what_is_put_in_the_place_of_a_layers_numbers_is_looked_at(kernel_calls):
    layer, states = Int8Linear(nn.Linear(64, 48)), torch.randn(3, 64)
    calls = 0
    for change in (
        lambda: None,
        lambda: layer.weight_scale.mul_(2),  # in place
        lambda: setattr(layer, "weight_scale", layer.weight_scale * 2),
        lambda: setattr(layer, "bias", nn.Parameter(torch.randn(48))),
        lambda: setattr(layer.bias, "data", torch.randn(48)),
        lambda: setattr(layer, "bias", None),
    ):
        change()
        assert torch.equal(layer(states), with_operators(layer, states))
        calls += 1
        assert len(kernel_calls) == calls
    layer.weight_scale = layer.weight_scale.double()
    assert torch.equal(layer(states), with_operators(layer, states))
    other = copy.deepcopy(layer.float())
    assert torch.equal(other(states), with_operators(other, states))
    assert len(kernel_calls) == calls + 1


def test_more_axes_than_two(kernel_calls):
    layer = Int8Linear(nn.Linear(64, 48))
    for shape in ((2, 3, 64), (2, 1, 2, 64), (64,), (5, 40, 64), (0, 3, 64)):
        states = torch.randn(shape)
        found = layer(states)
        assert found.shape == (*shape[:-1], 48)
        assert torch.equal(found.view(-1, 48), with_operators(layer, states.view(-1, 64)))
    strided = torch.randn(3, 64, 4).transpose(1, 2)
    assert torch.equal(layer(strided).view(-1, 48), with_operators(layer, strided.reshape(-1, 64)))
    assert len(kernel_calls) == 4


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_who_watches_torchs_operations_sees_them(kernel_calls):
    layer, states = Int8Linear(nn.Linear(64, 48).requires_grad_(False)), torch.randn(3, 64)
    wanted = layer(states)
    assert len(kernel_calls) == 1
    assert torch.equal(torch.func.functionalize(layer)(states), wanted)
    assert torch.equal(torch.jit.trace(layer, states, check_trace=False)(states), wanted)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert layer(torch.empty(3, 64)).shape == (3, 48)
    assert len(kernel_calls) == 1


def test_small_layers_of_many_rows_are_left_to_torchs_threads(kernel_calls, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    layer = Int8Linear(nn.Linear(64, 48))
    layer(torch.randn(int8_kernel.FEW_ROWS // 2 + 1, 64))
    assert not kernel_calls
    layer(torch.randn(int8_kernel.FEW_ROWS // 2, 64))
    assert len(kernel_calls) == 1


def test_many_threads_leave_a_row_to_the_kernel(kernel_calls, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 200)
    layer = Int8Linear(nn.Linear(64, 48))
    layer(torch.randn(2, 64))
    assert not kernel_calls
    layer(torch.randn(1, 64))
    assert len(kernel_calls) == 1


@pytest.mark.parametrize("rows", [2, 300])
def test_no_memory_is_said(monkeypatch, rows):
    library = SimpleNamespace(**dict.fromkeys(int8_kernel.SIGNATURES, lambda *_: 1))
    take(monkeypatch, library)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with pytest.raises(MemoryError, match=f"no memory for {rows} rows of 64 numbers in int8"):
        Int8Linear(nn.Linear(64, 48))(torch.randn(rows, 64))


@pytest.fixture
def found_anew():
    """The kernel is looked for again, before and after."""
    int8_kernel.find_kernels.cache_clear()
    yield int8_kernel.find_kernels
    int8_kernel.find_kernels.cache_clear()


def test_processors_without_its_instructions_do_without(found_anew, monkeypatch):
    library = SimpleNamespace(**{f"{name}{end}": lambda *_: 1 for name in int8_kernel.SIGNATURES for end in VARIANTS})
    monkeypatch.setattr(int8_kernel, "kernels", lambda: library)
    monkeypatch.setattr(int8_kernel, "cpu_has", lambda name: name not in ("avx512_vnni", "avx2"))
    assert found_anew() == int8_kernel.Kernels()


def test_an_older_library_and_none_are_done_without(found_anew, monkeypatch):
    for library in (SimpleNamespace(), SimpleNamespace(linear_int8=lambda *_: 0), None):
        monkeypatch.setattr(int8_kernel, "kernels", lambda library=library: library)
        assert found_anew() == int8_kernel.Kernels()
        found_anew.cache_clear()


@pytest.mark.parametrize(
    ("cpu", "few", "many"),
    [
        ("", int8_kernel.FEW_ROWS, int8_kernel.MANY_ROWS),
        ("amx_int8", int8_kernel.FEW_ROWS_OF_AMX, float("inf")),
        ("avx2", int8_kernel.FEW_ROWS_OF_AVX2, 0),
    ],
)
def test_how_many_rows_they_take(found_anew, monkeypatch, cpu, few, many):
    """AMX leaves them few, and AVX2 all."""
    names = [f"{name}{end}" for name in int8_kernel.SIGNATURES for end in VARIANTS]
    library = SimpleNamespace(**{name: SimpleNamespace() for name in names})
    monkeypatch.setattr(int8_kernel, "kernels", lambda: library)
    monkeypatch.setattr(int8_kernel, "tries_well", lambda *_: True)
    needed = VARIANTS["_avx2" if cpu == "avx2" else ""]
    monkeypatch.setattr(int8_kernel, "cpu_has", lambda name: name in (cpu, *needed))
    found = found_anew()
    assert found[1:] == (few, many)
    assert found.library.gelu_float32 is getattr(library, f"gelu_float32{'_avx2' * (cpu == 'avx2')}")


@pytest.mark.parametrize("rows", [1, 32, int8_kernel.FEW_ROWS_OF_AVX2, int8_kernel.FEW_ROWS_OF_AVX2 + 1, 200])
def test_with_avx2_torchs_operators_are_not_asked(kernel_calls, monkeypatch, rows):
    kernels = int8_kernel.find_kernels()._replace(few_rows=int8_kernel.FEW_ROWS_OF_AVX2, many_rows=0)
    monkeypatch.setattr(int8_kernel, "find_kernels", lambda: kernels)
    layer, states = Int8Linear(nn.Linear(64, 48)), torch.randn(rows, 64)
    want = with_operators(layer, states)
    monkeypatch.setattr(int8_hier, "int8_product", None)
    assert torch.equal(layer(states), want)


@pytest.mark.parametrize("variant", list(map(variant_of, VARIANTS)))
def test_a_kernel_that_finds_another_bit_than_torch_is_not_used(compiled, found_anew, monkeypatch, variant):
    state = torch.get_rng_state()
    monkeypatch.setattr(int8_kernel, "kernels", lambda: compiled)
    monkeypatch.setattr(int8_kernel, "cpu_has", lambda name: name in VARIANTS[variant])
    assert found_anew().library is not None
    assert torch.equal(torch.get_rng_state(), state)
    found_anew.cache_clear()
    multiply = Int8Linear.multiply

    def otherwise(layer, rows, found):
        multiply(layer, rows, found)
        found[-1, -1] = torch.nextafter(found[-1, -1], torch.tensor(torch.inf))

    monkeypatch.setattr(Int8Linear, "multiply", otherwise)
    assert found_anew() == int8_kernel.Kernels()


def test_the_trial_takes_turns_so_that_a_busy_moment_hurts_both():
    order, naps = [], iter([0.01] * 20)  # ten turns of a processor that others use, too

    def run(name):
        order.append(name)
        time.sleep(next(naps, 0))

    fastest = int8_hier._seconds(lambda: run("wide"), lambda: run("narrow"), times=12)
    assert order == ["wide", "narrow"] * 12
    assert len(fastest) == 2
    assert max(fastest) < 0.01


def test_the_trial_is_of_torchs_operators(trial, monkeypatch):
    """They do what the compiled kernels leave them, or all where there are none."""
    product = int8_hier.int8_product
    take(monkeypatch, SimpleNamespace())
    monkeypatch.setattr(int8_hier, "int8_product", lambda *given: time.sleep(0.02) or product(*given))
    assert "no faster" in trial()
    trial.cache_clear()
    kernels = int8_kernel.Kernels(SimpleNamespace(**dict.fromkeys(int8_kernel.SIGNATURES, lambda *_: 0)), 32, 0)
    monkeypatch.setattr(int8_kernel, "find_kernels", lambda: kernels)
    assert trial() is None


@pytest.mark.parametrize("name", CASES)
def test_every_family(name, always):
    case = CASES[name]
    model, same = make_model(case, std=0.1), make_model(case, std=0.1)
    batch = collate(case, [case.make_document(17, 0), case.make_document(12, 1)])
    inputs = case.inputs(batch, torch.randint(5, 50, (2, 6), generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        got, want = to_int8(model)(**inputs).logits, same(**inputs).logits
    assert any(isinstance(module, Int8Linear) for module in model.modules())
    assert not torch.equal(got, want)
    assert (got - want).norm() < 0.1 * want.norm()


def test_what_encoders_of_long_documents_attend_with_is_bfloat16_where_that_is_faster(always, monkeypatch):
    """But for its weights, and what caches keep."""
    case = CASES["top_down_transformer"]
    monkeypatch.setattr(int8_kernel, "kernel_takes", lambda *_: True)
    model, wide = to_int8(make_model(case, std=0.1)), make_model(case, std=0.1)
    other = to_int8(make_model(CASES["hat_bart"], std=0.1))
    monkeypatch.setattr(int8_hier, "is_faster_in_bfloat16", None)
    to_int8(wide)
    narrow, none = (
        [name for name, module in one.named_modules() if getattr(module, "attends", None) is not None]
        for one in (model, other)
    )
    assert not none
    assert all(".encoder.layers." in name for name in narrow)
    assert {name.split(".", 4)[4] for name in narrow} == {
        f"{attention}.{part}_proj" for attention in ("self_attn", "segment_attn") for part in "qkv"
    }
    batch = collate(case, [case.make_document(17, 0), case.make_document(12, 1)])
    inputs = case.inputs(batch, torch.randint(5, 50, (2, 6), generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        got, want = model(**inputs).logits, wide(**inputs).logits
        assert (got - want).norm() < 0.02 * want.norm()
        assert not torch.equal(got, want)
        for one in (model, wide):
            one.set_attn_implementation("eager")
        got, want = (one(**inputs, output_attentions=True) for one in (model, wide))
    assert torch.equal(got.logits, want.logits)
    assert torch.equal(got.encoder_attentions[0], want.encoder_attentions[0])


def test_pipeline_loads_mini_in_int8(always):
    summarize = pipeline("summarization", model=hier_models.MINI, dtype="int8", device="cpu")
    layers = [module for module in summarize.model.modules() if isinstance(module, Int8Linear)]
    assert len(layers) > 80
    assert {parameter.dtype for parameter in summarize.model.parameters()} == {torch.float32}
    [summary] = summarize(TEXT, num_beams=1, max_new_tokens=20, min_new_tokens=5)
    assert "bridge" in summary["summary_text"]


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, "mixed"])
def test_weights_are_loaded_as_they_are_stored(always, stored, tiny_model, processor, tmp_path, monkeypatch):
    """Of halves no larger copies are made; and no digit is lost, also where only some are halves."""
    tiny_model.to(torch.bfloat16 if stored == "mixed" else stored)
    if stored == "mixed":
        tiny_model.model.encoder.layers[0].float()
    tiny_model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded: list[torch.dtype] = []
    monkeypatch.setattr(document_pipeline_hier, "to_int8", lambda model: loaded.append(model.dtype) or to_int8(model))
    model = pipeline("summarization", model=str(tmp_path), dtype="int8", device="cpu").model
    wanted = to_int8(tiny_model.float() if stored == "mixed" else tiny_model)
    assert loaded == [torch.float32 if stored == "mixed" else stored]
    assert model.config.dtype == model.dtype == torch.float32
    for (name, got), (_, want) in zip(model.named_buffers(), wanted.named_buffers(), strict=True):
        assert torch.equal(got, want), name
    for (name, got), (_, want) in zip(model.named_parameters(), wanted.named_parameters(), strict=True):
        assert got.dtype == torch.float32
        assert torch.equal(got, want), name


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_tokens_are_looked_up_in_int8(always, name, stored):
    """The same whatever they are stored in; where the head has the weights of the embedding, in its own numbers."""
    case = CASES[name]
    model = make_model(case, std=0.1).to(stored)
    wanted, floats = to_int8(copy.deepcopy(model).float()), copy.deepcopy(model.get_input_embeddings()).float()
    embedding = to_int8(model).get_input_embeddings()
    assert embedding.weight.dtype == torch.int8
    assert model.dtype == torch.float32
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    if case.is_tied and case.decodes:
        assert model.get_output_embeddings().weight.data_ptr() == embedding.weight.data_ptr()
    batch = collate(case, [case.make_document(17, 0), case.make_document(12, 1)])
    inputs = case.inputs(batch, torch.randint(5, 50, (2, 6), generator=torch.Generator().manual_seed(1)))
    ids = torch.arange(floats.num_embeddings).view(1, -1)
    with torch.no_grad():
        found, want = embedding(ids), floats(ids)
        half_a_step = want.abs().amax(dim=-1, keepdim=True) / 127 / 2
        assert ((found - want).abs() <= half_a_step * 1.0001).all()
        assert found.dtype == torch.float32
        assert torch.equal(model(**inputs).logits, wanted(**inputs).logits)


@pytest.mark.parametrize("name", CASES)
def test_what_is_int8_already_stays_as_it_is(always, name):
    case = CASES[name]
    once = to_int8(make_model(case, std=0.1))
    twice = to_int8(copy.deepcopy(once))
    ids = torch.arange(len(once.get_input_embeddings().weight))
    batch = collate(case, [case.make_document(17, 0), case.make_document(12, 1)])
    inputs = case.inputs(batch, torch.randint(5, 50, (2, 6), generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        assert torch.equal(twice.get_input_embeddings()(ids), once.get_input_embeddings()(ids))
        assert torch.equal(twice(**inputs).logits, once(**inputs).logits)
    saved = twice.state_dict()
    assert all(torch.equal(saved[name], weight) for name, weight in once.state_dict().items())


@pytest.mark.parametrize("name", CASES)
def test_what_is_looked_up_is_saved_as_float32(always, name):
    """Once, under all of its names."""
    model = make_model(CASES[name], std=0.1)
    place = model.get_input_embeddings().weight.data_ptr()
    names = [name for name, weight in model.state_dict().items() if weight.data_ptr() == place]
    embedding, saved = to_int8(model).get_input_embeddings(), model.state_dict()
    assert {saved[name].data_ptr() for name in names} == {saved[names[0]].data_ptr()}
    scale = getattr(embedding, "embed_scale", 1.0)
    assert torch.allclose(saved[names[0]] * scale, embedding(torch.arange(len(embedding.weight))), rtol=1e-6)


def test_what_others_read_too_is_not_looked_up_in_int8(always):
    """Nobody knows what they do with it."""

    class Other(nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = weight

    model = make_model(CASES["hat_bart"], std=0.1).bfloat16()
    model.other = Other(model.get_input_embeddings().weight)
    embedding = to_int8(model).get_input_embeddings()
    assert embedding.weight is model.other.weight
    assert embedding(torch.tensor([1])).dtype == torch.float32


@pytest.mark.parametrize("other", [{"variant": "fp32"}, {"use_safetensors": False}, {"model_type": "marian"}])
def test_other_weights_and_models_are_loaded_in_float32(other, tiny_model, tmp_path):
    """Such as Marian's, which computes its positions in the type that it is loaded in."""
    tiny_model.half().save_pretrained(tmp_path)
    assert hier_models.pipelines._stored_dtype(tmp_path) == torch.float16
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "hat_bart"} | other
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert hier_models.pipelines._stored_dtype(tmp_path, **other) == torch.float32


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors.index.json"])
def test_checkpoints_in_other_files_are_loaded_too(always, name, tiny_model, processor, tmp_path):
    tiny_model.half()
    if name.endswith(".bin"):
        tiny_model.save_pretrained(tmp_path)
        (tmp_path / "model.safetensors").unlink()
        torch.save(tiny_model.state_dict(), tmp_path / name)
    else:
        tiny_model.save_pretrained(tmp_path, max_shard_size="2KB")
    processor.save_pretrained(tmp_path)
    assert (tmp_path / name).exists()
    assert not (tmp_path / "model.safetensors").exists()
    model = pipeline("summarization", model=str(tmp_path), dtype="int8", device="cpu").model
    wanted = to_int8(tiny_model.float())  # how they are stored is not seen there
    for (name, got), (_, want) in zip(model.named_buffers(), wanted.named_buffers(), strict=True):
        assert torch.equal(got, want), name


def test_nothing_is_said_of_a_format_that_failed(always, caplog):
    pipeline("summarization", model=hier_models.MINI, dtype="int8", device="cpu")
    assert "Falling back" not in caplog.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_saved_it_is_a_checkpoint_like_others(always, dtype, tiny_model, processor, tmp_path):
    tiny_model.to(dtype)
    summarize = pipeline("summarization", model=tiny_model, processor=processor, device="cpu", dtype="int8")
    before = summarize(DOCUMENTS, max_new_tokens=8)
    summarize.save_pretrained(tmp_path)
    loaded = pipeline("summarization", model=str(tmp_path), device="cpu")
    assert not any(isinstance(module, Int8Linear) for module in loaded.model.modules())
    assert loaded.model.lm_head.weight is loaded.model.get_input_embeddings().weight
    assert pipeline("summarization", model=str(tmp_path), device="cpu", dtype="int8")(DOCUMENTS, max_new_tokens=8) == (
        before
    )


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_pipeline_of_a_number_format_can_be_saved(dtype, tmp_path):
    pipeline("summarization", model=hier_models.MINI, dtype=dtype, device="cpu").save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer_config.json").is_file()


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError, ValueError])
def test_an_operator_that_is_missing_is_not_used(trial, error, monkeypatch, tiny_model, caplog):
    def fail(rows, weight):
        raise error("this torch is another one")

    monkeypatch.setattr(int8_hier, "int8_product", fail)
    with caplog.at_level(logging.WARNING):
        assert not any(isinstance(module, Int8Linear) for module in to_int8(tiny_model).modules())
    assert "torch does not multiply int8: float32 is used" in caplog.text


def test_an_operator_that_changed_is_not_used(trial, monkeypatch):
    monkeypatch.setattr(int8_hier, "int8_product", lambda rows, weight: rows.int() @ weight.int() + 1)
    assert trial() == "torch multiplies int8 wrongly"


def test_an_operator_that_is_slow_is_not_used(trial, monkeypatch):
    take(monkeypatch, SimpleNamespace())
    monkeypatch.setattr(int8_hier, "_seconds", lambda wide, narrow: [1.0, 2.0])
    assert "no faster" in trial()


def test_it_is_tried_once(trial, monkeypatch):
    first = trial()
    monkeypatch.setattr(int8_hier, "int8_product", None)
    assert trial() == first


def test_a_model_elsewhere_is_refused():
    with pytest.raises(ValueError, match='dtype="int8" is for CPUs, and the model is on meta'):
        to_int8(nn.Linear(4, 4, device="meta"))


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_a_dtype_that_comes_too_late_is_not_ignored_silently(dtype, tiny_model, processor, caplog):
    pipeline("summarization", model=tiny_model, processor=processor, device="cpu", dtype=dtype)
    said = 'dtype="bfloat16" is for a model that is loaded by name; this one is float32: call model.to(torch.bfloat16)'
    assert caplog.text.count(said) == 1


@pytest.mark.parametrize("settings", [{}, {"dtype": "float32"}, {"dtype": "auto"}])
def test_nothing_is_said_of_a_dtype_that_a_model_has(settings, tiny_model, processor, caplog):
    pipeline("summarization", model=tiny_model, processor=processor, device="cpu", **settings)
    assert "loaded by name" not in caplog.text


def test_nothing_is_said_of_a_dtype_that_a_model_is_loaded_in(caplog):
    loaded = pipeline("summarization", model=hier_models.MINI, dtype="bfloat16", device="cpu").model
    assert loaded.dtype == torch.bfloat16
    assert "loaded by name" not in caplog.text

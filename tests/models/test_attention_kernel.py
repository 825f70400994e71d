"""The compiled kernel of local attention: exact, for all that it takes; and local attention without it."""

import os
import platform
import shutil
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hier_models.models import attention_kernel as kernel
from hier_models.models import bart_body
from hier_models.models import kernels as compiled_kernels
from hier_models.models import local_attention as module
from hier_models.models.attention_products import cpu_has
from hier_models.models.bart_body import attend
from tests.cases import local_attention
from tests.conftest import ROOT


NAMES = [
    f"{what}_{kind}"
    for what in ("attend", "step")
    for head_dim in kernel.HEAD_DIMS
    for kind in (f"float32_{head_dim}", f"bfloat16_{head_dim}", f"float32_{head_dim}_avx2")
]
HAS_AVX512 = all(map(cpu_has, kernel.INSTRUCTIONS))
of_linux = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="needs Linux on x86-64"
)
needs_avx512_bf16 = pytest.mark.skipif(
    not (HAS_AVX512 and cpu_has("avx512_bf16")), reason="needs a CPU with AVX512-BF16"
)
needs_avx512 = pytest.mark.skipif(not HAS_AVX512, reason="needs a CPU with AVX-512")
needs_avx2 = pytest.mark.skipif(not all(map(cpu_has, compiled_kernels.AVX2)), reason="needs a CPU with AVX2")
# What is put aside, so that the kernel is that of these instructions.
WITH_AVX512, WITH_AVX2 = pytest.param(None, marks=needs_avx512), pytest.param("avx512_f", marks=needs_avx2)


@pytest.fixture(params=[WITH_AVX512, WITH_AVX2], ids=["avx512", "avx2"])
def calls(request, compiled, monkeypatch):
    """How often the kernel was asked; AMX, which is faster, is put aside."""
    found = []

    def attend(*arguments):
        found.append(arguments)
        return kernel.attend_with_kernel(*arguments)

    monkeypatch.setattr(kernel, "kernels", lambda: compiled)
    monkeypatch.setattr(module, "attend_with_kernel", attend)
    monkeypatch.setattr(kernel, "cpu_has", lambda name: name not in ("amx_bf16", request.param) and cpu_has(name))
    return found


def states_of(tokens, dtype, heads=2, head_dim=64, batch=2):
    """Queries, keys and values laid out as projections give them."""
    generator = torch.Generator().manual_seed(tokens)
    shape = (batch, tokens, heads, head_dim)
    made = (torch.randn(shape, generator=generator, dtype=torch.float32) for _ in range(3))
    return [of.to(dtype).transpose(1, 2).requires_grad_() for of in made]


def densely(query, key, value, window, exists, scale=None):
    place = torch.arange(query.shape[2])
    seen = ((place[:, None] - place).abs() <= window // 2) & exists[:, None, None]
    seen = seen | (place[:, None] == place)  # keeps rows of padding finite
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ value


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("head_dim", kernel.HEAD_DIMS)
@pytest.mark.parametrize("window", [2, 62, 128, 1024])
@pytest.mark.parametrize("tokens", [1, 7, 64, 301, 700])
def test_exact_forwards_and_backwards(calls, tokens, window, head_dim, dtype, tolerance):
    if dtype == torch.bfloat16 and not all(map(kernel.cpu_has, ("avx512_f", "avx512_bf16"))):
        pytest.skip("needs a CPU with AVX512-BF16")
    states = states_of(tokens, dtype, head_dim=head_dim)
    exact = [of.detach().double().requires_grad_() for of in states]
    exists = torch.ones(2, tokens, dtype=torch.bool)
    exists[0, tokens - tokens // 3 :] = False
    exists[1, : tokens // 4] = False
    weights = torch.linspace(-1, 1, exact[0].numel()).double().view_as(exact[0]) * exists[:, None, :, None]
    found, wanted = local_attention(*states, window, exists, scale=0.3), densely(*exact, window, exists, scale=0.3)
    difference = (found.double() - wanted) * exists[:, None, :, None]
    assert difference.abs().max() < tolerance
    for one, other in zip(states, exact, strict=True):
        (grad,) = torch.autograd.grad((found * weights.to(dtype)).sum(), one, retain_graph=True)
        (expected,) = torch.autograd.grad((wanted * weights).sum(), other, retain_graph=True)
        assert (grad.double() - expected).abs().max() < (1e-5 if dtype == torch.float32 else 0.05) * max(
            1, expected.abs().max()
        )
    # In float32, where all documents see all of themselves, they are BART's to the bit.
    assert bool(calls) == (dtype == torch.bfloat16 or tokens - tokens // 4 > window // 2 + 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_type_does_not_matter(calls, dtype):
    found = []
    for default in (torch.float32, dtype):
        torch.set_default_dtype(default)
        try:
            states = states_of(300, torch.float32)
            found.append(torch.autograd.grad(local_attention(*states, 64).sum(), states))
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, *found))
    assert len(calls) == 2


def test_documents_lie_anywhere_in_memory(calls):
    """One of a batch is empty; states are parts of larger ones, with strides of their own; windows are of any size."""
    generator = torch.Generator().manual_seed(0)
    large = [torch.randn(3, 301, 5, width, generator=generator) for width in (65, 70, 130)]
    states = [of[1:, 1:, 2:4, 1:65].transpose(1, 2) for of in large]
    exists = torch.ones(2, 300, dtype=torch.bool)
    exists[0], exists[1, :20] = False, False
    for window, size in ((64, 64), (2**64, 600)):
        found = local_attention(*states, window, exists)
        wanted = densely(*(of.double() for of in states), size, exists)
        torch.testing.assert_close(found[1, :, 20:].double(), wanted[1, :, 20:], rtol=0, atol=5e-6)
        assert not found[0].any()
    assert len(calls) == 1


def test_how_a_document_is_cut_changes_no_bit(calls, monkeypatch):
    states = [of.detach() for of in states_of(3000, torch.float32, heads=3, batch=1)]
    found = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        with torch.inference_mode():
            found.append(local_attention(*states, 500))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert len(calls) == 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_has_threads_of_its_own(calls, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    states = [of.detach() for of in states_of(300, torch.float32, heads=1, batch=1)]  # too few for torch's threads
    wanted = local_attention(*states, 64)
    if (process := os.fork()) == 0:
        os._exit(0 if torch.equal(local_attention(*states, 64), wanted) else 1)
    assert os.waitpid(process, 0)[1] == 0


@pytest.mark.parametrize("openmp", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_calls_are_made_once_each_and_their_errors_are_raised(monkeypatch, openmp, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    if not openmp:
        monkeypatch.setattr(compiled_kernels, "_openmp", lambda: None)
    for count in (1, 2, 50):
        made = []
        compiled_kernels.run_calls(made.append, list(range(count)))
        assert sorted(made) == list(range(count))

    def fail(number):
        if number == 1:
            raise MemoryError("no room for the second")

    with pytest.raises(MemoryError, match="no room for the second"):
        compiled_kernels.run_calls(fail, [0, 1, 2])
    made = []
    compiled_kernels.run_calls(made.append, [0, 1, 2])  # the threads are there as before
    assert sorted(made) == [0, 1, 2]


def test_when_the_interpreter_ends_no_threads_are_begun(calls, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    states = [of.detach() for of in states_of(300, torch.float32)]
    wanted = local_attention(*states, 64)
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    monkeypatch.setattr(compiled_kernels, "_openmp", lambda: None)
    monkeypatch.setattr(compiled_kernels, "_pool", lambda *_: pool)
    assert torch.equal(local_attention(*states, 64), wanted)


class Recorder(TorchDispatchMode):
    """The names of what was called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_who_watches_torchs_operations_sees_them(calls):
    query, key, value = (of.detach() for of in states_of(300, torch.float32))
    with Recorder() as recorder:
        local_attention(query, key, value, 64)
    assert any("attention" in name for name in recorder.names)
    assert not calls


@pytest.mark.parametrize(("threads", "size"), [(1, 1250), (3, 417), (100, kernel.FEWEST_QUERIES)])
def test_long_documents_are_read_in_pieces_by_all_threads(calls, monkeypatch, threads, size):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    states = [of.detach() for of in states_of(5000, torch.float32, heads=1, batch=1)]
    asked, attend = [], kernel._kernel(states[0])

    def counted(*arguments):
        asked.append([number.value for number in arguments[6:10]])
        return attend(*arguments)

    monkeypatch.setattr(kernel, "kernels", lambda: SimpleNamespace(**dict.fromkeys(NAMES, counted)))
    found = local_attention(*states, 200)
    assert sorted(asked) == [[5000, first, min(first + size, 5000), 100] for first in range(0, 5000, size)]
    for first in (0, 2 * size - 150, 4700):
        part = [of[:, :, max(0, first - 100) : first + 400].double() for of in states]
        wanted = densely(*part, 200, torch.ones(1, part[0].shape[2], dtype=torch.bool))
        inner = slice(min(first, 100), min(first, 100) + 300)
        whole = slice(first, first + 300)
        torch.testing.assert_close(found[:, :, whole].double(), wanted[:, :, inner], rtol=0, atol=2e-6)


class Attention:
    """What of a module decides."""

    is_causal = training = False
    dropout, scaling, config = 0.1, 0.3, SimpleNamespace(_attn_implementation="sdpa")


def calls_of(name, **without):
    """A fixture: how often models asked a kernel; some instructions are put aside, in each of its tests others."""

    @pytest.fixture(params=list(without.values()), ids=list(without))
    def calls(request, compiled, monkeypatch):
        found, attend = [], getattr(kernel, name)
        monkeypatch.setattr(kernel, "kernels", lambda: compiled)
        monkeypatch.setattr(kernel, "cpu_has", lambda has: has != request.param and cpu_has(has))
        monkeypatch.setattr(bart_body, name, lambda *arguments: found.append(arguments) or attend(*arguments))
        return found

    return calls


bodies_calls = calls_of("attend_with_kernel", avx512="amx_bf16")
steps = calls_of("attend_step", avx512=WITH_AVX512, avx2=WITH_AVX2)


@needs_avx512_bf16
@torch.no_grad()
@pytest.mark.parametrize(("queries", "keys"), [(256, 1), (256, 300), (700, 700), (2500, 90)])
def test_models_attend_to_all_keys(bodies_calls, queries, keys):
    query, (key, value) = states_of(queries, torch.bfloat16)[0], states_of(keys, torch.bfloat16)[1:]
    found, weights = attend(Attention(), query, key, value, None)
    wanted = (query.double() @ key.double().transpose(2, 3) * 0.3).softmax(dim=-1) @ value.double()
    torch.testing.assert_close(found.double(), wanted.transpose(1, 2), rtol=0, atol=1e-2)
    assert (weights, len(bodies_calls)) == (None, 1)


@needs_avx512_bf16
def test_models_take_torchs_kernel_for_all_else(bodies_calls, monkeypatch):
    states = [of.detach() for of in states_of(256, torch.bfloat16)]
    few = [of[:, :, :255] for of in states]
    mask = torch.ones(1, 1, 256, 256, dtype=torch.bool)
    causal, training = Attention(), Attention()
    causal.is_causal = training.training = True
    eager = Attention()
    eager.config, eager.num_key_value_groups = SimpleNamespace(_attn_implementation="eager"), 1
    with torch.no_grad():
        for attention in (causal, training, eager):
            attend(attention, *states, None)
        attend(Attention(), *states, mask)
        attend(Attention(), *few, None)
        attend(Attention(), *[of.float() for of in states], None)
        attend(Attention(), *states, None, is_causal=True)
        attend(Attention(), states[0], states[1][:1].expand_as(states[1]), states[2][..., :32], None)
    attend(Attention(), *states, None)  # with gradients
    assert not bodies_calls
    monkeypatch.setattr(kernel, "cpu_has", lambda name: True)
    with torch.no_grad():
        attend(Attention(), *states, None)
    assert not bodies_calls


of_step_types = pytest.mark.parametrize(
    ("steps", "dtype", "tolerance"),
    [
        pytest.param(None, torch.float32, 2e-6, marks=needs_avx512),
        pytest.param(None, torch.bfloat16, 1e-2, marks=needs_avx512_bf16),
        pytest.param("avx512_f", torch.float32, 2e-6, marks=needs_avx2),
    ],
    indirect=["steps"],
)


@torch.no_grad()
@of_step_types
@pytest.mark.parametrize("head_dim", kernel.HEAD_DIMS)
@pytest.mark.parametrize("queries", [1, 3, 4, 9, kernel.MOST_OF_STEP])
@pytest.mark.parametrize("keys", [1, 16, 33, 300])
def test_steps_attend_to_what_a_mask_shows(steps, keys, queries, head_dim, dtype, tolerance):
    query, *_ = states_of(queries, dtype, heads=3, head_dim=head_dim)
    _, key, value = states_of(keys, dtype, heads=3, head_dim=head_dim)
    generator = torch.Generator().manual_seed(keys)
    scores = query.double() @ key.double().transpose(2, 3) * 0.3
    for shape in (None, (2, 1, 1, keys), (1, 3, queries, keys), (2, 3, queries, keys)):
        mask, seen = None, torch.ones(1, dtype=torch.bool)
        if shape is not None:
            mask = seen = torch.rand(shape, generator=generator) < 0.6
            mask[..., 0] = True
        found, weights = attend(Attention(), query, key, value, mask)
        wanted = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ value.double()
        torch.testing.assert_close(found.double(), wanted.transpose(1, 2), rtol=0, atol=tolerance)
        assert weights is None
    assert len(steps) == 4


@torch.no_grad()
@of_step_types
def test_steps_where_nothing_is_seen_and_where_a_number_is_none(steps, dtype, tolerance):
    query, key, value = states_of(4, dtype)
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    mask[0, 0, 1] = False
    query[1, 0, 2, 5] = torch.nan
    found, _ = attend(Attention(), query, key, value, mask)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=0.3).transpose(1, 2)
    assert not wanted[0, 1].any()
    assert wanted[1, 2, 0].isnan().all()
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance, equal_nan=True)
    mask[1, 0, 2, ::2] = False
    assert attend(Attention(), query, key, value, mask)[0][1, 2, 0].isnan().all()
    assert len(steps) == 2


@torch.no_grad()
def test_steps_of_all_threads_and_of_documents_alone_are_the_same_to_the_bit(steps, monkeypatch):
    query, _, _ = states_of(5, torch.float32, heads=4, batch=3)
    _, key, value = (of[:, :, 7:300] for of in states_of(400, torch.float32, heads=4, batch=3))
    mask = torch.rand(3, 1, 1, 293, generator=torch.Generator().manual_seed(0)) < 0.5
    whole, _ = attend(Attention(), query, key, value, mask)
    for one in range(3):
        alone, _ = attend(Attention(), *(of[one : one + 1] for of in (query, key, value, mask)))
        assert torch.equal(alone, whole[one : one + 1])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    monkeypatch.setattr(kernel, "LEAST_OF_THREAD", 10)
    assert torch.equal(attend(Attention(), query, key, value, mask)[0], whole)
    assert len(steps) == 5


def test_steps_of_torch_for_all_else(steps, monkeypatch):
    states = [of.detach() for of in states_of(12, torch.float32)]
    causal, training, eager = Attention(), Attention(), Attention()
    causal.is_causal = training.training = True
    eager.config, eager.num_key_value_groups = SimpleNamespace(_attn_implementation="eager"), 1
    mask = torch.ones(2, 1, 12, 12, dtype=torch.bool)
    with torch.no_grad():
        for attention in (causal, training, eager):
            attend(attention, *states, None)
        attend(Attention(), *states, None, is_causal=True)
        attend(Attention(), *states, mask.float())
        attend(Attention(), *states, mask[..., :1].expand_as(mask))  # bytes of keys that do not lie in a row
        attend(Attention(), *[of.double() for of in states], None)
        attend(Attention(), *states_of(kernel.MOST_OF_STEP + 1, torch.float32), None)
    attend(Attention(), *states, None)  # with gradients
    assert not steps
    with torch.no_grad():
        attend(causal, *states, mask)
        attend(causal, states[0][:, :, :1], *states[1:], None)
    assert len(steps) == 2

    monkeypatch.setattr(kernel, "kernels", lambda: SimpleNamespace(**dict.fromkeys(NAMES, lambda *_: 1)))
    with torch.no_grad(), pytest.raises(MemoryError, match="no memory for the scores of 12 keys"):
        attend(Attention(), *states, None)


@torch.no_grad()
def test_exported_programs_take_all_lengths():
    class Body(torch.nn.Module):
        def forward(self, query, key, value):
            return attend(Attention(), query, key, value, None)[0]

    tokens, keys = torch.export.Dim("tokens", min=2, max=512), torch.export.Dim("keys", min=2, max=512)
    states = states_of(20, torch.float32)[0], *states_of(30, torch.float32)[1:]
    sizes = {"query": {2: tokens}, "key": {2: keys}, "value": {2: keys}}
    program = torch.export.export(Body(), states, dynamic_shapes=sizes).module()
    for length in (5, 300):  # below and above the limits of both kernels
        states = states_of(length, torch.float32)
        torch.testing.assert_close(program(*states), Body()(*states))


def test_what_is_not_seen_does_not_matter(calls):
    query, key, value = (of.detach() for of in states_of(300, torch.float32, batch=1))
    before = local_attention(query, key, value, 64)
    key[:, :, 200:], value[:, :, 200:] = torch.nan, 1e30
    after = local_attention(query, key, value, 64)
    assert torch.equal(before[:, :, :168], after[:, :, :168])
    assert after[:, :, 168:].isnan().all()
    assert len(calls) == 2


@pytest.mark.parametrize("largest", [1e2, 1e17])
def test_large_scores_do_not_overflow(calls, largest):
    query, key, value = (of.detach() for of in states_of(300, torch.float32, batch=1))
    query, key = query.abs() * largest, -key.abs() * largest
    found = local_attention(query, key, value, 64)
    exists = torch.ones(1, 300, dtype=torch.bool)
    wanted = densely(query.double(), key.double(), value.double(), 64, exists)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-3)
    assert calls


class Subclass(torch.Tensor):
    pass


def test_other_states_take_other_ways(monkeypatch):
    monkeypatch.setattr(kernel, "cpu_has", lambda name: name in (*kernel.INSTRUCTIONS, "avx512_bf16"))
    monkeypatch.setattr(kernel, "kernels", lambda: SimpleNamespace(**dict.fromkeys(NAMES, True)))
    right = torch.zeros(1, 2, 8, 64)
    assert kernel.kernel_takes(right, right, right)
    assert kernel.kernel_takes(*[right.bfloat16()] * 3)
    assert kernel.kernel_takes(*[right[..., :32]] * 3)
    for other in (right.double(), right.half(), right[..., :48], right.transpose(2, 3).contiguous().transpose(2, 3)):
        assert not kernel.kernel_takes(other, other, other)
    assert not kernel.kernel_takes(right, right.bfloat16(), right)
    assert not kernel.kernel_takes(right, right.to("meta"), right)
    assert not kernel.kernel_takes(*[right.as_subclass(Subclass)] * 3)  # such as those without numbers
    monkeypatch.setattr(kernel, "kernels", lambda: None)
    assert not kernel.kernel_takes(right, right, right)
    monkeypatch.setattr(kernel, "kernels", lambda: SimpleNamespace(**dict.fromkeys(NAMES, True)))
    monkeypatch.setattr(kernel, "cpu_has", lambda name: name in kernel.INSTRUCTIONS)
    assert kernel.kernel_takes(right, right, right)
    assert not kernel.kernel_takes(*[right.bfloat16()] * 3)
    for some in (("avx512_f",), ("avx2",)):
        monkeypatch.setattr(kernel, "cpu_has", lambda name, some=some: name in some)
        assert not kernel.kernel_takes(right, right, right)
    monkeypatch.setattr(kernel, "cpu_has", lambda name: name in compiled_kernels.AVX2)
    for what in ("attend", "step"):
        assert kernel.kernel_takes(right, right, right, what=what)
        assert not kernel.kernel_takes(*[right.bfloat16()] * 3, what=what)
    monkeypatch.setattr(kernel, "kernels", lambda: SimpleNamespace(step_float32_64_avx2=True))  # an older file's
    assert kernel.kernel_takes(right, right, right, what="step")
    assert not kernel.kernel_takes(right, right, right)


@pytest.mark.parametrize("calls", [WITH_AVX512], indirect=True)
def test_with_amx_bfloat16_takes_torchs_kernel(calls, monkeypatch):
    monkeypatch.setattr(kernel, "cpu_has", lambda name: True)
    states = states_of(300, torch.bfloat16)
    local_attention(*states, 64)
    assert not calls
    assert kernel.kernel_takes(*states, what="step")  # in which few multiply, and all wait for the keys


def test_a_file_that_is_no_library_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "libkernels.so").write_text("no library", encoding="utf-8")
    monkeypatch.setattr(compiled_kernels, "__file__", str(tmp_path / "kernels.py"))
    compiled_kernels.kernels.cache_clear()
    try:
        assert compiled_kernels.kernels() is None
    finally:
        compiled_kernels.kernels.cache_clear()


def test_no_memory_is_said(calls, monkeypatch):
    monkeypatch.setattr(kernel, "kernels", lambda: SimpleNamespace(**dict.fromkeys(NAMES, lambda *_: 1)))
    with pytest.raises(MemoryError, match="no memory for the keys of 300 tokens"):
        local_attention(*states_of(300, torch.float32, heads=8), 64)


@pytest.fixture
def checkout(build, tmp_path):
    """A source tree with kernels that were compiled before."""
    (tmp_path / build.FOLDER).mkdir(parents=True)
    for source in (ROOT / build.FOLDER).glob("*.[ch]"):
        shutil.copy(source, tmp_path / build.FOLDER)
    (tmp_path / build.LIBRARY).write_text("older", encoding="utf-8")
    return tmp_path


def built(build, checkout):
    data = {"artifacts": []}
    build.CustomBuildHook(str(checkout), {}, None, None, str(checkout), "wheel").initialize("standard", data)
    return data


@of_linux
def test_wheels_have_the_kernel_where_it_can_be_compiled(build, compiler, checkout, monkeypatch):
    data = built(build, checkout)
    assert data["artifacts"] == [str(build.LIBRARY)]
    assert data["tag"] == "py3-none-linux_x86_64"
    monkeypatch.setattr(compiled_kernels, "__file__", str(checkout / "hier_models/models/kernels.py"))
    compiled_kernels.kernels.cache_clear()
    try:
        library = compiled_kernels.kernels()
        assert all(hasattr(library, name) for name in (*NAMES, "linear_int8"))
        assert all(kernel._kernel(torch.empty(head_dim)) for head_dim in kernel.HEAD_DIMS)
    finally:
        compiled_kernels.kernels.cache_clear()


@of_linux
@pytest.mark.parametrize("compiler_name", ["false", "no_such_compiler"])
def test_wheels_are_of_any_platform_where_it_cannot(build, checkout, monkeypatch, compiler_name):
    monkeypatch.setenv("CC", compiler_name)
    assert built(build, checkout) == {"artifacts": []}
    assert sorted((checkout / build.FOLDER).iterdir()) == sorted((checkout / build.FOLDER).glob("*.[ch]"))

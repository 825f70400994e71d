"""The compiled kernel of local attention: exact, for all that it takes; and local attention without it."""

import ctypes
import importlib.util
import shutil
from pathlib import Path

import pytest
import torch

from hier_models.models import local_attention as module
from hier_models.models import local_attention_kernel as kernel
from hier_models.models.attention_products import cpu_has
from hier_models.models.local_attention import local_attention


ROOT = Path(__file__).parents[2]
HAS_AVX512 = all(map(cpu_has, kernel.INSTRUCTIONS))
needs_avx512 = pytest.mark.skipif(not HAS_AVX512, reason="needs a CPU with AVX-512")


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="module")
def compiled(build, tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("kernel") / "kernel.so"
    assert build.compile_kernel(ROOT / build.SOURCE, library)
    return ctypes.CDLL(str(library))


@pytest.fixture
def calls(compiled, monkeypatch):
    """How often the kernel was asked; AMX, which is faster, is put aside."""
    found = []

    def attend(*arguments):
        found.append(arguments)
        return kernel.attend_with_kernel(*arguments)

    monkeypatch.setattr(kernel, "kernels", lambda: compiled)
    monkeypatch.setattr(module, "attend_with_kernel", attend)
    monkeypatch.setattr(module, "cpu_has", lambda *names: False)
    return found


def states_of(tokens, dtype, heads=2, head_dim=64, batch=2):
    """Queries, keys and values laid out as projections give them."""
    generator = torch.Generator().manual_seed(tokens)
    made = (torch.randn(batch, tokens, heads, head_dim, generator=generator) for _ in range(3))
    return [of.to(dtype).transpose(1, 2).requires_grad_() for of in made]


def densely(query, key, value, window, exists, scale=None):
    place = torch.arange(query.shape[2])
    seen = ((place[:, None] - place).abs() <= window // 2) & exists[:, None, None]
    seen = seen | (place[:, None] == place)  # keeps rows of padding finite
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ value


@needs_avx512
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("head_dim", kernel.HEAD_DIMS)
@pytest.mark.parametrize("window", [2, 62, 128, 1024])
@pytest.mark.parametrize("tokens", [1, 7, 64, 301, 700])
def test_exact_forwards_and_backwards(calls, tokens, window, head_dim, dtype, tolerance):
    if dtype == torch.bfloat16 and not cpu_has("avx512_bf16"):
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
    # In float32, a document that sees all of itself is BART's, to the bit.
    assert bool(calls) == (dtype == torch.bfloat16 or tokens - tokens // 4 > window // 2 + 1)


@needs_avx512
@pytest.mark.parametrize(("threads", "size"), [(1, 1250), (3, 417), (100, kernel.FEWEST_QUERIES)])
def test_long_documents_are_read_in_pieces_by_all_threads(calls, monkeypatch, threads, size):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    asked = []
    attend = kernel.kernels().local_attention_float32_64

    class Counted:
        @staticmethod
        def local_attention_float32_64(*arguments):
            asked.append([number.value for number in arguments[6:10]])
            return attend(*arguments)

    monkeypatch.setattr(kernel, "kernels", lambda: Counted)
    states = [of.detach() for of in states_of(5000, torch.float32, heads=1, batch=1)]
    found = local_attention(*states, 200)
    assert sorted(asked) == [[5000, first, min(first + size, 5000), 100] for first in range(0, 5000, size)]
    for first in (0, 2 * size - 150, 4700):
        part = [of[:, :, max(0, first - 100) : first + 400].double() for of in states]
        wanted = densely(*part, 200, torch.ones(1, part[0].shape[2], dtype=torch.bool))
        inner = slice(min(first, 100), min(first, 100) + 300)
        whole = slice(first, first + 300)
        torch.testing.assert_close(found[:, :, whole].double(), wanted[:, :, inner], rtol=0, atol=2e-6)


@needs_avx512
def test_what_is_not_seen_does_not_matter(calls):
    query, key, value = (of.detach() for of in states_of(300, torch.float32, batch=1))
    before = local_attention(query, key, value, 64)
    key[:, :, 200:], value[:, :, 200:] = torch.nan, 1e30
    after = local_attention(query, key, value, 64)
    assert torch.equal(before[:, :, :168], after[:, :, :168])
    assert after[:, :, 168:].isnan().all()
    assert len(calls) == 2


@needs_avx512
def test_large_scores_do_not_overflow(calls):
    query, key, value = (of.detach() for of in states_of(300, torch.float32, batch=1))
    found = local_attention(query * 100, key * 100, value, 64)
    exists = torch.ones(1, 300, dtype=torch.bool)
    wanted = densely(query.double() * 100, key.double() * 100, value.double(), 64, exists)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-3)
    assert calls


class Subclass(torch.Tensor):
    pass


def test_other_states_take_other_ways(monkeypatch):
    monkeypatch.setattr(kernel, "cpu_has", lambda name: name in (*kernel.INSTRUCTIONS, "avx512_bf16"))
    monkeypatch.setattr(kernel, "kernels", object)
    right = torch.zeros(1, 2, 8, 64)
    assert kernel.kernel_takes(right, right, right)
    assert kernel.kernel_takes(*[right.bfloat16()] * 3)
    assert kernel.kernel_takes(*[right[..., :32]] * 3)
    for other in (right.double(), right.half(), right[..., :48], right.transpose(2, 3).contiguous().transpose(2, 3)):
        assert not kernel.kernel_takes(other, other, other)
    assert not kernel.kernel_takes(right, right.bfloat16(), right)
    assert not kernel.kernel_takes(*[right.as_subclass(Subclass)] * 3)  # such as those without numbers
    monkeypatch.setattr(kernel, "kernels", lambda: None)
    assert not kernel.kernel_takes(right, right, right)
    monkeypatch.setattr(kernel, "kernels", object)
    monkeypatch.setattr(kernel, "cpu_has", lambda name: name in kernel.INSTRUCTIONS)
    assert kernel.kernel_takes(right, right, right)
    assert not kernel.kernel_takes(*[right.bfloat16()] * 3)
    monkeypatch.setattr(kernel, "cpu_has", lambda name: name == "avx512_f")
    assert not kernel.kernel_takes(right, right, right)


@needs_avx512
def test_with_amx_bfloat16_takes_torchs_kernel(calls, monkeypatch):
    monkeypatch.setattr(module, "cpu_has", lambda *names: "amx_bf16" in names)
    local_attention(*states_of(300, torch.bfloat16), 64)
    assert not calls


def test_a_file_that_is_no_library_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "liblocal_attention.so").write_text("no library", encoding="utf-8")
    monkeypatch.setattr(kernel, "__file__", str(tmp_path / "local_attention_kernel.py"))
    kernel.kernels.cache_clear()
    try:
        assert kernel.kernels() is None
    finally:
        kernel.kernels.cache_clear()


@needs_avx512
def test_no_memory_is_said(calls, monkeypatch):
    class Full:
        @staticmethod
        def local_attention_float32_64(*arguments):
            return 1

    monkeypatch.setattr(kernel, "kernels", Full)
    with pytest.raises(MemoryError, match="no memory for the keys of 300 tokens"):
        local_attention(*states_of(300, torch.float32, heads=8), 64)


@pytest.mark.parametrize("compiler", ["false", "no_such_compiler", None])
def test_wheels_have_the_kernel_where_it_was_compiled(build, tmp_path, monkeypatch, compiler):
    source = tmp_path / build.SOURCE
    source.parent.mkdir(parents=True)
    shutil.copy(ROOT / build.SOURCE, source)
    if compiler is not None:
        monkeypatch.setenv("CC", compiler)
    elif shutil.which("cc") is None or not HAS_AVX512:
        pytest.skip("needs a C compiler for AVX-512")
    data = {"artifacts": []}
    build.CustomBuildHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel").initialize("standard", data)
    if compiler is None:
        assert data["artifacts"] == [str(build.LIBRARY)]
        assert data["tag"].startswith("py3-none-linux_x86_64")
        assert (tmp_path / build.LIBRARY).name == Path(kernel.__file__).with_name("liblocal_attention.so").name
    else:
        assert data == {"artifacts": []}
    assert (tmp_path / build.LIBRARY).exists() == (compiler is None)
    assert len(list(source.parent.iterdir())) == (2 if compiler is None else 1)

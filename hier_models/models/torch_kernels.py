"""Kernels of torch that are fast, and not public or not everywhere: tried once, and where they fail done without."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils import _python_dispatch


def flash_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend on the CPU: (batch, heads, queries, head_dim), and log-sum-exp of scores, (batch, heads, queries)."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(query, key, value, attn_mask=mask, scale=scale)  # type: ignore[no-any-return]


def flash_attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attended: torch.Tensor,
    normalizer: torch.Tensor,
    *,
    mask: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of queries, keys and values."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    found = kernel(grad, query, key, value, attended, normalizer, 0.0, False, attn_mask=mask, scale=scale)
    return found  # type: ignore[no-any-return]


def is_watched() -> bool:
    """Whether something records or counts torch's operations or modules, and would miss what is none of them."""
    is_hooked = getattr(torch.nn.modules.module, "_has_any_global_hook", lambda: False)
    in_mode = getattr(_python_dispatch, "is_in_torch_dispatch_mode", lambda: False)
    transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)
    watches = torch.jit.is_tracing() or in_mode() or is_hooked()  # type: ignore[attr-defined, no-untyped-call]
    return watches or transforms() is not None


@functools.cache
def flash_attention_works() -> bool:
    """Whether `flash_attention` and its backward are there, take what we give, and give what we take them for."""
    return tries_well(_trial)


def tries_well(trial: Callable[..., bool], *arguments: Any) -> bool:
    """Whether a trial ends well, in a thread of its own.

    Nothing around the first call takes part in it, such as gradient checkpointing, inference mode or autocast.
    """
    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(trial, *arguments).result()
        except (AttributeError, ImportError, RuntimeError, TypeError, ValueError):
            return False


def _trial() -> bool:
    query, key, value, grad = torch.linspace(-1, 1, 4 * 24).sin().view(4, 1, 2, 4, 3)
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 0, 3] = -torch.inf
    attended, normalizer = flash_attention(query, key, value, mask=mask, scale=0.5)
    found = flash_attention_backward(grad, query, key, value, attended, normalizer, mask=mask, scale=0.5)
    leaves = [states.clone().requires_grad_() for states in (query, key, value)]
    scores = leaves[0] @ leaves[1].transpose(2, 3) * 0.5 + mask
    wanted = scores.softmax(dim=-1) @ leaves[2]
    gradients = torch.autograd.grad(wanted, leaves, grad)
    pairs = zip((attended, normalizer, *found), (wanted, scores.logsumexp(dim=-1), *gradients), strict=True)
    return all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)


def windowed_flash(
    query: torch.Tensor,  # (packed, heads, head_dim)
    key: torch.Tensor,  # (packed, heads, head_dim)
    value: torch.Tensor,  # (packed, heads, head_dim)
    *,
    starts: torch.Tensor,  # of documents, and the end of the last, (documents + 1,), int32
    longest: int,
    half: int,
    scale: float,
) -> torch.Tensor:
    """Attend on a GPU, in half precision, to `half` tokens on each side in the same document, and differentiably."""
    from torch.nn.attention.varlen import varlen_attn  # a second and a half, which only GPUs need

    near = (half, half)
    return varlen_attn(query, key, value, starts, starts, longest, longest, scale=scale, window_size=near)  # type: ignore[return-value]


def windowed_flash_works(query: torch.Tensor) -> bool:  # (batch, heads, tokens, head_dim)
    """Whether `windowed_flash` takes states like these, and gives what we take it for."""
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    head_dim = query.shape[-1]
    return head_dim % 8 == 0 and head_dim <= 192 and _windowed_flash_works_on(query.device, query.dtype)


@torch.compiler.assume_constant_result  # nothing to be traced
def _windowed_flash_works_on(device: torch.device, dtype: torch.dtype) -> bool:
    return _tried_windowed_flash(device, dtype)


@functools.cache
def _tried_windowed_flash(device: torch.device, dtype: torch.dtype) -> bool:
    return tries_well(windowed_trial, device, dtype)


def windowed_trial(device: torch.device, dtype: torch.dtype) -> bool:
    """Try `windowed_flash` and its gradients on two documents."""
    states = torch.linspace(-3, 3, 4 * 160, device=device).sin().view(4, 10, 2, 8).to(dtype)
    starts = torch.tensor([0, 4, 10], dtype=torch.int32, device=device)
    place, document = torch.arange(10, device=device), torch.arange(10, device=device) >= 4
    near = ((place[:, None] - place).abs() <= 2) & (document[:, None] == document)
    leaves = [of.clone().requires_grad_() for of in states[:3]]
    found = windowed_flash(*leaves, starts=starts, longest=6, half=2, scale=0.5)
    gradients = torch.autograd.grad(found, leaves, states[3])
    exact = [of.detach().float().requires_grad_() for of in leaves]
    query, key, value = (of.transpose(0, 1) for of in exact)  # (heads, packed, head_dim)
    scores = (query @ key.transpose(1, 2) * 0.5).masked_fill(~near, -torch.inf)
    wanted = (scores.softmax(dim=-1) @ value).transpose(0, 1)
    expected = torch.autograd.grad(wanted, exact, states[3].float())
    pairs = zip((found, *gradients), (wanted, *expected), strict=True)
    return all(torch.allclose(one.float(), other, atol=0.05) for one, other in pairs)

"""Operators of torch that are fast and not public: each is tried once, and where it fails another way is taken."""

import functools
from collections.abc import Callable

import torch


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


def int8_product(queries: torch.Tensor, keys: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Multiply (beams, size) in bfloat16 with (rows, size) in 8 bits, times (rows,): (beams, rows)."""
    return torch.ops.aten._weight_int8pack_mm(queries, keys, scales)  # type: ignore[no-any-return]


def _tried_once(trial: Callable[[], bool]) -> Callable[[], bool]:
    """Whether an operator is there, takes what we give it, and gives what we take it for."""

    @functools.cache
    def works() -> bool:
        try:
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                return trial()
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False

    return works


@_tried_once
def flash_attention_works() -> bool:
    """Whether `flash_attention` and its backward can be used."""
    query, key, value, grad = torch.linspace(-1, 1, 4 * 24).sin().view(4, 1, 2, 4, 3)
    mask = torch.zeros(1, 1, 4, 4)
    mask[..., 0, 3] = -torch.inf
    attended, normalizer = flash_attention(query, key, value, mask=mask, scale=0.5)
    found = flash_attention_backward(grad, query, key, value, attended, normalizer, mask=mask, scale=0.5)
    with torch.enable_grad():
        leaves = [states.clone().requires_grad_() for states in (query, key, value)]
        scores = leaves[0] @ leaves[1].transpose(2, 3) * 0.5 + mask
        wanted = scores.softmax(dim=-1) @ leaves[2]
        gradients = torch.autograd.grad(wanted, leaves, grad)
    pairs = zip((attended, normalizer, *found), (wanted, scores.logsumexp(dim=-1), *gradients), strict=True)
    return all(torch.allclose(one, other, atol=1e-4) for one, other in pairs)


@_tried_once
def int8_product_works() -> bool:
    """Whether `int8_product` can be used."""
    queries = torch.arange(-64, 64).view(2, 64).bfloat16()
    keys = (torch.arange(3 * 64) % 251 - 125).view(3, 64).to(torch.int8)
    scales = torch.tensor([0.5, 1.0, 2.0]).bfloat16()
    found = int8_product(queries, keys, scales).float()
    return torch.allclose(found, (queries.float() @ keys.float().T) * scales.float(), rtol=0.01, atol=1.0)

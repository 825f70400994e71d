"""An operator of torch that is fast and not public: it is tried once, and where it fails another way is taken."""

import functools

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


@functools.cache
def flash_attention_works() -> bool:
    """Whether `flash_attention` and its backward are there, take what we give, and give what we take them for."""
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return _trial()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False


def _trial() -> bool:
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

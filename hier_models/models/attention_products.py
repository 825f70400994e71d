"""Attention by batched matrix products on the CPU, forward and backward, with dropout of weights by bits.

For attention with dropout torch has no fused kernel there: it makes all weights, in float32, and keeps them for the
backward pass. Here those of some queries are made at a time, and made again in the backward pass, as may be whatever
costs little to make and much to keep.

Axes in shape comments: batch, heads, queries, keys, head_dim, blocks (of neighbouring queries).
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import torch
from torch import nn
from torch.compiler import is_compiling
from torch.utils.checkpoint import checkpoint


# Attention weights of each head that are held at once.
WEIGHTS_AT_ONCE = 2**17
LEAST_QUERIES = 64  # that share a product, however many keys there are


class Blocks(Protocol):
    """Queries and the keys that they see."""

    def hide(self, scores: torch.Tensor) -> torch.Tensor:
        """Take what a query does not see from (…, queries, keys), in place."""
        ...


class Products:
    """Attention of blocks by batched matrix products: twice as fast as the flash kernel in bfloat16 without AMX."""

    def __init__(self, scale: float, dropout: float):
        self.scale = scale
        self.dropped = max(1, round(dropout * 2**15)) if dropout else 0  # of 32,768 weights
        self.raised = 2**15 / max(1, 2**15 - self.dropped)  # what those that are kept are multiplied with

    def weights(self, blocks: Blocks, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Weights before dropout, (blocks * heads, queries, keys)."""
        scores = query.new_empty(len(query), query.shape[1], key.shape[1])
        scores.baddbmm_(query, key.transpose(1, 2), beta=0, alpha=self.scale)
        return torch.softmax(blocks.hide(scores), dim=-1, out=scores)

    def drop(self, weights: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        """Leave out weights, by fifteen random bits each: torch's own dropout mostly draws numbers, and compares."""
        drawn = torch.empty(-(-weights.numel() // 4), dtype=torch.int64)
        drawn.random_(-(2**63), None, generator=torch.Generator().manual_seed(int(seed)))
        bits = drawn.view(torch.int16)[: weights.numel()].view_as(weights)
        # All bits of what is kept, whose fifteen are at least `dropped`; none of the others.
        kept = bits.bitwise_and_(2**15 - 1).neg_().add_(self.dropped - 1).bitwise_right_shift_(15)
        if weights.element_size() == kept.element_size():
            return (weights.view(torch.int16) & kept).view(weights.dtype)
        return weights * kept.neg_()

    def attend(self, blocks: Blocks, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Attend from (blocks, heads, queries, head_dim) to (blocks, heads, keys, head_dim)."""
        query, key, value = map(laid_out, states)
        weights = self.weights(blocks, query, key)
        if not self.dropped:
            return ((weights @ value).unflatten(0, (len(states[0]), -1)),)
        seed = torch.randint(2**62, ())  # for the backward to draw the same
        return (self.drop(weights, seed) @ value).mul_(self.raised).unflatten(0, (len(states[0]), -1)), seed

    def gradients(self, blocks: Blocks, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients of queries, keys and values."""
        grad, query, key, value, attended = map(laid_out, states[:5])
        weights = kept = self.weights(blocks, query, key)
        delta = (grad * attended).sum(dim=-1, keepdim=True)  # (blocks * heads, queries, 1)
        if self.dropped:
            kept, grad = self.drop(weights, states[5]), grad * self.raised
            grad_scores = (grad @ value.transpose(1, 2)).mul_(kept).addcmul_(weights, delta, value=-1)
        else:
            grad_scores = torch.baddbmm(delta, grad, value.transpose(1, 2), beta=-1).mul_(weights)
        grad_value = kept.transpose(1, 2) @ grad  # (blocks * heads, keys, head_dim)
        grad_query = torch.baddbmm(query, grad_scores, key, beta=0, alpha=self.scale)
        grad_key = torch.baddbmm(key, grad_scores.transpose(1, 2), query, beta=0, alpha=self.scale)
        return tuple(found.unflatten(0, (len(states[0]), -1)) for found in (grad_query, grad_key, grad_value))


def laid_out(states: torch.Tensor) -> torch.Tensor:
    """States as they are multiplied, (blocks * heads, …)."""
    return states.to(product_dtype(states.dtype)).flatten(0, 1).contiguous()


@functools.cache
def cpu_has(*names: str) -> bool:
    """Whether this CPU has one of some sets of instructions, by torch's names of them."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older torch lacks it
    return any(capabilities.get(name) for name in names)


def product_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type to multiply in: float32 in the place of a narrower one that this CPU has no instructions for."""
    if dtype == torch.bfloat16 and cpu_has("avx512_bf16", "amx_bf16", "bf16"):
        return dtype
    return torch.promote_types(dtype, torch.float32)


def drops_fast(attention: Any, dropout: float, states: torch.Tensor, mask: Any) -> bool:
    """Whether a module is to take `attend_with_dropout` in the place of torch's attention."""
    drops = attention.training and dropout > 0 and attention.config._attn_implementation == "sdpa"
    is_mask = mask is None or (isinstance(mask, torch.Tensor) and mask.dtype == torch.bool)
    return drops and is_mask and states.device.type == "cpu" and not torch.compiler.is_compiling()


def attend_with_dropout(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    scale: float,
) -> torch.Tensor:
    """Scaled dot product attention on the CPU, some of whose weights are left out at random.

    Args:
        query: (batch, heads, queries, head_dim).
        key: (batch, heads, keys, head_dim).
        value: (batch, heads, keys, head_dim).
        mask: (batch or 1, 1, queries or 1, keys), true for keys that a query sees; None if it sees all.
        dropout: probability of leaving out a weight.
        scale: factor of the scores.

    Returns:
        (batch, heads, queries, head_dim), laid out as (batch, queries, heads, head_dim).
    """
    attended: torch.Tensor = _AttendWithDropout.apply(query, key, value, mask, dropout, scale)
    return attended


class _Seen:
    """Some queries of a document, and which keys they see."""

    def __init__(self, mask: torch.Tensor | None, part: slice):  # mask (queries or 1, keys)
        self.hidden = None if mask is None else ~(mask if len(mask) == 1 else mask[part])

    def hide(self, scores: torch.Tensor) -> torch.Tensor:
        # Not infinity, for the sake of queries that see nothing.
        return scores if self.hidden is None else scores.masked_fill_(self.hidden, torch.finfo(scores.dtype).min)


def _parts(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> Iterator[tuple[int, slice, _Seen]]:
    """Some queries of each document at a time."""
    batch, _, queries, _ = query.shape
    size = max(LEAST_QUERIES, WEIGHTS_AT_ONCE // max(1, key.shape[2]))
    for document in range(batch):
        its_mask = None if mask is None else mask.expand(batch, -1, -1, -1)[document, 0]
        if its_mask is not None and its_mask.all():
            its_mask = None
        for start in range(0, queries, size):
            part = slice(start, min(start + size, queries))
            yield document, part, _Seen(its_mask, part)


class _AttendWithDropout(torch.autograd.Function):
    """Attention with dropout, some queries at a time."""

    @staticmethod
    @torch.autocast("cpu", enabled=False)
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        dropout: float,
        scale: float,
    ) -> torch.Tensor:
        products, seeds = Products(scale, dropout), []
        attended = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
        for document, part, seen in _parts(query, key, mask):
            states = (query[document, :, part], key[document], value[document])
            found, seed = products.attend(seen, *(one[None] for one in states))
            attended[document, :, part] = found[0]
            seeds.append(seed)
        ctx.save_for_backward(query, key, value, mask, attended, *seeds)
        ctx.products = products
        return attended

    @staticmethod
    @torch.autograd.function.once_differentiable
    @torch.autocast("cpu", enabled=False)
    def backward(  # type: ignore[override]
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        query, key, value, mask, attended, *seeds = ctx.saved_tensors
        # A key's gradient is a sum over queries: in float32 at least, and laid out as the projections want it.
        wide = torch.promote_types(query.dtype, torch.float32)
        of_query, of_key, of_value = (
            torch.zeros_like(one.transpose(1, 2), dtype=dtype, memory_format=torch.contiguous_format).transpose(1, 2)
            for one, dtype in ((query, query.dtype), (key, wide), (value, wide))
        )
        for (document, part, seen), seed in zip(_parts(query, key, mask), seeds, strict=True):
            states = (grad[document, :, part], query[document, :, part], key[document], value[document])
            states = (*(one[None] for one in states), attended[document, :, part][None])
            found = ctx.products.gradients(seen, *states, seed)
            of_query[document, :, part] = found[0][0]
            of_key[document] += found[1][0]
            of_value[document] += found[2][0]
        return of_query, of_key.to(key.dtype), of_value.to(value.dtype), None, None, None


def made_again(
    function: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor, linear: nn.Module, is_pure: bool
) -> torch.Tensor:
    """Apply a function, pure if it has no weights and draws nothing, then a linear layer; only `inputs` are kept."""
    if not inputs.requires_grad or is_compiling():  # a compiler decides by itself what it keeps
        return linear(function(inputs))  # type: ignore[no-any-return]
    if is_pure and _is_plain(linear):
        return _ThenLinear.apply(inputs, linear.weight, linear.bias, function)  # type: ignore[no-any-return]
    # Stops before the linear layer, whose output nothing asks for.
    # Numbers are drawn again as they were: an adapter may have a dropout of its own.
    return cast(torch.Tensor, checkpoint(lambda states: linear(function(states)), inputs, use_reentrant=False))


def _is_plain(linear: nn.Module) -> bool:
    """Whether nothing but a product happens in a layer: no adapter, hook, offloading or shard of a weight."""
    hooks = (linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks, linear._backward_pre_hooks)
    is_linear = type(linear) is nn.Linear and type(linear.weight) is nn.Parameter
    return is_linear and not any(hooks) and "forward" not in vars(linear)


class _ThenLinear(torch.autograd.Function):
    """A function of each number, then a linear layer: what `checkpoint` does, for half of its overhead."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        function: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        ctx.save_for_backward(inputs, weight)
        device = inputs.device.type
        casts = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        ctx.function, ctx.device, ctx.casts = function, device, casts
        return nn.functional.linear(function(inputs), weight, bias)

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        of_inputs = of_weight = of_bias = None
        twice = torch.is_grad_enabled()  # gradients of gradients are asked for
        as_before = torch.autocast(ctx.device, dtype=ctx.casts, enabled=ctx.casts is not None)
        with torch.enable_grad(), as_before:
            leaf = inputs if twice else inputs.detach().requires_grad_()
            expanded = ctx.function(leaf)
        rows = grad.reshape(-1, grad.shape[-1])
        if ctx.needs_input_grad[0]:
            of_expanded = grad @ weight.to(grad.dtype)
            (of_inputs,) = torch.autograd.grad(expanded, leaf, of_expanded, create_graph=twice)
        if ctx.needs_input_grad[1]:
            made = expanded if twice else expanded.detach()
            of_weight = rows.t() @ made.to(grad.dtype).reshape(-1, made.shape[-1])
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(dim=0)
        return of_inputs, of_weight, of_bias, None

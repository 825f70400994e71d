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


# Attention weights of each head that are held at once; here, twice as many in half precision.
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
        self.dropped = round(dropout * 2**15)  # of 32,768 weights
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


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for products in bfloat16: AVX512-BF16, AMX, or those of ARM."""
    return cpu_has("avx512_bf16", "amx_bf16", "bf16")


def product_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type to multiply in: float32 in the place of a narrower one that this CPU has no instructions for."""
    if dtype == torch.bfloat16 and multiplies_bfloat16():
        return dtype
    return torch.promote_types(dtype, torch.float32)


def products_are_fast(attention: Any, dropout: float, states: torch.Tensor, mask: Any) -> bool:
    """Whether a module is to take `attend_by_products`: where weights are dropped, and to learn in bfloat16."""
    drops = attention.training and dropout > 0
    learns = states.requires_grad and torch.is_grad_enabled() and states.dtype == torch.bfloat16
    is_mask = mask is None or (isinstance(mask, torch.Tensor) and mask.dtype == torch.bool)
    return (
        (drops or (learns and product_dtype(states.dtype) == states.dtype))
        and is_mask
        and attention.config._attn_implementation == "sdpa"
        and states.device.type == "cpu"
        and not torch.compiler.is_compiling()
    )


def attend_by_products(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    scale: float,
) -> torch.Tensor:
    """Scaled dot product attention on the CPU, some of whose weights may be left out at random.

    Without dropout torch's kernel attends, and the backward pass alone is of products: the one of torch spends most of
    its time, in bfloat16, on getting ready to multiply, the more of it the fewer tokens there are.

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
    attended: torch.Tensor = _AttendByProducts.apply(query, key, value, mask, dropout, scale)
    return attended


class _Seen:
    """Some queries of documents, and which keys they see."""

    def __init__(self, mask: torch.Tensor | None, part: slice):  # mask (documents, 1, queries or 1, keys)
        self.hidden = None if mask is None else ~(mask if mask.shape[2] == 1 else mask[:, :, part])
        if self.hidden is not None and torch.equal(first := self.hidden[:, :, :1].expand_as(self.hidden), self.hidden):
            self.hidden = first[:, :, :1]

    def hide(self, scores: torch.Tensor) -> torch.Tensor:  # (documents * heads, queries, keys)
        if self.hidden is None:
            return scores
        least = torch.finfo(scores.dtype).min  # not infinity, for the sake of queries that see nothing
        documents = scores.unflatten(0, (len(self.hidden), -1))
        if self.hidden.shape[2] > 1:
            documents.masked_fill_(self.hidden, least)
            return scores
        for document, hidden in zip(documents, self.hidden[:, 0, 0], strict=True):  # keys that none sees, mostly few
            document.index_fill_(-1, hidden.nonzero().flatten(), least)
        return scores


def _parts(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> Iterator[tuple[slice, slice, _Seen]]:
    """Some documents, or some queries of one, at a time."""
    batch, _, queries, _ = query.shape
    size = max(LEAST_QUERIES, 4 * WEIGHTS_AT_ONCE // query.element_size() // max(1, key.shape[2]))
    for first in range(0, batch, together := max(1, size // max(1, queries))):
        documents = slice(first, min(first + together, batch))
        its_mask = None if mask is None else mask.expand(batch, -1, -1, -1)[documents]
        if its_mask is not None and its_mask.all():
            its_mask = None
        for start in range(0, max(1, queries), size):
            part = slice(start, min(start + size, queries))
            yield documents, part, _Seen(its_mask, part)


class _AttendByProducts(torch.autograd.Function):
    """Attention, some queries at a time."""

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
        if products.dropped:
            attended = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
            for documents, part, seen in _parts(query, key, mask):
                states = query[documents, :, part], key[documents], value[documents]
                attended[documents, :, part], seed = products.attend(seen, *states)
                seeds.append(seed)
        else:
            attended = nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scale)
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
        if not (seeds or mask is None or (sees := mask.any(dim=-1, keepdim=True)).all()):
            grad = grad * sees  # queries that see nothing got zeros, from which nothing is learned
        # A key's gradient is a sum over queries: in float32 at least, and laid out as the projections want it.
        wide = torch.promote_types(query.dtype, torch.float32)
        of_query, of_key, of_value = (
            torch.empty_like(one.transpose(1, 2), dtype=dtype, memory_format=torch.contiguous_format).transpose(1, 2)
            for one, dtype in ((query, query.dtype), (key, wide), (value, wide))
        )
        for number, (documents, part, seen) in enumerate(_parts(query, key, mask)):
            asked, keys, values = query[documents, :, part], key[documents], value[documents]
            states = grad[documents, :, part], asked, keys, values, attended[documents, :, part]
            of_query[documents, :, part], *found = ctx.products.gradients(seen, *states, *seeds[number : number + 1])
            for whole, its_part in zip((of_key[documents], of_value[documents]), found, strict=True):
                whole.add_(its_part) if part.start else whole.copy_(its_part)
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
    is_linear = type(linear) is nn.Linear and type(linear.weight) is nn.Parameter
    return is_linear and is_as_made(linear) and not (linear._backward_hooks or linear._backward_pre_hooks)


def is_as_made(module: nn.Module) -> bool:
    """Whether nothing was put before, behind or in the place of what a module does forwards."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


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

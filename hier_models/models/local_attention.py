"""Local self-attention: an exact sliding window whose time and memory grow linearly with the number of tokens.

Source: Pang et al., "Long Document Summarization with Top-down and Bottom-up Inference", section 2.1, appendix B.1. A
block of neighbouring queries shares its keys, and a mask cuts the band out of it. On the CPU the blocks are views;
forward and backward call torch's flash kernel on them in float32, and batched matrix products in other types and with
dropout; with AMX, the forward calls the flash kernel in bfloat16 too. With AVX-512, and in float32 with AVX2, a
compiled kernel of our own takes the place of both in the forward. On a GPU, in half precision and without dropout,
torch's flash kernel for documents of several lengths takes the window itself; padding is left out of what it sees.

Axes in shape comments: batch, heads, tokens, head_dim, blocks (of queries), keys (that a block of queries can see),
packed (tokens of all documents, without padding).
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bart.modeling_bart import BartAttention

from .attention_kernel import attend_with_kernel, kernel_takes
from .attention_products import WEIGHTS_AT_ONCE, Products, cpu_has
from .bart_body import attend, attention_sizes, projections
from .input_checks import refuse_flex_dropout
from .torch_kernels import (
    flash_attention,
    flash_attention_backward,
    flash_attention_works,
    windowed_flash,
    windowed_flash_works,
)


class Packing(NamedTuple):
    """Where the tokens of a batch are, so that documents can lie one behind the other without padding."""

    exists: torch.Tensor  # true for tokens, false for padding, (batch, tokens)
    places: torch.Tensor  # of the tokens in (batch * tokens), (packed,)
    starts: torch.Tensor  # of each document among the packed, and behind the last its end, (batch + 1,), int32
    longest: int  # tokens of a document


class TopDownTransformerLocalAttention(BartAttention):
    """BART's attention in a window, the way `config._attn_implementation` says. Source: section 2.1, appendix B.1."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int | None = None):
        super().__init__(**attention_sizes(config, "encoder", layer_idx))
        self.window = config.attention_window

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, tokens, d_model)
        attention_mask: torch.Tensor | BlockMask | Packing | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend."""
        query, key, value = projections(self, hidden_states)  # (batch, heads, tokens, head_dim)
        dropout = self.dropout if self.training else 0.0
        refuse_flex_dropout(self.config._attn_implementation, dropout)
        weights = None
        if self.config._attn_implementation == "sdpa":
            attended = _attend_locally(query, key, value, self.window, attention_mask, dropout, self.scaling)
            attended = attended.transpose(1, 2)  # (batch, tokens, heads, head_dim)
        else:
            kwargs["sliding_window"] = self.window // 2 + 1  # read by flash attention: it counts the token itself
            attended, weights = attend(self, query, key, value, attention_mask, **kwargs)
        return self.out_proj(attended.flatten(2)), weights


def create_local_attention_mask(
    config: PreTrainedConfig,
    inputs_embeds: torch.Tensor,  # (batch, tokens, d_model)
    attention_mask: torch.Tensor | None,  # (batch, tokens)
) -> torch.Tensor | BlockMask | Packing | None:
    """Make the mask that `TopDownTransformerLocalAttention` takes, once for all layers."""
    implementation = config._attn_implementation
    if implementation == "sdpa":
        if attention_mask is None:
            return None
        return _packed_on_gpu(attention_mask.to(device=inputs_embeds.device, dtype=torch.bool))
    if implementation == "flex_attention":
        return _flex_block_mask(inputs_embeds, config.attention_window, attention_mask)
    if "flash" in implementation:
        return create_bidirectional_mask(config, inputs_embeds, attention_mask)
    half = config.attention_window // 2
    return create_bidirectional_mask(
        config,
        inputs_embeds,
        attention_mask,
        and_mask_function=lambda batch, head, query, key: (query - key).abs() <= half,
    )


def _attend_locally(
    query: torch.Tensor,  # (batch, heads, tokens, head_dim)
    key: torch.Tensor,
    value: torch.Tensor,
    window: int,
    attention_mask: torch.Tensor | Packing | None,  # of truth values
    dropout: float,
    scale: float,
) -> torch.Tensor:  # (batch, heads, tokens, head_dim)
    """Attend the fastest way there is for a device, a type and a padding."""
    if query.device.type == "cpu" and not torch.compiler.is_compiling():
        spans = _document_spans(query, attention_mask)
        if spans is not None:
            return _BlocksOnCpu.apply(query, key, value, window, dropout, scale, spans)
    is_packed = attention_mask is None or isinstance(attention_mask, Packing)
    if is_packed and not dropout and windowed_flash_works(query):
        return _attend_packed(query, key, value, window, attention_mask, scale)
    if isinstance(attention_mask, Packing):
        attention_mask = attention_mask.exists
    return _attend_in_blocks(query, key, value, window, attention_mask, dropout, scale)


def _packed_on_gpu(exists: torch.Tensor) -> Packing | torch.Tensor | None:
    return _pack(exists) if exists.is_cuda and not torch.compiler.is_compiling() else exists


def _pack(exists: torch.Tensor) -> Packing | torch.Tensor | None:  # (batch, tokens)
    """Find where tokens are: `None` if everywhere; what is given if nowhere, or padding stands among them."""
    _, lengths, is_whole = _spans(exists)
    # One look at values, for which all that was asked of the GPU has to be waited for.
    whole, longest, packed = torch.stack([is_whole, lengths.amax(), lengths.sum()]).tolist()
    if packed == exists.numel():
        return None
    if not (whole and packed):
        return exists
    starts = nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return Packing(exists, exists.flatten().nonzero()[:, 0], starts, longest)


def _attend_packed(
    query: torch.Tensor,  # (batch, heads, tokens, head_dim)
    key: torch.Tensor,
    value: torch.Tensor,
    window: int,
    packing: Packing | None,
    scale: float,
) -> torch.Tensor:  # (batch, heads, tokens, head_dim), zeros at padding
    """Local attention by a kernel that takes documents one behind the other, and the window."""
    batch, heads, tokens, head_dim = query.shape
    states = [of.transpose(1, 2).reshape(batch * tokens, heads, head_dim) for of in (query, key, value)]
    if packing is None:
        starts, longest = torch.arange(batch + 1, dtype=torch.int32, device=query.device) * tokens, tokens
    else:
        states = [of[packing.places] for of in states]  # (packed, heads, head_dim)
        starts, longest = packing.starts, packing.longest
    attended = windowed_flash(*states, starts=starts, longest=longest, half=window // 2, scale=scale)
    if packing is not None:
        everywhere = attended.new_zeros(batch * tokens, heads, head_dim)
        attended = everywhere.index_copy(0, packing.places, attended)
    return attended.view(batch, tokens, heads, head_dim).transpose(1, 2)


def _document_spans(query: torch.Tensor, attention_mask: torch.Tensor | None) -> list[tuple[int, int]] | None:
    """First and last token (excluded) of each document, or `None` if padding stands inside of one."""
    batch, tokens = query.shape[0], query.shape[2]
    if attention_mask is None:
        return [(0, tokens)] * batch
    starts, lengths, is_whole = _spans(attention_mask)
    if not is_whole:
        return None
    return [(start, start + length) for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)]


def _spans(exists: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """First token of each document and its length, (batch,), and whether padding stands at ends only."""
    starts = exists.int().argmax(dim=1)  # the first of the largest
    lengths = exists.sum(dim=1)
    places = torch.arange(exists.shape[1], device=exists.device)
    filled = (places >= starts[:, None]) & (places < (starts + lengths)[:, None])
    return starts, lengths, (filled == exists).all()


class _Blocks(NamedTuple):
    """Neighbouring blocks of queries that see equally many keys, at equal distances."""

    half: int  # of the window
    first_query: int
    first_key: int  # of the first block; that of the next lies `size` further
    size: int  # queries in a block
    count: int
    keys: int  # seen by a block

    def split_queries(self, states: torch.Tensor) -> torch.Tensor:
        """View (heads, tokens, …) as (blocks, heads, queries, …)."""
        end = self.first_query + self.count * self.size
        return states[:, self.first_query : end].unflatten(1, (self.count, self.size)).transpose(0, 1)

    def split_keys(self, states: torch.Tensor) -> torch.Tensor:
        """View (heads, tokens, head_dim) as overlapping (blocks, heads, keys, head_dim)."""
        end = self.first_key + (self.count - 1) * self.size + self.keys
        return states[:, self.first_key : end].unfold(1, self.keys, self.size).permute(1, 0, 3, 2)

    @property
    def corners(self) -> tuple[int, int]:
        """The key behind the first ones that some queries do not see, and the first of such at the end."""
        offset = self.first_query - self.first_key
        return max(0, self.size - 1 + offset - self.half), min(offset + self.half + 1, self.keys)

    def hide(self, scores: torch.Tensor) -> torch.Tensor:
        """Take what lies outside of the band from (…, queries, keys): two triangles, in corners."""
        left, right = self.corners
        if left > 0:
            scores[..., :left] += scores.new_full((self.size, left), -torch.inf).tril_(left - self.size)
        if right < self.keys:
            scores[..., right:] += scores.new_full((self.size, self.keys - right), -torch.inf).triu_()
        return scores


def _divide(tokens: int, window: int) -> Iterator[_Blocks]:
    """Divide a document into blocks; those in its middle, which all look alike, go together."""
    half = window // 2
    size = min(256, max(64, half))  # few to waste little outside of the band, many for the matrix units
    if tokens <= half + 1:  # all see all
        size = max(tokens, 1)
    together = max(1, WEIGHTS_AT_ONCE // (size * (size + 2 * half)))
    start = 0
    while start < tokens:
        rest = tokens - start
        inside = (rest - half) // size if start >= half else 0  # blocks whose window lies inside the document
        if inside > 0:
            count = min(inside, together)
            yield _Blocks(half, start, start - half, size, count, size + 2 * half)
            start += count * size
        else:
            queries = min(size, rest)
            first_key = max(0, start - half)
            yield _Blocks(half, start, first_key, queries, 1, min(tokens, start + queries + half) - first_key)
            start += queries


class _Flash:
    """Attention of blocks by torch's flash kernel: the fastest in float32, and forwards with AMX."""

    def __init__(self, scale: float):
        self.scale = scale
        self.masks: dict[tuple[int, int, int], torch.Tensor | None] = {}  # equal ones are made once

    def mask(self, blocks: _Blocks, dtype: torch.dtype) -> torch.Tensor | None:
        """What to add to scores, (1, 1, queries, keys), or `None` if every query sees every key."""
        kind = (blocks.first_key - blocks.first_query, blocks.size, blocks.keys)
        if kind not in self.masks:
            hides = blocks.corners != (0, blocks.keys)
            self.masks[kind] = blocks.hide(torch.zeros(1, 1, blocks.size, blocks.keys, dtype=dtype)) if hides else None
        return self.masks[kind]

    def attend(self, blocks: _Blocks, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Attend from (blocks, heads, queries, head_dim) to (blocks, heads, keys, head_dim)."""
        return flash_attention(*states, mask=self.mask(blocks, states[0].dtype), scale=self.scale)

    def gradients(self, blocks: _Blocks, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients of queries, keys and values."""
        return flash_attention_backward(*states, mask=self.mask(blocks, states[0].dtype), scale=self.scale)


def _kernels(dtype: torch.dtype, scale: float, dropout: float) -> tuple[_Flash | Products, ...]:
    """What is fastest forwards, and backwards."""
    products = Products(scale, dropout)
    if dropout or not flash_attention_works():
        return products, products
    flash = _Flash(scale)
    if dtype == torch.float32:
        return flash, flash
    return (flash if dtype == torch.bfloat16 and cpu_has("amx_bf16") else products), products


class _BlocksOnCpu(torch.autograd.Function):
    """Local attention over blocks that are views."""

    @staticmethod
    @torch.autocast("cpu", enabled=False)
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        window: int,
        dropout: float,
        scale: float,
        spans: list[tuple[int, int]],
    ) -> torch.Tensor:
        is_whole = sum(end - start for start, end in spans) == query.shape[0] * query.shape[2]  # without padding
        make = torch.empty_like if is_whole else torch.zeros_like
        attended = make(query.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
        wanted = any(ctx.needs_input_grad)
        kernel, backward_kernel = _kernels(query.dtype, scale, dropout)
        # For the backward of each call: log-sum-exp of the scores, (blocks, heads, queries), or the seed of dropout.
        others = []
        # In float32, where all documents see all of themselves, they are BART's to the bit.
        is_local = query.dtype != torch.float32 or any(end - start > window // 2 + 1 for start, end in spans)
        if is_local and not dropout and kernel_takes(query, key, value):
            normalizer = attend_with_kernel(query, key, value, attended, spans, window // 2, scale)[..., None]
            if wanted and isinstance(backward_kernel, _Flash):
                for document, blocks in _walk(spans, window):
                    others.append(blocks.split_queries(normalizer[document])[..., 0].contiguous())
        else:
            for document, blocks in _walk(spans, window):
                output, *other = kernel.attend(
                    blocks,
                    blocks.split_queries(query[document]),
                    blocks.split_keys(key[document]),
                    blocks.split_keys(value[document]),
                )
                blocks.split_queries(attended[document]).copy_(output)
                if wanted and kernel is backward_kernel:
                    others += other
        ctx.save_for_backward(query, key, value, attended, *others)
        ctx.window, ctx.spans, ctx.kernel = window, spans, backward_kernel
        return attended

    @staticmethod
    @torch.autograd.function.once_differentiable
    @torch.autocast("cpu", enabled=False)
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, attended, *others = ctx.saved_tensors
        # A key's gradient is a sum over blocks: in float32 at least, and laid out as the projections want it.
        wide = torch.promote_types(query.dtype, torch.float32)
        layout = query.transpose(1, 2)
        grad_query = torch.zeros_like(layout, memory_format=torch.contiguous_format).transpose(1, 2)
        grad_key, grad_value = (
            torch.zeros_like(layout, dtype=wide, memory_format=torch.contiguous_format).transpose(1, 2)
            for _ in range(2)
        )
        other_of = iter(others)
        for document, blocks in _walk(ctx.spans, ctx.window):
            block_query, *block_keys = ctx.kernel.gradients(
                blocks,
                blocks.split_queries(grad[document]),
                blocks.split_queries(query[document]),
                blocks.split_keys(key[document]),
                blocks.split_keys(value[document]),
                blocks.split_queries(attended[document]),
                *itertools.islice(other_of, 1),
            )
            blocks.split_queries(grad_query[document]).copy_(block_query)
            for total, parts in zip((grad_key[document], grad_value[document]), block_keys, strict=True):
                for number, part in enumerate(parts):
                    start = blocks.first_key + number * blocks.size
                    total[:, start : start + blocks.keys] += part
        return grad_query, grad_key.to(key.dtype), grad_value.to(value.dtype), None, None, None, None


def _walk(spans: list[tuple[int, int]], window: int) -> Iterator[tuple[int, _Blocks]]:
    """All blocks of all documents, each with the number of its document."""
    for document, (start, end) in enumerate(spans):
        for blocks in _divide(end - start, window):
            place = blocks._replace(first_query=start + blocks.first_query, first_key=start + blocks.first_key)
            yield document, place


def _attend_in_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    window: int,
    attention_mask: torch.Tensor | None,
    dropout: float,
    scale: float,
) -> torch.Tensor:
    """Local attention by masked blocks through `scaled_dot_product_attention`, on any device."""
    batch, _, tokens, _ = query.shape
    half = window // 2
    size = min(max(128, half), tokens)  # queries in a block
    count = -(-tokens // size)
    keys = size + 2 * half
    lacking = count * size - tokens

    def split_queries(states: torch.Tensor) -> torch.Tensor:  # (batch, blocks, heads, size, head_dim)
        return nn.functional.pad(states, (0, 0, 0, lacking)).unflatten(2, (count, size)).transpose(1, 2)

    def split_keys(states: torch.Tensor) -> torch.Tensor:  # (batch, blocks, heads, keys, head_dim), overlapping
        padded = nn.functional.pad(states, (0, 0, half, half + lacking))
        return padded.unfold(2, keys, size).permute(0, 2, 1, 4, 3)

    if attention_mask is None:
        attention_mask = torch.ones(1, tokens, dtype=torch.bool, device=query.device)
    exists = nn.functional.pad(attention_mask.bool(), (half, half + lacking)).unfold(1, keys, size)
    exists = exists[:, :, None, None]  # (batch or 1, blocks, 1, 1, keys)
    distance = torch.arange(keys, device=query.device) - half - torch.arange(size, device=query.device)[:, None]
    # The token itself always, for the sake of rows of padding: softmax over nothing is not a number.
    visible = (exists & (distance.abs() <= half)) | (distance == 0)  # (batch or 1, blocks, 1, size, keys)

    operands = (split_queries(query), split_keys(key), split_keys(value), visible.expand(batch, *visible.shape[1:]))
    blocked_query, blocked_key, blocked_value, mask = (operand.flatten(0, 1) for operand in operands)
    attended = nn.functional.scaled_dot_product_attention(
        blocked_query, blocked_key, blocked_value, attn_mask=mask, dropout_p=dropout, scale=scale
    ).unflatten(0, (batch, count))
    return attended.transpose(1, 2).flatten(2, 3)[:, :, :tokens]


def _flex_block_mask(inputs_embeds: torch.Tensor, window: int, attention_mask: torch.Tensor | None) -> BlockMask:
    """Block mask of the band for FlexAttention, made without looking at every pair of tokens."""
    batch, tokens = inputs_embeds.shape[:2]
    device, half, size = inputs_embeds.device, window // 2, 128
    exists = None if attention_mask is None else attention_mask.to(device=device, dtype=torch.bool)

    def visible(batch_idx: torch.Tensor, _: torch.Tensor, query_idx: torch.Tensor, key_idx: torch.Tensor) -> Any:
        near = (query_idx - key_idx).abs() <= half
        return near if exists is None else near & exists[batch_idx, key_idx]

    blocks = -(-tokens // size)
    row = torch.arange(blocks, device=device, dtype=torch.int32)
    first = (row - (half + size - 1) // size).clamp(min=0)
    last = (row + (half + size - 1) // size).clamp(max=blocks - 1)
    count = last - first + 1
    # Every row lists its own blocks first; what stands behind them is not read.
    indices = ((first[:, None] + row) % blocks).to(torch.int32)
    return BlockMask.from_kv_blocks(
        count[None, None].expand(batch, 1, -1).contiguous(),
        indices[None, None].expand(batch, 1, -1, -1).contiguous(),
        BLOCK_SIZE=size,
        mask_mod=visible,
        seq_lengths=(tokens, tokens),
    )

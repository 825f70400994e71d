"""Highlighting attention: attention weights raised inside key phrases, in some of the heads.

Source: Liu et al., "Highlight-Transformer", section 3, equations 1 to 5. Every way of attending is the plain attention
of all heads, and then a correction of the few highlighted rows of a `Band`: "sdpa" on the CPU corrects what torch's
flash kernel returns, "flex_attention" on a GPU corrects too; else, compiled, or with dropout of attention weights,
rows attend once more. "eager" holds the dense matrix, for short inputs and for attention weights.

Axes in shape comments: batch, heads, tokens (of the source), head_dim, phrases (occurrences in a document), rows
(tokens inside of phrases, padded to the most in the batch), width (entries of a row of the band).
"""

from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling
from torch.nn.attention.flex_attention import AuxRequest, BlockMask
from torch.utils.checkpoint import checkpoint
from transformers.configuration_utils import PreTrainedConfig
from transformers.integrations.flex_attention import compile_friendly_flex_attention
from transformers.models.bart.modeling_bart import BartAttention

from .bart_body import attend, attention_sizes, projections
from .flash_highlighting import attend_on_cpu, correct_rows
from .highlight_band import Band, softmax_of_entries
from .input_checks import refuse_flex_dropout
from .torch_kernels import flash_attention_works


# Entries of the scores of highlighted rows that are held at once, for each document.
SCORES_AT_ONCE = 2**22


class HighlightTransformerSelfAttention(BartAttention):
    """BART's self-attention with some heads highlighted, and BART's parameters. Source: section 3.3, equation 5."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(**attention_sizes(config, "encoder", layer_idx))
        self.highlighted_heads = config.highlight_heads if layer_idx in config.highlighted_layers else 0
        self.highlighting = config.highlighting

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, tokens, d_model)
        attention_mask: torch.Tensor | BlockMask | None = None,
        band: Band | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend."""
        query, key, value = projections(self, hidden_states)  # (batch, heads, tokens, head_dim)
        dropout = self.dropout if self.training else 0.0
        implementation, device = self.config._attn_implementation, query.device.type
        refuse_flex_dropout(implementation, dropout)
        heads, how, scale = self.highlighted_heads, self.highlighting, self.scaling
        if not heads:
            band = None
        weights = None
        if band is not None and implementation == "eager":
            attended, weights = _attend_densely(query, key, value, attention_mask, band, heads, how, dropout, scale)
        elif band is not None and implementation == "sdpa" and _gives_its_kernel(device, dropout):
            attended = attend_on_cpu(query, key, value, band, heads, how, scale)
        elif band is not None and how == "weighted" and _gives_normalizer(implementation, device):
            attended, normalizer = _flex(query, key, value, attention_mask, scale, self.training)
            attended = correct_rows(attended, normalizer, query, key, value, band, heads, scale)
        else:
            attended, weights = attend(self, query, key, value, attention_mask, **kwargs)
            attended = attended.transpose(1, 2)
            if band is not None:
                attended = highlight_rows(attended, query, key, value, band, heads, how, dropout, scale)
        attended = attended.transpose(1, 2).flatten(2)
        return self.out_proj(attended), weights


def _gives_normalizer(implementation: str, device: str) -> bool:
    """Tell whether the logarithm of the sum of exponentials can be had: FlexAttention for CPUs does not give it."""
    return implementation == "flex_attention" and device != "cpu" and not is_compiling()


def _gives_its_kernel(device: str, dropout: float) -> bool:
    """Tell whether torch's flash kernel for CPUs can be called."""
    return device == "cpu" and not (dropout or is_compiling()) and flash_attention_works()


def _flex(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    block_mask: BlockMask | None,
    scale: float,
    training: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention by FlexAttention, and the logarithm of the sum of exponentials, in float32."""
    attended, others = compile_friendly_flex_attention(
        query, key, value, training=training, block_mask=block_mask, scale=scale, return_aux=AuxRequest(lse=True)
    )
    return attended, others.lse


def _attend_densely(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    band: Band,
    highlighted_heads: int,
    highlighting: str,
    dropout: float,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = (query @ key.transpose(2, 3)) * scale  # (batch, heads, tokens, tokens)
    matrix = band.dense(query.shape[2])[:, None]  # alpha H
    highlighted, others = scores[:, :highlighted_heads], scores[:, highlighted_heads:]
    if highlighting == "weighted":
        highlighted = highlighted + matrix  # equation 2, in float32 at least
        highest = highlighted.detach().amax(dim=-1, keepdim=True)  # half precision might not reach it
        highlighted = (highlighted - highest).to(scores.dtype)
    scores = torch.cat([highlighted, others], dim=1)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1)
    if highlighting != "weighted":
        highlighted, others = weights[:, :highlighted_heads], weights[:, highlighted_heads:]
        entries = softmax_of_entries(matrix)
        mixed = (highlighted + entries) / 2 if highlighting == "additive" else entries.expand_as(highlighted)
        has_entries = (matrix != 0).any(dim=-1, keepdim=True)
        weights = torch.cat([mixed.to(weights.dtype).where(has_entries, highlighted), others], dim=1)  # equation 4
    weights = nn.functional.dropout(weights, p=dropout)
    return weights @ value, weights


def highlight_rows(
    attended: torch.Tensor,  # (batch, heads, tokens, head_dim)
    query: torch.Tensor,  # (batch, heads, tokens, head_dim)
    key: torch.Tensor,  # (batch, heads, tokens, head_dim)
    value: torch.Tensor,  # (batch, heads, tokens, head_dim)
    band: Band,
    highlighted_heads: int,
    highlighting: str,
    dropout: float = 0.0,
    scale: float | None = None,
) -> torch.Tensor:
    """Put highlighted rows in the place of plain ones, exactly, on any device. Source: equations 2 and 4."""
    index = band.rows[:, None, :, None].expand(-1, highlighted_heads, -1, query.shape[-1])
    heads = slice(None, highlighted_heads)
    if highlighting == "weighted":
        count, at_once = band.rows.shape[1], max(1, SCORES_AT_ONCE // query.shape[2])
        # The usual one part is not made in a loop, which would bind an exported program to its number of rows.
        places = [slice(None)]
        if count > at_once:
            places = [slice(first, first + at_once) for first in range(0, count, at_once)]
        row_query, keys, values = query[:, heads].gather(2, index), key[:, heads], value[:, heads]
        parts = []
        for place in places:
            part = band._replace(columns=band.columns[:, place], values=band.values[:, place])
            arguments = (row_query[:, :, place], keys, values, part, dropout, scale)
            if torch.is_grad_enabled() and not is_compiling():
                rows = checkpoint(_attend_from_rows, *arguments, use_reentrant=False, preserve_rng_state=dropout > 0)
                parts.append(rows)
            else:
                parts.append(_attend_from_rows(*arguments))
        rows = torch.cat(parts, dim=2)
    else:
        plain = attended[:, heads].gather(2, index)
        entries = softmax_of_entries(band.values)  # (batch, rows, width)
        entries = nn.functional.dropout(entries[:, None].expand(-1, highlighted_heads, -1, -1), p=dropout)
        columns = band.columns.flatten(1)[:, None, :, None].expand(-1, highlighted_heads, -1, value.shape[-1])
        near = value[:, heads].gather(2, columns).unflatten(2, band.columns.shape[1:])
        rows = torch.einsum("bhrw,bhrwd->bhrd", entries.to(value.dtype), near)
        if highlighting == "additive":
            rows = (plain + rows) / 2
        rows = rows.where((band.values != 0).any(dim=-1)[:, None, :, None], plain)
    return attended.scatter(2, index, rows.to(attended.dtype))  # (batch, heads, tokens, head_dim)


def _attend_from_rows(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, band: Band, dropout: float, scale: float | None
) -> torch.Tensor:
    """Attend from highlighted rows to all tokens, (batch, heads, rows, head_dim)."""
    bias = band.values.new_zeros(*band.columns.shape[:2], key.shape[2])
    bias = bias.scatter_add_(2, band.columns, band.values)
    bias = bias.sub_(bias.amax(dim=-1, keepdim=True)).to(query.dtype)  # half precision might not reach the highest
    if band.exists is not None:  # not infinite: softmax over nothing is not a number
        bias = bias.masked_fill(~band.exists[:, None], torch.finfo(bias.dtype).min)
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias[:, None], dropout_p=dropout, scale=scale
    )

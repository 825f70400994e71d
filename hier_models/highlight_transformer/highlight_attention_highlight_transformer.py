"""Highlighting attention: attention weights raised inside key phrases, in some of the heads.

Source: Liu et al., "Highlight-Transformer", section 3, equations 1 to 5.

Phrases span a few tokens, so the highlighting matrix H is zero but for a few rows, and those but for a few entries
around the diagonal. It is held as these: a `Band`. Every way of attending is the plain attention of all heads, and
then a correction of the few highlighted rows:

    "sdpa"  on the CPU corrects what torch's flash kernel returns, forwards and backwards, at almost no cost; elsewhere,
            or with dropout of attention weights, or compiled, it attends from the highlighted rows once more,
    "flex_attention" and flash attention do the latter too,
    "eager" holds the dense matrix, for short inputs and for attention weights.

Axes in shape comments:
    batch     documents
    heads     attention heads
    tokens    source tokens
    head_dim  width of a head
    phrases   occurrences of phrases in a document, padded to the most in the batch
    rows      tokens inside of phrases, padded to the most in the batch
    width     entries of a row of the band
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bart.modeling_bart import BartAttention, eager_attention_forward


# Entries of the scores of highlighted rows that are held at once, for each document.
SCORES_AT_ONCE = 2**22


class Band(NamedTuple):
    """The highlighting matrix times the brightness, in the rows that are highlighted.

    Source: section 3.1.

    Args:
        rows: the highlighted tokens, each once, (batch, rows). Where a document has fewer than another, others of its
            tokens fill up; their entries are zero.
        columns: the tokens around each, in the order of the entries, (batch, rows, width); at the ends of the batch,
            the outermost token stands in for those beyond it, with zero entries.
        values: the entries, in float32 at least, (batch, rows, width).
        exists: true for tokens, false for padding, (batch, tokens); `None` without padding.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor
    exists: torch.Tensor | None

    def dense(self, tokens: int) -> torch.Tensor:
        """Return all of the matrix, (batch, tokens, tokens)."""
        rows = self.values.new_zeros(*self.rows.shape, tokens).scatter_add_(2, self.columns, self.values)
        whole = self.values.new_zeros(len(rows), tokens, tokens)
        return whole.scatter_(1, self.rows[:, :, None].expand_as(rows), rows)


def make_band(
    phrase_positions: torch.Tensor,
    phrase_values: torch.Tensor,
    attention_mask: torch.Tensor | None,
    tokens: int,
    brightness: float,
    max_phrase_length: int,
    dtype: torch.dtype = torch.float32,
) -> Band | None:
    """Build the highlighting matrix: each phrase adds its value to the entries between its own tokens.

    Overlapping and nested phrases, and one given twice, add up.

    Source: section 3.1.

    Args:
        phrase_positions: first token of each phrase and the one after its last, counted from the first attended token,
            (batch, phrases, 2); -1 pads.
        phrase_values: importance of each, (batch, phrases).
        attention_mask: 1 for tokens, 0 for padding, (batch, tokens); `None` without padding.
        tokens: number of source tokens.
        brightness: factor of the values, alpha.
        max_phrase_length: longest phrase, in tokens. Compiled code makes room for it; other code looks for the longest
            phrase that there is.
        dtype: of the entries.

    Returns:
        The band, or `None` if nothing is highlighted.
    """
    batch, phrases = phrase_values.shape
    start, end = phrase_positions.unbind(-1)
    length = (end - start).clamp(min=0)
    values = (phrase_values.detach().to(dtype) * brightness).where(length > 0, 0.0)  # alpha v
    exists = None if attention_mask is None else attention_mask != 0
    if not phrases or not brightness:
        return None
    fixed = torch.compiler.is_compiling()  # shapes must then not depend on values
    longest = min(max_phrase_length, tokens) if fixed else int(length.max())
    if not longest:
        return None

    offsets = torch.arange(longest, device=start.device)
    place = start[:, :, None] + offsets  # (batch, phrases, longest)
    if exists is not None:
        place = place + exists.int().argmax(dim=1)[:, None, None]
    inside = (offsets < length[:, :, None]) & (place < tokens)
    place = place.where(inside, tokens).flatten(1)  # what is outside goes to a place behind the document
    covered = torch.zeros(batch, tokens + 1, dtype=torch.int32, device=start.device)
    covered = covered.scatter_(1, place, 1)[:, :tokens]
    count = min(tokens, phrases * longest) if fixed else int(covered.sum(dim=1).max())
    rows = covered.sort(dim=1, descending=True, stable=True).indices[:, :count].sort(dim=1).values
    number = torch.full((batch, tokens + 1), count, device=start.device)  # of the row of each token
    number.scatter_(1, rows, torch.arange(count, device=start.device).expand(batch, -1))

    width = 2 * longest - 1
    row = number.gather(1, place).view(batch, phrases, longest, 1)
    entry = row * width + offsets - offsets[:, None] + longest - 1  # (batch, phrases, longest, longest)
    added = values[:, :, None, None] * (inside[:, :, :, None] & inside[:, :, None, :])
    sums = values.new_zeros(batch, (count + 1) * width).scatter_add_(1, entry.flatten(1), added.flatten(1))
    entries = sums.view(batch, count + 1, width)[:, :count]

    columns = rows[:, :, None] + torch.arange(1 - longest, longest, device=start.device)
    columns = columns.clamp(0, tokens - 1)  # (batch, rows, width)
    if exists is not None:
        entries = entries * exists.gather(1, columns.flatten(1)).view_as(columns)
    return Band(rows, columns, entries, exists)


class HighlightTransformerSelfAttention(BartAttention):
    """Multi-head self-attention with highlighted heads, with the parameters of BART's attention.

    Source: section 3.3, equation 5.

    Args:
        config: a configuration of this family.
        layer_idx: number of the layer.
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__(
            embed_dim=config.d_model,
            num_heads=config.encoder_attention_heads,
            dropout=config.attention_dropout,
            config=config,
            layer_idx=layer_idx,
        )
        self.highlighted_heads = config.highlight_heads if layer_idx in config.highlighted_layers else 0
        self.highlighting = config.highlighting

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | BlockMask | None = None,
        band: Band | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend.

        Args:
            hidden_states: (batch, tokens, d_model).
            attention_mask: as Transformers makes it for the attention implementation.
            band: what is highlighted; `None` is plain attention.
            **kwargs: handed on to Transformers' attention functions.

        Returns:
            The attended states, (batch, tokens, d_model), and the weights, (batch, heads, tokens, tokens), from
            `"eager"`, else `None`.
        """
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query, key, value = (
            projection(hidden_states).view(shape).transpose(1, 2)  # (batch, heads, tokens, head_dim)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        dropout = self.dropout if self.training else 0.0
        implementation = self.config._attn_implementation
        if band is not None and self.highlighted_heads and implementation == "eager":
            attended, weights = _attend_densely(
                query, key, value, attention_mask, band, self.highlighted_heads, self.highlighting, dropout, self.scaling
            )
            attended = attended.transpose(1, 2)
        else:
            attend: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
            attended, weights = attend(
                self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
            )  # (batch, tokens, heads, head_dim)
            if band is not None and self.highlighted_heads:
                attended = highlight_rows(
                    attended.transpose(1, 2),
                    query,
                    key,
                    value,
                    band,
                    self.highlighted_heads,
                    self.highlighting,
                    dropout,
                    self.scaling,
                ).transpose(1, 2)
        return self.out_proj(attended.reshape(*shape[:-2], -1)), weights


def _softmax_of_entries(values: torch.Tensor) -> torch.Tensor:
    """Softmax over the nonzero entries of each row; zeros where a row has none. Source: equation 4a and footnote 1."""
    present = values != 0
    scores = values.masked_fill(~present, torch.finfo(values.dtype).min)
    return scores.softmax(dim=-1) * present


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
        highlighted = (highlighted + matrix).to(scores.dtype)  # equation 2
    scores = torch.cat([highlighted, others], dim=1)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1)
    if highlighting != "weighted":
        highlighted, others = weights[:, :highlighted_heads], weights[:, highlighted_heads:]
        entries = _softmax_of_entries(matrix)
        mixed = (highlighted + entries) / 2 if highlighting == "additive" else entries.expand_as(highlighted)
        has_entries = (matrix != 0).any(dim=-1, keepdim=True)
        weights = torch.cat([mixed.to(weights.dtype).where(has_entries, highlighted), others], dim=1)  # equation 4
    weights = nn.functional.dropout(weights, p=dropout)
    return weights @ value, weights


def highlight_rows(
    attended: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    band: Band,
    highlighted_heads: int,
    highlighting: str,
    dropout: float = 0.0,
    scale: float | None = None,
) -> torch.Tensor:
    """Put highlighted rows in the place of plain ones, exactly, on any device and with any plain attention.

    Time and memory grow with the number of highlighted rows times the number of tokens; memory is held for a part of
    the rows at a time, forwards and backwards.

    Source: equations 2 and 4.

    Args:
        attended: plain attention, (batch, heads, tokens, head_dim).
        query: (batch, heads, tokens, head_dim).
        key: (batch, heads, tokens, head_dim).
        value: (batch, heads, tokens, head_dim).
        band: what is highlighted.
        highlighted_heads: the first heads, which are highlighted.
        highlighting: "weighted", "additive" or "only".
        dropout: probability of leaving out an attention weight.
        scale: factor of the scores, by default one over the square root of `head_dim`.

    Returns:
        (batch, heads, tokens, head_dim).
    """
    index = band.rows[:, None, :, None].expand(-1, highlighted_heads, -1, query.shape[-1])
    heads = slice(None, highlighted_heads)
    if highlighting == "weighted":
        at_once = max(1, SCORES_AT_ONCE // query.shape[2])
        operands = (query[:, heads].gather(2, index), key[:, heads], value[:, heads])
        parts = []
        for first in range(0, band.rows.shape[1], at_once):
            part = band._replace(
                columns=band.columns[:, first : first + at_once], values=band.values[:, first : first + at_once]
            )
            states = (operands[0][:, :, first : first + at_once], *operands[1:])
            if torch.is_grad_enabled():
                parts.append(checkpoint(_attend_from_rows, *states, part, dropout, scale, use_reentrant=False))
            else:
                parts.append(_attend_from_rows(*states, part, dropout, scale))
        rows = torch.cat(parts, dim=2)
    else:
        plain = attended[:, heads].gather(2, index)
        entries = _softmax_of_entries(band.values)  # (batch, rows, width)
        entries = nn.functional.dropout(entries[:, None].expand(-1, highlighted_heads, -1, -1), p=dropout)
        columns = band.columns.flatten(1)[:, None, :, None].expand(-1, highlighted_heads, -1, value.shape[-1])
        near = value[:, heads].gather(2, columns).unflatten(2, band.columns.shape[1:])
        rows = torch.einsum("bhrw,bhrwd->bhrd", entries.to(value.dtype), near)
        if highlighting == "additive":
            rows = (plain + rows) / 2
        rows = rows.where((band.values != 0).any(dim=-1)[:, None, :, None], plain)
    return attended.scatter(2, index, rows.to(attended.dtype))


def _attend_from_rows(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, band: Band, dropout: float, scale: float | None
) -> torch.Tensor:
    """Attend from highlighted rows to all tokens, (batch, heads, rows, head_dim)."""
    bias = band.values.new_zeros(*band.columns.shape[:2], key.shape[2])
    bias = bias.scatter_add_(2, band.columns, band.values).to(query.dtype)
    if band.exists is not None:  # not infinite: softmax over nothing is not a number
        bias = bias.masked_fill(~band.exists[:, None], torch.finfo(bias.dtype).min)
    attended: torch.Tensor = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias[:, None], dropout_p=dropout, scale=scale
    )
    return attended


__all__ = ["Band", "HighlightTransformerSelfAttention", "highlight_rows", "make_band"]

"""Layers of the Highlight-Transformer: BART's, with norms before or after, highlighting and copying.

Source: Liu et al., "Highlight-Transformer", section 3; for copying, Gehrmann, Deng and Rush 2018, section 3.

Axes in shape comments:
    batch       documents
    source      source tokens
    target      target tokens
    d_model     width
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bart.modeling_bart import (
    BartAttention,
    BartDecoderLayer,
    BartEncoderLayer,
    eager_attention_forward,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .band_highlight_transformer import Band
from .configuration_highlight_transformer import HighlightTransformerConfig
from .highlight_attention_highlight_transformer import HighlightTransformerSelfAttention


class HighlightTransformerEncoderLayer(BartEncoderLayer):
    """Self-attention with highlighted heads, and a feed-forward network. Source: section 3.3."""

    def __init__(self, config: HighlightTransformerConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.self_attn = HighlightTransformerSelfAttention(config, layer_idx)
        self.normalize_before = config.normalize_before

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | BlockMask | None = None,
        band: Band | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Update tokens by each other, then each by itself.

        Args:
            hidden_states: (batch, source, d_model).
            attention_mask: of the self-attention.
            band: what is highlighted.
            **kwargs: handed on to the attention.

        Returns:
            The updated states, (batch, source, d_model).
        """
        inputs = _before(self, self.self_attn_layer_norm, hidden_states)
        attended, _ = self.self_attn(inputs, attention_mask=attention_mask, band=band, **kwargs)
        hidden_states = _after(self, self.self_attn_layer_norm, hidden_states, attended)
        inputs = _before(self, self.final_layer_norm, hidden_states)
        return _after(self, self.final_layer_norm, hidden_states, _feed_forward(self, inputs))


class HighlightTransformerCopyAttention(BartAttention):
    """BART's attention to the source, which also says what one of its heads looks at, before dropout.

    Source: Gehrmann, Deng and Rush 2018, sections 3 and 4.2.
    """

    def __init__(self, config: HighlightTransformerConfig, layer_idx: int):
        super().__init__(
            config.d_model,
            config.decoder_attention_heads,
            dropout=config.attention_dropout,
            is_decoder=True,
            config=config,
            layer_idx=layer_idx,
        )
        self.copy_head = config.copy_head

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        attention_mask: torch.Tensor | BlockMask | None = None,
        source_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Attend.

        Args:
            hidden_states: (batch, target, d_model).
            key_value_states: of the source, (batch, source, d_model).
            past_key_values: cache of keys and values.
            attention_mask: as Transformers makes it for the attention implementation.
            source_mask: 1 for source tokens, 0 for padding, (batch, source).
            **kwargs: handed on to Transformers' attention functions.

        Returns:
            The attended states, (batch, target, d_model), the weights of all heads from `"eager"`, else `None`, and
            those of the head that copies, in float32 at least, (batch, target, source).
        """
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_proj(hidden_states).view(shape).transpose(1, 2)  # (batch, heads, target, head_dim)
        key, value = self._keys_and_values(key_value_states, past_key_values)
        attend: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.dropout if self.training else 0.0
        attended, weights = attend(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        attended = self.out_proj(attended.reshape(*shape[:-2], -1))
        return attended, weights, self._copy_attention(query[:, self.copy_head], key[:, self.copy_head], source_mask)

    def _keys_and_values(
        self, key_value_states: torch.Tensor | None, past_key_values: Cache | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the source, (batch, heads, source, head_dim), which are made once."""
        cache = None
        assert self.layer_idx is not None
        if past_key_values is not None:
            is_pair = isinstance(past_key_values, EncoderDecoderCache)
            cache = past_key_values.cross_attention_cache if is_pair else past_key_values
            if is_pair and past_key_values.is_updated.get(self.layer_idx):
                layer = cache.layers[self.layer_idx]
                assert layer.keys is not None
                assert layer.values is not None
                return layer.keys, layer.values
        assert key_value_states is not None
        shape = (*key_value_states.shape[:-1], -1, self.head_dim)
        key, value = (
            projection(key_value_states).view(shape).transpose(1, 2) for projection in (self.k_proj, self.v_proj)
        )
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
            if isinstance(past_key_values, EncoderDecoderCache):
                past_key_values.is_updated[self.layer_idx] = True
        return key, value

    def _copy_attention(
        self, query: torch.Tensor, key: torch.Tensor, source_mask: torch.Tensor | None
    ) -> torch.Tensor:
        scores = (query * self.scaling) @ key.transpose(1, 2)  # (batch, target, source); unscaled, float16 overflows
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if source_mask is not None:
            padding = source_mask[:, None].to(scores.device) == 0
            scores = scores.masked_fill(padding, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1)


class HighlightTransformerDecoderLayer(BartDecoderLayer):
    """BART's decoder layer, with norms before or after; the last one of a model that copies says what is copied.

    Source: section 3, "our decoder follows the CopyTransformer".
    """

    def __init__(self, config: HighlightTransformerConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.normalize_before = config.normalize_before
        self.copies = config.use_copy and layer_idx == config.decoder_layers - 1
        if self.copies:
            self.encoder_attn = HighlightTransformerCopyAttention(config, layer_idx)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | BlockMask | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | BlockMask | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = True,
        source_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Update target tokens by those before them, by the source, then each by itself.

        Args:
            hidden_states: (batch, target, d_model).
            attention_mask: of the self-attention.
            encoder_hidden_states: (batch, source, d_model).
            encoder_attention_mask: of the attention to the source.
            past_key_values: cache of keys and values.
            use_cache: not read here.
            source_mask: 1 for source tokens, 0 for padding, (batch, source).
            **kwargs: handed on to the attentions.

        Returns:
            The updated states, (batch, target, d_model); where it is copied from, also the attention that copies,
            (batch, target, source).
        """
        inputs = _before(self, self.self_attn_layer_norm, hidden_states)
        attended, _ = self.self_attn(inputs, past_key_values=past_key_values, attention_mask=attention_mask, **kwargs)
        hidden_states = _after(self, self.self_attn_layer_norm, hidden_states, attended)

        copied: list[torch.Tensor] = []
        if encoder_hidden_states is not None:
            if self.copies:
                kwargs["source_mask"] = source_mask  # type: ignore[typeddict-unknown-key]
            inputs = _before(self, self.encoder_attn_layer_norm, hidden_states)
            attended, _, *copied = self.encoder_attn(
                inputs,
                key_value_states=encoder_hidden_states,
                attention_mask=encoder_attention_mask,
                past_key_values=past_key_values,
                **kwargs,
            )
            hidden_states = _after(self, self.encoder_attn_layer_norm, hidden_states, attended)

        inputs = _before(self, self.final_layer_norm, hidden_states)
        hidden_states = _after(self, self.final_layer_norm, hidden_states, _feed_forward(self, inputs))
        return (hidden_states, *copied) if copied else hidden_states


_Layer = HighlightTransformerEncoderLayer | HighlightTransformerDecoderLayer


def _before(layer: _Layer, norm: nn.LayerNorm, hidden_states: torch.Tensor) -> torch.Tensor:
    return norm(hidden_states) if layer.normalize_before else hidden_states


def _after(layer: _Layer, norm: nn.LayerNorm, residual: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    hidden_states = residual + nn.functional.dropout(update, p=layer.dropout, training=layer.training)
    return hidden_states if layer.normalize_before else norm(hidden_states)


def _feed_forward(layer: _Layer, inputs: torch.Tensor) -> torch.Tensor:
    expanded = layer.activation_fn(layer.fc1(inputs))
    expanded = nn.functional.dropout(expanded, p=layer.activation_dropout, training=layer.training)
    return layer.fc2(expanded)  # type: ignore[no-any-return]


__all__ = [
    "HighlightTransformerCopyAttention",
    "HighlightTransformerDecoderLayer",
    "HighlightTransformerEncoderLayer",
]

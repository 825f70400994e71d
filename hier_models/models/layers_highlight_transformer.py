"""The encoder layer of the Highlight-Transformer: BART's, with norms before or after, and highlighted heads.

Source: Liu et al., "Highlight-Transformer", section 3.

Axes in shape comments:
    batch       documents
    source      source tokens
    d_model     width
"""

import torch
from torch.nn.attention.flex_attention import BlockMask
from transformers.models.bart.modeling_bart import BartEncoderLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .configuration_highlight_transformer import HighlightTransformerConfig
from .copy_mechanism import after, before, feed_forward
from .highlight_attention import HighlightTransformerSelfAttention
from .highlight_band import Band


class HighlightTransformerEncoderLayer(BartEncoderLayer):
    """Self-attention with highlighted heads, and a feed-forward network. Source: section 3.3."""

    def __init__(self, config: HighlightTransformerConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.self_attn = HighlightTransformerSelfAttention(config, layer_idx)
        self.normalize_before = config.normalize_before

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, source, d_model)
        attention_mask: torch.Tensor | BlockMask | None = None,
        band: Band | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Update tokens by each other, then each by itself."""
        inputs = before(self, self.self_attn_layer_norm, hidden_states)
        attended, _ = self.self_attn(inputs, attention_mask=attention_mask, band=band, **kwargs)
        hidden_states = after(self, self.self_attn_layer_norm, hidden_states, attended)
        inputs = before(self, self.final_layer_norm, hidden_states)
        return after(self, self.final_layer_norm, hidden_states, feed_forward(self, inputs))


__all__ = ["HighlightTransformerEncoderLayer"]

"""The encoder of the Highlight-Transformer: attention in some heads is raised inside of key phrases.

Source: Liu et al., "Highlight-Transformer", section 3.

Axes in shape comments:
    batch       documents
    source      source tokens
    phrases     occurrences of phrases in a document
    d_model     width
"""

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bart.modeling_bart import BartAttention
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bart_warm_start import make_token_embedding
from .bos_positions import token_positions
from .configuration_highlight_transformer import HighlightTransformerConfig
from .highlight_band import Band, make_band
from .input_checks_highlight_transformer import check_inputs
from .layers_highlight_transformer import HighlightTransformerEncoderLayer
from .modeling_outputs_highlight_transformer import HighlightTransformerEncoderOutput
from .pretrained_highlight_transformer import (
    HighlightTransformerPreTrainedModel,
    add_positions,
    make_positions,
)


class HighlightTransformerEncoder(HighlightTransformerPreTrainedModel):
    """Token embeddings, positions, and layers some of whose heads are highlighted. Source: section 3."""

    _can_record_outputs = {
        "hidden_states": HighlightTransformerEncoderLayer,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: HighlightTransformerConfig):
        super().__init__(config)
        self.embed_tokens = make_token_embedding(config)
        self.embed_positions = make_positions(config)
        if not config.normalize_before:
            self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = nn.ModuleList(
            HighlightTransformerEncoderLayer(config, layer_idx=i) for i in range(config.encoder_layers)
        )
        if config.normalize_before:
            self.layer_norm = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        phrase_positions: torch.Tensor | None = None,
        phrase_values: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        source_ids: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HighlightTransformerEncoderOutput:
        """Encode documents; the arguments are those of [`HighlightTransformerModel`]."""
        check_inputs(
            self.config, input_ids, inputs_embeds, attention_mask, phrase_positions, phrase_values, source_ids
        )
        source_ids = input_ids if source_ids is None else source_ids
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, source, d_model)
        position_ids = token_positions(inputs_embeds, attention_mask).clamp(min=0)  # (batch, source)
        hidden_states = add_positions(self.embed_positions, inputs_embeds, position_ids)
        if not self.config.normalize_before:
            hidden_states = self.layernorm_embedding(hidden_states)
        hidden_states = nn.functional.dropout(hidden_states, p=self.config.dropout, training=self.training)

        # Where a dense mask is made, one row of it stands for all tokens.
        implementation = self.config._attn_implementation
        queries = inputs_embeds[:, :1] if implementation in ("eager", "sdpa") else inputs_embeds
        mask = create_bidirectional_mask(self.config, queries, attention_mask, encoder_hidden_states=inputs_embeds)
        band = self._make_band(hidden_states, attention_mask, phrase_positions, phrase_values)
        for layer in self.layers:
            if not self._drops_layer(self.config.encoder_layerdrop):
                hidden_states = layer(hidden_states, mask, band=band, **kwargs)
        if self.config.normalize_before:
            hidden_states = self.layer_norm(hidden_states)
        return HighlightTransformerEncoderOutput(last_hidden_state=hidden_states, source_ids=source_ids)

    def _make_band(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        phrase_positions: torch.Tensor | None,
        phrase_values: torch.Tensor | None,
    ) -> Band | None:
        if phrase_positions is None or phrase_values is None or not self.config.highlighted_layers:
            return None
        device = hidden_states.device
        return make_band(
            phrase_positions.to(device),
            phrase_values.to(device),
            None if attention_mask is None else attention_mask.to(device),
            tokens=hidden_states.shape[1],
            brightness=self.config.brightness,
            max_phrase_length=self.config.max_phrase_length,
            dtype=torch.promote_types(hidden_states.dtype, torch.float32),
        )


__all__ = ["HighlightTransformerEncoder"]

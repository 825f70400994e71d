"""The Transformer body: BART's, with HAM-S in the encoder's layers and HAM-V as the decoder's attention to the source.

Source: HAM, section 3; several heads are the paper's future work (section 7).
Axes in shape comments: batch, heads, source (source tokens), target (target tokens), d_model (width).
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bart.modeling_bart import BartAttention, BartDecoderLayer, BartEncoderLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bart_body import BartBodyDecoder, attend, attention_sizes, keys_and_values, recorded
from .bos_positions import token_positions
from .configuration_ham import HamConfig
from .hierarchical_attention import HamLevelWeights
from .input_checks import check_length, check_shape, check_source
from .model_outputs import HamDecoderOutput, HamEncoderOutput
from .pretrained_ham import HamPreTrainedModel


class HamAttention(BartAttention):
    """BART's attention at several levels, between which heads are not put together. Source: section 3."""

    def __init__(self, config: HamConfig, side: str, layer_idx: int):
        super().__init__(**attention_sizes(config, side, layer_idx))
        self.moves_keys = side == "encoder" and config.attention_keys == "level"
        self.level_weights = HamLevelWeights(config.attention_depth, config.level_weights, config.level_weights_init)

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, queries, d_model)
        key_value_states: torch.Tensor | None = None,  # (batch, source, d_model)
        cache: Cache | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend at every level."""
        if self.level_weights.computed == 1:
            return super().forward(hidden_states, key_value_states, cache, attention_mask, **kwargs)
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_proj(hidden_states).view(shape).transpose(1, 2)  # (batch, heads, queries, head_dim)
        source = hidden_states if key_value_states is None else key_value_states
        key, value = keys_and_values(self, source, cache)
        results: list[torch.Tensor] = []
        parts: list[torch.Tensor] = []
        for _ in range(self.level_weights.computed):
            attended, weights = attend(self, query, key, value, attention_mask, **kwargs)
            results.append(attended)
            query = attended.transpose(1, 2)
            if self.moves_keys:
                key = value = query
                weights = weights if weights is None or not parts else weights @ parts[-1]
            parts.append(weights)
        attended = self.out_proj(self.level_weights.sum(results).reshape(*shape[:-2], -1))
        return attended, None if parts[-1] is None else self.level_weights.sum(parts)


class HamTransformerEncoderLayer(BartEncoderLayer):
    """BART's encoder layer with HAM-S."""

    def __init__(self, config: HamConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.self_attn = HamAttention(config, "encoder", layer_idx)


class HamTransformerDecoderLayer(BartDecoderLayer):
    """BART's decoder layer with HAM-V."""

    def __init__(self, config: HamConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.encoder_attn = HamAttention(config, "decoder", layer_idx)


class HamTransformerEncoder(HamPreTrainedModel):
    """Reads the source; the keyword's tokens carry an embedding of their own."""

    _no_split_modules = ["HamTransformerEncoderLayer"]
    _can_record_outputs = {
        "hidden_states": HamTransformerEncoderLayer,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: HamConfig):
        super().__init__(config)
        layers = (HamTransformerEncoderLayer(config, i) for i in range(config.encoder_layers))
        self.add_layers(layers, config.max_position_embeddings)
        self.embed_keyword = nn.Embedding(1, config.d_model)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        keyword_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HamEncoderOutput:
        """Encode a source; the arguments are those of [`HamModel`]."""
        shape = check_source(self.config, input_ids, inputs_embeds, attention_mask, width="embedding_size")
        check_shape("keyword_mask", keyword_mask, shape)
        check_length(self.config, shape[1])
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, source, d_model)
        positions = token_positions(inputs_embeds, attention_mask).clamp(min=0)  # (batch, source)
        hidden_states = self._add_positions(inputs_embeds, positions)
        is_keyword = torch.zeros_like(positions) if keyword_mask is None else keyword_mask != 0
        is_keyword = is_keyword.to(hidden_states).unsqueeze(-1)
        hidden_states = self._begin(hidden_states + is_keyword * self.embed_keyword(torch.zeros_like(positions)))
        mask = create_bidirectional_mask(self.config, inputs_embeds, attention_mask)
        for layer in self.layers:
            if not self._drops_layer(self.config.encoder_layerdrop):
                hidden_states = layer(hidden_states, mask, **kwargs)
        return HamEncoderOutput(last_hidden_state=hidden_states)


class HamTransformerDecoder(BartBodyDecoder, HamPreTrainedModel):
    """Writes the target."""

    _no_split_modules = ["HamTransformerDecoderLayer"]
    _can_record_outputs = recorded(HamTransformerDecoderLayer)
    layer_class = HamTransformerDecoderLayer
    output_class = HamDecoderOutput

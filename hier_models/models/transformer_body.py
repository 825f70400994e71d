"""The Transformer body: BART's, with HAM-S in the encoder's layers and HAM-V as the decoder's attention to the source.

Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks", section 3; several heads are the paper's
future work (section 7).

Axes in shape comments:
    batch       sources
    heads       attention heads
    source      source tokens
    target      target tokens
    d_model     width
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bart.modeling_bart import (
    BartAttention,
    BartDecoderLayer,
    BartEncoderLayer,
    BartLearnedPositionalEmbedding,
    eager_attention_forward,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_ham import HamConfig
from .hierarchical_attention import HamLevelWeights
from .input_checks_ham import check_decoded, check_inputs, check_target
from .modeling_outputs_ham import HamDecoderOutput, HamEncoderOutput
from .pretrained_ham import HamPreTrainedModel, make_embedding


class HamAttention(BartAttention):
    """BART's attention at several levels: heads are taken apart once, run all levels, and are put together once.

    Source: section 3. With one level it is BART's.
    """

    def __init__(self, config: HamConfig, num_heads: int, layer_idx: int, is_decoder: bool = False):
        super().__init__(
            config.d_model,
            num_heads,
            dropout=config.attention_dropout,
            is_decoder=is_decoder,
            config=config,
            layer_idx=layer_idx,
        )
        self.moves_keys = not is_decoder and config.attention_keys == "level"
        self.level_weights = HamLevelWeights(config.attention_depth, config.level_weights)

    @property
    def mixture(self) -> torch.Tensor:
        """Weight of each level in the output, `(depth,)`; they sum to one."""
        weights: torch.Tensor = self.level_weights()
        return weights

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
            result: tuple[torch.Tensor, torch.Tensor | None] = super().forward(
                hidden_states, key_value_states, cache, attention_mask, **kwargs
            )
            return result
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = self.q_proj(hidden_states).view(shape).transpose(1, 2)  # (batch, heads, queries, head_dim)
        source = hidden_states if key_value_states is None else key_value_states
        key, value = self._keys_and_values(source, cache)
        attend: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.dropout if self.training else 0.0
        results: list[torch.Tensor] = []
        parts: list[torch.Tensor] = []
        for _ in range(self.level_weights.computed):
            attended, weights = attend(
                self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
            )  # (batch, queries, heads, head_dim)
            results.append(attended)
            query = attended.transpose(1, 2)
            if self.moves_keys:
                key = value = query
                weights = weights if weights is None or not parts else weights @ parts[-1]
            parts.append(weights)
        attended = self.out_proj(self.level_weights.sum(results).reshape(*shape[:-2], -1))
        return attended, None if parts[-1] is None else self.level_weights.sum(parts)

    def _keys_and_values(self, states: torch.Tensor, cache: Cache | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values, `(batch, heads, keys, head_dim)`; those of the source are made once."""
        stored = None
        if cache is not None:
            assert self.layer_idx is not None
            is_pair = isinstance(cache, EncoderDecoderCache)
            stored = cache.cross_attention_cache if is_pair else cache
            if is_pair and cache.is_updated.get(self.layer_idx):
                layer = stored.layers[self.layer_idx]
                assert layer.keys is not None
                assert layer.values is not None
                return layer.keys, layer.values
        shape = (*states.shape[:-1], -1, self.head_dim)
        key, value = (part(states).view(shape).transpose(1, 2) for part in (self.k_proj, self.v_proj))
        if stored is not None:
            key, value = stored.update(key, value, self.layer_idx)
            if isinstance(cache, EncoderDecoderCache):
                assert self.layer_idx is not None
                cache.is_updated[self.layer_idx] = True
        return key, value


class HamTransformerEncoderLayer(BartEncoderLayer):
    """BART's encoder layer with HAM-S."""

    def __init__(self, config: HamConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        assert config.encoder_attention_heads is not None
        self.self_attn = HamAttention(config, config.encoder_attention_heads, layer_idx)


class HamTransformerDecoderLayer(BartDecoderLayer):
    """BART's decoder layer with HAM-V."""

    def __init__(self, config: HamConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        assert config.decoder_attention_heads is not None
        self.encoder_attn = HamAttention(config, config.decoder_attention_heads, layer_idx, is_decoder=True)


class HamTransformerEncoder(HamPreTrainedModel):
    """Reads the source; the keyword's tokens carry an embedding of their own."""

    _can_record_outputs = {
        "hidden_states": HamTransformerEncoderLayer,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: HamConfig):
        super().__init__(config)
        assert config.encoder_layers is not None
        self.embed_tokens = make_embedding(config)
        self.embed_positions = BartLearnedPositionalEmbedding(config.max_position_embeddings, config.d_model)
        self.embed_keyword = nn.Embedding(1, config.d_model)
        self.layers = nn.ModuleList(HamTransformerEncoderLayer(config, i) for i in range(config.encoder_layers))
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
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
        check_inputs(self.config, input_ids, inputs_embeds, attention_mask, keyword_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, source, d_model)
        positions = _positions(inputs_embeds, attention_mask)
        hidden_states = inputs_embeds + self.embed_positions(positions, position_ids=positions)[0]
        is_keyword = torch.zeros_like(positions) if keyword_mask is None else keyword_mask != 0
        is_keyword = is_keyword.to(hidden_states).unsqueeze(-1)
        hidden_states = hidden_states + is_keyword * self.embed_keyword(torch.zeros_like(positions))
        hidden_states = self.layernorm_embedding(hidden_states)
        hidden_states = nn.functional.dropout(hidden_states, p=self.config.dropout, training=self.training)
        mask = create_bidirectional_mask(self.config, inputs_embeds, attention_mask)
        for layer in self.layers:
            if not _drops(self, self.config.encoder_layerdrop):
                hidden_states = layer(hidden_states, mask, **kwargs)
        return HamEncoderOutput(last_hidden_state=hidden_states)


class HamTransformerDecoder(HamPreTrainedModel):
    """Writes the target."""

    _can_record_outputs = {
        "hidden_states": HamTransformerDecoderLayer,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(BartAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: HamConfig):
        super().__init__(config)
        assert config.decoder_layers is not None
        self.embed_tokens = make_embedding(config)
        self.embed_positions = BartLearnedPositionalEmbedding(config.max_position_embeddings, config.d_model)
        self.layers = nn.ModuleList(HamTransformerDecoderLayer(config, i) for i in range(config.decoder_layers))
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HamDecoderOutput:
        """Decode; the arguments are those of BART's decoder."""
        check_target(self.config, input_ids, inputs_embeds, encoder_hidden_states, attention_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, target, d_model)
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        past_length = cache.get_seq_length() if cache is not None else 0
        check_decoded(self.config, cache, inputs_embeds.shape[1])
        positions = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past_length
        embedded = self.embed_positions(positions[None], position_ids=positions)
        hidden_states = self.layernorm_embedding(inputs_embeds + embedded)
        hidden_states = nn.functional.dropout(hidden_states, p=self.config.dropout, training=self.training)

        is_pair = isinstance(cache, EncoderDecoderCache)
        causal_mask = create_causal_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            cache=cache.self_attention_cache if is_pair else cache,
        )
        source_mask = create_bidirectional_mask(
            self.config, inputs_embeds, encoder_attention_mask, encoder_hidden_states=encoder_hidden_states
        )
        for layer in self.layers:
            if _drops(self, self.config.decoder_layerdrop):
                continue
            hidden_states = layer(
                hidden_states,
                causal_mask,
                encoder_hidden_states,  # positional, for gradient checkpointing
                encoder_attention_mask=source_mask,
                cache=cache,
                use_cache=use_cache,
                **kwargs,
            )
        return HamDecoderOutput(last_hidden_state=hidden_states, cache=cache)


def _positions(tokens: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Count from the first attended token, so that padding on the left does not move a source, `(batch, source)`."""
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
    if attention_mask is None:
        return positions
    first = (attention_mask != 0).int().argmax(dim=1, keepdim=True).to(tokens.device)
    return (positions - first).clamp(min=0)


def _drops(model: nn.Module, probability: float) -> bool:
    return model.training and probability > 0.0 and torch.rand([]).item() < probability


__all__ = ["HamAttention", "HamTransformerDecoder", "HamTransformerEncoder"]

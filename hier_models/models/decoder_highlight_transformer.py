"""The decoder of the Highlight-Transformer: that of the CopyTransformer, or BART's.

Source: Liu et al., "Highlight-Transformer", section 3; Gehrmann, Deng and Rush 2018, "Bottom-Up Abstractive
Summarization".

Axes in shape comments:
    batch       documents
    target      target tokens
    source      source tokens
    d_model     width
"""

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.models.bart.modeling_bart import BartAttention
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bart_warm_start import make_token_embedding
from .configuration_highlight_transformer import HighlightTransformerConfig
from .copy_mechanism import CopyDecoderLayer
from .input_checks_highlight_transformer import check_decoded, check_target
from .modeling_outputs_highlight_transformer import HighlightTransformerDecoderOutput
from .pretrained_highlight_transformer import (
    HighlightTransformerPreTrainedModel,
    add_positions,
    make_positions,
)


class HighlightTransformerDecoder(HighlightTransformerPreTrainedModel):
    """Layers with attention to the source, the last of which says what is copied. Source: section 3."""

    _can_record_outputs = {
        "hidden_states": CopyDecoderLayer,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(BartAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: HighlightTransformerConfig):
        super().__init__(config)
        self.embed_tokens = make_token_embedding(config)
        self.embed_positions = make_positions(config)
        if not config.normalize_before:
            self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = nn.ModuleList(CopyDecoderLayer(config, layer_idx=i) for i in range(config.decoder_layers))
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
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HighlightTransformerDecoderOutput:
        """Decode; the arguments are those of BART's decoder."""
        check_target(self.config, input_ids, inputs_embeds, encoder_hidden_states, attention_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, target, d_model)
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))

        past_length = cache.get_seq_length() if cache is not None else 0
        check_decoded(self.config, cache, inputs_embeds.shape[1])
        position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past_length
        hidden_states = add_positions(self.embed_positions, inputs_embeds, position_ids)
        if not self.config.normalize_before:
            hidden_states = self.layernorm_embedding(hidden_states)
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
        _refuse_flash_mask(source_mask, inputs_embeds.shape[1])
        copy_attentions = None
        for layer in self.layers:
            if self._drops_layer(self.config.decoder_layerdrop) and not layer.copies:
                continue
            hidden_states = layer(
                hidden_states,
                causal_mask,
                encoder_hidden_states,  # positional, for gradient checkpointing
                encoder_attention_mask=source_mask,
                cache=cache,
                use_cache=use_cache,
                source_mask=encoder_attention_mask,
                **kwargs,
            )
            if isinstance(hidden_states, tuple):
                hidden_states, copy_attentions = hidden_states
        if self.config.normalize_before:
            hidden_states = self.layer_norm(hidden_states)
        return HighlightTransformerDecoderOutput(
            last_hidden_state=hidden_states, cache=cache, copy_attentions=copy_attentions
        )


def _refuse_flash_mask(mask: object, queries: int) -> None:
    """Refuse the mask of flash attention, which Transformers takes for the target too."""
    if isinstance(mask, torch.Tensor) and mask.dim() == 2 and queries > 1:
        raise ValueError(
            "Flash attention cannot read a batch with padding beside a target of several tokens. Use batches of one "
            'document, or `model.set_attn_implementation("sdpa")`.'
        )


__all__ = ["HighlightTransformerDecoder"]

"""The decoder of the Top-Down Transformer: BART's, over the states of the source's tokens.

Source: Pang et al., "Long Document Summarization with Top-down and Bottom-up Inference", section 2 and figure 1.

Axes in shape comments:
    batch       documents
    target      target tokens
    d_model     width
"""

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.models.bart.modeling_bart import BartAttention, BartDecoderLayer, BartLearnedPositionalEmbedding
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bart_warm_start import make_token_embedding
from .configuration_top_down_transformer import TopDownTransformerConfig
from .copy_mechanism import CopyDecoderLayer
from .input_checks_top_down_transformer import check_decoded, check_target
from .modeling_outputs_top_down_transformer import TopDownTransformerDecoderOutput
from .pretrained_top_down_transformer import TopDownTransformerPreTrainedModel
from .top_down_layers import refuse_flash_mask


class TopDownTransformerDecoder(TopDownTransformerPreTrainedModel):
    """BART's decoder. Source: section 2 and figure 1, right."""

    _can_record_outputs = {
        "hidden_states": BartDecoderLayer,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(BartAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: TopDownTransformerConfig):
        super().__init__(config)
        self.embed_tokens = make_token_embedding(config)
        self.embed_positions = BartLearnedPositionalEmbedding(config.max_decoder_position_embeddings, config.d_model)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = nn.ModuleList(
            CopyDecoderLayer(config, i)
            if config.use_copy and i == config.decoder_layers - 1
            else BartDecoderLayer(config, layer_idx=i)
            for i in range(config.decoder_layers)
        )
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
    ) -> TopDownTransformerDecoderOutput:
        """Decode; the arguments are those of BART's decoder."""
        check_target(self.config, input_ids, inputs_embeds, encoder_hidden_states, attention_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, target, d_model)
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))

        past_length = cache.get_seq_length() if cache is not None else 0
        check_decoded(self.config, cache, inputs_embeds.shape[1])
        position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past_length
        positions = self.embed_positions(input_ids, past_length, position_ids=position_ids)
        hidden_states = self.layernorm_embedding(inputs_embeds + positions.to(inputs_embeds.device))
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
        refuse_flash_mask(source_mask, inputs_embeds.shape[1])
        copy_attentions = None
        for layer in self.layers:
            copies = isinstance(layer, CopyDecoderLayer)
            if self._drops_layer(self.config.decoder_layerdrop) and not copies:
                continue
            for_copying = {"source_mask": encoder_attention_mask} if copies else {}
            hidden_states = layer(
                hidden_states,
                causal_mask,
                encoder_hidden_states,  # positional, for gradient checkpointing
                encoder_attention_mask=source_mask,
                cache=cache,
                use_cache=use_cache,
                **for_copying,
                **kwargs,
            )
            if isinstance(hidden_states, tuple):
                hidden_states, copy_attentions = hidden_states
        return TopDownTransformerDecoderOutput(
            last_hidden_state=hidden_states, cache=cache, copy_attentions=copy_attentions
        )


__all__ = ["TopDownTransformerDecoder"]

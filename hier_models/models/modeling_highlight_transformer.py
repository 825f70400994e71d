"""Highlight-Transformer: key phrases raise attention in the encoder, and the decoder copies from the source.

Source: Liu et al., "Highlight-Transformer: Leveraging Key Phrase Aware Attention to Improve Abstractive Multi-Document
Summarization", section 3.

In the order data flows: highlight_band.py, what is highlighted; highlight_attention.py; here the encoder; the decoder
of copy_mechanism.py; and here the models.

Axes in shape comments: batch (documents, each of which may be several articles), source (source tokens), phrases
(occurrences in a document, padded to the most in the batch), target (target tokens), d_model (width).
"""

import torch
from torch.nn.attention.flex_attention import BlockMask
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bart.modeling_bart import BartAttention, BartEncoderLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bart_body import BartBodyModel, as_output, before, behind_attention, of_both, target_of, tensor_parallel_plan
from .bart_warm_start import BartWarmStart
from .bos_positions import token_positions
from .configuration_highlight_transformer import HighlightTransformerConfig
from .copy_mechanism import CopyDecoder
from .highlight_attention import HighlightTransformerSelfAttention
from .highlight_band import Band, check_phrases, make_band
from .input_checks import check_length, check_shape, check_source, check_values
from .model_outputs import CopyLMOutput, CopyModelOutput, HighlightTransformerEncoderOutput
from .seq2seq_head import Seq2SeqHead, writes


class HighlightTransformerPreTrainedModel(BartWarmStart):
    """What the models of this file share."""

    config: HighlightTransformerConfig
    config_class = HighlightTransformerConfig
    _no_split_modules = ["HighlightTransformerEncoderLayer", "CopyDecoderLayer"]


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
        return behind_attention(self, self.self_attn_layer_norm, hidden_states, attended)


class HighlightTransformerEncoder(HighlightTransformerPreTrainedModel):
    """Token embeddings, positions, and layers some of whose heads are highlighted. Source: section 3."""

    _can_record_outputs = {
        "hidden_states": HighlightTransformerEncoderLayer,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
    }

    def __init__(self, config: HighlightTransformerConfig):
        super().__init__(config)
        layers = (HighlightTransformerEncoderLayer(config, layer_idx=i) for i in range(config.encoder_layers))
        self.add_layers(layers, config.max_position_embeddings)
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
        shape = check_source(self.config, input_ids, inputs_embeds, attention_mask)
        check_length(self.config, shape[1])
        if source_ids is not None:
            check_shape("source_ids", source_ids, shape)
            check_values("source_ids", source_ids, self.config.vocab_size, "vocab_size")
        check_phrases(self.config, phrase_positions, phrase_values, shape, attention_mask)
        source_ids = input_ids if source_ids is None else source_ids
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, source, d_model)
        position_ids = token_positions(inputs_embeds, attention_mask).clamp(min=0)  # (batch, source)
        hidden_states = self._begin(self._add_positions(inputs_embeds, position_ids))

        # Where a dense mask is made, one row of it stands for all tokens.
        implementation = self.config._attn_implementation
        queries = inputs_embeds[:, :1] if implementation in ("eager", "sdpa") else inputs_embeds
        mask = create_bidirectional_mask(self.config, queries, attention_mask, encoder_hidden_states=inputs_embeds)
        band = None
        if phrase_positions is not None and phrase_values is not None and self.config.highlighted_layers:
            device = hidden_states.device
            band = make_band(
                phrase_positions.to(device),
                phrase_values.to(device),
                None if attention_mask is None else attention_mask.to(device),
                tokens=shape[1],
                brightness=self.config.brightness,
                max_phrase_length=self.config.max_phrase_length,
                dtype=torch.promote_types(hidden_states.dtype, torch.float32),
            )
        for layer in self.layers:
            if not self._drops_layer(self.config.encoder_layerdrop):
                hidden_states = layer(hidden_states, mask, band=band, **kwargs)
        if self.normalize_before:
            hidden_states = self.layer_norm(hidden_states)
        return HighlightTransformerEncoderOutput(last_hidden_state=hidden_states, source_ids=source_ids)


class HighlightTransformerDecoder(CopyDecoder, HighlightTransformerPreTrainedModel):
    """The CopyTransformer's decoder, or BART's; the last layer says what is copied. Source: section 3."""


class HighlightTransformerModel(BartBodyModel, HighlightTransformerPreTrainedModel):
    """The Highlight-Transformer, without a head (section 3); with BART's body and no highlights, BART exactly."""

    # Which heads of the encoder are highlighted, their numbers say, so it has them all.
    _tp_plan = tensor_parallel_plan(["decoder.layers.*.self_attn"], ["encoder.layers.*", "decoder.layers.*"])
    encoder_class, decoder_class = HighlightTransformerEncoder, HighlightTransformerDecoder

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        phrase_positions: torch.Tensor | None = None,
        phrase_values: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: HighlightTransformerEncoderOutput | tuple[torch.Tensor, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        source_ids: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CopyModelOutput:
        """Encode a source and decode a target.

        Args:
            input_ids: source token ids, `(batch, source)`.
            attention_mask: 1 for tokens, 0 for padding, `(batch, source)`.
            phrase_positions: first token of each key phrase and the one after its last, counted from the document's
                first token, so that padding does not move them, `(batch, phrases, 2)`; -1 pads. Phrases that overlap
                or are given twice add up. Without them nothing is highlighted.
            phrase_values: importance of each phrase, 0 or more, `(batch, phrases)`.
            decoder_input_ids: target token ids, `(batch, target)`; `input_ids` shifted to the right when not given,
                as in BART.
            decoder_attention_mask: 1 for tokens, 0 for padding, `(batch, target)`.
            encoder_outputs: what the encoder returned for the source; it is not run again.
            cache: cache of earlier decoding steps.
            inputs_embeds: embeddings in place of `input_ids`, `(batch, source, d_model)`.
            source_ids: ids of the tokens that `inputs_embeds` are of, to copy them, `(batch, source)`; `input_ids`
                when not given.
            decoder_inputs_embeds: embeddings in place of `decoder_input_ids`, `(batch, target, d_model)`.
            use_cache: return the cache for later decoding steps.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict` and arguments of the attention
                implementation.

        Returns:
            `last_hidden_state` of the decoder, `(batch, target, d_model)`, and what else was asked for.

        Raises:
            ValueError: if inputs are missing or given twice, have a wrong shape, are out of range, or are longer than
                the positions reach.
        """
        decoder_input_ids = target_of(self.config, input_ids, decoder_input_ids, decoder_inputs_embeds)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, phrase_positions, phrase_values, inputs_embeds, source_ids, **kwargs
            )
        encoder_outputs = as_output(
            encoder_outputs, HighlightTransformerEncoderOutput, "last_hidden_state", perhaps="source_ids"
        )
        encoded_ids = encoder_outputs.get("source_ids")
        if encoded_ids is None:
            encoded_ids = input_ids if source_ids is None else source_ids

        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            source_ids=encoded_ids,
            **kwargs,
        )
        return CopyModelOutput(
            **of_both(encoder_outputs, decoder_outputs),
            copy_attentions=decoder_outputs.copy_attentions,
            source_ids=encoded_ids,
        )


class HighlightTransformerForConditionalGeneration(Seq2SeqHead, HighlightTransformerPreTrainedModel, GenerationMixin):
    """The Highlight-Transformer with a head that generates and copies, for summarization. Source: section 3.

    Takes what [`HighlightTransformerModel`] does, and by name `labels`: target token ids, -100 where there is no loss,
    `(batch, target)`. Shifted to the right they are the `decoder_input_ids` if none are given, and they turn off
    `use_cache`. The loss is a mean over this batch, or over the accumulated one's `num_items_in_batch`. Returns
    `logits`, `(batch, target, vocab_size)`, and what else was asked for. With `use_copy` these are logarithms of
    probabilities, and `output_copying=True` adds `copy_probability` and `copy_attentions`. Copying needs `input_ids`,
    `source_ids`, or encoder outputs that hold them.
    """

    model_class = HighlightTransformerModel
    forward = writes(HighlightTransformerModel, CopyLMOutput)

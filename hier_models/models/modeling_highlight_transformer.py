"""Highlight-Transformer: key phrases raise attention in the encoder, and the decoder copies from the source.

Source: Liu et al., "Highlight-Transformer: Leveraging Key Phrase Aware Attention to Improve Abstractive Multi-Document
Summarization", section 3.

In the order data flows: encoder_highlight_transformer.py, with its attention (highlight_attention_…) and layers
(layers_…); decoder_highlight_transformer.py; copying_highlight_transformer.py; and here the models.

Axes in shape comments:
    batch       documents, each of which may be several articles
    source      source tokens
    phrases     occurrences of phrases in a document, padded to the most in the batch
    target      target tokens
    d_model     width
"""

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.models.bart.modeling_bart import shift_tokens_right
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple

from .bart_warm_start import make_token_embedding
from .configuration_highlight_transformer import HighlightTransformerConfig
from .decoder_highlight_transformer import HighlightTransformerDecoder
from .encoder_highlight_transformer import HighlightTransformerEncoder
from .input_checks_highlight_transformer import check_labels
from .modeling_outputs_highlight_transformer import (
    HighlightTransformerEncoderOutput,
    HighlightTransformerLMOutput,
    HighlightTransformerModelOutput,
)
from .pretrained_highlight_transformer import HighlightTransformerPreTrainedModel
from .seq2seq_head import Seq2SeqHead


class HighlightTransformerModel(HighlightTransformerPreTrainedModel):
    """Encoder and decoder of the Highlight-Transformer, without a head.

    Source: section 3. With BART's body and nothing highlighted, equal to [`BartModel`].
    """

    _tied_weights_keys = {
        "decoder.embed_tokens.weight": "shared.weight",
        "encoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: HighlightTransformerConfig):
        super().__init__(config)
        self.shared = make_token_embedding(config)
        self.encoder = HighlightTransformerEncoder(config)
        self.decoder = HighlightTransformerDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the embedding that encoder, decoder and head share."""
        return self.shared

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the embedding that encoder and decoder share."""
        self.shared = value
        self.encoder.embed_tokens = value
        self.decoder.embed_tokens = value

    @can_return_tuple
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
    ) -> HighlightTransformerModelOutput:
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
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if input_ids is None:
                raise ValueError("Give `decoder_input_ids` or `decoder_inputs_embeds` when there are no `input_ids`.")
            decoder_input_ids = shift_tokens_right(
                input_ids, self.config.pad_token_id, self.config.decoder_start_token_id
            )

        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                phrase_positions=phrase_positions,
                phrase_values=phrase_values,
                inputs_embeds=inputs_embeds,
                source_ids=source_ids,
                **kwargs,
            )
        elif not isinstance(encoder_outputs, ModelOutput):
            encoder_outputs = _from_tuple(encoder_outputs)
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
            **kwargs,
        )
        return HighlightTransformerModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            cache=decoder_outputs.cache,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
            copy_attentions=decoder_outputs.copy_attentions,
            source_ids=encoded_ids,
        )


class HighlightTransformerForConditionalGeneration(Seq2SeqHead, HighlightTransformerPreTrainedModel, GenerationMixin):
    """The Highlight-Transformer with a head that generates and copies, for summarization. Source: section 3."""

    def __init__(self, config: HighlightTransformerConfig):
        super().__init__(config)
        self.model = HighlightTransformerModel(config)
        self.make_head(config)
        self.post_init()

    @can_return_tuple
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
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_copying: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HighlightTransformerLMOutput:
        """Predict the target.

        With copying, `logits` are logarithms of probabilities: what generation and scoring make of logits is then the
        mixture of generating and copying itself.

        Args:
            input_ids: for this and all without a text here, see [`HighlightTransformerModel`].
            attention_mask: see there.
            phrase_positions: see there.
            phrase_values: see there.
            decoder_input_ids: see there.
            decoder_attention_mask: see there.
            encoder_outputs: see there.
            cache: see there.
            inputs_embeds: see there.
            source_ids: see there.
            decoder_inputs_embeds: see there.
            labels: target token ids, -100 where there is no loss, `(batch, target)`. They turn off `use_cache`, and
                shifted to the right are the `decoder_input_ids` if none are given.
            use_cache: see there.
            output_copying: return `copy_probability` and `copy_attentions`, with any attention implementation.
            **kwargs: see there; and `num_items_in_batch`, the labels in the whole accumulated batch. [`Trainer`]
                gives it, so that accumulated batches of unequal length weigh each token the same. Without it the loss
                is a mean over this batch.

        Returns:
            `logits`, `(batch, target, vocab_size)`, `loss` if there are `labels`, and what else was asked for.

        Raises:
            ValueError: if the model copies and is given neither `input_ids` nor `source_ids`, nor encoder outputs that
                hold them, or ids of another shape than the encoded source; and see there.
        """
        if labels is not None:
            check_labels(
                self.config, labels, decoder_inputs_embeds if decoder_input_ids is None else decoder_input_ids
            )
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)

        num_items_in_batch = kwargs.pop("num_items_in_batch", None)
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            phrase_positions=phrase_positions,
            phrase_values=phrase_values,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            source_ids=source_ids,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        wants_copying = output_copying or kwargs.get("output_attentions", self.config.output_attentions)
        predicted = self.predict(outputs, labels, num_items_in_batch, wants_copying)
        return HighlightTransformerLMOutput(**predicted)


def _from_tuple(encoder_outputs: tuple[torch.Tensor, ...]) -> HighlightTransformerEncoderOutput:
    """Read what the encoder returns with `return_dict=False`: states, and ids if it was given some."""
    states, *others = encoder_outputs
    has_ids = bool(others) and isinstance(others[0], torch.Tensor) and not others[0].is_floating_point()
    return HighlightTransformerEncoderOutput(last_hidden_state=states, source_ids=others[0] if has_ids else None)


__all__ = ["HighlightTransformerForConditionalGeneration", "HighlightTransformerModel"]

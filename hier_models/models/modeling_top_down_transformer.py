"""Top-Down Transformer: BART for long documents, with local attention over tokens and full attention over segments.

Source: Pang et al., "Long Document Summarization with Top-down and Bottom-up Inference", section 2 and figure 1.

In the order data flows: encoder_top_down_transformer.py, with its window (local_attention.py), its pooling
(segment_pooling.py) and its layers (top_down_layers.py); the decoder of copy_mechanism.py; and here the models, with
and without heads.

Axes in shape comments: batch (documents), source (source tokens), segments (of a document), target (target tokens),
d_model (width).
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg

from .bart_body import BartBodyModel, as_output, of_both, target_of, tensor_parallel_plan
from .configuration_top_down_transformer import TopDownTransformerConfig
from .copy_mechanism import CopyDecoder
from .encoder_top_down_transformer import TopDownTransformerEncoder, TopDownTransformerPreTrainedModel
from .losses import token_loss
from .model_outputs import (
    TopDownTransformerEncoderOutput,
    TopDownTransformerLMOutput,
    TopDownTransformerModelOutput,
    TopDownTransformerTokenClassifierOutput,
    takes,
)
from .seq2seq_head import Seq2SeqHead, writes


class TopDownTransformerDecoder(CopyDecoder, TopDownTransformerPreTrainedModel):
    """BART's decoder, over the states of the source's tokens. Source: section 2 and figure 1, right."""

    _no_split_modules = ["CopyDecoderLayer"]
    positions_field = "max_decoder_position_embeddings"


class TopDownTransformerModel(BartBodyModel, TopDownTransformerPreTrainedModel):
    """The Top-Down Transformer, without a head. Source: section 2 and figure 1.

    With `top_down_update="none"` and a window of twice the source, equal to [`BartModel`].
    """

    # Layers of segments have two numbers in their names, of which Transformers knows one.
    _tp_plan = tensor_parallel_plan(
        ["encoder.layers.*.self_attn", "encoder.layers.*.segment_attn", "decoder.layers.*.self_attn"],
        ["encoder.layers.*", "decoder.layers.*"],
    )
    encoder_class, decoder_class = TopDownTransformerEncoder, TopDownTransformerDecoder

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_importance: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: TopDownTransformerEncoderOutput | tuple[torch.Tensor, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TopDownTransformerModelOutput:
        """Encode a source and decode a target.

        Args:
            input_ids: source token ids, `(batch, source)`.
            attention_mask: 1 for tokens, 0 for padding, `(batch, source)`.
            token_importance: weight of each token in the segments that it is pooled into, 0 or more, on any scale,
                `(batch, source)`. For models with `pooling="importance"`; without it, every token weighs the same.
                A segment whose weights are all zero is the average of its tokens; a document's must not all be.
            decoder_input_ids: target token ids, `(batch, target)`; `input_ids` shifted to the right when not given,
                as in BART.
            decoder_attention_mask: 1 for tokens, 0 for padding, `(batch, target)`.
            encoder_outputs: what the encoder returned for the source; it is not run again.
            cache: cache of earlier decoding steps.
            inputs_embeds: embeddings in place of `input_ids`, `(batch, source, d_model)`.
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
                input_ids, attention_mask, token_importance=token_importance, inputs_embeds=inputs_embeds, **kwargs
            )
        of_segments = ("segment_hidden_states", "segment_attention_mask") if self.config.pooling_windows else ()
        names = ("last_hidden_state", *of_segments)
        encoder_outputs = as_output(encoder_outputs, TopDownTransformerEncoderOutput, *names, perhaps="source_ids")
        source_ids = encoder_outputs.get("source_ids")

        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            source_ids=input_ids if source_ids is None else source_ids,
            **kwargs,
        )
        return TopDownTransformerModelOutput(
            **of_both(encoder_outputs, decoder_outputs),
            segment_attentions=encoder_outputs.get("segment_attentions"),
            token_segment_attentions=encoder_outputs.get("token_segment_attentions"),
            copy_attentions=decoder_outputs.get("copy_attentions"),
            source_ids=input_ids if source_ids is None and self.config.use_copy else source_ids,
        )


class TopDownTransformerForConditionalGeneration(Seq2SeqHead, TopDownTransformerPreTrainedModel, GenerationMixin):
    """The Top-Down Transformer with a language modeling head, for summarization. Source: sections 2 and 3.

    Takes what [`TopDownTransformerModel`] does, and by name `labels`: target token ids, -100 where there is no loss,
    `(batch, target)`. Shifted to the right they are the `decoder_input_ids` if none are given, and they turn off
    `use_cache`. The loss is a mean over this batch, or over the accumulated one's `num_items_in_batch`. Returns
    `logits`, `(batch, target, vocab_size)`, and what else was asked for. With `use_copy` these are logarithms of
    probabilities, and `output_copying=True` adds `copy_probability` and `copy_attentions`.
    """

    model_class = TopDownTransformerModel
    forward = writes(TopDownTransformerModel, TopDownTransformerLMOutput)


class TopDownTransformerEncoderModel(BartBodyModel, TopDownTransformerPreTrainedModel):
    """The encoder alone. Checkpoints of the other models load into it, and BART's. Source: section 2."""

    _tied_weights_keys = {"encoder.embed_tokens.weight": "shared.weight"}
    _keys_to_ignore_on_load_unexpected = [r"decoder\.", r"lm_head", r"final_logits_bias", r"encoder\.version"]

    encoder_class = TopDownTransformerEncoder

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_importance: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TopDownTransformerEncoderOutput:
        """Encode documents into states of tokens and segments; takes the inputs of [`TopDownTransformerModel`]."""
        return self.encoder(input_ids, attention_mask, token_importance, inputs_embeds, **kwargs)


class TopDownTransformerForTokenClassification(TopDownTransformerPreTrainedModel):
    """Labels each token: the importance tagger, of two labels by the probability of label 1. Source: section 2.3."""

    _keys_to_ignore_on_load_unexpected = TopDownTransformerEncoderModel._keys_to_ignore_on_load_unexpected

    def __init__(self, config: TopDownTransformerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = TopDownTransformerEncoderModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.d_model, config.num_labels)
        self.post_init()

    @can_return_tuple
    @takes(TopDownTransformerEncoderModel, "labels")
    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: Any = None, **inputs: Any
    ) -> TopDownTransformerTokenClassifierOutput:
        """Label each token: `logits`, `(batch, source, num_labels)`, and what else was asked for.

        `labels` are the label of each token, -100 where there is no loss, `(batch, source)`; `num_items_in_batch` is
        the number of labels in the whole accumulated batch. The inputs are those of [`TopDownTransformerModel`].
        """
        outputs = self.model(**inputs, return_dict=True)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))  # (batch, source, num_labels)
        loss = None if labels is None else token_loss(logits, labels, num_items_in_batch)
        names = ("hidden_states", "attentions", "segment_attentions", "token_segment_attentions")
        recorded = {name: getattr(outputs, name) for name in names}
        return TopDownTransformerTokenClassifierOutput(loss=loss, logits=logits, **recorded)

"""HAM: an encoder-decoder whose attention has several levels, all of which count.

Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks".

In the order data flows: hierarchical_attention.py; gru_body.py and transformer_body.py, encoder and decoder of both;
recurrent_cache.py, the GRU decoder's state; and here the models.

Axes in shape comments: batch (sources), source (source tokens), target (target tokens).
"""

from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_masks_for_generate
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg

from .bart_body import BartBodyModel, as_output, of_both, target_of
from .configuration_ham import HamConfig
from .gru_body import HamGruDecoder, HamGruEncoder
from .input_checks import check_shape
from .model_outputs import HamEncoderOutput, HamLMOutput, HamModelOutput
from .pretrained_ham import HamPreTrainedModel
from .seq2seq_head import Seq2SeqHead, writes
from .transformer_body import HamTransformerDecoder, HamTransformerEncoder


class HamModel(BartBodyModel, HamPreTrainedModel):
    """HAM without a head. Source: sections 3, 5.2. The Transformer body of one level is equal to [`BartModel`]."""

    def __init__(self, config: HamConfig):
        is_gru = config.body == "gru"
        self.encoder_class = HamGruEncoder if is_gru else HamTransformerEncoder
        self.decoder_class = HamGruDecoder if is_gru else HamTransformerDecoder
        super().__init__(config)

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        keyword_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: HamEncoderOutput | tuple[Any, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HamModelOutput:
        """Encode a source and decode a target.

        Args:
            input_ids: source token ids, `(batch, source)`.
            attention_mask: 1 for tokens, 0 for padding, `(batch, source)`.
            keyword_mask: 1 for the tokens of a poem line's keyword, 0 for all others, `(batch, source)`. The GRU body
                reads them apart and attends to them as one state; the Transformer body marks them. Without it there is
                no keyword.
            decoder_input_ids: target token ids, `(batch, target)`; `input_ids` shifted to the right when not given,
                as in BART.
            decoder_attention_mask: 1 for tokens, 0 for padding, `(batch, target)`.
            encoder_outputs: what the encoder returned for the source; it is not run again.
            cache: what earlier decoding steps left.
            inputs_embeds: embeddings in place of `input_ids`, `(batch, source, embedding_size)`.
            decoder_inputs_embeds: embeddings in place of `decoder_input_ids`, `(batch, target, embedding_size)`.
            use_cache: return what later decoding steps need.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict` and arguments of the attention
                implementation.

        Returns:
            `last_hidden_state` of the decoder, `(batch, target, embedding_size)`, and what else was asked for.

        Raises:
            ValueError: if inputs are missing or given twice, have a wrong shape, are out of range, or are longer than
                the positions reach.
        """
        decoder_input_ids = target_of(self.config, input_ids, decoder_input_ids, decoder_inputs_embeds)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, keyword_mask, inputs_embeds, **kwargs)
        else:
            encoder_outputs = as_output(encoder_outputs, HamEncoderOutput, "last_hidden_state", perhaps="memory_mask")
            shape = encoder_outputs.last_hidden_state.shape[:2]
            check_shape("attention_mask", attention_mask, shape, " like `encoder_outputs`")
        memory_mask = encoder_outputs.get("memory_mask")
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask if memory_mask is None else memory_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return HamModelOutput(
            **of_both(encoder_outputs, decoder_outputs),
            level_weights=self._level_weights(decoder_outputs.last_hidden_state),
            level_attentions=decoder_outputs.get("level_attentions"),
        )


class HamForConditionalGeneration(Seq2SeqHead, HamPreTrainedModel, GenerationMixin):
    """HAM with a head, for poems, translation and summaries. Source: sections 3 and 5.2.

    Takes what [`HamModel`] does, and by name `labels`: target token ids, -100 where there is no loss, `(batch,
    target)`. Shifted to the right they are the `decoder_input_ids` if none are given, and they turn off `use_cache`.
    The loss is a mean over this batch, or over the accumulated one's `num_items_in_batch`. Returns `logits`, `(batch,
    target, vocab_size)`, and what else was asked for.
    """

    model_class = HamModel
    forward = writes(HamModel, HamLMOutput)

    def create_masks_for_generate(self, **kwargs: Any) -> Any:
        """Make the masks of generation; the GRU body keeps the target's as it is, for it has no keys and values."""
        if self.config.body == "gru":
            return kwargs.get("attention_mask")
        return create_masks_for_generate(**kwargs)

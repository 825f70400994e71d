"""HAM: an encoder-decoder whose attention has several levels, all of which count.

Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks".

In the order data flows: hierarchical_attention.py; gru_body.py and transformer_body.py, encoder and decoder of both;
recurrent_cache.py, the GRU decoder's state; and here the models.

Axes in shape comments:
    batch       sources
    source      source tokens
    target      target tokens
"""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_masks_for_generate
from transformers.models.bart.modeling_bart import shift_tokens_right
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple

from .configuration_ham import HamConfig
from .gru_body import HamGruDecoder, HamGruEncoder
from .input_checks_ham import check_labels, check_source
from .modeling_outputs_ham import HamEncoderOutput, HamLMOutput, HamModelOutput
from .pretrained_ham import HamPreTrainedModel, make_embedding
from .recurrent_cache import HamCache
from .transformer_body import HamTransformerDecoder, HamTransformerEncoder


class HamModel(HamPreTrainedModel):
    """Encoder and decoder of HAM, without the head.

    Source: sections 3 and 5.2. With the Transformer body and one level, equal to [`BartModel`].

    Args:
        config: of the model.
    """

    _tied_weights_keys = {
        "decoder.embed_tokens.weight": "shared.weight",
        "encoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: HamConfig):
        super().__init__(config)
        is_gru = config.body == "gru"
        self.shared = make_embedding(config)
        self.encoder = HamGruEncoder(config) if is_gru else HamTransformerEncoder(config)
        self.decoder = HamGruDecoder(config) if is_gru else HamTransformerDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the embedding that encoder and decoder share."""
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
                keyword_mask=keyword_mask,
                inputs_embeds=inputs_embeds,
                **kwargs,
            )
        else:
            if not isinstance(encoder_outputs, ModelOutput):
                encoder_outputs = _from_tuple(encoder_outputs)
            check_source(encoder_outputs.last_hidden_state, attention_mask)
        memory_mask = encoder_outputs.get("memory_mask")
        is_gru = self.config.body == "gru"
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if is_gru and self.training and self.decoder.step.gradient_checkpointing:
            use_cache = False
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask if memory_mask is None else memory_mask,
            cache=_own_cache(cache) if is_gru else cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        decoder_attentions = decoder_outputs.attentions
        if decoder_attentions is None and decoder_outputs.cross_attentions is not None:
            decoder_attentions = ()  # GRUs have none; assisted decoding wants something to iterate over
        return HamModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            cache=decoder_outputs.cache,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
            level_weights=self._level_weights(decoder_outputs.last_hidden_state),
            level_attentions=decoder_outputs.get("level_attentions"),
        )

    def _level_weights(self, states: torch.Tensor) -> torch.Tensor:
        """Weights of the levels of every attention, `(batch, attentions, depth)`, without gradient."""
        mixtures = [weights().detach().to(states.device) for _, weights in self._level_modules()]
        return torch.stack(mixtures).expand(len(states), -1, -1)


class HamForConditionalGeneration(HamPreTrainedModel, GenerationMixin):
    """HAM with a head, for poems, translation and summaries. Source: sections 3 and 5.2.

    Args:
        config: of the model.
    """

    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}
    _keys_to_ignore_on_load_missing = ["final_logits_bias"]

    def __init__(self, config: HamConfig):
        super().__init__(config)
        assert config.embedding_size is not None
        self.model = HamModel(config)
        self.final_logits_bias = nn.Buffer(torch.zeros(1, config.vocab_size))
        self.lm_head = nn.Linear(config.embedding_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if module is self:
            init.zeros_(module.final_logits_bias)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the shared embedding, the head and its bias; see `PreTrainedModel.resize_token_embeddings`."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        bias = self.final_logits_bias
        new = bias.new_zeros(1, embeddings.num_embeddings)
        kept = min(new.shape[1], bias.shape[1])
        new[:, :kept] = bias[:, :kept]
        self.final_logits_bias = nn.Buffer(new)
        return embeddings

    @can_return_tuple
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
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HamLMOutput:
        """Predict the target.

        Args:
            input_ids: for this and all without a text here, see [`HamModel`].
            attention_mask: see there.
            keyword_mask: see there.
            decoder_input_ids: see there.
            decoder_attention_mask: see there.
            encoder_outputs: see there.
            cache: see there.
            inputs_embeds: see there.
            decoder_inputs_embeds: see there.
            labels: target token ids, -100 where there is no loss, `(batch, target)`. They turn off `use_cache`, and
                shifted to the right are the `decoder_input_ids` if none are given.
            use_cache: see there.
            **kwargs: see there; and `num_items_in_batch`, the labels in the whole accumulated batch. [`Trainer`]
                gives it, so that accumulated batches of unequal length weigh each token the same. Without it the loss
                is a mean over this batch.

        Returns:
            `logits`, `(batch, target, vocab_size)`, `loss` if there are `labels`, and what else was asked for.

        Raises:
            ValueError: see there.
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
            keyword_mask=keyword_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)  # (batch, target, vocab_size)
        logits = logits + self.final_logits_bias.to(logits.device)
        loss = None if labels is None else _loss(logits, labels, num_items_in_batch)
        return HamLMOutput(
            loss=loss,
            logits=logits,
            **{name: value for name, value in outputs.items() if name != "last_hidden_state"},
        )

    def create_masks_for_generate(self, **kwargs: Any) -> Any:
        """Make the masks of generation; the GRU body keeps the target's as it is, for it has no keys and values.

        Args:
            **kwargs: see `transformers.masking_utils.create_masks_for_generate`.

        Returns:
            The masks.
        """
        if self.config.body == "gru":
            return kwargs.get("attention_mask")
        return create_masks_for_generate(**kwargs)

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shift `labels` to the right, behind the start token; -100 becomes padding."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)


def _own_cache(cache: Cache | None) -> HamCache | None:
    """Put our cache in the place of the empty one that generation makes for Transformers."""
    if cache is None or isinstance(cache, HamCache):
        return cache
    if cache.get_seq_length():
        raise ValueError(
            f"`cache` must be what this model returned, got a {type(cache).__name__} with "
            f"{cache.get_seq_length()} tokens."
        )
    return None


def _from_tuple(encoder_outputs: tuple[Any, ...]) -> HamEncoderOutput:
    """Read what the encoder returns with `return_dict=False`: its fields in order, without those that are missing."""
    states, *others = encoder_outputs
    has_mask = bool(others) and isinstance(others[0], torch.Tensor)
    return HamEncoderOutput(last_hidden_state=states, memory_mask=others[0] if has_mask else None)


def _loss(logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:
    """Mean over labels that are not -100, of this batch or of the whole accumulated one."""
    flat_labels = labels.to(logits.device).reshape(-1)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), flat_labels, reduction=reduction)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


__all__ = ["HamForConditionalGeneration", "HamModel"]

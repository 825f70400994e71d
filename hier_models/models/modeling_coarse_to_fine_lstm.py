"""Coarse-to-Fine LSTM: attention to rows of a document, then to the words of a row; with hard attention, of few rows.

Source: Jeffrey Ling, "Coarse-to-Fine Attention Models for Document Summarization", chapter 4.

In the order data flows: encoder_coarse_to_fine_lstm.py, with its rows (rows.py), which are read when they are selected
(conditional_reading.py); decoder_coarse_to_fine_lstm.py, with its state (recurrent_cache.py); reinforce.py; and here
the models.

Axes in shape comments: batch (documents), source (source tokens), rows (of a document), target (target tokens).
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple, logging
from transformers.utils.deprecation import deprecate_kwarg

from .bart_body import of_both, target_of
from .configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig
from .decoder_coarse_to_fine_lstm import CoarseToFineLstmDecoder, RowChoice
from .encoder_coarse_to_fine_lstm import CoarseToFineLstmEncoder, CoarseToFineLstmPreTrainedModel
from .input_checks import check_one
from .model_outputs import CoarseToFineLstmEncoderOutput, CoarseToFineLstmLMOutput, CoarseToFineLstmModelOutput
from .reinforce import RewardBaseline, surrogate_loss
from .seq2seq_head import WritesTargets, writes


logger = logging.get_logger(__name__)


class CoarseToFineLstmModel(CoarseToFineLstmPreTrainedModel):
    """Encoder and decoder of the Coarse-to-Fine LSTM, without the generator. Source: thesis, chapter 4.

    `soft_attention` makes hard attention soft in training ("+PRETRAIN").
    """

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__(config)
        self.encoder = CoarseToFineLstmEncoder(config)
        self.decoder = CoarseToFineLstmDecoder(config)
        self.soft_attention = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the embedding of the source."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the embedding of the source."""
        self.encoder.embed_tokens = value

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize all embeddings; see `PreTrainedModel.resize_token_embeddings`."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        self._resize_others(embeddings.num_embeddings)
        return embeddings

    def _resize_others(self, vocab_size: int) -> None:
        for module in (self.decoder, getattr(self.encoder, "coarse", None)):
            embedding = getattr(module, "embed_tokens", None)
            if embedding is not None and embedding.num_embeddings != vocab_size:
                module.embed_tokens = _resized(embedding, vocab_size, self.config.init_range)

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        row_ids: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: CoarseToFineLstmEncoderOutput | tuple[Any, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CoarseToFineLstmModelOutput:
        """Encode a source and decode a target.

        Args:
            input_ids: source token ids, `(batch, source)`.
            attention_mask: 1 for tokens, 0 for padding, `(batch, source)`.
            row_ids: row of each token in its document, counted from 0, not decreasing; -1 for padding,
                `(batch, source)`. Without them the whole source is one row.
            decoder_input_ids: target token ids, `(batch, target)`; `input_ids` shifted to the right when not given,
                as in BART.
            decoder_attention_mask: 1 for tokens, 0 for padding, `(batch, target)`.
            encoder_outputs: what the encoder returned for the source; it is not run again.
            cache: state after earlier decoding steps.
            inputs_embeds: embeddings in place of `input_ids`, `(batch, source, embedding_size)`.
            decoder_inputs_embeds: embeddings in place of `decoder_input_ids`, `(batch, target, embedding_size)`.
            use_cache: return the state for later decoding steps.
            **kwargs: `output_attentions`, `output_hidden_states` and `return_dict`.

        Returns:
            `last_hidden_state`, the contexts of the target, `(batch, target, hidden_size)`, and what else was asked
            for.

        Raises:
            ValueError: if inputs are missing or given twice, have a wrong shape or are out of range, or there are more
                rows than row positions.
        """
        decoder_input_ids = target_of(self.config, input_ids, decoder_input_ids, decoder_inputs_embeds)
        check_one(decoder_input_ids, decoder_inputs_embeds, "decoder_")
        wants = {
            name: kwargs.get(name) if kwargs.get(name) is not None else getattr(self.config, name)
            for name in ("output_attentions", "output_hidden_states")
        }
        choice = self._row_choice()
        if encoder_outputs is None:
            # A checkpointed step is taken twice, and would find other rows read the second time.
            chooses = self.training and choice is not None and choice.how != "soft"
            on_demand = True if chooses and not self.decoder.step.gradient_checkpointing else None
            encoder_outputs = self.encoder(
                input_ids, attention_mask, row_ids, inputs_embeds, wants["output_hidden_states"], on_demand
            )
        elif not isinstance(encoder_outputs, ModelOutput):
            encoder_outputs = _from_tuple(encoder_outputs)
        encoder_outputs = self._with_rows(encoder_outputs, attention_mask, row_ids)

        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            choice=choice,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **wants,
        )
        found = of_both(encoder_outputs, decoder_outputs)
        if encoder_outputs.get("row_store") is not None:
            found["encoder_last_hidden_state"] = None  # nothing was read
        if wants["output_attentions"]:
            found["decoder_attentions"] = ()  # LSTMs have none; assisted decoding wants something to iterate over
        return CoarseToFineLstmModelOutput(
            **found,
            row_attentions=decoder_outputs.row_attentions,
            row_log_probabilities=decoder_outputs.row_log_probabilities,
            row_counts=decoder_outputs.row_counts,
            left_out_rows=decoder_outputs.left_out_rows,
            left_out_contexts=decoder_outputs.left_out_contexts,
            encoded_rows=decoder_outputs.encoded_rows,
        )

    def _row_choice(self) -> RowChoice | None:
        config = self.config
        if not config.attends_to_rows:
            return None
        if config.attention == "coarse_to_fine":
            return RowChoice("soft")
        if not self.training:
            return RowChoice("best", config.selected_rows or config.num_samples)
        if self.soft_attention or torch.rand(()).item() < config.alternate_soft:
            return RowChoice("soft")
        if config.estimator == "top_k":
            return RowChoice("best", config.num_samples, noise=config.gumbel_noise)
        return RowChoice("draw", config.num_samples, leave_one_out=config.baseline == "leave_one_out")

    def _with_rows(
        self, encoder_outputs: ModelOutput, attention_mask: torch.Tensor | None, row_ids: torch.Tensor | None
    ) -> ModelOutput:
        """Complete what somebody else's encoder returned: states only, which Models 0 and 1 can attend to."""
        shape = encoder_outputs["last_hidden_state"].shape[:2]
        if attention_mask is not None and attention_mask.shape != shape:
            raise ValueError(
                f"`attention_mask` must be {tuple(shape)} like `encoder_outputs`, got shape "
                f"{tuple(attention_mask.shape)}. Beam search repeats an encoding in its place: encode anew."
            )
        if encoder_outputs.get("row_store") is not None or encoder_outputs.get("row_ids") is not None:
            return encoder_outputs
        if self.config.attends_to_rows:
            raise ValueError(
                f"`encoder_outputs` must be what this model's encoder returns, with `row_keys` and `row_tokens`, for "
                f"attention={self.config.attention!r}; got {', '.join(encoder_outputs)}."
            )
        states = encoder_outputs["last_hidden_state"]
        if row_ids is None:
            row_ids = torch.zeros(states.shape[:2], dtype=torch.long, device=states.device)
        if attention_mask is not None and not self.config.attend_padding:
            row_ids = row_ids.where(attention_mask != 0, -1)
        return CoarseToFineLstmEncoderOutput(**{**encoder_outputs, "row_ids": row_ids})


class CoarseToFineLstmForConditionalGeneration(WritesTargets, CoarseToFineLstmPreTrainedModel, GenerationMixin):
    """The Coarse-to-Fine LSTM with its generator, for summarization. Source: thesis, chapter 4, equation 4.7.

    Takes what [`CoarseToFineLstmModel`] does, and by name `labels`: target token ids, -100 where there is no loss,
    `(batch, target)`. Shifted to the right they are the `decoder_input_ids` if none are given, and they turn off
    `use_cache`. The loss is a mean over this batch, or over the accumulated one's `num_items_in_batch`. Returns
    `logits`, `(batch, target, vocab_size)`, and what else was asked for. When rows are drawn, in training with hard
    attention and `estimator="reinforce"`, the value of `loss` is the negative log-likelihood, and its gradient also
    that of the surrogate (REINFORCE).
    """

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__(config)
        self.model = CoarseToFineLstmModel(config)
        self.dropout = nn.Dropout(config.dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        if config.attention == "hard" and config.estimator == "reinforce":
            self.reward_baseline = RewardBaseline(config.baseline_rate)
        self.post_init()

    @property
    def soft_attention(self) -> bool:
        """Whether hard attention is soft in training, as in the first epochs of "+PRETRAIN"."""
        return self.model.soft_attention

    @soft_attention.setter
    def soft_attention(self, value: bool) -> None:
        self.model.soft_attention = value

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize all embeddings and the generator; see `PreTrainedModel.resize_token_embeddings`."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        self.model._resize_others(embeddings.num_embeddings)
        return embeddings

    forward = writes(CoarseToFineLstmModel, CoarseToFineLstmLMOutput)

    def predict(
        self,
        outputs: CoarseToFineLstmModelOutput,
        labels: torch.Tensor | None,  # (batch, target)
        num_items_in_batch: Any,
        wants_copying: bool | None = None,
    ) -> dict[str, Any]:
        """Turn contexts into logits, and a loss if there are labels."""
        logits = self.lm_head(self.dropout(outputs.last_hidden_state))  # (batch, target, vocab_size)
        loss = surrogate = None
        if labels is not None:
            loss, surrogate = self._loss(logits, labels.to(logits.device), num_items_in_batch, outputs)
        elif outputs.row_log_probabilities is not None and torch.is_grad_enabled():
            logger.warning_once(
                "Hard attention was asked to train without `labels`, so it does not learn which rows to read: what "
                "teaches it is the model's own loss. With Trainer, set label_smoothing_factor=0."
            )
        not_here = ("last_hidden_state", "row_log_probabilities", "row_counts", "left_out_rows", "left_out_contexts")
        others = {name: value for name, value in outputs.items() if name not in not_here}
        return {"loss": loss, "logits": logits, "surrogate": surrogate, **others}

    def _loss(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any, outputs: CoarseToFineLstmModelOutput
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Negative log-likelihood for each label that is not -100, and the surrogate's value if rows were drawn."""
        mask = labels != -100
        per_token = _negative_log_likelihood(logits, labels)
        count = torch.as_tensor(mask.sum() if num_items_in_batch is None else num_items_in_batch, device=logits.device)
        count = count.clamp(min=1)  # without any label the loss is 0
        loss = per_token.sum() / count
        if not (self.training and hasattr(self, "reward_baseline")):
            return loss, None
        rewards = None
        surrogate = None
        if outputs.row_log_probabilities is not None:
            rewards = -per_token.detach()  # section 4.4.1: log p(y_t | …), (batch, target)
            surrogate = surrogate_loss(
                outputs.row_log_probabilities,
                outputs.row_counts,
                rewards,
                self.reward_baseline(rewards.shape[1]),
                mask,
                self.config.reward_discount,
                self.config.reward_scale,
                count,
                self._rewards_left_out(outputs, labels),
            )
            loss = loss + (surrogate - surrogate.detach())
            surrogate = surrogate.detach()
        self.reward_baseline.update(rewards, mask)
        return loss, surrogate

    @torch.no_grad()
    def _rewards_left_out(self, outputs: CoarseToFineLstmModelOutput, labels: torch.Tensor) -> torch.Tensor | None:
        """Reward of each step without one draw of each row that was drawn, `(batch, target, rows)`."""
        if outputs.left_out_contexts is None or outputs.left_out_rows is None or outputs.row_counts is None:
            return None
        logits = self.lm_head(self.dropout(outputs.left_out_contexts))  # (batch, target, samples, vocab_size)
        rewards = -_negative_log_likelihood(logits, labels.unsqueeze(-1).expand(logits.shape[:-1]))
        zeros = torch.zeros(outputs.row_counts.shape, dtype=rewards.dtype, device=rewards.device)
        return zeros.scatter(-1, outputs.left_out_rows, rewards)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate; the result also has `encoded_rows`, how many rows of each document were read, `(batch,)`."""
        found: Any = super().generate(*args, **kwargs)  # type: ignore[misc]  # of a mixin
        cache = found.get("cache") if isinstance(found, ModelOutput) else None
        encoded_rows = getattr(cache, "encoded_rows", None)
        if encoded_rows is not None:
            found["encoded_rows"] = encoded_rows
        return found

    @staticmethod
    def create_masks_for_generate(attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
        """Keep the mask as it is; with a static cache, generation asks for one of keys and values: here are none."""
        return attention_mask


def _negative_log_likelihood(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Of each label, in the labels' shape; 0 for -100."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (…, vocab_size)
    return nn.functional.cross_entropy(wide.flatten(0, -2), labels.flatten(), reduction="none").view_as(labels)


@torch.no_grad()
def _resized(embedding: nn.Embedding, vocab_size: int, init_range: float) -> nn.Embedding:
    """Cut an embedding, or give it new words, uniform as at first."""
    weight = embedding.weight
    new = weight.new_empty(vocab_size, embedding.embedding_dim).uniform_(-init_range, init_range)
    kept = min(vocab_size, embedding.num_embeddings)
    new[:kept] = weight[:kept]
    padding_idx = embedding.padding_idx
    if padding_idx is not None and padding_idx >= vocab_size:
        padding_idx = None
    return nn.Embedding.from_pretrained(new, freeze=not weight.requires_grad, padding_idx=padding_idx)


def _from_tuple(encoder_outputs: tuple[Any, ...]) -> CoarseToFineLstmEncoderOutput:
    """Read what the encoder returns with `return_dict=False`: its fields in order, without those that are missing."""
    found: dict[str, Any] = {}
    for value in encoder_outputs:
        if isinstance(value, tuple):
            found["hidden_states"] = value
        elif not isinstance(value, torch.Tensor):
            found["row_store"] = value
        elif value.is_floating_point():
            found["row_keys" if found else "last_hidden_state"] = value
        else:
            found[{1: "document_ids", 2: "row_ids", 3: "row_tokens"}[value.dim()]] = value
    return CoarseToFineLstmEncoderOutput(**found)

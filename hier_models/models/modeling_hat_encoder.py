"""The encoder-only HAT: RoBERTa with attention over sentences in every layer.

Source: Rohde, Wu and Liu, "Hierarchical Learning for Generation with Long Source Sequences", section 7, "Encoder-only
transformer hierarchical attention". A BOS token stands before every sentence. In every layer, after the
self-attention, the *hierarchical attention* attends to the states at these BOS positions (hat_encoder_layers.py).

Axes in shape comments: batch (texts; of multiple choice, texts times choices), tokens (of a text, BOS markers
included), sentences (BOS markers of a text, padded to the most in the batch), hidden_size (width).
"""

from typing import Any

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.roberta.modeling_roberta import (
    RobertaClassificationHead,
    RobertaCrossAttention,
    RobertaEmbeddings,
    RobertaLMHead,
    RobertaPooler,
    RobertaPreTrainedModel,
    RobertaSelfAttention,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bos_positions import check_bos_positions, find_bos_positions, find_first_tokens, silence_markers
from .configuration_hat_encoder import HatEncoderConfig
from .hat_encoder_layers import HatEncoderLayer, HatEncoderLayers, make_sentence_level
from .input_checks import check_one, check_shape, check_source, check_values
from .losses import classification_loss, cross_entropy, span_loss
from .model_outputs import (
    HatEncoderHeadOutput,
    HatEncoderModelOutput,
    HatEncoderQuestionAnsweringOutput,
    takes,
    with_attentions,
)
from .warm_start import BeginsAsBase


class HatEncoderPreTrainedModel(BeginsAsBase, RobertaPreTrainedModel):
    """What the models of this file share: RoBERTa's initialization of weights, capabilities and parameter names."""

    config: HatEncoderConfig
    config_class = HatEncoderConfig
    base_model_prefix = "roberta"
    _no_split_modules = ["RobertaEmbeddings", "HatEncoderLayer"]
    _can_record_outputs = {
        "hidden_states": HatEncoderLayer,
        "attentions": OutputRecorder(RobertaSelfAttention, index=1),
        "hierarchical_attentions": OutputRecorder(RobertaCrossAttention, index=1),
    }


class HatEncoderModel(HatEncoderPreTrainedModel):
    """The encoder, without a head (section 7); with `hierarchical_attention=False`, equal to [`RobertaModel`]."""

    _input_embed_layer = "word_embeddings"

    def __init__(self, config: HatEncoderConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.gradient_checkpointing = False
        self.embeddings = RobertaEmbeddings(config)
        self.encoder = HatEncoderLayers(config)
        self.pooler = RobertaPooler(config) if add_pooling_layer else None
        self.post_init()

    @can_return_tuple
    @with_attentions("hierarchical_attentions")
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        bos_positions: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HatEncoderModelOutput:
        """Encode texts.

        Args:
            input_ids: token ids with a BOS token before every sentence, `(batch, tokens)`. A text without any is read
                as one sentence, with a warning.
            attention_mask: 1 for tokens, 0 for padding, `(batch, tokens)`.
            token_type_ids: number of the part that each token belongs to, in `[0, type_vocab_size)`, as in RoBERTa,
                `(batch, tokens)`.
            position_ids: rows of the position embedding, `(batch, tokens)`. Counted from `input_ids` when not given,
                padding left out, as in RoBERTa. Give them with `inputs_embeds` that are padded on the left.
            bos_positions: positions of the BOS markers, -1 for padding, `(batch, sentences)`. Found from `input_ids`
                when not given. Give them with `inputs_embeds`, and to keep shapes fixed in `torch.compile(…,
                fullgraph=True)` and `torch.export`.
            inputs_embeds: embeddings in place of `input_ids`, `(batch, tokens, hidden_size)`.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict` and arguments of the attention
                implementation. Texts packed into one row are refused: their sentences would be mixed.

        Returns:
            `last_hidden_state`, `(batch, tokens, hidden_size)`; `pooler_output` of each text's first token, `(batch,
            hidden_size)`; and what else was asked for.

        Raises:
            ValueError: if inputs are missing or given twice, have a wrong shape, are out of range, or are longer than
                the positions reach.
        """
        check_inputs(
            self.config, input_ids, attention_mask, token_type_ids, position_ids, bos_positions, inputs_embeds
        )
        if bos_positions is None and (self.config.hierarchical_attention or self.config.silent_markers):
            # Embeddings do not show where the markers are: then no id is a marker.
            ids = input_ids if inputs_embeds is None else inputs_embeds.new_full(inputs_embeds.shape[:2], -1).long()
            bos_positions = find_bos_positions(ids, attention_mask, self.config.bos_token_id)
        read_mask = attention_mask
        if self.config.silent_markers:
            padding = self.embeddings.padding_idx
            if input_ids is not None:  # RoBERTa's own count, (batch, tokens)
                default_ids = self.embeddings.create_position_ids_from_input_ids(input_ids, padding)
            else:
                default_ids = self.embeddings.create_position_ids_from_inputs_embeds(inputs_embeds, padding)
            read_mask, counted_ids = silence_markers(self.config, bos_positions, attention_mask, default_ids)
            if position_ids is None:
                position_ids = counted_ids.clamp(min=padding)  # of padding, which has that one
                is_long = position_ids.shape[1] > self.config.max_position_embeddings - padding - 1
                if is_long and not torch.compiler.is_compiling():
                    check_length(self.config, None, int(position_ids.max()) - padding)
        # (batch, tokens, hidden_size)
        hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)

        token_mask = create_bidirectional_mask(self.config, hidden_states, read_mask)
        first_tokens = find_first_tokens(hidden_states, attention_mask)  # (batch, 1)
        sentences = None
        if self.config.hierarchical_attention:
            if kwargs.get("cu_seq_lens_q") is not None:
                raise ValueError(
                    "`cu_seq_lens_q` packs several texts into one row, whose sentences would be mixed. Pad them "
                    "instead (for instance with DataCollatorWithPadding)."
                )
            sentences = make_sentence_level(self.config, hidden_states, bos_positions, first_tokens)
        hidden_states = self.encoder(hidden_states, token_mask, sentences, position_ids=position_ids, **kwargs)

        pooled = None
        if self.pooler is not None:
            pooled = self.pooler(_states_at(hidden_states, first_tokens, attention_mask))
        return HatEncoderModelOutput(last_hidden_state=hidden_states, pooler_output=pooled)


def _states_at(
    hidden_states: torch.Tensor, first_tokens: torch.Tensor, attention_mask: torch.Tensor | None
) -> torch.Tensor:
    """Take the state of each text's first token, wherever the padding is, `(batch, 1, hidden_size)`."""
    if attention_mask is None or attention_mask.dim() != 2:
        return hidden_states[:, :1]
    index = first_tokens.to(hidden_states.device).unsqueeze(-1).expand(-1, -1, hidden_states.shape[-1])
    return hidden_states.gather(1, index)


def _recorded(outputs: HatEncoderModelOutput) -> dict[str, tuple[torch.Tensor, ...] | None]:
    names = ("hidden_states", "attentions", "hierarchical_attentions")
    return {name: getattr(outputs, name) for name in names}


class HatEncoderHead(HatEncoderPreTrainedModel):
    """What the heads share: they read the encoder's states, each in its way, and give logits and a loss."""

    roberta: HatEncoderModel

    @can_return_tuple
    @takes(HatEncoderModel, "labels")
    def forward(
        self, labels: torch.Tensor | None = None, num_items_in_batch: Any = None, **inputs: Any
    ) -> HatEncoderHeadOutput:
        """Predict what the class says, and its loss if there are `labels`.

        The inputs are those of [`HatEncoderModel`], and `num_items_in_batch`, the labels in the whole accumulated
        batch, which [`Trainer`] gives; without it the loss is a mean over this batch.
        """
        outputs = self.roberta(**self._of_encoder(inputs), return_dict=True)
        logits = self._predict(outputs, inputs)
        loss = None if labels is None else self._loss(logits, labels, num_items_in_batch)
        return HatEncoderHeadOutput(loss=loss, logits=logits, **_recorded(outputs))

    def _of_encoder(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    def _predict(self, outputs: Any, inputs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:
        return cross_entropy(logits, labels, num_items_in_batch)


class HatEncoderForMaskedLM(HatEncoderHead):
    """Predicts masked tokens: the paper's pretraining. Source: section 7.

    `labels` are ids of the masked tokens, -100 where there is no loss, `(batch, tokens)`; `logits` are `(batch,
    tokens, vocab_size)`.
    """

    _tied_weights_keys = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }

    def __init__(self, config: HatEncoderConfig):
        super().__init__(config)
        self.roberta = HatEncoderModel(config, add_pooling_layer=False)
        self.lm_head = RobertaLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        """Return the last layer of the head."""
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        """Replace the last layer of the head."""
        self.lm_head.decoder = new_embeddings
        self.lm_head.bias = nn.Parameter(new_embeddings.bias.detach().clone())  # a second name of it, where tied

    def _predict(self, outputs: Any, inputs: dict[str, Any]) -> Any:
        return self.lm_head(outputs.last_hidden_state)  # (batch, tokens, vocab_size)


class HatEncoderForSequenceClassification(HatEncoderHead):
    """Labels or scores a text, or a pair of texts (MNLI), by its first token. Source: section 7.

    `labels` are the class of each text, `(batch,)`; or a number to regress on, if `num_labels` is 1; or 0 and 1 for
    each of several labels, as floats, `(batch, num_labels)`. `config.problem_type` says which; if it does not, the
    labels do. `logits` are `(batch, num_labels)`.
    """

    def __init__(self, config: HatEncoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.roberta = HatEncoderModel(config, add_pooling_layer=False)
        self.classifier = RobertaClassificationHead(config)
        self.post_init()

    def _predict(self, outputs: Any, inputs: dict[str, Any]) -> Any:
        states, mask = outputs.last_hidden_state, inputs.get("attention_mask")
        return self.classifier(_states_at(states, find_first_tokens(states, mask), mask))  # (batch, num_labels)

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:
        return classification_loss(self.config, logits, labels, num_items_in_batch)


class HatEncoderForMultipleChoice(HatEncoderHead):
    """Chooses among several texts that stand for the answers to one question (RACE). Source: section 7.

    All inputs have an axis of choices behind the batch axis, such as `(batch, choices, tokens)`. `labels` are the
    number of the right choice, `(batch,)`, and `logits` `(batch, choices)`.
    """

    def __init__(self, config: HatEncoderConfig):
        super().__init__(config)
        self.roberta = HatEncoderModel(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def _of_encoder(self, inputs: dict[str, Any]) -> dict[str, Any]:
        check_one(inputs.get("input_ids"), inputs.get("inputs_embeds"))
        found = dict(inputs)
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                axes = {"inputs_embeds": "tokens, hidden_size", "bos_positions": "sentences"}.get(name, "tokens")
                if value.dim() != (4 if name == "inputs_embeds" else 3):
                    raise ValueError(f"`{name}` must be (batch, choices, {axes}), got shape {tuple(value.shape)}.")
                found[name] = value.flatten(0, 1)  # into the batch axis
        return found

    def _predict(self, outputs: Any, inputs: dict[str, Any]) -> Any:
        given = inputs.get("input_ids")
        choices = (inputs["inputs_embeds"] if given is None else given).shape[1]
        return self.classifier(self.dropout(outputs.pooler_output)).view(-1, choices)  # (batch, choices)


class HatEncoderForQuestionAnswering(HatEncoderPreTrainedModel):
    """Finds the span of a text that answers a question (SQuAD 2.0). Source: section 7."""

    def __init__(self, config: HatEncoderConfig):
        super().__init__(config)
        if config.num_labels != 2:
            raise ValueError(
                f"`num_labels` must be 2 for question answering, the start and the end of a span, got "
                f"{config.num_labels}."
            )
        self.num_labels = config.num_labels
        self.roberta = HatEncoderModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    @takes(HatEncoderModel, "start_positions", "end_positions")
    def forward(
        self, start_positions: torch.Tensor | None = None, end_positions: torch.Tensor | None = None, **inputs: Any
    ) -> HatEncoderQuestionAnsweringOutput:
        """Score each token as the start and as the end of the answer, `(batch, tokens)` each.

        `start_positions` and `end_positions` are the tokens where the answer starts and ends, `(batch,)`; those of the
        first token where there is no answer. One that is no token's, such as -1, has no part in the loss. The inputs
        are those of [`HatEncoderModel`].
        """
        inputs.pop("num_items_in_batch", None)  # the Trainer counts `labels`, which this task has not
        if (start_positions is None) != (end_positions is None):
            got = "start_positions" if end_positions is None else "end_positions"
            raise ValueError(f"Give both `start_positions` and `end_positions`, or neither; got `{got}` only.")
        outputs = self.roberta(**inputs, return_dict=True)
        logits = self.qa_outputs(outputs.last_hidden_state)  # (batch, tokens, 2)
        start_logits, end_logits = (part.contiguous() for part in logits.unbind(-1))  # (batch, tokens)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(start_logits, end_logits, start_positions, end_positions)
        return HatEncoderQuestionAnsweringOutput(
            loss=loss, start_logits=start_logits, end_logits=end_logits, **_recorded(outputs)
        )


class HatEncoderForTokenClassification(HatEncoderHead):
    """Labels each token: `labels` `(batch, tokens)`, -100 without loss; `logits` `(batch, tokens, num_labels)`."""

    def __init__(self, config: HatEncoderConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.roberta = HatEncoderModel(config, add_pooling_layer=False)
        dropout = config.classifier_dropout if config.classifier_dropout is not None else config.hidden_dropout_prob
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def _predict(self, outputs: Any, inputs: dict[str, Any]) -> Any:
        return self.classifier(self.dropout(outputs.last_hidden_state))  # (batch, tokens, num_labels)


def check_inputs(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,  # (batch, tokens)
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    bos_positions: torch.Tensor | None,  # (batch, sentences)
    inputs_embeds: torch.Tensor | None,  # (batch, tokens, hidden_size)
) -> None:
    """Refuse inputs that are missing, given twice, of a wrong shape, out of range or too long."""
    batch, length = check_source(
        config, input_ids, inputs_embeds, attention_mask, width="hidden_size", axis="tokens", takes_made_masks=True
    )
    if token_type_ids is not None:
        check_shape("token_type_ids", token_type_ids, (batch, length))
        check_values("token_type_ids", token_type_ids, config.type_vocab_size, "type_vocab_size")
    if position_ids is not None:
        if tuple(position_ids.shape) != (1, length):
            check_shape("position_ids", position_ids, (batch, length), f" or {(1, length)} like the tokens")
        check_values("position_ids", position_ids, config.max_position_embeddings, "max_position_embeddings")
    elif not config.silent_markers:  # they take no position, see `silence_markers`
        check_length(config, input_ids, length)
    if bos_positions is not None:
        check_bos_positions(bos_positions, (batch, length))


def check_length(config: PreTrainedConfig, input_ids: torch.Tensor | None, length: int) -> None:
    """Refuse more tokens than there are positions."""  # input_ids (batch, tokens)
    longest = config.max_position_embeddings - config.pad_token_id - 1
    if length <= longest:
        return
    if input_ids is not None:  # padding does not count; a rare case, so that the device may wait
        if torch.compiler.is_compiling():
            return
        length = int((input_ids != config.pad_token_id).sum(dim=1).max())
    if length > longest:
        raise ValueError(
            f"A text of {length} tokens is longer than the {longest} that max_position_embeddings="
            f"{config.max_position_embeddings} and pad_token_id={config.pad_token_id} leave. Truncate it "
            "(`truncation=True` in the processor's call), or cut it into windows (`stride` and "
            "`return_overflowing_tokens=True`)."
        )

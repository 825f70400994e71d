"""The decoder of the Coarse-to-Fine LSTM: LSTM layers with input feeding, and attention to rows and their words.

Axes in shape comments: batch (documents, or documents times beams), target, source, rows (of a document), words (of a
row, padded), selected (rows that hard attention selects), state (context, hidden states and cells of the layers).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from .conditional_reading import DocumentMemory, WordMemory, make_memory
from .configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig
from .encoder_coarse_to_fine_lstm import CoarseToFineLstmPreTrainedModel
from .input_checks import check_target
from .model_outputs import CoarseToFineLstmDecoderOutput, CoarseToFineLstmEncoderOutput
from .recurrent_cache import begin_steps, take_steps
from .reinforce import draw_rows


class RowChoice(NamedTuple):
    """How attention over rows becomes the weights of rows."""

    how: str  # `"soft"`, its own; `"draw"`, shares of `number` draws; `"best"`, normalised among the `number` best
    number: int = 0  # rows that are drawn or taken


class Attended(NamedTuple):
    """What attention found at one step."""

    context: torch.Tensor  # weighted mean of word states, (batch, hidden_size)
    words: torch.Tensor | None = None  # weight of each source token, (batch, source)
    row_scores: torch.Tensor | None = None  # scores of the rows, (batch, rows)
    row_counts: torch.Tensor | None = None  # how often each row was drawn, (batch, rows)


class CoarseToFineLstmAttention(nn.Module):
    """Attention to words, or to rows and their words. Source: thesis, equations 4.8 to 4.10, sections 4.3 and 4.4."""

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__()
        self.word_query = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden: torch.Tensor, memory: WordMemory, choice: RowChoice) -> Attended:
        """Attend to word states that are all there."""  # hidden (batch, hidden_size)
        query = self.word_query(hidden)
        scores = _scores(query, memory.states)  # equation 4.8, (batch, source)
        row_scores = row_counts = None
        if memory.row_keys is None:
            words = (scores + memory.word_penalty).softmax(dim=-1)  # equation 4.9, wide as the penalty
        else:
            assert memory.places is not None
            assert memory.row_penalty is not None
            row_scores = _scores(hidden, memory.row_keys) + memory.row_penalty
            weights, row_counts = _row_weights(row_scores, choice)  # (batch, rows)
            by_row = scores.gather(1, memory.places).view_as(memory.word_penalty) + memory.word_penalty
            by_row = by_row.softmax(dim=-1) * weights.unsqueeze(-1)  # (batch, rows, words)
            words = torch.zeros_like(scores, dtype=by_row.dtype).scatter_add(1, memory.places, by_row.flatten(1))
        context = torch.bmm(words.to(memory.states.dtype).unsqueeze(1), memory.states).squeeze(1)  # equation 4.10
        return Attended(context, words, row_scores, row_counts)

    def on_demand(
        self, hidden: torch.Tensor, memory: DocumentMemory, choice: RowChoice, with_weights: bool
    ) -> Attended:  # hidden (batch, hidden_size)
        """Attend to selected rows only, which are read when nobody has read them yet."""
        row_scores = memory.row_scores(hidden)
        row_counts = None
        if choice.how == "draw":
            weights, row_counts = _row_weights(row_scores, choice)
            weights, rows = weights.topk(min(choice.number, weights.shape[1]), dim=-1)
            rows = rows.where(weights > 0, rows[:, :1])  # a row that was drawn again, in the place of one that was not
        else:
            number = row_scores.shape[1] if choice.how == "soft" else choice.number
            rows, weights = select_rows(row_scores, number)  # (batch, selected)
        numbers = rows + memory.first_rows  # counted through all documents
        states, exists = memory.store.states(numbers)  # (batch, selected, words, hidden_size)
        query = self.word_query(hidden)
        scores = torch.matmul(states, query[:, None, :, None]).squeeze(-1)  # (batch, selected, words)
        penalty = torch.finfo(row_scores.dtype).min
        words = scores.to(row_scores.dtype).masked_fill(~exists, penalty).softmax(dim=-1) * weights.unsqueeze(-1)
        flat = words.to(states.dtype).flatten(1).unsqueeze(1)  # (batch, 1, selected * words)
        context = torch.bmm(flat, states.flatten(1, 2)).squeeze(1)
        if not with_weights:
            return Attended(context)
        places = memory.store.tokens(numbers).flatten(1)
        zeros = words.new_zeros(len(words), memory.store.source)
        weights_of_all = zeros.scatter_add(1, places, (words * exists).flatten(1))
        return Attended(context, weights_of_all, row_scores, row_counts)


def select_rows(row_scores: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the best rows."""  # row_scores (batch, rows)
    best, rows = row_scores.topk(min(number, row_scores.shape[1]), dim=-1)
    return rows, best.softmax(dim=-1)  # (batch, selected)


def _scores(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Score keys, `(batch, keys)`."""
    # The query first: with gradients half the time of the keys first, where each sequence has a source of its own.
    return torch.bmm(query.unsqueeze(1), keys.transpose(1, 2)).squeeze(1)


def _row_weights(row_scores: torch.Tensor, choice: RowChoice) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weigh the rows, `(batch, rows)`; if they are drawn, return the draws too."""
    if choice.how == "best":
        rows, weights = select_rows(row_scores, choice.number)
        return torch.zeros_like(row_scores).scatter(1, rows, weights), None
    attention = row_scores.softmax(dim=-1)
    if choice.how == "soft":
        return attention, None
    # Where no row exists, all have the same attention; none is drawn.
    exists = row_scores > torch.finfo(row_scores.dtype).min / 2
    counts = draw_rows(attention * exists, choice.number)
    return counts / choice.number, counts


class CoarseToFineLstmDecoderStep(GradientCheckpointingLayer):
    """One step of the decoder, with input feeding. Source: thesis, sections 4.1 and 4.2, equations 4.1 to 4.11."""

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__()
        size = config.hidden_size
        # Of the lower layer from context and hidden state, of an upper one from the layer below and hidden state.
        self.gates = nn.ModuleList(
            nn.Linear(2 * size, 4 * size, bias=layer > 0) for layer in range(config.decoder_layers)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.attention = CoarseToFineLstmAttention(config)
        self.context = nn.Linear(2 * size, size, bias=False)

    def forward(
        self,
        word_gates: torch.Tensor,  # (batch, 4 * hidden_size)
        state: torch.Tensor,  # (batch, state, hidden_size)
        choice: RowChoice | None,
        with_weights: bool,
        *memory: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Take one step."""
        last_context, *others = state.unbind(dim=1)
        hidden, cells = others[: len(self.gates)], others[len(self.gates) :]
        below = last_context
        for layer, gates_of_layer in enumerate(self.gates):
            gates = gates_of_layer(torch.cat([below, hidden[layer]], dim=-1))
            if layer == 0:
                gates = gates + word_gates
            hidden[layer], cells[layer] = _lstm_cell(gates, cells[layer])
            below = hidden[layer] if layer == len(self.gates) - 1 else self.dropout(hidden[layer])
        if isinstance(memory[0], DocumentMemory):
            attended = self.attention.on_demand(below, memory[0], choice, with_weights)
        else:
            attended = self.attention(below, WordMemory(*memory), choice)
        context = self.context(torch.cat([attended.context, below], dim=-1)).tanh()  # equation 4.11
        next_state = torch.stack([context, *hidden, *cells], dim=1)
        return (next_state, *(attended[1:] if with_weights else (None, None, None)))


def _lstm_cell(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Equations 4.1 to 4.5, with the gates in the order input, forget, output, new."""
    size = cell.shape[-1]
    enter, forget, leave = gates[..., : 3 * size].sigmoid().chunk(3, dim=-1)
    cell = forget * cell + enter * gates[..., 3 * size :].tanh()
    return leave * cell.tanh(), cell


class CoarseToFineLstmDecoder(CoarseToFineLstmPreTrainedModel):
    """Writes the target. Source: thesis, sections 4.1 and 4.2."""

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size, config.pad_token_id)
        # All words of a target are multiplied at once; what depends on the last step is in `step`.
        self.word_gates = nn.Linear(config.embedding_size, 4 * config.hidden_size)
        self.step = CoarseToFineLstmDecoderStep(config)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,  # (batch, target)
        attention_mask: torch.Tensor | None = None,  # (batch, target)
        encoder_outputs: CoarseToFineLstmEncoderOutput | None = None,
        choice: RowChoice | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,  # (batch, target, embedding_size)
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> CoarseToFineLstmDecoderOutput:
        """Decode a target."""
        check_target(self.config, input_ids, inputs_embeds, None, attention_mask, "embedding_size")
        embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        word_gates = self.word_gates(embeddings)  # (batch, target, 4 * hidden_size)
        batch = len(word_gates)
        recurrent, memory, state, use_cache = begin_steps(
            self, cache, use_cache, lambda: make_memory(encoder_outputs, batch)
        )
        if state is None:
            state = word_gates.new_zeros(batch, 1 + 2 * self.config.decoder_layers, self.config.hidden_size)
        drawn = choice is not None and choice.how == "draw"
        with_weights = bool(output_attentions or drawn)
        fields: Sequence[Any] = [memory] if isinstance(memory, DocumentMemory) else memory
        states, found = take_steps(self.step, word_gates, state, attention_mask, choice, with_weights, *fields)

        all_states = torch.stack(states, dim=1)  # (batch, target, state, hidden_size)
        outputs = CoarseToFineLstmDecoderOutput(last_hidden_state=all_states[:, :, 0])
        if use_cache and recurrent is not None:
            outputs["cache"] = recurrent.keep(memory, states)
        if output_hidden_states:
            layers = all_states[:, :, 1 : 1 + self.config.decoder_layers].unbind(dim=2)
            outputs["hidden_states"] = (embeddings, *layers)
        if isinstance(memory, DocumentMemory):
            outputs["encoded_rows"] = memory.store.encoded_rows[memory.document_ids]
        if with_weights:
            words, row_scores, row_counts = (_stack(column) for column in zip(*found, strict=True))
            if drawn:
                outputs["row_log_probabilities"] = row_scores.log_softmax(dim=-1)
                outputs["row_counts"] = row_counts
            if output_attentions:
                attentions = row_scores.softmax(dim=-1) if row_scores is not None else None
                outputs["cross_attentions"], outputs["row_attentions"] = memory.reported(words, attentions)
        return outputs


def _stack(column: Sequence[Any]) -> Any:
    return None if column[0] is None else torch.stack(list(column), dim=1)

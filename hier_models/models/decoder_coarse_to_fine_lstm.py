"""The decoder of the Coarse-to-Fine LSTM: LSTM layers with input feeding, and attention to rows and their words.

Axes in shape comments: batch (documents, or documents times beams), target, source, rows (of a document), words (of a
row, padded), selected (rows that hard attention selects), samples (rows that were drawn), ways (the weights of rows,
and those without one draw of each sample), state (context, hidden states and cells of the layers).
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
from .reinforce import draw_gumbel, draw_rows


class RowChoice(NamedTuple):
    """How attention over rows becomes the weights of rows."""

    how: str  # `"soft"`, its own; `"draw"`, shares of `number` draws; `"best"`, normalised among the `number` best
    number: int = 0  # rows that are drawn or taken
    noise: float = 0.0  # scale of the Gumbel noise on the scores that the best are found by
    leave_one_out: bool = False  # also attend without one draw of each row that was drawn


class Attended(NamedTuple):
    """What attention found at one step."""

    context: torch.Tensor  # weighted mean of word states, (batch, hidden_size)
    words: torch.Tensor | None = None  # weight of each source token, (batch, source)
    row_scores: torch.Tensor | None = None  # scores of the rows, (batch, rows)
    row_counts: torch.Tensor | None = None  # how often each row was drawn, (batch, rows)
    left_out_rows: torch.Tensor | None = None  # rows that were drawn, (batch, samples)
    left_out: torch.Tensor | None = None  # the mean without one draw of each of them, (batch, samples, hidden_size)


class CoarseToFineLstmAttention(nn.Module):
    """Attention to words, or to rows and their words. Source: thesis, equations 4.8 to 4.10, sections 4.3 and 4.4."""

    def __init__(self, config: CoarseToFineLstmConfig):
        super().__init__()
        self.word_query = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(
        self, hidden: torch.Tensor, memory: WordMemory, choice: RowChoice, with_words: bool
    ) -> Attended:  # hidden (batch, hidden_size)
        """Attend to word states that are all there."""
        query = self.word_query(hidden)
        scores = _scores(query, memory.states)  # equation 4.8, (batch, source)
        row_scores, drawn = None, Drawn()
        if memory.row_keys is None:
            words = (scores + memory.word_penalty).softmax(dim=-1).unsqueeze(1)  # equation 4.9, wide as the penalty
        else:
            assert memory.places is not None
            assert memory.row_penalty is not None
            row_scores = _scores(hidden, memory.row_keys) + memory.row_penalty
            weights, drawn = _row_weights(row_scores, choice)  # (batch, ways, rows)
            by_row = scores.gather(1, memory.places).view_as(memory.word_penalty) + memory.word_penalty
            by_row = by_row.softmax(dim=-1).unsqueeze(1) * weights.unsqueeze(-1)  # (batch, ways, rows, words)
            places = memory.places.unsqueeze(1).expand(-1, weights.shape[1], -1)
            zeros = by_row.new_zeros(*weights.shape[:2], scores.shape[1])
            words = zeros.scatter_add(2, places, by_row.flatten(2))  # (batch, ways, source)
        contexts = torch.bmm(words.to(memory.states.dtype), memory.states)  # equation 4.10
        return _attended(contexts, words[:, 0] if with_words else None, row_scores, drawn)

    def on_demand(
        self, hidden: torch.Tensor, memory: DocumentMemory, choice: RowChoice, with_words: bool
    ) -> Attended:  # hidden (batch, hidden_size)
        """Attend to selected rows only, which are read when nobody has read them yet."""
        row_scores, drawn = memory.row_scores(hidden), Drawn()
        if choice.how == "draw":
            weights, drawn = _row_weights(row_scores, choice)
            assert drawn.rows is not None
            weights = weights.gather(2, drawn.rows.unsqueeze(1).expand(-1, weights.shape[1], -1))
            # A row that was drawn again, in the place of one that was not.
            rows = drawn.rows.where(weights[:, 0] > 0, drawn.rows[:, :1])
        else:
            number = row_scores.shape[1] if choice.how == "soft" else choice.number
            rows, weights = select_rows(row_scores, number, choice.noise)  # (batch, selected)
            weights = weights.unsqueeze(1)
        numbers = rows + memory.first_rows  # counted through all documents
        states, exists = memory.store.states(numbers)  # (batch, selected, words, hidden_size)
        query = self.word_query(hidden)
        scores = torch.matmul(states, query[:, None, :, None]).squeeze(-1)  # (batch, selected, words)
        scores = scores.to(row_scores.dtype).masked_fill(~exists, torch.finfo(row_scores.dtype).min)
        words = scores.softmax(dim=-1).unsqueeze(1) * weights.unsqueeze(-1)  # (batch, ways, selected, words)
        contexts = torch.bmm(words.to(states.dtype).flatten(2), states.flatten(1, 2))  # (batch, ways, hidden_size)
        weights_of_all = None
        if with_words:
            places = memory.store.tokens(numbers).flatten(1)
            zeros = words.new_zeros(len(words), memory.store.source)
            weights_of_all = zeros.scatter_add(1, places, (words[:, 0] * exists).flatten(1))
        return _attended(contexts, weights_of_all, row_scores, drawn)


class Drawn(NamedTuple):
    """Rows that were drawn."""

    counts: torch.Tensor | None = None  # how often, (batch, rows)
    rows: torch.Tensor | None = None  # those that were, and where some were drawn again others, (batch, samples)


def select_rows(row_scores: torch.Tensor, number: int, noise: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the best rows, by their scores and noise, and weigh them by their scores."""  # row_scores (batch, rows)
    compared = row_scores
    if noise:
        compared = row_scores + noise * draw_gumbel(row_scores.detach())
    rows = compared.topk(min(number, row_scores.shape[1]), dim=-1).indices
    return rows, row_scores.gather(1, rows).softmax(dim=-1)  # (batch, selected)


def _scores(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Score keys, `(batch, keys)`."""
    # The query first: with gradients half the time of the keys first, where each sequence has a source of its own.
    return torch.bmm(query.unsqueeze(1), keys.transpose(1, 2)).squeeze(1)


def _row_weights(row_scores: torch.Tensor, choice: RowChoice) -> tuple[torch.Tensor, Drawn]:
    """Weigh the rows, `(batch, ways, rows)`."""
    if choice.how == "best":
        rows, weights = select_rows(row_scores, choice.number, choice.noise)
        return torch.zeros_like(row_scores).scatter(1, rows, weights).unsqueeze(1), Drawn()
    attention = row_scores.softmax(dim=-1)
    if choice.how == "soft":
        return attention.unsqueeze(1), Drawn()
    # Where no row exists, all have the same attention; none is drawn.
    exists = row_scores > torch.finfo(row_scores.dtype).min / 2
    counts = draw_rows(attention * exists, choice.number)
    rows = counts.topk(min(choice.number, counts.shape[1]), dim=-1).indices
    weights = (counts / choice.number).unsqueeze(1)
    if choice.leave_one_out:
        one = torch.zeros_like(weights).expand(-1, rows.shape[1], -1).scatter(2, rows.unsqueeze(2), 1.0)
        others = (counts.unsqueeze(1) - one).clamp(min=0) / (choice.number - 1)
        weights = torch.cat([weights, others], dim=1)
    return weights, Drawn(counts, rows)


def _attended(
    contexts: torch.Tensor, words: torch.Tensor | None, row_scores: torch.Tensor | None, drawn: Drawn
) -> Attended:  # contexts (batch, ways, hidden_size)
    left_out = (drawn.rows, contexts[:, 1:].detach()) if contexts.shape[1] > 1 else (None, None)
    return Attended(contexts[:, 0], words, row_scores, drawn.counts, *left_out)


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
        with_words: bool,
        *memory: Any,
    ) -> tuple[torch.Tensor | None, ...]:
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
            attended = self.attention.on_demand(below, memory[0], choice, with_words)
        else:
            attended = self.attention(below, WordMemory(*memory), choice, with_words)
        context = self.context(torch.cat([attended.context, below], dim=-1)).tanh()  # equation 4.11
        next_state = torch.stack([context, *hidden, *cells], dim=1)
        left_out = attended.left_out
        if left_out is not None:
            with torch.no_grad():
                hidden_of_each = below.unsqueeze(1).expand_as(left_out)
                left_out = self.context(torch.cat([left_out, hidden_of_each], dim=-1)).tanh()
        return (next_state, *attended[1:-1], left_out)


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
        fields: Sequence[Any] = [memory] if isinstance(memory, DocumentMemory) else memory
        states, found = take_steps(
            self.step, word_gates, state, attention_mask, choice, bool(output_attentions), *fields
        )

        all_states = torch.stack(states, dim=1)  # (batch, target, state, hidden_size)
        outputs = CoarseToFineLstmDecoderOutput(last_hidden_state=all_states[:, :, 0])
        if use_cache and recurrent is not None:
            outputs["cache"] = recurrent.keep(memory, states)
        if output_hidden_states:
            layers = all_states[:, :, 1 : 1 + self.config.decoder_layers].unbind(dim=2)
            outputs["hidden_states"] = (embeddings, *layers)
        if isinstance(memory, DocumentMemory):
            outputs["encoded_rows"] = memory.store.encoded_rows[memory.document_ids]
        drawn = choice is not None and choice.how == "draw"
        if drawn or output_attentions:
            words, row_scores, row_counts, rows, contexts = (_stack(column) for column in zip(*found, strict=True))
            if drawn:
                outputs["row_log_probabilities"] = row_scores.log_softmax(dim=-1)
                outputs["row_counts"] = row_counts
                outputs["left_out_rows"], outputs["left_out_contexts"] = rows, contexts
            if output_attentions:
                attentions = row_scores.softmax(dim=-1) if row_scores is not None else None
                outputs["cross_attentions"], outputs["row_attentions"] = memory.reported(words, attentions)
        return outputs


def _stack(column: Sequence[Any]) -> Any:
    return None if column[0] is None else torch.stack(list(column), dim=1)

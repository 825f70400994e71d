"""Matching a context with its question word by word: the recurrent networks of Match-LSTM and R-NET.

A step does only what depends on its state; all else is made for all words at once, before. Steps of both directions
are one batch. Axes in shape comments: as in question_attention.py, and both (rows of the one, then of the other
direction).
"""

from collections.abc import Callable

import torch
from torch import nn

from .hierarchical_attention import HamLevelWeights
from .question_attention import AdditiveAttention
from .word_encoder import reversed_places


class MatchRecurrence(nn.Module):
    """A recurrent network over a context that attends to the question at each word, its last state in the query."""

    # Makes what steps get of words and question, `(both, …, any)`, and weights of the state, `(any, hidden)`.
    _prepare: Callable[..., tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]]
    _step: Callable[..., tuple[torch.Tensor, torch.Tensor]]  # gives the next state and memory

    def __init__(self, size: int, hidden_size: int, cells: list[nn.RNNCellBase], level_weights: HamLevelWeights):
        super().__init__()
        self.size = size
        self.hidden_size = hidden_size
        self.attention = AdditiveAttention(size, hidden_size, hidden_size, level_weights)
        self.cells = nn.ModuleList(cells)

    def forward(
        self,
        context: torch.Tensor,  # (rows, queries, size)
        context_mask: torch.Tensor,  # (rows, queries)
        lengths: torch.Tensor,
        question: torch.Tensor,  # (rows, keys, size)
        question_mask: torch.Tensor,  # (rows, keys)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Match."""
        directions = len(self.cells)
        # Padding is behind the words in both directions: no state passes through it.
        reverse = reversed_places(lengths, context.shape[1])
        rows = torch.arange(len(context), device=context.device)[:, None]
        contexts = [context, context[rows, reverse]] if directions > 1 else [context]
        found = torch.cat(self._read(contexts, question, question_mask), -1).chunk(directions)
        found = (found[0], *(part[rows, reverse] for part in found[1:]))
        both = torch.stack(found, 2) * context_mask[..., None, None]  # (rows, queries, directions, hidden + keys)
        return both[..., : self.hidden_size].flatten(2), both[..., self.hidden_size :].mean(2)

    def _read(
        self, contexts: list[torch.Tensor], question: torch.Tensor, question_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read a context for each direction: states and attention, `(both, queries, …)`."""
        attention, directions = self.attention, len(self.cells)
        questions = torch.cat([question] * directions)
        keys, values, bias = attention.prepare(questions, torch.cat([question_mask] * directions))
        queries = attention.query_projection(torch.cat(contexts))
        weights = attention.level_weights().to(question)
        words, asked, of_cells = self._prepare(contexts, question)
        # The projection's weight, from a call of it: what moves weights between devices hooks into calls.
        state_weight = attention.state_projection(torch.eye(self.hidden_size).to(queries))
        recurrent = torch.stack([torch.cat([state_weight, weight.T], 1) for weight in of_cells])
        state = memory = queries.new_zeros(len(queries), self.hidden_size)
        states, attentions = [], []
        for query, word in zip(queries.unbind(1), words.unbind(1), strict=True):
            of_state = (state.view(directions, -1, self.hidden_size) @ recurrent).flatten(0, 1)
            in_query, in_cell = of_state[:, : self.hidden_size], of_state[:, self.hidden_size :]
            found = attention.attend(query, in_query, keys, values, bias, weights)
            seen = (found[:, None] @ asked).squeeze(1)
            state, memory = self._step(word, seen, in_cell, state, memory)
            states.append(state)
            attentions.append(found)
        return torch.stack(states, 1), torch.stack(attentions, 1)


class MatchLstmCell(nn.LSTMCell):
    """The weights of an LSTM whose input is a word of the context and what was seen of the question."""

    def forward(  # type: ignore[override]
        self, context: torch.Tensor, question: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # context (rows, queries, size), question (rows, keys, size)
        """Make what does not depend on a state."""
        of_context, of_question = self.weight_ih.chunk(2, 1)
        words = nn.functional.linear(context, of_context, self.bias_ih + self.bias_hh)
        return words, nn.functional.linear(question, of_question), self.weight_hh


class MatchLstm(MatchRecurrence):
    """LSTMs that read forwards and backwards, with one attention. Source: Wang and Jiang 2016, equations 2 to 5."""

    def __init__(self, size: int, hidden_size: int, level_weights: HamLevelWeights):
        cells: list[nn.RNNCellBase] = [MatchLstmCell(2 * size, hidden_size) for _ in range(2)]
        super().__init__(size, hidden_size, cells, level_weights)

    def _prepare(
        self, contexts: list[torch.Tensor], question: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """What the gates get of each word of context and question, and each cell's weights of the state."""
        made = [cell(context, question) for context, cell in zip(contexts, self.cells, strict=True)]
        words, asked, of_state = zip(*made, strict=True)
        return torch.cat(words), torch.cat(asked), list(of_state)

    def _step(
        self, word: torch.Tensor, seen: torch.Tensor, in_cell: torch.Tensor, state: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next state and memory."""
        read, keep, new, show = (word + seen + in_cell).chunk(4, -1)
        memory = keep.sigmoid() * memory + read.sigmoid() * new.tanh()
        return show.sigmoid() * memory.tanh(), memory


class GatedMatchGru(MatchRecurrence):
    """A GRU that reads forwards, and whose input passes a gate. Source: Wang et al. 2017, equations 4 to 6."""

    def __init__(self, size: int, hidden_size: int, level_weights: HamLevelWeights):
        super().__init__(size, hidden_size, [nn.GRUCell(2 * size, hidden_size)], level_weights)
        self.gate = nn.Linear(2 * size, 2 * size, bias=False)

    def _prepare(
        self, contexts: list[torch.Tensor], question: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """Each word of context and question, and what the gate gets of it; the cell makes the rest in its steps."""
        of_words = self.gate(nn.functional.pad(contexts[0], (0, self.size)))
        of_question = self.gate(nn.functional.pad(question, (self.size, 0)))
        none = question.new_zeros(0, self.hidden_size)
        return torch.cat([contexts[0], of_words], -1), torch.cat([question, of_question], -1), [none]

    def _step(
        self, word: torch.Tensor, seen: torch.Tensor, in_cell: torch.Tensor, state: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next state; a GRU has no other memory."""
        size = self.size
        gate = (word[:, size:] + seen[:, size:]).sigmoid()
        return self.cells[0](gate * torch.cat([word[:, :size], seen[:, :size]], -1), state), memory

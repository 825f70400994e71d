"""Matching a context with its question word by word: the recurrent networks of Match-LSTM and R-NET.

A step does only what depends on its state. What cells and gates make of the context's words is made for all words at
once, before; what they make of the question is made once too, and a step sums it up with its attention. Steps of both
directions are one batch.

Axes in shape comments: as in levels_ham_reader.py, and
    both        rows of the first direction, then those of the second
    gates       numbers that a cell computes for each unit: 4 in an LSTM, 3 in a GRU
"""

import torch
from torch import nn

from .levels_ham_reader import AdditiveAttention
from .words_ham_reader import reversed_places


class MatchRecurrence(nn.Module):
    """A recurrent network over a context that attends to the question at each word, with its last state in the query.

    In levels, the question vector that a level attended to stands in the place of the context's word in the next
    level's query.

    Args:
        size: width of the states of words.
        hidden_size: units in each direction.
        cells: one for each direction; the second reads backwards.
        depth: number of levels.
        level_weights: how they are summed.
    """

    def __init__(self, size: int, hidden_size: int, cells: list[nn.RNNCellBase], depth: int, level_weights: str):
        super().__init__()
        self.size = size
        self.hidden_size = hidden_size
        self.attention = AdditiveAttention(size, hidden_size, hidden_size, depth, level_weights)
        self.cells = nn.ModuleList(cells)

    def forward(
        self,
        context: torch.Tensor,
        context_mask: torch.Tensor,
        lengths: torch.Tensor,
        question: torch.Tensor,
        question_mask: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Match.

        Args:
            context: `(rows, queries, size)`
            context_mask: true where a word is no padding, which is on the right, `(rows, queries)`
            lengths: words of each context, `(rows,)`
            question: `(rows, keys, size)`
            question_mask: true where a word is no padding, `(rows, keys)`

        Returns:
            States, `(rows, queries, hidden_size · directions)`, and attention to the question, the mean of both
            directions, `(rows, queries, keys)`; both zero for padding.
        """
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
        prepared = attention.prepare(question, question_mask)
        keys, values, bias = (None if part is None else torch.cat([part] * directions) for part in prepared)
        queries = torch.cat([attention.query_projection(context) for context in contexts])
        weights = attention.levels(question)
        words, asked = self._prepare(contexts, question)
        recurrent = torch.stack([torch.cat([attention.state_projection.weight, c.weight_hh]) for c in self.cells])
        recurrent = recurrent.transpose(1, 2)  # (directions, hidden, (1 + gates) · hidden)
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


class MatchLstm(MatchRecurrence):
    """An LSTM that reads forwards and one that reads backwards, with the same attention.

    Source: Wang and Jiang 2016, equations 2 to 5.

    Args:
        size: width of the states of words.
        hidden_size: units in each direction.
        depth: number of levels.
        level_weights: how they are summed.
    """

    def __init__(self, size: int, hidden_size: int, depth: int, level_weights: str):
        cells = [nn.LSTMCell(2 * size, hidden_size) for _ in range(2)]
        super().__init__(size, hidden_size, cells, depth, level_weights)

    def _prepare(self, contexts: list[torch.Tensor], question: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the gates' inputs get of the context's words and of the question's, `(both, …, 4 · hidden)` each."""
        words, asked = [], []
        for context, cell in zip(contexts, self.cells, strict=True):
            of_context, of_question = cell.weight_ih.split(self.size, 1)
            words.append(nn.functional.linear(context, of_context, cell.bias_ih + cell.bias_hh))
            asked.append(nn.functional.linear(question, of_question))
        return torch.cat(words), torch.cat(asked)

    def _step(
        self, word: torch.Tensor, seen: torch.Tensor, in_cell: torch.Tensor, state: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next state and memory."""
        gates = word + seen + in_cell
        read, keep, new, show = gates.chunk(4, -1)
        memory = keep.sigmoid() * memory + read.sigmoid() * new.tanh()
        return show.sigmoid() * memory.tanh(), memory


class GatedMatchGru(MatchRecurrence):
    """A GRU that reads forwards, and whose input passes a gate.

    Source: Wang et al. 2017, equations 4 to 6.

    Args:
        size: width of the states of words.
        hidden_size: its units.
        depth: number of levels.
        level_weights: how they are summed.
    """

    def __init__(self, size: int, hidden_size: int, depth: int, level_weights: str):
        super().__init__(size, hidden_size, [nn.GRUCell(2 * size, hidden_size)], depth, level_weights)
        self.gate = nn.Linear(2 * size, 2 * size, bias=False)

    def _prepare(self, contexts: list[torch.Tensor], question: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A word and what the gate gets of it, `(rows, queries, 3 · size)`, and the same of the question's words."""
        of_context, of_question = self.gate.weight.split(self.size, 1)
        words = torch.cat([contexts[0], nn.functional.linear(contexts[0], of_context)], -1)
        return words, torch.cat([question, nn.functional.linear(question, of_question)], -1)

    def _step(
        self, word: torch.Tensor, seen: torch.Tensor, in_cell: torch.Tensor, state: torch.Tensor, memory: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next state; a GRU has no other memory."""
        size, hidden, cell = self.size, self.hidden_size, self.cells[0]
        gate = (word[:, size:] + seen[:, size:]).sigmoid()
        passed = gate * torch.cat([word[:, :size], seen[:, :size]], -1)
        of_input = nn.functional.linear(passed, cell.weight_ih, cell.bias_ih)
        in_cell = in_cell + cell.bias_hh
        reset, update = (of_input[:, : 2 * hidden] + in_cell[:, : 2 * hidden]).sigmoid().chunk(2, -1)
        new = (of_input[:, 2 * hidden :] + reset * in_cell[:, 2 * hidden :]).tanh()
        return torch.lerp(new, state, update), memory


__all__ = ["GatedMatchGru", "MatchLstm", "MatchRecurrence"]

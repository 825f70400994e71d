"""Matching a context with its question word by word: the recurrent networks of Match-LSTM and R-NET.

Axes in shape comments: as in levels_ham_reader.py.
"""

from collections.abc import Iterable

import torch
from torch import nn

from .levels_ham_reader import AdditiveAttention


class MatchRecurrence(nn.Module):
    """A recurrent network over a context that attends to the question at each word, with its last state in the query.

    Source: Wang and Jiang 2016, equations 2 to 5 (Match-LSTM: an LSTM, and a second one that reads backwards, with the
    same attention); Wang et al. 2017, equations 4 to 6 (R-NET: a GRU whose input passes a gate). In levels, the
    question vector that a level attended to stands in the place of the context's word in the next level's query.

    Args:
        size: width of the states of words.
        hidden_size: units in each direction.
        cell: "lstm" or "gru".
        gated: whether the input passes a gate.
        bidirectional: whether a second network reads backwards.
        depth: number of levels.
        level_weights: how they are summed.
    """

    def __init__(
        self, size: int, hidden_size: int, cell: str, gated: bool, bidirectional: bool, depth: int, level_weights: str
    ):
        super().__init__()
        self.hidden_size = hidden_size
        self.attention = AdditiveAttention(size, hidden_size, hidden_size, depth, level_weights)
        make = nn.LSTMCell if cell == "lstm" else nn.GRUCell
        self.cells = nn.ModuleList(make(2 * size, hidden_size) for _ in range(1 + bidirectional))
        self.gate = nn.Linear(2 * size, 2 * size, bias=False) if gated else None

    def forward(
        self, context: torch.Tensor, context_mask: torch.Tensor, question: torch.Tensor, question_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Match.

        Args:
            context: `(rows, queries, size)`
            context_mask: true where a word is no padding, `(rows, queries)`
            question: `(rows, keys, size)`
            question_mask: the same of it, `(rows, keys)`

        Returns:
            States, `(rows, queries, hidden_size · directions)`, and attention to the question, the mean of both
            directions, `(rows, queries, keys)`
        """
        attention = self.attention
        keys = attention.key_projection(question)
        values = attention.query_projection(question) if attention.depth > 1 else None
        queries = attention.query_projection(context)
        weights = attention.levels(context)
        found = []
        for number, cell in enumerate(self.cells):
            places = range(context.shape[1])
            parts = self._read(
                cell,
                reversed(places) if number else places,
                (context, context_mask, queries),
                (question, question_mask, keys, values),
                weights,
            )
            found.append([torch.stack(list(reversed(part)) if number else part, 1) for part in parts])
        states, attentions = zip(*found, strict=True)
        return torch.cat(states, -1), torch.stack(attentions).mean(0)

    def _read(
        self,
        cell: nn.Module,
        places: Iterable[int],
        of_context: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        of_question: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
        weights: torch.Tensor,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Read the context in one direction; at padding, the state stays what it is."""
        context, context_mask, queries = of_context
        question, question_mask, keys, values = of_question
        state = context.new_zeros(len(context), self.hidden_size)
        memory = state
        states, attentions = [], []
        for place in places:
            with_state = keys + self.attention.state_projection(state)[:, None]
            found = self.attention.attend(queries[:, place], with_state, values, question_mask, weights)
            seen = torch.cat([context[:, place], (found[:, None] @ question).squeeze(1)], -1)
            if self.gate is not None:
                seen = self.gate(seen).sigmoid() * seen
            keep = context_mask[:, place, None]
            if isinstance(cell, nn.LSTMCell):
                new, new_memory = cell(seen, (state, memory))
                memory = torch.where(keep, new_memory, memory)
            else:
                new = cell(seen, state)
            state = torch.where(keep, new, state)
            states.append(state * keep)
            attentions.append(found * keep)
        return states, attentions


__all__ = ["MatchRecurrence"]

"""Where the answer begins and ends: pointer networks over the words of a context.

Axes in shape comments:
    batch       contexts, each with its question
    words       words of the context
"""

import torch
from torch import nn

from .question_attention import masked_softmax


class QuestionPooling(nn.Module):
    """A vector of the question, attended to with a vector that is learned.

    Source: Wang et al. 2017, equation 11.
    """

    def __init__(self, size: int, hidden_size: int):
        super().__init__()
        self.projection = nn.Linear(size, hidden_size)  # its bias is the learned vector, projected
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, question: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attend."""
        # question (batch, words, size), mask (batch, words)
        attention = masked_softmax(self.score(self.projection(question).tanh()).squeeze(-1), mask)
        return (attention[:, None] @ question).squeeze(1)  # (batch, size)


class AnswerPointer(nn.Module):
    """Points at the first word of the answer, reads what it pointed at, and points at the last.

    Source: Wang and Jiang 2016, equations 10 to 13 (the boundary model; an LSTM that begins with zeros); Wang et al.
    2017, equations 9 to 11 (a GRU that begins with the question).
    """

    def __init__(self, size: int, hidden_size: int, state_size: int, cell: str):
        super().__init__()
        self.state_size = state_size
        self.projection = nn.Linear(size, hidden_size)
        self.state_projection = nn.Linear(state_size, hidden_size, bias=False)
        self.score = nn.Linear(hidden_size, 1)
        self.cell = nn.LSTMCell(size, state_size) if cell == "lstm" else nn.GRUCell(size, state_size)

    def forward(
        self, context: torch.Tensor, mask: torch.Tensor, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Point."""
        # context (batch, words, size), mask (batch, words), state (batch, state_size)
        projected = self.projection(context)
        if state is None:
            state = context.new_zeros(len(context), self.state_size)
        start = self._scores(projected, state)
        seen = (masked_softmax(start, mask)[:, None] @ context).squeeze(1)
        if isinstance(self.cell, nn.LSTMCell):
            state, _ = self.cell(seen, (state, torch.zeros_like(state)))
        else:
            state = self.cell(seen, state)
        return start, self._scores(projected, state)  # (batch, words)

    def _scores(self, projected: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        scored: torch.Tensor = self.score((projected + self.state_projection(state)[:, None]).tanh())
        return scored.squeeze(-1)

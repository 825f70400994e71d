"""The three readers: how a context is read with a question, and the pointer that looks for the answer in it.

Each has the same three steps: `encode`, for questions and documents, (texts, words, word_size); `read`, for each
document with its question, (rows, words or keys, size), gives what `point` looks at and attention to the question; and
`point`, over all documents of a context, (batch, words or keys, …), scores words as the answer's first and last.

Axes in shape comments: batch (questions), rows (documents of all contexts), words (of a document, or of all documents
of a context), keys (words of a question), size (2 · hidden_size, the width of a word that was read).
"""

from typing import Any

import torch
from torch import nn

from .configuration_ham_reader import HamReaderConfig
from .hierarchical_attention import HamLevelWeights
from .match_recurrence import GatedMatchGru, MatchLstm
from .question_attention import BidafAttention, SelfMatchingAttention, masked_softmax
from .word_encoder import RecurrentEncoder


class QuestionPooling(nn.Module):
    """A vector of the question, attended to with a vector that is learned. Source: Wang et al. 2017, equation 11."""

    def __init__(self, size: int, hidden_size: int):
        super().__init__()
        self.projection = nn.Linear(size, hidden_size)  # its bias is the learned vector, projected
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, question: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attend."""  # question (batch, words, size), mask (batch, words)
        attention = masked_softmax(self.score(self.projection(question).tanh()).squeeze(-1), mask)
        return (attention[:, None] @ question).squeeze(1)  # (batch, size)


class AnswerPointer(nn.Module):
    """Points at the answer's first word, reads it, and points at the last: equations 10 to 13, in R-NET 9 to 11."""

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
        """Point."""  # context (batch, words, size), mask (batch, words), state (batch, state_size)
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


def _levels(config: HamReaderConfig) -> HamLevelWeights:
    return HamLevelWeights(config.attention_depth, config.level_weights, config.level_weights_init)


class Reader(nn.Module):
    """What the readers share: `encode`. Each has its own `read` and `point`."""

    encoder_name: str

    def encode(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Read questions or documents, (texts, words, word_size), by themselves: (texts, words, size)."""
        return getattr(self, self.encoder_name)(words, lengths)[0]  # type: ignore[no-any-return]


class BidafReader(Reader):
    """Bi-directional attention flow. Source: Seo et al. 2016, section 2, layers 3 to 6; HAM, section 3.1."""

    encoder_name = "contextual"

    def __init__(self, config: HamReaderConfig):
        super().__init__()
        hidden, dropout = config.hidden_size, config.dropout
        size = 2 * hidden
        self.contextual = RecurrentEncoder("lstm", config.word_size, hidden, config.encoder_layers, dropout=dropout)
        self.attention = BidafAttention(size, _levels(config))
        self.modeling = RecurrentEncoder("lstm", 4 * size, hidden, config.modeling_layers, dropout=dropout)
        self.end_modeling = RecurrentEncoder("lstm", size, hidden, dropout=dropout)
        self.start_score = nn.Linear(5 * size, 1)
        self.end_score = nn.Linear(5 * size, 1)
        self.dropout = nn.Dropout(dropout)

    def read(self, context: Any, lengths: Any, mask: Any, question: Any, question_mask: Any) -> Any:
        """Read encoded documents with their questions."""
        of_question, of_context, attention = self.attention(context, mask, question, question_mask)
        joined = torch.cat([context, of_question, context * of_question, context * of_context], -1)  # G
        modeled = self.modeling(joined, lengths)[0]  # M
        for_end = self.end_modeling(modeled, lengths)[0]  # M²
        return (torch.cat([joined, modeled], -1), torch.cat([joined, for_end], -1)), attention

    def point(self, read: Any, mask: Any, question: Any, question_mask: Any) -> Any:
        """Score words of all documents together as the answer's first and last, as DuReader's authors do."""
        for_start, for_end = read
        start = self.start_score(self.dropout(for_start)).squeeze(-1)
        return start, self.end_score(self.dropout(for_end)).squeeze(-1)  # (batch, words)


class MatchLstmReader(Reader):
    """Match-LSTM with the answer pointer, in both directions. Source: Wang and Jiang 2016, section 2.2; HAM, 3.1."""

    encoder_name = "preprocessing"

    def __init__(self, config: HamReaderConfig):
        super().__init__()
        hidden, dropout = config.hidden_size, config.dropout
        size = 2 * hidden
        self.preprocessing = RecurrentEncoder("lstm", config.word_size, hidden, config.encoder_layers, dropout=dropout)
        self.matching = MatchLstm(size, hidden, _levels(config))
        self.pointer = AnswerPointer(size, hidden, hidden, "lstm")
        self.dropout = nn.Dropout(dropout)

    def read(self, context: Any, lengths: Any, mask: Any, question: Any, question_mask: Any) -> Any:
        """Read encoded documents with their questions."""
        matched, attention = self.matching(self.dropout(context), mask, lengths, self.dropout(question), question_mask)
        return (matched,), attention

    def point(self, read: Any, mask: Any, question: Any, question_mask: Any) -> Any:
        """Score words as the answer's first and last."""
        return self.pointer(self.dropout(read[0]), mask)


class RNetReader(Reader):
    """R-NET: gated matching with the question (HAM-V), then of the context with itself (HAM-S): Wang et al. 2017."""

    encoder_name = "encoder"

    def __init__(self, config: HamReaderConfig):
        super().__init__()
        hidden, dropout = config.hidden_size, config.dropout
        size = 2 * hidden
        self.encoder = RecurrentEncoder("gru", config.word_size, hidden, config.encoder_layers, dropout=dropout)
        self.matching = GatedMatchGru(size, hidden, _levels(config))
        self.self_matching = SelfMatchingAttention(hidden, hidden, _levels(config), config.self_attention_keys)
        self.self_gate = nn.Linear(size, size, bias=False)
        self.aggregation = RecurrentEncoder("gru", size, hidden, dropout=dropout)
        self.question_pooling = QuestionPooling(size, hidden)
        self.pointer = AnswerPointer(size, hidden, size, "gru")
        self.dropout = nn.Dropout(dropout)

    def read(self, context: Any, lengths: Any, mask: Any, question: Any, question_mask: Any) -> Any:
        """Read encoded documents with their questions."""
        matched, attention = self.matching(self.dropout(context), mask, lengths, self.dropout(question), question_mask)
        matched = self.dropout(matched)
        seen = torch.cat([matched, self.self_matching(matched, mask)], -1)
        return (self.aggregation(self.self_gate(seen).sigmoid() * seen, lengths)[0],), attention

    def point(self, read: Any, mask: Any, question: Any, question_mask: Any) -> Any:
        """Score words as the answer's first and last."""
        state = self.question_pooling(question, question_mask)
        return self.pointer(self.dropout(read[0]), mask, state)


READERS: dict[str, Any] = {"bidaf": BidafReader, "match_lstm": MatchLstmReader, "r_net": RNetReader}

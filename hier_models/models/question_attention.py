"""Attention in levels, as the readers need it: the two ways in which readers score words.

A level's query is P V, what the level before attended to by P; so the next level's scores need no vectors: they are P
times a matrix of the question alone, made once.

Axes in shape comments: rows (contexts, each with its question), queries (words of the context), keys (words of the
question, or of the context where it attends to itself), size (of a word's state), hidden (of additive scoring).
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from .hierarchical_attention import HamLevelWeights


# Elements of the largest tensor that additive self-attention makes at a time: what a processor's cache holds is
# fastest there, and an accelerator wants more at once.
CHUNK_ELEMENTS = {"cpu": 1 << 20}
CHUNK_ELEMENTS_ELSEWHERE = 1 << 24


def masked_softmax(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # scores (…, keys)
    """Turn scores into weights, none of them for padding."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)  # (…, keys)


class BidafAttention(nn.Module):
    """BiDAF's attention in both directions, in levels. Source: Seo et al. 2016, equations 1 to 3; HAM, section 3.1.

    A level scores words of context and question by w·[h; u; h∘u]; the query h of the next level is the question vector
    that the level attended to. Each level also attends from the question to the context, by the best score of each of
    its words, and both directions are summed with the same weights.

    With P, a level's attention, its question vector is P U, and the next level's scores are
    P (U w_h + U diag(w_hu) Uᵀ) + U w_u, where rows of P sum to one.
    """

    def __init__(self, size: int, level_weights: HamLevelWeights):
        super().__init__()
        self.level_weights = level_weights
        self.context_score = nn.Linear(size, 1, bias=False)
        self.question_score = nn.Linear(size, 1, bias=False)
        self.product_score = nn.Parameter(torch.empty(size).uniform_(-(size**-0.5), size**-0.5))

    def forward(
        self, context: torch.Tensor, context_mask: torch.Tensor, question: torch.Tensor, question_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Attend from the context to the question, and back."""
        weights = self.level_weights().to(context)
        keys = question_mask[:, None]
        of_question = self.question_score(question).transpose(1, 2)  # (rows, 1, keys)
        scaled = question * self.product_score
        scores = torch.baddbmm(
            self.context_score(context) + of_question, context, scaled.transpose(1, 2)
        )  # (rows, queries, keys)
        if len(weights) > 1:
            of_next = torch.baddbmm(self.context_score(question), scaled, question.transpose(1, 2))
        attention = scores  # from the first level on, the last level's
        to_question, to_context = torch.zeros_like(scores), torch.zeros_like(scores[..., 0])
        for level, weight in enumerate(weights):
            if level:
                scores = torch.baddbmm(of_question, attention, of_next)
            scores = scores.masked_fill(~keys, torch.finfo(scores.dtype).min)
            attention = scores.softmax(-1)
            to_question = to_question + weight * attention
            to_context = to_context + weight * masked_softmax(scores.amax(-1), context_mask)
        return to_question @ question, to_context[:, None] @ context, to_question


class AdditiveAttention(nn.Module):
    """Additive attention in levels: v·tanh(W_k k + W_q q + W_s s), where only the query q changes with the level.

    Source: Wang and Jiang 2016, equation 2; Wang et al. 2017, equation 4; HAM, section 3.1.
    """

    def __init__(self, size: int, state_size: int, hidden_size: int, level_weights: HamLevelWeights):
        super().__init__()
        self.level_weights = level_weights
        self.key_projection = nn.Linear(size, hidden_size)
        self.query_projection = nn.Linear(size, hidden_size, bias=False)
        self.state_projection = nn.Linear(state_size, hidden_size, bias=False)
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def prepare(
        self, keys: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:  # keys (rows, keys, size), mask (rows, keys)
        """Make what is the same for all queries."""
        values = (
            self.query_projection(keys) if self.level_weights.depth > 1 else None
        )  # next query P V: W_q of it is P (V W_qᵀ)
        bias = torch.zeros_like(keys[..., 0]).masked_fill(~mask, torch.finfo(keys.dtype).min)
        return self.key_projection(keys), values, bias

    def attend(
        self,
        query: torch.Tensor,  # (rows, hidden)
        state: torch.Tensor,  # (rows, hidden)
        keys: torch.Tensor,  # (rows, keys, hidden)
        values: torch.Tensor | None,  # (rows, keys, hidden)
        bias: torch.Tensor,  # (rows, keys)
        weights: torch.Tensor,  # (depth,)
    ) -> torch.Tensor:
        """Attend with one query to the keys, level by level."""
        levels: list[torch.Tensor] = []
        for level in range(len(weights)):
            if level and values is not None:
                query = (levels[-1][:, None] @ values).squeeze(1)
            together = torch.tanh(keys + (query + state)[:, None])
            levels.append((self.score(together).squeeze(-1) + bias).softmax(-1))
        return levels[0] if len(weights) == 1 else torch.stack(levels, -1) @ weights  # (rows, keys)


class SelfMatchingAttention(nn.Module):
    """Additive attention of a sequence to itself, in levels: Wang et al. 2017, equation 8; HAM, section 3.2."""

    def __init__(self, size: int, hidden_size: int, level_weights: HamLevelWeights, keys: str):
        super().__init__()
        self.level_weights = level_weights
        self.keys = keys
        self.key_projection = nn.Linear(size, hidden_size)
        self.query_projection = nn.Linear(size, hidden_size, bias=False)
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attend."""  # states (rows, queries, size), mask (rows, queries)
        weights = self.level_weights().to(states)
        queries, values = states, states
        keys = self.key_projection(states)
        total = torch.zeros_like(states)
        for level, weight in enumerate(weights):
            if level and self.keys == "level":
                values = queries
                keys = self.key_projection(values)
            parts = [self._attend(part, keys, values, mask) for part in _chunks(queries, keys)]
            queries = torch.cat(parts, 1)
            total = total + weight * queries
        return total  # (rows, queries, size)

    def _attend(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Attend with some queries; backwards their scores are made again, so that memory holds one chunk of them."""
        if torch.is_grad_enabled():
            attended = checkpoint(self._scored, queries, keys, values, mask, use_reentrant=False)
            return torch.as_tensor(attended)
        return self._scored(queries, keys, values, mask)

    def _scored(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        together = torch.tanh(self.query_projection(queries)[:, :, None] + keys[:, None])  # (rows, some, keys, hidden)
        return masked_softmax(self.score(together).squeeze(-1), mask[:, None]) @ values


def _chunks(queries: torch.Tensor, keys: torch.Tensor) -> Iterator[torch.Tensor]:
    """Cut queries so that the scores of each part are made of no more than `CHUNK_ELEMENTS`."""
    most = CHUNK_ELEMENTS.get(keys.device.type, CHUNK_ELEMENTS_ELSEWHERE)
    yield from queries.split(max(1, most // max(1, keys.numel())), dim=1)

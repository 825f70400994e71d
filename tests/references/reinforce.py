"""Drawing rows, with every outcome gone through instead of drawn: what REINFORCE is on average, to the last digit."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch


# Counts of each step, one tensor (rows,) a step -> negative log-likelihood of the target, and the logarithm of the
# attention to rows that each step drew from, (target, rows).
Play = Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]


def counts_of(rows: int, draws: int) -> list[tuple[int, ...]]:
    """All ways for `draws` draws to fall on `rows` rows."""
    return [counts for counts in itertools.product(range(draws + 1), repeat=rows) if sum(counts) == draws]


def log_probability(counts: Sequence[int], log_attention: torch.Tensor) -> torch.Tensor:
    """Logarithm of the multinomial probability of counts."""
    total = torch.tensor(math.lgamma(sum(counts) + 1), dtype=log_attention.dtype)
    for row, count in enumerate(counts):
        if count:
            total = total + count * log_attention[row] - math.lgamma(count + 1)
    return total


def outcomes(rows: int, draws: int, steps: int) -> list[list[tuple[int, ...]]]:
    """All counts of all steps."""
    return [list(outcome) for outcome in itertools.product(counts_of(rows, draws), repeat=steps)]


def expected_loss(play: Play, rows: int, draws: int, steps: int) -> torch.Tensor:
    """The mean likelihood over all outcomes, whose gradient is the exact one, through the probabilities too."""
    total = torch.zeros((), dtype=torch.float64)
    for outcome in outcomes(rows, draws, steps):
        loss, log_attention = play([torch.tensor(counts, dtype=torch.float64) for counts in outcome])
        total = total + probability_of(outcome, log_attention) * loss
    return total


def probability_of(outcome: Sequence[Sequence[int]], log_attention: torch.Tensor) -> torch.Tensor:
    """Of all counts together; `log_attention` is (target, rows)."""
    return sum(log_probability(counts, log_attention[step]) for step, counts in enumerate(outcome)).exp()

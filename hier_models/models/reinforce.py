"""REINFORCE: how hard attention to rows learns from the words that follow, though drawing a row has no derivative.

Source: thesis, chapter 3. The model adds `surrogate - surrogate.detach()` to its loss: the value stays the likelihood.
Axes in shape comments: batch (documents), target (decoder steps), rows (sentences of a document, or rows of its grid).
"""

import torch
from torch import nn


def draw_rows(probabilities: torch.Tensor, num_samples: int = 1) -> torch.Tensor:  # probabilities (…, rows)
    """Draw rows with replacement, and count how often each was drawn (section 4.4.1, multiple samples: Mult(k, α))."""
    with torch.no_grad():
        flat = probabilities.flatten(0, -2)
        counts = torch.zeros_like(flat)
        if flat.shape[-1] == 0:
            return counts.view_as(probabilities)
        has_rows = flat.sum(dim=-1, keepdim=True) > 0
        drawn = torch.multinomial(flat.where(has_rows, 1.0), num_samples, replacement=True)  # (…, samples)
        counts.scatter_add_(-1, drawn, has_rows.to(counts.dtype).expand_as(drawn))
        return counts.view_as(probabilities)  # (…, rows)


def draw_gumbel(scores: torch.Tensor) -> torch.Tensor:
    """Draw noise for scores; the best with it are drawn without replacement from their softmax (Kool et al., 2019)."""
    return -torch.empty_like(scores).exponential_().log()


def rewards_to_go(rewards: torch.Tensor, discount: float) -> torch.Tensor:  # rewards (batch, target)
    """Add up each step's reward and those that follow: the sum over s >= t of discount^(s-t) r_s (equation 4.15)."""
    total, reach = rewards.clone(), 1
    # Sums over 2, 4, 8, … steps, each made of two of the sums before.
    while reach < rewards.shape[1]:
        total[:, :-reach] += discount**reach * total[:, reach:]
        reach *= 2
    return total  # (batch, target)


def surrogate_loss(
    log_attention: torch.Tensor,  # (batch, target, rows)
    counts: torch.Tensor,  # (batch, target, rows)
    rewards: torch.Tensor,  # (batch, target)
    baseline: torch.Tensor,
    mask: torch.Tensor,  # (batch, target)
    discount: float = 1.0,
    scale: float = 1.0,
    normalizer: float | torch.Tensor = 1.0,
    left_out: torch.Tensor | None = None,  # rewards without one draw of each row, (batch, target, rows)
) -> torch.Tensor:
    """Compute what has the gradient of REINFORCE. Source: theorem 2, equation 4.15 and section 4.4.1."""
    exists = mask.bool()
    advantages = (rewards.detach() - baseline).masked_fill(~exists, 0.0)
    to_go = rewards_to_go(advantages, discount).unsqueeze(-1)  # (batch, target, 1)
    if left_out is not None:  # in the place of the baseline, for the step's own reward
        to_go = to_go + (baseline.unsqueeze(-1) - left_out).masked_fill(~exists.unsqueeze(-1), 0.0)
    # A row that cannot be drawn has a logarithm of -inf, and 0 × inf would be nan.
    chosen = counts * log_attention.masked_fill(counts == 0, 0.0)  # (batch, target, rows)
    return -scale * (to_go * chosen).sum() / normalizer


class RewardBaseline(nn.Module):
    """The reward expected of each decoder step, those behind the last alike: a moving average (equation 4.16)."""

    values: torch.Tensor

    def __init__(self, rate: float, steps: int = 512) -> None:
        super().__init__()
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must be from 0 to 1, got {rate}")
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.rate = rate
        self.steps = steps
        self.register_buffer("values", torch.zeros(steps))

    def extra_repr(self) -> str:
        """Show the settings where modules are printed."""
        return f"rate={self.rate}, steps={self.steps}"

    def forward(self, target_length: int) -> torch.Tensor:
        """Give the baseline of a mini-batch, to be asked for before `update` is told its rewards."""
        return self.values[self._places(target_length)]

    @torch.no_grad()
    def update(self, rewards: torch.Tensor | None = None, mask: torch.Tensor | None = None) -> None:
        """Move towards the mean reward of each step; each process calls it each step, if need be without rewards."""
        # rewards (batch, target), mask (batch, target)
        wide = torch.promote_types(self.values.dtype, torch.float32)
        sums = torch.zeros(2, self.steps, dtype=wide, device=self.values.device)  # of rewards, and of tokens
        if rewards is not None:
            mask = torch.ones_like(rewards) if mask is None else mask
            places = self._places(rewards.shape[1])
            counted = torch.stack([rewards.masked_fill(~mask.bool(), 0.0).sum(dim=0), mask.sum(dim=0)])  # (2, target)
            sums.index_add_(1, places, counted.to(wide))
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        means = sums[0] / sums[1].clamp(min=1)
        moved = torch.lerp(self.values.to(wide), means, self.rate)
        self.values.copy_(moved.where(sums[1] > 0, self.values.to(wide)))

    def _places(self, target_length: int) -> torch.Tensor:
        return torch.arange(target_length, device=self.values.device).clamp(max=self.steps - 1)

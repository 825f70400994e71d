"""Where the rows of a batch are, without padding: tokens row after row, and the order in which an LSTM reads them.

Axes in shape comments: tokens (of all rows, row after row), rows (of all documents, each with as many as the most).
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from .input_checks import can_look_at, check_integers, check_shape


@dataclass(frozen=True)
class Rows:
    """Rows of different lengths."""

    tokens: torch.Tensor  # where each token is in the flattened (batch, source), (tokens,)
    lengths: torch.Tensor  # tokens of each row, 0 for an empty one, (rows,)

    @cached_property
    def starts(self) -> torch.Tensor:
        """Place of each row's first token in `tokens`, `(rows,)`."""
        return self.lengths.cumsum(0) - self.lengths

    def row_of_each(self) -> torch.Tensor:
        """Row of each token, `(tokens,)`."""
        numbers = torch.arange(len(self.lengths), device=self.lengths.device)
        return numbers.repeat_interleave(self.lengths, output_size=len(self.tokens))

    def take(self, rows: torch.Tensor) -> "Rows":
        """Return some of the rows, in the order given, `(taken,)`; `tokens` are then places in our `tokens`."""
        lengths = self.lengths[rows]
        taken = Rows(lengths.new_empty(int(lengths.sum())), lengths)
        places = torch.arange(len(taken.tokens), device=lengths.device)
        return Rows(places + (self.starts[rows] - taken.starts)[taken.row_of_each()], lengths)

    def only(self, kept: torch.Tensor) -> "Rows":
        """Return the rows with some of their tokens, `(tokens,)`; `tokens` are then places in our `tokens`."""
        lengths = torch.zeros_like(self.lengths).index_add(0, self.row_of_each(), kept.to(self.lengths.dtype))
        return Rows(kept.nonzero().squeeze(1), lengths)

    def reading_order(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sort the tokens as a packed sequence has them: the first of all rows, the longest row first, and so on."""
        row_of_each = self.row_of_each()
        step = torch.arange(len(self.tokens), device=row_of_each.device) - self.starts[row_of_each]
        rank = self.lengths.argsort(descending=True, stable=True).argsort()
        order = (step * len(self.lengths) + rank[row_of_each]).argsort()
        return order, step.bincount().cpu()

    def table(self, width: int, rows: torch.Tensor | slice = slice(None)) -> tuple[torch.Tensor, torch.Tensor]:
        """Place in `tokens` of each token of some rows, `(…, width)`, and where there is one; 0 where none is."""
        steps = torch.arange(width, device=self.lengths.device)
        exists = steps < self.lengths[rows, None]
        return torch.where(exists, self.starts[rows, None] + steps, 0), exists


def find_rows(row_ids: torch.Tensor, num_rows: int) -> Rows:  # row_ids (batch, source)
    """Find the rows of a batch."""
    documents = torch.arange(len(row_ids), device=row_ids.device)
    flat = torch.where(row_ids >= 0, documents[:, None] * num_rows + row_ids, -1).flatten()
    tokens = (flat >= 0).nonzero().squeeze(1)
    return Rows(tokens, flat[tokens].bincount(minlength=len(row_ids) * num_rows))


def check_row_ids(row_ids: torch.Tensor, shape: torch.Size) -> None:
    """Refuse rows, (batch, source), that do not follow each other."""
    check_shape("row_ids", row_ids, shape)
    check_integers("row_ids", row_ids)
    if not can_look_at(row_ids):
        return
    if (row_ids < -1).any():
        raise ValueError(f"`row_ids` must count from 0, or be -1 for padding; got {int(row_ids.min())}.")
    before = row_ids.cummax(dim=1).values
    falls = (row_ids >= 0) & (row_ids < before)
    if falls.any():
        document, token = falls.nonzero()[0].tolist()
        raise ValueError(
            f"`row_ids` must not decrease in a document, got {int(row_ids[document, token])} after "
            f"{int(before[document, token])} at token {token} of document {document}."
        )

"""The best of thousands of rows without all of their scores: keys in 8 bits leave a few rows, whose scores are exact.

On a CPU a decoding step for several long documents is mostly the reading of their keys. In 8 bits they are a quarter,
and how far a score can be off is known, so that nothing is lost. Source: ours.

Axes in shape comments:
    documents   documents of the batch
    rows        rows of a document
    beams       sequences of each document
"""

import functools

import torch
from torch import nn


# Fewer rows than this are scored in full: it takes less time.
_FEWEST_ROWS = 2048
# A score in bfloat16 is off by its 256th part at most.
_ROUNDING = 2.0**-8
# The product reads keys in blocks, past their end if they are not made of whole ones.
_BLOCK = 64


class RowScreen:
    """Keys of rows in 8 bits."""

    def __init__(self, keys: torch.Tensor, exists: torch.Tensor):
        self.exists = None if exists.all() else exists.unsqueeze(1)
        documents, rows, size = keys.shape
        self.padding = -size % _BLOCK
        self.small = torch.zeros(documents, rows, size + self.padding, dtype=torch.int8)
        self.scales = torch.empty(keys.shape[:2], dtype=torch.bfloat16)  # of each row
        self.longest = torch.empty(len(keys), 1, 1)  # longest difference from the mean, of each document
        self.error = torch.empty(len(keys), 1, 1)  # longest difference between a key and its 8 bits
        for i, keys_of_document in enumerate(keys):
            # What all rows have in common does not change which is the best.
            is_row = exists[i][:, None]
            mean = keys_of_document.masked_fill(~is_row, 0.0).sum(dim=0) / is_row.sum().clamp(min=1)
            others = (keys_of_document - mean).masked_fill_(~is_row, 0.0)
            # A little larger than needed, so that nothing is out of range when the scale is rounded.
            scale = (others.abs().amax(dim=-1) * (1.02 / 127)).clamp(min=1e-30).bfloat16()
            rounded = (others / scale.float()[:, None]).round_()
            self.small[i, :, :size] = rounded
            self.scales[i] = scale
            self.longest[i] = torch.linalg.vector_norm(others, dim=-1).max()
            rounded.mul_(scale.float()[:, None]).sub_(others)
            self.error[i] = torch.linalg.vector_norm(rounded, dim=-1).max()

    @staticmethod
    def is_worth_it(keys: torch.Tensor) -> bool:  # keys (documents, rows, hidden_size)
        """Whether the keys are many, and in a place and of a kind that the product is there for."""
        is_many = keys.device.type == "cpu" and keys.dtype == torch.float32 and keys.shape[1] >= _FEWEST_ROWS
        return is_many and _product_works()

    def candidates(self, queries: torch.Tensor, number: int) -> torch.Tensor:
        """Find all rows that can be among the best."""
        # queries (documents, beams, hidden_size)
        short = queries.bfloat16()
        products = [
            _product(query, small, scales)
            for query, small, scales in zip(
                nn.functional.pad(short, (0, self.padding)), self.small, self.scales, strict=True
            )
        ]
        scores = torch.stack(products).float()
        if self.exists is not None:
            scores.masked_fill_(~self.exists, float("-inf"))
        norm = torch.linalg.vector_norm(short.float(), dim=-1, keepdim=True)  # (documents, beams, 1)
        lost = torch.linalg.vector_norm(queries - short.float(), dim=-1, keepdim=True)
        # A score is off by less than this: from the query's rounding, the keys' rounding, and the score's own.
        off = lost * self.longest + norm * self.error + _ROUNDING * norm * (self.longest + self.error)
        best = (
            scores.topk(min(number, scores.shape[-1]), dim=-1).values if number > 1 else scores.amax(-1, keepdim=True)
        )
        found: torch.Tensor = scores >= best[..., -1:] - 2 * off
        return found if self.exists is None else found & self.exists  # (documents, beams, rows)


def _product(queries: torch.Tensor, keys: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Multiply (beams, size) in bfloat16 with (rows, size) in 8 bits, times (rows,): (beams, rows)."""
    found: torch.Tensor = torch.ops.aten._weight_int8pack_mm(queries, keys, scales)
    return found


@functools.cache
def _product_works() -> bool:
    """Whether this build of torch has the product: it is not of torch's public operators."""
    queries = torch.arange(-64, 64).view(2, 64).bfloat16()
    keys = (torch.arange(3 * 64) % 251 - 125).view(3, 64).to(torch.int8)
    scales = torch.tensor([0.5, 1.0, 2.0]).bfloat16()
    try:
        found = _product(queries, keys, scales).float()
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(found, (queries.float() @ keys.float().T) * scales.float(), rtol=0.01, atol=1.0)


__all__ = ["RowScreen"]

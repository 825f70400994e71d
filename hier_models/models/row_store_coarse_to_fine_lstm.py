"""Conditional computation: the word LSTM reads a row when it is first selected, once for all beams of its document.

Axes in shape comments:
    documents   documents of the batch, however many beams each has
    rows        rows of a document
    batch       sequences that are decoded: documents times beams
    selected    rows that a sequence selects
    words       words of a selected row, padded to the longest that was read
"""

import copy
from collections.abc import Callable
from typing import Any, Self

import torch

from .rows import Rows
from .screening_coarse_to_fine_lstm import RowScreen


class CoarseToFineLstmRowStore:
    """The states of rows, read on demand."""

    def __init__(
        self,
        read: Callable[[torch.Tensor, Rows, torch.Tensor | None], list[torch.Tensor]],
        words: Callable[[torch.Tensor], torch.Tensor],
        rows: Rows,
        is_padding: torch.Tensor | None,
        keys: torch.Tensor,
        source: int,
    ):
        self.keys = keys
        self.source = source
        self.exists = (rows.lengths > 0).view(keys.shape[:2])
        self.screen = RowScreen(keys, self.exists) if RowScreen.is_worth_it(keys) else None
        self.rows = rows
        self._read, self._words, self._is_padding = read, words, is_padding
        # Where each row's states begin among those read, -1 for a row not read yet.
        self._begins = torch.full_like(rows.lengths, -1)
        # (room, hidden_size); the first is zero, for places where there is no word.
        self._states: torch.Tensor | None = None
        self._used = 1
        self._longest = 1
        self.encoded_rows = rows.lengths.new_zeros(len(keys))  # of each document, (documents,)

    def states(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # rows (batch, selected)
        """Return the word states of rows, and read those that have not been read yet."""
        begins = self._begins[rows]
        if (begins < 0).any():
            self._add(rows[begins < 0].unique())
            begins = self._begins[rows]
        assert self._states is not None
        steps = torch.arange(self._longest, device=rows.device)
        exists = steps < self.rows.lengths[rows].unsqueeze(-1)
        return self._states[torch.where(exists, begins.unsqueeze(-1) + steps, 0)], exists

    def tokens(self, rows: torch.Tensor) -> torch.Tensor:
        """Return where in the source the words of rows are, `(batch, selected, words)`; 0 where there are none."""
        steps = torch.arange(self._longest, device=rows.device)
        exists = steps < self.rows.lengths[rows].unsqueeze(-1)
        places = torch.where(exists, self.rows.starts[rows].unsqueeze(-1) + steps, 0)
        return self.rows.tokens[places] % self.source if len(self.rows.tokens) else places

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy what was read, and not the model that reads."""
        copied = object.__new__(type(self))
        for name, value in self.__dict__.items():
            setattr(copied, name, value.clone() if isinstance(value, torch.Tensor) else value)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the store with all rows read, as the model that reads is not pickled."""
        whole = copy.deepcopy(self)
        missing = (whole._begins < 0).nonzero().squeeze(1)
        if len(missing):
            whole._add(missing)
        return {**whole.__dict__, "_read": None, "_words": None}

    @torch.no_grad()  # whatever the decoder does: what the encoder returned without gradient has none
    def _add(self, rows: torch.Tensor) -> None:
        self._leave_inference_mode()
        taken = self.rows.take(rows)  # its tokens are places in ours
        is_padding = None if self._is_padding is None else self._is_padding[taken.tokens]
        states = self._read(self._words(taken.tokens), taken, is_padding)[-1]
        used = self._used + len(states)
        if self._states is None or used > len(self._states):
            zero = states.new_zeros(1, states.shape[-1])
            kept = zero if self._states is None else self._states[: self._used]
            room = states.new_zeros(len(kept) + 2 * len(states), states.shape[-1])
            self._states = torch.cat([kept, room])
        self._states[self._used : used] = states
        self._begins[rows] = self._used + taken.starts
        self._used = used
        documents = rows.div(self.keys.shape[1], rounding_mode="floor")
        self.encoded_rows.index_add_(0, documents, (taken.lengths > 0).to(documents.dtype))
        self._longest = max(self._longest, int(taken.lengths.max()))

    def _leave_inference_mode(self) -> None:
        """Outside of inference mode its tensors cannot be written to."""
        if torch.is_inference_mode_enabled():
            return
        for name in ("_begins", "_states", "encoded_rows"):
            value = getattr(self, name)
            if value is not None and value.is_inference():
                setattr(self, name, value.clone())


__all__ = ["CoarseToFineLstmRowStore"]

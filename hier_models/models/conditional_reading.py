"""Conditional computation: the word LSTM reads a row when it is first selected, once for all beams of its document.

Axes in shape comments: documents, beams (of each document), batch (sequences: documents times beams), source, rows (of
a document), selected (rows of a sequence), words (of a row, padded to the longest that was read).
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import nn

from .model_outputs import CoarseToFineLstmEncoderOutput
from .rows import Rows


class CoarseToFineLstmRowStore:
    """The states of rows, read on demand; in training with their gradient."""

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
        self.rows = rows
        self._read, self._words, self._is_padding = read, words, is_padding
        self._has_gradient = torch.is_grad_enabled()
        if self._has_gradient:  # in pieces, or the gradient of each reading would be as large as all words
            everything = words(torch.arange(len(rows.tokens), device=keys.device))
            self._pieces = everything.split(rows.lengths.tolist())
        # Of each row that was read, (words of the longest, hidden_size), zero where there is no word.
        self._states: dict[int, torch.Tensor] = {}
        self._longest = 1
        self._last: tuple[Any, ...] = (None,)  # rows that were asked for last, and what was returned
        self.encoded_rows = rows.lengths.new_zeros(len(keys))  # of each document, (documents,)

    def states(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # rows (batch, selected)
        """Return the word states of rows, and read those that have not been read yet."""
        wanted = (rows.tolist(), torch.is_inference_mode_enabled())
        if wanted != self._last[0]:
            numbers = [number for of_sequence in wanted[0] for number in of_sequence]
            if missing := sorted(set(numbers) - self._states.keys()):
                self._add(missing)
            states = torch.stack([self._states[number] for number in numbers]).unflatten(0, rows.shape)
            self._last = (wanted, states, self.rows.table(self._longest, rows)[1])
        return self._last[1], self._last[2]

    def tokens(self, rows: torch.Tensor) -> torch.Tensor:
        """Return where in the source the words of rows are, `(batch, selected, words)`; 0 where there are none."""
        places, _ = self.rows.table(self._longest, rows)
        return self.rows.tokens[places] % self.source if len(self.rows.tokens) else places

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy what was read, and not the model that reads."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, _states=dict(self._states), encoded_rows=self.encoded_rows.clone())
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the store with all rows read, as the model that reads is not pickled."""
        whole = copy.deepcopy(self)
        if missing := sorted(set(range(len(self.rows.lengths))) - whole._states.keys()):
            whole._add(missing)
        # A row's states are a part of what was read with it, which would be pickled with each.
        states = {number: state.clone() for number, state in whole._states.items()}
        return {**whole.__dict__, "_read": None, "_words": None, "_last": (None,), "_states": states}

    def _add(self, numbers: list[int]) -> None:
        taken = self.rows.take(torch.tensor(numbers, device=self.keys.device))  # its tokens are places in ours
        is_padding = None if self._is_padding is None else self._is_padding[taken.tokens]
        # Whatever the decoder does: what the encoder returned without gradient has none.
        with torch.set_grad_enabled(self._has_gradient):
            pieces = [self._pieces[number] for number in numbers] if self._has_gradient else ()
            words = torch.cat(pieces) if pieces else self._words(taken.tokens)
            states = self._read(words, taken, is_padding)[-1]  # (tokens, hidden_size)
            longest = max(self._longest, int(taken.lengths.max()))
            if longest > self._longest:
                more = (0, 0, 0, longest - self._longest)
                self._states = {number: nn.functional.pad(own, more) for number, own in self._states.items()}
                self._longest = longest
            places = taken.table(longest)[1].flatten().nonzero().squeeze(1)
            padded = states.new_zeros(len(numbers) * longest, states.shape[-1]).index_copy(0, places, states)
            self._states.update(zip(numbers, padded.unflatten(0, (-1, longest)).unbind(), strict=True))
        documents = torch.tensor(numbers, device=self.keys.device).div(self.keys.shape[1], rounding_mode="floor")
        self.encoded_rows = self.encoded_rows.index_add(0, documents, (taken.lengths > 0).to(documents.dtype))


class WordMemory(NamedTuple):
    """A source all of whose words were read."""

    states: torch.Tensor  # zero for what is not attended to, (batch, source, hidden_size)
    # what is added to scores of words, (batch, source), or (batch, rows, words) with attention over rows: 0, or the
    # lowest number where there is no word. In float32 at least.
    word_penalty: torch.Tensor
    row_ids: torch.Tensor  # row of each token, -1 for what is not attended to, (batch, source)
    row_keys: torch.Tensor | None = None  # (batch, rows, hidden_size) with attention over rows
    row_penalty: torch.Tensor | None = None  # what is added to scores of rows, (batch, rows)
    # of each word of each row in the source, 0 where there is none, (batch, rows * words).
    places: torch.Tensor | None = None

    def reported(
        self, words: torch.Tensor, row_attentions: torch.Tensor | None
    ) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        """Return attentions as outputs have them."""
        # words (batch, target, source), row_attentions (batch, target, rows)
        words = words * (self.row_ids >= 0).unsqueeze(1)
        if row_attentions is not None and self.row_penalty is not None:
            return (words.unsqueeze(1),), row_attentions * (self.row_penalty == 0).unsqueeze(1)
        rows = words.new_zeros(*words.shape[:2], max(1, int(self.row_ids.max()) + 1))
        places = self.row_ids.clamp(min=0).unsqueeze(1).expand_as(words)
        return (words.unsqueeze(1),), rows.scatter_add(2, places, words)


class DocumentMemory:
    """Documents whose rows are read on demand; beams of a document share them."""

    def __init__(self, store: CoarseToFineLstmRowStore, document_ids: torch.Tensor):
        self.store = store
        self.document_ids = document_ids
        documents, rows, _ = store.keys.shape
        self.first_rows = (document_ids * rows).unsqueeze(1)  # (batch, 1)
        beams = len(document_ids) // documents
        in_order = torch.arange(documents, device=document_ids.device).repeat_interleave(max(1, beams))
        self._keys = store.keys if torch.equal(document_ids, in_order) else store.keys[document_ids]
        self._dtype = torch.promote_types(store.keys.dtype, torch.float32)
        self._penalty = None
        if not store.exists.all():
            self._penalty = _penalty(store.exists, self._dtype)[document_ids]  # (batch, rows)

    def row_scores(self, hidden: torch.Tensor) -> torch.Tensor:  # hidden (batch, hidden_size)
        """Score all rows."""
        documents, rows, size = self._keys.shape
        queries = hidden.view(documents, -1, size).transpose(1, 2)  # (documents, hidden_size, beams)
        keys = self._keys
        if documents == 1 and rows % 2 == 0:  # in halves, as a single product with one vector takes one thread only
            keys, queries = keys.view(2, rows // 2, size), queries.expand(2, -1, -1)
        scores = torch.bmm(keys, queries).view(documents, rows, -1)  # keys first: half the time for beams
        scores = scores.transpose(1, 2).flatten(0, 1).to(self._dtype)
        return scores if self._penalty is None else scores + self._penalty  # (batch, rows)

    def reported(self, words: torch.Tensor, row_attentions: torch.Tensor) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        """As `WordMemory.reported`."""
        exists = self.store.exists[self.document_ids].unsqueeze(1)
        return (words.unsqueeze(1),), row_attentions * exists


def make_memory(encoder_outputs: CoarseToFineLstmEncoderOutput, batch: int) -> WordMemory | DocumentMemory:
    """Prepare what the encoder returned for the steps of the decoder."""
    store = encoder_outputs.get("row_store")
    states = encoder_outputs["last_hidden_state"]
    documents = encoder_outputs["document_ids"] if store is not None else states
    if len(documents) != batch:
        raise ValueError(f"The target must have batch={len(documents)} like the source, got batch={batch}.")
    if store is not None:
        return DocumentMemory(store, documents)
    row_ids, row_tokens = encoder_outputs["row_ids"], encoder_outputs.get("row_tokens")
    wide = torch.promote_types(states.dtype, torch.float32)
    if row_tokens is None:
        return WordMemory(states, _penalty(row_ids >= 0, wide), row_ids)
    exists = row_tokens >= 0  # (batch, rows, words)
    return WordMemory(
        states,
        _penalty(exists, wide),
        row_ids,
        encoder_outputs["row_keys"],
        _penalty(exists[..., 0], wide),
        row_tokens.clamp(min=0).flatten(1),
    )


def _penalty(exists: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # Not minus infinity: where nothing exists at all, weights are then equal, and the states that they weigh zero.
    return torch.zeros(exists.shape, dtype=dtype, device=exists.device).masked_fill(~exists, torch.finfo(dtype).min)

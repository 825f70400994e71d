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
from .torch_kernels import int8_product, int8_product_works


# Fewer rows than this are scored in full: it takes less time.
_FEWEST_ROWS = 2048
# A score in bfloat16 is off by its 256th part at most.
_ROUNDING = 2.0**-8
# The product reads keys in blocks, past their end if they are not made of whole ones.
_BLOCK = 64


class RowScreen:
    """Keys of rows in 8 bits, a quarter to read on a CPU; they leave the few rows that can be the best."""

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
        return is_many and int8_product_works()

    def candidates(self, queries: torch.Tensor, number: int) -> torch.Tensor:
        """Find all rows that can be among the best."""  # queries (documents, beams, hidden_size)
        short = queries.bfloat16()
        products = [
            int8_product(query, small, scales)
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
        for name in ("_begins", "_states", "encoded_rows"):
            value = getattr(self, name)  # of inference mode, it cannot be written to outside of it
            if value is not None and value.is_inference() and not torch.is_inference_mode_enabled():
                setattr(self, name, value.clone())
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
        wide = torch.promote_types(store.keys.dtype, torch.float32)
        self._penalty = None
        if not store.exists.all():
            self._penalty = _penalty(store.exists, wide)[document_ids]  # (batch, rows)
        self._dtype = wide

    def best_scores(self, hidden: torch.Tensor, number: int) -> torch.Tensor:  # hidden (batch, hidden_size)
        """Score the rows that can be among the best."""
        screen = self.store.screen
        if screen is None or self._keys is not self.store.keys or hidden.dtype != self._keys.dtype:
            return self.row_scores(hidden)
        queries = hidden.view(len(self._keys), -1, hidden.shape[-1])
        is_candidate = screen.candidates(queries, number).flatten(0, 1)  # (batch, rows)
        sequences, rows = is_candidate.nonzero(as_tuple=True)
        if 8 * len(sequences) > is_candidate.numel():
            return self.row_scores(hidden)
        scores = torch.full(is_candidate.shape, torch.finfo(self._dtype).min, dtype=self._dtype)
        scores[sequences, rows] = (self._keys[self.document_ids[sequences], rows] * hidden[sequences]).sum(dim=-1)
        return scores  # (batch, rows)

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

"""What the decoder attends to: the states of all words, or rows that are read on demand.

Axes in shape comments:
    batch       sequences that are decoded: documents, or documents times beams
    documents   documents, however many beams each has
    source      source tokens
    rows        rows of a document
    words       words of a row, padded to the longest
"""

from typing import NamedTuple

import torch

from .modeling_outputs_coarse_to_fine_lstm import CoarseToFineLstmEncoderOutput
from .row_store_coarse_to_fine_lstm import CoarseToFineLstmRowStore


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


__all__ = ["DocumentMemory", "WordMemory", "make_memory"]

"""A batch that shrinks while its targets are written: documents that are done are taken out, while the others go on.

Transformers' searches go on with every row until the last one is done. Here the model sees only the rows whose tokens
still matter; of the others it says that padding is next, which no search looks at.
"""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, MaxTimeCriteria
from transformers.generation.utils import GenerationMixin

from .growing_cache import GrowingLayer


LEAST_SHARE = 8  # of the documents that are left, how many are done before these are taken out, as 1 / LEAST_SHARE
NEXT = 100.0  # logit of padding in rows that do not matter, where all others are 0

_batch: ContextVar["ShrinkingBatch | None"] = ContextVar("_batch", default=None)


def batch_of(cache: Any) -> "ShrinkingBatch | None":
    """The batch of the search that runs in this thread with a cache, if it may shrink."""
    batch = _batch.get()
    return batch if batch is not None and batch.cache is cache else None


class ShrinkingBatch:
    """The rows of a batch, some for each document, and the documents that the model still sees."""

    def __init__(
        self, cache: Any, rows: int, begun: int, documents: int, ends: torch.Tensor | None, pad_token_id: int
    ) -> None:
        self.cache, self.total, self.each, self.pad_token_id = cache, rows, rows // documents, pad_token_id
        self.documents, self.rows = torch.arange(documents), torch.arange(rows)  # those that the model still sees
        self.begun, self.ends = begun, ends  # tokens of the prompt; what ends a target that is written without beams
        self.unfinished: torch.Tensor | None = None  # (documents,), of the whole batch
        self._shrunk: dict[str, tuple[Any, Any]] = {}  # inputs of several steps, as they were and as they are

    def note(self, unfinished: torch.Tensor) -> None:
        """Take what a beam search found out: which documents' targets may still become better, (documents, 1)."""
        self.unfinished = unfinished.flatten()

    def shrink(self, inputs: dict[str, Any], input_ids: torch.Tensor) -> dict[str, Any]:
        """Leave of a step's inputs, and of the cache in them, what belongs to documents that are not done."""
        if self.ends is not None:
            is_done = torch.isin(input_ids[:, self.begun :], self.ends).any(dim=1)
            self.unfinished = ~is_done.view(-1, self.each).all(dim=1)
        self._take_out()
        if len(self.rows) == self.total:
            return inputs
        return {name: self._left_of(name, value) for name, value in inputs.items()}

    def reordered(self, beam_idx: torch.Tensor) -> torch.Tensor:
        """Which row each row that is left goes on from, among those that are left."""
        rows = self.rows.to(beam_idx.device)
        places = rows.new_zeros(self.total)
        places[rows] = torch.arange(len(rows), device=rows.device)
        found: torch.Tensor = places[beam_idx[rows]]
        return found

    def whole(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits of all rows, by those that are left, (rows, 1, vocab_size)."""
        if len(logits) == self.total:
            return logits
        found = logits.new_zeros(self.total, *logits.shape[1:])
        found[..., self.pad_token_id] = NEXT
        return found.index_copy_(0, self.rows.to(logits.device), logits)

    def _take_out(self) -> None:
        if self.unfinished is None:
            return
        count = len(self.documents)
        left = self.unfinished.to(self.documents.device)[self.documents].nonzero()[:, 0]
        if len(left) in (0, count) or (count - len(left)) * LEAST_SHARE < count:
            return
        rows = self._rows_of(left)
        self.cache.self_attention_cache.batch_select_indices(rows)
        layers: list[Any] = self.cache.cross_attention_cache.layers
        for layer in filter(operator.attrgetter("is_initialized"), layers):
            # Of a document it has one row, or one for each of its targets.
            layer.batch_select_indices((left if len(layer.keys) == count else rows).to(layer.keys.device))
        self.documents = self.documents[left]
        self.rows = self._rows_of(self.documents)
        self._shrunk.clear()

    def _rows_of(self, documents: torch.Tensor) -> torch.Tensor:
        return (documents[:, None] * self.each + torch.arange(self.each)).flatten()

    def _left_of(self, name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim():
            chosen = {self.total: self.rows, self.total // self.each: self.documents}.get(len(value))
            return value if chosen is None else self._once(name, value, lambda: value[chosen.to(value.device)])
        if isinstance(value, dict):  # what the encoder gave
            parts = {part: self._left_of(f"{name}.{part}", of) for part, of in value.items()}
            return self._once(name, value, lambda: type(value)(**parts))
        return value

    def _once(self, name: str, value: Any, make: Any) -> Any:
        known = self._shrunk.get(name)
        if known is None or known[0] is not value:
            known = self._shrunk[name] = value, make()
        return known[1]


class ShrinksBatch:
    """Has searches shrink their batch; stands before `GenerationMixin` among a model's bases."""

    def prepare_inputs_for_generation(self, input_ids: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what `generate` gives the model at a step."""
        prepared: dict[str, Any] = cast(Any, super()).prepare_inputs_for_generation(input_ids, *args, **kwargs)
        batch = batch_of(prepared.get("cache"))
        return prepared if batch is None else batch.shrink(prepared, input_ids)

    def _beam_search(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with _shrinking(self, input_ids, getattr(kwargs.get("generation_config"), "num_beams", 1), **kwargs):
            return cast(Any, super())._beam_search(input_ids, *args, **kwargs)

    def _sample(self, input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with _shrinking(self, input_ids, None, **kwargs):
            return cast(Any, super())._sample(input_ids, *args, **kwargs)

    @staticmethod
    def _check_early_stop_heuristic(*args: Any, **kwargs: Any) -> torch.Tensor:
        unfinished: torch.Tensor = GenerationMixin._check_early_stop_heuristic(*args, **kwargs)
        if (batch := _batch.get()) is not None:
            is_full = kwargs["is_sent_finished"].all(dim=1, keepdim=True)
            batch.note(unfinished & ~is_full if kwargs["early_stopping"] is True else unfinished)
        return unfinished

    def _update_model_kwargs_for_generation(self, outputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if (batch := batch_of(outputs.get("cache"))) is not None:  # the search wants logits of all rows
            outputs.logits = batch.whole(outputs.logits)
        updated: dict[str, Any] = cast(Any, super())._update_model_kwargs_for_generation(outputs, *args, **kwargs)
        return updated


@contextmanager
def _shrinking(
    model: Any,
    input_ids: torch.Tensor,
    beams: int | None,
    generation_config: Any = None,
    stopping_criteria: Any = (),
    encoder_outputs: Any = None,
    cache: Any = None,
    synced_gpus: bool = False,
    **_: Any,
) -> Iterator[None]:
    """Have the batch of a search shrink, if nobody sees rows of documents that are done, or says when they are."""
    (rows, begun), pad, caches = input_ids.shape, getattr(generation_config, "_pad_token_tensor", None), list[Any]()
    padding = -1 if pad is None else int(pad)
    is_own = not getattr(cache, "_is_user_defined", False)
    if isinstance(cache, EncoderDecoderCache) and is_own and not cache.get_seq_length():
        caches = [cache.self_attention_cache, cache.cross_attention_cache]
    encoded = len(encoder_outputs[0]) if isinstance(encoder_outputs, dict) else 0  # states of documents, or of rows
    documents = encoded if beams is None else rows // beams
    ends = [of.eos_token_id for of in stopping_criteria if type(of) is EosTokenCriteria]
    may_shrink = (
        documents > 1
        and encoded in (documents, rows)
        and caches
        and 0 <= padding < model.config.vocab_size
        and (beams is not None or ends)
        and not (synced_gpus or generation_config.return_dict_in_generate or torch.compiler.is_compiling())
        and all(type(of) in (MaxLengthCriteria, MaxTimeCriteria, EosTokenCriteria) for of in stopping_criteria)
        and all(type(part) is DynamicCache and not part.offloading for part in caches)
        and all(type(layer) in (DynamicLayer, GrowingLayer) for part in caches for layer in part.layers)
        and not any(module._forward_pre_hooks for module in model.modules())  # as PEFT's, with an adapter for each row
    )
    batch = None
    if may_shrink:
        batch = ShrinkingBatch(cache, rows, begun, documents, torch.cat(ends) if beams is None else None, padding)
    token = _batch.set(batch)
    try:
        yield
    finally:
        _batch.reset(token)

"""The importance tagger at work: documents in, how important each of their tokens is out."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForTokenClassification, AutoProcessor
from transformers.utils import logging

from .document_pipeline_hier import evaluating


logger = logging.get_logger(__name__)

IMPORTANT = 1  # the tagger's class of important tokens; 0 is that of all others

Span = tuple[int, int, float]


class ImportanceTagger:
    """Tells how important each token of a document is, for a summarizer's `importance=`.

    A document longer than the tagger takes is tagged in windows, each as long as the tagger takes and beginning where
    three quarters of the one before end. A token's weight comes from the window in which it is farther from the edge.
    A warning says so once; `windows` counts them.

    Args:
        model: A token classification model with two classes, of which 1 is "important", or a checkpoint of one.
        processor: Its processor; by default the checkpoint's own.
        max_length: Most tokens of a window, special tokens included; by default as many as the model has positions.
        batch_size: Windows at once.
        device: Where a checkpoint is loaded to; a model stays where it is.
        dtype: Number format a checkpoint is loaded in; by default the one it was saved in.

    Raises:
        ValueError: If the model has not two classes, the checkpoint is not of such a model, the processor is missing
            or is none that gives `offset_mapping`, or `max_length` or `batch_size` is out of range.

    Source: section 2.3, step 3 of AdaPool.
    """

    def __init__(
        self,
        model: Any,
        processor: Any = None,
        *,
        max_length: int | None = None,
        batch_size: int = 4,
        device: Any = None,
        dtype: Any = "auto",
    ) -> None:
        if isinstance(model, str) or hasattr(model, "__fspath__"):
            processor = AutoProcessor.from_pretrained(model) if processor is None else processor
            model = _load(model, dtype)
            model = model if device is None else model.to(device)
        if not type(model).__name__.endswith("ForTokenClassification") or model.config.num_labels != 2:
            got = f"{type(model).__name__} with {getattr(model.config, 'num_labels', 'no')} classes"
            raise ValueError(f"`model` must be a token classification model with two classes, got {got}")
        if not hasattr(processor, "running_text"):
            raise ValueError(f"`processor` must be one that says where its tokens are, got {type(processor).__name__}")
        positions = processor.longest_text(model)
        if max_length is not None and not 3 <= max_length <= (positions or max_length):
            most = "" if positions is None else f" and at most {positions}, what the tagger takes"
            raise ValueError(f"`max_length` must be at least 3 (two are special tokens){most}, got {max_length}")
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}")
        self.model, self.processor, self.batch_size = model, processor, batch_size
        self.max_length = max_length or positions
        self.windows = 0
        self._warned = False

    def __call__(self, texts: str | Sequence[str], *, progress: bool = False) -> Any:
        """Tag documents.

        Args:
            texts: A running text, or a list of them.
            progress: Whether to show a bar.

        Returns:
            For each text a list of (start, end, weight): where a token's characters begin and end, and the probability
            that it is important.
        """
        if isinstance(texts, str):
            return self([texts], progress=progress)[0]
        if not texts:
            return []
        encoded = self.processor(text=list(texts), return_offsets_mapping=True)
        rows = [ids[1:-1] for ids in encoded["input_ids"]]  # without special tokens
        offsets = [places[1:-1] for places in encoded["offset_mapping"]]
        size = max((len(row) for row in rows), default=0) if self.max_length is None else self.max_length - 2
        windows = [(number, window) for number, row in enumerate(rows) for window in _windows(len(row), size)]
        self.windows += len(windows)
        if len(windows) > len(texts) and not self._warned:
            self._warned = True
            most, here = self.max_length, f"{len(windows)} for {len(texts)} documents here"
            logger.warning(f"Documents longer than the tagger's {most} tokens are tagged in windows: {here}.")
        # Longest first: batches of equal lengths need little padding, and memory runs out at once or never.
        windows.sort(key=lambda item: item[1][0] - item[1][1])
        weights = [[0.0] * len(row) for row in rows]
        starts = range(0, len(windows), self.batch_size)
        for first in logging.tqdm(starts, desc="Tagging", disable=not progress):
            batch = windows[first : first + self.batch_size]
            probabilities = self._probabilities([rows[number][start:end] for number, (start, end, *_) in batch])
            for (number, (start, _, own_start, own_end)), row in zip(batch, probabilities, strict=True):
                weights[number][own_start:own_end] = row[own_start - start : own_end - start]
        return [
            [(start, end, weight) for (start, end), weight in zip(places, row, strict=True) if start < end]
            for places, row in zip(offsets, weights, strict=True)
        ]

    def tag_sources(self, processor: Any, limit: int | None, source: dict[str, list[Any]]) -> list[list[Span]]:
        """Tag as much of documents as a summarizer reads.

        Args:
            processor: The summarizer's processor.
            limit: Tokens that the summarizer reads, special tokens included; None for all.
            source: `text`, `sentences`, `turns` or `documents`, as the processor takes it, of some documents.

        Returns:
            For each document what a call gives, in characters of the processor's `running_text`.
        """
        cut = {} if limit is None else {"truncation": True, "max_length": limit}
        offsets = processor(**source, **cut, return_offsets_mapping=True, return_truncation=True)["offset_mapping"]
        texts = processor.running_text(**source)
        ends = [max(end for _, end in places) for places in offsets]
        spans: list[list[Span]] = self([text[:end] for text, end in zip(texts, ends, strict=True)])
        return spans

    def fingerprint(self) -> str:
        """Give what decides the weights in a few characters, as the key of a cache.

        Returns:
            A hash of the classes, the model's weights, the tokenizer and `max_length`.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{type(self).__name__} {type(self.model).__name__} {self.max_length}".encode())
        digest.update(self.model.config.to_json_string().encode())
        digest.update(self.processor.tokenizer.backend_tokenizer.to_str().encode())
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()

    def _probabilities(self, rows: list[list[int]]) -> list[list[float]]:
        """Probability that a token is important, for each of the windows' tokens."""
        tokenizer = self.processor.tokenizer
        ids = [torch.tensor([tokenizer.bos_token_id, *row, tokenizer.eos_token_id]) for row in rows]
        # On the right, where it shifts no position; (batch, tokens).
        input_ids = pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id or 0)
        mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
        inputs = {"input_ids": input_ids.to(self.model.device), "attention_mask": mask.to(self.model.device)}
        with evaluating(self.model), torch.inference_mode():
            logits = self.model(**inputs).logits  # (batch, tokens, 2)
        weights = logits.float().softmax(-1)[..., IMPORTANT].tolist()
        return [weight[1 : 1 + len(row)] for weight, row in zip(weights, rows, strict=True)]


def load_importance_tagger(tagger: Any, processor: Any = None, **options: Any) -> ImportanceTagger:
    """Make a tagger of what a user gives as one."""
    # By name: perhaps it is that of a checkpoint's own copy of this file.
    if ImportanceTagger.__name__ in (kind.__name__ for kind in type(tagger).__mro__):
        made: ImportanceTagger = tagger
        return made
    if isinstance(tagger, torch.nn.Module):
        vocabulary = getattr(getattr(tagger, "config", None), "vocab_size", None)
        if processor is not None and vocabulary is not None and len(processor.tokenizer) > vocabulary:
            raise ValueError(
                f"`importance_tagger` knows {vocabulary} tokens and the summarizer's tokenizer has "
                f"{len(processor.tokenizer)}: pass ImportanceTagger(model, processor) with the tagger's own processor"
            )
        return ImportanceTagger(tagger, processor, **options)
    if isinstance(tagger, str) or hasattr(tagger, "__fspath__"):
        return ImportanceTagger(tagger, **options)
    kinds = "a checkpoint, a token classification model or an ImportanceTagger"
    raise ValueError(f"`importance_tagger` must be {kinds}, got {type(tagger).__name__}")


def _load(name: Any, dtype: Any) -> Any:
    loaded: Any = AutoModelForTokenClassification.from_pretrained(name, dtype=dtype, output_loading_info=True)
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        # Random weights would tag all the same.
        raise ValueError(
            f"`model` ({name}) is no trained token classification model: it lacks {', '.join(missing[:3])}. "
            "Train one with `run: task: importance_tagging` in a recipe."
        )
    return model


def _windows(tokens: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Cover a document: where each window begins and ends, and which tokens take their weight from it."""
    step = max(1, 3 * size // 4)
    start, own = 0, 0
    while start + size < tokens:
        own_end = (2 * start + step + size) // 2  # half of what two windows share belongs to each
        yield start, start + size, own, max(own_end, own)
        start, own = start + step, own_end
    yield start, tokens, own, max(tokens, own)

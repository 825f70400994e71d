"""ROUGE-SU4: skip-bigrams and single words, the numbers of ROUGE-1.5.5, with every setting that moves them stated."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from .base import ROUGE_PAPER, TextsMetric, function_name, stemmed, version_of, with_targets


_WORD = re.compile(r"[A-Za-z0-9]+")

Words = Callable[[str], list[str]]
Units = Counter[tuple[str, ...]]


class RougeSu(TextsMetric):
    """ROUGE-SU4: the numbers of the Perl script ROUGE-1.5.5 with the options -2 4 -u, averaged over the documents.

    It counts which pairs of words, in their order and with at most four others between them, and which single words a
    summary shares with its reference. Like the script, it takes words to be runs of a-z and 0-9 in lower case, and
    does not count the last word of a text as a single word. `compute(predictions=…, references=…)` returns values
    between 0 and 1, `inputs_description` lists the options, and `settings` is then everything that moves the numbers.

    Source: Highlight-Transformer, section 4.4 (R-SU: skip-bigrams with a distance of at most four words).
    """

    PAPER = ROUGE_PAPER

    def _compute(  # type: ignore[override]
        self,
        predictions: Sequence[str],
        references: Sequence[list[str]],
        skip_distance: int | None = 4,
        several_references: str = "average",
        use_aggregator: bool = True,
        use_stemmer: bool = False,
        tokenizer: Words | None = None,
    ) -> dict[str, Any]:
        """Score summaries.

        Args:
            predictions: Summaries.
            references: A string for each, or a list of strings.
            skip_distance: Most words between the two of a pair; None for any number (ROUGE-SU*).
            several_references: "average" counts all references together, "best" takes the one with the highest recall;
                as -f A and -f B of the script.
            use_aggregator: True for the mean over the documents (plain, no resampling), False for a list of values.
            use_stemmer: Whether words of more than three letters are reduced to their Porter stem first. The script's
                -m looks up irregular words in WordNet before that and changes some rules, so that the numbers of a few
                texts differ in the third digit (6 of 250, and their mean in the fifth).
            tokenizer: A function from a text to the list of its words, for languages that are not written in a-z and
                0-9; as it gives them, neither put into lower case nor filtered.

        Returns:
            rougeSU4 (rougeSU and the distance, or rougeSU*), F1, with its recall and precision as rougeSU4_recall and
            rougeSU4_precision. `settings` are then the formula, stemmer, tokenizer and aggregation.
        """
        if skip_distance is not None and (type(skip_distance) is not int or skip_distance < 0):
            raise ValueError(f"skip_distance must be a number of words (0 or more) or None, got {skip_distance!r}")
        if several_references not in ("average", "best"):
            raise ValueError(f"several_references must be 'average' or 'best', got {several_references!r}")
        words = _words(tokenizer, use_stemmer)
        scores = []
        for prediction, targets in with_targets(predictions, references):
            found = _units(words(prediction), skip_distance)
            wanted = [_units(words(target), skip_distance) for target in targets]
            scores.append(_score(found, wanted, several_references))
        name = f"rougeSU{'*' if skip_distance is None else skip_distance}"
        result: dict[str, Any] = {}
        for key, values in zip((name, f"{name}_recall", f"{name}_precision"), zip(*scores, strict=True), strict=True):
            result[key] = sum(values) / len(values) if use_aggregator else list(values)
        self._settings = {
            "formula": f"ROUGE-1.5.5 -2 {-1 if skip_distance is None else skip_distance} -u",
            "several_references": several_references,
            "use_stemmer": use_stemmer,
            "tokenizer": "a-z and 0-9, lower case" if tokenizer is None else function_name(tokenizer),
            "aggregation": "mean over documents" if use_aggregator else "of each document",
        }
        if use_stemmer:
            self._settings["stemmer"] = f"Porter (nltk {version_of('nltk')})"
        return result


def _words(tokenizer: Words | None, use_stemmer: bool) -> Words:
    """The function that makes words of a text."""
    # Lower case of ASCII only, as in the script: other letters end a word, whatever their lower case is.
    plain = tokenizer or (lambda text: [word.lower() for word in _WORD.findall(text)])
    return stemmed(plain, "MARTIN_EXTENSIONS") if use_stemmer else plain


def _units(words: Sequence[str], distance: int | None) -> Units:
    """Pairs of words and single words, with how often each occurs."""
    units: Units = Counter()
    # The script counts a word when it begins pairs, so never the last one.
    for first, word in enumerate(words[:-1]):
        units[(word,)] += 1
        end = None if distance is None else first + distance + 2
        units.update((word, other) for other in words[first + 1 : end])
    return units


def _score(found: Units, wanted: Sequence[Units], several: str) -> tuple[float, float, float]:
    """F1, recall and precision of a summary against its references."""
    counts = [((found & units).total(), units.total(), found.total()) for units in wanted]
    if several == "best":
        # As the script does: to five digits, and the first of equals.
        counts = [max(counts, key=lambda count: round(count[0] / count[1], 5) if count[1] else 0.0)]
    hits, in_references, in_summary = (sum(numbers) for numbers in zip(*counts, strict=True))
    recall = hits / in_references if in_references else 0.0
    precision = hits / in_summary if in_summary else 0.0
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return f1, recall, precision

"""BLEU-2 of the second, third and fourth lines of quatrains, each written after the true lines before it."""

from collections.abc import Sequence
from typing import Any

import datasets
import sacrebleu

from .base import TEXT, NumbersMetric, check_smoothing


LINES = 4


class PoemBleu(NumbersMetric):
    """How much a model's lines of quatrains have in common with those of the poets.

    BLEU of single characters and of pairs (BLEU-2) of the second lines that were written after the true first lines,
    of the third after the first two, of the fourth after the first three, and the mean of the three. Poems of lines of
    5 and of 7 characters are scored apart. Scores are between 0 and 1, as in the paper.

    Source: HAM, section 5.2 (BLEU) and Table 2.
    """

    PAPER = "Dou and Zhang (2018): Hierarchical Attention: What Really Counts in Various NLP Tasks. arXiv:1808.03728"
    FEATURES = datasets.Features(dict.fromkeys(("predictions", "references"), datasets.Sequence(TEXT, id="lines")))

    def _compute(  # type: ignore[override]
        self,
        predictions: Sequence[Sequence[str]],
        references: Sequence[Sequence[str]],
        smooth_method: str = "exp",
        keywords: Sequence[Sequence[str]] | None = None,
    ) -> dict[str, Any]:
        """Score lines.

        Args:
            predictions: For each poem the three lines that were written: the second, third and fourth.
            references: For each poem its four lines.
            smooth_method: exp, floor, add-k or none, as in sacrebleu; matters only where no pair is found.
            keywords: For each poem the keywords that the three lines were written from. A line has its keyword from
                the poet's own line; BLEU is then also given of all characters but those of the keyword.

        Returns:
            For each length n of lines that there is, bleu1_n, bleu2_n, bleu3_n (of the second, third, fourth lines),
            bleu_n (their mean), with keywords bleu_without_keywords_n (the same mean), and poems_n (number of poems).
            `settings` has sacrebleu's signature.
        """
        check_smoothing(smooth_method)
        bleu = sacrebleu.BLEU(max_ngram_order=2, tokenize="none", smooth_method=smooth_method, force=True)
        scores: dict[str, Any] = {}
        for length, numbers in by_length(predictions, references).items():

            def scores_of(left_out: Sequence[Sequence[str]] | None, numbers: Sequence[int] = numbers) -> list[float]:
                found = []
                for line in range(1, LINES):
                    without = {i: left_out[i][line - 1] if left_out else "" for i in numbers}
                    texts = [apart(predictions[i][line - 1], without[i]) for i in numbers]
                    golds = [apart(references[i][line], without[i]) for i in numbers]
                    found.append(bleu.corpus_score(texts, [golds]).score / 100)
                return found

            of_lines = scores_of(None)
            scores |= {f"bleu{line}_{length}": score for line, score in enumerate(of_lines, 1)}
            scores[f"bleu_{length}"] = sum(of_lines) / len(of_lines)
            if keywords is not None:
                scores[f"bleu_without_keywords_{length}"] = sum(scores_of(keywords)) / len(of_lines)
            scores[f"poems_{length}"] = len(numbers)
        self._settings = {"signature": str(bleu.get_signature())}
        return scores


def by_length(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[int, list[int]]:
    """The numbers of the poems of each length of lines, the shortest first."""
    found: dict[int, list[int]] = {}
    for number, (written, poem) in enumerate(zip(predictions, references, strict=True)):
        if len(poem) != LINES or len(written) != LINES - 1:
            got = f"{len(written)} and {len(poem)}"
            raise ValueError(f"predictions must be 3 lines of a poem, and references 4, got {got} for poem {number}")
        lengths = sorted({len(line) for line in poem})
        if len(lengths) > 1:
            got = ", ".join(map(str, lengths))
            raise ValueError(f"references: the lines of a poem must be of one length, poem {number} has {got}")
        found.setdefault(lengths[0], []).append(number)
    return dict(sorted(found.items()))


def apart(line: str, without: str = "") -> str:
    """A line with its characters apart, whatever spaces it has, and without some of them."""
    return " ".join(character for character in "".join(line.split()) if character not in without)

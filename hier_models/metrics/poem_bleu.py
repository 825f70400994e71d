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
        self, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], smooth_method: str = "exp"
    ) -> dict[str, Any]:
        """Score lines.

        Args:
            predictions: For each poem the three lines that were written: the second, third and fourth.
            references: For each poem its four lines.
            smooth_method: exp, floor, add-k or none, as in sacrebleu; matters only where no pair is found.

        Returns:
            For each length n of lines that there is, bleu1_n, bleu2_n, bleu3_n (of the second, third, fourth lines),
            bleu_n (their mean) and poems_n (number of poems). `settings` has sacrebleu's signature.
        """
        check_smoothing(smooth_method)
        by_length: dict[int, list[tuple[Sequence[str], Sequence[str]]]] = {}
        for number, (written, poem) in enumerate(zip(predictions, references, strict=True)):
            if len(poem) != LINES or len(written) != LINES - 1:
                raise ValueError(
                    f"predictions must be the 3 lines after the first, and references the 4 lines of a poem, got "
                    f"{len(written)} and {len(poem)} for poem {number}"
                )
            lengths = {len(line) for line in poem}
            if len(lengths) > 1:
                found = ", ".join(map(str, sorted(lengths)))
                raise ValueError(f"references: the lines of a poem must be of one length, poem {number} has {found}")
            by_length.setdefault(lengths.pop(), []).append((written, poem))
        bleu = sacrebleu.BLEU(max_ngram_order=2, tokenize="none", smooth_method=smooth_method, force=True)
        scores: dict[str, Any] = {}
        for length, poems in sorted(by_length.items()):
            of_lines = {}
            for line in range(1, LINES):
                texts, golds = zip(
                    *((apart(written[line - 1]), apart(poem[line])) for written, poem in poems), strict=True
                )
                of_lines[f"bleu{line}_{length}"] = bleu.corpus_score(texts, [golds]).score / 100
            scores |= {**of_lines, f"bleu_{length}": sum(of_lines.values()) / len(of_lines)}
            scores[f"poems_{length}"] = len(poems)
        self._settings = {"signature": str(bleu.get_signature())}
        return scores


def apart(line: str) -> str:
    """A line with its characters apart, whatever spaces it has."""
    return " ".join("".join(line.split()))

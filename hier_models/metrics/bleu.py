"""Corpus BLEU of sacrebleu, for whole documents (d-BLEU) or for sentences, with sacrebleu's signature."""

from collections.abc import Sequence
from typing import Any

import sacrebleu

from .base import TextsMetric, check_smoothing


# sacrebleu's tokenizers that come with it; the others fetch a model when they are first used.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")


class Bleu(TextsMetric):
    """BLEU of sacrebleu, in percent, over all texts together; over whole documents it is d-BLEU.

    BLEU counts how many n-grams (1 to 4) of a translation are in its reference, with a penalty for translations that
    are too short. For d-BLEU each text is a document, its sentences on one line, so that n-grams across sentences
    count and sentences need no alignment. `compute(predictions=…, references=…)` returns the score,
    `inputs_description` lists the options, and `settings["signature"]` is then everything that moves the number;
    scores with different signatures cannot be compared.

    Source: HAT-BART, section 4.2 (BLEU of whole documents, their translated chunks joined).
    """

    PAPER = "Matt Post (2018): A Call for Clarity in Reporting BLEU Scores. https://aclanthology.org/W18-6319"

    def _compute(  # type: ignore[override]
        self,
        predictions: Sequence[str],
        references: Sequence[list[str]],
        tokenize: str = "13a",
        lowercase: bool = False,
        smooth_method: str = "exp",
        smooth_value: float | None = None,
    ) -> dict[str, Any]:
        """Score texts.

        Args:
            predictions: Translations, a string each: whole documents for d-BLEU.
            references: A string for each, or a list of strings (as many for every prediction).
            tokenize: sacrebleu's tokenizer: 13a (for most languages), intl, zh, char, none, ja-mecab, ko-mecab.
            lowercase: Whether to ignore letter case.
            smooth_method: exp, floor, add-k or none; matters only where no n-gram of a length is found.
            smooth_value: Value of floor and add-k; sacrebleu's own by default.

        Returns:
            bleu (percent), precisions (of 1- to 4-grams, percent), counts and totals (of n-grams), bp (brevity
            penalty), sys_len and ref_len (tokens of translations and references) and texts (their number). `settings`
            then has sacrebleu's signature.
        """
        check_smoothing(smooth_method)
        options: dict[str, Any] = {"smooth_method": smooth_method, "smooth_value": smooth_value}
        bleu = bleu_with(tokenize, lowercase=lowercase, **options)
        numbers = sorted({len(several) for several in references})
        if len(numbers) > 1 or numbers[0] == 0:
            raise ValueError(f"references: every prediction needs as many references, at least one; got {numbers}")
        score = bleu.corpus_score(
            [_line(text) for text in predictions],
            [[_line(text) for text in column] for column in zip(*references, strict=True)],
        )
        self._settings = {"signature": str(bleu.get_signature())}
        names = ("precisions", "counts", "totals", "bp", "sys_len", "ref_len")
        return {"bleu": score.score, **{name: getattr(score, name) for name in names}, "texts": len(predictions)}


def bleu_with(tokenize: str, **options: Any) -> sacrebleu.BLEU:
    """Make sacrebleu's; a tokenizer that is not known is refused, or whose package is not there (RuntimeError)."""
    if tokenize not in TOKENIZERS:
        raise ValueError(f"tokenize must be one of {', '.join(TOKENIZERS)}, got {tokenize!r}")
    # With force, since it would warn of texts that end in " .", however they came about.
    return sacrebleu.BLEU(tokenize=tokenize, force=True, **options)


def _line(text: str) -> str:
    """A text on one line: line breaks are no part of a translation, and some tokenizers join what they separate."""
    return " ".join(text.split())

"""Corpus BLEU of sacrebleu, for whole documents (d-BLEU) or for sentences, with sacrebleu's signature."""

from collections.abc import Sequence
from typing import Any

import evaluate
import sacrebleu

from .base import TEXTS, NumbersMetric, check_smoothing


# sacrebleu's tokenizers that come with it; the others fetch a model when they are first used.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")

_DESCRIPTION = """\
BLEU counts how many n-grams (1 to 4) of a translation are in its reference, with a penalty for translations that are
too short. The numbers are those of sacrebleu, in percent, over all texts together. d-BLEU is BLEU of whole documents:
each text is a document, its sentences on one line, so that n-grams across sentences count and sentences need no
alignment. A signature says what the number depends on; scores with different signatures cannot be compared.
"""

_INPUTS = """
Args:
    predictions: list of translations, a string each: whole documents for d-BLEU.
    references: list of references: a string each, or a list of strings each (as many for every prediction).
    tokenize: sacrebleu's tokenizer: 13a (default, for most languages), intl, zh, char, none, ja-mecab, ko-mecab.
    lowercase: True to ignore letter case; False by default.
    smooth_method: exp (default), floor, add-k or none; matters only where no n-gram of a length is found.
    smooth_value: value of floor and add-k; sacrebleu's own by default.
Returns:
    a dict with bleu (percent), precisions (of 1- to 4-grams, percent), counts and totals (of n-grams), bp (brevity
    penalty), sys_len and ref_len (tokens of translations and references) and texts (their number). The metric's
    settings then have the signature.
"""

_CITATION = """\
@inproceedings{post-2018-call,
    title = "A Call for Clarity in Reporting {BLEU} Scores",
    author = "Post, Matt",
    booktitle = "Proceedings of the Third Conference on Machine Translation: Research Papers",
    year = "2018",
    url = "https://aclanthology.org/W18-6319",
}
"""


class Bleu(NumbersMetric):
    """BLEU as a metric of the evaluate library, with the numbers of sacrebleu; over documents it is d-BLEU.

    `compute(predictions=…, references=…)` returns the score in percent; `settings["signature"]` is then everything
    that moves it, and `inputs_description` lists the options.

    Source: HAT-BART, section 4.2 (BLEU of whole documents, their translated chunks joined).
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=TEXTS,
            codebase_urls=["https://github.com/mjpost/sacrebleu"],
            reference_urls=["https://aclanthology.org/W18-6319"],
        )

    def _compute(  # type: ignore[override]
        self,
        predictions: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        tokenize: str = "13a",
        lowercase: bool = False,
        smooth_method: str = "exp",
        smooth_value: float | None = None,
    ) -> dict[str, Any]:
        if tokenize not in TOKENIZERS:
            raise ValueError(f"tokenize must be one of {', '.join(TOKENIZERS)}, got {tokenize!r}")
        check_smoothing(smooth_method)
        targets = [[reference] if isinstance(reference, str) else list(reference) for reference in references]
        numbers = sorted({len(several) for several in targets})
        if len(numbers) > 1 or numbers[0] == 0:
            needed = "as many references as the others, and at least one"
            raise ValueError(f"references: every prediction needs {needed}; got {', '.join(map(str, numbers))}")
        smoothing: dict[str, Any] = {"smooth_method": smooth_method, "smooth_value": smooth_value}
        # Unless forced, it would warn of texts that end in " .", however they came about.
        bleu = sacrebleu.BLEU(lowercase=lowercase, tokenize=tokenize, force=True, **smoothing)
        columns = [[_line(text) for text in column] for column in zip(*targets, strict=True)]
        score = bleu.corpus_score([_line(text) for text in predictions], columns)
        self._settings = {"signature": str(bleu.get_signature())}
        lists = {name: list(getattr(score, name)) for name in ("precisions", "counts", "totals")}
        lengths = {name: getattr(score, name) for name in ("bp", "sys_len", "ref_len")}
        return {"bleu": score.score, **lists, **lengths, "texts": len(predictions)}


def _line(text: str) -> str:
    """A text on one line: line breaks are no part of a translation, and some tokenizers join what they separate."""
    return " ".join(text.split())

"""What single documents add to BLEU of translations, poems and answers."""

from collections.abc import Sequence

import numpy as np
import sacrebleu

from .answers import answer_units, f1_of_characters, rouge_l
from .bleu import bleu_with
from .document_scores import Array, DocumentStatistics, means
from .poem_bleu import LINES, apart
from .squad import exact_score, f1_score


# Names of the scores of poems, before the length of their lines.
POEM_METRICS = ("bleu", *(f"bleu{line}" for line in range(1, LINES)))


def bleu_statistics(bleu: sacrebleu.BLEU, prediction: str, references: Sequence[str]) -> list[int]:
    """Count what BLEU adds up."""
    score = bleu.corpus_score([prediction], [[reference] for reference in references])
    return [score.sys_len, score.ref_len, *score.counts, *score.totals]


def document_bleu(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> DocumentStatistics:
    """Take apart what `Bleu` gives for translations."""
    bleu = bleu_with(tokenize)
    rows = [
        bleu_statistics(bleu, " ".join(translation.split()), [" ".join(reference.split())])
        for translation, reference in zip(translations, references, strict=True)
    ]
    return DocumentStatistics(_array(rows), "bleu")


def document_poem_bleu(written: Sequence[list[str]], poems: Sequence[list[str]]) -> dict[str, DocumentStatistics]:
    """Take apart what `PoemBleu` gives."""
    bleu = sacrebleu.BLEU(max_ngram_order=2, tokenize="none", force=True)
    lengths = [len(poem[0]) for poem in poems]
    rows = _array(
        [
            [
                number
                for line, gold in zip(lines, poem[1:], strict=True)
                for number in bleu_statistics(bleu, apart(line), [apart(gold)])
            ]
            for lines, poem in zip(written, poems, strict=True)
        ]
    )
    width = rows.shape[1] // (LINES - 1)
    found = {}
    for length in sorted(set(lengths)):
        own = np.where(np.array(lengths)[:, None] == length, rows, 0.0)
        parts = [own, *(own[:, i * width : (i + 1) * width] for i in range(LINES - 1))]
        for name, part in zip(POEM_METRICS, parts, strict=True):
            found[f"{name}_{length}"] = DocumentStatistics(part, "bleu", order=2, scale=0.01)
    return found


def document_answers(
    answers: Sequence[str], references: Sequence[Sequence[str]], unit: str = "words"
) -> dict[str, DocumentStatistics]:
    """Take apart exact match and F1 of SQuAD, and what `AnswerOverlap` gives."""
    pairs = list(zip(answers, references, strict=True))
    f1 = f1_score if unit == "words" else f1_of_characters
    units = [(answer_units(answer, unit), [answer_units(gold, unit) for gold in golds]) for answer, golds in pairs]
    found = means(
        {
            "exact": [100 * max(exact_score(answer, gold) for gold in golds) for answer, golds in pairs],
            "f1": [100 * max(f1(answer, gold) for gold in golds) for answer, golds in pairs],
            "rougeL": [100 * rouge_l(answer, golds) for answer, golds in units],
        }
    )
    for order in (1, 4):
        bleu = sacrebleu.BLEU(tokenize="none", max_ngram_order=order, smooth_method="none", force=True)
        rows = [bleu_statistics(bleu, " ".join(answer), [" ".join(gold) for gold in golds]) for answer, golds in units]
        found[f"bleu{order}"] = DocumentStatistics(_array(rows), "bleu", order=order, smoothing="none")
    return found


def _array(rows: Sequence[Sequence[int]]) -> Array:
    return np.asarray(rows, dtype=np.float64)

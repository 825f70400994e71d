"""BLEU and ROUGE-L of answers, as MS MARCO and DuReader score them, each answer against several references."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import datasets
import sacrebleu

from .base import TEXT, NumbersMetric, version_of


# ROUGE-L's weight of recall in the scripts of MS MARCO and DuReader.
BETA = 1.2
UNITS = ("words", "characters")
# Letters of scripts that write words without spaces: kana and Chinese characters.
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def answer_units(text: str, unit: str) -> list[str]:
    """Split an answer into what is compared."""
    if unit not in UNITS:
        raise ValueError(f"`unit` must be one of {', '.join(UNITS)}, got {unit!r}")
    return re.findall(r"\w+|[^\w\s]", text.lower()) if unit == "words" else re.findall(r"\S", text.lower())


def usual_unit(texts: Iterable[str]) -> str:
    """Tell what is compared by the script of texts."""
    unspaced = words = 0
    for text in texts:
        unspaced += len(UNSPACED.findall(text))
        words += len(re.findall(r"\w+", UNSPACED.sub(" ", text)))
    return "characters" if unspaced > words else "words"


def f1_of_characters(answer: str, reference: str) -> float:
    """Overlap of the characters of an answer with those of a reference, in any order, as SQuAD's is of words."""
    first, second = (Counter(answer_units(text, "characters")) for text in (answer, reference))
    return 2 * (first & second).total() / max(1, first.total() + second.total())


def rouge_l(answer: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """ROUGE-L of one answer."""
    if not answer or not any(references):
        return 0.0
    common = [_common_subsequence(answer, reference) for reference in references]
    precision = max(common) / len(answer)
    recall = max(length / len(reference) for length, reference in zip(common, references, strict=True) if reference)
    if not precision or not recall:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for item in first:
        before = 0
        for place, other in enumerate(second, 1):
            before, row[place] = row[place], before + 1 if item == other else max(row[place], row[place - 1])
    return row[-1]


def score_answers(answers: Sequence[str], references: Sequence[list[str]], unit: str = "words") -> dict[str, float]:
    """Score answers."""
    if len(answers) != len(references) or not answers:
        wanted = f"a list for each of {len(answers)} answers, and at least one"
        raise ValueError(f"`references` must be {wanted}; got {len(references)}")
    split = [answer_units(answer, unit) for answer in answers]
    golds = [[answer_units(reference, unit) for reference in several] for several in references]
    for number, several in enumerate(golds):
        if not any(several):
            raise ValueError(f"`references[{number}]` must have an answer with text, got {references[number]}")
    # A reference that is there twice changes nothing, and sacrebleu wants as many for each.
    most = max(map(len, golds))
    columns = [[" ".join(several[min(i, len(several) - 1)]) for several in golds] for i in range(most)]
    systems = [" ".join(units) for units in split]
    scores = {}
    for order in (1, 4):
        bleu = sacrebleu.BLEU(tokenize="none", max_ngram_order=order, smooth_method="none", force=True)
        scores[f"bleu{order}"] = float(bleu.corpus_score(systems, columns).score)
    total = sum(rouge_l(units, several) for units, several in zip(split, golds, strict=True))
    return {**scores, "rougeL": 100 * total / len(answers)}


class AnswerOverlap(NumbersMetric):
    """BLEU-1, BLEU-4 and ROUGE-L of answers, in percent, each against one or more references.

    BLEU is that of all answers together, without smoothing; ROUGE-L the mean over answers, with the references' best
    precision and best recall and a weight of 1.2 for recall, as in the scripts of MS MARCO and DuReader.
    `compute(predictions=…, references=…)` returns them, and `inputs_description` lists the options. Exact match and F1
    are `hier_models.metrics.Squad`.

    Source: HAM, section 5.1.
    """

    PAPER = "He et al. (2018): DuReader. https://aclanthology.org/W18-2605"
    FEATURES = datasets.Features({"predictions": TEXT, "references": datasets.Sequence(TEXT)})

    def _compute(  # type: ignore[override]
        self, predictions: Sequence[str], references: Sequence[list[str]], unit: str = "words"
    ) -> dict[str, float]:
        """Score answers.

        Args:
            predictions: Answers.
            references: A list of answers, one or more, for each prediction.
            unit: What is compared: "words" (small letters, marks apart) or "characters" (for Chinese).

        Returns:
            bleu1, bleu4 and rougeL. `settings` are then the unit, the weight of recall and sacrebleu's version.
        """
        scores = score_answers(predictions, references, unit)
        self._settings = {"unit": unit, "beta": BETA, "sacrebleu": version_of("sacrebleu")}
        return scores

"""BLEU and ROUGE-L of answers, as MS MARCO and DuReader score them, each answer against several references.

Self-contained, so that `evaluate.load` with the path of this file works too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import datasets
import evaluate
import sacrebleu


_DESCRIPTION = """\
BLEU-1, BLEU-4 and ROUGE-L of answers, in percent, each against one or more references. BLEU is that of all answers
together, without smoothing; ROUGE-L the mean over answers, with the references' best precision and best recall
and a weight of 1.2 for recall, as in the scripts of MS MARCO and DuReader.
"""

_INPUTS = """
Args:
    predictions: list of answers.
    references: list of lists of answers, one or more for each prediction.
    unit: what is compared: "words" (small letters, marks apart; the default) or "characters" (for Chinese).
Returns:
    a dict with bleu1, bleu4 and rougeL.
"""

_CITATION = """\
@inproceedings{he-etal-2018-dureader,
    title = "{D}u{R}eader: a {C}hinese Machine Reading Comprehension Dataset from Real-world Applications",
    author = "He, Wei and Liu, Kai and Liu, Jing and others",
    booktitle = "Proceedings of the Workshop on Machine Reading for Question Answering",
    year = "2018",
    url = "https://aclanthology.org/W18-2605",
}
"""

# ROUGE-L's weight of recall in the scripts of MS MARCO and DuReader.
BETA = 1.2
UNITS = ("words", "characters")
# Letters of scripts that write words without spaces: kana and Chinese characters.
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def answer_units(text: str, unit: str) -> list[str]:
    """Split an answer into what is compared.

    Args:
        text: The answer.
        unit: "words": small letters, runs of letters and digits, every other mark for itself; "characters": every
            character but white space.

    Returns:
        The units.

    Raises:
        ValueError: If there is no such unit.
    """
    if unit not in UNITS:
        raise ValueError(f"`unit` must be one of {', '.join(UNITS)}, got {unit!r}")
    return re.findall(r"\w+|[^\w\s]", text.lower()) if unit == "words" else re.findall(r"\S", text.lower())


def usual_unit(texts: Iterable[str]) -> str:
    """Tell what is compared by the script of texts.

    Args:
        texts: The texts.

    Returns:
        "characters" if there are more letters of scripts whose words stand without spaces, Chinese and Japanese, than
        words of others. Else "words".
    """
    unspaced = words = 0
    for text in texts:
        unspaced += len(UNSPACED.findall(text))
        words += len(re.findall(r"\w+", UNSPACED.sub(" ", text)))
    return "characters" if unspaced > words else "words"


def f1_of_characters(answer: str, reference: str) -> float:
    """Overlap of the characters of an answer with those of a reference, in any order, as SQuAD's is of words.

    Args:
        answer: The answer.
        reference: The reference.

    Returns:
        F1, from 0 to 1.
    """
    first, second = (Counter(answer_units(text, "characters")) for text in (answer, reference))
    return 2 * (first & second).total() / max(1, first.total() + second.total())


def rouge_l(answer: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """ROUGE-L of one answer.

    Args:
        answer: Its units.
        references: The units of each reference.

    Returns:
        F of the best precision and the best recall, from 0 to 1.
    """
    if not answer or not any(references):
        return 0.0
    common = [_common(answer, reference) for reference in references]
    precision = max(common) / len(answer)
    recall = max(length / len(reference) for length, reference in zip(common, references, strict=True) if reference)
    if not precision or not recall:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for item in first:
        before = 0
        for place, other in enumerate(second, 1):
            before, row[place] = row[place], before + 1 if item == other else max(row[place], row[place - 1])
    return row[-1]


def score_answers(
    answers: Sequence[str], references: Sequence[Sequence[str]], unit: str = "words"
) -> dict[str, float]:
    """Score answers.

    Args:
        answers: The answers.
        references: The references of each, at least one.
        unit: "words" or "characters", see `answer_units`.

    Returns:
        `bleu1` and `bleu4` of all answers together, without smoothing, and `rougeL`, the mean; in percent.

    Raises:
        ValueError: If there is no answer, they are not as many as references, or one has none.
    """
    if len(answers) != len(references) or not answers:
        raise ValueError(
            f"`references` must be a list for each of {len(answers)} answers, and at least one; got {len(references)}"
        )
    split = [answer_units(answer, unit) for answer in answers]
    golds = [[answer_units(reference, unit) for reference in several] for several in references]
    for number, several in enumerate(golds):
        if not any(several):
            raise ValueError(f"`references[{number}]` must have an answer with text, got {list(references[number])}")
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


class AnswerOverlap(evaluate.Metric):  # type: ignore[misc]  # evaluate is untyped
    """BLEU-1, BLEU-4 and ROUGE-L of answers as a metric of the evaluate library.

    `AnswerOverlap().compute(predictions=…, references=…)` returns percentages; its `inputs_description` lists
    inputs and results. Exact match and F1 are `hier_models.metrics.Squad`.

    Args:
        config_name: Name of the configuration, as in evaluate; there is only one.
        keep_in_memory: Whether answers are kept in memory, not in a file of evaluate's cache; None does so unless
            several processes compute one score together.
        **kwargs: What else `evaluate.Metric` takes (num_process, process_id, experiment_id, …).

    Source: HAM, section 5.1.
    """

    def __init__(self, config_name: str | None = None, keep_in_memory: bool | None = None, **kwargs: Any) -> None:
        if keep_in_memory is None:
            # evaluate's files are shared by all processes of a user, and a metric needs none unless it is distributed.
            keep_in_memory = kwargs.get("num_process", 1) == 1
        super().__init__(config_name, keep_in_memory, **kwargs)

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({"predictions": text, "references": datasets.Sequence(text)}),
            reference_urls=["https://github.com/baidu/DuReader"],
        )

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]], unit: str = "words"
    ) -> dict[str, float]:
        return score_answers(predictions, references, unit)

"""BLEU and ROUGE-L of answers."""

from importlib.metadata import version

import pytest

from hier_models.metrics import AnswerOverlap
from hier_models.metrics.answers import answer_units, f1_of_characters, rouge_l, score_answers, usual_unit


def test_units():
    assert answer_units("At four, she says.", "words") == ["at", "four", ",", "she", "says", "."]
    assert answer_units("四 点\n钟", "characters") == ["四", "点", "钟"]
    with pytest.raises(ValueError, match="`unit` must be one of words, characters, got 'letters'"):
        answer_units("a", "letters")


def test_rouge_l_by_hand():
    # The longest common subsequence of "a b c d" and "a x c" is "a c": precision 1/2, recall 2/3.
    precision, recall, weight = 1 / 2, 2 / 3, 1.2**2
    want = (1 + weight) * precision * recall / (recall + weight * precision)
    assert rouge_l(["a", "b", "c", "d"], [["a", "x", "c"]]) == pytest.approx(want)


def test_rouge_l_takes_the_best_precision_and_the_best_recall():
    # Precision of the long reference, recall of the short one.
    assert rouge_l(["a", "b"], [["a", "b", "c", "d"], ["a"]]) == pytest.approx(1.0)
    assert rouge_l([], [["a"]]) == 0
    assert rouge_l(["b"], [["a"]]) == 0


def test_what_is_right_scores_100():
    text = "she lights the oven at four"
    assert score_answers([text], [["never", text]]) == pytest.approx({"bleu1": 100, "bleu4": 100, "rougeL": 100})


def test_bleu_by_hand():
    # 3 of 4 words, no brevity penalty; 2 of 3, 1 of 2, and 0 of 1 n-grams: BLEU-4 is 0 without smoothing.
    scores = score_answers(["a b c x"], [["a b c d"]])
    assert scores["bleu1"] == pytest.approx(75)
    assert scores["bleu4"] == 0


def test_as_a_metric_of_evaluate():
    answers, references = ["四 点", "a b"], [["四点", "五点"], ["a b"]]
    metric = AnswerOverlap()
    got = metric.compute(predictions=answers, references=references, unit="characters")
    assert metric.settings == {"unit": "characters", "beta": 1.2, "sacrebleu": version("sacrebleu")}
    assert got == score_answers(answers, references, "characters")
    assert got["rougeL"] == pytest.approx(100)


def test_numbers_of_references_may_differ():
    scores = score_answers(["a b c d", "e f g h"], [["a b c d", "x"], ["e f g h"]])
    assert scores["bleu4"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("answers", "references", "message"),
    [
        ([], [], "at least one; got 0"),
        (["a"], [["a"], ["b"]], "each of 1 answers, and at least one; got 2"),
        (["a"], [[]], r"`references\[0\]` must have an answer"),
        (["a"], [[" "]], r"`references\[0\]` must have an answer"),
    ],
)
def test_bad_input(answers, references, message):
    with pytest.raises(ValueError, match=message):
        score_answers(answers, references)


def test_the_usual_unit_follows_the_script():
    assert usual_unit(["光荣和ω-force", "1998年"]) == "characters"
    assert usual_unit(["Marta", "at four"]) == "words"
    assert usual_unit([]) == "words"
    assert usual_unit(["パン屋さん"]) == "characters"


def test_f1_of_characters():
    assert f1_of_characters("四点", "四点") == 1
    assert f1_of_characters("早上 四点", "四点") == pytest.approx(2 * 2 / 6)
    assert f1_of_characters("", "四点") == 0

import os

import pytest

import hier_models.metrics.squad
from hier_models.metrics import Squad
from hier_models.metrics.squad import exact_score, f1_score, normalize_answer
from tests import forks


def prediction(key, text, belief=None):
    found = {"id": key, "prediction_text": text}
    return found if belief is None else {**found, "no_answer_probability": belief}


def reference(key, *texts):
    return {"id": key, "answers": {"text": list(texts), "answer_start": [0] * len(texts)}}


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The Beatles", "beatles"),
        ("  an  apple,\n a day! ", "apple day"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("x-ray", "xray"),
        # Punctuation goes first, so what it held apart is one word.
        ("the-end", "theend"),
        ("«the»", "« »"),  # only ASCII marks are punctuation, and "the" stands alone between them
        ("The", ""),
        ("", ""),
    ],
)
def test_answers_are_normalized(text, normalized):
    assert normalize_answer(text) == normalized


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("the Eiffel Tower", "Eiffel tower!", 1, 1),
        ("Eiffel", "Eiffel tower", 0, 2 / 3),  # precision 1, recall 1/2
        ("in the big red house", "big house", 0, 2 * (2 / 4) * 1 / (2 / 4 + 1)),  # "the" is gone: 4 words, 2 shared
        (
            "a b b",
            "b b b c",
            0,
            2 * 2 / (2 + 4),
        ),  # without "a": b b against b b b c, a word counts as often as in both
        ("dog", "cat", 0, 0),
        ("", "cat", 0, 0),
        ("cat", "", 0, 0),
        ("", "", 1, 1),
        ("the", "", 1, 1),  # nothing is left of it
    ],
)
def test_two_answers(answer, gold, exact, f1):
    assert exact_score(answer, gold) == exact
    assert f1_score(answer, gold) == pytest.approx(f1, abs=1e-15)
    assert f1_score(gold, answer) == f1_score(answer, gold)


def test_the_best_reference_counts_and_no_answer_is_an_answer():
    result = Squad().compute(
        predictions=[
            prediction("both", "red house"),
            prediction("wrong", "cat"),
            prediction("silent", ""),
            prediction("none", ""),
            prediction("none but said", "x"),
        ],
        references=[
            reference("none but said"),
            reference("none"),
            reference("silent", "dog"),
            reference("wrong", "dog", "the dog"),
            reference("both", "house", "a big red house"),
        ],
    )
    # both: 0 exactly; F1 2/3 with "house", 4/5 with "big red house"
    assert result == pytest.approx(
        {
            "exact": 20.0,
            "f1": 100 * (0.8 + 1) / 5,
            "total": 5,
            "HasAns_exact": 0.0,
            "HasAns_f1": 80 / 3,
            "HasAns_total": 3,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )


def test_only_answered_or_only_unanswered_questions():
    answered = Squad().compute(predictions=[prediction("a", "x")], references=[reference("a", "x")])
    whole = {"exact": 100, "f1": 100, "total": 1}
    assert answered == {**whole, **{f"HasAns_{name}": value for name, value in whole.items()}}
    assert "HasAns_f1" not in Squad().compute(predictions=[prediction("a", "x")], references=[reference("a")])


def test_a_reference_that_is_all_article_stands_for_no_answer():
    result = Squad().compute(predictions=[prediction("a", "")], references=[reference("a", "The")])
    assert (result["exact"], result["f1"], result["HasAns_total"]) == (100, 100, 1)


def test_the_threshold_and_the_best_there_could_be():
    predictions = [
        prediction("a", "x", 0.1),  # right
        prediction("b", "y z", 0.3),  # F1 2/3
        prediction("c", "w", 0.6),  # there is no answer
        prediction("d", "v", 0.8),  # right
        prediction("e", "", 0.9),  # no answer, rightly
    ]
    references = [
        reference("a", "x"),
        reference("b", "y"),
        reference("c"),
        reference("d", "v"),
        reference("e"),
    ]
    result = Squad().compute(predictions=predictions, references=references, no_answer_threshold=0.5)
    # a right, b 0 and 2/3, c silent and right, d silent and wrong, e right
    assert result["exact"] == pytest.approx(100 * 3 / 5)
    assert result["f1"] == pytest.approx(100 * (3 + 2 / 3) / 5)
    # Nothing answered: c and e right, 2 points. Letting in a: 3; b: 3 (exact), 3 2/3 (F1); c: 2, 2 2/3; d: 3, 3 2/3;
    # e stays right. The first threshold of the best counts.
    assert result["best_exact"] == pytest.approx(100 * 3 / 5)
    assert result["best_exact_thresh"] == 0.1
    assert result["best_f1"] == pytest.approx(100 * (3 + 2 / 3) / 5)
    assert result["best_f1_thresh"] == 0.3
    loose = Squad().compute(predictions=predictions, references=references)
    assert loose["exact"] == pytest.approx(100 * 3 / 5)  # a, d, e
    assert loose["f1"] == pytest.approx(100 * (3 + 2 / 3) / 5)
    # At the threshold itself the prediction still counts.
    at = Squad().compute(predictions=predictions, references=references, no_answer_threshold=0.8)
    assert at == loose
    none = Squad().compute(predictions=predictions, references=references, no_answer_threshold=-1.0)
    assert (none["exact"], none["HasAns_exact"], none["NoAns_exact"]) == (40, 0, 100)


def test_silence_is_best_where_nothing_is_gained_by_answers():
    predictions = [prediction("a", "x", 0.2), prediction("b", "y", 0.4)]
    result = Squad().compute(predictions=predictions, references=[reference("a"), reference("b", "z")])
    assert (result["best_f1"], result["best_f1_thresh"]) == (50, 0.0)


@pytest.mark.parametrize(
    "beliefs", [(0.5, 0.5, 0.5, 0.9), (5.0, -3.0, -2.0, -1.0), (0.0, 0.0, 1.0, 1.0), (0.0, 0.2, 0.4, 0.6)]
)
def test_the_best_is_that_of_a_threshold(beliefs):
    """Whatever the order, and no other threshold gives more."""
    texts, golds = ("x", "y", "z", "v w"), (["x"], [], ["u"], ["v"])
    rows = [
        (prediction(key, text, belief), reference(key, *several))
        for key, text, belief, several in zip("abcd", texts, beliefs, golds, strict=True)
    ]

    def scored(rows, threshold=1.0):
        predictions, references = map(list, zip(*rows, strict=True))
        return Squad().compute(predictions=predictions, references=references, no_answer_threshold=threshold)

    best = scored(rows)
    assert scored(rows[::-1]) == best
    for name in ("exact", "f1"):
        assert best[f"best_{name}"] == max(scored(rows, threshold)[name] for threshold in (-9.0, *beliefs))
        assert scored(rows, best[f"best_{name}_thresh"])[name] == best[f"best_{name}"]


def test_settings_are_what_moved_the_numbers():
    metric = Squad()
    for belief, threshold in ((0.5, 0.2), (None, None)):
        metric.compute(
            predictions=[prediction("a", "x", belief)], references=[reference("a", "x")], no_answer_threshold=0.2
        )
        assert metric.settings == {"no_answer_threshold": threshold}


def test_batches_can_be_added():
    rows = [("a", "x", ["x"]), ("b", "y", []), ("c", "u v", ["v"])]
    metric = Squad()
    for key, text, golds in rows:
        metric.add(prediction=prediction(key, text), reference=reference(key, *golds))
    added = metric.compute()
    whole = Squad().compute(
        predictions=[prediction(key, text) for key, text, _ in rows],
        references=[reference(key, *golds) for key, _, golds in rows],
    )
    assert added == whole
    assert whole["f1"] == pytest.approx(100 * (1 + 0 + 2 / 3) / 3)


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        ([{"id": "a"}], [reference("a")], "predictions: number 0 must be"),
        (["x"], [reference("a")], "predictions: number 0 must be"),
        ([prediction("a", "x")], [{"id": "a", "answers": ["x"]}], "references: number 0 must be"),
        ([prediction("a", "x")], [{"answers": {"text": []}}], "references: number 0 must be"),
        ([prediction("a", "x")], [reference("b")], "the ids of predictions and references must be the same; 'a'"),
        ([prediction("a", "x")] * 2, [reference("a")] * 2, "predictions: the id 'a' occurs more than once"),
        (
            [prediction("a", "x", 0.5), prediction("b", "x")],
            [reference("a"), reference("b")],
            "1 of 2 have a no_answer_probability",
        ),
    ],
)
def test_bad_input(predictions, references, message):
    with pytest.raises(ValueError, match=message):
        Squad().compute(predictions=predictions, references=references)


OURS = "from hier_models.metrics import Squad; metric = Squad()"
BY_PATH = "import evaluate; metric = evaluate.load(sys.argv[1])"


@pytest.mark.parametrize("how", [OURS, BY_PATH])
def test_it_loads_without_a_network(how, tmp_path):
    code = f"""
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("no network in this test")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
{how}
rows = [{{"id": "a", "prediction_text": "b c"}}], [{{"id": "a", "answers": {{"text": ["c d"]}}}}]
print(metric.compute(predictions=rows[0], references=rows[1])["f1"])
"""
    offline = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    environment = {**offline, "HF_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = forks.run(code, hier_models.metrics.squad.__file__, env=environment, libraries="torch")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "50.0"

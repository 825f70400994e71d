import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hier_models.metrics.rouge_su
from hier_models.metrics import RougeSu
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES


# prediction, references, distance, formula, and what ROUGE-1.5.5 gives: F1, recall and precision, cut to five digits.
NUMBERS = json.loads((Path(__file__).parent / "rouge_su_numbers.json").read_text(encoding="utf-8"))


def test_the_numbers_are_those_of_rouge_1_5_5():
    kinds = set()
    for prediction, references, distance, several, *expected in NUMBERS:
        got = RougeSu().compute(
            predictions=[prediction], references=[references], skip_distance=distance, several_references=several
        )
        name = f"rougeSU{'*' if distance is None else distance}"
        values = [got[name], got[f"{name}_recall"], got[f"{name}_precision"]]
        assert values == pytest.approx(expected, abs=2e-5), (prediction, references)
        kinds.add((distance, several, len(references) > 1))
    assert len(kinds) == 6
    assert sum(0.05 < expected < 0.95 for *_, expected, _, _ in NUMBERS) > 50


def plain_f1(prediction: list[str], reference: list[str], distance: int) -> float:
    """F1 over lists of units, one taken out for each that is found."""

    def units(words: list[str]) -> list[tuple[str, ...]]:
        pairs = [
            (words[i], words[j]) for i in range(len(words)) for j in range(i + 1, len(words)) if j - i <= distance + 1
        ]
        return [*pairs, *((word,) for word in words[:-1])]

    found, wanted = units(prediction), units(reference)
    left, hits = list(wanted), 0
    for unit in found:
        if unit in left:
            left.remove(unit)
            hits += 1
    return 2 * hits / (len(found) + len(wanted)) if hits else 0.0


WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


@settings(max_examples=100, deadline=None)
@given(prediction=WORDS, reference=WORDS, distance=st.integers(0, 5))
def test_the_formula(prediction, reference, distance):
    got = RougeSu().compute(
        predictions=[" ".join(prediction)], references=[" ".join(reference)], skip_distance=distance
    )
    assert got[f"rougeSU{distance}"] == pytest.approx(plain_f1(prediction, reference, distance), abs=1e-12)


def test_the_mean_and_each_document():
    of_each, of_all = RougeSu(), RougeSu()
    each = of_each.compute(predictions=SUMMARIES, references=DOCUMENTS, use_aggregator=False)
    mean = of_all.compute(predictions=SUMMARIES, references=DOCUMENTS)
    assert len(each["rougeSU4"]) == 4
    for name in ("rougeSU4", "rougeSU4_recall", "rougeSU4_precision"):
        assert mean[name] == pytest.approx(sum(each[name]) / 4)
    assert of_all.settings["aggregation"] == "mean over documents"
    assert of_each.settings["aggregation"] == "of each document"


def test_stems():
    """What ROUGE-1.5.5 -m gives for it too."""
    pair = {"predictions": ["The bridges were closing"], "references": ["The bridge was closed"]}
    assert RougeSu().compute(**pair)["rougeSU4"] == pytest.approx(1 / 9)
    metric = RougeSu()
    stemmed = metric.compute(**pair, use_stemmer=True)
    assert stemmed["rougeSU4"] == pytest.approx(5 / 9)
    assert metric.settings["stemmer"] == f"Porter (nltk {version('nltk')})"


def test_another_tokenizer_and_the_settings():
    metric = RougeSu()
    result = metric.compute(predictions=["春眠不觉晓"], references=["春不晓"], tokenizer=characters)
    assert result["rougeSU4"] == pytest.approx(2 * 5 / (14 + 5))
    assert metric.settings == {
        "formula": "ROUGE-1.5.5 -2 4 -u",
        "several_references": "average",
        "use_stemmer": False,
        "tokenizer": "test_rouge_su.characters",
        "aggregation": "mean over documents",
    }
    for word in ("skip_distance", "several_references", "use_stemmer", "tokenizer"):
        assert word in RougeSu().inputs_description


def characters(text: str) -> list[str]:
    return list(text)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"skip_distance": -1}, "skip_distance must be a number of words .0 or more. or None, got -1"),
        ({"skip_distance": True}, "skip_distance must be a number of words .0 or more. or None, got True"),
        ({"skip_distance": "4"}, "skip_distance must be a number of words"),
        ({"several_references": "min"}, "several_references must be 'average' or 'best', got 'min'"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        RougeSu().compute(predictions=["a"], references=["a"], **wrong)


def test_no_reference_is_refused():
    with pytest.raises(ValueError, match="references: number 1 is an empty list"):
        RougeSu().compute(predictions=["a", "b"], references=[["a"], []])


OURS = "from hier_models.metrics import RougeSu; metric = RougeSu()"
BY_PATH = "import evaluate; metric = evaluate.load(sys.argv[1])"


@pytest.mark.parametrize("how", [OURS, BY_PATH])
def test_it_loads_without_a_network(how, tmp_path):
    code = f"""
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("no network in this test")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
{how}
print(metric.compute(predictions=["a b c"], references=["a b d"])["rougeSU4"])
"""
    offline = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    environment = {**offline, "HF_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = forks.run(code, hier_models.metrics.rouge_su.__file__, env=environment, libraries="torch")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == pytest.approx(3 / 5)

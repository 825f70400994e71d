import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from transformers import EvalPrediction

from hier_models import compute_summarization_metrics
from hier_models.metrics import RougeSu
from hier_models.metrics.rouge import _punkt
from hier_models.training.metrics import score_documents
from tests.conftest import DOCUMENTS, SUMMARIES


def padded(rows, fill, length):
    return np.array([row + [fill] * (length - len(row)) for row in rows])


@pytest.fixture
def texts(tokenizer):
    predictions = [f"{a} {b}" for a, b in zip(SUMMARIES, reversed(DOCUMENTS), strict=True)]
    ids = [[2, 0, *tokenizer(text)["input_ids"], 2] for text in predictions]
    labels = [[0, *tokenizer(text)["input_ids"], 2] for text in DOCUMENTS]
    return predictions, ids, labels


def expected(predictions, references, use_stemmer=True):
    split = _punkt()
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=use_stemmer)
    lines = RougeScorer(["rougeLsum"], use_stemmer=use_stemmer)
    scores = [
        scorer.score(b, a) | lines.score("\n".join(split(b)), "\n".join(split(a)))
        for a, b in zip(predictions, references, strict=True)
    ]
    means = {name: 100 * sum(score[name].fmeasure for score in scores) / len(scores) for name in scores[0]}
    pairs = RougeSu().compute(predictions=predictions, references=references, use_stemmer=use_stemmer)
    return {**means, "rougeSU4": 100 * pairs["rougeSU4"]}


@pytest.mark.parametrize("fill", [-100, 1])
@pytest.mark.parametrize("kind", ["prediction", "pair", "tuple", "rows"])
def test_scores(texts, tokenizer, processor, fill, kind):
    predictions, ids, labels = texts
    generated, gold = padded(ids, fill, 200), padded(labels, -100, 150)
    given = {
        "prediction": EvalPrediction(predictions=generated, label_ids=gold),
        "pair": (generated, gold),
        "tuple": EvalPrediction(predictions=(generated, np.zeros((4, 3))), label_ids=(gold,)),
        "rows": ([np.array(row) for row in ids], [np.array(row) for row in labels]),
    }[kind]
    for decoder in (tokenizer, processor):
        result = compute_summarization_metrics(given, decoder)
        assert result.pop("gen_len") == sum(map(len, ids)) / 4
        assert result == pytest.approx(expected(predictions, DOCUMENTS), abs=1e-9)
        assert all(0 < value <= 100 for value in result.values())


def test_the_given_arrays_are_left_as_they_are(texts, tokenizer):
    _, ids, labels = texts
    given = (padded(ids, -100, 200), padded(labels, -100, 200))
    copies = [array.copy() for array in given]
    compute_summarization_metrics(given, tokenizer)
    assert all(np.array_equal(a, b) for a, b in zip(given, copies, strict=True))


def test_logits_are_refused(tokenizer):
    with pytest.raises(
        ValueError, match=r"got float64 of shape \(2, 5, 9\); with Seq2SeqTrainer set predict_with_gener"
    ):
        compute_summarization_metrics((np.zeros((2, 5, 9)), np.ones((2, 5), dtype=int)), tokenizer)
    with pytest.raises(ValueError, match="2 predictions but 3 labels"):
        compute_summarization_metrics((np.ones((2, 5), dtype=int), np.ones((3, 5), dtype=int)), tokenizer)


@pytest.mark.parametrize(
    ("summary", "half"),
    [
        ("Мост закрыли на шесть недель. Ходит паром.", "Мост закрыли."),
        ("大桥因裂缝关闭六周。", "大桥关闭。"),
        ("橋は6週間閉鎖される。", "橋は閉鎖。"),
        ("다리는 6주 동안 닫힌다. (BBC)", "다리는 6주."),
    ],
)
def test_other_scripts_than_latin_are_scored(summary, half):
    for references in ([summary] * 2, [[summary], ["BBC", summary]]):
        scores, settings = score_documents([summary, half], references)
        assert all(whole == pytest.approx(100) and 0 < part < 99 for whole, part in scores.values())
        assert settings["tokenizer"] == settings["rougeSU4"]["tokenizer"] == "hier_models.inspection.copying.words_of"


def test_signs_of_vowels_count():
    for texts in (("राम की किताब।", "राम का कातिब।"), ("படம் பாடு", "பாடம் படி")):
        scores, _ = score_documents([texts[0]], [texts[1]])
        assert all(score < 67 for [score] in scores.values())


@pytest.mark.parametrize("summary", [SUMMARIES[0], "Die Brücke über die Maß bleibt für Wochen gesperrt.", "3 - 4."])
def test_latin_script_is_scored_as_in_the_papers(summary):
    for references in ([summary], [[summary, f"{SUMMARIES[1]} Москва."]]):
        _, settings = score_documents([summary], references)
        assert settings["tokenizer"] == "rouge-score default"
        assert settings["rougeSU4"]["tokenizer"] == "a-z and 0-9, lower case"

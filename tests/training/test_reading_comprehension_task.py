"""Training of readers: words and characters fitted, windows, answers that are not there, documents, scores."""

import json

import datasets
import pytest
from transformers import AutoModelForQuestionAnswering, AutoProcessor

from hier_models.metrics import DocumentScores
from hier_models.training import RecipeError, load_recipe, run_training
from hier_models.training.encoder_smoke import QUESTIONS, STORIES


SIZES = {"embedding_size": 6, "hidden_size": 5, "char_hidden_size": 4, "attention_depth": 2, "dropout": 0.0}


@pytest.fixture(autouse=True)
def datasets_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets_cache"))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def squad_rows():
    return [
        {
            "id": f"q{number}",
            "question": question,
            "context": STORIES[story],
            "answers": {"text": [answer], "answer_start": [STORIES[story].index(answer)]},
        }
        for number, (story, question, answer, _) in enumerate(QUESTIONS)
    ]


def marco_rows():
    return [
        {
            "query_id": number,
            "query": question,
            "passages": {"passage_text": [STORIES[story - 1], STORIES[story]], "is_selected": [0, 1]},
            "answers": [answer],
        }
        for number, (story, question, answer, _) in enumerate(QUESTIONS)
    ]


@pytest.fixture
def values(tmp_path):
    file = write(tmp_path / "squad.jsonl", squad_rows())
    return {
        "task": "reading_comprehension",
        "model_type": "ham_reader",
        "tokenizer_words": 100,
        "config_overrides": SIZES,
        "characters": True,
        "train": file,
        "validation": file,
        "max_source_length": 200,
        "max_steps": 2,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
    }


def test_a_run_from_words_to_scores(values, tmp_path):
    results = run_training(load_recipe(None, values))
    processor = AutoProcessor.from_pretrained(tmp_path / "run")
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run")
    assert model.config.char_vocab_size == processor.char_vocab_size > 20
    assert model.config.vocab_size == len(processor.tokenizer) == 104
    scores = results["evaluation"]
    assert {"exact", "f1", "bleu1", "bleu4", "rougeL", "total"} <= set(scores)
    assert scores["total"] == len(QUESTIONS)
    lines = (tmp_path / "run" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    for line, row in zip(lines, squad_rows(), strict=True):
        assert json.loads(line)["id"] == row["id"]
        assert json.loads(line)["prediction"] in row["context"]


def test_test_questions_are_scored_after_training(values, tmp_path):
    file = write(tmp_path / "test.jsonl", squad_rows()[:2])
    results = run_training(load_recipe(None, {**values, "test": file, "max_steps": 1}))
    assert results["test"]["total"] == 2
    assert results["truncation"]["test"]["questions"] == 2
    found = DocumentScores.load(tmp_path / "run" / "document_scores.json")
    assert list(found.metrics) == ["exact", "f1", "rougeL", "bleu1", "bleu4"]
    for name, statistics in found.metrics.items():
        assert statistics.score() == pytest.approx(results["test"][name])
    assert len((tmp_path / "run" / "predictions_test.jsonl").read_text().splitlines()) == 2


def test_windows(values):
    results = run_training(load_recipe(None, {**values, "max_source_length": 20, "stride": 5}))
    report = results["truncation"]["train"]
    assert report["questions"] == len(QUESTIONS)
    assert report["windows"] > len(QUESTIONS)
    assert report["windows_without_answer"] > 0
    assert report["lost_answers"] == 0


def test_answers_that_are_not_there_are_counted_and_set_aside(values, tmp_path):
    rows = squad_rows()
    rows[3]["answers"] = {"text": ["nothing of the kind"], "answer_start": [3]}
    file = write(tmp_path / "bad.jsonl", rows)
    results = run_training(load_recipe(None, {**values, "train": file, "bad_lines": "set_aside"}))
    assert results["truncation"]["train"]["questions"] == len(QUESTIONS) - 1
    assert "nothing of the kind" in (tmp_path / "run" / "set_aside_train.jsonl").read_text(encoding="utf-8")


def test_documents(values, tmp_path):
    file = write(tmp_path / "marco.jsonl", marco_rows())
    changes = {"train": file, "validation": file, "config_overrides": {**SIZES, "reader": "r_net"}}
    results = run_training(load_recipe(None, {**values, **changes, "max_steps": 1}))
    assert results["evaluation"]["total"] == len(QUESTIONS)
    assert results["truncation"]["train"]["without_answer"] == 0


def test_long_questions_are_cut_and_counted(values):
    results = run_training(load_recipe(None, {**values, "max_question_length": 5, "max_steps": 1}))
    assert results["truncation"]["train"]["long_questions"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stride": 200}, "stride must be less than"),
        ({"max_answer_length": 0}, "max_answer_length must be 1 or more"),
        ({"streaming": True}, "streaming goes with masked_lm"),
        ({"num_beams": 4}, "means nothing to reading_comprehension"),
        ({"config_overrides": {**SIZES, "attention_depth": 0}}, "`attention_depth` must be at least 1"),
    ],
)
def test_bad_recipes(values, changes, message):
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, {**values, **changes}))

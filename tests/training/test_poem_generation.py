"""The task of poems: what a run reads, holds out, reports and scores."""

import json

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, pipeline

from hier_models.data import load_poems
from hier_models.hub import task_of
from hier_models.metrics import DocumentScores, PoemBleu, poem_form
from hier_models.training import RecipeError, load_recipe, run_poem_evaluation, run_training
from hier_models.training.tasks.poem_generation import PoemGenerationTask, poem_table
from tests.ham.poems import POEMS


@pytest.fixture
def values(tmp_path):
    rows = [{"l": poem} for poem in POEMS * 2]
    (tmp_path / "poems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {
        "task": "poem_generation",
        "model_type": "ham",
        "config_overrides": {"d_model": 8, "attention_depth": 2},
        "train": str(tmp_path / "poems.jsonl"),
        "keyword_unit": "characters",
        "min_keyword_count": 1,
        "held_out_validation": 2,
        "held_out_test": 3,
        "num_beams": 2,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 5,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "no",
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "use_cpu": True,
    }


def test_a_run(values, tmp_path):
    results = run_training(load_recipe(None, values))
    written = [json.loads(line) for line in (tmp_path / "run" / "predictions_test.jsonl").read_text().splitlines()]
    assert len(written) == results["test"]["poems"] == 3
    for record in written:
        assert record["lines"] in POEMS
        assert [len(line) for line in record["written"]] == [len(record["lines"][0])] * 3
        assert len(record["keywords"]) == 3
    scores = PoemBleu().compute(
        predictions=[record["written"] for record in written], references=[record["lines"] for record in written]
    )
    assert {name: results["test"][name] for name in scores} == scores
    assert results["test"]["generation"]["num_beams"] == 2
    found = DocumentScores.load(tmp_path / "run" / "document_scores.json")
    assert {name: results["test"][name] for name in found.metrics} == {
        name: pytest.approx(statistics.score()) for name, statistics in found.metrics.items()
    }
    assert set(found.metrics) <= set(PoemGenerationTask.document_metrics)
    assert results["lines"]["train"] == {"lines": 28, "unknown_keywords": 0}
    assert results["lines"]["validation"]["lines"] == 8
    assert results["coverage"]["train"]["covered"] == 1
    assert results["coverage"]["test"]["lines"] == 12
    assert "eval_loss" in json.dumps(json.loads((tmp_path / "run" / "trainer_state.json").read_text()))
    # What it leaves behind writes poems.
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert task_of(model.config) == "poem-generation"
    assert model.config.task_specific_params["poem-generation"] == {"lengths": [5, 7]}
    write = pipeline("poem-generation", model=str(tmp_path / "run"), device="cpu")
    assert [len(line) for line in write("春风明月", length=5)[0]["lines"]] == [5] * 4
    # And is scored alone as in the run.
    processor = AutoProcessor.from_pretrained(tmp_path / "run")
    assert processor(keywords="春", length=5)["input_ids"][0] == processor.tokenizer.convert_tokens_to_ids("[5]")
    assert len(processor.tokenizer) == model.config.vocab_size
    (poem,) = write("春风明月", length=5, rhyme=True, tones=True)
    assert {"rhyme", "tones"} <= set(poem)
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"lines": row["lines"]}) + "\n" for row in written))
    again = run_poem_evaluation(model, processor, load_poems(tmp_path / "test.jsonl"), num_beams=2)
    assert {name: again[name] for name in scores} == pytest.approx(scores)


def test_a_run_goes_on(values):
    values |= {"save_strategy": "steps", "save_steps": 2}
    run_training(load_recipe(None, values))
    results = run_training(load_recipe(None, {**values, "max_steps": 4}))
    assert results["resumed_from"].endswith("checkpoint-2")


def test_held_out_poems_are_no_training_poems(values, tmp_path):
    task = PoemGenerationTask(load_recipe(None, values), tmp_path / "run")
    parts = {part: task.rows(part)["lines"][:] for part in ("validation", "test", "train")}
    assert {part: len(poems) for part, poems in parts.items()} == {"validation": 2, "test": 3, "train": 7}
    assert sorted(poem for poems in parts.values() for poem in poems) == sorted(POEMS * 2)
    again = PoemGenerationTask(load_recipe(None, values), tmp_path / "run")
    assert again.rows("test")["lines"][:] == parts["test"]
    other = PoemGenerationTask(load_recipe(None, {**values, "split_seed": 1}), tmp_path / "run")
    assert other.rows("test")["lines"][:] != parts["test"]


def test_no_test_poems(values, tmp_path):
    results = run_training(load_recipe(None, {**values, "held_out_test": 0, "predict_with_generate": True}))
    assert results.get("test") is None
    assert results["evaluation"]["poems"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"held_out_test": 12}, "some must be left to train on"),
        ({"held_out_test": -1}, "held_out_test must be at least 0, got -1"),
        ({"min_keyword_count": 0}, "min_keyword_count must be at least 1, got 0"),
        ({"num_characters": 0}, "num_characters must be at least 1, got 0"),
        ({"validation": "v.jsonl"}, "held_out_validation does not go with data: validation"),
        ({"streaming": True}, "streaming does not go with poem_generation"),
        ({"digits": "#"}, "digits means nothing to poem_generation"),
        ({"text_column": "l"}, "text_column means nothing to poem_generation"),
        ({"summary_column": "l"}, "summary_column means nothing to poem_generation"),
        ({"min_keyword_count": 99}, "poem_generation: .*no word is in 99 poems .*lower min_keyword_count"),
        ({"train": "nowhere.jsonl"}, "^data: train: no such file or folder: nowhere.jsonl"),
        ({"model_type": "hamm"}, "model: there is no model_type 'hamm'; did you mean ham"),
        ({"model_type": "coarse_to_fine_lstm", "config_overrides": {}}, "poem_generation is for HAM"),
    ],
)
def test_mistakes_in_the_recipe(values, changes, message):
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, {**values, **changes}))


def test_the_table_is_the_paper_s():
    scores = PoemBleu().compute(predictions=[poem[1:] for poem in POEMS], references=POEMS)
    text = poem_table({**scores, "poems_left_out": 1})
    assert text.splitlines()[0].split() == ["5-Char", "7-Char"]
    assert [line.split() for line in text.splitlines()[1:5]] == [
        [name, "1.000", "1.000"] for name in ("BLEU1", "BLEU2", "BLEU3", "BLEU")
    ]
    assert "1 poems have a line without" in text
    assert "rhyme" not in text
    form = poem_form([poem[1:] for poem in POEMS], POEMS)
    rows = [line.split() for line in poem_table(scores | form).splitlines()]
    assert ["lines", "that", "repeat", "a", "character", "0.000", "0.000"] in rows

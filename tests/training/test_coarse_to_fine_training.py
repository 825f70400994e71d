"""Recipes of the Coarse-to-Fine LSTM's training: word vectors, rates of parts, decay, soft epochs, the surrogate."""

import json

import pytest
from transformers import AutoTokenizer, pipeline

from hier_models.training import RecipeError, load_recipe, run_smoke, run_training
from tests.conftest import DOCUMENTS, SUMMARIES


SIZES = {"embedding_size": 4, "hidden_size": 6, "coarse_filters": 5, "dropout": 0.0}
HARD = {**SIZES, "attention": "hard"}


@pytest.fixture
def values(tmp_path):
    rows = [{"article": text, "highlights": SUMMARIES[i]} for i, text in enumerate(DOCUMENTS)]
    (tmp_path / "news.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = ("the", "Bridge", "a", "monday", "sun", "neverseen")
    lines = [f"{word} {' '.join([str(0.1 * i)] * 4)}\n" for i, word in enumerate(words)]
    (tmp_path / "vectors.txt").write_text("".join(lines), encoding="utf-8")
    return {
        "model_type": "coarse_to_fine_lstm",
        "tokenizer_words": 60,
        "config_overrides": HARD,
        "word_vectors": str(tmp_path / "vectors.txt"),
        "train": str(tmp_path / "news.jsonl"),
        "validation": str(tmp_path / "news.jsonl"),
        "max_source_length": 60,
        "max_target_length": 20,
        "learning_rates": {"encoder.coarse": 0.1},
        "perplexity_decay": 0.5,
        "soft_epochs": 1,
        "num_train_epochs": 3,
        "per_device_train_batch_size": 2,
        "optim": "sgd",
        "learning_rate": 1.0,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "use_cpu": True,
    }


def test_a_run_with_all_of_them(values, tmp_path):
    results = run_training(load_recipe(None, values))
    found = results["word_vectors"]
    assert (found["file"], found["size"], found["vectors"], found["found"]) == ("vectors.txt", 4, 6, 5)
    assert found["other_case"] == 1
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text(encoding="utf-8"))
    entries = [entry for entry in state["log_history"] if "loss" in entry]
    assert ["surrogate" in entry for entry in entries] == [False] * 2 + [True] * 4  # the first epoch is soft
    assert json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))["word_vectors"] == found


def test_it_reads_as_much_as_in_training(values, tmp_path):
    """Whatever model its tokenizer was made for; the model has no positions."""
    values |= {"word_vectors": None, "perplexity_decay": None, "max_steps": 1, "eval_strategy": "no"}
    run_training(load_recipe(None, {**values, "max_source_length": 20}))
    first = tmp_path / "run"
    AutoTokenizer.from_pretrained(first, model_max_length=20).save_pretrained(first)
    for begun, length, expected in (("tokenizer", 100, 100), ("model_name_or_path", 70, 70), ("tokenizer", 10, 20)):
        again = {**values, "tokenizer_words": None, begun: str(first), "output_dir": str(tmp_path / f"{length}")}
        if begun == "model_name_or_path":
            again |= {"config_overrides": None}
        run_training(load_recipe(None, {**again, "max_source_length": length}))
        assert AutoTokenizer.from_pretrained(tmp_path / f"{length}").model_max_length == expected
    summarize = pipeline("summarization", model=str(tmp_path / "100"))
    (found,) = summarize([DOCUMENTS[0]], return_truncation=True, max_new_tokens=2)
    assert found["num_truncated_tokens"] == 0


@pytest.mark.slow
def test_smoke_makes_vectors_of_its_own(values, tmp_path):
    values |= {"word_vectors": str(tmp_path / "not_here.bin"), "output_dir": str(tmp_path / "smoke")}
    values |= {"config_overrides": {"attention": "hard", "embedding_size": 300}}
    results = run_smoke(None, values)
    assert results["word_vectors"]["size"] == 32
    assert results["word_vectors"]["found"] > 0.5 * results["word_vectors"]["words"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"word_vectors": "nowhere.txt"}, "model: word_vectors: .*nowhere.txt"),
        (
            {"config_overrides": {**HARD, "embedding_size": 5}},
            "model: word_vectors: .* has vectors of 4 numbers, and the model's embeddings have 5",
        ),
        ({"learning_rates": {"decoder.coarse": 0.1}}, "run: learning_rates: 'decoder.coarse' is of no parameter"),
        ({"learning_rates": {"encoder.coarse": -1}}, "run: learning_rates: the learning rate of 'encoder.coarse'"),
        ({"perplexity_decay": 2.0}, "run: perplexity_decay: factor must be above 0 and at most 1, got 2.0"),
        ({"eval_strategy": "no"}, "run: perplexity_decay needs evaluations; set training: eval_strategy: epoch"),
        ({"lr_scheduler_type": "greedy"}, "run: perplexity_decay does what lr_scheduler_type: greedy does"),
        ({"soft_epochs": -1}, "run: soft_epochs: epochs must be a number of 0 or more"),
        ({"config_overrides": SIZES}, "run: soft_epochs: it is for .* has attention='coarse_to_fine'"),
        ({"label_smoothing_factor": 0.1}, "training: label_smoothing_factor must be 0 with hard attention"),
    ],
)
def test_what_cannot_work_is_refused(values, changes, message):
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, {**values, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rates": "fast"}, "learning_rates is no JSON"),
        ({"learning_rates": "[1]"}, "learning_rates must be a JSON object"),
        (
            {"model_name_or_path": "here", "tokenizer_words": None},
            "model_name_or_path and word_vectors are both given; word vectors are for a model from scratch",
        ),
    ],
)
def test_what_no_recipe_can_say_is_refused_at_once(values, changes, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(None, {**values, **changes})

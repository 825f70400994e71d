import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertTokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from typer.testing import CliRunner

from hier_models import HatEncoderConfig
from hier_models.cli import app
from hier_models.metrics import Squad
from hier_models.models.text_inputs import complete
from hier_models.pipelines import int8_hier
from hier_models.training import RecipeError, load_recipe, run_training
from hier_models.training.callbacks import DropoutSchedule
from hier_models.training.encoder_evaluation import run_encoder_evaluation
from hier_models.training.smoke_rows import ROWS as SMOKE_ROWS
from hier_models.training.smoke_rows import train_tokenizer
from hier_models.training.tasks import task_class
from hier_models.training.tasks.encoder import EncoderTask
from hier_models.training.tasks.masked_lm import _MaskOrPad, perplexity, sums_over_tokens


RECIPES = Path(__file__).parents[2] / "examples" / "recipes" / "hat_encoder"
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 258,
}
STORIES = list(dict.fromkeys(row["context"] for row in SMOKE_ROWS["multiple_choice"]))
ROWS = {
    "masked_lm": [{"text": f"{STORIES[i % 4]} {STORIES[(i + 1 + i // 4) % 4]}"} for i in range(8)],
    **{name: SMOKE_ROWS[name] for name in ("question_answering", "classification", "multiple_choice")},
}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """Folder of a RoBERTa tokenizer that knows the words of the stories."""
    folder = tmp_path_factory.mktemp("tokenizer")
    rows = [row for rows in ROWS.values() for row in rows]
    RobertaTokenizer(tokenizer_object=train_tokenizer(rows, vocab_size=700).backend_tokenizer).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def values(tmp_path, vocabulary):
    """A recipe, but for task and data, that trains a tiny encoder in a second."""
    return {
        "model_type": "hat_encoder",
        "tokenizer": vocabulary,
        "config_overrides": SIZES,
        "max_source_length": 256,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
    }


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def run_task(task, values, tmp_path, rows=None, **changes):
    rows = ROWS[task] if rows is None else rows
    data = {"train": write(tmp_path / "train.jsonl", rows), "validation": write(tmp_path / "dev.jsonl", rows)}
    return run_training(load_recipe(None, {**values, "task": task, **data, **changes}))


def predictions_of(tmp_path):
    lines = (tmp_path / "run" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


# Whole runs


@pytest.mark.parametrize("model_type", ["hat_encoder", "roberta"])
def test_classification(values, tmp_path, model_type):
    results = run_task("classification", values, tmp_path, model_type=model_type, eval_strategy="steps", eval_steps=2)
    run = tmp_path / "run"
    assert json.loads((run / "results.json").read_text())["evaluation"] == results["evaluation"]
    assert results["unlabelled"] == {"train": 0, "validation": 0}
    assert results["truncation"]["train"] == {"rows": 12, "truncated_rows": 0, "truncated_tokens": 0}
    rows = predictions_of(tmp_path)
    assert [row["label"] for row in rows] == [row["label"] for row in ROWS["classification"]]
    right = [row["prediction"] == row["label"] for row in rows]
    classes = ["contradiction", "entailment", "neutral"]
    assert results["evaluation"] == {"accuracy": pytest.approx(100 * sum(right) / 12), "rows": 12, "classes": classes}
    history = json.loads((run / "trainer_state.json").read_text())["log_history"]
    assert results["evaluation"]["accuracy"] in [entry.get("eval_accuracy") for entry in history]

    # What was trained is what loads, and says the same.
    model = AutoModelForSequenceClassification.from_pretrained(run).eval()
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert type(model).__name__ == {"hat_encoder": "Hat", "roberta": "Rob"}[model_type] + type(model).__name__[3:]
    assert model.config.id2label == {0: "contradiction", 1: "entailment", 2: "neutral"}
    assert tokenizer.model_max_length == 256
    row = ROWS["classification"][1]
    inputs = tokenizer(row["text"], row["second"], return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**inputs).logits.softmax(-1)[0]
    assert float(probabilities.max()) == pytest.approx(rows[1]["probability"], abs=1e-5)
    assert model.config.id2label[int(probabilities.argmax())] == rows[1]["prediction"]


def test_classes_are_those_named_and_rows_without_a_label_are_counted(values, tmp_path):
    rows = [{"premise": "A.", "hypothesis": "B.", "label": label} for label in (0, 2, -1, 1, -1, "0")]
    results = run_task("classification", values, tmp_path, rows, classes=["yes", "maybe", "no"])
    assert results["unlabelled"] == {"train": 2, "validation": 2}
    assert results["evaluation"]["rows"] == 4
    assert [row["label"] for row in predictions_of(tmp_path)] == ["yes", "no", "maybe", "yes"]
    # A label may also be named.
    named = [{**row, "label": label} for row, label in zip(rows, ["yes", "no", "-", "maybe", "-", "yes"], strict=True)]
    again = run_task("classification", values, tmp_path, named, classes=["yes", "maybe", "no"], overwrite=True)
    assert again["evaluation"] == results["evaluation"]
    assert again["unlabelled"] == {"train": 2, "validation": 2}
    # Numbers make as many classes as there must be.
    results = run_task("classification", values, tmp_path, rows, overwrite=True)
    assert results["evaluation"]["classes"] == ["0", "1", "2"]


def test_minus_one_may_be_a_class(values, tmp_path, caplog):
    rows = [{"text": text, "label": label} for text, label in zip("abcd", (-1, 1, 0, -1), strict=True)]
    results = run_task("classification", values, tmp_path, rows)
    assert results["unlabelled"] == {"train": 2, "validation": 2}
    assert "train: 2 of 4 rows have no label and are left out; if -1 is a class, name it in classes" in caplog.text
    results = run_task("classification", values, tmp_path, rows, classes=[-1, 0, 1], overwrite=True)
    assert results["unlabelled"] == {"train": 0, "validation": 0}
    assert [row["label"] for row in predictions_of(tmp_path)] == ["-1", "1", "0", "-1"]
    scored = run_encoder_evaluation(str(tmp_path / "run"), str(tmp_path / "dev.jsonl"), use_cpu=True)
    assert (scored["rows"], scored["classes"]) == (4, ["-1", "0", "1"])


def test_numerals_are_names_or_numbers_in_all_of_the_data(values, tmp_path):
    rows = [{"text": text, "label": number % 2} for number, text in enumerate("abcd")]
    trained = run_task("classification", values, tmp_path, rows, classes=["1", "2"])["evaluation"]
    assert [row["label"] for row in predictions_of(tmp_path)] == ["1", "2", "1", "2"]
    scored = run_encoder_evaluation(str(tmp_path / "run"), str(tmp_path / "dev.jsonl"), use_cpu=True)
    assert scored["accuracy"] == trained["accuracy"]
    # Also where each label of the validation data would be a name.
    ones = write(tmp_path / "ones.jsonl", rows[1::2])
    train = {"train": str(tmp_path / "train.jsonl"), "classes": ["1", "2"], "overwrite": True}
    run_training(load_recipe(None, {**values, **train, "task": "classification", "validation": ones}))
    assert [row["label"] for row in predictions_of(tmp_path)] == ["2", "2"]
    # Names are names.
    named = [{**row, "label": row["label"] + 1} for row in rows]
    run_task("classification", values, tmp_path, named, classes=["1", "2"], overwrite=True)
    assert [row["label"] for row in predictions_of(tmp_path)] == ["1", "2", "1", "2"]
    message = r"train has 1 rows with a label that is none of the classes \(1, 2\), such as '0'"
    with pytest.raises(RecipeError, match=message):
        run_task("classification", values, tmp_path, [*named, rows[0]], classes=["1", "2"], overwrite=True)


@pytest.mark.parametrize("model_type", ["hat_encoder", "roberta"])
def test_multiple_choice(values, tmp_path, model_type):
    results = run_task("multiple_choice", values, tmp_path, model_type=model_type)
    run = tmp_path / "run"
    rows = predictions_of(tmp_path)
    right = [row["prediction"] == row["label"] for row in rows]
    assert [row["label"] for row in rows] == [0, 1, 2, 3] * 2
    assert results["evaluation"] == {"accuracy": 100 * sum(right) / 8, "rows": 8}
    assert results["truncation"]["train"] == {"rows": 8, "truncated_rows": 0, "truncated_tokens": 0}

    model = AutoModelForMultipleChoice.from_pretrained(run).eval()
    tokenizer = AutoTokenizer.from_pretrained(run)
    row = ROWS["multiple_choice"][3]
    pairs = [complete(row["question"], option) for option in row["options"]]
    inputs = tokenizer([row["context"]] * 4, pairs, padding=True, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**{name: value[None] for name, value in inputs.items()}).logits.softmax(-1)[0]
    assert float(probabilities.max()) == pytest.approx(rows[3]["probability"], abs=1e-5)
    assert int(probabilities.argmax()) == rows[3]["prediction"]


def test_an_option_takes_the_place_of_the_blank():
    assert complete("Paul brings _ .", r"a \1 b") == r"Paul brings a \1 b ."
    assert complete("He saw ___ and _.", "x") == "He saw x and x."
    assert complete("他_去。", "明天") == "他明天去。"
    assert complete("What?", "that") == "What? that"
    assert complete("It was that_.", "x") == "It was thatx."
    for question in ("What does get_item do?", "Which is _not_ true?", "What do __init__ and _f do?"):
        assert complete(question, "that") == f"{question} that"


@pytest.mark.parametrize(("model_type", "order"), [("hat_encoder", "group_by_length"), ("roberta", "random")])
def test_question_answering(values, tmp_path, model_type, order):
    values |= {"max_source_length": 48, "stride": 16, "max_question_length": 24, "train_sampling_strategy": order}
    results = run_task(
        "question_answering", values, tmp_path, model_type=model_type, eval_strategy="steps", eval_steps=2
    )
    rows = predictions_of(tmp_path)
    report = results["truncation"]["validation"]
    assert (report["questions"], report["unanswerable"], report["lost_answers"]) == (12, 4, 0)
    assert report["windows"] > 12
    # The scores are those of the predictions that were written.
    references = [{"id": row["id"], "answers": {"text": row["answers"]}} for row in rows]
    scores = Squad().compute(
        predictions=[{"id": row["id"], "prediction_text": row["prediction"]} for row in rows], references=references
    )
    assert [row["answers"] for row in rows] == [row["answers"]["text"] for row in ROWS["question_answering"]]
    assert scores.items() <= results["evaluation"].items()
    assert results["evaluation"]["best_f1"] >= results["evaluation"]["f1"]
    assert results["evaluation"]["null_threshold"] == 0.0
    for row, source in zip(rows, ROWS["question_answering"], strict=True):
        assert row["best_answer"] in source["context"]
        assert row["prediction"] == (row["best_answer"] if row["no_answer_score"] <= 0 else "")
    history = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    (during,) = [entry for entry in history if "eval_f1" in entry]
    assert during["eval_f1"] == pytest.approx(results["evaluation"]["f1"])
    assert AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run").config.model_type == model_type


@pytest.mark.parametrize("name", ["classification", "multiple_choice", "question_answering"])
def test_bert_is_told_the_texts_of_a_pair_apart(values, tmp_path, name):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    BertTokenizer(vocab={token: number for number, token in enumerate(special)}).save_pretrained(tmp_path / "bert")
    values |= {"model_type": "bert", "tokenizer": str(tmp_path / "bert"), "task": name}
    recipe = load_recipe(None, {**values, "train": write(tmp_path / "train.jsonl", ROWS[name])})
    task = task_class(name)(recipe, tmp_path)
    model, processor = task.load_model_and_processor()
    batch = task.collator(model, processor)(list(task.train_dataset(model, processor)))
    ids, types = batch["input_ids"].flatten(0, -2), batch["token_type_ids"].flatten(0, -2)
    assert types.shape == ids.shape
    for row, kinds in zip(ids.tolist(), types.tolist(), strict=True):
        middle, end = (number for number, token in enumerate(row) if special[token] == "[SEP]")
        assert kinds == [0] * (middle + 1) + [1] * (end - middle) + [0] * (len(row) - end - 1)


def test_the_threshold_decides_between_an_answer_and_none(values, tmp_path):
    always = run_task("question_answering", values, tmp_path, null_threshold=1e9)
    assert all(row["prediction"] == row["best_answer"] != "" for row in predictions_of(tmp_path))
    assert always["evaluation"]["NoAns_f1"] == 0
    never = run_task("question_answering", values, tmp_path, null_threshold=-1e9, overwrite=True)
    assert all(row["prediction"] == "" != row["best_answer"] for row in predictions_of(tmp_path))
    assert (never["evaluation"]["NoAns_f1"], never["evaluation"]["HasAns_f1"]) == (100, 0)
    assert never["evaluation"]["best_f1"] == always["evaluation"]["best_f1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "score", "steps", "batch", "rate"),
    [
        ("classification", "accuracy", 300, 4, 2e-3),
        ("multiple_choice", "accuracy", 160, 4, 3e-3),
        ("question_answering", "exact", 180, 6, 4e-3),
    ],
)
def test_the_rows_can_be_learned_by_heart(values, tmp_path, task, score, steps, batch, rate):
    values |= {"max_steps": steps, "per_device_train_batch_size": batch, "learning_rate": rate}
    values["warmup_steps"] = steps // 10
    values["config_overrides"] = {**SIZES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    assert run_task(task, values, tmp_path)["evaluation"][score] == 100


@pytest.mark.parametrize("task", list(ROWS))
@pytest.mark.parametrize("changes", [{"prediction_loss_only": True}, {"eval_do_concat_batches": False}], ids=list)
def test_scores_are_of_all_predictions_whatever_evaluations_keep(values, tmp_path, task, changes):
    values |= {"per_device_eval_batch_size": 2, "eval_strategy": "steps", "eval_steps": 1}
    scores = run_task(task, values, tmp_path)["evaluation"]
    assert run_task(task, values, tmp_path, overwrite=True, **changes)["evaluation"] == scores


@pytest.mark.parametrize(("said", "best"), [({}, 4), ({"greater_is_better": True}, 2)])
@pytest.mark.parametrize("metric", ["perplexity", "eval_perplexity"])
def test_the_best_model_has_the_lowest_perplexity(values, tmp_path, metric, said, best):
    values |= {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    run_task("masked_lm", values, tmp_path, load_best_model_at_end=True, metric_for_best_model=metric, **said)
    state = json.loads((tmp_path / "run" / "trainer_state.json").read_text())
    assert state["best_global_step"] == best


@pytest.mark.parametrize("model_type", ["hat_encoder", "roberta"])
def test_masked_lm(values, tmp_path, model_type):
    values |= {"model_type": model_type, "max_source_length": 64}
    results = run_task("masked_lm", values, tmp_path, max_steps=3, eval_strategy="steps", eval_steps=1)
    evaluation = results["evaluation"]
    assert results["truncation"]["train"]["sentences"] == 64
    assert evaluation["rows"] == results["truncation"]["validation"]["rows"] > 8
    history = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    during = [entry for entry in history if "eval_perplexity" in entry]
    # The same tokens are masked every time.
    assert [entry["eval_masked_tokens"] for entry in during] == [evaluation["masked_tokens"]] * 3
    assert during[-1]["eval_perplexity"] == pytest.approx(evaluation["perplexity"])
    assert during[0]["eval_perplexity"] > evaluation["perplexity"] > 1
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "run").config.model_type == model_type
    assert not (tmp_path / "run" / "predictions.jsonl").exists()


def test_masked_lm_from_a_stream_and_from_several_sources(values, tmp_path):
    more = write(tmp_path / "more.jsonl", ROWS["masked_lm"][:3])
    options = {"max_source_length": 64, "also_train": [more, more]}
    whole = run_task("masked_lm", values, tmp_path, **options)
    assert whole["truncation"]["train"]["sentences"] == 64 + 2 * 24
    assert set(whole["set_aside"]) == {"train", "validation", "also_train_0", "also_train_1"}
    options["overwrite"] = True
    streamed = run_task("masked_lm", values, tmp_path, **options, streaming=True, shuffle_buffer=4)
    assert streamed["evaluation"]["masked_tokens"] == whole["evaluation"]["masked_tokens"]
    assert streamed["truncation"]["train"]["rows"] > 0
    few = run_task("masked_lm", values, tmp_path, **options, max_train_documents=2)
    assert few["truncation"]["train"]["sentences"] == 3 * 16  # of each source


@pytest.mark.parametrize("task", ROWS)
def test_a_run_goes_on(task, values, tmp_path):
    """What a task does to its recipe must not make it another one."""
    values |= {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    run_task(task, values, tmp_path)
    results = run_task(task, values, tmp_path, max_steps=2)
    assert results["resumed_from"].endswith("checkpoint-1")
    with pytest.raises(RecipeError, match="holds a finished run; choose"):
        run_task(task, values, tmp_path, max_steps=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"also_train": ["nowhere.jsonl"]}, "^masked_lm: also_train: no such file or folder: nowhere.jsonl"),
        ({"train": "nowhere.jsonl"}, "^data: train: no such file or folder: nowhere.jsonl"),
        ({"fillers": "nofile.txt"}, "^data: fillers='nofile.txt' is neither a file"),
    ],
)
def test_files_that_are_not_there(values, tmp_path, changes, message):
    with pytest.raises(RecipeError, match=message):
        run_task("masked_lm", values, tmp_path, **changes)


@pytest.mark.parametrize("workers", [0, 1])
def test_masked_lm_goes_on_with_the_same_masks(values, tmp_path, workers):
    values |= {"max_source_length": 64, "per_device_train_batch_size": 2, "max_steps": 4, "save_strategy": "steps"}
    values |= {"save_steps": 2, "dataloader_num_workers": workers}
    run_task("masked_lm", values, tmp_path)
    whole, stopped = tmp_path / "run", tmp_path / "stopped"
    shutil.copytree(whole / "checkpoint-2", stopped / "checkpoint-2")
    results = run_task("masked_lm", values, tmp_path, output_dir=str(stopped))
    assert results["resumed_from"] == str(stopped / "checkpoint-2")
    expected, found = (load_file(folder / "model.safetensors") for folder in (whole, stopped))
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_masks_are_others_in_the_next_epoch(values, tmp_path, monkeypatch):
    """Of each window in a batch of its own; and the same ones when the run goes on."""
    seen, plain = [], _MaskOrPad.__call__

    def record(self, examples):
        batch = plain(self, examples)
        if "labels" not in examples[0]:
            seen.append((tuple(examples[0]["input_ids"]), tuple(batch["labels"][0].tolist())))
        return batch

    monkeypatch.setattr(_MaskOrPad, "__call__", record)
    values |= {"max_source_length": 64, "per_device_train_batch_size": 1, "save_strategy": "epoch"}
    values |= {"max_steps": -1, "num_train_epochs": 3}
    run_task("masked_lm", values, tmp_path, ROWS["masked_lm"][:2])
    masks, rows = list(seen), len(seen) // 3
    assert rows > 1
    assert len(set(masks)) == 3 * rows > len({window for window, _ in masks}) == rows
    shutil.copytree(tmp_path / "run" / f"checkpoint-{2 * rows}", tmp_path / "stopped" / f"checkpoint-{2 * rows}")
    seen.clear()
    run_task("masked_lm", values, tmp_path, ROWS["masked_lm"][:2], output_dir=str(tmp_path / "stopped"))
    assert seen == masks[2 * rows :]


def test_transcripts_to_pretrain_on_lose_their_fillers(values, tmp_path):
    rows = [{"turns": [["Ann", "Um, rain fell."], ["Bob", "Uh."], ["Ann", "The river rose."]]}] * 4
    results = run_task("masked_lm", values, tmp_path, rows, fillers="english", max_source_length=64)
    assert results["set_aside"]["train"]["filler_words"] == 8
    assert results["set_aside"]["train"]["dropped_turns"] == 4


def test_perplexity_by_hand():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 5, 7), torch.full((3, 5), -100)
    labels[0, 1], labels[0, 4], labels[2, 0] = 3, int(logits[0, 4].argmax()), 6
    labels[2, 0] = int(logits[2, 0].argmin())
    sums = sums_over_tokens((logits, "more"), labels)
    losses = [-logits[i, j].log_softmax(-1)[labels[i, j]].item() for i, j in ((0, 1), (0, 4), (2, 0))]
    guessed = float(logits[0, 1].argmax() == 3)
    expected = [[losses[0] + losses[1], 2, 1 + guessed], [0, 0, 0], [losses[2], 1, 0]]
    torch.testing.assert_close(sums, torch.tensor(expected))
    scores = perplexity(SimpleNamespace(predictions=sums.numpy()))
    assert scores["perplexity"] == pytest.approx(math.exp(sum(losses) / 3), rel=1e-6)
    assert scores["accuracy"] == pytest.approx(100 * (1 + guessed) / 3)
    assert scores["masked_tokens"] == 3
    diverged = perplexity(SimpleNamespace(predictions=np.array([[9e9, 2, 0]])))
    assert diverged == {"perplexity": math.inf, "accuracy": 0.0, "masked_tokens": 2}
    with pytest.raises(ValueError, match="no token of the validation data is masked"):
        perplexity(SimpleNamespace(predictions=np.zeros((2, 3))))


def test_robertas_weights_start_the_encoder(values, tmp_path, vocabulary):
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(vocabulary)
    config = RobertaConfig(vocab_size=len(tokenizer), type_vocab_size=1, layer_norm_eps=1e-5, **SIZES)
    roberta = RobertaForMaskedLM(config)
    roberta.save_pretrained(tmp_path / "roberta")
    tokenizer.save_pretrained(tmp_path / "roberta")
    for name in ("tokenizer", "config_overrides", "model_type"):
        del values[name]
    values |= {"from_roberta": str(tmp_path / "roberta"), "learning_rate": 0.0}
    run_task("multiple_choice", values, tmp_path)
    model = AutoModelForMultipleChoice.from_pretrained(tmp_path / "run")
    assert model.config.model_type == "hat_encoder"
    weights = model.state_dict()
    for name, weight in roberta.roberta.state_dict().items():
        torch.testing.assert_close(weights[f"roberta.{name}"], weight, rtol=0, atol=0)


def test_fine_tuning_goes_on_from_pretraining(values, tmp_path):
    run_task("masked_lm", values, tmp_path)
    pretrained = AutoModelForMaskedLM.from_pretrained(tmp_path / "run").state_dict()
    (tmp_path / "run").rename(tmp_path / "pretrained")
    for name in ("tokenizer", "config_overrides"):
        del values[name]
    values |= {"model_name_or_path": str(tmp_path / "pretrained"), "learning_rate": 0.0}
    for task in ("classification", "multiple_choice", "question_answering"):
        run_task(task, values, tmp_path, output_dir=str(tmp_path / task))
        auto_class = getattr(__import__("transformers"), task_class(task).auto_class)
        weights = auto_class.from_pretrained(tmp_path / task).state_dict()
        shared = [name for name in weights if name in pretrained]
        assert len(shared) > 20
        for name in shared:
            torch.testing.assert_close(weights[name], pretrained[name], rtol=0, atol=0)


@pytest.mark.parametrize("written", [str.lower, str.upper])
def test_a_classifier_that_is_trained_on_keeps_the_order_of_its_classes(values, tmp_path, written):
    order = ["neutral", "contradiction", "entailment"]
    rows = [{**row, "label": written(row["label"])} for row in ROWS["classification"]]
    run_task("classification", values, tmp_path, rows, classes=list(map(written, order)))
    checkpoint = tmp_path / "run"
    before = load_file(checkpoint / "model.safetensors")
    for name in ("tokenizer", "config_overrides"):
        del values[name]
    values |= {"model_name_or_path": str(checkpoint), "learning_rate": 0.0, "output_dir": str(tmp_path / "again")}
    results = run_task("classification", values, tmp_path)
    assert results["evaluation"]["classes"] == order
    after = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(before[name], weight) for name, weight in after.items())
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").config.id2label[0] == "neutral"


def test_a_classifier_with_other_classes_than_its_checkpoint_has_a_new_head(values, tmp_path, caplog):
    run_task("classification", values, tmp_path)
    for name in ("tokenizer", "config_overrides"):
        del values[name]
    values |= {"model_name_or_path": str(tmp_path / "run"), "output_dir": str(tmp_path / "again")}
    rows = [{"text": text, "label": label} for text, label in zip("abcd", ("yes", "no", "no", "yes"), strict=True)]
    results = run_task("classification", values, tmp_path, rows)
    assert results["evaluation"]["classes"] == ["no", "yes"]
    assert results["loading"]["resized_weights"] == ["classifier.out_proj.bias", "classifier.out_proj.weight"]
    assert "the checkpoint has another number of classes than 2, so its head is new" in caplog.text
    assert load_file(tmp_path / "again" / "model.safetensors")["classifier.out_proj.weight"].isfinite().all()


def test_no_other_weight_has_the_right_to_another_size(values, tmp_path):
    run_task("classification", values, tmp_path)
    for name in ("tokenizer", "config_overrides"):
        del values[name]
    values |= {"model_name_or_path": str(tmp_path / "run"), "output_dir": str(tmp_path / "again")}
    classes = len({row["label"] for row in ROWS["classification"]})
    with pytest.raises(RecipeError, match=r"other sizes than config_overrides asks for, in .*token_type_embeddings"):
        run_task("classification", values, tmp_path, config_overrides={"type_vocab_size": classes})


# Dropout that is off at first


class Heads(nn.Module):
    """Dropout of all kinds: modules, and numbers that go to functions."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.attention_dropout = 0.2
        self.inner = nn.Sequential(nn.Dropout(0.3), nn.Linear(2, 2), nn.Dropout(0.0))
        self.use_dropout = True
        self.dropouts_seen = "none"


def probabilities(model):
    return [model.drop.p, model.attention_dropout, model.inner[0].p, model.inner[2].p]


@pytest.mark.parametrize(
    ("free", "epoch", "off"),
    [(1, None, True), (1, 0.0, True), (1, 0.999, True), (1, 1.0, False), (1, 1 - 1e-12, False), (2, 1.5, True)],
)
def test_dropout_by_epoch(free, epoch, off):
    model = Heads()
    schedule = DropoutSchedule(free)
    state, control = TrainerState(epoch=epoch), TrainerControl()
    schedule.on_train_begin(None, state, control, model=model)
    schedule.on_step_begin(None, state, control)
    assert probabilities(model) == ([0, 0, 0, 0] if off else [0.1, 0.2, 0.3, 0.0])
    assert (model.use_dropout, model.dropouts_seen) == (True, "none")
    schedule.on_step_begin(None, TrainerState(epoch=2.0), control)
    assert probabilities(model) == [0.1, 0.2, 0.3, 0.0]
    schedule.on_step_begin(None, state, control)
    schedule.on_train_end(None, state, control)
    assert probabilities(model) == [0.1, 0.2, 0.3, 0.0]
    with pytest.raises(ValueError, match="free_epochs must be 0 or more, got -1"):
        DropoutSchedule(-1)


class Recorder(TrainerCallback):
    """Notes the dropout of every step."""

    seen: list = []

    def on_substep_end(self, args, state, control, model=None, **kwargs):
        self.note(state.global_step + 1, model)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.note(state.global_step, model)

    def note(self, step, model):
        self.seen.extend((step, module.p) for module in model.modules() if isinstance(module, nn.Dropout))


@pytest.mark.slow
def test_dropout_holds_after_resuming_in_the_middle_of_either_epoch(values, tmp_path, monkeypatch):
    """8 rows, one at a time, 2 batches a step: 4 steps an epoch, 3 epochs."""
    callbacks = EncoderTask.callbacks
    monkeypatch.setattr(EncoderTask, "callbacks", lambda task: [*callbacks(task), Recorder()])
    values |= {
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 2,
        "max_steps": -1,
        "num_train_epochs": 3,
        "dropout_free_epochs": 1,
        "save_strategy": "steps",
        "save_steps": 2,
        "config_overrides": {**SIZES, "hidden_dropout_prob": 0.4, "attention_probs_dropout_prob": 0.4},
    }

    def run(name, **changes):
        monkeypatch.setattr(Recorder, "seen", [])
        run_task("multiple_choice", values, tmp_path, output_dir=str(tmp_path / name), **changes)
        model = AutoModelForMultipleChoice.from_pretrained(tmp_path / name)
        assert model.config.hidden_dropout_prob == 0.4
        return model.state_dict(), set(Recorder.seen)

    whole, dropouts = run("whole")
    assert dropouts == {(step, 0.0 if step <= 4 else 0.4) for step in range(1, 13)}
    for stop in (2, 4, 6):  # in epoch 1, at its end, in epoch 2
        (tmp_path / f"stopped{stop}").mkdir()
        checkpoint = tmp_path / "whole" / f"checkpoint-{stop}"
        again, seen = run(f"stopped{stop}", resume_from_checkpoint=str(checkpoint))
        assert seen == {(step, found) for step, found in dropouts if step > stop}
        for name, weight in whole.items():
            torch.testing.assert_close(again[name], weight, rtol=0, atol=0)
    # Without the schedule the weights are others.
    plain, _ = run("plain", dropout_free_epochs=0)
    assert any(not torch.equal(plain[name], whole[name]) for name in whole)


# Mistakes


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("question_answering", {"text_column": "a"}, "data: text_column means nothing to question_answering"),
        ("classification", {"test_split": "test"}, "data: test_split means nothing to classification"),
        ("classification", {"key_phrases": "fit"}, "data: key_phrases means nothing to classification"),
        ("masked_lm", {"phrases_column": "a"}, "data: phrases_column means nothing to masked_lm"),
        (
            "question_answering",
            {"max_source_length": 160},
            "stride must be 0 or more and less than 95, .* max_source_length=160 .* max_question_length=64 .* got 128",
        ),
        (
            "question_answering",
            {"label_smoothing_factor": 0.1},
            "label_smoothing_factor must be 0 for question_answering",
        ),
        ("masked_lm", {"num_beams": 2}, "generation: num_beams means nothing to masked_lm"),
        ("classification", {"streaming": True}, "data: streaming goes with masked_lm, not with classification"),
        ("masked_lm", {"streaming": True, "dropout_free_epochs": 1}, "a stream has no epochs"),
        ("classification", {"max_source_length": 257}, "max_source_length is 257, but the model takes 256 tokens"),
        ("classification", {"classes": ["entailment", "neutral"]}, "4 rows with a label that is none of the classes"),
        ("classification", {"label_column": ""}, "train has no labels; name their column with label_column"),
        ("multiple_choice", {"answer_column": ""}, "train has no answers; name their column with answer_column"),
        ("question_answering", {"answers_column": ""}, "train has no answers; name their column with answers_column"),
    ],
)
def test_recipes_that_cannot_work(values, tmp_path, task, changes, message):
    with pytest.raises(RecipeError, match=message):
        run_task(task, values, tmp_path, **changes)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("masked_lm", {"mlm_probability": 0}, "mlm_probability must be above 0 and at most 1, got 0"),
        ("multiple_choice", {"dropout_free_epochs": -1}, "dropout_free_epochs must be 0 or more, got -1"),
        ("multiple_choice", {"stride": 3}, "unknown name 'stride'"),
    ],
)
def test_values_that_are_not_allowed(task, changes, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(None, {"task": task, **changes})


def test_too_long_rows_are_counted(values, tmp_path):
    results = run_task("multiple_choice", values, tmp_path, max_source_length=48)
    cut = results["truncation"]["train"]
    assert cut["rows"] == cut["truncated_rows"] == 8
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    expected = 0
    for row in ROWS["multiple_choice"]:
        for option in row["options"]:
            expected += len(tokenizer(row["context"], complete(row["question"], option))["input_ids"]) - 48
    assert cut["truncated_tokens"] == expected


@pytest.mark.parametrize("task", sorted(ROWS))
def test_another_process_leaves_the_file_of_the_first_alone(values, tmp_path, monkeypatch, task):
    source = write(tmp_path / "train.jsonl", [*ROWS[task], {"id": "bad"}])
    recipe = load_recipe(None, {**values, "task": task, "train": source, "bad_lines": "set_aside"})
    task_class(task)(recipe, tmp_path / "run").rows("train")
    file = tmp_path / "run" / "set_aside_train.jsonl"
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1
    file.write_text("", encoding="utf-8")
    monkeypatch.setattr(type(recipe.training), "process_index", 1)
    task_class(task)(recipe, tmp_path / "run").rows("train")
    assert file.read_text(encoding="utf-8") == ""


def test_bad_answers_are_set_aside_and_reported(values, tmp_path):
    wrong = {**ROWS["question_answering"][0], "answers": {"text": ["at noon"], "answer_start": [3]}}
    rows = [*ROWS["question_answering"], wrong]
    results = run_task("question_answering", values, tmp_path, rows, bad_lines="set_aside")
    assert results["set_aside"]["train"]["set_aside"] == 1
    (line,) = (tmp_path / "run" / "set_aside_train.jsonl").read_text(encoding="utf-8").splitlines()
    assert "'at noon' is not at character 3 of the context; it is nowhere in it" in json.loads(line)["reason"]
    assert results["evaluation"]["total"] == 12


def test_ids_that_occur_twice_do_not_mix_questions_up(values, tmp_path):
    rows = [{**row, "id": "same"} for row in ROWS["question_answering"]]
    results = run_task("question_answering", values, tmp_path, rows)
    assert results["evaluation"]["total"] == 12
    assert [row["id"] for row in predictions_of(tmp_path)] == [str(number) for number in range(12)]


# Scoring a checkpoint


@pytest.mark.parametrize("task", list(ROWS))
def test_a_checkpoint_is_scored_as_after_training(values, tmp_path, task):
    trained = run_task(task, values, tmp_path)["evaluation"]
    options = {} if task == "masked_lm" else {"predictions_file": tmp_path / "new" / "folder" / "out.jsonl"}
    results = run_encoder_evaluation(
        str(tmp_path / "run"), str(tmp_path / "dev.jsonl"), use_cpu=True, results_file=tmp_path / "out.json", **options
    )
    assert results["task"] == task
    for name, value in trained.items():
        # Another batch size, so another order of summation.
        assert results[name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name
    assert json.loads((tmp_path / "out.json").read_text())["task"] == task
    if options:
        lines = options["predictions_file"].read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["id"] for line in lines] == [row["id"] for row in predictions_of(tmp_path)]


def test_questions_are_scored_in_inputs_shorter_than_the_usual_windows(values, tmp_path):
    short = {"max_source_length": 96, "stride": 8, "max_question_length": 24}
    run_task("question_answering", values, tmp_path, **short)
    results = run_encoder_evaluation(
        str(tmp_path / "run"), str(tmp_path / "dev.jsonl"), use_cpu=True, max_source_length=96
    )
    assert results["total"] == len(ROWS["question_answering"])


@pytest.mark.parametrize("model_type", ["roberta-prelayernorm", "mpnet", "bert", "hat_encoder"])
def test_inputs_are_as_long_as_the_model_has_positions_behind_padding(values, tmp_path, model_type):
    sizes = {**SIZES, "max_position_embeddings": 32, "pad_token_id": 1}
    values |= {"model_type": model_type, "config_overrides": sizes}
    most = 32 if model_type == "bert" else 30
    with pytest.raises(RecipeError, match=f"max_source_length is {most + 1}, but the model takes {most} tokens"):
        run_task("classification", values, tmp_path, max_source_length=most + 1)
    trained = run_task("classification", values, tmp_path, max_source_length=most)
    assert trained["truncation"]["validation"]["truncated_rows"] > 0
    assert AutoTokenizer.from_pretrained(tmp_path / "run").model_max_length == most
    checkpoint, rows = str(tmp_path / "run"), str(tmp_path / "dev.jsonl")
    scored = run_encoder_evaluation(checkpoint, rows, use_cpu=True)
    assert scored["truncation"]["validation"] == trained["truncation"]["validation"]
    # The limit of a checkpoint's tokenizer is right if it is lower.
    AutoTokenizer.from_pretrained(checkpoint, model_max_length=24).save_pretrained(checkpoint)
    shorter = run_encoder_evaluation(checkpoint, rows, use_cpu=True)["truncation"]["validation"]
    assert shorter["truncated_tokens"] > scored["truncation"]["validation"]["truncated_tokens"]
    # What is trained may be as long as the model can take.
    for name in ("model_type", "tokenizer", "config_overrides"):
        values.pop(name, None)
    values |= {"model_name_or_path": checkpoint, "output_dir": str(tmp_path / "longer")}
    longer = run_task("classification", values, tmp_path, max_source_length=most)
    assert longer["truncation"]["validation"] == trained["truncation"]["validation"]


def test_the_command_scores_encoders(values, tmp_path, monkeypatch):
    run_task("classification", values, tmp_path)
    command = [str(tmp_path / "dev.jsonl"), "-m", str(tmp_path / "run"), "--device", "cpu"]
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["evaluation"]
    done = CliRunner().invoke(app, ["evaluate", *command])
    assert done.exit_code == 0, done.output
    assert re.search(rf"accuracy +{rows['accuracy']:.2f}\nrows +12", done.stdout)
    layers = []
    monkeypatch.setattr(int8_hier, "why_no_int8", lambda: layers.append("looked for"))
    done = CliRunner().invoke(app, ["evaluate", *command, "--dtype", "int8"])
    assert done.exit_code == 0, done.output
    assert layers
    done = CliRunner().invoke(app, ["evaluate", *command, "--num-beams", "2"])
    assert done.exit_code == 2
    assert "is an encoder and makes no summaries" in done.output


def test_checkpoints_that_cannot_be_scored(values, tmp_path):
    config = HatEncoderConfig(**SIZES, vocab_size=600, architectures=["HatEncoderForTokenClassification"])
    config.save_pretrained(tmp_path / "tags")
    with pytest.raises(RecipeError, match="tags is HatEncoderForTokenClassification; there is an evaluation of"):
        run_encoder_evaluation(str(tmp_path / "tags"), "x.jsonl")
    config.architectures = ["HatEncoderForMaskedLM"]
    config.save_pretrained(tmp_path / "words")
    with pytest.raises(RecipeError, match="a masked language model makes no predictions to write"):
        run_encoder_evaluation(str(tmp_path / "words"), "x.jsonl", predictions_file=tmp_path / "out.jsonl")


# The recipes and their smoke rows


def test_smoke_rows_are_sound():
    for row in ROWS["question_answering"]:
        for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True):
            assert row["context"][start:].startswith(text)
    assert {bool(row["answers"]["text"]) for row in ROWS["question_answering"][:4]} == {True, False}
    assert all(len(set(row["options"])) == 4 for row in ROWS["multiple_choice"])
    assert {row["text"] for row in ROWS["classification"]} == set(STORIES)
    names = {"task": "classification", "label_column": "c", "classes": ["neutral", "entailment"], "output_dir": "."}
    task = task_class("classification")(load_recipe(None, {**names, "use_cpu": True}), Path())
    assert {row["c"] for row in task.smoke_rows()} == {0, 1}


@pytest.mark.parametrize(
    ("name", "batch", "steps", "rate", "warmup", "decay"),
    [
        ("masked_lm", 256, 1_000_000, 1e-4, 10_000, 0.01),
        ("squad_v2", 48, 2, 1.5e-5, 0.06, 0.01),
        ("mnli", 32, 10, 1e-5, 0.06, 0.1),
        ("race", 16, 4, 1e-5, 0.06, 0.1),
    ],
)
def test_the_recipes_are_robertas(name, batch, steps, rate, warmup, decay):
    recipe = load_recipe(RECIPES / f"{name}.yaml", ["--use_cpu"])
    training = recipe.training
    assert recipe.run.total_train_batch_size == batch
    assert steps == (training.max_steps if training.max_steps > 0 else training.num_train_epochs)
    assert (training.learning_rate, training.warmup_steps, training.weight_decay) == (rate, warmup, decay)
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-6)
    assert (training.lr_scheduler_type, training.max_grad_norm) == ("linear", 0.0)
    assert recipe.data.max_source_length == 512
    assert recipe.options.dropout_free_epochs == (1 if name == "race" else 0)
    text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")
    assert f"hier-models train examples/recipes/hat_encoder/{name}.yaml" in text
    assert "Table 8" in text

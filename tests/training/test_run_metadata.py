"""What a run costs, over all its sittings; and runs that stop when their time is up."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback, TrainerState, TrainingArguments

from hier_models.data import cache_fingerprint
from hier_models.models.attention_products import cpu_has
from hier_models.training import (
    RecipeError,
    last_complete_checkpoint,
    load_recipe,
    recipe_files,
    run_metadata,
    run_training,
    task_class,
    train,
)
from hier_models.training.recipe_files import as_options
from hier_models.training.run_metadata import (
    RunCosts,
    TimeUpError,
    code_version,
    data_version,
    has_fast_bfloat16,
    machine,
)
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES
from tests.training.test_distributed import launch_forks, run_two


@pytest.fixture
def values(tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [{"text": text, "summary": summary} for text, summary in zip(DOCUMENTS, SUMMARIES, strict=True)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    return {
        "tokenizer": str(tmp_path / "tokenizer"),
        "max_position_embeddings": 96,
        "config_overrides": {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, **sizes},
        "train": str(tmp_path / "data.jsonl"),
        "max_source_length": 80,
        "max_target_length": 12,
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "logging_steps": 2,
        "save_steps": 100,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "use_cpu": True,
    }


def run(values):
    recipe = load_recipe(None, values)
    recipe.training.include_num_input_tokens_seen = "non_padding"
    return run_training(recipe)


class Slow(TrainerCallback):
    """Steps that take a twentieth of a second, at least."""

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_whose_time_is_up_goes_on_as_if_it_had_not_stopped(values, tmp_path, monkeypatch):
    monkeypatch.setattr(task_class("summarization"), "callbacks", lambda self: [Slow()])
    # The model to keep is not the last, also where training was done before a stop.
    values |= {"validation": values["train"], "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    values |= {"load_best_model_at_end": True, "learning_rate": 1e-2}
    values |= {"save_total_limit": 1}  # with which Transformers keeps the best checkpoint alone at the end
    values |= {"metric_for_best_model": "loss", "greater_is_better": True}
    alone = run({**values, "output_dir": str(tmp_path / "alone")})
    recipe = {**values, "stop_after_minutes": 1e-5}
    for step in (2, 4):  # after steps that are logged; and the model is not saved before another call
        with pytest.raises(TimeUpError, match=f"the time is up: stopped at step {step} of 4 in {tmp_path / 'run'}"):
            run(recipe)
        assert (tmp_path / "run" / f"checkpoint-{step}").is_dir()
        assert not (tmp_path / "run" / "results.json").exists()
    stopped = run(recipe)

    expected, found = (load_file(tmp_path / name / "model.safetensors") for name in ("alone", "run"))
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    states = [json.loads((tmp_path / name / "trainer_state.json").read_text()) for name in ("alone", "run")]
    assert states[0]["best_global_step"] == states[1]["best_global_step"] == 2
    losses = [[entry["loss"] for entry in state["log_history"] if "loss" in entry] for state in states]
    assert len(losses[0]) == 2
    assert losses[0] == losses[1]
    assert (alone["cost"]["sittings"], stopped["cost"]["sittings"]) == (1, 3)
    assert alone["cost"]["source_tokens"] == stopped["cost"]["source_tokens"] > 4 * 2 * 10
    # Four slow steps, in however many sittings.
    assert alone["cost"]["training_seconds"] > 0.2
    assert stopped["cost"]["training_seconds"] > 0.2
    assert stopped["cost"]["peak_memory"] > 50e6


@pytest.mark.parametrize("save_strategy", ["epoch", "steps"])
def test_epochs_are_evaluated_once_each_although_the_run_stops(values, tmp_path, save_strategy):
    values |= {"validation": values["train"], "eval_strategy": "epoch", "save_strategy": save_strategy}
    values |= {"max_steps": -1, "num_train_epochs": 2, "per_device_train_batch_size": 1}
    run_training(load_recipe(None, {**values, "output_dir": str(tmp_path / "alone")}))
    for step in (2, 4, 6, 8):
        with pytest.raises(TimeUpError, match=f"stopped at step {step} of 8"):
            run_training(load_recipe(None, {**values, "stop_after_minutes": 1e-5}))
    run_training(load_recipe(None, values))
    expected, found = (load_file(tmp_path / name / "model.safetensors") for name in ("alone", "run"))
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    evaluations = []
    for name in ("alone", "run"):
        history = json.loads((tmp_path / name / "trainer_state.json").read_text())["log_history"]
        evaluations.append([(entry["step"], entry["eval_loss"]) for entry in history if "eval_loss" in entry])
    assert [step for step, _ in evaluations[0]] == [4, 8]
    assert evaluations[1] == evaluations[0]


@pytest.mark.slow
def test_several_processes_stop_together(values, tmp_path):
    """At a checkpoint that each of them has finished, before the launcher ends them."""
    options = [option for name, value in values.items() for option in as_options(name, value)]
    arguments = ["train", *options, "--per_device_train_batch_size=1"]
    stopped = launch_forks("-m", "hier_models.cli", *arguments, "--stop_after_minutes=1e-5")
    assert "Not finished: the time is up: stopped at step 2 of 4" in stopped.stderr
    assert "exitcode  : 75" in stopped.stderr
    assert last_complete_checkpoint(tmp_path / "run", 2) == str(tmp_path / "run" / "checkpoint-2")
    for process in run_two(forks.COMMAND, *arguments):
        assert process.returncode == 0, process.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (results["cost"]["sittings"], results["machine"]["processes"]) == (2, 2)


def test_a_limit_that_is_not_reached_changes_nothing(values):
    run_training(load_recipe(None, {**values, "stop_after_minutes": 60, "max_steps": 1}))
    with pytest.raises(RecipeError, match="stop_after_minutes must be above 0, got 0"):
        load_recipe(None, {**values, "stop_after_minutes": 0})
    with pytest.raises(RecipeError, match=r"overwrite and stop_after_minutes .* each call would begin anew"):
        load_recipe(None, {**values, "stop_after_minutes": 9, "overwrite": True})


def test_the_log_of_a_run_that_was_killed_is_that_of_one_that_was_not(values, tmp_path, monkeypatch):
    """Also where it is not written as often as checkpoints are."""
    values |= {"logging_steps": 3, "save_steps": 2}
    run_training(load_recipe(None, {**values, "output_dir": str(tmp_path / "alone")}))

    class Die(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(task_class("summarization"), "callbacks", lambda self: [Die()])
        with pytest.raises(KeyboardInterrupt):
            run_training(load_recipe(None, values))
    assert run_training(load_recipe(None, values))["resumed_from"].endswith("checkpoint-2")
    losses = []
    for name in ("alone", "run"):
        state = json.loads((tmp_path / name / "trainer_state.json").read_text())
        losses.append({entry["step"]: entry["loss"] for entry in state["log_history"] if "loss" in entry})
    assert list(losses[0]) == [2, 3, 4]
    assert losses[0] == losses[1]


def test_the_code_is_that_of_the_beginning(values, monkeypatch):
    """Its files may be edited while a model is trained for hours."""
    version = iter([{"source": "loaded"}])
    monkeypatch.setattr(train, "code_version", lambda: next(version))
    monkeypatch.setattr(task_class("summarization"), "callbacks", lambda self: [Edit()])

    class Edit(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            assert next(version, None) is None

    assert run_training(load_recipe(None, {**values, "max_steps": 1}))["code"] == {"source": "loaded"}


def test_the_time_before_a_checkpoint_counts(tmp_path):
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    kept = {"args": {}, "attributes": {"training_seconds": 100.0, "peak_memory": 10**15, "sittings": 2}}
    found = RunCosts(arguments)
    found.on_train_begin(arguments, TrainerState(stateful_callbacks={"RunCosts": kept}), None)
    assert found.state()["attributes"]["sittings"] == 3
    found.on_train_end(arguments, None, None)
    result = found.as_dict()
    assert 100 <= result["training_seconds"] < 101
    assert (result["peak_memory"], result["sittings"]) == (10**15, 3)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux begins the count anew")
def test_each_run_of_a_process_has_a_memory_peak_of_its_own(tmp_path):
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none")

    def peak(size):
        found = RunCosts(arguments)
        found.on_train_begin(arguments, TrainerState(), None)
        block = torch.ones(size // 4)
        found.on_train_end(arguments, None, None)
        assert found.memory_of == "resident"
        del block
        return found.as_dict()["peak_memory"]

    peaks = [peak(size) for size in (10**6, 3 * 10**8, 10**6)]
    assert peaks[1] - peaks[0] == pytest.approx(3e8, rel=0.1)
    assert abs(peaks[2] - peaks[0]) < 2e7


def test_where_bfloat16_is_fast(tmp_path, monkeypatch):
    for flags, fast in (
        (("amx_bf16", "amx_tile"), True),
        (("avx512_bf16",), True),
        (("bf16",), True),
        (("avx512_f",), False),
    ):
        has_fast_bfloat16.cache_clear()
        cpu_has.cache_clear()
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda flags=flags: dict.fromkeys(flags, True), raising=False
        )
        assert has_fast_bfloat16(True) is fast
        monkeypatch.undo()
    has_fast_bfloat16.cache_clear()
    cpu_has.cache_clear()


@pytest.mark.parametrize("fast", [False, True])
def test_a_recipe_in_bfloat16_where_it_is_fast(values, monkeypatch, fast):
    monkeypatch.setattr(recipe_files, "has_fast_bfloat16", lambda use_cpu=False: fast)
    del values["use_cpu"]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for given in ({**values, "bf16_where_fast": True}, ["--bf16_where_fast", "--output_dir", "x"]):
        arguments = load_recipe(None, given).training
        assert arguments.bf16 is fast
        assert machine(arguments)["precision"] == ("bfloat16" if fast else "float32")
    with pytest.raises(RecipeError, match="bf16_where_fast and training: fp16 are both given"):
        load_recipe(None, {**values, "bf16_where_fast": True, "fp16": True})


def test_the_code_that_ran(tmp_path, monkeypatch):
    found = code_version()
    assert {"hier_models", "source"} <= found.keys()
    root = Path(recipe_files.__file__).parents[2]
    if (root / ".git").exists():
        assert re.fullmatch(r"[0-9a-f]{40}\+?", found["commit"])
    # Copies that git does not know are the same code, until one is changed.
    digests = []
    monkeypatch.setattr(run_metadata, "source_version", cache_fingerprint.source_version.__wrapped__)
    for copy, original in (("a", root), ("b", tmp_path / "a"), ("c", tmp_path / "a")):
        shutil.copytree(original / "hier_models", tmp_path / copy / "hier_models")
        if copy == "c":
            (tmp_path / copy / "hier_models" / "families.py").write_text("")
        monkeypatch.setattr(
            run_metadata, "__file__", str(tmp_path / copy / "hier_models" / "training" / "run_metadata.py")
        )
        monkeypatch.setattr(
            cache_fingerprint, "__file__", str(tmp_path / copy / "hier_models" / "data" / "cache_fingerprint.py")
        )
        other = code_version.__wrapped__()
        assert "commit" not in other
        digests.append(other["source"])
    assert digests[0] == digests[1] != digests[2]


def test_further_documents_are_among_the_data(tmp_path):
    folder = tmp_path / "more"
    folder.mkdir()
    for file in (tmp_path / "a.txt", folder / "b.txt", folder / "notes.log"):
        file.write_text("One bridge.")
    values = {"task": "denoising", "train": str(tmp_path / "a.txt"), "also_train": [str(folder)]}
    recipe = load_recipe(None, {**values, "output_dir": str(tmp_path / "run")})
    before = data_version(recipe)
    assert before.keys() == {"train", "also_train"}
    (folder / "notes.log").write_text("Two.")
    assert data_version(recipe) == before
    (folder / "b.txt").write_text("Two bridges.")
    changed = data_version(recipe)
    assert changed["train"] == before["train"]
    assert changed["also_train"] != before["also_train"]

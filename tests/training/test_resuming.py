"""A run that is killed and started again ends with the weights of a run that was left alone, bit for bit."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hier_models.training import last_complete_checkpoint
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


# Runs a recipe. With a step to die at, the process is killed while it makes that step's batch; with a file to die at,
# in the middle of writing a checkpoint.
SCRIPT = """
import json, os, signal, sys
import torch
from hier_models.data import HierDataCollator
from hier_models.training import load_recipe, run_training

values, dies_at_batch, dies_at_file = json.loads(sys.argv[1])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if dies_at_batch:
    collate = HierDataCollator.__call__
    count = 0
    def counting(self, features):
        global count
        count += 1
        if count == dies_at_batch:
            die()
        return collate(self, features)
    HierDataCollator.__call__ = counting
if dies_at_file:
    save = torch.save
    def saving(content, path, *args, **kwargs):
        save(content, path, *args, **kwargs)
        if str(path).endswith(dies_at_file):
            die()
    torch.save = saving
print(json.dumps(run_training(load_recipe(None, values))["resumed_from"]))
"""


def run(values: dict, dies_at_batch: int = 0, dies_at_file: str = "") -> subprocess.CompletedProcess[str]:
    return forks.run(SCRIPT, json.dumps([values, dies_at_batch, dies_at_file]))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["random", "group_by_length", "streaming"])
def test_a_killed_run_goes_on_where_it_was(tmp_path, tokenizer, order):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [{"turns": TURNS[i % 4 :] + TURNS[: i % 3], "summary": SUMMARIES[i % 4]} for i in range(12)]
    rows += [{"turns": [{"role": "A", "content": text}], "summary": text[:20]} for text in DOCUMENTS]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = {
        "tokenizer": str(tmp_path / "tokenizer"),
        "max_position_embeddings": 96,
        "config_overrides": {
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "num_segments": 4,
            "dropout": 0.1,  # so that the state of the random numbers matters
        },
        "train": str(tmp_path / "train.jsonl"),
        "validation": str(tmp_path / "train.jsonl"),
        "streaming": order == "streaming",
        "train_sampling_strategy": "random" if order == "streaming" else order,
        "shuffle_buffer": 5,
        "max_source_length": 80,
        "max_target_length": 12,
        "max_length": 8,
        "max_steps": 14,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "label_smoothing_factor": 0.1,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "save_steps": 5,
        "eval_strategy": "steps",
        "eval_steps": 4,
        "predict_with_generate": True,
        "report_to": "none",
        "use_cpu": True,
    }
    left_alone, killed = tmp_path / "left_alone", tmp_path / "killed"

    done = run({**values, "output_dir": str(left_alone)})
    assert done.returncode == 0, done.stderr

    values["output_dir"] = str(killed)
    first = run(values, dies_at_batch=22)  # between two checkpoints
    assert first.returncode == -signal.SIGKILL
    assert not (killed / "model.safetensors").exists()
    assert last_complete_checkpoint(killed) == str(killed / "checkpoint-5")

    second = run(values, dies_at_file="checkpoint-10/optimizer.pt")  # while it writes one
    assert second.returncode == -signal.SIGKILL, second.stderr
    assert f"resuming from {killed / 'checkpoint-5'}" in second.stderr
    assert (killed / "checkpoint-10" / "model.safetensors").exists()
    assert last_complete_checkpoint(killed) == str(killed / "checkpoint-5")

    third = run(values, dies_at_file="killed/training_args.bin")  # while it writes the finished model
    assert third.returncode == -signal.SIGKILL, third.stderr
    assert "checkpoint-10 was not written to its end" in third.stderr
    assert not (killed / "results.json").exists()

    fourth = run(values)
    assert fourth.returncode == 0, fourth.stderr
    assert json.loads(fourth.stdout.splitlines()[-1]) == str(killed / "checkpoint-14")

    assert_same(left_alone, killed)


def assert_same(a: Path, b: Path) -> None:
    for folder in (".", "checkpoint-10", "checkpoint-14"):
        expected = load_file(a / folder / "model.safetensors")
        found = load_file(b / folder / "model.safetensors")
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert torch.equal(value, found[name]), f"{folder}: {name}"
    start, end = (load_file(a / folder / "model.safetensors") for folder in ("checkpoint-5", "."))
    assert not any(torch.equal(start[name], end[name]) for name in start if name.endswith("fc1.weight"))
    assert (
        json.loads((a / "results.json").read_text())["evaluation"]
        == json.loads((b / "results.json").read_text())["evaluation"]
    )

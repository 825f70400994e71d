"""`hier-models train`."""

import json
from pathlib import Path

import pytest
import yaml
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

from tests.cli.commands import mistake, run
from tests.conftest import DOCUMENTS


@pytest.fixture
def recipe(checkpoint: str, records: str) -> str:
    content = {
        "model": {"model_name_or_path": checkpoint},
        "data": {"train": records, "validation": records, "max_source_length": 64, "max_target_length": 24},
        "training": {
            "output_dir": "trained",
            "max_steps": 2,
            "per_device_train_batch_size": 2,
            "per_device_eval_batch_size": 4,
            "learning_rate": 0.001,
            "predict_with_generate": True,
            "use_cpu": True,
            "report_to": "none",
            "disable_tqdm": True,
        },
    }
    Path("recipe.yaml").write_text(yaml.safe_dump(content))
    return "recipe.yaml"


def test_train(recipe: str, checkpoint: str):
    result = run("train", recipe, "--learning_rate", "0.002", "--max_steps=1")
    assert "rougeLsum" in result.stdout
    assert "Model, processor and results.json are in trained" in result.stdout
    results = json.loads(Path("trained/results.json").read_text())
    assert results["recipe"]["training"]["learning_rate"] == 0.002
    assert results["recipe"]["training"]["max_steps"] == 1
    before, after = (AutoModelForSeq2SeqLM.from_pretrained(name) for name in (checkpoint, "trained"))
    assert any((a != b).any() for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert type(AutoProcessor.from_pretrained("trained")).__name__ == "HatBartProcessor"
    assert run("summarize", "-m", "trained", stdin=DOCUMENTS[0]).stdout.strip()


def test_train_smoke(recipe: str, tmp_path: Path):
    shown = run("train", recipe, "--smoke", "--max_steps", "1", "--output_dir", str(tmp_path / "tried"))
    assert "rougeLsum" in shown.stdout
    assert f"results.json are in {tmp_path / 'tried'}" in shown.stdout
    assert "train: " in shown.stderr
    assert "max_source_length" not in shown.stderr  # small enough as it is
    assert (tmp_path / "tried" / "model.safetensors").is_file()


def test_train_by_flags_alone(checkpoint: str, records: str):
    training = ["--max_steps", "1", "--use_cpu", "--report_to", "none", "--disable_tqdm", "true"]
    data = ["--train", records, "--max_source_length", "64", "--max_target_length", "24"]
    run("train", "--model_name_or_path", checkpoint, *data, "--output_dir", "trained", *training)
    assert Path("trained/config.json").is_file()


def test_train_mistakes(recipe: str):
    mistake("train", says="give a recipe file, or flags")
    mistake("train", "missing.yaml", says="RECIPE: there is no file 'missing.yaml'")
    mistake("train", recipe, "--learning_rat", "1e-3", says="learning_rat")
    mistake("train", recipe, "--learning_rate", "fast", says=["learning_rate", "fast"])
    mistake("train", recipe, "--train", "missing.jsonl", says="missing.jsonl")
    mistake("train", recipe, "--model_name_or_path", "./nowhere", says="nowhere")
    Path("broken.yaml").write_text("model: [")
    mistake("train", "broken.yaml", says="broken.yaml")
    assert not Path("trained").exists()


def test_train_lists_flags():
    text = run("train", "--flags").stdout
    for name in ("--from_bart", "--max_source_length", "--num_beams", "--overwrite", "--learning_rate"):
        assert name in text

"""Sweeps: variants of a recipe, each run once, and the table of their scores."""

import csv
import json
import logging
from pathlib import Path

import pytest
import yaml
from accelerate.state import AcceleratorState
from transformers import TrainerCallback
from typer.testing import CliRunner

from hier_models import cli
from hier_models.experiments import run_sweep, sweeps
from hier_models.training import RecipeError, load_recipe, task_class, variant_names
from hier_models.training.arguments import set_accumulation
from tests.conftest import DOCUMENTS, SUMMARIES


@pytest.fixture
def sweep(tmp_path, tokenizer) -> Path:
    """A sweep of two tiny HAT-BARTs, the second without its hierarchy."""
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [{"text": DOCUMENTS[i % 4], "summary": SUMMARIES[i % 4]} for i in range(4)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    sizes |= {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "dropout": 0.0}
    recipe = {
        "model": {"tokenizer": str(tmp_path / "tokenizer"), "max_position_embeddings": 96, "config_overrides": sizes},
        "data": {"train": str(tmp_path / "data.jsonl"), "max_source_length": 80, "max_target_length": 12},
        "generation": {"max_length": 8},
        "training": {"output_dir": "nowhere", "max_steps": 2, "per_device_train_batch_size": 2, "save_steps": 1},
    }
    recipe["training"] |= {"use_cpu": True, "report_to": "none", "predict_with_generate": True}
    write(tmp_path / "recipe.yaml", recipe)
    return write(
        tmp_path / "sweep.yaml",
        {
            "base": "recipe.yaml",
            "data": {"test": str(tmp_path / "data.jsonl")},
            "training": {"output_dir": str(tmp_path / "sweep")},
            "variants": {
                "hierarchy": None,
                "none-0.5": {"model": {"config_overrides": {"hierarchical_layers": 0, "dropout": 0.5}}},
            },
        },
    )


def write(path: Path, content: dict) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def test_tables_of_a_sweep_that_was_moved(sweep, tmp_path):
    """They stand where its runs are now."""
    run_sweep(sweep)
    (tmp_path / "sweep").rename(tmp_path / "moved")
    (tmp_path / "moved" / "table.md").unlink()
    result = CliRunner().invoke(cli.app, ["train", str(sweep), "--output_dir", str(tmp_path / "moved")])
    assert result.exit_code == 0, result.stderr
    assert f"table.md and table.csv are in {tmp_path / 'moved'}" in result.stdout
    assert (tmp_path / "moved" / "table.md").is_file()
    assert not (tmp_path / "sweep").exists()


def test_a_variant_that_diverges_is_named_and_ends_no_sweep(sweep):
    content = yaml.safe_load(sweep.read_text())
    content["variants"] = {"hot": {"training": {"learning_rate": 1.0e30}}, "cool": None}
    found = run_sweep(write(sweep, content), {"max_steps": 4})
    assert "diverged" in found["variants"]["hot"]
    assert "\n\n**Diverged**, so that the loss or a score is no finite number: hot." in found["table"]
    assert found["variants"]["cool"]["test"]["documents"] == 4


def test_a_variant_is_the_base_but_for_what_it_says(sweep, tmp_path):
    assert variant_names(sweep) == ["hierarchy", "none-0.5"]
    assert variant_names(tmp_path / "recipe.yaml") == []
    base = load_recipe(tmp_path / "recipe.yaml")
    first, second = (load_recipe(sweep, ["--max_steps=7"], name) for name in variant_names(sweep))
    assert first.model == base.model
    assert second.model.overrides() == base.model.overrides() | {"hierarchical_layers": 0, "dropout": 0.5}
    assert first.data.test == second.data.test == str(tmp_path / "data.jsonl")
    assert first.training.max_steps == second.training.max_steps == 7
    assert first.training.output_dir == str(tmp_path / "sweep" / "hierarchy")
    assert second.training.output_dir == str(tmp_path / "sweep" / "none-0.5")
    for overrides in ({"output_dir": "other"}, ["--output-dir", "other"], ["--output_dir=other"]):
        assert load_recipe(sweep, overrides, "none-0.5").training.output_dir == str(Path("other", "none-0.5"))


def test_a_recipe_on_a_recipe_on_a_recipe(sweep, tmp_path):
    (tmp_path / "deeper").mkdir()
    middle = write(tmp_path / "deeper" / "middle.yaml", {"base": "../recipe.yaml", "training": {"seed": 3}})
    top = write(
        tmp_path / "top.yaml", {"base": "deeper/middle.yaml", "generation": {"max_length": None}, "data": None}
    )
    recipe = load_recipe(top)
    assert (recipe.training.seed, recipe.training.max_steps) == (3, 2)
    assert recipe.generation.max_length is None
    assert recipe.data.train is None
    assert load_recipe(middle).generation.max_length == 8


@pytest.mark.parametrize(
    ("content", "variant", "says"),
    [
        ({"base": "none.yaml"}, None, r"no such recipe: .*none\.yaml"),
        ({"base": 3}, None, "base must be the path of another recipe, got 3"),
        ({"base": "a.yaml"}, None, r"base: a\.yaml begins with this recipe itself"),
        ({"base": "sweep.yaml"}, None, r"base: sweep\.yaml is a sweep"),
        ({"variants": ["a"]}, None, r"variants must be a mapping of names to sections, got \['a'\]"),
        ({"variants": {"a/b": {}}}, "a/b", "becomes that of a folder: .* got 'a/b'"),
        ({"variants": {"a": {}, "b": {}}}, None, "is a sweep, for run_sweep; its variants are a, b"),
        ({"variants": {"a": {}, "b": {}}}, "c", "has no variant 'c'; its variants are a, b"),
        ({"variants": {"a": 3}, "training": {"output_dir": "x"}}, "a", "variant 'a' must hold sections.* got 3"),
        ({"variants": {"a": {"training": {"sed": 1}}}}, "a", "unknown name 'sed'"),
        ({"data": {}}, "a", "has no variants, so no 'a'"),
    ],
)
def test_mistakes_in_a_file(sweep, tmp_path, content, variant, says):
    with pytest.raises(RecipeError, match=says):
        load_recipe(write(tmp_path / "a.yaml", content), variant=variant)


@pytest.mark.parametrize("overrides", [["--config-overrides={}"], {"config_overrides": {"dropout": 0.1}}])
def test_what_variants_differ_in_is_not_overridden(sweep, tmp_path, overrides):
    """All of them would be trained, and be the same model."""
    with pytest.raises(
        RecipeError, match=r"config_overrides cannot be changed.*--variant NAME.*one of hierarchy, none-0\.5"
    ):
        run_sweep(sweep, overrides)
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_needs_variants(tmp_path, sweep):
    with pytest.raises(RecipeError, match=r"recipe\.yaml has no variants"):
        run_sweep(tmp_path / "recipe.yaml")


def test_variants_run_once_and_an_interrupted_one_goes_on(sweep, tmp_path, monkeypatch, caplog):
    """Stopped in the second variant: the first is not run again, the second goes on where it was."""
    alone = run_sweep(sweep, {"output_dir": str(tmp_path / "alone")})

    class Interrupt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if args.output_dir.endswith("none-0.5") and state.global_step == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(task_class("summarization"), "callbacks", lambda self: [Interrupt()])
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep)
    folder = tmp_path / "sweep"
    first = (folder / "hierarchy" / "results.json").read_bytes()
    assert (folder / "none-0.5" / "checkpoint-1").is_dir()
    assert [row["variant"] for row in table(folder)] == ["hierarchy"]

    with caplog.at_level(logging.WARNING):
        results = run_sweep(sweep)
    assert "variant hierarchy (1 of 2): done" in caplog.text
    assert (folder / "hierarchy" / "results.json").read_bytes() == first
    assert results["variants"]["none-0.5"]["resumed_from"] == str(folder / "none-0.5" / "checkpoint-1")
    assert results["table"] == alone["table"]

    rows = table(folder)
    assert [row["variant"] for row in rows] == ["hierarchy", "none-0.5"]
    for row, found in zip(rows, results["variants"].values(), strict=True):
        assert float(row["rouge1"]) == found["test"]["rouge1"]
        assert int(row["documents"]) == 4
    lines = (folder / "table.md").read_text(encoding="utf-8").splitlines()
    assert "\n".join(lines) == results["table"]
    assert lines[0].startswith("| variant | rouge1 | rouge2 | rougeL | rougeLsum |")
    assert lines[3].startswith(f"| none-0.5 | {results['variants']['none-0.5']['test']['rouge1']:.2f} |")

    monkeypatch.setattr(sweeps, "run_training", pytest.fail)
    assert run_sweep(sweep)["table"] == results["table"]


def test_finished_variants_are_made_longer(sweep, tmp_path):
    """As where a table says that the models still improve: all go on, and what is shorter is not taken for longer."""
    run_sweep(sweep)
    results = run_sweep(sweep, {"max_steps": 3})
    says = "\n\n**Made longer** after so many steps: 2 (hierarchy, none-0.5). Unless"
    assert says in results["table"]
    assert says in (tmp_path / "sweep" / "table.md").read_text(encoding="utf-8")
    for name, found in results["variants"].items():
        assert found["resumed_from"] == str(tmp_path / "sweep" / name / "checkpoint-2")
        assert found["made_longer_after"] == [2]
        assert found["recipe"]["training"]["max_steps"] == 3
    with pytest.raises(RecipeError, match=r"sweep/hierarchy holds a finished run with max_steps=3, and here it is 2"):
        run_sweep(sweep)


def test_variants_of_different_precision(sweep, tmp_path, monkeypatch):
    precisions = []

    class Note(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            precisions.append(AcceleratorState().mixed_precision)

    monkeypatch.setattr(task_class("summarization"), "callbacks", lambda self: [Note()])
    variants = {"float": None, "bfloat": {"training": {"bf16": True}}, "again": {"training": {"seed": 2}}}
    content = {"base": "recipe.yaml", "training": {"output_dir": str(tmp_path / "sweep"), "max_steps": 1}}
    results = run_sweep(write(tmp_path / "precisions.yaml", {**content, "variants": variants}))
    assert precisions == ["no", "bf16", "no"]
    assert [found["machine"]["precision"] for found in results["variants"].values()] == [
        "float32",
        "bfloat16",
        "float32",
    ]


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_finished_run_of_another_recipe_is_refused(sweep, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(sweeps, "run_training", lambda recipe, deadline: ran.append(finish(recipe)) or ran[-1])
    run_sweep(sweep)
    assert len(ran) == 2
    monkeypatch.setattr(sweeps, "run_training", pytest.fail)
    same = ["--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2", "--num_proc", "2"]
    run_sweep(sweep, same)
    run_sweep(sweep, ["--per_device_train_batch_size", "1", "--total_train_batch_size", "2", "--eval_steps", "9"])
    for overrides, says in (
        (["--num_beams", "3"], "num_beams=None, and here it is 3"),
        (["--per_device_train_batch_size", "1"], "total_train_batch_size=2, and here it is 1"),
        ({"learning_rate": 0.5}, "learning_rate=5e-05, and here it is 0.5"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor=0.0, and here it is 0.1"),
        ({"lr_scheduler_type": "constant"}, "lr_scheduler_type=linear, and here it is constant"),
    ):
        with pytest.raises(RecipeError, match=f"sweep/hierarchy holds a finished run with {says}"):
            run_sweep(sweep, overrides)
    monkeypatch.setattr(sweeps, "run_training", lambda recipe, deadline: ran.append(finish(recipe)) or ran[-1])
    run_sweep(sweep, ["--num_beams", "3", "--overwrite"])
    assert len(ran) == 4


def finish(recipe, deadline=None) -> dict:
    set_accumulation(recipe)
    results = {"evaluation": {"rouge1": 1.0, "settings": {}}, "recipe": recipe.as_dict()}
    folder = Path(recipe.training.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, default=str), encoding="utf-8")
    return results


def test_the_command(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "run_training", finish)
    result = CliRunner().invoke(cli.app, ["train", str(sweep)])
    assert result.exit_code == 0, result.stderr
    assert "| none-0.5 | 1.00 |" in result.stdout
    assert f"A folder for each variant, table.md and table.csv are in {tmp_path / 'sweep'}" in result.stdout
    result = CliRunner().invoke(cli.app, ["train", str(sweep), "--seed", "8"])
    assert result.exit_code == 2
    assert "holds a finished run with seed=42" in " ".join(result.stderr.split())


def test_the_command_with_one_variant(sweep, tmp_path, monkeypatch):
    """It is trained where the sweep would have it, which then does not train it again."""
    found = []
    monkeypatch.setattr("hier_models.training.run_training", lambda recipe: found.append(recipe) or finish(recipe))
    result = CliRunner().invoke(cli.app, ["train", str(sweep), "--variant", "none-0.5", "--max_steps", "1"])
    assert result.exit_code == 0, result.stderr
    (recipe,) = found
    assert recipe.training.output_dir == str(tmp_path / "sweep" / "none-0.5")
    assert recipe.model.overrides()["hierarchical_layers"] == 0
    monkeypatch.setattr(sweeps, "run_training", lambda recipe, deadline: found.append(recipe) or finish(recipe))
    run_sweep(sweep, ["--max_steps", "1"])
    assert [Path(recipe.training.output_dir).name for recipe in found] == ["none-0.5", "hierarchy"]
    for arguments, says in (
        ([str(sweep), "--variant", "c"], "has no variant 'c'; its variants are hierarchy, none-0.5"),
        ([str(tmp_path / "recipe.yaml"), "--variant", "c"], "has no variants, so no 'c'"),
        (["--variant", "c", "--max_steps", "1"], "--variant: give a recipe file"),
        ([str(sweep), "--variant", "hierarchy", "--config_overrides", "{}"], "config_overrides cannot be changed"),
    ):
        result = CliRunner().invoke(cli.app, ["train", *arguments])
        assert result.exit_code == 2
        assert says in " ".join(result.stderr.split())


def test_smoke_of_one_variant(sweep, tmp_path):
    result = CliRunner().invoke(
        cli.app, ["train", str(sweep), "--variant", "hierarchy", "--smoke", "--max_steps", "1"]
    )
    assert result.exit_code == 0, result.stderr
    assert "The recipe runs. What it made is deleted." in result.stdout


def test_smoke(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "run_training", pytest.fail)
    result = CliRunner().invoke(cli.app, ["train", str(sweep), "--smoke", "--max_steps", "1"])
    assert result.exit_code == 0, result.stderr
    assert "| hierarchy | " in result.stdout
    assert "All variants run. What they made is deleted." in result.stdout
    assert not (tmp_path / "sweep").exists()

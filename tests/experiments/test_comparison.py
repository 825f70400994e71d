"""Comparisons: variants with seeds against a twin, checked before training, killed and gone on with, reported."""

import csv
import json
import math
import signal
import sys
from pathlib import Path

import pytest
import yaml
from matplotlib.axes import Axes
from typer.testing import CliRunner

from hier_models import cli
from hier_models.experiments import (
    Comparison,
    comparison,
    comparison_report,
    read_comparison,
    run_comparison,
    run_sweep,
)
from hier_models.locks import held
from hier_models.metrics import DocumentScores, paired_bootstrap
from hier_models.training import RecipeError, load_recipe
from hier_models.training.arguments import set_accumulation
from hier_models.training.models import load_model_and_processor
from hier_models.training.resuming import RunningError, finished_run
from hier_models.training.run_metadata import DivergedError
from tests import forks
from tests.conftest import DOCUMENTS, SUMMARIES


def write(path: Path, content: dict) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def write_rows(path: Path, rows: list) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def content(tmp_path, tokenizer) -> dict:
    """Two tiny BARTs of equal size, one with a wider encoder and one with a wider decoder."""
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rows = [{"text": DOCUMENTS[1 + i % 2], "summary": SUMMARIES[1 + i % 2]} for i in range(4)]
    test = [{"text": DOCUMENTS[i], "summary": SUMMARIES[i]} for i in (0, 3)]
    test.append({"text": "Nine o'clock is early for a library.", "summary": "It is early."})
    train = write_rows(tmp_path / "train.jsonl", rows)
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    sizes |= {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 32, "hierarchical_layers": 0}
    return {
        "model": {"tokenizer": str(tmp_path / "tokenizer"), "max_position_embeddings": 96, "config_overrides": sizes},
        "data": {"train": train, "validation": train, "test": write_rows(tmp_path / "test.jsonl", test)}
        | {"max_source_length": 80, "max_target_length": 12},
        "generation": {"max_length": 8},
        "training": {"output_dir": str(tmp_path / "out"), "max_steps": 4, "per_device_train_batch_size": 2}
        | {"learning_rate": 1e-2, "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
        | {"load_best_model_at_end": True, "use_cpu": True, "report_to": "none"},
        "comparison": {
            "question": "Is a wide decoder better than a wide encoder?",
            "seeds": [1, 2],
            "twin": "encoder",
            "metrics": ["rouge1", "rougeSU4", "perplexity"],
        },
        "variants": {
            "encoder": None,
            "decoder": {"model": {"config_overrides": {"encoder_ffn_dim": 32, "decoder_ffn_dim": 48}}},
        },
    }


@pytest.fixture
def file(content, tmp_path) -> Path:
    return write(tmp_path / "comparison.yaml", content)


def table(folder: Path, name: str = "table.csv") -> list[dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


COSTS = ("training_minutes", "peak_memory", "sittings", "made_by", "command")


def numbers(value):
    """Results without what a machine was busy with."""
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items() if key not in COSTS}
    return value


# Kills the process at a step of a run.
SCRIPT = """
import os, signal, sys
from transformers import TrainerCallback
from hier_models.experiments import run_sweep
from hier_models.training import task_class

class Die(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if args.output_dir.endswith(sys.argv[2]) and state.global_step == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

task_class("summarization").callbacks = lambda self: [Die()]
run_sweep(sys.argv[1], sys.argv[4:])
"""


@pytest.mark.slow
def test_a_comparison_that_is_killed_gives_the_numbers_of_one_that_is_not(file, content, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(comparison_report, "draw_curves", lambda path, title, curves: path.touch())
        alone = run_sweep(file, {"output_dir": str(tmp_path / "alone")})

    # Killed in the second variant of the first seed, between two checkpoints.
    killed = forks.run(SCRIPT, str(file), "decoder/seed_1", "3")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = tmp_path / "out"
    partial = json.loads((folder / "results.json").read_text())
    assert (partial["finished_runs"], partial["runs"], list(partial["variants"])) == (1, 4, ["encoder"])
    assert "1 of 4 runs are done" in (folder / "table.md").read_text()
    assert (folder / "learning_curves.png").is_file()
    done = (folder / "encoder" / "seed_1" / "results.json").read_bytes()

    # And stopped because its time is up.
    stopped = CliRunner().invoke(cli.app, ["train", str(file), "--stop_after_minutes", "1e-9"])
    assert stopped.exit_code == 75, stopped.output
    assert "Not finished: the time is up: 1 of 4 runs are done. The same command goes on." in stopped.stderr

    found = run_sweep(file)
    assert (folder / "encoder" / "seed_1" / "results.json").read_bytes() == done
    assert found["runs"]["decoder"][1]["resumed_from"] == str(folder / "decoder" / "seed_1" / "checkpoint-2")
    assert found["runs"]["decoder"][1]["cost"]["sittings"] == 2
    assert numbers(found["results"]) == numbers(alone["results"])
    for name in ("curves.csv",):
        assert (folder / name).read_text() == (tmp_path / "alone" / name).read_text()
    check_report(found, folder, content)

    # All is done: nothing runs, and nothing changes.
    monkeypatch.setattr(comparison, "run_training", no_training)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".png"}
    result = CliRunner().invoke(cli.app, ["train", str(file)])
    assert result.exit_code == 0, result.stderr
    assert "| decoder |" in result.stdout
    assert f"A folder for each run, tables, results.json and learning curves are in {folder}" in result.stdout
    assert before == {name: (folder / name).read_bytes() for name in before}


def check_report(found, folder, content):
    variants = found["results"]["variants"]
    assert list(variants) == ["encoder", "decoder"]
    metrics = content["comparison"]["metrics"]
    scores = {
        name: [DocumentScores.load(folder / name / f"seed_{seed}" / "document_scores.json") for seed in (1, 2)]
        for name in variants
    }
    for metric in metrics:
        values = [found["runs"]["decoder"][seed]["test"][metric] for seed in (1, 2)]
        shown = variants["decoder"]["metrics"][metric]
        assert shown["mean"] == pytest.approx(sum(values) / 2)
        assert shown["standard_deviation"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
        expected = paired_bootstrap(scores["decoder"], scores["encoder"], metric)
        assert (shown["difference"]["low"], shown["difference"]["high"]) == (expected.low, expected.high)
        assert shown["difference"]["value"] == pytest.approx(
            shown["mean"] - variants["encoder"]["metrics"][metric]["mean"]
        )
        assert "difference" not in variants["encoder"]["metrics"][metric]
    assert variants["encoder"]["parameters"] == pytest.approx(variants["decoder"]["parameters"], rel=0.001)
    assert variants["encoder"]["source_tokens"] == variants["decoder"]["source_tokens"] > 0
    assert variants["decoder"]["steps"] == 4
    rows = table(folder)
    assert [row["variant"] for row in rows] == ["encoder", "decoder"]
    assert float(rows[1]["rouge1_low"]) == variants["decoder"]["metrics"]["rouge1"]["difference"]["low"]
    assert rows[0]["rouge1_low"] == ""
    text = (folder / "table.md").read_text(encoding="utf-8")
    assert text.startswith("# Is a wide decoder better than a wide encoder?\n")
    assert found["results"]["command"].startswith("hier-models train ")
    assert text.endswith(f"    {found['results']['command']}\n")
    assert "float32 on CPU" in text
    curves = table(folder, "curves.csv")
    assert len(curves) == 2 * 2 * (4 + 2)
    assert {row["part"] for row in curves} == {"train", "validation"}


def no_training(recipe, deadline):
    pytest.fail("nothing is to be trained")


def change(content, *path, **values):
    """Change what a file says, deep inside."""
    for name in path:
        if content.get(name) is None:
            content[name] = {}
        content = content[name]
    content.update(values)


@pytest.mark.parametrize(
    ("path", "values", "says"),
    [
        (
            ("variants", "encoder", "training"),
            {"max_steps": 3},
            r"variant 'decoder' and its twin 'encoder' must have the same steps.*: max_steps is 4 and 3",
        ),
        (("variants", "encoder", "data"), {"train": "other.jsonl"}, r"train is '.*train\.jsonl' and 'other\.jsonl'"),
        (("variants", "encoder", "data"), {"max_test_documents": 2}, "max_test_documents is None and 2"),
        (("variants", "decoder", "training"), {"gradient_accumulation_steps": 3}, "total_train_batch_size is 6 and 2"),
        (("run",), {"total_train_batch_size": 3}, r"total_train_batch_size=3 is no multiple of per_device_train_"),
        (("variants", "decoder", "model"), {"new_modules": "random"}, "new_modules is 'random' and None.*say why"),
        (("variants", "decoder", "model"), {"from_bart": "warm"}, "checkpoint is 'warm' and None.*say why"),
        (("variants", "decoder", "training"), {"neftune_noise_alpha": 5}, "neftune_noise_alpha is 5.0 and None"),
        (("training",), {"save_steps": 4}, "save_steps=4 must be eval_steps=2, since the best model is to be scored"),
        (
            ("variants", "decoder", "training"),
            {"learning_rate": 0.5},
            r"different recipes: learning_rate is 0\.5 and 0\.01.*say why: comparison: differs: \{learning_rate: the",
        ),
        (("variants", "decoder", "generation"), {"num_beams": 3}, "num_beams is 3 and None"),
        (("variants", "decoder", "training"), {"generation_num_beams": 3}, "generation_num_beams is 3 and None"),
        (("variants", "decoder", "model", "config_overrides"), {"dropout": 0.5}, r"recipes: dropout is 0\.5 and "),
        (
            ("variants", "decoder", "model", "config_overrides"),
            {"init_std": 0.5},
            r"recipes: init_std is 0\.5 and None",
        ),
        (("variants", "decoder", "model"), {"tokenizer": "other"}, "perplexities .* tokenizer is 'other' and '"),
        (
            ("variants", "encoder", "model", "config_overrides"),
            {"encoder_ffn_dim": 96},
            r"variant 'decoder' has [\d,]+ parameters and its twin 'encoder' [\d,]+: -\d\.\d%, where .* allows 3\.0%",
        ),
        (("variants", "decoder", "training"), {"seed": 3}, "a variant sets a seed; the seeds are under"),
        (
            ("comparison",),
            {"metrics": ["rouge1", "rouge3"]},
            "summarization gives no 'rouge3' .* it gives rouge1, rouge2",
        ),
        (("comparison",), {"metrics": []}, r"metrics must be a list of different names, got \[\]"),
        (("comparison",), {"twin": "bart"}, "there is no variant 'bart'; there are encoder, decoder"),
        (("comparison",), {"twin": {"decoder": "decoder"}}, "'?decoder'? is its own"),
        (("comparison",), {"twin": 3}, "twin must be a variant, or a mapping"),
        (("comparison",), {"seeds": [1, 1]}, r"seeds must be a list of different whole numbers, got \[1, 1\]"),
        (("comparison",), {"seeds": [True]}, "seeds must be a list of different whole"),
        (("comparison",), {"seeds": [1, -1]}, r"seeds must be from 0 to 4294967295, got \[1, -1\]"),
        (("comparison",), {"parameters_within": True}, "parameters_within must be a share, such as 0.03, .* got True"),
        (("comparison",), {"question": " "}, "question must be a text"),
        (("comparison",), {"questions": "?"}, "unknown name 'questions'; allowed are question, seeds, twin"),
        (
            ("comparison",),
            {"parameters_within": "3 %"},
            "parameters_within must be a share, such as 0.03, .* got '3 %'",
        ),
        (("comparison",), {"parameters_within": {"decoder": -1}}, "must be a share, .*got {'decoder': -1}"),
        (("comparison",), {"parameters_within": float("nan")}, "must be a share, .*got nan"),
        (
            ("comparison",),
            {"parameters_within": {"bart": 0.1}},
            "parameters_within: there is no variant 'bart' that has",
        ),
        (("comparison",), {"differs": {"max_steps": "why not"}}, "differs: max_steps must be the same"),
        (("comparison",), {"differs": {"learning_rate": ""}}, "differs must be a mapping of names to reasons"),
        (("comparison",), {"differs": {"num_beams": "more is better"}}, "differs: num_beams is the same for every"),
        (("comparison",), {"check_overlap": ["gone.jsonl"]}, r"check_overlap: there is no file 'gone\.jsonl'"),
        (("data",), {"test": None}, "variant 'encoder' has no test data"),
        (("run",), {"task": "masked_lm"}, "the task masked_lm gives no scores of single test documents"),
    ],
)
def test_an_unfair_comparison_is_refused_before_training(content, tmp_path, monkeypatch, path, values, says):
    monkeypatch.setattr(comparison, "run_training", no_training)
    if "task" in values:
        content["data"], content["generation"] = {"train": "x"}, {}
    change(content, *path, **values)
    with pytest.raises(RecipeError, match=says):
        run_sweep(write(tmp_path / "a.yaml", content))
    assert not (tmp_path / "out").exists()


def test_a_single_variant_may_be_larger():
    def compare(within):
        allowed = Comparison("?", [1], "small", ["rouge1"], parameters_within=within)
        for name in ("large", "other"):
            comparison.check_parameters(allowed, name, 120, "small", 100)

    compare(0.25)
    compare({"large": 0.25, "other": 0.2})
    with pytest.raises(RecipeError, match=r"'other' has 120 .*allows 3\.0%"):
        compare({"large": 0.25})


def test_seeds_are_not_overridden(file):
    for overrides in (["--seed", "3"], ["--seed=3"], {"seed": 3}):
        with pytest.raises(RecipeError, match="seed cannot be changed"):
            run_sweep(file, overrides)


def test_what_a_comparison_needs(content, tmp_path):
    del content["comparison"]["seeds"]
    with pytest.raises(RecipeError, match="comparison: seeds is missing"):
        read_comparison(write(tmp_path / "a.yaml", content))
    content["comparison"] = 3
    with pytest.raises(RecipeError, match="comparison must be a mapping of names to values, got 3"):
        run_sweep(write(tmp_path / "a.yaml", content))
    del content["comparison"]
    assert read_comparison(write(tmp_path / "a.yaml", content)) is None
    with pytest.raises(RecipeError, match="has no comparison"):
        run_comparison(tmp_path / "a.yaml")


def test_perplexities_of_checkpoints_with_different_tokenizers_are_not_compared(
    content, file, tmp_path, tokenizer, monkeypatch
):
    monkeypatch.setattr(comparison, "run_training", no_training)
    for number, name in enumerate(content["variants"]):
        model, processor = load_model_and_processor(load_recipe(file, (), "encoder", 1).model)
        if number:
            processor.tokenizer.add_tokens("railing")
            model.resize_token_embeddings(len(processor.tokenizer))
        model.save_pretrained(tmp_path / name)
        processor.save_pretrained(tmp_path / name)
        content["variants"][name] = {"model": {"model_name_or_path": str(tmp_path / name)}}
    content["model"] = {}
    content["comparison"] |= {"parameters_within": 0.5, "differs": {"checkpoint": "which begins better?"}}
    with pytest.raises(RecipeError, match=r"decoder' and its twin 'encoder' cannot be .* different vocabularies \("):
        run_sweep(write(tmp_path / "a.yaml", content))
    (tmp_path / "decoder").rename(tmp_path / "moved")
    with pytest.raises(RecipeError, match=r"if another recipe makes it, run that one first"):
        run_sweep(write(tmp_path / "a.yaml", content))
    (tmp_path / "moved").rename(tmp_path / "decoder")
    content["comparison"]["metrics"] = ["rouge1"]
    with pytest.raises(pytest.fail.Exception, match="nothing is to be trained"):
        run_sweep(write(tmp_path / "a.yaml", content))


def test_training_documents_in_the_test_data_are_refused(content, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "run_training", no_training)
    test = [json.loads(line) for line in Path(content["data"]["test"]).read_text().splitlines()]
    rows = [{"id": "t7", "text": DOCUMENTS[1] + " And so on.", "summary": "Else."}]
    content["data"]["test"] = write_rows(tmp_path / "test.jsonl", test + rows)
    with pytest.raises(RecipeError, match=r"2 of 4 training documents share text with 4 test .* t7 \("):
        run_sweep(write(tmp_path / "a.yaml", content))
    # Nor may those of a warm-up.
    content["data"]["test"] = write_rows(tmp_path / "test.jsonl", test)
    warm_up = write_rows(tmp_path / "warm_up.jsonl", [{"id": "w3", "text": DOCUMENTS[0]}])
    content["comparison"]["check_overlap"] = [warm_up]
    with pytest.raises(RecipeError, match=r"warm_up\.jsonl: 1 of 1 training documents share text .* w3 and test"):
        run_sweep(write(tmp_path / "a.yaml", content))
    # A file without documents is no clean one.
    content["comparison"]["check_overlap"] = [write_rows(tmp_path / "empty.jsonl", [])]
    with pytest.raises(RecipeError, match=r"no training documents were found for .*empty\.jsonl"):
        run_sweep(write(tmp_path / "a.yaml", content))
    # Of one file, by its splits.
    rows = [{"split": "train", "text": DOCUMENTS[0]}, {"split": "test", "text": DOCUMENTS[0]}]
    one = write_rows(tmp_path / "one.jsonl", [{**row, "summary": "A."} for row in rows])
    content["data"] |= {"train": one, "train_split": "train", "test": None, "test_split": "test"}
    content["comparison"]["check_overlap"] = True
    with pytest.raises(RecipeError, match="1 of 1 training documents share text with 1 test"):
        run_sweep(write(tmp_path / "a.yaml", content))
    # By whichever name the rows have it; and all of a file whose own name says it.
    one = write_rows(tmp_path / "one.jsonl", [{**row, "split": row["split"].upper(), "summary": "A."} for row in rows])
    with pytest.raises(RecipeError, match="1 of 1 training documents share text with 1 test"):
        run_sweep(write(tmp_path / "a.yaml", content))
    held = write_rows(tmp_path / "test.jsonl", [{"split": "held", "text": DOCUMENTS[0], "summary": "A."}])
    content["data"] |= {"test": held, "test_split": "test"}
    with pytest.raises(RecipeError, match="1 of 1 training documents share text with 1 test"):
        run_sweep(write(tmp_path / "a.yaml", content))
    # Nothing that was looked at is nothing found.
    held = write_rows(tmp_path / "held.jsonl", [{"split": "train", "text": DOCUMENTS[0], "summary": "A."}])
    content["data"] |= {"test": held}
    with pytest.raises(RecipeError, match="no test documents were found for the split 'test'"):
        run_sweep(write(tmp_path / "a.yaml", content))


def test_a_text_in_several_files_is_no_formula(content, tmp_path, monkeypatch):
    """What stands in more than ten documents counts for a licence or the like; copies in a warm-up do not."""
    monkeypatch.setattr(comparison, "run_training", no_training)
    passage = "the old bridge over the river was closed for nine days after a storm took its railing"
    rows = [{"id": f"d{n}", "text": f"{passage} number {n}", "summary": "A."} for n in range(8)]
    content["data"]["train"] = write_rows(tmp_path / "train.jsonl", rows[:6])
    content["data"]["test"] = write_rows(tmp_path / "test.jsonl", [{"text": f"So {passage}.", "summary": "A."}])
    content["comparison"]["check_overlap"] = [write_rows(tmp_path / "warm_up.jsonl", rows)]
    with pytest.raises(RecipeError, match=r"train\.jsonl: 6 of 6 training documents share text with 1 test"):
        run_sweep(write(tmp_path / "a.yaml", content))


@pytest.mark.usefixtures("no_drawing")
def test_training_documents_that_cannot_be_looked_at_are_not_called_clean(content, tmp_path, monkeypatch):
    """A folder, or a data set of the Hub."""
    monkeypatch.setattr(comparison, "run_training", finish(EQUAL))
    monkeypatch.setattr(comparison, "count_parameters", lambda recipes: dict.fromkeys(recipes, 1000))
    folder = tmp_path / "rows"
    folder.mkdir()
    Path(content["data"]["train"]).rename(folder / "train.jsonl")
    content["data"]["train"] = str(folder)
    content["comparison"]["metrics"] = ["rouge1"]
    text = run_sweep(write(tmp_path / "a.yaml", content))["table"]
    assert "Overlap: not checked (the training data are in no file)." in text
    content["comparison"]["check_overlap"] = [content["data"]["test"]]
    with pytest.raises(RecipeError, match="check_overlap: the training data are in no file"):
        run_sweep(write(tmp_path / "a.yaml", content))


def test_the_documents_of_every_pair_are_looked_at(content, tmp_path, monkeypatch):
    """Another pair may have other data."""
    monkeypatch.setattr(comparison, "run_training", no_training)
    content["variants"] |= {name: {"data": {"train": content["data"]["test"]}} for name in ("c", "d")}
    content["comparison"]["twin"] = {"decoder": "encoder", "d": "c"}
    with pytest.raises(RecipeError, match="3 of 3 training documents share text with 3 test"):
        run_sweep(write(tmp_path / "a.yaml", content))


def finish(losses):
    """Makes runs that take no time."""

    def run(recipe, deadline=None):
        folder = Path(recipe.training.output_dir)
        folder.mkdir(parents=True)
        seed, variant = recipe.training.seed, folder.parent.name
        values = [10.0 * seed, 20.0, 30.0 + (5 if variant == "decoder" else 0)]
        found = comparison_scores(values)
        found.save(folder / "document_scores.json")
        rows = [{"summary": f"By {variant}.", "reference": f"A {number}."} for number in range(3)]
        (folder / "predictions_test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        results = {
            "test": {"rouge1": found.metrics["rouge1"].score()},
            "parameters": 1000,
            "cost": {"training_seconds": 90.0, "sittings": 1, "peak_memory": 2**30, "memory_of": "CUDA"}
            | {"source_tokens": 12345},
            "machine": {"device": "H", "processes": 1, "precision": "bfloat16" if variant == "decoder" else "float32"},
            "code": {"hier_models": "0", "source": "abc", "commit": "f" * 40 + "+"},
            "versions": {"transformers": "5", "torch": "2"},
            "recipe": recipe.as_dict(),
        }
        history = [{"step": step, "eval_loss": loss} for step, loss in losses[variant].items()]
        history += [{"step": step, "loss": 2.0} for step in losses[variant]]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        (folder / "results.json").write_text(json.dumps(results, default=str))
        return results

    return run


def comparison_scores(values):
    from hier_models.metrics.document_scores import means

    return DocumentScores([str(i) for i in range(len(values))], means({"rouge1": values}))


@pytest.fixture
def no_drawing(monkeypatch):
    """It takes longer than all else."""
    monkeypatch.setattr(comparison_report, "draw_curves", lambda path, title, curves: path.touch())


@pytest.mark.usefixtures("no_drawing")
def test_the_table(content, tmp_path, monkeypatch):
    losses = {"encoder": {1: 3.0, 2: 2.0, 3: 2.5}, "decoder": {1: 3.0, 2: 2.9, 3: 2.8}}
    monkeypatch.setattr(comparison, "run_training", finish(losses))
    content["comparison"] |= {"metrics": ["rouge1"], "differs": {"learning_rate": "as its paper has it"}}
    change(content, "variants", "decoder", "training", learning_rate=0.5)
    found = run_sweep(write(tmp_path / "a b.yaml", content), ["--num_proc", "1"])
    lines = found["table"].splitlines()
    assert lines[2] == (
        "| variant | rouge1 | against encoder | parameters | minutes | memory | source tokens | best step |"
    )
    # (10 + 20 + 30) / 3 and (20 + 20 + 30) / 3; for the decoder 5 more on the last of three documents.
    assert lines[4] == "| encoder | 21.67 ± 2.36 |  | 1,000 | 1.5 | 1,024 MB | 12,345 | 2, 2 of 3 |"
    assert lines[5].startswith("| decoder | **23.33 ± 2.36** | +1.67 [+0.000, +5.00] | 1,000 | ")
    assert lines[5].endswith("| 3, 3 of 3 (still improving) |")
    text = found["table"]
    assert "4 of 4 runs are done (seeds 1, 2). Scores are of 3 test documents" in text
    assert "**Still improving** at the last evaluation, and by more than 2% in the last third of the" in text
    assert "with these seeds: decoder (1, 2)" in text
    assert "Other than the model differ, on purpose: learning_rate (as its paper has it)." in text
    assert "none of 4 training documents shares text with 3 test documents" in text
    assert "what tensors took on the GPU" in text
    examples = (tmp_path / "out" / "examples.md").read_text()
    assert examples.count("> By decoder.") == 3
    assert "### encoder (rouge1 10.000)" in examples
    assert (
        "bfloat16 on H; hier_models 0 (source abc, commit ffffffffffff with changes), transformers 5, torch 2." in text
    )
    assert "**The runs are of different precision.**" in text
    assert lines[-1] == f"    hier-models train '{tmp_path / 'a b.yaml'}' --num_proc 1"


def test_learning_curves(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(Axes, "plot", lambda self, *args, **kwargs: lines.append((list(args), kwargs["label"])))
    curves = {
        "a": {
            1: {"train": {1: 3.0, 2: 2.0}, "validation": {2: 2.5}},
            2: {"train": {2: 4.0, 3: 1.0}, "validation": {}},
        },
        "b": {1: {"train": {1: 5.0}, "validation": {1: 6.0}}},
        "c": {},
    }
    # A question is no formula, whatever it asks of.
    comparison_report.draw_curves(tmp_path / "curves.png", "Which of $n_$ and $m^$?", curves)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert lines == [([[2], [3.0]], "a (2 seeds)"), ([[1], [5.0]], "b"), ([[1], [6.0]], "b")]


def test_a_curve_is_of_the_seeds_that_have_one(tmp_path, monkeypatch):
    """One that diverged at once is none of them, and one that was ended ends no other's."""
    lines = []
    monkeypatch.setattr(Axes, "plot", lambda self, *args, **kwargs: lines.append((list(args), kwargs["label"])))
    sound, ended = {1: 3.0, 2: 2.0, 3: 1.0}, {1: 5.0, 2: math.nan}
    curves = {
        "a": {1: {"train": sound, "validation": sound}, 2: {"train": {1: math.nan}, "validation": {}}},
        "b": {1: {"train": sound, "validation": sound}, 2: {"train": ended, "validation": {1: 5.0}}},
    }
    comparison_report.draw_curves(tmp_path / "curves.png", "Which?", curves)
    a, b = ([[1, 2, 3], [3.0, 2.0, 1.0]], "a"), ([[1, 2, 3], [4.0, 2.0, 1.0]], "b (2 seeds)")
    assert lines == [a, b, a, b]


def test_a_seed_that_diverged_hides_no_curve_of_others(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(Axes, "plot", lambda self, *args, **kwargs: lines.append(list(args)))
    curves = {
        "a": {
            1: {"train": {1: 3.0, 2: 2.0, 3: 1.0}, "validation": {3: math.inf}},
            2: {"train": {1: 4.0, 2: math.nan, 3: math.nan}, "validation": {3: 5.0}},
            3: {"train": {1: 2.0, 2: 1.0, 3: math.inf}, "validation": {3: 7.0}},
        },
        "b": {1: {"train": {1: math.nan}, "validation": {1: math.nan}}},
    }
    comparison_report.draw_curves(tmp_path / "curves.png", "Which?", curves)
    assert lines == [[[1, 2, 3], [3.0, 1.5, 1.0]], [[3], [6.0]]]


@pytest.mark.usefixtures("no_drawing")
def test_a_report_without_a_finished_run_says_nothing_else(content, tmp_path):
    settings = read_comparison(write(tmp_path / "a.yaml", content))
    runs = {"encoder": {}, "decoder": {}}
    found = comparison_report.write_report(tmp_path, settings, {}, runs, "the command", "none")
    said = "0 of 4 runs are done (seeds 1, 2)."
    assert found["table"] == f"# {settings.question}\n\n{said}\n\n    the command"


def test_what_diverged_is_not_the_best_nor_hides_it(tmp_path):
    def variants(*means):
        metrics = ({"loss": {"mean": mean, "higher_is_better": False}} for mean in means)
        return {name: {"metrics": metric} for name, metric in zip("abc", metrics, strict=False)}

    assert comparison_report._best("loss", variants(math.nan, 1.0, 2.0)) == ["b"]
    assert comparison_report._best("loss", variants(math.nan)) == []
    history = [{"step": step, "eval_loss": loss} for step, loss in ((1, math.nan), (2, 3.0), (3, 2.0))]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}), encoding="utf-8")
    curve = comparison_report._curve(tmp_path, {"recipe": {"training": {"metric_for_best_model": "eval_loss"}}})
    assert curve["best_step"] == 3
    assert curve["still_improving"]


EQUAL = {"encoder": {1: 3.0}, "decoder": {1: 3.0}}


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"per_device_train_batch_size": 1}, "total_train_batch_size=2, and here it is 1"),
        ({"load_best_model_at_end": False}, "load_best_model_at_end=True, and here it is False"),
        ({"eval_steps": 1, "save_steps": 1}, "eval_steps=2, and here it is 1"),
        ({"adam_epsilon": 0.1}, "adam_epsilon=1e-08, and here it is 0.1"),
        ({"generation_num_beams": 5}, "generation_num_beams=None, and here it is 5"),
    ],
)
def test_a_recipe_that_was_edited_in_between_is_refused(content, tmp_path, monkeypatch, changes, says):
    """Half of the runs would be of another recipe than the other half."""
    content["comparison"]["metrics"] = ["rouge1"]
    monkeypatch.setattr(comparison, "run_training", finish(EQUAL))
    run_sweep(write(tmp_path / "a.yaml", content))
    content["training"] |= changes
    with pytest.raises(RecipeError, match=f"seed_1 holds a finished run with {says}"):
        run_sweep(write(tmp_path / "a.yaml", content))


class Stopped(Exception):
    """A run that ends before it is finished."""


def test_an_interrupted_run_goes_on_with_its_own_recipe_only(content, tmp_path, monkeypatch):
    def interrupted(recipe, deadline):
        folder = Path(recipe.training.output_dir)
        (folder / "checkpoint-2").mkdir(parents=True, exist_ok=True)
        (folder / "recipe.json").write_text(json.dumps({"recipe": recipe.as_dict(), "data": {}}, default=str))
        raise Stopped

    monkeypatch.setattr(comparison, "run_training", interrupted)
    for learning_rate in (0.01, 0.01):
        with pytest.raises(Stopped):
            run_sweep(write(tmp_path / "a.yaml", content), {"learning_rate": learning_rate})
    with pytest.raises(
        RecipeError, match=r"encoder/seed_1 holds an interrupted run with learning_rate=0\.01, and her"
    ):
        run_sweep(tmp_path / "a.yaml", {"learning_rate": 0.1})
    # Without a checkpoint there is nothing of it to go on with.
    (tmp_path / "out" / "encoder" / "seed_1" / "checkpoint-2").rmdir()
    with pytest.raises(Stopped):
        run_sweep(tmp_path / "a.yaml", {"learning_rate": 0.1})


@pytest.mark.usefixtures("no_drawing")
def test_one_variant_of_a_comparison(content, tmp_path, monkeypatch):
    """With its seeds and in its folders, and checked; the comparison does not repeat it."""
    monkeypatch.setattr(comparison, "run_training", finish(EQUAL))
    content["comparison"]["metrics"] = ["rouge1"]
    monkeypatch.setattr(comparison, "count_parameters", lambda recipes: dict.fromkeys(recipes, 1000))
    file = write(tmp_path / "a.yaml", content)
    result = CliRunner().invoke(cli.app, ["train", str(file), "--variant", "decoder"])
    assert result.exit_code == 0, result.stderr
    assert "| decoder | **23.33 ± 2.36** |" in result.stdout
    assert "2 of 4 runs are done" in result.stdout
    assert f"are in {tmp_path / 'out'}" in result.stdout
    assert sorted(path.name for path in (tmp_path / "out" / "decoder").iterdir()) == ["seed_1", "seed_2"]
    # What was done before shows after the next run.
    steps = []
    report = comparison.write_report
    monkeypatch.setattr(comparison, "write_report", lambda *args: steps.append(report(*args)["results"]) or {})
    run_sweep(file)
    assert [(found["finished_runs"], list(found["variants"])) for found in steps] == [
        (3, ["encoder", "decoder"]),
        (4, ["encoder", "decoder"]),
    ]
    assert steps[0]["command"] == f"hier-models train {file}"
    for arguments, says in (
        (["--variant", "c"], "has no variant 'c'; its variants are encoder, decoder"),
        (["--variant", "decoder", "--learning_rate", "1"], "holds a finished run with learning_rate=0.01"),
    ):
        result = CliRunner().invoke(cli.app, ["train", str(file), *arguments])
        assert result.exit_code == 2
        assert says in " ".join(result.stderr.split())


@pytest.mark.usefixtures("no_drawing")
def test_what_a_reader_of_the_table_must_know(content, tmp_path, monkeypatch):
    """Which model is scored, which documents are compared, and which metrics there are not."""
    run = finish({**EQUAL, "alone": {1: 3.0}})

    def run_training(recipe, deadline):
        results = run(recipe)
        if "encoder" in recipe.training.output_dir:  # it scored one document more
            folder = Path(recipe.training.output_dir)
            comparison_scores([10.0, 20.0, 30.0, 4.0]).save(folder / "document_scores.json")
            with (folder / "predictions_test.jsonl").open("a") as stream:
                stream.write('{"summary": "One more.", "reference": "A 3."}\n')
        return results

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"] |= {"metrics": ["rouge1", "rouge2"], "twin": {"decoder": "encoder"}}
    content["variants"]["alone"] = {"training": {"load_best_model_at_end": False}}
    text = run_sweep(write(tmp_path / "a.yaml", content))["table"]
    assert (
        "Scored is of each run the model with the best validation loss (encoder, decoder) or the last model (alone)."
    ) in text
    assert "Compared on the documents that both scored: decoder against encoder rouge1: 3." in text
    assert "No test document has scores of rouge2." in text


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize(
    ("longer", "says"),
    [
        ({"encoder": {1: [4], 2: [4]}, "decoder": {1: [4], 2: [4]}}, "so many steps: 4 (encoder, decoder). Unless"),
        ({"decoder": {1: [2, 4]}}, "so many steps: never (encoder, decoder (2)); 2 and 4 (decoder (1)). Unless"),
        ({}, None),
    ],
)
def test_runs_that_were_made_longer_are_named(content, tmp_path, monkeypatch, longer, says):
    run = finish(EQUAL)

    def run_training(recipe, deadline):
        of_seeds = longer.get(Path(recipe.training.output_dir).parent.name, {})
        return run(recipe) | {"made_longer_after": of_seeds.get(recipe.training.seed, [])}

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"]["metrics"] = ["rouge1"]
    text = run_sweep(write(tmp_path / "a.yaml", content))["table"]
    assert (says or "Scored is") in text
    assert ("Made longer" in text) == (says is not None)


@pytest.mark.usefixtures("no_drawing")
@pytest.mark.parametrize("score", [float("inf"), float("nan")])
def test_a_run_that_diverged_does_not_end_the_comparison(content, tmp_path, monkeypatch, score):
    run = finish(EQUAL)

    def run_training(recipe, deadline):
        results = run(recipe)
        if recipe.training.output_dir.endswith("decoder/seed_2"):
            results["test"]["rouge1"] = score
            comparison_scores([score] * 3).save(Path(recipe.training.output_dir) / "document_scores.json")
        return results

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"]["metrics"] = ["rouge1"]
    found = run_sweep(write(tmp_path / "a.yaml", content))
    assert found["results"]["finished_runs"] == 4
    assert f"| decoder | {score} | " in found["table"].replace("*", "")
    assert "| encoder | 21.67 ± 2.36 |" in found["table"].replace("*", "")
    assert "so that a score is no finite number, with these seeds: decoder (2)" in found["table"]


@pytest.mark.usefixtures("no_drawing")
def test_a_training_that_diverged_is_named_and_ends_no_comparison(content, tmp_path, monkeypatch):
    """Whatever the metrics are, and where other seeds are finished or none."""
    run, ran = finish(EQUAL), []

    def run_training(recipe, deadline):
        ran.append("/".join(recipe.training.output_dir.split("/")[-2:]))
        if ran[-1] == "encoder/seed_1":
            return run(recipe)
        folder = Path(recipe.training.output_dir)
        folder.mkdir(parents=True)
        history = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": math.nan}]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        raise DivergedError("training: the loss is nan")

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"]["metrics"] = ["rouge1"]
    found = run_sweep(write(tmp_path / "a.yaml", content))
    assert len(ran) == 4
    assert found["results"]["finished_runs"] == 1
    assert "no finite number, with these seeds: encoder (2); decoder (1, 2)." in found["table"]
    assert "decoder,2,train,2," in (tmp_path / "out" / "curves.csv").read_text()


@pytest.mark.usefixtures("no_drawing")
def test_a_loss_that_is_no_number_is_named_whatever_the_metrics(content, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "run_training", finish({"encoder": {1: 3.0}, "decoder": {1: math.inf}}))
    content["comparison"]["metrics"] = ["rouge1"]
    assert "with these seeds: decoder (1, 2)." in run_sweep(write(tmp_path / "a.yaml", content))["table"]


@pytest.mark.usefixtures("no_drawing")
def test_what_another_call_finishes_meanwhile_is_reported_and_not_run_again(content, tmp_path, monkeypatch):
    """As with a variant on each of two GPUs."""

    run, ran = finish(EQUAL), []

    def run_training(recipe, deadline):
        results = run(recipe)
        ran.append("/".join(recipe.training.output_dir.split("/")[-2:]))
        if ran == ["encoder/seed_1"]:
            another = load_recipe(file, (), "decoder", 1)
            set_accumulation(another)
            run(another)
        return results

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"]["metrics"] = ["rouge1"]
    file = write(tmp_path / "a.yaml", content)
    found = run_sweep(file)
    assert ran == ["encoder/seed_1", "encoder/seed_2", "decoder/seed_2"]
    assert sorted(found["runs"]["decoder"]) == [1, 2]
    assert found["results"]["finished_runs"] == 4


@pytest.mark.usefixtures("no_drawing")
def test_a_run_that_another_call_trains_is_left_to_it(content, tmp_path, monkeypatch, caplog):
    """As where the same comparison is begun twice."""
    run, ran = finish(EQUAL), []

    def run_training(recipe, deadline):
        ran.append("/".join(recipe.training.output_dir.split("/")[-2:]))
        if ran[-1] == "encoder/seed_2":
            raise RunningError("training: another process is training it")
        return run(recipe)

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"]["metrics"] = ["rouge1"]
    found = run_sweep(write(tmp_path / "a.yaml", content))
    assert ran == ["encoder/seed_1", "decoder/seed_1", "encoder/seed_2", "decoder/seed_2"]
    assert found["results"]["finished_runs"] == 3
    assert "another process is training it; going on with the next run" in caplog.text


@pytest.mark.usefixtures("no_drawing")
def test_one_report_is_written_at_a_time(content, tmp_path, monkeypatch):
    """Else one that looked before another run was finished could be the last to be written."""
    monkeypatch.setattr(comparison, "run_training", finish(EQUAL))
    report, seen = comparison.write_report, []

    def write_report(folder, *args):
        with held(folder) as is_ours:
            seen.append(is_ours)
        return report(folder, *args)

    monkeypatch.setattr(comparison, "write_report", write_report)
    content["comparison"]["metrics"] = ["rouge1"]
    run_sweep(write(tmp_path / "a.yaml", content))
    assert seen == [False] * 4


@pytest.mark.usefixtures("no_drawing")
def test_models_that_hardly_read_are_named(content, tmp_path, monkeypatch):
    """A comparison of models that write the same whatever they are given is none."""
    run, of_another = finish(EQUAL), {"encoder": (24.0, 20.5), "decoder": (200.0, 300.0)}

    def run_training(recipe, deadline):
        results = run(recipe)
        name, seed = recipe.training.output_dir.split("/")[-2:]
        other = of_another[name][("seed_1", "seed_2").index(seed)]
        return {**results, "test": {**results["test"], "perplexity": 20.0, "perplexity_of_another_source": other}}

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"]["metrics"] = ["rouge1"]
    text = run_sweep(write(tmp_path / "a.yaml", content))["table"]
    lines = text.splitlines()
    assert [line.split(" | ")[3] for line in (lines[2], *lines[4:6])] == [
        "perplexity, another source",
        "22.25",
        "250.00",
    ]
    assert "**Hardly reading**, with less than 5% between the two values of perplexity: encoder (2), by their" in text
    assert "Perplexity, another source: that of the references beside the source of another document" in text
    assert [row["perplexity_of_another_source"] for row in table(tmp_path / "out")] == ["22.25", "250.0"]


@pytest.mark.usefixtures("no_drawing")
def test_readers_that_hardly_hear_the_question_are_named(content, tmp_path, monkeypatch):
    """F1 is better where it is higher: one that is as high with another question is of no reader."""
    run, of_another = finish(EQUAL), {"encoder": (9.0, 9.8), "decoder": (2.0, 12.0)}

    def run_training(recipe, deadline):
        results = run(recipe)
        name, seed = recipe.training.output_dir.split("/")[-2:]
        other = of_another[name][("seed_1", "seed_2").index(seed)]
        return {**results, "test": {**results["test"], "f1": 10.0, "f1_of_another_question": other}}

    monkeypatch.setattr(comparison, "run_training", run_training)
    content["comparison"]["metrics"] = ["rouge1"]
    text = run_sweep(write(tmp_path / "a.yaml", content))["table"]
    lines = text.splitlines()
    assert [line.split(" | ")[3] for line in (lines[2], *lines[4:6])] == ["f1, another question", "9.40", "7.00"]
    assert (
        "**Hardly reading**, with less than 5% between the two values of f1: encoder (2); decoder (2), by their seeds."
    ) in text


@pytest.mark.usefixtures("no_drawing")
def test_each_variant_with_a_twin_of_its_own(content, tmp_path, monkeypatch):
    losses = {name: {1: 3.0} for name in ("encoder", "decoder", "again")}
    monkeypatch.setattr(comparison, "run_training", finish(losses))
    content["variants"]["again"] = None
    content["comparison"] |= {"metrics": ["rouge1"], "twin": {"again": "encoder"}, "seeds": [3]}
    found = run_sweep(write(tmp_path / "a.yaml", content))
    lines = found["table"].splitlines()
    assert "| rouge1 | against twin |" in lines[2]
    assert lines[5].startswith("| decoder | **28.33** |  |")
    assert lines[6].startswith("| again | 26.67 | +0.000 [+0.000, +0.000] (encoder) |")


def test_without_matplotlib(content, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(comparison, "run_training", finish({"encoder": {1: 3.0}, "decoder": {1: 3.0}}))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    content["comparison"]["metrics"] = ["rouge1"]
    run_sweep(write(tmp_path / "a.yaml", content))
    assert not (tmp_path / "out" / "learning_curves.png").exists()
    assert 'pip install "hier_models[plots]"' in caplog.text
    assert (tmp_path / "out" / "curves.csv").is_file()


def test_a_tokenizer_is_fitted_once_for_all_sizes(content, tmp_path, monkeypatch):
    from hier_models.training.tasks import summarization

    fitted = []
    fit = summarization.train_word_level
    monkeypatch.setattr(
        summarization, "train_word_level", lambda *args, **kwargs: fitted.append(1) or fit(*args, **kwargs)
    )
    del content["model"]["tokenizer"]
    content["model"] |= {"model_type": "hat_bart", "tokenizer_words": 10}
    content["variants"]["larger"] = {"model": {"tokenizer_words": 20}}
    file = write(tmp_path / "a.yaml", content)
    sizes = comparison.count_parameters({name: load_recipe(file, (), name, 1) for name in content["variants"]})
    assert len(fitted) == 2
    assert sizes["encoder"] < sizes["larger"] == sizes["encoder"] + 10 * 32


def test_the_size_of_a_model_is_that_of_its_run(content, tmp_path, monkeypatch):
    from hier_models.training import run_training

    file = write(tmp_path / "a.yaml", content)
    found = run_training(
        load_recipe(file, {"max_steps": 1, "eval_strategy": "no", "load_best_model_at_end": False}, "decoder", 2)
    )
    assert (
        found["parameters"] == comparison.count_parameters({"decoder": load_recipe(file, (), "decoder", 1)})["decoder"]
    )
    assert found["recipe"]["training"]["output_dir"] == str(tmp_path / "out" / "decoder" / "seed_2")
    assert found["recipe"]["training"]["seed"] == 2
    kept = json.loads((tmp_path / "out" / "decoder" / "seed_2" / "recipe.json").read_text())
    assert kept["recipe"]["training"]["learning_rate"] == found["recipe"]["training"]["learning_rate"]
    assert kept["recipe"]["run"]["total_train_batch_size"] == found["recipe"]["run"]["total_train_batch_size"] == 2
    assert kept["data"] == found["data"]
    # Files that were written anew since.
    recipe = load_recipe(file, {"max_steps": 1, "eval_strategy": "no", "load_best_model_at_end": False}, "decoder", 2)
    assert finished_run(recipe)["data"].keys() == {"train", "validation", "test"}
    Path(content["data"]["test"]).write_text('{"text": "A.", "summary": "B."}')
    with pytest.raises(RecipeError, match=r"seed_2 holds a finished run, and .*/test\.jsonl has changed since"):
        finished_run(recipe)


def test_a_run_whose_checkpoint_was_trained_anew_is_not_taken_for_finished(content, tmp_path):
    from hier_models.training import run_training
    from hier_models.training.arguments import set_accumulation

    first = load_recipe(
        write(tmp_path / "a.yaml", content), {"max_steps": 1, "eval_steps": 1, "save_steps": 1}, "encoder", 1
    )
    run_training(first)
    begun = first.training.output_dir
    values = {"train": content["data"]["train"], "model_name_or_path": begun, "max_steps": 1, "use_cpu": True}
    values |= {"max_source_length": 32, "max_target_length": 16}
    values |= {"output_dir": str(tmp_path / "second"), "report_to": "none", "save_strategy": "no"}
    assert run_training(load_recipe(None, values))["data"].keys() == {"train", "checkpoint"}
    recipe = load_recipe(None, values)
    set_accumulation(recipe)
    assert finished_run(recipe) is not None
    weights = Path(begun) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + bytes(4))
    with pytest.raises(
        RecipeError, match=r"model: checkpoint: .*second holds a finished run, and .* has changed since"
    ):
        finished_run(recipe)


def test_smoke(file, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "run_training", no_training)
    small = [f"--{name}=1" for name in ("max_steps", "eval_steps", "save_steps")]
    result = CliRunner().invoke(cli.app, ["train", str(file), "--smoke", *small])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("| encoder | ") == result.stdout.count("| decoder | ") == 1
    assert "All variants run. What they made is deleted." in result.stdout
    assert not (tmp_path / "out").exists()

"""examples/experiments/switched_off.py on tiny runs."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
import typer
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoProcessor
from typer.testing import CliRunner

from hier_models.training import DataArguments, load_recipe, run_training
from tests.conftest import SUMMARIES, TURNS
from tests.experiments.scripts import load_script


SIZES = {"d_model": 16, "decoder_layers": 1, "init_std": 0.5} | dict.fromkeys(
    ("encoder_attention_heads", "decoder_attention_heads"), 2
)
TOP_DOWN = {"bottom_up_layers": 1, "top_down_layers": 1, "segment_layers": 1, "attention_window": 4}
TOP_DOWN |= {"pooling_kernel": 4, "pooling_stride": 4}
FAMILIES = {
    "hat_bart": {"encoder_layers": 1, "num_segments": 3},
    "top_down_transformer": TOP_DOWN,
    "top_down_transformer-concat": {**TOP_DOWN, "top_down_update": "concat"},
    "top_down_transformer-oracle": {**TOP_DOWN, "pooling": "importance"},
    "highlight_transformer": {"encoder_layers": 2, "highlight_layers": 1, "highlight_heads": 1, "brightness": 9.0},
    "highlight_transformer-listed": {
        "encoder_layers": 2,
        "highlight_layers": [1],
        "highlight_heads": 1,
        "brightness": 9.0,
    },
}
DOCUMENTS = [["The bridge is closed. A crack.", "No bridge today."], ["Bees dance.", "The dance of bees shows a way."]]


def recipe(tmp_path, file, folder):
    return {
        "tokenizer": str(tmp_path / "tokenizer"),
        "max_position_embeddings": 64,
        "train": str(file),
        "test": str(file),
        "max_target_length": 20,
        "max_length": 5,
        "max_steps": 1,
        "output_dir": str(folder),
        "report_to": "none",
        "use_cpu": True,
    }


@pytest.fixture
def make_run(tmp_path, tokenizer):
    def make(name, **changes):
        family = name.partition("-")[0]
        tokenizer.save_pretrained(tmp_path / "tokenizer")
        rows = [{"turns": [[turn["role"], turn["content"]] for turn in TURNS[i:]]} for i in range(2)]
        if family != "hat_bart":
            rows = [{"text": " ".join(texts)} for texts in DOCUMENTS]
        if family == "highlight_transformer":
            rows = [{"documents": texts, "phrases": ["bridge", "bees"]} for texts in DOCUMENTS]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps({**row, "summary": SUMMARIES[0]}) + "\n" for row in rows), encoding="utf-8")
        folder = tmp_path / name / "seed_1"
        values = recipe(tmp_path, file, folder) | {"model_type": family, "max_source_length": 64}
        values["config_overrides"] = {**SIZES, **FAMILIES[name]}
        if family == "highlight_transformer":
            values["phrases_column"] = "phrases"
        if name.endswith("oracle"):
            values["importance"] = "oracle"
        return folder, file, run_training(load_recipe(None, values | changes))["test"]["perplexity"]

    return make


def perplexity(model, processor, rows, kind):
    total = count = 0
    for row in rows:
        given = [[{"role": role, "content": text} for role, text in row[kind]]] if kind == "turns" else [row[kind]]
        extra = {"phrases": [row["phrases"]]} if row.get("phrases") else {}
        target = {"text_target": [row["summary"]], "max_target_length": 20}
        inputs = processor(**{kind: given}, **extra, **target, truncation=True)
        inputs = {name: torch.tensor(value) for name, value in inputs.items()}
        with torch.no_grad():
            loss = model(**inputs).loss
        count += inputs["labels"].numel()
        total += float(loss) * inputs["labels"].numel()
    return math.exp(total / count)


def nothing(module, inputs, outputs):
    return torch.zeros_like(outputs[0]), *outputs[1:]


def no_segments(module, inputs):
    tokens, segments = inputs[0].chunk(2, dim=-1)
    return (torch.cat([tokens, torch.zeros_like(segments)], dim=-1),)


def no_first_head(module, inputs):
    first, second = inputs[0].chunk(2, dim=-1)
    return (torch.cat([torch.zeros_like(first), second], dim=-1),)


def printed_by(folder, *options):
    app = typer.Typer()
    app.command()(load_script("switched_off").main)
    return CliRunner().invoke(app, [str(folder), *options], catch_exceptions=False).stdout


@pytest.mark.parametrize("name", FAMILIES)
def test_a_whole_model_reads_what_it_was_tested_on(make_run, name):
    folder, _, perplexity_at_test = make_run(name)
    assert f"{name}/seed_1: {perplexity_at_test:.2f}, no " in printed_by(folder)


def test_the_documents_are_read_as_at_the_test(make_run):
    condensed = {"long_documents": "condense", "max_source_length": 32}
    folder, _, perplexity_at_test = make_run("hat_bart", **condensed, max_test_documents=1)
    assert f"hat_bart/seed_1: {perplexity_at_test:.2f}, no " in printed_by(folder)
    assert printed_by(folder, "--documents", "2") != printed_by(folder)
    # A checkpoint's own way of reading, and its prefix, are taken too where the recipe says nothing.
    script = load_script("switched_off")
    data = DataArguments(**json.loads((folder / "recipe.json").read_text())["recipe"]["data"])
    processor, config = AutoProcessor.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    expected = script.read(data, "summarization", processor, config)["input_ids"]
    silent = dataclasses.replace(data, long_documents=None)
    assert script.read(silent, "summarization", processor, config)["input_ids"] == expected
    config.task_specific_params["summarization"] |= {"long_documents": "cut", "prefix": "The bridge "}
    assert script.read(silent, "summarization", processor, config)["input_ids"] != expected
    tokenizer, plain = processor.tokenizer, dataclasses.replace(silent, text_column="summary")
    (ids,) = script.read(plain, "summarization", tokenizer, config)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True).startswith("The bridge ")


@pytest.mark.parametrize("name", [name for name in FAMILIES if not name.endswith("oracle")])
def test_parts_are_switched_off(make_run, name):
    folder, file, _ = make_run(name)
    printed = printed_by(folder).strip().splitlines()[-1].removeprefix(f"{name}/seed_1: ").split(", ")
    found = {part.rpartition(" ")[0]: float(part.rpartition(" ")[2]) for part in printed}

    processor, rows = AutoProcessor.from_pretrained(folder), [json.loads(line) for line in file.open(encoding="utf-8")]
    kind = next(iter(rows[0]))
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    expected = {"": perplexity(model, processor, rows, kind)}
    if name == "hat_bart":
        hook = model.model.decoder.layers[0].hierarchical_attn.register_forward_hook(nothing)
        expected["no attention to sentences"] = perplexity(model, processor, rows, kind)
        hook.remove()
        weight = model.model.encoder.embed_segments.weight.data
        weight[:] = weight[0].clone()
        expected["one role"] = perplexity(model, processor, rows, kind)
    elif name.startswith("highlight_transformer"):
        without = [{**row, "phrases": []} for row in rows]
        expected["no highlighting"] = perplexity(model, processor, without, kind)
        model.model.encoder.layers[int(name.endswith("listed"))].self_attn.out_proj.register_forward_pre_hook(
            no_first_head
        )
        expected["no highlighted heads"] = perplexity(model, processor, rows, kind)
    else:
        layer = model.model.encoder.layers[1]
        if name.endswith("concat"):
            layer.segment_concat.register_forward_pre_hook(no_segments)
        else:
            layer.segment_attn.register_forward_hook(nothing)
        expected["no update"] = perplexity(model, processor, rows, kind)
    assert found == pytest.approx(expected, rel=2e-5)  # the rounding of float32 and of two decimals
    assert len(set(found.values())) == len(found)  # each part does something


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (None, "run is no finished run"),
        ({"run": {"task": "denoising"}, "data": {"test": "a"}}, "is a run of denoising; parts are"),
        ({"run": {"task": "summarization"}, "data": {"test": None}}, "without documents to test on"),
    ],
)
def test_runs_that_cannot_be_read(tmp_path, monkeypatch, recipe, message):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    if recipe is not None:
        Path("run/recipe.json").write_text(json.dumps({"recipe": recipe}))
    app = typer.Typer()
    app.command()(load_script("switched_off").main)
    result = CliRunner().invoke(app, ["run"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert message in result.output


def test_translations(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    file = tmp_path / "pairs.jsonl"
    rows = [{"source": texts, "target": texts[::-1]} for texts in DOCUMENTS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    folder = tmp_path / "hat_bart" / "seed_1"
    values = recipe(tmp_path, file, folder) | {"task": "translation", "max_source_length": 16}
    values["config_overrides"] = {**SIZES, "encoder_layers": 1}
    results = run_training(load_recipe(None, values))
    assert f"hat_bart/seed_1: {results['test']['perplexity']:.2f}, no attention to sentences " in printed_by(folder)
    switched_off = load_script("switched_off")
    data = load_recipe(None, values).data
    own = AutoProcessor.from_pretrained(folder), AutoConfig.from_pretrained(folder)
    few = switched_off.read(dataclasses.replace(data, max_test_documents=1), "translation", *own)
    assert 1 < len(few) < len(switched_off.read(data, "translation", *own))


def test_translations_are_read_as_the_recipe_says(tokenizer, tmp_path):
    for part, texts in (("train", DOCUMENTS[0]), ("test", DOCUMENTS[1])):
        row = {"old": texts, "new": texts[::-1], "note": ["x"]}
        (tmp_path / f"{part}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    data = DataArguments(train=str(tmp_path), train_split="train", test_split="test")
    columns = {"source_column": "old", "target_column": "new"}
    [row] = load_script("switched_off").read(data, "translation", tokenizer, None, **columns)
    assert tokenizer.decode(row["input_ids"], skip_special_tokens=True) == " ".join(DOCUMENTS[1])

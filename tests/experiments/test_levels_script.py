"""examples/experiments/levels.py on tiny models."""

import itertools
import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from hier_models import HamConfig, HamForConditionalGeneration
from hier_models.data.poems import in_vocabulary, poem_lines
from tests.experiments.scripts import load_script
from tests.ham.poems import POEMS, poem_processor


@pytest.fixture(scope="module")
def levels():
    return load_script("levels")


@pytest.fixture(scope="module")
def poems(tmp_path_factory):
    file = tmp_path_factory.mktemp("poems") / "poems.jsonl"
    file.write_text("".join(json.dumps({"lines": lines}) + "\n" for lines in POEMS), encoding="utf-8")
    return file


def make(processor, **kwargs):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "embedding_size": 16, "vocab_size": len(processor.tokenizer), "body": "gru"}
    return HamForConditionalGeneration(HamConfig(**sizes, **kwargs)).eval()


def test_distances(levels, poems):
    processor = poem_processor()
    model = make(processor, attention_depth=3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed" in name:
                weight.mul_(20)  # so that attention is not the same everywhere
    sums, lines = torch.zeros(3, dtype=torch.float64), 0
    for row in poem_lines([{"lines": poem} for poem in POEMS], processor.poem_keywords, in_vocabulary(processor)):
        if row["keyword"] is None or lines == 7:
            continue
        inputs = processor(keywords=row["keyword"], lines=row["before"], text_target=row["line"], return_tensors="pt")
        with torch.no_grad():
            attention = model(**inputs, output_attentions=True).level_attentions[0, :, 0]
        pairs = list(itertools.combinations(range(attention.shape[1]), 2))
        for level in range(3):
            parts = [0.5 * sum(abs(a - b) for a, b in zip(*attention[level, pair], strict=True)) for pair in pairs]
            sums[level] += float(sum(parts)) / len(pairs)
        lines += 1
    found = levels.distances(model, processor, poems, 7)
    torch.testing.assert_close(found, sums / 7, atol=1e-6, rtol=1e-5)
    assert found[0] > 0.001


def test_the_table(levels, poems, tmp_path):
    processor = poem_processor()
    for name, settings in (("a", {"attention_depth": 1}), ("b", {"attention_depth": 5, "level_weights": "last"})):
        model = make(processor, **settings)
        if name == "b":
            torch.nn.init.zeros_(model.get_input_embeddings().weight)
        model.save_pretrained(tmp_path / name / "seed_1")
        processor.save_pretrained(tmp_path / name / "seed_1")
    app = typer.Typer()
    app.command()(levels.main)
    folders = [str(tmp_path / name / "seed_1") for name in "ab"]
    result = CliRunner().invoke(app, [str(poems), *folders, "--lines", "3"], catch_exceptions=False)
    head, first, second = [line for line in result.stdout.splitlines() if "level" in line or "seed_1" in line]
    assert head.split() == ["model", *" ".join(f"level {level}" for level in levels.SHOWN).split()]
    assert first.split()[0] == "a/seed_1"
    assert first.split()[2:] == ["(1.00)"]
    # Without embeddings every key is the same, and so is the attention at every character.
    assert second.split()[1:] == ["0.000", "(0.00)"] * 3 + ["0.000", "(1.00)"]


def test_what_cannot_be_read_is_said(levels, tmp_path):
    processor = poem_processor()
    file = tmp_path / "poems.jsonl"
    file.write_text(json.dumps({"lines": ["鱻鱻鱻鱻鱻"] * 4}) + "\n", encoding="utf-8")
    with pytest.raises(typer.BadParameter, match=r"no line of .* has a keyword that the model knows"):
        levels.distances(make(processor), processor, file, 3)
    sizes = {"d_model": 16, "vocab_size": len(processor.tokenizer), "body": "transformer", "encoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_layers": 1}
    HamForConditionalGeneration(HamConfig(**sizes, **heads)).save_pretrained(tmp_path / "model")
    with pytest.raises(typer.BadParameter, match="has body='transformer'"):
        levels.main(file, [tmp_path / "model"])

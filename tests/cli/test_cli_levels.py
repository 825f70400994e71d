"""`hier-models inspect` of models whose attentions have levels."""

from pathlib import Path

import pytest
import torch

from hier_models import HamConfig, HamForConditionalGeneration, HamReaderConfig, HamReaderForQuestionAnswering
from tests.cli.commands import run


@pytest.fixture(autouse=True)
def checkpoints(workplace):
    model = HamForConditionalGeneration(HamConfig(vocab_size=20, d_model=8, attention_depth=3))
    with torch.no_grad():
        model.model.decoder.step.attention.level_weights.bias.copy_(torch.tensor([0.5, 0.3, 0.2]).log() / 25)
    model.save_pretrained("poet")
    sizes = {"reader": "r_net", "vocab_size": 20, "embedding_size": 8, "hidden_size": 4, "attention_depth": 2}
    HamReaderForQuestionAnswering(HamReaderConfig(**sizes)).save_pretrained("reader")


def test_levels_of_a_model():
    pytest.importorskip("matplotlib")
    result = run("inspect", "-m", "poet", "-o", "levels.html", "-o", "levels.png")
    assert result.stdout.splitlines()[-1] == "| model.decoder.step.attention | 0.500 | 0.300 | 0.200 |"
    assert "Levels of attention: poet" in Path("levels.html").read_text(encoding="utf-8")
    assert Path("levels.png").read_bytes().startswith(b"\x89PNG")
    assert "Written: levels.html\nWritten: levels.png" in result.stderr
    run("inspect", "-m", "poet", "-o", "levels.png", "--title", "costs $5, or $x_{ b$")


def test_levels_of_a_reader():
    lines = run("inspect", "-m", "reader", "--title", "Both").stdout.splitlines()
    assert lines[0] == "| attention | 1 | 2 |"
    assert [line.partition("| 0.")[2] for line in lines[2:]] == ["900 | 0.100 |"] * 2
    assert "<title>Both</title>" in Path("attention.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "given", [["text.txt"], ["--num-beams", "2"], ["--document", "2"], ["--device", "cpu"], ["--dtype", "float32"]]
)
def test_a_document_is_refused(given):
    Path("text.txt").write_text("A text.", encoding="utf-8")
    assert "the same for every document" in " ".join(run("inspect", "-m", "poet", *given, code=2).stderr.split())
    assert not Path("attention.html").exists()

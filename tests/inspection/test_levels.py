"""How much levels count: read from models, as a table and as a picture."""

import pytest
import torch

from hier_models import (
    HamConfig,
    HamForConditionalGeneration,
    HamReaderConfig,
    HamReaderForQuestionAnswering,
    HierarchicalAttention,
)
from hier_models.inspection import LevelWeights, level_weights


def make_model(**kwargs):
    torch.manual_seed(0)
    return HamForConditionalGeneration(HamConfig(vocab_size=20, d_model=8, attention_depth=3, **kwargs))


def test_weights_of_a_model():
    model = make_model()
    torch.nn.init.normal_(model.model.decoder.step.attention.level_weights.bias)
    report = level_weights(model)
    assert report.weights == model.get_level_weights()
    assert list(report.weights) == ["model.decoder.step.attention"]
    (levels,) = report.weights.values()
    assert sum(levels) == pytest.approx(1.0)
    assert report.table().splitlines()[2].startswith(f"| model.decoder.step.attention | {levels[0]:.3f} |")


def test_weights_of_any_module():
    assert level_weights(HierarchicalAttention(4, 2)).table().endswith("| HierarchicalAttention | 0.900 | 0.100 |")
    both = torch.nn.ModuleDict({"one": HierarchicalAttention(4, 2), "two": HierarchicalAttention(4, 1)})
    text = level_weights(both).table()
    assert text == "| attention | 1 | 2 |\n| --- | --- | --- |\n| one | 0.900 | 0.100 |\n| two | 1.000 | – |"


def test_weights_of_a_reader():
    sizes = {"vocab_size": 20, "embedding_size": 8, "hidden_size": 4, "attention_depth": 3}
    report = level_weights(HamReaderForQuestionAnswering(HamReaderConfig(**sizes)))
    assert report.weights
    assert all(levels == pytest.approx([0.9, 0.05, 0.05]) for levels in report.weights.values())


def test_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = level_weights(make_model()).save_png(tmp_path / "levels.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_page(tmp_path):
    report = LevelWeights({"<one>": [0.25, 0.75], "two": [1.0]}, title="A & B")
    page = report.save_html(tmp_path / "levels.html").read_text(encoding="utf-8")
    assert page.count("A &amp; B") == 2
    assert '&lt;one&gt;</th><td style="background: rgb(255 176 0 / 0.25)">0.250</td>' in page
    assert page.count("<td>–</td>") == 1


def test_a_model_without_levels_is_refused():
    with pytest.raises(ValueError, match=r"`model` must have a hierarchical attention.*got a Linear"):
        level_weights(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="`weights` must hold the levels of at least one attention"):
        LevelWeights({})

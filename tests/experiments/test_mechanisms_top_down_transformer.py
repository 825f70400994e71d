"""examples/mechanisms/top_down_transformer.py: what a token sees, and the smallest form."""

import importlib
import json
from pathlib import Path

import pytest
import torch

from tests import forks


SCRIPT = Path(__file__).parents[2] / "examples" / "mechanisms" / "top_down_transformer.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module(SCRIPT.stem)


@pytest.mark.parametrize("window", [8, 16])
@pytest.mark.parametrize("update", ["none", "cross_attention", "concat"])
def test_the_field_is_what_a_token_sees_without_segments(script, update, window):
    torch.manual_seed(0)
    model = script.tagger(update, window, segment=8).eval()
    embeds = torch.randn(1, script.LENGTH, 32, requires_grad=True)
    model(inputs_embeds=embeds).logits[0, 40].sum().backward()
    seen = embeds.grad[0].abs().sum(-1).nonzero().flatten()
    field = script.field(model.config)
    assert field == window  # two layers, and half of it to each side
    expected = range(40 - field, 40 + field + 1) if update == "none" else range(script.LENGTH)
    assert seen.tolist() == list(expected)


def test_documents_ask_for_the_class_of_their_needle(script):
    torch.manual_seed(0)
    batch, distance = script.documents(size=50)
    ids, labels = batch["input_ids"], batch["labels"]
    is_needle = ids < script.CLASSES
    assert (is_needle.sum(1) == 1).all()
    assert (distance[is_needle] == 0).all()
    asked = ids == script.QUESTION
    assert torch.equal(asked, labels >= 0)
    assert torch.equal(labels[asked], ids[is_needle][:, None].expand_as(ids)[asked])
    assert 0.2 < asked.float().mean() < 0.3


@pytest.mark.parametrize(
    ("options", "name"),
    [([], ""), (["--quick"], "_quick"), (["--long"], "_long"), (["--long", "--seeds", "1"], "_seeds_1_long")],
)
def test_files_are_named_by_the_options(script, monkeypatch, tmp_path, options, name):
    monkeypatch.setattr(script, "trial", lambda *setting: {"field": 8, "within": 1.0, "beyond": 1.0})
    written = []
    monkeypatch.setattr(script, "report", lambda rows, path: written.append(path))
    monkeypatch.setattr("sys.argv", ["top_down_transformer.py", *options, "--output", str(tmp_path)])
    script.main()
    assert written == [tmp_path / f"top_down_transformer{name}"]


def test_the_smallest_form_has_no_long_documents(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "trial", None)
    monkeypatch.setattr("sys.argv", ["top_down_transformer.py", "--quick", "--long"])
    with pytest.raises(SystemExit):
        script.main()
    assert "--quick is not with --long" in capsys.readouterr().err


@pytest.mark.slow
def test_segments_bring_what_is_beyond_the_field(tmp_path):
    result = forks.run(forks.SCRIPT, str(SCRIPT), "--quick", "--output", str(tmp_path), timeout=600)
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "top_down_transformer_quick.jsonl").read_text(encoding="utf-8").splitlines()
    found = {row["top_down_update"]: row for row in map(json.loads, lines)}
    assert found["cross_attention"]["beyond"] > 0.9
    assert found["none"]["beyond"] < 0.2  # one of nine classes by chance
    assert found["none"]["within"] > found["none"]["beyond"] + 0.1
    assert result.stdout.count("| cross_attention | 8 | 8 | 8 |") == 1
    assert (tmp_path / "top_down_transformer_quick.svg").read_text(encoding="utf-8").startswith("<?xml")

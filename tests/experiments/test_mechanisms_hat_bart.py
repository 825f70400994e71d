"""examples/mechanisms/hat_bart.py: its documents and models, and the smallest form."""

import importlib
import json
import random
from pathlib import Path

import pytest
import torch

from tests import forks


SCRIPT = Path(__file__).parents[2] / "examples" / "mechanisms" / "hat_bart.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module(SCRIPT.stem)


@pytest.mark.parametrize("marked", [True, False])
def test_translations_are_words_reversed_inside_sentences(script, marked):
    random.seed(0)
    batch = script.batch_of(size=3, sentences=4, marked=marked)
    for source, labels, given in zip(batch["input_ids"], batch["labels"], batch["decoder_input_ids"], strict=True):
        assert (source == script.BOS).sum() == (4 if marked else 0)
        sentences, words = [], []
        for token in source.tolist():
            if token == script.STOP:
                sentences.append(words)
                words = []
            elif token not in (script.BOS, script.PAD):
                words.append(token)
        assert len(sentences) == 4
        wanted = [[word + len(script.WORDS) for word in reversed(words)] for words in sentences]
        flat = [token for words in wanted for token in [*words, script.STOP]]
        assert labels[labels >= 0].tolist() == [*flat, script.EOS]
        assert given[given != script.PAD].tolist() == [script.EOS, *flat]
    assert torch.equal(batch["attention_mask"] == 0, batch["input_ids"] == script.PAD)


def test_twins_are_as_large_and_have_no_hierarchy(script):
    models = {kind: script.model_of(kind, sentences=6) for kind in ("hat", "markers", "plain")}
    assert [model.config.hierarchical_layers for model in models.values()] == [1, 0, 0]
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models.values()]
    assert max(sizes) < 1.01 * min(sizes)


@pytest.mark.slow
def test_all_learn_the_smallest_form(tmp_path):
    result = forks.run(forks.SCRIPT, str(SCRIPT), "--quick", "--output", str(tmp_path), timeout=600)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in (tmp_path / "hat_bart.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["model"] for row in rows] == ["hat", "markers", "plain"]
    assert all(row["accuracy"] > 0.5 for row in rows)  # the commonest token is a fifth
    assert result.stdout.count("| 2 |") == 3

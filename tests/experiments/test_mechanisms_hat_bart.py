"""examples/mechanisms/hat_bart.py: its documents and models, and the smallest form."""

import importlib
import json
import random
import re
import shlex
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


@pytest.mark.parametrize("marked", [True, False])
def test_only_one_sentence_has_both_words_that_are_asked_for(script, marked):
    random.seed(0)
    batch = script.batch_of(size=20, sentences=6, marked=marked, task="retrieval")
    for source, labels, given in zip(batch["input_ids"], batch["labels"], batch["decoder_input_ids"], strict=True):
        sentences = [[]]
        for token in source.tolist():
            if token == script.STOP:
                sentences.append([])
            elif token not in (script.BOS, script.PAD):
                sentences[-1].append(token)
        assert sentences.pop() == []
        assert len(sentences) == 6
        queries, wanted = given.view(-1, 3).tolist(), labels.view(-1, 3).tolist()
        assert len(queries) == script.QUERIES
        for (*query, name), answers in zip(queries, wanted, strict=True):
            (found,) = (words for words in sentences if {*query} <= {*words})
            for word in query:
                assert any(word in words for words in sentences if words is not found)
            assert name == found[-1]
            assert answers == [-100, name, -100]  # nothing is wanted before both words are known


@pytest.mark.parametrize(("kind", "reads_tokens"), [("hat", True), ("sentences above", False)])
def test_the_last_layer_above_reads_sentences_only(script, kind, reads_tokens):
    model = script.model_of(kind, 50).eval()
    model.model.decoder.layers[0].encoder_attn = script.NoAttention()
    batch = script.batch_of(size=2, sentences=6, marked=True, task="retrieval")
    encoded = model.get_encoder()(batch["input_ids"], batch["attention_mask"])
    inputs = {name: batch[name] for name in ("attention_mask", "decoder_input_ids")}
    logits = model(encoder_outputs=encoded, **inputs).logits
    encoded.last_hidden_state = encoded.last_hidden_state.flip(1)
    assert torch.equal(model(encoder_outputs=encoded, **inputs).logits, logits) != reads_tokens


def test_twins_are_as_large_and_have_no_hierarchy(script):
    models = {kind: script.model_of(kind, 50) for kind in ("hat", "markers", "plain")}
    assert [model.config.hierarchical_layers for model in models.values()] == [1, 0, 0]
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models.values()]
    assert max(sizes) < 1.01 * min(sizes)


def test_what_is_learned_at_the_last_step_is_learned(script, monkeypatch):
    monkeypatch.setitem(script.SIZES, "translation", 2)
    for share, learned in ((0.95, 1.0), (0.5, 0.0)):
        monkeypatch.setattr(script, "right", lambda model, batch, share=share: share)
        found = script.trial(0, kind="plain", sentences=1, steps=50, task="translation")
        assert found == {"steps": 50, "accuracy": pytest.approx(share), "learned": learned}


def test_the_commands_of_the_page_write_files_of_their_own(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "trial", lambda seed, **setting: {"steps": 1, "accuracy": 1.0, "learned": 1.0})
    page = (SCRIPT.parents[2] / "docs" / "results" / "mechanisms" / "hat_bart.md").read_text(encoding="utf-8")
    commands = [line for line in page.splitlines() if line.startswith("python ") and not line.endswith("--speed")]
    for number, command in enumerate(["python hat_bart.py", "python hat_bart.py --quick", *commands], 1):
        monkeypatch.setattr("sys.argv", [*shlex.split(command, comments=True)[1:], "--output", str(tmp_path)])
        script.main()
        assert len(list(tmp_path.iterdir())) == number, command
    names = {file.name for file in tmp_path.iterdir()}
    assert {"hat_bart_translation.jsonl", "hat_bart_translation_quick.jsonl"} < names
    assert all(name in names for name in re.findall(r"outputs/mechanisms/(\S+\.jsonl)", page))
    assert not any(" " in name for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "models", "enough"),
    [
        ("translation", ["hat", "markers", "plain"], 0.5),  # the commonest token is a fifth
        ("retrieval", ["hat"], 0.12),  # one of 16 names is 0.06, one of the document's 0.17
    ],
)
def test_all_learn_in_the_smallest_form(tmp_path, task, models, enough):
    command = (str(SCRIPT), "--quick", "--task", task, "--models", *models, "--output", str(tmp_path))
    result = forks.run(forks.SCRIPT, *command, timeout=600)
    assert result.returncode == 0, result.stderr
    name = "hat_bart_translation_quick" if task == "translation" else "hat_bart_retrieval_quick_models_hat"
    lines = (tmp_path / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["model"] for row in rows] == models
    assert all(row["accuracy"] > enough for row in rows)
    assert result.stdout.count(f"| {rows[0]['sentences']} |") == len(models)


def test_too_few_sentences_for_queries_are_refused(script, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["hat_bart.py", "--task", "retrieval", "--sentences", "3"])
    with pytest.raises(SystemExit):
        script.main()
    assert "--sentences must be at least 4" in capsys.readouterr().err

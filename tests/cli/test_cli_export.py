"""`hier-models export`."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from hier_models import HamReaderConfig, HamReaderForQuestionAnswering, HamReaderProcessor
from hier_models.data.tokenizer_training import train_word_level
from tests.cli.commands import mistake, run


def test_export(checkpoint: str, paper: str):
    Path("card.yaml").write_text(
        yaml.safe_dump({"license": "apache-2.0", "language": "en", "limits": "Knows no Greek."})
    )
    run("export", "-m", checkpoint, "shared", "--card", "card.yaml")
    assert {"README.md", "config.json", "model.safetensors", "modeling_hat_bart.py"} <= set(os.listdir("shared"))
    assert "Knows no Greek." in Path("shared/README.md").read_text()
    assert run("summarize", "-m", "shared", paper).stdout == run("summarize", "-m", checkpoint, paper).stdout


def test_export_of_a_reader(paper: str):
    """Which is loaded by another Auto class than what summarizes."""
    texts = ["Marta keeps a bakery.", "Who keeps it?"]
    processor = HamReaderProcessor(train_word_level(texts))
    config = HamReaderConfig(
        vocab_size=len(processor.tokenizer), embedding_size=4, char_hidden_size=3, hidden_size=4, attention_depth=2
    )
    HamReaderForQuestionAnswering(config).save_pretrained("reader")
    processor.save_pretrained("reader")
    run("export", "-m", "reader", "shared")
    assert {"README.md", "model.safetensors", "modeling_ham_reader.py"} <= set(os.listdir("shared"))
    mistake("summarize", "-m", "reader", paper, says="--model: ")


def test_names_that_are_empty(checkpoint: str, paper: str):
    """As of a variable that is not set: they do not mean the folder one is in."""
    mistake("summarize", "-m", checkpoint, "", says="INPUT: an empty string names nothing")
    mistake("summarize", "-m", "", paper, says="--model: an empty string names no checkpoint")
    mistake("evaluate", "-m", checkpoint, "", says="an empty string names nothing")


def test_export_mistakes(checkpoint: str):
    mistake("export", "-m", checkpoint, says="give a FOLDER to write to, or --push REPO")
    mistake("export", "-m", checkpoint, "out", "--private", says="--private goes with --push")
    mistake("export", "-m", checkpoint, "out", "--card", "card.yaml", says="there is no file 'card.yaml'")
    says = "--card goes with a FOLDER to write to, or with --push"
    for option in ("--onnx", "--page"):
        mistake("export", "-m", checkpoint, option, "out", "--card", "card.yaml", says=says)
    mistake("export", "-m", checkpoint, checkpoint, says="is the checkpoint itself")
    Path("card.yaml").write_text("licence: mit")
    mistake("export", "-m", checkpoint, "out", "--card", "card.yaml", says=["licence", "license"])
    Path("card.yaml").write_text("- a list")
    mistake("export", "-m", checkpoint, "out", "--card", "card.yaml", says="must hold names and values")
    Path("card.yaml").write_text("language: no")
    says = "--card: card.yaml: `card` needs text as language, got False; quote it"
    mistake("export", "-m", "./nowhere", "out", "--card", "card.yaml", says=says)  # before anything is loaded
    mistake("export", "-m", checkpoint, "--push", "not a repo/at all!", says="--push: ")
    assert not Path("out").exists()


def test_the_command_that_serves_a_page_can_be_copied(checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hier_models.hub.browser_page.export_page", lambda *_, **__: None)
    assert "http.server -d 'my page'\n" in run("export", "-m", checkpoint, "--page", "my page").stderr


def test_push(checkpoint: str, monkeypatch: pytest.MonkeyPatch):
    pushed: list[Any] = []

    def push_to_hub(model: Any, processor: Any, repo_id: str, *, card: Any = None, private: bool | None = None) -> str:
        pushed.append((type(model).__name__, type(processor).__name__, repo_id, card, private))
        return f"https://huggingface.co/{repo_id}"

    monkeypatch.setattr("hier_models.hub.push_to_hub", push_to_hub)
    result = run("export", "-m", checkpoint, "--push", "me/summarizer", "--private")
    assert pushed == [("HatBartForConditionalGeneration", "HatBartProcessor", "me/summarizer", None, True)]
    assert result.stdout.strip() == "https://huggingface.co/me/summarizer"

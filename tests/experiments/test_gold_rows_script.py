"""examples/experiments/gold_rows.py: how often the right row is found by words, and by a tiny model's attention."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from tests.experiments.scripts import load_script


SENTENCES = ["The bridge is closed.", "Buses take the river road.", "Honey bees dance."]
ROWS = [
    {"sentences": SENTENCES, "summary": "Which road do buses take?", "gold": 1},
    {"sentences": SENTENCES, "summary": "Do bees dance?", "gold": 2},
    {"sentences": SENTENCES[:2], "summary": "Do bees dance?", "gold": 1},
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("gold_rows")


def test_the_row_with_most_of_the_words(script: ModuleType) -> None:
    assert script.by_words(ROWS) == [True, True, False]  # no words: the first row


def test_the_row_of_most_attention_at_each_token_and_over_all(
    script: ModuleType, coarse_model: Any, coarse_processor: Any
) -> None:
    model = coarse_model("hard")
    inputs = coarse_processor(sentences=SENTENCES, text_target=ROWS[0]["summary"], return_tensors="pt")
    with torch.no_grad():
        attention = model(**inputs, output_attentions=True).row_attentions[0, :-1]  # (target, rows)
    favourites, favourite = attention.argmax(dim=1).tolist(), int(attention.mean(dim=0).argmax())
    for gold in range(3):
        found = script.by_attention(model, coarse_processor, ROWS[0] | {"gold": gold}, 320)
        assert found == ([row == gold for row in favourites], favourite == gold)
    cut = script.by_attention(model, coarse_processor, ROWS[0] | {"gold": 2}, 6)
    assert cut == ([False] * len(favourites), False)  # what was not read is not found


def test_shares_of_all_documents(
    script: ModuleType, coarse_model: Any, coarse_processor: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model_3" / "seed_1"
    for part in (coarse_model("hard"), coarse_processor):
        part.save_pretrained(folder)
    found = iter([([True, False, False, False], True), ([True, True], True), ([False, False], False)])
    monkeypatch.setattr(script, "by_attention", lambda *_: next(found))
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    app = typer.Typer()
    app.command()(script.main)
    result = CliRunner().invoke(app, [str(folder), "--documents", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "chance: 38.9 %, of 3 documents",
        "the words of the reference: 66.7 %",
        "model_3/seed_1: 66.7 %; at each token 37.5 %",
    ]

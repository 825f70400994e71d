"""examples/experiments/steering.py: which phrases are drawn, and what is counted."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.experiments.scripts import load_script


DOCUMENTS = [
    "The old stone bridge is closed. A steel cable broke. Buses take the river road until spring.",
    "Honey bees dance. The waggle dance shows a way to wild flowers, and young bees read it.",
    "Nothing.",
    "Winter wheat is sown. " * 100,
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("steering")


def test_phrases_stand_in_their_documents_and_not_in_each_other(script: ModuleType) -> None:
    rows = script.drawn_phrases(DOCUMENTS, most_words=300, seed=0)
    assert [text for text, _, _ in rows] == DOCUMENTS[:2]  # of the others one has no phrase, and one is too long
    for text, one, other in rows:
        assert script.has(text, one)
        assert script.has(text, other)
        assert not script.has(one, other)
        assert not script.has(other, one)
    assert script.drawn_phrases(DOCUMENTS, most_words=300, seed=0) == rows


def test_phrases_are_whole_words_in_any_case(script: ModuleType) -> None:
    assert script.has("A Stone Bridge.", "stone bridge")
    assert not script.has("A stone bridgehead.", "stone bridge")


def test_shares_are_of_the_phrase_that_was_drawn_first(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(task: str, model: str, **kwargs: Any) -> Any:
        def summarize(inputs: list[dict[str, Any]], batch_size: int) -> list[dict[str, str]]:
            texts = [" ".join(row["phrases"]) if model == "follows" else "" for row in inputs]
            return [{"summary_text": text or row["text"]} for text, row in zip(texts, inputs, strict=True)]

        return summarize

    monkeypatch.setattr(script, "pipeline", make)
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps({"document": text}) + "\n" for text in DOCUMENTS), encoding="utf-8")
    app = typer.Typer()
    app.command()(script.main)
    result = CliRunner().invoke(app, [str(file), "follows", "copies"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "follows: it lit 100.0 %, another lit 0.0 %, nothing lit 100.0 %, of 2 documents",
        "copies: it lit 100.0 %, another lit 100.0 %, nothing lit 100.0 %, of 2 documents",
    ]


def test_documents_that_are_all_too_long_are_refused(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text(json.dumps({"document": DOCUMENTS[0]}) + "\n", encoding="utf-8")
    app = typer.Typer()
    app.command()(script.main)
    result = CliRunner().invoke(app, [str(file), "model", "--most-words", "3"], env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert "no document of at most 3 words" in result.output

"""examples/mechanisms/highlight_transformer.py in its smallest form."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest


SCRIPT = Path(__file__).parents[2] / "examples/mechanisms/highlight_transformer.py"


@pytest.mark.slow
def test_what_is_lit_is_written_and_without_light_it_is_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--quick", "--steps", "350", "--output", str(tmp_path)])
    runpy.run_path(str(SCRIPT), run_name="__main__")

    def rows(trial: str = "") -> list[dict[str, Any]]:
        file = tmp_path / f"highlight_transformer{trial}_quick_steps_350.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()]

    found = {row["highlighting"]: row["perplexity"] for row in rows()}
    assert found["with"] < 2 < 5 < found["without"]
    rates = {row["brightness"]: row["follows, %"] for row in rows("_steering")}
    assert rates[0.0] < 25 < 60 < rates[10.0]  # one of four sentences is 25
    assert "| with | 1." in capsys.readouterr().out
    assert (tmp_path / "highlight_transformer_quick_steps_350.svg").is_file()

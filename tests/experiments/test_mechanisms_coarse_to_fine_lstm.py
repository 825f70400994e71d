"""examples/mechanisms/coarse_to_fine_lstm.py in its smallest form."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest


SCRIPT = Path(__file__).parents[2] / "examples/mechanisms/coarse_to_fine_lstm.py"


@pytest.mark.slow
def test_the_best_rows_learn_where_to_read_and_without_reward_nothing_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--quick", "--output", str(tmp_path)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    rows = [json.loads(line) for line in (tmp_path / "coarse_to_fine_lstm_quick.jsonl").read_text().splitlines()]
    found: dict[Any, Any] = {(row["model"], row["rows"]): row for row in rows}
    for size in (10, 30):
        assert found["top_k, soft first", size]["right row, %"] > 90
        assert found["top_k, soft first", size]["right token, %"] > 90
        assert found["unrewarded", size]["right row, %"] < 40  # of 10 or 30
        assert found["unrewarded", size]["right token, %"] < 40  # of 8 values
        assert found["top_k, soft first", size]["rows read"] <= 4.5  # one for each of four questions
        assert found["soft", size]["rows read"] == size
    assert "| top_k, soft first | 30 |" in capsys.readouterr().out
    assert (tmp_path / "coarse_to_fine_lstm_quick.svg").is_file()


def test_two_of_three_rows_of_the_texts_tell_the_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--texts", str(tmp_path / "needle")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    for part, rows in (("train", 20), ("validation", 20), ("test", 30)):
        documents = [json.loads(line) for line in (tmp_path / "needle" / f"{part}.jsonl").read_text().splitlines()]
        for document in documents[:50]:
            assert len(document["sentences"]) == rows
            words = document["summary"].split()
            for question, value in zip(words[::2], words[1::2], strict=True):
                said = [row.split()[-1] for row in document["sentences"] if row.startswith(question)]
                assert len(said) == 3
                assert said.count(value) >= 2

"""benchmarks/end_to_end.py in its smallest form."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forks


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "end_to_end.py"
WRITING = (
    "mini",
    "mini_int8",
    "mini_bfloat16",
    "hat_bart",
    "hat_bart_int8",
    "hat_bart_bfloat16",
    "top_down_transformer",
    "bart",
    "led",
    "pegasus_x",
    "long_t5",
)


def rows(*arguments: str) -> list[list[str]]:
    result = forks.run(forks.SCRIPT, str(SCRIPT), "--quick", *arguments)
    assert result.returncode == 0, result.stderr
    return table(result.stdout, result.stderr)


def table(output: str, errors: str) -> list[list[str]]:
    assert "failed at" not in errors
    lines = [line for line in output.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def check(found: list[list[str]], systems: tuple[str, ...]) -> None:
    for name in systems:
        own = [row for row in found if row[0] == name]
        assert {row[2] for row in own} == {"1", "4"}
        assert [row[3] for row in own].count("1") == 2  # batch 1 for each number of beams, and perhaps a faster one
        for row in own:
            assert min(map(float, row[4:6])) > 0
            assert int(row[7]) >= 60  # a word has a token at least, and every model reads all of so short a document
            assert row[8] == "8"


@pytest.mark.slow
def test_lexrank_has_a_row_for_each_length_without_tokens():
    found = rows("--systems", "lexrank", "--words", "60", "200")
    assert [row[:4] for row in found] == [["lexrank", "60", "1", "1"], ["lexrank", "200", "1", "1"]]
    assert all(row[7:] == ["–", "–"] and float(row[4]) > 0 for row in found)


@pytest.mark.slow
def test_every_model_writes_as_many_tokens_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    start = subprocess.run

    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        """Fork; a process of its own for each model would import torch and Transformers for most of its time."""
        return forks.run(forks.SCRIPT, *command[1:]) if command[0] == sys.executable else start(command, **settings)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--quick", "--systems", *WRITING])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    check(table(*capsys.readouterr()), WRITING)


@pytest.mark.slow
def test_ctranslate2_writes_as_many_tokens_as_asked_for():
    pytest.importorskip("ctranslate2")
    check(rows("--systems", "bart_ctranslate2"), ("bart_ctranslate2",))

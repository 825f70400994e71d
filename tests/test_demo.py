"""The demo in its short setting: what it prints, and that its files are what it says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import pipeline

from tests import forks


ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What two runs print, and the folder of the first."""
    folders = [tmp_path_factory.mktemp("demo") for _ in range(2)]
    arguments = [str(ROOT / "examples/demo.py"), "--smoke", "--output-dir", "out"]
    # A deprecated call would be a user's first impression.
    environment = {**os.environ, "PYTHONWARNINGS": "default::FutureWarning"}
    first = subprocess.run(
        [sys.executable, *arguments], cwd=folders[0], env=environment, capture_output=True, text=True
    )
    second = forks.run(forks.SCRIPT, *arguments, cwd=folders[1])
    printed = []
    for result in (first, second):
        assert result.returncode == 0, result.stderr
        assert "it/s]" in result.stderr  # progress bars
        printed.append(result.stdout)
    assert "FutureWarning" not in first.stderr
    return folders[0] / "out", printed


def rows(text: str) -> dict[str, list[float]]:
    """System -> its three scores."""
    lines = text.partition("ROUGE-1")[2].partition("\n\n")[0].splitlines()
    found = [re.match(r"(\S.*?)  +((?:[\d.]+ *){3})$", line) for line in lines]
    return {match[1]: [float(score) for score in match[2].split()] for match in found if match}


@pytest.mark.slow
def test_scores_of_all_systems(demo):
    table = rows(demo[1][0])
    assert list(table) == ["lead", "lexrank", "mini", "twin without hierarchy", "mini, fine-tuned"]
    # Baselines need no training, so their scores are those of the full demo, but for the few papers of the short one.
    assert all(30 < table[name][0] < 50 for name in ("lead", "lexrank"))
    assert table["mini"][0] > 20


@pytest.mark.slow
def test_two_runs_give_the_same_table(demo):
    assert rows(demo[1][0]) == rows(demo[1][1])


@pytest.mark.slow
def test_it_shows_summaries_of_every_length_with_sources_and_a_dialogue(demo):
    printed = demo[1][0]
    assert all(re.search(rf"^{length} \([\d.]+ s\)$", printed, re.MULTILINE) for length in ("line", "short", "long"))
    assert "rests most (" in printed
    assert "== A dialogue" in printed


@pytest.mark.slow
def test_files_are_what_it_says(demo):
    folder = demo[0]
    assert (folder / "heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (folder / "heatmap.html").read_text(encoding="utf-8")
    for name in ("train", "validation"):
        lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert {"id", "text", "summary"} <= set(json.loads(lines[0]))
    assert not {json.loads(line)["id"] for line in (folder / "train.jsonl").open(encoding="utf-8")} & {
        json.loads(line)["id"] for line in (folder / "validation.jsonl").open(encoding="utf-8")
    }
    summaries = pipeline("summarization", model=str(folder / "model"))(["One. Two.", "Three."])
    assert [set(summary) for summary in summaries] == [{"summary_text"}] * 2

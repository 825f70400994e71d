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


# What is printed before the table is not in it, and another run need not write it again.
AGAIN = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import demo

folder = Path("out")
folder.mkdir()
demo.compare(*demo.load_papers(folder), folder, demo.SMOKE)
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What it prints, and its folder; and those of another run, which trains and scores."""
    folders = [tmp_path_factory.mktemp("demo") for _ in range(2)]
    arguments = [str(ROOT / "examples/demo.py"), "--smoke", "--output-dir", "out"]
    # A deprecated call would be a user's first impression.
    environment = {**os.environ, "PYTHONWARNINGS": "default::FutureWarning"}
    first = subprocess.run(
        [sys.executable, *arguments], cwd=folders[0], env=environment, capture_output=True, text=True
    )
    second = forks.run(AGAIN, str(ROOT / "examples"), cwd=folders[1])
    for result in (first, second):
        assert result.returncode == 0, result.stderr
        assert "it/s]" in result.stderr  # progress bars
    assert "FutureWarning" not in first.stderr
    return [(folder / "out", result.stdout) for folder, result in zip(folders, (first, second), strict=True)]


def rows(text: str) -> dict[str, list[float]]:
    """System -> its three scores."""
    lines = text.partition("ROUGE-1")[2].partition("\n\n")[0].splitlines()
    found = [re.match(r"(\S.*?)  +((?:[\d.]+ *){3})$", line) for line in lines]
    return {match[1]: [float(score) for score in match[2].split()] for match in found if match}


@pytest.mark.slow
def test_scores_of_all_systems(demo):
    table = rows(demo[0][1])
    assert list(table) == ["lead", "lexrank", "mini", "twin without hierarchy", "mini, fine-tuned"]
    # Baselines need no training, so their scores are those of the full demo, but for the few papers of the short one.
    assert all(abs(table[name][0] - full) < 3 for name, full in (("lead", 25.5), ("lexrank", 34.3)))
    assert table["mini"][0] > 20


@pytest.mark.slow
def test_two_runs_train_the_same_and_give_the_same_table(demo):
    tables, written, losses = [], [], []
    for folder, printed in demo:
        tables.append(rows(printed))
        names = ("mini", "twin-without-hierarchy", "mini,-fine-tuned")
        written.append([(folder / f"{name}.jsonl").read_text(encoding="utf-8") for name in names])
        losses.append(re.findall(r"'(?:loss|grad_norm)': \S+", printed))
    assert tables[0] == tables[1]
    assert written[0] == written[1]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2 * 2 * 2


@pytest.mark.slow
def test_it_shows_summaries_of_every_length_with_sources_and_a_dialogue(demo):
    printed = demo[0][1]
    assert all(re.search(rf"^{length} \([\d.]+ s\)$", printed, re.MULTILINE) for length in ("line", "short", "long"))
    assert "rests most (" in printed
    assert "== A dialogue" in printed


@pytest.mark.slow
def test_files_are_what_it_says(demo):
    folder = demo[0][0]
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

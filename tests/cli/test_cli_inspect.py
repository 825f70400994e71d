"""`hier-models inspect`."""

import json
import re
import sys
from pathlib import Path

import docx
import pytest

from tests.cli.commands import expected, mistake, run
from tests.conftest import DOCUMENTS, SUMMARIES


def test_inspect(checkpoint: str, paper: str):
    result = run("inspect", "-m", checkpoint, paper, "-o", "map.html", "-o", "map.png", "--num-beams", "2")
    assert result.stdout.strip() == expected(checkpoint, DOCUMENTS[1], num_beams=2)[0]
    page = Path("map.html").read_text()
    assert "<title>Hierarchical attention: paper.txt</title>" in page
    assert "The angle of the dance gives the direction." in page
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    assert "Written: map.html\nWritten: map.png" in result.stderr


def test_inspect_a_given_summary_of_a_chosen_record(checkpoint: str, records: str):
    Path("summary.txt").write_text(SUMMARIES[2] + "\n")
    result = run(
        "inspect", "-m", checkpoint, records, "--document", "3", "--summary", "summary.txt", "--title", "Open <when>?"
    )
    assert result.stdout.strip() == SUMMARIES[2]
    page = Path("attention.html").read_text()
    assert "<title>Open &lt;when&gt;?</title>" in page
    assert "It closes at six." in page
    document = docx.Document()
    document.add_paragraph(SUMMARIES[2])
    document.save("summary.docx")
    again = run("inspect", "-m", checkpoint, records, "--document", "3", "--summary", "summary.docx")
    assert again.stdout == result.stdout


def test_a_page_is_not_written_over_what_it_shows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hier_models.cli.loading.check_checkpoint", None)
    pages = {"article.html": DOCUMENTS[1], "attention.html": DOCUMENTS[2], "summary.html": SUMMARIES[1]}
    for name, text in pages.items():
        Path(name).write_text(f"<p>{text}</p>")
    for arguments in (
        ["article.html", "-o", "article.html"],
        ["article.html", "-o", "map.html", "-o", "./article.html"],
        ["attention.html"],
        ["article.html", "--summary", "summary.html", "-o", "summary.html"],
    ):
        mistake("inspect", "-m", "model", *arguments, says="is the data and would be overwritten; give another file")
    assert {path.name: path.read_text() for path in Path().iterdir()} == {
        name: f"<p>{text}</p>" for name, text in pages.items()
    }


def test_a_page_is_not_written_into_the_folder_that_it_shows(monkeypatch: pytest.MonkeyPatch):
    """Where the next one would show it."""
    monkeypatch.setattr("hier_models.cli.loading.check_checkpoint", None)
    Path("papers").mkdir()
    Path("papers/bees.txt").write_text(DOCUMENTS[1])
    for arguments in (["."], ["papers", "-o", "map.html", "-o", "papers/map.html"]):
        mistake("inspect", "-m", "model", *arguments, says="lies in the folder of the data; give a file elsewhere")


def test_inspect_mistakes(checkpoint: str, paper: str, monkeypatch: pytest.MonkeyPatch):
    mistake("inspect", "-m", "lead", paper, says="--model: lead is a method without a model")
    mistake("inspect", "-m", checkpoint, paper, "-o", "map.pdf", says="must end in .html or .png")
    mistake("inspect", "-m", checkpoint, paper, "-o", "nowhere/map.png", says="there is no folder")
    mistake("inspect", "-m", checkpoint, paper, "--document", "2", says="there is no document 2 in paper.txt")
    mistake("inspect", "-m", checkpoint, paper, "--summary", "missing.txt", says="missing.txt")
    mistake("inspect", "-m", checkpoint, paper, "--summary", paper, "--num-beams", "2", says="--summary")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    mistake("inspect", "-m", checkpoint, paper, "-o", "map.png", says='pip install "hier_models[plots]"')
    run("inspect", "-m", checkpoint, paper, "-o", "map.html")


def test_inspect_shows_what_summarize_reads(checkpoint: str):
    Path("long.txt").write_text(" ".join(f"Bee number {number} flies to field {number}." for number in range(60)))
    drawn, written = run("inspect", "-m", checkpoint, "long.txt"), run("summarize", "-m", checkpoint, "long.txt")
    assert drawn.stdout == written.stdout
    left_out = re.search(r"[\d,]+ tokens were left out", written.stderr)
    assert left_out
    assert left_out[0] in drawn.stderr
    assert f"{left_out[0].removesuffix(' were left out')} left out" in Path("attention.html").read_text()
    record = {"text": Path("long.txt").read_text(), "query": "Where does bee number 41 fly?"}
    Path("asked.jsonl").write_text(json.dumps(record) + "\n")
    drawn, written = run("inspect", "-m", checkpoint, "asked.jsonl"), run("summarize", "-m", checkpoint, "asked.jsonl")
    assert drawn.stdout == written.stdout
    assert "Bee number 41 flies to field 41." in Path("attention.html").read_text()
    assert "Bee number 9 flies to field 9." not in Path("attention.html").read_text()

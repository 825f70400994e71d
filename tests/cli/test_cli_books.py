"""`hier-models summarize --book`."""

import json
from pathlib import Path
from typing import Any

import pytest

from hier_models import HatBartForConditionalGeneration, summarize_book
from tests.cli.commands import mistake, run
from tests.conftest import DOCUMENTS


@pytest.fixture
def book(workplace: Path) -> str:
    chapters = [f"CHAPTER {n}\n\n{text}\n" for n, text in enumerate(DOCUMENTS * 2, 1)]
    Path("rain.txt").write_text("THE RAIN\n\n" + "\n".join(chapters))
    return "rain.txt"


def test_book(checkpoint: str, book: str, caplog: pytest.LogCaptureFixture):
    expected = summarize_book(book, checkpoint, progress=False)
    result = run("summarize", "--book", book, "-m", checkpoint, "-o", "out")
    assert result.stdout == expected.summary + "\n"
    assert "rain: 8 chapters" in result.stderr
    assert "Left out: what stands before the first chapter (2 words)." in result.stderr
    assert "To read: out/book.html" in result.stderr
    assert "<h1>rain</h1>" in Path("out/book.html").read_text()
    assert json.loads(Path("out/book.json").read_text()) == expected.as_dict()

    # The same command again goes on from there; another one does not.
    again = run("summarize", "-m", checkpoint, "--book", book, "-o", "out")
    assert again.stdout == result.stdout
    assert caplog.messages == ["out/summaries.jsonl is there; going on from it."]
    refused = run("summarize", "--book", book, "-m", checkpoint, "-o", "out", "--max-length", "9", code=2)
    assert refused.stdout == ""
    assert "Error: --output: out/summaries.jsonl:1 was made with" in refused.stderr
    assert '"max_new_tokens": 9' in refused.stderr
    assert "give another place" in refused.stderr
    assert len(caplog.messages) == 1


def test_book_as_json(checkpoint: str, book: str):
    data = json.loads(run("summarize", "--book", book, "-m", checkpoint, "--json", "--max-length", "9").stdout)
    assert data["title"] == "rain"
    assert [child["title"] for child in data["tree"]["children"]] == ["Chapters 1 to 4", "Chapters 5 to 8"]
    assert not any(Path().glob("**/summaries.jsonl"))


def test_interrupted_book_says_how_to_go_on(checkpoint: str, book: str, monkeypatch: pytest.MonkeyPatch):
    def stopped(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(HatBartForConditionalGeneration, "generate", stopped)
    result = run("summarize", "--book", book, "-m", checkpoint, "-o", "out", code=130)
    assert "What is done is in out/summaries.jsonl; the same command goes on from there." in result.stderr


def test_a_page_is_not_written_over_the_book(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hier_models.cli.books.check_checkpoint", None)
    monkeypatch.setenv("HOME", str(Path.cwd()))
    Path("there").mkdir()
    for book, folder in (("book.html", "."), ("there/book.html", "there"), ("~/book.json", ".")):
        file = Path(book).expanduser()
        file.write_text(f"<p>{DOCUMENTS[0]}</p>")
        says = f"--output: {file} is the book and would be overwritten; give another folder"
        mistake("summarize", "--book", book, "-m", "model", "-o", folder, says=says)
        assert file.read_text() == f"<p>{DOCUMENTS[0]}</p>"


def test_mistakes(checkpoint: str, book: str):
    mistake("summarize", "--book", "nowhere.epub", "-m", checkpoint, says="no file or folder 'nowhere.epub'")
    mistake("summarize", "--book", "", "-m", checkpoint, "-o", "out", says="--book: an empty string names nothing")
    mistake("summarize", "--book", book, "-m", "nowhere/at/all", says="there is no folder 'nowhere/at/all'")
    mistake("summarize", "--book", book, "-m", checkpoint, "--book-model", "lead", says="lead chooses sentences")
    mistake("summarize", checkpoint, "--book", book, says=f"summarize --book {book} -m {checkpoint}")
    mistake("summarize", "--book", book, "-m", checkpoint, "other.txt", says="leave out INPUT 'other.txt'")
    mistake("summarize", "--book", "-", "-m", checkpoint, says="not standard input")
    mistake("summarize", "--book", book, "-m", checkpoint, "-o", book, says="with --book it is a folder")
    Path("rain").mkdir()
    Path("rain/1.txt").write_text("It rained.")
    mistake("summarize", "--book", "rain", "-m", checkpoint, "-o", "rain/out", says="is in the book's folder")
    assert [path.name for path in Path("rain").iterdir()] == ["1.txt"]
    mistake("summarize", "-m", checkpoint, book, "--book-model", checkpoint, says="--book-model belongs to --book")
    Path("book.epub").write_bytes(b"%PDF-1.7")
    mistake("summarize", "--book", "book.epub", "-m", checkpoint, says="is no EPUB: it is a PDF")


def test_model_after_the_input(checkpoint: str, book: str):
    assert run("summarize", book, "-m", checkpoint).stdout == run("summarize", "-m", checkpoint, book).stdout

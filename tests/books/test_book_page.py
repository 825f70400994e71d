"""The page to read the summary of a book."""

import re
from html.parser import HTMLParser

import pytest

from hier_models.books import Book, Chapter
from hier_models.books.summary_tree import BookSummary, SummaryNode


@pytest.fixture
def result() -> BookSummary:
    book = Book("Rain & <b>Sun</b>", [Chapter("One", ["a b"]), Chapter("Two", ["c d", "e"])], "as given", ["INDEX"])
    parts = [
        SummaryNode(
            "chapter 2, part 1", "part", "Part 1 of 2", 2, ["It {{title}} rained <i>on</i>."], summary="Rain."
        ),
        SummaryNode("chapter 2, part 2", "part", "Part 2 of 2", 1, ["</details></main><script>bad()"], summary=""),
    ]
    chapters = [
        SummaryNode("chapter 1", "chapter", "One", 2, ["A first.\x00", "A second."], summary="Wet & cold."),
        SummaryNode("chapter 2", "chapter", "Two", 3, children=parts, summary="First line.\nSecond line."),
    ]
    group = SummaryNode("chapters 1 to 2", "chapters", "Chapters 1 to 2", 5, children=chapters, summary="Both.")
    root = SummaryNode("book", "book", "Rain", 5, children=[group], summary="The whole.")
    return BookSummary(root, book, ("my-model", "my-book-model"))


class _Reader(HTMLParser):
    """Checks that elements close in order, and gathers what is to be tested."""

    EMPTY = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def _read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_everything_is_there_in_order(result):
    text = " ".join(_read(result.page()).text.split())
    places = [
        text.index(part)
        for part in (
            "Rain & <b>Sun</b>",
            "5 words, 2 chapters; 6 summaries by my-model, and my-book-model for the book",
            "The whole.",
            "Both.",
            "2 chapters One",
            "Wet & cold.",
            "A first.",
            "First line.",
            "Second line.",
            "It {{title}} rained <i>on</i>.",
            "</details></main><script>bad()",
            "Left out: INDEX.",
        )
    ]
    assert places == sorted(places)
    assert "The model gave no summary." in text
    assert "\x00" not in text


def test_contents_lead_to_the_chapters(result):
    seen = _read(result.page()).seen
    targets = [values["href"] for tag, values in seen if tag == "a"]
    identifiers = [values["id"] for _, values in seen if "id" in values]
    assert targets == ["#chapters-1-to-2", "#chapter-1", "#chapter-2"]
    assert all(target[1:] in identifiers for target in targets)
    assert len(set(identifiers)) == len(identifiers)


def test_texts_are_folded_and_summaries_are_not(result):
    folds = [values for tag, values in _read(result.page()).seen if tag == "details"]
    texts = [values for values in folds if values.get("class") == "below"]
    assert len(texts) == 4  # of chapter 1, the parts of chapter 2, and the text of each part
    assert all("open" not in values for values in texts)
    assert any("open" in values for values in folds)


def test_page_needs_no_network(result):
    page = result.page()
    assert not re.search(r"src=|href=(?!\"#)", page)
    assert not re.search(r"https?:|@import|url\(", page)
    assert "default-src 'none'" in page
    assert page.count("<script>") == 1
    assert "prefers-color-scheme: dark" in page
    assert "width=device-width" in page


def test_saved_files(result, tmp_path):
    assert result.save_html(tmp_path / "book.html").read_text(encoding="utf-8") == result.page()
    text = result.save_json(tmp_path / "book.json").read_text(encoding="utf-8")
    assert '"paragraphs"' in text
    assert '"paragraphs"' not in result.save_json(tmp_path / "book.json", with_text=False).read_text()

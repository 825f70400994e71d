"""Books as chapters: from a text with headings, a folder, a list. EPUBs are in test_epub.py."""

import bz2
import gzip
import logging
import lzma
import random
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hier_models.books import Book, Chapter, read_book
from hier_models.books.headings import BEFORE


def prose(name: str, words: int = 120) -> str:
    """A paragraph of its own that is no heading."""
    return " ".join([f"This is {name}."] + ["The rain went on all night."] * (words // 6))


def book_of(tmp_path: Path, text: str, name: str = "book.txt") -> Book:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_book(path)


def broken(text: str) -> str:
    """The text with long lines broken: in one of unbroken lines each line is a paragraph, and none is a list."""
    return "\n".join(textwrap.fill(line, 70) for line in text.split("\n"))


def titles(book: Book) -> list[str]:
    return [chapter.title for chapter in book.chapters]


def assert_in_order(book: Book, count: int) -> None:
    """Each chapter holds its own text and nothing else."""
    assert [chapter.paragraphs for chapter in book.chapters] == [[prose(f"text {n}")] for n in range(count)]


def chapters(*headings: str, front: str = "") -> str:
    return front + "\n\n".join(f"{heading}\n\n{prose(f'text {n}')}" for n, heading in enumerate(headings))


# Headings of plain text


@pytest.mark.parametrize(
    "headings",
    [
        ["CHAPTER I", "CHAPTER II", "CHAPTER III"],
        ["Chapter 1: The Door", "Chapter 2: The Key", "Chapter 3: The Room"],
        ["Chapter One", "Chapter Twenty-One", "CHAPTER THE LAST"],
        ["CHAPTER IV. In which nothing happens.", "CHAPTER XL. In which it happens again.", "CHAPTER XC."],
        ["Chapter 1 The Door", "Chapter 2 The Key", "Chapter 3 1815"],
        ["LETTER 1", "LETTER 2", "Chapter 1"],
        ["Prologue", "Chapter 1", "EPILOGUE"],
        ["Preface", "THE FIRST CHAPTER", "Appendix A. On Rain"],
        ["BOOK I.", "BOOK II.", "BOOK III."],
        ["I. THE DOOR", "II. THE KEY", "III. THE ROOM"],
        ["1. The Door", "2. The Key", "3. The Room"],
        ["I", "II", "III"],
        ["1.", "2.", "3."],
        ["- 1 -", "- 2 -", "- 3 -"],
        ["Kapitel 1", "Kapitel 2", "Kapitel 3"],
    ],
    ids=lambda headings: headings[0],
)
def test_headings(tmp_path: Path, headings: list[str]):
    book = book_of(tmp_path, chapters(*headings))
    assert titles(book) == headings
    assert_in_order(book, 3)
    assert book.left_out == []
    assert "headings such as" in book.found


def test_title_on_the_next_line(tmp_path: Path):
    text = f"CHAPTER I.\nDown the Hole\n\n{prose('text 0')}\n\nCHAPTER II\n\nTHE POOL\n\n{prose('text 1')}"
    book = book_of(tmp_path, text)
    assert titles(book) == ["CHAPTER I: Down the Hole", "CHAPTER II: THE POOL"]
    assert_in_order(book, 2)


def test_text_right_under_a_heading(tmp_path: Path):
    book = book_of(tmp_path, "".join(f"CHAPTER {n}\n{prose(f'text {n - 1}')}\n\n" for n in (1, 2)))
    assert titles(book) == ["CHAPTER 1", "CHAPTER 2"]
    assert_in_order(book, 2)


def test_short_first_sentence_is_no_title(tmp_path: Path):
    book = book_of(tmp_path, f"CHAPTER 1\n\nHe slept.\n\n{prose('a')}\n\nCHAPTER 2\n\n“Go!”\n\n{prose('b')}")
    assert titles(book) == ["CHAPTER 1", "CHAPTER 2"]
    assert book.chapters[0].paragraphs[0] == "He slept."
    assert book.chapters[1].paragraphs[0] == "“Go!”"


def test_parts_go_into_the_titles(tmp_path: Path):
    text = chapters("PART ONE\n\nCHAPTER I", "CHAPTER II", "PART TWO: THE SEA\n\nCHAPTER I", "CHAPTER II")
    book = book_of(tmp_path, text)
    assert titles(book) == [
        "PART ONE, CHAPTER I",
        "PART ONE, CHAPTER II",
        "PART TWO: THE SEA, CHAPTER I",
        "PART TWO: THE SEA, CHAPTER II",
    ]
    assert_in_order(book, 4)


def test_words_under_a_part_are_kept(tmp_path: Path):
    book = book_of(tmp_path, chapters("PART ONE\n\nto the rain, which went on.\n\nCHAPTER I", "CHAPTER II"))
    assert book.chapters[0].paragraphs == ["to the rain, which went on.", prose("text 0")]


@pytest.mark.parametrize("numbers", ["1 2 1 2", "I II I II", "1.|The|Door 2.|The|Key 1.|The|Room 2.|The|Yard"])
def test_parts_over_numbers(tmp_path: Path, numbers: str):
    one, two, three, four = numbers.replace(" ", "\n").replace("|", " ").split("\n")
    book = book_of(tmp_path, chapters(f"PART ONE\n\n{one}", two, f"PART TWO\n\n{three}", four))
    assert titles(book) == [f"PART ONE, {one}", f"PART ONE, {two}", f"PART TWO, {three}", f"PART TWO, {four}"]
    assert_in_order(book, 4)


@pytest.mark.parametrize(("page", "lost"), [("DEDICATION\n\nTo mum.", 2), ("CONTENTS\n\nOf rivers\n\nOf rain", 4)])
def test_pages_behind_a_part_do_not_take_what_stands_under_it(tmp_path: Path, page: str, lost: int):
    front = chapters("CHAPTER I")
    text = f"{front}\n\nPART TWO\n\nto the rain, which went on.\n\n{page}\n\nCHAPTER II\n\n{prose('text 1')}"
    book = book_of(tmp_path, text)
    assert book.chapters[-1].paragraphs == ["to the rain, which went on.", prose("text 1")]
    assert f"({lost} words)" in book.left_out[0]


@pytest.mark.parametrize("page", ["NOTES\n\nSee above.", f"CONTENTS\n\nOf rivers\n\n{prose('more')}"])
def test_words_under_a_last_part_are_kept(tmp_path: Path, page: str):
    book = book_of(tmp_path, f"{chapters('CHAPTER I', 'CHAPTER II')}\n\nPART THE LAST\n\nIt ended.\n\n{page}")
    assert titles(book)[:3] == ["CHAPTER I", "CHAPTER II", "PART THE LAST"]
    assert book.chapters[2].paragraphs == ["It ended."]
    assert [chapter.paragraphs for chapter in book.chapters[3:]] == ([[prose("more")]] if "more" in page else [])
    assert book.left_out == [f"{page.partition(chr(10))[0]} (2 words)"]


@pytest.mark.parametrize("between", ["\n", "\n\n"])
@pytest.mark.parametrize("parts", [False, True])
def test_contents_are_no_chapters(tmp_path: Path, between: str, parts: bool):
    headings = ["CHAPTER I", "CHAPTER II", "CHAPTER III"]
    listed = [f"{heading}. The Title" for heading in headings]
    if parts:
        headings[0], headings[2] = f"PART I\n\n{headings[0]}", "PART II\n\nCHAPTER I"
        listed = ["PART I", listed[0], listed[1], "PART II", listed[0]]
    front = f"THE RAIN\n\nA Novel\n\nCONTENTS\n\n{between.join(listed)}\n\nTo nobody.\n\n"
    book = book_of(tmp_path, chapters(*headings, front=front))
    assert len(book.chapters) == 3
    assert_in_order(book, 3)
    assert book.words == 3 * len(prose("text 0").split())
    assert any("before the first chapter" in entry for entry in book.left_out)


def test_contents_with_page_numbers(tmp_path: Path):
    front = "Contents\n\nChapter 1 ........ 3\nChapter 2 ........ 19\n\n"
    book = book_of(tmp_path, chapters("Chapter 1", "Chapter 2", front=front))
    assert_in_order(book, 2)
    assert book.left_out[0] == "a table of contents (8 words)"


def test_verse_with_numbered_lines_is_no_contents(tmp_path: Path):
    lines = [f"The rain went on all night{'' if n % 5 else f'    {n}'}" for n in range(1, 41)]
    text = "\n\n".join(f"CANTO {number}\n\n" + "\n".join(lines) for number in ("I", "II", "III"))
    for front in ("", "CONTENTS\n\nCanto I    3\nCanto II    5\nCanto III    7\n\n"):
        book = book_of(tmp_path, front + text)
        assert titles(book) == ["CANTO I", "CANTO II", "CANTO III"]
        assert [chapter.paragraphs for chapter in book.chapters] == 3 * [[" ".join(" ".join(lines).split())]]


@pytest.mark.parametrize("heading", ["CHAPTER {}", "{}. The Door"])
@pytest.mark.parametrize(
    "lines",
    [
        ["1. Wheat.", "2. Barley.", "3. Rye."],
        ["1. The Door", "2. Wheat", "3. Rye"],
        ["Wheat sold    120", "Barley sold    80", "Rye sold    35"],
        ["Book one in my bag was wet, and so was", "book two in my hand."],
    ],
)
def test_lists_in_a_chapter_are_text(tmp_path: Path, heading: str, lines: list[str]):
    headings = [heading.format(number) for number in (1, 2, 3)]
    text = chapters(*headings).replace(prose("text 1"), f"{prose('text 1')}\n\n{chr(10).join(lines)}\n\nSo it was.")
    book = book_of(tmp_path, broken(text))
    assert titles(book) == headings
    assert book.chapters[1].paragraphs == [prose("text 1"), " ".join(" ".join(lines).split()), "So it was."]
    assert book.left_out == []


@pytest.mark.parametrize(
    "listed",
    [
        "Chapter 1    3\nChapter 2    19",
        "Chapter 1: The Door\nChapter 2: The Window",
        "The Door    3\nThe Window    19\nA Word of Thanks    40",
        "1. The Door\n2. The Window\n3. A Word of Thanks",
    ],
)
@pytest.mark.parametrize("place", ["first", "under a heading", "last"])
def test_lists_of_the_chapters_are_taken_out(tmp_path: Path, listed: str, place: str):
    front = {"first": f"{listed}\n\n", "under a heading": f"Preface\n\n{listed}\n\n", "last": ""}[place]
    text = chapters("CHAPTER I\n\nThe Door", "CHAPTER II\n\nThe Window", front=front)
    book = book_of(tmp_path, broken(f"{text}\n\n{listed}" if place == "last" else text))
    assert_in_order(book, 2)
    assert book.left_out[0].startswith("a table of contents (")


def test_a_list_is_no_heading(tmp_path: Path):
    text = f"Chapter 1 .... 3\nChapter 2 .... 9\n\n{prose('all')}"
    book = book_of(tmp_path, broken(text))
    assert titles(book) == [""]
    assert book.words == len(text.split())


def test_text_without_a_heading_after_the_contents_is_kept(tmp_path: Path):
    text = f"CONTENTS\n\nThe Door\nThe Key\n\n{prose('an opening')}\n\n" + chapters("CHAPTER I", "CHAPTER II")
    book = book_of(tmp_path, text)
    assert titles(book) == [BEFORE, "CHAPTER I", "CHAPTER II"]
    assert book.chapters[0].paragraphs == [prose("an opening")]
    assert book.left_out == ["CONTENTS (4 words)"]


def test_long_text_before_the_first_chapter_is_kept(tmp_path: Path):
    book = book_of(tmp_path, prose("an opening") + "\n\n" + chapters("CHAPTER I", "CHAPTER II"))
    assert titles(book)[0] == BEFORE


def test_pages_round_the_book_are_left_out(tmp_path: Path):
    text = chapters("CHAPTER I", "CHAPTER II") + f"\n\nINDEX\n\nRain, 3\n\nTRANSCRIBER’S NOTES\n\n{prose('a note')}"
    book = book_of(tmp_path, text)
    assert_in_order(book, 2)
    assert book.left_out == ["INDEX (2 words)", f"TRANSCRIBER’S NOTES ({len(prose('a note').split())} words)"]


def test_licence_of_project_gutenberg_is_left_out(tmp_path: Path):
    text = (
        "The Project Gutenberg eBook of The Rain\n\nTitle: The Rain\n\nAuthor: Nobody\n\n"
        "*** START OF THE PROJECT GUTENBERG EBOOK THE RAIN ***\n\n"
        + chapters("CHAPTER I", "CHAPTER II")
        + "\n\n*** END OF THE PROJECT GUTENBERG EBOOK THE RAIN ***\n\nCHAPTER I. General Terms of Use\n\nlicence"
    )
    book = book_of(tmp_path, text)
    assert book.title == "The Rain"
    assert_in_order(book, 2)
    assert len(book.left_out) == 1
    assert book.left_out[0].startswith("Project Gutenberg's licence (")


@pytest.mark.parametrize(
    "text",
    [
        "\n\n".join([prose("a"), "Chapter 3 was the one he liked.", prose("b"), "Book one of the best.", prose("c")]),
        "\n\n".join([prose("a"), "1. Water", "2. Bread", "3. Salt", prose("b")]),
        "\n\n".join(["It rained and", "1", "it rained and", "2", "it rained and", "3", "it rained and"]),
        prose("a", 3000),
    ],
    ids=["sentences", "a list", "page numbers", "one paragraph"],
)
def test_no_heading(tmp_path: Path, text: str):
    book = book_of(tmp_path, text)
    assert len(book.chapters) == 1
    assert book.found == "no chapter heading found, so it is one long text"
    assert " ".join(book.chapters[0].paragraphs).split() == text.split()


def test_paragraphs_of_unbroken_lines(tmp_path: Path):
    book = book_of(tmp_path, f"CHAPTER 1\n{prose('a')}\n{prose('b')}\nCHAPTER 2\n{prose('c')}")
    assert [chapter.paragraphs for chapter in book.chapters] == [[prose("a"), prose("b")], [prose("c")]]


def test_broken_lines_are_joined(tmp_path: Path):
    book = book_of(tmp_path, "CHAPTER 1\n\nIt rained\nand rained.\n\nCHAPTER 2\n\nThen it\r\nstopped.\n")
    assert [chapter.paragraphs for chapter in book.chapters] == [["It rained and rained."], ["Then it stopped."]]


# Markdown and HTML


def test_markdown(tmp_path: Path):
    text = (
        "---\ntitle: x\n---\n\n# The Rain\n\n## Contents\n\n- [The Door](#a)\n\n## The Door\n\n"
        + prose("text 0")
        + "\n\nThe Key\n-------\n"
        + prose("text 1")
        + "\n\n```\n## no heading\n```\n"
    )
    book = book_of(tmp_path, text, "book.md")
    assert book.title == "The Rain"
    assert titles(book) == ["The Door", "The Key"]
    assert book.chapters[0].paragraphs == [prose("text 0")]
    assert book.chapters[1].paragraphs[0] == prose("text 1")
    assert "## no heading" in book.chapters[1].paragraphs[1]
    assert book.left_out == ["Contents (2 words)"]


@pytest.mark.parametrize("opening", ["---\n\n# One\n\nRain.\n\n---\n\n", "---\nRain.\n\n---\n\n"])
def test_rules_in_markdown_are_no_settings(tmp_path: Path, opening: str):
    book = book_of(tmp_path, opening + "# Two\n\nIt rained on.\n", "book.md")
    assert "Rain." in " ".join(paragraph for chapter in book.chapters for paragraph in chapter.paragraphs)


def test_markdown_parts_over_chapters(tmp_path: Path):
    text = "".join(f"# {part}\n\n" + "".join(f"## {c}\n\n{prose(c)}\n\n" for c in "AB") for part in ("One", "Two"))
    book = book_of(tmp_path, text, "book.markdown")
    assert titles(book) == ["One, A", "One, B", "Two, A", "Two, B"]


def test_markdown_sections_do_not_divide_a_chapter(tmp_path: Path):
    text = "".join(f"# {c}\n\n{prose(c)}\n\n## A section\n\nMore.\n\n## Another\n\nMore.\n\n" for c in ("One", "Two"))
    book = book_of(tmp_path, text, "book.md")
    assert titles(book) == ["One", "Two"]
    assert book.chapters[0].paragraphs == [prose("One"), "A section", "More.", "Another", "More."]


def test_html(tmp_path: Path):
    page = "".join(f"<h2>Chapter {n}</h2><p>It&nbsp;rained<br>on<script>no</script> &amp; on.</p>" for n in (1, 2))
    book = book_of(tmp_path, f"<html><head><title>The Rain</title></head><body>{page}", "book.html")
    assert book.title == "The Rain"
    assert [(c.title, c.paragraphs) for c in book.chapters] == [
        ("Chapter 1", ["It rained on & on."]),
        ("Chapter 2", ["It rained on & on."]),
    ]


def test_html_of_word(tmp_path: Path):
    """Its names have colons, and it is no XML."""
    book = book_of(tmp_path, "<html><body><p class=MsoNormal>It rained<o:p></o:p> on<br>& on.</p>", "book.htm")
    assert book.chapters[0].paragraphs == ["It rained on & on."]


@pytest.mark.parametrize("depth", [300, 3000, 1500])
def test_deep_html_is_read_or_refused(tmp_path: Path, depth: int):
    """Tags that are never closed nest."""
    page = f"<html><body><p>Before.</p>{'<font>' * depth}<p>It rained.</p>"
    if depth < 500:
        assert book_of(tmp_path, page, "book.html").chapters[0].paragraphs == ["Before.", "It rained."]
    else:
        with pytest.raises(ValueError, match=r"book\.html has elements nested too deeply"):
            book_of(tmp_path, page, "book.html")


def test_long_html_is_read_whole(tmp_path: Path):
    book = book_of(tmp_path, f"<html><body><p>{'rain ' * 2_500_000}<p>The end.", "book.html")
    assert book.words == 2_500_002


# Folders


def test_folder_in_natural_order(tmp_path: Path):
    folder = tmp_path / "rain"
    for name in ("ch10.txt", "ch2.txt", "ch1.md", "part 2/ch1.txt", ".hidden.txt", "picture.jpg", "LICENSE.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"text of {name}\n")
    (folder / "ch3.txt").write_text("CHAPTER III\nThe Key\n\nText of it.")
    book = read_book(str(folder))
    assert book.title == "rain"
    assert titles(book) == ["ch1", "ch2", "CHAPTER III The Key", "ch10", "part 2, ch1"]
    assert book.chapters[2].paragraphs == ["Text of it."]
    assert book.left_out == ["LICENSE.txt (3 words)", "1 file of another kind (picture.jpg)"]


def test_what_goes_on_comes_behind(tmp_path: Path):
    """Whatever the endings of the files."""
    names = ["Chapter 1.txt", "Chapter 1 - continued.txt", "Chapter 2.md", "Chapter 2.txt", "Story.txt", "Story 2.txt"]
    for name in names:
        (tmp_path / name).write_text("It rained.")
    assert titles(read_book(tmp_path)) == [name.rpartition(".")[0] for name in names]


def test_a_title_of_its_own_says_more_than_the_name(tmp_path: Path):
    (tmp_path / "index.md").write_text("# Welcome\n\nIt rained.")
    (tmp_path / "notes.txt").write_text("It rained on.")
    (tmp_path / "more.md").write_text("# Notes\n\nIt rained.")
    book = read_book(tmp_path)
    assert titles(book) == ["Welcome"]
    assert book.left_out == ["more.md (2 words)", "notes.txt (3 words)"]


def test_folder_with_an_empty_chapter(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "1.txt").write_text("It rained.")
    (tmp_path / "2.txt").write_text(" \n")
    with caplog.at_level(logging.WARNING):
        book = read_book(tmp_path)
    assert titles(book) == ["1"]
    assert book.left_out == ["chapter 2 (2): no text"]
    assert "1 of 2 chapters have no text: chapter 2 (2)" in caplog.text


# Lists


def test_list_of_chapters():
    book = read_book(
        [
            "It rained.\n\nIt rained on.",
            {"title": "The Key", "paragraphs": ["It  was\nlost.", " "]},
            {"text": "Found."},
            Chapter("Last", ["The end."]),
        ],
        title="The Rain",
    )
    assert book.title == "The Rain"
    assert [(c.title, c.paragraphs) for c in book.chapters] == [
        ("", ["It rained.", "It rained on."]),
        ("The Key", ["It was lost."]),
        ("", ["Found."]),
        ("Last", ["The end."]),
    ]
    assert read_book(book) == book


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ([], "holds no text"),
        (["", "  "], "holds no text to summarize; left out: chapter 1; chapter 2"),
        ([{"title": "x"}], r"chapter 1 must have one of text and paragraphs, got \['title'\]"),
        ([{"text": "x", "paragraphs": ["x"]}], "must have one of text and paragraphs"),
        ([{"text": ["x"]}], "text of chapter 1 must be a string, got list"),
        ([{"paragraphs": "x"}], "paragraphs of chapter 1 must be a list, got str"),
        ([{"paragraphs": ["x", 3]}], "paragraphs of chapter 1 must be strings"),
        ([Chapter("One", "x")], "paragraphs of chapter 1 must be a list, got str"),
        (Book("", [Chapter("One", ["x"]), Chapter("", "x")]), "of chapter 2 must be a list"),
        ("", "must be a path, a Book or a list of chapters, got an empty string, which names nothing"),
        ([3], "chapter 1 must be a string or a dictionary"),
        ("Chapter 1\n\nIt was.\n", "must be a path, a Book or a list of chapters, got a text of 19 characters; write"),
        ("a " * 200, "got a text of 400 characters; write"),
        (3, "must be a path, a Book or a list of chapters, got int"),
        (b"book", "must be a path, a Book or a list of chapters, got bytes"),
    ],
)
def test_bad_lists(source: Any, says: str):
    with pytest.raises(ValueError, match=says):
        read_book(source)


# Bad files


def test_no_such_file():
    with pytest.raises(FileNotFoundError, match=r"no file or folder 'nowhere\.txt'"):
        read_book("nowhere.txt")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("book.txt", b"", "holds no text"),
        ("book.txt", b" \n\n*** --- ***\n", "holds no text"),
        ("book.html", b"\n", "holds no text"),
        ("book.txt", "Es regnet über Köln.".encode("latin-1"), "is not a text file.*is not UTF-8.*iconv"),
        ("book.txt", b"rain\0rain", "is not a text file"),
        ("book.odt", b"x", r"ends in \.odt; a book is"),
        ("book.pdf", b"%PDF-1.7", r"book\.pdf is a broken PDF"),
        ("book.docx", b"%PDF-1.7", r"should be a Word document \(\.docx\), and is a PDF"),
        ("book.html", b"%PDF-1.7", r"book\.html should be an HTML page, and is a PDF"),
        ("book.txt", b"<html><p>rain", r"book\.txt is not a text file, but an HTML page"),
        ("book.txt.gz", b"\x1f\x8bnonsense", "damaged and cannot be decompressed"),
        ("book.html", b'<html><meta charset="utf-9"><p>rain</html>', "not in the encoding utf-9"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, says: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_book(tmp_path / name)


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_damaged_archives(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]):
    content = compress(random.Random(0).randbytes(10_000).hex().encode())
    middle = len(content) // 2
    for damaged in (content[:middle], content[:middle] + b"\xff" * 100 + content[middle + 100 :], b"rain"):
        (tmp_path / f"book.txt.{suffix}").write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged and cannot be decompressed"):
            read_book(tmp_path / f"book.txt.{suffix}")


def test_bad_folders(tmp_path: Path):
    with pytest.raises(ValueError, match=r"holds no chapters.*it is empty"):
        read_book(tmp_path)
    (tmp_path / "picture.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"holds no chapters.*it holds picture\.jpg"):
        read_book(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings(tmp_path: Path, encoding: str):
    (tmp_path / "book.txt").write_text("Chapter 1\n\nÜber Köln.\n\nChapter 2\n\nEnde.", encoding=encoding)
    assert read_book(tmp_path / "book.txt").chapters[0].paragraphs == ["Über Köln."]


@pytest.mark.parametrize(
    ("declared", "content", "text"),
    [
        ("ISO-8859-1", b"\x93Rain\x94 fell \x96 5 \x80", "“Rain” fell – 5 €"),
        ("iso-8859-1", b"\x93Rain\x81", "\x93Rain\x81"),
        ("us-ascii", b"K\xf6ln", "Köln"),
        ("x-sjis", b"\x87\x40", "①"),
        ("gb2312", "镕".encode("gbk"), "镕"),
        ("euc-kr", "뷁".encode("cp949"), "뷁"),
    ],
)
def test_encodings_as_browsers_take_them(tmp_path: Path, declared: str, content: bytes, text: str):
    body = b"<p>" + content + b"</p>"
    pages = {
        "a.html": f'<meta charset="{declared}">'.encode() + body,
        "a.htm": f"<?xml version=1.0 encoding={declared}?>".encode() + body,
        "a.xhtml": f'<?xml version="1.0" encoding="{declared}"?><html><body>'.encode() + body + b"</body></html>",
    }
    for name, page in pages.items():
        (tmp_path / name).write_bytes(page)
        assert [chapter.paragraphs for chapter in read_book(tmp_path / name).chapters] == [[text]], name


def test_a_wrong_charset_in_xhtml_of_utf_8_means_nothing(tmp_path: Path):
    page = '<html><head><meta charset="iso-8859-1"/></head><body><p>Köln</p></body></html>'
    assert book_of(tmp_path, page, "a.xhtml").chapters[0].paragraphs == ["Köln"]


@pytest.mark.parametrize(
    "page",
    [
        '\ufeff<meta charset="iso-8859-1"><p>Köln<br>',
        '\ufeff<?xml version="1.0" encoding="iso-8859-1"?><html><body><p>Köln</p></body></html>',
        '<meta charset="utf-16le"><p>Köln<br>',
        '<META http-equiv="Content-Type" content="text/html; charset=unicode"><p>Köln<br>',
        '<?xml version="1.0" encoding="UTF-16"?><html><body><p>Köln</p></body></html>',
        '<script charset="iso-8859-1" src="x"></script><meta charset="utf-8"><p>Köln<br>',
        '<form accept-charset="iso-8859-1"></form><p>Köln<br>',
        '<?xml version="1.0"?><html><body><p title="encoding=latin-1">Köln<br></body></html>',
    ],
)
def test_what_is_no_encoding_of_the_page(tmp_path: Path, page: str):
    """Browsers take UTF-8 for a page with its mark, or that says it is UTF-16 and is not."""
    for name in ("a.html", "a.xhtml"):
        assert book_of(tmp_path, page, name).chapters[0].paragraphs == ["Köln"]


@pytest.mark.parametrize("word", ["Part", "Chapter"])
def test_many_headings_without_text_take_no_time(tmp_path: Path, word: str):
    started = time.monotonic()
    book_of(tmp_path, "\n\n".join(f"{word} {number % 500 + 1}" for number in range(1500)))
    assert time.monotonic() - started < 30


def test_report():
    book = Book("The Rain", [Chapter("One", ["It rained."])], "chapters as given", ["INDEX (2 words)"])
    assert book.report() == "The Rain: 1 chapter, 2 words; chapters as given.\nLeft out: INDEX (2 words)."

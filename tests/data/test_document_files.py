"""Files that are one document each: what is read of awkward ones, what is left out, and what is refused."""

import gzip
import io
import json
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml

from hier_models.books import read_book
from hier_models.data import BadLineError, load_documents
from hier_models.data.document_files import LARGEST_FILE, FileDocument, kind_of, read_document, say_left_out
from hier_models.data.markup import Block
from hier_models.data.pdf import _Line, _paragraphs
from tests.data.pdf_files import At, column, write_pdf


RIVER = [
    "The river rose for three days and nobody",
    "in the village slept. On the fourth it fell",
    "as fast as it had come, and left the fields",
    "under a skin of mud that cracked in the sun.",
    "Then the counting began, house by house, of",
    "what was gone and of what could be repaired.",
    "The mill had lost its wheel, and the school",
    "its books, which lay in the hedges for weeks.",
]
FERRY = [
    "Meanwhile the ferry lay on the other bank,",
    "where the flood had set it down between two",
    "poplars. Its rope was whole. It took twelve",
    "men and a morning to bring it back to water,",
    "and by noon the first cart had crossed over,",
    "with seed for the farms on the eastern side.",
    "Nobody asked for a fare that week, and when",
    "the bell rang at night somebody always came.",
]
TREES = [
    "Poplars grow fast and",
    "drink much. They keep",
    "the bank where it is,",
    "and give some shade.",
    "Their wood is light,",
    "so boxes are made of",
    "it, and matches, and",
    "the shoes of farmers.",
]
LEFT, RIGHT = 60, 320
WORD_NAMES = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def text_of(document: FileDocument) -> str:
    return document.row()["text"]


def one(lines: list[str]) -> str:
    return " ".join(lines)


@pytest.fixture
def pdf(tmp_path: Path):
    def read(*pages: list[At], **options: str) -> FileDocument:
        return read_document(write_pdf(tmp_path / "paper.pdf", pages, **options))

    return read


# PDF: order


def test_lines_become_paragraphs(pdf):
    document = pdf([*column(RIVER), *column(FERRY, y=700 - 12 * 8 - 20)])
    assert text_of(document) == f"{one(RIVER)}\n\n{one(FERRY)}"
    assert say_left_out(document.left_out) == ""


def test_two_columns_written_row_by_row(pdf):
    rows = [line for pair in zip(column(RIVER, LEFT), column(FERRY, RIGHT), strict=True) for line in pair]
    assert text_of(pdf(rows)) == f"{one(RIVER)}\n\n{one(FERRY)}"


def test_two_columns_below_a_title_that_runs_across(pdf):
    title = At(150, 740, "On floods, ferries, and what is left of both", 16, "F2")
    page = [*column(RIVER, LEFT), title, *column(FERRY, RIGHT)]
    document = pdf(page)
    assert document.title == title.text
    assert text_of(document) == f"{title.text}\n\n{one(RIVER)}\n\n{one(FERRY)}"
    assert [block.level for block in document.blocks] == [1, 0, 0]


def test_three_columns(pdf):
    words = [[f"{name}{line}" for line in column] for name, column in zip("abc", [TREES] * 3, strict=True)]
    page = [line for number, lines in enumerate(words) for line in column(lines, 50 + 180 * number)]
    assert text_of(pdf(page)).split() == [word for lines in words for line in lines for word in line.split()]


def test_table_is_read_row_by_row(pdf):
    rows = [("Year", "Height", "Lost"), ("1954", "7.2 m", "12"), ("1985", "6.1 m", "3"), ("2013", "8.0 m", "0")]
    cells = [
        At(x, 600 - 14 * n, cell) for n, row in enumerate(rows) for x, cell in zip((72, 200, 330), row, strict=True)
    ]
    text = text_of(pdf([*column(RIVER), *cells]))
    assert text.startswith(one(RIVER))
    assert text.endswith("Year Height Lost 1954 7.2 m 12 1985 6.1 m 3 2013 8.0 m 0")


def test_code_keeps_its_signs(pdf):
    code = ["for (i = 0; i < n; i++) {", "    level[i] -= rain * 0.5;", "}"]
    lines = [At(72, 590 - 12 * n, line, font="F3") for n, line in enumerate(code)]
    assert text_of(pdf([*column(RIVER), *lines])).split("\n\n")[1:] == [code[0], "level[i] -= rain * 0.5; }"]


def test_right_to_left(pdf):
    # On the page, the first word of a line is its last one from the left; A is the first letter of Hebrew.
    lines = [At(72, 700, "FED CBA", font="F4"), At(72, 688, "LKJ IHG", font="F4")]
    letters = [chr(0x5D0 + number) for number in range(12)]
    words = ["".join(letters[start : start + 3]) for start in (0, 3, 6, 9)]
    assert text_of(pdf(lines)) == " ".join(words)


def test_letters_of_formulas_and_pictures(pdf):
    """They stand beyond the first 65,536 characters, and so as two halves; models know letters in their plain form."""
    assert text_of(pdf([At(72, 700, "WE SET X a TO Z", font="F6")])) == "WE SET X \U0001f600 TO Z"


def test_accents_are_put_onto_letters_that_they_stand_over(pdf):
    accent = "\u00b4"
    lines = [At(72, 700, f"It{accent}s Ann n"), At(72 + 10 * 5.4, 700, accent), At(72 + 10 * 5.4, 700, "e Lee.")]
    assert text_of(pdf(lines)) == f"It{accent}s Ann né Lee."


def test_what_goes_on_behind_labels_comes_once(pdf):
    first = [*RIVER[:3], "under a skin of mud that cracked in"]
    rest = ["the sun and was as hard as any road, so that", "carts could go on it for the rest of the year."]
    labels = [At(LEFT, 640, "Time in weeks", 9), At(LEFT, 615, "Depth of mud", 9)]
    page = [*column(first, LEFT), *labels, *column(rest, LEFT, y=585)]
    assert text_of(pdf(page)) == f"{one(first)} {one(rest)}\n\n{labels[0].text}\n\n{labels[1].text}"


def test_sentence_goes_on_behind_a_figure(pdf):
    first = [*RIVER[:3], "under a skin of mud that cracked in"]
    rest = ["the sun and was as hard as any road, so that", "carts could go on it for the rest of the year."]
    caption = At(LEFT, 640, "Figure 1: The fields in June.", 8)
    page = [*column(first, LEFT), caption, *column(rest, LEFT, y=610)]
    assert text_of(pdf(page)) == f"{one(first)} {one(rest)}\n\n{caption.text}"


@pytest.mark.parametrize(
    ("turned", "x", "y", "right", "up"), [(1, 72, 100, 12, 0), (2, 540, 100, 0, 12), (3, 540, 700, -12, 0)]
)
def test_rotated_page(pdf, turned: int, x: int, y: int, right: int, up: int):
    lines = [At(x + n * right, y + n * up, line, turned=turned) for n, line in enumerate(RIVER)]
    document = pdf([*lines, At(300, 40, "Ann Miller")], page_extra=f"/Rotate {90 * turned}")
    assert text_of(document) == one(RIVER)
    assert say_left_out(document.left_out) == "2 words beside the text"


# PDF: what is of the page


def test_running_heads_and_page_numbers_are_left_out(pdf):
    texts = [RIVER, FERRY, TREES, RIVER[4:]]
    pages = [
        [At(72, 760, f"A. Miller: Floods {page}"), *column(lines), At(300, 30, f"- {page} -")]
        for page, lines in enumerate(texts, 1)
    ]
    document = pdf(*pages)
    assert text_of(document) == "\n\n".join(map(one, texts))
    assert say_left_out(document.left_out) == "4 running heads, 4 page numbers"


def test_what_stands_once_at_the_top_stays(pdf):
    texts = {"Rain": RIVER, "Mud": FERRY, "Sun": TREES, "Wind": RIVER[4:]}
    pages = [[At(72, 760, title, font="F2"), *column(lines)] for title, lines in texts.items()]
    assert [block.text for block in pdf(*pages).blocks if block.level] == list(texts)


@pytest.mark.parametrize(("word", "step"), [("Day", 2), ("Question", 1)])
def test_headings_with_a_number_at_the_top_of_pages_stay(pdf, word: str, step: int):
    pages = [[*column(RIVER[n:] + RIVER[:n]), At(300, 30, str(n + 1))] for n in range(8)]
    heads = [f"{word} {number}" for number in range(1, 8 // step + 1)]
    for head, page in zip(heads, pages[::step], strict=True):
        page.insert(0, At(72, 740, head))
    document = pdf(*pages)
    assert re.findall(rf"{word} \d", text_of(document)) == heads
    assert say_left_out(document.left_out) == "8 page numbers"


def test_running_heads_with_the_number_of_their_chapter_are_left_out(pdf):
    pages = [[At(72, 740, f"Chapter 3: Mud {n}"), *column(RIVER[n:] + RIVER[:n])] for n in range(4)]
    assert say_left_out(pdf(*pages).left_out) == "4 running heads"


def test_footnotes_are_left_out_and_their_marks(pdf):
    marked = [
        *column(RIVER),
        At(72, 590, "It was said"),
        At(124, 594, "1", 6),
        At(131, 590, "that 10"),
        At(166, 594, "6", 6),
    ]
    notes = [At(72, 89, "1", 5), At(75, 86, "By the miller, who was there and who", 7), At(72, 78, "saw it all.", 7)]
    document = pdf([*marked, *notes])
    assert text_of(document) == f"{one(RIVER)}\n\nIt was said that 10^6"
    assert document.left_out["footnotes"] == 1


@pytest.mark.parametrize("line", ["Copyright of the village, which has all rights.", "2019 was a year of rain."])
def test_small_print_without_mark_stays(pdf, line: str):
    assert text_of(pdf([*column(RIVER), At(72, 90, line, 7)])).endswith(line)


@pytest.mark.parametrize(("figure", "power", "written"), [("2", "1", "2"), ("10", "1", "10^1"), ("5", "7", "5^7")])
def test_a_mark_behind_a_figure_is_that_of_its_footnote(pdf, figure: str, power: str, written: str):
    raised = At(79 + 5 * len(figure), 594, power, 6)
    marked = [*column(RIVER), At(72, 590, f"X {figure}"), raised, At(160, 590, "and more.")]
    assert text_of(pdf([*marked, At(72, 86, "1 By the miller.", 7)])).endswith(f"\n\nX {written} and more.")


def test_a_footnote_of_a_year(pdf):
    marked = [*column(RIVER), At(72, 590, "It fell in 1954"), At(153, 594, "1", 6), At(160, 590, "and later.")]
    assert text_of(pdf([*marked, At(72, 86, "1 By the miller.", 7)])).endswith("\n\nIt fell in 1954 and later.")


def test_a_long_text_without_sentences_takes_no_time():
    places = [(n // 40, 800 - 12 * (n % 40)) for n in range(40_000)]
    lines = [
        _Line("Poplars grow fast", page, 72, 200, bottom, bottom + 9, 9, column=(page, 0), edges=(72, 200))
        for page, bottom in places
    ]
    started = time.monotonic()
    assert len(_paragraphs(lines, 9)) == 1
    assert time.monotonic() - started < 10


def test_hyphens_at_the_ends_of_lines(pdf):
    lines = [
        "The farm-",
        "yard had a well-",
        "known mill, which every-",
        "body knows, and an up-",
        "to-date ferry. Every well-known mill has a Mid-",
        "European look.",
    ]
    document = pdf(column(lines))
    assert text_of(document) == (
        "The farmyard had a well-known mill, which everybody knows, and an up-to-date ferry. "
        "Every well-known mill has a Mid-European look."
    )
    assert document.left_out["line_end_hyphens"] == 5


def test_hyphens_that_stand_for_a_word(pdf):
    lines = ["The Kinder-", "und Jugendhilfe knows pre-", "and post-war rivers, and col-", "or as a color."]
    document = pdf(column(lines))
    assert text_of(document) == "The Kinder- und Jugendhilfe knows pre- and post-war rivers, and color as a color."
    assert document.left_out["line_end_hyphens"] == 1
    lines = ["This how-to guide and that how-", "to guide tell of an AND-", "OR gate of x-", "y."]
    assert text_of(pdf(column(lines))) == "This how-to guide and that how-to guide tell of an AND-OR gate of xy."


def test_stamp_in_the_margin(pdf):
    document = pdf([At(20, 300, "Received 3 May 2021", turned=1), *column(RIVER)])
    assert text_of(document) == one(RIVER)
    assert say_left_out(document.left_out) == "4 words beside the text"


@pytest.mark.parametrize("abstract", ["Abstract", f"Abstract—{RIVER[0]}", f"Abstract {RIVER[0]}"])
def test_authors_in_large_letters(pdf, abstract: str):
    top = [At(72, 740, "On floods", 18, "F2"), At(72, 715, "Ann Miller", 11), At(72, 700, "School of Rivers")]
    document = pdf([*top, At(72, 670, abstract), *column(FERRY, y=640)])
    assert [block.level for block in document.blocks][:1] == [1]
    assert text_of(document).startswith(f"On floods\n\n{abstract}")
    assert document.left_out["author_words"] == 5


def test_references_and_authors(pdf):
    page = [
        At(72, 740, "On floods", 18, "F2"),
        At(72, 715, "Ann Miller, School of Rivers"),
        At(72, 690, "Abstract", 12, "F2"),
        *column(RIVER, y=670),
        At(72, 560, "References", 12, "F2"),
        *column(["[1] A. Miller. Mud. 1987.", "[2] B. Poplar. Shade. 1990."], y=540),
        At(72, 500, "A. Heights", 12, "F2"),
        *column(FERRY, y=480),
    ]
    document = pdf(page)
    assert [block.text for block in document.blocks] == ["On floods", "Abstract", one(RIVER), "A. Heights", one(FERRY)]
    assert [block.level for block in document.blocks] == [1, 2, 0, 2, 0]
    assert say_left_out(document.left_out) == "11 words of the reference list, 5 words on the authors"


def test_pages_of_a_text(pdf):
    document = pdf(column(RIVER[:5]), [], column(RIVER[5:]), column(FERRY))
    row = document.row()
    assert row["text"] == f"{one(RIVER)}\n\n{one(FERRY)}"  # a sentence may go on on the next page
    pages = {page["page"]: row["text"][page["start"] :] for page in row["page_starts"]}
    assert sorted(pages) == [1, 3, 4]
    assert pages[3].startswith(RIVER[5])
    assert pages[4].startswith(FERRY[0])
    assert say_left_out(document.left_out) == "1 page without text"


def test_a_thousand_pages(pdf):
    texts = [f"Page {'abcdefghij'[number % 10] * (number // 10 + 1)} tells of it." for number in range(1000)]
    document = pdf(*([At(72, 700, text), At(300, 30, str(number))] for number, text in enumerate(texts, 1)))
    assert document.left_out["page_numbers"] == 1000
    starts = document.row()["page_starts"]
    assert [page["page"] for page in starts] == list(range(1, 1001))
    assert document.row()["text"][starts[499]["start"] :].startswith(texts[499])


# PDF: refused


ENCRYPTED = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O ({'a' * 32}) /U ({'b' * 32}) /P -44 >> /ID [(a) (b)]"


@pytest.mark.parametrize(
    ("page", "options", "says"),
    [
        ([], {}, "has no text on its 1 page, so it is a scan, or empty; .*ocrmypdf in.pdf"),
        ([At(72, 700, "nobody can read it", font="F5")], {}, "fonts that do not say which letters .*--force-ocr"),
        ([At(72, 700, "secret")], {"extra": ENCRYPTED}, "is encrypted and wants a password; .*qpdf --decrypt"),
    ],
)
def test_pdfs_without_text(pdf, page, options, says):
    with pytest.raises(ValueError, match=says):
        pdf(page, **options)


def test_pdf_behind_other_signs_and_cut_off(tmp_path: Path):
    file = write_pdf(tmp_path / "paper.pdf", [column(RIVER)])
    content = file.read_bytes()
    file.write_bytes(b"@PJL\n" + content)
    assert text_of(read_document(file)) == one(RIVER)
    file.write_bytes(content[:500])
    with pytest.raises(ValueError, match=r"paper.pdf is a broken PDF \(.*; is it whole\?"):
        read_document(file)


def test_a_pdf_without_one_of_its_pages_does_not_keep_others_from_being_read(tmp_path: Path):
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text(one(FERRY))
    file = write_pdf(papers / "b.pdf", [column(RIVER), column(FERRY)])
    content = file.read_bytes()
    kids = re.search(rb"/Kids \[\s*\d+ 0 R\s+(\d+) 0 R", content)
    file.write_bytes(content[: kids.start(1)] + b"0" * len(kids[1]) + content[kids.end(1) :])
    with pytest.raises(ValueError, match=r"b.pdf is a broken PDF \(page 2: .*; is it whole\?"):
        read_document(file)
    assert load_documents(papers, bad_lines="set_aside", set_aside_file=tmp_path / "bad.jsonl")["id"] == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.pdf",
            b"<!DOCTYPE html>\n<html>Log in",
            "should be a PDF, and is an HTML page; give its name the ending .html",
        ),
        ("a.pdf", b"Plain words.", "should be a PDF, and is no such file, or a broken one"),
        ("a.docx", b"\xd0\xcf\x11\xe0 old", "is an old Word document .*save it as .docx without a password"),
        ("a.docx", b"PK\x03\x04 word/document.xml", "is a broken Word document"),
        ("a.html", b" \n", "a.html is empty"),
        ("a.pdf", b"", "a.pdf is empty"),
        ("a.md", b"%PDF-1.7", "is not a text file, but a PDF; give its name the ending .pdf"),
        ("a.md", b"\n %PDF-1.7", "is not a text file, but a PDF"),
        ("a.md", b"\xff\xfe\xfd", "is not a text file"),
        ("a.txt", b"<!doctype html>\n<p>Mud.", "is not a text file, but an HTML page; give its name the ending .html"),
        ("a", b"<html><p>Mud.", "is not a text file, but an HTML page"),
        ("a.html", b"%PDF-1.7", "should be an HTML page, and is a PDF; give its name the ending .pdf"),
        ("a.htm", b"PK\x03\x04", "should be an HTML page, and is a zip archive; unpack it"),
        ("a.txt", gzip.compress(b"Mud.", mtime=0), "is not a text file, but a compressed file; unpack it"),
        ("a.xhtml", b"PK\x03\x04 mimetypeapplication/epub+zip", "is an EPUB; read it as a book"),
        ("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\n\n", "a.srt has no text"),
        ("a.odt", b"PK\x03\x04", "ends in .odt, which is not read; save it as .docx or .pdf"),
        ("a.pdf.gz", b"no gzip", "is damaged and cannot be decompressed"),
        ("a.pdf.gz", gzip.compress(b"<html>", mtime=0), "should be a PDF, and is an HTML page"),
    ],
)
def test_refused(tmp_path: Path, name: str, content: bytes, says: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_document(tmp_path / name)


def test_a_text_may_tell_of_pdfs(tmp_path: Path):
    (tmp_path / "a.txt").write_text("A file that begins with %PDF- is a PDF.")
    assert text_of(read_document(tmp_path / "a.txt")).startswith("A file that begins with %PDF- is")


def test_a_text_may_begin_with_a_tag(tmp_path: Path):
    text = "<header> and <p> are tags of <html> pages."
    (tmp_path / "a.txt").write_text(text)
    assert text_of(read_document(tmp_path / "a.txt")) == text
    assert list(load_documents(tmp_path)["text"]) == [text]


def test_comments_without_end_take_no_time():
    assert kind_of(b"<!-- x -->" * 60 + b"Plain words.") == ""
    assert kind_of(b"<?xml version='1.0'?>\n<!-- a -->\n<!-- b --> <HTML>") == ".html"


def test_huge_file(tmp_path: Path):
    with (tmp_path / "huge.pdf").open("wb") as stream:
        stream.truncate(LARGEST_FILE + 1)
    with pytest.raises(ValueError, match="has 1,073,741,825 bytes, and a document at most 1,073,741,824"):
        read_document(tmp_path / "huge.pdf")


def test_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = {"pypdfium2": write_pdf(tmp_path / "a.pdf", [column(RIVER)]), "trafilatura": tmp_path / "a.html"}
    files["trafilatura"].write_text("<p>Rain.</p>")
    docx.Document().save(str(tmp_path / "a.docx"))
    for module, file in (files | {"docx": tmp_path / "a.docx"}).items():
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"pip install 'hier_models\[files\]'"):
            read_document(file)


# Word


def test_word(tmp_path: Path):
    document = docx.Document()
    document.add_heading("On floods", 0)
    document.add_heading("Rain", 1)
    paragraph = document.add_paragraph("It rose ")
    paragraph.add_run("for three days.").bold = True
    for kind, text in (("ins", " Then it fell."), ("moveFrom", " Gone.")):
        paragraph._p.append(parse_xml(f"<w:{kind} {WORD_NAMES}><w:r><w:t>{text}</w:t></w:r></w:{kind}>"))
    table = document.add_table(2, 2)
    for cell, text in zip(
        [cell for row in table.rows for cell in row.cells], ("Year", "Lost", "1954", "12"), strict=True
    ):
        cell.text = text
    document.add_heading("References", 1)
    document.add_paragraph("Miller, Mud, 1987.")
    document.save(str(tmp_path / "a.docx"))
    read = read_document(tmp_path / "a.docx")
    assert read.title == "On floods"
    assert [(block.text, block.level) for block in read.blocks] == [
        ("On floods", 1),
        ("Rain", 2),
        ("It rose for three days. Then it fell.", 0),
        ("Year | Lost", 0),
        ("1954 | 12", 0),
    ]
    assert read.left_out["reference_words"] == 4
    assert "page_starts" not in read.row()


def test_words_with_a_hyphen_that_does_not_break(tmp_path: Path):
    document = docx.Document()
    run = f"<w:r {WORD_NAMES}><w:t>A 737</w:t><w:noBreakHyphen/><w:t>800 flew over.</w:t></w:r>"
    document.add_paragraph()._p.append(parse_xml(run))
    document.save(str(tmp_path / "a.docx"))
    assert text_of(read_document(tmp_path / "a.docx")) == "A 737-800 flew over."


def test_styles_without_a_name_or_based_on_each_other(tmp_path: Path):
    document = docx.Document()
    one_style, other = (document.styles.add_style(name, 1) for name in ("One", "Other"))
    one_style.base_style, other.base_style = other, one_style
    other.element.remove(other.element.name)
    document.add_paragraph("Rain.", one_style)
    document.save(str(tmp_path / "a.docx"))
    assert read_document(tmp_path / "a.docx").blocks == [Block("Rain.")]


@pytest.mark.parametrize(
    "kind", ["vnd.ms-word.document.macroEnabled", "vnd.openxmlformats-officedocument.wordprocessingml.template"]
)
def test_other_files_of_word(tmp_path: Path, kind: str):
    docx.Document().save(str(tmp_path / "made.docx"))
    with zipfile.ZipFile(tmp_path / "made.docx") as made, zipfile.ZipFile(tmp_path / "a.docx", "w") as changed:
        for name in made.namelist():
            actual = b"vnd.openxmlformats-officedocument.wordprocessingml.document"
            changed.writestr(name, made.read(name).replace(actual + b".main", f"{kind}.main".encode()))
    with pytest.raises(ValueError, match=r"a\.docx is another kind of Word file .*; save it as \.docx$"):
        read_document(tmp_path / "a.docx")


def test_a_word_document_that_would_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    docx.Document().save(str(tmp_path / "a.docx"))
    size = (tmp_path / "a.docx").stat().st_size
    monkeypatch.setattr("hier_models.data.document_files.LARGEST_FILE", size)
    with pytest.raises(ValueError, match=rf"a\.docx would unpack to more than {size:,} bytes; divide it"):
        read_document(tmp_path / "a.docx")


def test_references_without_a_heading_style_take_only_entries(tmp_path: Path):
    entries = ["Miller, A. Mud. Oxford, 1987.", "Poplar, B.", "Shade. https://shade.org"]
    after = ["The ferry goes at noon.", "It costs nothing.", "Since 1990 it has had a bell."]
    for name, blocks in {"a.md": [*entries, *after], "b.md": after[:2]}.items():
        (tmp_path / name).write_text("\n\n".join(["# On the ferry", "It goes.", "References", *blocks]))
    read, other = (read_document(tmp_path / name) for name in ("a.md", "b.md"))
    assert [block.text for block in read.blocks] == ["On the ferry", "It goes.", *after]
    assert say_left_out(read.left_out) == "10 words of the reference list"
    assert [block.text for block in other.blocks] == ["On the ferry", "It goes.", "References", *after[:2]]


def test_a_reference_list_may_have_entries_that_show_nothing(tmp_path: Path):
    years = [f"Miller, A. Mud. {year}." for year in range(1987, 1993)]
    entries = ["Mud and how to read it", "RFC 2616, HTTP/1.1.", *years]
    (tmp_path / "a.md").write_text("\n\n".join(["# On the ferry", "It goes.", "**References**", *entries]))
    assert [block.text for block in read_document(tmp_path / "a.md").blocks] == ["On the ferry", "It goes."]


@pytest.mark.parametrize(
    "top", ["School of Rivers, Oxford, United Kingdom.", "Rivers Inc.", "e-mail: ann@rivers.edu.", "Ann Miller"]
)
@pytest.mark.parametrize(
    "abstract", ["Abstract-We studied mud.", "Abstract 12 floods rose.", "Résumé Étude des crues.", "Summary: Floods."]
)
def test_authors_with_a_full_stop_are_authors(tmp_path: Path, top: str, abstract: str):
    (tmp_path / "a.md").write_text(f"# On floods\n\n{top}\n\n{abstract}\n")
    assert [block.text for block in read_document(tmp_path / "a.md").blocks] == ["On floods", abstract]


@pytest.mark.parametrize(
    "lead",
    [
        "On Tuesday the county council decided to buy a new ferry, which is to make her first crossing in May 2027.",
        "Der Rat beschloss am Dienstag einen neuen Hafen. Er kostet neun Millionen Euro.",
    ],
)
def test_a_lead_is_no_author(tmp_path: Path, lead: str):
    (tmp_path / "a.md").write_text(f"# On floods\n\n{lead}\n\n## Summary\n\nIt rose.\n")
    assert lead in text_of(read_document(tmp_path / "a.md"))


def test_a_summary_does_not_take_the_text_before_it(tmp_path: Path):
    document = docx.Document()
    document.add_heading("On the ferry", 0)
    document.add_heading("Background", 1)
    document.add_paragraph("Its rope broke")
    document.add_heading("Summary", 1)
    document.add_paragraph("See above.")
    document.save(str(tmp_path / "a.docx"))
    (tmp_path / "a.md").write_text("# On the ferry\n\nIts rope broke in the flood.\n\nSummary\n\nSee above.\n")
    (tmp_path / "b.md").write_text("# On the ferry\n\nIts rope\n\nSummary statistics of its rope: one.\n")
    texts = [text_of(read_document(tmp_path / name)).split("\n\n") for name in ("a.docx", "a.md", "b.md")]
    assert texts == [
        ["On the ferry", "Background", "Its rope broke", "Summary", "See above."],
        ["On the ferry", "Its rope broke in the flood.", "Summary", "See above."],
        ["On the ferry", "Its rope", "Summary statistics of its rope: one."],
    ]


def test_footnotes_of_word(tmp_path: Path):
    docx.Document().save(str(tmp_path / "plain.docx"))
    relation = 'Id="rId99" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"'
    changed = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "plain.docx") as old, zipfile.ZipFile(changed, "w") as new:
        for entry in old.namelist():
            content = old.read(entry).decode("latin-1")
            if entry == "word/_rels/document.xml.rels":
                content = content.replace("</Rel", f'<Relationship {relation} Target="footnotes.xml"/></Rel')
            if entry == "word/document.xml":
                content = content.replace("<w:body>", "<w:body><w:p><w:r><w:t>Rain.</w:t></w:r></w:p>")
            new.writestr(entry, content.encode("latin-1"))
        new.writestr("word/footnotes.xml", f"<w:footnotes {WORD_NAMES}>{'<w:footnoteRef/>' * 3}</w:footnotes>")
    (tmp_path / "a.docx").write_bytes(changed.getvalue())
    read = read_document(tmp_path / "a.docx")
    assert text_of(read) == "Rain."
    assert say_left_out(read.left_out) == "3 footnotes"


# HTML and Markdown


def test_page_without_what_stands_round_it(tmp_path: Path):
    around = "<nav><ul><li><a href=/>Home</a><li><a href=/a>All our news</a></ul></nav>"
    code = "<pre><code>import mud</code></pre>"
    article = f"<article><h1>On floods</h1><p>{one(RIVER)}</p><h2>After it</h2><p>{one(FERRY)}</p>{code}</article>"
    page = f"<html><head><title>On floods - News</title></head><body>{around}{article}<footer>All rights.</footer>"
    (tmp_path / "a.html").write_text(page)
    read = read_document(tmp_path / "a.html")
    assert read.title == "On floods"
    assert [(b.text, b.level) for b in read.blocks] == [
        ("On floods", 1),
        (one(RIVER), 0),
        ("After it", 2),
        (one(FERRY), 0),
    ]
    assert read.left_out["code_words"] == 2
    assert read.left_out["margin_words"] == 2  # and the links, which are no text


def test_markdown(tmp_path: Path):
    (tmp_path / "a.md").write_text(
        f"---\ntitle: x\n---\n# On floods\n\n{one(RIVER)}\n\n## References\n\n- Miller\n\n## Mud\n\nDry.\n"
    )
    read = read_document(tmp_path / "a.md")
    assert read.title == "On floods"
    assert text_of(read) == f"On floods\n\n{one(RIVER)}\n\nMud\n\nDry."
    assert say_left_out(read.left_out) == "2 words of the reference list"


def test_a_readme(tmp_path: Path):
    """Badges, comments, HTML and code are not what it says."""
    (tmp_path / "README.md").write_text(
        "<!-- Copyright 2026.\nAll rights. -->\n<p align='center'><img alt='Logo' src='logo.svg'></p>\n\n# Floods\n\n"
        "[![Build](https://x.org/badge.svg)](https://x.org/ci)\n\n**Floods** reads *gauges*, see [the\nguide](https://x.org).\n\n"
        "```python\n# no heading\nimport floods\n```\n\nIt has:\n\n- rivers, `all` of them\n- lakes\n\n"
        "| gauge | metres |\n|---|---|\n| Bridge | 2 |\n"
    )
    read = read_document(tmp_path / "README.md")
    assert [block.text for block in read.blocks] == [
        *("Floods", "Floods reads gauges, see the guide.", "It has:", "rivers, all of them", "lakes"),
        *("gauge metres", "Bridge 2"),
    ]
    assert say_left_out(read.left_out) == "5 words of code"
    (tmp_path / "code.md").write_text("```\nimport floods\n```\n")
    assert text_of(read_document(tmp_path / "code.md")) == "import floods"  # it is all there is


@pytest.mark.parametrize(
    "said", ["encoding=None", "charset=utf-9", "`encoding='latin-1'`", '<meta charset="latin-1">']
)
def test_markdown_may_tell_of_encodings(tmp_path: Path, said: str):
    (tmp_path / "a.md").write_text(f"# Café\n\n{said}\n\nZoë.<br>\nNaïve.\n", encoding="utf-8")
    texts = [block.text for block in read_document(tmp_path / "a.md").blocks]
    assert (texts[0], texts[-1]) == ("Café", "Zoë. Naïve.")


def test_markdown_without_what_its_html_hides(tmp_path: Path):
    hidden = "<p hidden>Draft.</p>\n\n<div style='color: red; DISPLAY:none'><p>Draft.</p></div>"
    (tmp_path / "a.md").write_text(f"# On mud\n\n{hidden}\n\nDry.\n")
    assert text_of(read_document(tmp_path / "a.md")) == "On mud\n\nDry."


# Subtitles


def test_subtitles_with_names(tmp_path: Path):
    cues = "1\n00:00:01,000 --> 00:00:02,500\nANN: Did it <i>rise</i>?\n\n"
    cues += "2\n00:00:03,000 --> 00:00:04,000\nAll night?\n\n"
    cues += "3\n00:00:05,000 --> 00:00:06,000\n- BOB: All night.\n- ANN: Note: I slept.\n"
    (tmp_path / "a.srt").write_text(cues.replace("\n", "\r\n"))
    assert read_document(tmp_path / "a.srt").row() == {
        "turns": [
            {"role": "ANN", "content": "Did it rise? All night?"},
            {"role": "BOB", "content": "All night."},
            {"role": "ANN", "content": "Note: I slept."},
        ]
    }


def test_who_answers_in_the_same_cue_is_known(tmp_path: Path):
    cue = "{0}\n00:00:0{0},000 --> 00:00:0{0},900\n- Ann: Did it rise on day {0}?\n- Bob: It did, by {0} feet.\n\n"
    (tmp_path / "a.srt").write_text(cue.format(1) + cue.format(2))
    assert [(turn["role"], turn["content"]) for turn in read_document(tmp_path / "a.srt").turns] == [
        ("Ann", "Did it rise on day 1?"),
        ("Bob", "It did, by 1 feet."),
        ("Ann", "Did it rise on day 2?"),
        ("Bob", "It did, by 2 feet."),
    ]


@pytest.mark.parametrize(
    ("cues", "text"),
    [
        # A blank line in a cue.
        ("1|{0}It rose.||For days?||2|{1}No.|", "It rose. For days? No."),
        ("WEBVTT||{0}It rose.||For days?||NOTE of|nobody||{1}No.|", "It rose. For days? No."),
        # No blank line between cues.
        ("1|{0}It rose.|2|{1}No.|", "It rose. No."),
        ("WEBVTT||first|{0}It rose.||the second|{1}No.|", "It rose. No."),
        ("1|00:00:01 --> 00:00:02|It rose.||2|00:00:03 --> 00:00:04|1988.|", "It rose. 1988."),
    ],
)
def test_cues_as_people_write_them(tmp_path: Path, cues: str, text: str):
    times = ("00:00:01,000 --> 00:00:02,000|", "00:00:03,000 --> 00:00:04,000|")
    (tmp_path / "a.srt").write_text(cues.format(*times).replace("|", "\n"))
    assert text_of(read_document(tmp_path / "a.srt")) == text


def test_voices_of_webvtt(tmp_path: Path):
    cues = "WEBVTT\n\nNOTE for nobody\n\n00:01.000 --> 00:02.000 align:start\n"
    cues += "<v Ann Lee>It rose.</v>\n<v.loud Bob>It <c>fell</c>.\n"
    (tmp_path / "a.vtt").write_text(cues)
    turns = [{"role": "Ann Lee", "content": "It rose."}, {"role": "Bob", "content": "It fell."}]
    assert read_document(tmp_path / "a.vtt").turns == turns


def test_subtitles_without_names_are_a_text(tmp_path: Path):
    cue = "00:00:0{}.000 --> 00:00:0{}.900\n{}\n\n"
    shown = ["It rose for", "It rose for\nthree days", "three days\nand fell. Note: twice."]
    (tmp_path / "a.vtt").write_text("WEBVTT\n\n" + "".join(cue.format(n, n, text) for n, text in enumerate(shown)))
    assert text_of(read_document(tmp_path / "a.vtt")) == "It rose for three days and fell. Note: twice."


# As data, and as books


def test_load_documents_of_a_folder(tmp_path: Path):
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text(one(FERRY))
    write_pdf(papers / "b.pdf", [[*column(RIVER), At(300, 30, "1")], column(FERRY)])
    (papers / "c.md").write_text("# Mud\n\nDry.")
    rows = load_documents(papers)
    assert rows["id"] == ["a", "b", "c"]
    assert rows["text"] == [one(FERRY), f"{one(RIVER)}\n\n{one(FERRY)}", "Mud\n\nDry."]
    assert rows["page_starts"] == [None, [{"start": 0, "page": 1}, {"start": len(one(RIVER)) + 2, "page": 2}], None]
    assert rows[1]["left_out"]["page_numbers"] == 1
    assert list(load_documents(papers, streaming=True)) == list(rows)


def test_bad_documents_are_set_aside(tmp_path: Path):
    papers = tmp_path / "papers"
    papers.mkdir()
    write_pdf(papers / "a.pdf", [column(RIVER)])
    write_pdf(papers / "b.pdf", [[]])
    with pytest.raises(BadLineError, match=r"b\.pdf:1: has no text on its 1 page"):
        load_documents(papers)
    assert load_documents(papers, bad_lines="set_aside", set_aside_file=tmp_path / "bad.jsonl")["id"] == ["a"]
    assert json.loads((tmp_path / "bad.jsonl").read_text())["reason"].startswith("has no text on its 1 page")


def test_a_page_that_is_called_a_text_is_set_aside(tmp_path: Path):
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text(one(FERRY))
    (papers / "b.txt").write_text("<html><p>Mud.")
    with pytest.raises(BadLineError, match=r"b\.txt:1: is an HTML page; give its name the ending \.html"):
        load_documents(papers)
    assert load_documents(papers, bad_lines="set_aside", set_aside_file=tmp_path / "bad.jsonl")["id"] == ["a"]


def test_a_damaged_word_document_does_not_keep_others_from_being_read(tmp_path: Path):
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.txt").write_text(one(FERRY))
    docx.Document().save(str(papers / "b.docx"))
    content = (papers / "b.docx").read_bytes()
    place = content.index(b"word/document.xml") + len(b"word/document.xml")
    (papers / "b.docx").write_bytes(content[:place] + b"\xff" * 8 + content[place + 8 :])
    with pytest.raises(ValueError, match=r"b\.docx is a broken Word document \(.*decompress.*save it again"):
        read_document(papers / "b.docx")
    assert load_documents(papers, bad_lines="set_aside", set_aside_file=tmp_path / "bad.jsonl")["id"] == ["a"]
    assert "is a broken Word document" in json.loads((tmp_path / "bad.jsonl").read_text())["reason"]


def test_beside_data_only_text_files_are_documents(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"text": "Rain."}\n')
    (tmp_path / "README.md").write_text("# About\n")
    assert list(load_documents(tmp_path)) == [{"text": "Rain."}]


def test_entities_of_webvtt(tmp_path: Path):
    cue = "00:01.000 --> 00:02.000\nANN:&nbsp;Tom &amp; Bob say 3 &lt;b&gt; 2.\n"
    (tmp_path / "a.vtt").write_text(f"WEBVTT\n\n{cue}")
    assert read_document(tmp_path / "a.vtt").turns == [{"role": "ANN", "content": "Tom & Bob say 3 <b> 2."}]


def test_dialogue_of_subtitles(tmp_path: Path):
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nANN: It rose.\n")
    rows = load_documents(tmp_path / "a.srt")
    assert rows["turns"] == [[{"role": "ANN", "content": "It rose."}]]
    # With texts it is the first file that decides.
    for name, says in (
        ("a.md", "a dialogue, and the others are texts"),
        ("b.txt", "a text, and the others are dialogues"),
    ):
        (tmp_path / name).write_text("It fell.")
        with pytest.raises(BadLineError, match=rf":1: this file is {says}; give one kind at a time, or set it aside"):
            load_documents(tmp_path)
        aside = {"bad_lines": "set_aside", "set_aside_file": tmp_path.with_name("aside")}
        assert len(load_documents(tmp_path, **aside)) == 1
        (tmp_path / name).unlink()


def test_chapters_of_a_pdf(tmp_path: Path):
    pages = [
        [At(72, 740, f"Chapter {number}", 16, "F2"), *column(lines), At(300, 30, str(number))]
        for number, lines in enumerate((RIVER, FERRY), 1)
    ]
    book = read_book(write_pdf(tmp_path / "book.pdf", pages))
    assert [(chapter.title, chapter.paragraphs) for chapter in book.chapters] == [
        ("Chapter 1", [one(RIVER)]),
        ("Chapter 2", [one(FERRY)]),
    ]
    assert "Left out: of book.pdf: 2 page numbers." in book.report()


@pytest.mark.slow
def test_imports_no_reader_before_it_is_needed():
    code = "import sys; from hier_models.data import load_documents; "
    code += "print({'pypdfium2', 'trafilatura', 'docx'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"

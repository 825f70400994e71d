"""PDF: its paragraphs and headings in reading order, with their pages.

A PDF knows only where characters stand. What is of the page and not of the text is left out and counted: running
heads, page numbers, footnotes, text that stands sideways in a margin.
"""

import ctypes
import itertools
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from .markup import REFERENCES, Block


PAGES_THAT_TAKE_A_WHILE = 100
WHOLE = "is it whole? Download or export it again"
# A footnote's mark among the words, until it is known whether the footnote is there.
_MARK, _MARK_END = "\ue000", "\ue001"
_MARKED = re.compile(f"{_MARK}(.*?){_MARK_END}")
_NOTE = re.compile(rf"(?:{_MARK}(\d{{1,3}}|[*∗†‡§¶a-z]){_MARK_END}|(\d{{1,3}}|[*∗†‡§¶])(?=\s|[^\W\d]))")  # noqa: RUF001
# A figure that is raised behind a figure is a power, but behind a year a footnote's mark.
_POWER = re.compile(rf"(?<!\d)(?!(?:1[5-9]|20)\d\d\D)(\d+){_MARK}([-−–]?\d+){_MARK_END}")  # noqa: RUF001
# A number, with the word whose own it is and not the page's.
_NUMBERED = (
    "chapter|part|section|question|exercise|problem|lesson|unit|kapitel|teil|frage|aufgabe|lektion|chapitre|partie"
)
_NUMBER = re.compile(rf"\b(?:{_NUMBERED}) \d+|(?<!\d)\d{{1,6}}(?!\d)")
_HYPHENS = ("-", "\u00ad", "\u2010", "\ufffe", "\x02")  # the last two are what pdfium makes of one at a line's end
# Behind a hyphen that stands for a word.
_AND = ("und", "oder", "bzw", "and", "or", "to", "et", "ou")  # typos: ignore
_BOLD = re.compile(r"bold|black|heavy|demi|medi\b|cmbx|[-,]bd", re.IGNORECASE)
_PAGE_NUMBER = re.compile(
    r"\W*(?:page |p\. ?|seite |s\. ?)?(?:#|[ivxlc]{1,7})(?: ?(?:of|/|von|\|) ?#)?\W*", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?:。！？؟…][\"'”’»)\]]*$")
_CAPTION = re.compile(
    r"(?:figure|fig\.?|table|tab\.|algorithm|listing|abb(?:ildung|\.)|tabelle)\s*[\dA-Z]", re.IGNORECASE
)
_NAMED_CAPTION = re.compile(rf"{_CAPTION.pattern}[\d.]*[.:|] ", re.IGNORECASE)
_ITEM = re.compile(r"(?:[•‣▪●○◦–—-]|\(?\d{1,2}[.)]|\(?[a-z]\))\s")
# Ligatures, letters by their form, and those of formulas.
_OTHER_LETTERS = re.compile("[\ufb00-\ufb06\ufb13-\ufdff\ufe70-\ufeff\U0001d400-\U0001d7ff]")
# Accents as TeX sets them, in front of their letter.
_ACCENTS = {"\u00b4": "\u0301", "\u00a8": "\u0308", "\u02c6": "\u0302", "\u02dc": "\u0303"}
_ACCENTED = re.compile("[A-Za-z\u0131]")
_RIGHT_TO_LEFT = ("R", "AL")
_Character = tuple[str, int, float, float, float, float]  # with its number, left, right, bottom, top


@dataclass
class _Line:
    """Characters beside one another: a line, or the part of one that stands in a column or a cell."""

    text: str
    page: int
    left: float  # places in points, to the right and up, as most of the page's text runs
    right: float
    bottom: float
    top: float
    size: float  # of the letters, in points
    is_bold: bool = False
    angle: float = 0.0
    column: tuple[int, int] = (0, 0)  # page and number of its column
    edges: tuple[float, float] = (0.0, 0.0)  # where its column begins and ends

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass
class _Paragraph:
    lines: list[_Line] = field(default_factory=list)
    text: str = ""
    pages: tuple[tuple[int, int], ...] = ()
    level: int = 0

    @property
    def size(self) -> float:
        return self.lines[0].size

    @property
    def is_bold(self) -> bool:
        return all(line.is_bold for line in self.lines)


def pdf_blocks(content: bytes, name: str) -> tuple[list[Block], str, Counter[str]]:
    """Find the paragraphs and headings of a PDF, its title, and how much was left out of what."""
    try:
        import pypdfium2
    except ImportError as error:
        raise ImportError(f"to read {name}, pip install 'hier_models[files]': pypdfium2 is missing") from error
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
            hint = "save a copy without it (qpdf --decrypt --password=… in.pdf out.pdf)"
            raise ValueError(f"{name} is encrypted and wants a password; {hint}") from error
        raise ValueError(f"{name} is a broken PDF ({error}); {WHOLE}") from error
    try:
        pages = _read_pages(document, name)
        metadata = str(document.get_metadata_dict().get("Title") or "").strip()
    finally:
        document.close()
    left_out = Counter(empty_pages=sum(not page for page in pages))
    letters = Counter(_is_letter(character) for page in pages for line in page for character in line.text)
    if letters[None] > 0.3 * letters.total():
        hint = "make its pages into text anew, as with: ocrmypdf --force-ocr in.pdf out.pdf"
        raise ValueError(f"{name} has fonts that do not say which letters they show; {hint}")
    if not letters[True]:
        count = f"{len(pages)} page{'s' if len(pages) != 1 else ''}"
        hint = "make its pictures into text first, as with: ocrmypdf in.pdf out.pdf"
        raise ValueError(f"{name} has no text on its {count}, so it is a scan, or empty; {hint}")
    pages = [_upright(page, left_out) for page in pages]
    body = _body_size([line for page in pages for line in page])
    pages = _without_running_heads(pages, body, left_out)
    lines: list[_Line] = []
    for page in pages:
        columns = [_without_notes(column, body, left_out) for column in _columns(page)]
        marks = {mark for _, found in columns for mark in found}
        lines += [replace(line, text=_without_marks(line.text, marks)) for column, _ in columns for line in column]
    paragraphs = _paragraphs(lines, body)
    words = Counter(re.findall(r"\w+(?:-\w+)*", " ".join(line.text for line in lines).casefold()))
    for paragraph in paragraphs:
        _write(paragraph, words, left_out)
    paragraphs = _whole(paragraphs, body)
    title = _mark_headings(paragraphs, body)
    blocks = [Block(p.text, p.level, pages=p.pages) for p in paragraphs if p.text]
    return (
        blocks,
        title or ("" if re.search(r"\.\w{2,4}$|^(?:untitled|microsoft)", metadata, re.I) else metadata),
        left_out,
    )


# Characters to lines


def _read_pages(document: Any, name: str) -> list[list[_Line]]:
    from pypdfium2 import PdfiumError
    from tqdm import tqdm

    count = len(document)
    bar = tqdm(
        range(count), desc="Reading pages", leave=False, disable=None if count > PAGES_THAT_TAKE_A_WHILE else True
    )
    pages = []
    for number in bar:
        try:
            page = document[number]
            text = page.get_textpage()
        except PdfiumError as error:
            raise ValueError(f"{name} is a broken PDF (page {number + 1}: {error}); {WHOLE}") from error
        pages.append(list(_lines_of_page(text.raw, number + 1)))
        text.close()
        page.close()
    return pages


def _lines_of_page(text: Any, page: int) -> Iterator[_Line]:
    """Part the characters of a page where pdfium ends a line, and at gaps that can be those between columns."""
    from pypdfium2 import raw

    box = raw.FS_RECTF()
    where = ctypes.byref(box)
    turns = _turns(text)
    line: list[_Character] = []
    first_half = ""  # of a character beyond U+FFFF, which pdfium gives as two
    for number in range(raw.FPDFText_CountChars(text)):
        character = chr(raw.FPDFText_GetUnicode(text, number) or 0xFFFD)
        if "\ud800" <= character < "\udc00":
            first_half = character
            continue
        if "\udc00" <= character < "\ue000":
            character = (first_half + character).encode("utf-16", "surrogatepass").decode("utf-16", "replace")[-1]
        first_half = ""
        if character in "\r\n":
            yield from _line(text, line, page, turns)
            line = []
            continue
        if character.isspace() or not raw.FPDFText_GetLooseCharBox(text, number, where):
            if line and line[-1][0] != " ":
                line.append((" ", number, *line[-1][2:]))
            continue
        start, end, low, high = box.left, box.right, box.bottom, box.top
        for _ in range(turns):
            start, end, low, high = low, high, -end, -start
        if line:
            _, _, left, right, bottom, top = line[-1]
            gap = max(start - right, left - end)
            height = max(top - bottom, high - low)
            if gap > 0.9 * height or min(top, high) - max(bottom, low) < -0.3 * height:
                yield from _line(text, line, page, turns)
                line = []
        line.append((character, number, start, end, low, high))
    yield from _line(text, line, page, turns)


def _turns(text: Any) -> int:
    """How often most of a page's text is turned by 90 degrees, against the clock, by a hundred of its characters."""
    from pypdfium2 import raw

    count = raw.FPDFText_CountChars(text)
    some = range(0, count, 1 + count // 100)
    turns = Counter(round(_size_and_angle(text, number, 0.0)[1] / 90) % 4 for number in some)
    return next((turn for turn, times in turns.items() if 2 * times > len(some)), 0)


def _line(text: Any, characters: list[_Character], page: int, turns: int) -> Iterator[_Line]:
    while characters and characters[-1][0] == " ":
        characters = characters[:-1]
    characters = _with_accents(characters)
    shown = [character for character in characters if character[0] != " "]
    if not shown:
        return
    height, bottom = median(c[5] - c[4] for c in shown), median(c[4] for c in shown)
    pieces, raised = [], False
    for sign, _, _, _, low, high in characters:
        is_raised = sign != " " and high - low < 0.85 * height and low > bottom + 0.1 * height
        pieces += [_MARK] if is_raised and not raised else [_MARK_END] if raised and not is_raised else []
        pieces.append(_OTHER_LETTERS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), sign))
        raised = is_raised
    written = "".join([*pieces, _MARK_END] if raised else pieces)
    first, last = shown[0], shown[-1]
    size, angle = _size_and_angle(text, shown[len(shown) // 2][1], height)
    angle = (angle - 90 * turns + 180) % 360 - 180
    bold = all(_is_bold(text, number) for number in {first[1], shown[len(shown) // 2][1], last[1]})
    left, right = min(c[2] for c in shown), max(c[3] for c in shown)
    yield _Line(written, page, left, right, bottom, bottom + height, size, bold, angle)


def _with_accents(characters: list[_Character]) -> list[_Character]:
    """Put accents onto the letters that they stand over; one that is written as an apostrophe stands before them."""
    found: list[_Character] = []
    for sign, number, left, right, bottom, top in characters:
        place = len(found) - (2 if found and found[-1][0] == " " else 1)
        accent, _, start, end, *_ = found[place] if place >= 0 else ("", 0, 0.0, 0.0)
        shared = min(right, end) - max(left, start)
        if accent in _ACCENTS and _ACCENTED.match(sign) and 2 * shared > min(right - left, end - start):
            sign = unicodedata.normalize("NFC", sign.replace("\u0131", "i") + _ACCENTS[accent])
            del found[place:]
        found.append((sign, number, left, right, bottom, top))
    return found


def _size_and_angle(text: Any, number: int, height: float) -> tuple[float, float]:
    """How many points a letter has, and by how many degrees it is turned."""
    from pypdfium2 import raw

    matrix = raw.FS_MATRIX()
    size = float(raw.FPDFText_GetFontSize(text, number))
    if not size or not raw.FPDFText_GetMatrix(text, number, ctypes.byref(matrix)):
        return height, 0.0
    return size * math.hypot(matrix.c, matrix.d), math.degrees(math.atan2(matrix.b, matrix.a))


def _is_bold(text: Any, number: int) -> bool:
    from pypdfium2 import raw

    name, flags = ctypes.create_string_buffer(128), ctypes.c_int()
    raw.FPDFText_GetFontInfo(text, number, name, 128, ctypes.byref(flags))
    return raw.FPDFText_GetFontWeight(text, number) >= 600 or bool(_BOLD.search(name.value.decode("utf-8", "replace")))


def _is_letter(character: str) -> bool | None:
    """Whether it is a letter or figure; None if nobody can tell what it is."""
    if character in (_MARK, _MARK_END, *_HYPHENS):
        return False
    return (
        None if unicodedata.category(character) in ("Cc", "Co", "Cn") or character == "\ufffd" else character.isalnum()
    )


def _upright(lines: list[_Line], left_out: Counter[str]) -> list[_Line]:
    """Leave out what is turned, as a stamp in the margin is, unless most of the page is."""
    turned = [line for line in lines if abs(line.angle) > 10]
    if 2 * sum(len(line.text) for line in turned) > sum(len(line.text) for line in lines):
        return lines
    left_out["margin_words"] += sum(len(line.text.split()) for line in turned)
    return [line for line in lines if abs(line.angle) <= 10]


# What is of the page


def _rows(lines: Sequence[_Line]) -> list[list[_Line]]:
    """Lines that stand beside one another, from the top; each row in reading order."""
    rows: list[list[_Line]] = []
    for line in sorted(lines, key=lambda line: -line.middle):
        shared = min(line.top, rows[-1][0].top) - max(line.bottom, rows[-1][0].bottom) if rows else 0.0
        if rows and shared > 0.5 * min(line.top - line.bottom, rows[-1][0].top - rows[-1][0].bottom):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: -line.right if _is_right_to_left(row) else line.left) for row in rows]


def _is_right_to_left(lines: Sequence[_Line]) -> bool:
    kinds = Counter(unicodedata.bidirectional(character) for line in lines for character in line.text)
    return sum(kinds[kind] for kind in _RIGHT_TO_LEFT) > kinds["L"]


def _edges(lines: Sequence[_Line], body: float) -> list[tuple[bool, str, list[_Line]]]:
    """The first and the last rows of a page: whether at its top, and what they say."""
    rows = _rows(lines)
    chosen = [(True, row) for row in rows[:2]] + [(False, row) for row in rows[2:][-2:]]
    return [
        (is_top, " ".join(_MARKED.sub(r"\1", line.text) for line in row).casefold(), row)
        for is_top, row in chosen
        if max(line.size for line in row) <= 1.1 * body  # "Chapter 3" stands at one place, too
    ]


def _without_running_heads(pages: list[list[_Line]], body: float, left_out: Counter[str]) -> list[list[_Line]]:
    """Leave out what comes again at the same place above or below the text of several pages, whatever its number."""
    found = [_edges(lines, body) for lines in pages]
    # Numbers that count on with the pages are theirs; that of "Day 3" is not.
    shifts = Counter(
        shift
        for rows in found
        for shift in {int(n) - row[0].page for _, said, row in rows for n in _NUMBER.findall(said) if n.isdecimal()}
    )

    def without_page(said: str, page: int) -> str:
        if _PAGE_NUMBER.fullmatch(re.sub(r"\d+", "#", said)):
            return "#"
        return _NUMBER.sub(lambda n: "#" if n[0].isdecimal() and shifts[int(n[0]) - page] > 1 else n[0], said)

    edges = [
        [((is_top, without_page(said, row[0].page)), round(row[0].bottom / 4), row) for is_top, said, row in rows]
        for rows in found
    ]
    seen = Counter(place for rows in edges for place in {(key, height) for key, height, _ in rows})
    filled = sum(bool(page) for page in pages)
    kept = []
    for lines, rows_here in zip(pages, edges, strict=True):
        dropped: set[int] = set()
        for key, height, row in rows_here:
            times = sum(seen[key, near] for near in (height - 1, height, height + 1))
            is_number = key[1] == "#"
            alone = is_number and re.sub(r"\D", "", row[0].text) == str(row[0].page)
            if times >= (2 if is_number or filled < 5 else 3) or alone:
                left_out["page_numbers" if is_number else "running_heads"] += 1
                dropped |= {id(line) for line in row}
        kept.append([line for line in lines if id(line) not in dropped])
    return kept


def _body_size(lines: Sequence[_Line]) -> float:
    """The size that most letters have."""
    letters: Counter[float] = Counter()
    for line in lines:
        letters[round(line.size * 2) / 2] += len(line.text)
    return letters.most_common(1)[0][0] if letters else 0.0


def _without_notes(column: list[_Line], body: float, left_out: Counter[str]) -> tuple[list[_Line], list[str]]:
    """Take the footnotes off a column: small print at its end that begins with a mark; and say which marks."""
    start = len(column)
    while start and column[start - 1].size < 0.93 * body:
        start -= 1
    begins = [(n, match) for n in range(start, len(column)) if (match := _NOTE.match(column[n].text))]
    is_list = 2 * start < len(column) or REFERENCES.fullmatch(column[start - 1].text)
    if not begins or is_list or _CAPTION.match(column[start].text):
        return column, []
    first = begins[0][0]
    left_out["footnotes"] += len(begins)
    return column[:first], [match[1] or match[2] for _, match in begins]


def _without_marks(text: str, notes: set[str]) -> str:
    """Take the marks of footnotes that were left out off the words; what else is raised stays, some as powers."""
    text = _POWER.sub(lambda f: f[0] if f[2] in notes and f[1] != "10" else f"{f[1]}^{f[2]}", text)
    return _MARKED.sub(lambda found: "" if set(re.split(r"[,\s]+", found[1])) <= notes else found[1], text)


# Lines to columns


def _columns(lines: list[_Line]) -> list[list[_Line]]:
    """The columns of a page in reading order, each its lines from the top; what runs across columns parts them."""
    found = [rows for rows in (_as_lines(column) for column in _parted(lines)) if rows]
    columns = []
    for number, column in enumerate(found):
        edges = min(line.left for line in column), max(line.right for line in column)
        columns.append([replace(line, column=(line.page, number), edges=edges) for line in column])
    return columns


def _as_lines(lines: Sequence[_Line]) -> list[_Line]:
    whole = []
    for row in _rows(lines):
        longest = max(row, key=lambda line: len(line.text))
        text = " ".join(line.text for line in row)
        left, right = min(line.left for line in row), max(line.right for line in row)
        whole.append(replace(longest, text=text, left=left, right=right, is_bold=all(line.is_bold for line in row)))
    return whole


def _parted(lines: list[_Line]) -> list[list[_Line]]:
    gutter = _gutter(lines)
    if gutter is None:
        return [lines]
    columns: list[list[_Line]] = []
    left: list[_Line] = []
    right: list[_Line] = []
    across: list[_Line] = []
    right_first = _is_right_to_left(lines)

    def end_band() -> None:
        for side in (right, left) if right_first else (left, right):
            columns.extend(_parted(side[:]) if side else [])
            side.clear()

    for line in sorted(lines, key=lambda line: -line.middle):
        if line.left < gutter < line.right:
            if left or right:
                end_band()
            across.append(line)
            continue
        if across:
            columns.append(across)
            across = []
        (left if line.right <= gutter else right).append(line)
    if across:
        columns.append(across)
    end_band()
    return columns


def _gutter(lines: list[_Line]) -> float | None:
    """Where a page, or a part of one, is divided into two columns of text; None if it is not."""
    if len(lines) < 8:
        return None
    first, last = min(line.left for line in lines), max(line.right for line in lines)
    total = sum(len(line.text) for line in lines)
    best: tuple[float, float] | None = None
    for step in range(60, 341):
        place = first + (last - first) * step / 400
        crossing = sum(len(line.text) for line in lines if line.left < place < line.right)  # characters
        if best is None or crossing < best[0]:
            best = crossing, place
    assert best is not None
    fewest, place = best
    # The middle of the gap, which may be wide.
    ends = [line.right for line in lines if line.right <= place]
    starts = [line.left for line in lines if line.left >= place]
    if fewest > 0.4 * total or len(ends) < 4 or len(starts) < 4:
        return None
    shares = []
    for side in ([line for line in lines if line.right <= place], [line for line in lines if line.left >= place]):
        # Cells of tables, labels of figures and lists of terms are short; lines of text fill their column.
        width, letters = max(line.right - line.left for line in side), sum(len(line.text) for line in side)
        full = [line for line in side if line.right - line.left > 0.6 * width and len(line.text.split()) > 2]
        if len(full) < 3 or letters < 0.1 * total:
            return None
        shares.append(sum(len(line.text) for line in full) / letters)
    if max(shares) < 0.6 or min(shares) < 0.3:
        return None
    return (max(ends) + min(starts)) / 2


# Lines to paragraphs


def _paragraphs(lines: list[_Line], body: float) -> list[_Paragraph]:
    pairs = itertools.pairwise(lines)
    steps = [a.bottom - b.bottom for a, b in pairs if a.column == b.column and abs(a.size - b.size) < 0.5]
    usual = median(steps) if steps else 0.0
    paragraphs: list[_Paragraph] = []
    for number, line in enumerate(lines):
        if not number or _begins(paragraphs[-1].lines, line, usual, body):
            paragraphs.append(_Paragraph())
        paragraphs[-1].lines.append(line)
    return paragraphs


def _begins(lines: list[_Line], line: _Line, usual: float, body: float) -> bool:
    """Whether a line begins a paragraph, behind the lines of another."""
    before = lines[-1]
    if abs(before.size - line.size) > 0.08 * body or before.is_bold != line.is_bold or _ITEM.match(line.text):
        return True
    if _NAMED_CAPTION.match(line.text):
        return True
    # Of a paragraph of several lines it is known how wide it is; a table may be wider.
    same = list(itertools.takewhile(lambda other: other.column == before.column, reversed(lines)))
    left, right = (min(x.left for x in same), max(x.right for x in same)) if len(same) > 1 else before.edges
    starts, ends = line.left - line.edges[0], right - before.right
    if _is_right_to_left([line]):
        starts, ends = line.edges[1] - line.right, before.left - left
    is_heading = line.size > 1.08 * body
    ended = _SENTENCE_END.search(before.text) is not None
    if before.column != line.column:
        return ended or is_heading or (line.size < 0.93 * body and _CAPTION.match(line.text) is not None)
    if before.bottom - line.bottom > max(1.35 * usual, 1.1 * line.size) + 0.25 * line.size:
        return True
    is_indented = not is_heading and 0.8 * line.size < starts < 0.3 * (right - left)
    was_indented = before.left - before.edges[0] > 0.8 * line.size
    if is_indented and _ITEM.match(before.text):
        return False  # its text goes on below itself
    # A line ends where the next word has no room any more, but at the end of a paragraph.
    room = (len(line.text.split()[0]) + 1) * (line.right - line.left) / len(line.text)
    return (is_indented and not was_indented) or (ended and ends > max(room, 0.15 * (right - left)))


def _write(paragraph: _Paragraph, words: Counter[str], left_out: Counter[str]) -> None:
    """Join the lines of a paragraph, and words that are parted at their ends, and note where pages begin."""
    text, pages = "", list[tuple[int, int]]()
    for line in paragraph.lines:
        new = " ".join(line.text.split())
        if text.endswith(_HYPHENS) and new[:1].isalnum() and text[-2:-1].isalpha():
            head, tail = re.search(r"[\w-]*$", text[-100:-1]), re.match(r"[\w-]*", new)  # both match anywhere
            first, second = head[0].casefold(), tail[0].casefold()  # type: ignore[index]
            # As it is written elsewhere; what nobody wrote elsewhere has a hyphen before a capital or a figure.
            whole, parted = words[first + second], words[f"{first}-{second}"]
            with_hyphen = parted > whole or (not whole and ("-" in first + second or not new[0].islower()))
            is_suspended = tail[0] in _AND and not (whole or parted)  # type: ignore[index]  # "pre- and post-war"
            text = text[:-1] + ("- " if is_suspended else "-" if with_hyphen else "")
            left_out["line_end_hyphens"] += not is_suspended
        elif text:
            text = (text[:-1] + "-" if text.endswith(_HYPHENS[1:]) else text) + " "
        if not pages or pages[-1][1] != line.page:
            pages.append((len(text), line.page))
        text += new
    text = re.sub(
        "[\u00ad\u200b\u2060\ufeff\ufffe\x02]", lambda found: "-" if found[0] in "\ufffe\x02" else "\u200b", text
    )
    paragraph.text, paragraph.pages = text, tuple(pages)


def _whole(paragraphs: list[_Paragraph], body: float) -> list[_Paragraph]:
    """Go on with a sentence behind the figures and tables that stand in its midst."""
    kept: list[_Paragraph] = []
    taken: set[int] = set()
    for number, paragraph in enumerate(paragraphs):
        if number in taken:
            continue
        kept.append(paragraph)
        if abs(paragraph.size - body) > 0.05 * body or _SENTENCE_END.search(paragraph.text) or paragraph.is_bold:
            continue
        for later in range(number + 1, min(number + 12, len(paragraphs))):
            if later in taken:
                continue
            other = paragraphs[later]
            is_text = abs(other.size - body) <= 0.05 * body and len(other.text.split()) > 5
            if is_text and other.text[:1].islower() and later > number + 1:
                start = len(paragraph.text) + 1
                paragraph.text += f" {other.text}"
                pages = tuple((start + place, page) for place, page in other.pages)
                paragraph.pages += pages[pages[0][1] == paragraph.pages[-1][1] :]
                taken.add(later)
            if is_text and not _CAPTION.match(other.text):
                break
    return kept


def _mark_headings(paragraphs: list[_Paragraph], body: float) -> str:
    """Give headings their level, by their size, and find the title: the largest of the first page with text."""
    all_bold = sum(len(p.text) for p in paragraphs if p.is_bold) > 0.5 * sum(len(p.text) for p in paragraphs)
    looks: dict[tuple[float, bool], list[_Paragraph]] = defaultdict(list)
    for paragraph in paragraphs:
        text = paragraph.text
        is_short = len(paragraph.lines) < 4 and len(text) < 200 and not re.search(r"[.,;:]$", text)
        stands_out = paragraph.size > 1.08 * body or (
            paragraph.is_bold and not all_bold and paragraph.size > 0.93 * body
        )
        if is_short and stands_out and re.match(r"\w.*[^\W\d_]{2}", text) and not _CAPTION.match(text):
            looks[round(paragraph.size * 2) / 2, paragraph.is_bold].append(paragraph)
    for level, look in enumerate(sorted(looks, reverse=True), 1):
        for paragraph in looks[look]:
            paragraph.level = min(level, 6)
    first = next((p.lines[0].page for p in paragraphs if p.text), 0)
    here = [p for p in paragraphs if p.level and p.lines[0].page == first and p.size > 1.15 * body]
    return max(here, key=lambda p: p.size).text if here else ""

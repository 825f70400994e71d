"""Documents that have a file each: PDF, HTML, Word, Markdown, subtitles and plain text.

`read_document` tells a file's kind by its name, holds it against what the file begins with, and gives paragraphs with
headings and pages, or turns. What is of the page and not of the text is left out, and counted.
"""

import html
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .markup import REFERENCES, Block, html_blocks, markdown_blocks, text_blocks
from .pdf import pdf_blocks
from .record_readers import COMPRESSION_SUFFIXES, DECOMPRESSION_ERRORS, data_suffix, open_binary


MARKDOWN_SUFFIXES = (".md", ".markdown")
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
SUBTITLE_SUFFIXES = (".srt", ".vtt")
LARGEST_FILE = 2**30  # bytes; of Word's text when it is unpacked, too

# What is counted of a document: one, and several.
COUNTED = {
    "running_heads": ("running head", "running heads"),
    "page_numbers": ("page number", "page numbers"),
    "footnotes": ("footnote", "footnotes"),
    "author_words": ("word on the authors", "words on the authors"),
    "reference_words": ("word of the reference list", "words of the reference list"),
    "code_words": ("word of code", "words of code"),
    "margin_words": ("word beside the text", "words beside the text"),
    "empty_pages": ("page without text", "pages without text"),
    "line_end_hyphens": ("hyphen at the end of a line", "hyphens at the ends of lines"),
}

_KINDS = {
    ".pdf": "a PDF",
    ".docx": "a Word document (.docx)",
    ".html": "an HTML page",
    ".epub": "an EPUB",
    ".zip": "a zip archive",
    ".gz": "a compressed file",
    ".doc": "an old Word document (.doc), or an encrypted one",
}
# What is not read as a document, and what to do instead.
INSTEAD = {
    ".epub": "read it as a book: `hier-models summarize --book`, or `hier_models.books.read_book`",
    ".doc": "open it in its program and save it as .docx without a password",
    ".odt": "save it as .docx or .pdf",
    ".rtf": "save it as .docx or .pdf",
    ".pptx": "save it as .pdf",
    ".parquet": 'write it as JSON lines: `datasets.Dataset.from_parquet("x.parquet").to_json("x.jsonl")`',
    ".arrow": 'write it as JSON lines: `datasets.Dataset.from_file("x.arrow").to_json("x.jsonl")`',
}
_COMPRESSED = (b"\x1f\x8b", b"BZh91AY&SY", b"\xfd7zXZ\0")  # by gzip, bzip2, xz
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*+<(?:!doctype\s+html|html|head)\b", re.I | re.S
)
# Alone, or before its text, and not "Summary statistics are …".
_ABSTRACT = re.compile(
    r"(?:abstract|summary|zusammenfassung|résumé|resumen)(?:\s*(?:[—–:.]|-(?-i:[\sA-Z])|$)|\s+(?-i:[^\W_a-zß-ÿ]))",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?:^|\s)[^\W\d_A-Z]{2,}[.!?…][\"'”’»)\]]*$")  # not "Rivers Inc.", nor an address
# More than one sentence, or one of a verb and more: "… einen neuen Hafen. Er kostet neun Euro.", but not "Rivers Inc."
_TEXT = re.compile(r"(?:[^\W\d_]{5,}[.!?…]\s+\w+\s+[a-zß-ÿ]|(?:\b[a-zß-ÿ]+\s+){4}).*[.!?…][\"'”’“»)\]]*$", re.DOTALL)
# What shows an entry of a reference list: its number, a year, an address, or more authors than are named.
_ENTRY = re.compile(r"^\[\w+\]|\b(?:1[5-9]|20)\d\d[a-z]?\b|\bdoi\b|https?://|\bet al\b", re.IGNORECASE)
MOST_AUTHOR_WORDS = 300
_CUE_TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d+(?:[.,]\d+)?\s*-->\s*(?:\d+:)?\d+:\d+(?:[.,]\d+)?")
_NO_CUE = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)\b")  # of WebVTT, up to a blank line
_VOICE = re.compile(r"<v(?:\.[^ >]*)? ([^>]+)>")
_TAG = re.compile(r"</?[a-z][^>]*>|\{\\[^}]*\}|<\d[\d:.]*>", re.IGNORECASE)
# "ANN: Hello", "Dr. Lee: Hello"; a word like "Note: " may be none, so a name comes in capitals or more than once.
_SPEAKER = re.compile(r"\s*(?:>>\s*|-\s*)?\[?([^\W\d_][\w.' -]{0,40}?)\]?:\s+(?=\S)")
_DASH = re.compile(r"^\s*(?:-|–|>>)\s*")
_WORD_TEXT = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WORD_SIGNS = {f"{_WORD_TEXT}{tag}": " " for tag in ("tab", "br", "cr")} | {f"{_WORD_TEXT}noBreakHyphen": "-"}


@dataclass
class FileDocument:
    """A document as read from its file."""

    title: str = ""
    blocks: list[Block] = field(default_factory=list)  # paragraphs and headings
    turns: list[dict[str, str]] = field(default_factory=list)  # of subtitles that name who speaks, in place of blocks
    left_out: Counter[str] = field(default_factory=Counter)  # by the names in `COUNTED`

    def row(self) -> dict[str, Any]:
        """Give it as a record: `text` or `turns`, and of what has pages `page_starts`."""
        if self.turns:
            return {"turns": self.turns}
        starts: list[dict[str, int]] = []
        length = 0
        for block in self.blocks:
            for place, page in block.pages:
                if not starts or starts[-1]["page"] != page:
                    starts.append({"start": length + place, "page": page})
            length += len(block.text) + 2
        row: dict[str, Any] = {"text": "\n\n".join(block.text for block in self.blocks)}
        return row | ({"page_starts": starts} if starts else {})


def read_document(path: Path, name: str | None = None) -> FileDocument:
    """Read a file that is one document, which the user calls `name`; refuse what is broken, empty or a scan."""
    name = name or str(path)
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(
            f"{name} has {path.stat().st_size:,} bytes, and a document at most {LARGEST_FILE:,}; divide it"
        )
    content = read_content(path, name)
    suffix = _checked_suffix(data_suffix(path), content, name)
    if suffix == ".pdf":
        blocks, title, left_out = pdf_blocks(content, name)
        document = FileDocument(title, blocks, left_out=left_out)
    elif suffix == ".docx":
        document = _read_word(content, name)
    elif suffix in HTML_SUFFIXES:
        document = _read_page(content, name)
    elif suffix in SUBTITLE_SUFFIXES:
        document = _read_subtitles(decoded(content, name))
    else:
        text = decoded(content, name)
        blocks = markdown_blocks(text, name) if suffix in MARKDOWN_SUFFIXES else text_blocks(text)
        document = FileDocument(next((block.text for block in blocks if block.level == 1), ""), blocks)
    _leave_out_code(document)
    _leave_out_references(document)
    _leave_out_authors(document)
    if not document.turns and not any(block.text for block in document.blocks):
        raise ValueError(f"{name} has no text")
    return document


def read_content(path: Path, name: str) -> bytes:
    """Read a file, which the user calls `name`, decompressed."""
    try:
        with open_binary(path) as stream:
            return stream.read()
    except DECOMPRESSION_ERRORS as error:
        if path.suffix.lower() not in COMPRESSION_SUFFIXES:
            raise
        raise ValueError(f"{name} is damaged and cannot be decompressed ({error})") from error


def decoded(content: bytes, name: str) -> str:
    """Give the text of a file, which the user calls `name`."""
    if kind := kind_of(content):
        raise ValueError(f"{name} is not a text file, but {_KINDS[kind]}; {_advice(kind)}")
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at {error.start} is not {encoding.removesuffix('-sig').upper()}"
        hint = "if it is text in another encoding: iconv -f WINDOWS-1252 -t UTF-8"
        raise ValueError(f"{name} is not a text file ({byte}); {hint}") from error
    if "\0" in text:
        raise ValueError(f"{name} is not a text file (it has a zero byte at {text.index(chr(0))})")
    return text


def say_left_out(left_out: Mapping[str, int]) -> str:
    """Say what was counted: "2 pages without text, 1 footnote"; nothing if nothing was."""
    return ", ".join(f"{count:,} {COUNTED[name][count > 1]}" for name, count in left_out.items() if count)


# What a file is


def kind_of(content: bytes) -> str:
    """Tell a file by how it begins: the suffix that it should have, empty for text."""
    beginning = content[:1024]
    # Behind what is no part of it, perhaps; but a text may tell of the sign.
    if beginning.lstrip().startswith(b"%PDF-") or (b"%PDF-" in beginning and b"startxref" in content):
        return ".pdf"
    if beginning.startswith(b"PK\x03\x04"):
        if b"application/epub+zip" in beginning:
            return ".epub"
        return ".docx" if b"word/" in content[:65536] or b"word/document.xml" in content else ".zip"
    if beginning.startswith(b"\xd0\xcf\x11\xe0"):
        return ".doc"
    if beginning.startswith(_COMPRESSED):
        return ".gz"
    return ".html" if _HTML.match(beginning) else ""


def _advice(kind: str) -> str:
    return INSTEAD.get(kind, "unpack it" if kind in (".zip", ".gz") else f"give its name the ending {kind}")


def _checked_suffix(suffix: str, content: bytes, name: str) -> str:
    if not content.strip():
        raise ValueError(f"{name} is empty")
    if suffix in INSTEAD:
        raise ValueError(f"{name} ends in {suffix}, which is not read; {INSTEAD[suffix]}")
    check_kind(suffix, content, name)
    return suffix


def check_kind(suffix: str, content: bytes, name: str) -> None:
    """Refuse what is no text and not what the end of its name says; a page may begin without saying what it is."""
    kind, wanted = kind_of(content), ".html" if suffix in HTML_SUFFIXES else suffix
    if wanted in (".pdf", ".docx", ".html") and kind != wanted and (kind or wanted != ".html"):
        what = _KINDS.get(kind, "no such file, or a broken one: it begins otherwise")
        raise ValueError(f"{name} should be {_KINDS[wanted]}, and is {what}{f'; {_advice(kind)}' if kind else ''}")


# Kinds


def _read_page(content: bytes, name: str) -> FileDocument:
    """Read an HTML page: its article, without what stands round it."""
    blocks, title = html_blocks(content, name)
    try:
        import trafilatura
    except ImportError as error:
        raise ImportError(f"to read {name}, pip install 'hier_models[files]': trafilatura is missing") from error
    found = trafilatura.extract(content, output_format="html", include_comments=False) or ""
    article, _ = html_blocks(found.encode("utf-8"), name)
    if not article:
        return FileDocument(title, blocks)
    words, kept = (sum(block.words for block in some) for some in (blocks, article))
    title = next((block.text for block in article if block.level == 1), title)
    return FileDocument(title, article, left_out=Counter(margin_words=max(0, words - kept)))


# What a damaged archive, and what is in it, may raise.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, RuntimeError, SyntaxError)


def _read_word(content: bytes, name: str) -> FileDocument:
    """Read a Word document: paragraphs, headings by their styles, and rows of tables; deleted text is left out."""
    try:
        import docx
        from docx.opc.exceptions import PackageNotFoundError
    except ImportError as error:
        raise ImportError(f"to read {name}, pip install 'hier_models[files]': python-docx is missing") from error
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        document = docx.Document(io.BytesIO(content)) if size <= LARGEST_FILE else None
    except (*_BROKEN, PackageNotFoundError) as error:
        raise ValueError(f"{name} is a broken Word document ({error}); save it again in its program") from error
    except ValueError as error:
        raise ValueError(f"{name} is another kind of Word file (with macros, a template); save it as .docx") from error
    if document is None:
        raise ValueError(f"{name} would unpack to more than {LARGEST_FILE:,} bytes; divide it")
    left_out: Counter[str] = Counter()
    for part in document.part.rels.values():
        if part.reltype.endswith(("/footnotes", "/endnotes")):
            left_out["footnotes"] += part.target_part.blob.count(b"<w:footnoteRef/>")
            left_out["footnotes"] += part.target_part.blob.count(b"<w:endnoteRef/>")
    levels = {style.style_id: _level_of_style(style) for style in document.styles if style.type == 1}
    blocks = list(_word_blocks(document.element.body, levels))
    title = next((block.text for block in blocks if block.level), "")
    return FileDocument(title or document.core_properties.title or "", blocks, left_out=left_out)


def _level_of_style(style: Any) -> int:
    """1 for a title, 2 to 6 for the headings below it."""
    seen = set()  # styles may be based on each other
    while style is not None and style.style_id not in seen:
        seen.add(style.style_id)
        name = (style.name or "").casefold()
        if name == "title":
            return 1
        if match := re.fullmatch(r"heading (\d)", name):
            return min(int(match[1]) + 1, 6)
        style = style.base_style
    return 0


def _word_blocks(body: Any, levels: Mapping[str, int]) -> Iterator[Block]:
    row: Any = None
    cells: list[str] = []
    for paragraph in body.iter(f"{_WORD_TEXT}p"):
        above = next(paragraph.iterancestors(f"{_WORD_TEXT}tr"), None)
        text = " ".join(_words_of(paragraph).split())
        if above is not row and cells:
            yield Block(" | ".join(cells))
            cells = []
        row = above
        if row is not None:
            cells += [text] if text else []
        elif text:
            style = paragraph.find(f"{_WORD_TEXT}pPr/{_WORD_TEXT}pStyle")
            yield Block(text, 0 if style is None else levels.get(style.get(f"{_WORD_TEXT}val"), 0))
    if cells:
        yield Block(" | ".join(cells))


def _words_of(paragraph: Any) -> str:
    """The text of a paragraph, without what was moved away, or stands there a second time for older programs."""
    pieces = []
    for element in paragraph.iter(f"{_WORD_TEXT}t", *_WORD_SIGNS):
        above = {ancestor.tag.rpartition("}")[2] for ancestor in element.iterancestors()}
        if above.isdisjoint(("moveFrom", "Fallback")) and next(element.iterancestors(f"{_WORD_TEXT}p")) is paragraph:
            pieces.append(_WORD_SIGNS.get(element.tag) or element.text or "")
    return "".join(pieces)


def _read_subtitles(text: str) -> FileDocument:
    """Read SRT or WebVTT: turns where cues say who speaks, else running text."""
    cues = list(_cues(text))
    lines = [line for cue in cues for line in _plain(cue).splitlines()]
    names = Counter(match[1] for line in lines if (match := _SPEAKER.match(line)))
    known = {name for name in names if names[name] > 1 or name.isupper()}
    turns: list[dict[str, str]] = []
    for cue in cues:
        for role, words in _spoken(cue, known):
            if role is None and turns:
                role = turns[-1]["role"]
            if role is not None and turns and turns[-1]["role"] == role:
                turns[-1]["content"] += f" {words}"
            else:
                turns.append({"role": role or "", "content": words})
    if any(turn["role"] for turn in turns):
        # What is said before anybody is named.
        return FileDocument(turns=[turn | {"role": turn["role"] or "Unknown"} for turn in turns])
    return FileDocument(blocks=[Block(turn["content"]) for turn in turns])


def _cues(text: str) -> Iterator[str]:
    """The text of each cue, without repeated ones: captions that roll up show each line twice."""
    before = ""
    for lines in _lines_of_cues(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")):
        shown = [line for line in lines if line.strip()]
        new = "\n".join(line for line in shown if _TAG.sub("", line).strip() != before)
        if shown:
            before = _TAG.sub("", shown[-1]).strip()
        if new.strip():
            yield new


def _lines_of_cues(lines: list[str]) -> Iterator[list[str]]:
    """The lines of each cue, which end where the times of the next stand; there may be blank ones among them."""
    cue: list[str] | None = None
    is_note = False
    for before, line in pairwise(["", *lines]):
        if _CUE_TIMES.match(line):
            # Above the times stands what the cue is called, behind a blank line: in SRT its number, at times without.
            if cue and cue[-1].strip() and (cue[-1].strip().isdigit() or not "".join(cue[-2:-1]).strip()):
                cue.pop()
            if cue:
                yield cue
            cue, is_note = [], False
            continue
        is_note = bool(line.strip()) and (is_note or (not before.strip() and _NO_CUE.match(line) is not None))
        if cue is not None and not is_note:
            cue.append(line)
    if cue:
        yield cue


def _plain(cue: str) -> str:
    return html.unescape(_TAG.sub("", cue))


def _spoken(cue: str, names: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """What is said in a cue, and by whom; None if it does not say."""
    voices = _VOICE.split(cue)  # text, name, text, …
    parts = [(None, voices[0]), *zip(map(html.unescape, voices[1::2]), voices[2::2], strict=True)]
    for voice, part in parts:
        role, waiting = voice, ""
        for line in _plain(part).splitlines():
            match = _SPEAKER.match(line)
            if voice is None and match and match[1] in names:
                if waiting.strip():
                    yield role, " ".join(waiting.split())
                role, waiting = match[1], line[match.end() :]
            else:
                waiting += " " + _DASH.sub("", line)
        if waiting.strip():
            yield None if role is None else role.strip(), " ".join(waiting.split())


# What is left out of all kinds


def _leave_out_code(document: FileDocument) -> None:
    """Take out blocks of code, which the text beside them explains, but not the most of a page."""
    text = [block for block in document.blocks if "code" not in block.roles]
    words, kept = (sum(block.words for block in some) for some in (document.blocks, text))
    if words < 2 * kept:
        document.left_out += Counter(code_words=words - kept)
        document.blocks = text


def _leave_out_references(document: FileDocument) -> None:
    """Leave out the reference list, up to the next heading of its level, or its entries if none is marked as one."""
    blocks = document.blocks
    heads = [number for number, block in enumerate(blocks) if number and REFERENCES.fullmatch(block.text)]
    for start in reversed(heads[-1:]):
        level = blocks[start].level
        after = range(start + 1, len(blocks))
        end = next((n for n in after if 0 < blocks[n].level <= (level or 6)), len(blocks))
        if not level:
            shown = [number for number in range(start + 1, end) if _ENTRY.search(blocks[number].text)]
            last = start
            for number in shown:
                # Of a list, some do not show it; of a text that stands behind it, most.
                last = number if 2 * sum(n <= number for n in shown) > number - start else last
            end = last + 1 if last > start else start
        document.left_out["reference_words"] += sum(block.words for block in blocks[start:end])
        del blocks[start:end]


def _leave_out_authors(document: FileDocument) -> None:
    """Leave out what stands between the title and the abstract of a paper: names, institutes, addresses."""
    blocks = document.blocks
    start = next((number for number, block in enumerate(blocks) if block.text == document.title), len(blocks)) + 1
    end = next((number for number in range(start, len(blocks)) if _ABSTRACT.match(blocks[number].text)), start)
    words = sum(block.words for block in blocks[start:end])
    # A PDF does not mark headings: authors may be set in larger letters.
    heads = any(block.level and not block.pages for block in blocks[start:end])
    is_text = heads or any(_SENTENCE_END.search(b.text) or _TEXT.search(b.text) for b in blocks[start:end])
    if words <= MOST_AUTHOR_WORDS and not is_text:
        document.left_out["author_words"] += words
        del blocks[start:end]

"""Reading records from files, one at a time, each with the place it came from.

Nothing here knows about summaries. Every reader yields a `Record` for every line (JSON lines), row (CSV), element (a
JSON array) or file (plain text, PDF, …), and a record that cannot be read is a record too, with its `problem` filled
in: what to do about it is decided by the caller.
"""

import bz2
import codecs
import csv
import gzip
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal


Kind = Literal["text", "sentences", "turns", "documents"]
KINDS: tuple[Kind, ...] = ("text", "sentences", "turns", "documents")
COMPRESSION_SUFFIXES = (".gz", ".xz", ".bz2")
# What reading a damaged archive raises. OSError is gzip's, and bz2's for all damage; of a file that is not compressed,
# it says something else.
DECOMPRESSION_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)
DATA_SUFFIXES = (".jsonl", ".json", ".ndjson", ".csv", ".tsv")
TEXT_SUFFIXES = (".txt",)
MARKUP_SUFFIXES = (".md", ".markdown", ".html", ".htm", ".xhtml")
# Files that are one document each.
DOCUMENT_SUFFIXES = (*TEXT_SUFFIXES, *MARKUP_SUFFIXES, ".pdf", ".docx", ".srt", ".vtt")

# What the record of a document's file has beside the document: on which characters its pages begin, of a PDF, and how
# much was left out of what.
PAGE_STARTS, LEFT_OUT = "page_starts", "left_out"

# Bytes of a file whose first line is no JSON that are looked at, to say what the file is.
LOOKED_AT = 2**26

UTF8_BOM = b"\xef\xbb\xbf"
# `surrogateescape` turns the undecodable byte 0x80 + k into the code point U+DC80 + k, which valid UTF-8 never gives.
UNDECODABLE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True)
class Record:
    """One line, row, array element or document's file, as read."""

    file: str  # the file it comes from
    line: int  # number of its first line in the (decompressed) file, from 1
    # Its text as it stands in the file. Bytes that are not UTF-8 are kept as surrogate escapes, so
    # `raw.encode("utf-8", "surrogateescape")` gives the original bytes back.
    raw: str
    row: dict[str, Any] | None = None  # its columns, or None when it could not be read
    problem: str | None = None  # why it could not be read, or None


def data_suffix(path: Path) -> str:
    """Suffix that tells the format, with the suffix of a compression left out."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSION_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def document_name(path: Path) -> str:
    """File name without the suffixes of format and compression."""
    if path.suffix.lower() in COMPRESSION_SUFFIXES:
        path = path.with_suffix("")
    return path.with_suffix("").as_posix()


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressing by its suffix."""
    openers: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    opener = openers.get(path.suffix.lower())
    stream: IO[bytes] = opener(path) if opener else path.open("rb")
    return stream


def read_records(path: Path, name: str | None = None) -> Iterator[Record]:
    """Read a file record by record, holding one record in memory (a `.json` array is held whole)."""
    suffix = data_suffix(path)
    if suffix in TEXT_SUFFIXES:
        records = _text_records(path, name or document_name(Path(path.name)))
    elif suffix in DOCUMENT_SUFFIXES:
        records = _document_records(path, name or document_name(Path(path.name)))
    elif suffix in (".csv", ".tsv"):
        records = _csv_records(path, "\t" if suffix == ".tsv" else ",")
    elif suffix == ".json" and _first_character(path) == b"[":
        records = _json_array_records(path)
    else:
        records = _json_line_records(path)
    last_line = 0
    try:
        for record in records:
            last_line = record.line
            yield record
    except DECOMPRESSION_ERRORS as error:
        if path.suffix.lower() not in COMPRESSION_SUFFIXES:
            raise
        problem = f"the file is damaged after this line and cannot be decompressed further ({error})"
        yield Record(str(path), last_line + 1, raw="", problem=problem)


def _first_character(path: Path) -> bytes:
    try:
        with open_binary(path) as stream:
            return stream.read(4096).removeprefix(UTF8_BOM).lstrip()[:1]
    except DECOMPRESSION_ERRORS:
        return b""  # the reader meets the same damage and reports it with its place


def _not_utf8(error: UnicodeDecodeError) -> str:
    place = f"byte 0x{error.object[error.start]:02x} at offset {error.start} of the record"
    return f"invalid {error.encoding.upper()}: {place}"


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _json_line_records(path: Path) -> Iterator[Record]:
    with open_binary(path) as stream:
        for number, line in enumerate(stream, start=1):
            content = (line.removeprefix(UTF8_BOM) if number == 1 else line).strip()
            if not content:
                continue
            raw = content.decode("utf-8", "surrogateescape")
            row: Any = None
            problem = None
            try:
                row = _parse_json(content.decode("utf-8"))
            except UnicodeDecodeError as error:
                problem = _not_utf8(error)
            except ValueError as error:
                problem = f"broken JSON: {error}; each line must be one JSON object"
                if number == 1 and data_suffix(path) == ".json" and (names := _names_in_object(path)):
                    rows = "rows must be an array, or one JSON object a line"
                    problem = f"the file is one JSON object, of {', '.join(names)}; {rows}"
            else:
                if not isinstance(row, dict):
                    row, problem = None, f"each line must be one JSON object, got {_json_type(row)}"
            yield Record(str(path), number, raw, row, problem)


def _names_in_object(path: Path) -> list[str]:
    """The first names in a file that is one object; none in one that is something else, or long."""
    with open_binary(path) as stream:
        content = stream.read(LOOKED_AT + 1).removeprefix(UTF8_BOM)
    try:
        found = _parse_json(content.decode("utf-8")) if len(content) <= LOOKED_AT else None
    except ValueError:
        return []
    return list(found)[:5] if isinstance(found, dict) else []


def _json_array_records(path: Path) -> Iterator[Record]:
    with open_binary(path) as stream:
        content = stream.read().removeprefix(UTF8_BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        yield Record(str(path), line, content.decode("utf-8", "surrogateescape"), problem=_not_utf8(error))
        return
    decoder = json.JSONDecoder()
    between = re.compile(r"[\s,]*")
    position = text.index("[") + 1
    line, counted = 1, 0
    while True:
        position = between.match(text, position).end()  # type: ignore[union-attr]  # the pattern matches anywhere
        line, counted = line + text.count("\n", counted, position), position
        if text[position : position + 1] == "]":
            if rest := text[position + 1 :].strip():
                yield Record(str(path), line, rest, problem="broken JSON: the file goes on after the end of its array")
            return
        try:
            row, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            # There is no telling where the next element begins, so what is left of the file is one bad record.
            yield Record(str(path), line, text[position:], problem=f"broken JSON in an array: {error}")
            return
        problem = f"each element of the array must be a JSON object, got {_json_type(row)}"
        found: dict[str, Any] = {"row": row} if isinstance(row, dict) else {"problem": problem}
        yield Record(str(path), line, text[position:end], **found)
        position = end


def _json_type(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _csv_records(path: Path, delimiter: str) -> Iterator[Record]:
    # The csv module refuses fields beyond 131,072 characters, and documents are longer. The limit is one per process.
    csv.field_size_limit(max(csv.field_size_limit(), min(sys.maxsize, 2**31 - 1)))
    taken: list[str] = []  # the lines of the row being read: a quoted field may hold line breaks

    def lines(stream: IO[bytes]) -> Iterator[str]:
        for number, line in enumerate(stream):
            taken.append((line if number else line.removeprefix(UTF8_BOM)).decode("utf-8", "surrogateescape"))
            yield taken[-1]

    with open_binary(path) as stream:
        reader = csv.reader(lines(stream), delimiter=delimiter, strict=True)
        header: list[str] | None = None
        while True:
            line = reader.line_num + 1
            taken.clear()
            problem = None
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fields, problem = [], f"broken CSV: {error}"
            raw = "".join(taken)
            if problem is None and not fields:
                continue  # a blank line
            if problem is None and (undecodable := UNDECODABLE.search(raw)):
                problem = f"invalid UTF-8: byte 0x{ord(undecodable[0]) - 0xDC00:02x}"
            if header is None:
                named = [field for field in fields if field]  # spreadsheets leave empty columns at the end
                if problem is None and len(set(named)) < len(named):
                    problem = f"the header names a column twice: {', '.join(fields)}"
                if delimiter == "," and "," not in raw and (other := re.search("[;\t]", raw)):
                    is_tab = other[0] == "\t"
                    hint = "end its name in .tsv" if is_tab else "save it anew with commas between the columns"
                    problem = f"the columns stand between {'tabs' if is_tab else 'semicolons'}, not commas: {hint}"
                if problem is not None:
                    # Without a header no row of this file can be read, so the rest is part of the same bad record.
                    raw += "".join(piece.decode("utf-8", "surrogateescape") for piece in stream)
                    yield Record(str(path), line, raw, problem=f"{problem} (in the header)")
                    return
                header = fields
                continue
            if problem is None and len(fields) != len(header):
                problem = f"{len(fields)} fields where the header has {len(header)}"
            row = dict(zip(header, fields, strict=True)) if problem is None else None
            yield Record(str(path), line, raw, row, problem)


def _document_records(path: Path, name: str) -> Iterator[Record]:
    from .document_files import read_document  # which reads files by the means of this one

    try:
        document = read_document(path)
    except ValueError as error:
        yield Record(str(path), 1, raw="", problem=str(error).removeprefix(f"{path} "))
    else:
        yield Record(
            str(path), 1, raw="", row={"id": _as_id(name), **document.row(), LEFT_OUT: dict(document.left_out)}
        )


def _as_id(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")  # a file's name need not be UTF-8, and an id must


def _text_records(path: Path, name: str) -> Iterator[Record]:
    from .document_files import kind_of  # which reads files by the means of this one

    with open_binary(path) as stream:
        content = stream.read().removeprefix(UTF8_BOM)
    raw = content.decode("utf-8", "surrogateescape")
    says_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if says_utf16 else "utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        yield Record(str(path), line, raw, problem=_not_utf8(error))
        return
    if "\0" in text:
        yield Record(str(path), 1, raw, problem=f"no text: a zero byte at offset {text.index(chr(0))}")
    elif kind_of(content) == ".html":
        yield Record(str(path), 1, raw, problem="is an HTML page; give its name the ending .html")
    else:
        yield Record(str(path), 1, raw, row={"id": _as_id(name), "text": text})

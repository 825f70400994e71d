"""Documents of the command line: files, folders, records, standard input."""

from __future__ import annotations

import codecs
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.record_readers import (
    DATA_SUFFIXES,
    DOCUMENT_SUFFIXES,
    KINDS,
    LEFT_OUT,
    PAGE_STARTS,
    TEXT_SUFFIXES,
    data_suffix,
)
from .errors import MistakeError, local_path, say


QUERY = "query"  # what the summary of a record is to answer
PHRASES = "phrases"  # what a record may name to be highlighted in its document
STDIN = "-"
STDIN_NAME = "standard input"
LONGEST_NAME = 60  # characters of what is no file, in a message


@dataclass
class Documents:
    """The documents of a command line; may be read more than once."""

    inputs: list[Path]
    text_column: str | None = None
    set_aside: Path | None = None  # where lines that cannot be used go; they stop the command if None
    names: dict[str, str] = field(default_factory=dict)  # of files that the user knows under another name
    set_aside_count: int = 0
    dropped_turns: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # of the documents' pages, by kind
    phrases_column: str | None = None
    _files: dict[Path, Any] = field(default_factory=dict)  # documents that were read; a long PDF takes a while

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield {"id": …, one of KINDS, and perhaps QUERY, PHRASES and PAGE_STARTS}."""
        seen: Counter[str] = Counter()
        self.dropped_turns = 0
        self.left_out.clear()
        for path in self.inputs:
            try:
                for number, identifier, document in self._read(path):
                    name = identifier or f"{self.names.get(str(path), path)}:{number}"
                    yield {"id": free_name(name, seen), **document}
            except (ValueError, OSError) as error:
                text = re.sub(r"\b(text|phrases)_column=…", r"--\1-column", str(error))
                text = re.sub(r"^source: ", "INPUT: ", text)
                text = text.replace("set_aside_file: ", "--set-aside: ")
                text = re.sub(r"^split: (.*)pass split=… with one of them", r"INPUT: \1name the files of one", text)
                for actual, known in self.names.items():
                    text = text.replace(actual, known)
                raise MistakeError(text) from error

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was read: another process reads it itself."""
        return {**vars(self), "_files": {}}

    def _read(self, path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Yield the number of each record, its identifier, and the document; those that are set aside count too."""
        if path.is_file() and data_suffix(path) not in DATA_SUFFIXES:
            from ..data.document_files import read_document

            name = self.names.get(str(path), str(path))
            if not is_document(path):
                yield 1, name, {"text": read_text(path, name)}
                return
            if path not in self._files:
                self._files[path] = read_document(path, name)
            self.left_out.update(self._files[path].left_out)
            yield 1, name, self._files[path].row()
            return
        from ..data import LoadReport, load_documents

        report = LoadReport()
        columns: Any = {"text_column": self.text_column, "summary_column": "", "phrases_column": self.phrases_column}
        columns["query_column"] = None  # recognized by its name
        bad: Any = {"bad_lines": "stop" if self.set_aside is None else "set_aside", "set_aside_file": self.set_aside}
        for number, row in enumerate(load_documents(path, **columns, **bad, streaming=True, report=report), start=1):
            document = {name: row[name] for name in (*KINDS, QUERY, PHRASES, PAGE_STARTS) if row.get(name) is not None}
            self.left_out.update(row.get(LEFT_OUT) or {})
            yield number + report.set_aside, str(row.get("id") or ""), document
        self.set_aside_count = report.set_aside
        self.dropped_turns += report.dropped_turns


def free_name(name: str, seen: Counter[str]) -> str:
    """Number a name that was given before: two of one name would be taken for one in a continued job."""
    # A file's name that is not UTF-8 has surrogates, which would be written as "?" and not be found again.
    name = free = name.encode("utf-8", "replace").decode("utf-8")
    while seen[free]:
        seen[name] += 1
        free = f"{name} ({seen[name]})"
    seen[free] += 1
    return free


def is_document(path: Path) -> bool:
    """Whether a file is one document of a format of its own, perhaps one that is refused, and no plain text."""
    from ..data.document_files import INSTEAD

    suffix = data_suffix(path)
    return suffix not in TEXT_SUFFIXES and suffix in (*DOCUMENT_SUFFIXES, *INSTEAD)


def read_text(path: Path, name: str) -> str:
    """Read the text of a file, which the user calls `name`."""
    from ..data.document_files import read_content, read_document

    try:
        if is_document(path):
            document = read_document(path, name)
            if document.turns:
                raise ValueError(f"{name} is a dialogue; give a text")
            say_left_out(document.left_out)
            return str(document.row()["text"])
        content = read_content(path, name)
    except ValueError as error:
        raise MistakeError(str(error)) from error
    return decoded(content, name)


def say_left_out(left_out: Counter[str]) -> None:
    """Say what was left out of the pages of documents, if anything was."""
    if left_out.total():
        from ..data import document_files

        say(f"Left out of the pages: {document_files.say_left_out(left_out)}.")


def read_stdin() -> str:
    """Read the text on standard input."""
    return decoded(sys.stdin.buffer.read(), STDIN_NAME)


def decoded(content: bytes, name: str) -> str:
    """Return the text of a file, which the user calls `name`."""
    from ..data import document_files

    try:
        text = document_files.decoded(content, name)
    except ValueError as error:
        raise MistakeError(str(error)) from error
    if not text.strip():
        raise MistakeError(f"{name} is empty")
    return text


@contextmanager
def open_documents(
    inputs: list[str] | None, text_column: str | None, set_aside: Path | None, phrases_column: str | None = None
) -> Iterator[Documents]:
    """Check the inputs and bring standard input into a file of its own."""
    given = inputs or [STDIN]
    if set_aside is not None and (len(given) > 1 or given == [STDIN]):
        raise MistakeError("--set-aside works with one INPUT, a file or a folder")
    if given.count(STDIN) > 1:
        raise MistakeError("INPUT: standard input (-) can be read once only")
    with ExitStack() as stack:
        paths, names = [], {}
        for name in given:
            if name == STDIN:
                if sys.stdin.isatty() and not inputs:
                    raise MistakeError("INPUT: nothing to read; give files, a folder, or text on standard input")
                path = _save(sys.stdin.buffer.read(), stack)
                names[str(path)] = STDIN_NAME
            elif not name:
                raise MistakeError("INPUT: an empty string names nothing; for this folder, give '.'")
            else:
                path = local_path(name)
                if not os.path.exists(path):  # the functions of `os`, to which a text is the name of no file
                    is_long = len(name) > LONGEST_NAME
                    called = f"{name[:LONGEST_NAME]!r}…" if is_long else repr(name)
                    hint = "; a text comes in a file, or on standard input" if is_long or " " in name else ""
                    raise MistakeError(f"INPUT: there is no file or folder {called}{hint}")
                if path.is_fifo():  # <(command)
                    path = _save(path.read_bytes(), stack, path.suffix)
                    names[str(path)] = name
            paths.append(path)
        yield Documents(paths, text_column, set_aside, names, phrases_column=phrases_column)


def _save(content: bytes, stack: ExitStack, ending: str = "") -> Path:
    """Keep what is no file, under a name with an ending that tells what it is."""
    from ..data.document_files import kind_of

    # JSON begins with an object or a list of them, which may be broken; a text hardly ever begins so, or with a cue.
    text = content.removeprefix(codecs.BOM_UTF8).lstrip()
    begins = re.match(rb'(\[)?\s*\{\s*["}]', text)
    has_cues = re.match(rb"(?:WEBVTT\b.*?|\d+\s*)^[ \t]*[\d:.,]+[ \t]*-->", text, re.DOTALL | re.MULTILINE)
    kind = ".vtt" if has_cues else kind_of(content)
    told = (".json" if begins[1] else ".jsonl") if begins else kind if kind in DOCUMENT_SUFFIXES else ""
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / f"stdin{ending or told}"
    path.write_bytes(content)
    return path

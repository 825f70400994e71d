"""Reading a book: an EPUB, a folder of chapters, one file with headings, or a list."""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from ..data.data_files import visible_files
from ..data.document_files import (
    HTML_SUFFIXES,
    MARKDOWN_SUFFIXES,
    check_kind,
    decoded,
    read_content,
    read_document,
    say_left_out,
)
from ..data.markup import Block, html_blocks, markdown_blocks, text_blocks
from ..data.record_readers import data_suffix, document_name
from .book import Book, Chapter, is_aside, left_out
from .epub import read_epub
from .headings import split_blocks, title_of


logger = logging.getLogger(__name__)

CHAPTER_SUFFIXES = (".txt", *MARKDOWN_SUFFIXES, *HTML_SUFFIXES, ".pdf", ".docx")

BookSource: TypeAlias = "str | os.PathLike[str] | Book | Sequence[str | Mapping[str, Any] | Chapter]"


def read_book(source: BookSource, title: str | None = None) -> Book:
    """Read a book.

    A contents list, a cover, a licence and the like are no chapters; nor are chapters without a word. What is left out
    is named in the book's `left_out`, and how the chapters were found in `found`.

    Args:
        source: An EPUB; a folder with a file for each chapter, read in natural order (2 before 10), folders in it
            too; one text, Markdown, HTML, PDF or Word file (perhaps with .gz, .xz or .bz2), divided at its chapter
            headings, or not at all if it has none; or a list of chapters, each a string, a `Chapter`, or a dictionary
            with "text" or "paragraphs" and perhaps "title". A `Book` is checked and returned.
        title: The title, if it should not be the one in the source, or the file's name.

    Returns:
        The book.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If the source holds no text, is damaged, encrypted or in an unknown encoding or format.
    """
    wanted = "`book` must be a path, a Book or a list of chapters"
    if isinstance(source, Book):
        book = replace(source, chapters=[_chapter(item, number) for number, item in enumerate(source.chapters, 1)])
    elif isinstance(source, str) and not source:
        raise ValueError(f"{wanted}, got an empty string, which names nothing; for this folder, give '.'.")
    elif isinstance(source, str) and _is_a_text(source):
        raise ValueError(f"{wanted}, got a text of {len(source):,} characters; write it to a file, or give a list.")
    elif isinstance(source, str | os.PathLike):
        book = _from_path(Path(source).expanduser())
    elif isinstance(source, Sequence) and not isinstance(source, bytes):
        book = Book("", [_chapter(item, number) for number, item in enumerate(source, 1)], "chapters as given")
    else:
        raise ValueError(f"{wanted}, got {type(source).__name__}.")
    name = f" {str(source)!r}" if isinstance(source, str | os.PathLike) else ""
    chapters, empty = [], []
    for number, chapter in enumerate(book.chapters, 1):
        if any(re.search(r"\w", paragraph) for paragraph in chapter.paragraphs):
            chapters.append(chapter)
        else:
            empty.append(f"chapter {number}{f' ({chapter.title})' if chapter.title else ''}")
    if not chapters:
        what = f"; left out: {'; '.join([*book.left_out, *empty])}" if book.left_out or empty else ""
        raise ValueError(f"`book`{name} holds no text to summarize{what}.")
    dropped = [*book.left_out]
    if empty:
        dropped.append(f"{', '.join(empty)}: no text")
        logger.warning("%d of %d chapters have no text: %s", len(empty), len(book.chapters), ", ".join(empty))
    return Book(book.title if title is None else title, chapters, book.found, dropped)


def _is_a_text(source: str) -> bool:
    """Tell by what no file system has for a name."""
    return not os.path.exists(source) and ("\n" in source or max(map(len, Path(source).parts), default=0) > 255)


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sort names as a reader would: chapter 2 before chapter 10."""
    parts = re.split(r"(\d+)", name.casefold())
    return [(1, int(part), "") if part.isdecimal() else (2, 0, part) for part in parts if part]


def _from_path(path: Path) -> Book:
    if path.is_dir():
        return _from_folder(path)
    if not path.exists():
        raise FileNotFoundError(f"`book`: there is no file or folder {str(path)!r}")
    suffix = data_suffix(path)
    if suffix == ".epub":
        return read_epub(path)
    if suffix not in ("", *CHAPTER_SUFFIXES):
        kinds = ", ".join((".epub", *CHAPTER_SUFFIXES))
        raise ValueError(f"`book`: {path} ends in {suffix}; a book is a folder or a file that ends in {kinds}.")
    blocks, read_as_title, dropped = _read_blocks(path)
    book = split_blocks(blocks)
    title = book.title or read_as_title or Path(document_name(path)).name
    return Book(title, book.chapters, book.found, [*dropped, *book.left_out])


def _from_folder(folder: Path) -> Book:
    found = visible_files(folder)
    files = [path for path in found if data_suffix(path) in CHAPTER_SUFFIXES]
    if not files:
        endings = ", ".join(CHAPTER_SUFFIXES)
        other = f"; it holds {found[0].name}" if found else "; it is empty"
        raise ValueError(f"`book`: folder {folder} holds no chapters (files that end in {endings}){other}.")
    files.sort(key=lambda path: _order(path.relative_to(folder)))
    chapters, dropped = [], []
    others = sorted(str(path.relative_to(folder)) for path in set(found) - set(files))
    for path in files:
        blocks, title, of_pages = _read_blocks(path)
        dropped += of_pages
        place, name = path.relative_to(folder), document_name(Path(path.name))
        heading, blocks = title_of(blocks)
        title = heading or title or name
        if is_aside(title):
            dropped.append(left_out(str(place), sum(block.words for block in blocks)))
        else:
            title = ", ".join([*place.parts[:-1], title])
            chapters.append(Chapter(title, [block.text for block in blocks]))
    if others:
        count = "1 file of another kind" if len(others) == 1 else f"{len(others)} files of other kinds"
        dropped.append(f"{count} ({', '.join(others[:5])}{', …' if others[5:] else ''})")
    return Book(folder.resolve().name, chapters, "a chapter from each file", dropped)


def _order(place: Path) -> tuple[list[list[tuple[int, int, str]]], str]:
    """Sort files as a reader would, by their names without endings first: "Story.txt" before "Story 2.txt"."""
    return [natural_key(part) for part in (*place.parts[:-1], document_name(Path(place.name)))], place.name


def _read_blocks(path: Path) -> tuple[list[Block], str, list[str]]:
    """Read the paragraphs of a file, the title that it gives itself beside them, and what is left out."""
    name, suffix = f"`book`: {path}", data_suffix(path)
    if suffix in (".pdf", ".docx"):
        document = read_document(path, name)
        said = say_left_out(document.left_out)
        return document.blocks, document.title, [f"of {path.name}: {said}"] if said else []
    content = read_content(path, name)
    if suffix in HTML_SUFFIXES:
        check_kind(suffix, content, name)
        return *html_blocks(content, name), []
    text = decoded(content, name)
    return (markdown_blocks(text, name) if suffix in MARKDOWN_SUFFIXES else text_blocks(text)), "", []


def _chapter(item: Any, number: int) -> Chapter:
    if isinstance(item, Chapter):
        _chapter(vars(item), number)  # refuses what a dictionary may not have
        return item
    item = {"text": item} if isinstance(item, str) else item
    if not isinstance(item, Mapping):
        raise ValueError(f"`book`: chapter {number} must be a string or a dictionary, got {type(item).__name__}.")
    given = [name for name in ("text", "paragraphs") if item.get(name) is not None]
    if len(given) != 1:
        raise ValueError(f"`book`: chapter {number} must have one of text and paragraphs, got {list(item)}.")
    value, title, paragraphs = item[given[0]], item.get("title") or "", item.get("paragraphs")
    if isinstance(item.get("text"), str):
        paragraphs = [block.text for block in text_blocks(value)]
    elif given == ["text"]:
        raise ValueError(f"`book`: the text of chapter {number} must be a string, got {type(value).__name__}.")
    if not isinstance(paragraphs, Sequence) or isinstance(paragraphs, str | bytes):
        raise ValueError(f"`book`: the paragraphs of chapter {number} must be a list, got {type(value).__name__}.")
    if not all(isinstance(text, str) for text in [*paragraphs, title]):
        raise ValueError(f"`book`: the title and paragraphs of chapter {number} must be strings.")
    return Chapter(title.strip(), [" ".join(text.split()) for text in paragraphs if text.strip()])

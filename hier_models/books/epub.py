"""EPUB: the chapters of its table of contents, with the text between them in reading order."""

import posixpath
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..data.markup import Block, html_blocks, local_name, named, parse_markup, roles_of
from .book import Book, Chapter, is_aside, left_out
from .headings import BEFORE, LEAST_OPENING, heading_kind, is_called_chapter, split_blocks, without_licence


# Pages round a book, as EPUB calls them.
_ASIDE_NAMES = """cover cover-page titlepage title-page halftitlepage toc landmarks loi lot copyright-page copyright
    colophon imprint imprimatur index endnotes rearnotes footnotes notes bibliography dedication acknowledgments
    other-credits"""
_ASIDE_ROLES = frozenset(_ASIDE_NAMES.split())
# What hides the letters of embedded fonts; the text is not touched.
_FONT_ALGORITHMS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
# Bytes of a file in the archive, unpacked. A long book has a few millions in all.
LARGEST_FILE = 2**27
_OTHER_FORMATS = {b"%PDF": "a PDF", b"BOOKMOBI": "a Kindle book (MOBI)", b"\xd0\xcf\x11\xe0": "a Word document"}


@dataclass
class _Entry:
    """A line of the table of contents."""

    title: str
    file: str
    anchor: str
    children: list["_Entry"] = field(default_factory=list)


@dataclass
class _Page:
    """A file of the spine."""

    name: str
    blocks: list[Block]
    title: str

    @property
    def own_title(self) -> str:
        """What its first headings say, or the title beside its text."""
        return ": ".join(block.text for block in self.blocks[:3] if block.level) or self.title


@dataclass
class _Piece:
    """Text that belongs together: a chapter, or what stands where no chapter has begun."""

    title: str
    blocks: list[Block]
    part: str = ""
    is_part: bool = False
    anchor: str = ""  # where in its file it begins, by the table of contents

    @property
    def is_aside(self) -> bool:
        """Whether it is no part of what the book tells."""
        marked = bool(self.blocks) and all(block.roles & _ASIDE_ROLES for block in self.blocks)
        return marked or is_aside(self.title)


def read_epub(path: Path) -> Book:
    """Read the chapters of an EPUB.

    A chapter begins where the table of contents (EPUB 3's, or the NCX of EPUB 2) says, and at a page that begins with
    a heading. Entries for parts, which only hold chapters, go into the titles of these; entries for sections inside a
    chapter do not divide it. Cover, title page, contents, licence, notes and their like are left out.
    """
    with path.open("rb") as stream:
        beginning = stream.read(80)
    if not zipfile.is_zipfile(path):
        known = next((what for mark, what in _OTHER_FORMATS.items() if mark in beginning), None)
        size = "it is empty" if not beginning else f"it is {known}" if known else "it is no zip archive, or cut off"
        raise ValueError(f"`book`: {path} is no EPUB: {size}.")
    try:
        with zipfile.ZipFile(path) as archive:
            return _Epub(archive, path).read()
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:  # the last is of a password
        raise ValueError(f"`book`: {path} is damaged or encrypted: {error}.") from error


class _Epub:
    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.archive = archive
        self.path = path
        # A name that differs in case only is meant, too, unless there is one that does not.
        names = archive.namelist()
        self.names = {name.casefold(): name for name in names} | {name: name for name in names}

    def read(self) -> Book:
        container = self._parse("META-INF/container.xml", "it is no EPUB, or a damaged one")
        package = next((e.get("full-path") for e in named(container, "rootfile")), None)
        if not package:
            raise self._broken("META-INF/container.xml names no package file")
        package = unquote(package)
        root = self._parse(package, "it is named in META-INF/container.xml")
        folder = posixpath.dirname(package)
        items = {item.get("id"): (_inside(folder, item.get("href") or ""), item) for item in named(root, "item")}
        title = next((_text(e) for e in named(root, "title") if _text(e)), "")
        spine = {reference.get("idref"): reference for reference in named(root, "itemref")}  # each page once
        if not spine:
            raise self._broken(f"{package} has no spine, which says what to read in which order")
        unknown = [identifier or "" for identifier in spine if identifier not in items]
        files = [items[identifier][0] for identifier in spine if identifier in items]
        missing = [name for name in files if name.casefold() not in self.names]
        if unknown or missing:
            names = [*missing, *(f"the item {name!r}" for name in unknown)]
            raise self._broken(f"{len(names)} of the {len(spine)} files to read are missing: {', '.join(names[:5])}")
        self._check_rights(files)
        # Of a reference with an anchor only the place is known, and not how far it goes.
        guide = {
            _inside(folder, reference.get("href") or ""): (reference.get("type") or "").lower()
            for reference in named(root, "reference")
        }
        pages, dropped = [], []
        for identifier, reference in spine.items():
            name, item = items[identifier]
            is_page = item.get("media-type") in _PAGES
            if not is_page or "nav" in (item.get("properties") or "").split():
                dropped.append("the table of contents" if is_page else f"{name}, which is no text")
                continue
            blocks, page_title = html_blocks(self._content(name, "it is in the spine"), f"`book`: {self.path}: {name}")
            for block in blocks:
                block.roles |= {guide.get(name, "")}
            page = _Page(name, blocks, page_title)
            words = sum(block.words for block in blocks)
            if (reference.get("linear") or "").lower() == "no" and words:
                dropped.append(f"{left_out(page_title or name, words)}, outside the reading order")
            else:
                pages.append(page)
        return self._divide(title, pages, self._entries(items, root), dropped)

    # Files of the archive

    def _broken(self, problem: str) -> ValueError:
        return ValueError(f"`book`: {self.path} is a damaged EPUB: {problem}.")

    def _content(self, name: str, why: str) -> bytes:
        actual = self.names.get(name) or self.names.get(name.casefold())
        if actual is None:
            raise self._broken(f"{name} is missing ({why})")
        size = self.archive.getinfo(actual).file_size
        if size > LARGEST_FILE:
            raise self._broken(f"{name} would unpack to {size:,} bytes, more than any book has")
        return self.archive.read(actual)

    def _parse(self, name: str, why: str) -> Any:
        return parse_markup(self._content(name, why), f"`book`: {self.path}: {name}")

    def _check_rights(self, pages: list[str]) -> None:
        """Refuse a book whose pages are encrypted; fonts often are, and do not matter."""
        if "meta-inf/encryption.xml" not in self.names:
            return
        root = self._parse("META-INF/encryption.xml", "")
        for data in named(root, "encrypteddata"):
            parts = {local_name(element): element for element in data.iter()}
            method = parts["encryptionmethod"].get("Algorithm", "") if "encryptionmethod" in parts else ""
            target = parts["cipherreference"].get("URI", "") if "cipherreference" in parts else ""
            if method not in _FONT_ALGORITHMS and unquote(target).casefold() in {page.casefold() for page in pages}:
                problem = f"is protected against copying (DRM): {target} is encrypted; use an edition without DRM"
                raise ValueError(f"`book`: {self.path} {problem}.")

    # The table of contents

    def _entries(self, items: dict[str, Any], root: Any) -> list[_Entry]:
        for name, item in items.values():
            if "nav" in (item.get("properties") or "").split() and name.casefold() in self.names:
                lists = named(self._parse(name, ""), "nav")
                contents = next((element for element in lists if "toc" in roles_of(element)), next(iter(lists), None))
                if contents is not None and (entries := list(_navigation(contents, posixpath.dirname(name)))):
                    return entries
        owner = next((element.get("toc") for element in named(root, "spine")), None)
        for identifier, (name, item) in items.items():
            is_ncx = identifier == owner or item.get("media-type") == "application/x-dtbncx+xml"
            if is_ncx and name.casefold() in self.names:
                maps = named(self._parse(name, ""), "navmap")
                if maps:
                    return list(_points(maps[0], posixpath.dirname(name)))
        return []

    # Chapters

    def _divide(self, title: str, pages: list[_Page], entries: list[_Entry], dropped: list[str]) -> Book:
        _, kept, licence = without_licence([block for page in pages for block in page.blocks])
        if licence:
            text = {id(block) for block in kept}
            pages = [replace(page, blocks=[block for block in page.blocks if id(block) in text]) for page in pages]
        found = "chapters from its table of contents" if entries else "a chapter from each page with a heading"
        chapters, left = _chapters(_pieces(pages, entries), title)
        if len(chapters) < 2:
            # The contents list says nothing; perhaps the text does.
            plain = [(page, block) for page in pages for block in page.blocks if not block.roles & _ASIDE_ROLES]
            book = split_blocks([block for _, block in plain])
            if len(book.chapters) > 1:
                chapters, found = book.chapters, book.found
                left = [
                    *_chapters([piece for piece in _by_page(pages, {}) if piece.is_aside], title)[1],
                    *book.left_out,
                ]
            elif all(is_aside(entry.title) for entry in entries) and len({page.name for page, _ in plain}) > 1:
                found = "a chapter from each of its files"
                names = {entry.file: entry.title for entry in entries if not entry.anchor}
                chapters, left = _chapters(_by_page(pages, names), title)
        return Book(title, chapters, found, [*dropped, *licence, *left])


def _inside(folder: str, reference: str) -> str:
    """The name in the archive of what a file in `folder` refers to."""
    path, mark, anchor = reference.partition("#")
    return posixpath.normpath(posixpath.join(folder, unquote(path))) + mark + unquote(anchor)


def _text(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _navigation(element: Any, folder: str) -> Iterator[_Entry]:
    """Entries of the nav element of EPUB 3: nested lists, an a (or a span) in each item."""
    for child in element:
        if local_name(child) != "li":
            yield from _navigation(child, folder)
            continue
        label = next((e for e in child.iter() if local_name(e) in ("a", "span")), None)
        inner = [entry for e in child if local_name(e) in ("ol", "ul") for entry in _navigation(e, folder)]
        if label is None:
            yield from inner
            continue
        target, _, anchor = _inside(folder, label.get("href") or "").partition("#")
        yield _Entry(_text(label), target if label.get("href") else "", anchor, inner)


def _points(element: Any, folder: str) -> Iterator[_Entry]:
    """Entries of an NCX: nested navPoint elements."""
    for child in element:
        if local_name(child) == "navpoint":
            title = next((_text(e) for e in child if local_name(e) == "navlabel"), "")
            source = next((e.get("src") for e in child if local_name(e) == "content"), None) or ""
            target, _, anchor = _inside(folder, source).partition("#")
            yield _Entry(title, target if source else "", anchor, [*_points(child, folder)])


def _starts(entries: list[_Entry], part: str = "") -> Iterator[tuple[str, _Piece]]:
    for entry in entries:
        holds = _holds_chapters(entry)
        if entry.file:
            yield entry.file, _Piece(entry.title, [], part, holds, entry.anchor)
        if holds:
            inner = part if heading_kind(entry.title) == "" and not entry.file else entry.title
            yield from _starts(entry.children, f"{part}, {inner}" if part and inner != part else inner)


def _holds_chapters(entry: _Entry) -> bool:
    """Whether an entry stands for a part, with the chapters below it, and not for a chapter with its sections."""
    kind = heading_kind(entry.title)
    if not entry.children or kind == "chapter":
        return False
    return kind == "part" or any(heading_kind(child.title) or child.file != entry.file for child in entry.children)


def _sections(entries: list[_Entry], in_chapter: bool = False) -> Iterator[str]:
    """Files of the sections inside chapters, but not of what is called a chapter, whatever it stands under."""
    for entry in entries:
        if in_chapter and not is_called_chapter(entry.title):
            yield entry.file
        yield from _sections(entry.children, in_chapter or is_called_chapter(entry.title))


def _pieces(pages: list[_Page], entries: list[_Entry]) -> list[_Piece]:
    """Cut the pages where the table of contents says, and where a page with a heading of its own begins."""
    starts: dict[str, list[_Piece]] = defaultdict(list)
    for file, start in _starts(entries):
        starts[file].append(start)
    sections = {*_sections(entries)}
    pieces = [_Piece("", [])]
    for page in pages:
        here = [replace(start, blocks=[]) for start in starts[page.name]]
        known = {"", *(anchor for block in page.blocks for anchor in block.anchors)}
        if here and [start for start in here if start.anchor not in known] == here[:1]:
            here[0] = replace(here[0], anchor="")  # the only one that the page lacks stands for its beginning
        here = [start for start in here if start.anchor in known]
        anchored = {start.anchor: start for start in here if start.anchor}
        is_aside_page = all(block.roles & _ASIDE_ROLES for block in page.blocks)
        if pieces[-1].is_aside and not is_aside_page and not any(map(_is_chapter, pieces)):
            pieces.append(_Piece("", [], pieces[-1].part))  # a cover or a dedication has one file
        pieces += [start for start in here if not start.anchor]
        begins = bool(page.blocks) and page.blocks[0].level > 0 and page.name not in sections
        if page.blocks and not here and (begins or is_aside_page):
            pieces.append(_Piece(page.own_title, [], "" if is_aside_page else pieces[-1].part))
        for block in page.blocks:
            pieces += [anchored.pop(anchor) for anchor in list(anchored) if anchor in block.anchors]
            pieces[-1].blocks.append(block)
    return [piece for piece in pieces if piece.title or piece.blocks]


def _is_chapter(piece: _Piece) -> bool:
    return not piece.is_aside and sum(block.words for block in piece.blocks) >= LEAST_OPENING


def _by_page(pages: list[_Page], names: dict[str, str]) -> list[_Piece]:
    return [_Piece(names.get(page.name) or page.own_title, page.blocks) for page in pages if page.blocks]


def _chapters(pieces: list[_Piece], book_title: str) -> tuple[list[Chapter], list[str]]:
    """Make chapters of the pieces that are, and name the others."""
    chapters: list[Chapter] = []
    dropped: list[str] = []
    carried: list[str] = []  # the few words on a part's page go to its first chapter
    last = ""  # part, whose chapters may all be left out
    named = (piece for piece in pieces if not piece.is_aside and not _has_no_name(piece, book_title))
    has_more = any(not block.level for piece in named for block in piece.blocks)
    for piece in pieces:
        links = [block for block in piece.blocks if block.is_link]
        body = _without_title([b for b in piece.blocks if len(links) < 3 or not b.is_link], piece.title)
        words = sum(block.words for block in body)
        name = ", ".join(filter(None, (piece.part, piece.title))) or BEFORE
        is_title_page = _has_no_name(piece, book_title) and has_more and not chapters and words < LEAST_OPENING
        if piece.is_aside or is_title_page:
            if piece.blocks:
                dropped.append(left_out(piece.title or "what stands before the first chapter", words))
        elif piece.is_part and words < LEAST_OPENING:
            carried += [block.text for block in body]
            last = name
        else:
            chapters.append(Chapter(name, [*carried, *(block.text for block in body)]))
            carried = []
        if len(links) > 2 and not piece.is_aside:
            dropped.append(left_out("a list of links", sum(block.words for block in links)))
    if carried:
        chapters.append(Chapter(last, carried))
    return chapters, dropped


def _has_no_name(piece: _Piece, book_title: str) -> bool:
    return piece.title.casefold() in ("", book_title.casefold())


def _without_title(blocks: list[Block], title: str) -> list[Block]:
    """Take the headings off the beginning of a chapter: they are its title."""
    number = 0
    while number < len(blocks) and (blocks[number].level or blocks[number].text.casefold() == title.casefold()):
        number += 1
    return blocks[number:]

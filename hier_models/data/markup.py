"""Paragraphs and headings of plain text, Markdown and HTML."""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from html.entities import html5
from typing import Any

from lxml import etree
from markdown_it import MarkdownIt


_YAML_KEY = re.compile(r"[\w\"'][^:]*:(?:\s|$)")
_LONGEST_BROKEN_LINE = 120  # lines of a text whose paragraphs are broken into lines are hardly ever longer

_BLOCKS = """address article aside blockquote body center dd details div dl dt fieldset figcaption figure footer form
    h1 h2 h3 h4 h5 h6 header hgroup hr li main nav ol p pre section summary table tbody tr ul"""
_SILENT = "audio head math nav noscript object rp rt script style svg template title video"
_BLOCK_TAGS, _SILENT_TAGS = frozenset(_BLOCKS.split()), frozenset(_SILENT.split())
_CELL_TAGS = frozenset({"br", "td", "th"})
_EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
# What browsers take encodings for: what wrote those names meant more than they say.
_MEANT = {"iso8859-1": "cp1252", "ascii": "cp1252", "shift_jis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932"}
_MEANT |= {"gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "utf-8": "utf-8"}
_UTF_16 = re.compile(r"utf-?16|ucs-?2|(?:cs)?unicode|iso-10646-ucs-2")
_CHARSET = re.compile(
    rb"^\s*<\?xml\s[^>]*?\bencoding\s*=\s*[\"']?\s*([\w.:-]+)|<meta\s[^>]*?\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.I
)
# The heading of a list of references, perhaps with its number.
REFERENCES = re.compile(
    r"(?:[\dIVX]+\.?\s+)?(?:references(?: cited| and notes)?|bibliography|(?:literature|works) cited|literatur|"
    r"(?:literatur|quellen)verzeichnis|références|bibliographie|referencias|bibliografía|bibliografia|参考文献)[.:]?",
    re.IGNORECASE,
)


@dataclass
class Block:
    """A paragraph or a heading."""

    text: str  # its text, white space made single spaces
    level: int = 0  # 1 to 6 for a heading that is marked as one
    lines: tuple[str, ...] = ()  # the lines of a paragraph of plain text
    anchors: frozenset[str] = field(default_factory=frozenset)  # names by which links lead here
    roles: frozenset[str] = field(
        default_factory=frozenset
    )  # "code", and what EPUB calls its pages: "titlepage", "toc"
    is_link: bool = False  # whether it is nothing but a link, as an entry of a contents list is
    pages: tuple[tuple[int, int], ...] = ()  # of a PDF: the characters from which on it stands on a page, and which

    @property
    def words(self) -> int:
        """How many words it has."""
        return len(self.text.split())


def text_blocks(text: str) -> list[Block]:
    """Find the paragraphs of a plain text: between blank lines, or each line where lines are not broken."""
    lines = text.splitlines()
    long = sum(len(line) > _LONGEST_BROKEN_LINE for line in lines)
    filled = sum(bool(line.strip()) for line in lines)
    each_line = long > 0.1 * filled or filled == len(lines)
    return list(_paragraphs(lines, each_line))


def markdown_blocks(text: str, name: str) -> list[Block]:
    """Find the paragraphs and headings of a Markdown text, as of the page that it makes."""
    lines = text.splitlines(keepends=True)
    rest = [line.strip() for line in lines[1:]]
    if rest and lines[0].strip() == "---" and _YAML_KEY.match(rest[0]) and "---" in rest:
        lines = lines[rest.index("---") + 2 :]  # what tools keep at the top, not text; "---" alone may be a rule
    page = MarkdownIt("commonmark").enable("table").render("".join(lines))
    # What the text says of encodings is not meant.
    return html_blocks(f'<?xml version="1.0" encoding="utf-8"?><html><body>{page}</body></html>'.encode(), name)[0]


def html_blocks(content: bytes, name: str) -> tuple[list[Block], str]:
    """Find the paragraphs and headings of an (X)HTML page, without what is hidden, page numbers and marks of notes."""
    if not content.strip():
        return [], ""
    root = parse_markup(content, name)
    titles = named(root, "title")
    walk = _Walk()
    try:
        walk.visit(next(iter(named(root, "body")), root), 0, frozenset())
    except RecursionError:
        raise _too_deep(name) from None
    walk.flush()
    return walk.blocks, _one_line("".join(titles[0].itertext())) if titles else ""


def parse_markup(content: bytes, name: str) -> Any:
    """Parse XHTML as XML, and what is no XML as HTML."""
    encoding, declared = "utf-8", _CHARSET.search(content[:2048].removeprefix(codecs.BOM_UTF8))
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif declared and not content.startswith(codecs.BOM_UTF8):
        encoding = (declared[1] or declared[2]).decode("ascii").lower()
        encoding = "utf-8" if _UTF_16.match(encoding) else encoding  # one cannot be read in UTF-16
    meant = _meant(encoding)
    # Entities of HTML mean nothing to an XML parser that loads no DTD, and none is loaded.
    settings = {"resolve_entities": False, "no_network": True, "load_dtd": False, "remove_comments": True}
    try:
        parser = etree.XMLParser(encoding=meant if declared and declared[1] else None, **settings)
        return etree.fromstring(_ENTITY.sub(_numbered, content), parser)
    except (etree.XMLSyntaxError, LookupError):
        pass
    try:
        try:
            text = content.decode(meant or encoding)
        except UnicodeDecodeError:  # of bytes that Windows leaves free
            text = content.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        raise ValueError(f"{name} is not in the encoding {encoding}, which it should be in.") from None
    text = re.sub(r"^\s*<\?xml.*?\?>", "", text.removeprefix("\ufeff"))
    if not text.strip():
        raise ValueError(f"{name} is empty.")
    # Without `huge_tree` the parser drops what is long or deeper than 256 elements, and says it in its log only.
    lenient = etree.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True)
    root = etree.fromstring(text.encode("utf-8"), lenient)
    if root is None:
        raise ValueError(f"{name} is no HTML.")
    if any(error.type_name in ("ERR_RESOURCE_LIMIT", "ERR_INTERNAL_ERROR") for error in lenient.error_log):
        raise _too_deep(name)
    return root


def _meant(encoding: str) -> str | None:
    with suppress(LookupError):
        encoding = codecs.lookup(encoding).name
    return _MEANT.get(encoding)


def local_name(element: Any) -> str:
    """Name of an element without its namespace."""
    # Not by QName, which refuses names that HTML has: Word writes <o:p>.
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def named(root: Any, name: str) -> list[Any]:
    """All elements of a name, in order."""
    return [element for element in root.iter() if local_name(element) == name]


def _too_deep(name: str) -> ValueError:
    hint = "as when hundreds of tags are never closed. Repair it, or make a text file of it"
    return ValueError(f"{name} has elements nested too deeply to be read, {hint}.")


def roles_of(element: Any) -> frozenset[str]:
    """Say what EPUB calls the part of a book that an element is."""
    roles = [*(element.get(_EPUB_TYPE) or element.get("epub:type") or "").split()]
    roles += [role.removeprefix("doc-") for role in (element.get("role") or "").split() if role.startswith("doc-")]
    return frozenset(role.lower() for role in roles)


class _Walk:
    """Goes through a page and gathers its blocks."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.pieces: list[str] = []
        self.linked = 0  # characters that are in links
        self.anchors: set[str] = set()
        self.level = 0
        self.roles: frozenset[str] = frozenset()

    def visit(self, element: Any, level: int, roles: frozenset[str], in_link: bool = False) -> None:
        name = local_name(element)
        self.anchors |= {element.get("id"), element.get("name") if name == "a" else None} - {None, ""}
        own = roles_of(element)
        if element.tag is etree.Entity:
            self._text(element.text, level, roles, in_link)  # not known, so as it is written
        if name in _SILENT_TAGS or not name or own & {"noteref", "pagebreak"} or "pagenum" in element.get("class", ""):
            return
        if element.get("hidden") is not None or _HIDDEN.search(element.get("style") or ""):
            return
        is_block = name in _BLOCK_TAGS
        if name in ("h1", "h2", "h3", "h4", "h5", "h6"):
            level = int(name[1])
        elif name == "hgroup":
            level = next((int(local_name(child)[1]) for child in element if re.match("h[1-6]", local_name(child))), 0)
        roles = roles | own | ({"code"} if name == "pre" else set())
        in_link = in_link or (name == "a" and bool(element.get("href")))
        if is_block:
            here = {element.get("id")} - {None, ""}  # leads to what comes in the element
            self.anchors -= here
            self.flush()
            self.anchors |= here
        if name in _CELL_TAGS:
            self.pieces.append(" ")
        self._text(element.text, level, roles, in_link)
        for child in element:
            self.visit(child, level, roles, in_link)
            self._text(child.tail, level, roles, in_link)
        if is_block:
            self.flush()

    def _text(self, text: str | None, level: int, roles: frozenset[str], in_link: bool) -> None:
        if not text:
            return
        self.pieces.append(text)
        if text.strip():
            self.level, self.roles = level, roles
            self.linked += len("".join(text.split())) if in_link else 0

    def flush(self) -> None:
        text = _one_line("".join(self.pieces))
        if text:
            is_link = self.linked == len("".join(text.split()))
            self.blocks.append(Block(text, self.level, (), frozenset(self.anchors), self.roles, is_link))
            self.anchors = set()
        self.pieces, self.linked = [], 0


def _paragraphs(lines: list[str], each_line: bool = False) -> Iterator[Block]:
    waiting: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            waiting.append(line.strip("\r\n\f "))
        if waiting and (each_line or not line.strip()):
            yield Block(_one_line(" ".join(waiting)), lines=tuple(waiting))
            waiting = []


def _one_line(text: str) -> str:
    # Soft hyphens and word joiners steer the breaking of lines; a model's vocabulary has them not.
    return " ".join(re.sub("[\u00ad\u200b\u2060\ufeff]", "", text).split())


def _numbered(match: re.Match[bytes]) -> bytes:
    name = match[1].decode("ascii")
    if name in ("amp", "lt", "gt", "quot", "apos") or f"{name};" not in html5:
        return match[0]
    return "".join(f"&#{ord(char)};" for char in html5[f"{name};"]).encode("ascii")

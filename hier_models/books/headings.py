"""Chapters of a text, found by its headings.

A heading is a paragraph of its own that is marked as one (Markdown, HTML), begins as one ("CHAPTER IV", "Part Two: …",
"Prologue") or is a number in a row of numbers. Headings that stand in a table of contents are told from those over
chapters by the text that follows them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..data.markup import Block
from .book import Book, Chapter, is_aside, left_out


# Text before the first chapter that is shorter is a title page.
LEAST_OPENING = 100
BEFORE = "Before the first chapter"
# Words of an entry in a table of contents, at most.
LONGEST_ENTRY = 60

_UNITS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
_UNITS += "eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NTH = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth last"
_WORDS = rf"(?:(?:{'|'.join(_TENS.split())})(?:[ -](?:{'|'.join(_UNITS.split()[:9])}))?|"
_WORDS += rf"{'|'.join(_UNITS.split()[::-1])})"
_ROMAN = r"(?=[mdclxvi])m{0,3}(?:cm|cd|d?c{0,4})(?:xc|xl|l?x{0,4})(?:ix|iv|v?i{0,4})"
_NUMBER = rf"(?:{_ROMAN}|\d{{1,3}}|{_WORDS}|(?:the )?(?:{'|'.join(_NTH.split())}))"
_CHAPTER_WORDS = "chapter chap canto letter stave scene lecture adventure kapitel chapitre capítulo capitolo"
_PART_WORDS = "part book volume vol act teil buch band partie livre parte libro"


def _worded(words: str) -> re.Pattern[str]:
    names, nths = "|".join(words.split()), "|".join(_NTH.split())
    return re.compile(
        rf"(?:the )?(?:(?P<word>{names})\.? (?P<number>{_NUMBER})|(?P<nth>{nths}) (?P<word2>{names}))"
        r"(?![\w’'-])(?P<rest>.*)",
        re.IGNORECASE,
    )


_CHAPTER, _PART = _worded(_CHAPTER_WORDS), _worded(_PART_WORDS)
_NUMBERED = re.compile(rf"(?P<number>{_ROMAN}|\d{{1,3}})(?P<rest>[.:)–—-] ?\W*\w.*)", re.IGNORECASE)
_BARE = re.compile(rf"[-–—\[(]? ?(?P<number>{_ROMAN}|\d{{1,3}}) ?[-–—\])]?\.?", re.IGNORECASE)
_SPECIAL = re.compile(
    r"(?P<word>prologue|epilogue|preface|foreword|introduction|afterword|conclusion|postscript|interlude|"
    r"appendix(?: (?:[a-z]|\d{1,2}))?)(?P<rest>[.:–—-].{0,80})?",
    re.IGNORECASE,
)
_CONTENTS = re.compile(r"(?:table of )?contents|toc|illustrations|list of .*", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"(?:\s*\.(?:\s*\.)+|…+|\s{3,}|\t)\s*(?:\d+|[ivxlc]+)\s*$")
_SENTENCE_END = re.compile(r"[.!?…:;\"”’»)\]]\s*$")
# What begins a chapter, and what stands over chapters; the first style that a text has is its own.
_WORDED = {"chapter": _CHAPTER, "part": _PART}
_STYLES = (_WORDED, {"chapter": _NUMBERED, "part": _PART}, {"chapter": _BARE, "part": _PART}, {"chapter": _PART})
_GUTENBERG = re.compile(r"\*\*\* ?(START|END) OF (?:THE|THIS) PROJECT GUTENBERG", re.IGNORECASE)


@dataclass(frozen=True)
class Heading:
    """A heading among the blocks of a text."""

    start: int  # number of its first block
    end: int  # number of the first block after it
    kind: str  # "part" for one that stands over chapters, else "chapter"
    key: str  # what tells it from others of its kind; the same in the table of contents
    title: str  # its text
    number: int = 0  # the number it gives itself; 0 for none


def split_blocks(blocks: list[Block]) -> Book:
    """Divide a text into chapters at its headings."""
    title, blocks, dropped = without_licence(blocks)
    book = _by_levels(blocks) or _by_words(blocks)
    if book is None:
        chapter = Chapter("", [block.text for block in blocks])
        book = Book("", [chapter], "no chapter heading found, so it is one long text")
    return Book(title or book.title, book.chapters, book.found, [*dropped, *book.left_out])


def without_licence(blocks: list[Block]) -> tuple[str, list[Block], list[str]]:
    """Take the pages of Project Gutenberg off a text."""
    start, end, title = 0, len(blocks), ""
    for number, block in enumerate(blocks):
        if match := _GUTENBERG.search(block.text[:200]):
            if match[1].upper() == "END":
                end = number
                break
            start = number + 1
        elif not start and not title and (named := re.match(r"Title: (.{1,200}?)(?: Author: .*)?$", block.text)):
            title = named[1]
    words = sum(block.words for block in [*blocks[:start], *blocks[end:]])
    dropped = [left_out("Project Gutenberg's licence", words)] if words else []
    return title if start else "", blocks[start:end], dropped


def heading_kind(title: str) -> str:
    """Say what a title calls itself."""
    if _PART.fullmatch(title.strip()):
        return "part"
    return "chapter" if any(pattern.fullmatch(title.strip()) for pattern in (_CHAPTER, _NUMBERED, _BARE)) else ""


def is_called_chapter(title: str) -> bool:
    """Say whether a title is that of a chapter by a word, and not by a number alone."""
    return _CHAPTER.fullmatch(title.strip()) is not None


def title_of(blocks: list[Block]) -> tuple[str, list[Block]]:
    """Part the title from a chapter that is given alone."""
    number = 0
    while number < len(blocks) and blocks[number].level:
        number += 1
    if number:
        return ": ".join(block.text for block in blocks[:number]), blocks[number:]
    blocks = list(_opened(blocks))
    found = _find(blocks[:3], _WORDED)
    return (found[0].title, blocks[found[0].end :]) if found and not found[0].start else ("", blocks)


# Headings that are marked as such


def _by_levels(blocks: list[Block]) -> Book | None:
    levels = Counter(block.level for block in blocks if block.level)
    if not levels:
        return None
    numbers = [number for number, block in enumerate(blocks) if block.level]
    named = Counter(blocks[number].level for number in numbers if _CHAPTER.fullmatch(blocks[number].text))
    level = named.most_common(1)[0][0] if named.total() > 1 else min((x for x in levels if levels[x] > 1), default=0)
    while level and not named and (deeper := [x for x in levels if x > level and levels[x] > 1]):
        # Headings with none but deeper headings under them are of parts.
        own = [number for number in numbers if blocks[number].level == level]
        if sum(number + 1 in numbers and blocks[number + 1].level > level for number in own) < 0.8 * len(own):
            break
        level = min(deeper)
    if not level:
        return None
    marked = [
        Heading(
            number,
            number + 1,
            "chapter" if block.level == level or _SPECIAL.fullmatch(block.text) or is_aside(block.text) else "part",
            block.text.casefold(),
            block.text,
        )
        for number, block in enumerate(blocks)
        if 0 < block.level <= level
    ]
    title = ""
    first = marked[0]
    if first.kind == "part" and levels[blocks[first.start].level] == 1:
        title, marked = first.title, marked[1:]  # the book's own
        blocks = [block for number, block in enumerate(blocks) if number != first.start]
        marked = [replace(mark, start=mark.start - 1, end=mark.end - 1) for mark in marked]
    book = _assembled(blocks, marked)
    return Book(title, book.chapters, book.found, book.left_out) if len(book.chapters) > 1 else None


# Headings that are known by their words


def _by_words(blocks: list[Block]) -> Book | None:
    blocks = list(_opened(blocks))
    looks = [_looks_like_contents(block) for block in blocks]
    for style in _STYLES:
        lists, rest = _contents_lists(blocks, looks, style)
        headings = _without_contents(rest, _find(rest, style))
        has_chapters = any(heading.kind == "chapter" and heading.number for heading in headings)
        if has_chapters and (style["chapter"] in (_CHAPTER, _PART) or _is_row(rest, headings)):
            book = _assembled(rest, headings)
            if lists:
                book.left_out.insert(0, left_out("a table of contents", sum(block.words for block in lists)))
            return book
    return None


def _opened(blocks: list[Block]) -> Iterator[Block]:
    """Part a heading from the paragraph that follows it without a blank line."""
    for block in blocks:
        first = block.lines[0] if len(block.lines) > 1 else ""
        match = _CHAPTER.fullmatch(first) or _PART.fullmatch(first)
        if match and _is_heading(match) and not _starts(block.lines[1]):
            rest = block.lines[1:]
            text = " ".join(rest)
            is_title = len(rest) < 4 and len(text) < 200 and (text.isupper() or not _SENTENCE_END.search(text))
            if (not match["rest"].strip(" .:–—-") and not is_title) or (match["rest"] and not is_title):
                yield Block(first.strip(), lines=(first,))
                yield Block(" ".join(text.split()), lines=rest)
                continue
        yield block


def _starts(line: str) -> bool:
    return any(pattern.fullmatch(line.strip()) for pattern in (_CHAPTER, _PART, _SPECIAL))


def _looks_like_contents(block: Block) -> bool:
    """Tell lists of headings or of page numbers, but also verse with numbered lines and tables, from other text."""
    headings = sum(_starts(_PAGE_NUMBER.sub("", line)) for line in block.lines)
    paged = sum(_PAGE_NUMBER.search(line) is not None for line in block.lines)
    numbered = sum(_NUMBERED.fullmatch(line.strip()) is not None for line in block.lines)
    return headings > 1 or paged > 2 or bool(paged and headings) or (numbered > 2 and numbered == len(block.lines))


def _contents_lists(
    blocks: list[Block], looks: list[bool], style: dict[str, re.Pattern[str]]
) -> tuple[list[Block], list[Block]]:
    """Take out what looks like a contents list where one can stand.

    That is before the text, under "Contents", or wherever the entries come again as headings. All else is text.
    """
    headings = _find([Block("") if is_list else block for block, is_list in zip(blocks, looks, strict=True)], style)
    if not headings:
        return [], []  # what only looks like a contents list is no heading
    first = next((h.start for h, words in _sizes(blocks, headings) if words > 3 and not is_aside(h.title)), 0)
    keys = {heading.key for heading in headings}
    names = {_name(block.text) for heading in headings for block in blocks[heading.start : heading.end]}
    lists: list[Block] = []
    rest: list[Block] = []
    under = False
    for number, (block, is_list) in enumerate(zip(blocks, looks, strict=True)):
        under = under if is_list else _is_contents(block.text)
        is_taken = is_list and (number < first or under or _come_again(block, keys, names))
        (lists if is_taken else rest).append(block)
    return lists, rest


def _is_contents(title: str) -> bool:
    return is_aside(title) and _CONTENTS.fullmatch(title.strip(" .:*[]")) is not None


def _come_again(block: Block, keys: set[str], names: set[str]) -> bool:
    """Say whether the lines of a list, or half of them where entries are broken into lines, are headings too."""
    lines = [_PAGE_NUMBER.sub("", line).strip() for line in block.lines]
    # A number alone is the key of any numbered list.
    again = sum(
        _name(line) in names - {""} or any(heading.key in keys for heading in _find([Block(line)], _WORDED))
        for line in lines
    )
    return 2 * again >= len(lines)


def _name(title: str) -> str:
    """What a heading says beside its number."""
    match = _CHAPTER.fullmatch(title) or _PART.fullmatch(title) or _NUMBERED.fullmatch(title)
    return " ".join(re.findall(r"\w+", (match["rest"] if match else title).casefold()))


def _is_heading(match: re.Match[str]) -> bool:
    """Tell a heading from a sentence that begins like one: "Book III of the Aeneid is …"."""
    rest = match["rest"]
    words = rest.strip(" .:–—-_*[]")
    if len(match[0]) > 200:
        return False
    if not words or rest[0] in ".:–—-" or match[0].isupper():
        return True
    return (words[0].isupper() or words[0].isdecimal()) and len(match[0]) < 100 and not re.search(r"[.!?,;]$", words)


def _find(blocks: list[Block], style: dict[str, re.Pattern[str]]) -> list[Heading]:
    found = []
    for number, block in enumerate(blocks):
        text = block.text.strip("_*")
        if len(block.lines) > 5:
            continue
        for kind, pattern in style.items():
            match = pattern.fullmatch(text)
            if match and (pattern is _BARE or _is_heading(match)):
                groups = match.groupdict()
                value = _value(groups.get("number") or groups.get("nth") or "")
                word = (groups.get("word") or groups.get("word2") or "").casefold()
                title, end = text, number + 1
                if not (groups.get("rest") or "").strip(" .:–—-") and (below := _title_below(blocks, end)):
                    title, end = f"{text.rstrip('.:')}: {below}", end + 1
                found.append(Heading(number, end, kind, f"{word} {value}", title, value))
                break
        else:
            if len(block.lines) <= 1 and (_SPECIAL.fullmatch(text) or is_aside(text)) and not text.islower():
                found.append(Heading(number, number + 1, "chapter", text.casefold().rstrip(".:"), text))
    return found if style["chapter"] in (_CHAPTER, _PART) else _in_order(found)


def _title_below(blocks: list[Block], number: int) -> str:
    """A line under a heading's number that is its title: short, and no sentence."""
    if number >= len(blocks) or len(blocks[number].lines) > 2:
        return ""
    text = blocks[number].text
    if len(text) > 80 or _starts(text) or _BARE.fullmatch(text) or _NUMBERED.fullmatch(text):
        return ""
    words = [word for word in re.findall(r"\w+", text) if len(word) > 3]
    has_capitals = bool(words) and all(word[0].isupper() for word in words)
    is_title = text.isupper() or (has_capitals and not _SENTENCE_END.search(text))
    return text if is_title and number + 1 < len(blocks) else ""


def _without_contents(blocks: list[Block], headings: list[Heading]) -> list[Heading]:
    """Leave out headings of a table of contents: two or more in a row without text, all of which come again."""
    kept = []
    number = 0
    last = {heading.key: place for place, heading in enumerate(headings)}
    while number < len(headings):
        # Up to the first that does not come again behind all of them.
        end, first_again = number, len(headings)
        while end < len(headings) and (
            end == number or _words(blocks, headings[end - 1].end, headings[end].start) <= 3
        ):
            first_again = min(first_again, last[headings[end].key])
            if first_again <= end:
                break
            end += 1
        chapters = sum(heading.kind == "chapter" and heading.number > 0 for heading in headings[number:end])
        if chapters > 1:
            number = end
        else:
            kept.append(headings[number])
            number += 1
    return kept


def _in_order(headings: list[Heading]) -> list[Heading]:
    """Keep numbers that count on from one, and begin again only in a new part."""
    kept, expected = [], 1
    for heading in headings:
        if heading.kind == "part":
            expected = 1
        elif heading.number:
            if heading.number != expected:
                continue
            expected += 1
        kept.append(heading)
    return kept


def _is_row(blocks: list[Block], headings: list[Heading]) -> bool:
    """Tell numbers over chapters from those of lists and pages."""
    own = [heading for heading in headings if heading.number and heading.kind == "chapter"]
    if len(own) < 3:
        return False
    sizes = sorted(words for _, words in _sizes(blocks, headings))
    behind = {heading.end for heading in headings}  # a number may stand right under its part
    before = [blocks[heading.start - 1] for heading in own if heading.start and heading.start not in behind]
    ended = sum(_SENTENCE_END.search(block.text) is not None for block in before)
    return sizes[len(sizes) // 2] >= 100 and ended >= 0.7 * len(before)


def _ends(blocks: list[Block], headings: list[Heading]) -> Iterator[tuple[Heading, int]]:
    """Each heading with the number of the block that ends its text."""
    return zip(headings, [*(heading.start for heading in headings[1:]), len(blocks)], strict=True)


def _sizes(blocks: list[Block], headings: list[Heading]) -> Iterator[tuple[Heading, int]]:
    """Each heading with how many words follow it."""
    return ((heading, _words(blocks, heading.end, end)) for heading, end in _ends(blocks, headings))


def _words(blocks: list[Block], start: int, end: int) -> int:
    return sum(block.words for block in blocks[start:end])


def _value(number: str) -> int:
    """The value of a number in figures, Roman figures or words."""
    text = number.casefold().removeprefix("the ")
    if text.isdecimal():
        return int(text)
    for words in (_UNITS.split(), _NTH.split()):
        if text in words:
            return words.index(text) + 1
    tens, _, unit = text.replace("-", " ").partition(" ")
    if tens in _TENS.split():
        return 10 * (_TENS.split().index(tens) + 2) + (_UNITS.split().index(unit) + 1 if unit else 0)
    values = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
    figures = [values.get(figure, 0) for figure in text]
    return sum(-a if a < b else a for a, b in zip(figures, [*figures[1:], 0], strict=True))


# From headings to chapters


def _assembled(blocks: list[Block], headings: list[Heading]) -> Book:
    chapters: list[Chapter] = []
    dropped: list[str] = []
    opening = blocks[: headings[0].start] if headings else blocks
    words = sum(block.words for block in opening)
    if words >= LEAST_OPENING:
        chapters.append(Chapter(BEFORE, [block.text for block in opening]))
    elif words:
        dropped.append(left_out("what stands before the first chapter", words))
    part = ""
    carried: list[str] = []  # the few words under a part's heading go to its first chapter
    for heading, end in _ends(blocks, headings):
        aside = is_aside(heading.title)
        paragraphs = [*([] if aside else carried), *(block.text for block in blocks[heading.end : end])]
        carried = carried if aside else []
        words = sum(len(paragraph.split()) for paragraph in paragraphs)
        if aside:
            # Whatever has no heading of its own begins at the first paragraph that is too long for an entry.
            blocks_here = blocks[heading.end : end]
            listed = next((n for n, block in enumerate(blocks_here) if block.words > LONGEST_ENTRY), len(blocks_here))
            if _is_contents(heading.title) and listed < len(blocks_here):
                if carried:
                    chapters.append(Chapter(part, carried))
                    carried = []
                name = BEFORE if not chapters else f"After {chapters[-1].title}"
                chapters.append(Chapter(name, paragraphs[listed:]))
                words = sum(len(paragraph.split()) for paragraph in paragraphs[:listed])
            if words:
                dropped.append(left_out(heading.title, words))
        elif heading.kind == "part" and words < LEAST_OPENING and heading is not headings[-1]:
            part, carried = heading.title, paragraphs
        elif heading.kind == "part":
            part = heading.title
            chapters.append(Chapter(part, paragraphs))
        else:
            chapters.append(Chapter(f"{part}, {heading.title}" if part else heading.title, paragraphs))
    if carried:
        chapters.append(Chapter(part, carried))
    example = next((h.title for h in headings if h.kind == "chapter" and (h.number or not is_aside(h.title))), "")
    return Book("", chapters, f"divided at headings such as {example!r}", dropped)

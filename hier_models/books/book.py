"""What a book is: chapters of paragraphs."""

import re
from dataclasses import dataclass, field


# Pages round a book that are no part of what it tells, by their titles.
_ASIDE = re.compile(
    r"(?:front |back )?cover|(?:half[ -]?|series )?title(?:[ -]?page)?|(?:table of )?contents|toc|"
    r"(?:un)?copyright(?: (?:page|notice|information))?|(?:the )?(?:full )?(?:project gutenberg )?licen[cs]e(?: .*)?|"
    r"the (?:full )?project gutenberg .*|imprint|colophon|(?:end|foot)?notes|index|bibliography|dedication|"
    r"acknowledge?ments?|list of (?:illustrations|figures|tables|plates)|illustrations|loi|"
    r"about the (?:authors?|publisher)|also by .*|by the same author|(?:books|other works) by .*|advertisements?|"
    r"transcriber[’']?s[’']? notes?",
    re.IGNORECASE,
)


@dataclass
class Chapter:
    """A chapter of a book.

    Args:
        title: Its title; may be empty.
        paragraphs: Its text, without the title.
    """

    title: str
    paragraphs: list[str]

    @property
    def words(self) -> int:
        """How many words it has."""
        return sum(len(paragraph.split()) for paragraph in self.paragraphs)


@dataclass
class Book:
    """A book as read.

    Args:
        title: Its title; may be empty.
        chapters: In reading order.
        found: How the chapters were found, in a few words.
        left_out: What is not among the chapters, and why; an entry each.
    """

    title: str
    chapters: list[Chapter]
    found: str = ""
    left_out: list[str] = field(default_factory=list)

    @property
    def words(self) -> int:
        """How many words it has."""
        return sum(chapter.words for chapter in self.chapters)

    def report(self) -> str:
        """Say how the book was read.

        Returns:
            A line for what was found, and one for each thing left out.
        """
        name = f"{self.title}: " if self.title else ""
        count = f"{len(self.chapters)} chapter{'' if len(self.chapters) == 1 else 's'}, {self.words:,} words"
        return "\n".join([f"{name}{count}; {self.found}.", *(f"Left out: {entry}." for entry in self.left_out)])


def is_aside(title: str) -> bool:
    """Say whether a title is that of a page which is no part of what a book tells: cover, contents, licence."""
    return _ASIDE.fullmatch(title.strip(" .:*[]")) is not None


def left_out(title: str, words: int) -> str:
    """Name what is left out."""
    return f"{title} ({words:,} word{'' if words == 1 else 's'})"

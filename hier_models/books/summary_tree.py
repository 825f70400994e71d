"""The summary of a book: a tree of summaries, from the book down to parts of chapters."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..inspection.pages import Page
from .book import Book


@dataclass
class SummaryNode:
    """A text of the book, or what is made of several, and its summary."""

    id: str  # what it is called where summaries are kept: "chapter 3, part 2"
    kind: str  # "book", "chapter", "part" of a long chapter, "piece" of a book without any; "chapters", … are groups
    title: str  # its title
    words: int  # words of the book's own text that it covers
    paragraphs: list[str] = field(default_factory=list)  # what was summarized, if not the summaries of its children
    children: list["SummaryNode"] = field(default_factory=list)  # the nodes whose summaries were summarized, in order
    tokens: int = 0  # how long the text was that the model summarized
    summary: str = ""  # its summary; empty if the model made none
    level: int = 0  # how far it is from the book, which has 0

    @property
    def is_group(self) -> bool:
        """Whether it stands for several chapters, or pieces of a book without chapters."""
        return self.kind in ("chapters", "pieces")

    def walk(self) -> Iterator["SummaryNode"]:
        """Go through the tree."""
        yield self
        for child in self.children:
            yield from child.walk()

    def as_dict(self, with_text: bool = True) -> dict[str, Any]:
        """Give the tree as what JSON can hold."""
        names = ("id", "kind", "level", "title", "words", "tokens", "summary")
        data: dict[str, Any] = {name: getattr(self, name) for name in names}
        if with_text and self.paragraphs:
            data["paragraphs"] = self.paragraphs
        return data | {"children": [child.as_dict(with_text) for child in self.children]}


@dataclass
class BookSummary(Page):
    """What `summarize_book` gives; its page has the tree of summaries, with the text below each to unfold."""

    template: ClassVar[str] = "books/book_page.html"

    tree: SummaryNode  # the book; below it its chapters, or groups of them, and the parts of chapters
    book: Book  # as it was read; `book.report()` says how
    models: tuple[str, str]  # names of the model for chapters and of the one for what is above them

    @property
    def summary(self) -> str:
        """The summary of the whole book."""
        return self.tree.summary

    @property
    def title(self) -> str:  # type: ignore[override]
        """The book's title; may be empty."""
        return self.book.title

    def report(self) -> str:
        """Say how the book was read and divided, in some lines."""
        nodes = list(self.tree.walk())
        lines = [self.book.report()]
        divided = [node for node in nodes if node.kind == "chapter" and node.children]
        if divided:
            parts = sum(node.kind == "part" for node in nodes)
            names = ", ".join(node.title for node in divided[:5]) + (", …" if len(divided) > 5 else "")
            count, verb = ("1 chapter is", "was") if len(divided) == 1 else (f"{len(divided)} chapters are", "were")
            lines.append(f"{count} longer than the model takes and {verb} summarized in {parts} parts: {names}.")
        if pieces := sum(node.kind == "piece" for node in nodes):
            lines.append(f"The text is longer than the model takes and was divided into {pieces} pieces by length.")
        if groups := sum(node.is_group for node in nodes):
            lines.append(f"All summaries are too long together, so they were joined in {groups} groups first.")
        if empty := [node.id for node in nodes if not node.summary]:
            lines.append(f"The model gave no summary for {len(empty)} texts: {', '.join(empty[:5])}.")
        return "\n".join(lines)

    def as_dict(self, with_text: bool = True) -> dict[str, Any]:
        """Give everything as what JSON can hold, with the book's own text or without."""
        return {
            "title": self.title,
            "summary": self.summary,
            "models": list(self.models),
            "found": self.book.found,
            "left_out": self.book.left_out,
            "tree": self.tree.as_dict(with_text),
        }

    def save_json(self, path: str | os.PathLike[str], with_text: bool = True) -> Path:
        """Write what `as_dict` gives to a file."""
        file = Path(path)
        text = json.dumps(self.as_dict(with_text), ensure_ascii=False, indent=1)
        file.write_text(text.encode("utf-8", "replace").decode("utf-8"), encoding="utf-8")
        return file

    def _fields(self) -> dict[str, Any]:
        nodes = list(self.tree.walk())
        chapters = sum(node.kind in ("chapter", "piece") for node in nodes)
        lower, upper = (name or "a model without a name" for name in self.models)
        models = lower if lower == upper else f"{lower}, and {upper} for the book"
        caption = f"{self.book.words:,} words, {chapters} chapters; {len(nodes)} summaries by {models}"
        return {"result": self, "title": self.title or "Summary of a book", "caption": caption}

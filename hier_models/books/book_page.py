"""A page to read the summary of a book: the tree of summaries, with the text below each to unfold."""

import re
from typing import Any

from jinja2 import Environment, PackageLoader

from ..inspection.pages import printable


def book_page(result: Any) -> str:
    """Lay out a `BookSummary` as a page of HTML that needs no network, and no script to be read."""
    nodes = list(result.tree.walk())
    chapters = sum(node.kind in ("chapter", "piece") for node in nodes)
    lower, upper = (name or "a model without a name" for name in result.models)
    models = lower if lower == upper else f"{lower}, and {upper} for the book"
    # Texts of the book are escaped where they are put in, and never read as a part of the template.
    environment = Environment(loader=PackageLoader(__package__, ""), autoescape=True)
    environment.filters |= {"printable": printable, "anchor": lambda name: re.sub(r"\W+", "-", name)}
    return environment.get_template("book_page.html").render(
        result=result,
        title=result.title or "Summary of a book",
        caption=f"{result.book.words:,} words, {chapters} chapters; {len(nodes)} summaries by {models}",
    )

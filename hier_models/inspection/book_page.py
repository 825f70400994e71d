"""A page to read the summary of a book: the tree of summaries, with the text below each to unfold."""

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .pages import printable


if TYPE_CHECKING:
    from ..pipelines.book_tree import BookSummary, SummaryNode


_TEMPLATE = Path(__file__).with_name("book_page.html")


def book_page(result: "BookSummary") -> str:
    """Lay out a book's summaries as a page of HTML that needs no network, and no script to be read.

    Args:
        result: What `summarize_book` gave.

    Returns:
        The page.
    """
    nodes = list(result.tree.walk())
    chapters = sum(node.kind in ("chapter", "piece") for node in nodes)
    lower, upper = (name or "a model without a name" for name in result.models)
    models = lower if lower == upper else f"{lower}, and {upper} for the book"
    fields = {
        "title": _text(result.title or "Summary of a book"),
        "caption": _text(f"{result.book.words:,} words, {chapters} chapters; {len(nodes)} summaries by {models}"),
        "summary": _paragraph(result.summary),
        "contents": _contents(result.tree.children),
        "tree": "\n".join(_node(child) for child in result.tree.children),
        "report": "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in result.report().splitlines()) + "</ul>",
    }
    # In one go, so that a text of the book that looks like a field stays what it is.
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], template)


def _contents(nodes: "list[SummaryNode]") -> str:
    entries = []
    for node in nodes:
        inner = _contents(node.children) if node.kind in ("chapters", "pieces") else ""
        entries.append(f'<li><a href="#{_anchor(node)}">{_text(node.title)}</a>{inner}</li>')
    return f"<ol>{''.join(entries)}</ol>"


def _node(node: "SummaryNode", depth: int = 3) -> str:
    """A chapter as a card; a group of chapters as its summary and the chapters under it."""
    head = _head(node, depth)
    if node.kind in ("chapters", "pieces"):
        inner = "\n".join(_node(child, depth + 1) for child in node.children)
        kind = node.children[0].kind
        label = f"{len(node.children)} {'groups' if kind in ('chapters', 'pieces') else f'{kind}s'}"
        below = f"<details open><summary>{label}</summary>\n{inner}</details>"
        return f'<section id="{_anchor(node)}" class="group"><div class="card">{head}</div>\n{below}</section>'
    return f'<section id="{_anchor(node)}" class="card">{head}\n{_below(node, depth)}</section>'


def _head(node: "SummaryNode", depth: int) -> str:
    heading, words = f"h{min(depth, 5)}", f"{node.words:,} word{'' if node.words == 1 else 's'}"
    return f'<{heading}>{_text(node.title)} <span class="soft">{words}</span></{heading}>\n{_paragraph(node.summary)}'


def _below(node: "SummaryNode", depth: int) -> str:
    """What unfolds under a summary: the text it was made from, or the parts with theirs."""
    if node.children:
        label = f"{len(node.children)} parts"
        inner = "".join(
            f'<div class="part">{_head(child, depth + 1)}{_below(child, depth + 1)}</div>' for child in node.children
        )
    else:
        label = "Text"
        paragraphs = "".join(f"<p>{_text(paragraph)}</p>" for paragraph in node.paragraphs)
        inner = f'<div class="text">{paragraphs}</div>'
    return f'<details class="below"><summary>{label}</summary>{inner}</details>'


def _paragraph(summary: str) -> str:
    if not summary.strip():
        return '<p class="none">The model gave no summary.</p>'
    return "".join(f"<p>{_text(line)}</p>" for line in summary.splitlines() if line.strip())


def _text(text: str) -> str:
    return html.escape(printable(text))


def _anchor(node: "SummaryNode") -> str:
    return re.sub(r"\W+", "-", node.id)

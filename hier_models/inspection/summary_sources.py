"""A page on which one clicks a sentence of a summary, and sees the sentences of the document that it rests on."""

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .heatmap import printable


__all__ = ["save_sources_page", "sources_page"]

_TEMPLATE = Path(__file__).with_name("sources.html")


def sources_page(record: Mapping[str, Any], document: str, title: str = "Sources of a summary") -> str:
    """Lay out a summary beside its document as a page of HTML that needs no network.

    Args:
        record: What the summarization pipeline gives of a document with `return_sources=True`; without its
            `summary_text`, the summary is its sentences.
        document: The document's running text, as the pipeline's `running_text` gives it.
        title: The heading.

    Returns:
        The page.

    Raises:
        ValueError: If the record has no sources, or they are those of another document.
    """
    if "sources" not in record:
        raise ValueError("record: it has no `sources`; summarize with return_sources=True")
    sentences = record["sources"]
    for source in (source for sentence in sentences for source in sentence["sources"]):
        if document[source["start"] : source["end"]] != source["text"]:
            raise ValueError("document: it is not the running text that the record's sources stand in")
    summary = record.get("summary_text", " ".join(sentence["text"] for sentence in sentences))
    if "summary_text" not in record:
        sentences = _moved_together(sentences)
    marks = {source["start"]: source["end"] for sentence in sentences for source in sentence["sources"]}
    fields = {
        "title": _text(title),
        "summary": _pieces(summary, [(s["start"], s["end"], _opening(s), "</a>") for s in sentences])
        or '<span class="none">The model wrote nothing.</span>',
        "document": _pieces(document, [(a, b, f'<mark id="s{a}">', "</mark>") for a, b in sorted(marks.items())]),
    }
    # In one go, so that a text that looks like a field stays what it is.
    template = _TEMPLATE.read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], template)


def save_sources_page(
    record: Mapping[str, Any], document: str, path: str | Path, title: str = "Sources of a summary"
) -> Path:
    """Write the page of `sources_page` to a file.

    Args:
        record: What the summarization pipeline gives of a document with `return_sources=True`.
        document: The document's running text, as the pipeline's `running_text` gives it.
        path: The file.
        title: The heading.

    Returns:
        The path.

    Raises:
        ValueError: If the record has no sources, or they are those of another document.
    """
    path = Path(path)
    path.write_text(sources_page(record, document, title), encoding="utf-8")
    return path


def _moved_together(sentences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sentences where they stand when a space is between each two."""
    moved, start = [], 0
    for sentence in sentences:
        end = start + len(sentence["text"])
        moved.append({**sentence, "start": start, "end": end})
        start = end + 1
    return moved


def _opening(sentence: dict[str, Any]) -> str:
    """A link to the best source, which goes there without the script too; without a source it leads nowhere."""
    sources = sentence["sources"]
    if not sources:
        return '<a class="none" title="It has nothing in common with the document.">'
    weights = " ".join(f"{source['start']}:{source['weight']:.3f}" for source in sources)
    return f'<a href="#s{sources[0]["start"]}" data-sources="{weights}">'


def _pieces(text: str, marks: list[tuple[int, int, str, str]]) -> str:
    """The text, with what opens and closes each of its marked places."""
    pieces, done = [], 0
    for start, end, opening, closing in marks:
        pieces += [_text(text[done:start]), opening, _text(text[start:end]), closing]
        done = end
    return "".join([*pieces, _text(text[done:])])


def _text(text: str) -> str:
    return html.escape(printable(text, keep_spaces=True))

"""A page on which one clicks a sentence of a summary, and sees the sentences of the document that it rests on."""

from collections.abc import Mapping
from typing import Any

from .pages import page


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
    marks = {source["start"]: source for sentence in sentences for source in sentence["sources"]}
    pieces = _pieces(document, [marks[start] for start in sorted(marks)])
    return page("inspection/sources.html", title, summary=_pieces(summary, sentences), document=pieces)


def _moved_together(sentences: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sentences where they stand when a space is between each two."""
    moved, start = [], 0
    for sentence in sentences:
        end = start + len(sentence["text"])
        moved.append({**sentence, "start": start, "end": end})
        start = end + 1
    return moved


def _pieces(text: str, marks: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any] | None]]:
    """Cut a text at its marked places: each piece with its mark, or None."""
    pieces: list[tuple[str, dict[str, Any] | None]] = []
    done = 0
    for mark in marks:
        pieces += [(text[done : mark["start"]], None), (text[mark["start"] : mark["end"]], mark)]
        done = mark["end"]
    return [(piece, mark) for piece, mark in [*pieces, (text[done:], None)] if piece]

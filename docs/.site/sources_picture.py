"""Draws what a summary rests on: the sentences of a text, those of its summary by mini, and lines between them.

The picture of README: `python docs/.site/sources_picture.py docs/ferry.txt docs/ferry.svg`.
"""

import sys
import textwrap
from html import escape
from pathlib import Path

from transformers import pipeline

import hier_models  # noqa: F401
from hier_models.pipelines.chunking_hier import plain_sentences


LINE, GAP, TOP = 17, 12, 44  # pixels
LEFT, RIGHT, WIDTH = 12, 490, 870  # where the columns begin, and the picture ends
CHARACTERS = 56  # of a line
DARK, GREY, BLUE = "#1b1f24", "#8a8f98", "#1c5d99"


def column(sentences: list[str], colors: list[str], x: int) -> tuple[list[str], list[int], int]:
    """Draw sentences below each other; return the drawing, the middle of each, and where the last one ends."""
    drawing, middles, y = [], [], TOP
    for sentence, color in zip(sentences, colors, strict=True):
        lines = textwrap.wrap(sentence, CHARACTERS)
        for row, line in enumerate(lines):
            drawing.append(f'<text x="{x}" y="{y + LINE * row + 12}" fill="{color}">{escape(line)}</text>')
        middles.append(y + LINE * len(lines) // 2)
        y += LINE * len(lines) + GAP
    return drawing, middles, y


def picture(document: str, summary: list[dict]) -> str:
    """The picture as SVG: `summary` has its sentences with their sources, as the pipeline returns them."""
    sentences = plain_sentences(document)
    rests = [
        (number, sentences.index(part["text"]), part["weight"])
        for number, sentence in enumerate(summary)
        for part in sentence["sources"]
    ]
    used = {source for _, source, _ in rests}
    colors = [DARK if number in used else GREY for number in range(len(sentences))]
    left, from_y, left_end = column(sentences, colors, LEFT)
    right, to_y, right_end = column([sentence["text"] for sentence in summary], [DARK] * len(summary), RIGHT)
    begin, end = RIGHT - 95, RIGHT - 8
    lines = [
        f'<path d="M{begin},{from_y[source]} C{end - 30},{from_y[source]} {begin + 30},{to_y[number]} '
        f'{end},{to_y[number]}" opacity="{weight:.2f}"/>'
        for number, source, weight in rests
    ]
    height = max(left_end, right_end)
    font = 'font-family="sans-serif" font-size="13"'
    heads = [(LEFT, "The text"), (RIGHT, "Its summary by mini")]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {font}>',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *(f'<text x="{x}" y="24" font-weight="bold" fill="{BLUE}">{text}</text>' for x, text in heads),
            f'<g fill="none" stroke="{BLUE}" stroke-width="2">',
            *lines,
            "</g>",
            *left,
            *right,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Summarize a file, and draw it into another."""
    source, target = map(Path, sys.argv[1:])
    document = " ".join(source.read_text(encoding="utf-8").split())
    (record,) = pipeline("summarization")(document, return_sources=True)
    target.write_text(picture(document, record["sources"]), encoding="utf-8")


if __name__ == "__main__":
    main()

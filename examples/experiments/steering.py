"""How often does a summary have the phrase that a user lights, and how often if another one is lit, or none?

    python examples/experiments/steering.py FILE runs/experiments/mini_highlights/own/seed_1

Of each document, two of its key phrases (tf-idf among the documents of the file) are drawn. The model writes three
summaries: with the first lit alone, with the second, and with none. A phrase is in a summary where it stands there as
whole words, in any case.
"""

import json
import random
from pathlib import Path
from typing import Annotated

import typer
from transformers import pipeline

import hier_models  # noqa: F401  # registers the families
from hier_models.data.stopwords import load_stopwords
from hier_models.models.key_phrase_extraction import KeyPhraseExtractor
from hier_models.models.phrase_words import find_phrase


def has(text: str, phrase: str) -> bool:
    """Whether a phrase stands in a text."""
    return any(True for _ in find_phrase(phrase, text, 0, len(text)))


def drawn_phrases(documents: list[str], most_words: int, seed: int) -> list[tuple[str, str, str]]:
    """Draw two key phrases of each document that is not too long, neither of them in the other: text, one, other."""
    extractor = KeyPhraseExtractor(load_stopwords("en")).fit(documents)
    chance = random.Random(seed)
    found = []
    for text in documents:
        phrases = [phrase.text for phrase in extractor.find(text)] if len(text.split()) <= most_words else []
        pairs = [(one, other) for one in phrases for other in phrases if not (has(one, other) or has(other, one))]
        if pairs:
            found.append((text, *chance.choice(pairs)))
    return found


def main(
    file: Annotated[Path, typer.Argument(help="Documents, as JSON lines with `document`.")],
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Highlight-Transformers.")],
    documents: Annotated[int, typer.Option(min=1, help="How many are summarized; the first ones.")] = 100,
    most_words: Annotated[int, typer.Option(min=1, help="Longer documents are passed over.")] = 300,
    batch_size: Annotated[int, typer.Option(min=1, help="Summaries at a time.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the draw of phrases.")] = 0,
) -> None:
    """Print for each model how often the phrase that was drawn first is in the three summaries."""
    with file.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["document"] for line in lines]
    rows = drawn_phrases(texts, most_words, seed)[:documents]
    if not rows:
        raise typer.BadParameter(f"{file} has no document of at most {most_words} words with two phrases to draw")
    for model in models:
        summarize = pipeline("summarization", model=str(model), num_beams=1)
        stands = {}
        for light, number in (("it", 1), ("another", 2), ("nothing", 0)):
            inputs = [{"text": row[0], "phrases": [row[number]] if number else []} for row in rows]
            written = summarize(inputs, batch_size=batch_size)
            stands[light] = [float(has(own["summary_text"], row[1])) for own, row in zip(written, rows, strict=True)]
        shares = ", ".join(f"{light} lit {100 * sum(own) / len(own):.1f} %" for light, own in stands.items())
        typer.echo(f"{'/'.join(model.parts[-2:])}: {shares}, of {len(rows)} documents")


if __name__ == "__main__":
    typer.run(main)

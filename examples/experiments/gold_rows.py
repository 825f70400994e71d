"""Does a Coarse-to-Fine LSTM attend to the row that is known to be the right one?

    python examples/experiments/gold_rows.py runs/experiments/coarse_to_fine_questions/*/seed_*

A document has the number of the right row in `gold`. Counted is how often it is the row of the most attention, before
hard attention selects: at each token of the reference, and over all of them together. Beside it stand chance, and the
row that has most of the reference's words, by their tf-idf among the rows of the file.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.feature_extraction.text import TfidfVectorizer
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

import hier_models  # noqa: F401  # registers the families
from hier_models.inspection.row_attention import weights_of_summary


Row = dict[str, Any]


def by_words(rows: list[Row]) -> list[bool]:
    """Whether the right row of each document has most of its reference's words; the first of several counts."""
    vectors = TfidfVectorizer().fit([sentence for row in rows for sentence in row["sentences"]])
    found = []
    for row in rows:
        scores = (vectors.transform(row["sentences"]) @ vectors.transform([row["summary"]]).T).toarray()[:, 0]
        found.append(bool(scores.argmax() == row["gold"]))
    return found


def by_attention(model: Any, processor: Any, row: Row, max_source_length: int) -> tuple[list[bool], bool]:
    """Whether the right row has the most attention: at each token of the reference but the end, and over all."""
    document = {"sentences": row["sentences"]}
    weights = weights_of_summary(model, processor, document, row["summary"], max_source_length)[0][:-1]
    return (weights.argmax(axis=1) == row["gold"]).tolist(), bool(weights.mean(axis=0).argmax() == row["gold"])


def main(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Coarse-to-Fine LSTMs.")],
    file: Annotated[
        Path, typer.Option("--documents", help="JSON lines with `sentences`, `summary`, `gold`.", exists=True)
    ] = Path("experiments/questions/test.jsonl"),
    max_source_length: Annotated[int, typer.Option(min=1, help="Tokens that are read of a document.")] = 320,
) -> None:
    """Print for each model how often the right row has the most attention."""
    with file.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    typer.echo(f"chance: {100 * np.mean([1 / len(row['sentences']) for row in rows]):.1f} %, of {len(rows)} documents")
    typer.echo(f"the words of the reference: {100 * np.mean(by_words(rows)):.1f} %")
    for path in models:
        model = AutoModelForSeq2SeqLM.from_pretrained(path).eval()
        processor = AutoProcessor.from_pretrained(path)
        found = [by_attention(model, processor, row, max_source_length) for row in rows]
        at_each = np.mean([right for of_document, _ in found for right in of_document])
        together = np.mean([right for _, right in found])
        typer.echo(f"{'/'.join(path.parts[-2:])}: {100 * together:.1f} %; at each token {100 * at_each:.1f} %")


if __name__ == "__main__":
    typer.run(main)

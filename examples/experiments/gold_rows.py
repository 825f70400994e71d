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
import torch
import typer
from sklearn.feature_extraction.text import TfidfVectorizer
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

import hier_models  # noqa: F401  # registers the families
from hier_models.inspection.row_attention import row_attention_weights


Row = dict[str, Any]


def by_words(rows: list[Row]) -> list[bool]:
    """Whether the right row of each document has most of its reference's words; the first of several counts."""
    vectors = TfidfVectorizer().fit([sentence for row in rows for sentence in row["sentences"]])
    found = []
    for row in rows:
        scores = (vectors.transform(row["sentences"]) @ vectors.transform([row["summary"]]).T).toarray()[:, 0]
        found.append(bool(scores.argmax() == row["gold"]))
    return found


@torch.no_grad()
def by_attention(model: Any, processor: Any, row: Row, max_source_length: int) -> tuple[list[bool], bool]:
    """Whether the right row has the most attention: at each token of the reference but the end, and over all."""
    encoded = processor(
        sentences=row["sentences"], text_target=row["summary"], truncation=True, max_length=max_source_length
    )
    inputs = {name: torch.tensor([encoded[name]]) for name in ("input_ids", "attention_mask", "row_ids", "labels")}
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(inputs.pop("labels"))
    weights = row_attention_weights(model, inputs, decoder_input_ids)[0][0].T[:-1]  # (target, rows)
    return (weights.argmax(axis=1) == row["gold"]).tolist(), bool(weights.mean(axis=0).argmax() == row["gold"])


def main(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Coarse-to-Fine LSTMs.")],
    file: Annotated[
        Path, typer.Option("--documents", help="JSON lines with `sentences`, `summary`, `gold`.", exists=True)
    ] = Path("experiments/questions/test.jsonl"),
    max_source_length: Annotated[int, typer.Option(min=1, help="Tokens that are read of a document.")] = 320,
) -> None:
    """Print for each model how often the right row has the most attention."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
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

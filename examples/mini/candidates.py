"""Have mini write several summaries of documents that it is trained on, and score them: what `ranked.py` learns from.

    python examples/mini/candidates.py --data FOLDER --part 0 --parts 2 &
    python examples/mini/candidates.py --data FOLDER --part 1 --parts 2

FOLDER is that of `prepare.py`, which comes first: of its training pairs some of each domain are taken, with their
whole documents, which are read as the pipeline reads them. A summary is one of the search (the beams that it ends
with), is drawn, or is made of sentences of what is read: the first, the best by salience, those that say most of the
reference; or it is the beginning of one of these. Its score is what the user's text would have: the mean of ROUGE-1,
-2 and -Lsum, less for words that do not follow each other in the document: without that, mini learns what ROUGE likes
and is no English. Of a page, whose paragraphs are written one by one, that of the page with this paragraph, and of the
others the best beams. A run that is stopped leaves what it has, which is enough to learn from; another begins anew.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from prepare import DOMAINS, extract, is_development, read, shortened
from tqdm import tqdm
from transformers import pipeline, set_seed

import hier_models
from hier_models.metrics import Rouge, reference_free_counts
from hier_models.models.sentence_splitting import split_sentences
from hier_models.models.summary_lengths import LENGTHS, length_of
from hier_models.pipelines import ExtractiveSummarizer
from hier_models.pipelines.document_pipeline_hier import DocumentPipeline, Example, as_text


# Domain -> documents. Papers and proposals have a page, so four rows each.
DOCUMENTS = {
    "wikipedia": 560,
    "simple_wikipedia": 480,
    "papers": 160,
    "proposals": 160,
    "lines": 360,
    "dialogues": 160,
    "documentation": 320,
}
BEAMS, DRAWN = 2, 3  # of each row
DRAWING = {"do_sample": True, "num_beams": 1, "temperature": 0.7, "top_k": 20}
SENTENCES = {"line": 1, "short": 3}  # of an extract
# Points of ROUGE that a summary loses that has no three words in a row of what is read; fewer where people write so.
JOINED, OTHER_WORDS = 40, {"lines": 12, "dialogues": 12}
ROUGES = ["rouge1", "rouge2", "rougeLsum"]
MOST = 192  # tokens of a summary
BATCH = 8  # rows that are written at once


def documents(data: Path, pairs: Path) -> list[dict[str, str]]:
    """Whole documents of training pairs, of each domain as many as `DOCUMENTS` says."""
    with (pairs / "train.jsonl").open(encoding="utf-8") as lines:
        trained = {(row["set"], row["summary"]) for row in map(json.loads, lines)}
    generator, chosen = random.Random(0), []
    for domain, names in DOMAINS.items():
        rows = [
            {"domain": domain, "document": row["document"], "summary": summary, "length": length_of(row["summary"])}
            for name in names
            for row in read(data, name)
            if not is_development(row["key"]) and (name, summary := shortened(row["summary"])) in trained
        ]
        chosen += generator.sample(rows, min(len(rows), DOCUMENTS[domain]))
    generator.shuffle(chosen)
    return chosen


def texts_of(pipe: Any, example: Example, ids: torch.Tensor, length: str) -> list[str]:
    """What a user would see of each sequence, (sequences, target)."""
    records = pipe.postprocess({"output_ids": ids[None], "examples": example}, length=length)
    return [record["summary_text"] for record in records]


def scored(texts: list[str], row: dict[str, str], page: list[str], place: int, read: str) -> list[tuple[float, float]]:
    """ROUGE of what the user would see with each text in a place of a page, and the score."""
    whole = ["\n".join([*page[:place], text, *page[place + 1 :]]) for text in texts]
    settings = {"rouge_types": ROUGES, "use_stemmer": True, "use_aggregator": False, "sentence_splitter": "punkt"}
    rouge = Rouge().compute(predictions=whole, references=[row["summary"]] * len(texts), **settings)
    means = [100 * sum(three) / 3 for three in zip(*(rouge[name] for name in ROUGES), strict=True)]
    most = OTHER_WORDS.get(row["domain"], JOINED) / len(page)
    counts = [reference_free_counts(text, read) for text in texts]
    losses = [most * count.novel[2] / max(1, count.ngrams[2]) for count in counts]
    return [(mean, mean - loss) for mean, loss in zip(means, losses, strict=True)]


def extracts(read: str, reference: str, most: int) -> list[str]:
    """Summaries made of sentences of what is read."""
    own = [ExtractiveSummarizer(name, max_sentences=most)(text=read) for name in ("lead", "salience")]
    return [*own, extract(read, reference, most)]


def beginnings(text: str) -> list[str]:
    """A summary without its last sentence, and without its last two: else it would pay to end early."""
    return [text[:end].rstrip() for _, end in split_sentences(text, "english")[:-1]][-2:]


def ranked(pipe: Any, rows: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """The rows that are read of some documents of one length, with summaries of each and their scores."""
    length = rows[0]["length"]
    of_documents, of_generation, _ = pipe._sanitize_parameters(length=length)
    read_of = [pipe.preprocess(row["document"], **of_documents)["examples"] for row in rows]
    pages = [example.notes.get("parts", [example]) for example in read_of]
    settings = pipe._of_paragraphs(of_generation, pages) if length == "long" else of_generation
    written = "short" if length == "long" else length
    begin = [pipe.model.config.decoder_start_token_id, pipe._length_settings(written)["forced_bos_token_id"]]

    def sequences_of(texts: list[str]) -> dict[tuple[int, ...], str]:
        labels = [pipe.processor(text_target=text)["labels"][1:] for text in texts]
        return {(*begin, *ids): text for ids, text in zip(labels, texts, strict=True) if 1 < len(ids) <= MOST}

    units = [(row, page, place) for row, page in zip(rows, pages, strict=True) for place in range(len(page))]
    found: list[dict[tuple[int, ...], str]] = []  # sequence -> text
    for start in range(0, len(units), BATCH):
        examples = [page[place] for _, page, place in units[start : start + BATCH]]
        ways = ({"num_return_sequences": BEAMS}, {"num_return_sequences": DRAWN, **DRAWING})
        outputs = [
            DocumentPipeline._forward(pipe, {"examples": examples}, **settings, **way)["output_ids"] for way in ways
        ]
        for place, example in enumerate(examples):
            own: dict[tuple[int, ...], str] = {}
            for output in outputs:
                for ids, text in zip(output[place], texts_of(pipe, example, output[place], written), strict=True):
                    end = (ids[2:] == pipe.tokenizer.eos_token_id).nonzero()
                    kept = ids[: int(end[0]) + 3] if len(end) else ids
                    own.setdefault(tuple(kept.tolist()), text)
            reference = units[start + place][0]["summary"]
            taken = extracts(as_text(*example.source[:2]), reference, SENTENCES[written])
            found.append(own | sequences_of(taken))
    for number, (row, page, place) in enumerate(units):
        own = found[number]
        best = [next(iter(each.values())) for each in found[number - place : number - place + len(page)]]
        read = pipe.tokenizer.decode(page[place].inputs["input_ids"], skip_special_tokens=True)
        scores = dict(zip(own, scored(list(own.values()), row, best, place, read), strict=True))
        likeliest, highest = next(iter(own)), max(scores, key=lambda ids: scores[ids][1])
        shorter = sequences_of([text for ids in (likeliest, highest) for text in beginnings(own[ids])])
        new = {ids: text for ids, text in shorter.items() if ids not in own}
        if new:
            scores |= zip(new, scored(list(new.values()), row, best, place, read), strict=True)
        yield {
            "domain": row["domain"],
            "inputs": page[place].inputs,
            "candidates": list(scores),
            "rouge": [rouge for rouge, _ in scores.values()],
            "scores": [score for _, score in scores.values()],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--pairs", type=Path, default=Path("experiments/mini/pairs"), help="what prepare.py wrote")
    parser.add_argument("--part", type=int, default=0, help="which part of the documents, from 0")
    parser.add_argument("--parts", type=int, default=1, help="of how many, one for each process")
    arguments = parser.parse_args()
    rows = documents(arguments.data, arguments.pairs)[arguments.part :: arguments.parts]
    pipe = pipeline("summarization", model=hier_models.MINI, dtype="int8")
    pipe.model.eval()
    set_seed(arguments.part)
    path = arguments.pairs / f"candidates_{arguments.part}.jsonl"
    with path.open("w", encoding="utf-8") as file, tqdm(total=len(rows), disable=None) as bar:
        for start in range(0, len(rows), 4 * BATCH):  # parts that have all domains
            by_size = sorted(rows[start : start + 4 * BATCH], key=lambda row: len(row["document"]))
            for length in LENGTHS:
                some = [row for row in by_size if row["length"] == length]
                for first in range(0, len(some), BATCH):
                    for found in ranked(pipe, some[first : first + BATCH]):
                        file.write(json.dumps(found) + "\n")
                    bar.update(len(some[first : first + BATCH]))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()

"""Summaries that answer a question: the data of queries.yaml, and the table of docs/guides/dialogues.md.

    python examples/experiments/queries.py prepare --data FOLDER        # into experiments/queries
    hier-models train examples/experiments/queries.yaml --stop_after_minutes 32
    python examples/experiments/queries.py search --data FOLDER         # how to find what a question asks for
    python examples/experiments/queries.py scores --data FOLDER lead lexrank lexrank_query \
        mini mini_asked=hier_models/models/mini variant=runs/experiments/queries/checkpoint-100

FOLDER holds `qmsum.jsonl.xz` (MIT) and `pairs/squality_questions.jsonl.xz` (CC BY 4.0). Whole meetings and stories are
held out: the meetings that `mini` was not trained on (examples/mini/prepare.py), and SQuALITY's test stories.

A training pair has what is read of its document: the sentences most like its question, as the pipeline chooses them,
`READ` tokens of them. Of several answers to a question all are trained on, and the best counts in scores.
"""

import argparse
import functools
import json
import lzma
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import AutoProcessor, pipeline

import hier_models
from hier_models.checkpoints import version_of_checkpoints
from hier_models.data.stopwords import load_stopwords
from hier_models.extractive import _similarities as similarities
from hier_models.inspection.copying import words_of
from hier_models.journal import digest
from hier_models.models.sentence_splitting import split_sentences
from hier_models.pipelines import ExtractiveSummarizer
from hier_models.pipelines.long_documents_hier import best_sentences, condense, relevance
from hier_models.pipelines.salience_hier import Words, salience
from hier_models.training.metrics import score_documents


sys.path.insert(0, str(Path(__file__).parents[1] / "mini"))
from prepare import is_development, shortened
from scores import kept


READ = 320  # tokens
SCORED = 30  # held-out questions, half of them about stories
AT_A_TIME = 6
WORDS = 90  # of an extractive answer, about as many as references have
Row = dict[str, Any]


def questions(folder: Path) -> Iterator[Row]:
    """Rows: `key` (the document's), `kind`, `held_out`, `text` or `turns`, `query`, `answers`."""
    stories: dict[tuple[str, str], Row] = {}
    with lzma.open(folder / "pairs" / "squality_questions.jsonl.xz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            new = {
                "key": row["source"].rpartition(" ")[0],
                "kind": "stories",
                "held_out": row["split"] == "test",
                "text": row["document"],
            }
            new |= {"query": row["query"], "answers": []}
            stories.setdefault((row["source"], row["query"]), new)["answers"].append(row["summary"])
    yield from stories.values()
    with lzma.open(folder / "qmsum.jsonl.xz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            turns = [{"role": role, "content": content} for role, content in row["turns"]]
            for query, answer in row["queries"]:
                new = {"key": row["id"], "kind": "meetings", "held_out": is_development(row["id"]), "turns": turns}
                yield {**new, "query": query, "answers": [answer]}


def structure(row: Row) -> str:
    """Whether a row has a text or turns."""
    return "text" if "text" in row else "turns"


def held_out(folder: Path) -> list[Row]:
    """The questions that are scored, the same ones always."""
    rows = [row for row in questions(folder) if row["held_out"]]
    generator = random.Random(0)
    by_kind = [[row for row in rows if row["kind"] == kind] for kind in ("stories", "meetings")]
    return [row for pair in zip(*(generator.sample(its, SCORED // 2) for its in by_kind), strict=True) for row in pair]


def prepare(folder: Path, output: Path) -> None:
    """Write the training and development pairs, each with what is read of its document."""
    processor = AutoProcessor.from_pretrained(hier_models.MINI)

    @functools.cache
    def size(sentence: str) -> int:
        return len(processor.tokenizer(sentence, add_special_tokens=False, verbose=False)["input_ids"]) + 1

    parts: dict[str, list[Row]] = {"train": [], "validation": []}
    for row in tqdm(list(questions(folder)), desc="Condensing", disable=None):
        if row["held_out"]:
            continue
        name, query = structure(row), row["query"]
        room = READ - size(query) - 8
        read = condense(name, row[name], room, lambda texts: [*map(size, texts)], processor, query)
        if name == "turns":
            read = "\n".join(f"{turn['role']}: {turn['content']}" for turn in read)
        part = parts["validation" if is_development(row["key"]) else "train"]
        summaries = filter(None, map(shortened, row["answers"]))
        part += [{"document": read, "query": query, "summary": summary} for summary in summaries]
    output.mkdir(parents=True, exist_ok=True)
    for part, rows in parts.items():
        random.Random(0).shuffle(rows)
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (output / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{output / part}.jsonl: {len(rows)} rows")


def biased_lexrank(sentences: list[str], query: str, damping: float = 0.95) -> Any:
    """Ranks of sentences by Otterbacher et al. (2005), Equations 2 and 3, a walk that begins where it is asked."""
    words, asked = [words_of(sentence) for sentence in sentences], Counter(words_of(query))
    holding = Counter(word for its in words for word in set(its))
    rareness = {word: math.log((len(words) + 1) / (0.5 + number)) for word, number in holding.items()}
    relevance = np.zeros(len(words))
    for place, its in enumerate(map(Counter, words)):
        shared = its.keys() & asked.keys()
        relevance[place] = sum(math.log(its[w] + 1) * math.log(asked[w] + 1) * rareness[w] for w in shared)
    relevance = relevance / max(relevance.sum(), 1e-12)
    links = similarities(words)
    steps = links / np.maximum(links.sum(axis=1, keepdims=True), 1e-12)
    rank = relevance
    for _ in range(30):
        rank = damping * relevance + (1 - damping) * rank @ steps
    return rank


def sentences_of(row: Row) -> list[str]:
    """The sentences of a document, without who speaks."""
    parts = [row["text"]] if "text" in row else [turn["content"] for turn in row["turns"]]
    return [part[a:b].strip() for part in parts for a, b in split_sentences(part, "english")]


def best_that_fit(sentences: list[str], rank: Any, room: int) -> str:
    """The sentences of the highest rank, in their order, as many words as there is room for."""
    chosen, seen = [], set()
    for place in np.argsort(-rank, kind="stable"):
        size = len(sentences[place].split())
        if size <= room and sentences[place] not in seen:
            chosen.append(place)
            seen.add(sentences[place])
            room -= size
    return " ".join(sentences[place] for place in sorted(chosen))


def search(folder: Path) -> None:
    """How much of the answers stands in what is read, by how it is chosen; on training questions."""
    rows = [row for row in questions(folder) if not row["held_out"]]
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in ("stories", "meetings")}
    rows = [row for kind in by_kind for row in random.Random(0).sample(by_kind[kind], 40)]
    words = 240

    def chosen(its: list[str], worth: torch.Tensor) -> str:
        places = best_sentences(its, [len(sentence.split()) for sentence in its], worth, words)
        return " ".join(its[place] for place in places)

    ways: dict[str, Callable[[list[str], str], str]] = {
        "beginning": lambda its, query: best_that_fit(its, -np.arange(len(its)), words),
        "central": lambda its, query: chosen(its, Words(its).centrality()),
        "salient": lambda its, query: chosen(its, salience(its)),
        "like the query, with neighbours": lambda its, query: chosen(its, relevance(its, query)),
        **{
            f"LexRank biased to the query, d = {d}": lambda its, query, d=d: best_that_fit(
                its, biased_lexrank(its, query, d), words
            )
            for d in (0.95, 0.5)
        },
    }

    print("| what is read, 240 words | stories: words / pairs | meetings: words / pairs |\n|---|---|---|")
    for name, way in ways.items():
        found: dict[str, list[list[float]]] = {"stories": [], "meetings": []}
        for row in rows:
            read = way(sentences_of(row), row["query"])
            found[row["kind"]] += [recalls(read, answer) for answer in row["answers"]]
        means = [" / ".join(f"{100 * mean:.1f}" for mean in np.mean(of_kind, axis=0)) for of_kind in found.values()]
        print(f"| {name} | {means[0]} | {means[1]} |", flush=True)


def recalls(read: str, answer: str) -> list[float]:
    """The shares of an answer's words, without stopwords, and of its pairs of words that stand in what is read."""
    stopwords, both = load_stopwords("en"), []
    for units in (lambda its: [w for w in its if w not in stopwords], pairwise):
        wanted, there = (Counter(units(words_of(text))) for text in (answer, read))
        both.append((wanted & there).total() / max(1, wanted.total()))
    return both


def system(name: str) -> Callable[[list[Row]], list[str]]:
    """What answers some questions at a time."""
    if name in ("lead", "lexrank"):
        summarize = ExtractiveSummarizer(name, max_words=WORDS)
        return lambda rows: [summarize({structure(row): row[structure(row)]}) for row in rows]
    if name == "lexrank_query":
        return lambda rows: [
            best_that_fit(its := sentences_of(row), biased_lexrank(its, row["query"]), WORDS) for row in rows
        ]
    pipe = pipeline("summarization", model=name.partition("=")[2] or hier_models.MINI, device="cpu")

    def summaries(rows: list[Row]) -> list[str]:
        documents = [{structure(row): row[structure(row)]} for row in rows]
        asked = {} if name == "mini" else {"query": [row["query"] for row in rows]}
        return [record["summary_text"] for record in pipe(documents, batch_size=AT_A_TIME, **asked)]

    return summaries


def scores(folder: Path, output: Path, names: list[str]) -> None:
    """Answer the held-out questions, those that are not answered yet, and print the table."""
    rows = held_out(folder)
    output.mkdir(parents=True, exist_ok=True)
    paths = {name: output / f"{name.partition('=')[0]}.jsonl" for name in names}
    done = {name: kept(path) for name, path in paths.items()}
    weights = {name: version_of_checkpoints([name.partition("=")[2] or name]) for name in names}

    def key(name: str, row: Row) -> str:
        return digest([name, weights[name], row[structure(row)], row["query"]])

    answering: dict[str, Callable[[list[Row]], list[str]]] = {}
    for start in tqdm(range(0, len(rows), AT_A_TIME), desc="Answering", disable=None):
        for name in names:
            asked = [row for row in rows[start : start + AT_A_TIME] if key(name, row) not in done[name]]
            if asked:
                answering[name] = answering.get(name) or system(name)
                answers = zip(asked, answering[name](asked), strict=True)
                new = [{"digest": key(name, row), "answer": answer} for row, answer in answers]
                done[name] |= {entry["digest"]: entry for entry in new}
                with paths[name].open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in new)
    print("| answers | stories: ROUGE-1 / 2 / Lsum | meetings: ROUGE-1 / 2 / Lsum | words |\n|---|---|---|---|")
    for name in names:
        texts = [done[name][key(name, row)]["answer"] for row in rows]
        cells = []
        for kind in ("stories", "meetings"):
            places = [place for place, row in enumerate(rows) if row["kind"] == kind]
            references = [rows[place]["answers"] for place in places]
            found, _ = score_documents([texts[place] for place in places], references)
            cells.append(" / ".join(f"{np.mean(found[f'rouge{which}']):.1f}" for which in ("1", "2", "Lsum")))
        words = np.mean([len(text.split()) for text in texts])
        print(f"| {name.partition('=')[0]} | {cells[0]} | {cells[1]} | {words:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("prepare", "search", "scores"))
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help="for scores: mini, NAME=FOLDER, lead, …")
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--output", type=Path, default=Path("experiments/queries"), help="where to write")
    arguments = parser.parse_intermixed_args()
    if arguments.what == "prepare":
        prepare(arguments.data, arguments.output)
    elif arguments.what == "search":
        search(arguments.data)
    else:
        scores(arguments.data, arguments.output, arguments.systems)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()

"""Seconds of the processor that a full paper takes with `hier-models summarize`, and what a million then take.

    OMP_NUM_THREADS=1 python benchmarks/papers.py
    OMP_NUM_THREADS=1 python benchmarks/papers.py --lengths              # only what it takes to read them

Papers are those of the package aclsum (extra `demo`), evenly chosen, without abstracts and references. Of each length
there is a process for all of them; what one takes for a document of one sentence, nearly all of it loading, is taken
off. Hours on so many cores are for cores that are all busy. The price of a core hour is an assumption: give your own.

Before it sends out the first document, the command looks at all of them, on one core; that is measured by itself.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import cost_of_command, machine, papers, table

from hier_models.cli.documents import open_documents
from hier_models.journal import digest


MILLION = 1_000_000


def text_of(paper: dict[str, Any]) -> str:
    """Without abstract and references."""
    return "\n\n".join(part["text"] for part in paper["pdf_parse"]["body_text"])


def write(folder: str, texts: list[str]) -> Path:
    file = Path(folder) / "papers.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return file


def seconds_of_reading(texts: list[str], times: int = 50) -> float:
    """Of each, in the first look at them."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(write(folder, texts * times))
        with open_documents([file], None, None) as documents:
            next(iter(documents))  # so that libraries are loaded
            begun = time.process_time()
            assert len({document["id"]: digest(document) for document in documents}) == len(texts) * times
            return (time.process_time() - begun) / (len(texts) * times)


def seconds_of_processor(texts: list[str], options: list[str]) -> float:
    """Of the command, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        file = write(folder, texts)
        command = [sys.executable, "-m", "hier_models.cli", "summarize", str(file), "-o", f"{folder}/out.jsonl"]
        return cost_of_command([*command, *options])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what papers take, and compute what a million take.")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--dtype", default="auto", help="as that of summarize, such as int8")
    parser.add_argument("--papers", type=int, default=12)
    parser.add_argument("--lengths", nargs="*", default=["short", "long"])
    parser.add_argument("--cores", type=int, nargs="+", default=[16, 256, 1024])
    parser.add_argument("--price", type=float, default=0.05, help="of a core hour, in any currency")
    arguments = parser.parse_args()
    options = ["-m", arguments.model, "--dtype", arguments.dtype]
    texts = [text_of(paper) for paper in papers(arguments.papers)]
    words = sum(len(text.split()) for text in texts) // len(texts)
    reading = seconds_of_reading(texts)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(texts)} papers of {words:,} words, {machine()}; load {load}")
    print(
        f"first look: {1000 * reading:.2f} ms of the processor a paper, {reading * MILLION / 60:.0f} minutes a million"
    )
    if not arguments.lengths:
        return
    loading = seconds_of_processor(["A sentence."], options)
    print(f"{arguments.model}, {arguments.dtype}; loading: {loading:.1f} s of the processor\n")
    rows = []
    for length in arguments.lengths:
        each = (seconds_of_processor(texts, [*options, "--length", length]) - loading) / len(texts)
        hours = each * MILLION / 3600
        walls = [f"{hours / cores:,.1f}" for cores in arguments.cores]
        rows.append([length, f"{each:.2f}", f"{hours:,.0f}", *walls, f"{hours * arguments.price:,.0f}"])
        print(rows[-1], file=sys.stderr, flush=True)
    hours_on = [f"hours on {cores:,} cores" for cores in arguments.cores]
    header = ["--length", "s of the processor a paper", "core hours a million", *hours_on]
    print(table([*header, f"at {arguments.price:g} a core hour"], rows))


if __name__ == "__main__":
    main()

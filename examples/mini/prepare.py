"""Make the data of `mini`: pairs of many kinds, in training and development parts, and texts to warm up on.

    python examples/mini/prepare.py --data FOLDER --output experiments/mini

FOLDER holds the sets of `PAIRS` as `NAME.jsonl.xz`, rows with `source`, `document`, `summary` and perhaps a `title`,
in itself or in `pairs/`; beside them `scitldr_a`, `proposals_cc0` and `qmsum`, as examples/experiments/README.md
describes them. A set that is not there is left out, and said to be. All of them may be trained on and their model
given away: data for non-commercial use have no place here.

Parts are divided by document: rows of one title, paper or story are all in one part, whichever set they are in.
"""

import argparse
import hashlib
import json
import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path


# Set -> most training pairs (None for all): titles and one-line descriptions teach to stop after ten words.
PAIRS: dict[str, int | None] = {
    "wikipedia_to_simple": None,
    "wikipedia_2014": None,
    "wikipedia_2021": None,
    "wikipedia_2018_firstpara": None,
    "simple_wikipedia": None,
    "elife_abstract": None,
    "elife_digest": None,
    "pmc_abstract": None,
    "pmc_conclusion": None,
    "acl_titles": 4000,
    "mts_dialog": None,
    "primock57": None,
    "meqsum": None,
    "design_docs": None,
    "digitalgov": None,
    "tech_docs": 1000,
    "advisory_titles": 400,
    "asrs": None,
    "scitldr_a": None,
    "proposals_cc0": None,
    "qmsum": None,
}
# Domain of the development part -> its sets.
DOMAINS = {
    "wikipedia": ("wikipedia_2014", "wikipedia_2021", "wikipedia_2018_firstpara"),
    "simple_wikipedia": ("wikipedia_to_simple", "simple_wikipedia"),
    "papers": ("elife_abstract", "pmc_abstract"),
    "proposals": ("proposals_cc0",),
    "lines": ("scitldr_a", "acl_titles"),
    "dialogues": ("mts_dialog", "qmsum"),
    "documentation": ("design_docs", "digitalgov", "tech_docs"),
}
DEVELOPMENT = 25  # one document in so many
LONGEST_LINE, LONGEST_SHORT = 25, 110  # words of a summary


def length_of(summary: str) -> str:
    """The length that a summary teaches: line, short or long."""
    words = len(summary.split())
    return "line" if words <= LONGEST_LINE else "short" if words <= LONGEST_SHORT else "long"


def read(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """Rows of a set: `key` (what the document is of), `document`, `summary`."""
    path = next(
        (found for place in (folder / "pairs", folder) if (found := place / f"{name}.jsonl.xz").exists()), None
    )
    if path is None:
        print(f"{name}: not there, left out")
        return
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if name == "scitldr_a":
                found = {"key": row["id"], "document": " ".join(row["source"]), "summary": row["summary"][0]}
            elif name == "proposals_cc0":
                sections = (f"{heading}\n{text}" for heading, text in row["sections"])
                found = {"key": row["id"], "document": "\n\n".join(sections), "summary": row["abstract"]}
            elif name == "qmsum":
                turns = "\n".join(f"{role}: {text}" for role, text in row["turns"])
                found = {"key": row["id"], "document": turns, "summary": row["summary"]}
            else:
                key = row.get("title") if "wikipedia" in name else re.sub(r" q\d+$", "", row["source"])
                found = {"key": key or row["source"], "document": row["document"], "summary": row["summary"]}
            found = {name: value.strip() for name, value in found.items()}
            if found["document"] and found["summary"]:
                yield found


def is_development(key: str) -> bool:
    """Whether a document is held out; the same for all sets that have it."""
    return int(hashlib.sha256(key.casefold().encode()).hexdigest(), 16) % DEVELOPMENT == 0


def write(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    print(f"{path}: {len(rows)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--output", type=Path, default=Path("experiments/mini"), help="where to write")
    arguments = parser.parse_args()
    generator = random.Random(0)
    train: list[dict[str, str]] = []
    development: dict[str, list[dict[str, str]]] = {}
    texts: dict[str, str] = {}  # document -> part, each once
    for name, most in PAIRS.items():
        kept: list[dict[str, str]] = []
        held: list[dict[str, str]] = []
        for row in read(arguments.data, name):
            part = "validation" if is_development(row["key"]) else "train"
            pair = {"document": row["document"], "summary": row["summary"], "length": length_of(row["summary"])}
            (held if part == "validation" else kept).append({**pair, "set": name})
            texts[row["document"]] = part
        generator.shuffle(kept)
        train += kept[:most]
        domain = next((domain for domain, names in DOMAINS.items() if name in names), None)
        if domain is not None:
            development.setdefault(domain, []).extend(held)
    generator.shuffle(train)
    write(arguments.output / "pairs" / "train.jsonl", train)
    for domain, rows in development.items():
        generator.shuffle(rows)
        write(arguments.output / "pairs" / f"{domain}.jsonl", rows)
    for part in ("train", "validation"):
        rows = [{"text": text} for text, its_part in texts.items() if its_part == part]
        generator.shuffle(rows)
        write(arguments.output / "warm_up" / f"{part}.jsonl", rows)


if __name__ == "__main__":
    main()

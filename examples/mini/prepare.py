"""Make the data of `mini`: pairs of many kinds, in training and development parts, and texts to warm up on.

    python examples/mini/prepare.py --data FOLDER --output experiments/mini

FOLDER holds the sets of `PAIRS` as `NAME.jsonl` (or `.gz`, `.bz2`, `.xz`), rows with `source`, `document`, `summary`
and perhaps a `title`, in itself or in `pairs/`; beside them `scitldr_a`, `proposals_cc0` and `qmsum`, as
examples/experiments/README.md describes them. A set that is not there is left out, and said to be. All of them may be
trained on and their model given away: data for non-commercial use have no place here.

Of a long document a pair has its beginning, and the sentences that are most like all others: what mini read when it
was trained. The pipeline chooses better ones today (salience.py). A pair is trained on if what its summary says stands
there, for the most part.

Parts are divided by document: rows of one title, paper or story are all in one part, whichever set they are in.
"""

import argparse
import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hier_models.data.overlap import find_overlaps
from hier_models.data.record_readers import COMPRESSION_SUFFIXES, read_records
from hier_models.models.sentence_splitting import split_sentences
from hier_models.models.summary_lengths import length_of
from hier_models.pipelines.long_documents_hier import best_sentences
from hier_models.pipelines.salience_hier import Words
from hier_models.training.evaluation import write_json_lines


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
COMPARED = {"wikipedia": 200, "simple_wikipedia": 150, "documentation": 25, "proposals": 25}  # last ones, to test on
LONG = {"papers": 100, "simple_wikipedia": 70, "proposals": 20}  # likewise, of documents that are read whole
LONG_SETS = [name for domain in LONG for name in DOMAINS[domain]]
LEAST_LONG, READ_LONG = 1000, 2800  # words of these: beyond what BART reads, within 4,096 tokens
DEVELOPMENT = 25  # one document in so many
READ = 370  # words of a document that a summary has to be learned from: what fits into 512 tokens
BEGINNING = 190  # of these, words of its beginning, in whole sentences
SENTENCE = range(5, 81)  # words of a sentence that may be central
LEAST_FACTS, LEAST_WORDS = 0.7, 0.6  # shares of a summary's names and numbers, and of its words, that stand there
LAST_FACTS, LAST_WORDS = 0.95, 0.72  # in the last stage
MOST_LINES, MOST_EXTRACTS = 1300, 250  # in the last stage: in all, and of a set
LONGEST = 220  # words of a summary that is learned; it is kept to the end of a sentence
SPOKEN = ("mts_dialog", "primock57", "qmsum", "meqsum")  # few, and dialogues are summed up in other words
LEAST_SPOKEN = 0.4
MOST_SENTENCES, LEAST_F1 = 8, 0.2  # of an extract
PART, PARTS = range(120, 321), 4  # words of a part with gaps, and most parts of a text
GAP, STAYS = "_", 0.3  # what stands for a sentence that is asked for, and how many of these stay where they are
LEAST_USABLE = 4  # sentences of a part with gaps that may be asked for
ASKED = {(15, 25): 2, (40, 105): 6, (110, 150): 2}  # words of what is asked for: how often; so there are three lengths
TITLES, KEPT_TITLES, KEPT_SUMMARIES = ("acl_titles", "advisory_titles", "meqsum", "scitldr_a"), 0.5, 0.3
WORD = re.compile(r"[^\W_]+")
SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+$")


def is_supported(
    name: str,
    document: str,
    summary: str,
    least_facts: float = LEAST_FACTS,
    least_words: float = LEAST_WORDS,
) -> bool:
    """Whether a summary can be learned from what is read of its document; else it teaches to make things up."""
    read = {word.casefold() for word in WORD.findall(document)}
    words, facts = [], []
    for match in WORD.finditer(summary):
        word = match[0]
        is_first = match.start() == 0 or SENTENCE_END.search(summary[: match.start()][-6:])
        words.append(word.casefold() in read)
        if any(map(str.isdigit, word)) or (word[0].isupper() and not is_first):
            facts.append(words[-1])
    if not words:
        return False
    if name in SPOKEN:
        least_facts = least_words = LEAST_SPOKEN
    return sum(words) >= least_words * len(words) and sum(facts) >= least_facts * len(facts)


def condensed(document: str) -> str:
    """What is read of a document: all of it, or its beginning and the sentences that are most like all others."""
    if len(document.split()) <= READ:
        return document
    sentences = [document[a:b].strip() for a, b in split_sentences(document, "english")]
    sizes = [len(sentence.split()) for sentence in sentences]
    first = sum(total <= BEGINNING for total in accumulate(sizes))
    later = [place for place in range(first, len(sentences)) if sizes[place] in SENTENCE]
    room = READ - sum(sizes[:first])
    central = most_central([sentences[place] for place in later], room)
    return "\n".join([" ".join(sentences[:first]), *(sentences[later[place]] for place in central)]).strip()


def most_central(sentences: list[str], room: int) -> list[int]:
    """Places of the sentences that are most like all others, as many words of them as there is room for."""
    sizes = [len(sentence.split()) for sentence in sentences]
    return best_sentences(sentences, sizes, Words(sentences).centrality(), room)


def drawn(ranges: dict[tuple[int, int], int], generator: random.Random) -> int:
    """A number out of one of some ranges, each drawn as often as it says."""
    return generator.randint(*generator.choices(list(ranges), list(ranges.values()))[0])


def is_for_long(row: dict[str, str]) -> bool:
    """Whether a document is for the comparison of models that read it whole."""
    return row["length"] != "line" and len(row["document"].split()) >= LEAST_LONG


def shortened(summary: str) -> str:
    """A summary of at most `LONGEST` words, whole sentences of it; empty if its first is longer."""
    while len(summary.split()) > LONGEST:
        sentences = split_sentences(summary, "english")
        summary = summary[: sentences[-1][0]].rstrip() if len(sentences) > 1 else ""
    return summary


def file_of(folder: Path, name: str) -> Path | None:
    """The file of a set, None if it is not there."""
    names = [f"{name}.jsonl{suffix}" for suffix in ("", *COMPRESSION_SUFFIXES)]
    paths = (place / name for place in (folder / "pairs", folder) for name in names)
    return next(filter(Path.is_file, paths), None)


def rows_of(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Rows of a set, as they are."""
    path = file_of(folder, name)
    if path is None:
        print(f"{name}: not there, left out")
        return
    for record in read_records(path):
        if record.row is None:
            raise SystemExit(f"{record.file}:{record.line}: {record.problem}")
        yield record.row


def read(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """Rows of a set: `key` (what the document is of), `document`, `summary`."""
    for row in rows_of(folder, name):
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
            found["title"] = row.get("title") or ""
        found = {name: value.strip() for name, value in found.items()}
        if found["document"] and found["summary"]:
            yield found


def is_development(key: str) -> bool:
    """Whether a document is held out; the same for all sets that have it."""
    return int(hashlib.sha256(key.casefold().encode()).hexdigest(), 16) % DEVELOPMENT == 0


def extract(document: str, summary: str, most: int = MOST_SENTENCES) -> str:
    """Sentences of what is read of a document that say most of its summary, about as long; empty if hardly anything.

    Each is the one that raises the F1 of words and pairs of words most, until none does (the oracle of extractive
    summarization; Nallapati et al., 2017: SummaRuNNer). It teaches to write whole sentences, and which.
    """
    spans = split_sentences(document, "english")
    sentences = [document[a:b].strip().rpartition("\n")[2].strip() for a, b in spans]  # without the heading before it
    usable = [sentence for sentence in sentences if sentence.endswith((".", "!", "?")) and len(sentence.split()) >= 5]
    units = {sentence: _units(sentence) for sentence in usable}
    wanted, chosen, best = _units(summary), [], 0.0
    while len(chosen) < most:
        so_far = [units[one] for one in chosen]
        scores = {one: _f1([*so_far, units[one]], wanted) for one in units if one not in chosen}
        one = max(scores, key=scores.__getitem__, default="")
        if scores.get(one, 0.0) <= best:
            break
        chosen, best = [*chosen, one], scores[one]
    return " ".join(one for one in usable if one in chosen) if best >= LEAST_F1 else ""


def with_extracts(train: list[dict[str, str]], generator: random.Random) -> list[dict[str, str]]:
    """The third stage's pairs: most summaries are extracts, so that what is written is whole sentences."""
    rows = []
    for row in tqdm(train, desc="extracts", disable=None):
        if row["set"] in TITLES:
            rows += [row] * (generator.random() < KEPT_TITLES)
        elif generator.random() < KEPT_SUMMARIES:
            rows.append(row)
        elif summary := extract(row["document"], row["summary"]):
            rows.append({**row, "summary": summary})
    return rows


def well_supported(train: list[dict[str, str]], generator: random.Random) -> list[dict[str, str]]:
    """The last stage's pairs: summaries that stand almost wholly in what is read; some extracts of other documents."""
    rows, lines, extracts = [], 0, Counter[str]()
    for row in tqdm(generator.sample(train, len(train)), desc="last", disable=None):
        document, summary, is_line = row["document"], row["summary"], length_of(row["summary"]) == "line"
        if is_supported(row["set"], document, summary, LAST_FACTS, LAST_WORDS):
            lines += is_line
            rows += [row] * (not is_line or lines <= MOST_LINES)
        elif not is_line and extracts[row["set"]] < MOST_EXTRACTS and (own := extract(document, summary)):
            extracts[row["set"]] += 1
            rows.append({**row, "summary": own})
    generator.shuffle(rows)
    return rows


def with_gaps(text: str, generator: random.Random) -> list[dict[str, str]]:
    """Pairs of a text's parts: their sentences that are most like all others are to be written, most taken out.

    Source: Zhang et al., 2020 (PEGASUS), section 3.1, gap sentences; some stay, so that there is something to copy.
    """
    sentences = [text[a:b].strip() for a, b in split_sentences(text, "english")]
    sizes = [len(sentence.split()) for sentence in sentences]
    parts, start = [], 0
    while start < len(sentences):
        end = start + max(1, sum(total < PART.stop for total in accumulate(sizes[start:])))
        parts += [slice(start, end)] * (sum(sizes[start:end]) in PART)
        start = end
    rows = []
    for part in generator.sample(parts, min(PARTS, len(parts))):
        bare = [sentence.rpartition("\n")[2] for sentence in sentences[part]]  # without the heading before it
        usable = [
            place
            for place, sentence in enumerate(bare)
            if sentence.endswith((".", "!", "?")) and len(sentence.split()) in SENTENCE
        ]
        room = drawn(ASKED, generator)
        if len(usable) < LEAST_USABLE:
            continue
        asked = [usable[place] for place in most_central([bare[place] for place in usable], room)]
        gaps = {place for place in asked if generator.random() >= STAYS}
        left = [
            one.removesuffix(bare[place]) + GAP if place in gaps else one for place, one in enumerate(sentences[part])
        ]
        if asked:
            rows.append({"document": " ".join(left), "summary": " ".join(bare[place] for place in asked)})
    return rows


def _units(text: str) -> Counter[tuple[str, ...]]:
    words = [word.casefold() for word in WORD.findall(text)]
    return Counter([*((word,) for word in words), *pairwise(words)])


def _f1(parts: list[Counter[tuple[str, ...]]], wanted: Counter[tuple[str, ...]]) -> float:
    found: Counter[tuple[str, ...]] = sum(parts, Counter())
    return 2 * (found & wanted).total() / max(1, found.total() + wanted.total())


def shared_with(train: list[dict[str, str]], rows: list[dict[str, str]]) -> set[int]:
    """Which rows share a whole text or a long passage with training pairs; those of the warm-up have no summaries."""
    named = (
        [(str(place), [row.get("whole", row["document"]), row.get("summary", "")]) for place, row in enumerate(part)]
        for part in (rows, train)
    )
    return {int(overlap.id) for overlap in find_overlaps(*named).overlaps}


def write(path: Path, rows: list[dict[str, str]]) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")  # a run that is stopped leaves the old file whole
    write_json_lines(unfinished, [{name: value for name, value in row.items() if name != "whole"} for row in rows])
    unfinished.replace(path)
    print(f"{path}: {len(rows)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--output", type=Path, default=Path("experiments/mini"), help="where to write")
    arguments = parser.parse_args()
    if not any(file_of(arguments.data, name) for name in PAIRS):  # else nothing would take the place of finished files
        names = ", ".join(f"{name}.jsonl" for name in PAIRS)
        raise SystemExit(f"{arguments.data} has none of the sets {names}, with or without .gz, .bz2 or .xz")
    generator = random.Random(0)
    train: list[dict[str, str]] = []
    long: list[dict[str, str]] = []
    development: dict[str, list[dict[str, str]]] = {}
    texts: dict[str, str] = {}  # document -> part, each once
    for name, most in PAIRS.items():
        kept: list[dict[str, str]] = []
        held: list[dict[str, str]] = []
        for row in read(arguments.data, name):
            part = "validation" if is_development(row["key"]) else "train"
            texts[row["document"]] = part
            pair = {"document": row["document"], "summary": row["summary"], "set": name, "title": row.get("title", "")}
            if part == "validation":
                held.append({**pair, "length": length_of(row["summary"])})
                continue
            if "wikipedia" in name and pair["title"] and generator.random() < 0.5:  # documents come with and without
                pair["document"] = f"{pair['title']}\n\n{row['document']}"
            pair["whole"] = pair["document"]  # not written: what no held-out document may share
            if not (summary := shortened(row["summary"])):
                continue
            if name in LONG_SETS and is_for_long({**pair, "length": length_of(row["summary"])}):
                begins = " ".join(pair["document"].split()[:READ_LONG])
                if is_supported(name, begins, row["summary"], LAST_FACTS, LAST_WORDS):
                    long.append({**pair, "summary": summary})
            pair["document"] = condensed(pair["document"])
            if is_supported(name, pair["document"], row["summary"]):
                kept.append({**pair, "summary": summary})
        generator.shuffle(kept)
        train += kept[:most]
        domain = next((domain for domain, names in DOMAINS.items() if name in names), None)
        if domain is not None:
            development.setdefault(domain, []).extend(held)
    generator.shuffle(train)
    write(arguments.output / "pairs" / "train.jsonl", train)
    write(arguments.output / "pairs" / "extracts.jsonl", with_extracts(train, generator))
    last = well_supported(train, random.Random(1))
    write(arguments.output / "pairs" / "last.jsonl", last)
    held = [(domain, row) for domain, rows in development.items() for row in rows]
    # On its own, since which pairs are kept, and so what `generator` draws next, hangs on how a processor rounds.
    random.Random(3).shuffle(held)
    shared = shared_with(train, [row for _, row in held])
    print(f"{len(shared)} of {len(held)} share a text or a passage with what is trained on, and are left out")
    parts: dict[str, list[dict[str, str]]] = {"validation": [], "test": []}
    long_parts: dict[str, list[dict[str, str]]] = {"validation": [], "test": []}
    held_out: list[dict[str, str]] = []
    for domain in development:
        kept = [row for place, (its, row) in enumerate(held) if its == domain and place not in shared]
        held_out += kept
        if kept:
            write(arguments.output / "pairs" / f"{domain}.jsonl", kept)
        else:
            print(f"{domain}: nothing is held out, not written")
        if domain in COMPARED:
            read_of = [{**row, "document": condensed(row["document"])} for row in kept if row["length"] == "short"]
            parts["validation"] += read_of[: -COMPARED[domain]][:100]
            parts["test"] += read_of[-COMPARED[domain] :]
        if domain in LONG:
            whole = [row for row in kept if is_for_long(row)]
            long_parts["validation"] += whole[: -LONG[domain]][-50:]
            long_parts["test"] += whole[-LONG[domain] :]
    generator.shuffle(long)
    write(arguments.output / "pairs" / "long_train.jsonl", long)
    for name, its_parts, its_train in (("compared", parts, last), ("long", long_parts, long)):
        for part, rows in its_parts.items():  # among other documents, what they share may be no formula
            also = shared_with(its_train, rows)
            kept = [row for place, row in enumerate(rows) if place not in also]
            write(arguments.output / "pairs" / f"{name}_{part}.jsonl", kept)
    for part in ("train", "validation"):
        rows = [{"document": text} for text, its_part in texts.items() if its_part == part]
        shared = shared_with(held_out, rows) if part == "train" else set()
        if shared:
            print(f"{len(shared)} of {len(rows)} texts of the warm-up share a passage with held-out ones: left out")
        rows = [{"text": row["document"]} for place, row in enumerate(rows) if place not in shared]
        generator.shuffle(rows)
        write(arguments.output / "warm_up" / f"{part}.jsonl", rows)
        if part == "train":
            its_own = random.Random(2)
            gaps = (with_gaps(row["text"], its_own) for row in tqdm(rows, desc="gaps", disable=None))
            write(arguments.output / "pairs" / "gaps.jsonl", [pair for pairs in gaps for pair in pairs])


if __name__ == "__main__":
    main()

"""Make pairs of talks and stories for `mini`: passages with what is said of them, and with their own best sentences.

    python examples/mini/passages.py --data FOLDER --pairs experiments/mini/pairs     # after prepare.py

FOLDER holds `qmsum`, `crd3`, `squality_plot`, `squality_questions` and `se_books`, as prepare.py finds its sets. Their
texts are far longer than what mini reads, and their summaries say something of a passage in every sentence: each part
of a summary goes with the passage that has most of its words. Articles and papers, of which the other pairs are, have
no questions, no orders and nobody who says "I".

Two files are written, with pairs of prepare.py between: `passages.jsonl`, and `passages_last.jsonl` for the last
stage, in which no summary begins with a word that hangs on another ("she", "however"), and no letter is answered with
a question to a doctor.
"""

import argparse
import math
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from prepare import (
    ASKED,
    GAP,
    LEAST_USABLE,
    SENTENCE,
    WORD,
    drawn,
    is_development,
    is_supported,
    most_central,
    rows_of,
    write,
)

from hier_models.models.sentence_splitting import split_sentences


LONGEST = 320  # words of a passage
WHOLE = 110  # words of a summary that is of one passage; of others, parts of so many:
PARTS_OF_SUMMARY = {(15, 25): 1, (40, 105): 4}
LEAST_WORDS = 8  # of such a part
LEAST_SHARE = {"qmsum": 0.4, "crd3": 0.5, "squality": 0.5}  # of its words, by their weight, that the passage has
SUPPORTED, SUPPORTED_LAST = (0.7, 0.5), (0.85, 0.6)  # shares of names and numbers, and of words, that stand there
STAYS = 0.7  # how many of the sentences that are asked for stay where they are
LIMITS, LEAST_PART = (60, 321), 40  # words of a passage with gaps, at most, drawn for each; and at least
KEPT = {"qmsum": 2000, "crd3": 1800, "squality": 1500, "se_books": 1700}  # passages with gaps
KEPT_LAST, OTHERS = 300, 9000  # of each set in the last stage; pairs of prepare.py in the first file
NOISE = re.compile(r"\{[^}]*\}")
FILLER = re.compile(r"\b(?:um|uh|hmm|mm|er|erm)\b ?,? ?", re.IGNORECASE)
SPACED = re.compile(r" +(?=[.,!?;:]|['’](?:s|re|ve|ll|d|m|t)\b|n['’]t\b)")
SPEAKER = re.compile(r"^[^\n:.?!]{1,40}: ")
# Words that hang on what was said before.
HANGING = (
    *("he", "she", "it", "they", "his", "her", "its", "their", "him", "them", "these", "those", "such", "but"),
    *("and", "or", "so", "then", "however", "therefore", "thus", "also", "moreover", "furthermore"),
    *("nevertheless", "although", "though", "yet"),
)
HANGS = re.compile(rf"\W*(?:{'|'.join(HANGING)})\b", re.IGNORECASE)
Pair = dict[str, str]


def clean(text: str) -> str:
    """Without what a transcript has between words."""
    text = SPACED.sub("", FILLER.sub("", NOISE.sub("", text)))
    return re.sub(r"\s+", " ", text).strip()


def texts(folder: Path) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """What there is: key, set, turns or paragraphs, and summaries."""
    for name, spoken_by in (("qmsum", str), ("crd3", str.title)):
        for row in rows_of(folder, name):
            turns = [(spoken_by(who), clean(said)) for who, said in row["turns"]]
            units = [f"{who}: {said}" for who, said in turns if len(said.split()) > 2]
            summaries = [answer for _, answer in row["queries"]] if name == "qmsum" else [row["summary"]]
            yield row["id"], name, units, list(map(clean, summaries))
    stories: dict[str, tuple[str, list[str]]] = {}
    for name in ("squality_plot", "squality_questions"):
        for row in rows_of(folder, name):
            key = re.sub(r" q\d+$", "", row["source"])
            stories.setdefault(key, (row["document"], []))[1].append(row["summary"])
    for key, (story, summaries) in stories.items():
        units = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n|\n(?=[“\"A-Z])", story)]
        yield key, "squality", [unit for unit in units if len(unit.split()) > 2], summaries
    for row in rows_of(folder, "se_books"):
        if "milton" not in row["id"]:  # verse
            for chapter in row["chapters"]:
                units = [clean(paragraph) for paragraph in chapter["paragraphs"] if len(paragraph.split()) > 2]
                yield row["id"], "se_books", units, []


def passages(units: list[str]) -> list[tuple[int, int]]:
    """From each unit, as many as fit."""
    sizes, found, end, total = [len(unit.split()) for unit in units], [], 0, 0
    for start in range(len(units)):
        while end < len(units) and total + sizes[end] <= LONGEST:
            total, end = total + sizes[end], end + 1
        if end > start:
            found.append((start, end))
            total -= sizes[start]
        else:  # longer than a passage
            end, total = start + 1, 0
    return found


def parts_of(summary: str, generator: random.Random) -> list[str]:
    """A summary, or some of its sentences at a time."""
    room = drawn(PARTS_OF_SUMMARY, generator)
    if len(summary.split()) <= WHOLE:
        return [summary]
    parts: list[list[str]] = [[]]
    for a, b in split_sentences(summary):
        sentence = summary[a:b].strip()
        if parts[-1] and sum(len(one.split()) for one in (*parts[-1], sentence)) > room:
            parts.append([])
            room = drawn(PARTS_OF_SUMMARY, generator)
        parts[-1].append(sentence)
    return [" ".join(part) for part in parts if part]


def said_of(name: str, units: list[str], summaries: list[str], generator: random.Random) -> list[Pair]:
    """Parts of summaries, each with the passage that has most of its words, the rarer the more."""
    words = [{word.casefold() for word in WORD.findall(unit)} for unit in units]
    units_with = Counter(word for unit in words for word in unit)
    spans, rows = passages(units), []
    for part in (part for summary in summaries for part in parts_of(summary, generator)):
        wanted = {word.casefold() for word in WORD.findall(part)}
        weights = {word: math.log((len(units) + 1) / (units_with[word] + 1)) for word in wanted}
        total = math.fsum(weights.values())  # exact, as below: a set has another order in each process
        if len(part.split()) < LEAST_WORDS or total <= 0:
            continue
        has = [words_of & wanted for words_of in words]
        worth = [math.fsum(weights[word] for word in set().union(*has[a:b])) for a, b in spans]
        best = max(range(len(spans)), key=worth.__getitem__, default=None)
        if best is None or worth[best] < LEAST_SHARE[name] * total:
            continue
        start, end = spans[best]
        pair = {"document": "\n".join(units[start:end]), "summary": part, "set": name}
        if is_supported("", pair["document"], part, *SUPPORTED):
            rows.append(pair)
    return rows


def with_own(name: str, units: list[str], generator: random.Random) -> list[Pair]:
    """Passages whose sentences that are most like all others are to be written, without the speaker's name."""
    lines: list[tuple[str, str, bool]] = []  # who speaks, a sentence, whether a turn or paragraph begins with it
    for unit in units:
        match = SPEAKER.match(unit) if name in ("qmsum", "crd3") else None
        who = match[0] if match else ""
        said = unit.removeprefix(who)
        sentences = [said[a:b] for a, b in split_sentences(said)]
        lines += [(who if number == 0 else "", one, number == 0) for number, one in enumerate(sentences)]
    sizes, rows, start = [len(sentence.split()) for _, sentence, _ in lines], [], 0
    while start < len(lines):
        limit, end, total = generator.randint(*LIMITS), start, 0
        while end < len(lines) and total + sizes[end] < limit:
            total, end = total + sizes[end], end + 1
        end = max(end, start + 1)
        part, start = lines[start:end], end
        if total < LEAST_PART:
            continue
        usable = [
            place
            for place, (_, sentence, _) in enumerate(part)
            if re.search(r"[.!?][\"”’']*$", sentence) and len(sentence.split()) in SENTENCE
        ]
        room = min(drawn(ASKED, generator), total // 2)
        if len(usable) < LEAST_USABLE:
            continue
        asked = [usable[place] for place in most_central([part[place][1] for place in usable], room)]
        if not asked:
            continue
        gaps = {place for place in asked if generator.random() >= STAYS}
        shown = [
            ("\n" if begins else " ") + who + (GAP if place in gaps else sentence)
            for place, (who, sentence, begins) in enumerate(part)
        ]
        summary = " ".join(part[place][1] for place in asked)
        rows.append({"document": "".join(shown)[1:], "summary": summary, "set": name})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--pairs", type=Path, default=Path("experiments/mini/pairs"), help="what prepare.py wrote")
    arguments = parser.parse_args()
    generator = random.Random(5)
    said: list[Pair] = []
    own: dict[str, list[Pair]] = {name: [] for name in KEPT}
    for key, name, units, summaries in texts(arguments.data):
        if not is_development(key):
            said += said_of(name, units, summaries, generator)
            own[name] += with_own(name, units, generator)
    generator = random.Random(7)
    gaps = [pair for pairs in own.values() for pair in pairs]
    generator.shuffle(gaps)
    of_set = {name: [pair for pair in gaps if pair["set"] == name] for name in KEPT}
    first = [pair for name, most in KEPT.items() for pair in of_set[name][:most]]
    more = [pair for name, most in KEPT.items() for pair in of_set[name][most : most + KEPT_LAST]]
    others = [*rows_of(arguments.pairs, "train"), *rows_of(arguments.pairs, "extracts")]
    generator.shuffle(others)
    pairs = [*said, *first, *others[:OTHERS]]
    generator.shuffle(pairs)
    write(arguments.pairs / "passages.jsonl", pairs)
    strict = [pair for pair in said if is_supported("", pair["document"], pair["summary"], *SUPPORTED_LAST)]
    pairs = [*rows_of(arguments.pairs, "last"), *strict, *more]
    pairs = [pair for pair in pairs if not HANGS.match(pair["summary"]) and pair["set"] != "meqsum"]
    generator.shuffle(pairs)
    write(arguments.pairs / "passages_last.jsonl", pairs)


if __name__ == "__main__":
    main()

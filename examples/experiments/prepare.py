"""Make the files that the experiments read: parts to train, validate and test on, and the texts of the warm-up.

    python examples/experiments/prepare.py --data FOLDER --output experiments

README.md in this folder says which files go into FOLDER and with which fields, and what comes out. No document that
shares a whole text or a long passage with one to test or validate on is left in what is trained on.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from hier_models.data.columns import BadRecord
from hier_models.data.overlap import find_overlaps, texts_of_record
from hier_models.data.poems import quatrain
from hier_models.data.reading import read_records


Row = dict[str, Any]
PARTS = ("train", "validation", "test")
DEVELOPMENT = ("dev", "val", "valid", "validation", "test")
# Two lines of 5 characters are enough to know a quatrain by.
POEM_CHARACTERS = 10


@dataclass
class Made:
    """What becomes of a row of a data set.

    Args:
        row: The row as the recipe reads it, or None for one that cannot be used.
        reason: Why it cannot be used.
    """

    row: Row | None
    reason: str = ""


@dataclass(frozen=True)
class Experiment:
    """A folder of files for recipes.

    Args:
        sources: Names of the data sets.
        make: Makes the rows of one row of a data set.
        group: Rows of a data set with equal values of this field stay in one part.
        characters: Length of a passage of Chinese that two documents must not share.
        warm_up: Makes the text that the warm-up takes of a row to train on; None where it takes none.
    """

    sources: tuple[str, ...]
    make: Callable[[Row], Iterator[Made]]
    group: str | None = None
    characters: int = 30
    warm_up: Callable[[Row], str] | None = None


# What becomes of the rows of each data set


def section_text(section: Sequence[str]) -> str:
    """Set the heading of a section above its text."""
    return "\n".join(part.strip() for part in section if part and part.strip())


def body(row: Row) -> str:
    """Join the sections of a document."""
    return "\n\n".join(text for section in row["sections"] if (text := section_text(section)))


def dialogues(row: Row) -> Iterator[Made]:
    """`#Person1#: words` lines as turns; a line without a role goes on with the turn before."""
    turns: list[list[str]] = []
    for line in row["dialogue"].splitlines():
        role, found, words = line.strip().partition(":")
        if found and role.startswith("#") and role.endswith("#"):
            # One line of 130,000 says "#PErson2#".
            turns.append([f"#{role.strip('#').capitalize()}#", words.strip()])
        elif turns and line.strip():
            turns[-1][1] = f"{turns[-1][1]} {line.strip()}"
    yield Made({"id": row["id"], "turns": turns, "summary": row["summary"]} if turns else None, "no turns")


def meetings(row: Row) -> Iterator[Made]:
    """Turns and the summary of the whole meeting."""
    yield Made({"id": row["id"], "turns": row["turns"], "summary": row["summary"].strip().strip('"').strip()})


def papers(row: Row) -> Iterator[Made]:
    """The paper without its abstract, and the abstract."""
    if not row["abstract"].strip():
        yield Made(None, "no abstract")
    else:
        yield Made({"id": row["id"], "text": body(row), "summary": row["abstract"].strip()})


def proposals_sections(row: Row) -> Iterator[Made]:
    """A document for each section, and the abstract."""
    documents = [text for section in row["sections"] if (text := section_text(section))]
    yield Made({"id": row["id"], "documents": documents, "summary": row["abstract"].strip()})


def proposals_tldr(row: Row) -> Iterator[Made]:
    """The abstract and the sections, and one line of about 16 words."""
    text = f"{row['abstract'].strip()}\n\n{body(row)}"
    tldr = (row["tldr"] or "").strip()
    yield Made({"id": row["id"], "text": text, "summary": tldr} if tldr else None, "no tldr")


def citances(row: Row) -> Iterator[Made]:
    """A paper's abstract and what other papers say of it, and the summary, without the title that it begins with."""
    documents = [row["abstract"].strip(), *(item["text"].strip() for item in row["citances"])]
    summary = row["summary"].strip().partition("\n")[2].strip()
    if not documents[0] or not summary:
        yield Made(None, "no abstract" if summary else "a summary of the title alone")
    else:
        yield Made({"id": row["id"], "documents": [text for text in documents if text], "summary": summary})


def one_line(row: Row) -> Iterator[Made]:
    """The sentences of an abstract, and one or more summaries of a line each."""
    yield Made({"id": row["id"], "sentences": row["source"], "summary": row["summary"]})


def chapters(row: Row) -> Iterator[Made]:
    """Pairs of verses. Where one language has no verse of the number, the other's goes with the verse before it."""
    pairs: list[list[str]] = []
    for verse in zip(row["en"], row["de"], strict=True):
        english, german = (text.strip() for text in verse)
        if pairs and not (english and german and all(pairs[-1])):
            pairs[-1] = [" ".join(filter(None, both)) for both in zip(pairs[-1], (english, german), strict=True)]
        elif english or german:
            pairs.append([english, german])
    if not pairs or not all(pairs[-1]):
        yield Made(None, "one language only")
    else:
        yield Made({"id": row["id"], "source": [en for en, _ in pairs], "target": [de for _, de in pairs]})


def poems(row: Row) -> Iterator[Made]:
    """Four lines of 5 or 7 characters, with title and author."""
    try:
        lines = quatrain(row["l"])
    except BadRecord as error:
        yield Made(None, getattr(error, "reason", "no quatrain"))
    else:
        yield Made({"lines": lines, "title": row["t"], "author": row["a"]})


def squad(row: Row) -> Iterator[Made]:
    """A question, with its answer in characters of the context instead of tokens."""
    tokens = row["context"].split(" ")
    first, last = map(int, row["span"].split())
    answer, start = " ".join(tokens[first : last + 1]), len(" ".join([*tokens[:first], ""]))
    if row["context"][start : start + len(answer)] != answer:
        yield Made(None, "the answer does not stand in its place")
    else:
        answers = {"text": [answer], "answer_start": [start]}
        yield Made({"question": row["question"], "context": row["context"], "answers": answers})


def cmrc(row: Row) -> Iterator[Made]:
    """The questions on a context, each with its answers."""
    for question in row["qas"]:
        given = [(item["text"], item["answer_start"]) for item in question["answers"]]
        kept = list(dict.fromkeys((text, at) for text, at in given if row["context"][at : at + len(text)] == text))
        if not kept:
            yield Made(None, "no answer stands in its place")
            continue
        answers = {"text": [text for text, _ in kept], "answer_start": [at for _, at in kept]}
        yield Made(
            {"id": question["id"], "question": question["question"], "context": row["context"], "answers": answers}
        )


def _turns_text(row: Row) -> str:
    return "\n".join(f"{role}: {words}" for role, words in row["turns"])


def _with_summary(row: Row) -> str:
    return f"{row['summary']}\n\n{row['text']}"


EXPERIMENTS = {
    "dialogues": Experiment(("dialogsum_nc",), dialogues),  # for measuring only: no warm-up
    "meetings": Experiment(("qmsum",), meetings, warm_up=_turns_text),
    "transcripts": Experiment(("crd3",), meetings, warm_up=_turns_text),
    "papers": Experiment(("scisummnet", "aclsum"), papers, warm_up=_with_summary),
    "citances": Experiment(("scisummnet",), citances),
    "proposals": Experiment(("proposals_cc0",), papers, warm_up=_with_summary),
    "proposals_sections": Experiment(("proposals_cc0",), proposals_sections),
    "proposals_tldr": Experiment(("proposals_cc0",), proposals_tldr),
    "one_line": Experiment(("scitldr_a",), one_line, warm_up=lambda row: " ".join(row["sentences"])),
    "chapters": Experiment(("bible_ende",), chapters, warm_up=lambda row: " ".join(row["source"])),
    "poems": Experiment(("quatrains",), poems, characters=POEM_CHARACTERS),
    "squad": Experiment(("squad_cs224n",), squad, group="context"),
    "cmrc": Experiment(("cmrc2018_dev",), cmrc, group="context"),
}
BOOKS = "se_books"


# Reading, dividing, checking, writing


def read(data: Path, name: str) -> list[Row] | None:
    """Read a data set.

    Args:
        data: The folder with the files.
        name: Of the file, without suffixes.

    Returns:
        Its rows, or None if it is not there.
    """
    files = sorted(data.glob(f"{name}.jsonl*"))
    if not files:
        return None
    rows = []
    for record in read_records(files[0], files[0].name):
        if record.row is None:
            raise typer.BadParameter(f"{record.file}:{record.line}: {record.problem}")
        rows.append(record.row)
    return rows


def divide(rows: Sequence[Row], group: str | None = None) -> dict[str, list[Row]]:
    """Divide a data set: by its field `split`, if that names more than one part, or by the order of its rows.

    Args:
        rows: The rows.
        group: Rows with equal values of this field stay together.

    Returns:
        Part -> rows. The given development part, or else the last tenth, is to test on; the last tenth of what is left
        by order (where there is no field: of all) is to validate on.
    """
    first = {str(row.get(group) if group else number): number for number, row in reversed(list(enumerate(rows)))}
    units: dict[int, list[Row]] = {}
    for number, row in enumerate(rows):
        units.setdefault(first[str(row.get(group) if group else number)], []).append(row)
    ordered = list(units.values())
    test = [unit for unit in ordered if unit[0].get("split") in DEVELOPMENT]
    others = [unit for unit in ordered if unit[0].get("split") not in DEVELOPMENT]
    tenth = max(1, len(others) // 10)
    if not test:
        test, others = others[-tenth:], others[:-tenth]
    parts = {"train": others[:-tenth], "validation": others[-tenth:], "test": test}
    return {part: [row for unit in found for row in unit] for part, found in parts.items()}


def make(experiment: Experiment, sets: dict[str, list[Row]], counts: dict[str, Any]) -> dict[str, list[Row]]:
    """Make the rows of an experiment's parts.

    Args:
        experiment: Which.
        sets: Name of a data set -> its rows.
        counts: Is given how many rows could not be used, by reason.

    Returns:
        Part -> rows.
    """
    parts: dict[str, list[Row]] = {part: [] for part in PARTS}
    unusable: dict[str, int] = {}
    for name in experiment.sources:
        for part, rows in divide(sets[name], experiment.group).items():
            for number, row in enumerate(rows):
                for made in experiment.make(row):
                    if made.row is None:
                        unusable[made.reason] = unusable.get(made.reason, 0) + 1
                    else:
                        parts[part].append({"id": f"{name}-{part}-{number}", **made.row})
    counts["unusable"] = unusable
    return parts


def documents(rows: Iterable[Row]) -> Iterator[tuple[str, list[str]]]:
    """Give the texts of rows as `find_overlaps` takes them; of a question, its context."""
    for number, row in enumerate(rows):
        yield str(number), [row["context"]] if "context" in row else texts_of_record(row)


def without_overlap(
    name: str, part: str, rows: list[Row], held_out: list[Row], characters: int
) -> tuple[list[Row], list[Row], int]:
    """Leave out what shares text with rows to test on.

    Args:
        name: Of the experiment, for the list of what is left out.
        part: Of the rows.
        rows: The rows.
        held_out: What they must share nothing with.
        characters: Length of a passage in Chinese.

    Returns:
        The rows that stay; a row for each that does not, with its id, the other's and what they share; and how many
        shared passages are too common to count.
    """
    bar = tqdm(documents(rows), desc=f"{name}: {part}", total=len(rows), leave=False, mininterval=1)
    report = find_overlaps(bar, documents(held_out), characters=characters)
    left_out = {int(found.id): found for found in report.overlaps}
    listed = [
        {
            "experiment": name,
            "part": part,
            "id": rows[number]["id"],
            "held_out": held_out[int(found.held_out)]["id"],
            "reason": found.reason,
            "example": found.example,
        }
        for number, found in left_out.items()
    ]
    return [row for number, row in enumerate(rows) if number not in left_out], listed, report.common_passages


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def size(rows: Sequence[Row]) -> dict[str, int]:
    """Count documents and their words (of Chinese, characters)."""
    words = 0
    for row in rows:
        for text in texts_of_record(row):
            words += len(text.split()) if text.isascii() or " " in text.strip() else len(text)
    return {"documents": len(rows), "words": words}


def books(rows: Sequence[Row]) -> Iterator[Row]:
    """The chapters of books, a document each."""
    for row in rows:
        for chapter in row["chapters"]:
            text = "\n".join(chapter["paragraphs"])
            if text.strip():
                yield {"id": f"{row['id']}/{chapter['id']}", "text": text}


def warm_up(
    made: dict[str, dict[str, list[Row]]], sets: dict[str, list[Row]]
) -> tuple[dict[str, list[Row]], list[Row], dict[str, Any]]:
    """Collect the English texts that models are warmed up on.

    Args:
        made: Experiment -> part -> rows.
        sets: Name of a data set -> its rows.

    Returns:
        Part -> rows; what is left out; the counts.
    """
    rows = list(books(sets.get(BOOKS, [])))
    for name, parts in made.items():
        text = EXPERIMENTS[name].warm_up
        if text is not None:
            rows += [{"id": f"{name}/{row['id']}", "text": text(row)} for row in parts["train"]]
    held_out = [
        {**row, "id": f"{name}/{row['id']}"}
        for name, parts in made.items()
        for part in ("validation", "test")
        for row in parts[part]
    ]
    rows, left_out, common = without_overlap("warm_up", "train", rows, held_out, 30)
    # Every fiftieth, from all data sets alike, shows how the warm-up goes; it says nothing of the experiments.
    parts = {
        "train": [row for number, row in enumerate(rows) if number % 50],
        "validation": [row for number, row in enumerate(rows) if number % 50 == 0],
    }
    counts = {part: size(found) for part, found in parts.items()}
    return parts, left_out, {**counts, "left_out": {"train": len(left_out)}, "common_passages": common}


def prepare(
    data: Annotated[Path, typer.Option(help="Folder with the data sets.", exists=True, file_okay=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files; made if it is not there.")],
) -> None:
    """Make the files of all experiments whose data sets are there."""
    names = sorted({name for experiment in EXPERIMENTS.values() for name in experiment.sources} | {BOOKS})
    sets = {name: rows for name in tqdm(names, desc="reading") if (rows := read(data, name)) is not None}
    for name in sorted(set(names) - set(sets)):
        typer.echo(f"{name}: not in {data}; experiments with it are left out", err=True)
    made: dict[str, dict[str, list[Row]]] = {}
    counts: dict[str, Any] = {}
    left_out: list[Row] = []
    for name, experiment in EXPERIMENTS.items():
        if not set(experiment.sources) <= set(sets):
            continue
        counts[name] = {}
        parts = make(experiment, sets, counts[name])
        numbers, common = {}, 0
        for part, held_out in (("validation", parts["test"]), ("train", parts["validation"] + parts["test"])):
            parts[part], listed, more = without_overlap(name, part, parts[part], held_out, experiment.characters)
            numbers[part], common = len(listed), common + more
            left_out += listed
        for part in PARTS:
            write(output / name / f"{part}.jsonl", parts[part])
        counts[name] |= {part: size(parts[part]) for part in PARTS}
        counts[name] |= {"left_out": numbers, "common_passages": common}
        made[name] = parts
    parts, listed, counts["warm_up"] = warm_up(made, sets)
    left_out += listed
    for part, rows in parts.items():
        write(output / "warm_up" / f"{part}.jsonl", rows)
    write(output / "left_out.jsonl", left_out)
    (output / "counts.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    typer.echo(table(counts))
    typer.echo(f"{output}: a folder for each; counts.json has these numbers, left_out.jsonl what shares text")


def table(counts: dict[str, Any]) -> str:
    """Lay out the counts.

    Args:
        counts: Experiment -> counts.

    Returns:
        A line for each.
    """
    lines = [f"{'':20}{'train':>8}{'valid.':>8}{'test':>8}{'words':>14}  left out for shared text (train, validation)"]
    for name, found in counts.items():
        sizes = [found.get(part, {"documents": 0, "words": 0}) for part in PARTS]
        numbers = "".join(f"{item['documents']:>8}" for item in sizes)
        shared = ", ".join(str(found["left_out"].get(part, 0)) for part in ("train", "validation"))
        unusable = "".join(f"; {number} {reason}" for reason, number in found.get("unusable", {}).items())
        lines.append(f"{name:20}{numbers}{sum(item['words'] for item in sizes):>14,}  {shared}{unusable}")
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(prepare)

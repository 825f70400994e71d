"""Chinese quatrains: reading them, a keyword for each line, what of them a vocabulary has, and model inputs."""

import importlib
import json
import logging
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from datasets import Dataset, IterableDataset, List

from ..models.keywords import PoemKeywords, is_chinese
from .columns import TEXT, BadRecord, find_column, first_matching, get_column, well_formed, wrong_type
from .loading import LoadOptions, Source, load_rows
from .record_readers import read_records
from .shared_counts import SharedCounts
from .tokenizing import plain_tokenizer


logger = logging.getLogger(__name__)

LINES, LINE_LENGTHS = 4, (5, 7)
LINE_ALIASES = ("lines", "l", "paragraphs", "content", "poem")
# What ends a line where several stand in one string, as in the chinese-poetry package.
_LINE_END = re.compile("[，。！？；、,.!?;\\s]+")  # Chinese marks too


# Reading


class NoQuatrain(BadRecord):
    """A poem that is no quatrain."""

    def __init__(self, reason: str, message: str, strange: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.strange = list(strange)


@dataclass(frozen=True)
class PoemFormat:
    """Columns of quatrains, made by `resolve_poems`."""

    lines: str  # column with the lines: a list of four, or of couplets with marks, or one string with marks
    title: str | None  # column with the title, or None
    author: str | None  # column with the poet, or None

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        others = {name: TEXT for name in ("title", "author") if getattr(self, name) is not None}
        return {"lines": List(TEXT), **others}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `lines`, and `title` and `author` where there are such columns."""
        normalized: dict[str, Any] = {"lines": quatrain(get_column(row, self.lines), self.lines)}
        for name in ("title", "author"):
            column = getattr(self, name)
            if column is not None:
                value = row.get(column)
                normalized[name] = "" if value is None else well_formed(column, str(value))
        return normalized


def resolve_poems(row: Mapping[str, Any], lines_column: str | None = None) -> PoemFormat:
    """Recognize the columns of quatrains."""
    found = find_column(row, "lines_column", lines_column, LINE_ALIASES)
    names = [name for name in row if name != found]
    return PoemFormat(found, first_matching(names, ("title", "t")), first_matching(names, ("author", "a")))


def quatrain(value: Any, name: str = "lines") -> list[str]:
    """Read the lines of a quatrain."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or not all(isinstance(part, str) for part in parts):
        raise wrong_type(name, value, "the lines of a poem as strings")
    lines = [line for part in parts for line in _LINE_END.split(part) if line]
    if len(lines) != LINES:
        message = f"column {name!r}: a quatrain has four lines, this poem has {len(lines)}"
        raise NoQuatrain("more or fewer lines", message)
    if strange := sorted({character for line in lines for character in line if not is_chinese(character)}):
        message = f"column {name!r}: not a Chinese character: {' '.join(map(repr, strange))}"
        raise NoQuatrain("other characters", message, strange)
    lengths = [len(line) for line in lines]
    if len(set(lengths)) > 1 or lengths[0] not in LINE_LENGTHS:
        message = f"column {name!r}: all lines must have 5 or all 7 characters, these have {str(lengths)[1:-1]}"
        raise NoQuatrain("lines of other lengths", message)
    return lines


def load_poems(
    source: Source, *, lines_column: str | None = None, **options: Unpack[LoadOptions]
) -> Dataset | IterableDataset:
    """Load quatrains as `load_documents` loads documents, which see for the sources.

    Args:
        source: File, files, folder or id of a dataset on the Hub.
        lines_column: Column with the lines; recognized by its name (lines, l, paragraphs, content, poem) by default.
        **options: `split`, `config_name`, `revision`, `streaming`, `bad_lines`, `set_aside_file` and `report` as in
            `load_documents`; a record that is no quatrain is bad.

    Returns:
        A dataset with `lines` (four strings of 5 or 7 characters), and `title` and `author` where there are such
        columns.
    """
    return load_rows(source, partial(resolve_poems, lines_column=lines_column), **options)


# The chinese-poetry package


@dataclass
class QuatrainReport:
    """What `write_quatrains` found."""

    poems: int = 0  # poems read
    quatrains: Counter[int] = field(default_factory=Counter)  # quatrains written, by the length of their lines
    left_out: Counter[str] = field(default_factory=Counter)  # poems that are none, and broken files, by reason
    # Marks and other characters for which quatrains were left out, and in how many.
    strange: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The report for people and files."""
        quatrains = {str(length): number for length, number in sorted(self.quatrains.items())}
        left_out, strange = dict(self.left_out.most_common()), dict(self.strange.most_common(20))
        return {"poems": self.poems, "quatrains": quatrains, "left_out": left_out, "strange": strange}


def write_quatrains(
    folder: str | os.PathLike[str], output: str | os.PathLike[str], *, simplify: bool = False
) -> QuatrainReport:
    """Collect the quatrains of a folder of poems, such as the chinese-poetry package's `quantangshi`.

    Args:
        folder: JSON files with `author`, `title` and `paragraphs` in each record; others are passed over.
        output: JSON lines to write, with the dynasty `d` (from a file's name, poet.tang.0.json), author `a`, title `t`
            and lines `l` of each quatrain. Repeated ones are written once.
        simplify: Whether to change traditional characters into simplified ones, with OpenCC.

    Returns:
        What was found, and what left out for which reason.

    Raises:
        FileNotFoundError: If there is no such folder, or no poem in it.
        ImportError: If OpenCC is needed and not installed.
        ValueError: If the folder is an empty string.
    """
    if folder == "":
        raise ValueError("folder: an empty string names nothing; for this folder, give '.'")
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise FileNotFoundError(f"folder: no such folder: {place}")
    convert = _simplifier() if simplify else str
    report = QuatrainReport()
    seen: set[tuple[str, ...]] = set()
    target = Path(output)
    unfinished = target.with_name(f"{target.name}.unfinished")
    with unfinished.open("w", encoding="utf-8") as stream:
        for path in sorted(place.rglob("*.json")):
            names = path.name.split(".")
            dynasty = names[1] if len(names) > 3 else ""
            is_whole = True
            for record in read_records(path):
                row = record.row
                if row is None and is_whole:
                    is_whole = False
                    report.left_out["files that cannot be read whole"] += 1
                    logger.warning("%s:%d %s", path, record.line, record.problem)
                if row is None or "paragraphs" not in row:
                    continue
                report.poems += 1
                try:
                    lines = [convert(line) for line in quatrain(row["paragraphs"], "paragraphs")]
                    author, title = (
                        convert(well_formed(name, str(row.get(name) or ""))) for name in ("author", "title")
                    )
                except NoQuatrain as error:
                    report.left_out[error.reason] += 1
                    report.strange.update(error.strange)
                    continue
                except BadRecord:
                    report.left_out["columns that cannot be used"] += 1
                    continue
                if tuple(lines) in seen:
                    report.left_out["written before"] += 1
                    continue
                seen.add(tuple(lines))
                report.quatrains[len(lines[0])] += 1
                entry = {"d": dynasty, "a": author, "t": title, "l": lines}
                stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
    if not report.poems:
        unfinished.unlink()
        raise FileNotFoundError(f"folder: no poems (records with `paragraphs`) in the JSON files of {place}")
    unfinished.replace(target)
    return report


def _simplifier() -> Callable[[str], str]:
    try:
        opencc: Any = importlib.import_module("opencc")
    except ImportError as error:
        raise ImportError("simplify needs OpenCC: pip install opencc-python-reimplemented") from error
    return opencc.OpenCC("t2s").convert  # type: ignore[no-any-return]


# What a vocabulary has of them


@dataclass
class CharacterCoverage:
    """What of texts a vocabulary has."""

    characters: int  # characters of the texts
    distinct: int  # how many of them are different
    unknown: Counter[str]  # characters that are not in the vocabulary, and how often each occurs
    lines: int  # lines of the texts
    lines_with_unknown: int  # how many of them have one that is not

    def as_dict(self) -> dict[str, Any]:
        """The report for a results file."""
        unknown = self.unknown.total()
        return {
            **vars(self),
            "unknown": unknown,
            "unknown_distinct": len(self.unknown),
            "covered": 1 - unknown / max(1, self.characters),
            "commonest_unknown": dict(self.unknown.most_common(50)),
        }


def character_coverage(poems: Iterable[Mapping[str, Any]], tokenizer: Any) -> CharacterCoverage:
    """Count which characters of poems a vocabulary has.

    Args:
        poems: Poems with `lines`.
        tokenizer: A tokenizer, or a processor that has one.

    Returns:
        The counts.
    """
    plain = plain_tokenizer(tokenizer)
    lines = [line for poem in poems for line in poem["lines"]]
    counts = Counter("".join(lines))
    ids = plain(list(counts), add_special_tokens=False)["input_ids"] if counts else []
    known = {character for character, row in zip(counts, ids, strict=True) if row and plain.unk_token_id not in row}
    return CharacterCoverage(
        characters=counts.total(),
        distinct=len(counts),
        unknown=Counter({character: number for character, number in counts.items() if character not in known}),
        lines=len(lines),
        lines_with_unknown=sum(not known.issuperset(line) for line in lines),
    )


# Model inputs


def poem_lines(
    poems: Iterable[Mapping[str, Any]], keywords: PoemKeywords, usable: Callable[[str], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """Make an example of each line.

    Source: HAM, section 5.2 (line by line, each with its keyword); Wang et al. (2016), section 4.1.
    """
    for poem, row in enumerate(poems):
        lines = list(row["lines"])
        for number, line in enumerate(lines):
            keyword = keywords.of_line(line, usable)
            yield {"poem": poem, "number": number, "keyword": keyword, "before": lines[:number], "line": line}


def in_vocabulary(processor: Any) -> Callable[[str], bool]:
    """Tell words that a model knows from others."""
    vocabulary = plain_tokenizer(processor).get_vocab().keys()
    # In the composed form, as the tokenizer reads them.
    return lambda word: all(character in vocabulary for character in unicodedata.normalize("NFC", word))


class PoemReport(SharedCounts):
    """How many lines became examples, and how many have no word in the vocabulary that could be their keyword."""

    NAMES = ("lines", "unknown_keywords")


def tokenize_poems(poems: Iterable[Mapping[str, Any]], processor: Any, report: PoemReport | None = None) -> Dataset:
    """Turn poems into model inputs, four examples each: a line from its keyword and the lines before it.

    Args:
        poems: Poems with `lines`.
        processor: A `HamProcessor` with `poem_keywords`.
        report: Is given what was set aside.

    Returns:
        A dataset with `input_ids`, `attention_mask`, `keyword_mask` and `labels`.

    Raises:
        ValueError: If the processor has no keywords of poems, or no line can be used.
    """
    if getattr(processor, "poem_keywords", None) is None:
        raise ValueError(f"processor: {type(processor).__name__} has no poem_keywords; PoemKeywords.fit makes them")
    report = report or PoemReport()
    examples = list(poem_lines(poems, processor.poem_keywords, in_vocabulary(processor)))
    rows = [example for example in examples if example["keyword"] is not None]
    unknown = len(examples) - len(rows)
    report.add(lines=len(rows), unknown_keywords=unknown)
    if not rows:
        raise ValueError("poems: no line can be used; is the vocabulary of another script?")
    if unknown:
        logger.warning("%d lines have no word of the vocabulary for a keyword, and were left out", unknown)
    names = ("input_ids", "attention_mask", "keyword_mask", "labels")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for start in range(0, len(rows), 4096):  # in parts: a tokenizer's encodings take more memory than the model
        part = rows[start : start + 4096]
        keywords, before, lines = ([row[name] for row in part] for name in ("keyword", "before", "line"))
        encoded = processor(keywords=keywords, lines=before, text_target=lines)
        for name in names:
            columns[name] += encoded[name]
    return Dataset.from_dict(columns)

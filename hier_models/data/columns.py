"""Which column is the source and which the summary, and what their values are turned into.

A source is one of four kinds, named after the processor's argument that takes it:

- `text`: a string;
- `sentences`: a list of strings, the user's own segmentation;
- `turns`: a dialogue, a list of `{"role": …, "content": …}`;
- `documents`: several articles of one input, a list of strings.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from datasets import List, Value

from .cleaning import has_words, remove_fillers, replace_digits
from .document_files import COUNTED
from .phrase_columns import FEATURE, PHRASES, has_places, read_phrases_column
from .record_readers import KINDS, LEFT_OUT, PAGE_STARTS, Kind


logger = logging.getLogger(__name__)

# Names seen in public summarization datasets, by the kind that a list under this name holds.
SOURCE_ALIASES: dict[Kind, tuple[str, ...]] = {
    "text": (
        *("text", "article", "document", "source", "source_text", "input", "input_text", "body", "content"),
        *("full_text", "paper", "report", "story", "passage", "transcript"),
    ),
    "sentences": ("sentences", "article_text", "source_sentences"),
    "turns": ("turns", "dialogue", "dialog", "conversation", "messages", "utterances", "meeting_transcripts"),
    "documents": ("documents", "articles", "docs", "source_documents"),
}
# Looked at only when none of the names above is there: datasets carry `sections` beside the text they are part of.
SECTION_ALIASES = ("sections",)
SUMMARY_ALIASES = (
    *("summary", "summary_text", "abstract", "abstract_text", "highlights", "target", "target_text", "tldr"),
    *("reference", "reference_summary", "output"),
)
ID_ALIASES = ("id", "article_id", "document_id", "doc_id", "paper_id", "example_id")
ROLE_KEYS = ("role", "speaker", "name", "from", "author", "participant", "character")
CONTENT_KEYS = ("content", "text", "utterance", "value", "message", "words")

# Columns that count what was left out of a document; `load_documents` adds them up and takes them away.
FILLER_WORDS = "_filler_words"
DROPPED_TURNS = "_dropped_turns"
COUNTS = (FILLER_WORDS, DROPPED_TURNS)

# What the summary of a document is to answer.
QUERY = "query"
# Several summaries of one document, the first of which is `summary`.
REFERENCES = "references"
# Columns in which digits are replaced; phrases are looked for in the source.
WORDED = (*KINDS, "summary", REFERENCES, QUERY, PHRASES)

# "#Person1#: Hello." or "Project Manager: Right." A role is short and holds no colon.
TURN_LINE = re.compile(r"\s*([^\s:][^:\n]{0,59}?)\s*:(?:\s+|$)(.*)")
# Not the other ends that str.splitlines() knows, such as U+2028: those stand inside of sentences.
LINE_END = re.compile(r"\r\n|\r|\n")
# What stands between the articles of Multi-News, in its two releases.
ARTICLE_SEPARATOR = re.compile(r"\|{5}|story_separator_special_tag")
# The 2018 release of PubMed and arXiv wraps each sentence of an abstract in <S> and </S>.
SENTENCE_TAGS = re.compile(r"^\s*<S>\s*|\s*</S>\s*$")
SURROGATE = re.compile("[\ud800-\udfff]")

# Large strings: with ordinary ones a batch of books can outgrow Arrow's limit of 2 GiB.
TEXT = Value("large_string")
PAGES = List({"start": Value("int64"), "page": Value("int64")})
# In what a `RowFormat` makes of a record: (reason, text) for each part of it that is bad and left out.
PROBLEMS = "_problems"


class BadRecord(ValueError):
    """A record whose columns cannot be used; the message says which and why."""


class RowFormat(Protocol):
    """What the rows of a source are turned into; picklable, and equal for equal columns, since it keys the cache."""

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        ...

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into these columns, and perhaps `PROBLEMS`; raises `BadRecord` where it cannot."""
        ...


@dataclass(frozen=True)
class Columns:
    """The columns that were given or recognised."""

    source: str  # name of the column with the source
    kind: Kind  # what the source is turned into
    summary: str | None  # name of the column with the summary, or None
    id: str | None  # name of the column with the identifier, or None
    fillers: tuple[str, ...] = ()  # words to take out of the source, from `load_fillers`
    phrases: str | None = None  # name of the column with the user's own phrases, or None
    several_references: bool = False  # whether what the summary's column holds are several summaries
    digits: str | None = None  # what every digit becomes, or None
    query: str | None = None  # name of the column with what the summary is to answer, or None
    from_files: bool = False  # whether each document has a file of its own, of which it is known what was left out

    @property
    def counts(self) -> tuple[str, ...]:
        """Columns that count what was left out; none where nothing can be."""
        return COUNTS if self.kind == "turns" or self.fillers else ()

    @property
    def has_pages(self) -> bool:
        """Whether the characters are those that pages were counted by."""
        return self.from_files and self.kind == "text" and not self.fillers

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        kinds = {"text": TEXT, "turns": List({"role": TEXT, "content": TEXT})}
        features: dict[str, Any] = {self.kind: kinds.get(self.kind, List(TEXT))}
        named = {"summary": self.summary, "id": self.id, QUERY: self.query}
        features |= {name: TEXT for name, column in named.items() if column is not None}
        if self.phrases is not None:
            features[PHRASES] = FEATURE
        if self.summary is not None and self.several_references:
            features[REFERENCES] = List(TEXT)
        if self.from_files:
            features[LEFT_OUT] = dict.fromkeys(COUNTED, Value("int64"))
            features |= {PAGE_STARTS: PAGES} if self.has_pages else {}
        return features | dict.fromkeys(self.counts, Value("int64"))

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into the columns every part of the package knows."""
        if self.source not in row and (self.from_files or is_from_file(row)):
            kinds = (
                "a dialogue, and the others are texts" if "turns" in row else "a text, and the others are dialogues"
            )
            wanted = "give one kind at a time, or set it aside (--set-aside FILE, bad_lines='set_aside')"
            raise BadRecord(f"this file is {kinds}; {wanted}")
        for name in (self.source, self.summary, self.phrases):
            if name is not None:
                get_column(row, name, "; summary_column='' reads no summaries" if name == self.summary else "")
        source = _SOURCES[self.kind](self.source, _decoded(self.source, row[self.source]))
        document: dict[str, Any] = {self.kind: source}
        if self.summary is not None and self.several_references:
            document[REFERENCES] = _references(self.summary, row[self.summary])
            document["summary"] = document[REFERENCES][0]
        elif self.summary is not None:
            document["summary"] = _summary(self.summary, row[self.summary])
        document |= get_id(row, self.id)
        if self.query is not None:
            document[QUERY] = _query(self.query, row.get(self.query))
        if self.from_files:
            left_out = row.get(LEFT_OUT) or {}
            document[LEFT_OUT] = {name: left_out.get(name, 0) for name in COUNTED}
            document |= {PAGE_STARTS: row.get(PAGE_STARTS)} if self.has_pages else {}
        if self.phrases is not None:
            try:
                document[PHRASES] = read_phrases_column(row[self.phrases])
            except ValueError as error:
                raise BadRecord(f"column {self.phrases!r} {error}") from error
            for phrase in document[PHRASES] or ():
                well_formed(self.phrases, phrase["text"] or "")
        return document

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """What `read` gives, without what is to be taken out."""
        document = self.read(row)
        if self.digits is not None:
            document |= {
                name: _without_digits(value, self.digits) for name, value in document.items() if name in WORDED
            }
        if not self.counts:
            return document
        parts = [document["text"]] if self.kind == "text" else document[self.kind]
        cleaned, fillers, dropped = _without_fillers(parts, self.fillers)
        if not cleaned:
            raise BadRecord(f"column {self.source!r} has no words left when the fillers are taken out")
        if (fillers or dropped) and has_places(document.get(PHRASES)):
            moved = "which moves where fillers and turns without words are taken out of the source"
            wanted = "give its words, or a source without these"
            raise BadRecord(f"column {self.phrases!r} has the start and end of a phrase, {moved}; {wanted}")
        document[self.kind] = cleaned[0] if self.kind == "text" else cleaned
        return document | {FILLER_WORDS: fillers, DROPPED_TURNS: dropped}


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def matching(names: Sequence[str], aliases: Sequence[str]) -> list[str]:
    """Find the columns with a known name, whatever their case and hyphens."""
    return [name for name in names if _plain(name) in aliases]


def listing(names: Sequence[str]) -> str:
    """Columns for a message."""
    return ", ".join(repr(name) for name in names)


def _without_fillers(parts: Sequence[Any], fillers: Sequence[str]) -> tuple[list[Any], int, int]:
    """Texts or turns without fillers; how many were taken out, and how many parts were left without words."""
    kept, count = [], 0
    for part in parts:
        text = part["content"] if isinstance(part, dict) else part
        cleaned, removed = remove_fillers(text, fillers) if fillers else (text, 0)
        count += removed
        if (removed and has_words(cleaned)) or (not removed and (text.strip() or not isinstance(part, dict))):
            kept.append({**part, "content": cleaned} if isinstance(part, dict) else cleaned)
    return kept, count, len(parts) - len(kept)


def _without_digits(value: Any, digits: str) -> Any:
    if isinstance(value, str):
        return replace_digits(value, digits)
    if isinstance(value, list):
        return [_without_digits(part, digits) for part in value]
    if isinstance(value, dict):
        return {key: _without_digits(part, digits) for key, part in value.items()}
    return value  # a number of a phrase, or None


def resolve_columns(
    row: Mapping[str, Any],
    text_column: str | None,
    summary_column: str | None,
    source_kind: Kind | None = None,
    fillers: tuple[str, ...] = (),
    phrases_column: str | None = None,
    several_references: bool = False,
    digits: str | None = None,
    query_column: str | None = "",
) -> Columns:
    """Decide which columns hold the source and the summary."""
    names = list(row)
    given = {"text_column": text_column, "summary_column": summary_column, "phrases_column": phrases_column}
    given["query_column"] = query_column
    for argument, name in given.items():
        check_column(argument, name, names)
    if text_column and text_column == summary_column:
        raise ValueError(f"text_column and summary_column are both {text_column!r}; they must differ")
    if text_column is None:
        known = [alias for aliases in SOURCE_ALIASES.values() for alias in aliases]
        found = [name for name in matching(names, known) if name != summary_column]
        found = found or [name for name in matching(names, SECTION_ALIASES) if name != summary_column]
        if len(found) != 1:
            what = f"columns {listing(found)} could all be the source" if found else "no column has a known name"
            what += f"; the columns are {listing(names)}. Pass text_column=… with the one that holds it"
            raise ValueError(f"cannot tell which column holds the source: {what}")
        text_column = found[0]
    if summary_column is None:
        found = [name for name in matching(names, SUMMARY_ALIASES) if name != text_column]
        if len(found) > 1:
            several = f"{listing(found)} could all be it. Pass summary_column=… with one, or '' for none"
            raise ValueError(f"cannot tell which column holds the summary: columns {several}")
        summary_column = found[0] if found else ""
    if several_references and not summary_column:
        wanted = f"the columns are {listing(names)}. Pass summary_column=… with the one that holds them"
        raise ValueError(f"several_references=True, but there is no column with them; {wanted}")
    listed = summary_column and isinstance(row[summary_column], list) and len(row[summary_column]) > 1
    if listed and not several_references:
        # It could also be several references of one document, which are summaries each.
        wanted = "several_references=True takes them for several summaries"
        logger.warning(
            "column %r holds lists: read as the sentences of one summary and joined (%s)", summary_column, wanted
        )
    kind = source_kind or _kind_of(text_column, row[text_column])
    if query_column is None and QUERY not in (text_column, summary_column):
        query_column = QUERY  # also where only later records have it
    settings = (fillers, phrases_column, several_references, digits, query_column or None, is_from_file(row))
    return Columns(text_column, kind, summary_column or None, find_id(row), *settings)


def is_from_file(row: Mapping[str, Any]) -> bool:
    """Tell the record of a document's file, which says what was left out, from one of data."""
    return isinstance(row.get(LEFT_OUT), dict) and set(row[LEFT_OUT]) <= set(COUNTED)


def _kind_of(name: str, value: Any) -> Kind:
    named = next((kind for kind, aliases in SOURCE_ALIASES.items() if _plain(name) in aliases), None)
    value = _decoded(name, value)
    if isinstance(value, str):
        not_blank(name, value, "the source")
        return "turns" if named == "turns" and _starts_with_a_turn(value) else "text"
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return "documents" if named == "documents" else "sentences"
        if _plain(name) in SECTION_ALIASES:
            return "text"
        if all(isinstance(item, list | tuple | dict) for item in value):
            return "turns"
    wanted = "a string, a list of strings (sentences or documents) or a list of turns"
    raise wrong_type(name, value, f'{wanted} ([role, text] pairs or {{"role": …, "content": …}})')


def _decoded(name: str, value: Any) -> Any:
    """A CSV cell can hold a list only as JSON text; undo that where the column's name promises a list."""
    lists = (*SOURCE_ALIASES["sentences"], *SOURCE_ALIASES["turns"], *SOURCE_ALIASES["documents"], *SECTION_ALIASES)
    decoded = from_json(value) if _plain(name) in lists else value
    return decoded if isinstance(decoded, list) else value


def _starts_with_a_turn(text: str) -> bool:
    first = next((line for line in LINE_END.split(text) if line.strip()), "")
    return TURN_LINE.fullmatch(first) is not None


def described(value: Any) -> str:
    """Say of what type a value is, for a message."""
    if isinstance(value, list):
        return f"a list of {', '.join(sorted({type(item).__name__ for item in value}))}" if value else "an empty list"
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def well_formed(name: str, text: str) -> str:
    """Refuse a string that cannot be stored."""
    # isascii is a flag of the string, so most documents are not scanned.
    found = None if text.isascii() else SURROGATE.search(text)
    if found:
        place = f"U+{ord(found[0]):04X} at character {found.start()}"
        raise BadRecord(f"column {name!r} holds an unpaired surrogate ({place}), which cannot be stored as UTF-8")
    return text


def wrong_type(name: str, value: Any, wanted: str) -> BadRecord:
    """Say what a column must hold."""
    return BadRecord(f"column {name!r} must hold {wanted}, got {described(value)}")


def not_blank(name: str, text: str, what: str) -> str:
    """Refuse a string that is empty or all spaces."""
    if not text.strip():
        raise BadRecord(f"column {name!r} is empty: {what} needs at least one character that is not a space")
    return text


def _text(name: str, value: Any) -> str:
    if _plain(name) in SECTION_ALIASES and isinstance(value, list):
        value = "\n\n".join(_section(name, section) for section in value)
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string, as it does in the first record")
    return not_blank(name, well_formed(name, value), "the source")


def _section(name: str, section: Any) -> str:
    if isinstance(section, dict):
        section = [section.get("heading", section.get("title")), section.get("text", section.get("content"))]
    parts = section if isinstance(section, list | tuple) else [section]
    if len(parts) == 2 and isinstance(parts[1], list):
        parts = [parts[0], *parts[1]]
    if not all(part is None or isinstance(part, str) for part in parts):
        raise wrong_type(name, section, "sections that are [heading, text] pairs or strings")
    return "\n".join(part for part in parts if part)


def get_strings(name: str, value: Any, wanted: str = "a list of strings") -> list[str]:
    """A list of strings that can be stored."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise wrong_type(name, value, wanted)
    return [well_formed(name, item) for item in value]


def _strings(name: str, value: Any) -> list[str]:
    strings = get_strings(name, value, "a list of strings, as it does in the first record")
    not_blank(name, "".join(strings), "the source")
    return strings


def _turns(name: str, value: Any) -> list[dict[str, str]]:
    if isinstance(value, str):
        turns = _turns_of_text(name, value)
    elif isinstance(value, list):
        turns = [_turn(name, number, turn) for number, turn in enumerate(value)]
    else:
        raise wrong_type(name, value, "a list of turns, as it does in the first record")
    not_blank(name, "".join(turn["content"] for turn in turns), "the dialogue")
    return turns


def _turn(name: str, number: int, turn: Any) -> dict[str, str]:
    place = f"column {name!r}: turn {number}"
    if isinstance(turn, list | tuple) and len(turn) == 2:
        role, content = turn
    elif isinstance(turn, dict):
        keys = [next((key for key in known if key in turn), None) for known in (ROLE_KEYS, CONTENT_KEYS)]
        for what, key, known in zip(("speaker", "words"), keys, (ROLE_KEYS, CONTENT_KEYS), strict=True):
            if key is None:
                fields = f"{listing(list(turn))}, and none of them is known to hold the {what}"
                raise BadRecord(f"{place} has the fields {fields}; name it {' or '.join(known)}")
        role, content = (turn[key] for key in keys if key is not None)
    else:
        role = content = 0  # no string
    content = "" if content is None else content  # as good as empty: the turn is left out and counted
    if not isinstance(role, str) or not isinstance(content, str):
        wanted = 'a [role, text] pair or {"role": …, "content": …} of strings'
        raise BadRecord(f"{place} must be {wanted}, got {str(turn)[:80]}")
    if not role.strip():
        raise BadRecord(f"{place} has an empty role; name the speaker")
    return {"role": well_formed(name, role), "content": well_formed(name, content)}


def _turns_of_text(name: str, text: str) -> list[dict[str, str]]:
    turns: list[dict[str, str]] = []
    for line in LINE_END.split(well_formed(name, text)):
        match = TURN_LINE.fullmatch(line)
        if match:
            turns.append({"role": match[1], "content": match[2].rstrip()})
        elif turns and line.strip():
            turns[-1]["content"] = f"{turns[-1]['content']}\n{line.strip()}".lstrip()
        elif line.strip():
            raise BadRecord(f"column {name!r} is a dialogue, but its first line has no 'role: ' before the words")
    return turns


def _summary(name: str, value: Any) -> str:
    value = _list_in_json(value)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        value = "\n".join(SENTENCE_TAGS.sub("", sentence) for sentence in value)
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string, or a list of strings that are the sentences of one summary")
    return not_blank(name, well_formed(name, value), "the summary")


def _query(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, value, "a string, or null where nothing is asked")
    return well_formed(name, value) if value and value.strip() else None


def _references(name: str, value: Any) -> list[str]:
    value = _list_in_json(value)
    lines = LINE_END.split(value) if isinstance(value, str) else value
    parts = get_strings(name, lines, "a list of strings, or lines, that are a summary each")
    references = [SENTENCE_TAGS.sub("", part).strip() for part in parts]
    not_blank(name, "".join(references), "the summary")
    return [reference for reference in references if reference]


def _documents(name: str, value: Any) -> list[str]:
    if not isinstance(value, str):
        return _strings(name, value)
    articles = [article.strip() for article in ARTICLE_SEPARATOR.split(well_formed(name, value))]
    not_blank(name, "".join(articles), "the source")
    return [article for article in articles if article]


_SOURCES = {"text": _text, "sentences": _strings, "documents": _documents, "turns": _turns}


# What the formats of other rows need


def check_column(argument: str, given: str | None, names: Sequence[str]) -> None:
    """Refuse a column that was given and is not there."""
    if given and given not in names:
        raise ValueError(f"{argument}={given!r} is not a column; the columns are {listing(names)}")


def first_matching(names: Sequence[str], aliases: Sequence[str]) -> str | None:
    """The first column with a known name, in the order of the known names."""
    return next((name for alias in aliases for name in matching(names, (alias,))), None)


def find_column(
    row: Mapping[str, Any], argument: str, given: str | None, aliases: Sequence[str], taken: Sequence[str] = ()
) -> str:
    """The column that was given, or the one that has a known name: the first in the order of the names."""
    check_column(argument, given, list(row))
    found = given or first_matching([name for name in row if name not in taken], aliases)
    if found is None:
        what = f"{argument.removesuffix('_column')}: none has a known name ({', '.join(aliases)})"
        there = f"the columns are {listing(list(row))}. Name it with {argument}"
        raise ValueError(f"cannot tell which column holds the {what}; {there}")
    return found


def find_id(row: Mapping[str, Any]) -> str | None:
    """The column with the identifier, if there is one."""
    return first_matching(list(row), ID_ALIASES)


def get_column(row: Mapping[str, Any], name: str, advice: str = "") -> Any:
    """A record's value in a column, which has to be there."""
    if name not in row:
        raise BadRecord(f"column {name!r} is missing; this record has {listing(list(row))}{advice}")
    return row[name]


def get_string(row: Mapping[str, Any], name: str, what: str) -> str:
    """A record's string in a column, which must not be blank."""
    value = get_column(row, name)
    if not isinstance(value, str):
        raise wrong_type(name, value, "a string")
    return not_blank(name, well_formed(name, value), what)


def get_id(row: Mapping[str, Any], name: str | None) -> dict[str, str]:
    """A record's identifier as the column `id`, empty where it has none; nothing where there is no such column."""
    if name is None:
        return {}
    value = row.get(name)
    return {"id": "" if value is None else well_formed(name, str(value))}


def _list_in_json(value: Any) -> Any:
    """Give the texts of a CSV cell that holds a list of them; all else as it is, also a text in brackets."""
    found = from_json(value)
    return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else value


def from_json(value: Any) -> Any:
    """What a CSV cell holds as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value

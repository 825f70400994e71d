"""Rows of the tasks of encoders: questions on a context, texts and pairs with a label, questions with options.

Each has a function that recognizes its columns, for `load_rows`, and gives the format that the rows are turned into.
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import List, Value

from .columns import (
    TEXT,
    BadRecord,
    find_column,
    find_id,
    from_json,
    get_column,
    get_id,
    get_string,
    get_strings,
    matching,
    not_blank,
    well_formed,
    wrong_type,
)


CONTEXT_ALIASES = ("context", "passage", "paragraph", "article", "document", "text", "story")
QUESTION_ALIASES = ("question", "query")
ANSWERS_ALIASES = ("answers", "answer")
FIRST_ALIASES = ("premise", "sentence1", "text1", "text_a", "first", "text", "sentence", "review", "content")
SECOND_ALIASES = ("hypothesis", "sentence2", "text2", "text_b", "second")
LABEL_ALIASES = ("label", "gold_label", "labels", "class", "category")
OPTIONS_ALIASES = ("options", "choices", "endings", "candidates")
ANSWER_ALIASES = ("answer", "label", "answerkey", "answer_key", "correct", "gold")

# How public data sets say that nobody agreed on a label, or that it is kept secret.
NO_LABEL = ("-1", "-", "")
LETTERS = string.ascii_uppercase


# Questions whose answer stands in a context


@dataclass(frozen=True)
class QuestionFormat:
    """Columns of questions as in SQuAD, made by `resolve_questions`."""

    question: str  # column with the question
    context: str  # column with the text that the answer stands in
    answers: str | None  # column with the answers, or None where there are none to learn from or to score against
    id: str | None  # column with the identifier, or None

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        features: dict[str, Any] = {"question": TEXT, "context": TEXT}
        if self.answers is not None:
            features["answers"] = {"text": List(TEXT), "answer_start": List(Value("int64"))}
        return features if self.id is None else {"id": TEXT, **features}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `question`, `context`, `answers` and `id`."""
        question = get_string(row, self.question, "the question")
        context = get_string(row, self.context, "the context")
        normalized: dict[str, Any] = {"question": question, "context": context}
        if self.answers is not None:
            pairs = self.given_answers(row)
            starts = [answer_start(self.answers, text, start, context) for text, start in pairs]
            normalized["answers"] = {"text": [text for text, _ in pairs], "answer_start": starts}
        return get_id(row, self.id) | normalized

    def given_answers(self, row: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """Read the answers of a record as they stand there."""
        return [] if self.answers is None else _answers(self.answers, from_json(get_column(row, self.answers)))


def resolve_questions(
    row: Mapping[str, Any],
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
) -> QuestionFormat:
    """Recognize the columns of questions on a context."""
    question = find_column(row, "question_column", question_column, QUESTION_ALIASES)
    context = find_column(row, "context_column", context_column, CONTEXT_ALIASES, (question,))
    answers = None
    if answers_column != "":
        answers = find_column(row, "answers_column", answers_column, ANSWERS_ALIASES, (question, context))
    return QuestionFormat(question, context, answers, find_id(row))


class MisplacedAnswerError(BadRecord):
    """An answer that is not where it is said to be."""


def _answers(name: str, value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list):
            starts = [None] * len(texts) if starts is None else starts
            if not isinstance(starts, list) or len(starts) != len(texts):
                raise BadRecord(f"column {name!r}: text and answer_start must be lists of the same length: {value}")
            return list(zip(texts, starts, strict=True))
    elif isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return [(item.get("text"), item.get("answer_start")) for item in value]
    raise wrong_type(name, value, 'answers as {"text": […], "answer_start": […]}, with empty lists for no answer')


def answer_start(name: str, text: Any, start: Any, context: str) -> int:
    """Find where an answer begins."""
    if not isinstance(text, str) or not text.strip():
        wanted = "a string that is not empty"
        raise BadRecord(f"column {name!r}: an answer must be {wanted}, got {text!r}; no answer is an empty list")
    found, what = context.find(text), f"column {name!r}: the answer {text[:60]!r}"
    if start is None:
        if found < 0:
            raise MisplacedAnswerError(f"{what} is not in the context")
        return found
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRecord(f"column {name!r}: answer_start must be a number of characters, got {start!r}")
    if start < 0 or context[start : start + len(text)] != text:
        hint = f"it is at {found}" if found >= 0 else "it is nowhere in it"
        raise MisplacedAnswerError(f"{what} is not at character {start} of the context; {hint}")
    return start


# Texts, or pairs of texts, with a label


@dataclass(frozen=True)
class PairFormat:
    """Columns of texts with a label, made by `resolve_pairs`."""

    first: str  # column with the text, or the first of two (the premise)
    second: str | None  # column with the second text (the hypothesis), or None for single texts
    label: str | None  # column with the label, or None where there is none
    id: str | None  # column with the identifier, or None
    classes: tuple[str, ...] = ()  # labels in any case, -1 too

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        features = {"id": self.id, "text": self.first, "text_pair": self.second, "label": self.label}
        return {name: TEXT for name, column in features.items() if column is not None}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `text`, `text_pair`, `label` and `id`."""
        normalized: dict[str, Any] = {"text": get_string(row, self.first, "the text")}
        if self.second is not None:
            normalized["text_pair"] = get_string(row, self.second, "the second text")
        if self.label is not None:
            label = _label(self.label, get_column(row, self.label))
            normalized["label"] = None if label in NO_LABEL and label not in self.classes else label
        return get_id(row, self.id) | normalized


def resolve_pairs(
    row: Mapping[str, Any],
    text_column: str | None = None,
    second_column: str | None = None,
    label_column: str | None = None,
    classes: Sequence[str] = (),
) -> PairFormat:
    """Recognize the columns of texts, or pairs of texts, with a label; -1 and - are none, unless they are classes."""
    label = None
    if label_column != "":
        label = find_column(row, "label_column", label_column, LABEL_ALIASES)
    first = find_column(row, "text_column", text_column, FIRST_ALIASES, (label,) if label else ())
    second = None
    if second_column or (second_column is None and matching(list(row), SECOND_ALIASES)):
        second = find_column(row, "second_column", second_column, SECOND_ALIASES, (first,))
    return PairFormat(first, second, label, find_id(row), tuple(classes))


def _label(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_type(name, value, "a label (a string or a whole number)")
    return well_formed(name, str(value)).strip()


# Questions with options


@dataclass(frozen=True)
class ChoiceFormat:
    """Columns of questions with options as in RACE, made by `resolve_choices`."""

    context: str  # column with the text
    question: str  # column with the question
    options: str  # column with the options
    answer: str | None  # column with the right option, or None where there is none
    id: str | None  # column with the identifier, or None
    count: int  # number of options, the same in every row

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        features: dict[str, Any] = {} if self.id is None else {"id": TEXT}
        features |= {"context": TEXT, "question": TEXT, "options": List(TEXT)}
        return features if self.answer is None else {**features, "label": Value("int64")}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `context`, `question`, `options`, `label` and `id`."""
        options = _options(self.options, get_column(row, self.options))
        if len(options) != self.count:
            found = f"{len(options)} options where the first record has {self.count}"
            raise BadRecord(f"column {self.options!r} has {found}")
        named = {"context": self.context, "question": self.question}
        normalized: dict[str, Any] = {name: get_string(row, column, f"the {name}") for name, column in named.items()}
        normalized["options"] = options
        if self.answer is not None:
            normalized["label"] = _choice(self.answer, get_column(row, self.answer), options)
        return get_id(row, self.id) | normalized


def resolve_choices(
    row: Mapping[str, Any],
    context_column: str | None = None,
    question_column: str | None = None,
    options_column: str | None = None,
    answer_column: str | None = None,
) -> ChoiceFormat:
    """Recognize the columns of questions with options."""
    question = find_column(row, "question_column", question_column, QUESTION_ALIASES)
    options = find_column(row, "options_column", options_column, OPTIONS_ALIASES, (question,))
    context = find_column(row, "context_column", context_column, CONTEXT_ALIASES, (question, options))
    answer = None
    if answer_column != "":
        answer = find_column(row, "answer_column", answer_column, ANSWER_ALIASES, (question, options, context))
    count = len(_options(options, row[options]))
    return ChoiceFormat(context, question, options, answer, find_id(row), count)


def _options(name: str, value: Any) -> list[str]:
    wanted = "a list of at least two strings"
    options = get_strings(name, from_json(value), wanted)
    if len(options) < 2:
        raise wrong_type(name, options, wanted)
    return [not_blank(name, option, "an option") for option in options]


def _choice(name: str, value: Any, options: list[str]) -> int:
    number: Any = value
    if isinstance(value, str):
        text, kinds = value.strip(), ("letter", "number")
        if len(text) == 1 and text.upper() in LETTERS:
            number = LETTERS.index(text.upper())
        elif text.isdecimal():
            number, kinds = int(text), ("number", "letter")
        if options.count(value) == 1:
            itself = options.index(value)
            if number != value and number != itself and number < len(options):
                both = f"{value!r} is option {itself}, and the {kinds[0]} of option {number}"
                raise BadRecord(f"column {name!r} is ambiguous: {both}; give the right one's {kinds[1]}")
            number = itself
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(options):
        last, what = len(options) - 1, f"which of the {len(options)} options is right"
        wanted = f"a letter from A to {LETTERS[last]}, a number from 0 to {last} or the option itself"
        raise BadRecord(f"column {name!r} must say {what}: {wanted}, got {value!r}")
    return number

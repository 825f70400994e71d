"""Rows of the tasks of encoders: questions on a context, texts and pairs with a label, questions with options.

Each has a function that recognizes its columns, for `load_rows`, and gives the format that the rows are turned into.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from datasets import List, Value

from .columns import ID_ALIASES, BadRecord, described, listing, matching, not_blank, well_formed


CONTEXT_ALIASES = ("context", "passage", "paragraph", "article", "document", "text", "story")
QUESTION_ALIASES = ("question", "query")
ANSWERS_ALIASES = ("answers", "answer")
FIRST_ALIASES = ("premise", "sentence1", "text1", "text_a", "first", "text", "sentence", "review", "content")
SECOND_ALIASES = ("hypothesis", "sentence2", "text2", "text_b", "second")
LABEL_ALIASES = ("label", "gold_label", "labels", "class", "category")
OPTIONS_ALIASES = ("options", "choices", "endings", "candidates")
ANSWER_ALIASES = ("answer", "label", "answerkey", "answer_key", "correct", "gold")

TEXT = Value("large_string")
# How public data sets say that nobody agreed on a label, or that it is kept secret.
NO_LABEL = ("-1", "-", "")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _find(
    row: Mapping[str, Any],
    what: str,
    argument: str,
    given: str | None,
    aliases: Sequence[str],
    taken: Sequence[str] = (),
) -> str:
    """The column that was given, or the one that has a known name: the first in the order of the names."""
    names = [name for name in row if name not in taken]
    if given:
        if given not in row:
            raise ValueError(f"{argument}={given!r} is not a column; the columns are {listing(list(row))}")
        return given
    found = next((name for alias in aliases for name in matching(names, (alias,))), None)
    if found is None:
        raise ValueError(
            f"cannot tell which column holds {what}: none has a known name ({', '.join(aliases)}); the columns are "
            f"{listing(list(row))}. Name it with {argument}"
        )
    return found


def _find_id(row: Mapping[str, Any]) -> str | None:
    return next((name for alias in ID_ALIASES for name in matching(list(row), (alias,))), None)


def _get(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise BadRecord(f"column {name!r} is missing; this record has {listing(list(row))}")
    return row[name]


def _string(row: Mapping[str, Any], name: str, what: str) -> str:
    value = _get(row, name)
    if not isinstance(value, str):
        raise BadRecord(f"column {name!r} must hold a string, got {described(value)}")
    return not_blank(name, well_formed(name, value), what)


def _identifier(row: Mapping[str, Any], name: str | None) -> dict[str, str]:
    if name is None:
        return {}
    value = _get(row, name)
    return {"id": "" if value is None else well_formed(name, str(value))}


def _from_json(value: Any) -> Any:
    """What a CSV cell holds as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


# Questions whose answer stands in a context


@dataclass(frozen=True)
class QuestionFormat:
    """Columns of questions as in SQuAD, made by `resolve_questions`.

    Args:
        question: Column with the question.
        context: Column with the text that the answer stands in.
        answers: Column with the answers, or None where there are none to learn from or to score against.
        id: Column with the identifier, or None.
    """

    question: str
    context: str
    answers: str | None
    id: str | None

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        features: dict[str, Any] = {"question": TEXT, "context": TEXT}
        if self.answers is not None:
            features["answers"] = {"text": List(TEXT), "answer_start": List(Value("int64"))}
        return features if self.id is None else {"id": TEXT, **features}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `question`, `context`, `answers` and `id`.

        Args:
            row: A record.

        Returns:
            The columns; `answers` holds `text` and `answer_start` (in characters), both empty where there is none.

        Raises:
            BadRecord: If something is missing or of the wrong type, or an answer does not stand where it should.
        """
        question = _string(row, self.question, "the question")
        context = _string(row, self.context, "the context")
        normalized: dict[str, Any] = {"question": question, "context": context}
        if self.answers is not None:
            pairs = self.given_answers(row)
            starts = [answer_start(self.answers, text, start, context) for text, start in pairs]
            normalized["answers"] = {"text": [text for text, _ in pairs], "answer_start": starts}
        return _identifier(row, self.id) | normalized

    def given_answers(self, row: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """Read the answers of a record as they stand there.

        Args:
            row: A record.

        Returns:
            The text of each, and where it begins or None; neither is looked at.

        Raises:
            BadRecord: If they have no known shape.
        """
        return [] if self.answers is None else _answers(self.answers, _from_json(_get(row, self.answers)))


def resolve_questions(
    row: Mapping[str, Any],
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
) -> QuestionFormat:
    """Recognize the columns of questions on a context.

    Args:
        row: A record.
        question_column: Column with the question; None to recognize it by its name.
        context_column: Column with the context; None to recognize it by its name.
        answers_column: Column with the answers, as in SQuAD: `{"text": […], "answer_start": […]}`, or a list of
            `{"text": …, "answer_start": …}`; empty for a question without an answer. None to recognize it by its
            name, "" for none.

    Returns:
        The format.

    Raises:
        ValueError: If a column is not there or none has a known name.
    """
    question = _find(row, "the question", "question_column", question_column, QUESTION_ALIASES)
    context = _find(row, "the context", "context_column", context_column, CONTEXT_ALIASES, (question,))
    answers = None
    if answers_column != "":
        answers = _find(row, "the answers", "answers_column", answers_column, ANSWERS_ALIASES, (question, context))
    return QuestionFormat(question, context, answers, _find_id(row))


class MisplacedAnswerError(BadRecord):
    """An answer that is not where it is said to be."""


def _answers(name: str, value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if not isinstance(texts, list):
            _no_answers(name, value)
        if starts is None:
            starts = [None] * len(texts)
        if not isinstance(starts, list) or len(starts) != len(texts):
            raise BadRecord(f"column {name!r}: text and answer_start must be lists of the same length, got {value}")
        return list(zip(texts, starts, strict=True))
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return [(item.get("text"), item.get("answer_start")) for item in value]
    _no_answers(name, value)


def _no_answers(name: str, value: Any) -> NoReturn:
    raise BadRecord(
        f'column {name!r} must hold answers as {{"text": […], "answer_start": […]}}, with empty lists for no answer, '
        f"got {described(value)}"
    )


def answer_start(name: str, text: Any, start: Any, context: str) -> int:
    """Find where an answer begins.

    Args:
        name: The column, for messages.
        text: The answer.
        start: Where it is said to begin, in characters; None for the first place where it stands.
        context: The text that it stands in.

    Returns:
        Where it begins.

    Raises:
        MisplacedAnswerError: If it is not there.
        BadRecord: If it is no text, or `start` no number.
    """
    if not isinstance(text, str) or not text.strip():
        raise BadRecord(
            f"column {name!r}: an answer must be a string that is not empty, got {text!r}; no answer is an empty list"
        )
    if start is None:
        start = context.find(text)
        if start < 0:
            raise MisplacedAnswerError(f"column {name!r}: the answer {text[:60]!r} is not in the context")
        return int(start)
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRecord(f"column {name!r}: answer_start must be a number of characters, got {start!r}")
    if start < 0 or context[start : start + len(text)] != text:
        elsewhere = context.find(text)
        hint = f"it is at {elsewhere}" if elsewhere >= 0 else "it is nowhere in it"
        raise MisplacedAnswerError(
            f"column {name!r}: the answer {text[:60]!r} is not at character {start} of the context; {hint}"
        )
    return int(start)


# Texts, or pairs of texts, with a label


@dataclass(frozen=True)
class PairFormat:
    """Columns of texts with a label, made by `resolve_pairs`.

    Args:
        first: Column with the text, or the first of two (the premise).
        second: Column with the second text (the hypothesis), or None for single texts.
        label: Column with the label, or None where there is none.
        id: Column with the identifier, or None.
    """

    first: str
    second: str | None
    label: str | None
    id: str | None

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        features = {"id": self.id, "text": self.first, "text_pair": self.second, "label": self.label}
        return {name: TEXT for name, column in features.items() if column is not None}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `text`, `text_pair`, `label` and `id`.

        Args:
            row: A record.

        Returns:
            The columns, where there are any; the label as a string (a number by its digits), or None where the data
            say that it has none (-1, or - in MNLI's own files).

        Raises:
            BadRecord: If something is missing or of the wrong type.
        """
        normalized: dict[str, Any] = {"text": _string(row, self.first, "the text")}
        if self.second is not None:
            normalized["text_pair"] = _string(row, self.second, "the second text")
        if self.label is not None:
            normalized["label"] = _label(self.label, _get(row, self.label))
        return _identifier(row, self.id) | normalized


def resolve_pairs(
    row: Mapping[str, Any],
    text_column: str | None = None,
    second_column: str | None = None,
    label_column: str | None = None,
) -> PairFormat:
    """Recognize the columns of texts, or pairs of texts, with a label.

    Args:
        row: A record.
        text_column: Column with the text or the first of two; None to recognize it by its name.
        second_column: Column with the second text; None to recognize it by its name if it is there, "" for none.
        label_column: Column with the label; None to recognize it by its name, "" for none.

    Returns:
        The format.

    Raises:
        ValueError: If a column is not there or none has a known name.
    """
    label = None
    if label_column != "":
        label = _find(row, "the label", "label_column", label_column, LABEL_ALIASES)
    first = _find(row, "the text", "text_column", text_column, FIRST_ALIASES, (label,) if label else ())
    second = None
    if second_column or (second_column is None and matching(list(row), SECOND_ALIASES)):
        second = _find(row, "the second text", "second_column", second_column, SECOND_ALIASES, (first,))
    return PairFormat(first, second, label, _find_id(row))


def _label(name: str, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadRecord(f"column {name!r} must hold a label (a string or a whole number), got {described(value)}")
    label = well_formed(name, str(value)).strip()
    return None if label in NO_LABEL else label


# Questions with options


@dataclass(frozen=True)
class ChoiceFormat:
    """Columns of questions with options as in RACE, made by `resolve_choices`.

    Args:
        context: Column with the text.
        question: Column with the question.
        options: Column with the options.
        answer: Column with the right option, or None where there is none.
        id: Column with the identifier, or None.
        count: Number of options, the same in every row.
    """

    context: str
    question: str
    options: str
    answer: str | None
    id: str | None
    count: int

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        features: dict[str, Any] = {} if self.id is None else {"id": TEXT}
        features |= {"context": TEXT, "question": TEXT, "options": List(TEXT)}
        return features if self.answer is None else {**features, "label": Value("int64")}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into `context`, `question`, `options`, `label` and `id`.

        Args:
            row: A record.

        Returns:
            The columns; `label` is the number of the right option, from 0.

        Raises:
            BadRecord: If something is missing or of the wrong type, or the answer is none of the options.
        """
        options = _options(self.options, _get(row, self.options))
        if len(options) != self.count:
            raise BadRecord(
                f"column {self.options!r} has {len(options)} options where the first record has {self.count}"
            )
        normalized: dict[str, Any] = {
            "context": _string(row, self.context, "the text"),
            "question": _string(row, self.question, "the question"),
            "options": options,
        }
        if self.answer is not None:
            normalized["label"] = _choice(self.answer, _get(row, self.answer), options)
        return _identifier(row, self.id) | normalized


def resolve_choices(
    row: Mapping[str, Any],
    context_column: str | None = None,
    question_column: str | None = None,
    options_column: str | None = None,
    answer_column: str | None = None,
) -> ChoiceFormat:
    """Recognize the columns of questions with options.

    Args:
        row: A record.
        context_column: Column with the text; None to recognize it by its name.
        question_column: Column with the question; None to recognize it by its name.
        options_column: Column with the options, a list of strings; None to recognize it by its name.
        answer_column: Column with the right one: its letter (A is the first), its number from 0, or its text. None to
            recognize it by its name, "" for none.

    Returns:
        The format.

    Raises:
        ValueError: If a column is not there or none has a known name.
        BadRecord: If the options are no list of strings.
    """
    question = _find(row, "the question", "question_column", question_column, QUESTION_ALIASES)
    options = _find(row, "the options", "options_column", options_column, OPTIONS_ALIASES, (question,))
    context = _find(row, "the text", "context_column", context_column, CONTEXT_ALIASES, (question, options))
    answer = None
    if answer_column != "":
        taken = (question, options, context)
        answer = _find(row, "the right option", "answer_column", answer_column, ANSWER_ALIASES, taken)
    count = len(_options(options, row[options]))
    return ChoiceFormat(context, question, options, answer, _find_id(row), count)


def _options(name: str, value: Any) -> list[str]:
    value = _from_json(value)
    if not isinstance(value, list) or not all(isinstance(option, str) for option in value) or len(value) < 2:
        raise BadRecord(f"column {name!r} must hold a list of at least two strings, got {described(value)}")
    return [not_blank(name, well_formed(name, option), "an option") for option in value]


def _choice(name: str, value: Any, options: list[str]) -> int:
    number: Any = value
    if isinstance(value, str):
        text = value.strip()
        if len(text) == 1 and text.upper() in LETTERS:
            number = LETTERS.index(text.upper())
        elif text.isdecimal():
            number = int(text)
        elif options.count(value) == 1:
            number = options.index(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(options):
        raise BadRecord(
            f"column {name!r} must say which of the {len(options)} options is right: a letter from A to "
            f"{LETTERS[len(options) - 1]}, a number from 0 to {len(options) - 1} or the option itself, got {value!r}"
        )
    return number

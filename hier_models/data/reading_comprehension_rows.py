"""Questions on one context or on several documents: rows of SQuAD, MS MARCO and DuReader as one format.

Every row becomes `question`, `documents` (one for SQuAD), `references` (all answers, to score against), `answers`, the
one span to learn from, in characters of the documents joined by a newline each, and `misplaced_answers`, how many of
SQuAD's form are not where they are said to be. Where data have free answers and no span, as in MS MARCO, the span of
the documents that shares most with an answer stands in.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import List, Value

from .columns import (
    ID_ALIASES,
    TEXT,
    BadRecord,
    check_column,
    first_matching,
    get_column,
    get_id,
    get_string,
    get_strings,
    wrong_type,
)
from .task_rows import MisplacedAnswerError, answer_start, resolve_questions


FEATURES = {
    "question": TEXT,
    "documents": List(TEXT),
    "references": List(TEXT),
    "answers": {"text": List(TEXT), "answer_start": List(Value("int64"))},
    "misplaced_answers": Value("int64"),
}
# How MS MARCO says that nothing answers the question.
NO_ANSWER = ("No Answer Present.", "")
# Words of the longest span that is looked at in the place of a free answer, and the least F1 that makes it one.
MAX_SPAN, MIN_F1 = 50, 0.3
SEPARATOR = "\n"


@dataclass(frozen=True)
class ReadingFormat:
    """Columns of questions on documents, made by `resolve_reading`."""

    kind: str  # "squad", "dureader" or "ms_marco"
    question: str  # column with the question
    context: str  # column with the context, or with the documents
    answers: str  # column with the answers
    id: str | None  # column with the identifier, or None
    named_paragraphs: bool = True  # whether the paragraphs are read that DuReader's data name

    @property
    def features(self) -> dict[str, Any]:
        """Column -> feature of the datasets library."""
        return FEATURES if self.id is None else {"id": TEXT, **FEATURES}

    def normalize(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Turn a record into the columns of this module's rows."""
        return {**get_id(row, self.id), "misplaced_answers": 0, **_READ[self.kind](self, row)}


def resolve_reading(
    row: Mapping[str, Any],
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
    named_paragraphs: bool = True,
) -> ReadingFormat:
    """Recognize the columns of questions on one context or several documents."""
    identifier = first_matching(list(row), (*ID_ALIASES, "question_id"))
    for name in [context_column] if context_column else list(row):
        kind = _kind(row.get(name))
        if kind is not None:
            question = question_column or next((q for q in ("question", "query") if q in row), "question")
            answers = answers_column or "answers"
            check_column("question_column", question, list(row))
            check_column("answers_column", answers, list(row))
            return ReadingFormat(kind, question, name, answers, identifier, named_paragraphs)
    if answers_column == "":
        raise ValueError("answers_column must name the answers, which a reader learns from; got none")
    plain = resolve_questions(row, question_column, context_column, answers_column)
    return ReadingFormat("squad", plain.question, plain.context, plain.answers or "answers", plain.id)


def _kind(value: Any) -> str | None:
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, Mapping):
        return None
    if first is not value and "segmented_paragraphs" in first:
        return "dureader"
    return "ms_marco" if "passage_text" in first else None


def _read_squad(form: ReadingFormat, row: Mapping[str, Any]) -> dict[str, Any]:
    """SQuAD and what has its form; of an answer in a wrong place, as CMRC 2018 has some, the text is a reference."""
    resolved = resolve_questions(row, form.question, form.context, form.answers)
    plain = dataclasses.replace(resolved, answers=None).normalize(row)
    given = resolved.given_answers(row)
    placed: list[tuple[str, int]] = []
    problems = []
    for text, start in given:
        try:
            placed.append((text, answer_start(form.answers, text, start, plain["context"])))
        except MisplacedAnswerError as problem:
            problems.append(problem)
    if problems and not placed:
        raise problems[0]
    return {
        "question": plain["question"],
        "documents": [plain["context"]],
        "references": [text for text, _ in given],
        "answers": {"text": [text for text, _ in placed[:1]], "answer_start": [start for _, start in placed[:1]]},
        "misplaced_answers": len(problems),
    }


def _read_marco(form: ReadingFormat, row: Mapping[str, Any]) -> dict[str, Any]:
    passages = get_column(row, form.context)
    if _has_mappings(passages):
        passages = {"passage_text": [passage.get("passage_text") for passage in passages]}
    if not isinstance(passages, Mapping) or "passage_text" not in passages:
        raise wrong_type(form.context, passages, "passages with passage_text")
    documents = [text for text in get_strings(form.context, passages["passage_text"] or []) if text.strip()]
    if not documents:
        raise BadRecord(f"column {form.context!r} has no passage with text")
    answers = get_strings(form.answers, get_column(row, form.answers) or [])
    references = [text for text in answers if text.strip() not in NO_ANSWER]
    return _with_nearest_span(get_string(row, form.question, "the question"), documents, references)


def _has_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _read_dureader(form: ReadingFormat, row: Mapping[str, Any]) -> dict[str, Any]:
    """DuReader, preprocessed or raw: of each document the paragraph that is nearest to the answers or the question."""
    question = row.get("segmented_question")
    if isinstance(question, list):
        words = get_strings("segmented_question", question)
    else:
        words = get_string(row, form.question, "the question").split()
    references = [text for text in get_strings(form.answers, row.get(form.answers) or []) if text.strip()]
    chosen: list[list[str]] = []
    places: dict[int, int] = {}  # number of a document in the data -> here
    if not _has_mappings(given := get_column(row, form.context)):
        raise wrong_type(form.context, given, "a list of documents with segmented_paragraphs")
    for number, document in enumerate(given):
        paragraphs = [get_strings(form.context, p or []) for p in _list(document, "segmented_paragraphs")]
        if not any(paragraphs):
            continue
        named = document.get("most_related_para") if form.named_paragraphs else None
        if isinstance(named, int) and 0 <= named < len(paragraphs):
            paragraph = paragraphs[named]
        else:
            paragraph = max(filter(None, paragraphs), key=lambda tokens: (_recall(tokens, words), -len(tokens)))
        places[number] = len(chosen)
        chosen.append(paragraph)
    documents = [" ".join(tokens) for tokens in chosen]
    if not any(text.strip() for text in documents):
        raise BadRecord(f"column {form.context!r} has no document with text")
    spans, of_documents = list[Any](), list[int]()
    if form.named_paragraphs:
        spans, of_documents = _list(row, "answer_spans"), _numbers("answer_docs", _list(row, "answer_docs")[:1])
    asked = " ".join(words)
    if not spans or not of_documents or of_documents[0] not in places:
        answers = row.get("segmented_answers")
        if not isinstance(answers, list):
            answers = []
        spaced = [" ".join(get_strings("segmented_answers", tokens)) for tokens in answers]
        return _with_nearest_span(asked, documents, references, spaced)
    number, span = places[of_documents[0]], _numbers("answer_spans", spans[0])
    if len(span) != 2:
        raise BadRecord(f"answer_spans: must be the first and the last word of an answer, got {span}")
    (first, last), tokens = span, chosen[number]
    if not 0 <= first <= last < len(tokens):
        raise BadRecord(f"answer_spans: {first} to {last} is outside of the document's {len(tokens)} words")
    start = sum(len(text) + len(SEPARATOR) for text in documents[:number])
    start += sum(len(token) + 1 for token in tokens[:first])
    answers = {"text": [" ".join(tokens[first : last + 1])], "answer_start": [start]}
    return {"question": asked, "documents": documents, "references": references, "answers": answers}


def _list(row: Mapping[str, Any], name: str) -> list[Any]:
    value = row.get(name)
    if value is not None and not isinstance(value, list):
        raise wrong_type(name, value, "a list")
    return value or []


def _numbers(name: str, value: Any) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(n, int | float) and n == n // 1 for n in value):
        raise wrong_type(name, value, "whole numbers")
    return [int(number) for number in value]


def _recall(tokens: Sequence[str], words: Sequence[str]) -> float:
    return (Counter(tokens) & Counter(words)).total() / max(1, len(words))


def _with_nearest_span(
    question: str, documents: list[str], references: list[str], spaced: list[str] | None = None
) -> dict[str, Any]:
    found = nearest_span(documents, spaced or references)
    text, start = ([], []) if found is None else ([found[0]], [found[1]])
    answers = {"text": text, "answer_start": start}
    return {"question": question, "documents": documents, "references": references, "answers": answers}


def nearest_span(documents: Sequence[str], references: Sequence[str]) -> tuple[str, int] | None:
    """Find the span of documents whose words share most with an answer, as DuReader's authors make labels."""
    best: tuple[float, int, str, int] | None = None
    shift = 0
    wanted = [Counter(map(_word, reference.split())) for reference in references]
    for document in documents:
        places, at = [], 0
        for token in document.split():
            at = document.index(token, at)
            places.append((at, at + len(token)))
            at += len(token)
        words = [_word(document[a:b]) for a, b in places]
        for want in wanted:
            total = want.total()
            for first, word in enumerate(words):
                if word not in want:  # a best span begins and ends with a word of the answer
                    continue
                left, shared = want.copy(), 0
                for last in range(first, min(len(words), first + MAX_SPAN)):
                    if left[words[last]] <= 0:
                        continue
                    left[words[last]] -= 1
                    shared += 1
                    length = last + 1 - first
                    score = 2 * shared / (length + total)
                    if best is None or (score, -length) > best[:2]:
                        a, b = places[first][0], places[last][1]
                        best = (score, -length, document[a:b], shift + a)
        shift += len(document) + len(SEPARATOR)
    return None if best is None or best[0] < MIN_F1 else (best[2], best[3])


def _word(word: str) -> str:
    return word.lower().strip(".,;:!?\"'()[]") or word


_READ = {"squad": _read_squad, "ms_marco": _read_marco, "dureader": _read_dureader}

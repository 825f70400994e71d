"""Questions on a context: windows with the answer's place, and answers from what the model makes of them.

In the order the data flow: windows over contexts that are too long for one, the place of the answer in each, and,
after the model, the best spans over all windows of a question as text of the context, or no answer.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from ..models.processing_ham_reader import first_answer
from ..pipelines.reading_comprehension_hier import top_spans
from .cache_fingerprint import Versioned
from .shared_counts import Counting, SharedCounts
from .tokenizing import plain_tokenizer


logger = logging.getLogger(__name__)

EXAMPLE = "example_index"  # which row of the data set a window is of
SPANS = "context_spans"  # (start, end) of each token in characters of the context, OUTSIDE for all other tokens
OUTSIDE = (-1, -1)
Array = np.ndarray[Any, Any]

# Columns of windows that are summed for the report, and taken away.
COUNTS = ("questions", "unanswerable", "lost_answers", "cut_questions")

QUESTIONS_IN_MEMORY = 100


class QuestionReport(SharedCounts):
    """What became of the `questions`, over all that were tokenized, and of the `windows` made of them.

    `unanswerable` have no answer; `windows_without_answer` do not hold that of their question, or there is none;
    `lost_answers` are held whole by no window; `cut_questions` were longer than `max_question_length`.
    """

    NAMES = ("questions", "windows", "unanswerable", "windows_without_answer", "lost_answers", "cut_questions")

    def __str__(self) -> str:
        """One line for a log."""
        parts = [f"{self.questions} questions ({self.unanswerable} without an answer) in {self.windows} windows"]
        if self.lost_answers:
            parts.append(f"{self.lost_answers} answers are longer than what windows share, and no window holds them")
        if self.cut_questions:
            parts.append(f"{self.cut_questions} questions were cut to max_question_length")
        return "; ".join(parts)


# --------------------------------------------------------------------------------------------- windows with the answer


@dataclass
class _Windows:
    """Maps a batch of questions to windows; holds only what decides the result, since datasets hashes it."""

    processor: Any
    max_length: int
    stride: int
    max_question_length: int
    spans: bool

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        questions, cut = self._questions(batch["question"])
        encoded = self.processor(
            text=questions,
            text_pair=batch["context"],
            truncation="only_second",
            max_length=self.max_length,
            stride=self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        samples = encoded["overflow_to_sample_mapping"]
        names = plain_tokenizer(self.processor).model_input_names  # BERT's tell the question from the context
        columns: dict[str, list[Any]] = {name: encoded[name] for name in names if name in encoded}
        columns[EXAMPLE] = [indices[sample] for sample in samples]
        rows = zip(encoded["offset_mapping"], map(encoded.sequence_ids, range(len(samples))), strict=True)
        spans = [[span if part == 1 else OUTSIDE for span, part in zip(*row, strict=True)] for row in rows]
        if self.spans:
            columns[SPANS] = spans
        unanswerable = lost = [0] * len(cut)
        if "answers" in batch:
            answers = [
                _first_answer(f"answers[{indices[i]}]", answer, context)
                for i, (answer, context) in enumerate(zip(batch["answers"], batch["context"], strict=True))
            ]
            places = [_place(row, answers[sample]) for row, sample in zip(spans, samples, strict=True)]
            columns["start_positions"] = [start for start, _ in places]
            columns["end_positions"] = [end for _, end in places]
            held = {sample for sample, (_, end) in zip(samples, places, strict=True) if end > 0}
            unanswerable = [int(answer is None) for answer in answers]
            lost = [int(answer is not None and i not in held) for i, answer in enumerate(answers)]
        # The counts stand in the first window of each question.
        is_first = [w == 0 or samples[w - 1] != sample for w, sample in enumerate(samples)]
        for name, counts in zip(COUNTS, ([1] * len(cut), unanswerable, lost, cut), strict=True):
            columns[name] = [counts[sample] * first for sample, first in zip(samples, is_first, strict=True)]
        return columns

    def _questions(self, questions: list[str]) -> tuple[list[str], list[int]]:
        """Cut the questions that are too long; say which."""
        questions = [question.strip() for question in questions]
        encoded = self.processor(
            text=questions,
            truncation=True,
            max_length=self.max_question_length,
            return_offsets_mapping=True,
            return_overflowing_tokens=True,  # so that a question that is too long has several rows
        )
        samples = encoded["overflow_to_sample_mapping"]
        cut = [int(samples.count(i) > 1) for i in range(len(questions))]
        rows = zip(questions, cut, (encoded["offset_mapping"][samples.index(i)] for i in range(len(cut))), strict=True)
        return [text[: max(end for _, end in offsets)] if lost else text for text, lost, offsets in rows], cut


def _first_answer(name: str, answers: Mapping[str, Any] | None, context: str) -> tuple[int, int] | None:
    """The characters of the first answer without white space around it; None if there is none."""
    if (found := first_answer(name, answers)) is None:
        return None
    text, start = found
    if context[start : start + len(text)] != text:
        place = f"answer_start={start} of its context, where {context[start : start + len(text)][:60]!r} is"
        hint = "Offsets count characters, not bytes; mend or drop it"
        raise ValueError(f"`{name}`: the answer {text[:60]!r} does not stand at {place}. {hint}")
    stripped = text.strip()
    if not stripped:
        raise ValueError(f"`{name}`: the answer is empty; a question without an answer has an empty list of answers")
    start += len(text) - len(text.lstrip())
    return start, start + len(stripped)


def _place(spans: Sequence[tuple[int, int]], answer: tuple[int, int] | None) -> tuple[int, int]:
    """The first and last token of the answer in a window; the first marker, twice, if it is not there whole."""
    if answer is None:
        return 0, 0
    tokens = [i for i, span in enumerate(spans) if span != OUTSIDE]
    if not tokens or spans[tokens[0]][0] > answer[0] or spans[tokens[-1]][1] < answer[1]:
        return 0, 0
    first = bisect_right(tokens, answer[0], key=lambda i: spans[i][1])  # the first that ends after the answer begins
    last = bisect_left(tokens, answer[1], key=lambda i: spans[i][0]) - 1  # the last that begins before it ends
    return (tokens[first], tokens[last]) if first <= last else (0, 0)


def _count(report: QuestionReport, columns: dict[str, Any], *_: Any) -> None:
    """Count some windows, and take the counts away."""
    without = sum(end == 0 for end in columns.get("end_positions", ()))
    sums = {name: sum(columns.pop(name)) for name in COUNTS}
    report.add(windows=len(columns[EXAMPLE]), windows_without_answer=without, **sums)


def tokenize_questions(
    dataset: Dataset | IterableDataset,
    processor: ProcessorMixin | PreTrainedTokenizerBase,
    *,
    max_length: int = 512,
    stride: int = 128,
    max_question_length: int = 64,
    return_spans: bool = True,
    num_proc: int | None = None,
    report: QuestionReport | None = None,
) -> Dataset | IterableDataset:
    """Turn questions on contexts into model inputs, a window `question </s></s> part of the context` each.

    A context that is too long for one window gets several, which overlap. The answer's place is marked in the windows
    that hold it whole; in all others, and where there is no answer, start and end are the first marker (0), as SQuAD
    2.0 has it. Everything that does not fit is counted in `report`, which is logged at the end.

    Args:
        dataset: Rows with `question` and `context`, and perhaps `answers` as in SQuAD, `{"text": […],
            "answer_start": […]}` in characters, with empty lists for no answer. The first answer counts.
        processor: The encoder's processor or tokenizer, or that of a model without hierarchy; it pads on the right.
        max_length: Tokens of a window, markers included.
        stride: Tokens of the context that neighboring windows share. No answer of up to so many tokens is lost.
        max_question_length: Tokens of a question, markers included; a longer one is cut and counted.
        return_spans: Whether to keep what `find_answers` needs; training does without.
        num_proc: Processes to use; None for one. A streamed dataset ignores it.
        report: Is given the counts, if passed.

    Returns:
        A dataset of windows with the tokenizer's inputs (`input_ids`, `attention_mask`, of BERT's also
        `token_type_ids`), `example_index` (the row of its question), with answers `start_positions` and
        `end_positions` (tokens), and with `return_spans` `context_spans`: (start, end) of each token in characters of
        the context, (-1, -1) for tokens of the question, markers and separators.

    Raises:
        ValueError: If there are no rows, a column is missing, an answer does not stand where it should, a length
            leaves no room, or the tokenizer pads on the left.
    """
    report = QuestionReport() if report is None else report
    columns = dataset.column_names or list(next(iter(dataset), {}))
    if not columns or (isinstance(dataset, Dataset) and not len(dataset)):
        raise ValueError("`dataset` has no rows")
    if not {"question", "context"} <= set(columns):
        raise ValueError(f"dataset must have the columns question and context, got {', '.join(columns)}")
    if max_question_length < 3 or max_length < max_question_length + 4:
        wanted = "max_question_length must be at least 3, and max_length at least 4 more for separators and a context"
        raise ValueError(f"{wanted}; got {max_question_length=} and {max_length=}")
    tokenizer = plain_tokenizer(processor)
    between = tokenizer.num_special_tokens_to_add(pair=True) - tokenizer.num_special_tokens_to_add()
    room = max_length - max_question_length - between  # for the context, beside the longest question
    if not 0 <= stride < room:
        left = f"what {max_length=} leaves beside {max_question_length=} and {between} separators"
        raise ValueError(f"`stride` must be an integer from 0 to below {room}, {left}; got {stride}")
    if tokenizer.padding_side != "right":
        raise ValueError("processor: its tokenizer must pad on the right, since positions count from the left")
    windows = _Windows(processor, max_length, stride, max_question_length, return_spans)
    options: dict[str, Any] = {"batched": True, "batch_size": QUESTIONS_IN_MEMORY, "remove_columns": columns}
    options["with_indices"] = True
    if isinstance(dataset, IterableDataset):
        return dataset.map(Counting(windows, partial(_count, report)), **options)
    tokenized = dataset.map(Versioned(windows), num_proc=num_proc, desc="Tokenizing", **options)
    counted = [name for name in tokenized.column_names if name not in (*tokenizer.model_input_names, SPANS)]
    _count(report, {name: tokenized[name] for name in counted})
    logger.log(logging.WARNING if report.lost_answers or report.cut_questions else logging.INFO, "%s", report)
    return tokenized.remove_columns(list(COUNTS))


# --------------------------------------------------------------------------------------------- answers from the logits


@dataclass(frozen=True)
class Answer:
    """A candidate answer.

    Args:
        text: The answer, character by character as in the context; empty for no answer.
        start: Its first character in the context; None for no answer.
        end: The character after its last; None for no answer.
        score: Start logit plus end logit.
        probability: Softmax of the scores of all candidates that are given.
    """

    text: str
    start: int | None
    end: int | None
    score: float
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What was found for a question.

    Args:
        text: The answer; empty for no answer.
        no_answer_score: Score of no answer minus score of the best answer: above the threshold, there is no answer. It
            is infinite where the context has no token.
        n_best: The candidates, best first; with a threshold, no answer is one of them.
    """

    text: str
    no_answer_score: float
    n_best: list[Answer]


def find_answers(
    contexts: Sequence[str],
    windows: Dataset | Mapping[str, Sequence[Any]],
    start_logits: Any,
    end_logits: Any,
    *,
    n_best: int = 20,
    max_answer_length: int = 30,
    null_threshold: float | None = 0.0,
) -> list[Prediction]:
    """Find the best answers to questions from the model's logits over all their windows.

    A span of a window scores start logit plus end logit. All spans up to `max_answer_length` compete, not only those
    of the best starts and ends. A span that several windows hold counts once, with its best score. No answer scores as
    the first marker does, in the window where that is least.

    Args:
        contexts: The context of each question.
        windows: What `tokenize_questions` made of them, with `example_index` and `context_spans`.
        start_logits: (windows, tokens), padded on the right at will.
        end_logits: The same for ends.
        n_best: Candidates to give per question.
        max_answer_length: Tokens that an answer may have, markers between its sentences included.
        null_threshold: The prediction is no answer where that scores more than this above the best answer. None for
            data in which every question has an answer.

    Returns:
        A prediction for each question.

    Raises:
        ValueError: If logits and windows do not match, a logit is not a number, a question has no window, or a number
            is not positive.
    """
    for name, value in (("n_best", n_best), ("max_answer_length", max_answer_length)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}")
    starts, ends = _logits("start_logits", start_logits), _logits("end_logits", end_logits)
    names = windows.column_names if isinstance(windows, Dataset) else list(windows)
    if EXAMPLE not in names or SPANS not in names:
        raise ValueError(f"`windows` must have {EXAMPLE} and {SPANS} (return_spans=True), got {', '.join(names)}")
    examples = list(windows[EXAMPLE])
    if not len(examples) == len(starts) == len(ends):
        wanted = f"a row for each of the {len(examples)} windows"
        raise ValueError(f"`start_logits` and `end_logits` must have {wanted}, got {len(starts)} and {len(ends)}")
    spans: list[dict[tuple[int, int], float]] = [{} for _ in contexts]
    nulls = [np.inf] * len(contexts)
    for example, window, start, end in zip(examples, windows[SPANS], starts, ends, strict=True):
        if not 0 <= example < len(contexts):
            raise ValueError(f"`windows` has a window of question {example}, and there are {len(contexts)} contexts")
        if len(window) > len(start) or len(window) > len(end):
            raise ValueError(f"a window of question {example} has {len(window)} tokens, and logits for {len(start)}")
        start, end = start[: len(window)], end[: len(window)]
        if not (np.isfinite(start).all() and np.isfinite(end).all()):
            raise ValueError(f"the logits of a window of question {example} are not all finite numbers")
        nulls[example] = min(nulls[example], float(start[0] + end[0]))
        for span, score in _best_spans(window, start, end, n_best, max_answer_length, contexts[example]).items():
            spans[example][span] = max(score, spans[example].get(span, -np.inf))
    missing = [i for i, null in enumerate(nulls) if null == np.inf]
    if missing:
        raise ValueError(f"`windows` has no window of question {missing[0]}; were rows of it filtered out?")
    return [
        _predict(context, found, null, n_best, null_threshold)
        for context, found, null in zip(contexts, spans, nulls, strict=True)
    ]


def _logits(name: str, values: Any) -> Array:
    array = np.asarray(values.detach().float().cpu() if hasattr(values, "cpu") else values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"`{name}` must have the shape (windows, tokens), got {array.shape}")
    return array


def _best_spans(
    window: Sequence[Sequence[int]], start: Array, end: Array, n_best: int, max_length: int, context: str
) -> dict[tuple[int, int], float]:
    """The best spans of a window in characters, with their scores."""
    offsets = np.asarray(window, dtype=np.int64).reshape(-1, 2)
    allowed = np.array([a >= 0 and bool(context[a:b].strip()) for a, b in offsets.tolist()], dtype=bool)
    first, last = (np.where(allowed, logits, -np.inf) for logits in (start, end))
    found: dict[tuple[int, int], float] = {}
    # The tokens of one letter (up to 4 bytes) give the same span: up to 16 times.
    for i, j, score in top_spans(first, last, 16 * n_best, max_length):
        a, b = int(offsets[i, 0]), int(offsets[j, 1])
        text = context[a:b]
        b -= len(text) - len(text.rstrip())
        a += len(text) - len(text.lstrip())
        found[a, b] = max(score, found.get((a, b), -np.inf))
    return found


def _predict(
    context: str, found: Mapping[tuple[int, int], float], null: float, n_best: int, null_threshold: float | None
) -> Prediction:
    """Order the candidates of a question and decide."""
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:n_best]
    candidates: list[tuple[Any, Any, Any, float]] = [(context[a:b], a, b, score) for (a, b), score in ranked]
    difference = null - candidates[0][3] if candidates else np.inf
    if null_threshold is not None or not candidates:
        candidates = sorted([*candidates, ("", None, None, null)], key=lambda item: -item[3])
    scores = np.array([candidate[3] for candidate in candidates])
    weights = np.exp(scores - scores.max())
    probabilities = (weights / weights.sum()).tolist()
    answers = [Answer(*candidate, weight) for candidate, weight in zip(candidates, probabilities, strict=True)]
    no_answer = not ranked or (null_threshold is not None and difference > null_threshold)
    text = "" if no_answer else context[slice(*ranked[0][0])]
    return Prediction(text, float(difference), answers)

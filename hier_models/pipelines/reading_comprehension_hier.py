"""The reading-comprehension pipeline: a question and its context in, answers out, as spans of the context."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from .document_pipeline_hier import NO_LIMIT, HierPipeline, check_integers, given, task_params


DEFAULT_STRIDE = 128  # words that neighboring windows share, where a processor has a limit and none is given
DEFAULT_MAX_ANSWER_LENGTH = 30
_NOTES = ("example_index", "context_spans")  # what the processor adds for the pipeline, and the model does not know

Array = np.ndarray[Any, Any]


class ReadingComprehensionPipeline(HierPipeline):
    """Answers questions with spans of their contexts: `pipeline("reading-comprehension", model=…)`.

    Args:
        model: a reader, such as `HamReaderForQuestionAnswering`.
        processor: its processor.
        **kwargs: arguments of `Pipeline`, and defaults for the arguments of the call.

    Raises:
        ValueError: If the processor is missing or makes no questions, or its characters are not those of the model.

    Example:
        >>> from transformers import pipeline
        >>> read = pipeline("reading-comprehension", model="./my-reader")
        >>> read(question="Who wrote it?", context="It was written by Ada, in May.", top_k=3)
    """

    _load_processor = True  # type: ignore[assignment]
    _load_tokenizer = False  # type: ignore[assignment]

    def __init__(self, model: Any, processor: Any = None, **kwargs: Any) -> None:
        if processor is None or "question_ids" not in getattr(processor, "model_input_names", ()):
            raise ValueError(
                f"`processor` must be a reader's, which makes question_ids, got {type(processor).__name__}; pass "
                "processor=AutoProcessor.from_pretrained(…) of the model's checkpoint"
            )
        _check_characters(processor, model)
        super().__init__(model=model, processor=processor, **kwargs)

    def __call__(  # type: ignore[override]
        self,
        inputs: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None = None,
        *,
        question: str | Sequence[str] | None = None,
        context: str | Sequence[str] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Answer questions.

        Args:
            inputs: in place of the next three, a dictionary with "question" and "context" or "documents", a list of
                them, or anything else that gives one after the other; the answers then come one after the other too.
            question: the question or questions.
            context: the context of each.
            documents: in place of a context, several documents of each question; each is read for itself.
            **kwargs: top_k: answers to give (1; more give a list for each question). max_answer_length: words of an
                answer. max_length: words of a context that are read at once; longer ones are read in windows that
                share `stride` words. These three are by default those of the training, which the config's
                `task_specific_params` have; else 30, the tokenizer's `model_max_length`, if it has one, and 128 or
                half of it. batch_size: contexts or windows that the model reads at once (1).

        Returns:
            For each question "answer" (as in the text), "start" and "end" (characters of the context) and "score" (the
            probability of start times that of end); with documents also "document", the number of the one that
            `start` and `end` count in. A list of them with `top_k` above 1.

        Raises:
            ValueError: If a question has no context or no word, or a number is below 1.
            TypeError: If a question or context is no text.
        """
        check_integers(batch_size=kwargs.get("batch_size"))
        if inputs is not None and (question is not None or context is not None or documents is not None):
            raise ValueError("give `inputs`, or `question` with `context` or `documents`, and not both")
        if inputs is None:
            return self._answer_all(*_from_columns(question, context, documents), **kwargs)
        if isinstance(inputs, Mapping):
            return self._answer_all([inputs], False, **kwargs)
        if isinstance(inputs, str):
            raise TypeError(f"`inputs` must be a dictionary with a question and a context, got {inputs!r:.60}")
        if isinstance(inputs, Sequence):
            return self._answer_all(list(inputs), True, **kwargs)
        return self._stream(iter(inputs), **kwargs)

    def _answer_all(self, items: list[Mapping[str, Any]], batched: bool, first: int = 0, **kwargs: Any) -> Any:
        if not items:
            raise ValueError("`inputs` is an empty list; give at least one question")
        names = [f"inputs[{first + i}]" if batched else "inputs" for i in range(len(items))]
        items = [_read_item(item, name) for item, name in zip(items, names, strict=True)]
        # One mapping, which the base class does not take apart; it would also take `batch_size` for itself.
        size = kwargs.pop("batch_size", None) or self._batch_size
        answers = super().__call__({"items": items, "names": names}, windows_at_once=size, **kwargs)
        return answers if batched else answers[0]

    def _stream(self, items: Iterator[Mapping[str, Any]], **kwargs: Any) -> Iterator[Any]:
        size = max(1, int(kwargs.get("batch_size") or self._batch_size or 1))
        first = 0
        while some := list(islice(items, size)):
            yield from self._answer_all(some, True, first, **kwargs)
            first += size

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        max_answer_length: int | None = None,
        max_length: int | None = None,
        stride: int | None = None,
        windows_at_once: int | None = None,
        **kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if kwargs:
            takes = "top_k, max_answer_length, max_length, stride and batch_size"
            raise TypeError(f"{next(iter(kwargs))!r} is no argument of reading-comprehension; it takes {takes}")
        of_answers = given(top_k=top_k, max_answer_length=max_answer_length)
        check_integers(**of_answers, max_length=max_length, batch_size=windows_at_once)
        return given(max_length=max_length, stride=stride), given(batch_size=windows_at_once), of_answers

    def preprocess(  # type: ignore[override]
        self, input_: dict[str, Any], max_length: int | None = None, stride: int | None = None
    ) -> dict[str, Any]:
        """Turn questions and contexts into windows."""
        limit, trained = max_length, task_params(self.model.config, "reading-comprehension")
        if limit is None and "max_length" in trained:
            limit, stride = int(trained["max_length"]), trained.get("stride") if stride is None else stride
        if limit is None and self.processor.tokenizer.model_max_length < NO_LIMIT:
            limit = int(self.processor.tokenizer.model_max_length)
        if limit is not None and stride is None:
            stride = min(DEFAULT_STRIDE, limit // 2)
        windows: list[dict[str, Any]] = []
        contexts = []
        for number, item in enumerate(input_["items"]):
            kind = "context" if "context" in item else "documents"
            given = {"question": [item["question"]], kind: [item[kind]]}
            try:
                made = self.processor(**given, max_length=limit, stride=stride, return_spans=True)
            except (TypeError, ValueError) as error:
                if (name := input_["names"][number]) == "inputs":
                    raise
                raise type(error)(f"`{name}`: {error}") from error
            contexts.append([item[kind]] if kind == "context" else list(item[kind]))
            made["example_index"] = [number] * len(made["input_ids"])
            windows += [{name: made[name][i] for name in made} for i in range(len(made["input_ids"]))]
        return {"windows": windows, "contexts": contexts, "items": input_["items"]}

    def _forward(  # type: ignore[override]
        self, input_tensors: dict[str, Any], batch_size: int = 1
    ) -> dict[str, Any]:
        windows = input_tensors["windows"]
        logits: list[Any] = [None] * len(windows)
        # Questions with several documents and those with one text have different inputs.
        groups = [[i for i in range(len(windows)) if ("document_ids" in windows[i]) is kind] for kind in (False, True)]
        for numbers in (group[i : i + batch_size] for group in groups for i in range(0, len(group), batch_size)):
            rows = [{name: value for name, value in windows[i].items() if name not in _NOTES} for i in numbers]
            batch = self.processor.pad(rows, return_tensors="pt").to(self.device)
            output = self.model(**batch)
            for row, number in enumerate(numbers):
                words = batch["attention_mask"][row].bool()
                parts = (output["start_logits"], output["end_logits"])
                logits[number] = [part[row][words].float().cpu().numpy() for part in parts]
        return {**input_tensors, "logits": logits}

    def postprocess(  # type: ignore[override]
        self, model_outputs: dict[str, Any], top_k: int = 1, max_answer_length: int | None = None
    ) -> list[Any]:
        """Turn scores into answers."""
        if max_answer_length is None:
            trained = task_params(self.model.config, "reading-comprehension")
            max_answer_length = int(trained.get("max_answer_length", DEFAULT_MAX_ANSWER_LENGTH))
        own: dict[int, list[tuple[Any, Any]]] = defaultdict(list)  # windows and their logits
        for window, logits in zip(model_outputs["windows"], model_outputs["logits"], strict=True):
            own[window["example_index"]].append((window, logits))
        contexts, answers = zip(model_outputs["contexts"], model_outputs["items"], strict=True), []
        for number, (documents, item) in enumerate(contexts):
            windows, logits = zip(*own[number], strict=True)
            found = best_spans(windows, logits, top_k, max_answer_length)
            best = [_answer(documents, "documents" in item, span, score) for span, score in found]
            answers.append(best if top_k > 1 else best[0])
        return answers


def best_spans(
    windows: Sequence[Mapping[str, Any]], logits: Sequence[Sequence[Array]], top_k: int, max_answer_length: int
) -> list[tuple[tuple[int, int], float]]:
    """Find the likeliest spans of a question's windows, in characters, with their probabilities among all windows."""
    places = [first for window in windows for first, _ in window["context_spans"]]
    words = np.unique(places, return_inverse=True)[1]
    totals = []
    for parts in zip(*logits, strict=True):
        best = np.full(words.max() + 1, -np.inf)  # of each word: windows share some, which count once
        np.maximum.at(best, words, np.concatenate(parts))
        totals.append(np.logaddexp.reduce(best))
    found: dict[tuple[int, int], float] = {}
    for window, (start, end) in zip(windows, logits, strict=True):
        spans = window["context_spans"]
        numbers = np.asarray(window.get("document_ids", [0] * len(spans)))
        longest = min(max_answer_length, len(spans))
        for first, last, score in top_spans(start, end, top_k, longest, numbers):
            key = (int(spans[first][0]), int(spans[last][1]))
            found[key] = max(score, found.get(key, -np.inf))
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:top_k]
    return [(span, float(np.exp(score - sum(totals)))) for span, score in ranked]


def top_spans(
    start: Array, end: Array, count: int, longest: int, documents: Array | None = None
) -> Iterator[tuple[int, int, float]]:
    """The spans of a window with the highest sums of both logits, in no order: first, last and sum of each."""

    def following(values: Array, beyond: float) -> Array:  # (words, longest): from each word on
        padded = np.concatenate([values, np.full(longest - 1, beyond)])
        return np.lib.stride_tricks.sliding_window_view(padded, longest)

    scores = start[:, None] + following(end, -np.inf)
    if documents is not None:  # none goes from one document into the next
        scores = np.where(following(documents, -1) == documents[:, None], scores, -np.inf)
    flat = scores.ravel()
    size = min(flat.size, count)
    for place in np.argpartition(-flat, size - 1)[:size]:
        if flat[place] > -np.inf:
            first, more = divmod(int(place), longest)
            yield first, first + more, float(flat[place])


def _answer(documents: list[str], several: bool, span: tuple[int, int], score: float) -> dict[str, Any]:
    """An answer with its place in its own document; documents were joined by one character each."""
    start, end = span
    number = 0
    while number + 1 < len(documents) and start > len(documents[number]):
        shift = len(documents[number]) + 1
        start, end, number = start - shift, end - shift, number + 1
    found = {"score": score, "start": start, "end": end, "answer": documents[number][start:end]}
    return {**found, "document": number} if several else found


def _from_columns(question: Any, context: Any, documents: Any) -> tuple[list[Mapping[str, Any]], bool]:
    if question is None:
        raise ValueError("give a `question`, got none")
    if (context is None) == (documents is None):
        got = "none" if context is None else "both"
        raise ValueError(f"give exactly one of `context` and `documents` with a question, got {got}")
    name, given = ("context", context) if documents is None else ("documents", documents)
    for wrong, value in (("question", question), (name, given)):
        if not isinstance(value, Sequence):
            raise TypeError(f"`{wrong}` must be text, or a list of text, got {type(value).__name__}")
    if isinstance(question, str):
        return [{"question": question, name: given}], False
    if isinstance(given, str):  # one text for all questions
        return [{"question": item, name: given} for item in question], True
    if len(given) != len(question):
        raise ValueError(f"`{name}` must be one for each of {len(question)} questions, got {len(given)}")
    return [{"question": item, name: text} for item, text in zip(question, given, strict=True)], True


def _check_characters(processor: Any, model: Any) -> None:
    made = getattr(processor, "char_vocab_size", 0)
    read = getattr(getattr(model, "config", None), "char_vocab_size", made)
    if bool(made) != bool(read) or made > read:
        found = f"has {made} ids of characters, and the model char_vocab_size={read}"
        raise ValueError(f"`processor` {found}; pass the one that the model was trained with")


def _read_item(item: Any, name: str) -> dict[str, Any]:
    """What is given of a question: in a row of a dataset the columns that it has not are None."""
    if not isinstance(item, Mapping):
        raise TypeError(f"`{name}` must be a dictionary with a question and a context, got {type(item).__name__}")
    given = {key: value for key, value in item.items() if value is not None}
    if "question" not in given or ("context" in given) == ("documents" in given):
        got = ", ".join(map(str, given))
        raise ValueError(f'`{name}` must have "question" and one of "context" and "documents", got {got}')
    return given

"""Processor of the readers: questions and contexts in, words and characters out, and where in the text they stand."""

import itertools
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin

from .source_text import read_items, read_texts
from .text_inputs import check_integer


# Ids of characters: padding, all unknown ones, and then `characters` in their order.
CHAR_PAD, CHAR_UNKNOWN, CHAR_FIRST = 0, 1, 2
# What joins the documents of a context to the one text that offsets and answers count in.
DOCUMENT_SEPARATOR = "\n"

# Input of the model -> what pads it, and whose words it counts with.
CONTEXT_INPUTS = {"input_ids": None, "attention_mask": 0, "char_ids": CHAR_PAD, "document_ids": 0}
QUESTION_INPUTS = {"question_ids": None, "question_attention_mask": 0, "question_char_ids": CHAR_PAD}
Place = tuple[int, int]
# One number each.
POSITIONS = ("start_positions", "end_positions")


class AnswerNotFoundError(ValueError):
    """An answer that does not stand in its context."""


class Words(NamedTuple):
    """The words of a text: ids, and (start, end) in characters."""

    ids: list[int]
    spans: list[tuple[int, int]]


def fit_characters(texts: Iterable[str], num_characters: int | None = None) -> str:
    """Collect the characters of texts for a reader's processor."""
    if isinstance(texts, str):
        raise TypeError("`texts` must be a list of texts, or another iterable of them, got a single string")
    if num_characters is not None and num_characters < 1:
        raise ValueError(f"`num_characters` must be at least 1, got {num_characters}")
    counts = Counter(itertools.chain.from_iterable(texts))
    kept = [c for c in counts if not c.isspace()]
    return "".join(sorted(kept, key=lambda c: (-counts[c], c))[:num_characters])


class HamReaderProcessor(ProcessorMixin):
    """Turns questions and contexts into a reader's input: words, the characters of each, and no special tokens.

    Args:
        tokenizer: A fast tokenizer with a padding token, such as that of `train_word_level`; it tells where in the
            text each word stands.
        characters: The characters that have an id (`fit_characters`), for a model that reads characters; its
            `char_vocab_size` is two more than there are. None for a model that reads words only.
        max_word_length: Characters of a word that are read, the first.

    Raises:
        ValueError: If the tokenizer cannot tell where words stand or has no padding token, a character is there twice
            or is not a single one, or `max_word_length` is below 1.

    Source: Seo et al. 2016, section 2, layers 1 and 2.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None = None,
        characters: str | None = None,
        max_word_length: int = 16,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"`tokenizer` must be a fast one, which tells where in the text each word stands, got "
                f"{type(tokenizer).__name__}"
            )
        if tokenizer is None or tokenizer.pad_token_id is None:
            raise ValueError(
                f"`tokenizer` ({type(tokenizer).__name__}) has no pad_token; add one and resize the model"
            )
        if characters is not None and (not isinstance(characters, str) or not characters):
            raise ValueError(f"`characters` must be a string of characters or None, got {characters!r}")
        if characters is not None and len(set(characters)) < len(characters):
            twice = next(c for i, c in enumerate(characters) if c in characters[:i])
            raise ValueError(f"`characters` must have each character once, got {twice!r} more often")
        check_integer("max_word_length", max_word_length)
        super().__init__(tokenizer)
        self.characters = characters
        self.max_word_length = max_word_length

    @property
    def char_vocab_size(self) -> int:
        """The model's `char_vocab_size`."""
        return 0 if self.characters is None else CHAR_FIRST + len(self.characters)

    @property
    def extra_inputs(self) -> dict[str, int]:
        """Inputs for each word of a context beyond ids and mask, and the value that pads them."""
        return {name: int(pad or 0) for name, pad in CONTEXT_INPUTS.items() if name in ("char_ids", "document_ids")}

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model inputs that the processor makes."""
        names = [*CONTEXT_INPUTS, *QUESTION_INPUTS]
        return names if self.characters is not None else [name for name in names if not name.endswith("char_ids")]

    def __call__(
        self,
        question: str | Sequence[str] | None = None,
        context: str | Sequence[str] | None = None,
        *,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        answers: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        padding: bool | str = False,
        max_length: int | None = None,
        max_question_length: int | None = None,
        stride: int | None = None,
        pad_to_multiple_of: int | None = None,
        return_tensors: str | None = None,
        return_spans: bool = False,
    ) -> BatchEncoding:
        """Prepare questions and their contexts for the model.

        Args:
            question: The question or questions.
            context: The context of each, or
            documents: several documents of each, which are read one by one; the answer may be in any of them.
            answers: Where the answer stands: `{"text": […], "answer_start": […]}` in characters of the context, as in
                SQuAD; the first counts. With documents, of these joined by a newline each. Gives positions.
            padding: True or "longest", "max_length" (contexts only), or False.
            max_length: Words of a context that are read at once. A longer one is refused, or with `stride` read in
                windows.
            max_question_length: Words of a question; a longer one is refused.
            stride: Words that neighboring windows share. Each window is a row of the result.
            pad_to_multiple_of: Rounds the padded length of contexts up.
            return_tensors: "pt" or "np".
            return_spans: Also return `example_index`, the question of each row, and `context_spans`, (start, end) in
                characters of the context for each word.

        Returns:
            `input_ids`, `attention_mask` and, with documents, `document_ids` (rows, words), `char_ids` (rows, words,
            characters); `question_ids`, `question_attention_mask` and `question_char_ids`, the same of the question;
            with answers `start_positions` and `end_positions`, the answer's first and last word, or -1 in windows that
            do not hold it whole.

        Raises:
            AnswerNotFoundError: If an answer does not stand in its context, or has no word there.
            ValueError: If question or context are missing, or without a word, or longer than their limit, or not as
                many, or a limit is below 1.
            TypeError: If an input is not text, or a list of text, as described.
        """
        questions, contexts, batched = self._read(question, context, documents)
        check_integer("max_length", max_length, optional=True)
        check_integer("max_question_length", max_question_length, optional=True)
        check_integer("stride", stride, least=0, optional=True)
        if stride is not None and (max_length is None or stride >= max_length):
            raise ValueError(f"`stride` must be less than `max_length`, got {stride} and max_length={max_length}")
        listed = _as_list("answers", answers, len(questions), batched)
        found = [first_answer(f"answers[{number}]", one) for number, one in enumerate(listed)]

        asked = self._words(questions)
        for number, words in enumerate(asked):
            if not words.ids:
                raise ValueError(f"`question` must have a word, got {questions[number]!r} (question {number})")
            if max_question_length is not None and len(words.ids) > max_question_length:
                raise ValueError(
                    f"`question` must be of at most max_question_length={max_question_length} words, got "
                    f"{len(words.ids)} (question {number}); shorten it or raise the limit"
                )
        read = [self._context(number, parts) for number, parts in enumerate(contexts)]
        joined = [DOCUMENT_SEPARATOR.join(parts) for parts in contexts]
        windows = [
            (number, *place)
            for number, (words, _) in enumerate(read)
            for place in _windows(number, words, max_length, stride)
        ]
        data: dict[str, list[Any]] = {name: [] for name in ("input_ids", "attention_mask")}
        for number, first, end in windows:
            words, numbers = read[number]
            row: dict[str, Any] = {"input_ids": words.ids[first:end], "attention_mask": [1] * (end - first)}
            row["question_ids"] = asked[number].ids
            row["question_attention_mask"] = [1] * len(asked[number].ids)
            if self.characters is not None:
                row["char_ids"] = self._characters(joined[number], words.spans[first:end])
                row["question_char_ids"] = self._characters(questions[number], asked[number].spans)
            if documents is not None:
                row["document_ids"] = [document - numbers[first] for document in numbers[first:end]]
            if found:
                place = _place(number, joined[number], words.spans, found[number])
                inside = place is not None and first <= place[0] and place[1] < end
                for name, value in zip(POSITIONS, place if place is not None and inside else (-1, -1), strict=True):
                    row[name] = value - first if inside else -1
            if return_spans:
                row["example_index"] = number
                row["context_spans"] = words.spans[first:end]
            for name, value in row.items():
                data.setdefault(name, []).append(value)
        data = self._padded(data, padding, max_length, pad_to_multiple_of)
        if not batched and return_tensors is None and len(windows) == 1:
            return BatchEncoding({name: values[0] for name, values in data.items()})
        if return_tensors is not None and return_spans:
            spans = {name: data.pop(name) for name in ("example_index", "context_spans")}
            return BatchEncoding({**BatchEncoding(data, tensor_type=return_tensors), **spans})
        return BatchEncoding(data, tensor_type=return_tensors)

    def pad(
        self,
        features: Sequence[Mapping[str, Any]],
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
    ) -> BatchEncoding:
        """Pad what the processor made of several questions to one batch, as a collator does; options as in a call."""
        if padding_side not in (None, "left", "right"):
            raise ValueError(f'`padding_side` must be "left", "right" or None, got {padding_side!r}')
        if not features:
            raise ValueError("`features` must have a row at least, got none")
        names = list(features[0])
        for number, row in enumerate(features):
            if set(row) != set(names):
                raise ValueError(f"`features` must all have {', '.join(names)}; row {number} has {', '.join(row)}")
        data = {
            name: [row[name].tolist() if hasattr(row[name], "tolist") else row[name] for row in features]
            for name in names
        }
        data = self._padded(data, padding, max_length, pad_to_multiple_of, padding_side)
        return BatchEncoding(data, tensor_type=return_tensors)

    def _read(self, question: Any, context: Any, documents: Any) -> tuple[list[str], list[list[str]], bool]:
        """Bring questions and contexts to lists; say whether they were a batch."""
        if question is None:
            raise ValueError("give a `question`, got none")
        if (context is None) == (documents is None):
            got = "none" if context is None else "both"
            raise ValueError(f"give exactly one of `context` and `documents`, got {got}: a question needs a text")
        questions, batched = read_texts("question", question)
        if documents is None:
            if isinstance(context, str) is batched:
                raise ValueError("`context` must be a list if `question` is one, and a string if it is a string")
            contexts = [[text] for text in read_texts("context", context)[0]]
        else:
            groups = read_items("documents", documents, "a list of strings for each question")
            labels = [f"documents[{i}]" for i in range(len(groups))] if batched else ["documents"]
            rows = zip(labels, groups if batched else [groups], strict=True)
            contexts = [read_texts(label, read_items(label, row, "a list of strings"))[0] for label, row in rows]
        if len(contexts) != len(questions):
            name = "context" if documents is None else "documents"
            raise ValueError(f"`{name}` must be one for each of {len(questions)} questions, got {len(contexts)}")
        return questions, contexts, batched

    def _words(self, texts: list[str]) -> list[Words]:
        """Split texts into words."""
        if not texts:
            return []
        encoded = self.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        # The literal text of a special token is no special token.
        unknown = self.tokenizer.unk_token_id
        special = set() if unknown is None else set(self.tokenizer.all_special_ids)
        return [
            Words([unknown if i in special else i for i in ids], _with_marks(text, spans))
            for text, ids, spans in zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        ]

    def _context(self, number: int, documents: list[str]) -> tuple[Words, list[int]]:
        """The words of all documents of a question, in characters of their joined text, and which each is of."""
        joined, numbers, shift = Words([], []), [], 0
        for document, words in enumerate(self._words(documents)):
            joined.ids.extend(words.ids)
            joined.spans.extend((a + shift, b + shift) for a, b in words.spans)
            numbers += [document] * len(words.ids)
            shift += len(documents[document]) + len(DOCUMENT_SEPARATOR)
        if not joined.ids:
            raise ValueError(f"the context of question {number} must have a word, got none")
        return joined, numbers

    def _characters(self, text: str, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
        """The ids of the characters of words."""
        known = {character: CHAR_FIRST + i for i, character in enumerate(self.characters or "")}
        # A word that stands for no character of the text is an unknown one.
        return [
            [known.get(c, CHAR_UNKNOWN) for c in text[a : min(b, a + self.max_word_length)]] or [CHAR_UNKNOWN]
            for a, b in spans
        ]

    def _padded(
        self,
        data: dict[str, list[Any]],
        padding: bool | str,
        max_length: int | None,
        multiple: int | None,
        side: str | None = None,
    ) -> dict[str, list[Any]]:
        """Pad contexts, questions and the characters of both; characters within a row always."""
        if padding not in (True, False, "longest", "max_length", "do_not_pad"):
            raise ValueError(f'`padding` must be True, False, "longest" or "max_length", got {padding!r}')
        if padding == "max_length" and max_length is None:
            raise ValueError('`max_length` must be given with padding="max_length"')
        pads = padding not in (False, "do_not_pad")
        left = (side or self.tokenizer.padding_side) == "left"
        lengths = [len(row) for row in data.get("input_ids", [])]
        for inputs, ids in ((CONTEXT_INPUTS, "input_ids"), (QUESTION_INPUTS, "question_ids")):
            if ids not in data:
                continue
            longest = max(map(len, data[ids]))
            if ids == "input_ids":
                if padding == "max_length" and max_length is not None:
                    if longest > max_length:
                        raise ValueError(f"`max_length` is {max_length}, and a context has {longest} words")
                    longest = max_length
                if multiple is not None:
                    longest = -(-longest // multiple) * multiple
            for name, pad in inputs.items():
                if name not in data:
                    continue
                rows = data[name]
                fill: Any = self.tokenizer.pad_token_id if pad is None else pad
                if name.endswith("char_ids"):
                    widths = [max(map(len, row)) for row in rows]
                    rows = [
                        [word + [CHAR_PAD] * ((max(widths) if pads else width) - len(word)) for word in row]
                        for row, width in zip(rows, widths, strict=True)
                    ]
                    fill = [CHAR_PAD] * max(widths)
                if pads:
                    fills = [[fill] * (longest - len(row)) for row in rows]
                    rows = [f + row if left else row + f for f, row in zip(fills, rows, strict=True)]
                data[name] = rows
        if pads and left and all(name in data for name in POSITIONS):
            # Positions count padding too.
            shifts = [len(row) - length for row, length in zip(data["input_ids"], lengths, strict=True)]
            for name in POSITIONS:
                data[name] = [p + s if p >= 0 else p for p, s in zip(data[name], shifts, strict=True)]
        return data


def _with_marks(text: str, spans: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The places of words, with the marks that combine with their last letter, which tokenizers may take off."""
    found = []
    for number, (start, end) in enumerate(spans):
        most = spans[number + 1][0] if number + 1 < len(spans) else len(text)
        while start < end < most and _combines(text[end]):
            end += 1
        found.append((int(start), int(end)))
    return found


def _combines(character: str) -> bool:
    """Whether a character belongs to the one before it: a mark, or a later part of a Korean syllable."""
    is_jamo = "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"
    return is_jamo or unicodedata.category(character).startswith("M")


def _windows(number: int, words: Words, limit: int | None, stride: int | None) -> list[Place]:
    """Cut a context into windows, (first word, the one after the last), each as long as may be but the last."""
    count = len(words.ids)
    if limit is None or count <= limit:
        return [(0, count)]
    if stride is None:
        raise ValueError(
            f"the context of question {number} has {count} words, and `max_length` is {limit}; raise it, or give "
            "`stride` to read the context in windows"
        )
    starts = range(0, count - stride, limit - stride)
    return [(start, min(start + limit, count)) for start in starts]


def first_answer(name: str, answers: Any) -> tuple[str, int] | None:
    """Read the first of the answers and where it begins; None for none."""
    texts = answers.get("text", True) if isinstance(answers, Mapping) else True
    is_empty = texts is None or (isinstance(texts, Sized) and not len(texts))  # an array is neither true nor false
    if not answers or is_empty:
        return None
    try:
        texts, starts = answers["text"], answers["answer_start"]
        if not isinstance(texts, str) and isinstance(texts[0], str):
            return texts[0], int(starts[0])
    except (TypeError, KeyError, IndexError):
        pass
    wanted = '{"text": […], "answer_start": […]} as in SQuAD, with empty lists for no answer'
    raise ValueError(f"`{name}` must be {wanted}, got {answers!r:.200}")


def _place(
    number: int, context: str, spans: Sequence[tuple[int, int]], answer: tuple[str, int] | None
) -> tuple[int, int] | None:
    """The answer's first and last word."""
    if answer is None:
        return None
    text, start = answer
    if start < 0 or context[start : start + len(text)] != text or not text.strip():
        raise AnswerNotFoundError(
            f"`answers[{number}]`: the answer {text[:60]!r} does not stand at answer_start={start} of its context, "
            f"where {context[max(start, 0) : max(start, 0) + len(text)][:60]!r} is"
        )
    first_char = start + len(text) - len(text.lstrip())
    end_char = start + len(text.rstrip())
    first = bisect_right(spans, first_char, key=lambda span: span[1])  # ends after the answer begins
    last = bisect_left(spans, end_char, key=lambda span: span[0]) - 1  # begins before it ends
    if first > last:
        raise AnswerNotFoundError(f"`answers[{number}]`: the answer {text[:60]!r} has no word in its context")
    return first, last


def _as_list(name: str, value: Any, count: int, batched: bool) -> list[Any]:
    if value is None:
        return []
    values = list(value) if batched else [value]
    if len(values) != count:
        raise ValueError(f"`{name}` must be one for each of {count} questions, got {len(values)}")
    return values

"""What is read of a long document: its beginning and what says the most of it, or what is asked for."""

import math
import re
import textwrap
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from transformers.utils import logging

from .chunking_hier import STOPS, sentence_spans
from .copied_words_hier import token_ends
from .document_pipeline_hier import Example, as_text
from .salience_hier import Words, salience, words_of
from .sources_hier import letters_before, summary_spans


logger = logging.get_logger(__name__)  # of queries

ENDS = (".", "!", "?", "…", *STOPS)  # of sentences
CLOSING = "\"'”’“«»)]」』） \u00a0\u202f"  # what may stand behind: closing quotes of all languages  # noqa: RUF001
LEAST_WORDS = 5  # of a sentence that stands alone
ENOUGH = 128  # tokens of sentences, to read nothing else
LEAST_REPEATED = 5  # tokens of a sentence that a page has once
MOST_TIMES = 2  # that a heading stands in a text: a name of who speaks does more often
_LINE = re.compile(r"\S(?:[^\n]*\S)?")
# A line of at most ten words without an end; what somebody says, behind a name, is none.
_HEADING = re.compile(r"(?![^:]{1,40}:\s)\S+(?:\s+\S+){0,9}(?<![.!?…:,;])")
# Nor is half a sentence, which ends with one of these words.
_HALF = re.compile(
    r"\b(?:a|an|and|are|as|at|be|been|by|for|from|had|has|have|her|his|in|is|its|of|on|or|that|the|their|to|was|were|which"
    r"|who|with)\Z",
    re.IGNORECASE,
)
# Words of any question, or of its grammar, which say nothing of what is asked for.
_ASKING = frozenset(
    words_of(
        """
        a about all an and any anyone anything are as at be been but by can could did do does for from get give
        had has have he her him his how i if in is it its made make many me much my no not of on one or our say
        says shall she should so some tell than that the their them then there these they this those to up us
        was we were what when where which who whom whose why will with would you your
        """
    )
)
_BREAK = re.compile(r"\n\s*\n")  # between paragraphs
# How much a sentence has of what its neighbours have in common with a query: answers stand beside what is asked for.
_NEARBY = (1 / 3, 1 / 2, 1.0, 1 / 2, 1 / 3)


def tokens_of(example: Example) -> int:
    """How many tokens a document has, with those that were cut."""
    return len(example) + example.counts["num_truncated_tokens"]


def sizes_of(tokenizer: Any, texts: list[str]) -> list[int]:
    """Tokens of each text, with what is between them."""
    readable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]  # without halves of characters
    encoded = tokenizer(readable, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
    return [len(ids) + 1 for ids in encoded]


def with_query(name: str, value: Any, query: str) -> Any:
    """Put a question before a document, as a sentence of its own, in the document's structure."""
    if name == "turns":
        return [{"role": "Question", "content": query}, *value]
    question = f"Question: {query}"
    return f"{question}\n\n{value}" if name == "text" else [question, *value]


def is_about(query: str, text: str) -> bool:
    """Say whether half of a question's words stand in a text, or one that is more than how one asks in English."""
    words, there = set(words_of(query)), set(words_of(text))
    found = words & there
    return bool(found.difference(_ASKING)) or 0 < len(words) <= 2 * len(found)


def condense(
    name: str,
    value: Any,
    room: int,
    count: Callable[[list[str]], list[int]],
    processor: Any = None,
    query: str | None = None,
) -> Any:
    """Keep of a document what there is room for, in its order and its structure.

    A third of the room is for the beginning, of each article alike, and the rest for the sentences that a summary
    would be made of (`salience`). A dialogue's beginning says no more than the rest of it: there all of it is for the
    sentences that are most like all others. Of turns and articles, what is no whole sentence of five words comes last.
    In a text none of the room is for headings and items of lists, which a model writes as if they were parts of
    sentences, if there are enough sentences. With a query, all of it is for those that are most like the query. What
    has no sentences is taken apart at its spaces.

    Source: to extract first, and to write what the extract says: Liu et al. (2018), Generating Wikipedia by
    Summarizing Long Sequences, section 4.1.
    """
    contents = [value] if name == "text" else [item["content"] if name == "turns" else item for item in value]
    sentences: list[str] = []
    numbers, sizes, paragraphs = list[int](), list[int](), list[int]()
    for number, content in enumerate(contents):
        # With a query, what stands below a heading answers to its words.
        split = sentences_and_headings if name == "text" and not query else sentence_spans
        spans = [(0, len(content))] if name == "sentences" else split(content, processor)
        own = [content[start:end] for start, end in spans]
        for text, size, paragraph in zip(own, count(own), _paragraphs(content, spans), strict=bool(own)):
            wide = size > room // 2
            parts = _wrapped(text, max(1, len(text) * room // (4 * size))) if wide else [text]
            sentences += parts
            numbers += [number] * len(parts)
            sizes += count(parts) if wide else [size]
            paragraphs += [paragraph] * len(parts)
    articles = len(contents) if name == "documents" else 1
    each = 0 if name == "turns" or query else room // (3 * max(1, articles))
    left_out, no_choice = set[int](), set[int]()
    if name == "text" and not query:
        left_out, no_choice = no_sentences(sentences, sizes)
    totals, begins = Counter[int](), list[int]()
    for place, (number, size) in enumerate(zip(numbers, sizes, strict=True)):
        article = number if name == "documents" else 0
        if place not in left_out:
            totals[article] += size
            if totals[article] <= each:
                begins.append(place)
    room -= sum(sizes[place] for place in begins)
    if query:
        worth = relevance(sentences, query)
    else:
        worth = worth_of(sentences, {"turns": "turn", "documents": "article"}.get(name), numbers)
    if name in ("turns", "documents") and not query:
        worth = put_last(worth, no_sentences(sentences, sizes)[1])
    best = best_sentences(sentences, sizes, worth, room, no_choice.union(begins))
    kept = [(numbers[place], sentences[place].strip()) for place in sorted({*begins, *best})]
    if name == "text":
        head = _joined(begins, sentences, paragraphs)
        return "\n\n".join([*head, *(sentences[place].strip() for place in best)])
    texts = [(number, " ".join(text for _, text in own)) for number, own in groupby(kept, key=itemgetter(0))]
    return [{**value[number], "content": text} if name == "turns" else text for number, text in texts]


def only_sentences(text: str, count: Callable[[list[str]], list[int]], processor: Any = None) -> str:
    """Leave headings and items of lists out of a text, if there are enough sentences beside them."""
    spans = sentences_and_headings(text, processor)
    sentences = [text[start:end] for start, end in spans]
    left_out, _ = no_sentences(sentences, count(sentences))
    if not left_out:
        return text
    paragraphs = _paragraphs(text, spans)
    kept = (place for place in range(len(sentences)) if place not in left_out)
    return "\n\n".join(_joined(kept, sentences, paragraphs))


def sentences_and_headings(text: str, processor: Any) -> list[tuple[int, int]]:
    """Find where sentences begin and end, and headings on lines of their own, which no blank line need set apart."""
    spans: list[tuple[int, int]] = []
    times = cache(lambda: Counter(line.strip() for line in text.split("\n")))
    for start, end in sentence_spans(text, processor):
        headings = _headings(text, start, end, times)
        spans += headings
        body = _LINE.search(text, headings[-1][1], end) if headings else None
        spans.append((body.start() if body else start, end))
    return spans


def _headings(text: str, start: int, end: int, times: Callable[[], Counter[str]]) -> list[tuple[int, int]]:
    """The lines at the beginning of a sentence that stand before one more than twice as long as each."""
    before = text[max(0, start - 80) : start].rstrip(" \t\r.0123456789")  # without the heading's number
    if before and not before.endswith("\n"):
        return []
    lines, number, longest = list[tuple[int, int]](), 0, 0
    for line, following in pairwise(_LINE.finditer(text, start, end)):
        is_heading = _HEADING.fullmatch(line[0]) and not _HALF.search(line[0]) and times()[line[0]] <= MOST_TIMES
        if not is_heading or following[0][0].islower() or following[0][0].isdigit():
            break
        lines.append(line.span())
        longest = max(longest, len(line[0]))
        stop = text.find("\n", following.start())
        if (stop if stop >= 0 else len(text)) - following.start() > 2 * longest:
            number = len(lines)
    return lines[:number]


def no_sentences(sentences: list[str], sizes: list[int]) -> tuple[set[int], set[int]]:
    """Places of headings and items of lists, and of what says too little; none if there is hardly anything else."""
    places, said = set(range(len(sentences))), [text.rstrip(CLOSING) for text in sentences]
    long = {place for place in places if len(sentences[place].split()) >= LEAST_WORDS}
    ended = {place for place in places if said[place].endswith((*ENDS, ":") if place in long else ENDS)}
    if sum(sizes[place] for place in ended & long) < min(ENOUGH, sum(sizes) / 2):
        return set(), set()
    return places - ended, places - (ended & long)


def put_last(worth: Any, places: Collection[int]) -> Any:
    """Put sentences behind all others, such as what says too little: headings, "Yes.", what has no end."""
    worth[list(places)] -= worth.max(initial=0) - worth.min(initial=0) + 1
    return worth


def _paragraphs(text: str, spans: list[tuple[int, int]]) -> list[int]:
    """The number of each sentence's paragraph."""
    breaks = (_BREAK.search(text, end, start) is not None for (_, end), (start, _) in pairwise(spans))
    return list(accumulate(breaks, initial=0))


def _joined(places: Iterable[int], sentences: list[str], paragraphs: list[int]) -> list[str]:
    """Paragraphs of sentences."""
    groups = groupby(places, key=lambda place: paragraphs[place])
    return [" ".join(sentences[place].strip() for place in own) for _, own in groups]


def _wrapped(text: str, width: int) -> list[str]:
    # Of a longer word, textwrap copies all that is left for each line.
    return textwrap.wrap(re.sub(rf"(\S{{{width}}})(?=\S)", r"\1 ", text), width)


def shorten(name: str, value: Any, room: int, *how: Any, limit: int, length: Callable[[Any], int]) -> Any:
    """Condense a document until, with what stands around it, it is no longer than a limit."""
    read = condense(name, value, room, *how)
    while (tokens := length(read)) > limit and room > 1:  # by names of roles, for example
        room = min(room - 1, room * limit // tokens)
        read = condense(name, value, room, *how)
    return read


def parts_of(
    name: str,
    value: Any,
    number: int,
    count: Callable[[list[str]], list[int]],
    processor: Any,
    worth: Mapping[str, float] | None = None,
) -> list[Any]:
    """Cut a document into at most so many parts, about as long, between its sentences, turns or articles.

    Where the worth of a text's sentences is known, a token counts by the exponential of twice that of its sentence: so
    a page has more of its paragraphs where more is said.
    """
    spans = sentence_spans(value, processor) if name == "text" else [(place, place + 1) for place in range(len(value))]
    texts = [as_text(name, value[start:end], replace=True) for start, end in spans]
    sizes = [float(size) for size in count(texts)]
    if worth:
        least = min(worth.values())
        sizes = [size * math.exp(2 * worth.get(text.strip(), least)) for text, size in zip(texts, sizes, strict=True)]
    ends, parts = [*accumulate(sizes)], dict[int, tuple[int, int]]()
    for (start, end), size, until in zip(spans, sizes, ends, strict=True):
        part = int((until - size / 2) * number / ends[-1])  # where its middle lies
        parts[part] = (parts.get(part, (start, end))[0], end)
    return [value[start:end] for start, end in parts.values()] or [value]


def worth_in(text: str, processor: Any) -> dict[str, float]:
    """How much each sentence of a text is worth to a summary; of equal ones the first."""
    sentences = [text[start:end].strip() for start, end in sentences_and_headings(text, processor)]
    return dict(zip(reversed(sentences), reversed(salience(sentences).tolist()), strict=True))


def page_of(
    paragraphs: list[list[int]], tokenizer: Any, written: Callable[[str], str] = str, processor: Any = None
) -> list[int]:
    """The tokens of paragraphs, without sentences that have no end, and those that are there already.

    Sentences are those of a paragraph as it is `written` in the end: of "3. 7" that is "3.7". If none has an end, the
    paragraphs that are nothing else are kept.
    """
    given = (paragraphs, tokenizer, written, processor)
    return _page_of(*given, least=0) or _page_of(*given, least=1)


def _page_of(
    paragraphs: list[list[int]], tokenizer: Any, written: Callable[[str], str], processor: Any, least: int
) -> list[int]:
    """Keep at least so many sentences of each paragraph."""
    page: list[int] = []
    seen: set[tuple[int, ...]] = set()
    special = set(tokenizer.all_special_ids)
    for ids in paragraphs:
        tokens = [token for token in ids if token not in special]
        decoded = tokenizer.decode(tokens)
        text = written(decoded)
        letters, letters_decoded = letters_before(text), letters_before(decoded)
        if letters[-1] != letters_decoded[-1]:  # a capital of another length
            text, letters = decoded, letters_decoded
        spans = summary_spans(text, processor)
        if len(spans) > least and not text[: spans[-1][1]].rstrip(CLOSING).endswith(ENDS):
            spans.pop()
        until = [letters_decoded[end] for end in token_ends(tokenizer, tokens, decoded, {})]
        ends = [bisect_left(until, letters[end]) + 1 for _, end in spans]
        for start, end in pairwise([0, *ends]):
            sentence = tuple(tokens[start:end])
            if len(sentence) < LEAST_REPEATED or sentence not in seen:
                page += sentence
            seen.add(sentence)
    return page


def relevance(sentences: list[str], query: str) -> Any:
    """How much each sentence is about a query, (sentences,): the cosine, and those of its neighbours.

    Source: Otterbacher et al. (2005), Using Random Walks for Question-focused Sentence Retrieval; their walk from
    sentence to sentence found no more (examples/experiments/queries.py).
    """
    words, asked = Words(sentences), Counter(words_of(query))
    own = words.likeness(np.array([float(asked[word]) for word in words.numbers]) * words.rareness)
    return np.convolve(own, _NEARBY)[2:-2] if sentences else own


def worth_of(sentences: Sequence[str], block: str | None, numbers: Sequence[int] | None) -> Any:
    """What sentences are worth to a summary, (sentences,), in blocks that are each a "turn" or "article" of a number.

    What `salience` says of a sentence, by its place and its words, is true of what is written, not of what is said.
    """
    if block == "turn":
        return Words(sentences).centrality()
    return salience(sentences, numbers if block == "article" else None)


def best_sentences(
    sentences: list[str], sizes: list[int], worth: Any, room: int, besides: Collection[int] = ()
) -> list[int]:
    """Places of the sentences of the highest worth, each text once, as many as there is room for."""
    seen, kept = {sentences[place].strip() for place in besides}, []
    for place in np.argsort(-worth, kind="stable").tolist():
        if sizes[place] <= room and (text := sentences[place].strip()) not in seen:
            seen.add(text)
            kept.append(place)
            room -= sizes[place]
    return sorted(kept)

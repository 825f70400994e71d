"""A text's tokens, the spans of them that fit into a length, and the row with sentence markers that comes out."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


# What a row has for each token, and what is not the same for all.
_COLUMNS = ("ids", "tokens", "offsets", "word_ids", "sequence_ids", "special_tokens_mask", "attention_mask")


@dataclass
class TokenizedText:
    """The tokens of one text, without markers, and where its sentences begin."""

    ids: list[int]  # Token ids
    tokens: list[str]  # The tokens as strings
    # (start, end) of each token in characters of the text; of its word if the text came as words.
    offsets: list[tuple[int, int]]
    words: list[int | None]  # The word each token belongs to, None for none
    # Index of the first token of each sentence, ascending, from 0. A sentence without tokens has none.
    starts: list[int]
    in_words: bool = False  # Whether the text came as words

    def sentences(self, of_tokens: list[Any]) -> list[list[Any]]:
        """Divide what there is of each token by sentences."""
        return [of_tokens[a:b] for a, b in itertools.pairwise([*self.starts, len(self.ids)]) if b > a]

    def cost(self, start: int, end: int) -> int:
        """Count the tokens of a span with its markers: one at its beginning and at each sentence that begins later."""
        return end - start + 1 + max(0, bisect_left(self.starts, end) - bisect_right(self.starts, start))

    def last_end(self, start: int, budget: int) -> int:
        """Find how far a span that begins here can go."""
        longer = range(start + 1, min(len(self.ids), start + budget - 1) + 1)
        return start + bisect_right(longer, budget, key=lambda end: self.cost(start, end))

    def first_start(self, end: int, budget: int) -> int:
        """Find where a span that ends here can begin."""
        longer = range(end - 1, max(0, end - budget + 1) - 1, -1)
        return end - bisect_right(longer, budget, key=lambda start: self.cost(start, end))

    def windows(self, budget: int, stride: int, from_right: bool = False) -> list[tuple[int, int]]:
        """Cut the text into overlapping spans that cover it."""
        spans = []
        size = len(self.ids)
        start, end = (self.first_start(size, budget), size) if from_right else (0, self.last_end(0, budget))
        while True:
            spans.append((start, end))
            if start == 0 if from_right else end == size:
                return spans  # (start, end)
            shared = stride if stride < end - start else (end - start) // 2
            if from_right:
                end = start + shared
                start = self.first_start(end, budget)
            else:
                start = end - shared
                end = self.last_end(start, budget)

    def sentences_cut(self, start: int, end: int) -> int:
        """Count the sentences that a span does not hold whole."""
        bounds = itertools.pairwise([*self.starts, len(self.ids)])
        return sum(a < b and (a < start or b > end) for a, b in bounds)


@dataclass
class MarkedEncoding:
    """One row for the model: what `tokenizers.Encoding` has, whose special tokens cannot stand inside of texts."""

    n_sequences: int = 1  # 1 for a text, 2 for a pair
    num_truncated_tokens: int = 0  # Tokens that were cut off, markers included
    num_truncated_sentences: int = 0  # Sentences that lost a token
    ids: list[int] = field(default_factory=list)  # Token ids
    tokens: list[str] = field(default_factory=list)  # The tokens as strings
    offsets: list[tuple[int, int]] = field(default_factory=list)  # (start, end) in characters of the text
    word_ids: list[int | None] = field(default_factory=list)  # The word of its text each token belongs to
    sequence_ids: list[int | None] = field(default_factory=list)  # The text each token belongs to, 0 or 1
    special_tokens_mask: list[int] = field(default_factory=list)  # 1 for markers, separators and padding
    attention_mask: list[int] = field(default_factory=list)  # 0 for padding
    type_ids: list[int] = field(default_factory=list)  # 0, as in RoBERTa
    overflowing: Sequence["MarkedEncoding"] = ()  # Always empty: what did not fit comes in rows of its own

    def __len__(self) -> int:
        return len(self.ids)

    def add_special(self, token_id: int, token: str, place: int = 0) -> None:
        """Append a marker or a separator."""
        self.add_tokens([token_id], [token], [(place, place)], [None], None)

    def add_span(self, text: TokenizedText, start: int, end: int, sequence: int) -> None:
        """Append tokens of a text."""
        span = slice(start, end)
        self.add_tokens(text.ids[span], text.tokens[span], text.offsets[span], text.words[span], sequence)

    def add_tokens(
        self,
        ids: list[int],
        tokens: list[str],
        offsets: list[tuple[int, int]],  # (start, end)
        words: list[int | None],
        sequence: int | None,
    ) -> None:
        """Append any tokens."""
        self.ids += ids
        self.tokens += tokens
        self.offsets += offsets
        self.word_ids += words
        self.sequence_ids += [sequence] * len(ids)
        self.special_tokens_mask += [int(sequence is None)] * len(ids)
        self.attention_mask += [1] * len(ids)
        self.type_ids += [0] * len(ids)

    def pad(self, length: int, token_id: int, token: str, left: bool) -> None:
        """Fill the row up."""
        missing = length - len(self)
        if missing <= 0:
            return
        size = len(self)
        self.add_tokens([token_id] * missing, [token] * missing, [(0, 0)] * missing, [None] * missing, None)
        self.attention_mask[size:] = [0] * missing
        if left:
            for name in _COLUMNS:
                column = getattr(self, name)
                setattr(self, name, column[size:] + column[:size])

    def token_to_sequence(self, token_index: int) -> int | None:
        """Find the text of a token."""
        return self.sequence_ids[token_index]

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Find the characters of a token."""
        return None if self.sequence_ids[token_index] is None else self.offsets[token_index]  # (start, end)

    def token_to_word(self, token_index: int) -> int | None:
        """Find the word of a token."""
        return self.word_ids[token_index]

    def char_to_token(self, char_index: int, sequence_index: int = 0) -> int | None:
        """Find the token of a character."""
        for i, (sequence, (start, end)) in enumerate(zip(self.sequence_ids, self.offsets, strict=True)):
            if sequence == sequence_index and start <= char_index < end:
                return i
        return None

    def char_to_word(self, char_index: int, sequence_index: int = 0) -> int | None:
        """Find the word of a character."""
        token = self.char_to_token(char_index, sequence_index)
        return None if token is None else self.word_ids[token]

    def word_to_tokens(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Find the tokens of a word."""
        pairs = zip(self.sequence_ids, self.word_ids, strict=True)
        found = [i for i, (sequence, word) in enumerate(pairs) if sequence == sequence_index and word == word_index]
        return (found[0], found[-1] + 1) if found else None  # (first, last + 1)

    def word_to_chars(self, word_index: int, sequence_index: int = 0) -> tuple[int, int] | None:
        """Find the characters of a word."""
        tokens = self.word_to_tokens(word_index, sequence_index)
        return None if tokens is None else (self.offsets[tokens[0]][0], self.offsets[tokens[1] - 1][1])  # (start, end)


NO_CUT = (False, None, "do_not_truncate")
CUTS = (True, "longest_first", "only_first", "only_second", *NO_CUT)
NO_LIMIT = 10**20  # `model_max_length` of tokenizers that know none is above

Token = tuple[int, str]  # id and text


class Layout(NamedTuple):
    """How rows are to be cut: the limit, by which rule, and windows with how many tokens in common, or none."""

    limit: int | None
    cut: bool | str
    stride: int | None
    from_left: bool


def layout_of(
    truncation: bool | str | None, limit: int, stride: int, overflow: bool, pairs: bool, from_left: bool
) -> Layout:
    """Check how rows are to be cut."""
    if truncation not in CUTS:
        raise ValueError(
            f"`truncation` must be True, 'longest_first', 'only_first', 'only_second' or False, got {truncation!r}"
        )
    if truncation in NO_CUT:
        return Layout(None, False, None, False)
    least = 5 if pairs else 2  # `<s></s></s><s></s>` and `<s></s>`
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < least:
        raise ValueError(f"`max_length` must be an integer of at least {least} (the special tokens), got {limit!r}")
    cut: bool | str = str(getattr(truncation, "value", truncation))
    if truncation in (True, "longest_first"):
        cut = True
    if cut == "only_second" and not pairs:
        raise ValueError("`truncation` is 'only_second', and there is no `text_pair`; use True or 'only_first'")
    if not pairs:
        cut = True
    if not overflow:
        return Layout(limit if limit < NO_LIMIT else None, cut, None, from_left)
    if pairs and cut is True:
        raise ValueError(
            "`return_overflowing_tokens` needs to know which text of a pair to cut into windows: "
            "truncation='only_first' or 'only_second'"
        )
    if isinstance(stride, bool) or not isinstance(stride, int) or not 0 <= stride < limit - least:
        raise ValueError(
            f"`stride` must be an integer from 0 to below max_length - {least} = {limit - least}, got {stride!r}"
        )
    return Layout(limit if limit < NO_LIMIT else None, cut, stride, from_left)


def rows_of(number: int, texts: list[TokenizedText], layout: Layout, bos: Token, end: Token) -> list[MarkedEncoding]:
    """Make the row of one text or pair, or its windows."""
    spans = [(0, len(text.ids)) for text in texts]
    costs = [text.cost(*span) for text, span in zip(texts, spans, strict=True)]
    room = None if layout.limit is None else layout.limit - (1 if len(texts) == 1 else 3)
    if room is None or sum(costs) <= room:
        return [_row(texts, spans, bos, end)]
    index = 1 if layout.cut == "only_second" else 0  # of the text to cut, unless it is the longer one
    others = sum(costs) - costs[index]
    if layout.cut is True and len(texts) == 2:
        budgets = _share(costs, room)
    else:
        budgets = [*costs]
        budgets[index] = room - others
        if budgets[index] < 2 and (others or layout.stride is not None):
            name = ("text", "text_pair")[index]
            beside = f" beside the {others} tokens of the other, which it does not cut" if others else ""
            raise ValueError(
                f"truncation={layout.cut!r} with max_length={layout.limit} is too short: it leaves no room for "
                f"`{name}`{beside} (input {number}). Raise `max_length`, or let truncation=True cut the longer one"
            )
    if layout.stride is not None:
        windows = texts[index].windows(budgets[index], layout.stride, layout.from_left)
        return [_row(texts, [*spans[:index], span, *spans[index + 1 :]], bos, end) for span in windows]
    for i, (text, budget) in enumerate(zip(texts, budgets, strict=True)):
        size = len(text.ids)
        if costs[i] > budget:
            spans[i] = (text.first_start(size, budget), size) if layout.from_left else (0, text.last_end(0, budget))
    row = _row(texts, spans, bos, end)
    row.num_truncated_tokens = sum(costs) - sum(text.cost(*span) for text, span in zip(texts, spans, strict=True))
    row.num_truncated_sentences = sum(text.sentences_cut(*span) for text, span in zip(texts, spans, strict=True))
    return [row]


def _row(texts: list[TokenizedText], spans: list[tuple[int, int]], bos: Token, end_of_text: Token) -> MarkedEncoding:
    """Put markers and separators in."""
    row = MarkedEncoding(n_sequences=len(texts))
    for i, (text, (start, end)) in enumerate(zip(texts, spans, strict=True)):
        if i:
            row.add_special(*end_of_text)
        begins = text.starts[bisect_right(text.starts, start) : bisect_left(text.starts, end)]
        for a, b in itertools.pairwise([start, *begins, end]):
            place = text.offsets[a][0] if a < len(text.ids) and not text.in_words else 0
            row.add_special(*bos, place)
            row.add_span(text, a, b, i)
        row.add_special(*end_of_text)
    return row


def _share(costs: list[int], room: int) -> list[int]:
    """Divide the room between two texts: the longer one is cut first, down to the shorter one."""
    short = min(costs)
    if short <= room // 2:
        return [cost if cost == short else room - short for cost in costs]
    half = [room // 2, room - room // 2]
    return half if costs[0] <= costs[1] else half[::-1]

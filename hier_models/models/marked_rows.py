"""Rows of marked tokens: which tokens fit into them, and where markers and separators go."""

import itertools
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from .marked_encoding import MarkedEncoding, TokenizedText


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

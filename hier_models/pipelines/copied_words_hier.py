"""Which words of a summary a model with a copy mechanism has copied, and from where."""

import itertools
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch


MOSTLY = 0.5  # a word counts as copied when more than this share of its probability is that of copying
UNSPACED = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese and kana: each character is a word


@lru_cache(1)
def combining_marks() -> str:
    """Accents of their own and the vowel signs of Indic and Arabic words, which `\\w` leaves out."""
    return "".join(c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c)[0] == "M")


@lru_cache(1)
def _word() -> re.Pattern[str]:
    """Letters, marks and digits, joined or not by an apostrophe or a hyphen; of Chinese and kana each character."""
    marks = combining_marks()
    spaced = f"[^\\W_{UNSPACED}](?:[^\\W_{UNSPACED}]|[{marks}\u200c\u200d])*"
    return re.compile(f"[{UNSPACED}][{marks}]*|{spaced}(?:['’\\-]{spaced})*")


@torch.no_grad()
def copy_shares(
    model: Any, inputs: dict[str, torch.Tensor], ids: torch.Tensor, token_sentences: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """Tell what share of the probability of tokens is that of copying, and which source token (-1: none) it is of."""
    sequences = ids.shape[1]  # of (batch, sequences, target + 1), with the start token
    flat = ids.flatten(0, 1).to(model.device)  # (batch * sequences, target + 1)
    repeated = {name: value.repeat_interleave(sequences, dim=0) for name, value in inputs.items()}
    outputs = model(**repeated, decoder_input_ids=flat[:, :-1], output_copying=True, use_cache=False, return_dict=True)
    targets = flat[:, 1:, None]
    attention = outputs.copy_attentions.float()  # (batch * sequences, target, source)
    attention = attention * (repeated["input_ids"][:, None] == targets)
    copied = outputs.copy_probability.float() * attention.sum(dim=-1)
    probability = outputs.logits.gather(2, targets).squeeze(2).float().exp()
    shares = (copied / probability.clamp(min=torch.finfo(torch.float32).tiny)).clamp(max=1.0)
    most, places = attention.max(dim=-1)
    found = {"copy_shares": shares, "copy_places": places.masked_fill(most <= 0, -1)}
    if token_sentences is not None:
        of_tokens = attention / attention.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        sentences = token_sentences.to(model.device).repeat_interleave(sequences, dim=0)
        found["source_shares"] = per_sentence(of_tokens * shares[..., None], sentences)
    return {name: value.unflatten(0, (-1, sequences)) for name, value in found.items()}


def per_sentence(of_tokens: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
    """Add up (batch, target, source) over the sentences (batch, source) of the source tokens, where -1 is none."""
    count = int(sentences.max()) + 1
    places = sentences.masked_fill(sentences < 0, count)[:, None].expand_as(of_tokens)
    return of_tokens.new_zeros(*of_tokens.shape[:2], count + 1).scatter_add(2, places, of_tokens)[..., :count]


def copied_words(
    tokenizer: Any,
    ids: Sequence[int],
    text: str,
    shares: Sequence[float],
    places: Sequence[int],
    offsets: Sequence[Sequence[int]],
    decoding: dict[str, Any],
) -> list[dict[str, Any]]:
    """Find the words of a summary that were copied."""
    ends = token_ends(tokenizer, ids, text, decoding)
    found = []
    first = 0
    for word in _word().finditer(text):
        while first < len(ends) and ends[first] <= word.start():
            first += 1
        last = first
        while last < len(ends) - 1 and ends[last] < word.end():
            last += 1
        tokens = range(first, last + 1) if first < len(ends) else range(0)
        share = min((shares[n] for n in tokens), default=0.0)
        if share > MOSTLY:
            source = _source([places[n] for n in tokens], offsets)
            span = {"text": word[0], "start": word.start(), "end": word.end()}
            found.append(span | {"share": share, "source": source})
    return found


def token_ends(tokenizer: Any, ids: Sequence[int], text: str, decoding: dict[str, Any]) -> list[int]:
    """Find where in a text each token ends, never before the one before it."""
    ends = []
    last = 0
    for number in range(1, len(ids) + 1):
        before = tokenizer.decode(ids[:number], **decoding)
        # What is decoded of a part of a character is not in the text.
        last = max(last, len(before) if text.startswith(before) else _shared(before, text))
        ends.append(last)
    return ends


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))


def _source(places: Sequence[int], offsets: Sequence[Sequence[int]]) -> list[int] | None:
    in_order = all(after == before + 1 for before, after in itertools.pairwise(places))
    if not in_order or places[0] < 0:
        return None
    return [int(offsets[places[0]][0]), int(offsets[places[-1]][1])]

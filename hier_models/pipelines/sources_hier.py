"""Which sentences of a document each sentence of its summary rests on.

Two signs are added up, both from 0 to 1: the words and pairs of words that two sentences have in common, rare ones
first, which needs no model; and, of models that tell, how much the summary's tokens were copied from the sentence or,
without copying, how much attention they paid to it. `examples/mini/sources.py` measures both.
"""

import itertools
import math
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import torch

from .chunking_hier import sentence_spans
from .copied_words_hier import UNSPACED, per_sentence, token_ends


Span = tuple[int, int]

_EAGER = RLock()  # of several threads one at a time changes a model's attention

MOST = 3  # sources of a sentence
# What has less than this share of the best one's score is left out: on the development pairs it hardly ever was right.
LEAST = 0.25
PAIR = 0.5  # pairs of neighbouring words count half as much as words: the pair has its two words counted already

_WORD = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")

_Unit = str | tuple[str, str]


@dataclass
class DocumentSentences:
    """The sentences of a document that a model has read."""

    text: str  # the document as running text
    spans: list[Span]  # where each sentence begins and ends, in characters
    tokens: list[int] = field(default_factory=list)  # the sentence of each source token, -1 for none; empty: not known
    page_starts: Sequence[Mapping[str, int]] = ()  # from which character on it stands on which page


def document_sentences(
    name: str, value: Any, text: str, processor: Any = None, offsets: Sequence[Sequence[int]] | None = None
) -> DocumentSentences:
    """Find the sentences of a document; none goes on in another turn or article."""
    spans: list[Span] = []
    for start, end in _parts(name, value, text):
        inside = [(0, end - start)] if name == "sentences" else sentence_spans(text[start:end], processor)
        spans += [(start + first, start + last) for first, last in inside]
    if offsets is None:
        return DocumentSentences(text, spans)
    starts = [start for start, _ in spans]
    # The last character counts: the first may be the space before a word.
    places = [bisect_right(starts, end - 1) - 1 if end > start else -1 for start, end in offsets]
    inside_one = [n if n >= 0 and end <= spans[n][1] else -1 for n, (_, end) in zip(places, offsets, strict=True)]
    read = sorted(set(inside_one) - {-1})
    number = {-1: -1} | {sentence: place for place, sentence in enumerate(read)}
    return DocumentSentences(text, [spans[n] for n in read], [number[n] for n in inside_one])


def plain_offsets(tokenizer: Any, prefix: str, text: str, length: int) -> list[Span] | None:
    """Find where the tokens that are left of a long text stand in it; None if the tokenizer cannot tell."""
    if not tokenizer.is_fast:
        return None
    encoded = tokenizer(prefix + text, truncation=True, max_length=length, return_offsets_mapping=True)
    before = len(prefix)
    return [(max(start - before, 0), max(end - before, 0)) for start, end in encoded["offset_mapping"]]


def sources_of_tokens(
    tokenizer: Any,
    ids: Sequence[int],
    summary: str,
    decoded: str,
    document: DocumentSentences,
    shares: torch.Tensor | None,
    decoding: dict[str, Any],
    processor: Any = None,
) -> list[dict[str, Any]]:
    """Find the sources of a summary of which the tokens are known."""
    spans = summary_spans(summary, processor)
    if shares is None or not document.tokens:
        return find_sources(summary, spans, document)
    taken = shares_of_sentences(tokenizer, ids, summary, decoded, spans, shares[:, : len(document.spans)], decoding)
    return find_sources(summary, spans, document, taken)


def shares_of_sentences(
    tokenizer: Any,
    ids: Sequence[int],
    summary: str,
    decoded: str,
    spans: Sequence[Span],
    shares: torch.Tensor,
    decoding: dict[str, Any],
) -> list[list[float]]:
    """Average what is known of a summary's tokens over its sentences."""
    letters_of_summary, letters = letters_before(summary), letters_before(decoded)
    ends = [letters_of_summary[end] for _, end in spans]
    shares = shares.cpu()
    sums, counts = torch.zeros(len(spans), shares.shape[1]), torch.zeros(len(spans), 1)
    last = 0
    for token, end in enumerate(token_ends(tokenizer, ids, decoded, decoding)):
        sentence = bisect_left(ends, letters[end])
        if letters[end] > last and sentence < len(spans):  # ids that write nothing belong to no sentence
            sums[sentence] += shares[token]
            counts[sentence] += 1
        last = letters[end]
    averages: list[list[float]] = (sums / counts.clamp(min=1)).tolist()
    return averages


def find_sources(
    summary: str, spans: Sequence[Span], document: DocumentSentences, shares: Sequence[Sequence[float]] | None = None
) -> list[dict[str, Any]]:
    """Find for each sentence of a summary the sentences of its document that it rests on."""
    overlap = _Overlap([document.text[start:end] for start, end in document.spans])
    found = []
    for number, (start, end) in enumerate(spans):
        scores = overlap.scores(summary[start:end])
        if shares is not None:
            scores = [score + share for score, share in zip(scores, shares[number], strict=True)]
        sources = []
        for place, weight in _best(scores):
            first, last = document.spans[place]
            source = {"text": document.text[first:last], "start": first, "end": last, "weight": weight}
            pages = [page["page"] for page in document.page_starts if page["start"] <= first]
            sources.append(source | ({"page": pages[-1]} if pages else {}))
        found.append({"text": summary[start:end], "start": start, "end": end, "sources": sources})
    return found


def summary_spans(summary: str, processor: Any = None) -> list[Span]:
    """Find the sentences of a summary, which ends of lines end too."""
    return [
        (line.start() + start, line.start() + end)
        for line in re.finditer(r"[^\r\n]+", summary)
        for start, end in sentence_spans(line[0], processor)
    ]


@torch.no_grad()
def attended_sentences(
    model: Any, inputs: dict[str, torch.Tensor], ids: torch.Tensor, token_sentences: torch.Tensor
) -> torch.Tensor:
    """The mean attention of a HAT to each sentence, (batch, sequences, target, sentences); its tokens share evenly."""
    sequences = ids.shape[1]
    flat = ids.flatten(0, 1).to(model.device)  # (batch * sequences, target + 1)
    inputs = {name: value.repeat_interleave(sequences, dim=0) for name, value in inputs.items()}
    sentences = token_sentences.to(model.device).repeat_interleave(sequences, dim=0)
    # The encoder runs with its own fast attention: its weights are not needed.
    encoder_outputs = model.get_encoder()(**inputs, return_dict=True)
    others = {name: value for name, value in inputs.items() if name != "input_ids"}
    options = {"output_hierarchical_attentions": True, "use_cache": False, "return_dict": True}
    with eager_attention(model):
        outputs = model(**others, encoder_outputs=encoder_outputs, decoder_input_ids=flat[:, :-1], **options)
    layers = [layer.float().mean(dim=1) for layer in outputs.hierarchical_attentions]
    attention = torch.stack(layers).mean(dim=0)  # (batch * sequences, target, markers)
    marker = (inputs["input_ids"] == model.config.bos_token_id).cumsum(dim=1).sub(1).clamp(min=0)
    counts = attention.new_zeros(len(marker), attention.shape[2])
    counts = counts.scatter_add(1, marker, (sentences >= 0).float())
    of_tokens = attention.gather(2, marker[:, None].expand(-1, attention.shape[1], -1))
    of_tokens = of_tokens / counts.gather(1, marker).clamp(min=1)[:, None]
    attended: torch.Tensor = per_sentence(of_tokens, sentences).unflatten(0, (-1, sequences))
    return attended


def format_sources(sources: Sequence[dict[str, Any]]) -> list[str]:
    """Write the sources of a summary as lines of text."""
    lines = []
    for number, sentence in enumerate(sources, 1):
        lines.append(f"  [{number}] {' '.join(sentence['text'].split())}")
        lines += [
            f"      {source['weight']:4.0%}  {_place(source)}{' '.join(source['text'].split())}"
            for source in sentence["sources"]
        ]
        lines += [] if sentence["sources"] else ["         –  nothing in common with the document"]
    return lines


def _place(source: Mapping[str, Any]) -> str:
    return f"p. {source['page']}: " if "page" in source else ""


class _Overlap:
    """The sentences of a document, indexed by their words and pairs of words."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.places: dict[_Unit, list[tuple[int, int]]] = defaultdict(list)  # sentences that have it, and how often
        for number, sentence in enumerate(sentences):
            for unit, count in _units(sentence).items():
                self.places[unit].append((number, count))
        self.sizes = [0.0] * len(sentences)
        for unit, places in self.places.items():
            for number, count in places:
                self.sizes[number] += count * self._weight(unit)

    def scores(self, sentence: str) -> list[float]:
        """Weighted words and pairs in common, as a share of those of both (the coefficient of Dice)."""
        units = _units(sentence)
        size = sum(count * self._weight(unit) for unit, count in units.items())
        common = [0.0] * len(self.sizes)
        for unit, count in units.items():
            for number, times in self.places.get(unit, ()):
                common[number] += min(count, times) * self._weight(unit)
        return [2 * both / (size + own) if both else 0.0 for both, own in zip(common, self.sizes, strict=True)]

    def _weight(self, unit: _Unit) -> float:
        """What few sentences have says more."""
        rarity = math.log(1 + len(self.sizes) / max(len(self.places.get(unit, ())), 0.5))
        return rarity * (1 if isinstance(unit, str) else PAIR)


def _units(text: str) -> Counter[_Unit]:
    """Words without case and accents, and pairs of neighbours."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn")
    words = _WORD.findall(text.casefold())
    return Counter(itertools.chain(words, itertools.pairwise(words)))


def _best(scores: Sequence[float]) -> list[tuple[int, float]]:
    """The places of the highest scores, of equals the first, and their shares."""
    best = sorted(range(len(scores)), key=lambda n: -scores[n])[:MOST]
    best = [n for n in best if scores[n] > 0 and scores[n] >= LEAST * scores[best[0]]]
    total = sum(scores[n] for n in best)
    return [(n, scores[n] / total) for n in best]


def _parts(name: str, value: Any, text: str) -> Iterator[Span]:
    """Where the parts of a document stand in its running text, however that joins them."""
    if name == "text":
        parts = [value]
    else:
        parts = [f"{part['role']}: {part['content']}" for part in value] if name == "turns" else list(value)
    letters = [place for place, sign in enumerate(text) if not sign.isspace()]
    first = 0
    for part in parts:
        last = min(first + len("".join(part.split())), len(letters))
        if last > first:
            yield letters[first], letters[last - 1] + 1
        first = last


def letters_before(text: str) -> list[int]:
    """How many signs that are no space stand before each place of a text, its end included."""
    return list(itertools.accumulate((not sign.isspace() for sign in text), initial=0))


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Set the attention that returns weights, and set back what was there."""
    with _EAGER:
        # Transformers has a public setter and no public getter; this is what the setter itself compares with.
        before = model.config._attn_implementation
        model.set_attn_implementation("eager")
        try:
            yield
        finally:
            model.set_attn_implementation(before)

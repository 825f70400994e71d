"""Denoising after BART: chunks of sentences that are shuffled, with spans of tokens replaced by mask tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset as Rows
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from ..models.phrase_spans import place_phrases
from .packing import PIECES
from .tokenizing import plain_tokenizer


# In the place of a token that is masked.
MASKED = -1
# The noise of validation data is drawn from other numbers than that of training data.
PARTS = ("train", "validation")


def permute_sentences(sentences: Sequence[Sequence[int]], generator: np.random.Generator) -> list[int]:
    """Put sentences in a random order.

    Source: Lewis et al., 2020 (BART), section 2.2, "Sentence Permutation".
    """
    return [token for number in generator.permutation(len(sentences)) for token in sentences[number]]


def infill_text(
    ids: Sequence[int],
    generator: np.random.Generator,
    *,
    mask_id: int,
    mask_share: float = 0.3,
    span_mean: float = 3.0,
) -> list[int]:
    """Replace spans of tokens by one mask token each; a span without a token is a mask token put in between.

    The lengths of spans are drawn from a Poisson distribution until the share of the tokens is reached; the last one
    is cut to it. A share that is no whole number of tokens is rounded by chance, to be right on average. Spans do not
    overlap, and every arrangement of them is equally likely.

    Source: Lewis et al., 2020 (BART), section 2.2, "Text Infilling", and section 5.1 (30 % of the tokens, λ = 3).
    """
    budget = int(len(ids) * mask_share + generator.random())
    lengths: list[int] = []
    while (left := budget - sum(lengths)) > 0:
        lengths.append(min(int(generator.poisson(span_mean)), left))
    while len(lengths) > budget:  # only of texts of a few tokens; a text must not grow
        lengths.remove(0)
    items = len(ids) - budget + len(lengths)
    is_span = np.zeros(items, dtype=bool)
    is_span[generator.choice(items, len(lengths), replace=False)] = True
    steps = np.ones(items, dtype=np.int64)
    steps[is_span] = generator.permutation(lengths)  # the last one drawn is cut and never empty
    starts = np.cumsum(steps) - steps
    tokens = np.asarray([*ids, mask_id])  # a span without tokens at the end starts behind the last
    found: list[int] = np.where(is_span, mask_id, tokens[starts]).tolist()
    return found


class NoisyChunks(Dataset[dict[str, Any]]):
    """Chunks with noise as source and the text as it was as labels.

    The noise of a chunk is drawn from the seed, the number of the chunk and the number of the copy alone: it does not
    depend on when, in which process or in which batch the chunk comes. Where the chunks have `pieces`, the processor's
    `key_phrases` finds what is highlighted in what the noise leaves.
    """

    def __init__(
        self,
        chunks: Rows,
        processor: ProcessorMixin | PreTrainedTokenizerBase,
        *,
        copies: int = 1,
        seed: int = 0,
        part: str = "train",
        mask_share: float = 0.3,
        span_mean: float = 3.0,
        permute: bool = True,
    ) -> None:
        if part not in PARTS:
            raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")
        if copies < 1:
            raise ValueError(f"copies must be at least 1, got {copies}")
        if not len(chunks):
            raise ValueError("chunks must hold at least one, got none")
        tokenizer = plain_tokenizer(processor)
        names = ("bos_token", "eos_token", "mask_token")
        self._ids: list[Any] = [getattr(tokenizer, f"{name}_id") for name in names]
        if None in self._ids:
            raise ValueError(f"processor: its tokenizer has no {names[self._ids.index(None)]}, which denoising needs")
        self.chunks, self.copies, self.seed, self.part = chunks, copies, seed, part
        self.mask_share, self.span_mean, self.permute = mask_share, span_mean, permute
        self._processor: Any = processor if PIECES in chunks.column_names else None

    def __len__(self) -> int:
        """Tell how many there are."""
        return len(self.chunks) * self.copies

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Draw the noise of a chunk."""
        if not 0 <= number < len(self):
            raise IndexError(f"number must be from 0 to below {len(self)}, got {number}")
        copy, chunk = divmod(number, len(self.chunks))
        bos, eos, mask = self._ids
        row = self.chunks[chunk]
        ids = row["input_ids"]
        sentences: list[list[int]] = []  # places of the tokens of each
        for place, token in enumerate(ids):
            if token == bos:
                sentences.append([])
            elif token != eos:
                sentences[-1].append(place)
        generator = np.random.default_rng([self.seed, PARTS.index(self.part), chunk, copy])
        text = [place for sentence in sentences for place in sentence]
        shuffled = permute_sentences(sentences, generator) if self.permute else text
        share = {"mask_share": self.mask_share, "span_mean": self.span_mean}
        order = infill_text(range(len(shuffled)), generator, mask_id=MASKED, **share)
        source = [bos, *(mask if i == MASKED else ids[shuffled[i]] for i in order), eos]
        found = {
            "input_ids": source,
            "attention_mask": [1] * len(source),
            "labels": [bos, *(ids[i] for i in text), eos],
        }
        if self._processor is not None:
            found |= _highlights(self._processor, [row[PIECES][i] for i in shuffled], np.array(order, dtype=np.int64))
        return found


def _highlights(processor: Any, pieces: list[str], order: "np.ndarray[Any, Any]") -> dict[str, Any]:
    """Find the key phrases in what is left of a text between its masks, and their tokens in the source."""
    ends = np.cumsum([0, *map(len, pieces)])
    offsets = np.stack([ends[:-1], ends[1:]], axis=1)  # (tokens, 2)
    stays = order != MASKED
    runs = np.split(order[stays], np.cumsum(stays)[~stays])  # tokens between masks
    places = [(int(ends[run[0]]), int(ends[run[-1] + 1])) for run in runs if len(run)]
    phrases = processor.key_phrases.find("".join(pieces), places)
    last = np.maximum.accumulate(np.where(stays, order, MASKED))
    of_source = np.where(stays[:, None], offsets[order], ends[last + 1][:, None])  # a mask has no characters
    placed = place_phrases(phrases, of_source, [(0, len(order))], processor.max_phrase_length, refuse=False)
    return {name: placed[name] for name in processor.own_length_inputs}

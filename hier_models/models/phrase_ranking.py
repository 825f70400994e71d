"""Key phrases that need no corpus: by TextRank, by the title's words, and by a tagger of important tokens.

Each chooses among the candidates of `RankedPhrases`, and is saved by its name.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForTokenClassification, AutoTokenizer

from .key_phrase_extraction import Array, Candidates, RankedPhrases
from .keywords import text_rank
from .phrase_finder import KEY_PHRASES_FILE
from .phrase_words import composed_words, is_unspaced
from .text_inputs import NO_LIMIT, longest_text


# Of the words of a document, TextRank takes so many, the best (Mihalcea and Tarau, 2004, section 3.1).
KEYWORDS = 1 / 3
# Characters within which a title must end, and where a sentence does.
TITLE = 500
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])")
# Windows of a long document that are tagged at once, and the class of important tokens.
WINDOWS, IMPORTANT = 8, 1


class TextRankPhrases(RankedPhrases, name="textrank"):
    """Finds phrases all of whose words are in the upper third of the document's words by TextRank.

    A phrase counts for the sum of its words' ranks. The arguments are those of [`RankedPhrases`].

    Source: Mihalcea and Tarau (2004), "TextRank: Bringing Order into Text", section 3.1.
    """

    def _scores(self, text: str, ranges: Sequence[tuple[int, int]] | None, candidates: Candidates) -> Array:
        parts = [composed_words(text[start:end]) for start, end in ranges or [(0, len(text))]]
        ranks = text_rank([[word for word in part if self._is_content(word)] for part in parts])
        best = sorted(ranks.values(), reverse=True)[: max(1, round(len(ranks) * KEYWORDS))]
        scores = [[ranks.get(word, 0.0) for word in words] for words in candidates.words(text)]
        return np.array([sum(row) if min(row) >= best[-1] else 0.0 for row in scores])

    def _is_content(self, word: str) -> bool:
        return word not in self.stopwords and (len(word) > 1 or is_unspaced(word))


class TitlePhrases(RankedPhrases, name="title"):
    """Finds the phrases of a document that have words of its title in them, or of its articles' titles.

    The title is the first line, or where there is but one, the first sentence. A phrase counts for its occurrences
    times the share of its words that are the title's. The arguments are those of [`RankedPhrases`].

    Source: Edmundson (1969), "New Methods in Automatic Extracting", the title method.
    """

    def _scores(self, text: str, ranges: Sequence[tuple[int, int]] | None, candidates: Candidates) -> Array:
        titles = (_title(text[start:end]) for start, end in ranges or [(0, len(text))])
        known = {word for title in titles for word in composed_words(title)} - self.stopwords
        shares = [sum(word in known for word in words) / len(words) for words in candidates.words(text)]
        scores: Array = candidates.counts * np.array(shares)
        return scores


def _title(text: str) -> str:
    """Give the first line of several, or the first sentence."""
    line, _, rest = text.strip().partition("\n")
    return line[:TITLE] if rest else _SENTENCE_END.split(line[:TITLE])[0]


class ImportantPhrases(RankedPhrases, name="importance"):
    """Finds the phrases that a tagger thinks important: a token classifier that was trained by `importance_tagging`.

    A phrase counts for the probability that its characters' tokens are important, on average, summed over its
    occurrences. A document longer than the tagger takes is tagged in windows that overlap by a quarter, and a token
    has its higher probability.

    Args:
        tagger: A checkpoint, a folder or an id, of a token classifier with two classes, of which 1 is "important", and
            a fast tokenizer.
        stopwords: Words that are in no phrase.
        lengths: How many words a phrase may have.
        top_k: How many phrases of a document are chosen.

    Raises:
        ValueError: If the checkpoint, loaded when it is needed, is of no such model; or as [`RankedPhrases`].
    """

    def __init__(
        self, tagger: str, stopwords: Iterable[str] = (), lengths: Sequence[int] = (2, 3), top_k: int = 10
    ) -> None:
        super().__init__(stopwords, lengths, top_k)
        # A folder is to be found from anywhere.
        self.tagger = os.path.abspath(tagger) if os.path.isdir(tagger) else str(tagger)
        self._loaded: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # What was tokenized is kept under a hash of this, and a tagger that was trained anew finds other phrases.
        weights = [(str(file), file.stat().st_mtime_ns) for file in sorted(Path(self.tagger).glob("*.safetensors"))]
        return {**super().__getstate__(), "_loaded": None, "_weights_of": weights}

    def as_dict(self) -> dict[str, Any]:
        """Give the checkpoint of the tagger, and how phrases are chosen."""
        return {"tagger": self.tagger, **super().as_dict()}

    def check_tagger(self) -> None:
        """Refuse a tagger that is none, by its config.

        Raises:
            ValueError: If there is no such checkpoint, or it is of another model.
        """
        advice = "give one that task: importance_tagging has trained"
        advice += f"; hier-models fit-phrases makes {KEY_PHRASES_FILE} anew"
        try:
            config = AutoConfig.from_pretrained(self.tagger)
        except (OSError, ValueError) as error:
            problem = str(error).split("\n")[0]
            raise ValueError(f"`tagger` {self.tagger!r} cannot be loaded: {problem} ({advice})") from error
        kinds = config.architectures or ()
        if config.num_labels != 2 or not all(kind.endswith("ForTokenClassification") for kind in kinds):
            got = f"{self.tagger!r}, a {', '.join(kinds) or config.model_type} with {config.num_labels} classes"
            raise ValueError(f"`tagger` must be a token classifier with two classes, got {got}; {advice}")

    def _scores(self, text: str, ranges: Sequence[tuple[int, int]] | None, candidates: Candidates) -> Array:
        weights = self._weights(text)  # (characters,)
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        start, end = candidates.bounds.T
        means = (sums[end] - sums[start]) / (end - start)
        return np.bincount(candidates.of, means, minlength=len(candidates.keys))

    def _weights(self, text: str) -> Array:
        """Probability that the token of each character is important."""
        if self._loaded is None:
            self.check_tagger()
            model = AutoModelForTokenClassification.from_pretrained(self.tagger).eval()
            self._loaded = model, AutoTokenizer.from_pretrained(self.tagger)
        model, tokenizer = self._loaded
        longest = longest_text(model, tokenizer) or NO_LIMIT
        cut = {"truncation": True, "max_length": longest, "stride": longest // 4, "return_overflowing_tokens": True}
        encoded = tokenizer(text, **cut, padding=True, return_offsets_mapping=True, return_tensors="pt")
        parts = [encoded[name].split(WINDOWS) for name in ("input_ids", "attention_mask", "offset_mapping")]
        weights = np.zeros(len(text))
        for ids, mask, places in zip(*parts, strict=True):
            with torch.inference_mode():
                found = model(input_ids=ids, attention_mask=mask).logits.float().softmax(-1)[..., IMPORTANT]
            for weight, (start, end) in zip(found.flatten().tolist(), places.flatten(0, 1).tolist(), strict=True):
                weights[start:end] = np.maximum(weights[start:end], weight)
        return weights

"""Processor of the Highlight-Transformer: articles in, `<s> articles </s>` out, and the tokens of their key phrases.

It turns the input into ids, gives each article its share of the limit, finds the phrases, reports what was cut and
what was not found, and pads.
"""

import copy
import re
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import logging
from transformers.utils.hub import cached_file

from .key_phrases import KEY_PHRASES_FILE, KeyPhraseExtractor
from .phrase_spans import Phrase, place_phrases, read_phrases, shares
from .source_text import join_parts, part_places, read_batch, read_items, read_text, read_turn
from .summary_lengths import begin_with_lengths


logger = logging.get_logger(__name__)

LANGUAGE_CODE = re.compile("[a-z]{2,3}")

# Per processor, kept out of it so that pickling, hashing and saving it do not change with use: the tokenizer's backend
# and size with our copy of that backend; and what processors have warned of.
_BACKENDS: "weakref.WeakKeyDictionary[HighlightTransformerProcessor, tuple[Any, int, Any]]" = (
    weakref.WeakKeyDictionary()
)
_WARNED: "weakref.WeakKeyDictionary[HighlightTransformerProcessor, set[str]]" = weakref.WeakKeyDictionary()

_SEPARATORS = {"sentences": " ", "turns": "\n", "documents": "\n\n"}
_HUB_ARGUMENTS = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "subfolder")

Range = tuple[int, int]


class HighlightTransformerProcessor(ProcessorMixin):
    """Turns articles into the Highlight-Transformer's input: `<s> articles </s>`, and which tokens are key phrases.

    Phrases are the user's own, or what `key_phrases` finds. Without both nothing is highlighted. The literal text
    `<s>` stays text.

    Args:
        tokenizer: Any tokenizer of Transformers that has a BOS and an EOS token; with a fast backend where phrases
            are wanted.
        language: Language of the texts, as a code such as en or de: whose stopwords a key phrase extractor is fitted
            with.
        key_phrases: Finds the key phrases of documents that come without; saved and loaded with the processor.
        max_phrase_length: Tokens of the longest phrase, as in the model's config.

    Raises:
        ValueError: If the tokenizer lacks a token, the language is no code, or the length is below 1.
        TypeError: If `key_phrases` is no extractor.

    Source: sections 3.1 and 4.1.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None = None,
        language: str = "en",
        key_phrases: KeyPhraseExtractor | None = None,
        max_phrase_length: int = 32,
    ) -> None:
        super().__init__(tokenizer)
        for token in ("bos_token", "eos_token"):
            if getattr(tokenizer, f"{token}_id") is None:
                raise ValueError(
                    f"`tokenizer` ({type(tokenizer).__name__}) has no {token}; documents begin with BOS and end with "
                    f'EOS. Add one with tokenizer.add_special_tokens({{"{token}": …}}) and resize the model\'s '
                    "embeddings."
                )
        if not isinstance(language, str) or not LANGUAGE_CODE.fullmatch(language):
            raise ValueError(f"`language` must be a code of two or three small letters, such as en, got {language!r}")
        if isinstance(max_phrase_length, bool) or not isinstance(max_phrase_length, int) or max_phrase_length < 1:
            raise ValueError(f"`max_phrase_length` must be an integer of 1 or more, got {max_phrase_length!r}")
        self.language = language
        self.key_phrases = key_phrases
        self.max_phrase_length = max_phrase_length

    @property
    def key_phrases(self) -> KeyPhraseExtractor | None:
        """What finds key phrases; it may be replaced, and None finds none."""
        return self._key_phrases

    @key_phrases.setter
    def key_phrases(self, extractor: KeyPhraseExtractor | None) -> None:
        if extractor is not None and not (hasattr(extractor, "find") and hasattr(extractor, "save")):
            raise TypeError(f"`key_phrases` must be a KeyPhraseExtractor or None, got {type(extractor).__name__}")
        self._key_phrases = extractor

    @property
    def extra_inputs(self) -> dict[str, Any]:
        """Inputs beyond ids and mask, and what pads them: one entry for each phrase that is highlighted."""
        return {"phrase_positions": (-1, -1), "phrase_values": 0.0}

    @property
    def own_length_inputs(self) -> tuple[str, ...]:
        """Those of the extra inputs that have not an entry for each token; they are padded on the right."""
        return ("phrase_positions", "phrase_values")

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model inputs that the processor makes."""
        return ["input_ids", "attention_mask", *self.extra_inputs]

    def running_text(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ) -> str | list[str]:
        """Give the text that is tokenized, whose characters `phrases` and `offset_mapping` count.

        Args:
            text: As in the call, of which one is given; it is its own running text.
            sentences: As in the call; joined by spaces.
            turns: As in the call; a line each, "role: content".
            documents: As in the call; joined by blank lines.

        Returns:
            The text of one input, or a list of them.

        Raises:
            ValueError: If the inputs are none, several or malformed.
            TypeError: If an input is not text, or a list of text.
        """
        name, value = self._given(False, text=text, sentences=sentences, turns=turns, documents=documents)
        texts, _, batched = self._texts(name, value)
        return texts if batched else texts[0]

    def kept_text(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        max_length: int | None = None,
    ) -> Any:
        """Give what truncation leaves of documents; what is left of a text may end inside of a word.

        Args:
            text: As in the call, of which one is given.
            sentences: As in the call.
            turns: As in the call.
            documents: As in the call.
            max_length: As in the call.

        Returns:
            For each input a list of texts: what is left of each article, or the one text. One list for a single input.

        Raises:
            ValueError: If the inputs are none, several or malformed, or the limit is below 2.
            TypeError: If an input is not text, or a list of text.
        """
        name, value = self._given(False, text=text, sentences=sentences, turns=turns, documents=documents)
        texts, articles, batched = self._texts(name, value)
        budget = self._limit("max_length", max_length) - 2
        kept = []
        for whole, ranges, (ids, offsets) in zip(texts, articles, self._encode(texts, True), strict=True):
            _, read = self._kept(ids, np.asarray(offsets, dtype=np.int64).reshape(-1, 2), ranges, budget)
            kept.append([whole[start:end] for start, end in read])
        return kept if batched else kept[0]

    def article_spans(self, documents: Sequence[str] | Sequence[Sequence[str]]) -> Any:
        """Tell where in the running text each article is.

        Args:
            documents: As in the call.

        Returns:
            (start, end) in characters for each article; for a list of inputs, a list of such lists.

        Raises:
            ValueError: If there is none.
            TypeError: If an article is not text.
        """
        _, spans, batched = self._texts("documents", documents)
        return spans if batched else spans[0]

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_target: str | Sequence[str] | None = None,
        phrases: Sequence[Any] | None = None,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        max_target_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_truncation: bool = False,
        return_phrases: bool = False,
        return_offsets_mapping: bool = False,
    ) -> BatchEncoding:
        """Prepare documents, targets or both for the model.

        Give at most one of `text`, `sentences`, `turns` and `documents`, as one input or a list of inputs. A single
        input without `return_tensors` gives flat lists, as tokenizers do.

        Args:
            text: Running text.
            sentences: A document's sentences, joined to running text by single spaces.
            turns: A dialogue: `{"role": …, "content": …}` per turn, read as lines "role: content". A content may be
                empty, as in transcripts.
            documents: Several articles that make one input, one after the other, a blank line between. Truncation
                keeps the beginning of each: an equal share of the limit, and what a short article leaves over goes to
                the others.
            text_target: The summary or summaries: gives `labels`. With a tokenizer that has `[line]`, `[short]` and
                `[long]`, that of the summary's length (at most 25 words, at most 110, more) stands in the place of
                BOS.
            phrases: What is highlighted in a document, and how much: a list of (phrase, value), which is every
                occurrence of the phrase as whole words in any case, of (start, end, value) with the characters of the
                running text (see `running_text`), or of phrases alone, of which each gets the same value, with an L2
                norm of 1 together. Values are 0 or more; where phrases overlap, are nested or repeated, they add up.
                For a list of documents, a list of such lists, or of None where the processor is to find them. By
                default `key_phrases` finds those of all documents in what truncation leaves of them; an empty list
                highlights nothing.
            padding: True or "longest", "max_length", or False. Padded labels are -100, always on the right.
            truncation: Whether to cut at `max_length` and `max_target_length`; by default where they are
                given and nothing is padded, as in Transformers. The EOS token stays. What is left of a phrase that is
                cut stays highlighted.
            max_length: Length limit in tokens, special tokens included; by default the tokenizer's
                `model_max_length`.
            max_target_length: The same for `text_target`.
            pad_to_multiple_of: Rounds the padded length up.
            padding_side: "right" or "left"; by default the tokenizer's.
            return_tensors: "pt" or "np".
            return_truncation: Also return, per input, `num_truncated_tokens` (tokens that are missing), for targets
                `num_truncated_target_tokens`, and where there are phrases `num_missing_phrases` (given, but not in
                the text), `num_truncated_phrases` (occurrences that lost tokens), `num_long_phrases` (occurrences
                that `key_phrases` found, of more than `max_phrase_length` tokens; they are not highlighted) and
                whether it is `without_phrases` (1: no token is highlighted, though no empty list was given). Without
                it, these are logged, the first of each kind as a warning.
            return_phrases: Also return `phrases`: for each input a list of {"text", "value", "spans", "positions"},
                with every occurrence's characters and, where tokens of it are left, its tokens.
            return_offsets_mapping: Also return `offset_mapping`: for each token where its characters begin and end in
                the running text; (0, 0) for special tokens and padding.

        Returns:
            `input_ids` and `attention_mask` (batch, tokens); where there are phrases also `phrase_positions` (batch,
            phrases, 2), the first token of each occurrence and the one after its last, counted from the first token
            that is no padding, and `phrase_values` (batch, phrases), both padded on the right, with -1 and 0; with
            `text_target` also `labels` (batch, target tokens); the counts (batch,); `offset_mapping` (batch, tokens,
            2).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn or a phrase is
                malformed, a given phrase has more than `max_phrase_length` tokens, a limit is below 2, or the
                tokenizer does not tell where its tokens are.
            TypeError: If an input is not text, or a list of text, as described.
        """
        if truncation not in (True, False, None, "longest_first", "only_first", "do_not_truncate"):
            raise ValueError(f"`truncation` must be True or False, got {truncation!r}")
        by_limits = truncation is None and padding in (False, None, "do_not_pad")  # as in Transformers
        cut = max_length is not None if by_limits else truncation not in (False, None, "do_not_truncate")
        cut_target = max_target_length is not None if by_limits else cut
        name, value = self._given(
            text_target is not None, text=text, sentences=sentences, turns=turns, documents=documents
        )
        if not name and (phrases is not None or return_phrases or return_offsets_mapping):
            raise ValueError("`phrases`, `return_phrases` and `return_offsets_mapping` are about a document; give one")

        data: dict[str, Any] = {}
        batched = True
        if name:
            texts, articles, batched = self._texts(name, value)
            given = self._read_phrases(name, phrases, texts, articles, batched)
            limit = self._limit("max_length", max_length) if cut else None
            data = self._ids(texts, articles, limit, given, return_offsets_mapping)
        if text_target is not None:
            targets, targets_batched = self._read("text_target", text_target)
            counts = [(len(data.get("input_ids", [])), batched), (len(targets), targets_batched)]
            if name and counts[0] != counts[1]:
                got = [f"a list of {n}" if many else "one" for n, many in counts]
                raise ValueError(f"`text_target` must match `{name}`, got {got[1]} for {got[0]}")
            batched = targets_batched
            limit = self._limit("max_target_length", max_target_length) if cut_target else None
            summaries = [target for (target,) in targets]
            labels = self._ids(summaries, None, limit)
            data["labels"] = begin_with_lengths(labels["input_ids"], summaries, self.tokenizer)
            data["num_truncated_target_tokens"] = labels["num_truncated_tokens"]

        found = data.pop("phrases", None)
        if not return_truncation:
            self._report(data)
        self._pad(data, padding, max_length, max_target_length, pad_to_multiple_of, padding_side, return_tensors)
        if not batched and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        encoded = BatchEncoding(data, tensor_type=return_tensors)
        if return_phrases:  # no tensors
            encoded["phrases"] = found if batched or return_tensors is not None or found is None else found[0]
        return encoded

    def _given(self, none_allowed: bool, **inputs: object) -> tuple[str, object]:
        """Find the one input that is given; an empty name for none."""
        given = [name for name, value in inputs.items() if value is not None]
        if len(given) > 1 or (not given and not none_allowed):
            raise ValueError(
                f"give exactly one of `text`, `sentences`, `turns` and `documents` (or only `text_target`), "
                f"got {' and '.join(given) or 'none'}"
            )
        return (given[0], inputs[given[0]]) if given else ("", None)

    def _texts(self, name: str, value: object) -> tuple[list[str], list[list[Range]], bool]:
        """Make running texts of any kind of input, and tell where in each its articles are."""
        rows, batched = self._read(name, value)
        texts = [join_parts(parts, _SEPARATORS.get(name, "")) for parts in rows]
        if name == "documents":
            return texts, [part_places(parts, _SEPARATORS[name]) for parts in rows], batched
        return texts, [[(0, len(whole))] for whole in texts], batched

    def _read(self, name: str, value: object) -> tuple[list[list[str]], bool]:
        """Bring any kind of input to the parts of its running text; say whether it was a batch."""
        if name in ("text", "text_target"):
            batched = not isinstance(value, str)
            values = read_items(name, value, "a string or a list of strings") if batched else [value]
            if not values:
                raise ValueError(f"`{name}` is an empty list; give at least one text")
            return [[read_text(f"{name}[{i}]" if batched else name, item)] for i, item in enumerate(values)], batched
        item, wanted = (Mapping, "a list of turns") if name == "turns" else (str, "a list of strings")
        read = read_turn if name == "turns" else read_text
        rows, batched = read_batch(name, value, item, wanted)
        if name == "documents" and (empty := next((label for label, row in rows if not row), None)):
            raise ValueError(f"`{empty}` is an empty list; give at least one article")
        return [[read(f"{label}[{j}]", part).strip() for j, part in enumerate(row)] for label, row in rows], batched

    def _read_phrases(
        self, name: str, phrases: object, texts: list[str], articles: list[list[Range]], batched: bool
    ) -> list[list[Phrase] | None] | None:
        """Check the phrases given with every document; None for those that are to be found."""
        if phrases is None:
            return None if self.key_phrases is None else [None] * len(texts)
        wanted = "a list of phrases for each document" if batched else "a list of phrases"
        values = read_items("phrases", phrases, wanted) if batched else [phrases]
        if len(values) != len(texts):
            raise ValueError(f"`phrases` must match `{name}`, got {len(values)} lists for {len(texts)} documents")
        labels = [f"phrases[{i}]" if batched else "phrases" for i in range(len(values))]
        if self.key_phrases is None and None in values:
            raise ValueError(
                f"`{labels[values.index(None)]}` is None, for the processor to find phrases, but it has no "
                "`key_phrases`; fit a KeyPhraseExtractor, or give a list of phrases (an empty one for none)"
            )
        rows = zip(labels, values, texts, articles, strict=True)
        return [None if given is None else read_phrases(name, given, text, spans) for name, given, text, spans in rows]

    def _limit(self, name: str, value: int | None) -> int:
        limit = int(self.tokenizer.model_max_length) if value is None else value
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 2:
            raise ValueError(f"`{name}` must be an integer of at least 2 (a BOS and an EOS token), got {limit!r}")
        return limit

    def _ids(
        self,
        texts: list[str],
        articles: list[list[Range]] | None,
        limit: int | None,
        phrases: list[list[Phrase] | None] | None = None,
        offsets_wanted: bool = False,
    ) -> dict[str, list[Any]]:
        """Make every text's ids, offsets and phrases, with the counts of what the limit cut."""
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        several = limit is not None and articles is not None and any(len(row) > 1 for row in articles)
        located = phrases is not None or offsets_wanted or several
        rows = []
        for number, (ids, offsets) in enumerate(self._encode(texts, located)):
            whole = [(0, len(texts[number]))]
            ranges = whole if articles is None else articles[number]
            places = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
            kept, read = self._kept(ids, places, ranges, None if limit is None else limit - 2)
            chosen = [ids[i] for a, b in kept for i in range(a, b)] if len(kept) > 1 else ids[slice(*kept[0])]
            row: dict[str, Any] = {"input_ids": [bos, *chosen, eos], "attention_mask": [1] * (len(chosen) + 2)}
            row["num_truncated_tokens"] = len(ids) - len(chosen)
            if phrases is not None:
                given = phrases[number]
                found = given
                if found is None and self.key_phrases is not None:  # one that kept no phrase of its corpus is false
                    found = self.key_phrases.find(texts[number], read)
                longest = self.max_phrase_length
                row |= place_phrases(found or [], places, kept, longest, refuse=given is not None)
                row["without_phrases"] = int(given != [] and not row["phrase_positions"])
            if offsets_wanted:
                row["offset_mapping"] = [(0, 0), *(offsets[i] for a, b in kept for i in range(a, b)), (0, 0)]
            rows.append(row)
        return {key: [row[key] for row in rows] for key in rows[0]}

    def _kept(
        self, ids: list[int], places: "np.ndarray[Any, Any]", articles: list[Range], budget: int | None
    ) -> tuple[list[Range], list[Range]]:
        """Choose which tokens of each article stay, and tell which characters of it these are."""
        if budget is None or len(ids) <= budget:
            return [(0, len(ids))], articles
        if len(articles) == 1:
            end = int(places[:budget, 1].max(initial=0))
            return [(0, budget)], [(articles[0][0], max(articles[0][0], end))]
        # A token is of the article in which it ends, so that what stands between two articles is of the second.
        ends = np.maximum.accumulate(places[:, 1])
        bounds = np.searchsorted(ends, [end for _, end in articles], side="right").tolist()
        bounds = [0, *bounds[:-1], len(ids)]
        lengths = np.diff(bounds).tolist()
        kept = [(start, start + share) for start, share in zip(bounds, shares(lengths, budget), strict=False)]
        read = [
            (start, max(start, int(ends[b - 1]) if b > a else start))
            for (a, b), (start, _) in zip(kept, articles, strict=True)
        ]
        return kept, read

    def _encode(self, texts: list[str], located: bool) -> list[tuple[list[int], list[Range]]]:
        """Tokenize texts without special tokens; where they are located, with every token's characters."""
        if not self.tokenizer.is_fast:
            if located:
                raise ValueError(
                    f"`tokenizer` ({type(self.tokenizer).__name__}) has no fast backend, which alone tells where in "
                    "the text a token is; phrases, `return_offsets_mapping` and the truncation of several articles "
                    "need one"
                )
            encoded = self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)
            return [(self._plain(ids), []) for ids in encoded["input_ids"]]
        backend = self._backend()
        encode = backend.encode_batch if located else backend.encode_batch_fast
        encodings = encode(texts, add_special_tokens=False)
        return [(self._plain(encoding.ids), encoding.offsets if located else []) for encoding in encodings]

    def _backend(self) -> Any:
        """Return a copy of the tokenizer's backend that reads special tokens as text.

        A copy, since the switch lives in the backend: the tokenizer stays as it is for its other users and threads.
        """
        original, size = self.tokenizer.backend_tokenizer, len(self.tokenizer)
        known = _BACKENDS.get(self)
        if known is None or known[0] is not original or known[1] != size:
            backend = copy.deepcopy(original)
            backend.encode_special_tokens = True
            backend.no_truncation()
            backend.no_padding()
            known = _BACKENDS[self] = (original, size, backend)
        return known[2]

    def _plain(self, ids: list[int]) -> list[int]:
        """Turn special tokens that a vocabulary still finds in text (Unigram, whole words) into the unknown token."""
        unknown = self.tokenizer.unk_token_id
        special = set(self.tokenizer.all_special_ids) - {unknown}
        if special.isdisjoint(ids):
            return ids
        if unknown is None:
            raise ValueError("the text contains a special token, and `tokenizer` has no unk_token to put in its place")
        return [unknown if i in special else i for i in ids]

    def _report(self, data: dict[str, Any]) -> None:
        """Take the counts out of the result and log them."""
        counts = {"texts": "num_truncated_tokens", "targets": "num_truncated_target_tokens"}
        lost = {kind: [n for n in data.pop(name, []) if n] for kind, name in counts.items()}
        messages = {}
        if any(lost.values()):
            cut = " and ".join(f"{sum(n)} tokens of {len(n)} {kind}" for kind, n in lost.items() if n)
            messages["cut"] = (
                f"Truncation cut {cut}. return_truncation=True returns the counts per text; a larger max_length or "
                "max_target_length, where the model has positions for it, keeps more."
            )
        names = ("num_missing_phrases", "num_truncated_phrases", "num_long_phrases", "without_phrases")
        missing, truncated, too_long, without = (sum(data.pop(name, [])) for name in names)
        for kind, number, what in (
            ("missing", missing, "phrases are not in their texts"),
            ("truncated", truncated, "occurrences of phrases lost tokens to truncation"),
            (
                "long",
                too_long,
                f"occurrences of phrases have more than {self.max_phrase_length} tokens, and are left out",
            ),
        ):
            if number:
                messages[kind] = f"{number} {what}. return_phrases=True returns which."
        if without:
            messages["without"] = (
                f"Nothing is highlighted in {without} texts: they have no key phrases. return_truncation=True returns "
                "which."
            )
        warned = _WARNED.setdefault(self, set())
        for kind, message in messages.items():
            (logger.info if kind in warned else logger.warning)(message)
        warned.update(messages)

    def _pad(
        self,
        data: dict[str, Any],
        padding: bool | str,
        max_length: int | None,
        max_target_length: int | None,
        pad_to_multiple_of: int | None,
        padding_side: str | None,
        return_tensors: str | None,
    ) -> None:
        """Pad in place: ids and mask by the tokenizer, the rest to the same lengths, phrases to the most."""
        options = {"padding": padding, "pad_to_multiple_of": pad_to_multiple_of, "return_attention_mask": True}
        to_limit = padding == "max_length"
        if "input_ids" in data:
            lengths = [len(ids) for ids in data["input_ids"]]
            inputs = {key: data[key] for key in ("input_ids", "attention_mask")}
            limit = max_length if to_limit else None
            data.update(self.tokenizer.pad(inputs, **options, max_length=limit, padding_side=padding_side))
            left = (padding_side or self.tokenizer.padding_side) == "left"
            if "offset_mapping" in data:
                fill = [[(0, 0)] * (len(ids) - n) for ids, n in zip(data["input_ids"], lengths, strict=True)]
                rows = zip(fill, data["offset_mapping"], strict=True)
                data["offset_mapping"] = [f + row if left else row + f for f, row in rows]
        if padding not in (False, "do_not_pad") or return_tensors is not None:
            for key in data.keys() & self.extra_inputs:
                most = max(1, *map(len, data[key]))  # a tensor of no phrases would have no second axis
                data[key] = [[*row, *[self.extra_inputs[key]] * (most - len(row))] for row in data[key]]
        if "labels" in data:
            rows, limit = data["labels"], max_target_length if to_limit else None
            padded = self.tokenizer.pad({"input_ids": rows}, **options, max_length=limit, padding_side="right")
            data["labels"] = [
                row + [-100] * (len(ids) - len(row)) for row, ids in zip(rows, padded["input_ids"], strict=True)
            ]

    # Saving and loading

    def to_json_file(self, json_file_path: Any) -> None:
        """Write the settings, and the key phrases beside them: here, where an upload takes what is new.

        Args:
            json_file_path: File of the settings.
        """
        if self.key_phrases is not None:
            self.key_phrases.save(Path(json_file_path).parent / KEY_PHRASES_FILE)
        super().to_json_file(json_file_path)

    def to_dict(self) -> dict[str, Any]:
        """Give the settings; of the key phrases only the name of their file.

        Returns:
            What stands in `processor_config.json`.
        """
        extractor, self._key_phrases = self._key_phrases, None  # which would be copied
        try:
            settings = super().to_dict()
        finally:
            self._key_phrases = extractor
        return settings if extractor is None else {**settings, "key_phrases": KEY_PHRASES_FILE}

    @classmethod
    def get_processor_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the settings of a saved processor, and its key phrases.

        Args:
            pretrained_model_name_or_path: Folder, or id on the Hub.
            **kwargs: Arguments of `from_pretrained`.

        Returns:
            The arguments of the processor, and what is left of the arguments.

        Raises:
            OSError: If the file with the key phrases is missing.
        """
        settings, others = super().get_processor_dict(pretrained_model_name_or_path, **kwargs)
        if isinstance(name := settings.get("key_phrases"), str):
            settings = {key: value for key, value in settings.items() if key != "key_phrases"}
            if "key_phrases" not in kwargs:
                hub = {key: kwargs[key] for key in _HUB_ARGUMENTS if key in kwargs}
                file = cached_file(pretrained_model_name_or_path, name, **hub)
                settings["key_phrases"] = KeyPhraseExtractor.load(str(file))
        return settings, others


__all__ = ["HighlightTransformerProcessor"]

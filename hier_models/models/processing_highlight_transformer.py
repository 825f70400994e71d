"""Processor of the Highlight-Transformer: articles in, `<s> articles </s>` out, and tokens of their key phrases."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizerBase

from .phrase_finder import KEY_PHRASES_FILE, PhraseFinder, as_finder
from .phrase_ranking import TextRankPhrases  # noqa: F401  # with the others there, to be loaded by name
from .phrase_spans import Phrase, place_phrases, read_phrases, shares
from .source_processing import GivesRunningText, Place, SavesPart, SourceOptions, SourceProcessor
from .source_text import SEPARATORS, given_input, part_places, read_items, read_parts
from .text_inputs import NO_PADDING, check_integer, check_language_code


class HighlightTransformerProcessor(SavesPart, GivesRunningText, SourceProcessor):
    """Turns articles into the Highlight-Transformer's input: `<s> articles </s>`, and which tokens are key phrases.

    Phrases are the user's own, or what `key_phrases` finds. Without both nothing is highlighted. The literal text
    `<s>` stays text.

    Args:
        tokenizer: Any tokenizer of Transformers that has a BOS and an EOS token; with a fast backend where phrases
            are wanted.
        language: Language of the texts, as a code such as en or de: whose stopwords a key phrase extractor is fitted
            with.
        key_phrases: Finds the key phrases of documents that come without: a [`PhraseFinder`], or a function that takes
            a text and gives its phrases (see [`PhraseFunction`]). Saved with the processor, and loaded by its name.
        max_phrase_length: Tokens of the longest phrase, as in the model's config.

    Raises:
        ValueError: If the tokenizer lacks a token, the language is no code, or the length is below 1.
        TypeError: If `key_phrases` is no finder and no function.

    Source: sections 3.1 and 4.1.
    """

    _needs_places: ClassVar[str] = "phrases, `return_offsets_mapping` and the truncation of several articles need one"
    _part: ClassVar[str] = "key_phrases"
    _part_file: ClassVar[str] = KEY_PHRASES_FILE
    _part_class: ClassVar[Any] = PhraseFinder

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None = None,
        language: str = "en",
        key_phrases: PhraseFinder | Callable[[str], Any] | None = None,
        max_phrase_length: int = 32,
    ) -> None:
        super().__init__(tokenizer)
        why = "documents begin with BOS and end with EOS"
        self._check_tokens(tokenizer, {"bos_token": why, "eos_token": why})
        check_language_code(language)
        check_integer("max_phrase_length", max_phrase_length)
        self.language = language
        self.key_phrases = key_phrases
        self.max_phrase_length = max_phrase_length

    @property
    def key_phrases(self) -> Any:
        """What finds key phrases; it may be replaced, and None finds none."""
        return self._key_phrases

    @key_phrases.setter
    def key_phrases(self, finder: PhraseFinder | Callable[[str], Any] | None) -> None:
        self._key_phrases = as_finder(finder)

    @property
    def extra_inputs(self) -> dict[str, Any]:
        """Inputs beyond ids and mask, and what pads them: one entry for each phrase that is highlighted."""
        return {"phrase_positions": (-1, -1), "phrase_values": 0.0}

    @property
    def own_length_inputs(self) -> tuple[str, ...]:
        """Those of the extra inputs that have not an entry for each token; they are padded on the right."""
        return ("phrase_positions", "phrase_values")

    def kept_text(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        max_length: int | None = None,
    ) -> Any:
        """Give what truncation leaves: of each input its articles, or one text, which may end inside of a word."""
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        name = given_input(inputs, none_allowed=False)
        texts, articles, batched = self._texts(name, inputs[name])
        budget = self._limit("max_length", max_length) - 2
        kept = []
        for whole, ranges, (ids, offsets) in zip(texts, articles, self._encode(texts, True), strict=True):
            _, read = self._kept(ids, np.asarray(offsets, dtype=np.int64).reshape(-1, 2), ranges, budget)
            kept.append([whole[start:end] for start, end in read])
        return kept if batched else kept[0]

    def article_spans(self, documents: Sequence[str] | Sequence[Sequence[str]]) -> Any:
        """Tell where in the running text each article is: (start, end) in characters, for several inputs in lists."""
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
        return_phrases: bool = False,
        return_offsets_mapping: bool = False,
        **options: Unpack[SourceOptions],
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
            text_target: The summary or summaries: gives `labels`. They begin with `[line]`, `[short]` or `[long]`, the
                summary's length, with a tokenizer that has these (at most 25 words, at most 110, more).
            phrases: What is highlighted in a document, and how much: a list of (phrase, value), which is every
                occurrence of the phrase as whole words in any case, of (start, end, value) with the characters of the
                running text (see `running_text`), or of phrases alone, of which each gets the same value, with an L2
                norm of 1 together. Values are 0 or more; where phrases overlap, are nested or repeated, they add up.
                For a list of documents, a list of such lists, or of None where the processor is to find them. By
                default `key_phrases` finds those of all documents in what truncation leaves of them; an empty list
                highlights nothing.
            return_phrases: Also return `phrases`: for each input a list of {"text", "value", "spans", "positions"},
                with every occurrence's characters and, where tokens of it are left, its tokens.
            return_offsets_mapping: Also return `offset_mapping`: for each token where its characters begin and end in
                the running text; (0, 0) for special tokens and padding.
            **options: `padding`, `truncation`, `max_length` and others, see `SourceOptions`; with
                `return_truncation=True` also counts per input: `num_truncated_tokens` (tokens that are missing), for
                targets `num_truncated_target_tokens`, and where there are phrases `num_missing_phrases` (given, but
                not in the text), `num_truncated_phrases` (occurrences that lost tokens; what is left of them stays
                highlighted), `num_long_phrases` (occurrences that `key_phrases` found, of more than
                `max_phrase_length` tokens; they are not highlighted) and whether it is `without_phrases` (1: no token
                is highlighted, though no empty list was given).

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
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        about_source = phrases is not None or return_phrases or return_offsets_mapping
        if about_source and text_target is not None and not any(value is not None for value in inputs.values()):
            raise ValueError("`phrases`, `return_phrases` and `return_offsets_mapping` are about a document; give one")
        data, batched = self._prepare(
            inputs, text_target, options, phrases=phrases, return_offsets=return_offsets_mapping
        )
        found = data.pop("phrases", None)
        return_tensors = options.get("return_tensors")
        encoded = self._encoded(data, batched, return_tensors)
        if return_phrases:  # no tensors
            encoded["phrases"] = found if batched or return_tensors is not None or found is None else found[0]
        return encoded

    def _sources(  # type: ignore[override]
        self,
        name: str,
        value: Any,
        limit: int | None,
        cut: bool,
        *,
        phrases: Sequence[Any] | None = None,
        return_offsets: bool = False,
    ) -> tuple[dict[str, list[Any]], bool]:
        texts, articles, batched = self._texts(name, value)
        given = self._read_phrases(name, phrases, texts, articles, batched)
        several = limit is not None and any(len(row) > 1 for row in articles)
        encoded = self._encode(texts, given is not None or return_offsets or several)
        rows = [
            self._row(text, spans, ids, offsets, limit, given is not None, None if given is None else given[number])
            for number, (text, spans, (ids, offsets)) in enumerate(zip(texts, articles, encoded, strict=True))
        ]
        if not return_offsets:
            rows = [{key: value for key, value in row.items() if key != "offset_mapping"} for row in rows]
        return {key: [row[key] for row in rows] for key in rows[0]}, batched

    def _running_texts(self, name: str, value: object) -> tuple[list[str], bool]:
        texts, _, batched = self._texts(name, value)
        return texts, batched

    def _texts(self, name: str, value: object) -> tuple[list[str], list[list[Place]], bool]:
        """Make running texts of any kind of input, and tell where in each its articles are."""
        rows, batched = read_parts(name, value)
        if name != "text":
            rows = [[part.strip() for part in row] for row in rows]
        if name == "documents" and [] in rows:
            label = f"documents[{rows.index([])}]" if batched else "documents"
            raise ValueError(f"`{label}` is an empty list; give at least one article")
        separator = SEPARATORS.get(name, "")
        texts = [separator.join(part for part in row if part) for row in rows]
        if name == "documents":
            return texts, [part_places(row, separator) for row in rows], batched
        return texts, [[(0, len(whole))] for whole in texts], batched

    def _read_phrases(
        self, name: str, phrases: object, texts: list[str], articles: list[list[Place]], batched: bool
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
                "`key_phrases`; set a PhraseFinder there, or give a list of phrases (an empty one for none)"
            )
        rows = zip(labels, values, texts, articles, strict=True)
        return [None if given is None else read_phrases(name, given, text, spans) for name, given, text, spans in rows]

    def _row(
        self,
        text: str,
        articles: list[Place],
        ids: list[int],
        offsets: list[Place],
        limit: int | None,
        highlights: bool,
        given: list[Phrase] | None,
    ) -> dict[str, Any]:
        """Make a text's ids, offsets and phrases, with the counts of what the limit cut."""
        places = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
        kept, read = self._kept(ids, places, articles, None if limit is None else limit - 2)
        chosen = [ids[i] for a, b in kept for i in range(a, b)] if len(kept) > 1 else ids[slice(*kept[0])]
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        row: dict[str, Any] = {"input_ids": [bos, *chosen, eos], "attention_mask": [1] * (len(chosen) + 2)}
        row["num_truncated_tokens"] = len(ids) - len(chosen)
        if highlights:
            found = given
            if found is None and self.key_phrases is not None:  # one that kept no phrase of its corpus is false
                found = self.key_phrases.find(text, read)
            row |= place_phrases(found or [], places, kept, self.max_phrase_length, refuse=given is not None)
            row["without_phrases"] = int(given != [] and not row["phrase_positions"])
        if offsets or not ids:  # where tokens are is known
            row["offset_mapping"] = [(0, 0), *(offsets[i] for a, b in kept for i in range(a, b)), (0, 0)]
        return row

    def _kept(
        self, ids: list[int], places: "np.ndarray[Any, Any]", articles: list[Place], budget: int | None
    ) -> tuple[list[Place], list[Place]]:
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

    def _further_reports(self, data: dict[str, Any]) -> dict[str, str]:
        messages = {}
        names = ("num_missing_phrases", "num_truncated_phrases", "num_long_phrases", "without_phrases")
        missing, truncated, too_long, without = (sum(data.pop(name, [])) for name in names)
        of_long = f"occurrences of phrases have more than {self.max_phrase_length} tokens, and are left out"
        for kind, number, what in (
            ("missing", missing, "phrases are not in their texts"),
            ("truncated", truncated, "occurrences of phrases lost tokens to truncation"),
            ("long", too_long, of_long),
        ):
            if number:
                messages[kind] = f"{number} {what}. return_phrases=True returns which."
        if without:
            messages["without"] = (
                f"Nothing is highlighted in {without} texts: they have no key phrases. return_truncation=True returns "
                "which."
            )
        return messages

    def _pad(self, data: dict[str, Any], options: SourceOptions) -> None:
        """Pad phrases to the most of them, too."""
        super()._pad(data, options)
        if options.get("padding") not in NO_PADDING or options.get("return_tensors") is not None:
            for key in data.keys() & self.extra_inputs:
                most = max(1, *map(len, data[key]))  # a tensor of no phrases would have no second axis
                data[key] = [[*row, *[self.extra_inputs[key]] * (most - len(row))] for row in data[key]]

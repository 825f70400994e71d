"""Tokenizer of the encoder-only HAT: RoBERTa's, with a marker before every sentence.

Pipelines of Transformers know tokenizers only, so that the markers are put in here and not in the processor. In the
order the data flow: tokens and where sentences begin among them, what fits, rows, padding.
"""

import itertools
import json
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from transformers import BatchEncoding, PreTrainedTokenizerBase, RobertaTokenizer
from transformers.utils import logging

from .marked_encoding_hat_encoder import MarkedEncoding, TokenizedText
from .sentence_splitting import check_language, split_sentences
from .text_inputs_hat_encoder import check_text, check_words, read_texts


logger = logging.get_logger(__name__)

# Markers and separators: never read from a text.
STRUCTURE = ("bos_token", "eos_token", "cls_token", "sep_token", "pad_token", "unk_token")

NO_CUT = (False, None, "do_not_truncate")
CUTS = (True, "longest_first", "only_first", "only_second", *NO_CUT)
NO_PADDING = (False, None, "do_not_pad")
PADDINGS = (True, "longest", "max_length", *NO_PADDING)

NO_LIMIT = 10**20  # `model_max_length` of tokenizers that know none is above


class Layout(NamedTuple):
    """How rows are to be cut: the limit, by which rule, and windows with how many tokens in common, or none."""

    limit: int | None
    cut: bool | str
    stride: int | None
    from_left: bool


# ------------------------------------------------------------------------------------------------------ the tokenizer

# Per tokenizer, kept out of it so that pickling, hashing and saving it do not change with use: the backend and its
# size with our copies of it, by whether they take special tokens for text; and what a tokenizer has warned of.
_BACKENDS: "weakref.WeakKeyDictionary[HatEncoderTokenizer, tuple[Any, int, dict[bool, Any]]]" = (
    weakref.WeakKeyDictionary()
)
_WARNED: "weakref.WeakKeyDictionary[HatEncoderTokenizer, set[str]]" = weakref.WeakKeyDictionary()


class HatEncoderTokenizer(RobertaTokenizer):
    """RobertaTokenizer with a BOS token before every sentence: `<s> sentence <s> sentence </s>`.

    A pair is `<s> sentence … </s></s> <s> sentence … </s>`. Everything else is as in Transformers, so that pipelines,
    collators and scripts work with it: windows over long texts (`return_overflowing_tokens`, `stride`), words
    (`is_split_into_words`), `offset_mapping`, `special_tokens_mask`, `word_ids()` and their relatives, which count
    the markers as special tokens. Without the markers, the ids are those of RobertaTokenizer.

    The literal text `<s>`, `</s>`, `<pad>` or `<unk>` stays text; `<mask>` and special tokens of your own are read, or
    stay text with `split_special_tokens=True`. With `add_special_tokens=False` there are no markers, and all is as in
    RobertaTokenizer.

    Loads what RobertaTokenizer loads. `language="german"` (of `from_pretrained`, saved with the tokenizer) sets the
    language for splitting into sentences.

    Source: section 7 (BOS tokens at the beginning of all sentences).
    """

    # No __init__ of its own: with one, Transformers would no longer load `tokenizer.json` as it is.

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, language: str | None = None) -> "HatEncoderTokenizer":
        """Make a tokenizer that puts markers in of one that does not.

        Args:
            tokenizer: A tokenizer of Transformers with a fast backend and RoBERTa's special tokens: BOS, EOS, not the
                same for both, padding, unknown and mask.
            language: Language of the texts; by default the tokenizer's own, if it has one, or english.

        Returns:
            A tokenizer with the same vocabulary and settings. One that puts markers in already comes back as it is.

        Raises:
            ValueError: If the tokenizer has no fast backend, lacks a token or the language is not known.
        """
        name = type(tokenizer).__name__
        if hasattr(tokenizer, "encode_sentences"):  # by what it can: remote code has a class object of its own
            if language is not None:
                tokenizer.language = language
            return tokenizer  # type: ignore[return-value]
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"`tokenizer` ({name}) has no fast backend, which knows where in the text a token stands. Load it "
                "with AutoTokenizer."
            )
        for token in ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token"):
            if getattr(tokenizer, f"{token}_id") is None:
                raise ValueError(
                    f"`tokenizer` ({name}) has no {token}; RoBERTa's has BOS (the marker of sentences), EOS, padding, "
                    f'unknown and mask tokens. Add one with tokenizer.add_special_tokens({{"{token}": …}}) and resize '
                    "the model's embeddings."
                )
        if tokenizer.bos_token_id == tokenizer.eos_token_id:
            raise ValueError(
                f"`tokenizer` has {tokenizer.bos_token!r} as bos_token and as eos_token, so that the end would count "
                'as a sentence. Add another bos_token with tokenizer.add_special_tokens({"bos_token": …}).'
            )
        tokens = {"cls_token": tokenizer.bos_token, "sep_token": tokenizer.eos_token, **tokenizer.special_tokens_map}
        made = cls(
            tokenizer_object=tokenizer.backend_tokenizer,
            **tokens,
            extra_special_tokens=list(tokenizer.extra_special_tokens),
            model_max_length=tokenizer.model_max_length,
            padding_side=tokenizer.padding_side,
            truncation_side=tokenizer.truncation_side,
            add_prefix_space=bool(getattr(tokenizer, "add_prefix_space", False)),
            split_special_tokens=tokenizer.split_special_tokens,
        )
        made.language = "english" if language is None else language
        return made

    @property
    def language(self) -> str:
        """Language of the texts, for splitting into sentences."""
        return str(self.init_kwargs.get("language", "english"))

    @language.setter
    def language(self, value: str) -> None:
        check_language(value)
        self.init_kwargs["language"] = value

    def split_sentences(self, text: str) -> list[tuple[int, int]]:
        """Find the sentences of a text.

        Args:
            text: The text.

        Returns:
            (start, end) in characters, one per sentence.
        """
        return split_sentences(text, self.language)

    def encode_sentences(
        self, texts: Sequence[str | Sequence[str]], split_special_tokens: bool = True
    ) -> list[list[list[int]]]:
        """Tokenize texts sentence by sentence, without markers.

        Args:
            texts: The texts: running text, or a list of sentences as you split them, which spaces join.
            split_special_tokens: Whether all special tokens in them are text.

        Returns:
            For each text, the ids of each of its sentences. Joined, they are the ids of the text.

        Raises:
            TypeError: If something is neither text nor a list of it.
        """
        running, cuts = [], []
        for i, text in enumerate(texts):
            if isinstance(text, str):
                running.append(check_text(f"texts[{i}]", text))
                cuts.append(self._cuts(running[-1]))
            else:
                sentences = [sentence.strip() for sentence in check_words(f"texts[{i}]", text)]
                sentences = [sentence for sentence in sentences if sentence]
                running.append(" ".join(sentences))
                cuts.append(list(itertools.accumulate(len(sentence) + 1 for sentence in sentences))[:-1])
                cuts[-1] = [cut - 1 for cut in cuts[-1]]  # the space belongs to what follows
        tokenized = self._tokenized(running, False, split_special_tokens, cuts)
        return [
            [text.ids[a:b] for a, b in itertools.pairwise([*text.starts, len(text.ids)]) if b > a]
            for text in tokenized
        ]

    def __call__(self, text: Any = None, text_pair: Any = None, **options: Any) -> BatchEncoding:  # type: ignore[override]
        """Prepare texts or pairs of texts for the model.

        Args:
            text: A text or a list of texts; with `is_split_into_words` a list of words or a list of such lists. A list
                of pairs of texts is a batch of pairs.
            text_pair: The second text or texts of pairs.
            **options: As for every tokenizer of Transformers: `padding`, `truncation`, `max_length`, `stride`,
                `is_split_into_words`, `pad_to_multiple_of`, `padding_side`, `return_tensors`,
                `return_overflowing_tokens`, `return_special_tokens_mask`, `return_offsets_mapping`, `return_length`,
                `split_special_tokens`, …. Markers count for `max_length` and not for `stride`; a sentence of which no
                token fits loses its marker too. Windows of a pair are of the text that `truncation` names
                (only_first, only_second); the other stands in each. And one more: `return_truncation=True` returns
                how many tokens of each row were cut off, with their markers (`num_truncated_tokens`), and how many
                sentences lost a token (`num_truncated_sentences`); without it cuts are logged.

        Returns:
            `input_ids`, `attention_mask` and what was asked for: flat lists for one text without `return_tensors` and
            `return_overflowing_tokens`, else one row per text or window.

        Raises:
            ValueError: If an option is not one that there is, the lists do not match, or nothing would fit.
            TypeError: If an input is not text, or there is no such option.
        """
        options |= options.pop("tokenizer_kwargs", None) or {}  # as some pipelines give them
        marked = options.pop("add_special_tokens", True)
        if text is None or not marked:
            plain: BatchEncoding = super().__call__(text, text_pair, add_special_tokens=marked, **options)
            return plain
        target = {name: options.pop(name) for name in ("text_target", "text_pair_target") if name in options}
        encoded = self._marked(text, text_pair, **options)
        if target.get("text_target") is not None:
            cut = {name: options[name] for name in ("padding", "truncation", "max_length") if name in options}
            encoded["labels"] = super().__call__(**target, **cut)["input_ids"]
        return encoded

    def _marked(
        self,
        text: Any,
        text_pair: Any,
        *,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        split_special_tokens: bool | None = None,
        return_truncation: bool = False,
    ) -> BatchEncoding:
        """Do what a call does, with markers."""
        firsts, seconds, batched = read_texts(text, text_pair, is_split_into_words)
        if truncation is None and max_length is not None and padding in NO_PADDING:
            truncation = True  # as in Transformers
        layout = self._layout(truncation, max_length, stride, return_overflowing_tokens, seconds is not None)

        split = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        one = self._tokenized(firsts, is_split_into_words, split)
        two = None if seconds is None else self._tokenized(seconds, is_split_into_words, split)
        rows, samples = [], []
        for i, first in enumerate(one):
            windows = self._rows(i, [first] if two is None else [first, two[i]], layout)
            rows += windows
            samples += [i] * len(windows)
        if layout.stride is None and not return_truncation:
            self._report_cuts(rows)
        if verbose and layout.limit is None:
            self._report_length(rows)
        self._fill(rows, padding, max_length, pad_to_multiple_of, padding_side)

        data: dict[str, Any] = {"input_ids": [row.ids for row in rows]}
        if return_token_type_ids:
            data["token_type_ids"] = [row.type_ids for row in rows]
        if return_attention_mask is not False:
            data["attention_mask"] = [row.attention_mask for row in rows]
        if return_special_tokens_mask:
            data["special_tokens_mask"] = [row.special_tokens_mask for row in rows]
        if return_offsets_mapping:
            data["offset_mapping"] = [row.offsets for row in rows]
        if return_length:
            data["length"] = [len(row) for row in rows]
        if return_truncation:
            data["num_truncated_tokens"] = [row.num_truncated_tokens for row in rows]
            data["num_truncated_sentences"] = [row.num_truncated_sentences for row in rows]
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = samples
        elif not batched and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, rows, tensor_type=return_tensors)  # type: ignore[arg-type]

    def encode(self, text: Any, text_pair: Any = None, add_special_tokens: bool = True, **kwargs: Any) -> list[int]:  # type: ignore[override]
        """Turn a text into ids.

        Args:
            text: The text.
            text_pair: The second text of a pair.
            add_special_tokens: Whether to put markers and separators in.
            **kwargs: Further arguments of a call.

        Returns:
            The ids.
        """
        ids: list[int] = self(text, text_pair, add_special_tokens=add_special_tokens, **kwargs)["input_ids"]
        return ids

    def tokenize(  # type: ignore[override]
        self, text: str, pair: str | None = None, add_special_tokens: bool = False, **kwargs: Any
    ) -> list[str]:
        """Turn a text into tokens.

        Args:
            text: The text.
            pair: The second text of a pair.
            add_special_tokens: Whether to put markers and separators in.
            **kwargs: Further arguments of a call.

        Returns:
            The tokens.
        """
        if not add_special_tokens:
            return super().tokenize(text, pair, **kwargs)
        return self(text, pair, **kwargs).tokens()

    # -------------------------------------------------------------------------------------------- tokens and sentences

    def _tokenized(
        self, texts: list[Any], words: bool, split_special_tokens: bool, cuts: list[list[int]] | None = None
    ) -> list[TokenizedText]:
        """Tokenize texts and find where their sentences begin. They go through whole: the ids are the tokenizer's."""
        if cuts is None:
            cuts = [self._cuts(" ".join(text) if words else text) for text in texts]
        backend = self._backend(split_special_tokens)
        encodings = backend.encode_batch(texts, is_pretokenized=words, add_special_tokens=False)
        tokenized = []
        for encoding, text, ends in zip(encodings, texts, cuts, strict=True):
            ids, offsets, word_ids = self._plain(encoding.ids), encoding.offsets, encoding.word_ids
            places = [start for start, _ in offsets]
            if words:  # whose offsets count from each word's beginning
                begins = list(itertools.accumulate((len(word) + 1 for word in text), initial=0))
                places = [begins[word] for word in word_ids]
            starts = [0]
            for cut in ends:
                start = bisect_left(places, cut, lo=starts[-1])
                if starts[-1] < start < len(ids):
                    starts.append(start)
            tokenized.append(TokenizedText(ids, encoding.tokens, offsets, word_ids, starts, in_words=words))
        return tokenized

    def _cuts(self, text: str) -> list[int]:
        """Find where sentences end but the last; the white space after one belongs to the next, as in tokenizers."""
        return [end for _, end in self.split_sentences(text)[:-1]]

    def _backend(self, split_special_tokens: bool) -> Any:
        """Return a copy of the backend that reads no special tokens, or only those that are no markers or separators.

        A copy, since the switch lives in the backend: the tokenizer stays as it is for its other users and threads.
        """
        original, size = self.backend_tokenizer, len(self)
        known = _BACKENDS.get(self)
        if known is None or known[0] is not original or known[1] != size:
            known = _BACKENDS[self] = (original, size, {})
        copies = known[2]
        if split_special_tokens not in copies:
            content = json.loads(original.to_str())
            content["truncation"] = content["padding"] = None
            structure = {getattr(self, name) for name in STRUCTURE}
            for token in content["added_tokens"]:
                token["special"] = token["special"] and (split_special_tokens or token["content"] in structure)
            backend = Tokenizer.from_str(json.dumps(content))
            backend.encode_special_tokens = True
            copies[split_special_tokens] = backend
        return copies[split_special_tokens]

    def _plain(self, ids: list[int]) -> list[int]:
        """Turn markers and separators that a vocabulary still finds in text (Unigram, whole words) into unknowns."""
        unknown = self.unk_token_id
        structure = {getattr(self, f"{name}_id") for name in STRUCTURE} - {unknown}
        return ids if structure.isdisjoint(ids) else [unknown if i in structure else i for i in ids]

    # ------------------------------------------------------------------------------------------------------- what fits

    def _layout(
        self, truncation: bool | str | None, max_length: int | None, stride: int, overflow: bool, pairs: bool
    ) -> Layout:
        """Check how rows are to be cut."""
        if truncation not in CUTS:
            raise ValueError(
                f"`truncation` must be True, 'longest_first', 'only_first', 'only_second' or False, got {truncation!r}"
            )
        if truncation in NO_CUT:
            return Layout(None, False, None, False)
        limit = self.model_max_length if max_length is None else max_length
        least = 5 if pairs else 2  # `<s></s></s><s></s>` and `<s></s>`
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < least:
            raise ValueError(
                f"`max_length` must be an integer of at least {least} (the special tokens), got {limit!r}"
            )
        cut: bool | str = str(getattr(truncation, "value", truncation))
        if truncation in (True, "longest_first"):
            cut = True
        if cut == "only_second" and not pairs:
            raise ValueError("`truncation` is 'only_second', and there is no `text_pair`; use True or 'only_first'")
        if not pairs:
            cut = True
        if not overflow:
            return Layout(limit if limit < NO_LIMIT else None, cut, None, self.truncation_side == "left")
        if pairs and cut is True:
            raise ValueError(
                "`return_overflowing_tokens` needs to know which text of a pair to cut into windows: "
                "truncation='only_first' or 'only_second'"
            )
        if isinstance(stride, bool) or not isinstance(stride, int) or not 0 <= stride < limit - least:
            raise ValueError(
                f"`stride` must be an integer from 0 to below max_length - {least} = {limit - least}, got {stride!r}"
            )
        return Layout(limit if limit < NO_LIMIT else None, cut, stride, self.truncation_side == "left")

    def _rows(self, number: int, texts: list[TokenizedText], layout: Layout) -> list[MarkedEncoding]:
        """Make the row of one text or pair, or its windows."""
        spans = [(0, len(text.ids)) for text in texts]
        costs = [text.cost(*span) for text, span in zip(texts, spans, strict=True)]
        room = None if layout.limit is None else layout.limit - (1 if len(texts) == 1 else 3)
        if room is None or sum(costs) <= room:
            return [self._row(texts, spans)]
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
            return [self._row(texts, [*spans[:index], span, *spans[index + 1 :]]) for span in windows]
        for i, (text, budget) in enumerate(zip(texts, budgets, strict=True)):
            end = len(text.ids)
            if costs[i] > budget:
                spans[i] = (text.first_start(end, budget), end) if layout.from_left else (0, text.last_end(0, budget))
        row = self._row(texts, spans)
        row.num_truncated_tokens = sum(costs) - sum(text.cost(*span) for text, span in zip(texts, spans, strict=True))
        row.num_truncated_sentences = sum(text.sentences_cut(*span) for text, span in zip(texts, spans, strict=True))
        return [row]

    def _row(self, texts: list[TokenizedText], spans: list[tuple[int, int]]) -> MarkedEncoding:
        """Put markers and separators in."""
        bos, sep = (self.bos_token_id, str(self.bos_token)), (self.sep_token_id, str(self.sep_token))
        row = MarkedEncoding(n_sequences=len(texts))
        for i, (text, (start, end)) in enumerate(zip(texts, spans, strict=True)):
            if i:
                row.add_special(*sep)
            begins = text.starts[bisect_right(text.starts, start) : bisect_left(text.starts, end)]
            for a, b in itertools.pairwise([start, *begins, end]):
                place = text.offsets[a][0] if a < len(text.ids) and not text.in_words else 0
                row.add_special(*bos, place)
                row.add_span(text, a, b, i)
            row.add_special(*sep)
        return row

    # --------------------------------------------------------------------------------------------- padding and reports

    def _fill(
        self,
        rows: list[MarkedEncoding],
        padding: bool | str,
        max_length: int | None,
        pad_to_multiple_of: int | None,
        padding_side: str | None,
    ) -> None:
        """Pad the rows in place."""
        if padding not in PADDINGS:
            raise ValueError(f"`padding` must be True, 'longest', 'max_length' or False, got {padding!r}")
        side = padding_side or self.padding_side
        if side not in ("right", "left"):
            raise ValueError(f"`padding_side` must be 'right' or 'left', got {side!r}")
        if padding in NO_PADDING:
            return
        length = max(map(len, rows))
        if padding == "max_length":
            limit = self.model_max_length if max_length is None else max_length
            if limit > NO_LIMIT:
                raise ValueError("`padding` is 'max_length', and there is no max_length; give one")
            length = max(length, limit)
        multiple = pad_to_multiple_of or 1
        length = -(-length // multiple) * multiple
        for row in rows:
            row.pad(length, self.pad_token_id, str(self.pad_token), side == "left")

    def _report_cuts(self, rows: list[MarkedEncoding]) -> None:
        lost = [row.num_truncated_tokens for row in rows if row.num_truncated_tokens]
        if lost:
            log = logger.warning if self._first("cut") else logger.info
            log(
                f"Truncation cut {sum(lost)} tokens of {len(lost)} texts. return_truncation=True returns the counts "
                "per text; a larger max_length, where the model has positions for it, keeps more, and "
                "return_overflowing_tokens=True goes on in further rows."
            )

    def _report_length(self, rows: list[MarkedEncoding]) -> None:
        longest = max(map(len, rows))
        if longest > self.model_max_length and self._first("length"):
            logger.warning(
                f"A text has {longest} tokens, more than the model takes ({self.model_max_length}). "
                "truncation=True cuts it; return_overflowing_tokens=True makes several rows of it."
            )

    def _first(self, kind: str) -> bool:
        """Whether this tokenizer says this for the first time."""
        said = _WARNED.setdefault(self, set())
        first = kind not in said
        said.add(kind)
        return first


def _share(costs: list[int], room: int) -> list[int]:
    """Divide the room between two texts: the longer one is cut first, down to the shorter one."""
    short = min(costs)
    if short <= room // 2:
        return [cost if cost == short else room - short for cost in costs]
    half = [room // 2, room - room // 2]
    return half if costs[0] <= costs[1] else half[::-1]


__all__ = ["HatEncoderTokenizer"]

"""Tokenizers that set a marker before every sentence, for what knows tokenizers only: pipelines, stock scripts."""

import itertools
import json
import weakref
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from tokenizers import Tokenizer
from transformers import BatchEncoding, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

from .marked_encoding import NO_LIMIT, MarkedEncoding, TokenizedText, layout_of, rows_of
from .sentence_splitting import check_language, split_sentences
from .text_inputs import NO_PADDING, check_ends, check_text, check_words, read_texts, without_special


logger = logging.get_logger(__name__)

# Markers and separators: never read from a text.
STRUCTURE = ("bos_token", "eos_token", "cls_token", "sep_token", "pad_token", "unk_token")

PADDINGS = (True, "longest", "max_length", *NO_PADDING)

# Options of a call that are for targets, and those that are for them too.
TARGETS = ("text_target", "text_pair_target", "max_target_length")
SHARED_WITH_TARGETS = (
    *("padding", "truncation", "max_length", "pad_to_multiple_of", "padding_side", "return_tensors"),
    *("is_split_into_words", "split_special_tokens", "verbose"),
)

# ------------------------------------------------------------------------------------------------------ the tokenizer

# Per tokenizer, kept out of it so that pickling, hashing and saving it do not change with use: the backend and its
# size with our copies of it, by whether they take special tokens for text; and what a tokenizer has warned of.
_BACKENDS: "weakref.WeakKeyDictionary[MarkedTokenizer, tuple[Any, int, dict[bool, Any]]]" = weakref.WeakKeyDictionary()
_WARNED: "weakref.WeakKeyDictionary[MarkedTokenizer, set[str]]" = weakref.WeakKeyDictionary()


class MarkedTokenizer(PreTrainedTokenizerFast):
    """A tokenizer of Transformers that puts a BOS token before every sentence: `<s> sentence <s> sentence </s>`.

    A pair is `<s> sentence … </s></s> <s> sentence … </s>`. Everything else is as in Transformers, so that pipelines,
    collators and scripts work with it: windows over long texts (`return_overflowing_tokens`, `stride`), words
    (`is_split_into_words`), `offset_mapping`, `special_tokens_mask`, `word_ids()` and their relatives, which count
    the markers as special tokens. Without the markers, the ids are those of the same tokenizer of Transformers.

    The literal text `<s>`, `</s>`, `<pad>` or `<unk>` stays text; `<mask>` and special tokens of your own are read, or
    stay text with `split_special_tokens=True`. Targets (`text_target`) have no markers. With
    `add_special_tokens=False` there are none at all, and everything is as in Transformers.

    `language="german"` (of `from_pretrained`, saved with the tokenizer) is the language for splitting into sentences.
    """

    # No __init__ of its own, here and in what inherits: with one, Transformers would no longer load `tokenizer.json`
    # as it is.

    needed_tokens: ClassVar[tuple[str, ...]] = ("bos_token", "eos_token")
    end_token: ClassVar[str] = "eos_token"  # which of the special tokens ends a text

    @classmethod
    def from_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, language: str | None = None) -> Self:
        """Make a tokenizer that marks sentences of one that does not; its language or english, if none is given."""
        name = type(tokenizer).__name__
        if cls.__name__ in (base.__name__ for base in type(tokenizer).__mro__):  # remote code has a class of its own
            if language is not None:
                tokenizer.language = language
            return tokenizer  # type: ignore[return-value]
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"`tokenizer` ({name}) has no fast backend, which knows where in the text a token stands. Load it "
                "with AutoTokenizer."
            )
        for token in cls.needed_tokens:
            if getattr(tokenizer, f"{token}_id") is None:
                raise ValueError(
                    f"`tokenizer` ({name}) has no {token}; needed are {', '.join(cls.needed_tokens)}. Add one with "
                    f'tokenizer.add_special_tokens({{"{token}": …}}) and resize the model\'s embeddings.'
                )
        check_ends(tokenizer)
        made = cls(**cls._settings(tokenizer))
        own = tokenizer.language if hasattr(tokenizer, "encode_sentences") else "english"
        made.language = own if language is None else language
        return made

    @classmethod
    def _settings(cls, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """What another tokenizer is made from to have the vocabulary and the settings of this one."""
        return {
            **tokenizer.special_tokens_map,
            "tokenizer_object": tokenizer.backend_tokenizer,
            "extra_special_tokens": list(tokenizer.extra_special_tokens),
            "model_max_length": tokenizer.model_max_length,
            "padding_side": tokenizer.padding_side,
            "truncation_side": tokenizer.truncation_side,
            "add_prefix_space": bool(getattr(tokenizer, "add_prefix_space", False)),
            "split_special_tokens": tokenizer.split_special_tokens,
            "clean_up_tokenization_spaces": tokenizer.clean_up_tokenization_spaces,
            "chat_template": tokenizer.chat_template,
        }

    def without_markers(self) -> PreTrainedTokenizerFast:
        """Make a tokenizer of Transformers that sets no markers, for a model without hierarchy."""
        names = list(self.model_input_names)
        return PreTrainedTokenizerFast(**self._settings(self), model_input_names=names)

    @property
    def language(self) -> str:
        """Language of the texts, for splitting into sentences."""
        return str(self.init_kwargs.get("language", "english"))

    @language.setter
    def language(self, value: str) -> None:
        check_language(value)
        self.init_kwargs["language"] = value

    def split_sentences(self, text: str) -> list[tuple[int, int]]:
        """Find the sentences of a text: (start, end) in characters."""
        return split_sentences(text, self.language)

    def encode_sentences(self, texts: Sequence[str | Sequence[str]]) -> list[list[list[int]]]:
        """Tokenize texts, or lists of sentences, which spaces join: the ids of each sentence, without markers."""
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
        return [text.sentences(text.ids) for text in self._tokenized(running, False, True, cuts)]

    def encode_with_pieces(self, texts: Sequence[str]) -> list[list[list[tuple[int, str]]]]:
        """Tokenize texts as `encode_sentences` does; beside each id stand its characters and what is before them."""
        found, checked = [], [check_text(f"texts[{i}]", text) for i, text in enumerate(texts)]
        for whole, text in zip(checked, self._tokenized(checked, False, True), strict=True):
            ends = itertools.accumulate((end for _, end in text.offsets), max, initial=0)
            pieces = [whole[start:end] for start, end in itertools.pairwise(ends)]
            found.append(text.sentences(list(zip(text.ids, pieces, strict=True))))
        return found

    def __call__(self, text: Any = None, text_pair: Any = None, **options: Any) -> BatchEncoding:  # type: ignore[override]
        """Prepare texts or pairs of texts, or lists of either, with the options of Transformers' tokenizers.

        Markers count for `max_length` and not for `stride`; a sentence of which no token fits loses its marker too.
        Windows of a pair are of the text that `truncation` names (only_first, only_second); the other stands in each.
        One option more, `return_truncation=True`, returns how many tokens of each row were cut off, with their markers
        (`num_truncated_tokens`), and how many sentences lost one (`num_truncated_sentences`); else cuts are logged.
        """
        options |= options.pop("tokenizer_kwargs", None) or {}  # as some pipelines give them
        marked = options.pop("add_special_tokens", True)
        if not marked or (text is None and options.get("text_target") is None):
            plain: BatchEncoding = super().__call__(text, text_pair, add_special_tokens=marked, **options)
            return plain
        target, target_pair, target_length = (options.pop(name, None) for name in TARGETS)
        shorter = {} if target_length is None else {"max_length": target_length}
        if text is None:
            return self._targets(target, target_pair, **{**options, **shorter})
        encoded = self._marked(text, text_pair, **options)
        if target is not None:
            shared = {name: options[name] for name in SHARED_WITH_TARGETS if name in options}
            encoded["labels"] = self._targets(target, target_pair, **{**shared, **shorter})["input_ids"]
        return encoded

    def _targets(self, text: Any, text_pair: Any, **options: Any) -> BatchEncoding:
        """Encode targets, without markers."""
        return super().__call__(text_target=text, text_pair_target=text_pair, **options)  # type: ignore[no-any-return]

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
        sentences: bool = True,
    ) -> BatchEncoding:
        """Do what a call does, with markers; or with one for each text, as if that were a sentence."""
        firsts, seconds, batched = read_texts(text, text_pair, is_split_into_words)
        if truncation is None and max_length is not None and padding in NO_PADDING:
            truncation = True  # as in Transformers
        limit = self.model_max_length if max_length is None else max_length
        from_left, pairs = self.truncation_side == "left", seconds is not None
        layout = layout_of(truncation, limit, stride, return_overflowing_tokens, pairs, from_left)

        split = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        cuts: list[list[int]] | None = None if sentences else [[]] * len(firsts)
        one = self._tokenized(firsts, is_split_into_words, split, cuts)
        two = None if seconds is None else self._tokenized(seconds, is_split_into_words, split, cuts)
        bos, end = ((getattr(self, f"{name}_id"), getattr(self, name)) for name in ("bos_token", self.end_token))
        rows, samples = [], []
        for i, first in enumerate(one):
            windows = rows_of(i, [first] if two is None else [first, two[i]], layout, bos, end)
            rows += windows
            samples += [i] * len(windows)
        if layout.stride is None and not return_truncation:
            self._report_cuts(rows)
        if verbose and layout.limit is None:
            self._report_length(rows)
        self._fill(rows, padding, max_length, pad_to_multiple_of, padding_side)

        columns = {
            "input_ids": ("ids", True),
            "token_type_ids": ("type_ids", return_token_type_ids),
            "attention_mask": ("attention_mask", return_attention_mask is not False),
            "special_tokens_mask": ("special_tokens_mask", return_special_tokens_mask),
            "offset_mapping": ("offsets", return_offsets_mapping),
            "num_truncated_tokens": ("num_truncated_tokens", return_truncation),
            "num_truncated_sentences": ("num_truncated_sentences", return_truncation),
        }
        data = {name: [getattr(row, column) for row in rows] for name, (column, asked) in columns.items() if asked}
        if return_length:
            data["length"] = [len(row) for row in rows]
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = samples
        elif not batched and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, rows, tensor_type=return_tensors)  # type: ignore[arg-type]

    def encode(self, text: Any, text_pair: Any = None, add_special_tokens: bool = True, **kwargs: Any) -> list[int]:  # type: ignore[override]
        """Turn a text or pair into ids; see `PreTrainedTokenizerBase.encode`."""
        ids: list[int] = self(text, text_pair, add_special_tokens=add_special_tokens, **kwargs)["input_ids"]
        return ids

    def tokenize(  # type: ignore[override]
        self, text: str, pair: str | None = None, add_special_tokens: bool = False, **kwargs: Any
    ) -> list[str]:
        """Turn a text or pair into tokens; see `PreTrainedTokenizerBase.tokenize`."""
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
            ids = self._plain(encoding.ids, split_special_tokens)
            offsets, word_ids = encoding.offsets, encoding.word_ids
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
        """Return a copy of the backend, which others use as it is, that reads no special tokens, or no structure."""
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

    def _plain(self, ids: list[int], split_special_tokens: bool) -> list[int]:
        unknown = self.unk_token_id
        structure = [getattr(self, f"{name}_id") for name in STRUCTURE]
        special = set(self.all_special_ids if split_special_tokens else structure) - {unknown}
        return without_special(ids, special, unknown)

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
        if self.pad_token_id is None:
            raise ValueError("`padding` is asked for, and the tokenizer has no pad_token; add one")
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

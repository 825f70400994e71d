"""Processor of HAM: a text in, its tokens out; or a keyword and the lines of a poem so far, for the next line."""

import copy
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import logging
from transformers.utils.hub import cached_file

from .keywords import PoemKeywords, is_chinese
from .line_length import LineLengthLogitsProcessor
from .poem_input import read_poems, read_texts


logger = logging.get_logger(__name__)

KEYWORDS_FILE = "poem_keywords.json"
_HUB_ARGUMENTS = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "subfolder")

# Per processor, kept out of it so that pickling, hashing and saving it do not change with use: the tokenizer's backend
# and size with our copy of that backend; and which processors have warned of cuts.
_BACKENDS: "weakref.WeakKeyDictionary[HamProcessor, tuple[Any, int, Any]]" = weakref.WeakKeyDictionary()
_WARNED: "weakref.WeakSet[HamProcessor]" = weakref.WeakSet()


class HamProcessor(ProcessorMixin):
    """Prepares HAM's input: of any text its tokens and EOS; of a poem a line's keyword and the lines before it.

    A line of a poem is written from `keyword </s> line </s> line </s> …`, where `keyword_mask` tells the keyword from
    the lines. The first line is written from `keyword </s>`. The EOS tokens are inserted as ids: the literal text
    `</s>` stays text.

    Args:
        tokenizer: Any tokenizer of Transformers that has an EOS token; for poems one of single characters, such as
            that of `train_characters`.
        poem_keywords: For poems, what finds the keywords of texts and adds to them: a `PoemKeywords`, or a file that
            one was saved to.

    Raises:
        ValueError: If the tokenizer has no EOS token.
        TypeError: If `poem_keywords` is something else.

    Source: section 5.2 (Chinese poem generation); Wang et al. (2016), section 3.3.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase | None = None, poem_keywords: PoemKeywords | str | None = None
    ) -> None:
        super().__init__(tokenizer)
        if getattr(tokenizer, "eos_token_id", None) is None:
            raise ValueError(
                f"`tokenizer` ({type(tokenizer).__name__}) has no eos_token, which ends every text and line. Add one "
                'with tokenizer.add_special_tokens({"eos_token": …}) and resize the model\'s embeddings.'
            )
        self.poem_keywords = poem_keywords

    @property
    def poem_keywords(self) -> PoemKeywords | None:
        """What finds the keywords of texts, and adds to them."""
        return self._poem_keywords

    @poem_keywords.setter
    def poem_keywords(self, found: PoemKeywords | str | None) -> None:
        if isinstance(found, str | os.PathLike):
            found = PoemKeywords.load(Path(found))
        # By what it can do: a copy of the class that came with a checkpoint is another class.
        if found is not None and not (hasattr(found, "expand") and hasattr(found, "save")):
            raise TypeError(
                f"`poem_keywords` must be a PoemKeywords, a file of one, or None, got {type(found).__name__}"
            )
        self._poem_keywords = found

    @property
    def extra_inputs(self) -> dict[str, int]:
        """Per-token inputs beyond ids and mask, and the value that pads them."""
        return {"keyword_mask": 0}

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model inputs that the processor makes."""
        return ["input_ids", "attention_mask", *self.extra_inputs]

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        keywords: str | Sequence[str] | None = None,
        lines: Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_target: str | Sequence[str] | None = None,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        max_target_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_truncation: bool = False,
    ) -> BatchEncoding:
        """Prepare texts or lines of poems, targets or both for the model.

        Give at most one of `text`, `sentences`, `turns`, `documents` and `keywords`, as one input or a list of inputs.
        A single input without `return_tensors` gives flat lists, as tokenizers do.

        Args:
            text: Running text.
            sentences: A text's sentences, joined by spaces.
            turns: A dialogue: `{"role": …, "content": …}` per turn, read as lines "role: content".
            documents: Several articles that make one input, a blank line between.
            keywords: The keyword of a poem's next line.
            lines: With `keywords`, the lines of the poem so far; none by default.
            text_target: The summary, translation or next line, or a list of them: gives `labels`.
            padding: True or "longest", "max_length", or False. Padded labels are -100, always on the right.
            truncation: Whether to cut at `max_length` and `max_target_length`; by default where they are
                given and nothing is padded, as in Transformers. The EOS token stays. Of a poem the first lines go, and
                the keyword stays.
            max_length: Length limit in tokens, EOS tokens included; by default the tokenizer's `model_max_length`.
            max_target_length: The same for `text_target`.
            pad_to_multiple_of: Rounds the padded length up.
            padding_side: "right" or "left"; by default the tokenizer's.
            return_tensors: "pt" or "np".
            return_truncation: Also return, per input, `num_truncated_tokens` (tokens that are missing) and, for
                targets, `num_truncated_target_tokens`. Without it, cuts are logged, the first as a warning.

        Returns:
            `input_ids` and `attention_mask` (batch, tokens); with `keywords` also `keyword_mask` (batch, tokens), 1
            for the keyword's tokens; with `text_target` also `labels` (batch, target tokens); the counts (batch,).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn is malformed, a
                keyword or line is not Chinese, a keyword is not in the vocabulary, or a limit is too small.
            TypeError: If an input is not text, or a list of text, as described.
        """
        if truncation not in (True, False, None, "longest_first", "only_first", "do_not_truncate"):
            raise ValueError(f"`truncation` must be True or False, got {truncation!r}")
        by_limits = truncation is None and padding in (False, None, "do_not_pad")  # as in Transformers
        cut = max_length is not None if by_limits else truncation not in (False, None, "do_not_truncate")
        cut_target = max_target_length is not None if by_limits else cut
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        inputs["keywords"] = keywords if lines is None else (keywords, lines)  # type: ignore[assignment]
        given = [name for name, value in inputs.items() if value is not None]
        if len(given) > 1 or (not given and text_target is None):
            raise ValueError(
                f"give exactly one of `text`, `sentences`, `turns`, `documents` and `keywords` (or only "
                f"`text_target`), got {' and '.join(given) or 'none'}"
            )
        data: dict[str, Any] = {}
        batched = True
        if given:
            limit = self._limit("max_length", max_length) if cut else None
            if given == ["keywords"]:
                poems, batched = read_poems(keywords, lines)
                data = self._poems(poems, limit)
            else:
                texts, batched = read_texts(given[0], inputs[given[0]])
                data = self._texts(texts, limit)
        if text_target is not None:
            targets, targets_batched = read_texts("text_target", text_target)
            counts = [(len(data.get("input_ids", [])), batched), (len(targets), targets_batched)]
            if given and counts[0] != counts[1]:
                got = [f"a list of {n}" if many else "one" for n, many in counts]
                raise ValueError(f"`text_target` must match `{given[0]}`, got {got[1]} for {got[0]}")
            batched = targets_batched
            labels = self._texts(targets, self._limit("max_target_length", max_target_length) if cut_target else None)
            data["labels"] = labels["input_ids"]
            data["num_truncated_target_tokens"] = labels["num_truncated_tokens"]

        if not return_truncation:
            self._report_cuts(data)
        self._pad(data, padding, max_length, max_target_length, pad_to_multiple_of, padding_side)
        if not batched and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    # Poems

    def character_ids(self) -> list[int]:
        """Find the tokens that are one Chinese character each: what a line of a poem is made of.

        Returns:
            Their ids, in order.
        """
        special = set(self.tokenizer.all_special_ids)
        entries = self.tokenizer.get_vocab().items()
        return sorted(i for token, i in entries if len(token) == 1 and i not in special and is_chinese(token))

    def unknown_characters(self, text: str) -> list[str]:
        """Find the Chinese characters of a text that the vocabulary does not have.

        Args:
            text: A text, such as a keyword.

        Returns:
            The characters, each once, in their order.
        """
        vocabulary = self.tokenizer.get_vocab()
        return [
            character for character in dict.fromkeys(text) if is_chinese(character) and character not in vocabulary
        ]

    def line_length(self, length: int) -> LineLengthLogitsProcessor:
        """Make what keeps a line at its length while `generate` writes it.

        Args:
            length: Characters of a line: 5 or 7.

        Returns:
            A logits processor, for `generate(…, logits_processor=[…])`.

        Raises:
            ValueError: If the length is another, or the vocabulary has no Chinese characters.
        """
        return LineLengthLogitsProcessor(length, self.character_ids(), int(self.tokenizer.eos_token_id))

    # Ids

    def _texts(self, texts: list[str], limit: int | None) -> dict[str, Any]:
        eos = self.tokenizer.eos_token_id
        encoded = self._encode(texts)
        kept = [ids if limit is None else ids[: limit - 1] for ids in encoded]
        rows = [[*ids, eos] for ids in kept]
        lost = [len(whole) - len(part) for whole, part in zip(encoded, kept, strict=True)]
        return {
            "input_ids": rows,
            "attention_mask": [[1] * len(row) for row in rows],
            "num_truncated_tokens": lost,
        }

    def _poems(self, poems: list[tuple[str, list[str]]], limit: int | None) -> dict[str, Any]:
        eos, unknown = self.tokenizer.eos_token_id, self.tokenizer.unk_token_id
        data: dict[str, Any] = {"input_ids": [], "attention_mask": [], "keyword_mask": [], "num_truncated_tokens": []}
        encoded = iter(self._encode([text for word, lines in poems for text in (word, *lines)]))
        for word, lines in poems:
            keyword = next(encoded)
            if unknown in keyword:
                missing = self.unknown_characters(word)
                raise ValueError(
                    f"`keywords`: {word!r} is not in the vocabulary (never seen in training: "
                    f"{' '.join(missing) or word}); give another keyword, in the script that the model was trained on"
                )
            before = [token for _ in lines for token in (*next(encoded), eos)]
            room = len(before) if limit is None else limit - len(keyword) - 1
            if room < 0:
                raise ValueError(
                    f"`max_length` must be at least {len(keyword) + 1}, the tokens of the keyword {word!r} and EOS, "
                    f"got {limit}"
                )
            kept = before[len(before) - min(room, len(before)) :]
            ids = [*keyword, eos, *kept]
            data["input_ids"].append(ids)
            data["attention_mask"].append([1] * len(ids))
            data["keyword_mask"].append([1] * len(keyword) + [0] * (len(ids) - len(keyword)))
            data["num_truncated_tokens"].append(len(before) - len(kept))
        return data

    def _limit(self, name: str, value: int | None) -> int:
        limit = int(self.tokenizer.model_max_length) if value is None else value
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"`{name}` must be an integer of at least 1, got {limit!r}")
        return limit

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Tokenize without special tokens; those that stand in a text are text."""
        if self.tokenizer.is_fast:
            encoded = [row.ids for row in self._backend().encode_batch(texts, add_special_tokens=False)]
        else:
            options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
            encoded = [list(ids) for ids in self.tokenizer(texts, **options)["input_ids"]]
        unknown = self.tokenizer.unk_token_id
        special = set(self.tokenizer.all_special_ids) - {unknown}
        return [ids if special.isdisjoint(ids) else self._plain(ids, special, unknown) for ids in encoded]

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

    def _plain(self, ids: list[int], special: set[int], unknown: int | None) -> list[int]:
        """Turn special tokens that a vocabulary still finds in text (Unigram, whole words) into the unknown token."""
        if unknown is None:
            raise ValueError("the text contains a special token, and `tokenizer` has no unk_token to put in its place")
        return [unknown if i in special else i for i in ids]

    def _report_cuts(self, data: dict[str, Any]) -> None:
        """Take the counts out of the result and log them."""
        counts = {"texts": "num_truncated_tokens", "targets": "num_truncated_target_tokens"}
        lost = {kind: [n for n in data.pop(name, []) if n] for kind, name in counts.items()}
        if any(lost.values()):
            message = " and ".join(f"{sum(n)} tokens of {len(n)} {kind}" for kind, n in lost.items() if n)
            log = logger.info if self in _WARNED else logger.warning
            _WARNED.add(self)
            log(
                f"Truncation cut {message}. return_truncation=True returns the counts per text; a larger max_length "
                "or max_target_length keeps more."
            )

    def _pad(
        self,
        data: dict[str, Any],
        padding: bool | str,
        max_length: int | None,
        max_target_length: int | None,
        pad_to_multiple_of: int | None,
        padding_side: str | None,
    ) -> None:
        """Pad in place: ids and mask by the tokenizer, the rest to the same lengths."""
        options = {"padding": padding, "pad_to_multiple_of": pad_to_multiple_of, "return_attention_mask": True}
        to_limit = padding == "max_length"
        if "input_ids" in data:
            lengths = [len(ids) for ids in data["input_ids"]]
            inputs = {key: data[key] for key in ("input_ids", "attention_mask")}
            limit = max_length if to_limit else None
            data.update(self.tokenizer.pad(inputs, **options, max_length=limit, padding_side=padding_side))
            left = (padding_side or self.tokenizer.padding_side) == "left"
            for key, value in self.extra_inputs.items():
                if key in data:
                    fill = [[value] * (len(ids) - n) for ids, n in zip(data["input_ids"], lengths, strict=True)]
                    data[key] = [f + row if left else row + f for f, row in zip(fill, data[key], strict=True)]
        if "labels" in data:
            rows, limit = data["labels"], max_target_length if to_limit else None
            padded = self.tokenizer.pad({"input_ids": rows}, **options, max_length=limit, padding_side="right")
            data["labels"] = [
                row + [-100] * (len(ids) - len(row)) for row, ids in zip(rows, padded["input_ids"], strict=True)
            ]

    # Saving

    def to_json_file(self, json_file_path: Any) -> None:
        """Write the settings, and the keywords of poems beside them: here, where an upload takes what is new.

        Args:
            json_file_path: File of the settings.
        """
        if self.poem_keywords is not None:
            self.poem_keywords.save(Path(json_file_path).parent / KEYWORDS_FILE)
        super().to_json_file(json_file_path)

    def to_dict(self) -> dict[str, Any]:
        """Give the settings; of the keywords only the name of their file.

        Returns:
            What stands in `processor_config.json`.
        """
        found, self._poem_keywords = self._poem_keywords, None  # which would be copied
        try:
            settings = super().to_dict()
        finally:
            self._poem_keywords = found
        settings.pop("_poem_keywords", None)
        return settings if found is None else {**settings, "poem_keywords": KEYWORDS_FILE}

    @classmethod
    def get_processor_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the settings of a saved processor, and its keywords of poems.

        Args:
            pretrained_model_name_or_path: Folder, or id on the Hub.
            **kwargs: Arguments of `from_pretrained`.

        Returns:
            The arguments of the processor, and what is left of the arguments.

        Raises:
            OSError: If the file with the keywords is missing.
        """
        settings, others = super().get_processor_dict(pretrained_model_name_or_path, **kwargs)
        if isinstance(name := settings.get("poem_keywords"), str):
            settings = {key: value for key, value in settings.items() if key != "poem_keywords"}
            if "poem_keywords" not in kwargs:
                hub = {key: kwargs[key] for key in _HUB_ARGUMENTS if key in kwargs}
                file = cached_file(pretrained_model_name_or_path, name, **hub)
                settings["poem_keywords"] = PoemKeywords.load(Path(str(file)))
        return settings, others


__all__ = ["HamProcessor"]

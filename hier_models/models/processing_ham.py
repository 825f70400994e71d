"""Processor of HAM: a text in, its tokens out; or a keyword and the lines of a poem so far, for the next line."""

import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

from transformers import BatchEncoding, LogitsProcessorList, PreTrainedTokenizerBase

from .keywords import PoemKeywords, is_chinese
from .line_length import (
    LENGTH_TOKENS,
    LineLengthLogitsProcessor,
    PoemFormLogitsProcessor,
    RepeatedCharacterLogitsProcessor,
    check_line_length,
)
from .source_processing import SavesPart, SourceOptions, SourceProcessor
from .source_text import read_items, read_running_texts
from .text_inputs import check_text


class HamProcessor(SavesPart, SourceProcessor):
    """Prepares HAM's input: of any text its tokens and EOS; of a poem a line's keyword and the lines before it.

    A line of a poem is written from `keyword </s> line </s> line </s> …`, where `keyword_mask` tells the keyword from
    the lines. The first line is written from `keyword </s>`. A tokenizer with the special tokens `[5]` and `[7]` has
    one of them before the keyword, so that the model knows from the start how long a line gets. The EOS tokens are
    inserted as ids: the literal text `</s>` stays text.

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

    _targets_begin: ClassVar[bool] = False
    _keeps_more: ClassVar[str] = "a larger max_length or max_target_length"
    _part: ClassVar[str] = "poem_keywords"
    _part_file: ClassVar[str] = "poem_keywords.json"
    _part_class: ClassVar[Any] = PoemKeywords

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase | None = None, poem_keywords: PoemKeywords | str | None = None
    ) -> None:
        super().__init__(tokenizer)
        self._check_tokens(tokenizer, {"eos_token": "it ends every text and line"})
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

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        keywords: str | Sequence[str] | None = None,
        lines: Sequence[str] | Sequence[Sequence[str]] | None = None,
        length: int | None = None,
        text_target: str | Sequence[str] | None = None,
        **options: Unpack[SourceOptions],
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
            length: With `keywords`, the characters of a line, 5 or 7; by default those of the lines so far, or of the
                target. Only a tokenizer with tokens of lengths makes something of it.
            text_target: The summary, translation or next line, or a list of them: gives `labels`.
            **options: `padding`, `truncation`, `max_length` and others, see `SourceOptions`; with
                `return_truncation=True` also counts per input: `num_truncated_tokens` (tokens that are missing) and
                for targets `num_truncated_target_tokens`. Of a poem the first lines are cut, and the keyword stays.

        Returns:
            `input_ids` and `attention_mask` (batch, tokens); with `keywords` also `keyword_mask` (batch, tokens), 1
            for the keyword's tokens; with `text_target` also `labels` (batch, target tokens); the counts (batch,).

        Raises:
            ValueError: If the inputs are none, several, empty lists or of different lengths, a turn is malformed, a
                keyword or line is not Chinese, a keyword is not in the vocabulary, a limit is too small, or the length
                of a line is needed and not known, or neither 5 nor 7.
            TypeError: If an input is not text, or a list of text, as described.
        """
        inputs: dict[str, Any] = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        inputs["keywords"] = keywords if lines is None else (keywords, lines)
        targets = [text_target] if isinstance(text_target, str) else text_target
        data, batched = self._prepare(inputs, text_target, options, lines=lines, length=length, targets=targets)
        return self._encoded(data, batched, options.get("return_tensors"))

    def _sources(  # type: ignore[override]
        self, name: str, value: Any, limit: int | None, cut: bool, *, lines: Any, length: int | None, targets: Any
    ) -> tuple[dict[str, list[Any]], bool]:
        if name == "keywords":
            poems, batched = _read_poems(value if lines is None else value[0], lines)
            return self._poems(poems, self._length_ids(poems, length, targets), limit), batched
        texts, batched = read_running_texts(name, value)
        whole = [ids for ids, _ in self._encode(texts)]
        kept = [ids if limit is None else ids[: limit - 1] for ids in whole]
        rows = [[*ids, self.tokenizer.eos_token_id] for ids in kept]
        return {
            "input_ids": rows,
            "attention_mask": [[1] * len(row) for row in rows],
            "num_truncated_tokens": [len(a) - len(b) for a, b in zip(whole, kept, strict=True)],
        }, batched

    # Poems

    def character_ids(self) -> list[int]:
        """Find the tokens that are one Chinese character each, what a line is made of: their ids, in order."""
        special = set(self.tokenizer.all_special_ids)
        entries = self.tokenizer.get_vocab().items()
        return sorted(i for token, i in entries if len(token) == 1 and i not in special and is_chinese(token))

    def unknown_characters(self, text: str) -> list[str]:
        """Find the Chinese characters of a text that the vocabulary does not have, each once, in their order."""
        vocabulary = self.tokenizer.get_vocab()
        characters = dict.fromkeys(unicodedata.normalize("NFC", text))  # as the tokenizer reads them
        return [character for character in characters if is_chinese(character) and character not in vocabulary]

    def line_rules(
        self,
        length: int,
        lines: Sequence[Sequence[str]] = (),
        *,
        repeats: bool = False,
        rhyme: bool = False,
        tones: bool = False,
    ) -> LogitsProcessorList:
        """Make the logits processors for `generate` that keep lines of poems to their rules.

        Args:
            length: Characters of a line, 5 or 7.
            lines: The lines of each poem of the batch so far; without them only the line itself is looked at.
            repeats: Whether a character may stand twice in a line, and be as frequent as it likes in a poem.
            rhyme: Whether the second and fourth lines rhyme, and the first with them if it ends level. Needs `lines`.
            tones: Whether the lines have the tones of regulated quatrains. Needs `lines`.

        Returns:
            The processors.

        Raises:
            ValueError: If the length is neither 5 nor 7, or rhymes or tones are asked for and there are no lines, or
                `poem_keywords` does not know how characters sound; or for tones more than three lines, or others.
        """
        ids = self.character_ids()
        rules = LogitsProcessorList()
        if not repeats:
            earlier = [self.tokenizer.convert_tokens_to_ids(list("".join(poem))) for poem in lines]
            rules.append(RepeatedCharacterLogitsProcessor(earlier))
        rules.append(LineLengthLogitsProcessor(length, ids, int(self.tokenizer.eos_token_id)))
        if rhyme or tones:
            sounds = getattr(self.poem_keywords, "sounds", None)
            if sounds is None:
                raise ValueError(
                    "`rhyme` and `tones` need to know how characters sound, and poem_keywords does not say: set "
                    "processor.poem_keywords to PoemKeywords.fit(…) of quatrains, and save the processor"
                )
            if not lines:
                raise ValueError(
                    "`rhyme` and `tones` need `lines`, the lines of each poem so far: [[]] for a first one"
                )
            if tones and any(len(poem) > 3 or not {*map(len, poem)} <= {5, 7} for poem in lines):
                raise ValueError("`tones` are those of quatrains: `lines` must be at most three, of 5 or 7 characters")
            characters = dict(zip(ids, self.tokenizer.convert_ids_to_tokens(ids), strict=True))
            rules.append(PoemFormLogitsProcessor(sounds, lines, length, characters, rhyme=rhyme, tones=tones))
        return rules

    def _length_ids(self, poems: list[tuple[str, list[str]]], length: int | None, targets: Any) -> list[list[int]]:
        """The token that says how long the next line of each poem gets, if there are such tokens."""
        if length is not None:
            check_line_length(length)
        if not set(LENGTH_TOKENS.values()) <= set(self.tokenizer.all_special_tokens):
            return [[] for _ in poems]
        ids = []
        for number, (_, lines) in enumerate(poems):
            line = next(iter([*lines, *(targets[number : number + 1] if targets else [])]), None)
            if length is None and line is None:
                raise ValueError(
                    "`length` is missing: give 5 or 7, since the model is told how long a first line gets"
                )
            size = len(str(line).strip()) if length is None else length
            try:
                check_line_length(size)
            except ValueError as error:
                name = "lines" if lines else "text_target"
                raise ValueError(f"`{name}`: {line!r} has {size} characters; {error}") from error
            ids.append([self.tokenizer.convert_tokens_to_ids(LENGTH_TOKENS[size])])
        return ids

    def _poems(
        self, poems: list[tuple[str, list[str]]], length_ids: list[list[int]], limit: int | None
    ) -> dict[str, Any]:
        eos, unknown = self.tokenizer.eos_token_id, self.tokenizer.unk_token_id
        data: dict[str, Any] = {"input_ids": [], "attention_mask": [], "keyword_mask": [], "num_truncated_tokens": []}
        encoded = (ids for ids, _ in self._encode([text for word, lines in poems for text in (word, *lines)]))
        for (word, lines), first in zip(poems, length_ids, strict=True):
            keyword = next(encoded)
            if unknown in keyword:
                missing = self.unknown_characters(word)
                raise ValueError(
                    f"`keywords`: {word!r} is not in the vocabulary (never seen in training: "
                    f"{' '.join(missing) or word}); give another keyword, in the script that the model was trained on"
                )
            before = [token for _ in lines for token in (*next(encoded), eos)]
            least = len(first) + len(keyword) + 1
            room = len(before) if limit is None else limit - least
            if room < 0:
                raise ValueError(
                    f"`max_length` must be at least {least}, the tokens of the keyword {word!r} and EOS, got {limit}"
                )
            kept = before[len(before) - min(room, len(before)) :]
            ids = [*first, *keyword, eos, *kept]
            data["input_ids"].append(ids)
            data["attention_mask"].append([1] * len(ids))
            data["keyword_mask"].append([0] * len(first) + [1] * len(keyword) + [0] * (1 + len(kept)))
            data["num_truncated_tokens"].append(len(before) - len(kept))
        return data


def _read_poems(keywords: object, lines: object) -> tuple[list[tuple[str, list[str]]], bool]:
    """Return (keyword, the lines before) of each line that is to be written, and whether there were several."""
    if keywords is None:
        raise ValueError("`lines` goes with `keywords`: a line is written from its keyword and the lines before")
    batched = not isinstance(keywords, str)
    words = read_items("keywords", keywords, "a string or a list of strings") if batched else [keywords]
    if not words:
        raise ValueError("`keywords` is an empty list; give at least one keyword")
    if lines is None:
        rows: list[Any] = [[] for _ in words]
    else:
        outer = read_items("lines", lines, "a list of lists of lines" if batched else "a list of lines")
        rows = outer if batched else [outer]
    if len(rows) != len(words):
        raise ValueError(f"`lines` must match `keywords`, got {len(rows)} for {len(words)}")
    poems = []
    for number, (word, row) in enumerate(zip(words, rows, strict=True)):
        place, mark = (f"lines[{number}]", f"keywords[{number}]") if batched else ("lines", "keywords")
        before = read_items(place, row, "a list of lines")
        before = [_read_chinese(f"{place}[{i}]", line, "a line of a poem") for i, line in enumerate(before)]
        poems.append((_read_chinese(mark, word, "a keyword"), before))
    return poems, batched


def _read_chinese(name: str, value: object, what: str) -> str:
    """Check that a value is Chinese characters and nothing else."""
    text = check_text(name, value).strip()
    if not is_chinese(text):
        raise ValueError(f"`{name}` must be Chinese characters alone ({what}), got {text!r}")
    return text

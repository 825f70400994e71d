"""What the processors of documents share: which input is given, ids, truncation, targets, reports, padding, saving."""

import copy
import itertools
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypedDict

from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils import logging
from transformers.utils.hub import cached_file

from .sentence_splitting import split_sentences
from .source_text import given_input, read_parts, read_rows, read_running_texts, read_texts, read_turn
from .summary_lengths import begin_with_lengths
from .text_inputs import NO_PADDING, longest_text, without_special


Place = tuple[int, int]  # first character, and the one after the last


# Per processor, kept out of it so that pickling, hashing and saving it do not change with use: the tokenizer's backend
# and size with our copy of that backend; and what processors have warned of.
_BACKENDS: "weakref.WeakKeyDictionary[SourceProcessor, tuple[Any, int, Any]]" = weakref.WeakKeyDictionary()
_WARNED: "weakref.WeakKeyDictionary[SourceProcessor, set[str]]" = weakref.WeakKeyDictionary()


class SourceOptions(TypedDict, total=False):
    """What the call of every processor of documents takes beside its inputs; `docs/api/index.md` says the same."""

    # True or "longest", "max_length", or False. Padded labels are -100, always on the right.
    padding: bool | str
    # Whether to cut at `max_length` and `max_target_length`; by default where they are given and nothing is padded, as
    # in Transformers. The EOS token stays. A tokenizer whose `truncation_side` is "left" is refused where that cuts.
    truncation: bool | str | None
    # Length limit in tokens, special tokens included; by default the tokenizer's `model_max_length`.
    max_length: int | None
    max_target_length: int | None  # the same for `text_target`
    pad_to_multiple_of: int | None  # rounds the padded length up
    padding_side: str | None  # "right" or "left"; by default the tokenizer's
    return_tensors: str | None  # "pt" or "np"
    # Whether to return, per input, what is missing: `num_truncated_tokens` and, for targets,
    # `num_truncated_target_tokens`. Without it, cuts are logged, the first as a warning.
    return_truncation: bool


class SourceProcessor(ProcessorMixin):
    """Turns one of several kinds of input into ids, and targets into labels."""

    # Whether targets begin with BOS, or with the token of their length; they end with EOS.
    _targets_begin: ClassVar[bool] = True
    _keeps_more: ClassVar[str] = "a larger max_length or max_target_length, where the model has positions for it,"
    _needs_places: ClassVar[str] = "`return_offsets_mapping` needs one"

    @property
    def extra_inputs(self) -> dict[str, Any]:
        """Per-token inputs beyond ids and mask, and the value that pads them."""
        return {}

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model inputs that the processor makes."""
        return ["input_ids", "attention_mask", *self.extra_inputs]

    def _check_tokens(self, tokenizer: PreTrainedTokenizerBase | None, why: dict[str, str]) -> None:
        for token, reason in why.items():
            if getattr(tokenizer, f"{token}_id", None) is None:
                raise ValueError(
                    f"`tokenizer` ({type(tokenizer).__name__}) has no {token}; {reason}. Add one with "
                    f'tokenizer.add_special_tokens({{"{token}": …}}) and resize the model\'s embeddings.'
                )

    def _prepare(
        self, inputs: dict[str, Any], text_target: str | Sequence[str] | None, options: "SourceOptions", **asked: Any
    ) -> tuple[dict[str, Any], bool]:
        """Prepare documents, targets or both: what every call does. `asked` goes to `_sources`."""
        if unknown := options.keys() - SourceOptions.__annotations__.keys():
            raise TypeError(f"{type(self).__name__}.__call__() got an unexpected keyword argument {min(unknown)!r}")
        truncation, max_length = options.get("truncation"), options.get("max_length")
        if truncation not in (True, False, None, "longest_first", "only_first", "do_not_truncate"):
            raise ValueError(f"`truncation` must be True or False, got {truncation!r}")
        by_limits = truncation is None and options.get("padding") in NO_PADDING  # as in Transformers
        cut = max_length is not None if by_limits else truncation not in (False, None, "do_not_truncate")
        max_target_length = options.get("max_target_length")
        cut_target = max_target_length is not None if by_limits else cut
        name = given_input(inputs, none_allowed=text_target is not None)
        data: dict[str, Any] = {}
        batched = True
        if name:
            limit = self._limit("max_length", max_length) if cut else None
            data, batched = self._sources(name, inputs[name], limit, cut, **asked)
        if text_target is not None:
            targets, several = read_texts("text_target", text_target)
            counts = [(len(data.get("input_ids", [])), batched), (len(targets), several)]
            if name and counts[0] != counts[1]:
                got = [f"a list of {n}" if many else "one" for n, many in counts]
                raise ValueError(f"`text_target` must match `{name}`, got {got[1]} for {got[0]}")
            batched = several
            data |= self._labels(targets, self._limit("max_target_length", max_target_length) if cut_target else None)
        lost = [*data.get("num_truncated_target_tokens", ())]
        if name != "keywords":  # of a poem, the first lines are cut
            lost += data.get("num_truncated_tokens", ())
        if self.tokenizer.truncation_side == "left" and any(lost):
            raise ValueError(
                '`tokenizer.truncation_side` is "left", and documents and targets are cut at the right only. Set it '
                'to "right", or give texts that fit.'
            )
        if not options.get("return_truncation"):
            self._report(data)
        self._pad(data, options)
        return data, batched

    def _sources(
        self, name: str, value: Any, limit: int | None, cut: bool, **asked: Any
    ) -> tuple[dict[str, list[Any]], bool]:
        """Make the ids and all else of every document, with the counts of what was cut; and whether it was a batch."""
        raise NotImplementedError

    def _encoded(self, data: dict[str, Any], batched: bool, return_tensors: str | None) -> BatchEncoding:
        if not batched and return_tensors is None:
            data = {key: values[0] for key, values in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    def _limit(self, name: str, value: int | None) -> int:
        limit = int(self.tokenizer.model_max_length) if value is None else value
        least = 1 + self._targets_begin
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < least:
            why = " (a BOS and an EOS token)" if least == 2 else ""
            raise ValueError(f"`{name}` must be an integer of at least {least}{why}, got {limit!r}")
        return limit

    def _labels(self, targets: list[str], limit: int | None) -> dict[str, list[Any]]:
        """Make every target's ids, and count what the limit cut."""
        first = [self.tokenizer.bos_token_id] if self._targets_begin else []
        whole = [ids for ids, _ in self._encode(targets)]
        kept = [ids if limit is None else ids[: limit - 1 - len(first)] for ids in whole]
        rows = [[*first, *ids, self.tokenizer.eos_token_id] for ids in kept]
        return {
            "labels": begin_with_lengths(rows, targets, self.tokenizer) if first else rows,
            "num_truncated_target_tokens": [len(a) - len(b) for a, b in zip(whole, kept, strict=True)],
        }

    def _encode(self, texts: list[str], located: bool = False) -> list[tuple[list[int], list[Place]]]:
        """Tokenize texts without special tokens; where they are located, with every token's characters."""
        if not self.tokenizer.is_fast:
            if located:
                raise ValueError(
                    f"`tokenizer` ({type(self.tokenizer).__name__}) has no fast backend, which alone tells where in "
                    f"the text a token is; {self._needs_places}. Load it with AutoTokenizer."
                )
            encoded = self.tokenizer(texts, add_special_tokens=False, split_special_tokens=True, verbose=False)
            return [(self._plain(ids), []) for ids in encoded["input_ids"]]
        backend = self._backend()
        encode = backend.encode_batch if located else backend.encode_batch_fast
        encodings = encode(texts, add_special_tokens=False)
        return [(self._plain(encoding.ids), encoding.offsets if located else []) for encoding in encodings]

    def _backend(self) -> Any:
        """Return a copy of the tokenizer's backend, which others use as it is, that reads special tokens as text."""
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
        unknown = self.tokenizer.unk_token_id
        return without_special(ids, set(self.tokenizer.all_special_ids) - {unknown}, unknown)

    def _report(self, data: dict[str, Any]) -> None:
        """Take the counts out of the result and log them, each kind as a warning when it is the first."""
        data.pop("num_truncated_sentences", None)
        counts = {"texts": "num_truncated_tokens", "targets": "num_truncated_target_tokens"}
        lost = {kind: [n for n in data.pop(name, []) if n] for kind, name in counts.items()}
        messages = self._further_reports(data)
        if any(lost.values()):
            cut = " and ".join(f"{sum(n)} tokens of {len(n)} {kind}" for kind, n in lost.items() if n)
            more = f"return_truncation=True returns the counts per text; {self._keeps_more} keeps more."
            messages = {"cut": f"Truncation cut {cut}. {more}", **messages}
        warned = _WARNED.setdefault(self, set())
        logger = logging.get_logger(type(self).__module__)
        for kind, message in messages.items():
            (logger.info if kind in warned else logger.warning)(message)
        warned.update(messages)

    def _further_reports(self, data: dict[str, Any]) -> dict[str, str]:
        """Take further counts out of the result; kind -> message."""
        return {}

    def _pad(self, data: dict[str, Any], options: "SourceOptions") -> None:
        """Pad in place: ids and mask by the tokenizer, the rest to the same lengths."""
        shared = {"padding": options.get("padding", False), "pad_to_multiple_of": options.get("pad_to_multiple_of")}
        to_limit = shared["padding"] == "max_length"
        if "input_ids" in data:
            lengths, side = [len(ids) for ids in data["input_ids"]], options.get("padding_side")
            inputs = {key: data[key] for key in ("input_ids", "attention_mask")}
            limit = options.get("max_length") if to_limit else None
            data.update(
                self.tokenizer.pad(inputs, **shared, return_attention_mask=True, max_length=limit, padding_side=side)
            )
            left = (side or self.tokenizer.padding_side) == "left"
            values = {**self.extra_inputs, "offset_mapping": (0, 0)}
            for key in data.keys() & values.keys() - set(getattr(self, "own_length_inputs", ())):
                fill = [[values[key]] * (len(ids) - n) for ids, n in zip(data["input_ids"], lengths, strict=True)]
                data[key] = [f + row if left else row + f for f, row in zip(fill, data[key], strict=True)]
        if "labels" in data:
            rows, limit = data["labels"], options.get("max_target_length") if to_limit else None
            padded = self.tokenizer.pad({"input_ids": rows}, **shared, max_length=limit, padding_side="right")
            data["labels"] = [
                row + [-100] * (len(ids) - len(row)) for row, ids in zip(rows, padded["input_ids"], strict=True)
            ]

    def longest_text(self, model: Any) -> int | None:
        """Say how many tokens of a text an encoder can be given, special ones included.

        Args:
            model: The encoder, of whatever family; for one that knows no limit the tokenizer's counts.

        Returns:
            The number; None if there is no limit.
        """
        return longest_text(model, self.tokenizer)


class GivesRunningText:
    """A processor that tells what text it reads; its `_running_texts` reads any kind of input."""

    def _running_texts(self, name: str, value: object) -> tuple[list[str], bool]:
        return read_running_texts(name, value)

    def running_text(
        self,
        text: str | Sequence[str] | None = None,
        *,
        sentences: Sequence[str] | Sequence[Sequence[str]] | None = None,
        turns: Sequence[Mapping[str, str]] | Sequence[Sequence[Mapping[str, str]]] | None = None,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ) -> str | list[str]:
        """Give the text that is tokenized, whose characters `offset_mapping` and inputs in spans count.

        Sentences are joined by spaces, turns by line breaks, documents by blank lines; all by spaces where sentences
        are marked.
        """
        inputs = {"text": text, "sentences": sentences, "turns": turns, "documents": documents}
        name = given_input(inputs, none_allowed=False)
        texts, batched = self._running_texts(name, inputs[name])
        return texts if batched else texts[0]


class Document(NamedTuple):
    """One input: its running text, where each sentence but the first begins, and each sentence's segment."""

    text: str
    cuts: list[int]
    segments: list[int]


class SentenceProcessor(SourceProcessor):
    """A processor that sees sentences: the user's own, turns, or those that are found in texts."""

    language: str
    num_segments = 0

    def split_sentences(self, text: str) -> list[Place]:
        """Find the sentences of a text, as `text=` does: (start, end) in characters."""
        return split_sentences(text, self.language)

    def _read(self, name: str, value: object) -> tuple[list[Document], bool]:
        """Bring any kind of input to documents; say whether it was a batch."""
        if name == "text":
            texts, batched = read_texts(name, value)
            return [self._document(text) for text in texts], batched
        if name == "turns":
            dialogues, batched = read_rows(name, value, Mapping, "a list of turns")
            return [self._dialogue(label, turns) for label, turns in dialogues], batched
        rows, batched = read_parts(name, value)
        if name == "documents":
            rows = [[article[a:b] for article in row for a, b in self.split_sentences(article)] for row in rows]
        return [_join((part, 0) for part in row) for row in rows], batched

    def _document(self, text: str) -> Document:
        cuts = [end for _, end in self.split_sentences(text)[:-1]]
        return Document(text, cuts, [0] * (len(cuts) + 1))  # white space before a sentence is its own

    def _dialogue(self, label: str, turns: list[Any]) -> Document:
        """Join turns to "role: content", numbering the roles."""
        roles: dict[str, int] = {}
        parts = []
        for j, turn in enumerate(turns):
            role, spoken = read_turn(f"{label}[{j}]", turn)
            parts.append((spoken, roles.setdefault(role, len(roles))))
        if self.num_segments and len(roles) > self.num_segments:
            raise ValueError(
                f"`{label}` has {len(roles)} roles, more than num_segments={self.num_segments}: merge roles, or set a "
                "larger num_segments here and in the model's config"
            )
        return _join((part, segment if self.num_segments else 0) for part, segment in parts)

    def _sentences(self, documents: list[Document]) -> list[list[list[int]]]:
        """Tokenize documents whole, so that ids are the tokenizer's own, and cut these where sentences begin."""
        if not self.tokenizer.is_fast:
            return [[ids for ids, _ in self._encode(pieces_of(document))] for document in documents]
        encoded = self._encode([document.text for document in documents], located=True)
        return [
            cut_at(ids, bounds_by_offset(offsets, document))
            for (ids, offsets), document in zip(encoded, documents, strict=True)
        ]


def _join(parts: Iterable[tuple[str, int]]) -> Document:
    """Make one running text of sentences and their segments, a space between them; an empty one adds no space."""
    text, length, cuts, segments = [], 0, [], []
    for part, segment in parts:
        cuts.append(length)
        segments.append(segment)
        part = part.strip()
        if part:
            text.append(part)
            length += len(part) + (length > 0)
    return Document(" ".join(text), cuts[1:], segments or [0])


def pieces_of(document: Document) -> list[str]:
    """Cut a document's text into its sentences."""
    return [document.text[a:b] for a, b in itertools.pairwise([0, *document.cuts, len(document.text)])]


def cut_at(ids: list[int], bounds: list[int]) -> list[list[int]]:
    """Cut a document's ids at the first token of each sentence but the first."""
    return [ids[a:b] for a, b in itertools.pairwise([0, *bounds, len(ids)])]


def bounds_by_offset(offsets: list[Place], document: Document) -> list[int]:
    """Find each cut's token, the first that begins there or later, from the tokens' offsets in characters."""
    bounds = [0]
    for cut in document.cuts:
        bounds.append(bisect_left(offsets, (cut,), lo=bounds[-1]))
    return bounds[1:]


_HUB_ARGUMENTS = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "subfolder")


class SavesPart:
    """A processor with a part that has a file of its own; stands before [`ProcessorMixin`] among its bases."""

    _part: ClassVar[str]  # name of the argument; the attribute has an underscore before it
    _part_file: ClassVar[str]
    _part_class: ClassVar[Any]

    def to_json_file(self, json_file_path: Any) -> None:
        """Write the settings, and the part beside them: here, where an upload takes what is new."""
        if (part := getattr(self, self._part)) is not None:
            part.save(Path(json_file_path).parent / self._part_file)
        super().to_json_file(json_file_path)  # type: ignore[misc]

    def to_dict(self) -> dict[str, Any]:
        """Give the settings, as they stand in `processor_config.json`; of the part only the name of its file."""
        name = f"_{self._part}"
        part = getattr(self, name)
        setattr(self, name, None)  # or it would be copied
        try:
            settings: dict[str, Any] = super().to_dict()  # type: ignore[misc]
        finally:
            setattr(self, name, part)
        settings.pop(name, None)
        return settings if part is None else {**settings, self._part: self._part_file}

    @classmethod
    def get_processor_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the settings of a saved processor, and its part; see `ProcessorMixin.get_processor_dict`."""
        settings, others = super().get_processor_dict(pretrained_model_name_or_path, **kwargs)  # type: ignore[misc]
        if isinstance(file := settings.get(cls._part), str):
            settings = {key: value for key, value in settings.items() if key != cls._part}
            if cls._part not in kwargs:
                hub = {key: kwargs[key] for key in _HUB_ARGUMENTS if key in kwargs}
                found = cached_file(pretrained_model_name_or_path, file, **hub)
                settings[cls._part] = cls._part_class.load(Path(str(found)))
        return settings, others

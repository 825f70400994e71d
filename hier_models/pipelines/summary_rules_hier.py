"""What a summary may be: how long it gets, and of which words it is made."""

from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    NoBadWordsLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
)

from .common_words_hier import COMMON_WORDS
from .document_pipeline_hier import DocumentPipeline, Example, as_text, total_length
from .faithful_hier import FaithfulLogitsProcessor, NoDoubledWordLogitsProcessor, WordPieces, is_english
from .faithful_hier import logger as faithful_logger


# Least and most tokens of a summary of a length.
NEW_TOKENS = {"line": (0, 64), "short": (34, 192), "long": (150, 512)}
MOST_OF_SHORT = 64  # tokens of a document that may be summarized by as many; of a longer one by two thirds of it


class AtBeginLogitsProcessor(SuppressTokensAtBeginLogitsProcessor):
    """Bars tokens at the beginning; its base looks for them in the whole vocabulary at every step."""

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Take them away from what begins."""
        return super().__call__(input_ids, scores) if input_ids.shape[-1] == self.begin_index else scores


class OwnLengthLogitsProcessor(LogitsProcessor):
    """Ends each sequence between its own least and most tokens; `generate` has one length for all of a batch."""

    def __init__(self, least: list[int], most: list[int], eos_token_id: int | list[int]) -> None:
        self.lengths = torch.tensor([least, most])  # (2, batch), with the prompt
        self.all_least, self.all_most = max(least), min(most)
        self.eos_token_id = eos_token_id

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Take the end away from what is too short, and all else from what is long enough."""
        if self.all_least <= input_ids.shape[1] < self.all_most:
            return scores
        beams = len(scores) // self.lengths.shape[1]
        least, most = self.lengths.repeat_interleave(beams, dim=1).to(scores.device)  # (batch * beams,)
        scores = scores.clone()  # type: ignore[assignment]
        ends = torch.tensor([self.eos_token_id], device=scores.device).view(-1)
        full = (input_ids.shape[1] >= most).nonzero()
        of_ends = scores[full, ends]
        scores[full[:, 0]] = -torch.inf
        scores[full, ends] = of_ends
        scores[(input_ids.shape[1] < least).nonzero(), ends] = -torch.inf
        return scores


class OfEachDocument(LogitsProcessor):
    """Has each document's rows of a batch processed by what is its own, if anything."""

    def __init__(self, processors: list[Any]) -> None:
        self.processors = processors

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Process the rows of one document after the other."""
        each = len(scores) // len(self.processors)
        rows = zip(self.processors, input_ids.split(each), scores.split(each), strict=True)
        return torch.cat([own(ids, some) if own else some for own, ids, some in rows])  # type: ignore[return-value]


class SummaryRules(DocumentPipeline):
    """The settings of `generate` that a summary needs beyond those of other texts."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._word_pieces: dict[tuple[str, ...], WordPieces] = {}  # of the common words of the last call

    def _only(self, what: str, models: str, instead: str = "Leave it out.") -> ValueError:
        return ValueError(f"{what} for models {models}, and {type(self.model).__name__} is none of them. {instead}")

    def _of_paragraphs(self, generate_kwargs: dict[str, Any], pages: list[list[Example]]) -> dict[str, Any]:
        """Arguments of `generate` for the paragraphs of pages, each of which is noted its share of the page."""
        settings = {**generate_kwargs, **self._length_settings("short")}
        most, total = generate_kwargs.get("max_new_tokens"), settings.pop("max_length", None)
        if most is None:
            most = self._length_settings("long")["max_new_tokens"] if total is None else total - 1
        whole, new = (settings.pop(name, None) for name in ("min_length", "min_new_tokens"))
        if whole is None and new is None:
            own = self.model.generation_config
            whole, new = own.min_length or None, own.min_new_tokens
        least = new if new is not None else None if whole is None else whole - 1
        positions = self._positions("decoder")
        room = most if positions is None else positions - 1
        for page in pages:
            share = None if least is None else max(0, least) // len(page), min(max(1, most // len(page)), room)
            for part in page:
                part.notes["share"] = share
        settings["max_new_tokens"] = room  # each ends by itself
        if least is not None:
            settings["min_new_tokens"] = 0
        return settings

    def _knows_lengths(self) -> bool:
        return {f"[{length}]" for length in NEW_TOKENS} <= set(self.tokenizer.all_special_tokens)

    def _length_settings(self, length: str) -> dict[str, Any]:
        """Arguments of `generate` for a summary of a length."""
        if not isinstance(length, str) or length not in NEW_TOKENS:
            raise ValueError(f"`length` must be one of {', '.join(NEW_TOKENS)}, got {length!r}.")
        if not self._knows_lengths():
            trained = "that were trained with lengths ([line], [short] and [long] in their tokenizer)"
            raise self._only("`length` is", trained, "Give max_new_tokens and min_new_tokens instead.")
        most = self._positions("decoder")
        room = NEW_TOKENS[length][1] if most is None else min(NEW_TOKENS[length][1], most - 1)
        return {"forced_bos_token_id": self.tokenizer.convert_tokens_to_ids(f"[{length}]"), "max_new_tokens": room}

    def _generation_config(
        self, generate_kwargs: dict[str, Any], examples: list[Example]
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        """The settings for this call, and the arguments of `generate` that are no settings."""
        own = ("faithful", "common_words")
        kwargs = {name: value for name, value in generate_kwargs.items() if name not in own}
        config, others = super()._generation_config(kwargs, examples)
        configs = [vars(config), vars(self.model.generation_config)]
        places = [generate_kwargs, *configs, self._task_params()]
        set_to = (next((place[name] for place in places if place.get(name) is not None), None) for name in own)
        faithful, common_words = set_to
        if faithful not in (None, True, False):
            raise ValueError(f"`faithful` must be True or False, got {faithful!r}.")
        prompt = others.get("decoder_input_ids")
        begun = 1 if prompt is None else prompt.shape[-1]
        max_length = total_length(config, "max", begun)
        limits: list[int] | int | None = max_length
        processors = LogitsProcessorList(others.get("logits_processor") or ())
        if config.begin_suppress_tokens:
            first = begun + (begun == 1 and config.forced_bos_token_id is not None)
            processors.insert(0, AtBeginLogitsProcessor(config.begin_suppress_tokens, first, str(self.device)))
            config.begin_suppress_tokens = []  # None would be the model's own
        if lengths := self._own_lengths(examples, config, begun):
            least, most = map(list, zip(*lengths, strict=True))
            processors.append(OwnLengthLogitsProcessor(least, most, config.eos_token_id))
            limits = [number + 1 if max_length is None else min(number + 1, max_length) for number in most]
        if faithful:
            processors += self._faithful_processors(examples, config, common_words, limits)
            names = [self._names(example, config) for example in examples]
            if any(names):
                processors.append(OfEachDocument(names))
        if processors:
            others["logits_processor"] = processors
        return config, others

    def _own_lengths(self, examples: list[Example], config: GenerationConfig, begun: int) -> list[tuple[int, int]]:
        """Least and most tokens of each summary, with what it begins with; none if all are alike."""
        max_length = total_length(config, "max", begun)
        room = NEW_TOKENS["long"][1] if max_length is None else max_length - begun - 1
        usual = self._least_tokens(examples, config) if total_length(config, "min", begun) is None else []
        lengths = []
        for place, example in enumerate(examples):
            own_least, own_most = example.notes.get("share", (None, None))
            least = own_least if own_least is not None else usual[place] if usual else 0
            limits = [] if own_most is None else [begun + max(1, own_most - 1)]  # at least the token of the length
            if usual and own_least is None:
                limits.append(begun + 1 + self._most_tokens(example))  # behind the token of the length
            if limits:
                lengths.append((min(begun + min(least, room), *limits), min(limits)))
        return lengths

    def _least_tokens(self, examples: list[Example], config: GenerationConfig) -> list[int]:
        """How many tokens each summary needs to be of the length it begins with: at most a third of its document's."""
        if config.forced_bos_token_id is None or not self._knows_lengths():
            return []
        token = self.tokenizer.convert_ids_to_tokens(config.forced_bos_token_id)
        if (length := token.strip("[]")) not in NEW_TOKENS:
            return []
        least, _ = NEW_TOKENS[length]
        return [min(least, len(example) // 3) for example in examples]

    def _most_tokens(self, example: Example) -> int:
        """How many tokens a summary may have: as many as a short document without markers, and none of nothing."""
        special = set(self.tokenizer.all_special_ids)
        tokens = sum(number not in special for number in example.inputs["input_ids"])
        return max(min(MOST_OF_SHORT, tokens), 2 * len(example) // 3) if tokens else 0

    def _names(self, example: Example, config: GenerationConfig) -> NoBadWordsLogitsProcessor | None:
        """What keeps who speaks, which is for the dialogue, out of its summary."""
        if example.source[0] != "turns" or not example.source[1]:
            return None
        names = sorted({f"{turn['role']}:" for turn in example.source[1]})
        written = [as_text("text", name, replace=True) for name in names]
        encoded = self.tokenizer(written, add_special_tokens=False)["input_ids"]
        unknown = self.tokenizer.unk_token_id
        tokens = [kept for ids in encoded if len(kept := [token for token in ids if token != unknown]) > 1]
        if not tokens:
            return None
        return NoBadWordsLogitsProcessor(tokens, config.eos_token_id)

    def _faithful_processors(
        self, examples: list[Example], config: GenerationConfig, common_words: Any, limits: list[int] | int | None
    ) -> list[LogitsProcessor]:
        """What keeps a model to the words of these documents, and to common ones, in English none twice in a row."""
        words = COMMON_WORDS if common_words is None else common_words
        key = (words,) if isinstance(words, str) else tuple(words)
        if key not in self._word_pieces:
            self._word_pieces = {key: WordPieces(self.tokenizer, words)}
        texts = [as_text(*example.source[:2], replace=True) for example in examples]
        if words is COMMON_WORDS and not all(map(is_english, texts)):
            self._say_once(
                "language",
                "A text does not look like English: few of its words are common English ones. Whether this model can "
                "read it is not known; if it can, give the language's `common_words`, or faithful=False "
                "(--set faithful=false).",
                faithful_logger,
            )
        documents = [self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts]
        sources = [example.inputs["input_ids"] for example in examples]
        values = (getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos", "decoder_start"))
        special = [n for value in values if value is not None for n in (value if isinstance(value, list) else [value])]
        pieces = self._word_pieces[key]
        faithful = FaithfulLogitsProcessor(pieces, sources, documents, special, limits)
        # Other languages may double words: nous nous lavons.
        return [NoDoubledWordLogitsProcessor(pieces, sources), faithful] if words is COMMON_WORDS else [faithful]

"""Poems: a text or keywords in, Chinese quatrains out."""

import copy
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.utils import logging

from .document_pipeline_hier import LENGTH_NAMES, HierPipeline, check_generates, check_integers, flat, given, stream


logger = logging.get_logger(__name__)

LINES, LENGTHS, DEFAULT_LENGTH = 4, (5, 7), 7
FORM = ("rhyme", "tones")
# How several candidates are drawn.
SAMPLING = {"do_sample": True, "num_beams": 1, "top_p": 0.9, "temperature": 0.7}
_BETWEEN_KEYWORDS = re.compile("[\\s,;、，；]+")  # Chinese marks too
_LETTERS = re.compile("[A-Za-z]+")
LATIN = "Keywords are Chinese words: Latin letters of the text have no influence on the poem."
UNKNOWN = "Words that are not in the vocabulary have no influence on the poem:"


@dataclass
class Request:
    """A poem to be written."""

    keywords: list[str]  # four, one a line
    added: int  # how many of them the corpus added


class PoemGenerationPipeline(HierPipeline):
    """Writes Chinese quatrains with a HAM model that was trained on them.

    The important words of the user's text (TextRank) become keywords, one a line. Where they are fewer than four,
    those are added that go with them in the poems of the corpus. Each line is written from its keyword and the lines
    before it, and has exactly as many characters as it shall have, without marks, and none of them twice.

    Generation settings are those of `model.generation_config`; arguments of the call come before them.

    Args:
        model: HAM model.
        tokenizer: not needed beside a processor.
        processor: its `HamProcessor`, with `poem_keywords`.
        **kwargs: arguments of `Pipeline`, and defaults for the arguments of the call, such as `length`.

    Raises:
        ValueError: If the model cannot generate, or its processor is missing or has no keywords of poems.

    Example:
        >>> import hier_models
        >>> from transformers import pipeline
        >>> write = pipeline("poem-generation", model="./my-checkpoint")
        >>> write("春风吹过江南", length=5, num_candidates=2, num_beams=4)
        [{'poem_text': '…', 'lines': ['…', '…', '…', '…'], 'keywords': ['春风', '江南', '…', '…'], …}, …]

    Source: HAM, section 5.2; Wang et al. (2016), section 3.
    """

    def __init__(self, model: Any, tokenizer: Any = None, processor: Any = None, **kwargs: Any) -> None:
        check_generates(model)
        if not hasattr(processor, "line_rules"):
            got = "none was given or could be loaded" if processor is None else f"got {type(processor).__name__}"
            raise ValueError(f"`processor` must be a HamProcessor, {got}. Poems need one: AutoProcessor loads it.")
        if processor.poem_keywords is None:
            raise ValueError(
                "`processor` has no poem_keywords. Train the model on poems (task: poem_generation), or set "
                "processor.poem_keywords to PoemKeywords.fit(…)."
            )
        super().__init__(model=model, tokenizer=processor.tokenizer, processor=processor, **kwargs)

    def __call__(self, inputs: Any = None, *, keywords: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        """Write one poem or many.

        Args:
            inputs: a text with Chinese characters; a dictionary with "text" or "keywords" (other entries are not
                read); or many of these as a list, a dataset, or a generator.
            keywords: instead of `inputs`: one to four keywords, as a list or as one string with spaces or commas
                between.
            **kwargs: `length` (5 or 7 characters a line, 7); `rhyme` (whether the second and fourth lines rhyme, and
                the first with them if it ends in a level tone) and `tones` (whether the lines have the tones of one of
                the four forms of regulated quatrains), as characters sound in the poems of the corpus;
                `num_candidates` (poems for each text, 1; more are sampled, unless `num_beams` or `do_sample` says
                otherwise); `repeats` (whether a character may stand twice in a line, False); `batch_size` (texts at a
                time, 1), `num_workers`; and arguments of `generate`, which hold for each line, such as `num_beams`,
                `do_sample`, `temperature`.

        Returns:
            For one text a list of poems, the most probable first, each `{"poem_text": …, "lines": […],
            "keywords": […], "num_added_keywords": …, "score": …}`: the lines as one text and as a list, the keyword of
            each line, how many of these the corpus added, and the sum of the log-probabilities of all characters.
            With `rhyme` or `tones` also whether the poem has them ("rhyme", "tones"), which a small vocabulary can
            prevent; those that do come first. For a list of texts a list of such dictionaries, or of such lists if
            `num_candidates` is above 1. For a dataset or a generator an iterator over such lists.

        Raises:
            ValueError: If the input is not one of the above, a length is neither 5 nor 7, a number is out of range,
                there are more than four keywords, a keyword is not Chinese or not in the vocabulary, a text has no
                usable word, or the processor does not know how characters sound, and rhymes or tones are asked for.
        """
        check_integers(batch_size=kwargs.get("batch_size"))
        check_integers(0, num_workers=kwargs.get("num_workers"))
        if (inputs is None) == (keywords is None):
            raise ValueError("Pass a text as `inputs`, or `keywords`: exactly one of them.")
        if keywords is not None:
            inputs = {"keywords": keywords}
        if isinstance(inputs, list | tuple):
            # The base class looks at the first element, so it cannot be asked for an empty list.
            return flat(super().__call__(list(inputs), **kwargs) if inputs else [])
        if isinstance(inputs, Iterable) and not isinstance(inputs, str | bytes | Mapping):
            inputs = stream(inputs)
        return super().__call__(inputs, **kwargs)

    def _sanitize_parameters(
        self,
        length: int | None = None,
        num_candidates: int | None = None,
        rhyme: bool | None = None,
        tones: bool | None = None,
        repeats: bool | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        for name in generate_kwargs:
            if name in chain(*LENGTH_NAMES):
                raise ValueError(f"`{name}` does not go with poems: `length` (5 or 7) says how long a line gets.")
            if name == "num_return_sequences":
                raise ValueError("`num_return_sequences` does not go with poems: `num_candidates` is their number.")
        if length is not None and (isinstance(length, bool) or length not in LENGTHS):
            raise ValueError(f"`length` must be 5 or 7, the characters of a line, got {length!r}.")
        check_integers(num_candidates=num_candidates, num_beams=generate_kwargs.get("num_beams"))
        top_p = generate_kwargs.get("top_p")
        if top_p is not None and not 0 <= top_p <= 1:  # `generate` reads more as no limit
            raise ValueError(f"`top_p` must be between 0 and 1, got {top_p!r}.")
        rules = given(rhyme=rhyme, tones=tones, repeats=repeats)
        for name, value in rules.items():
            if not isinstance(value, bool):
                raise ValueError(f"`{name}` must be True or False, got {value!r}.")
        if rhyme or tones:
            self.processor.line_rules(DEFAULT_LENGTH, [[]], rhyme=True)  # refuses where nobody knows how words sound
        return {}, generate_kwargs | rules | given(length=length, num_candidates=num_candidates), {}

    def preprocess(self, input_: Any) -> dict[str, Request]:  # type: ignore[override]
        """Find the keywords of a poem."""
        if isinstance(input_, Mapping):
            present = [name for name in ("text", "keywords") if input_.get(name) is not None]
            if len(present) != 1:
                raise ValueError(f"A poem's input as a dictionary must have `text` or `keywords`, got {list(input_)}.")
            keywords = self._given(input_["keywords"]) if present == ["keywords"] else self._found(input_["text"])
        else:
            keywords = self._found(input_)
        expanded = self.processor.poem_keywords.expand(keywords, LINES, self._usable)
        return {"request": Request(expanded, len(expanded) - len(keywords))}

    def _usable(self, word: str) -> bool:
        return not self.processor.unknown_characters(word)

    def _given(self, value: Any) -> list[str]:
        """The user's own keywords."""
        words = [word for word in _BETWEEN_KEYWORDS.split(value) if word] if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"`keywords` must be a list of strings, or one string, got {value!r}.")
        if not 1 <= len(words) <= LINES:
            raise ValueError(f"`keywords` must be 1 to {LINES}, one a line, got {len(words)}.")
        self.processor(
            keywords=list(words), length=DEFAULT_LENGTH
        )  # refuses what is no word, or not in the vocabulary
        return [unicodedata.normalize("NFC", word.strip()) for word in words]

    def _found(self, text: Any) -> list[str]:
        """The keywords of a text."""
        if not isinstance(text, str):
            raise ValueError(f"A poem's input must be a string or a dictionary, got {type(text).__name__}.")
        text = unicodedata.normalize("NFC", text)
        keywords: list[str] = self.processor.poem_keywords.extract(text, LINES, self._usable)
        unknown = "".join(self.processor.unknown_characters(text))
        if not keywords:
            reason = f"the characters {unknown} are not in the vocabulary" if unknown else "it has only function words"
            raise ValueError(f"`text` has no word that could be a keyword ({reason}): {text[:60]!r}.")
        if _LETTERS.search(text):
            self._say_once("letters", LATIN, logger)
        found = self.processor.poem_keywords.extract(text, LINES) if unknown else []
        if lost := [word for word in found if not self._usable(word)]:
            self._say_once("unknown", f"{UNKNOWN} {' '.join(lost)}", logger)
        return keywords

    def _forward(  # type: ignore[override]
        self,
        model_inputs: dict[str, Any],
        length: int = DEFAULT_LENGTH,
        num_candidates: int = 1,
        rhyme: bool = False,
        tones: bool = False,
        repeats: bool = False,
        **generate_kwargs: Any,
    ) -> dict[str, Any]:
        rules = {"rhyme": rhyme, "tones": tones, "repeats": repeats}
        if num_candidates > 1 and not {"num_beams", "do_sample", "generation_config"} & set(generate_kwargs):
            generate_kwargs = SAMPLING | generate_kwargs
        requests = model_inputs["request"]
        requests = requests if isinstance(requests, list) else [requests]
        # Of each poem its keywords, and the lines so far.
        rows: list[tuple[list[str], list[str]]] = [(request.keywords, []) for request in requests]
        scores = torch.zeros(len(rows), device=self.device)
        for number in range(LINES):
            inputs = self._inputs(rows, number, length)
            each = num_candidates if number == 0 else 1
            config, others = self._generation_config(generate_kwargs, length, each)
            own = self.processor.line_rules(length, [lines for _, lines in rows], **rules)
            others["logits_processor"] = [*others.get("logits_processor", ()), *own]
            output = self.model.generate(**inputs, generation_config=config, **others)
            ids = output if isinstance(output, torch.Tensor) else output.sequences  # (poems * each, 1 + length + 1)
            if each > 1:
                inputs = {name: values.repeat_interleave(each, dim=0) for name, values in inputs.items()}
                rows = [(keywords, list(lines)) for keywords, lines in rows for _ in range(each)]
                scores = scores.repeat_interleave(each)
            scores = scores + self._log_probability(inputs, ids)
            for (_, lines), row in zip(rows, ids, strict=True):
                lines.append("".join(self.tokenizer.decode(row, skip_special_tokens=True).split()))
        poems: list[dict[str, Any]] = [
            {"lines": lines, "keywords": keywords, "score": round(float(score), 3), **self._kept(lines, rules)}
            for (keywords, lines), score in zip(rows, scores, strict=True)
        ]
        results = []
        for number, request in enumerate(requests):
            own = poems[number * num_candidates : (number + 1) * num_candidates]
            best = sorted(own, key=lambda poem: (-sum(poem[rule] for rule in FORM if rule in poem), -poem["score"]))
            results.append([{**poem, "num_added_keywords": request.added} for poem in best])
        return {"poems": results if isinstance(model_inputs["request"], list) else results[0]}

    def _inputs(self, rows: list[tuple[list[str], list[str]]], number: int, length: int) -> dict[str, torch.Tensor]:
        encoded = self.processor(
            keywords=[keywords[number] for keywords, _ in rows],
            lines=[lines for _, lines in rows],
            length=length,
            padding=True,
            return_tensors="pt",
            return_truncation=True,
        )
        names = ("input_ids", "attention_mask", *self.processor.extra_inputs)
        return {name: encoded[name].to(self.device) for name in names}

    def _kept(self, lines: list[str], rules: dict[str, bool]) -> dict[str, bool]:
        """Which rules of form that were asked for the lines of a poem keep."""
        sounds = getattr(self.processor.poem_keywords, "sounds", None)
        kept = (
            {"rhyme": sounds.rhyme(lines[1][-1], lines[3][-1]), "tones": bool(sounds.forms(lines))} if sounds else {}
        )
        return {rule: kept[rule] for rule in FORM if rules[rule]}

    def _log_probability(self, inputs: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
        """(poems,) the log-probability of each line's characters, without its end, which stands where it has to."""
        with torch.no_grad():
            logits = self.model(**inputs, decoder_input_ids=ids[:, :-1]).logits  # (poems, length + 1, vocabulary)
        chosen: torch.Tensor = logits.float().log_softmax(dim=-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        return chosen[:, :-1].sum(dim=-1)

    def _generation_config(
        self, generate_kwargs: dict[str, Any], length: int, sequences: int
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        """The settings for a line, and the arguments of `generate` that are no settings."""
        kwargs = dict(generate_kwargs)
        config = copy.deepcopy(kwargs.pop("generation_config", None) or self.model.generation_config)
        others = config.update(**kwargs)
        # In the terms that the model has its own lengths in: `generate` takes from there what is not set here.
        own = self.model.generation_config
        in_new = own.max_new_tokens is not None  # a line and its end, or its start too
        config.max_length, config.max_new_tokens = (None, length + 1) if in_new else (length + 2, None)
        config.min_length, config.min_new_tokens = (0, None) if own.min_new_tokens is None else (None, 0)
        if config.pad_token_id is None:
            config.pad_token_id = self.tokenizer.pad_token_id
        config.num_return_sequences = sequences
        if sequences > 1 and (not config.do_sample or (config.num_beams or 1) > 1):  # or each of them is drawn
            config.num_beams = max(config.num_beams or 1, sequences)  # the search ends with so many different lines
        return config, dict(others)

    def postprocess(self, model_outputs: dict[str, Any]) -> list[dict[str, Any]]:  # type: ignore[override]
        """Lay out the poems of a text."""
        return [{"poem_text": "\n".join(poem["lines"]), **poem} for poem in model_outputs["poems"]]

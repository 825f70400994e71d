"""What the pipelines share: documents in many containers, tokenizing, padding, limits, generation settings."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

import torch
from torch.utils.data import Dataset, Subset
from transformers import PROCESSOR_MAPPING, GenerationConfig, Pipeline
from transformers.dynamic_module_utils import custom_object_save
from transformers.utils import logging

from .batching_hier import AUTO, in_batches
from .int8_hier import to_int8


logger = logging.get_logger(__name__)

# Without a length of its own, `generate` stops after 20 tokens, in the middle of nearly every text.
DEFAULT_MAX_NEW_TOKENS = 256
LENGTH_NAMES = (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens"))  # whole, and without a prompt
NO_LIMIT = 10**9  # a tokenizer without a limit says so with a huge number

# What a processor counts of a document; not every one tells sentences apart, or knows phrases.
_COUNTS = (
    *("num_truncated_tokens", "num_truncated_sentences"),
    *("num_missing_phrases", "num_truncated_phrases", "num_long_phrases", "without_phrases"),
)
_NOTES = ("phrases", "offset_mapping")  # what else it may be asked for

Languages = tuple[str | None, str | None]
Arguments = dict[str, Any]
Tensors = dict[str, torch.Tensor]


@dataclass
class Example:
    """One tokenized document. Not a tensor, so that batches are padded in `_forward`, by the processor's values."""

    inputs: dict[str, list[Any]]  # name of a model input -> one value per token, or as many as the processor makes
    counts: dict[str, int] = field(default_factory=dict)  # `num_truncated_tokens`, and what else the task counts
    settings: dict[str, Any] = field(default_factory=dict)  # for `generate`; the same for all examples of a batch
    languages: Languages = (None, None)  # from and to which language it is to be translated, where known
    source: tuple[str, Any, int | None] = ("text", "", None)  # what it is given as, its value, tokens read (None: all)
    notes: dict[str, Any] = field(default_factory=dict)  # what else is known of it and no tensor, by name

    def __len__(self) -> int:
        return len(self.inputs["input_ids"])

    @property
    def rows(self) -> list[int]:
        """How many tokens each row has that the model reads of it."""
        return [len(part) for part in self.notes.get("parts", [self])]


class HierPipeline(Pipeline):
    """What all pipelines here have in common: what is loaded with them, how they are saved, what is said once."""

    model: Any
    tokenizer: Any
    processor: Any

    # Both are loaded if they are there, and missed in __init__ if they are not.
    _load_processor = None
    _load_tokenizer = None
    _load_feature_extractor = False  # type: ignore[assignment]
    _load_image_processor = False  # type: ignore[assignment]
    _load_video_processor = False  # type: ignore[assignment]

    def __init__(self, **kwargs: Any) -> None:
        self._warned: set[str] = set()
        dtype = kwargs.get("dtype")  # the base class does not look at it: the model has it already
        super().__init__(**kwargs)
        if dtype in ("int8", torch.int8):
            to_int8(self.model)
        else:
            self._check_dtype(dtype)

    def forward(self, model_inputs: Any, **forward_params: Any) -> Any:
        """Run the model without dropout, also while it is in training."""
        with evaluating(self.model):
            return super().forward(model_inputs, **forward_params)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Save the model and its processor or tokenizer. To share them with their code, use `hier_models.export`."""
        self.model.save_pretrained(save_directory, **kwargs)
        reader = self.tokenizer if self.processor is None else self.processor
        # `pipeline` gives its dtype to all that it loads; it is no JSON.
        getattr(reader, "tokenizer", reader).init_kwargs.pop("dtype", None)
        reader.save_pretrained(save_directory)
        # A checkpoint that was loaded with its own copy of this file keeps it.
        if getattr(self.model.config, "custom_pipelines", None):
            custom_object_save(self, save_directory)

    def _check_dtype(self, dtype: Any) -> None:
        """Say so where the model, which was loaded before, is of another number format than the one asked for."""
        wanted = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        # Some models keep a few of their parameters in float32, so one in the format asked for is enough.
        formats = {parameter.dtype for parameter in self.model.parameters() if parameter.is_floating_point()}
        if isinstance(wanted, torch.dtype) and formats and wanted not in formats:
            named, is_of = (str(each).removeprefix("torch.") for each in (wanted, self.model.dtype))
            self._say_once(
                "dtype",
                f'dtype="{named}" is for a model that is loaded by name; this one is {is_of}: call '
                f"model.to(torch.{named}).",
            )

    def _say_once(self, kind: str, message: str, log: Any = logger) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning(message)


class DocumentPipeline(HierPipeline):
    """What pipelines from documents to text have in common; a task adds its call, its pre- and postprocessing."""

    structures: tuple[str, ...] = ("text", "sentences", "turns", "documents")  # what a document may be given as
    task_settings: tuple[str, ...] = ("prefix",)  # of `task_specific_params`, beside settings of `generate`
    # Arguments of the call that `preprocess` and `postprocess` take, beside those that all tasks have.
    document_arguments: tuple[str, ...] = ("max_source_length",)
    result_arguments: tuple[str, ...] = ()

    def __init__(self, model: Any, tokenizer: Any = None, processor: Any = None, **kwargs: Any) -> None:
        config = model.config
        check_generates(model)
        # Without its processor a hierarchical model would run all the same, and see no sentences.
        has_processor = (
            "AutoProcessor" in (getattr(config, "auto_map", None) or {}) or type(config) in PROCESSOR_MAPPING
        )
        if processor is None and has_processor:
            raise ValueError(
                f"`processor` is missing: {type(model).__name__} needs one, and none was given or could be loaded. "
                f'Pass processor=AutoProcessor.from_pretrained("…"), which also says why loading it fails.'
            )
        if processor is not None:
            own_tokenizer = getattr(processor, "tokenizer", None)
            if own_tokenizer is None:
                raise ValueError(f"`processor` must have a tokenizer, got {type(processor).__name__}.")
            if tokenizer is not None and len(tokenizer) != len(own_tokenizer):
                has = f"has {len(tokenizer)} tokens and the processor's own has {len(own_tokenizer)}"
                raise ValueError(f"`tokenizer` {has}. Pass only `processor`.")
            tokenizer = own_tokenizer
            # A tokenizer once saved by our processor names it ever after, also beside a model that has none.
            if not has_processor:
                processor = None
        if tokenizer is None:
            raise ValueError("`tokenizer` is missing: none was given or could be loaded. Pass it, or a processor.")
        # What Transformers makes of a folder without the tokenizer's files.
        if len(tokenizer) <= len(tokenizer.all_special_ids):
            raise ValueError(
                f"`tokenizer` knows nothing but {tokenizer.all_special_tokens}: its files are missing beside the "
                "model's. Save them there (processor.save_pretrained), or pass processor= or tokenizer=."
            )
        if not has_processor and hasattr(tokenizer, "without_markers"):
            tokenizer = tokenizer.without_markers()  # a HAT's, beside a model that would take markers for text
        if hasattr(processor, "extra_inputs"):
            _check_settings(processor, config)
        super().__init__(model=model, tokenizer=tokenizer, processor=processor, **kwargs)

    def _call(self, inputs: Any, named: Mapping[str, Any], **kwargs: Any) -> Any:
        """Run on one document or many, given as `inputs` or under the name of their structure."""
        given = {name: value for name, value in named.items() if value is not None}
        if (inputs is not None) + len(given) != 1:
            got = [*(["inputs"] if inputs is not None else []), *given]
            raise ValueError(
                f"Pass the documents once, as `inputs` or as one of {listed(self.structures)}; got {got or 'none'}."
            )
        for name, value in given.items():
            inputs = _from_keyword(name, value)
        if isinstance(queries := kwargs.get("query"), list | tuple):
            inputs = _with_queries(inputs, queries, self.structures)
            del kwargs["query"]

        if isinstance(inputs, str | Mapping) or _is_chat(inputs):
            return super().__call__(inputs, **kwargs)
        if isinstance(inputs, list | tuple):
            if inputs and all(_is_turn(item) for item in inputs):
                return super().__call__({"turns": list(inputs)}, **kwargs)
            if "turns" in self.structures and inputs and all(_is_misnamed_turn(item) for item in inputs):
                got = list(inputs[0])
                raise ValueError(f"This looks like a dialogue: a turn needs role and content, got the entries {got}.")
            many = [{"turns": list(item)} if _is_dialogue(item) else item for item in inputs]
            # The base class looks at the first element, so it cannot be asked for an empty list.
            return flat(super().__call__(many, **kwargs) if many else [])
        return super().__call__(_as_stream(inputs, self.structures), **kwargs)

    def get_iterator(self, inputs: Any, num_workers: int, batch_size: Any, *parameters: Any) -> Any:
        """Run on many documents; with `batch_size="auto"` on those of like length at once."""
        if batch_size != AUTO:
            return super().get_iterator(inputs, num_workers, batch_size, *parameters)
        if num_workers:
            raise ValueError(f'`num_workers` does not go with batch_size="{AUTO}"; leave out one of the two.')
        items = (inputs[number] for number in range(len(inputs))) if hasattr(inputs, "__len__") else inputs
        return in_batches(self, items, *parameters)

    def _sanitize_parameters(
        self,
        truncation: Any = None,
        return_tensors: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Arguments, Arguments, Arguments]:
        of_documents, of_results = (
            given(**{name: kwargs.pop(name, None) for name in names})
            for names in (self.document_arguments, self.result_arguments)
        )
        if truncation is not None:
            of_documents["truncation"] = as_truncation(truncation)
        of_results |= given(return_tensors=return_tensors, clean_up_tokenization_spaces=clean_up_tokenization_spaces)
        # A length of the call stands in the place of one that the pipeline was made with, in whichever terms.
        for total, new in LENGTH_NAMES:
            if (total in kwargs) != (new in kwargs):
                kwargs[new if total in kwargs else total] = None
        return of_documents, kwargs, of_results

    def _process(
        self, name: str, value: Any, limit: int | None, truncation: bool | None = None, **options: Any
    ) -> Example:
        truncation = limit is not None if truncation is None else truncation
        options = {"truncation": truncation, "max_length": limit, "return_truncation": True, **options}
        encoded = self.processor(**{name: value}, **options)
        cut = {key: int(encoded[key]) for key in _COUNTS if key in encoded}
        names = ("input_ids", "attention_mask", *self.processor.extra_inputs)
        notes = {key: encoded[key] for key in _NOTES if key in encoded}
        inputs = {key: list(encoded[key]) for key in names if key in encoded}
        return Example(inputs, cut, source=(name, value, limit), notes=notes)

    def _tokenize(self, text: str, limit: int | None) -> Example:
        names = [name for name in ("input_ids", "attention_mask") if name in self.tokenizer.model_input_names]
        encoded = self.tokenizer(text, verbose=False)
        length = len(encoded["input_ids"])
        if limit is not None and length > limit:
            encoded = self.tokenizer(text, truncation=True, max_length=limit)
        inputs = {name: list(encoded[name]) for name in names}
        return Example(inputs, {"num_truncated_tokens": length - len(inputs["input_ids"])})

    def _forward(  # type: ignore[override]
        self, model_inputs: dict[str, Any], **generate_kwargs: Any
    ) -> dict[str, Any]:
        examples = model_inputs["examples"]
        examples = examples if isinstance(examples, list) else [examples]
        batch = self._pad(examples)
        generate_kwargs = {**examples[0].settings, **generate_kwargs}
        generation_config, other_kwargs = self._generation_config(generate_kwargs, examples)
        self._warn(examples, generation_config)
        output = self.model.generate(**batch, generation_config=generation_config, **other_kwargs)
        ids = output if isinstance(output, torch.Tensor) else output.sequences
        ids = ids.reshape(len(examples), -1, ids.shape[-1])  # (batch, sequences, target)
        found = self._looked_up(examples, batch, ids, output, generation_config)
        return {"output_ids": ids, "examples": examples, **found}

    def _looked_up(
        self, examples: list[Example], batch: Tensors, ids: torch.Tensor, output: Any, config: GenerationConfig
    ) -> Tensors:
        """What `postprocess` wants to know beside the ids (batch, sequences, target) and the examples."""
        return {}

    def _pad(self, examples: list[Example]) -> Tensors:
        """Pad on the right, where it shifts no position of an encoder's input."""
        pad_id = self.tokenizer.pad_token_id
        pad_values = {"input_ids": self.model.config.pad_token_id if pad_id is None else pad_id, "attention_mask": 0}
        pad_values.update(getattr(self.processor, "extra_inputs", {}))
        batch = {}
        for name in dict.fromkeys(name for example in examples for name in example.inputs):
            # A document without phrases may stand beside others.
            rows = [example.inputs.get(name, []) for example in examples]
            length = max(1, *(len(row) for row in rows))
            padded = [row + [pad_values[name]] * (length - len(row)) for row in rows]
            batch[name] = torch.tensor(padded, device=self.device)  # (batch, source), or (batch, phrases, …)
        return batch

    # Limits and settings

    def _source_limit(self, max_source_length: int | None) -> int | None:
        """How many tokens the encoder takes; None if it has no limit."""
        limit = self._positions("encoder")
        tokenizer_limit = self.tokenizer.model_max_length
        # Grown positions (`from_bart`) leave the tokenizer's limit behind, so it counts only where it is all there is,
        # or where the model's own says too much: encoders in the manner of RoBERTa lose a few positions.
        if (limit is None or hasattr(self.model.config, "encoder")) and tokenizer_limit < NO_LIMIT:
            limit = tokenizer_limit if limit is None else min(limit, tokenizer_limit)
        if getattr(self.processor, "rows", None) == "grid":
            grid = self.processor.num_rows * self.processor.row_length
            limit = grid if limit is None else min(limit, grid)
        if max_source_length is None:
            return limit
        least = self.tokenizer.num_special_tokens_to_add() + 1
        if hasattr(self.processor, "extra_inputs"):
            least = max(least, 3)  # a marker, a token, and the end
        if not isinstance(max_source_length, int) or not least <= max_source_length <= (limit or max_source_length):
            most = "" if limit is None else f" and at most {limit}, what {type(self.model).__name__} can take"
            raise ValueError(f"`max_source_length` must be at least {least}{most}, got {max_source_length}.")
        return max_source_length

    def _positions(self, side: str) -> int | None:
        return positions(self.model.config, side)

    def _task_params(self, languages: Languages = (None, None)) -> dict[str, Any]:
        """What the model's config says of the task: settings of `generate`, and those named in `task_settings`."""
        return task_params(self.model.config, *self._task_names(languages))

    def _task_names(self, languages: Languages) -> list[str]:
        """Under which names a config's `task_specific_params` may speak of the task, the best first."""
        raise TypeError(f"{type(self).__name__} has no task.")

    def _default_new_tokens(self, examples: list[Example]) -> int:
        """How long a text may get if nobody sets a length."""
        return DEFAULT_MAX_NEW_TOKENS

    def _warn(self, examples: list[Example], generation_config: GenerationConfig) -> None:
        """Say once what the user may not expect."""

    def _prefix(self, languages: Languages = (None, None)) -> str:
        return prefix_of(self.model.config, *self._task_names(languages))

    def _generation_config(
        self, generate_kwargs: dict[str, Any], examples: list[Example]
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        """The settings for this call, and the arguments of `generate` that are no settings."""
        kwargs = dict(generate_kwargs)
        models_own = self.model.generation_config
        generation_config = copy.deepcopy(kwargs.pop("generation_config", None) or models_own)
        if generation_config.max_length is None and generation_config.max_new_tokens is None:
            generation_config.max_length = models_own.max_length
            generation_config.max_new_tokens = models_own.max_new_tokens
        already_set = {**models_own.to_diff_dict(), **generation_config.to_diff_dict()}
        params = self._task_params(examples[0].languages)
        for name in self.task_settings:
            params.pop(name, None)
        kwargs = {**{name: value for name, value in params.items() if name not in already_set}, **kwargs}
        if generation_config.pad_token_id is None:
            kwargs.setdefault("pad_token_id", self.tokenizer.pad_token_id)

        # A length may be given as the decoder's whole length or as the number of new tokens. `generate` ignores one
        # when the other is in the generation config, so what the call gives is said in the terms of the config.
        prompt = kwargs.get("decoder_input_ids")
        prompt_length = 1 if prompt is None else prompt.shape[-1]
        decoder_limit = self._positions("decoder")
        for total, new in LENGTH_NAMES:
            length = kwargs.pop(total, None)
            if (new_tokens := kwargs.pop(new, None)) is not None:
                length = new_tokens + prompt_length
            if length is not None:
                in_new_tokens = getattr(generation_config, new) is not None
                kwargs[new if in_new_tokens else total] = length - prompt_length if in_new_tokens else length
        other_kwargs = generation_config.update(**kwargs)
        # As `generate` does later, but for lengths, of which there are two kinds.
        models = {name: value for name, value in models_own.to_dict().items() if name not in chain(*LENGTH_NAMES)}
        generation_config.update(**models, defaults_only=True)
        if generation_config.max_length is None and generation_config.max_new_tokens is None:
            default = self._default_new_tokens(examples) + prompt_length
            generation_config.max_length = default if decoder_limit is None else min(default, decoder_limit)
        if generation_config.stop_strings is not None:
            other_kwargs.setdefault("tokenizer", self.tokenizer)

        max_length = total_length(generation_config, "max", prompt_length)
        if decoder_limit is not None and max_length is not None and max_length > decoder_limit:
            most, wanted = decoder_limit - prompt_length, max_length - prompt_length
            raise ValueError(
                f"At most {most} new tokens have positions in the decoder of {type(self.model).__name__} "
                f"(`max_new_tokens`, or --max-length; `max_length={decoder_limit}`), got {wanted} "
                f"(`max_length={max_length}`)."
            )
        return generation_config, other_kwargs


def prefix_of(config: Any, *tasks: str) -> str:
    """What stands before a text that the model sees no structure of, such as T5's "summarize: "."""
    return task_params(config, *tasks).get("prefix") or getattr(config, "prefix", None) or ""


def task_params(config: Any, *tasks: str) -> dict[str, Any]:
    """What a model's config says of a task, under the first of its names that says anything."""
    params = getattr(config, "task_specific_params", None) or {}
    return next((dict(params[name]) for name in tasks if params.get(name)), {})


def positions(config: Any, side: str) -> int | None:
    """Size of the position table of the encoder or the decoder; None for models that read any length."""
    config = getattr(config, side, config)  # a config made of two has them under these names
    if getattr(config, "body", None) == "gru":  # of HAM, whose other body has positions
        return None
    names = (f"max_{side}_position_embeddings", "max_position_embeddings")
    values = (getattr(config, name, None) for name in names)
    return next((int(value) for value in values if value is not None), None)


def check_generates(model: Any) -> None:
    """Refuse a model that is no encoder-decoder, and one whose decoder is none of its checkpoint's."""
    if not getattr(model.config, "is_encoder_decoder", False) or not model.can_generate():
        wanted = "an encoder-decoder model that can generate (AutoModelForSeq2SeqLM)"
        raise ValueError(f"`model` must be {wanted}, got {type(model).__name__}.")
    saved = next(iter(model.config.architectures or ()), "")
    if saved.endswith("ForTokenClassification"):  # `from_pretrained` makes what is missing at random
        use = "A tagger goes beside a summarizer, as `importance_tagger`"
        trained = "where one was trained from it, save that first, or name it: model.config.architectures = None"
        raise ValueError(
            f"`model` was loaded from the checkpoint of a {saved}, which has no decoder. {use}; {trained}."
        )


def check_integers(least: int = 1, **values: Any) -> None:
    """Refuse numbers that are no integers, or less than they can be; None is a number that was not given."""
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")


def given(**values: Any) -> dict[str, Any]:
    """The arguments that were given."""
    return {name: value for name, value in values.items() if value is not None}


def _check_settings(processor: Any, config: Any) -> None:
    """Refuse a processor that makes other inputs than the model was made for: the model might run all the same."""
    for name, value in vars(processor).items():
        wanted = getattr(config, name, value)
        if isinstance(value, int) and value != wanted:
            has = f"{name}={value} and the model's config has {name}={wanted}"
            raise ValueError(f'`processor` has {has}. Load AutoProcessor.from_pretrained("…", {name}={wanted}).')


def listed(names: Iterable[str]) -> str:
    """Names in backticks, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def _is_turn(item: Any) -> bool:
    return isinstance(item, Mapping) and "role" in item and "content" in item


def _is_misnamed_turn(item: Any) -> bool:
    return isinstance(item, Mapping) and set(item) in ({"role", "text"}, {"speaker", "text"})


def _is_dialogue(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) > 0 and all(_is_turn(turn) for turn in item)


def _is_chat(item: Any) -> bool:
    """Whether this is what `Pipeline` makes of a list of turns."""
    return type(item).__name__ == "Chat" and hasattr(item, "messages")


def _from_keyword(name: str, value: Any) -> Any:
    if isinstance(value, str):
        if name != "text":
            raise ValueError(f"`{name}` must be a list, got a string. Pass a whole text as `text`.")
        return value
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise ValueError(f"`{name}` must be {'a string or ' if name == 'text' else ''}a list, got {value!r:.80}.")
    value = list(value)
    if name == "text":
        return [{"text": item} for item in value]
    batched = bool(value) and all(isinstance(item, list | tuple) for item in value)
    return [{name: list(item)} for item in value] if batched else {name: value}


def _with_queries(inputs: Any, queries: Sequence[Any], structures: Sequence[str]) -> list[dict[str, Any]]:
    """Each document with its own question; one document with each of them."""
    is_one = isinstance(inputs, str | Mapping) or _is_chat(inputs) or _is_dialogue(inputs)
    documents = [inputs] * len(queries) if is_one else list(inputs)
    if not queries or len(documents) != len(queries):
        got = f"a list of {len(queries)} for {'one document' if is_one else f'{len(documents)} documents'}"
        raise ValueError(f"`query` must be one question for all documents, or a list with one for each; got {got}.")
    structured = (item if isinstance(item, Mapping) else dict([structure_of(item, structures)]) for item in documents)
    return [{**item, "query": query} for item, query in zip(structured, queries, strict=True)]


def _as_stream(inputs: Any, structures: Sequence[str]) -> Any:
    """What `Pipeline` can stream: a dataset of torch, or a generator."""
    if hasattr(inputs, "column_names") and isinstance(inputs, Sized) and hasattr(inputs, "__getitem__"):
        # A `datasets.Dataset` as one of torch, which `Pipeline` streams.
        return Subset(cast(Any, inputs), range(len(inputs)))
    if isinstance(inputs, Dataset) and not hasattr(inputs, "column_names"):
        # The base class looks at the first element of some datasets.
        return inputs if not isinstance(inputs, Sized) or len(inputs) else stream(())
    if hasattr(inputs, "columns"):
        raise ValueError(f"A {type(inputs).__name__} was given as `inputs`. Give one of its columns, as a list.")
    if isinstance(inputs, Iterable) and not isinstance(inputs, bytes | set | frozenset):
        return stream(inputs)
    kinds = f"a string, a list, a dataset, a generator, or a dictionary with one of {listed(structures)}"
    raise ValueError(f"`inputs` must be {kinds}, got {type(inputs).__name__}.")


def stream(items: Iterable[Any]) -> Iterator[Any]:
    """A generator, which `Pipeline` streams; of dialogues it would take the first for all."""
    for item in items:
        yield {"turns": list(item)} if _is_dialogue(item) else item


def example_of(outputs: Mapping[str, Any]) -> Example:
    """The one document whose outputs these are; `Pipeline` unwraps them where there are several at once."""
    example: Any = outputs["examples"]
    return example[0] if isinstance(example, list) else example  # type: ignore[no-any-return]


def flat(results: list[Any]) -> list[Any]:
    """As in Transformers 4: a list of documents gives a flat list of results, where each has one."""
    return [result[0] for result in results] if all(len(result) == 1 for result in results) else results


def structure_of(item: Any, structures: Sequence[str]) -> tuple[str, Any]:
    """Say what one document was given as, and give its value."""
    if isinstance(item, str):
        return "text", item
    if "turns" in structures and _is_chat(item):
        return "turns", item.messages
    if "turns" in structures and _is_dialogue(item):
        return "turns", list(item)
    if isinstance(item, Mapping):
        if _is_turn(item):
            raise ValueError("A turn was given where a document is expected. Pass the turns of a dialogue as a list.")
        present = [name for name in structures if item.get(name) is not None]
        if not present and (empty := [name for name in structures if name in item]):
            raise ValueError(f"The `{empty[0]}` of a document is None. Give its text, or leave the document out.")
        if len(present) != 1:
            one_of = f"exactly one of {listed(structures)}"
            raise ValueError(f"A document given as a dictionary must have {one_of}, got the entries {list(item)}.")
        return present[0], item[present[0]]
    if isinstance(item, list | tuple):
        instead = " or ".join(f'{{"{name}": […]}}' for name in ("sentences", "documents") if name in structures)
        raise ValueError(f"A list inside a list can be sentences or articles: pass {instead} instead.")
    kinds = "a string, a list of turns or a dictionary" if "turns" in structures else "a string or a dictionary"
    raise ValueError(f"A document must be {kinds}, got {type(item).__name__}.")


def highlights(processor: Any) -> bool:
    """Whether a processor finds phrases in documents, to be highlighted."""
    return "phrase_positions" in getattr(processor, "extra_inputs", ())


def as_text(name: str, value: Any, replace: bool = False) -> str:
    """The document as plain text, for models that do not see its structure; broken characters replaced or refused."""
    if name == "text":
        parts, separator = [value], ""
    elif name == "turns":
        turns = as_list(name, value)
        if not all(_is_turn(turn) and isinstance(turn["content"], str) for turn in turns):
            raise ValueError('`turns` must be a list of {"role": …, "content": …}, with text as their content.')
        parts, separator = [f"{turn['role']}: {turn['content']}" for turn in turns], "\n"
    else:
        parts, separator = as_list(name, value), " " if name == "sentences" else "\n\n"
    for part in parts:
        if not isinstance(part, str):
            raise ValueError(f"`{name}` must be text, got {type(part).__name__}.")
    text = separator.join(parts)
    if replace:  # as our processors do, one for one
        return re.sub("[\ud800-\udfff]", "\ufffd", text)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        has = f"has an unpaired surrogate at character {error.start}, so it is no valid Unicode"
        raise ValueError(f'`{name}` {has}. Pass text.encode("utf-8", "replace").decode().') from None
    return text


def as_list(name: str, value: Any) -> list[Any]:
    """The parts of a document, which are no string."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"`{name}` must be a list, got {type(value).__name__}.")
    return list(value)


def as_truncation(value: Any) -> bool:
    """Whether to cut, in any of the forms that Transformers takes."""
    if not isinstance(value, bool) and value not in ("longest_first", "only_first", "do_not_truncate"):
        kinds = "True, False, 'longest_first', 'only_first' or 'do_not_truncate'"
        raise ValueError(f"`truncation` must be {kinds}, got {value!r}.")
    return value not in (False, "do_not_truncate")


def total_length(generation_config: GenerationConfig, kind: str, prompt_length: int) -> int | None:
    """The length that a generation config sets, of the decoder's input and output together."""
    new_tokens: int | None = getattr(generation_config, f"{kind}_new_tokens")
    length: int | None = getattr(generation_config, f"{kind}_length")
    return length if new_tokens is None else new_tokens + prompt_length


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Turn dropout off, and leave every module in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode

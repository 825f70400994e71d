"""Checkpoints and generation settings of the command line."""

from __future__ import annotations

import difflib
import logging
import os
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..checkpoints import resolve_checkpoint, version_of_checkpoints, why_no_checkpoint
from ..families import FAMILIES, Family
from .errors import MistakeError, mistakes, say, state
from .extractive import ExtractivePipe, is_extractive
from .options import Dtype, Length


# Settings of `generate` that may be a text; a pipeline looks at its own itself.
TEXT_SETTINGS = (
    *("cache_implementation", "dola_layers", "early_stopping", "num_assistant_tokens_schedule", "speculation_type"),
    *("stop_strings", "transformers_version"),
)


def quiet() -> None:
    """Keep the libraries' own messages and bars off the screen, but not ours."""
    if state.debug:
        return
    warnings.filterwarnings("ignore")
    from transformers.utils import logging as transformers_logging

    if datasets := sys.modules.get("datasets"):  # takes half a second to import, and few commands need it
        datasets.disable_progress_bars()
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    # Weights that are missing in a checkpoint are news in any case.
    transformers_logging.get_logger("transformers.modeling_utils").setLevel(logging.WARNING)
    # The commands say themselves what was cut, but not what these warn of.
    pipelines = ("translation_hier", "faithful_hier", "importance_tagger_hier", "int8_hier", "long_documents_hier")
    warning = (*(f"pipelines.{name}" for name in pipelines), "models.encoder_top_down_transformer")
    levels = {logging.ERROR: ("pipelines", "models", "data.tokenizing"), logging.WARNING: warning}
    for level, names in levels.items():
        for name in names:
            logging.getLogger(f"hier_models.{name}").setLevel(level)


def load_pipeline(
    name: str, device: str | None, dtype: Dtype, task: str = "summarization", importance_tagger: str | None = None
) -> Any:
    """Load a checkpoint as the pipeline of a task, which holds the model and its processor or tokenizer."""
    if task == "summarization" and is_extractive(name):
        quiet()
        return ExtractivePipe(name)
    check_checkpoint(name)
    if importance_tagger is not None:
        check_checkpoint(importance_tagger, "--importance-tagger")
    quiet()
    import torch
    from safetensors import SafetensorError
    from transformers import pipeline

    if device is not None:
        with mistakes("--device", RuntimeError, AssertionError):  # of a torch without CUDA
            torch.empty(0, device=torch.device(device))
    with mistakes(f"--model: cannot load {name!r}", OSError, ValueError, KeyError, SafetensorError):
        make: Any = pipeline
        pipe = make(task, model=resolve_checkpoint(name), device=device, dtype=str(dtype.value))
    if dtype == Dtype.bfloat16 and pipe.device.type == "cpu":
        from ..models.attention_products import multiplies_bfloat16

        if not multiplies_bfloat16():
            instead = "--dtype int8 is faster, and of many documents at once float32, without --dtype, too"
            say(f"--dtype bfloat16: this processor has no instructions for it; {instead}.")
    if importance_tagger is not None:
        with mistakes(f"--importance-tagger: {importance_tagger!r}", OSError, ValueError, KeyError, SafetensorError):
            pipe.set_importance_tagger(importance_tagger)
    return pipe


def trainer_arguments(pipe: Any, batch_size: int) -> Any:
    """Have a Trainer evaluate where the model was loaded to: by itself it takes what accelerators there are."""
    from transformers import Seq2SeqTrainingArguments

    if pipe.device.index:
        hint = f"hide the others, as with CUDA_VISIBLE_DEVICES={pipe.device.index}"
        raise MistakeError(f"--device: what is evaluated runs on the first device or on all; {hint}")
    on = {"per_device_eval_batch_size": batch_size, "use_cpu": pipe.device.type == "cpu"}
    return Seq2SeqTrainingArguments(report_to="none", **on)


def required(model: str | None, what: str, example: str) -> str:
    """Refuse a command without a model, where no model is the default, or with the one that makes summaries."""
    if model is None:
        raise MistakeError(f"--model is missing: {what}, a folder or the id of a model on the Hub: {example}")
    if resolve_checkpoint(model) != model:
        raise MistakeError(f"--model: {model} makes summaries; give {what}")
    return model


def check_checkpoint(name: str, option: str = "--model") -> None:
    """Refuse, before anything is loaded, a local path that is no checkpoint."""
    if reason := why_no_checkpoint(name):
        raise MistakeError(f"{option}: {reason}")


def family_of(checkpoint: str) -> Family | None:
    """Find the record of a checkpoint's family; whatever is wrong with the checkpoint shows when it is loaded."""
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(resolve_checkpoint(checkpoint))
    except (OSError, ValueError):
        return None
    return FAMILIES.get(config.get("model_type", ""))


def making_of(model: str, settings: dict[str, Any], dtype: Dtype, importance_tagger: str | None) -> dict[str, Any]:
    """Gather what each record of a job says of its making: a job goes on only with the same."""
    version = version_of_checkpoints([model, *([] if importance_tagger is None else [importance_tagger])])
    return {"model": model, **given_only(model_version=version), "dtype": str(dtype.value), "settings": settings}


def check_highlights(pipe: Any, phrases: object) -> None:
    """Refuse phrases, or a column of them, for a model that highlights nothing."""
    from ..pipelines.document_pipeline_hier import highlights

    if phrases and not highlights(pipe.processor):
        raise MistakeError(f"--phrase, --phrases-column: {type(pipe.model).__name__} highlights nothing; leave it out")


def generation_settings(
    max_length: int | None,
    min_length: int | None,
    num_beams: int | None,
    others: list[str] | None,
    besides: Iterable[str] = (),  # settings of a pipeline's own
    length: Length | None = None,
) -> dict[str, Any]:
    """Gather the arguments of `generate` from the options, of which one may be a length that has a limit itself."""
    import yaml
    from transformers import GenerationConfig

    known = {*vars(GenerationConfig()), *besides}
    settings: dict[str, Any] = {}
    for entry in others or []:
        name, equals, text = entry.partition("=")
        if not equals:
            raise MistakeError(f"--set: got {entry!r}; write NAME=VALUE, such as --set length_penalty=2.0")
        if name not in known or name.startswith("_"):
            hint = "".join(f"; did you mean {close}?" for close in difflib.get_close_matches(name, known, n=1))
            raise MistakeError(f"--set: {name!r} is no generation setting of Transformers{hint}")
        with mistakes(f"--set: {entry!r}", yaml.YAMLError):
            settings[name] = yaml.safe_load(text)
        if isinstance(settings[name], str):
            with suppress(ValueError):
                settings[name] = float(text)  # 1e-4, which PyYAML takes for text
        if isinstance(settings[name], str) and name not in (*TEXT_SETTINGS, *besides):
            raise MistakeError(f"--set: got {entry!r}; give {name} a number, true or false, or a list of them")
    if min_length is not None:
        _check_least(min_length, max_length, settings, length)
    # Tokens to be written, whatever the checkpoint says of lengths in other terms.
    return settings | given_only(max_new_tokens=max_length, min_new_tokens=min_length, num_beams=num_beams)


def _check_least(least: int, most: int | None, settings: dict[str, Any], length: Length | None) -> None:
    """Refuse more tokens than there may be; of what limits them, what comes first counts."""
    name = "--max-length"
    if most is None:
        name, most = "--set", settings.get("max_new_tokens")
    if most is None and length is not None and "max_length" not in settings:
        from ..pipelines.summary_rules_hier import NEW_TOKENS

        name, most = f"--length {length}", NEW_TOKENS[length][1]
    if isinstance(most, int) and least > most:
        raise MistakeError(f"--min-length: {least} tokens are more than {name} allows, {most}")


def with_length(pipe: Any, length: Length | None, generation: dict[str, Any]) -> dict[str, Any]:
    """Add, to the arguments of `generate` that were given, those that make summaries of a length."""
    if length is None:
        return generation
    if not pipe._knows_lengths():
        raise MistakeError("--length: this model was not trained to write summaries of given lengths; leave it out")
    settings: dict[str, Any] = pipe._length_settings(length)
    if "max_length" in generation:
        del settings["max_new_tokens"]
    return settings | generation


def read_phrases(entries: list[str] | None) -> list[Any] | None:
    """Read --phrase: [phrase, value], or a phrase alone, where what is behind the last = is no number."""
    if entries is None:
        return None
    phrases: list[Any] = []
    for entry in entries:
        text, equals, value = entry.rpartition("=")
        try:
            number = float(value) if equals else None
        except ValueError:
            number = None
        if number is None:
            text = entry
        elif not 0 <= number < float("inf"):
            raise MistakeError(f"--phrase: got {entry!r}; its value must be a number of 0 or more")
        if not text.strip():
            raise MistakeError(f"--phrase: got {entry!r}; write TEXT, or TEXT=VALUE such as 'old bridge=0.5'")
        phrases.append(entry if number is None else [text, number])
    return phrases


def given_only(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def check_judges(bert_score: str | None, nli: str | None) -> None:
    """Refuse, before the work begins, models that cannot score summaries."""
    if bert_score is None and nli is None:
        return
    from transformers import AutoConfig

    from ..metrics.model_scores import MINILM, entailment_label, minilm_folder

    if bert_score == MINILM:
        with mistakes("--bert-score", ModuleNotFoundError):
            minilm_folder()
    elif bert_score is not None:
        check_checkpoint(bert_score, "--bert-score")
    if nli is not None:
        check_checkpoint(nli, "--nli")
        with mistakes("--nli", OSError, ValueError):
            entailment_label(AutoConfig.from_pretrained(nli).id2label, nli)

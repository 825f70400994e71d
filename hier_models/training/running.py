"""Training and evaluation runs: everything around the stock `Seq2SeqTrainer`."""

import copy
import functools
import inspect
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from datasets import Dataset, IterableDataset
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from ..data import HierDataCollator, LoadReport, TruncationReport, load_documents, tokenize_documents
from ..data.tokenizing import plain_tokenizer
from ..metrics import Rouge
from .arguments import DataArguments, ModelArguments, Recipe, RecipeError
from .metrics import compute_summarization_metrics, decode, mean_length


logger = logging.getLogger(__name__)

Processor = ProcessorMixin | PreTrainedTokenizerBase
RESULTS_FILE = "results.json"


def run_training(recipe: Recipe) -> dict[str, Any]:
    """Train a model by a recipe, save it with its processor, and score it on the validation documents.

    A run that was interrupted goes on from its last complete checkpoint in `output_dir`, and on the CPU ends with the
    same weights, bit for bit, as if it had never stopped. The folder afterwards holds the model with its generation
    config, the processor, and `results.json` with what is returned.

    Args:
        recipe: What to train, from `load_recipe`.

    Returns:
        `train` (the Trainer's numbers), `evaluation` (what `run_evaluation` returns, if there are validation documents
        and `predict_with_generate` is on), `truncation` and `set_aside` for each data set, `resumed_from`,
        `parameters`, the `recipe` and the `versions` of the libraries.

    Raises:
        RecipeError: If parts of the recipe do not fit together or `output_dir` holds a finished run.
    """
    arguments, data = recipe.training, recipe.data
    output_dir = Path(arguments.output_dir or "")
    if data.train is None:
        raise RecipeError("data: train is not given; it is the hub id, file or folder of the training documents")
    _set_accumulation(recipe)
    checkpoint = _checkpoint_to_resume(recipe, output_dir)
    # Weights that are not loaded are drawn here, so they depend on the seed and on nothing before.
    set_seed(arguments.seed)
    if arguments.device.type == "cpu":
        arguments.dataloader_pin_memory = False  # it would only warn that there is nothing to pin memory for
    model, processor = load_model_and_processor(recipe.model)
    _set_generation(model, recipe)
    _check_lengths(model.config, recipe)

    reports = {"train": TruncationReport(), "validation": TruncationReport()}
    set_aside = {"train": LoadReport(), "validation": LoadReport()}
    # The first process fills datasets' cache, the others read it.
    with arguments.main_process_first(desc="loading and tokenizing"):
        train_documents = _load(data, "train", output_dir, set_aside["train"])
        validation_documents = _load(data, "validation", output_dir, set_aside["validation"])
        tokenize = functools.partial(
            tokenize_documents,
            processor=processor,
            max_source_length=data.max_source_length,
            max_target_length=data.max_target_length,
            num_proc=data.num_proc,
        )
        train_dataset = tokenize(train_documents, report=reports["train"])
        validation_dataset = None
        if validation_documents is not None:
            validation_dataset = tokenize(validation_documents, report=reports["validation"])
    if isinstance(train_dataset, IterableDataset):
        if arguments.max_steps <= 0:
            raise RecipeError(
                "training: max_steps must be given with streaming: true, since a stream has no known length"
            )
        if next(iter(train_documents), None) is None:
            raise RecipeError(f"data: train has no usable documents ({data.train}, split {data.train_split})")
        # As one stream without end: the Trainer does not know where a stream's epochs end, and after resuming in the
        # second it would start that epoch anew.
        train_dataset = train_dataset.repeat(None).shuffle(seed=arguments.seed, buffer_size=data.shuffle_buffer)
    if validation_dataset is None and arguments.eval_strategy != "no":
        raise RecipeError("training: eval_strategy is on, but data: validation is not given")

    trainer = Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=train_dataset,
        eval_dataset=validation_dataset,
        processing_class=processor,
        data_collator=HierDataCollator(processor, model=model),
        # Without generation the predictions would be logits: gigabytes that nothing here would look at.
        compute_metrics=functools.partial(compute_summarization_metrics, tokenizer=processor)
        if arguments.predict_with_generate
        else None,
    )
    generation_config = copy.deepcopy(model.generation_config)
    outcome = trainer.train(resume_from_checkpoint=checkpoint)
    model.generation_config = generation_config  # the Trainer's evaluation writes every default into it
    trainer.log_metrics("train", outcome.metrics)
    trainer.save_model()  # with the processor and the generation config
    trainer.save_state()

    results: dict[str, Any] = {"train": outcome.metrics}
    if validation_documents is not None and arguments.predict_with_generate:
        results["evaluation"] = run_evaluation(
            model,
            processor,
            validation_documents,
            max_source_length=data.max_source_length,
            training_args=arguments,
            predictions_file=output_dir / "predictions.jsonl",
            num_proc=data.num_proc,
        )
    for name, report in reports.items():
        # Streams are counted only now, and the numbers are worth repeating after hours of training.
        if report.documents:
            logger.info("%s: %s", name, report)
    results |= {
        "truncation": {name: report.as_dict() for name, report in reports.items()},
        "set_aside": {name: report.as_dict() for name, report in set_aside.items()},
        "resumed_from": checkpoint,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "recipe": recipe.as_dict(),
        "versions": _versions(),
    }
    if trainer.is_world_process_zero():
        _write_json(output_dir / RESULTS_FILE, results)
    return results


def run_evaluation(
    model: PreTrainedModel,
    processor: Processor,
    dataset: Dataset | IterableDataset,
    *,
    max_source_length: int | None = None,
    batch_size: int = 8,
    training_args: Seq2SeqTrainingArguments | None = None,
    predictions_file: str | os.PathLike[str] | None = None,
    results_file: str | os.PathLike[str] | None = None,
    use_stemmer: bool = True,
    sentence_splitter: str | Callable[[str], list[str]] = "punkt",
    num_proc: int | None = None,
    **generate_kwargs: Any,
) -> dict[str, Any]:
    """Summarize documents and score the summaries against their whole references.

    Generation follows the model's `generation_config` and `generate_kwargs`. References are never cut, unlike the
    labels that Trainer's own evaluation during training compares with.

    Args:
        model: Any encoder-decoder model with a `generate`.
        processor: Its processor, or its tokenizer.
        dataset: Documents with `summary`, from `load_documents`.
        max_source_length: Tokens of a source; by default as many as the model has positions.
        batch_size: Documents summarized at a time on each device, unless `training_args` says so.
        training_args: Arguments of the Trainer to run under (device, precision, batch size).
        predictions_file: JSON lines to write the summaries to: `id` if there is one, `summary`, `reference`.
        results_file: JSON file to write what is returned to.
        use_stemmer: Whether ROUGE compares stems.
        sentence_splitter: Where rougeLsum's sentences end; see `hier_models.metrics.Rouge`.
        num_proc: Processes that tokenize.
        **generate_kwargs: Passed to `generate`, such as `num_beams=4`.

    Returns:
        `rouge1`, `rouge2`, `rougeL`, `rougeLsum` (mean F1 times 100), `gen_len` (tokens), `documents`, `settings` of
        ROUGE, `generation` (the settings generated with) and `truncation` (what of the sources did not fit).

    Raises:
        ValueError: If the dataset has no summaries to compare with.
    """
    documents = Dataset.from_list(list(dataset)) if isinstance(dataset, IterableDataset) else dataset
    if "summary" not in documents.column_names:
        raise ValueError(
            f"dataset must have a column 'summary' to score against, got {', '.join(documents.column_names)}; "
            "load_documents(…, summary_column=…) names it"
        )
    tokenizer = plain_tokenizer(processor)
    report = TruncationReport()
    inputs = cast(
        Dataset,
        tokenize_documents(
            documents.remove_columns("summary"),
            processor,
            max_source_length=max_source_length or _longest_source(model.config, tokenizer),
            num_proc=num_proc,
            report=report,
        ),
    )
    # Longest first: batches of equal lengths need little padding, and memory runs out at once or never.
    order = np.argsort([-len(ids) for ids in inputs["input_ids"]], kind="stable")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_args or Seq2SeqTrainingArguments(
            output_dir=scratch, per_device_eval_batch_size=batch_size, report_to="none"
        )
        arguments = _for_generation(arguments)
        trainer = Seq2SeqTrainer(
            model=model,
            args=arguments,
            processing_class=processor,
            data_collator=HierDataCollator(processor, model=model),
        )
        generation_config = copy.deepcopy(model.generation_config)
        generated = trainer.predict(inputs.select(order), metric_key_prefix="test", **generate_kwargs).predictions
        model.generation_config = generation_config  # the Trainer writes every default into it
    predictions = generated[np.argsort(order)]
    summaries = decode(predictions, tokenizer)
    references = list(documents["summary"])
    scores = Rouge().compute(
        predictions=summaries, references=references, use_stemmer=use_stemmer, sentence_splitter=sentence_splitter
    )
    settings = scores.pop("settings")
    results = {
        **{name: 100 * value for name, value in scores.items()},
        "gen_len": mean_length(predictions, tokenizer),
        "documents": len(documents),
        "settings": settings,
        "generation": {**_settings(generation_config), **generate_kwargs},
        "truncation": report.as_dict(),
    }
    if trainer.is_world_process_zero():
        if predictions_file is not None:
            _write_predictions(Path(predictions_file), documents, summaries)
        if results_file is not None:
            _write_json(Path(results_file), results)
    return results


def load_model_and_processor(arguments: ModelArguments) -> tuple[PreTrainedModel, Processor]:
    """Load or make the model of a recipe, and its processor (the tokenizer, for a model without a processor).

    Args:
        arguments: The section `model` of a recipe.

    Returns:
        The model, in training precision (float32), and its processor.

    Raises:
        RecipeError: If there is nothing to take the tokenizer from, or it does not fit the model.
    """
    overrides = arguments.overrides()
    options: dict[str, Any] = {}
    if arguments.attn_implementation is not None:
        options["attn_implementation"] = arguments.attn_implementation
    if arguments.model_name_or_path is not None:
        # float32, whatever the checkpoint was saved in: mixed precision keeps its master weights in it.
        model = AutoModelForSeq2SeqLM.from_pretrained(
            arguments.model_name_or_path, dtype=torch.float32, **options, **overrides
        )
        processor = _saved_processor(arguments, model.config)
        _check_vocabulary(model.config, processor)
        return model, processor
    tokenizer_name = arguments.tokenizer or arguments.from_bart
    if tokenizer_name is None:
        raise RecipeError("model: give model_name_or_path, from_bart, or (to train from scratch) tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_name)
    if arguments.max_position_embeddings is not None:
        overrides["max_position_embeddings"] = arguments.max_position_embeddings
    if arguments.from_bart is not None:
        from ..hat_bart.modeling_hat_bart import HatBartForConditionalGeneration

        model = HatBartForConditionalGeneration.from_bart(
            arguments.from_bart, extra_positions=arguments.extra_positions, **options, **overrides
        ).float()
    else:
        config = AutoConfig.for_model(
            arguments.model_type, **{"vocab_size": len(tokenizer), **_special_ids(tokenizer), **overrides}
        )
        model = AutoModelForSeq2SeqLM.from_config(config, **options)
    _check_vocabulary(model.config, tokenizer)
    tokenizer.model_max_length = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
    return model, _processor_for(model.config, tokenizer)


def last_complete_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint of a run that was written to its end.

    A run that is killed while it writes a checkpoint leaves a part of one behind, which nothing can go on from.

    Args:
        output_dir: Folder of the run.

    Returns:
        The checkpoint's folder, or None.
    """
    folders = [
        (int(match[1]), path)
        for path in Path(output_dir).glob("checkpoint-*")
        if path.is_dir() and (match := re.fullmatch(r"checkpoint-(\d+)", path.name))
    ]
    for _, folder in sorted(folders, reverse=True):
        try:
            # The Trainer writes this file last.
            json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            logger.warning("%s was not written to its end (the run was stopped while saving); it is left out", folder)
            continue
        return str(folder)
    return None


# The model


def _saved_processor(arguments: ModelArguments, config: PretrainedConfig) -> Processor:
    name = arguments.model_name_or_path
    if arguments.tokenizer is None and type(config) in PROCESSOR_MAPPING:
        # What is changed in the config, such as the number of roles, the processor has to know too.
        shared = _shared_settings(config)
        changed = {key: value for key, value in shared.items() if key in arguments.overrides()}
        try:
            processor: Processor = AutoProcessor.from_pretrained(name, **changed)
        except (OSError, ValueError):
            logger.info("%s has no processor of its own; one is made from its tokenizer", name)
        else:
            return processor
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer or name)
    return _processor_for(config, tokenizer)


def _processor_for(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> Processor:
    """The processor class registered for a config; the tokenizer itself where there is none, as for BART."""
    if type(config) not in PROCESSOR_MAPPING:
        return tokenizer
    processor_class = cast(Callable[..., ProcessorMixin], PROCESSOR_MAPPING[type(config)])
    return processor_class(tokenizer, **_shared_settings(config))


def _shared_settings(config: PretrainedConfig) -> dict[str, Any]:
    """What a config says that its processor takes as an argument too."""
    names = inspect.signature(cast(Callable[..., Any], PROCESSOR_MAPPING[type(config)])).parameters
    return {name: getattr(config, name) for name in names if name != "tokenizer" and hasattr(config, name)}


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "pad", "eos")}
    ids = {name: value for name, value in ids.items() if value is not None}
    # BART's decoder starts with </s> and ends every summary with it.
    eos = ids.get("eos_token_id")
    return {**ids, **({} if eos is None else {"decoder_start_token_id": eos, "forced_eos_token_id": eos})}


def _check_vocabulary(config: PretrainedConfig, processor: Processor) -> None:
    tokenizer = plain_tokenizer(processor)
    if len(tokenizer) > config.vocab_size:
        raise RecipeError(
            f"model: the tokenizer has {len(tokenizer)} tokens but the model only {config.vocab_size}; they do not "
            "belong together (resize the model's embeddings if tokens were added)"
        )


def _set_generation(model: PreTrainedModel, recipe: Recipe) -> None:
    settings = recipe.generation.settings()
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    if "max_length" in settings:
        model.generation_config.max_new_tokens = None  # it would win over max_length
    if settings.get("early_stopping") is None and model.generation_config.num_beams == 1:
        # A beam setting without beams is refused when the model is saved, hours after it was made.
        model.generation_config.early_stopping = None
    try:
        model.generation_config.validate(strict=True)
    except ValueError as error:
        raise RecipeError(f"generation: {' '.join(str(error).split())}") from error


def _check_lengths(config: PretrainedConfig, recipe: Recipe) -> None:
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None:
        return
    lengths = {
        "data: max_source_length": recipe.data.max_source_length,
        "data: max_target_length": recipe.data.max_target_length,
        "generation: max_length": recipe.generation.max_length or 0,
    }
    for name, length in lengths.items():
        if length > positions:
            raise RecipeError(
                f"{name} is {length}, but the model has only {positions} positions; lower it, or give the model more "
                f"with model: max_position_embeddings: {length} (from_bart grows BART's positions; from scratch takes "
                "any)"
            )


def _longest_source(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    positions = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    return int(positions) if positions < 10**9 else None  # tokenizers without a limit say 10**30


# The data


def _load(data: DataArguments, part: str, output_dir: Path, report: LoadReport) -> Any:
    source = getattr(data, part)
    split = getattr(data, f"{part}_split")
    if part == "validation" and source is None and split is not None:
        source = data.train
    if source is None:
        return None
    path = Path(source).expanduser()
    documents = load_documents(
        path if path.exists() else source,
        split=split,
        text_column=data.text_column,
        summary_column=data.summary_column,
        config_name=None if path.exists() else data.config_name,
        streaming=data.streaming and part == "train",
        bad_lines=data.bad_lines,
        set_aside_file=output_dir / f"set_aside_{part}.jsonl" if data.bad_lines == "set_aside" else None,
        report=report,
    )
    if "summary" not in (documents.column_names or ["summary"]):
        raise RecipeError(
            f"data: {part} has no summaries ({source}); name their column with summary_column if there are any"
        )
    most = getattr(data, f"max_{part}_documents")
    if most is None:
        return documents
    return (
        documents.take(most) if isinstance(documents, IterableDataset) else documents.take(min(most, len(documents)))
    )


# The run


def _set_accumulation(recipe: Recipe) -> None:
    total, arguments = recipe.run.total_train_batch_size, recipe.training
    if total is None:
        return
    at_once = arguments.train_batch_size * arguments.world_size
    if total % at_once:
        raise RecipeError(
            f"run: total_train_batch_size={total} is no multiple of per_device_train_batch_size × devices = {at_once}"
        )
    arguments.gradient_accumulation_steps = total // at_once


def _checkpoint_to_resume(recipe: Recipe, output_dir: Path) -> str | None:
    asked = recipe.training.resume_from_checkpoint
    if recipe.run.overwrite:
        if asked:
            raise RecipeError("run: overwrite and training: resume_from_checkpoint exclude each other")
        with recipe.training.main_process_first(desc="deleting old checkpoints"):
            for folder in output_dir.glob("checkpoint-*"):
                shutil.rmtree(folder, ignore_errors=True)
        return None
    if asked and asked not in ("True", "true"):
        return asked
    checkpoint = last_complete_checkpoint(output_dir)
    if checkpoint is not None:
        logger.warning("resuming from %s; set run: overwrite: true to start anew", checkpoint)
    elif asked:
        raise RecipeError(f"training: resume_from_checkpoint is on, but {output_dir} holds no complete checkpoint")
    elif (output_dir / RESULTS_FILE).exists():
        raise RecipeError(
            f"training: output_dir={output_dir} holds a finished run; choose another folder, or set run: overwrite: "
            "true"
        )
    return checkpoint


def _for_generation(arguments: Seq2SeqTrainingArguments) -> Seq2SeqTrainingArguments:
    """The same arguments for a run that only generates, in the order of the data."""
    values = {name: value for name, value in arguments.to_dict().items() if name in _init_names(arguments)}
    values |= {
        "predict_with_generate": True,
        "prediction_loss_only": False,
        "train_sampling_strategy": "random",
        "eval_strategy": "no",
        "load_best_model_at_end": False,
        "label_smoothing_factor": 0.0,
        "push_to_hub": False,
    }
    if arguments.device.type == "cpu":
        values["dataloader_pin_memory"] = False
    return type(arguments)(**values)


def _settings(config: GenerationConfig) -> dict[str, Any]:
    settings = config.to_diff_dict()
    return {
        name: value for name, value in settings.items() if not name.startswith("_") and name != "transformers_version"
    }


def _init_names(arguments: Seq2SeqTrainingArguments) -> set[str]:
    return set(inspect.signature(type(arguments)).parameters)


def _versions() -> dict[str, str]:
    packages = ("datasets", "accelerate", "rouge-score")
    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        **{package: version(package) for package in packages},
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    path.write_text(text + "\n", encoding="utf-8")


def _write_predictions(path: Path, documents: Dataset, summaries: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    identifiers = list(documents["id"]) if "id" in documents.column_names else None
    with path.open("w", encoding="utf-8") as stream:
        for number, (summary, reference) in enumerate(zip(summaries, documents["summary"], strict=True)):
            row = {"summary": summary, "reference": reference}
            if identifiers is not None:
                row = {"id": identifiers[number], **row}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")

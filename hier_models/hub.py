"""Checkpoints that work anywhere: export with their code and a model card, and push to the Hub."""

import ast
import dataclasses
import importlib
import inspect
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData

from .hub_texts import (
    ARCHITECTURES,
    HEADS,
    NOT_GIVEN,
    READER_HEAD,
    TEMPLATE,
    USAGE_HEAD,
    USAGE_HEAD_PIPELINE,
    USAGE_OF_TASK,
    USAGE_OTHER,
    USAGE_PIPELINE,
    USAGE_POEMS,
    Head,
    is_hub_id,
)


LIBRARY = "hier_models"

# The Auto classes that an exported checkpoint can name, and Transformers' public mapping behind each.
_AUTO_MAPPINGS = {
    "AutoModel": "MODEL_MAPPING",
    "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "AutoModelForTextEncoding": "MODEL_FOR_TEXT_ENCODING_MAPPING",
    "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "AutoModelForMultipleChoice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING",
    "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
}


@dataclass
class CardDetails:
    """What only its maker knows about a checkpoint. The model card says of each field left out that it is not given.

    Args:
        name: name of the checkpoint; its folder's or repository's if left out.
        language: codes of its languages, such as "en".
        license: identifier of the license of the weights, such as "apache-2.0".
        base_model: checkpoint that training started from: a Hub id or a description.
        datasets: Hub ids of the training data.
        data: the training data in words.
        hyperparameters: name -> value.
        metrics: name -> value, such as {"rouge1": 0.41}.
        evaluated_on: the data the metrics were measured on, such as "SAMSum, test split".
        intended_use: what the checkpoint is meant for.
        limits: what it cannot do, and known biases.
        tags: further tags for the Hub.
    """

    name: str | None = None
    language: str | list[str] | None = None
    license: str | None = None
    base_model: str | None = None
    datasets: str | list[str] | None = None
    data: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluated_on: str | None = None
    intended_use: str | None = None
    limits: str | None = None
    tags: list[str] = field(default_factory=list)

    @classmethod
    def from_trainer(cls, trainer: Any, **details: Any) -> "CardDetails":
        """Take the hyperparameters and the metrics from a `Seq2SeqTrainer` that has trained.

        Args:
            trainer: the trainer. Its `args` give the hyperparameters. Its `state.log_history` gives the metrics: of
                the best checkpoint if that is the one the trainer loaded at the end, else of the last evaluation.
            **details: the other fields; they win over what the trainer says.

        Returns:
            The details of the checkpoint.
        """
        found = {"hyperparameters": _hyperparameters(trainer.args), "metrics": _metrics(trainer)}
        return cls(**{**found, **details})


def export(
    model: Any, processor: Any, folder: str | Path, *, card: CardDetails | Mapping[str, Any] | None = None
) -> Path:
    """Write a checkpoint that loads with plain Transformers, hier_models installed or not.

    The folder gets the weights (safetensors), config, generation config, processor and tokenizer, the code files of
    the architecture and of the pipeline, and a model card. Where hier_models is not installed, load it with
    `trust_remote_code=True`; where it is, plain `from_pretrained` and `pipeline` take the installed code. The pipeline
    is that of summarization, or of translation or poems where the config's `task_specific_params` speak of these, as
    they do after training for them.

    Args:
        model: a model of hier_models.
        processor: its processor.
        folder: where to write; made if it is not there. Files of the same names are replaced, an older model card
            (README.md) too.
        card: what the model card says about the checkpoint.

    Returns:
        The folder.

    Raises:
        ValueError: If the model or the processor cannot be exported, or the folder has a README.md that is no model
            card.
    """
    details = _card_details(card)
    auto_map = _auto_map(model, processor)
    sources = _source_files(auto_map.values())
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"`folder` must be a folder, got the file {str(target)!r}.")
    readme = target / "README.md"
    if readme.exists() and not readme.read_bytes().startswith(b"---"):
        raise ValueError(f"`folder` has a README.md that is no model card and would be replaced: {readme}.")
    target.mkdir(parents=True, exist_ok=True)

    model.save_pretrained(target)
    processor.save_pretrained(target)
    for source in sources:
        shutil.copyfile(source, target / source.name)
    # The configs are completed as files: registering the classes for the Auto classes (`register_for_auto_class`)
    # would change every later `save_pretrained` of theirs.
    references = {auto: f"{Path(inspect.getfile(cls)).stem}.{cls.__name__}" for auto, cls in auto_map.items()}
    tokenizer_reference = references.pop("AutoTokenizer", None)  # stands in the tokenizer's own config
    additions: dict[str, Any] = {"auto_map": references}
    # The Auto class of a model that has a pipeline of ours.
    head = "AutoModelForQuestionAnswering" if model.config.model_type == "ham_reader" else "AutoModelForSeq2SeqLM"
    if head in auto_map:
        task = READER_HEAD.task if model.config.model_type == "ham_reader" else task_of(model.config)
        pipeline_class = _pipeline_class(task)
        for source in _source_files([pipeline_class]):
            shutil.copyfile(source, target / source.name)
        additions["custom_pipelines"] = {
            task: {
                "impl": f"{Path(inspect.getfile(pipeline_class)).stem}.{pipeline_class.__name__}",
                "pt": [head],
                "type": "text",
            }
        }
    _complete(target / "config.json", additions)
    _complete(target / "processor_config.json", {"auto_map": {"AutoProcessor": references["AutoProcessor"]}})
    if tokenizer_reference is not None:
        named: dict[str, Any] = {"auto_map": {"AutoTokenizer": [None, tokenizer_reference]}}
        named["tokenizer_class"] = auto_map["AutoTokenizer"].__name__
        _complete(target / "tokenizer_config.json", named)

    folder_name = target.resolve().name
    details = dataclasses.replace(details, name=details.name or folder_name)
    model_card(model, details, source=f"./{folder_name}", code=sources).save(readme)
    return target


def push_to_hub(
    model: Any,
    processor: Any,
    repo_id: str,
    *,
    card: CardDetails | Mapping[str, Any] | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    commit_message: str = "Upload model",
) -> str:
    """Export a checkpoint and push it to the Hub.

    Args:
        model: a model of hier_models.
        processor: its processor.
        repo_id: repository, as "user/name"; made if it is not there.
        card: what the model card says about the checkpoint.
        private: whether a new repository is private; the account's or organization's default if left out.
        token: access token; the one of `hf auth login` if left out.
        commit_message: message of the commit.

    Returns:
        The address of the repository.

    Raises:
        ValueError: If the model or the processor cannot be exported.
    """
    details = _card_details(card)
    _auto_map(model, processor)  # what cannot be exported is refused before a repository is made
    api = HfApi(token=token)
    repository = api.create_repo(repo_id, private=private, exist_ok=True)
    if details.name is None:
        details = dataclasses.replace(details, name=repository.repo_id.split("/")[-1])
    with tempfile.TemporaryDirectory() as folder:
        export(model, processor, folder, card=details)
        sources = _source_files(_auto_map(model, processor).values())
        model_card(model, details, source=repository.repo_id, code=sources).save(Path(folder) / "README.md")
        api.upload_folder(repo_id=repository.repo_id, folder_path=folder, commit_message=commit_message)
    return str(repository)


def model_card(model: Any, details: CardDetails, *, source: str, code: Iterable[Path] = ()) -> ModelCard:
    """Write the model card of a checkpoint.

    Args:
        model: the model; its config gives the sizes.
        details: what its maker says about it.
        source: what to load it from: a folder or a repository.
        code: the code files that go with it; the card lists the libraries that they need.

    Returns:
        The card, with its metadata for the Hub.
    """
    config = model.config
    architecture = ARCHITECTURES.get(config.model_type)
    is_generator = config.is_encoder_decoder and model.can_generate()
    auto_class = _auto_class(model)
    head = None if is_generator else READER_HEAD if config.model_type == "ham_reader" else HEADS.get(auto_class)
    task = task_of(config) if is_generator else head.task if head else None
    datasets = [details.datasets] if isinstance(details.datasets, str) else details.datasets
    results = _eval_results(details, task)
    data = ModelCardData(
        # The Hub and `pipeline` go by this: the checkpoint loads with plain Transformers.
        library_name="transformers",
        pipeline_tag=task,
        language=details.language,
        license=details.license,
        base_model=details.base_model if details.base_model and is_hub_id(details.base_model) else None,
        datasets=datasets,
        tags=list(dict.fromkeys([LIBRARY, config.model_type, *details.tags])),
        metrics=sorted({_metric_type(name) for name in details.metrics}) or None,
        model_name=details.name if results else None,
        eval_results=results or None,
    )
    text = TEMPLATE.format(
        name=details.name or source,
        architecture=architecture.title if architecture else config.model_type,
        summary=architecture.summary if architecture else NOT_GIVEN,
        sizes=_table({"parameters": f"{model.num_parameters():,}", **_sizes(config)}),
        paper=architecture.paper if architecture else NOT_GIVEN,
        data=_paragraphs(details.data, "Datasets: " + ", ".join(datasets) + "." if datasets else None),
        base_model=_started_from(details.base_model),
        hyperparameters=_table(details.hyperparameters) or NOT_GIVEN,
        metrics=_table(details.metrics, heading="metric") or NOT_GIVEN,
        evaluated_on=details.evaluated_on or NOT_GIVEN,
        generation=_table(_generation(model)) or (NOT_GIVEN if is_generator else "None: it does not generate."),
        intended_use=_paragraphs(
            details.intended_use, f"The architecture is made for {architecture.made_for}." if architecture else None
        ),
        limits=_paragraphs(details.limits, _length_limit(config, task)),
        license=f"{details.license}." if details.license else NOT_GIVEN,
        usage=_usage(source, code, auto_class, task, head),
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")


def _usage(source: str, code: Iterable[Path], auto_class: str, task: str | None, head: Head | None) -> str:
    libraries = " ".join(_libraries(code))
    if head is not None:
        pipeline = USAGE_HEAD_PIPELINE.format(source=source, task=head.task, example=head.example)
        return USAGE_HEAD.format(
            source=source,
            libraries=libraries,
            pipeline=pipeline if head.has_pipeline else "",
            auto_class=auto_class,
            inputs=head.inputs,
            result=head.result,
        )
    if task == "poem-generation":
        return USAGE_POEMS.format(source=source, libraries=libraries)
    return (USAGE_PIPELINE if task else USAGE_OTHER).format(
        source=source, libraries=libraries, task=task, **USAGE_OF_TASK.get(task or "", {})
    )


# The checkpoint


def _auto_map(model: Any, processor: Any) -> dict[str, Any]:
    """Auto class -> our class, for everything the checkpoint can be loaded as."""
    import transformers

    if not isinstance(model, transformers.PreTrainedModel):
        raise ValueError(
            f"`model` must be a PreTrainedModel, got {type(model).__name__}. Merge adapters into the model "
            "(merge_and_unload()), and take the model out of wrappers (DataParallel: .module)."
        )
    config_class = type(model.config)
    if config_class.__module__.startswith("transformers."):
        raise ValueError(
            f"`model` is a {type(model).__name__} of Transformers, so there is no code to export with it. Save it "
            "with model.save_pretrained(folder) and tokenizer.save_pretrained(folder)."
        )
    if not isinstance(processor, transformers.ProcessorMixin):
        raise ValueError(f"`processor` must be the model's processor, got {type(processor).__name__}.")
    found: dict[str, Any] = {"AutoConfig": config_class, "AutoProcessor": type(processor)}
    tokenizer = getattr(processor, "tokenizer", None)
    registered = transformers.TOKENIZER_MAPPING.get(config_class, type(None))
    # A family's own comes first: it sets markers for those who load no processor. It reads what a fast one saves.
    for tokenizer_class in (registered if getattr(tokenizer, "is_fast", False) else type(None), type(tokenizer)):
        if not tokenizer_class.__module__.startswith(("transformers.", "builtins")):
            found.setdefault("AutoTokenizer", tokenizer_class)
    for auto_class, mapping_name in _AUTO_MAPPINGS.items():
        mapping = getattr(transformers, mapping_name)
        if config_class in mapping:
            found[auto_class] = mapping[config_class]
    if type(model) not in found.values():
        raise ValueError(
            f"`model` is a {type(model).__name__}, which no Auto class knows, so the checkpoint could not be loaded. "
            f"Register it first, such as AutoModelForSeq2SeqLM.register({config_class.__name__}, "
            f"{type(model).__name__}, exist_ok=True)."
        )
    return found


def task_of(config: Any) -> str:
    """Tell which of our pipelines an encoder-decoder model is for.

    Args:
        config: its config.

    Returns:
        "poem-generation" if its `task_specific_params` speak of it, "translation" if they speak of that and not of
        summarization, else "summarization".
    """
    named = {name.partition("_")[0] for name in getattr(config, "task_specific_params", None) or {}}
    if "poem-generation" in named:
        return "poem-generation"
    return "translation" if "translation" in named and "summarization" not in named else "summarization"


def model_class(config: Any) -> Any:
    """Find the class of a checkpoint.

    Args:
        config: its config.

    Returns:
        The class of hier_models that it names as its architecture; None if it names none.
    """
    import transformers

    named = (getattr(config, "architectures", None) or [""])[0]
    known = [getattr(transformers, name).get(type(config), None) for name in _AUTO_MAPPINGS.values()]
    ours = [found for found in known if isinstance(found, type) and not found.__module__.startswith("transformers.")]
    return next((found for found in ours if found.__name__ == named), None)


def _pipeline_class(task: str) -> Any:
    from .pipelines import PIPELINES

    module, name = PIPELINES[task]
    return getattr(importlib.import_module(module), name)


def _auto_class(model: Any) -> str:
    """Name of the Auto class that gives this model."""
    import transformers

    for auto_class, mapping_name in _AUTO_MAPPINGS.items():
        mapping = getattr(transformers, mapping_name)
        if type(model.config) in mapping and mapping[type(model.config)] is type(model):
            return auto_class
    return "AutoModel"


def _source_files(classes: Iterable[Any]) -> list[Path]:
    """The files that define the classes, with everything that they import from their own folder."""
    from transformers.dynamic_module_utils import get_relative_import_files

    roots = {Path(inspect.getfile(cls)) for cls in classes}
    needed = {Path(file) for root in roots for file in get_relative_import_files(root)}
    return sorted(roots | needed)


def _complete(file: Path, additions: Mapping[str, Any]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    content.update(additions)
    file.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


# The card


def _card_details(card: CardDetails | Mapping[str, Any] | None) -> CardDetails:
    if isinstance(card, CardDetails):
        return card
    card = card or {}
    known = [item.name for item in dataclasses.fields(CardDetails)]
    unknown = [name for name in card if name not in known]
    if unknown:
        raise ValueError(f"`card` has unknown entries {unknown}; it can have {', '.join(known)}.")
    return CardDetails(**card)


def _hyperparameters(args: Any) -> dict[str, Any]:
    names = (
        "learning_rate per_device_train_batch_size gradient_accumulation_steps world_size num_train_epochs max_steps "
        "lr_scheduler_type warmup_steps optim weight_decay label_smoothing_factor max_grad_norm bf16 fp16 "
        "gradient_checkpointing seed generation_max_length generation_num_beams"
    )
    values = {name: getattr(args, name) for name in names.split() if getattr(args, name, None) is not None}
    if values.get("max_steps", 0) > 0:
        values.pop("num_train_epochs", None)  # which it overrides
    else:
        values.pop("max_steps", None)
    return {name: getattr(value, "value", value) for name, value in values.items()}


def _metrics(trainer: Any) -> dict[str, float]:
    state = trainer.state
    evaluations = [entry for entry in state.log_history if any(name.startswith("eval_") for name in entry)]
    if trainer.args.load_best_model_at_end:
        best_step = getattr(state, "best_global_step", None)
        evaluations = [entry for entry in evaluations if entry["step"] == best_step] or evaluations
    speed = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
    last = evaluations[-1] if evaluations else {}
    return {
        name.removeprefix("eval_"): value
        for name, value in last.items()
        if name.startswith("eval_") and name not in speed and isinstance(value, int | float)
    }


def _eval_results(details: CardDetails, task: str | None) -> list[EvalResult]:
    if not details.evaluated_on:  # a result needs to say what it was measured on
        return []
    return [
        EvalResult(
            task_type=task or "feature-extraction",
            dataset_type=details.evaluated_on,
            dataset_name=details.evaluated_on,
            metric_type=_metric_type(name),
            metric_name=name,
            metric_value=value,
        )
        for name, value in details.metrics.items()
        if math.isfinite(value)
    ]


def _metric_type(name: str) -> str:
    return "rouge" if name.lower().startswith("rouge") else name


def _sizes(config: Any) -> dict[str, Any]:
    common = (
        "d_model encoder_layers encoder_attention_heads encoder_ffn_dim decoder_layers decoder_attention_heads "
        "decoder_ffn_dim vocab_size max_position_embeddings"
    )
    names = (name for name in common.split() if name not in config.attribute_map)  # other names of its own
    sizes = {name: getattr(config, name) for name in names if hasattr(config, name)}
    recurrent = _is_recurrent(config)
    if recurrent:
        sizes = {name: value for name, value in sizes.items() if name not in _OF_TRANSFORMERS}
    for name in vars(type(config)).get("__annotations__", {}):  # the family's own
        value = getattr(config, name, None)
        is_size = isinstance(value, int | list) and not isinstance(value, bool) and not name.endswith("token_id")
        own = ("hierarchical_", "pooling", "top_down_", "highlighting", "brightness", "use_copy", "coarse_")
        choices = ("attention", "attention_keys", "attention_scoring", "body", "level_weights", "reader")
        if (is_size or name.startswith(own) or name in choices) and not (recurrent and name in _OF_TRANSFORMERS):
            sizes[name] = value
    return {name: value for name, value in sizes.items() if value is not None}


def _is_recurrent(config: Any) -> bool:
    """Whether the model is the GRU body of HAM, whose config also has what only its Transformer body uses."""
    return getattr(config, "body", None) == "gru"


_OF_TRANSFORMERS = (
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "max_position_embeddings",
    "attention_keys",
)


def _generation(model: Any) -> dict[str, Any]:
    if not model.can_generate():
        return {}
    technical = ("_", "output_", "return_dict", "transformers_version", "use_cache")
    return {
        name: value
        for name, value in model.generation_config.to_diff_dict().items()
        if not name.startswith(technical) and not name.endswith("token_id")
    }


def _length_limit(config: Any, task: str | None) -> str | None:
    names = ("max_encoder_position_embeddings", "max_position_embeddings")
    positions = next((getattr(config, name) for name in names if hasattr(config, name)), None)
    if positions is None or _is_recurrent(config):
        return None
    if not config.is_encoder_decoder:
        return (
            f"It takes {positions - config.pad_token_id - 1} tokens at most, markers of sentences included. The "
            "tokenizer cuts what is longer with `truncation=True`, and says how much with `return_truncation=True`."
        )
    if task not in USAGE_OF_TASK:  # the encoder of such a model
        return (
            f"It takes {positions} tokens at most. The processor cuts what is longer with `truncation=True`, and says "
            "how much with `return_truncation=True`."
        )
    if task == "translation":
        return (
            f"It takes {positions} source tokens at once, at most. The pipeline cuts longer documents into chunks "
            "between sentences, translates them one by one, and says how many with `return_chunks=True`."
        )
    return (
        f"It takes {positions} source tokens at most. The pipeline cuts what is longer at the end, and says how much "
        "with `return_truncation=True`."
    )


def _paragraphs(given: str | None, fact: str | None) -> str:
    return "\n\n".join([given or NOT_GIVEN, *([fact] if fact else [])])


def _table(rows: Mapping[str, Any], heading: str = "setting") -> str:
    if not rows:
        return ""

    def cell(value: Any) -> str:
        text = f"{value:.4f}" if heading == "metric" and isinstance(value, float) else str(value)
        return " ".join(text.split()).replace("|", "\\|")

    lines = [f"| {cell(name)} | {cell(value)} |" for name, value in rows.items()]
    return "\n".join([f"| {heading} | value |", "|---|---|", *lines])


def _started_from(base_model: str | None) -> str:
    if base_model is None:
        return NOT_GIVEN
    return Path(base_model).name if Path(base_model).exists() else base_model


def _libraries(code: Iterable[Path]) -> list[str]:
    """What to install for these files, by the names of the Python Package Index."""
    from importlib.metadata import packages_distributions

    imported = set()
    for file in code:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    # The last three come with transformers.
    known = {*sys.stdlib_module_names, "torch", "transformers", "huggingface_hub", "numpy", "tokenizers"}
    distributions = packages_distributions()
    others = {distributions.get(name, [name])[0] for name in imported - known}
    return ["torch", '"transformers>=5.24,<6"', *sorted(others)]

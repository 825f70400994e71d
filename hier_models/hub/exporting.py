"""Export of checkpoints with the code that they need, and the way to the Hub."""

import dataclasses
import importlib
import inspect
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from ..pipelines import AUTO_CLASSES, PIPELINES
from .auto_classes import classes_of, task_of
from .model_card import CardDetails, card_details, model_card


def export(
    model: Any, processor: Any, folder: str | Path, *, card: CardDetails | Mapping[str, Any] | None = None
) -> Path:
    """Write a checkpoint that loads with plain Transformers, hier_models installed or not.

    The folder gets the weights (safetensors), config, generation config, processor and tokenizer, the code files of
    the architecture and of the pipeline, if there is one for the model, and a model card. Where hier_models is not
    installed, load it with `trust_remote_code=True`; where it is, plain `from_pretrained` and `pipeline` take the
    installed code. The pipeline of a model that writes is that of summarization, or of translation or poems where the
    config's `task_specific_params` speak of these, as they do after training for them.

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
    details = card_details(card)
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
    # As files: registering the classes (`register_for_auto_class`) changes each later `save_pretrained` of theirs.
    references = {auto: _reference(cls) for auto, cls in auto_map.items()}
    tokenizer = references.pop("AutoTokenizer", None)  # stands in the tokenizer's own config
    additions: dict[str, Any] = {"auto_map": references}
    task = task_of(model.config)
    head = AUTO_CLASSES.get(task, "AutoModelForSeq2SeqLM")
    # A config may still have those of the model that this one began as.
    known = vars(model.config).get("custom_pipelines") or {}
    custom = {name: own for name, own in known.items() if name not in PIPELINES}
    if auto_map.get(head) is type(model):  # so there is a pipeline of ours
        module, class_name = PIPELINES[task]
        pipeline_class = getattr(importlib.import_module(module), class_name)
        for source in _source_files([pipeline_class]):
            shutil.copyfile(source, target / source.name)
        custom[task] = {"impl": _reference(pipeline_class), "pt": [head], "type": "text"}
    additions["custom_pipelines"] = custom or None
    _complete(target / "config.json", additions)
    _complete(target / "processor_config.json", {"auto_map": {"AutoProcessor": references["AutoProcessor"]}})
    if tokenizer is not None:
        named = {"auto_map": {"AutoTokenizer": [None, tokenizer]}, "tokenizer_class": tokenizer.partition(".")[2]}
        _complete(target / "tokenizer_config.json", named)
    name = target.resolve().name
    details = dataclasses.replace(details, name=details.name or name)
    model_card(model, details, source=f"./{name}", code=sources).save(readme)
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
    details = card_details(card)
    sources = _source_files(_auto_map(model, processor).values())  # refused before a repository is made
    api = HfApi(token=token)
    repository = api.create_repo(repo_id, private=private, exist_ok=True)
    details = dataclasses.replace(details, name=details.name or repository.repo_id.split("/")[-1])
    with tempfile.TemporaryDirectory() as folder:
        export(model, processor, folder, card=details)
        model_card(model, details, source=repository.repo_id, code=sources).save(Path(folder) / "README.md")
        api.upload_folder(repo_id=repository.repo_id, folder_path=folder, commit_message=commit_message)
    return str(repository)


def _auto_map(model: Any, processor: Any) -> dict[str, Any]:
    """Auto class -> our class, for everything the checkpoint can be loaded as."""
    import transformers

    if not isinstance(model, transformers.PreTrainedModel):
        hint = "Merge adapters (merge_and_unload()), and take it out of wrappers (DataParallel: .module)."
        raise ValueError(f"`model` must be a PreTrainedModel, got {type(model).__name__}. {hint}")
    config_class = type(model.config)
    if config_class.__module__.startswith("transformers."):
        hint = "so there is no code to export with it. Save it with model.save_pretrained(folder)."
        raise ValueError(f"`model` is a {type(model).__name__} of Transformers, {hint}")
    if not isinstance(processor, transformers.ProcessorMixin):
        raise ValueError(f"`processor` must be the model's processor, got {type(processor).__name__}.")
    found: dict[str, Any] = {"AutoConfig": config_class, "AutoProcessor": type(processor)}
    tokenizer = getattr(processor, "tokenizer", None)
    registered = transformers.TOKENIZER_MAPPING.get(config_class, type(None))
    # A family's own comes first: it sets markers for those who load no processor. It reads what a fast one saves.
    for tokenizer_class in (registered if getattr(tokenizer, "is_fast", False) else type(None), type(tokenizer)):
        if not tokenizer_class.__module__.startswith(("transformers.", "builtins")):
            found.setdefault("AutoTokenizer", tokenizer_class)
    found |= classes_of(model.config)
    if type(model) not in found.values():
        name = type(model).__name__
        hint = f"AutoModelForSeq2SeqLM.register({config_class.__name__}, {name}, exist_ok=True)"
        raise ValueError(f"`model` is a {name}, which no Auto class knows. Register it first, such as {hint}.")
    return found


def _reference(cls: Any) -> str:
    """A class as a config names it: its file and its name."""
    return f"{Path(inspect.getfile(cls)).stem}.{cls.__name__}"


def _source_files(classes: Iterable[Any]) -> list[Path]:
    """The files that define the classes, with everything that they import from their own folder."""
    from transformers.dynamic_module_utils import get_relative_import_files

    roots = {Path(inspect.getfile(cls)) for cls in classes}
    needed = {Path(file) for root in roots for file in get_relative_import_files(root)}
    return sorted(roots | needed)


def _complete(file: Path, additions: Mapping[str, Any]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    content |= additions
    content = {name: value for name, value in content.items() if value is not None or name not in additions}
    file.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")

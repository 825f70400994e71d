"""Pipelines: text in, text out, through `transformers.pipeline`. Exported checkpoints carry copies of `*_hier.py`."""

import importlib
import re
from typing import TYPE_CHECKING, Any

from ..checkpoints import MINI
from ..families import FAMILIES


if TYPE_CHECKING:
    from ..extractive import ExtractiveSummarizer as ExtractiveSummarizer
    from .importance_tagger_hier import ImportanceTagger as ImportanceTagger
    from .poem_generation_hier import PoemGenerationPipeline as PoemGenerationPipeline
    from .reading_comprehension_hier import ReadingComprehensionPipeline as ReadingComprehensionPipeline
    from .summarization_hier import SummarizationPipeline as SummarizationPipeline
    from .translation_hier import TranslationPipeline as TranslationPipeline

# Task -> module and class of its pipeline.
PIPELINES = {
    "reading-comprehension": ("hier_models.pipelines.reading_comprehension_hier", "ReadingComprehensionPipeline"),
    "summarization": ("hier_models.pipelines.summarization_hier", "SummarizationPipeline"),
    "translation": ("hier_models.pipelines.translation_hier", "TranslationPipeline"),
    "poem-generation": ("hier_models.pipelines.poem_generation_hier", "PoemGenerationPipeline"),
}
# Task -> Auto class that loads its model, where that is no encoder-decoder.
AUTO_CLASSES = {"reading-comprehension": "AutoModelForQuestionAnswering"}
# Arguments of `from_pretrained` that say where a checkpoint's files are, and those that name other weights.
_WHERE = ("cache_dir", "local_files_only", "revision", "subfolder", "token", "trust_remote_code")
_OTHERS = ("gguf_file", "state_dict", "variant")
# Public name -> module that defines it.
_HOMES = {name: module for module, name in PIPELINES.values()} | {
    "ImportanceTagger": "hier_models.pipelines.importance_tagger_hier",
    "ExtractiveSummarizer": "hier_models.extractive",
}
__all__ = [*sorted(_HOMES), "register_pipelines"]


def register_pipelines() -> None:
    """Make `pipeline(task, …)` know the tasks of `PIPELINES`, once `transformers.pipelines` has been imported."""
    pipelines = importlib.import_module("transformers.pipelines")
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    registry = pipelines.PIPELINE_REGISTRY
    for task, (module, name) in PIPELINES.items():
        getattr(pipelines, "REMOVED_TASKS", {}).pop(task, None)  # else releases without the task refuse it
        registry.supported_tasks.pop(task, None)  # else replacing it is warned about
        registry.register_pipeline(
            task,
            pipeline_class=getattr(importlib.import_module(module), name),
            pt_model=_loading_int8(getattr(auto, AUTO_CLASSES.get(task, "AutoModelForSeq2SeqLM"))),
            default={"model": (MINI, "main")} if task == "summarization" else _NoDefaultModel(task),
            type="text",
        )
    int8: Any = importlib.import_module("hier_models.pipelines.int8_hier")
    kernels = importlib.import_module("hier_models.pipelines.int8_kernel")
    int8.multiply_fast, int8.is_faster_in_bfloat16 = kernels.multiply_fast, kernels.is_faster_in_bfloat16
    registry.task_aliases = _TaskAliases(registry.task_aliases)
    for family in FAMILIES.values():
        family.load(family.config).custom_pipelines = _CustomPipelines()


def _loading_int8(auto_class: Any) -> Any:
    """An Auto class that loads what the pipeline then makes int8 of; Transformers knows no such format."""
    torch = importlib.import_module("torch")

    def from_pretrained(cls: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") is torch.int8:
            kwargs["dtype"] = _stored_dtype(name, **kwargs)
        return auto_class.from_pretrained(name, *args, **kwargs)

    return type(auto_class.__name__, (auto_class,), {"from_pretrained": classmethod(from_pretrained)})


def _stored_dtype(checkpoint: Any, **kwargs: Any) -> Any:
    """bfloat16 or float16 where all weights are stored so, since no larger copies of them are needed; else float32.

    Others than BART and the families here compute positions in the type that they are loaded in, which rounds them.
    """
    torch, safetensors = importlib.import_module("torch"), importlib.import_module("safetensors")
    transformers: Any = importlib.import_module("transformers")
    asked = {key: kwargs[key] for key in _WHERE if key in kwargs}
    try:
        config = kwargs.get("config") or transformers.AutoConfig.from_pretrained(checkpoint, **asked)
        others = kwargs.get("use_safetensors") is False or any(kwargs.get(key) for key in _OTHERS)
        if others or config.model_type not in ("bart", *FAMILIES):
            return torch.float32
        asked.pop("trust_remote_code", None)
        path = transformers.utils.cached_file(checkpoint, "model.safetensors", **asked)
        with safetensors.safe_open(path, "pt") as file:
            names = file.keys()
            stored = {file.get_slice(name).get_dtype() for name in names}
    except (OSError, ValueError):  # in other files, or in none, which loading says better
        return torch.float32
    return {"BF16": torch.bfloat16, "F16": torch.float16}.get("".join(stored), torch.float32)


class _TaskAliases(dict[str, str]):
    """Other names of tasks; among them, as in Transformers 4, translation with its languages: translation_en_to_de."""

    pattern = re.compile(r"translation_.+_to_.+")

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or (isinstance(task, str) and self.pattern.fullmatch(task) is not None)

    def __missing__(self, task: str) -> str:
        if task in self:
            return "translation"
        raise KeyError(task)


class _NoDefaultModel(dict[str, Any]):
    """Stands where a task keeps its default model, and says what to pass when it is asked for one."""

    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task

    def __contains__(self, key: object) -> bool:
        return key == "model"

    def __missing__(self, key: str) -> Any:
        raise ValueError(
            f'`model` is missing: the task "{self.task}" has no default model. Pass one, such as '
            f'pipeline("{self.task}", model="./my-checkpoint"): a folder, a Hub id, or a model with its `processor`.'
        )


class _CustomPipelines:
    """A config's `custom_pipelines`, saved, but hidden from `pipeline`, which would ask to trust their code."""

    def __get__(self, config: Any, owner: type | None = None) -> dict[str, Any]:
        return {}

    def __set__(self, config: Any, value: dict[str, Any]) -> None:
        config.__dict__["custom_pipelines"] = value  # what a config saves is its __dict__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


# A pipeline's file cannot be the one that imports `transformers.pipelines` first: that import registers the pipelines.
importlib.import_module("transformers.pipelines")

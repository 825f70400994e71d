"""Pipelines: text in, text out, through `transformers.pipeline`."""

import importlib
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .summarization_hier import SummarizationPipeline

__all__ = ["SummarizationPipeline", "register_pipelines"]


def register_pipelines() -> None:
    """Make `pipeline("summarization", …)` work on every supported release of Transformers.

    Call it once `transformers.pipelines` has been imported. Releases that removed the task refuse it even after it is
    registered, so it is also taken out of their list of removed tasks.
    """
    pipelines = importlib.import_module("transformers.pipelines")
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    summarization = importlib.import_module("hier_models.pipelines.summarization_hier")

    getattr(pipelines, "REMOVED_TASKS", {}).pop("summarization", None)
    pipelines.PIPELINE_REGISTRY.supported_tasks.pop("summarization", None)  # else replacing it is warned about
    pipelines.PIPELINE_REGISTRY.register_pipeline(
        "summarization",
        pipeline_class=summarization.SummarizationPipeline,
        pt_model=auto.AutoModelForSeq2SeqLM,
        default=_NoDefaultModel("summarization"),
        type="text",
    )
    _prefer_installed_pipelines()


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
            f'pipeline("{self.task}", model="./my-checkpoint"): a folder, a Hub id, or a loaded encoder-decoder model '
            f"together with its `processor` or `tokenizer`."
        )


class _CustomPipelines:
    """The `custom_pipelines` of a config: kept and saved, but not shown to `transformers.pipeline`.

    An exported checkpoint names its own copy of the pipeline in its config. `transformers.pipeline` would then ask for
    `trust_remote_code=True` although the same pipeline is installed. Models and processors have no such problem: the
    Auto classes prefer what is registered.
    """

    def __get__(self, config: Any, owner: type | None = None) -> dict[str, Any]:
        return {}

    def __set__(self, config: Any, value: dict[str, Any]) -> None:
        config.__dict__["custom_pipelines"] = value  # what a config saves is its __dict__


def _prefer_installed_pipelines() -> None:
    hier_models = importlib.import_module("hier_models")
    registration = importlib.import_module("hier_models.registration")
    for family in registration.FAMILIES.values():
        config_class = getattr(hier_models, family.config)
        config_class.custom_pipelines = _CustomPipelines()


def __getattr__(name: str) -> Any:
    if name != "SummarizationPipeline":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("hier_models.pipelines.summarization_hier").SummarizationPipeline


# A pipeline's file cannot be the one that imports `transformers.pipelines` first: that import registers the pipelines.
importlib.import_module("transformers.pipelines")

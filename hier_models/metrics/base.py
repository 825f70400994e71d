"""What the metrics have in common. A metric's file and this one are all that `evaluate.load` with its path needs."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import datasets
import evaluate
import sacrebleu


ROUGE_PAPER = "Chin-Yew Lin (2004): ROUGE. https://aclanthology.org/W04-1013"

TEXT = datasets.Value("string", id="sequence")
# Texts with one or several references each; evaluate takes the first that fits the data.
TEXTS = [
    datasets.Features({"predictions": TEXT, "references": datasets.Sequence(TEXT, id="references")}),
    datasets.Features({"predictions": TEXT, "references": TEXT}),
]


class NumbersMetric(evaluate.Metric, ABC):  # type: ignore[misc]  # evaluate is untyped
    """A metric whose `compute` gives numbers only, as evaluate's own do; what they depend on stands in `settings`.

    What evaluate shows of a metric are the docstrings of its class and of its `_compute`. Abstract, so that
    `evaluate.load` does not take this class for the metric of a file that imports it.
    """

    PAPER: ClassVar[str]
    FEATURES: ClassVar[Any]

    def __init__(self, config_name: str | None = None, keep_in_memory: bool | None = None, **kwargs: Any) -> None:
        if keep_in_memory is None:
            # evaluate's files are shared by all processes of a user, and a metric needs none unless it is distributed.
            keep_in_memory = kwargs.get("num_process", 1) == 1
        super().__init__(config_name, keep_in_memory, **kwargs)
        self._settings: dict[str, Any] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that moved the numbers of the last `compute`; empty before it."""
        return self._settings

    def _info(self) -> evaluate.MetricInfo:
        description, inputs = inspect.getdoc(type(self)), inspect.getdoc(self._compute)
        return evaluate.MetricInfo(description, self.PAPER, self.FEATURES, inputs_description=inputs)

    @abstractmethod
    def _compute(self, **kwargs: Any) -> dict[str, Any]: ...


def with_targets(predictions: Sequence[str], references: Sequence[Any]) -> Iterator[tuple[str, list[str]]]:
    """Each prediction with its references, of which there is at least one."""
    for number, (prediction, reference) in enumerate(zip(predictions, references, strict=True)):
        targets = [reference] if isinstance(reference, str) else list(reference)
        if not targets:
            raise ValueError(f"references: number {number} is an empty list; every prediction needs a reference")
        yield prediction, targets


def check_smoothing(smooth_method: str) -> None:
    """Refuse what sacrebleu does not know."""
    if smooth_method not in sacrebleu.BLEU.SMOOTH_DEFAULTS:
        known = ", ".join(sacrebleu.BLEU.SMOOTH_DEFAULTS)
        raise ValueError(f"smooth_method must be one of {known}, got {smooth_method!r}")


def version_of(library: str) -> str:
    """A library's version; one that was copied to the path says none."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"


def function_name(function: Callable[..., Any]) -> str:
    """A user's function as the settings call it."""
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"

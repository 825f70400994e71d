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

    def compute(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> Any:
        """Score what is given, and what was added before."""
        if predictions is not None and not len(predictions) and self.writer is None:
            raise ValueError("`predictions` are empty: there is nothing to score; give at least one")
        return super().compute(predictions=predictions, references=references, **kwargs)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that moved the numbers of the last `compute`; empty before it."""
        return self._settings

    def _info(self) -> evaluate.MetricInfo:
        description, inputs = inspect.getdoc(type(self)), inspect.getdoc(self._compute)
        return evaluate.MetricInfo(description, self.PAPER, self.FEATURES, inputs_description=inputs)

    @abstractmethod
    def _compute(self, **kwargs: Any) -> dict[str, Any]: ...


class TextsMetric(NumbersMetric, ABC):
    """A metric of texts with one or several references each: all of them lists, or evaluate goes by the first."""

    FEATURES = datasets.Features({"predictions": TEXT, "references": datasets.Sequence(TEXT, id="references")})

    def add(self, *, prediction: Any = None, reference: Any = None, **kwargs: Any) -> None:
        """Add one text."""
        # As `evaluate.combine` names them.
        prediction, reference = kwargs.pop("predictions", prediction), kwargs.pop("references", reference)
        super().add(prediction=prediction, reference=_targets(0, reference), **kwargs)

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add several texts."""
        references = [_targets(number, reference) for number, reference in enumerate(references)]
        super().add_batch(predictions=predictions, references=references, **kwargs)


def _targets(number: int, reference: Any) -> list[Any]:
    targets = [reference] if reference is None or isinstance(reference, str) else list(reference)
    if None in targets:
        raise ValueError(f"references: number {number} is None; every prediction needs a reference")
    return targets


def stemmed(words: Callable[[str], list[str]], mode: str = "NLTK_EXTENSIONS") -> Callable[[str], list[str]]:
    """What makes stems of the words of a text, as rouge-score does: Porter's, of words of more than three letters."""
    from nltk.stem.porter import PorterStemmer  # comes with rouge-score

    stem = PorterStemmer(mode).stem
    return lambda text: [stem(word, to_lowercase=False) if len(word) > 3 else word for word in words(text)]


def with_targets(predictions: Sequence[str], references: Sequence[list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Each prediction with its references, of which there is at least one."""
    for number, (prediction, targets) in enumerate(zip(predictions, references, strict=True)):
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

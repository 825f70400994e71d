"""The extractive baselines, by name in the place of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .documents import QUERY
from .errors import MistakeError, mistakes, say


# As in `hier_models.extractive`, which takes torch to import.
METHODS = ("lead", "lexrank", "textrank", "tf-idf", "salience")


def is_extractive(model: str) -> bool:
    """Tell whether this is no model but the name of a method; a folder of the name is a model."""
    return model in METHODS and not Path(model).exists()


def load_extractive(model: str, **settings: Any) -> Any:
    """Make the summarizer that a method's name stands for."""
    from ..extractive import ExtractiveSummarizer

    make: Any = ExtractiveSummarizer
    with mistakes("--language", ValueError):
        return make(model, **settings)


def check_options(model: str, for_models: Sequence[str], for_methods: Sequence[str]) -> None:
    """Refuse options of models with a method, and options of methods with a model, of those that were given."""
    extractive = is_extractive(model)
    for option in for_models if extractive else for_methods:
        what = f"{model!r} chooses sentences" if extractive else f"{model!r} is none of {', '.join(METHODS)}"
        raise MistakeError(f"{option} does not go with this --model: {what}; leave it out")


class ExtractivePipe:
    """A summarizer that is called as `SummarizationPipeline` is by a job."""

    processor = None

    def __init__(self, model: str) -> None:
        self.model = model

    def __call__(
        self, documents: Iterable[Mapping[str, Any]], *, batch_size: int, return_truncation: bool, **settings: Any
    ) -> Iterator[list[dict[str, Any]]]:
        """Summarize one document after the other; nothing is ever cut."""
        summarize = load_extractive(self.model, **settings)
        asked = False
        for document in documents:
            if QUERY in document and not asked:
                asked = True
                say(f"--model: {self.model} chooses the same sentences whatever is asked: `{QUERY}` is not looked at.")
            yield [{"summary_text": summarize(document), "num_truncated_tokens": 0}]

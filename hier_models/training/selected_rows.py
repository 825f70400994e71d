"""What reading more rows is worth: the scores of a model by how many rows it attends to at a step, and their cost."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel

from .models import Processor
from .tasks.summarization import run_evaluation


def evaluate_selected_rows(
    model: PreTrainedModel, processor: Processor, documents: Dataset, numbers: Sequence[int], **settings: Any
) -> list[dict[str, Any]]:
    """Evaluate a model that attends to rows with as many of them at each step as each number says.

    Soft attention then reads as hard one does. Of each number there is what `run_evaluation` returns, `encoded_rows`
    (that were read), `rows` (of how many) and `seconds` (that `generate` took), of all documents together.
    """
    config: Any = model.config
    if not getattr(config, "attends_to_rows", False):
        kind = f"attention={config.attention!r}" if hasattr(config, "attention") else "none to select rows by"
        wanted = "a Coarse-to-Fine LSTM with attention to rows ('coarse_to_fine' or 'hard')"
        raise ValueError(f"selected_rows is for {wanted}; {type(model).__name__} has {kind}")
    if wrong := [number for number in numbers if number < 1]:
        raise ValueError(f"selected_rows must be at least 1, got {wrong[0]}")
    before = config.attention, config.selected_rows
    found = []
    try:
        for number in numbers:
            config.attention, config.selected_rows = "hard", number
            with _watched(model) as cost:
                results = run_evaluation(model, processor, documents, **settings)
            found.append({"selected_rows": number, **results, **cost})
    finally:
        config.attention, config.selected_rows = before
    return found


@contextmanager
def _watched(model: Any) -> Iterator[dict[str, float]]:
    """Count the rows and the seconds of what is generated."""
    cost = {"encoded_rows": 0, "rows": 0, "seconds": 0.0}
    generate = model.generate

    def watched(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        found = generate(*args, **{**kwargs, "return_dict_in_generate": True})
        cost["seconds"] += time.perf_counter() - began
        cost["encoded_rows"] += int(found.encoded_rows.sum())
        cost["rows"] += int((kwargs["row_ids"].amax(dim=1) + 1).sum())
        return found.sequences

    model.generate = watched
    try:
        yield cost
    finally:
        del model.generate

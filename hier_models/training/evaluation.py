"""What the evaluations of all tasks share: a Trainer that predicts, generating, and the files of what was found."""

import copy
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset
from transformers import GenerationConfig, PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer

from ..data import HierDataCollator
from ..metrics import DocumentScores
from .arguments import for_prediction
from .models import Processor


FilePath = str | os.PathLike[str]


@contextmanager
def predicting(
    model: PreTrainedModel,
    processor: Processor,
    training_args: Seq2SeqTrainingArguments | None,
    batch_size: int = 8,
    *,
    preprocess_logits: Callable[..., Any] | None = None,
    **changes: Any,
) -> Iterator[Seq2SeqTrainer]:
    """Make a Trainer that generates, or with `changes` of its arguments only predicts, in the order of the data."""
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_args or Seq2SeqTrainingArguments(
            output_dir=scratch, per_device_eval_batch_size=batch_size, report_to="none"
        )
        generation_config = copy.deepcopy(model.generation_config)
        yield Seq2SeqTrainer(
            model=model,
            args=for_prediction(arguments, **{"output_dir": scratch, "predict_with_generate": True, **changes}),
            processing_class=processor,
            data_collator=HierDataCollator(processor, model=model),
            preprocess_logits_for_metrics=preprocess_logits,
        )
        model.generation_config = generation_config  # the Trainer writes every default into it


def generate(trainer: Seq2SeqTrainer, inputs: Dataset, **options: Any) -> np.ndarray[Any, Any]:
    """Generate from each input, in their order: longest first, so that memory runs out at once or never."""
    order = longest_first(inputs)
    rows: Any = inputs.select(order)
    generated: Any = trainer.predict(rows, metric_key_prefix="test", **options).predictions
    return np.asarray(generated[np.argsort(order)])


def longest_first(inputs: Dataset) -> np.ndarray[Any, Any]:
    """The numbers of the inputs, by falling length."""
    return np.argsort([-len(ids) for ids in inputs["input_ids"]], kind="stable")


def generation_settings(config: GenerationConfig) -> dict[str, Any]:
    """List what a generation config sets."""
    settings = config.to_diff_dict()
    return {name: settings[name] for name in settings if name[0] != "_" and name != "transformers_version"}


def all_rows(dataset: Dataset | IterableDataset) -> Dataset:
    """Read a stream to its end."""
    return Dataset.from_list(list(dataset)) if isinstance(dataset, IterableDataset) else dataset


def prediction_rows(documents: Dataset, **columns: Sequence[Any]) -> list[dict[str, Any]]:
    """Put what was predicted beside the documents' ids, if they have any."""
    if "id" in documents.column_names:
        columns = {"id": documents["id"], **columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write_evaluation(
    trainer: Trainer,
    results: Mapping[str, Any],
    predictions: Sequence[Mapping[str, Any]],
    scores: Callable[[], DocumentScores],
    files: tuple[FilePath | None, FilePath | None, FilePath | None],
) -> None:
    """Write the files that are asked for, of results, predictions and scores, in the first process."""
    if not trainer.is_world_process_zero():
        return
    results_file, predictions_file, scores_file = files
    if predictions_file is not None:
        write_json_lines(predictions_file, predictions)
    if scores_file is not None:
        scores().save(Path(scores_file))
    if results_file is not None:
        write_json(results_file, results)


def write_json(path: FilePath, content: Mapping[str, Any]) -> None:
    """Write a results file, for people and programs: all of it or, if the process is killed, nothing."""
    path = in_a_folder(path)
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")  # others may write the same file
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.replace(path)


def write_json_lines(path: FilePath, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to a file."""
    with in_a_folder(path).open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def in_a_folder(path: FilePath) -> Path:
    """Make the folder of a file that is to be written."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path

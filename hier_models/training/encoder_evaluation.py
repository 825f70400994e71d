"""Scoring checkpoints of encoders on data of their task, without training."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig

from ..families import FAMILIES
from ..pipelines.document_pipeline_hier import task_params
from ..pipelines.int8_hier import to_int8
from .arguments import RecipeError
from .evaluation import in_a_folder, write_json
from .recipe_files import load_recipe
from .tasks import task_class
from .tasks.encoder import usable_positions
from .trainer import HierTrainer


# What a model's class ends with -> the task it was trained for.
HEADS = {
    **{family.models[auto]: task for family in FAMILIES.values() for auto, task in family.tasks.items()},
    "ForMaskedLM": "masked_lm",
    "ForQuestionAnswering": "question_answering",
    "ForSequenceClassification": "classification",
    "ForMultipleChoice": "multiple_choice",
}


def encoder_task_of(config: PretrainedConfig) -> str | None:
    """Tell which task of encoders a checkpoint was trained for."""
    names = config.architectures or []
    return next((task for name in names for head, task in HEADS.items() if name.endswith(head)), None)


def _longest_text(name: str, config: PretrainedConfig, task: str) -> int | None:
    """How many tokens a checkpoint takes: some begin to count behind padding, which only the model itself shows."""
    with torch.device("meta"):  # without weights
        model = getattr(transformers, task_class(task).auto_class).from_config(config)
    return usable_positions(model, AutoTokenizer.from_pretrained(name))


def run_encoder_evaluation(
    model_name_or_path: str,
    data: str,
    *,
    split: str | None = None,
    text_column: str | None = None,
    summary_column: str | None = None,
    source_kind: str | None = None,
    fillers: str | None = None,
    max_source_length: int | None = None,
    batch_size: int = 8,
    use_cpu: bool = False,
    dtype: torch.dtype | None = None,
    predictions_file: str | os.PathLike[str] | None = None,
    results_file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Score a checkpoint on the data of its task: perplexity, accuracy, exact match and F1, or precision and recall.

    Args:
        model_name_or_path: The checkpoint.
        data: Hub id, file or folder of rows with labels or answers (documents with summaries), as for training.
        split: Part of the data.
        text_column: Column with the text, of masked language modeling, classification and importance tagging.
        summary_column: Column with the summary, of importance tagging; this and the next two as in a recipe's data.
        source_kind: What its documents are read as.
        fillers: Filler words to take out of them.
        max_source_length: Tokens of an input; by default as many as the model takes, or as a reader was trained with.
        batch_size: Rows scored at a time on each device.
        use_cpu: Whether to leave accelerators alone.
        dtype: Precision of the weights; float32 by default, `torch.int8` (of linear layers) on CPUs.
        predictions_file: JSON lines to write what the model says of each row to.
        results_file: JSON file to write what is returned to.

    Returns:
        The scores, as `run_training` has them under `evaluation`, `task`, and what was cut, set aside or left out.

    Raises:
        RecipeError: If the checkpoint is of none of these tasks, or its task makes no predictions to write.
    """
    config = AutoConfig.from_pretrained(model_name_or_path)
    if (name := encoder_task_of(config)) is None:
        raise RecipeError(
            f"model_name_or_path: {model_name_or_path} is {' '.join(config.architectures or ['of no known class'])}; "
            f"there is an evaluation of models whose class ends with {', '.join(HEADS)}"
        )
    without = {"masked_lm": "a masked language model", "importance_tagging": "an importance tagger"}
    if predictions_file is not None and name in without:
        raise RecipeError(f"predictions_file: {without[name]} makes no predictions to write; leave it out")
    # How a reader was trained to read and answer.
    trained = task_params(config, "reading-comprehension")
    length = max_source_length or trained.get("max_length") or _longest_text(model_name_or_path, config, name) or 512
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "task": name,
            "model_name_or_path": model_name_or_path,
            "validation": data,
            "validation_split": split,
            "text_column": text_column,
            "summary_column": summary_column,
            "source_kind": source_kind,
            "fillers": fillers,
            "max_source_length": length,
            "per_device_eval_batch_size": batch_size,
            "output_dir": folder,
            "report_to": "none",
            "use_cpu": use_cpu,
        }
        if name in ("question_answering", "reading_comprehension"):  # the usual values, or what there is room for
            options |= {"stride": min(128, length // 3), "max_question_length": min(64, length // 3)}
            options |= {key: trained[key] for key in ("max_question_length", "max_answer_length") if key in trained}
            if max_source_length is None and "stride" in trained:
                options["stride"] = trained["stride"]
        if name == "classification":
            options["classes"] = [config.id2label[number] for number in range(config.num_labels)]
        recipe = load_recipe(None, {key: value for key, value in options.items() if value is not None})
        if recipe.training.device.type == "cpu":
            recipe.training.dataloader_pin_memory = False
        task = task_class(name)(recipe, Path(folder))
        task.check()
        model, processor = task.load_model_and_processor()
        task.validation_dataset(model, processor)
        if dtype == torch.int8:
            to_int8(cast(Any, model).to(recipe.training.device))
        elif dtype is not None:
            cast(Any, model).to(dtype)
        trainer = HierTrainer(
            model=model,
            args=recipe.training,
            processing_class=processor,
            data_collator=task.collator(model, processor),
            compute_metrics=task.compute_metrics(processor),
            in_order=task.in_order,
            **task.trainer_options(),
        )
        results = {"task": name, **(task.evaluate(trainer, model, processor) or {}), **task.reports()}
        if trainer.is_world_process_zero():
            if predictions_file is not None:
                shutil.copyfile(Path(folder) / "predictions.jsonl", in_a_folder(predictions_file))
            if results_file is not None:
                write_json(Path(results_file), results)
    return results

"""Teach mini which of its summaries are the better ones: their order by likelihood is to be that of their scores.

    python examples/mini/candidates.py --data FOLDER
    accelerate launch --config_file examples/accelerate/cpu.yaml examples/mini/ranked.py --output runs/mini/ranked

Source: Liu et al., 2022 (BRIO: Bringing Order to Abstractive Summarization), equations 8 to 10, but for the margin,
which is in proportion to the difference of the scores, and the likelihood beside it, which is that of the best
candidate, not of the reference. What the search maximizes is compared: the mean log-probability of a summary's tokens.
The same command goes on with a run that was stopped.
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, EvalPrediction, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import hier_models


MARGIN = 1.0  # nats a token, for a difference of 100 points of ROUGE
RANKING, LIKELIHOOD = 8.0, 2.0  # weights of the losses
HELD_OUT = 20  # one row in so many
STEP = 32  # rows of a step, of all processes


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Rows of all parts that `candidates.py` has written, in one order."""
    lines = [line for path in sorted(folder.glob("candidates_*.jsonl")) for line in path.read_text().split("\n")]
    rows = [json.loads(line) for line in lines if line.endswith("}")]  # a part that was stopped ends anywhere
    if not rows:
        raise SystemExit(f"{folder} has no candidates; run candidates.py first")
    return random.Random(0).sample(rows, len(rows))


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """One document, and all of its candidates, which share what the encoder reads."""
    (row,) = rows
    candidates = pad_sequence([torch.tensor(ids) for ids in row["candidates"]], batch_first=True, padding_value=-100)
    return {
        **{name: torch.tensor([values]) for name, values in row["inputs"].items()},  # (1, source)
        "decoder_input_ids": candidates[:, :-1].clamp(min=0),  # (candidates, target)
        "labels": candidates[:, 1:],  # (candidates, target)
        "scores": torch.tensor([row["scores"]]),  # (1, candidates)
        "rouge": torch.tensor([row["rouge"]]),  # (1, candidates)
    }


def mean_log_probabilities(logs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What the search compares of logarithms (candidates, target, vocab_size) and labels (candidates, target)."""
    there = labels != -100
    own = logs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1) * there
    return own[:, 1:].sum(dim=1) / there.sum(dim=1)  # the token of the length is given, and counts as one


def losses(means: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean over pairs in the wrong order, or too near, and what the best candidate lacks; both (candidates,)."""
    gaps = scores[:, None] - scores  # (candidates, candidates), above 0 where the first is the better one
    wrong = (means - means[:, None] + MARGIN / 100 * gaps).relu() * (gaps > 0)
    return wrong.sum() / (gaps > 0).sum().clamp(min=1), -means[scores.argmax()]


class RankingTrainer(Trainer):
    """Trains on the candidates of a document."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False  # the mean is over documents, not over tokens

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        """Weigh both losses; as output, how likely each candidate is."""
        labels, scores = inputs["labels"], inputs["scores"]
        read = {name: values for name, values in inputs.items() if name not in ("labels", "scores", "rouge")}
        means = mean_log_probabilities(model(**read, use_cache=False).logits, labels)
        order, likelihood = losses(means, scores[0])
        loss = RANKING * order + LIKELIHOOD * likelihood
        return (loss, {"loss": loss, "means": means[None]}) if return_outputs else loss


def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """What ROUGE the likeliest candidate has, the one that the search had found, and the best."""
    means, (_, rouge) = prediction.predictions, prediction.label_ids  # each (documents, candidates), -100 if none
    there = rouge != -100
    chosen = np.where(there, means, -np.inf).argmax(axis=1)
    return {
        "chosen": float(np.take_along_axis(rouge, chosen[:, None], axis=1).mean()),
        "searched": float(rouge[:, 0].mean()),
        "best": float(rouge.max(axis=1).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=hier_models.MINI, help="checkpoint that wrote the candidates")
    parser.add_argument("--pairs", type=Path, default=Path("experiments/mini/pairs"), help="where candidates are")
    parser.add_argument("--output", type=Path, required=True, help="folder for the trained model")
    parser.add_argument("--rate", type=float, default=8e-5, help="learning rate, falling to 0")
    parser.add_argument("--steps", type=int, default=-1, help=f"of {STEP} rows; without it, all rows once")
    arguments = parser.parse_args()
    rows = rows_of(arguments.pairs)
    held_out = 1 + len(rows) // HELD_OUT
    settings = TrainingArguments(
        output_dir=str(arguments.output),
        max_steps=arguments.steps,
        num_train_epochs=1,
        learning_rate=arguments.rate,
        warmup_steps=10,
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=30,
        eval_on_start=True,
        save_steps=30,
        save_total_limit=1,
        report_to="none",
        remove_unused_columns=False,
        label_names=["scores", "rouge"],
        use_cpu=not torch.cuda.is_available(),
    )
    settings.gradient_accumulation_steps = max(1, STEP // settings.world_size)
    model = AutoModelForSeq2SeqLM.from_pretrained(arguments.model, dtype=torch.float32, dropout=0.0)  # it copies
    trainer = RankingTrainer(
        model,
        settings,
        data_collator=collate,
        train_dataset=rows[held_out:],
        eval_dataset=rows[:held_out],
        processing_class=AutoProcessor.from_pretrained(arguments.model),
        compute_metrics=compute_metrics,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output) if arguments.output.is_dir() else None)
    trainer.save_model()


if __name__ == "__main__":
    main()

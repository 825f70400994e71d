"""Soft pretraining and the surrogate in the log, over the stock Trainer and a model that is nothing but numbers."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import ModelOutput

from hier_models.training import SoftPretraining, SurrogateLog


class ChoosyConfig(PreTrainedConfig):
    model_type = "choosy"
    attention: str = "hard"


@dataclass
class Output(ModelOutput):
    loss: torch.Tensor | None = None
    surrogate: torch.Tensor | None = None


class Choosy(PreTrainedModel):
    """Its surrogate is the mean of x, over all labels of the step if it is told of them."""

    config_class = ChoosyConfig
    soft_attention = False

    def __init__(self, config, takes_count=True):
        super().__init__(config)
        self.weight = nn.Parameter(torch.ones(1))
        self.accepts_loss_kwargs = takes_count
        self.soft = []
        self.post_init()

    def forward(self, x, labels=None, num_items_in_batch=None, **kwargs):
        if self.training:
            self.soft.append(self.soft_attention)
        count = len(x) if num_items_in_batch is None else num_items_in_batch
        surrogate = None if self.soft_attention else x.sum() / count
        return Output(loss=(self.weight * x).sum() / count, surrogate=surrogate)


class Rows(Dataset):
    def __init__(self, count=8):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"x": torch.tensor(1.0 if index < 4 else 3.0), "labels": torch.tensor(0)}


class Logs(TrainerCallback):
    def __init__(self):
        self.found = []

    def on_log(self, args, state, control, **kwargs):
        if "loss" in kwargs["logs"]:
            self.found.append(kwargs["logs"].get("surrogate"))


def trainer_of(folder, callbacks, model=None, rows=8, **options):
    defaults = {
        "per_device_train_batch_size": 2,
        "num_train_epochs": 2,
        "logging_steps": 1,
        "learning_rate": 0.0,
        "train_sampling_strategy": "sequential",
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
    }
    return Trainer(
        model or Choosy(ChoosyConfig()),
        TrainingArguments(str(folder), **{**defaults, **options}),
        train_dataset=Rows(rows),
        eval_dataset=Rows(rows),
        callbacks=callbacks,
    )


@pytest.mark.parametrize(("epochs", "soft"), [(1, 4), (2, 8), (0.5, 2), (0, 0)])
def test_the_first_epochs_are_soft(tmp_path, epochs, soft):
    trainer = trainer_of(tmp_path, [SoftPretraining(epochs)])
    trainer.train()
    assert trainer.model.soft == [True] * soft + [False] * (8 - soft)
    assert not trainer.model.soft_attention


@pytest.mark.parametrize("steps", [1, 4, 5])
def test_a_resumed_run_goes_on_as_it_was(tmp_path, steps):
    options = {"save_strategy": "steps", "save_steps": 1}
    trainer_of(tmp_path, [SoftPretraining(1)], max_steps=steps, **options).train()
    trainer = trainer_of(tmp_path, [SoftPretraining(1)], **options)
    trainer.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{steps}"))
    assert trainer.model.soft == ([True] * 4 + [False] * 4)[steps:]


@pytest.mark.parametrize("takes_count", [True, False])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_surrogate_is_logged_as_a_mean_over_steps(tmp_path, takes_count, accumulation):
    logs, model = Logs(), Choosy(ChoosyConfig(), takes_count)
    options = {"gradient_accumulation_steps": accumulation, "num_train_epochs": 1}
    trainer = trainer_of(tmp_path, [SurrogateLog(), logs], model, **options)
    trainer.train()
    expected = [1.0, 1.0, 3.0, 3.0] if accumulation == 1 else [1.0, 3.0]
    assert logs.found == pytest.approx(expected)
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["surrogate"] for entry in history] == pytest.approx(expected)
    assert [entry["loss"] for entry in history] == pytest.approx(expected)  # and is no part of the loss


def test_over_several_steps_too_and_a_last_one_that_is_short(tmp_path):
    logs = Logs()
    # Batches of 2, two a step; the second step has only one batch, of one row.
    options = {"gradient_accumulation_steps": 2, "num_train_epochs": 1, "logging_steps": 2}
    trainer_of(tmp_path, [SurrogateLog(), logs], rows=5, **options).train()
    assert logs.found == pytest.approx([2.0])


def test_steps_that_draw_nothing_have_none(tmp_path):
    logs = Logs()
    trainer_of(tmp_path, [SoftPretraining(1), SurrogateLog(), logs], logging_steps=2).train()
    assert logs.found == [None, None, 1.0, 3.0]


def test_evaluation_has_no_part_and_the_model_is_left_alone(tmp_path):
    logs = Logs()
    trainer = trainer_of(tmp_path, [SurrogateLog(), logs], eval_strategy="steps", eval_steps=1)
    trainer.train()
    assert logs.found == [1.0, 1.0, 3.0, 3.0] * 2
    assert not trainer.model._forward_hooks


@pytest.mark.parametrize("callback", [SoftPretraining(), SurrogateLog()])
def test_other_models_are_refused(tmp_path, callback, tiny_model):
    soft = Choosy(ChoosyConfig(attention="coarse_to_fine"))
    with pytest.raises(ValueError, match=r"with attention='hard', and .* has attention='coarse_to_fine'"):
        trainer_of(tmp_path, [callback], soft).train()
    with pytest.raises(ValueError, match=r"\(HatBartForConditionalGeneration\) has no such setting"):
        trainer_of(tmp_path, [callback], tiny_model).train()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": -1}, "epochs must be a number of 0 or more, got -1"),
        ({"epochs": float("nan")}, "epochs must be"),
    ],
)
def test_wrong_numbers_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        SoftPretraining(**wrong)

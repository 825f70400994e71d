"""The brightness over the epochs of the stock Trainer, with a model that is nothing but a config and a weight."""

import json

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PreTrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from hier_models.training import BrightnessDecay


class LampConfig(PreTrainedConfig):
    model_type = "lamp"
    brightness: float = 1.0
    brightness_decay: float = 0.5


class Lamp(PreTrainedModel):
    config_class = LampConfig

    def __init__(self, config):
        super().__init__(config)
        self.weight = nn.Parameter(torch.ones(1))
        self.post_init()

    def forward(self, x, labels=None):
        return {"loss": (self.weight * x).mean() ** 2}


class Rows(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {"x": torch.tensor(float(index)), "labels": torch.tensor(0)}


class Seen(TrainerCallback):
    def __init__(self, stop_at=None):
        self.steps, self.evaluations, self.stop_at = [], [], stop_at

    def on_step_begin(self, args, state, control, **kwargs):
        self.steps.append(kwargs["model"].config.brightness)

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.stop_at

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluations.append(kwargs["model"].config.brightness)


def trainer_of(folder, callback, seen, model=None, **options):
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=2,
        num_train_epochs=3,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **options,
    )
    return Trainer(
        model or Lamp(LampConfig()), arguments, train_dataset=Rows(), eval_dataset=Rows(), callbacks=[callback, seen]
    )


def test_it_is_lower_in_each_epoch(tmp_path):
    seen = Seen()
    trainer = trainer_of(tmp_path, BrightnessDecay(), seen, eval_strategy="epoch")
    trainer.train()
    assert seen.steps == [1.0] * 3 + [0.5] * 3 + [0.25] * 3
    assert seen.evaluations == [1.0, 0.5, 0.25]  # as it was trained
    trainer.save_model(str(tmp_path / "saved"))
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["brightness"] == 0.25


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_a_resumed_run_goes_on_as_it_was(tmp_path, steps):
    whole = Seen()
    trainer_of(tmp_path / "a", BrightnessDecay(), whole).train()
    first, second = Seen(stop_at=steps), Seen()
    options = {"save_strategy": "steps", "save_steps": 1}
    trainer_of(tmp_path / "b", BrightnessDecay(), first, **options).train()
    checkpoint = tmp_path / "b" / f"checkpoint-{steps}"
    trainer_of(tmp_path / "b", BrightnessDecay(), second, **options).train(resume_from_checkpoint=str(checkpoint))
    assert first.steps + second.steps == whole.steps


def test_the_best_model_has_the_brightness_it_was_saved_with(tmp_path):
    options = {
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": True,  # the first, as the loss falls
        "learning_rate": 0.05,
    }
    trainer = trainer_of(tmp_path, BrightnessDecay(), Seen(), **options)
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-3")
    assert trainer.model.config.brightness == 1.0


def test_a_model_that_highlights_nothing_is_refused(tiny_model, tmp_path):
    trainer = trainer_of(tmp_path, BrightnessDecay(), Seen(), model=tiny_model)
    with pytest.raises(ValueError, match="HatBartForConditionalGeneration has no brightness"):
        trainer.train()

"""Learning rates of parts, and their decay, over the stock Trainer."""

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from hier_models import HatBartForConditionalGeneration
from hier_models.training import PerplexityDecay, optimizer_with_rates


class PartsConfig(PreTrainedConfig):
    model_type = "parts"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.coarse = nn.Linear(1, 1)
        self.words = nn.Linear(1, 1)
        self.coarse_keys = nn.Linear(1, 1, bias=False)


class Parts(PreTrainedModel):
    config_class = PartsConfig

    def __init__(self, config):
        super().__init__(config)
        self.encoder = Encoder()
        self.frozen = nn.Linear(1, 1).requires_grad_(False)
        self.post_init()

    def forward(self, x, labels=None):
        loss = sum(parameter.sum() for parameter in self.parameters() if parameter.requires_grad)
        return {"loss": loss + 0 * x.sum() if self.training else self.losses.pop(0)}


class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"x": torch.tensor(float(index)), "labels": torch.tensor(0)}


class Seen(TrainerCallback):
    def __init__(self, stop_at=None):
        self.rates, self.stop_at = [], stop_at

    def on_step_begin(self, args, state, control, **kwargs):
        self.rates.append([group["lr"] for group in kwargs["optimizer"].param_groups])

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.stop_at


def arguments_of(folder, **options):
    defaults = {
        "optim": "sgd",
        "learning_rate": 1.0,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 4,
        "num_train_epochs": 6,
        "eval_strategy": "epoch",
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
    }
    return TrainingArguments(str(folder), **{**defaults, **options})


def run(folder, losses, seen, rates=None, callback=None, resume=None, **options):
    """Train for six epochs of two steps, with losses of the evaluations as given."""
    torch.manual_seed(0)
    model, arguments = Parts(PartsConfig()), arguments_of(folder, **options)
    model.losses = [torch.tensor(float(loss)) for loss in losses]
    trainer = Trainer(
        model,
        arguments,
        train_dataset=Rows(),
        eval_dataset=Rows(),
        callbacks=[callback or PerplexityDecay(), seen],
        optimizers=(optimizer_with_rates(model, arguments, {} if rates is None else rates), None),
    )
    trainer.train(resume_from_checkpoint=resume)
    return model


LOSSES = [3, 2, 2.5, 1, 1, 1]  # it stops falling after the third epoch


def test_rates_fall_from_the_first_loss_that_does_not(tmp_path):
    seen = Seen()
    run(tmp_path, LOSSES, seen)
    assert [rates[0] for rates in seen.rates] == [1.0] * 6 + [0.5] * 2 + [0.25] * 2 + [0.125] * 2


def test_a_loss_that_stays_has_stopped_falling(tmp_path):
    seen = Seen()
    run(tmp_path, [3, 3, 2, 1, 0.5, 0.1], seen, callback=PerplexityDecay(factor=0.1))
    expected = [1.0] * 4 + [0.1] * 2 + [0.01] * 2 + [1e-3] * 2 + [1e-4] * 2
    assert [rates[0] for rates in seen.rates] == pytest.approx(expected)


def test_one_that_always_falls_changes_nothing(tmp_path):
    seen = Seen()
    run(tmp_path, [6, 5, 4, 3, 2, 1], seen)
    assert {rates[0] for rates in seen.rates} == {1.0}


def test_a_loss_that_is_no_number_has_not_fallen(tmp_path):
    seen = Seen()
    run(tmp_path, [3, float("nan"), 2, 1, 0.5, 0.1], seen)
    assert [rates[0] for rates in seen.rates][4] == 0.5


def test_it_multiplies_any_schedule_and_every_part(tmp_path):
    seen = Seen()
    run(tmp_path, LOSSES, seen, rates={"coarse": 0.1}, lr_scheduler_type="linear")
    assert [sorted(set(rates)) for rates in seen.rates] == [
        pytest.approx([0.1 * share, share])
        for share in (1 - step / 12 if step < 6 else (1 - step / 12) / 2 ** (step // 2 - 2) for step in range(12))
    ]


@pytest.mark.parametrize("steps", [4, 6, 7])
def test_a_resumed_run_goes_on_as_it_was(tmp_path, steps):
    whole = Seen()
    saving = {"save_strategy": "epoch"} if steps % 2 == 0 else {"save_strategy": "steps", "save_steps": steps}
    options = {"rates": {"encoder.coarse": 0.1}, **saving}
    expected = run(tmp_path / "a", LOSSES, whole, **options)
    first, second = Seen(stop_at=steps), Seen()
    run(tmp_path / "b", LOSSES, first, **options)
    checkpoint = str(tmp_path / "b" / f"checkpoint-{steps}")
    found = run(tmp_path / "b", LOSSES[steps // 2 :], second, resume=checkpoint, **options)
    assert first.rates + second.rates == whole.rates
    for name, value in expected.state_dict().items():
        assert torch.equal(value, found.state_dict()[name])


def test_without_evaluation_it_is_refused(tmp_path):
    with pytest.raises(ValueError, match="eval_strategy must be 'epoch' or 'steps'"):
        run(tmp_path, [], Seen(), eval_strategy="no")


@pytest.mark.parametrize("factor", [0.0, 1.5, -1.0, float("nan")])
def test_wrong_factors_are_refused(factor):
    with pytest.raises(ValueError, match="factor must be above 0 and at most 1, got"):
        PerplexityDecay(factor)


# Parts


def names_of(model, groups):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {tuple(names[id(parameter)] for parameter in group["params"]): group for group in groups}


def test_parts_have_rates_of_their_own(tmp_path):
    model = Parts(PartsConfig())
    arguments = arguments_of(tmp_path, weight_decay=0.01)
    optimizer = optimizer_with_rates(model, arguments, {"encoder": 0.5, "encoder.coarse": 0.1})
    assert type(optimizer) is torch.optim.SGD
    groups = names_of(model, optimizer.param_groups)
    assert {names: (group["lr"], group["weight_decay"]) for names, group in groups.items()} == {
        ("encoder.coarse.weight",): (0.1, 0.01),
        ("encoder.coarse.bias",): (0.1, 0.0),
        ("encoder.words.weight", "encoder.coarse_keys.weight"): (0.5, 0.01),
        ("encoder.words.bias",): (0.5, 0.0),
    }


def test_the_rest_has_that_of_the_arguments(tmp_path):
    model = Parts(PartsConfig())
    optimizer = optimizer_with_rates(model, arguments_of(tmp_path, optim="adamw_torch"), {"coarse": 0.1})
    assert isinstance(optimizer, torch.optim.AdamW)
    assert sorted(group["lr"] for group in optimizer.param_groups) == [0.1, 0.1, 1.0, 1.0]


NEW = ("encoder.words.weight", "encoder.words.bias", "frozen.weight")


def test_new_modules_learn_at_ten_times_the_rate(tmp_path):
    model = Parts(PartsConfig())
    model.new_parameters = NEW
    arguments = arguments_of(tmp_path, learning_rate=3e-5, weight_decay=0.01)
    groups = names_of(model, optimizer_with_rates(model, arguments).param_groups)
    assert {names: (group["lr"], group["weight_decay"]) for names, group in groups.items()} == {
        ("encoder.coarse.weight", "encoder.coarse_keys.weight"): (3e-5, 0.01),  # the Trainer logs the first one's
        ("encoder.coarse.bias",): (3e-5, 0.0),
        ("encoder.words.weight",): (pytest.approx(3e-4), 0.01),
        ("encoder.words.bias",): (pytest.approx(3e-4), 0.0),
    }
    with pytest.raises(ValueError, match="the learning rate of 'new_modules_rate' must be a number of 0 or more"):
        optimizer_with_rates(model, arguments, new_modules_rate=float("nan"))


def test_rates_that_are_given_win_over_that_of_new_modules(tmp_path):
    model = Parts(PartsConfig())
    model.new_parameters = (*NEW, "encoder.coarse.weight")
    optimizer = optimizer_with_rates(model, arguments_of(tmp_path), {"words": 0.5}, new_modules_rate=2)
    rates = {name: group["lr"] for names, group in names_of(model, optimizer.param_groups).items() for name in names}
    assert rates == {
        "encoder.coarse.weight": 2.0,
        "encoder.coarse.bias": 1.0,
        "encoder.words.weight": 0.5,
        "encoder.words.bias": 0.5,
        "encoder.coarse_keys.weight": 1.0,
    }


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks for it
def test_new_modules_are_found_in_a_model_in_peft(tmp_path):
    peft = pytest.importorskip("peft")
    model = Parts(PartsConfig())
    model.new_parameters = NEW
    lora = peft.get_peft_model(model, peft.LoraConfig(r=1, target_modules=["coarse"], modules_to_save=["words"]))
    optimizer = optimizer_with_rates(lora, arguments_of(tmp_path))
    rates = {name: group["lr"] for names, group in names_of(lora, optimizer.param_groups).items() for name in names}
    assert {name: rate for name, rate in rates.items() if "words" in name} == {
        f"base_model.model.encoder.words.modules_to_save.default.{kind}": 10.0 for kind in ("weight", "bias")
    }
    assert {rate for name, rate in rates.items() if "lora" in name} == {1.0}


def test_optimizers_without_groups_are_refused(tmp_path):
    arguments = arguments_of(tmp_path, optim="galore_adamw", optim_target_modules=["words"])
    with pytest.raises((ValueError, ImportError), match="galore"):
        optimizer_with_rates(Parts(PartsConfig()), arguments, {"coarse": 0.1})


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"decoder": 0.1}, "'decoder' is of no parameter of Parts that is trained"),
        ({"frozen": 0.1}, "'frozen' is of no parameter"),
        ({"coars": 0.1}, "'coars' is of no parameter"),
        ({"": 0.1}, "'' is of no parameter"),
        ({"coarse": -0.1}, "the learning rate of 'coarse' must be a number of 0 or more, got -0.1"),
        ({"coarse": "fast"}, "must be a number of 0 or more, got 'fast'"),
        ({"coarse": float("inf")}, "must be a number of 0 or more, got inf"),
    ],
)
def test_wrong_rates_are_refused(tmp_path, rates, message):
    with pytest.raises(ValueError, match=message):
        optimizer_with_rates(Parts(PartsConfig()), arguments_of(tmp_path), rates)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks for it
def test_new_modules_that_stay_closed_are_said_to(tmp_path, caplog):
    """LoRA on queries and values alone leaves outputs of zero frozen behind them."""
    peft = pytest.importorskip("peft")
    sizes = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    sizes |= {"vocab_size": 20, "d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    BartForConditionalGeneration(BartConfig(**sizes)).save_pretrained(tmp_path)
    for adapted, warns in (
        ({"target_modules": ["q_proj", "v_proj"]}, True),
        ({"target_modules": ["q_proj", "out_proj"]}, False),
        ({"target_modules": ["q_proj"], "modules_to_save": ["hierarchical_attn"]}, False),
    ):
        model = HatBartForConditionalGeneration.from_pretrained(tmp_path)
        lora = peft.get_peft_model(model, peft.LoraConfig(r=2, **adapted))
        caplog.clear()
        optimizer_with_rates(lora, arguments_of(tmp_path, learning_rate=1e-3))
        assert ("which are frozen" in caplog.text) == warns, adapted

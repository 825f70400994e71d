"""REINFORCE in the whole model: its gradient against that of the expected likelihood, over all that can be drawn."""

import math
from pathlib import Path

import pytest
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from hier_models import CoarseToFineLstmConfig, CoarseToFineLstmForConditionalGeneration
from hier_models.models import decoder_coarse_to_fine_lstm
from hier_models.models.reinforce import draw_gumbel, draw_rows
from hier_models.training import PerplexityDecay, SoftPretraining, SurrogateLog, optimizer_with_rates
from tests import forks
from tests.references.reinforce import expected_loss, outcomes, probability_of


ROWS = 3
BATCH = {
    "input_ids": torch.tensor([[4, 5, 6, 7, 8, 4]]),
    "row_ids": torch.tensor([[0, 0, 1, 1, 1, 2]]),
    "labels": torch.tensor([[5, 8, 2]]),
}
NONE = torch.zeros(3, dtype=torch.float64)
SOME = torch.tensor([-2.5, -1.7, -2.1], dtype=torch.float64)


def make(**settings):
    torch.manual_seed(3)
    config = CoarseToFineLstmConfig(
        **{
            "vocab_size": 9,
            "embedding_size": 3,
            "hidden_size": 4,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "coarse_filters": 4,
            "coarse_kernel_size": 2,
            "dropout": 0.0,
            "attention": "hard",
            "reward_discount": 1.0,
            "reward_scale": 1.0,
            "baseline_rate": 0.0,
            "init_range": 1.5,
            **settings,
        }
    )
    model = CoarseToFineLstmForConditionalGeneration(config).double().train()
    model.parameters_in_order = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return model


def batch_of(copies, length=3):
    return {name: value[:, : length if name == "labels" else None].repeat(copies, 1) for name, value in BATCH.items()}


def gradient(model, loss):
    found = torch.autograd.grad(loss, model.parameters_in_order, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in found])


class Enumerated:
    """A model whose draws are given, in the place of drawn."""

    def __init__(self, draws, monkeypatch, **settings):
        self.model, self.draws = make(num_samples=draws, **settings), draws
        self.steps = 3 if draws == 1 else 2  # 27, 36 and 100 outcomes
        self.batch, self.monkeypatch = batch_of(1, self.steps), monkeypatch
        self.model.model.register_forward_hook(self.see)

    def see(self, module, inputs, output):
        self.log_attention = output.get("row_log_probabilities")

    def run(self, outcome):
        given = iter(outcome)
        with self.monkeypatch.context() as patch:
            patch.setattr(decoder_coarse_to_fine_lstm, "draw_rows", lambda attention, number: next(given)[None])
            return self.model(**self.batch, num_items_in_batch=1)

    def play(self, outcome):
        logits = self.run(outcome).logits[0]
        loss = torch.nn.functional.cross_entropy(logits, self.batch["labels"][0], reduction="sum")
        return loss, self.log_attention[0]

    def exact(self):
        return gradient(self.model, expected_loss(self.play, ROWS, self.draws, self.steps))

    def moments(self, baseline, kind="moving_average"):
        self.model.config.baseline = kind
        self.model.reward_baseline.values[:3] = baseline
        estimates, weights = [], []
        for outcome in outcomes(ROWS, self.draws, self.steps):
            output = self.run(torch.tensor(outcome, dtype=torch.float64))
            estimates.append(gradient(self.model, output.loss))
            weights.append(probability_of(outcome, self.log_attention[0].detach()))
        weights, estimates = torch.stack(weights), torch.stack(estimates)
        assert weights.sum().item() == pytest.approx(1)
        mean = weights @ estimates
        return mean, weights @ (estimates - mean) ** 2


@pytest.mark.parametrize(("draws", "baseline", "kind"), [
    *((draws, baseline, "moving_average") for draws in (1, 2, 3) for baseline in (NONE, SOME)),
    (2, SOME, "leave_one_out"),
    (3, NONE, "leave_one_out"),
])  # fmt: skip
def test_the_gradient_is_unbiased(draws, baseline, kind, monkeypatch):
    case = Enumerated(draws, monkeypatch)
    exact = case.exact()
    mean, variance = case.moments(baseline, kind)
    torch.testing.assert_close(mean, exact, atol=1e-10, rtol=1e-10)
    assert exact.abs().max() > 0.1
    assert variance.sum() > 0.1
    # What the model draws by itself is within sampling error of it.
    torch.manual_seed(0)
    copies = 4000
    found = gradient(case.model, case.model(**batch_of(copies, case.steps), num_items_in_batch=copies).loss)
    errors = (variance / copies).sqrt()
    assert ((found - exact).abs() / (errors + 1e-12)).max() < 4.5
    assert errors.max() < 0.1


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_the_coarse_level_learns_by_reinforce_alone(draws, monkeypatch):
    case = Enumerated(draws, monkeypatch, reward_scale=0.0)
    mean, _ = case.moments(NONE)
    assert (mean - case.exact()).abs().max() > 1e-3  # without the surrogate it is another
    keys = case.model.model.encoder.row_keys.weight
    case.model(**case.batch).loss.backward()
    assert keys.grad is None or keys.grad.eq(0).all()
    case.model.config.reward_scale = 1.0
    case.model(**case.batch).loss.backward()
    assert keys.grad.abs().max() > 0


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_the_baseline_lowers_the_variance(draws, monkeypatch):
    case = Enumerated(draws, monkeypatch)
    _, without = case.moments(NONE)
    torch.manual_seed(0)
    case.model.reward_baseline.rate = 0.1
    for _ in range(40):
        case.model(**batch_of(20, case.steps))
    learned = case.model.reward_baseline.values[:3].clone()
    assert learned[: case.steps].lt(-0.5).all()
    case.model.reward_baseline.rate = 0.0
    _, with_it = case.moments(learned)
    assert with_it.sum() < 0.9 * without.sum()


@pytest.mark.parametrize("draws", [2, 3])
def test_leaving_one_out_lowers_the_variance_further(draws, monkeypatch):
    case = Enumerated(draws, monkeypatch)
    _, without = case.moments(SOME)
    _, with_it = case.moments(SOME, "leave_one_out")
    assert with_it.sum() < 0.9 * without.sum()


def test_alternate_steps_are_soft_as_often_as_asked(monkeypatch):
    case = Enumerated(1, monkeypatch)
    exact = case.exact()
    _, variance = case.moments(SOME)
    case.model.config.alternate_soft = 0.3
    torch.manual_seed(0)
    steps, copies, hard, soft = 60, 30, [], []
    for _ in range(steps):
        output = case.model(**batch_of(copies), num_items_in_batch=copies)
        (soft if output.surrogate is None else hard).append(gradient(case.model, output.loss))
    assert abs(len(soft) - 0.3 * steps) < 3 * math.sqrt(0.3 * 0.7 * steps)
    # The one is Model 2's gradient, the other on average that of hard attention.
    model_2 = make(attention="coarse_to_fine")
    model_2.load_state_dict(case.model.state_dict(), strict=False)
    expected = gradient(model_2, model_2(**batch_of(1), num_items_in_batch=1).loss)
    for found in soft:
        torch.testing.assert_close(found, expected)
    errors = (variance / (copies * len(hard))).sqrt()
    assert ((torch.stack(hard).mean(0) - exact).abs() / (errors + 1e-12)).max() < 4.5


def test_soft_attention_is_model_2_in_training_only():
    model, model_2 = make(), make(attention="coarse_to_fine")
    model_2.load_state_dict(model.state_dict(), strict=False)
    model.soft_attention = True
    output = model(**BATCH)
    assert output.surrogate is None
    torch.testing.assert_close(output.loss, model_2(**BATCH).loss)
    torch.testing.assert_close(gradient(model, output.loss), gradient(model_2, model_2(**BATCH).loss))
    soft = model.eval()(**BATCH).loss
    model.soft_attention = False
    assert torch.equal(model(**BATCH).loss, soft)
    assert not torch.allclose(soft, output.loss)


@pytest.mark.parametrize("settings", [{}, {"estimator": "top_k"}, {"estimator": "top_k", "gumbel_noise": 1.0}])
def test_training_reads_only_what_it_chooses_and_once(settings):
    model = make(num_samples=2, **settings)
    rows = 60
    batch = {
        "input_ids": torch.randint(4, 9, (2, 3 * rows)),
        "row_ids": torch.arange(rows).repeat_interleave(3).expand(2, -1),
        "labels": torch.tensor([[5, 8, 2], [6, 7, 2]]),
    }
    read = []
    model.model.encoder.layers[0].register_forward_hook(lambda module, args, output: read.append(len(args[0])))
    torch.manual_seed(0)
    output = model(**batch)
    found = gradient(model, output.loss)
    assert sum(read) == 3 * output.encoded_rows.sum()
    assert output.encoded_rows.max() <= 6
    # What is read at once has the same gradient.
    torch.manual_seed(0)
    everything = model(**batch, output_hidden_states=True)
    assert everything.encoded_rows is None
    torch.testing.assert_close(gradient(model, everything.loss), found)
    model.activation_checkpointing_enable({"use_reentrant": False})
    torch.manual_seed(0)
    torch.testing.assert_close(gradient(model, model(**batch).loss), found)


def test_drawn_without_replacement_by_noise():
    """Of Gumbel's distribution: the first row that is chosen has the probability of the attention."""
    scores = torch.tensor([1.0, 0.0, -1.0])
    torch.manual_seed(0)
    first = (scores + draw_gumbel(scores.expand(20_000, -1))).argmax(-1).bincount() / 20_000
    torch.testing.assert_close(first, scores.softmax(-1), atol=0.015, rtol=0)


def test_the_loss_is_the_likelihood_and_the_surrogate_stands_apart():
    model = make(num_samples=2, reward_scale=0.3, reward_discount=0.5)
    output = model(**BATCH)
    likelihood = torch.nn.functional.cross_entropy(output.logits[0], BATCH["labels"][0])
    torch.testing.assert_close(output.loss, likelihood)
    assert output.surrogate.abs() > 1e-3
    assert not output.surrogate.requires_grad


def test_padding_targets_have_no_part():
    model = make(num_samples=2)
    alone, padded = [], []
    for labels, found in ((BATCH["labels"], alone), (torch.tensor([[5, 8, 2, -100, -100]]), padded)):
        torch.manual_seed(0)
        given = {**BATCH, "labels": labels}
        found.extend([model(**given).loss, gradient(model, model(**given, num_items_in_batch=3).loss)])
    torch.testing.assert_close(alone[0], padded[0])
    assert alone[1].shape == padded[1].shape


def test_more_draws_than_rows_and_a_document_without_rows():
    model = make(num_samples=5)
    given = {
        "input_ids": torch.tensor([[4, 5, 6], [1, 1, 1]]),
        "attention_mask": torch.tensor([[1, 1, 1], [0, 0, 0]]),
        "row_ids": torch.tensor([[0, 0, 2], [-1, -1, -1]]),
        "labels": torch.tensor([[5, 2], [6, 2]]),
    }
    loss = model(**given).loss
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_document_without_rows_has_no_draws():
    model = make(row_position_size=2)
    given = {
        "input_ids": torch.tensor([[4, 5, 6], [1, 1, 1]]),
        "row_ids": torch.tensor([[0, 1, 2], [-1, -1, -1]]),
        "labels": torch.tensor([[-100, -100], [6, 2]]),  # what the other draws is of no account
    }
    output = model(**given)
    output.loss.backward()
    assert output.surrogate == 0
    assert not model.model.encoder.coarse.embed_positions.weight.grad.any()


@pytest.mark.parametrize("number", [None, 0])
def test_without_labels_there_is_no_loss(number):
    model = make()
    output = model(**{**BATCH, "labels": torch.full((1, 3), -100)}, num_items_in_batch=number)
    output.loss.backward()
    assert output.loss == 0
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


# The baseline in the model


def test_the_baseline_is_saved_and_loaded(tmp_path):
    model = make(baseline_rate=0.5)
    model(**BATCH)
    values = model.reward_baseline.values
    assert values[:3].lt(0).all()
    assert values[3:].eq(0).all()
    model.save_pretrained(tmp_path)
    loaded = CoarseToFineLstmForConditionalGeneration.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded.reward_baseline.values, values.to(loaded.dtype))


def test_evaluation_and_soft_steps_leave_it(tmp_path):
    model = make(baseline_rate=0.5)
    model.eval()(**BATCH)
    with torch.no_grad():
        model(**BATCH)
    model.train().soft_attention = True
    model(**BATCH)
    assert model.reward_baseline.values.eq(0).all()


def test_models_2_and_3_load_each_others_checkpoints(tmp_path):
    soft = make(attention="coarse_to_fine")
    soft.save_pretrained(tmp_path / "soft")
    load = CoarseToFineLstmForConditionalGeneration.from_pretrained
    hard, report = load(tmp_path / "soft", attention="hard", num_samples=2, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["missing_keys"]
    assert hard.reward_baseline.values.eq(0).all()
    hard.reward_baseline.values.fill_(-3.0)
    hard.save_pretrained(tmp_path / "hard")
    again, report = load(tmp_path / "hard", attention="coarse_to_fine", output_loading_info=True)
    assert not report["unexpected_keys"]
    for name, value in soft.state_dict().items():
        assert torch.equal(again.state_dict()[name], value.to(again.dtype))


TRAIN_IN_PROCESS = """
import sys
import torch
from hier_models.models.reinforce import RewardBaseline
from tests.coarse_to_fine_lstm.test_hard_attention_coarse_to_fine_lstm import batch_of, make

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
baseline = RewardBaseline(rate=1.0, steps=3)
baseline.update(torch.tensor([[-1.0, -2.0]]) if rank else torch.tensor([[-3.0, -4.0, -5.0]]))
found = [baseline.values.tolist()]
baseline.update(torch.tensor([[-7.0]]) if rank else None)  # soft attention in one of them
found.append(baseline.values.tolist())
model = make(alternate_soft=0.5, baseline_rate=0.1)
parallel = torch.nn.parallel.DistributedDataParallel(model)
torch.manual_seed(rank)  # they do not draw the same
for _ in range(8):
    parallel(**batch_of(1 + rank, 3 - rank)).loss.backward()
torch.save((found, model.reward_baseline.values.tolist()), f"{folder}/{rank}.pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_share_a_baseline(tmp_path):
    processes = [
        forks.start(TRAIN_IN_PROCESS, str(rank), str(tmp_path), cwd=Path(__file__).parents[2]) for rank in range(2)
    ]
    for process in processes:
        assert process.wait() == 0, process.stderr
    both = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert both[0] == both[1]
    assert both[0][0] == [[-2.0, -3.0, -5.0], [-7.0, -3.0, -5.0]]
    assert all(value < 0 for value in both[0][1][:3])


# The stock Trainer


@pytest.mark.parametrize(("settings", "soft_epochs"), [({"num_samples": 2}, 0), ({"alternate_soft": 0.5}, 1)])
def test_the_stock_trainer_trains_it(tmp_path, settings, soft_epochs):
    model = make(**settings, baseline_rate=0.1, reward_scale=0.3, reward_discount=0.5).float()
    rows = [{name: value[0] for name, value in BATCH.items()}] * 8
    arguments = Seq2SeqTrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=12,
        optim="sgd",
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=5.0,
        logging_steps=1,
        eval_strategy="epoch",
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )
    trainer = Seq2SeqTrainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        callbacks=[SurrogateLog(), PerplexityDecay(), SoftPretraining(soft_epochs)],
        optimizers=(optimizer_with_rates(model, arguments, {"encoder.coarse": 0.1}), None),
    )
    coarse = model.model.encoder.coarse.convolution.weight.clone()
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.5 * losses[0]
    assert all(loss > 0 for loss in losses)  # likelihoods
    surrogates = ["surrogate" in entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(surrogates) if not settings.get("alternate_soft") else 0 < sum(surrogates) < len(surrogates)
    assert not any(surrogates[: 2 * soft_epochs])
    assert not torch.equal(model.model.encoder.coarse.convolution.weight, coarse)
    assert model.reward_baseline.values[:3].lt(0).all()


def test_draws_are_made_by_the_function_that_is_tested():
    assert decoder_coarse_to_fine_lstm.draw_rows is draw_rows

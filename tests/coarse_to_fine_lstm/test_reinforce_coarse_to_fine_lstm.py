"""REINFORCE by itself: on a graph small enough to go through everything that could be drawn."""

import itertools

import pytest
import torch
from torch import nn

from hier_models.models.reinforce import (
    RewardBaseline,
    draw_rows,
    rewards_to_go,
    surrogate_loss,
)
from tests.references.reinforce import expected_loss, outcomes, probability_of


ROWS, WORDS, WIDTH = 3, 4, 2
TARGET = [2, 0, 3]


class Graph:
    """A decoder of two units: what is drawn makes the next state, and the state makes what is drawn and the word."""

    def __init__(self, draws):
        generator = torch.Generator().manual_seed(1)

        def random(*shape):
            values = torch.randn(*shape, generator=generator, dtype=torch.float64)
            return (0.9 * values).requires_grad_()

        self.draws, self.steps = draws, 3 if draws == 1 else 2  # 27, 36 and 100 outcomes
        self.content = random(ROWS, WIDTH)
        self.keys = random(WIDTH, ROWS)
        self.words = random(WIDTH, WORDS)
        self.start = random(WIDTH)
        self.parameters = [self.content, self.keys, self.words, self.start]

    def play(self, choose, batch=1):
        """`choose` is given a step and the attention, (batch, rows), and gives counts."""
        state = self.start.expand(batch, WIDTH)
        log_attention, counts, rewards = [], [], []
        for step, word in enumerate(TARGET[: self.steps]):
            log_attention.append((state @ self.keys).log_softmax(-1))
            counts.append(choose(step, log_attention[-1].exp()))
            state = torch.tanh(state + counts[-1] / self.draws @ self.content)
            rewards.append((state @ self.words).log_softmax(-1)[:, word])
        return torch.stack(log_attention, 1), torch.stack(counts, 1), torch.stack(rewards, 1)

    def outcome(self, counts):
        log_attention, _, rewards = self.play(lambda step, attention: counts[step][None])
        return -rewards.sum(), log_attention[0]

    def estimate(self, choose, baseline, batch=1, **settings):
        log_attention, counts, rewards = self.play(choose, batch)
        surrogate = surrogate_loss(
            log_attention,
            counts,
            rewards,
            baseline[: self.steps],
            torch.ones_like(rewards),
            normalizer=batch,
            **settings,
        )
        return self.gradient(surrogate - rewards.sum() / batch), log_attention.detach()

    def gradient(self, loss):
        return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, self.parameters)])

    def moments(self, baseline, **settings):
        """Mean and variance of the estimate, over everything that could be drawn."""
        found = []
        for outcome in outcomes(ROWS, self.draws, self.steps):
            given = torch.tensor(outcome, dtype=torch.float64)
            estimate, log_attention = self.estimate(
                lambda step, attention, given=given: given[step][None], baseline, **settings
            )
            found.append((probability_of(outcome, log_attention[0]), estimate))
        weights = torch.stack([probability for probability, _ in found])
        assert weights.sum() == pytest.approx(1)
        estimates = torch.stack([estimate for _, estimate in found])
        mean = weights @ estimates
        return mean, weights @ (estimates - mean) ** 2


NONE = torch.zeros(3, dtype=torch.float64)
SOME = torch.tensor([-1.5, -0.7, -2.1], dtype=torch.float64)


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("baseline", [NONE, SOME], ids=["no baseline", "baseline"])
def test_on_average_it_is_the_gradient_of_the_expected_likelihood(draws, baseline):
    graph = Graph(draws)
    exact = graph.gradient(expected_loss(graph.outcome, ROWS, draws, graph.steps))
    mean, variance = graph.moments(baseline)
    torch.testing.assert_close(mean, exact, atol=1e-10, rtol=1e-10)
    assert variance.sum() > 0.1
    # And so it is no mere gradient of the likelihood along what was drawn.
    biased, _ = graph.moments(baseline, scale=0.0)
    assert (biased - exact).abs().max() > 0.02


@pytest.mark.parametrize("draws", [1, 2, 3])
@pytest.mark.parametrize("baseline", [NONE, SOME], ids=["no baseline", "baseline"])
def test_its_draws_have_that_average(draws, baseline):
    graph = Graph(draws)
    torch.manual_seed(0)
    exact = graph.gradient(expected_loss(graph.outcome, ROWS, draws, graph.steps))
    _, variance = graph.moments(baseline)
    found, _ = graph.estimate(lambda step, p: draw_rows(p, draws), baseline, batch=20_000)
    errors = (variance / 20_000).sqrt()
    assert ((found - exact).abs() / errors).max() < 4
    assert errors.max() < 0.02  # of gradients of this size:
    assert exact.abs().max() > 0.2


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_a_baseline_lowers_the_variance(draws):
    graph = Graph(draws)
    torch.manual_seed(0)
    baseline = RewardBaseline(rate=0.1, steps=3).double()
    for _ in range(40):
        _, _, rewards = graph.play(lambda step, p: draw_rows(p, draws), batch=20)
        baseline.update(rewards.detach())
    _, without = graph.moments(NONE)
    _, with_it = graph.moments(baseline(3))
    assert with_it.sum() < 0.7 * without.sum()


def test_a_discount_looks_less_far_and_scale_is_a_factor():
    graph = Graph(1)
    whole, likelihood = graph.moments(SOME)[0], graph.moments(SOME, scale=0.0)[0]
    scaled = graph.moments(SOME, scale=0.3)[0]
    torch.testing.assert_close(scaled, likelihood + 0.3 * (whole - likelihood))
    _, far = graph.moments(NONE)
    _, near = graph.moments(NONE, discount=0.5)
    assert near.sum() < far.sum()


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 100])
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_rewards_to_go(length, discount):
    torch.manual_seed(0)
    rewards = torch.randn(2, length, dtype=torch.float64)
    expected = torch.zeros_like(rewards)
    for step, later in itertools.product(range(length), repeat=2):
        if later >= step:
            expected[:, step] += discount ** (later - step) * rewards[:, later]
    torch.testing.assert_close(rewards_to_go(rewards, discount), expected)


def test_nothing_is_to_go_without_target():
    assert rewards_to_go(torch.zeros(2, 0), 0.5).shape == (2, 0)


def test_padding_has_no_part():
    torch.manual_seed(0)
    log_attention = torch.randn(2, 5, 4).log_softmax(-1).requires_grad_()
    counts = draw_rows(log_attention.exp(), 2)
    rewards, baseline = torch.randn(2, 5), torch.randn(5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    rewards[1, 3:] = float("nan")
    found = surrogate_loss(log_attention, counts, rewards, baseline, mask, 0.5, 0.3, normalizer=8)
    alone = [
        surrogate_loss(
            log_attention[i : i + 1, :n], counts[i : i + 1, :n], rewards[i : i + 1, :n], baseline[:n], mask[i, :n], 0.5
        )
        for i, n in ((0, 5), (1, 3))
    ]
    torch.testing.assert_close(found, 0.3 * sum(alone) / 8)
    (gradient,) = torch.autograd.grad(found, log_attention)
    assert gradient[1, 3:].eq(0).all()
    assert gradient.isfinite().all()


def test_a_draw_answers_for_what_follows_a_gap():
    log_attention = torch.full((1, 3, 2), 0.5).log().requires_grad_()
    counts = torch.tensor([[[1.0, 0.0]] * 3])
    mask = torch.tensor([[0, 0, 1]])
    surrogate_loss(log_attention, counts, torch.full((1, 3), -2.0), torch.zeros(3), mask).backward()
    torch.testing.assert_close(log_attention.grad[0, :, 0], torch.full((3,), 2.0))


def test_rows_that_cannot_be_drawn_have_no_part():
    scores = torch.tensor([[[0.3, -torch.inf, 0.1]]], requires_grad=True)
    log_attention = scores.log_softmax(-1)
    counts = draw_rows(log_attention.exp(), 3)
    loss = surrogate_loss(log_attention, counts, torch.tensor([[-1.0]]), torch.zeros(1), torch.ones(1, 1))
    loss.backward()
    assert loss.isfinite()
    assert scores.grad.isfinite().all()
    assert counts[0, 0, 1] == 0


# Drawing


def test_counts_are_multinomial():
    torch.manual_seed(0)
    probabilities = torch.tensor([0.0, 0.2, 0.5, 0.3])
    counts = draw_rows(probabilities.expand(20_000, 4), 3)
    assert counts.dtype == torch.float32
    assert counts.sum(-1).eq(3).all()
    assert counts[:, 0].eq(0).all()
    torch.testing.assert_close(counts.mean(0), 3 * probabilities, atol=0.03, rtol=0)
    variance = 3 * probabilities * (1 - probabilities)
    torch.testing.assert_close(counts.var(0), variance, atol=0.03, rtol=0)


def test_more_draws_than_rows():
    assert draw_rows(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), 5).sum(-1).tolist() == [5, 5]


def test_a_document_without_rows_draws_none():
    probabilities = torch.tensor([[0.0, 0.0], [0.0, 1.0]], requires_grad=True)
    counts = draw_rows(probabilities)
    assert counts.tolist() == [[0, 0], [0, 1]]
    assert not counts.requires_grad
    assert draw_rows(torch.zeros(2, 3, 0)).shape == (2, 3, 0)
    assert draw_rows(torch.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    counts = draw_rows(torch.tensor([[[0.25, 0.75]]], dtype=dtype), 2)
    assert counts.dtype == dtype
    assert counts.sum() == 2


# The baseline


def test_the_baseline_moves_to_the_mean_of_a_step():
    baseline = RewardBaseline(rate=0.1, steps=4)
    rewards = torch.tensor([[-1.0, -2.0, -9.0], [-3.0, float("nan"), -9.0]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    baseline.update(rewards, mask)
    torch.testing.assert_close(baseline.values, torch.tensor([-0.2, -0.2, 0.0, 0.0]))
    baseline.update(rewards, mask)
    torch.testing.assert_close(baseline(2), torch.tensor([-0.38, -0.38]))


def test_long_targets_share_the_last_value():
    baseline = RewardBaseline(rate=1.0, steps=2)
    baseline.update(torch.tensor([[-1.0, -2.0, -4.0, -6.0]]))
    assert baseline.values.tolist() == [-1.0, -4.0]
    assert baseline(5).tolist() == [-1.0, -4.0, -4.0, -4.0, -4.0]
    assert baseline(0).shape == (0,)


def test_what_was_asked_for_before_does_not_change():
    baseline = RewardBaseline(rate=1.0, steps=2)
    before = baseline(2)
    baseline.update(torch.tensor([[-1.0, -2.0]]))
    assert before.tolist() == [0.0, 0.0]


def test_without_rewards_it_stays():
    baseline = RewardBaseline(rate=1.0, steps=2)
    baseline.update(torch.tensor([[-1.0, -2.0]]))
    baseline.update()
    assert baseline.values.tolist() == [-1.0, -2.0]


def test_it_is_saved():
    assert list(RewardBaseline(0.1, 3).state_dict()) == ["values"]
    module = nn.Sequential(RewardBaseline(0.5, 3))
    assert "rate=0.5, steps=3" in repr(module)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_wrong_rates_are_refused(rate):
    with pytest.raises(ValueError, match="rate must be from 0 to 1, got"):
        RewardBaseline(rate)


def test_wrong_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        RewardBaseline(0.1, 0)

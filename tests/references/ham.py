"""HAM derived again from the paper, in plain loops over levels, keys, words and steps.

Sources: "Hierarchical Attention: What Really Counts in Various NLP Tasks", section 3; for the GRU body Wang et al.,
"Chinese Poetry Generation with Planning based Neural Network" (2016), section 4; the gates of a GRU as torch has them.

It shares no code with hier_models or Transformers. One source at a time, without padding, without batch axis. It takes
the weights as a dict of tensors, so that autograd gives its gradients too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch


Weights = dict[str, torch.Tensor]
Vectors = list[torch.Tensor]
Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def exp_shares(scores: Vectors) -> Vectors:
    """The softmax."""
    highest = max(score.item() for score in scores)
    exponents = [torch.exp(score - highest) for score in scores]
    total = sum(exponents)
    return [exponent / total for exponent in exponents]


def sigmoid(vector: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-vector))


def tanh(vector: torch.Tensor) -> torch.Tensor:
    return 2 * sigmoid(2 * vector) - 1


def dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return sum(a * b for a, b in zip(one, other, strict=True))


def scaled_dot_product(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Section 2.1."""
    return dot(query, key) / math.sqrt(len(key))


def bilinear(weight: torch.Tensor) -> Score:
    return lambda query, key: sum(query[i] * dot(weight[i], key) for i in range(len(query)))


def additive(query_weight: torch.Tensor, key_weight: torch.Tensor, vector: torch.Tensor) -> Score:
    """Bahdanau et al.: v · tanh(Wq + Uk)."""
    return lambda query, key: dot(vector, tanh(query @ query_weight + key @ key_weight))


def attention(query: torch.Tensor, keys: Vectors, values: Vectors, score: Score) -> tuple[torch.Tensor, Vectors]:
    """Section 2.1: the weighted sum of values."""
    shares = exp_shares([score(query, key) for key in keys])
    return sum(share * value for share, value in zip(shares, values, strict=True)), shares


def mix(levels: Vectors, logits: torch.Tensor) -> torch.Tensor:
    """Section 3.1: the sum of levels, weighed by the softmax of trainable numbers."""
    return sum(share * level for share, level in zip(exp_shares(list(logits)), levels, strict=True))


def ham_v(
    query: torch.Tensor, keys: Vectors, values: Vectors, logits: torch.Tensor, score: Score = scaled_dot_product
) -> tuple[torch.Tensor, list[Vectors]]:
    """Section 3.1: each level's result is the next one's query. Returns the weights of each level too."""
    results, shares = [], []
    for _ in logits:
        query, shares_of_level = attention(query, keys, values, score)
        results.append(query)
        shares.append(shares_of_level)
    return mix(results, logits), shares


def ham_s(sequence: Vectors, logits: torch.Tensor, score: Score = scaled_dot_product, keys: str = "level") -> Vectors:
    """Section 3.2: self-attention, so many times; of the last result, or of the input always."""
    levels, states = [], sequence
    for _ in logits:
        attended = sequence if keys == "input" else states
        states = [attention(query, attended, attended, score)[0] for query in states]
        levels.append(states)
    return [mix([level[i] for level in levels], logits) for i in range(len(sequence))]


def gru_cell(weights: Weights, x: torch.Tensor, h: torch.Tensor, suffix: str = "") -> torch.Tensor:
    """A GRU; the weights have the gates in the order reset, update, new."""
    of_input = weights[f"weight_ih{suffix}"] @ x + weights[f"bias_ih{suffix}"]
    of_state = weights[f"weight_hh{suffix}"] @ h + weights[f"bias_hh{suffix}"]
    size = len(h)
    reset = sigmoid(of_input[:size] + of_state[:size])
    update = sigmoid(of_input[size : 2 * size] + of_state[size : 2 * size])
    new = tanh(of_input[2 * size :] + reset * of_state[2 * size :])
    return (1 - update) * new + update * h


def below(weights: Weights, name: str) -> Weights:
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}


@dataclass(frozen=True)
class Source:
    """What a line is written from: its keyword, which may be missing, and the words before it."""

    keyword: list[int]
    words: list[int]


def read(weights: Weights, layers: int, ids: list[int]) -> Vectors:
    """A bidirectional GRU: for each word the states forwards and backwards, one behind the other."""
    states = [weights["encoder.embed_tokens.weight"][i] for i in ids]
    for layer in range(layers):
        both: list[Vectors] = []
        for direction in ("forward", "backward"):
            cell = below(weights, f"encoder.layers.{layer}.{direction}_gru")
            h = torch.zeros_like(cell["weight_hh_l0"][0])
            ordered, found = states if direction == "forward" else states[::-1], []
            for x in ordered:
                h = gru_cell(cell, x, h, "_l0")
                found.append(h)
            both.append(found if direction == "forward" else found[::-1])
        states = [torch.cat(pair) for pair in zip(*both, strict=True)]
    return states


def encode(weights: Weights, layers: int, source: Source) -> Vectors:
    """Wang et al., section 4.1: the keyword's last states of both directions in front of those of the words."""
    states = read(weights, layers, source.words) if source.words else []
    if source.keyword:
        of_keyword = read(weights, layers, source.keyword)
        size = len(of_keyword[0]) // 2
        states = [torch.cat([of_keyword[-1][:size], of_keyword[0][size:]]), *states]
    return [weights["encoder.memory.weight"] @ state + weights["encoder.memory.bias"] for state in states]


def decode(
    weights: Weights, layers: int, memory: Vectors, ids: list[int], logits: torch.Tensor, score: Score
) -> Vectors:
    """Wang et al., section 4.2, with HAM-V: s_t = f(s_{t-1}, c_{t-1}, y_{t-1}). Returns the scores of all words."""
    size = len(memory[0])
    mean = sum(memory) / len(memory)
    first = tanh(weights["decoder.first_state.weight"] @ mean + weights["decoder.first_state.bias"])
    hidden = [first[layer * size : (layer + 1) * size] for layer in range(layers)]
    context = torch.zeros_like(mean)
    scores = []
    for i in ids:
        word = weights["decoder.embed_tokens.weight"][i]
        x = torch.cat([word, context])
        for layer in range(layers):
            hidden[layer] = x = gru_cell(below(weights, f"decoder.step.cells.{layer}"), x, hidden[layer])
        context, _ = ham_v(x, memory, memory, logits, score)
        read_out = weights["decoder.readout.weight"] @ torch.cat([x, context, word]) + weights["decoder.readout.bias"]
        scores.append(weights["lm_head"] @ tanh(read_out))
    return scores

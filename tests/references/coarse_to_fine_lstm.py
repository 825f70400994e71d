"""The Coarse-to-Fine LSTM derived again from the thesis, in plain loops over rows, words, filters and steps.

Source: Jeffrey Ling, "Coarse-to-Fine Attention Models for Document Summarization", chapters 3 and 4.

It shares no code with hier_models or Transformers. One document at a time, without padding, without batch axis. It
takes the weights as a dict of tensors, so that autograd gives its gradients too.
"""

from dataclasses import dataclass, field

import torch


Weights = dict[str, torch.Tensor]
Vectors = list[torch.Tensor]


@dataclass(frozen=True)
class Document:
    """A source: the words of each row, and how many places of padding behind them are attended to."""

    rows: list[list[int]]
    padding: list[int] = field(default_factory=list)

    def padding_of(self, row: int) -> int:
        return self.padding[row] if self.padding else 0


@dataclass(frozen=True)
class Step:
    """What one step of the decoder made: scores of all words, and attention to the places of each row and to rows."""

    context: torch.Tensor
    words: list[list[torch.Tensor]]
    rows: list[torch.Tensor]


def sigmoid(vector: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-vector))


def tanh(vector: torch.Tensor) -> torch.Tensor:
    return 2 * sigmoid(2 * vector) - 1


def softmax(scores: Vectors) -> Vectors:
    highest = max(score.item() for score in scores)
    exponents = [torch.exp(score - highest) for score in scores]
    total = sum(exponents)
    return [exponent / total for exponent in exponents]


def encoder_cell(
    weights: Weights, layer: int, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Equations 4.1 to 4.5. The weights have the gates in the order input, forget, new, output, and two biases."""
    name = f"model.encoder.layers.{layer}.lstm"
    gates = weights[f"{name}.weight_ih_l0"] @ x + weights[f"{name}.bias_ih_l0"]
    gates = gates + weights[f"{name}.weight_hh_l0"] @ h + weights[f"{name}.bias_hh_l0"]
    size = len(h)
    i, f, g, o = (gates[k * size : (k + 1) * size] for k in range(4))
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def read_row(weights: Weights, vectors: Vectors, layers: int) -> Vectors:
    """Equation 4.12: the states of the top layer."""
    for layer in range(layers):
        size = weights[f"model.encoder.layers.{layer}.lstm.weight_hh_l0"].shape[1]
        h = c = torch.zeros(size, dtype=torch.float64)
        states = []
        for x in vectors:
            h, c = encoder_cell(weights, layer, x, h, c)
            states.append(h)
        vectors = states
    return vectors


def convolve(weights: Weights, vectors: Vectors) -> torch.Tensor:
    """Equation 4.14; a row shorter than the kernel is padded with zeros."""
    kernel = weights["model.encoder.coarse.convolution.weight"]  # (filters, embedding_size, width)
    bias = weights["model.encoder.coarse.convolution.bias"]
    width = kernel.shape[2]
    vectors = vectors + [torch.zeros_like(vectors[0])] * max(0, width - len(vectors))
    features = []
    for filter_number in range(len(kernel)):
        highest = None
        for j in range(len(vectors) - width + 1):
            u = bias[filter_number]
            for offset in range(width):
                u = u + (kernel[filter_number, :, offset] * vectors[j + offset]).sum()
            value = tanh(u)
            highest = value if highest is None or value > highest else highest
        features.append(highest)
    return torch.stack(features)


def represent_row(weights: Weights, document: Document, row: int, vectors: Vectors) -> torch.Tensor:
    """The sentence representation, with the embedding of its position if there is one."""
    if "model.encoder.coarse.convolution.weight" in weights:
        size = weights["model.encoder.coarse.convolution.weight"].shape[1]
        padding = [torch.zeros(size, dtype=torch.float64)] * document.padding_of(row)
        representation = convolve(weights, vectors + padding)
    else:
        table = weights["model.encoder.coarse.embed_tokens.weight"]
        representation = torch.zeros_like(table[0])
        for word in document.rows[row]:
            representation = representation + table[word]  # equation 4.13
    positions = weights.get("model.encoder.coarse.embed_positions.weight")
    return representation if positions is None else torch.cat([representation, positions[row]])


class Encoded:
    """States of each row's words, padding behind them, and the representation of each row that is not empty."""

    def __init__(self, weights: Weights, document: Document, attention: str, layers: int):
        table = weights["model.encoder.embed_tokens.weight"]
        vectors = [[table[word] for word in row] for row in document.rows]
        if attention == "standard":  # one LSTM over all rows
            states = iter(read_row(weights, [vector for row in vectors for vector in row], layers))
            self.states = [[next(states) for _ in row] for row in vectors]
        else:
            self.states = [read_row(weights, row, layers) for row in vectors]
        self.representations: dict[int, torch.Tensor] = {}
        if attention in ("coarse_to_fine", "hard"):
            for i, row in enumerate(vectors):
                if row or document.padding_of(i):
                    self.representations[i] = represent_row(weights, document, i, row)
        size = weights[f"model.encoder.layers.{layers - 1}.lstm.weight_hh_l0"].shape[1]
        for i in range(len(self.states)):
            self.states[i] = self.states[i] + [torch.zeros(size, dtype=torch.float64)] * document.padding_of(i)


def attend(
    weights: Weights,
    encoded: Encoded,
    h: torch.Tensor,
    attention: str,
    counts: list[float] | None,
    best: int,
    noise: list[float] | None = None,
) -> tuple[torch.Tensor, list[list[torch.Tensor]], list[torch.Tensor]]:
    """Sections 4.2 to 4.4: the mean of states, the weights of the words of each row, and attention to rows."""
    matrix = weights["model.decoder.step.attention.word_query.weight"]
    zero = torch.zeros((), dtype=torch.float64)
    scores = [[(state * (matrix @ h)).sum() for state in row] for row in encoded.states]  # equation 4.8
    if attention in ("standard", "flat"):
        alpha = iter(softmax([score for row in scores for score in row]))  # equation 4.9
        words = [[next(alpha) for _ in row] for row in scores]
        rows = [sum(row, zero) for row in words]
    else:
        coarse = weights["model.encoder.row_keys.weight"]
        numbers = sorted(encoded.representations)
        row_scores = [((coarse @ encoded.representations[i]) * h).sum() for i in numbers]
        found = dict(zip(numbers, softmax(row_scores), strict=True))
        rows = [found.get(i, zero) for i in range(len(scores))]
        used = list(rows)
        if attention == "hard" and counts is not None:  # section 4.4.1
            used = [torch.tensor(count / sum(counts), dtype=torch.float64) for count in counts]
        elif attention == "hard":
            compared = dict(zip(numbers, row_scores, strict=True))
            if noise is not None:  # of Gumbel's distribution: drawn without replacement
                compared = {i: score + noise[i] for i, score in compared.items()}
            chosen = sorted(numbers, key=lambda i: compared[i].item(), reverse=True)[:best]
            total = sum(rows[i] for i in chosen)
            used = [rows[i] / total if i in chosen else zero for i in range(len(scores))]
        words = [[used[i] * weight for weight in softmax(row)] if row else [] for i, row in enumerate(scores)]
    mean = torch.zeros_like(h)
    for row_weights, states in zip(words, encoded.states, strict=True):
        for weight, state in zip(row_weights, states, strict=True):
            mean = mean + weight * state  # equation 4.10
    return mean, words, rows


def decode(
    weights: Weights,
    encoded: Encoded,
    target: list[int],
    *,
    layers: int,
    attention: str,
    counts: list[list[float]] | None = None,
    best: int = 1,
    noise: list[list[float]] | None = None,
) -> list[Step]:
    """Sections 4.1 and 4.2, with input feeding. The weights have the gates in the order input, forget, output, new."""
    context_matrix = weights["model.decoder.step.context.weight"]
    size = len(context_matrix)
    zeros = torch.zeros(size, dtype=torch.float64)
    context, h, c = zeros, [zeros] * layers, [zeros] * layers
    steps = []
    for t, word in enumerate(target):
        below = context
        for layer in range(layers):
            gates = weights[f"model.decoder.step.gates.{layer}.weight"] @ torch.cat([below, h[layer]])
            if layer == 0:
                vector = weights["model.decoder.embed_tokens.weight"][word]
                gates = gates + weights["model.decoder.word_gates.weight"] @ vector
                gates = gates + weights["model.decoder.word_gates.bias"]
            else:
                gates = gates + weights[f"model.decoder.step.gates.{layer}.bias"]
            i, f, o, g = (gates[k * size : (k + 1) * size] for k in range(4))
            cell = sigmoid(f) * c[layer] + sigmoid(i) * tanh(g)
            below = sigmoid(o) * tanh(cell)
            h = [*h[:layer], below, *h[layer + 1 :]]
            c = [*c[:layer], cell, *c[layer + 1 :]]
        drawn, noisy = (None if given is None else given[t] for given in (counts, noise))
        mean, words, rows = attend(weights, encoded, below, attention, drawn, best, noisy)
        context = tanh(context_matrix @ torch.cat([mean, below]))  # equation 4.11
        steps.append(Step(context, words, rows))
    return steps


def predict(weights: Weights, steps: list[Step]) -> list[Vectors]:
    """Equation 4.7: the log-probability of each token at each step."""
    found = []
    for step in steps:
        scores = weights["lm_head.weight"] @ step.context + weights["lm_head.bias"]
        found.append([torch.log(probability) for probability in softmax(list(scores))])
    return found


def surrogate(
    steps: list[Step],
    counts: list[list[float]],
    rewards: list[float],
    baseline: list[float],
    discount: float,
    left_out: list[dict[int, float]] | None = None,
) -> torch.Tensor:
    """Theorem 2 and equation 4.15: what has the gradient of REINFORCE, for one document.

    `left_out` has, for each step and row that was drawn, the reward without one draw of it: the step's own baseline.
    """
    total = torch.zeros((), dtype=torch.float64)
    for t, step in enumerate(steps):
        influenced = sum(discount ** (s - t) * (rewards[s] - baseline[s]) for s in range(t, len(steps)))
        for i, count in enumerate(counts[t]):
            if count:
                own = influenced if left_out is None else influenced + baseline[t] - left_out[t][i]
                total = total - own * count * torch.log(step.rows[i])
    return total


def rewards_left_out(
    weights: Weights, encoded: Encoded, target: list[int], gold: list[int], counts: list[list[float]], layers: int
) -> list[dict[int, float]]:
    """For each step and row that was drawn at it: log p of the gold token, had one draw of the row been left out."""
    found: list[dict[int, float]] = []
    for t in range(len(gold)):
        found.append({})
        for i, count in enumerate(counts[t]):
            if count:
                without = [*counts[:t], [other - (j == i) for j, other in enumerate(counts[t])]]
                steps = decode(weights, encoded, target[: t + 1], layers=layers, attention="hard", counts=without)
                found[t][i] = predict(weights, steps)[t][gold[t]].item()
    return found

"""The Highlight-Transformer derived again from the papers, in plain loops over positions, heads and phrases.

Source: Liu et al., "Highlight-Transformer", section 3; for what it takes over, Vaswani et al. 2017 (attention,
sinusoidal positions), Gehrmann, Deng and Rush 2018 and See, Liu and Manning 2017 (copying), Lewis et al. 2020 (BART:
norms after each step and after the embedding, learned positions with an offset of two).

It shares no code with hier_models or Transformers. One document at a time, without padding, without batch axis. It
takes the weights as a dict of tensors, so that autograd gives its gradients too.
"""

import math
from dataclasses import dataclass

import torch


Weights = dict[str, torch.Tensor]
Rows = list[torch.Tensor]  # one vector for each position
Phrases = list[tuple[int, int, float]]  # first token, the one after the last, importance value


@dataclass(frozen=True)
class Body:
    """What differs between the paper's body and BART's."""

    normalize_before: bool
    sinusoidal: bool
    scale_embedding: bool
    activation: str


@dataclass(frozen=True)
class Highlighting:
    """What is highlighted, where and how."""

    phrases: Phrases
    how: str
    heads: int
    layers: list[int]
    brightness: float


def linear(weights: Weights, name: str, row: torch.Tensor) -> torch.Tensor:
    return weights[f"{name}.weight"] @ row + weights[f"{name}.bias"]


def layer_norm(weights: Weights, name: str, row: torch.Tensor) -> torch.Tensor:
    mean = row.sum() / len(row)
    variance = ((row - mean) ** 2).sum() / len(row)
    return (row - mean) / torch.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def activate(name: str, row: torch.Tensor) -> torch.Tensor:
    if name == "gelu":
        return row * 0.5 * (1 + torch.erf(row / math.sqrt(2)))
    return torch.stack([value if value > 0 else 0 * value for value in row])


def softmax(scores: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    highest = max(scores.values())
    exponents = {j: torch.exp(score - highest) for j, score in scores.items()}
    total = sum(exponents.values())
    return {j: exponent / total for j, exponent in exponents.items()}


def highlighting_matrix(length: int, phrases: Phrases) -> list[list[float]]:
    """Section 3.1: H."""
    matrix = [[0.0] * length for _ in range(length)]
    for first, end, value in phrases:
        for i in range(first, end):
            for j in range(first, end):
                matrix[i][j] += value
    return matrix


def highlighted(scores: dict[int, torch.Tensor], row: list[float], how: str) -> dict[int, torch.Tensor]:
    """The weights of a highlighted head: equation 2, equation 4, or the softmax of equation 4a alone."""
    if how == "weighted":
        return softmax({j: score + row[j] for j, score in scores.items()})
    plain = softmax(scores)
    nonzero = {j: scores[j].new_tensor(value) for j, value in enumerate(row) if value != 0}
    if not nonzero:
        return plain
    of_matrix = softmax(nonzero)
    if how == "only":
        return of_matrix
    total = {j: weight + of_matrix.get(j, 0) for j, weight in plain.items()}
    norm = sum(abs(value) for value in total.values())
    return {j: value / norm for j, value in total.items()}


def attention(
    weights: Weights,
    name: str,
    queries: Rows,
    keys: Rows,
    heads: int,
    causal: bool = False,
    highlighting: Highlighting | None = None,
) -> tuple[Rows, list[list[dict[int, torch.Tensor]]]]:
    """Equations 1 and 5: the output, and the weights of each position and head."""
    projected_queries = [linear(weights, f"{name}.q_proj", row) for row in queries]
    projected_keys = [linear(weights, f"{name}.k_proj", row) for row in keys]
    projected_values = [linear(weights, f"{name}.v_proj", row) for row in keys]
    size = len(projected_queries[0]) // heads
    matrix = None
    if highlighting is not None:
        plain_matrix = highlighting_matrix(len(keys), highlighting.phrases)
        matrix = [[highlighting.brightness * value for value in row] for row in plain_matrix]

    outputs, all_weights = [], []
    for i, query in enumerate(projected_queries):
        seen = [j for j in range(len(keys)) if not causal or j <= i]
        parts, by_head = [], []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = {j: (query[part] * projected_keys[j][part]).sum() / math.sqrt(size) for j in seen}
            if highlighting is not None and matrix is not None and head < highlighting.heads:
                weight = highlighted(scores, matrix[i], highlighting.how)
            else:
                weight = softmax(scores)
            parts.append(sum(weight[j] * projected_values[j][part] for j in weight))
            by_head.append(weight)
        outputs.append(linear(weights, f"{name}.out_proj", torch.cat(parts)))
        all_weights.append(by_head)
    return outputs, all_weights


def before(weights: Weights, body: Body, name: str, rows: Rows) -> Rows:
    return [layer_norm(weights, name, row) for row in rows] if body.normalize_before else rows


def after(weights: Weights, body: Body, name: str, rows: Rows, updates: Rows) -> Rows:
    rows = [row + update for row, update in zip(rows, updates, strict=True)]
    return rows if body.normalize_before else [layer_norm(weights, name, row) for row in rows]


def feed_forward(weights: Weights, body: Body, name: str, rows: Rows) -> Rows:
    updates = []
    for row in before(weights, body, f"{name}.final_layer_norm", rows):
        updates.append(linear(weights, f"{name}.fc2", activate(body.activation, linear(weights, f"{name}.fc1", row))))
    return after(weights, body, f"{name}.final_layer_norm", rows, updates)


def sinusoid(position: int, width: int) -> torch.Tensor:
    """Sine at even places, cosine at odd ones, with wavelengths that grow with the place."""
    values = []
    for place in range(width):
        angle = position / 10000 ** ((place - place % 2) / width)
        values.append(math.cos(angle) if place % 2 else math.sin(angle))
    return torch.tensor(values, dtype=torch.float64)


def embed(weights: Weights, body: Body, side: str, ids: list[int]) -> Rows:
    rows = []
    for position, token in enumerate(ids):
        row = weights["shared.weight"][token]
        if body.scale_embedding:
            row = row * math.sqrt(len(row))
        if body.sinusoidal:
            row = row + sinusoid(position, len(row))
        else:
            row = row + weights[f"{side}.embed_positions.weight"][position + 2]
        rows.append(row if body.normalize_before else layer_norm(weights, f"{side}.layernorm_embedding", row))
    return rows


def encode(
    weights: Weights, body: Body, ids: list[int], *, layers: int, heads: int, highlighting: Highlighting
) -> Rows:
    """Section 3: token states."""
    rows = embed(weights, body, "encoder", ids)
    for i in range(layers):
        name = f"encoder.layers.{i}"
        inputs = before(weights, body, f"{name}.self_attn_layer_norm", rows)
        here = highlighting if i in highlighting.layers else None
        attended, _ = attention(weights, f"{name}.self_attn", inputs, inputs, heads, highlighting=here)
        rows = after(weights, body, f"{name}.self_attn_layer_norm", rows, attended)
        rows = feed_forward(weights, body, name, rows)
    return before(weights, body, "encoder.layer_norm", rows)


def decode(
    weights: Weights, body: Body, ids: list[int], tokens: Rows, *, layers: int, heads: int
) -> tuple[Rows, list[list[dict[int, torch.Tensor]]]]:
    """States, and the weights of the last layer's attention over the source, by position and head."""
    rows = embed(weights, body, "decoder", ids)
    to_source = []
    for i in range(layers):
        name = f"decoder.layers.{i}"
        inputs = before(weights, body, f"{name}.self_attn_layer_norm", rows)
        attended, _ = attention(weights, f"{name}.self_attn", inputs, inputs, heads, causal=True)
        rows = after(weights, body, f"{name}.self_attn_layer_norm", rows, attended)
        inputs = before(weights, body, f"{name}.encoder_attn_layer_norm", rows)
        attended, to_source = attention(weights, f"{name}.encoder_attn", inputs, tokens, heads)
        rows = after(weights, body, f"{name}.encoder_attn_layer_norm", rows, attended)
        rows = feed_forward(weights, body, name, rows)
    return before(weights, body, "decoder.layer_norm", rows), to_source


def predict(
    head: torch.Tensor,
    gate: tuple[torch.Tensor, torch.Tensor] | None,
    row: torch.Tensor,
    to_source: dict[int, torch.Tensor],
    source: list[int],
    special: tuple[int, ...] = (),
) -> torch.Tensor:
    """Probability of each token of the vocabulary: generated, or copied from the source without its special tokens."""
    scores = {token: (vector * row).sum() for token, vector in enumerate(head)}
    probabilities = list(softmax(scores).values())
    if gate is not None:
        weight, bias = gate
        copying = 1 / (1 + torch.exp(-((weight * row).sum() + bias)))
        probabilities = [(1 - copying) * probability for probability in probabilities]
        words = {position: token for position, token in enumerate(source) if token not in special}
        attended = sum(to_source[position] for position in words)
        for position, token in words.items():
            probabilities[token] = probabilities[token] + copying * to_source[position] / attended
    return torch.stack(probabilities)

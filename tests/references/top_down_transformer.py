"""The Top-Down Transformer derived again from the paper, in plain loops over positions, heads and segments.

Source: Pang et al., "Long Document Summarization with Top-down and Bottom-up Inference", section 2, appendices B.1 and
C, and figure 1; for what it takes over, Vaswani et al. 2017 (attention) and Lewis et al. 2020 (BART: post-layer-norm,
GELU, learned positions with an offset of two, layer norm after the embedding).

It shares no code with hier_models or Transformers. One document at a time, without padding, without batch axis. It
takes the weights as a dict of tensors, so that autograd gives its gradients too.
"""

import math

import torch


Weights = dict[str, torch.Tensor]
Rows = list[torch.Tensor]  # one vector for each position


def linear(weights: Weights, name: str, row: torch.Tensor) -> torch.Tensor:
    return weights[f"{name}.weight"] @ row + weights[f"{name}.bias"]


def layer_norm(weights: Weights, name: str, row: torch.Tensor) -> torch.Tensor:
    mean = row.sum() / len(row)
    variance = ((row - mean) ** 2).sum() / len(row)
    return (row - mean) / torch.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(row: torch.Tensor) -> torch.Tensor:
    return row * 0.5 * (1 + torch.erf(row / math.sqrt(2)))


def attention(
    weights: Weights, name: str, queries: Rows, keys: Rows, heads: int, window: int | None = None, causal: bool = False
) -> Rows:
    """Multi-head scaled dot-product attention; with a window, of each position to the `window / 2` on each side."""
    projected_queries = [linear(weights, f"{name}.q_proj", row) for row in queries]
    projected_keys = [linear(weights, f"{name}.k_proj", row) for row in keys]
    projected_values = [linear(weights, f"{name}.v_proj", row) for row in keys]
    size = len(projected_queries[0]) // heads

    outputs = []
    for i, query in enumerate(projected_queries):
        seen = [
            j
            for j in range(len(keys))
            if (window is None or i - window // 2 <= j <= i + window // 2) and (not causal or j <= i)
        ]
        parts = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = {j: (query[part] * projected_keys[j][part]).sum() / math.sqrt(size) for j in seen}
            highest = max(scores.values())
            exponents = {j: torch.exp(scores[j] - highest) for j in seen}
            total = sum(exponents.values())
            parts.append(sum(exponents[j] / total * projected_values[j][part] for j in seen))
        outputs.append(linear(weights, f"{name}.out_proj", torch.cat(parts)))
    return outputs


def add_and_norm(weights: Weights, name: str, rows: Rows, updates: Rows) -> Rows:
    return [layer_norm(weights, name, row + update) for row, update in zip(rows, updates, strict=True)]


def feed_forward(weights: Weights, name: str, rows: Rows) -> Rows:
    updates = [linear(weights, f"{name}.fc2", gelu(linear(weights, f"{name}.fc1", row))) for row in rows]
    return add_and_norm(weights, f"{name}.final_layer_norm", rows, updates)


def self_attention(weights: Weights, name: str, rows: Rows, heads: int, window: int | None = None) -> Rows:
    attended = attention(weights, f"{name}.self_attn", rows, rows, heads, window)
    return add_and_norm(weights, f"{name}.self_attn_layer_norm", rows, attended)


def embed(weights: Weights, side: str, ids: list[int]) -> Rows:
    rows = []
    for position, token in enumerate(ids):
        row = weights["shared.weight"][token] + weights[f"{side}.embed_positions.weight"][position + 2]
        rows.append(layer_norm(weights, f"{side}.layernorm_embedding", row))
    return rows


def windows(length: int, kernel: int, stride: int) -> list[list[int]]:
    """Which units each segment has: windows from the first unit on, until one reaches the last."""
    found = [list(range(min(kernel, length)))]
    while found[-1][-1] < length - 1:
        start = len(found) * stride
        found.append(list(range(start, min(start + kernel, length))))
    return found


def pool(rows: Rows, importance: list[float], kernel: int, stride: int) -> tuple[Rows, list[float]]:
    """Equations 2 and 3: the segments, and how important each is; by average where nothing is important."""
    segments, importances = [], []
    for window in windows(len(rows), kernel, stride):
        total = sum(importance[i] for i in window)
        weight = {i: importance[i] / total if total else 1 / len(window) for i in window}
        segments.append(sum(weight[i] * rows[i] for i in window))
        importances.append(total / len(window))
    return segments, importances


def top_down_layer(
    weights: Weights, name: str, rows: Rows, above: Rows, heads: int, update: str, stride: int, window: int | None
) -> Rows:
    """Section 2.2: self-attention, the update from the segments above (equation 1, or appendix C), feed-forward."""
    rows = self_attention(weights, name, rows, heads, window)
    if update == "cross_attention":
        attended = attention(weights, f"{name}.segment_attn", rows, above, heads)
        rows = add_and_norm(weights, f"{name}.segment_attn_layer_norm", rows, attended)
    else:
        updates = []
        for i, row in enumerate(rows):
            segment = above[min(i // stride, len(above) - 1)]
            updates.append(linear(weights, f"{name}.segment_concat", torch.cat([row, segment])))
        rows = add_and_norm(weights, f"{name}.segment_concat_layer_norm", rows, updates)
    return feed_forward(weights, name, rows)


def encode(
    weights: Weights,
    ids: list[int],
    *,
    bottom_up_layers: int,
    top_down_layers: int,
    segment_layers: int,
    window: int,
    pooling: list[tuple[int, int]],
    update: str,
    heads: int,
    importance: list[float] | None = None,
) -> tuple[Rows, Rows]:
    """Section 2: token states, and the states of the segments that they see; without update there are none."""
    tokens = embed(weights, "encoder", ids)
    plain_layers = bottom_up_layers + (top_down_layers if update == "none" else 0)
    for i in range(plain_layers):
        tokens = self_attention(weights, f"encoder.layers.{i}", tokens, heads, window)
        tokens = feed_forward(weights, f"encoder.layers.{i}", tokens)
    if update == "none":
        return tokens, []

    levels, weight = [tokens], importance or [1.0] * len(tokens)
    for kernel, stride in pooling:
        segments, weight = pool(levels[-1], weight, kernel, stride)
        levels.append(segments)
    above = levels[-1]
    for i in range(segment_layers):
        name = f"encoder.segment_levels.{len(pooling) - 1}.{i}"
        above = feed_forward(weights, name, self_attention(weights, name, above, heads))
    for level in reversed(range(len(pooling) - 1)):
        rows = levels[level + 1]
        for i in range(segment_layers):
            name = f"encoder.segment_levels.{level}.{i}"
            rows = top_down_layer(weights, name, rows, above, heads, update, pooling[level + 1][1], None)
        above = rows
    for i in range(bottom_up_layers, bottom_up_layers + top_down_layers):
        name = f"encoder.layers.{i}"
        tokens = top_down_layer(weights, name, tokens, above, heads, update, pooling[0][1], window)
    return tokens, above


def decode(weights: Weights, ids: list[int], tokens: Rows, *, layers: int, heads: int) -> Rows:
    """BART's decoder: self-attention, attention over the tokens, feed-forward."""
    rows = embed(weights, "decoder", ids)
    for i in range(layers):
        name = f"decoder.layers.{i}"
        attended = attention(weights, f"{name}.self_attn", rows, rows, heads, causal=True)
        rows = add_and_norm(weights, f"{name}.self_attn_layer_norm", rows, attended)
        attended = attention(weights, f"{name}.encoder_attn", rows, tokens, heads)
        rows = add_and_norm(weights, f"{name}.encoder_attn_layer_norm", rows, attended)
        rows = feed_forward(weights, name, rows)
    return rows

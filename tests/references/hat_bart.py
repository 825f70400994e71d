"""HAT-BART derived again from the paper, in plain loops over positions, heads and sentences.

Source: Rohde, Wu and Liu, "Hierarchical Learning for Generation with Long Source Sequences", section 3 and figure 1;
for what it takes over, Vaswani et al. 2017 (attention) and Lewis et al. 2020 (BART: post-layer-norm, GELU, learned
positions with an offset of two, layer norm after the embedding).

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


def attention(weights: Weights, name: str, queries: Rows, keys: Rows, heads: int, causal: bool = False) -> Rows:
    """Multi-head scaled dot-product attention of each query over the keys."""
    projected_queries = [linear(weights, f"{name}.q_proj", row) for row in queries]
    projected_keys = [linear(weights, f"{name}.k_proj", row) for row in keys]
    projected_values = [linear(weights, f"{name}.v_proj", row) for row in keys]
    size = len(projected_queries[0]) // heads

    outputs = []
    for position, query in enumerate(projected_queries):
        visible = position + 1 if causal else len(keys)
        parts = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = [(query[part] * projected_keys[j][part]).sum() / math.sqrt(size) for j in range(visible)]
            exponents = [torch.exp(score - max(scores)) for score in scores]
            total = sum(exponents)
            parts.append(sum(exponents[j] / total * projected_values[j][part] for j in range(visible)))
        outputs.append(linear(weights, f"{name}.out_proj", torch.cat(parts)))
    return outputs


def add_and_norm(weights: Weights, name: str, rows: Rows, updates: Rows) -> Rows:
    return [layer_norm(weights, name, row + update) for row, update in zip(rows, updates, strict=True)]


def feed_forward(weights: Weights, name: str, rows: Rows) -> Rows:
    updates = [linear(weights, f"{name}.fc2", gelu(linear(weights, f"{name}.fc1", row))) for row in rows]
    return add_and_norm(weights, f"{name}.final_layer_norm", rows, updates)


def encoder_layer(weights: Weights, name: str, rows: Rows, heads: int) -> Rows:
    attended = attention(weights, f"{name}.self_attn", rows, rows, heads)
    rows = add_and_norm(weights, f"{name}.self_attn_layer_norm", rows, attended)
    return feed_forward(weights, name, rows)


def embed(weights: Weights, side: str, ids: list[int], segments: list[int] | None = None) -> Rows:
    rows = []
    for position, token in enumerate(ids):
        row = weights["shared.weight"][token] + weights[f"{side}.embed_positions.weight"][position + 2]
        if segments is not None:  # section 4.1: the sum of token, position and segment embeddings
            row = row + weights[f"{side}.embed_segments.weight"][segments[position]]
        rows.append(layer_norm(weights, f"{side}.layernorm_embedding", row))
    return rows


def encode(
    weights: Weights,
    ids: list[int],
    *,
    bos: int,
    layers: int,
    hierarchical_layers: int,
    heads: int,
    segments: list[int] | None = None,
) -> tuple[Rows, Rows]:
    """Section 3.2: token states, and the states that the hierarchical layers give the BOS embeddings."""
    tokens = embed(weights, "encoder", ids, segments)
    for i in range(layers):
        tokens = encoder_layer(weights, f"encoder.layers.{i}", tokens, heads)
    sentences = [row for token, row in zip(ids, tokens, strict=True) if token == bos]
    for i in range(hierarchical_layers):
        sentences = encoder_layer(weights, f"encoder.hierarchical_layers.{i}", sentences, heads)
    return tokens, sentences


def decode(weights: Weights, ids: list[int], tokens: Rows, sentences: Rows, *, layers: int, heads: int) -> Rows:
    """Section 3.3: self-attention, attention over tokens, attention over sentences, feed-forward."""
    rows = embed(weights, "decoder", ids)
    for i in range(layers):
        name = f"decoder.layers.{i}"
        attended = attention(weights, f"{name}.self_attn", rows, rows, heads, causal=True)
        rows = add_and_norm(weights, f"{name}.self_attn_layer_norm", rows, attended)
        attended = attention(weights, f"{name}.encoder_attn", rows, tokens, heads)
        rows = add_and_norm(weights, f"{name}.encoder_attn_layer_norm", rows, attended)
        attended = attention(weights, f"{name}.hierarchical_attn", rows, sentences, heads)
        rows = add_and_norm(weights, f"{name}.hierarchical_attn_layer_norm", rows, attended)
        rows = feed_forward(weights, name, rows)
    return rows

"""The encoder-only HAT derived again from the paper, in plain loops over positions, heads and sentences.

Source: Rohde, Wu and Liu, "Hierarchical Learning for Generation with Long Source Sequences", section 7, "Encoder-only
transformer hierarchical attention"; for what it takes over, Vaswani et al. 2017 (attention, post-layer-norm residual
blocks) and Liu et al. 2019 (RoBERTa: GELU, learned positions that begin behind the padding id, token types, layer norm
after the embedding; its heads).

It shares no code with hier_models or Transformers. One text at a time, without padding, without batch axis. It takes
the weights as a dict of tensors under RoBERTa's names, so that autograd gives its gradients too.
"""

import math

import torch


Weights = dict[str, torch.Tensor]
Rows = list[torch.Tensor]  # one vector for each position


def linear(weights: Weights, name: str, row: torch.Tensor) -> torch.Tensor:
    outputs = []
    for out in range(len(weights[f"{name}.bias"])):
        outputs.append((weights[f"{name}.weight"][out] * row).sum() + weights[f"{name}.bias"][out])
    return torch.stack(outputs)


def layer_norm(weights: Weights, name: str, row: torch.Tensor, eps: float) -> torch.Tensor:
    mean = row.sum() / len(row)
    variance = ((row - mean) ** 2).sum() / len(row)
    return (row - mean) / torch.sqrt(variance + eps) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(row: torch.Tensor) -> torch.Tensor:
    return row * 0.5 * (1 + torch.erf(row / math.sqrt(2)))


def attention(weights: Weights, name: str, queries: Rows, keys: Rows, heads: int, eps: float) -> Rows:
    """Multi-head scaled dot-product attention of each query over the keys, then residual and layer norm."""
    projected_keys = [linear(weights, f"{name}.self.key", row) for row in keys]
    projected_values = [linear(weights, f"{name}.self.value", row) for row in keys]
    size = len(queries[0]) // heads

    outputs = []
    for row in queries:
        query = linear(weights, f"{name}.self.query", row)
        parts = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = [(query[part] * key[part]).sum() / math.sqrt(size) for key in projected_keys]
            exponents = [torch.exp(score - max(scores)) for score in scores]
            total = sum(exponents)
            parts.append(sum(e / total * value[part] for e, value in zip(exponents, projected_values, strict=True)))
        update = linear(weights, f"{name}.output.dense", torch.cat(parts))
        outputs.append(layer_norm(weights, f"{name}.output.LayerNorm", row + update, eps))
    return outputs


def feed_forward(weights: Weights, name: str, rows: Rows, eps: float) -> Rows:
    outputs = []
    for row in rows:
        update = linear(weights, f"{name}.output.dense", gelu(linear(weights, f"{name}.intermediate.dense", row)))
        outputs.append(layer_norm(weights, f"{name}.output.LayerNorm", row + update, eps))
    return outputs


def embed(weights: Weights, ids: list[int], types: list[int], *, pad: int, eps: float) -> Rows:
    rows = []
    for position, (token, kind) in enumerate(zip(ids, types, strict=True)):
        row = weights["embeddings.word_embeddings.weight"][token]
        row = row + weights["embeddings.position_embeddings.weight"][position + pad + 1]
        row = row + weights["embeddings.token_type_embeddings.weight"][kind]
        rows.append(layer_norm(weights, "embeddings.LayerNorm", row, eps))
    return rows


def encode(
    weights: Weights,
    ids: list[int],
    types: list[int],
    *,
    bos: int,
    pad: int,
    layers: int,
    heads: int,
    eps: float,
    queries: str,
) -> Rows:
    """Encode a text: in each layer self-attention, then attention to the BOS states, then feed-forward.

    With `queries="all"`, every token attends to the BOS states; with `"bos"`, only the BOS tokens do, and the others
    pass the norm behind the attention with nothing added.
    """
    markers = [position for position, token in enumerate(ids) if token == bos]
    rows = embed(weights, ids, types, pad=pad, eps=eps)
    for i in range(layers):
        name = f"encoder.layer.{i}"
        rows = attention(weights, f"{name}.attention", rows, rows, heads, eps)
        sentences = [rows[position] for position in markers]
        asking = list(range(len(rows))) if queries == "all" else markers
        asked = [rows[position] for position in asking]
        answers = attention(weights, f"{name}.hierarchical_attention", asked, sentences, heads, eps)
        norm = f"{name}.hierarchical_attention.output.LayerNorm"
        rows = [
            answers[asking.index(p)] if p in asking else layer_norm(weights, norm, row, eps)
            for p, row in enumerate(rows)
        ]
        rows = feed_forward(weights, name, rows, eps)
    return rows


def pool(weights: Weights, rows: Rows) -> torch.Tensor:
    """RoBERTa's pooler: the first token's state through one layer."""
    return torch.tanh(linear(weights, "pooler.dense", rows[0]))

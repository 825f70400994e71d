"""The readers derived again from their papers, in plain loops over words, levels and steps.

Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks" (HAM), section 3.1 and 3.2; Seo et al. 2016
(BiDAF), section 2; Wang and Jiang 2016 (Match-LSTM), section 2.2; Wang et al. 2017 (R-NET), section 3.

It shares no code with hier_models or Transformers. One question at a time, without padding, without batch axis,
nothing fused. It takes the weights as a dict of tensors, so that autograd gives its gradients too.
"""

from dataclasses import dataclass, field

import torch


Weights = dict[str, torch.Tensor]
Vectors = list[torch.Tensor]


@dataclass(frozen=True)
class Text:
    """Words, and the characters of each."""

    words: list[int]
    characters: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    """What the weights do not tell."""

    reader: str
    depth: int
    level_weights: str = "learned"
    self_keys: str = "level"
    char_encoder: str = "convolution"


def sigmoid(vector: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-vector))


def tanh(vector: torch.Tensor) -> torch.Tensor:
    return 2 * sigmoid(2 * vector) - 1


def softmax(scores: Vectors) -> Vectors:
    highest = max(score.item() for score in scores)
    exponents = [torch.exp(score - highest) for score in scores]
    total = sum(exponents)
    return [exponent / total for exponent in exponents]


def weighted(weights: Vectors, vectors: Vectors) -> torch.Tensor:
    total = torch.zeros_like(vectors[0])
    for weight, vector in zip(weights, vectors, strict=True):
        total = total + weight * vector
    return total


def mix_of_levels(weights: Weights, name: str, settings: Settings) -> Vectors:
    """Softmax of the trained numbers, which are 25 times the parameter, or an extreme case (HAM, section 4)."""
    if f"{name}.level_weights.bias" in weights:
        return softmax(list(25 * weights[f"{name}.level_weights.bias"]))
    chosen = 0 if settings.level_weights == "first" else settings.depth - 1
    return [torch.tensor(float(level == chosen), dtype=torch.float64) for level in range(settings.depth)]


# ------------------------------------------------------------------------------------------------- recurrent networks


def lstm_step(w: list[torch.Tensor], x: torch.Tensor, state: Vectors) -> Vectors:
    """Input, forget, new and output gate."""
    h, c = state
    gates = w[0] @ x + w[2] + w[1] @ h + w[3]
    i, f, g, o = gates.reshape(4, -1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return [sigmoid(o) * tanh(c), c]


def gru_step(w: list[torch.Tensor], x: torch.Tensor, state: Vectors) -> Vectors:
    """Reset gate, update gate and new state."""
    h = state[0]
    r_x, z_x, n_x = (w[0] @ x + w[2]).reshape(3, -1)
    r_h, z_h, n_h = (w[1] @ h + w[3]).reshape(3, -1)
    r, z = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
    n = tanh(n_x + r * n_h)
    return [(1 - z) * n + z * h]


def cell(weights: Weights, name: str, suffix: str = "") -> list[torch.Tensor]:
    return [weights[f"{name}.{part}{suffix}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def zeros(size: int, count: int) -> Vectors:
    return [torch.zeros(size, dtype=torch.float64) for _ in range(count)]


def run(kind: str, w: list[torch.Tensor], vectors: Vectors) -> Vectors:
    step, count = (lstm_step, 2) if kind == "lstm" else (gru_step, 1)
    state = zeros(w[1].shape[1], count)
    found = []
    for x in vectors:
        state = step(w, x, state)
        found.append(state[0])
    return found


def recurrent(weights: Weights, name: str, kind: str, vectors: Vectors) -> tuple[Vectors, torch.Tensor]:
    """Layers in both directions: the states of the last, and its last states."""
    layer = 0
    last = torch.zeros(0)
    while f"{name}.layers.{layer}.weight_ih_l0" in weights:
        there = run(kind, cell(weights, f"{name}.layers.{layer}", "_l0"), vectors)
        back = run(kind, cell(weights, f"{name}.backward_layers.{layer}", "_l0"), vectors[::-1])
        vectors = [torch.cat(pair) for pair in zip(there, back[::-1], strict=True)]
        last = torch.cat([there[-1], back[-1]])
        layer += 1
    return vectors, last


# -------------------------------------------------------------------------------------------------------------- words


def spell(weights: Weights, settings: Settings, characters: list[int]) -> torch.Tensor:
    """A word's vector from its characters."""
    table = weights["words.chars.embed_chars.weight"]
    vectors = [table[character] for character in characters]
    if settings.char_encoder == "gru":
        return recurrent(weights, "words.chars.recurrent", "gru", vectors)[1]
    kernel, bias = weights["words.chars.convolution.weight"], weights["words.chars.convolution.bias"]
    features = []
    for number in range(len(kernel)):
        best = None
        for place in range(len(vectors)):
            total = bias[number]
            for offset in range(kernel.shape[2]):
                if place + offset < len(vectors):
                    total = total + (kernel[number, :, offset] * vectors[place + offset]).sum()
            total = total if total > 0 else torch.zeros_like(total)
            best = total if best is None or total > best else best
        features.append(best)
    return torch.stack(features)


def read_words(weights: Weights, settings: Settings, text: Text) -> Vectors:
    """Embeddings, characters, highway."""
    vectors = [weights["words.embed_tokens.weight"][word] for word in text.words]
    if text.characters:
        spelled = [spell(weights, settings, characters) for characters in text.characters]
        vectors = [torch.cat(pair) for pair in zip(vectors, spelled, strict=True)]
    layer = 0
    while f"words.highway.{layer}.gate.weight" in weights:
        name = f"words.highway.{layer}"
        found = []
        for x in vectors:
            gate = sigmoid(weights[f"{name}.gate.weight"] @ x + weights[f"{name}.gate.bias"])
            new = weights[f"{name}.transform.weight"] @ x + weights[f"{name}.transform.bias"]
            found.append(gate * torch.where(new > 0, new, 0.0) + (1 - gate) * x)
        vectors = found
        layer += 1
    return vectors


# -------------------------------------------------------------------------------------------------------------- BiDAF


def bidaf_attention(
    weights: Weights, settings: Settings, context: Vectors, question: Vectors
) -> tuple[Vectors, torch.Tensor]:
    """Both directions, level by level: the next level's queries are the question vectors of this one."""
    name = "reader.attention"
    w = torch.cat(
        [
            weights[f"{name}.context_score.weight"][0],
            weights[f"{name}.question_score.weight"][0],
            weights[f"{name}.product_score"],
        ]
    )
    mix = mix_of_levels(weights, name, settings)
    queries = context
    of_question = [torch.zeros_like(h) for h in context]
    of_context = torch.zeros_like(context[0])
    for level in range(settings.depth):
        scores = [[(w * torch.cat([h, u, h * u])).sum() for u in question] for h in queries]  # equation 1
        queries = [weighted(softmax(row), question) for row in scores]
        of_question = [total + mix[level] * vector for total, vector in zip(of_question, queries, strict=True)]
        best = [max(row, key=lambda score: score.item()) for row in scores]
        of_context = of_context + mix[level] * weighted(softmax(best), context)
    return of_question, of_context


def bidaf(
    weights: Weights, settings: Settings, documents: list[Vectors], question: Vectors
) -> tuple[Vectors, Vectors]:
    u, _ = recurrent(weights, "reader.contextual", "lstm", question)
    starts, ends = [], []
    for words in documents:
        h, _ = recurrent(weights, "reader.contextual", "lstm", words)
        of_question, of_context = bidaf_attention(weights, settings, h, u)
        joined = [torch.cat([a, b, a * b, a * of_context]) for a, b in zip(h, of_question, strict=True)]  # equation 4
        modeled, _ = recurrent(weights, "reader.modeling", "lstm", joined)
        for_end, _ = recurrent(weights, "reader.end_modeling", "lstm", modeled)
        for found, name, states in ((starts, "start", modeled), (ends, "end", for_end)):
            row, bias = weights[f"reader.{name}_score.weight"][0], weights[f"reader.{name}_score.bias"][0]
            found += [(row * torch.cat(pair)).sum() + bias for pair in zip(joined, states, strict=True)]
    return starts, ends


# --------------------------------------------------------------------------------------------- Match-LSTM and R-NET


def additive(weights: Weights, name: str, query: torch.Tensor, keys: Vectors, state: torch.Tensor | None) -> Vectors:
    """The attention of one query to keys."""
    scores = []
    for key in keys:
        total = weights[f"{name}.key_projection.weight"] @ key + weights[f"{name}.key_projection.bias"]
        total = total + weights[f"{name}.query_projection.weight"] @ query
        if state is not None:
            total = total + weights[f"{name}.state_projection.weight"] @ state
        scores.append((weights[f"{name}.score.weight"][0] * tanh(total)).sum())
    return softmax(scores)


def match(weights: Weights, settings: Settings, kind: str, context: Vectors, question: Vectors) -> Vectors:
    """Read the context while attending to the question, in one direction or both."""
    name = "reader.matching"
    mix = mix_of_levels(weights, f"{name}.attention", settings)
    step, count = (lstm_step, 2) if kind == "lstm" else (gru_step, 1)
    directions = []
    number = 0
    while f"{name}.cells.{number}.weight_ih" in weights:
        w = cell(weights, f"{name}.cells.{number}")
        state = zeros(w[1].shape[1], count)
        found = []
        for word in context[::-1] if number else context:
            query, seen = word, torch.zeros_like(word)
            for level in range(settings.depth):
                query = weighted(additive(weights, f"{name}.attention", query, question, state[0]), question)
                seen = seen + mix[level] * query
            x = torch.cat([word, seen])
            if f"{name}.gate.weight" in weights:
                x = sigmoid(weights[f"{name}.gate.weight"] @ x) * x
            state = step(w, x, state)
            found.append(state[0])
        directions.append(found[::-1] if number else found)
        number += 1
    return [torch.cat(states) for states in zip(*directions, strict=True)]


def match_self(weights: Weights, settings: Settings, context: Vectors) -> Vectors:
    """HAM-S: every word attends to all words, level by level."""
    name = "reader.self_matching"
    mix = mix_of_levels(weights, name, settings)
    queries = context
    total = [torch.zeros_like(vector) for vector in context]
    for level in range(settings.depth):
        keys = queries if settings.self_keys == "level" else context
        queries = [weighted(additive(weights, name, query, keys, None), keys) for query in queries]
        total = [old + mix[level] * new for old, new in zip(total, queries, strict=True)]
    return total


def point(weights: Weights, kind: str, context: Vectors, first: torch.Tensor | None) -> tuple[Vectors, Vectors]:
    """The answer pointer: scores of starts, then of ends."""
    name = "reader.pointer"
    w = cell(weights, f"{name}.cell")
    state = zeros(w[1].shape[1], 2 if kind == "lstm" else 1)
    if first is not None:
        state[0] = first
    found = []
    for _ in range(2):
        scores = []
        for vector in context:
            total = weights[f"{name}.projection.weight"] @ vector + weights[f"{name}.projection.bias"]
            total = tanh(total + weights[f"{name}.state_projection.weight"] @ state[0])
            scores.append((weights[f"{name}.score.weight"][0] * total).sum() + weights[f"{name}.score.bias"][0])
        found.append(scores)
        state = (lstm_step if kind == "lstm" else gru_step)(w, weighted(softmax(scores), context), state)
    return found[0], found[1]


def match_lstm(
    weights: Weights, settings: Settings, documents: list[Vectors], question: Vectors
) -> tuple[Vectors, Vectors]:
    q, _ = recurrent(weights, "reader.preprocessing", "lstm", question)
    matched: Vectors = []
    for words in documents:
        h, _ = recurrent(weights, "reader.preprocessing", "lstm", words)
        matched += match(weights, settings, "lstm", h, q)
    return point(weights, "lstm", matched, None)


def r_net(
    weights: Weights, settings: Settings, documents: list[Vectors], question: Vectors
) -> tuple[Vectors, Vectors]:
    u, _ = recurrent(weights, "reader.encoder", "gru", question)
    read: Vectors = []
    for words in documents:
        h, _ = recurrent(weights, "reader.encoder", "gru", words)
        v = match(weights, settings, "gru", h, u)
        seen = [torch.cat(pair) for pair in zip(v, match_self(weights, settings, v), strict=True)]
        gated = [sigmoid(weights["reader.self_gate.weight"] @ x) * x for x in seen]
        read += recurrent(weights, "reader.aggregation", "gru", gated)[0]
    name = "reader.question_pooling"
    scores = [
        (
            weights[f"{name}.score.weight"][0]
            * tanh(weights[f"{name}.projection.weight"] @ x + weights[f"{name}.projection.bias"])
        ).sum()
        for x in u
    ]
    return point(weights, "gru", read, weighted(softmax(scores), u))


READERS = {"bidaf": bidaf, "match_lstm": match_lstm, "r_net": r_net}


def answer(
    weights: Weights, settings: Settings, documents: list[Text], question: Text
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of all words of the documents as the answer's first and last."""
    read = [read_words(weights, settings, document) for document in documents]
    starts, ends = READERS[settings.reader](weights, settings, read, read_words(weights, settings, question))
    return torch.stack(starts), torch.stack(ends)

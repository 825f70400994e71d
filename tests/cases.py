"""The families as tests meet them: a `Case` each, tiny, with all its inputs; what `test_invariants.py` runs over."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel

from hier_models import (
    CoarseToFineLstmConfig,
    CoarseToFineLstmForConditionalGeneration,
    HamConfig,
    HamForConditionalGeneration,
    HatBartConfig,
    HatBartForConditionalGeneration,
    HatEncoderConfig,
    HatEncoderForMaskedLM,
    HighlightTransformerConfig,
    HighlightTransformerForConditionalGeneration,
    TopDownTransformerConfig,
    TopDownTransformerForConditionalGeneration,
)
from hier_models.models.local_attention import _attend_locally, _packed_on_gpu


BOS, PAD, EOS = 0, 1, 2
Document = dict[str, list[Any]]


@dataclass(frozen=True)
class Case:
    """A family in a tiny size.

    `make_document(length, seed)` gives every input of one document, `pad_values` what each per-token input is padded
    with, `list_pads` what an input that is a list of its own length is padded with, on the right, and
    `change(name, document)` gives another valid value of an extra input. A family that does not decode predicts
    something for each token, and has labels for some of them. `upper_states` names the output of the encoder's upper
    level and its mask, if there is one, `attentions` one of its attentions. `with_scores` makes logits scores
    of one token each, where they are logarithms of probabilities. `attention_kernels` says whether there is more than
    one implementation of attention, `is_tied` whether embeddings and head are one weight, `is_static` whether shapes
    inside depend on those of the inputs only, so that it exports and its decoding step compiles. `others` are further
    classes of the family that read the same, `width` and `axis` what a refusal calls those of embeddings, which are
    read if it `has_embeds`.
    """

    model_class: type[PreTrainedModel]
    make_config: Callable[..., PreTrainedConfig]
    make_document: Callable[[int, int], Document]
    pad_values: dict[str, float]
    change: dict[str, Callable[[Document], list[Any]]]
    edge_documents: dict[str, Document]
    lora_targets: tuple[str, ...]
    auto_class: type = AutoModelForSeq2SeqLM
    decodes: bool = True
    list_pads: dict[str, Any] = field(default_factory=dict)
    upper_states: tuple[str, str] | None = ("hierarchical_hidden_state", "hierarchical_attention_mask")
    attentions: str = "hierarchical_attentions"
    with_scores: dict[str, Any] = field(default_factory=dict)
    has_markers: bool = True
    attention_kernels: bool = True
    is_tied: bool = True
    is_static: bool = True
    others: tuple[str, ...] = ()
    width: str = "d_model"
    axis: str = "source"
    has_embeds: bool = True

    def inputs(self, batch: dict[str, torch.Tensor], target: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the model predicts from."""
        return {**batch, "decoder_input_ids": target} if self.decodes else batch

    def training_inputs(self, batch: dict[str, torch.Tensor], target: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the model is trained with; each document has the same number of labels, if it has that many tokens."""
        if self.decodes:
            return {**batch, "labels": target}
        mask = batch["attention_mask"]
        labelled = (mask != 0) & (mask.cumsum(dim=1) <= 4)
        return {**batch, "labels": torch.where(labelled, (batch["input_ids"] * 7 + 3) % 50, -100)}

    def encode(self, model: PreTrainedModel, batch: dict[str, torch.Tensor], **kwargs: Any) -> Any:
        """Run the encoder alone."""
        return (model.get_encoder() if self.decodes else model.base_model)(**batch, **kwargs)

    def predictions(self, logits: torch.Tensor, batch: dict[str, torch.Tensor], row: int) -> torch.Tensor:
        """Take what is predicted of one document, without its padding."""
        return logits[row] if self.decodes else logits[row][batch["attention_mask"][row].bool()]


BART_LAYERS = {
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 32,
}


def hat_bart_config(**kwargs: Any) -> PreTrainedConfig:
    sizes = {
        "vocab_size": 60,
        "max_position_embeddings": 48,
        "d_model": 24,
        **BART_LAYERS,
        "num_segments": 3,
    }
    return HatBartConfig(**{**sizes, **kwargs})


def hat_bart_document(length: int, seed: int) -> Document:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 60, (length,), generator=generator)
    markers = torch.rand(length, generator=generator) < 0.25
    markers[0], markers[-1] = True, False
    ids[markers], ids[-1] = BOS, EOS
    return {"input_ids": ids.tolist(), "segment_ids": ((markers.cumsum(0) - 1) % 3).tolist()}


def hat_encoder_config(**kwargs: Any) -> PreTrainedConfig:
    sizes = {
        "vocab_size": 60,
        "max_position_embeddings": 50,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 32,
        "type_vocab_size": 2,
    }
    return HatEncoderConfig(**{**sizes, **kwargs})


def hat_encoder_bos_config(**kwargs: Any) -> PreTrainedConfig:
    return hat_encoder_config(hierarchical_queries="bos", **kwargs)


def hat_encoder_document(length: int, seed: int) -> Document:
    ids = hat_bart_document(length, seed)["input_ids"]
    return {"input_ids": ids, "token_type_ids": [int(position > length // 2) for position in range(length)]}


def top_down_config(**kwargs: Any) -> PreTrainedConfig:
    sizes = {
        "vocab_size": 60,
        "max_encoder_position_embeddings": 48,
        "max_decoder_position_embeddings": 48,
        "d_model": 24,
        "bottom_up_layers": 1,
        "top_down_layers": 1,
        "segment_layers": 1,
        "attention_window": 6,
        "pooling_kernel": 6,
        "pooling_stride": 4,
        "pooling": "importance",
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 32,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 32,
    }
    return TopDownTransformerConfig(**{**sizes, **kwargs})


def top_down_levels_config(**kwargs: Any) -> PreTrainedConfig:
    levels = {"pooling_kernel": [4, 3], "pooling_stride": [3, 2], "top_down_update": "concat"}
    levels |= {"segment_position_embeddings": 5, "use_copy": True}
    return top_down_config(**{**levels, **kwargs})


def top_down_document(length: int, seed: int) -> Document:
    ids = hat_bart_document(length, seed)["input_ids"]
    return {"input_ids": ids, "token_importance": [(7 * token % 11) / 8 for token in ids]}


def highlight_config(**kwargs: Any) -> PreTrainedConfig:
    sizes = {
        "vocab_size": 60,
        "d_model": 24,
        **BART_LAYERS,
        "activation_dropout": 0.0,
        "max_phrase_length": 8,
        "brightness": 1.0,  # at 10 a phrase takes all, and which value it has hardly matters
    }
    return HighlightTransformerConfig(**{**sizes, **kwargs})


def highlight_bart_config(**kwargs: Any) -> PreTrainedConfig:
    """BART's body, and everything that is not the default."""
    body = {
        "normalize_before": False,
        "position_embedding_type": "learned",
        "max_position_embeddings": 48,
        "scale_embedding": False,
        "activation_function": "gelu",
        "highlighting": "additive",
        "highlight_heads": 3,
        "highlight_layers": [1],
        "copy_head": 2,
    }
    return highlight_config(**{**body, **kwargs})


def highlight_document(length: int, seed: int) -> Document:
    ids = hat_bart_document(length, seed)["input_ids"]
    phrases = [[1, 3], [2, 5], [2, 5], [length - 4, length - 1]][seed % 2 :]  # overlapping, nested, repeated
    return {
        "input_ids": ids,
        "phrase_positions": phrases,
        "phrase_values": [0.5 + (7 * start % 5) / 2 for start, _ in phrases],
    }


def coarse_to_fine_config(**kwargs: Any) -> PreTrainedConfig:
    sizes = {
        "vocab_size": 60,
        "embedding_size": 20,
        "hidden_size": 24,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "coarse_filters": 16,
        "coarse_kernel_size": 3,
        "attention": "coarse_to_fine",
    }
    return CoarseToFineLstmConfig(**{**sizes, **kwargs})


def coarse_to_fine_document(length: int, seed: int) -> Document:
    ids = hat_bart_document(length, seed)["input_ids"]
    rows = [position // (3 + seed % 2) for position in range(length)]
    return {"input_ids": ids, "row_ids": [row + (row > 1) for row in rows]}  # the third is empty


def ham_config(**kwargs: Any) -> PreTrainedConfig:
    return HamConfig(**{"vocab_size": 60, "d_model": 24, "attention_depth": 3, **kwargs})


def ham_transformer_config(**kwargs: Any) -> PreTrainedConfig:
    sizes = {
        "body": "transformer",
        "max_position_embeddings": 48,
        **BART_LAYERS,
    }
    return ham_config(**{**sizes, **kwargs})


def ham_document(length: int, seed: int) -> Document:
    ids = hat_bart_document(length, seed)["input_ids"]
    return {"input_ids": ids, "keyword_mask": [int(position < 1 + seed) for position in range(length)]}


HIGHLIGHT = Case(
    model_class=HighlightTransformerForConditionalGeneration,
    others=("HighlightTransformerModel",),
    make_config=highlight_config,
    make_document=highlight_document,
    pad_values={"input_ids": PAD},
    list_pads={"phrase_positions": [-1, -1], "phrase_values": 0.0},
    change={
        "phrase_positions": lambda document: [[start, end + 1] for start, end in document["phrase_positions"]],
        "phrase_values": lambda document: [3.0 - value for value in document["phrase_values"]],
    },
    edge_documents={
        "one token": {"input_ids": [7], "phrase_positions": [[0, 1]], "phrase_values": [1.0]},
        "an empty document": {"input_ids": [BOS, EOS], "phrase_positions": [], "phrase_values": []},
        "nothing but a phrase": {"input_ids": [7, 8, 9], "phrase_positions": [[0, 3]], "phrase_values": [90.0]},
        "phrases of no value": {"input_ids": [7, 8, 9], "phrase_positions": [[0, 2]], "phrase_values": [0.0]},
    },
    lora_targets=("q_proj", "v_proj"),
    upper_states=None,
    attentions="copy_attentions",
    with_scores={"use_copy": False},
    has_markers=False,
)

COARSE_TO_FINE = Case(
    model_class=CoarseToFineLstmForConditionalGeneration,
    others=("CoarseToFineLstmModel",),
    width="embedding_size",
    make_config=partial(coarse_to_fine_config, row_position_size=3),
    make_document=coarse_to_fine_document,
    pad_values={"input_ids": PAD, "row_ids": -1},
    change={"row_ids": lambda document: [row // 2 for row in document["row_ids"]]},
    edge_documents={
        "one token": {"input_ids": [7], "row_ids": [0]},
        "an empty document": {"input_ids": [EOS], "row_ids": [-1]},
        "one row": {"input_ids": [7, 8, 9, EOS], "row_ids": [0, 0, 0, 0]},
        "empty rows": {"input_ids": [7, 8, EOS], "row_ids": [2, 2, 5]},
    },
    lora_targets=("word_query", "word_gates"),
    upper_states=None,
    attentions="row_attentions",
    has_markers=False,
    attention_kernels=False,
    is_tied=False,
    is_static=False,
)

HAM = Case(
    model_class=HamForConditionalGeneration,
    others=("HamModel",),
    width="embedding_size",
    make_config=ham_config,
    make_document=ham_document,
    pad_values={"input_ids": PAD, "keyword_mask": 0},
    change={"keyword_mask": lambda document: [*document["keyword_mask"][:-3], 1, 1, 0]},
    edge_documents={
        "one token": {"input_ids": [7], "keyword_mask": [0]},
        "an empty document": {"input_ids": [BOS, EOS], "keyword_mask": [0, 0]},
        "nothing but a keyword": {"input_ids": [7, 8], "keyword_mask": [1, 1]},
    },
    lora_targets=("memory", "readout"),
    upper_states=None,
    attentions="cross_attentions",
    has_markers=False,
    attention_kernels=False,
    is_static=False,
)

TOP_DOWN = Case(
    model_class=TopDownTransformerForConditionalGeneration,
    others=(
        "TopDownTransformerModel",
        "TopDownTransformerEncoderModel",
        "TopDownTransformerForTokenClassification",
    ),
    make_config=top_down_config,
    make_document=top_down_document,
    pad_values={"input_ids": PAD, "token_importance": 0.0},
    change={"token_importance": lambda document: [2.0 - weight for weight in document["token_importance"]]},
    edge_documents={
        "one token": {"input_ids": [7], "token_importance": [0.5]},
        "an empty document": {"input_ids": [BOS, EOS], "token_importance": [1.0, 1.0]},
        "a segment of no importance": {"input_ids": [BOS, *range(7, 17)], "token_importance": [1.0, *[0.0] * 10]},
    },
    lora_targets=("q_proj", "v_proj"),
    upper_states=("segment_hidden_states", "segment_attention_mask"),
    attentions="segment_attentions",
    has_markers=False,
)

HAT_ENCODER = Case(
    model_class=HatEncoderForMaskedLM,
    others=(
        "HatEncoderModel",
        "HatEncoderForSequenceClassification",
        "HatEncoderForQuestionAnswering",
        "HatEncoderForTokenClassification",
    ),
    width="hidden_size",
    axis="tokens",
    make_config=hat_encoder_config,
    make_document=hat_encoder_document,
    pad_values={"input_ids": PAD, "token_type_ids": 0},
    change={"token_type_ids": lambda document: [1 - kind for kind in document["token_type_ids"]]},
    edge_documents={
        "one sentence": {"input_ids": [BOS, 7, 8, EOS], "token_type_ids": [0, 0, 0, 0]},
        "an empty sentence": {"input_ids": [BOS, 7, BOS, BOS, 8, EOS], "token_type_ids": [0, 0, 0, 1, 1, 1]},
        "an empty document": {"input_ids": [BOS, EOS], "token_type_ids": [0, 0]},
        "no marker": {"input_ids": [7, 8, EOS], "token_type_ids": [0, 0, 0]},
    },
    lora_targets=("query", "value"),
    auto_class=AutoModelForMaskedLM,
    decodes=False,
)

HAT_BART = Case(
    model_class=HatBartForConditionalGeneration,
    others=("HatBartModel",),
    make_config=hat_bart_config,
    make_document=hat_bart_document,
    pad_values={"input_ids": PAD, "segment_ids": 0},
    change={"segment_ids": lambda document: [2 - segment for segment in document["segment_ids"]]},
    edge_documents={
        "one sentence": {"input_ids": [BOS, 7, 8, EOS], "segment_ids": [0, 0, 0, 0]},
        "an empty sentence": {"input_ids": [BOS, 7, BOS, BOS, 8, EOS], "segment_ids": [0, 0, 1, 0, 0, 0]},
        "an empty document": {"input_ids": [BOS, EOS], "segment_ids": [0, 0]},
    },
    lora_targets=("q_proj", "v_proj"),
)

CASES = {
    "coarse_to_fine_lstm": COARSE_TO_FINE,
    # Reads rows on demand in generation; all of them, so that nothing turns on which is the best by a hair.
    "coarse_to_fine_lstm_hard": replace(
        COARSE_TO_FINE,
        has_embeds=False,  # a bag of words needs words
        make_config=partial(
            coarse_to_fine_config,
            attention="hard",
            selected_rows=99,
            alternate_soft=1.0,
            coarse_representation="bag_of_words",
        ),
    ),
    "coarse_to_fine_lstm_standard": replace(
        COARSE_TO_FINE, make_config=partial(coarse_to_fine_config, attention="standard"), change={}
    ),
    "ham": HAM,
    "ham_heads": replace(
        HAM,
        make_config=partial(
            ham_config,
            decoder_attention_heads=2,
            attention_scoring="additive",
            encoder_layers=2,
            decoder_layers=2,
            embedding_size=20,
        ),
    ),
    "ham_transformer": replace(
        HAM,
        make_config=ham_transformer_config,
        lora_targets=("q_proj", "v_proj"),
        attention_kernels=True,
        is_static=True,
    ),
    "hat_bart": HAT_BART,
    "hat_bart_options": replace(
        HAT_BART,
        make_config=partial(hat_bart_config, silent_markers=True, sentence_position_embeddings=3, use_copy=True),
        with_scores={"use_copy": False},
    ),
    "hat_encoder": HAT_ENCODER,
    "hat_encoder_silent": replace(HAT_ENCODER, make_config=partial(hat_encoder_config, silent_markers=True)),
    "hat_encoder_bos": replace(HAT_ENCODER, make_config=hat_encoder_bos_config),
    "highlight_transformer": HIGHLIGHT,
    "highlight_transformer_bart": replace(HIGHLIGHT, make_config=highlight_bart_config),
    "highlight_transformer_only": replace(HIGHLIGHT, make_config=partial(highlight_config, highlighting="only")),
    "top_down_transformer": TOP_DOWN,
    "top_down_transformer_levels": replace(
        TOP_DOWN, make_config=top_down_levels_config, with_scores={"use_copy": False}
    ),
}


def make_model(case: Case, std: float = 0.25, **kwargs: Any) -> PreTrainedModel:
    """Build a model whose weights are large enough for every input to matter visibly."""
    torch.manual_seed(0)
    model = case.model_class(case.make_config(**kwargs)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=std)
    return model


def collate(case: Case, documents: list[Document], side: str = "right", extra: int = 0) -> dict[str, torch.Tensor]:
    length = max(len(document["input_ids"]) for document in documents) + extra
    batch: dict[str, list[list[Any]]] = {name: [] for name in [*case.pad_values, *case.list_pads, "attention_mask"]}
    for document in documents:
        missing = length - len(document["input_ids"])
        columns = {**document, "attention_mask": [1] * len(document["input_ids"])}
        for name, values in columns.items():
            if name in case.list_pads:
                most = max(1, *(len(other[name]) for other in documents))
                batch[name].append(values + [case.list_pads[name]] * (most - len(values)))
                continue
            padding = [case.pad_values.get(name, 0)] * missing
            batch[name].append(values + padding if side == "right" else padding + values)
    return {name: torch.tensor(rows) for name, rows in batch.items()}


def local_attention(
    query: torch.Tensor,  # (batch, heads, tokens, head_dim)
    key: torch.Tensor,
    value: torch.Tensor,
    window: int,
    attention_mask: torch.Tensor | None = None,  # (batch, tokens)
    dropout: float = 0.0,
    scale: float | None = None,
) -> torch.Tensor:
    """Attend in a window as the layer does, without its projections."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    mask = None if attention_mask is None else _packed_on_gpu(attention_mask.bool())
    return _attend_locally(query, key, value, window, mask, dropout, scale)

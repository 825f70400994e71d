"""Configuration of HAM."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from .bart_body_config import BartBodyConfig
from .config_checks import check_bart_body, check_finite, check_least


# What is another in each body, when it is not given.
_LAYERS, _HEADS = ("encoder_layers", "decoder_layers"), ("encoder_attention_heads", "decoder_attention_heads")
_BODIES = {
    "gru": dict.fromkeys((*_LAYERS, *_HEADS), 1),
    "transformer": {**dict.fromkeys(_LAYERS, 6), **dict.fromkeys(_HEADS, 8)},
}


@strict
class HamConfig(BartBodyConfig):
    r"""Configuration of a HAM model, an encoder-decoder with hierarchical attention.

    The defaults give the paper's poem model with one level, which is plain attention; its own models have 5 to 20.

    Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks", sections 3 and 5.2, and for the poem
    model's body Wang et al., "Chinese Poetry Generation with Planning based Neural Network" (2016).

    Args:
        vocab_size: Number of token ids.
        body: `"gru"`: bidirectional GRU encoder, GRU decoder, HAM-V between them. `"transformer"`: BART's body with
            HAM-S in the encoder's layers and HAM-V as the decoder's attention to the source.
        attention_depth: Levels of every hierarchical attention; 1 is plain, the paper recommends 5 to 10.
        level_weights: How levels are weighed: `"learned"`; `"first"` is plain attention, `"last"` is multi-level
            attention, the paper's two extreme cases.
        level_weights_init: What learned weights begin with: `"first"`, 0.9 for the first level and the rest alike, so
            that a checkpoint of one level loads into more almost unharmed; or `"equal"`. They learn 25 times as fast
            as other weights, under any optimizer, and without `Trainer`'s weight decay.
        attention_scoring: Scores of the GRU body's attention: `"scaled_dot_product"`, `"bilinear"` or `"additive"`.
            The Transformer body has scaled dot products.
        attention_keys: What levels of HAM-S attend to: `"level"`, the last level's output, or `"input"`. The GRU body
            has no HAM-S.
        d_model: Width of the states; in the GRU body, units of each direction of the encoder and of the decoder.
        embedding_size: Width of the embeddings; `d_model` when not given, as it must be in the Transformer body.
        encoder_layers: Layers of the encoder; 1 in the GRU body, 6 in the Transformer body when not given.
        decoder_layers: Layers of the decoder; as for the encoder.
        encoder_attention_heads: Heads of HAM-S; 8 in the Transformer body when not given. The GRU body has none and
            wants 1.
        decoder_attention_heads: Heads of HAM-V, and of the Transformer body's attention to the target; 8 there when
            not given, 1 in the GRU body. One head in the GRU body has no projections, as in the paper.
        encoder_ffn_dim: Width inside of the encoder's feed-forward layers, Transformer body.
        decoder_ffn_dim: Width inside of the decoder's feed-forward layers, Transformer body.
        max_position_embeddings: Longest source and longest target, in tokens, of the Transformer body. The GRU body
            has no limit.
        scale_embedding: Multiply embeddings by the root of `d_model`, Transformer body.
        init_std: Standard deviation of new weights of embeddings and linear layers, Transformer body. Those of the GRU
            body go by the sizes of its layers.

    Further fields are those of [`BartBodyConfig`]. The activation, `activation_dropout` and layerdrop are the
    Transformer body's; `attention_dropout` is that of the weights of each level.

    Raises:
        huggingface_hub.errors.StrictDataclassClassValidationError: If a value cannot work, or this body lacks it.
    """

    model_type = "ham"
    keys_to_ignore_at_inference = ["cache", "encoder_last_hidden_state", "level_weights"]

    vocab_size: int = 8000
    body: Literal["gru", "transformer"] = "gru"
    attention_depth: int = 1
    level_weights: Literal["learned", "first", "last"] = "learned"
    level_weights_init: Literal["first", "equal"] = "first"
    attention_scoring: Literal["scaled_dot_product", "additive", "bilinear"] = "scaled_dot_product"
    attention_keys: Literal["level", "input"] = "level"
    d_model: int = 512
    embedding_size: int | None = None
    encoder_layers: int | None = None
    decoder_layers: int | None = None
    encoder_attention_heads: int | None = None
    decoder_attention_heads: int | None = None
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    max_position_embeddings: int = 1024
    init_std: float | int = 0.02

    def __post_init__(self, **kwargs: Any) -> None:
        """Take the names that other models have, and fill in what depends on the body."""
        for name, field in self.attribute_map.items():
            setattr(self, field, kwargs.pop(name, getattr(self, field)))
        for name, value in _BODIES.get(self.body, _BODIES["gru"]).items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        if self.embedding_size is None:
            self.embedding_size = self.d_model
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Refuse a configuration that no model could be built from, or that says what would change nothing."""
        sizes = ("vocab_size", "attention_depth", "embedding_size", "encoder_layers", "max_position_embeddings")
        check_least(self, {1: (*sizes, "d_model", *_HEADS)})
        check_bart_body(self)
        check_finite(self, "init_std")
        only: dict[str, Any] = {"attention_scoring": "scaled_dot_product", "embedding_size": self.d_model}
        if self.body == "gru":
            only = {
                "attention_keys": "level",
                "encoder_attention_heads": 1,
                "activation_dropout": 0,
                "encoder_layerdrop": 0,
                "decoder_layerdrop": 0,
                "scale_embedding": False,
            }
        for name, value in only.items():
            if getattr(self, name) != value:
                raise ValueError(f"`{name}` must be {value!r} with body={self.body!r}, got {getattr(self, name)!r}.")

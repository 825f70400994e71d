"""Configuration of the Highlight-Transformer."""

import dataclasses
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .bart_body_config import BartBodyConfig
from .config_checks import check_bart_body, check_copy_head, check_finite, check_least


@strict
class HighlightTransformerConfig(BartBodyConfig):
    r"""Configuration of a Highlight-Transformer: the fields of [`BartConfig`], highlighting, copying and the body.

    The defaults give the paper's model: 55 million parameters with a vocabulary of 50,000. A configuration file of
    BART loads too, and gives BART's body (post-norm, learned positions) with highlighting and copying.

    Source: Liu, Cao, Yang and Wen, "Highlight-Transformer: Leveraging Key Phrase Aware Attention to Improve
    Abstractive Multi-Document Summarization", sections 3 and 4.2; for the body and copying, Gehrmann, Deng and Rush,
    "Bottom-Up Abstractive Summarization", whose CopyTransformer it is.

    Args:
        vocab_size: Number of token ids.
        max_position_embeddings: Longest source and longest target, in tokens. `None` means no limit with sinusoidal
            positions, and 1024 with learned ones, which `from_bart` and `resize_position_embeddings` grow.
        position_embedding_type: `"sinusoidal"` as in the paper, or `"learned"` as in BART.
        d_model: Width.
        encoder_layers: Encoder layers.
        encoder_attention_heads: Heads of each attention of the encoder.
        encoder_ffn_dim: Inner width of the encoder's feed-forward networks.
        decoder_layers: Decoder layers.
        decoder_attention_heads: Heads of both attentions of a decoder layer.
        decoder_ffn_dim: Inner width of the decoder's feed-forward networks.
        highlighting: How the highlighting matrix H, times the brightness, changes the attention of highlighted heads:
            `"weighted"` adds it to the scores (equation 2); `"additive"` averages the attention weights and the
            softmax over its nonzero entries (equation 4); `"only"` puts this softmax in the place of the attention
            weights (table 4, "w/o self-attention"). With the last two, a token in no phrase keeps its attention
            weights.
        highlight_heads: Highlighted heads of a highlighted layer, the first ones; a quarter of the heads when not
            given (table 2). 0 takes highlighting out of the model (table 4, "w/o highlight attn").
        highlight_layers: Highlighted encoder layers: how many, from the first, or a list of their numbers; half of the
            layers when not given (table 2).
        brightness: Brightness factor alpha. Training lowers it here, so that it is saved with the model. At 10, as it
            begins, a pair of tokens in one of ten key phrases gets about 20 times its weight; at 1 (table 4, "w/o
            brightness", where it stays so), 1.4 times.
        brightness_decay: What training multiplies the brightness by before each epoch but the first; 1 keeps it. At
            0.9 it is about 1 in the 20th epoch.
        max_phrase_length: Longest phrase, in tokens. Memory grows with the longest phrase that there is, not with
            this.
        use_copy: Let the decoder copy tokens of the source.
        copy_head: Head of the last decoder layer's attention to the source that says what is copied.
        new_modules: How the gate between generating and copying begins where a checkpoint lacks it, as BART's do:
            `"identity"`, closed, so that the model is as good as what it is loaded from; or at `"random"`, half open.
        normalize_before: Layer norm before each attention and feed-forward network, and after the last layer, as in
            the paper. When false, after each of them and after the embedding, as in BART.
        attention_dropout: Dropout of attention weights. Above 0, highlighting takes a slower way in training.

    Further fields are those of [`BartBodyConfig`]: `dropout` and `activation_dropout` are 0.2, the activation
    `"relu"`, and embeddings are scaled, when not given.

    Raises:
        huggingface_hub.errors.StrictDataclassClassValidationError: If a value cannot work.
    """

    model_type = "highlight_transformer"

    vocab_size: int = 50000
    max_position_embeddings: int | None = None
    position_embedding_type: Literal["sinusoidal", "learned"] = "sinusoidal"
    d_model: int = 512
    encoder_layers: int = 4
    encoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_layers: int = 4
    decoder_attention_heads: int = 8
    decoder_ffn_dim: int = 2048
    highlighting: Literal["weighted", "additive", "only"] = "weighted"
    highlight_heads: int | None = None
    highlight_layers: int | list[int] | None = None
    brightness: float | int = 10.0
    brightness_decay: float | int = 0.9
    max_phrase_length: int = 32
    use_copy: bool = True
    copy_head: int = 0
    new_modules: Literal["identity", "random"] = "identity"
    normalize_before: bool = True
    activation_function: str = "relu"
    dropout: float | int = 0.2
    activation_dropout: float | int = 0.2
    scale_embedding: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in what depends on other fields."""
        for name, field in self.attribute_map.items():
            setattr(self, field, kwargs.pop(name, getattr(self, field)))
        if self.highlight_heads is None:
            self.highlight_heads = max(1, self.encoder_attention_heads // 4)
        if self.highlight_layers is None:
            self.highlight_layers = max(1, self.encoder_layers // 2)
        if self.position_embedding_type == "learned" and self.max_position_embeddings is None:
            self.max_position_embeddings = 1024
        super().__post_init__(**kwargs)

    @property
    def highlighted_layers(self) -> list[int]:
        """Numbers of the encoder layers whose first `highlight_heads` heads are highlighted."""
        if not self.highlight_heads:
            return []
        layers = self.highlight_layers
        return list(layers) if isinstance(layers, list) else list(range(layers or 0))

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration file; one of BART is taken as ours, with BART's body, and fields given stand in it."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        ours = {field.name for field in dataclasses.fields(cls)}
        ours -= {field.name for field in dataclasses.fields(PreTrainedConfig)}
        if config_dict.get("model_type") == "bart":
            # Not at the top: that module asks for the Auto classes, which ask for this one.
            from transformers import BartConfig

            defaults = {field.name: field.default for field in dataclasses.fields(BartConfig) if field.name in ours}
            # BART's files name labels of a classifier, whatever the checkpoint, and some fields twice.
            without = {"id2label", "label2id", "num_labels", *cls.attribute_map}
            given = {name: value for name, value in config_dict.items() if name not in without}
            body = {"normalize_before": False, "position_embedding_type": "learned", "model_type": cls.model_type}
            config_dict = {**defaults, **given, **body}
        return {**config_dict, **{name: value for name, value in kwargs.items() if name in ours}}, kwargs

    def validate_architecture(self) -> None:
        """Refuse a configuration that no model could be built from."""
        names = ("encoder_layers", "max_phrase_length", "max_position_embeddings")
        check_least(self, {1: names}, optional=("max_position_embeddings",))
        check_bart_body(self)
        check_copy_head(self)
        if self.position_embedding_type == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"`d_model` must be even for sinusoidal positions, got {self.d_model}.")
        check_finite(self, "brightness", "brightness_decay")
        heads, layers = self.highlight_heads, self.highlight_layers
        if heads is not None and not 0 <= heads <= self.encoder_attention_heads:
            raise ValueError(
                f"`highlight_heads` must be from 0 to encoder_attention_heads={self.encoder_attention_heads}, got "
                f"{heads}."
            )
        if isinstance(layers, list):
            if len(set(layers)) < len(layers) or not all(0 <= layer < self.encoder_layers for layer in layers):
                raise ValueError(
                    "`highlight_layers`, as a list, must hold different numbers in "
                    f"[0, encoder_layers={self.encoder_layers}), got {layers}."
                )
        elif layers is not None and not 0 <= layers <= self.encoder_layers:
            raise ValueError(
                f"`highlight_layers` must be from 0 to encoder_layers={self.encoder_layers}, got {layers}."
            )

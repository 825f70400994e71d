"""Configuration of the Top-Down Transformer."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from .bart_body_config import BartBodyConfig
from .config_checks import check_bart_body, check_copy_head, check_least, check_probabilities


@strict
class TopDownTransformerConfig(BartBodyConfig):
    r"""Configuration of a Top-Down Transformer: the fields of [`BartConfig`], and those of its encoder.

    The defaults give the paper's model, of the shape of `bart-large`: 464 million parameters.

    Source: Pang, Nijkamp, Kryściński, Savarese, Zhou and Xiong, "Long Document Summarization with Top-down and
    Bottom-up Inference", sections 2 and 3 and appendix B.

    Args:
        vocab_size: Number of token ids.
        max_encoder_position_embeddings: Longest source, in tokens. `from_bart` and `resize_position_embeddings` grow
            it.
        max_decoder_position_embeddings: Longest target, in tokens.
        d_model: Width.
        bottom_up_layers: Token layers before pooling: local self-attention and a feed-forward network.
        top_down_layers: Token layers after pooling: local self-attention, the update from the segments, and a
            feed-forward network. `encoder_layers` is the sum of both; given in their place, as in a configuration file
            of BART, two thirds of it go to the first.
        segment_layers: Layers over the segments with full attention, for each level of segments.
        attention_window: Tokens that a token attends to besides itself: half of them on its left, half on its right.
            Even.
        pooling_kernel: Tokens of a segment. A list makes several levels, each of which pools the one below it.
        pooling_stride: Tokens from the start of one segment to that of the next; as many as in `pooling_kernel`.
        pooling: What a segment starts from: `"average"` of its tokens, or their average weighted by `token_importance`
            (`"importance"`, the paper's AdaPool).
        top_down_update: How segments update tokens (table 14): by `"cross_attention"`; by `"concat"`, a projection of
            the token beside its segment; or `"none"`, which leaves the segments out: all token layers are then alike.
        new_modules: How modules begin that a checkpoint lacks, as BART's lack those of segments: `"identity"`, as if
            they were not there, so that the model is as good as what it is loaded from; or at `"random"`, as in the
            paper.
        segment_position_embeddings: Rows of a position embedding of the lowest segments, which segments behind the
            last share; 0 for none, as in the paper. `from_bart` sets it where it grows positions by copies, which
            alone do not tell segments apart that are a multiple of the copied length away from each other.
        use_copy: Let the decoder copy tokens of the source, as the Highlight-Transformer's does (ours, not the
            paper's). `logits` are then logarithms of probabilities.
        copy_head: Head of the last decoder layer's attention to the source that says what is copied.
        encoder_attention_heads: Heads of each attention of the encoder, over tokens and over segments.
        encoder_ffn_dim: Inner width of the encoder's feed-forward networks.
        decoder_layers: Decoder layers.
        decoder_attention_heads: Heads of both attentions of a decoder layer.
        decoder_ffn_dim: Inner width of the decoder's feed-forward networks.
        classifier_dropout: Dropout before the tagger's last layer.
        is_encoder_decoder: True for models that write; what the encoder alone does is the same with both.

    Further fields are those of [`BartBodyConfig`].

    Raises:
        huggingface_hub.errors.StrictDataclassClassValidationError: If a value cannot work.
    """

    model_type = "top_down_transformer"

    vocab_size: int = 50265
    max_encoder_position_embeddings: int = 16384
    max_decoder_position_embeddings: int = 1024
    d_model: int = 1024
    bottom_up_layers: int = 8
    top_down_layers: int = 4
    segment_layers: int = 2
    attention_window: int = 1024
    pooling_kernel: int | list[int] = 32
    pooling_stride: int | list[int] = 24
    pooling: Literal["average", "importance"] = "average"
    top_down_update: Literal["cross_attention", "concat", "none"] = "cross_attention"
    use_copy: bool = False
    copy_head: int = 0
    new_modules: Literal["identity", "random"] = "identity"
    segment_position_embeddings: int = 0
    encoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_layers: int = 12
    decoder_attention_heads: int = 16
    decoder_ffn_dim: int = 4096
    classifier_dropout: float | int = 0.0

    def __post_init__(self, **kwargs: Any) -> None:
        """Take `encoder_layers`, if it is given, for the two fields that it is the sum of."""
        layers = kwargs.pop("encoder_layers", kwargs.pop("num_hidden_layers", None))
        if layers is not None and layers != self.encoder_layers:
            fields = type(self)
            if (self.bottom_up_layers, self.top_down_layers) != (fields.bottom_up_layers, fields.top_down_layers):
                raise ValueError(
                    "Give `bottom_up_layers` and `top_down_layers`, or `encoder_layers`, their sum; got "
                    f"{self.bottom_up_layers}, {self.top_down_layers} and {layers}."
                )
            self.encoder_layers = layers
        super().__post_init__(**kwargs)

    @property
    def encoder_layers(self) -> int:
        """Token layers of the encoder, bottom-up and top-down; set it, and two thirds go to the first."""
        return self.bottom_up_layers + self.top_down_layers

    @encoder_layers.setter
    def encoder_layers(self, layers: int) -> None:
        self.bottom_up_layers = _bottom_up_share(layers)
        self.top_down_layers = layers - self.bottom_up_layers

    @property
    def pooling_windows(self) -> list[tuple[int, int]]:
        """Kernel and stride of each level of segments, from the tokens up; none without top-down update."""
        if self.top_down_update == "none":
            return []
        return list(zip(_as_list(self.pooling_kernel), _as_list(self.pooling_stride), strict=True))

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration file; one of BART is taken as ours, with its encoder layers divided."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("model_type") != "bart":
            return config_dict, kwargs
        # BART's files name labels of a classifier, whatever the checkpoint.
        without = ("id2label", "label2id", "num_labels", "encoder_layers", "num_hidden_layers")
        ours = {name: value for name, value in config_dict.items() if name not in without}
        layers = config_dict.get("encoder_layers", 12)
        top_down = kwargs.get("top_down_layers")
        bottom_up = _bottom_up_share(layers) if top_down is None else layers - top_down
        ours["bottom_up_layers"] = kwargs.get("bottom_up_layers", bottom_up)
        ours["top_down_layers"] = layers - ours["bottom_up_layers"]
        positions = ours.pop("max_position_embeddings", 1024)
        ours |= {f"max_{side}_position_embeddings": positions for side in ("encoder", "decoder")}
        return {**ours, "model_type": cls.model_type}, kwargs

    def validate_architecture(self) -> None:
        """Refuse a configuration that no model could be built from."""
        counts = ("bottom_up_layers", "segment_position_embeddings")
        sizes = ("top_down_layers", "segment_layers")
        positions = ("max_encoder_position_embeddings", "max_decoder_position_embeddings")
        check_least(self, {0: counts, 1: (*sizes, *positions)})
        check_bart_body(self)
        check_copy_head(self)
        check_probabilities(self, "classifier_dropout")
        if self.attention_window < 2 or self.attention_window % 2:
            raise ValueError(
                "`attention_window` must be even and at least 2, half of it to the left of a token and half to the "
                f"right, got {self.attention_window}."
            )
        kernels, strides = _as_list(self.pooling_kernel), _as_list(self.pooling_stride)
        if len(kernels) != len(strides) or not kernels:
            raise ValueError(
                "`pooling_kernel` and `pooling_stride` must be two numbers, or two lists with one number for each "
                f"level of segments, got {self.pooling_kernel} and {self.pooling_stride}."
            )
        for kernel, stride in zip(kernels, strides, strict=True):
            if not 1 <= stride <= kernel:
                raise ValueError(
                    "`pooling_stride` must be at least 1 and at most `pooling_kernel`, or tokens between two segments "
                    f"would be left out, got stride {stride} and kernel {kernel}."
                )


def _as_list(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


def _bottom_up_share(layers: int) -> int:
    """Two thirds of the layers, as the paper's 8 of 12; at least one stays for the top-down layers."""
    return min(round(layers * 2 / 3), layers - 1)

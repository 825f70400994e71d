"""Configuration of HAT-BART."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from .bart_body_config import BartBodyConfig
from .config_checks import check_bart_body, check_copy_head, check_least, check_marker, check_token_ids


@strict
class HatBartConfig(BartBodyConfig):
    r"""Configuration of a HAT-BART model: the fields of [`BartConfig`], and those of the hierarchy.

    The defaults give the shape of `bart-large` with the paper's one hierarchical layer.

    Source: Rohde, Wu and Liu, "Hierarchical Learning for Generation with Long Source Sequences", section 3.

    Args:
        vocab_size: Number of token ids.
        max_position_embeddings: Longest source and longest target, in tokens. The paper uses 3072 for papers;
            `from_bart` grows it.
        d_model: Width.
        encoder_layers: Token-level encoder layers.
        encoder_attention_heads: Heads of each encoder attention, hierarchical layers included.
        encoder_ffn_dim: Inner width of the encoder's feed-forward networks, hierarchical layers included.
        decoder_layers: Decoder layers.
        decoder_attention_heads: Heads of each of the three attentions of a decoder layer.
        decoder_ffn_dim: Inner width of the decoder's feed-forward networks.
        hierarchical_layers: Encoder layers over the embeddings at the BOS markers, after the token-level encoder. One
            is the paper's choice ("a single hierarchical layer works the best", section 3.2). 0 takes the hierarchy
            out of encoder and decoder: the model is then BART, exactly.
        num_segments: Rows of the segment embedding that is added to token and position embeddings, one row for each
            role of a dialogue (section 4.1, "Conversational datasets"). 0 means no segment embedding. Choose the
            largest number of roles that one document has.
        new_modules: How modules begin that a checkpoint lacks, as BART's lack the hierarchical ones: `"identity"`, as
            if they were not there, so that the model is as good as what it is loaded from; or at `"random"`, as in the
            paper.
        silent_markers: Markers but the first, which BART has too, are not attended to by tokens, nor by the decoder,
            and take no position (that of the token behind them): they read, and only the hierarchy reads them. So the
            tokens' states are BART's on the text without markers. `True` where a checkpoint of BART is loaded with
            `new_modules="identity"`; the paper's markers are not silent.
        sentence_position_embeddings: Rows of a position embedding of sentences, which sentences behind the last share;
            0 for none, as in the paper. `from_bart` sets it where it grows positions by copies, which alone do not
            tell sentences apart that are a multiple of the copied length away from each other.
        use_copy: Let the decoder copy tokens of the source, as the Highlight-Transformer's does (ours, not the
            paper's). `logits` are then logarithms of probabilities.
        copy_head: Head of the last decoder layer's attention to the source that says what is copied.
        attention_dropout: Dropout of attention weights. The paper trains with 0.1.
        bos_token_id: BOS token: the marker before every sentence.

    Further fields are those of [`BartBodyConfig`].

    Raises:
        huggingface_hub.errors.StrictDataclassClassValidationError: If a value cannot work.
    """

    model_type = "hat_bart"

    vocab_size: int = 50265
    max_position_embeddings: int = 1024
    d_model: int = 1024
    encoder_layers: int = 12
    encoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_layers: int = 12
    decoder_attention_heads: int = 16
    decoder_ffn_dim: int = 4096
    hierarchical_layers: int = 1
    num_segments: int = 0
    use_copy: bool = False
    copy_head: int = 0
    new_modules: Literal["identity", "random"] = "identity"
    silent_markers: bool = False
    sentence_position_embeddings: int = 0

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration file; one of BART is taken as HAT-BART's, with the hierarchy at its defaults."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("model_type") == "bart":
            begins_as_bart = kwargs.get("new_modules", "identity") == "identity"
            is_silent = begins_as_bart and kwargs.get("hierarchical_layers", 1) > 0
            config_dict = {**config_dict, "model_type": cls.model_type, "silent_markers": is_silent}
        return config_dict, kwargs

    def validate_architecture(self) -> None:
        """Refuse a configuration that no model could be built from."""
        counts = ("hierarchical_layers", "num_segments", "sentence_position_embeddings")
        check_least(self, {0: counts, 1: ("encoder_layers", "max_position_embeddings")})
        check_bart_body(self)
        check_copy_head(self)
        check_token_ids(self, "bos_token_id")
        check_marker(self)

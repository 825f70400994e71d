"""Configuration of the encoder-only HAT."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .config_checks import (
    check_activation,
    check_heads,
    check_least,
    check_marker,
    check_probabilities,
    check_token_ids,
)


# Checkpoints of these have RoBERTa's parameters under RoBERTa's names.
_SAME_PARAMETERS = ("roberta", "xlm-roberta", "camembert")


@strict
class HatEncoderConfig(PreTrainedConfig):
    r"""Configuration of an encoder-only HAT: the fields of [`RobertaConfig`], and those of the hierarchy.

    The defaults give the shape of `roberta-base`, which the paper compares with.

    Source: Rohde, Wu and Liu, "Hierarchical Learning for Generation with Long Source Sequences", section 7.

    Args:
        vocab_size: Number of token ids.
        hidden_size: Width.
        num_hidden_layers: Encoder layers.
        num_attention_heads: Heads of each attention, the hierarchical ones included.
        intermediate_size: Inner width of the feed-forward networks.
        hierarchical_attention: Give every layer an attention over the states at the BOS markers, after its
            self-attention. `False` takes the hierarchy out: the model is then RoBERTa, exactly.
        hierarchical_queries: Whose states the hierarchical attention changes: those of `"all"` tokens, or those of the
            `"bos"` markers only; the others pass through its layer norm alone. The paper does not say which.
        new_modules: How modules begin that a checkpoint lacks, as RoBERTa's lack the hierarchical ones: `"identity"`,
            as if they were not there, so that the model is as good as what it is loaded from; or at `"random"`, as in
            the paper.
        silent_markers: Markers but the first, which RoBERTa has too, are not attended to by tokens and take no
            position (that of the token behind them): they read, and only the hierarchical attention reads them. So the
            tokens' states are RoBERTa's on the text without markers. `True` where a checkpoint of RoBERTa is loaded
            with `new_modules="identity"`; the paper's markers are not silent.
        hidden_act: Activation of the feed-forward networks.
        hidden_dropout_prob: Dropout after embeddings, attentions and feed-forward networks.
        attention_probs_dropout_prob: Dropout of attention weights.
        max_position_embeddings: Rows of the position embedding. Positions begin behind `pad_token_id`, so the longest
            input has `max_position_embeddings - pad_token_id - 1` tokens.
        type_vocab_size: Rows of the token type embedding.
        initializer_range: Standard deviation of new weights.
        layer_norm_eps: Added to the variance in layer norms.
        pad_token_id: Padding token.
        bos_token_id: BOS token: the marker before every sentence.
        eos_token_id: EOS token.
        classifier_dropout: Dropout in the heads for classification; `hidden_dropout_prob` when not given.
        is_decoder: Always false for this model.
        add_cross_attention: Always false for this model.
        tie_word_embeddings: Share one embedding between encoder and masked language modeling head.

    Raises:
        huggingface_hub.errors.StrictDataclassClassValidationError: If a value cannot work.
    """

    model_type = "hat_encoder"

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hierarchical_attention: bool = True
    hierarchical_queries: str = "all"
    new_modules: Literal["identity", "random"] = "identity"
    silent_markers: bool = False
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 514
    type_vocab_size: int = 1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2
    classifier_dropout: float | int | None = None
    is_decoder: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration file; one of RoBERTa is taken as this family's, with the hierarchy at its defaults."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("model_type") in _SAME_PARAMETERS:
            # What a file leaves out has RoBERTa's default, which is not ours in these.
            theirs = {"max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
            begins_as_roberta = kwargs.get("new_modules", "identity") == "identity"
            is_silent = begins_as_roberta and kwargs.get("hierarchical_attention", True)
            ours = {"model_type": cls.model_type, "silent_markers": is_silent}
            config_dict = {**theirs, **config_dict, **ours}
        return config_dict, kwargs

    def validate_architecture(self) -> None:
        """Refuse a configuration that no model could be built from."""
        if self.hierarchical_queries not in ("all", "bos"):
            raise ValueError(f"`hierarchical_queries` must be 'all' or 'bos', got {self.hierarchical_queries!r}.")
        sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "type_vocab_size")
        check_least(self, {1: sizes})
        check_heads(self, "hidden_size", "num_attention_heads")
        check_probabilities(self, "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
        check_activation(self, "hidden_act")
        for name in ("is_decoder", "add_cross_attention"):
            if getattr(self, name):
                raise ValueError(f"`{name}` must be False, got True: this model is an encoder.")
        check_token_ids(self, "bos_token_id", "pad_token_id")
        check_marker(self)
        least = (self.pad_token_id or 0) + 2
        if self.max_position_embeddings < least:
            raise ValueError(
                f"`max_position_embeddings` must be at least pad_token_id + 2 = {least}, since positions begin behind "
                f"that of padding, got {self.max_position_embeddings}."
            )

"""What several configurations refuse. Each check looks at the fields that it is given the names of."""

from collections.abc import Iterable, Mapping

from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig


def check_least(config: PreTrainedConfig, least: Mapping[int, Iterable[str]], optional: Iterable[str] = ()) -> None:
    """Refuse numbers that are too small: least number -> fields, some of which may be None."""
    for number, names in least.items():
        for name in names:
            value = getattr(config, name)
            if (value is None and name not in optional) or (value is not None and value < number):
                raise ValueError(f"`{name}` must be at least {number}, got {value}.")


def check_heads(config: PreTrainedConfig, width: str, *names: str) -> None:
    """Refuse heads that do not divide the width."""
    size = getattr(config, width)
    for name in names:
        heads = getattr(config, name)
        if size % heads:
            raise ValueError(f"`{name}` must divide `{width}`, got {name}={heads} and {width}={size}.")


def check_probabilities(config: PreTrainedConfig, *names: str) -> None:
    """Refuse what is not from 0 to 1, or None."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"`{name}` must be between 0 and 1, got {value}.")


def check_finite(config: PreTrainedConfig, *names: str) -> None:
    """Refuse what is negative, infinite or no number."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < float("inf"):
            raise ValueError(f"`{name}` must be finite and not negative, got {value}.")


def check_activation(config: PreTrainedConfig, name: str = "activation_function") -> None:
    """Refuse an activation that Transformers does not know."""
    value = getattr(config, name)
    if value not in ACT2FN:
        raise ValueError(f"`{name}` is unknown, got {value!r}. It must be one of {', '.join(ACT2FN)}.")


def check_token_ids(config: PreTrainedConfig, *names: str) -> None:
    """Refuse special tokens that are missing, or outside of the vocabulary."""
    for name in names:
        value = getattr(config, name)
        if value is None or not 0 <= value < config.vocab_size:
            why = " Sentences are marked with it." if name == "bos_token_id" else ""
            raise ValueError(f"`{name}` must be in [0, vocab_size={config.vocab_size}), got {value}.{why}")


def end_ids(config: PreTrainedConfig) -> list[int | None]:
    """The tokens that end a text, of which a configuration may have several."""
    return config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]


def check_marker(config: PreTrainedConfig) -> None:
    """Refuse a marker of sentences that is padding, or the end."""
    for name, values in (("pad_token_id", [config.pad_token_id]), ("eos_token_id", end_ids(config))):
        if config.bos_token_id in values:
            raise ValueError(
                f"`{name}` must differ from `bos_token_id`, which marks sentences, got {config.bos_token_id} twice."
            )


BART_SIZES = (
    "d_model",
    "decoder_layers",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "encoder_attention_heads",
    "decoder_attention_heads",
)


def check_bart_body(config: PreTrainedConfig) -> None:
    """Refuse a body that BART's blocks cannot be."""
    check_least(config, {1: BART_SIZES})
    check_heads(config, "d_model", "encoder_attention_heads", "decoder_attention_heads")
    layerdrops = ("encoder_layerdrop", "decoder_layerdrop")
    check_probabilities(config, "dropout", "attention_dropout", "activation_dropout", *layerdrops)
    check_activation(config)
    check_token_ids(config, "pad_token_id", "decoder_start_token_id")


def check_copy_head(config: PreTrainedConfig) -> None:
    """Refuse a head that the decoder has not."""
    heads = config.decoder_attention_heads
    if not 0 <= config.copy_head < heads:
        raise ValueError(f"`copy_head` must be in [0, decoder_attention_heads={heads}), got {config.copy_head}.")

"""What the configurations of models with BART's body share."""

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig


@strict
class BartBodyConfig(PreTrainedConfig):
    """Fields that mean the same in every model with BART's body.

    Args:
        encoder_layerdrop: Probability of leaving out a token-level encoder layer in training.
        decoder_layerdrop: Probability of leaving out a decoder layer in training; one that is copied from stays.
        activation_function: Activation of the feed-forward networks.
        dropout: Dropout after embeddings, attentions and feed-forward networks.
        attention_dropout: Dropout of attention weights.
        activation_dropout: Dropout inside the feed-forward networks.
        init_std: Standard deviation of new weights.
        scale_embedding: Multiply token embeddings by the square root of `d_model`.
        use_cache: Return what later decoding steps need, such as keys and values.
        pad_token_id: Padding token.
        bos_token_id: BOS token.
        eos_token_id: EOS token.
        decoder_start_token_id: First token of every target.
        forced_eos_token_id: Last token of a target that reaches its maximum length.
        is_encoder_decoder: True for models that write.
        is_decoder: Always false.
        tie_word_embeddings: Share one embedding between encoder, decoder and head.
    """

    # Beside the cache, leave the encoder's states out of what evaluation gathers: they are as large as the batch.
    keys_to_ignore_at_inference = ["cache", "encoder_last_hidden_state"]

    attribute_map = {
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
    }

    encoder_layerdrop: float | int = 0.0
    decoder_layerdrop: float | int = 0.0
    activation_function: str = "gelu"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    init_std: float = 0.02
    scale_embedding: bool = False
    use_cache: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2
    forced_eos_token_id: int | list[int] | None = 2
    is_encoder_decoder: bool = True
    is_decoder: bool = False
    tie_word_embeddings: bool = True

"""Configuration of the Coarse-to-Fine LSTM."""

import dataclasses
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .config_checks import check_finite, check_least, check_probabilities, check_token_ids


# What only hard attention reads.
_OF_HARD_ATTENTION = ("num_samples", "selected_rows", "alternate_soft")


@strict
class CoarseToFineLstmConfig(PreTrainedConfig):
    r"""Configuration of a Coarse-to-Fine LSTM.

    The defaults give the thesis' Model 2 in its sizes; `attention` gives the others.

    Source: Jeffrey Ling, "Coarse-to-Fine Attention Models for Document Summarization", chapters 4 and 5.

    Args:
        vocab_size: Number of token ids.
        embedding_size: Width of word embeddings.
        hidden_size: Units of each LSTM layer, and width of the context.
        encoder_layers: LSTM layers that read the words of a row.
        decoder_layers: LSTM layers of the decoder.
        dropout: Dropout between LSTM layers and before the generator.
        attention: `"standard"` (Model 0): one LSTM over the document, attention over all words. `"flat"` (Model 1): an
            LSTM over each row, attention over all words. `"coarse_to_fine"` (Model 2): attention over rows, times
            attention over the words of each row. `"hard"` (Model 3): as Model 2, but rows are drawn from the attention
            over rows in training, and the best are taken at inference. The last two have the same parameters, and each
            loads the other's checkpoints.
        coarse_representation: How a row becomes one vector: `"convolution"` with maximum over time (equation 4.14), or
            `"bag_of_words"`, the sum of embeddings of a table of their own (equation 4.13).
        coarse_filters: Filters of the convolution.
        coarse_kernel_size: Words that a filter sees.
        row_position_size: Width of an embedding of the row's position, which is appended to its representation; 25 is
            "+POS", 0 is without.
        max_rows: Row positions that there are embeddings for. Without `row_position_size` there is no limit.
        attend_padding: Attend to padding inside of rows too, tokens with a row id but without attention mask. Their
            embeddings and states are zero. This is the thesis' way for documents that do not fill the grid.
        num_samples: Rows that hard attention draws at each step of training, with replacement; 2 is "+MULTI2".
        selected_rows: Rows that hard attention takes at each step of inference; `num_samples` when not given. With
            more than one, their attention is normalised among them.
        reward_discount: Discount of the reward of later target steps (equation 4.15).
        baseline_rate: Rate of the moving average of rewards that is their baseline (equation 4.16).
        reward_scale: Factor of the rewards.
        alternate_soft: Probability that a training step attends softly, as Model 2; 0.5 is "+ALTERNATE".
        freeze_source_embeddings: Do not train the embeddings of the source, as the thesis does with a bag of words.
        init_range: New weights are uniform between this and its negative.
        use_cache: Return the decoder's state for later decoding steps.
        pad_token_id: Padding token.
        bos_token_id: BOS token.
        eos_token_id: EOS token.
        decoder_start_token_id: First token of every target.
        forced_eos_token_id: Last token of a target that reaches its maximum length.
        is_encoder_decoder: Always true for this model.
        is_decoder: Always false for this model.
        tie_word_embeddings: Always false for this model: source, target and generator have weights of their own.

    Raises:
        huggingface_hub.errors.StrictDataclassClassValidationError: If a value cannot work, or would change nothing.
    """

    model_type = "coarse_to_fine_lstm"
    # Beside the cache, leave the encoder's states out of what evaluation gathers: they are as large as the batch.
    keys_to_ignore_at_inference = ["cache", "encoder_last_hidden_state", "encoded_rows"]

    attribute_map = {"num_hidden_layers": "encoder_layers", "d_model": "hidden_size"}

    vocab_size: int = 50000
    embedding_size: int = 300
    hidden_size: int = 500
    encoder_layers: int = 2
    decoder_layers: int = 2
    dropout: float | int = 0.3
    attention: Literal["standard", "flat", "coarse_to_fine", "hard"] = "coarse_to_fine"
    coarse_representation: Literal["convolution", "bag_of_words"] = "convolution"
    coarse_filters: int = 600
    coarse_kernel_size: int = 6
    row_position_size: int = 0
    max_rows: int = 1024
    attend_padding: bool = False
    num_samples: int = 1
    selected_rows: int | None = None
    reward_discount: float | int = 0.5
    baseline_rate: float | int = 0.1
    reward_scale: float | int = 0.3
    alternate_soft: float | int = 0.0
    freeze_source_embeddings: bool = False
    init_range: float | int = 0.1
    use_cache: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 0
    forced_eos_token_id: int | list[int] | None = 2
    is_encoder_decoder: bool = True
    is_decoder: bool = False
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        """Take the names that other models have for the sizes."""
        for name, field in (("num_hidden_layers", "encoder_layers"), ("d_model", "hidden_size")):
            setattr(self, field, kwargs.pop(name, getattr(self, field)))
        super().__post_init__(**kwargs)

    @property
    def attends_to_rows(self) -> bool:
        """Whether there is an attention over rows: Models 2 and 3."""
        return self.attention in ("coarse_to_fine", "hard")

    @property
    def row_size(self) -> int:
        """Width of a row's representation."""
        words = self.coarse_filters if self.coarse_representation == "convolution" else self.embedding_size
        return words + self.row_position_size

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a configuration file; loaded with soft attention, one of hard attention loses what only that reads."""
        config_dict, kwargs = super().get_config_dict(*args, **kwargs)
        if config_dict.get("attention") == "hard" and kwargs.get("attention", "hard") != "hard":
            config_dict = {name: value for name, value in config_dict.items() if name not in _OF_HARD_ATTENTION}
        # What is given stands in it, so that nothing is checked half changed.
        ours = {field.name for field in dataclasses.fields(cls)}
        ours -= {field.name for field in dataclasses.fields(PreTrainedConfig)}
        return {**config_dict, **{name: value for name, value in kwargs.items() if name in ours}}, kwargs

    def validate_architecture(self) -> None:
        """Refuse a configuration that no model could be built from, or that says what would change nothing."""
        sizes = ("vocab_size", "embedding_size", "hidden_size", "encoder_layers", "decoder_layers", "max_rows")
        of_rows = ("coarse_filters", "coarse_kernel_size", "num_samples", "selected_rows")
        check_least(self, {0: ("row_position_size",), 1: (*sizes, *of_rows)}, optional=("selected_rows",))
        check_probabilities(self, "dropout", "reward_discount", "baseline_rate", "alternate_soft")
        check_finite(self, "reward_scale", "init_range")
        check_token_ids(self, "pad_token_id", "decoder_start_token_id")
        if self.tie_word_embeddings:
            raise ValueError(
                "`tie_word_embeddings` must be false, got True: embeddings and generator differ in width, and source "
                "and target have embeddings of their own."
            )
        if self.row_position_size and not self.attends_to_rows:
            raise ValueError(
                f"`row_position_size` must be 0 with attention={self.attention!r}, which has no attention over rows; "
                f"got {self.row_position_size}. Row positions need 'coarse_to_fine' or 'hard'."
            )
        if self.attention == "hard":
            return
        for name, without in (("num_samples", 1), ("selected_rows", None), ("alternate_soft", 0)):
            if getattr(self, name) != without:
                raise ValueError(
                    f"`{name}` must be {without} with attention={self.attention!r}, which does not select rows; got "
                    f"{getattr(self, name)}. It needs attention='hard'."
                )

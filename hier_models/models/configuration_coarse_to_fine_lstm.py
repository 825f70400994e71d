"""Configuration of the Coarse-to-Fine LSTM."""

import dataclasses
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .config_checks import check_finite, check_least, check_probabilities, check_token_ids


# What only hard attention reads, and what it is without.
_OF_HARD_ATTENTION = {
    "estimator": "reinforce",
    "baseline": "moving_average",
    "num_samples": 1,
    "selected_rows": None,
    "gumbel_noise": 0,
    "alternate_soft": 0,
}


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
        estimator: How hard attention trains. `"reinforce"`: rows are drawn, and the choice learns by REINFORCE.
            `"top_k"`: the best rows are taken, weighed by their attention normalised among them, and the choice learns
            from the gradient of these weights; a recipe's `soft_epochs` lets it attend softly at first.
        num_samples: Rows that hard attention reads at each step of training: drawn with replacement (2 is "+MULTI2"),
            or with `estimator="top_k"` the best, of which there must be 2 at least.
        selected_rows: Rows that hard attention takes at each step of inference; `num_samples` when not given. With
            more than one, their attention is normalised among them.
        gumbel_noise: With `estimator="top_k"`, scale of the Gumbel noise on the scores that rows are chosen by in
            training; 1 draws them without replacement from the attention (Kool et al., 2019), 0 takes the best.
        baseline: What a step's own reward is compared with in REINFORCE: `"moving_average"` (equation 4.16), or
            `"leave_one_out"`, for each row that was drawn the reward without that draw (as in VIMCO, Mnih and Rezende,
            2016), which needs a `num_samples` of 2 at least. Later rewards are compared with the moving average.
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
    estimator: Literal["reinforce", "top_k"] = "reinforce"
    num_samples: int = 1
    selected_rows: int | None = None
    gumbel_noise: float | int = 0.0
    baseline: Literal["moving_average", "leave_one_out"] = "moving_average"
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
        check_finite(self, "reward_scale", "gumbel_noise", "init_range")
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
            self._validate_estimator()
            return
        for name, without in _OF_HARD_ATTENTION.items():
            if getattr(self, name) != without:
                raise ValueError(
                    f"`{name}` must be {without!r} with attention={self.attention!r}, which does not select rows; got "
                    f"{getattr(self, name)!r}. It needs attention='hard'."
                )

    def _validate_estimator(self) -> None:
        several = {"estimator": "top_k", "baseline": "leave_one_out"}
        for name, value in several.items():
            if getattr(self, name) == value and self.num_samples < 2:
                raise ValueError(
                    f"`num_samples` must be at least 2 with {name}={value!r}, got {self.num_samples}: one row alone "
                    "has a weight of 1, whatever its score, and nothing is left without it."
                )
        other = {"top_k": ("baseline", "moving_average"), "reinforce": ("gumbel_noise", 0)}
        name, without = other[self.estimator]
        if getattr(self, name) != without:
            raise ValueError(
                f"`{name}` must be {without!r} with estimator={self.estimator!r}, which has no use for it; got "
                f"{getattr(self, name)!r}."
            )

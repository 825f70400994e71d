"""Configuration of the readers with hierarchical attention."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .config_checks import check_finite, check_least, check_probabilities, check_token_ids


@strict
class HamReaderConfig(PreTrainedConfig):
    r"""Configuration of a reader: a question and a context in, the answer's span in the context out.

    Source: "Hierarchical Attention: What Really Counts in Various NLP Tasks", sections 3 and 5.1; the readers are
    those of Seo et al. 2016 (BiDAF), Wang and Jiang 2016 (Match-LSTM) and Wang et al. 2017 (R-NET).

    Args:
        reader: `"bidaf"`, `"match_lstm"` or `"r_net"`.
        attention_depth: Levels d of each attention; 1 is the plain reader. R-NET has two attentions, and both get
            them.
        level_weights: How levels are summed: with `"learned"` weights (softmax of d parameters), or only the `"first"`
            (plain attention) or the `"last"` (multi-level attention).
        level_weights_init: What learned weights begin with: `"first"`, 0.9 for the first level and the rest alike, so
            that a checkpoint of one level loads into more almost unharmed; or `"equal"`. They learn 25 times as fast
            as other weights, under any optimizer, and without `Trainer`'s weight decay.
        self_attention_keys: What the levels of R-NET's self-matching attend to: `"level"`, the output of the level
            before, or `"input"`, always the states that the first level attends to. The other readers don't read it.
        vocab_size: Number of word ids.
        embedding_size: Width of word embeddings.
        freeze_embeddings: Do not train word embeddings, as the papers of Match-LSTM and R-NET do with pretrained ones.
        char_vocab_size: Number of character ids; with 0 the reader reads words only.
        char_embedding_size: Width of character embeddings.
        char_hidden_size: Width of what a word's characters give; even with `char_encoder="gru"`.
        char_encoder: How characters become a word's vector: `"convolution"` and maximum over time (BiDAF), or the last
            states of a bidirectional `"gru"` (R-NET).
        char_kernel_size: Characters that a filter of the convolution sees.
        highway_layers: Highway layers over word and character vectors of BiDAF. The other readers have none.
        hidden_size: Units of each recurrent layer in each direction.
        encoder_layers: Recurrent layers that encode words; R-NET's paper has 3.
        modeling_layers: Recurrent layers over BiDAF's matched states. The other readers have none.
        dropout: Dropout before recurrent layers and before the output.
        initializer_range: Standard deviation of new word and character embeddings. Other weights begin as torch's do.
        pad_token_id: Padding token of contexts and questions.
        tie_word_embeddings: Always false for this model: it generates no words.

    Raises:
        huggingface_hub.errors.StrictDataclassClassValidationError: If a value cannot work.
    """

    model_type = "ham_reader"
    # As large as the batch, and nothing that evaluation gathers.
    keys_to_ignore_at_inference = ["level_weights", "question_attention"]

    attribute_map = {"num_hidden_layers": "encoder_layers", "d_model": "hidden_size"}

    reader: Literal["bidaf", "match_lstm", "r_net"] = "bidaf"
    attention_depth: int = 1
    level_weights: Literal["learned", "first", "last"] = "learned"
    level_weights_init: Literal["first", "equal"] = "first"
    self_attention_keys: Literal["level", "input"] = "level"
    vocab_size: int = 50000
    embedding_size: int = 300
    freeze_embeddings: bool = False
    char_vocab_size: int = 0
    char_embedding_size: int = 16
    char_hidden_size: int = 100
    char_encoder: Literal["convolution", "gru"] = "convolution"
    char_kernel_size: int = 5
    highway_layers: int = 2
    hidden_size: int = 150
    encoder_layers: int = 1
    modeling_layers: int = 2
    dropout: float | int = 0.2
    initializer_range: float | int = 0.02
    pad_token_id: int | None = 1
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        """Take the names that other models have for the sizes."""
        for name, field in (("num_hidden_layers", "encoder_layers"), ("d_model", "hidden_size")):
            setattr(self, field, kwargs.pop(name, getattr(self, field)))
        super().__post_init__(**kwargs)

    @property
    def word_size(self) -> int:
        """Width of a word: its embedding, and what its characters give."""
        return self.embedding_size + (self.char_hidden_size if self.char_vocab_size else 0)

    def validate_architecture(self) -> None:
        """Refuse a configuration that no model could be built from."""
        sizes = ("vocab_size", "embedding_size", "hidden_size", "encoder_layers", "modeling_layers", "attention_depth")
        of_characters = ("char_embedding_size", "char_hidden_size", "char_kernel_size")
        check_least(self, {0: ("char_vocab_size", "highway_layers"), 1: (*sizes, *of_characters)})
        check_probabilities(self, "dropout")
        check_finite(self, "initializer_range")
        check_token_ids(self, "pad_token_id")
        if self.char_encoder == "gru" and self.char_hidden_size % 2:
            raise ValueError(
                f"`char_hidden_size` must be even with char_encoder='gru', half of it for each direction, got "
                f"{self.char_hidden_size}."
            )
        if self.tie_word_embeddings:
            raise ValueError("`tie_word_embeddings` must be false, got True: a reader generates no words.")

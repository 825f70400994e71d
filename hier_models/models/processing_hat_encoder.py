"""Processor of the encoder-only HAT: texts, pairs and multiple choices in, `<s> sentence <s> sentence … </s>` out."""

from collections.abc import Sequence
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase, ProcessorMixin

from .sentence_splitting import check_language
from .text_inputs import read_choices
from .tokenization_hat_encoder import HatEncoderTokenizer


class HatEncoderProcessor(ProcessorMixin):
    """Turns texts, pairs of texts and multiple choices into the model's input, each sentence with a BOS token.

    A text is `<s> sentence <s> sentence … </s>`, a pair `<s> sentence … </s></s> <s> sentence … </s>`. The markers
    are inserted as ids: all that a text contains stays text, `<s>` and `<mask>` too. Without the markers, the ids are
    those that the tokenizer gives for the same text; white space between two sentences goes to the second.

    Args:
        tokenizer: A tokenizer of Transformers with a fast backend and RoBERTa's special tokens. It becomes a
            `HatEncoderTokenizer`, with which pipelines see the sentences too.
        language: Language of the texts, for splitting into sentences: one that punkt knows, such as english or german.
            By default the tokenizer's own, if it has one, or english.

    Raises:
        ValueError: If the tokenizer has no fast backend, lacks a token or the language is not known.

    Source: section 7 (BOS tokens at the beginning of all sentences).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None = None, language: str | None = None) -> None:
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise ValueError(f"`tokenizer` must be a tokenizer of Transformers, got {type(tokenizer).__name__}")
        if language is not None:
            check_language(language)
        super().__init__(HatEncoderTokenizer.from_tokenizer(tokenizer, language))

    @property
    def language(self) -> str:
        """Language by whose rules the tokenizer finds sentences."""
        return self.tokenizer.language  # type: ignore[no-any-return]

    @language.setter
    def language(self, language: str) -> None:
        check_language(language)
        self.tokenizer.language = language

    @property
    def extra_inputs(self) -> dict[str, int]:
        """Per-token inputs beyond ids and mask, and the value that pads them: none."""
        return {}

    @property
    def model_input_names(self) -> list[str]:
        """Names of the model inputs that the processor makes."""
        return ["input_ids", "attention_mask"]

    def split_sentences(self, text: str) -> list[tuple[int, int]]:
        """Find the sentences of a text, as a call does: (start, end) in characters."""
        return self.tokenizer.split_sentences(text)  # type: ignore[no-any-return]

    def encode_sentences(self, texts: Sequence[str | Sequence[str]]) -> list[list[list[int]]]:
        """Tokenize texts, or lists of sentences, which spaces join: the ids of each sentence, without markers."""
        return self.tokenizer.encode_sentences(texts)  # type: ignore[no-any-return]

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        text_pair: str | Sequence[str] | None = None,
        *,
        choices: Sequence[str] | Sequence[Sequence[str]] | None = None,
        **options: Any,
    ) -> BatchEncoding:
        """Prepare texts, pairs or multiple choices for the model.

        One text or pair without `return_tensors` gives flat lists, as tokenizers do.

        Args:
            text: A text or a list of texts. With `choices`: the passage or passages, or what the choices continue.
            text_pair: The second text of each pair. With `choices`: the question, which goes before each choice, or
                has it in the place of a blank ("The ferry costs _ .").
            choices: The answers to choose from, for one text a list of strings, for several a list of such lists, all
                of the same length. Each makes a pair of the text and the question with the choice, and the result has
                one more dimension: (batch, choices, tokens).
            **options: As for the tokenizer: `padding`, `truncation` (True or "longest_first", which cuts the longer
                text of a pair, "only_first", "only_second", or False; by default the first where `max_length` is given
                and nothing is padded, as in Transformers; markers count), `max_length`, `stride` (tokens that
                neighboring windows have in common, markers not counted), `is_split_into_words` (sentences then begin
                at words), `pad_to_multiple_of`, `padding_side`, `return_tensors` ("pt" or "np"),
                `return_overflowing_tokens` (go on with what did not fit in further rows, which
                `overflow_to_sample_mapping` assigns to their texts; of a pair, the text that `truncation` names is cut
                into windows, and the other stands in each row), `return_offsets_mapping` (a marker's place is empty,
                at its sentence's first token), `return_special_tokens_mask`, `return_truncation`
                (`num_truncated_tokens` and `num_truncated_sentences` of each row; if not asked for, cuts are logged),
                and `split_special_tokens`, True by default: special tokens in a text are text. With False, `<mask>`
                and special tokens of your own are read; markers and separators stay text.

        Returns:
            `input_ids`, `attention_mask` and what was asked for. `sequence_ids(i)`, `word_ids(i)`, `char_to_token` and
            their relatives work as with every tokenizer, except for `choices`.

        Raises:
            ValueError: If texts, second texts and choices do not match, an option is not one of the above, or nothing
                would fit.
            TypeError: If an input is not text, or a list of text, as described.
        """
        if text is None:
            raise ValueError("`text` is missing; give a text or a list of texts")
        options.setdefault("split_special_tokens", True)
        if choices is None:
            return self.tokenizer(text, text_pair, **options)  # type: ignore[no-any-return]
        for name in ("return_overflowing_tokens", "is_split_into_words"):
            if options.get(name):
                raise ValueError(f"`{name}` does not go with `choices`; leave it out")
        return_tensors = options.pop("return_tensors", None)
        firsts, seconds, size, batched = read_choices(text, text_pair, choices)
        flat = self.tokenizer(firsts, seconds, **options)
        data = {key: [row[i : i + size] for i in range(0, len(row), size)] for key, row in flat.items()}
        if not batched and return_tensors is None:
            data = {key: rows[0] for key, rows in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

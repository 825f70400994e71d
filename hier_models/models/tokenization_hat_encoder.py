"""Tokenizer of the encoder-only HAT: RoBERTa's, with a marker before every sentence."""

from typing import Any, ClassVar

from transformers import PreTrainedTokenizerBase, RobertaTokenizer

from .marked_tokenization import MarkedTokenizer


class HatEncoderTokenizer(MarkedTokenizer, RobertaTokenizer):
    """RobertaTokenizer with a BOS token before every sentence: `<s> sentence <s> sentence </s>`.

    A pair is `<s> sentence … </s></s> <s> sentence … </s>`. Without the markers, the ids are those of
    RobertaTokenizer, and it loads what RobertaTokenizer loads. `MarkedTokenizer` says what else there is.

    Source: section 7 (BOS tokens at the beginning of all sentences).
    """

    needed_tokens: ClassVar[tuple[str, ...]] = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token")
    end_token: ClassVar[str] = "sep_token"

    @classmethod
    def _settings(cls, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        return {"cls_token": tokenizer.bos_token, "sep_token": tokenizer.eos_token, **super()._settings(tokenizer)}

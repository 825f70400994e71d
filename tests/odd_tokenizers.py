"""Tokenizers of every kind, and a text that is hard for them, for tests of processors."""

from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    MBartTokenizerFast,
    PreTrainedTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5TokenizerFast,
)


UNK = 3
MIXED = (
    "Dies steht da. Zwei  Sätze!\n\nA heading\n\n他来了。“她走了。”是的。 🙂🙂 emoji. <s> no marker </s>. End <mask>."
)
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"<>/-()"
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def plain_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def unigram(first: list[str]) -> list[tuple[str, float]]:
    words = ["▁the", "▁a", "ing", "▁S"]
    return [(t, 0.0) for t in first] + [("▁", -2.0)] + [(c, -3.0) for c in CHARACTERS] + [(w, -4.0) for w in words]


def mbart() -> PreTrainedTokenizerBase:
    return MBartTokenizerFast(vocab=unigram(["<s>", "<pad>", "</s>", "<unk>"]))


def t5_with_bos() -> PreTrainedTokenizerBase:
    tokenizer = T5TokenizerFast(vocab=unigram(["<pad>", "</s>", "<unk>"]))
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    return tokenizer


def words() -> PreTrainedTokenizerBase:
    """Whole words, lower-cased; special tokens are words of its vocabulary."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "the", "bridge", "was", "six", "it", "at", "<mask>"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


def byte_level(**options: Any) -> PreTrainedTokenizerBase:
    """Characters as bytes, with a space in front, or lower-cased, or whatever the options say."""
    vocabulary = [*SPECIAL.values(), *pre_tokenizers.ByteLevel.alphabet()]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options.get("prefix", False))
    if options.get("lower"):
        backend.normalizer = normalizers.Lowercase()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


class SlowTokenizer(PreTrainedTokenizer):
    """A tokenizer in Python: one token per character."""

    def __init__(self, **kwargs: Any) -> None:
        self.characters = [*SPECIAL.values(), *CHARACTERS, " "]
        super().__init__(**SPECIAL, **kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def get_vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.characters)} | self.added_tokens_encoder

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self.characters.index(token) if token in self.characters else UNK

    def _convert_id_to_token(self, index: int) -> str:
        return self.characters[index]


TOKENIZERS = {
    "mbart": mbart,
    "t5": t5_with_bos,
    "words": words,
    "bytes": byte_level,
    "bytes with a space in front": lambda: byte_level(prefix=True),
    "bytes, lower case": lambda: byte_level(lower=True),
    "slow": SlowTokenizer,
}

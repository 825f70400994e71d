"""Tokenizers fitted on one's own texts: byte-level BPE as BART has it, single characters, whole words."""

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from .cleaning import check_digits


# As BART has them, as the ids 0 to 3; and with the mask, 4.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
WITH_MASK = (*SPECIAL_TOKENS, "<mask>")
# No corpus has more characters than Unicode.
ALL = 0x110000
# The ends that English words have behind an apostrophe are words of their own: John 's, I 'll, don 't.
ENDING = r"['’](?:s|t|re|ve|m|ll|d)(?!\w)"
# What has no space before it, or behind it, in text that is put together again.
CLOSING, OPENING = r"[,.;:!?%)\]}…”]", r"[(\[{“]"
# Begins a piece of a word in the decoder that sets spaces; no word does.
NO_PREFIX = "\0"


def as_tokenizer(
    backend: Tokenizer, special_tokens: Sequence[str] = SPECIAL_TOKENS, model_max_length: int | None = None
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of Transformers."""
    bos, pad, eos, unk, *mask = special_tokens
    options = {"bos_token": bos, "pad_token": pad, "eos_token": eos, "unk_token": unk}
    if mask:
        options |= {"cls_token": bos, "sep_token": eos, "mask_token": mask[0]}
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **options, **limit)


def train_byte_level(
    texts: Iterable[str], num_entries: int, *, model_max_length: int = 1024
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE as BART has it: `<s> text </s>`, words begin with their space, no character is unknown."""
    least = 256 + len(WITH_MASK)
    if num_entries < least:
        raise ValueError(f"num_entries must be at least {least} (256 bytes and the special tokens), got {num_entries}")
    return _fit_bytes(texts, num_entries, WITH_MASK, model_max_length)


def _fit_bytes(
    texts: Iterable[str], num_entries: int, special_tokens: Sequence[str], model_max_length: int
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE that puts `<s>` and `</s>` around a text, so that models learn from it where to end."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_entries,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    ends = (("</s>", 2), ("<s>", 0))
    backend.post_processor = processors.RobertaProcessing(*ends, trim_offsets=False, add_prefix_space=False)
    return as_tokenizer(backend, special_tokens, model_max_length)


def train_joint_bpe(
    texts: Iterable[str], num_codes: int = 40_000, *, model_max_length: int = 512
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE on texts of both languages, as an ordinary fast tokenizer of Transformers.

    It differs from the paper's Moses and fastBPE: nothing is normalized, escaped or split off beforehand, words begin
    with their space, and the alphabet is the 256 bytes instead of the characters seen in training. So every text comes
    back from its ids as it was, no character is unknown, and a translation needs no detokenizer; BLEU is measured on
    the texts themselves. As in the paper the codes (merges) are learned on both languages together.

    Args:
        texts: texts of both languages, running text rather than words.
        num_codes: merges to learn; fewer where the texts have no more. The vocabulary has 256 bytes and 4 special
            tokens besides.
        model_max_length: longest input in tokens of the model that it is for.

    Returns:
        The tokenizer, with `<s>`, `<pad>`, `</s>` and `<unk>` as the ids 0 to 3, as BART has them; it reads `<s> text
        </s>`, from which models without a processor learn where to end.

    Raises:
        ValueError: If `num_codes` is negative.

    Source: HAT-BART, section 4.2 ("byte-pair encoding with 40000 bpe codes", "a joined dictionary").
    """
    if num_codes < 0:
        raise ValueError(f"num_codes must be 0 or more, got {num_codes}")
    return _fit_bytes(texts, len(SPECIAL_TOKENS) + 256 + num_codes, SPECIAL_TOKENS, model_max_length)


def train_characters(texts: Iterable[str], num_characters: int | None = None) -> PreTrainedTokenizerFast:
    """Fit a vocabulary of single characters, as an ordinary fast tokenizer of Transformers.

    Spaces are left out. Characters are brought to Unicode's composed form (NFC); those that are not in the vocabulary
    are `<unk>`.

    Args:
        texts: Texts of the corpus, such as the lines of poems.
        num_characters: Characters to keep, the commonest; None for all. There are 4 special tokens besides. Of
            equally common characters, those that come first in Unicode.

    Returns:
        The tokenizer, with `<s>`, `<pad>`, `</s>` and `<unk>` as the ids 0 to 3 and the commonest character as 4.

    Raises:
        TypeError: If `texts` is a single string, which is one text.
        ValueError: If `num_characters` is below 1.
    """
    _check(texts, "num_characters", num_characters)
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S"), "removed", invert=True)
    backend.decoder = decoders.Fuse()
    return _fit_words(backend, texts, ALL if num_characters is None else num_characters)


def train_word_level(
    texts: Iterable[str], num_words: int = 50_000, *, lowercase: bool = True, digits: str | None = "#"
) -> PreTrainedTokenizerFast:
    """Fit a vocabulary of the commonest words, as an ordinary fast tokenizer of Transformers.

    A word is a run of letters and digits, an abbreviation (u.s.), a number (5,000.5), or what follows an apostrophe
    ('s). Every other mark stands apart. All other words are `<unk>`. It differs from the thesis in the corpus being
    given as it is: there is no parser's tokenization, so that "don't" is "don 't" and not "do n't".

    Decoded text has the usual spaces around marks, but no capitals, and no digits where these were replaced.

    Args:
        texts: Texts of the corpus: sources and summaries, say.
        num_words: Words to keep; fewer where the texts have no more. There are 4 special tokens besides. Of equally
            common words, those that come first by alphabet.
        lowercase: Whether capitals become small letters.
        digits: What every digit becomes; None leaves digits as they are.

    Returns:
        The tokenizer, with `<s>`, `<pad>`, `</s>` and `<unk>` as the ids 0 to 3 and the commonest word as 4.

    Raises:
        TypeError: If `texts` is a single string, whose letters would be taken for texts.
        ValueError: If `num_words` is below 1, or `digits` is no single character that can stand for one.

    Source: Coarse-to-Fine LSTM, section 5.1.1.
    """
    _check(texts, "num_words", num_words)
    if digits is not None:
        check_digits(digits)
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if digits is not None:
        steps.append(normalizers.Replace(Regex(r"\d"), digits))
    in_brackets = rf"\{digits}" if digits and digits in r"\]^-[&" else digits
    digit = r"\d" if digits is None else rf"[\d{in_brackets}]"
    kinds = (
        ENDING,
        r"\p{L}(?:\.\p{L})+(?:\.|(?!\w))",  # abbreviations
        rf"{digit}+(?:[.,:]{digit}+)*\w*",  # numbers, and what is written to them (9am)
        rf"(?:\w|{digit})+",
        r"[^\w\s]",
    )
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(kinds)), "removed", invert=True)
    spaces = (rf" (?={CLOSING}|{ENDING})", rf"(?<={OPENING}) ")
    without_spaces = [decoders.Replace(Regex(space), "") for space in spaces]
    words = decoders.WordPiece(prefix=NO_PREFIX, cleanup=False)
    backend.decoder = decoders.Sequence([words, decoders.Fuse(), *without_spaces])
    return _fit_words(backend, texts, num_words)


def _check(texts: Iterable[str], name: str, number: int | None) -> None:
    if isinstance(texts, str):
        raise TypeError("texts must be a list of texts, or another iterable of them, got a single string")
    if number is not None and number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")


def _fit_words(backend: Tokenizer, texts: Iterable[str], entries: int) -> PreTrainedTokenizerFast:
    options: dict[str, Any] = {"special_tokens": list(SPECIAL_TOKENS), "min_frequency": 1, "show_progress": False}
    backend.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=len(SPECIAL_TOKENS) + entries, **options))
    return as_tokenizer(backend)

"""A vocabulary of whole words, for models that are trained from scratch on one language."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .digits import check_digits
from .special_tokens import SPECIAL_TOKENS, as_tokenizer


# The ends that English words have behind an apostrophe are words of their own: John 's, I 'll, don 't.
ENDING = r"['’](?:s|t|re|ve|m|ll|d)(?!\w)"
# What has no space before it, or behind it, in text that is put together again.
CLOSING, OPENING = r"[,.;:!?%)\]}…”]", r"[(\[{“]"
# Begins a piece of a word in the decoder that sets spaces; no word does.
NO_PREFIX = "\0"


def train_word_level(
    texts: Iterable[str],
    num_words: int = 50_000,
    *,
    lowercase: bool = True,
    digits: str | None = "#",
    min_count: int = 1,
    model_max_length: int | None = None,
    show_progress: bool = False,
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
        min_count: Words seen less often are left out.
        model_max_length: Longest input in tokens of the model that it is for; None for no limit.
        show_progress: Whether to show progress bars.

    Returns:
        The tokenizer, with `<s>`, `<pad>`, `</s>` and `<unk>` as the ids 0 to 3 and the commonest word as 4.

    Raises:
        TypeError: If `texts` is a single string, whose letters would be taken for texts.
        ValueError: If `num_words` or `min_count` is below 1, or `digits` is no single character that can stand for
            one.

    Source: Coarse-to-Fine LSTM, section 5.1.1.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a list of texts, or another iterable of them, got a single string")
    for name, number in (("num_words", num_words), ("min_count", min_count)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if digits is not None:
        check_digits(digits)
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if digits is not None:
        steps.append(normalizers.Replace(Regex(r"\d"), digits))
    digit = r"\d" if digits is None else rf"[\d{_in_set(digits)}]"
    words = "|".join(
        (
            ENDING,
            r"\p{L}(?:\.\p{L})+(?:\.|(?!\w))",  # abbreviations
            rf"{digit}+(?:[.,:]{digit}+)*\w*",  # numbers, and what is written to them (9am)
            rf"(?:\w|{digit})+",
            r"[^\w\s]",
        )
    )
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(steps)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(words), "removed", invert=True)
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=NO_PREFIX, cleanup=False),
            decoders.Fuse(),
            decoders.Replace(Regex(rf" (?={CLOSING}|{ENDING})"), ""),
            decoders.Replace(Regex(rf"(?<={OPENING}) "), ""),
        ]
    )
    trainer = trainers.WordLevelTrainer(
        vocab_size=len(SPECIAL_TOKENS) + num_words,
        min_frequency=min_count,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=show_progress,
    )
    backend.train_from_iterator(texts, trainer)
    return as_tokenizer(backend, model_max_length=model_max_length)


def _in_set(character: str) -> str:
    """Write a character as it stands between brackets of a regular expression."""
    return rf"\{character}" if character in r"\]^-[&" else character

"""A vocabulary of single characters, for poems and other Chinese text."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .special_tokens import SPECIAL_TOKENS, as_tokenizer


# No corpus has more characters than Unicode.
ALL = 0x110000


def train_characters(
    texts: Iterable[str],
    num_characters: int | None = None,
    *,
    min_count: int = 1,
    model_max_length: int | None = None,
    show_progress: bool = False,
) -> PreTrainedTokenizerFast:
    """Fit a vocabulary of single characters, as an ordinary fast tokenizer of Transformers.

    Spaces are left out. Characters are brought to Unicode's composed form (NFC); those that are not in the vocabulary
    are `<unk>`.

    Args:
        texts: Texts of the corpus, such as the lines of poems.
        num_characters: Characters to keep, the commonest; None for all. There are 4 special tokens besides. Of
            equally common characters, those that come first in Unicode.
        min_count: Characters seen less often are left out.
        model_max_length: Longest input in tokens of the model that it is for; None for no limit.
        show_progress: Whether to show progress bars.

    Returns:
        The tokenizer, with `<s>`, `<pad>`, `</s>` and `<unk>` as the ids 0 to 3 and the commonest character as 4.

    Raises:
        TypeError: If `texts` is a single string, which is one text.
        ValueError: If `num_characters` or `min_count` is below 1.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a list of texts, or another iterable of them, got a single string")
    for name, number in (("num_characters", num_characters), ("min_count", min_count)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\S"), "removed", invert=True)
    backend.decoder = decoders.Fuse()
    trainer = trainers.WordLevelTrainer(
        vocab_size=ALL if num_characters is None else len(SPECIAL_TOKENS) + num_characters,
        min_frequency=min_count,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=show_progress,
    )
    backend.train_from_iterator(texts, trainer)
    return as_tokenizer(backend, model_max_length=model_max_length)

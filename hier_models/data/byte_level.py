"""A tokenizer like BART's, of one's own texts."""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from .special_tokens import WITH_MASK, as_tokenizer


def train_byte_level(
    texts: Iterable[str], num_entries: int, *, model_max_length: int = 1024, show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE as BART has it: `<s> text </s>`, words begin with their space, no character is unknown.

    Args:
        texts: The texts.
        num_entries: Entries of the vocabulary, the 256 bytes and 5 special tokens among them; fewer where the texts
            have no more.
        model_max_length: Longest input in tokens of the model that it is for.
        show_progress: Whether to show progress bars.

    Returns:
        The tokenizer, with `<s>`, `<pad>`, `</s>` and `<unk>` as the ids 0 to 3, as BART has them, and `<mask>` as 4.

    Raises:
        ValueError: If there is no room for the bytes and special tokens.
    """
    least = 256 + len(WITH_MASK)
    if num_entries < least:
        raise ValueError(f"num_entries must be at least {least} (256 bytes and the special tokens), got {num_entries}")
    return fit(texts, num_entries, WITH_MASK, model_max_length, show_progress)


def fit(
    texts: Iterable[str], num_entries: int, special_tokens: Sequence[str], model_max_length: int, show_progress: bool
) -> PreTrainedTokenizerFast:
    """Train byte-level BPE that puts `<s>` and `</s>` around a text, so that models learn from it where to end.

    Args:
        texts: The texts.
        num_entries: Entries of the vocabulary, the 256 bytes and the special tokens among them.
        special_tokens: `SPECIAL_TOKENS` or `WITH_MASK`.
        model_max_length: Longest input in tokens of the model that it is for.
        show_progress: Whether to show progress bars.

    Returns:
        The tokenizer.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_entries,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=show_progress,
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=False
    )
    return as_tokenizer(backend, special_tokens, model_max_length)

"""A tokenizer like BART's, of one's own texts."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast


SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


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
    least = 256 + len(SPECIAL_TOKENS)
    if num_entries < least:
        raise ValueError(f"num_entries must be at least {least} (256 bytes and the special tokens), got {num_entries}")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_entries,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=show_progress,
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=model_max_length,
        clean_up_tokenization_spaces=False,
    )

"""What the tokenizers that are fitted here have in common: their special tokens."""

from collections.abc import Sequence

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast


# As BART has them, as the ids 0 to 3; and with the mask, 4.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
WITH_MASK = (*SPECIAL_TOKENS, "<mask>")


def as_tokenizer(
    backend: Tokenizer, special_tokens: Sequence[str] = SPECIAL_TOKENS, model_max_length: int | None = None
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of Transformers.

    Args:
        backend: A fitted tokenizer.
        special_tokens: `SPECIAL_TOKENS`; or `WITH_MASK`, for models that are taught like BART or RoBERTa, whose names
            for the ends of a text it also has.
        model_max_length: Longest input in tokens; None for no limit.

    Returns:
        The tokenizer.
    """
    bos, pad, eos, unk, *mask = special_tokens
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    masked = {"cls_token": bos, "sep_token": eos, "mask_token": mask[0]} if mask else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=bos,
        pad_token=pad,
        eos_token=eos,
        unk_token=unk,
        clean_up_tokenization_spaces=False,
        **masked,
        **limit,
    )

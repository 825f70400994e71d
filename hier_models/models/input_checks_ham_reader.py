"""What readers refuse."""

import torch

from .configuration_ham_reader import HamReaderConfig


def check_words(
    name: str,
    config: HamReaderConfig,
    ids: torch.Tensor | None,  # (batch, words)
    mask: torch.Tensor | None,  # (batch, words)
    char_ids: torch.Tensor | None,  # (batch, words, chars)
    embeds: torch.Tensor | None = None,  # (batch, words, embedding_size)
) -> None:
    """Refuse words that cannot be read."""
    ids_name = f"{name}ids" if name else "input_ids"
    given = ids if ids is not None else embeds
    if given is None or (ids is not None and embeds is not None):
        either = f"`{ids_name}`" + ("" if name else " and `inputs_embeds`")
        got = "none" if given is None else "both"
        raise ValueError(f"Give {'' if name else 'exactly one of '}{either}, got {got}.")
    if given.dim() != (2 if ids is not None else 3) or 0 in given.shape[:2]:
        shown = ids_name if ids is not None else "inputs_embeds"
        raise ValueError(
            f"`{shown}` must be (batch, words{'' if ids is not None else ', embedding_size'}) and not empty, got the "
            f"shape {tuple(given.shape)}."
        )
    if ids is not None:
        _check_range(ids_name, ids, "vocab_size", config.vocab_size)
    shape = tuple(given.shape[:2])
    if mask is not None and tuple(mask.shape) != shape:
        raise ValueError(
            f"`{name}attention_mask` must have the shape of `{ids_name}`, {shape}, got {tuple(mask.shape)}."
        )
    if char_ids is None:
        if config.char_vocab_size:
            raise ValueError(f"Give `{name}char_ids`, got none: the model reads characters of words.")
        return
    if not config.char_vocab_size:
        raise ValueError(
            f"`{name}char_ids` must not be given to a model that reads words only (char_vocab_size=0), got the shape "
            f"{tuple(char_ids.shape)}."
        )
    if char_ids.dim() != 3 or tuple(char_ids.shape[:2]) != shape or not char_ids.shape[2]:
        raise ValueError(
            f"`{name}char_ids` must be (batch, words, characters) for `{ids_name}` of {shape}, got "
            f"{tuple(char_ids.shape)}."
        )
    _check_range(f"{name}char_ids", char_ids, "char_vocab_size", config.char_vocab_size)


def _check_range(name: str, ids: torch.Tensor, size_name: str, size: int) -> None:
    """Look at values on the CPU only: elsewhere it would make the device wait."""
    if ids.device.type != "cpu" or torch.compiler.is_compiling():
        return
    least, most = (int(value) for value in torch.aminmax(ids))
    if least < 0 or most >= size:
        raise ValueError(f"`{name}` must be in [0, {size_name}={size}), got {least} to {most}.")


def check_documents(document_ids: torch.Tensor | None, mask: torch.Tensor) -> None:
    """Refuse documents that do not follow each other."""
    # document_ids (batch, words), mask (batch, words)
    if document_ids is None:
        return
    if document_ids.shape != mask.shape:
        raise ValueError(
            f"`document_ids` must have the shape of the context, {tuple(mask.shape)}, got {tuple(document_ids.shape)}."
        )
    of_words = document_ids.masked_fill(~mask, -1)
    if bool((document_ids[mask] < 0).any()):
        raise ValueError(f"`document_ids` must be 0 or more for every word, got {int(document_ids[mask].min())}.")
    if bool(((of_words.cummax(-1).values != of_words) & mask).any()):
        raise ValueError("`document_ids` must not decrease in a context, got some that do.")


def check_question(mask: torch.Tensor) -> None:  # mask (batch, words)
    """Refuse a question without words."""
    empty = (~mask.any(-1)).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"`question_ids` must have a word in every question, got none in question {empty[0]}.")


__all__ = ["check_documents", "check_question", "check_words"]

"""Where texts and their sentences begin in a padded batch, and which of the markers are silent."""

import torch
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

from .input_checks import can_look_at, check_integers


logger = logging.get_logger(__name__)

# Tokens of a text from which on one marker is taken for a text that nobody split.
MANY_TOKENS = 128


def token_positions(tokens: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Count from the first attended token, so that padding on the left, counted down from -1, moves nothing."""
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
    return positions - find_first_tokens(tokens, attention_mask).to(positions.device)


def find_first_tokens(tokens: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Find the first attended token of each row of `(batch, tokens, …)`: 0 unless padded on the left, `(batch, 1)`."""
    if attention_mask is None or attention_mask.dim() != 2:
        return torch.zeros(len(tokens), 1, dtype=torch.long, device=tokens.device)
    return (attention_mask != 0).int().argmax(dim=1, keepdim=True)


def find_bos_positions(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, bos_token_id: int
) -> torch.Tensor:  # input_ids (batch, source), attention_mask (batch, source)
    """Find the BOS markers; a text without any counts as one sentence from its first attended token on."""
    length = input_ids.shape[1]
    if attention_mask is not None and attention_mask.dim() != 2:
        attention_mask = None  # one for each pair of tokens leaves no token out
    is_bos = input_ids == bos_token_id  # (batch, source)
    if attention_mask is not None:
        is_bos = is_bos & (attention_mask != 0)
    has_bos = is_bos.any(dim=1, keepdim=True)
    is_bos = is_bos | (~has_bos & (token_positions(input_ids, attention_mask) == 0))
    arange = torch.arange(length, device=input_ids.device).expand(len(input_ids), -1)

    if torch.compiler.is_exporting():
        most = length  # An exported program has no data-dependent shapes; pass `bos_positions` for a smaller one.
    else:
        counts = is_bos.sum(dim=1)  # (batch,)
        tokens = length if attention_mask is None else (attention_mask != 0).sum(dim=1)
        is_whole = (counts == 1) & torch.as_tensor(tokens >= MANY_TOKENS, device=counts.device)
        most, all_marked, any_whole = torch.stack([counts.max(), has_bos.all().long(), is_whole.any().long()]).tolist()
        if not all_marked or any_whole:
            found = "A text has no" if not all_marked else f"A text of {MANY_TOKENS} or more tokens has only one"
            logger.warning_once(
                f"{found} BOS marker (token {bos_token_id}), so it is read as one sentence. What AutoProcessor and "
                "AutoTokenizer load from a checkpoint of this family sets a marker before each sentence."
            )
    index = (is_bos.cumsum(dim=1) - 1).masked_fill(~is_bos, most)  # the last column takes what is no marker
    positions = arange.new_full((len(arange), most + 1), -1).scatter(1, index, arange)
    return positions[:, :most]  # (batch, sentences)


def fill_unmarked(bos_positions: torch.Tensor, first_tokens: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Make a document whose positions are all padding one sentence that begins at its first attended token."""
    # bos_positions (batch, sentences), first_tokens (batch, 1)
    bos_positions = bos_positions.to(device)  # the layers may be spread over several
    has_none = (bos_positions < 0).all(dim=1, keepdim=True)
    is_first_column = torch.arange(bos_positions.shape[1], device=device) == 0
    return torch.where(has_none & is_first_column, first_tokens.to(device), bos_positions)


def silence_markers(
    config: PreTrainedConfig,
    bos_positions: torch.Tensor,  # (batch, sentences)
    attention_mask: torch.Tensor | None,  # (batch, tokens)
    positions: torch.Tensor,  # (batch, tokens)
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the markers but each text's first out of what is attended to, and out of the count of positions."""
    if "flash" in (config._attn_implementation or ""):
        raise ValueError(
            "Flash attention cannot leave markers out of its keys and keep them as queries. Use "
            '`model.set_attn_implementation("sdpa")` (or "flex_attention"), or load the model with '
            "`silent_markers=False`."
        )
    if attention_mask is not None and attention_mask.dim() != 2:
        raise ValueError(
            f"`attention_mask` must be (batch, tokens) beside silent markers, got shape {tuple(attention_mask.shape)}."
        )
    batch, length = positions.shape
    index = bos_positions.to(positions.device)
    index = index.masked_fill(index < 0, length)
    index = index.masked_fill(index == index.amin(dim=1, keepdim=True), length)  # the first is the base's own
    is_silent = positions.new_zeros(batch, length + 1)  # the last column takes what is not silent
    is_silent = is_silent.scatter(1, index, 1)[:, :length]
    is_read = 1 - is_silent
    if attention_mask is not None:
        is_read = is_read * (attention_mask != 0).to(is_read.device)
    return is_read, positions - (is_silent.cumsum(dim=1) - is_silent)  # (batch, tokens)


def check_bos_positions(
    positions: torch.Tensor, shape: tuple[int, int], attention_mask: torch.Tensor | None = None
) -> None:
    """Refuse positions, (batch, sentences), that are none of the source's tokens."""
    if positions.dim() != 2 or positions.shape[0] != shape[0] or positions.shape[1] == 0:
        raise ValueError(f"`bos_positions` must be (batch={shape[0]}, sentences), got shape {tuple(positions.shape)}.")
    check_integers("bos_positions", positions)
    if not can_look_at(positions):
        return
    low, high = (int(value) for value in torch.aminmax(positions))
    if low < -1 or high >= shape[1]:
        raise ValueError(
            f"`bos_positions` must be positions of the source's {shape[1]} tokens, or -1 for padding, got values from "
            f"{low} to {high}."
        )
    if attention_mask is None or attention_mask.dim() != 2:
        return
    is_token = attention_mask.to(positions.device) != 0
    is_padding = (positions >= 0) & ~is_token.gather(1, positions.clamp(min=0).long())
    wrong = (is_padding & is_token.any(dim=1, keepdim=True)).nonzero()  # a row of padding has no sentence to mark
    if len(wrong):
        row, sentence = wrong[0].tolist()
        raise ValueError(
            f"`bos_positions` must be positions of tokens, or -1 for padding; {int(positions[row, sentence])} in row "
            f"{row} is padding by `attention_mask`."
        )

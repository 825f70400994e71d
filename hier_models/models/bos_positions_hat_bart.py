"""Where documents and their sentences begin in a padded batch."""

import torch
from transformers.utils import logging


logger = logging.get_logger(__name__)


def token_positions(tokens: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """Count from the first attended token, so that padding on the left does not move a document.

    The padding counts down from -1; `(batch, source)`.
    """
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)
    if attention_mask is None or attention_mask.dim() != 2:
        return positions
    return positions - (attention_mask != 0).int().argmax(dim=1, keepdim=True)


def find_bos_positions(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, bos_token_id: int
) -> torch.Tensor:
    """Find the BOS markers of each document.

    A document without any counts as one sentence that begins at its first attended token.

    Args:
        input_ids: token ids, `(batch, source)`.
        attention_mask: 1 for tokens, 0 for padding, `(batch, source)`; `None` for no padding.
        bos_token_id: id of the marker.

    Returns:
        Positions in increasing order, -1 for padding, `(batch, sentences)`.
    """
    length = input_ids.shape[1]
    is_bos = input_ids == bos_token_id  # (batch, source)
    if attention_mask is not None and attention_mask.dim() == 2:
        is_bos = is_bos & (attention_mask != 0)
    has_bos = is_bos.any(dim=1, keepdim=True)
    is_bos = is_bos | (~has_bos & (token_positions(input_ids, attention_mask) == 0))
    arange = torch.arange(length, device=input_ids.device).expand(len(input_ids), -1)

    if torch.compiler.is_exporting():
        most = length  # An exported program has no data-dependent shapes; pass `bos_positions` for a smaller one.
    else:
        most, all_marked = torch.stack([is_bos.sum(dim=1).max(), has_bos.all().long()]).tolist()
        if not all_marked:
            logger.warning_once(
                f"A document has no BOS marker (token {bos_token_id}) before its sentences, so it is read as one "
                "sentence. HatBartProcessor sets the markers."
            )
    index = (is_bos.cumsum(dim=1) - 1).masked_fill(~is_bos, most)  # the last column takes what is no marker
    positions = arange.new_full((len(arange), most + 1), -1).scatter(1, index, arange)
    return positions[:, :most]


def fill_unmarked(bos_positions: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Make a document whose positions are all padding one sentence that begins at its first attended token.

    Args:
        bos_positions: positions of the markers, -1 for padding, `(batch, sentences)`.
        positions: what `token_positions` counted, `(batch, source)`.

    Returns:
        The positions, on the device of `positions`.
    """
    bos_positions = bos_positions.to(positions.device)  # the layers may be spread over several
    first_tokens = (positions == 0).int().argmax(dim=1, keepdim=True)
    has_none = (bos_positions < 0).all(dim=1, keepdim=True)
    is_first_column = torch.arange(bos_positions.shape[1], device=positions.device) == 0
    return torch.where(has_none & is_first_column, first_tokens, bos_positions)


__all__ = ["fill_unmarked", "find_bos_positions", "token_positions"]

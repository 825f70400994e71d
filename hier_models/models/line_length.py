"""Lines of one length: what may be written next in a line of a poem."""

from collections.abc import Sequence

import torch
from transformers import LogitsProcessor


LINE_LENGTHS = (5, 7)


def check_line_length(length: object) -> int:
    """Check the length of a poem's lines."""
    if isinstance(length, bool) or not isinstance(length, int) or length not in LINE_LENGTHS:
        raise ValueError(f"`length` must be 5 or 7, the characters of a line, got {length!r}")
    return length


class LineLengthLogitsProcessor(LogitsProcessor):
    """Has `generate` write so many characters, no marks among them, and then the end. Source: HAM, section 5.2."""

    def __init__(self, length: int, character_ids: Sequence[int], eos_token_id: int, prompt_length: int = 1) -> None:
        self.length = check_line_length(length)
        if not len(character_ids):
            raise ValueError("`character_ids` is empty: the vocabulary has no token that is a Chinese character")
        if eos_token_id in character_ids:
            raise ValueError(f"`eos_token_id` ({eos_token_id}) is one of `character_ids`; it must end the line")
        self.character_ids = torch.as_tensor(list(character_ids), dtype=torch.long)
        self.eos_token_id = eos_token_id
        self.prompt_length = prompt_length
        self._barred: torch.Tensor | None = None

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Leave the tokens that may come next."""  # input_ids (batch, tokens), scores (batch, vocabulary)
        if input_ids.shape[-1] - self.prompt_length < self.length:
            barred = self._barred
            if barred is None or barred.shape[-1] != scores.shape[-1] or barred.device != scores.device:
                barred = torch.ones(scores.shape[-1], dtype=torch.bool, device=scores.device)
                barred[self.character_ids.to(scores.device)] = False
                self._barred = barred
            return scores.masked_fill(barred, -torch.inf)  # type: ignore[return-value]
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.eos_token_id] = 0.0
        return ended  # type: ignore[return-value]

"""Where the sentences of a padded batch begin, and what every layer needs to attend to them."""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask

from .bos_positions import fill_unmarked


class SentenceLevel(NamedTuple):
    """The BOS markers of a batch, made once for all layers."""

    positions: torch.Tensor  # of the markers, 0 for padding, (batch, sentences)
    attention_mask: Any  # mask of the hierarchical attention, in the form that the attention implementation takes
    # for each token that is a marker the number of its sentence, -1 for other tokens, (batch, tokens); `None` where
    # all tokens query.
    sentence_of_token: torch.Tensor | None
    # where the sentences stand in the flattened (batch * sentences), for implementations that take lengths in place of
    # masks; else `None`.
    packed: torch.Tensor | None
    lengths: dict[str, Any]  # these lengths, as keyword arguments of the attention

    def states(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Gather the states at the markers, `(batch, sentences, hidden_size)`."""
        index = self.positions.to(hidden_states.device).unsqueeze(-1)  # the layers may be spread over several devices
        return hidden_states.gather(1, index.expand(-1, -1, hidden_states.shape[-1]))

    def keys(self, states: torch.Tensor) -> torch.Tensor:
        """Drop the padding where it cannot be masked: `(1, sentences of the batch, hidden_size)`."""
        return states if self.packed is None else states.flatten(0, 1)[self.packed.to(states.device)].unsqueeze(0)

    def put_back(self, hidden_states: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Replace the states at the markers."""
        assert self.sentence_of_token is not None
        sentence = self.sentence_of_token.to(hidden_states.device).unsqueeze(-1)  # (batch, tokens, 1)
        spread = states.gather(1, sentence.clamp(min=0).expand(-1, -1, states.shape[-1]))
        return torch.where(sentence >= 0, spread, hidden_states)


def make_sentence_level(
    config: PreTrainedConfig, inputs_embeds: torch.Tensor, bos_positions: torch.Tensor, first_tokens: torch.Tensor
) -> SentenceLevel:
    """Prepare the hierarchical attention of a batch."""
    # inputs_embeds (batch, tokens, hidden_size), bos_positions (batch, sentences), first_tokens (batch, 1)
    batch, length = inputs_embeds.shape[:2]
    bos_positions = fill_unmarked(bos_positions, first_tokens, inputs_embeds.device)
    is_sentence = bos_positions >= 0  # (batch, sentences)
    states = inputs_embeds[:, :1].expand(-1, bos_positions.shape[1], -1)  # only its shape matters
    only_bos = config.hierarchical_queries == "bos"
    queries = states if only_bos else inputs_embeds
    mask = create_bidirectional_mask(config, queries, is_sentence.long(), encoder_hidden_states=states)

    sentence_of_token = None
    if only_bos:
        numbers = torch.arange(bos_positions.shape[1], device=bos_positions.device).expand(batch, -1)
        sentence_of_token = bos_positions.new_full((batch, length + 1), -1)  # the last column takes the padding
        sentence_of_token = sentence_of_token.scatter(1, bos_positions.masked_fill(~is_sentence, length), numbers)
        sentence_of_token = sentence_of_token[:, :length]

    packed, lengths = None, {}
    if not only_bos and isinstance(mask, torch.Tensor) and mask.dim() == 2:
        # Flash attention: its mask of the keys would be taken for one of the queries too.
        packed = is_sentence.flatten().nonzero().squeeze(1)
        counts = is_sentence.sum(dim=1).cumsum(dim=0, dtype=torch.int32)
        lengths = {
            "cu_seq_lens_q": torch.arange(batch + 1, dtype=torch.int32, device=counts.device) * length,
            "cu_seq_lens_k": nn.functional.pad(counts, (1, 0)),
            "max_length_q": length,
            "max_length_k": is_sentence.shape[1],
        }
        mask = None
    return SentenceLevel(bos_positions.clamp(min=0), mask, sentence_of_token, packed, lengths)

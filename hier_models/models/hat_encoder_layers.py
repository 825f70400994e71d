"""The layers of the encoder-only HAT; axes as in modeling_hat_encoder.py."""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.roberta.modeling_roberta import (
    RobertaAttention,
    RobertaCrossAttention,
    RobertaLayer,
    RobertaSelfAttention,
)
from transformers.processing_utils import Unpack
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils import TransformersKwargs

from .attention_products import attend_by_products, products_are_fast
from .bos_positions import fill_unmarked
from .configuration_hat_encoder import HatEncoderConfig
from .warm_start import begin_attention


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


class HatEncoderSelfAttention(RobertaSelfAttention):
    """RoBERTa's attention, by `attend_by_products` where that is faster."""

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: Any = None, cache: Any = None, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend: (batch, queries, hidden_size), and weights, if the implementation gives them."""
        if products_are_fast(self, self.dropout.p, hidden_states, attention_mask):
            return _attend(self, hidden_states, hidden_states, attention_mask), None
        return super().forward(hidden_states, attention_mask, cache, **kwargs)


class HatEncoderCrossAttention(RobertaCrossAttention):
    """The same to the states of sentences."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: Any = None,
        cache: Any = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend: (batch, queries, hidden_size), and weights, if the implementation gives them."""
        # Lengths in place of a mask are flash attention's.
        if products_are_fast(self, self.dropout.p, hidden_states, attention_mask):
            return _attend(self, hidden_states, encoder_hidden_states, attention_mask), None
        return super().forward(hidden_states, encoder_hidden_states, attention_mask, cache, **kwargs)


def _attend(attention: Any, queries: torch.Tensor, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    query, key, value = (
        part(of).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)
        for part, of in ((attention.query, queries), (attention.key, states), (attention.value, states))
    )  # (batch, heads, queries or keys, head_dim)
    dropout = attention.dropout.p if attention.training else 0.0
    attended = attend_by_products(query, key, value, mask, dropout, attention.scaling)
    return attended.transpose(1, 2).flatten(2)


class HatEncoderLayer(RobertaLayer):
    """RoBERTa's layer with an attention over BOS states behind the self-attention. Source: section 7."""

    def __init__(self, config: HatEncoderConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.only_bos_query = config.hierarchical_queries == "bos"
        if config.hierarchical_attention:  # else it is RoBERTa's layer, in what it drops, too
            self.hierarchical_attention = RobertaAttention(config, layer_idx=layer_idx, is_cross_attention=True)
            # With RoBERTa's random weights.
            self.attention.self.__class__ = HatEncoderSelfAttention
            self.hierarchical_attention.self.__class__ = HatEncoderCrossAttention

    def begin_as_identity(self, new: set[str]) -> list[str]:
        """Begin the hierarchical attention as if it were not there, with the self-attention's projections."""
        if "hierarchical_attention.output.dense.weight" not in new:
            return []
        ours, before = self.hierarchical_attention, self.attention
        begin_attention(ours, ours.output.dense, ours.output.LayerNorm, before, before.output.LayerNorm)
        return ["hierarchical_attention.self", "hierarchical_attention.output.dense"]  # the norm is the base's

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        sentences: SentenceLevel | None = None,
        position_ids: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Attend to tokens, then to sentences if there are any, then feed forward: `(batch, tokens, hidden_size)`."""
        # Flash attention reads packed texts off `position_ids`, as in RoBERTa; sentences have none.
        hidden_states, _ = self.attention(hidden_states, attention_mask, position_ids=position_ids, **kwargs)
        if sentences is not None:
            hidden_states = self._attend_to_sentences(hidden_states, sentences, **kwargs)
        return apply_chunking_to_forward(
            self.feed_forward_chunk, self.chunk_size_feed_forward, self.seq_len_dim, hidden_states
        )

    def _attend_to_sentences(
        self, hidden_states: torch.Tensor, sentences: SentenceLevel, **kwargs: Unpack[TransformersKwargs]
    ) -> torch.Tensor:
        states = sentences.states(hidden_states)  # (batch, sentences, hidden_size)
        updated, _ = self.hierarchical_attention(
            states if self.only_bos_query else hidden_states,
            encoder_hidden_states=sentences.keys(states),
            encoder_attention_mask=sentences.attention_mask,
            **sentences.lengths,
            **kwargs,
        )  # with residual and layer norm
        if not self.only_bos_query:
            return updated
        # Other tokens pass the norm too, so that it can take over scale and shift of the one before it.
        return sentences.put_back(self.hierarchical_attention.output.LayerNorm(hidden_states), updated)


class HatEncoderLayers(nn.Module):
    """The layers, under RoBERTa's name for them."""

    def __init__(self, config: HatEncoderConfig):
        super().__init__()
        self.layer = nn.ModuleList(HatEncoderLayer(config, layer_idx=i) for i in range(config.num_hidden_layers))

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        sentences: SentenceLevel | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Run all layers: `(batch, tokens, hidden_size)`."""
        for layer in self.layer:
            hidden_states = layer(hidden_states, attention_mask, sentences=sentences, **kwargs)
        return hidden_states

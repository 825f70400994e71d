"""The layers of the encoder-only HAT; axes as in modeling_hat_encoder.py."""

import torch
from torch import nn
from transformers.models.roberta.modeling_roberta import RobertaAttention, RobertaLayer
from transformers.processing_utils import Unpack
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils import TransformersKwargs

from .configuration_hat_encoder import HatEncoderConfig
from .sentence_level import SentenceLevel
from .warm_start import begin_attention


class HatEncoderLayer(RobertaLayer):
    """RoBERTa's layer with an attention over BOS states behind the self-attention. Source: section 7."""

    def __init__(self, config: HatEncoderConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.has_hierarchy = config.hierarchical_attention
        self.only_bos_query = config.hierarchical_queries == "bos"
        if self.has_hierarchy:
            self.hierarchical_attention = RobertaAttention(config, layer_idx=layer_idx, is_cross_attention=True)

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
        if sentences is not None and self.has_hierarchy:
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

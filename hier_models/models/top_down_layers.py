"""Layers of the Top-Down Transformer's encoder, BART's with BART's names: bottom-up, over segments, and top-down.

Source: Pang et al., "Long Document Summarization with Top-down and Bottom-up Inference", section 2 and figure 1.
Axes in shape comments: batch, units (tokens, or segments of a level below), segments (of the level above), d_model.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .bart_body import BodyAttention, BodyEncoderLayer, after, attention_sizes, behind_attention
from .configuration_top_down_transformer import TopDownTransformerConfig
from .input_checks import refuse_flash_mask
from .local_attention import TopDownTransformerLocalAttention
from .segment_pooling import Segments, align, pool, segment_of_units
from .warm_start import begin_attention, begin_update


class TopDownTransformerBottomUpLayer(BodyEncoderLayer):
    """BART's encoder layer, with local attention (section 2.1)."""

    def __init__(self, config: TopDownTransformerConfig, layer_idx: int, is_local: bool = True):
        super().__init__(config, layer_idx=layer_idx)
        if is_local:
            self.self_attn = TopDownTransformerLocalAttention(config, layer_idx=layer_idx)


class TopDownTransformerSegmentAttention(BodyAttention):
    """Attention of tokens, or of the segments of a lower level, to the segments above. Source: equation 1."""

    def __init__(self, config: TopDownTransformerConfig):
        super().__init__(**attention_sizes(config, "encoder"))


class TopDownTransformerTopDownLayer(TopDownTransformerBottomUpLayer):
    """Self-attention, the update from the segments above, and feed-forward. Source: section 2.2 and appendix C."""

    def __init__(self, config: TopDownTransformerConfig, layer_idx: int, is_local: bool = True):
        super().__init__(config, layer_idx, is_local)
        self.is_local = is_local
        self.top_down_update = config.top_down_update
        if self.top_down_update == "cross_attention":
            self.segment_attn = TopDownTransformerSegmentAttention(config)
            self.segment_attn_layer_norm = nn.LayerNorm(config.d_model)
        else:
            self.segment_concat = nn.Linear(2 * config.d_model, config.d_model)
            self.segment_concat_layer_norm = nn.LayerNorm(config.d_model)

    def begin_as_identity(self, new: set[str]) -> list[str]:
        """Begin the update from the segments as if it were not there, with the self-attention's projections."""
        # That of segments from new segments above begins open: a second closed door would keep gradients from these.
        opens = not self.is_local and "fc1.weight" in new and bool(self.fc2.weight.any())
        norm_before = self.self_attn_layer_norm
        if "segment_attn.out_proj.weight" in new:
            if opens:
                self.segment_attn.load_state_dict(self.self_attn.state_dict())
            else:
                ours, norm = self.segment_attn, self.segment_attn_layer_norm
                begin_attention(ours, ours.out_proj, norm, self.self_attn, norm_before)
            return ["segment_attn"]  # the norm is the base's
        if "segment_concat.weight" in new:
            if not opens:
                begin_update(self.segment_concat, self.segment_concat_layer_norm, norm_before)
            return ["segment_concat"]
        return []

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, units, d_model)
        segment_hidden_states: torch.Tensor,  # (batch, segments, d_model)
        attention_mask: torch.Tensor | None = None,
        segment_mask: torch.Tensor | BlockMask | None = None,
        segment_index: torch.Tensor | None = None,  # segment of each unit, for `"concat"`, (batch, units)
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Update units by each other and by their segments."""
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, **kwargs)
        hidden_states = after(self, self.self_attn_layer_norm, hidden_states, attended)

        if self.top_down_update == "cross_attention":
            attended, _ = self.segment_attn(
                hidden_states, key_value_states=segment_hidden_states, attention_mask=segment_mask, **kwargs
            )
            return behind_attention(self, self.segment_attn_layer_norm, hidden_states, attended)
        index = segment_index.to(hidden_states.device)[:, :, None].expand(-1, -1, segment_hidden_states.shape[-1])
        above = segment_hidden_states.gather(1, index)  # (batch, units, d_model)
        update = self.segment_concat(torch.cat([hidden_states, above], dim=-1))
        return behind_attention(self, self.segment_concat_layer_norm, hidden_states, update)


class TopDownTransformerSegmentLevels(nn.ModuleList):
    """Pools tokens into levels of segments, each updated by the one above (sections 2.2, 2.3; the paper has one)."""

    def __init__(self, config: TopDownTransformerConfig):
        top = len(config.pooling_windows) - 1
        super().__init__(
            nn.ModuleList(
                BodyEncoderLayer(config, layer_idx=i)
                if level == top
                else TopDownTransformerTopDownLayer(config, layer_idx=i, is_local=False)
                for i in range(config.segment_layers)
            )
            for level in range(top + 1)
        )
        self.config = config

    def forward(
        self, tokens: Segments, embed_positions: nn.Embedding | None = None, **kwargs: Unpack[TransformersKwargs]
    ) -> Segments:
        """Return the segments that the tokens are in."""
        levels: list[Segments] = []
        units = align(tokens)
        for kernel, stride in self.config.pooling_windows:
            units = pool(units, kernel, stride)
            if embed_positions is not None and not levels:
                numbers = torch.arange(units.states.shape[1], device=units.states.device)
                positions = embed_positions(numbers.clamp(max=embed_positions.num_embeddings - 1))
                units = units._replace(states=units.states + positions.to(units.states))
            levels.append(units)

        above: Segments | None = None
        for number in reversed(range(len(levels))):
            units = levels[number]
            states = units.states
            attention_mask = create_bidirectional_mask(self.config, states, units.exists.long())
            inputs: tuple[Any, ...] = (attention_mask,)
            found: dict[str, Any] = {}
            if above is not None:  # the states positional, for gradient checkpointing
                inputs = (above.states, attention_mask)
                found = find_segments(self.config, states, units.exists, above, level=number + 1)
            for layer in self[number]:
                states = layer(states, *inputs, **found, **kwargs)
            above = units._replace(states=states)
        assert above is not None
        return above


def find_segments(
    config: PreTrainedConfig, states: torch.Tensor, exists: torch.Tensor, above: Segments, level: int = 0
) -> dict[str, Any]:  # states (batch, units, d_model), exists (batch, units)
    """Make what a top-down layer needs to find the segments above: its `segment_index` or `segment_mask`."""
    if config.top_down_update == "concat":
        return {"segment_index": segment_of_units(exists, above, config.pooling_windows[level][1])}
    # Where a dense mask is made, one row of it stands for all units.
    queries = states[:, :1] if config._attn_implementation in ("eager", "sdpa") else states
    mask = create_bidirectional_mask(config, queries, above.exists.long(), encoder_hidden_states=above.states)
    refuse_flash_mask(mask, states.shape[1])
    return {"segment_mask": mask}

"""What the models of the Highlight-Transformer share: capabilities, the warm start from BART, and positions."""

import math
from typing import Any, Self

import torch
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding

from .bart_warm_start import BartWarmStart
from .configuration_highlight_transformer import HighlightTransformerConfig


class HighlightTransformerPreTrainedModel(BartWarmStart, PreTrainedModel):
    """What the models of this family share: capabilities, warm start and positions."""

    config: HighlightTransformerConfig
    config_class = HighlightTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _keys_to_ignore_on_load_unexpected = [r"encoder\.version", r"decoder\.version"]
    _no_split_modules = ["HighlightTransformerEncoderLayer", "CopyDecoderLayer"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    @classmethod
    def from_bart(
        cls,
        pretrained_model_name_or_path: str,
        *,
        max_position_embeddings: int | None = None,
        extra_positions: str = "tile",
        **kwargs: Any,
    ) -> Self:
        """Warm start from a BART checkpoint, with room for longer documents.

        All of BART's weights are kept, and its body: post-norm layers, learned positions, embeddings as they are. Only
        the gate between generating and copying is new, and begins closed (`new_modules`): without phrases, the model's
        probabilities are BART's to 1e-3. Without growing positions, plain `from_pretrained` of the BART
        checkpoint does the same. The checkpoint's tokenizer keeps its own limit: load it with `model_max_length=` the
        new number of positions.

        Source: ours; the paper trains from scratch.

        Args:
            pretrained_model_name_or_path: a BART checkpoint, on the Hub or in a folder.
            max_position_embeddings: longest source and longest target, in tokens; as in the checkpoint when not given.
            extra_positions: `"tile"` repeats the learned positions, `"random"` draws new ones.
            **kwargs: fields of [`HighlightTransformerConfig`], such as `highlighting` or `use_copy`, and arguments of
                `from_pretrained`, such as `dtype` or `revision`.

        Returns:
            A model of the class this is called on; with `output_loading_info=True`, the model and the loading report.

        Raises:
            ValueError: if the checkpoint is of another family than BART and this one, `extra_positions` is neither of
                the two, or `max_position_embeddings` is no integer or less than BART's.
        """
        positions = {"max_position_embeddings": max_position_embeddings}
        return cls.load_bart(pretrained_model_name_or_path, positions, extra_positions, **kwargs)

    def resize_position_embeddings(self, new_num_position_embeddings: int, extra_positions: str = "tile") -> None:
        """Grow the positions of encoder and decoder, so that the model takes longer sources and targets.

        Args:
            new_num_position_embeddings: longest source and target, in tokens.
            extra_positions: `"tile"` repeats learned positions, `"random"` draws new ones. Sinusoidal positions have a
                value everywhere.

        Raises:
            ValueError: if it is no integer or less than there are, or `extra_positions` is neither of the two.
        """
        self.grow_positions(new_num_position_embeddings, extra_positions, "max_position_embeddings")


class SinusoidalPositions(nn.Module):
    """Sines and cosines of each position, in turns, at wavelengths from 2 pi to 20,000 pi.

    Source: Vaswani et al., "Attention Is All You Need", section 3.5.
    """

    def __init__(self, embedding_dim: int):
        super().__init__()
        self.embedding_dim = embedding_dim

    def forward(self, position_ids: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return (…, embedding_dim) for positions of any shape, computed in float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)
        steps = torch.arange(0, self.embedding_dim, 2, device=position_ids.device, dtype=wide)
        angles = position_ids[..., None] * torch.exp(steps * (-math.log(10000.0) / self.embedding_dim))
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(dtype)


def make_positions(config: HighlightTransformerConfig) -> nn.Module:
    """Make the positions of the encoder or the decoder."""
    if config.position_embedding_type == "sinusoidal":
        return SinusoidalPositions(config.d_model)
    assert config.max_position_embeddings is not None
    return BartLearnedPositionalEmbedding(config.max_position_embeddings, config.d_model)


def add_positions(embed_positions: nn.Module, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    """Add positions to token embeddings."""
    # inputs_embeds (batch, tokens, d_model), position_ids (batch, tokens)
    if isinstance(embed_positions, SinusoidalPositions):
        positions = embed_positions(position_ids, inputs_embeds.dtype)
    else:
        positions = embed_positions(position_ids, position_ids=position_ids)[0]  # made for ids without a batch
    return inputs_embeds + positions.to(inputs_embeds.device)  # (batch, tokens, d_model)


__all__ = [
    "HighlightTransformerPreTrainedModel",
    "SinusoidalPositions",
    "add_positions",
    "make_positions",
]

"""What the models of the Highlight-Transformer share: capabilities, the warm start from BART, and positions."""

import math
from typing import Any, Self

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding, BartScaledWordEmbedding

from .configuration_highlight_transformer import HighlightTransformerConfig


class HighlightTransformerPreTrainedModel(PreTrainedModel):
    """What the models of this family share: capabilities, warm start and positions."""

    config: HighlightTransformerConfig
    config_class = HighlightTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _keys_to_ignore_on_load_unexpected = [r"encoder\.version", r"decoder\.version"]
    _no_split_modules = ["HighlightTransformerEncoderLayer", "HighlightTransformerDecoderLayer"]
    _skip_keys_device_placement = ["past_key_values"]
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
        the gate between generating and copying is new. Without growing positions, plain `from_pretrained` of the BART
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
        _check(extra_positions, max_position_embeddings)
        _check_checkpoint(cls.config_class, pretrained_model_name_or_path, kwargs)
        loaded = cls.from_pretrained(pretrained_model_name_or_path, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with `output_loading_info=True`
        if max_position_embeddings is not None:
            model.resize_position_embeddings(max_position_embeddings, extra_positions=extra_positions)
        return loaded

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize all embeddings; those of source and target for themselves where they are not shared.

        Args:
            new_num_tokens: see `PreTrainedModel.resize_token_embeddings`.
            pad_to_multiple_of: see there.
            mean_resizing: see there.

        Returns:
            The shared embedding.
        """
        own = [
            (part, part.embed_tokens)
            for part in self.modules()
            if part is not self and isinstance(part, PreTrainedModel) and "embed_tokens" in part._modules
        ]
        embeddings: nn.Embedding = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if not self.config.tie_word_embeddings:
            for part, old in own:
                part.embed_tokens = old  # in whose place the shared one was put
                part.resize_token_embeddings(embeddings.num_embeddings, mean_resizing=mean_resizing)
        return embeddings

    def resize_position_embeddings(self, new_num_position_embeddings: int, extra_positions: str = "tile") -> None:
        """Grow the positions of encoder and decoder, so that the model takes longer sources and targets.

        Args:
            new_num_position_embeddings: longest source and target, in tokens.
            extra_positions: `"tile"` repeats learned positions, `"random"` draws new ones. Sinusoidal positions have a
                value everywhere.

        Raises:
            ValueError: if it is no integer or less than there are, or `extra_positions` is neither of the two.
        """
        _check(extra_positions, new_num_position_embeddings)
        config = self.config
        present = config.max_position_embeddings
        if present is None:
            return  # sinusoidal, without a limit
        if new_num_position_embeddings < present:
            raise ValueError(
                f"`max_position_embeddings` must be at least the checkpoint's {present}, got "
                f"{new_num_position_embeddings}. For shorter inputs, give the processor a `max_length`."
            )
        base = getattr(self, self.base_model_prefix, self)
        if config.position_embedding_type == "learned" and new_num_position_embeddings > present:
            std = config.init_std if extra_positions == "random" else None
            parts = [part for part in (getattr(base, "encoder", None), getattr(base, "decoder", None)) if part]
            for part in parts or [base]:
                part.embed_positions = _grow_positions(part.embed_positions, new_num_position_embeddings, std)
        config.max_position_embeddings = new_num_position_embeddings

    def _drops_layer(self, probability: float) -> bool:
        return self.training and probability > 0.0 and torch.rand([]).item() < probability


class SinusoidalPositions(nn.Module):
    """Sines and cosines of each position, in turns, at wavelengths from 2 pi to 20,000 pi.

    Source: Vaswani et al., "Attention Is All You Need", section 3.5.

    Args:
        embedding_dim: width, even.
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


def make_token_embedding(config: HighlightTransformerConfig) -> BartScaledWordEmbedding:
    """Make the embedding that encoder, decoder and head share."""
    embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
    return BartScaledWordEmbedding(config.vocab_size, config.d_model, config.pad_token_id, embed_scale=embed_scale)


def make_positions(config: HighlightTransformerConfig) -> nn.Module:
    """Make the positions of the encoder or the decoder."""
    if config.position_embedding_type == "sinusoidal":
        return SinusoidalPositions(config.d_model)
    assert config.max_position_embeddings is not None
    return BartLearnedPositionalEmbedding(config.max_position_embeddings, config.d_model)


def add_positions(embed_positions: nn.Module, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    """Add positions to token embeddings.

    Args:
        embed_positions: from `make_positions`.
        inputs_embeds: (batch, tokens, d_model).
        position_ids: (batch, tokens) or (tokens,).

    Returns:
        (batch, tokens, d_model).
    """
    if isinstance(embed_positions, SinusoidalPositions):
        positions = embed_positions(position_ids, inputs_embeds.dtype)
    else:
        positions = embed_positions(position_ids, position_ids=position_ids)[0]  # made for ids without a batch
    return inputs_embeds + positions.to(inputs_embeds.device)


def _check_checkpoint(
    config_class: type[PreTrainedConfig], pretrained_model_name_or_path: str, kwargs: dict[str, Any]
) -> None:
    """Refuse to begin with weights of another family, which would be left out, or read as BART's."""
    if isinstance(kwargs.get("config"), PreTrainedConfig):
        return
    found, _ = PreTrainedConfig.get_config_dict(pretrained_model_name_or_path, **kwargs)
    model_type = found.get("model_type", "bart")
    if model_type not in ("bart", config_class.model_type):
        raise ValueError(
            f"`from_bart` takes a checkpoint of BART or of {config_class.model_type}, got one of {model_type!r} in "
            f"{pretrained_model_name_or_path!r}."
        )


def _check(extra_positions: str, number: int | None) -> None:
    if extra_positions not in ("tile", "random"):
        raise ValueError(f"`extra_positions` must be 'tile' or 'random', got {extra_positions!r}.")
    if number is not None and type(number) is not int:
        raise ValueError(f"`max_position_embeddings` must be an integer, got {number!r}.")


@torch.no_grad()
def _grow_positions(
    embedding: BartLearnedPositionalEmbedding, length: int, std: float | None
) -> BartLearnedPositionalEmbedding:
    """Add rows up to `length` positions: drawn with standard deviation `std`, copies in order where it is `None`."""
    old = embedding.weight
    grown = BartLearnedPositionalEmbedding(length, embedding.embedding_dim).to(device=old.device, dtype=old.dtype)
    if std is None:
        learned = old[embedding.offset :]
        copies = math.ceil(length / len(learned))
        grown.weight[embedding.offset :] = learned.repeat(copies, 1)[:length]
    else:
        grown.weight.normal_(std=std)
    grown.weight[: len(old)] = old
    return grown


__all__ = [
    "HighlightTransformerPreTrainedModel",
    "SinusoidalPositions",
    "add_positions",
    "make_positions",
    "make_token_embedding",
]

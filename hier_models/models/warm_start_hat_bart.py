"""Warm start of HAT-BART from BART, and more positions for both."""

import math
from typing import Any, Self

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding


class WarmStartFromBart:
    """Gives a model of this family `from_bart`."""

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

        All of BART's weights are kept; only the hierarchical modules, and segment embeddings if asked for, are new.
        Without growing positions, plain `from_pretrained` of the BART checkpoint does the same. The checkpoint's
        tokenizer keeps its own limit: load it with `model_max_length=` the new number of positions.

        Source: section 4.1, which starts from BART with random positions for the added length.

        Args:
            pretrained_model_name_or_path: a BART checkpoint, on the Hub or in a folder.
            max_position_embeddings: positions to grow to, in tokens. The paper uses 3072 for papers.
            extra_positions: `"tile"` repeats the learned positions, `"random"` (paper) draws new ones.
            **kwargs: fields of [`HatBartConfig`], such as `hierarchical_layers` or `num_segments`, and arguments of
                `from_pretrained`, such as `dtype` or `revision`.

        Returns:
            A model of the class this is called on; with `output_loading_info=True`, the model and the loading report.

        Raises:
            ValueError: if the checkpoint is of another family than BART and this one, `extra_positions` is neither of
                the two, or `max_position_embeddings` is no integer or less than BART's.
        """
        _check(max_position_embeddings, extra_positions)
        _check_checkpoint(cls.config_class, pretrained_model_name_or_path, kwargs)
        loaded = cls.from_pretrained(pretrained_model_name_or_path, **kwargs)
        if max_position_embeddings is not None:
            model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with `output_loading_info=True`
            grow_positions(model, max_position_embeddings, extra_positions)
        return loaded


def grow_positions(model: PreTrainedModel, max_position_embeddings: int, extra_positions: str = "tile") -> None:
    """Give BART, or a model that has BART's position embeddings, more positions, in place.

    Args:
        model: the model; its config is changed with it.
        max_position_embeddings: positions to grow to, in tokens.
        extra_positions: `"tile"` repeats the learned positions, `"random"` draws new ones.

    Raises:
        ValueError: if `extra_positions` is neither of the two, or `max_position_embeddings` is no integer or less than
            the model's.
    """
    _check(max_position_embeddings, extra_positions)
    config = model.config
    if max_position_embeddings < config.max_position_embeddings:
        raise ValueError(
            f"`max_position_embeddings` must be at least the checkpoint's {config.max_position_embeddings}, got "
            f"{max_position_embeddings}. For shorter inputs, give the processor a `max_length`."
        )
    if max_position_embeddings == config.max_position_embeddings:
        return
    base = getattr(model, model.base_model_prefix, model)
    std = config.init_std if extra_positions == "random" else None
    for part in (base.encoder, base.decoder):
        part.embed_positions = _grown(part.embed_positions, max_position_embeddings, std)
    config.max_position_embeddings = max_position_embeddings


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


def _check(max_position_embeddings: int | None, extra_positions: str) -> None:
    if extra_positions not in ("tile", "random"):
        raise ValueError(f"`extra_positions` must be 'tile' or 'random', got {extra_positions!r}.")
    if max_position_embeddings is not None and type(max_position_embeddings) is not int:
        raise ValueError(f"`max_position_embeddings` must be an integer, got {max_position_embeddings!r}.")


@torch.no_grad()
def _grown(
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


__all__ = ["WarmStartFromBart", "grow_positions"]

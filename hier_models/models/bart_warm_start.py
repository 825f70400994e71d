"""The warm start from BART: its weights, and more positions than it has."""

import math
from typing import Any, Self

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding

from .bart_body import BartBodyPreTrainedModel
from .warm_start import BeginsAsBase


class BartWarmStart(BeginsAsBase, BartBodyPreTrainedModel):
    """A model that begins with BART's weights."""

    _can_compile_fullgraph = True

    @classmethod
    def load_bart(
        cls, pretrained_model_name_or_path: str, positions: dict[str, int | None], extra_positions: str, **kwargs: Any
    ) -> Self:
        """Load a checkpoint of BART or of this family, and grow its positions; what every `from_bart` does."""
        for name, number in positions.items():
            _check(extra_positions, name, number)
        if not isinstance(kwargs.get("config"), PreTrainedConfig):
            found, _ = PreTrainedConfig.get_config_dict(pretrained_model_name_or_path, **kwargs)
            model_type, own = found.get("model_type", "bart"), cls.config_class.model_type
            if model_type not in ("bart", own):  # whose weights would be left out, or read as BART's
                raise ValueError(
                    f"`from_bart` takes a checkpoint of BART or of {own}, got one of {model_type!r} in "
                    f"{pretrained_model_name_or_path!r}."
                )
        loaded: Any = cls.from_pretrained(pretrained_model_name_or_path, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with `output_loading_info=True`
        for name, number in positions.items():
            if number is not None:
                model.grow_positions(number, extra_positions, name, also_above=not cls._upper_positions & set(kwargs))
        return loaded

    # Fields of the configuration that number what stands above the tokens.
    _upper_positions: frozenset[str] = frozenset()

    def grow_positions(self, number: int, extra_positions: str, name: str, also_above: bool = True) -> None:
        """Grow positions; where they are copied and all begins as the identity, sentences or segments get some too."""
        model: Any = self
        present = getattr(model.config, name)
        grow_positions(model, number, extra_positions, name)
        copies = present is not None and number > present and extra_positions == "tile" and "decoder" not in name
        if not (also_above and copies and model.config.new_modules == "identity"):
            return
        encoder = getattr(getattr(model, model.base_model_prefix, model), "encoder", model)
        for field, attribute, wanted in self._wanted_above():
            old = getattr(encoder, attribute, None)
            rows = 0 if old is None else old.num_embeddings
            if wanted <= rows:
                continue
            like = encoder.layernorm_embedding.weight
            grown = nn.Embedding(wanted, model.config.d_model, device=like.device, dtype=like.dtype)
            nn.init.zeros_(grown.weight)
            if old is not None:
                grown.weight.data[:rows] = old.weight
                grown.weight.data[rows:] = old.weight[-1]  # which those behind it have had
            setattr(encoder, attribute, grown)
            setattr(model.config, field, wanted)
            if old is None:
                added = (key for key, parameter in model.named_parameters() if parameter is grown.weight)
                self.new_parameters = (*self.new_parameters, *added)

    def _wanted_above(self) -> list[tuple[str, str, int]]:
        """For sentences or segments: the configuration's field, the encoder's attribute, how many positions."""
        return []

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

        All of BART's weights are kept, and its body. What is new begins as if it were not there (`new_modules`): the
        model is BART until it is trained. Without growing positions, plain `from_pretrained` of the BART checkpoint
        does the same. The checkpoint's tokenizer keeps its own limit: load it with `model_max_length=` the new number
        of positions.

        Source: HAT-BART, section 4.1, which starts from BART with random positions for the added length, and random
        modules; the Highlight-Transformer's paper trains from scratch.

        Args:
            pretrained_model_name_or_path: a BART checkpoint, on the Hub or in a folder.
            max_position_embeddings: longest source and longest target to grow to, in tokens; as in the checkpoint when
                not given.
            extra_positions: `"tile"` repeats the learned positions, and sentences, where a model has a level of them,
                get positions of their own (`sentence_position_embeddings`) unless `new_modules="random"`; `"random"`
                draws new ones.
            **kwargs: fields of the configuration, such as `hierarchical_layers` or `highlighting`, and arguments of
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
        """Grow the positions of encoder and decoder: longer sources and targets; arguments as in [`from_bart`]."""
        self.grow_positions(new_num_position_embeddings, extra_positions, "max_position_embeddings")


def grow_positions(
    model: PreTrainedModel, number: int, extra_positions: str = "tile", name: str = "max_position_embeddings"
) -> None:
    """Give BART, or a model that has BART's position embeddings, more positions, in place."""
    _check(extra_positions, name, number)
    config = model.config
    present = getattr(config, name)
    if present is None:
        return  # sinusoidal, without a limit
    if number < present:
        raise ValueError(
            f"`{name}` must be at least the checkpoint's {present}, got {number}. For shorter inputs, give the "
            "processor a `max_length`."
        )
    base = getattr(model, model.base_model_prefix, model)
    sides = [side for side in ("encoder", "decoder") if side in name] or ["encoder", "decoder"]
    parts = [getattr(base, side) for side in sides if hasattr(base, side)]
    if not parts and len(sides) == 2:  # an encoder or a decoder by itself
        parts = [base]
    std = config.init_std if extra_positions == "random" else None
    for part in parts:
        if number > present and isinstance(part.embed_positions, BartLearnedPositionalEmbedding):
            part.embed_positions = _grown(part.embed_positions, number, std)
    setattr(config, name, number)


def _check(extra_positions: str, name: str, number: int | None) -> None:
    if extra_positions not in ("tile", "random"):
        raise ValueError(f"`extra_positions` must be 'tile' or 'random', got {extra_positions!r}.")
    if number is not None and type(number) is not int:
        raise ValueError(f"`{name}` must be an integer, got {number!r}.")


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

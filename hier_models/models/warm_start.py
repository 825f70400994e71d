"""A warm start that costs nothing: what a checkpoint lacks begins as if it were not there.

A new attention on a normalised stream is the identity, but for the norm's eps, if its output is zero and it takes over
scale and shift of the norm before it, which is left with neither: then norm(z + 0) = scale · z + shift.
"""

from typing import Any, Self, cast

import torch
from torch import nn
from transformers.modeling_utils import PreTrainedModel


class FreezesEmbeddings(PreTrainedModel):
    """A model whose `_freeze` makes embeddings untrainable."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Self:
        """Load a model; see `PreTrainedModel.from_pretrained`."""
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # a pair with `output_loading_info=True`
        model._freeze()  # loading makes every weight trainable
        return loaded

    def post_init(self) -> None:
        """Make what the class needs once its modules are there."""
        super().post_init()
        self._freeze()

    def _freeze(self) -> None:
        raise NotImplementedError


class BeginsAsBase:
    """Gives a model a `from_pretrained` that begins what a checkpoint lacks as `config.new_modules` says."""

    new_parameters: tuple[str, ...] = ()

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **kwargs: Any) -> Self:
        """Load a checkpoint, of this family or a base of it; see `PreTrainedModel.from_pretrained`."""
        loader = cast(Any, super())
        model, report = loader.from_pretrained(*args, output_loading_info=True, **kwargs)
        if model.config.new_modules == "identity":
            lacking = {*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])}
            model.new_parameters = begin_as_identity(model, lacking)
        return (model, report) if output_loading_info else model  # type: ignore[return-value]


@torch.no_grad()
def begin_as_identity(model: PreTrainedModel, lacking: set[str]) -> tuple[str, ...]:
    """Begin new modules so that nothing changes; `module.begin_as_identity(new)` names those that it began."""
    parameters = dict(model.named_parameters())
    embedding = model.get_input_embeddings().weight
    if any(parameters[name] is embedding for name in lacking & set(parameters)):
        return ()  # there is no base
    begun: list[str] = []
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        new = {key.removeprefix(prefix) for key in lacking if key.startswith(prefix)}
        if new and hasattr(module, "begin_as_identity"):
            parts = module.parameters()
            if any(part.is_meta or not part.numel() or not part.is_floating_point() for part in parts):
                raise ValueError(
                    "The checkpoint lacks modules, which begin as the identity by values of those around them; these "
                    "are quantized, offloaded or sharded here. Load the base once without that, `save_pretrained` it "
                    'and load what was saved, or give `new_modules="random"`.'
                )
            inside = tuple(f"{prefix}{began}." for began in module.begin_as_identity(new))
            begun += [key for key in parameters if key in lacking and key.startswith(inside)]
    return tuple(dict.fromkeys(begun))


def begin_attention(
    new: nn.Module, output: nn.Linear, norm: nn.LayerNorm, before: nn.Module, norm_before: nn.LayerNorm
) -> None:
    """Begin an attention, with the norm behind it, as the identity, and with the projections of the one before it."""
    new.load_state_dict(before.state_dict())
    begin_update(output, norm, norm_before)


def begin_update(output: nn.Linear, norm: nn.LayerNorm, norm_before: nn.LayerNorm) -> None:
    """Begin an update of a normalised stream as the identity."""
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    norm.load_state_dict(norm_before.state_dict())
    # New ones, since those that there are may be another model's too (`from_pretrained(state_dict=…)`).
    norm_before.weight = nn.Parameter(torch.ones_like(norm_before.weight))
    norm_before.bias = nn.Parameter(torch.zeros_like(norm_before.bias))


def begin_layers(layers: Any, base: Any, new: set[str], name: str) -> bool:
    """Begin new layers as the base's last ones, or, behind layers that are trained already, as the identity."""
    is_new = [f"{name}.{number}.fc1.weight" in new for number in range(len(layers))]
    for number, layer in enumerate(layers):
        if not is_new[number]:
            continue
        before = layers[number - 1] if number and not is_new[0] else None
        source = base[max(0, len(base) - len(layers) + number)] if before is None else before
        own = layer.state_dict()
        layer.load_state_dict({**own, **{key: value for key, value in source.state_dict().items() if key in own}})
        if before is not None:
            begin_update(layer.self_attn.out_proj, layer.self_attn_layer_norm, before.final_layer_norm)
            begin_update(layer.fc2, layer.final_layer_norm, layer.self_attn_layer_norm)
    return any(is_new)

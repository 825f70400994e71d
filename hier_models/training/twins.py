"""Twins to compare the families with: BART with as many parameters, and LED from BART's weights."""

from typing import Any

import torch
from torch import nn
from transformers import BartForConditionalGeneration, LEDConfig, LEDForConditionalGeneration, PreTrainedModel

from ..models.bart_warm_start import grow_positions


# LED's names for what BART's encoder has in each self-attention; projections for global attention begin as copies.
ATTENTION = {
    "q_proj": ("longformer_self_attn.query", "longformer_self_attn.query_global"),
    "k_proj": ("longformer_self_attn.key", "longformer_self_attn.key_global"),
    "v_proj": ("longformer_self_attn.value", "longformer_self_attn.value_global"),
    "out_proj": ("output",),
}
BART_OFFSET = 2  # of BART's positions, which LED does not have
FEED_FORWARD = ("encoder_ffn_dim", "decoder_ffn_dim")


@torch.no_grad()
def widen_feed_forward(
    model: PreTrainedModel, encoder_ffn_dim: int | None = None, decoder_ffn_dim: int | None = None
) -> list[str]:
    """Give feed-forward blocks more neurons, whose outputs begin with zeros: the model computes what it did."""
    grown: list[str] = []
    for part, wanted in (("encoder", encoder_ffn_dim), ("decoder", decoder_ffn_dim)):
        present = getattr(model.config, f"{part}_ffn_dim", None)
        if wanted is None or wanted == present:
            continue
        if present is None or wanted < present:
            raise ValueError(f"{part}_ffn_dim must be at least the model's {present}, got {wanted}")
        blocks = [
            (name, module)
            for name, module in model.named_modules()
            if part in name.split(".") and hasattr(module, "fc1") and hasattr(module, "fc2")
        ]
        if not blocks:
            raise ValueError(f"{type(model).__name__} has no blocks fc1 and fc2 in its {part} that could be widened")
        for name, block in blocks:
            for layer, axis, std in (("fc1", 0, model.config.init_std), ("fc2", 1, 0.0)):
                setattr(block, layer, _widened(getattr(block, layer), axis, wanted, std))
                grown += [f"{name}.{layer}.weight", *([f"{name}.fc1.bias"] if layer == "fc1" else [])]
        setattr(model.config, f"{part}_ffn_dim", wanted)
    return grown


def _widened(layer: nn.Linear, axis: int, size: int, std: float) -> nn.Linear:
    """A linear layer with more outputs (axis 0) or inputs (axis 1)."""
    outputs, inputs = (size if axis == place else own for place, own in enumerate(layer.weight.shape))
    wide = nn.Linear(inputs, outputs).to(layer.weight.device, layer.weight.dtype)
    wide.weight.normal_(std=std)
    wide.bias.zero_()
    wide.weight[: layer.weight.shape[0], : layer.weight.shape[1]] = layer.weight
    wide.bias[: len(layer.bias)] = layer.bias
    return wide


@torch.no_grad()
def led_from_bart(
    pretrained_model_name_or_path: str,
    *,
    max_encoder_position_embeddings: int | None = None,
    attention_window: int = 512,
    extra_positions: str = "tile",
    **overrides: Any,
) -> tuple[LEDForConditionalGeneration, dict[str, Any]]:
    """Make an LED of BART's weights, its positions and projections repeated (Beltagy et al., 2020, section 7)."""
    bart = BartForConditionalGeneration.from_pretrained(pretrained_model_name_or_path, dtype=torch.float32)
    if bart.config.scale_embedding:
        raise ValueError(f"{pretrained_model_name_or_path} has scale_embedding, which LED has not")
    present = bart.config.max_position_embeddings
    length = present if max_encoder_position_embeddings is None else max_encoder_position_embeddings
    if attention_window < 2 or attention_window % 2:
        raise ValueError(f"attention_window must be an even number of tokens, at least 2, got {attention_window}")
    if length < present:
        raise ValueError(f"max_encoder_position_embeddings must be at least the checkpoint's {present}, got {length}")
    if length % attention_window:
        raise ValueError(f"max_encoder_position_embeddings must be a multiple of {attention_window=}, got {length}")
    shared = {*type(bart.config).__annotations__} & {*LEDConfig.__annotations__, "forced_eos_token_id"}
    settings = {name: getattr(bart.config, name) for name in shared}
    lengths = {"max_encoder_position_embeddings": length, "max_decoder_position_embeddings": present}
    config = LEDConfig(**{**settings, **lengths, "attention_window": attention_window, **overrides})
    led = LEDForConditionalGeneration(config)
    widen_feed_forward(bart, config.encoder_ffn_dim, config.decoder_ffn_dim)
    grow_positions(bart, length, extra_positions)
    weights = _led_names(bart.state_dict())
    for side, positions in (("encoder", length), ("decoder", present)):
        name = f"led.{side}.embed_positions.weight"
        weights[name] = weights[name][BART_OFFSET:][:positions]
    led.load_state_dict(weights)
    led.tie_weights()
    led.generation_config = bart.generation_config
    return led, {"missing_keys": [], "mismatched_keys": [], "unexpected_keys": []}


def _led_names(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """BART's weights under LED's names."""
    renamed: dict[str, torch.Tensor] = {}
    for name, value in weights.items():
        place = f"led.{name.removeprefix('model.')}" if name.startswith("model.") else name
        before, found, after = place.partition(".self_attn.")
        if not (found and before.startswith("led.encoder.")):
            renamed[place] = value
            continue
        projection, _, kind = after.partition(".")
        for target in ATTENTION[projection]:
            renamed[f"{before}.self_attn.{target}.{kind}"] = value.clone()
    return renamed

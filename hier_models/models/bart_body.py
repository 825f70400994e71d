"""What models with BART's body have alike, whether they begin with its weights or not: embeddings, and the decoder.

Axes in shape comments: batch (documents), source (source tokens), target (target tokens), d_model (width).
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.models.bart.modeling_bart import (
    BartAttention,
    BartEncoderLayer,
    BartLearnedPositionalEmbedding,
    BartScaledWordEmbedding,
    eager_attention_forward,
    shift_tokens_right,
)
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention_kernel import attend_step, attend_with_kernel, kernel_is_fast, step_is_fast
from .attention_products import attend_by_products, made_again, products_are_fast
from .config_checks import end_ids
from .decoder_kernel import add_and_norm, multiply
from .input_checks import check_decoded, check_target, refuse_flash_mask


# Tokens that go through what updates each by itself at a time, where no gradient is wanted.
TOKENS_AT_ONCE = 1024


class BartBodyPreTrainedModel(PreTrainedModel):
    """Capabilities, and embeddings that encoder and decoder may share."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _keys_to_ignore_on_load_unexpected = [r"encoder\.version", r"decoder\.version"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True

    def add_layers(self, layers: Iterable[nn.Module], positions: int | None, segments: int = 0) -> None:
        """Make embeddings, layers and norms, in the order of an optimizer's states in checkpoints of a training."""
        self.embed_tokens = make_token_embedding(self.config)
        if getattr(self.config, "position_embedding_type", "learned") == "sinusoidal":
            self.embed_positions: nn.Module = SinusoidalPositions(self.config.d_model)
        else:
            self.embed_positions = BartLearnedPositionalEmbedding(positions, self.config.d_model)
        if segments:
            self.embed_segments = nn.Embedding(segments, self.config.d_model)
        self.normalize_before = getattr(self.config, "normalize_before", False)
        if not self.normalize_before:
            self.layernorm_embedding = nn.LayerNorm(self.config.d_model)
        self.layers = nn.ModuleList(layers)
        if self.normalize_before:
            self.layer_norm = nn.LayerNorm(self.config.d_model)
        self.dropout = self.config.dropout
        self.gradient_checkpointing = False

    def _add_positions(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        if isinstance(self.embed_positions, SinusoidalPositions):
            positions = self.embed_positions(position_ids, inputs_embeds.dtype)
        else:  # made for ids without a batch
            positions = self.embed_positions(position_ids, position_ids=position_ids)[0]
        return inputs_embeds + positions.to(inputs_embeds.device)  # (batch, tokens, d_model)

    def _begin(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Norm what was embedded, unless norms stand before the layers, and drop some."""
        if not self.normalize_before:
            hidden_states = self.layernorm_embedding(hidden_states)
        return nn.functional.dropout(hidden_states, p=self.dropout, training=self.training)

    def _drops_layer(self, probability: float) -> bool:
        return self.training and probability > 0.0 and torch.rand([]).item() < probability

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize all embeddings; those of source and target for themselves where they are not shared."""
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


class SinusoidalPositions(nn.Module):
    """Sines and cosines of positions in turns, as in Vaswani et al., "Attention Is All You Need", section 3.5."""

    def __init__(self, embedding_dim: int):
        super().__init__()
        self.embedding_dim = embedding_dim  # even

    def forward(self, position_ids: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return (…, embedding_dim) for positions of any shape, computed in float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)
        steps = torch.arange(0, self.embedding_dim, 2, device=position_ids.device, dtype=wide)
        angles = position_ids[..., None] * torch.exp(steps * (-math.log(10000.0) / self.embedding_dim))
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(dtype)


class BartBodyDecoder(nn.Module):
    """What happens before, in and behind a decoder's layers; stands before `PreTrainedModel` among its bases."""

    positions_field = "max_position_embeddings"  # of the configuration: how many there are
    shares_sources = False  # whether one source may have several targets, one after the other, as beams are
    config: Any
    layer_class: Any
    output_class: type[ModelOutput]

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)  # type: ignore[call-arg]  # of the model that stands behind
        model: Any = self
        layers = (self.layer_class(config, i) for i in range(config.decoder_layers))
        model.add_layers(layers, getattr(config, self.positions_field))
        model.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        hierarchical_hidden_states: torch.Tensor | None = None,  # of HAT-BART, (batch, sentences, d_model)
        hierarchical_attention_mask: torch.Tensor | None = None,
        source_ids: torch.Tensor | None = None,  # of the tokens that may be copied, (batch, source)
        **kwargs: Unpack[TransformersKwargs],
    ) -> ModelOutput:
        """Decode; the arguments are those of BART's decoder, the encoder's states of sentences, and what it read."""
        model: Any = self
        width = "embedding_size" if hasattr(self.config, "embedding_size") else "d_model"
        check_target(
            self.config, input_ids, inputs_embeds, encoder_hidden_states, attention_mask, width, self.shares_sources
        )
        if inputs_embeds is None:
            inputs_embeds = model.embed_tokens(input_ids)  # (batch, target, d_model)
        if self.shares_sources and encoder_hidden_states is not None:
            of_source = [encoder_hidden_states, encoder_attention_mask, hierarchical_hidden_states]
            of_source += [hierarchical_attention_mask, source_ids]
            documents, batch = encoder_hidden_states.shape[0], inputs_embeds.shape[0]
            rows = documents if self._can_share(kwargs) else batch
            encoder_hidden_states, encoder_attention_mask, *upper, source_ids = (
                with_rows(tensor, rows) for tensor in of_source
            )
            hierarchical_hidden_states, hierarchical_attention_mask = upper
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        elif cache is not None and encoder_hidden_states is not None and not isinstance(cache, EncoderDecoderCache):
            cache = EncoderDecoderCache(cache, DynamicCache(config=self.config))  # the source's keys are not for it
        past_length = cache.get_seq_length() if cache is not None else 0
        check_decoded(self.config, cache, inputs_embeds.shape[1], self.positions_field)
        position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past_length
        hidden_states = model._begin(model._add_positions(inputs_embeds, position_ids))
        causal_mask = create_causal_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            cache=cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache,
        )
        # States are positional, for gradient checkpointing.
        read: list[Any] = [causal_mask, encoder_hidden_states]
        others: dict[str, Any] = {
            "encoder_attention_mask": self.mask_of(inputs_embeds, encoder_attention_mask, encoder_hidden_states)
        }
        if hierarchical_hidden_states is not None:
            model.make_room(cache, hierarchical_hidden_states.shape[1])
            read.append(hierarchical_hidden_states)
            mask = self.mask_of(hidden_states, hierarchical_attention_mask, hierarchical_hidden_states)
            others["hierarchical_attention_mask"] = mask
        copies = getattr(self.config, "use_copy", False)
        if copies:
            others["source_mask"] = copied_tokens(
                self.config, source_ids, encoder_attention_mask, encoder_hidden_states
            )
        hidden_states, copied = self.run(hidden_states, *read, cache=cache, use_cache=use_cache, **others, **kwargs)
        found = {"copy_attentions": copied} if copies else {}
        return self.output_class(last_hidden_state=hidden_states, cache=cache, **found)

    def _can_share(self, kwargs: dict[str, Any]) -> bool:
        """Whether the targets of a source may attend to it side by side: what is recorded is of each alone."""
        watched = self.config.output_attentions or any(
            value for name, value in kwargs.items() if name.startswith("output_") and name.endswith("attentions")
        )
        return not watched and self.config._attn_implementation in ("eager", "sdpa")

    def mask_of(self, targets: torch.Tensor, mask: torch.Tensor | None, states: torch.Tensor | None) -> Any:
        """Make the mask of attention to states, (batch, source, d_model), some of which are padding."""
        if states is not None:
            targets = targets.reshape(states.shape[0], -1, targets.shape[-1])
        made = create_bidirectional_mask(self.config, targets, mask, encoder_hidden_states=states)
        refuse_flash_mask(made, targets.shape[1])
        return made

    def run(
        self, hidden_states: torch.Tensor, *positional: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Go through the layers: states, and where it is copied from, attention to the source."""
        model: Any = self
        copied = None  # (batch, target, source)
        for layer in model.layers:
            if model._drops_layer(self.config.decoder_layerdrop) and not getattr(layer, "copies", False):
                continue
            hidden_states = layer(hidden_states, *positional, **kwargs)
            if isinstance(hidden_states, tuple):
                hidden_states, copied = hidden_states
        return model.layer_norm(hidden_states) if model.normalize_before else hidden_states, copied


def with_rows(tensor: torch.Tensor | None, rows: int) -> torch.Tensor | None:
    """One row for each of so many, where each source has several that are alike, or one that stands for all."""
    if tensor is None or tensor.shape[0] == rows:
        return tensor
    has = tensor.shape[0]
    return tensor[:: has // rows] if has > rows else tensor.repeat_interleave(rows // has, dim=0)


def recorded(layer_class: type[nn.Module]) -> dict[str, Any]:
    """What `output_hidden_states` and `output_attentions` collect of a decoder."""
    return {
        "hidden_states": layer_class,
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(BartAttention, index=1, layer_name="encoder_attn"),
    }


class BartBodyModel(nn.Module):
    """Encoder and decoder that share an embedding; stands before `PreTrainedModel` among a model's bases."""

    _tied_weights_keys = {
        "decoder.embed_tokens.weight": "shared.weight",
        "encoder.embed_tokens.weight": "shared.weight",
    }
    _input_embed_layer = "shared"
    encoder_class: Any
    decoder_class: Any = None

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)  # type: ignore[call-arg]  # of the model that stands behind
        self.shared = make_token_embedding(config)
        self.encoder = self.encoder_class(config)
        if self.decoder_class is not None:
            self.decoder = self.decoder_class(config)
        model: Any = self
        model.post_init()

    def set_input_embeddings(self, value: Any) -> None:
        """Replace the embedding that encoder and decoder share."""
        self.shared = value
        for part in ("encoder", "decoder"):
            if hasattr(self, part):
                getattr(self, part).embed_tokens = value


def tensor_parallel_plan(attentions: Iterable[str], networks: Iterable[str]) -> dict[str, str]:
    """How processes share out attentions, by heads, and the feed-forward networks of layers, by names with wildcards.

    A layer's attention to the source is whole in each of them: a head of it, which has a number, says what is copied.
    """
    heads, neurons = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "colwise"), {"fc1": "colwise", "fc2": "rowwise"}
    parts = ((attentions, heads | {"out_proj": "rowwise"}), (networks, neurons))
    return {f"{name}.{part}": style for names, styles in parts for name in names for part, style in styles.items()}


def copied_tokens(
    config: PreTrainedConfig,
    source_ids: torch.Tensor | None,  # (batch, source)
    attention_mask: torch.Tensor | None,  # (batch, source)
    states: torch.Tensor | None,  # (batch, source, d_model)
) -> torch.Tensor | None:  # (batch, source)
    """Tell which tokens of a source may be copied: no padding, nor the ends of documents and sentences."""
    if source_ids is None or states is None or source_ids.shape != states.shape[:2]:  # the head refuses them
        return attention_mask
    may_be = torch.ones_like(source_ids) if attention_mask is None else attention_mask.to(source_ids.device)
    for special in (config.bos_token_id, *end_ids(config), config.pad_token_id):
        if special is not None:
            may_be = may_be * (source_ids != special)
    return may_be


def target_of(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,
    decoder_input_ids: torch.Tensor | None,
    decoder_inputs_embeds: torch.Tensor | None,
) -> torch.Tensor | None:
    """Return the target's ids: those of the source shifted to the right where no target is given, as in BART."""
    if decoder_input_ids is not None or decoder_inputs_embeds is not None:
        return decoder_input_ids
    if input_ids is None:
        raise ValueError("Give `decoder_input_ids` or `decoder_inputs_embeds` when there are no `input_ids`.")
    return shift_tokens_right(input_ids, config.pad_token_id, config.decoder_start_token_id)


def as_output(values: Any, output_class: Any, *names: str, perhaps: str) -> Any:
    """Read what an encoder gives with `return_dict=False`: tensors, one that is `perhaps` there, and others."""
    if isinstance(values, ModelOutput):
        return values
    if len(values) > len(names) and isinstance(values[len(names)], torch.Tensor):
        names = (*names, perhaps)
    fields = [field.name for field in dataclasses.fields(output_class)]
    return output_class(**dict(zip((*names, *fields[fields.index(perhaps) + 1 :]), values, strict=False)))


def of_both(encoder_outputs: ModelOutput, decoder_outputs: ModelOutput) -> dict[str, Any]:
    """Gather what a [`Seq2SeqModelOutput`] has of encoder and decoder."""
    names = ("hidden_states", "attentions")
    return {
        "last_hidden_state": decoder_outputs["last_hidden_state"],
        "cache": decoder_outputs.get("cache"),
        "cross_attentions": decoder_outputs.get("cross_attentions"),
        "encoder_last_hidden_state": encoder_outputs["last_hidden_state"],
        **{f"decoder_{name}": decoder_outputs.get(name) for name in names},
        **{f"encoder_{name}": encoder_outputs.get(name) for name in names},
    }


def make_token_embedding(config: PreTrainedConfig) -> BartScaledWordEmbedding:
    """Make the embedding that encoder, decoder and head share."""
    size = getattr(config, "embedding_size", config.d_model)
    embed_scale = math.sqrt(size) if config.scale_embedding else 1.0
    return BartScaledWordEmbedding(config.vocab_size, size, config.pad_token_id, embed_scale=embed_scale)


def attention_sizes(config: PreTrainedConfig, side: str, layer_idx: int | None = None) -> dict[str, Any]:
    """What BART's attention is made with in an encoder or a decoder."""
    return {
        "embed_dim": config.d_model,
        "num_heads": getattr(config, f"{side}_attention_heads"),
        "dropout": config.attention_dropout,
        "is_decoder": side == "decoder",
        "config": config,
        "layer_idx": layer_idx,
    }


def projections(attention: BartAttention, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values of a self-attention, each (batch, heads, tokens, head_dim)."""
    device = hidden_states.device.type
    if torch.is_autocast_enabled(device) and hidden_states.dtype != torch.float64:  # which autocast leaves alone
        # Once, and not a copy for each projection, kept until the backward pass.
        hidden_states = hidden_states.to(torch.get_autocast_dtype(device))
    shape = (*hidden_states.shape[:-1], -1, attention.head_dim)
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    return tuple(part(hidden_states).view(shape).transpose(1, 2) for part in parts)


def attend(
    attention: BartAttention, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attend as the configuration says: (batch, queries, heads, head_dim), and weights, if it gives them."""
    implementation: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
        attention.config._attn_implementation, eager_attention_forward
    )
    dropout = attention.dropout if attention.training else 0.0
    if step_is_fast(attention, mask, query, key, value, **kwargs):
        return attend_step(query, key, value, mask, attention.scaling), None
    if kernel_is_fast(attention, mask, query, key, value, **kwargs):
        attended = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
        spans = [(0, query.shape[2])] * len(query)
        attend_with_kernel(query, key, value, attended.transpose(1, 2), spans, None, attention.scaling)
        return attended, None
    if products_are_fast(attention, attention.dropout, query, mask):
        if mask is None and attention.is_causal and query.shape[2] > 1:  # one that is generated sees all before it
            mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril_()[None, None]
        return attend_by_products(query, key, value, mask, dropout, attention.scaling).transpose(1, 2), None
    return implementation(attention, query, key, value, mask, dropout=dropout, scaling=attention.scaling, **kwargs)


class BodyAttention(BartAttention):
    """BART's attention, by the kernels that `attend` chooses."""

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, queries, d_model)
        key_value_states: torch.Tensor | None = None,  # (batch, keys, d_model)
        cache: Cache | None = None,
        attention_mask: torch.Tensor | BlockMask | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend: (batch, queries, d_model), and weights, if the implementation gives them."""
        is_own = key_value_states is None
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query = multiply(self.q_proj, hidden_states).view(shape).transpose(1, 2)
        key, value = keys_and_values(self, hidden_states if is_own else key_value_states, cache, is_own)
        attended, weights = attend(self, query, key, value, attention_mask, **kwargs)
        return multiply(self.out_proj, attended.flatten(2)), weights


class BodyEncoderLayer(BartEncoderLayer):
    """BART's encoder layer, with its attention; training keeps less of it."""

    normalize_before = False

    def __init__(self, config: PreTrainedConfig, layer_idx: int | None = None):
        super().__init__(config, layer_idx=layer_idx)
        self.self_attn.__class__ = BodyAttention  # another one would draw other random weights than BART's

    def forward(
        self,
        hidden_states: torch.Tensor,  # (batch, units, d_model)
        attention_mask: torch.Tensor | BlockMask | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Update units by each other, then each by itself."""
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, **kwargs)
        return behind_attention(self, self.self_attn_layer_norm, hidden_states, attended)


def behind_attention(
    layer: Any, norm: nn.LayerNorm, residual: torch.Tensor, update: torch.Tensor
) -> torch.Tensor:  # each (batch, units, d_model)
    """Add what the last attention of an encoder's layer found, and update each unit by itself."""
    if residual.device.type == "cpu" and _goes_in_parts(layer, residual):  # what is between stays in the cache
        return _in_parts(partial(behind_attention, layer, norm), residual, update)
    hidden_states = after(layer, norm, residual, update)
    norm = layer.final_layer_norm
    hidden_states = after(layer, norm, hidden_states, feed_forward(layer, before(layer, norm, hidden_states)))
    if hidden_states.dtype == torch.float16:  # as BART, which looks first whether one is infinite
        most = torch.finfo(torch.float16).max - 1000
        hidden_states = hidden_states.clamp(-most, most)
    return hidden_states


def _goes_in_parts(layer: Any, states: torch.Tensor) -> bool:
    """Whether states are too many, no gradient of them is wanted, and dropout, which may be drawn again, is none."""
    drops = layer.training and (layer.dropout > 0 or layer.activation_dropout > 0)
    at_once = drops or torch.is_grad_enabled() or torch.compiler.is_compiling()
    return not at_once and states.shape[:-1].numel() > TOKENS_AT_ONCE


def _in_parts(run: Callable[..., torch.Tensor], *each: torch.Tensor) -> torch.Tensor:  # (…, width)
    """Run some tokens at a time; memory is asked for what is found, and that of a part is used again for the next."""
    found: Any = None  # of the type that the first part has
    for number, part in enumerate(zip(*(states.flatten(0, -2).split(TOKENS_AT_ONCE) for states in each), strict=True)):
        states = run(*part)
        found = states.new_empty(each[0].shape) if found is None else found
        found.flatten(0, -2).split(TOKENS_AT_ONCE)[number].copy_(states)
    return found  # type: ignore[no-any-return]


def before(layer: Any, norm: nn.LayerNorm, hidden_states: torch.Tensor) -> torch.Tensor:
    """Norm what a layer reads, where norms stand before."""
    return add_and_norm(norm, hidden_states) if layer.normalize_before else hidden_states


def after(layer: Any, norm: nn.LayerNorm, residual: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """Add to the stream, and norm it, where norms stand behind."""
    if layer.training:
        update = nn.functional.dropout(update, p=layer.dropout)
    return residual + update if layer.normalize_before else add_and_norm(norm, residual, update)


def feed_forward(layer: Any, inputs: torch.Tensor) -> torch.Tensor:
    """BART's feed-forward network; what its first product gave is kept for the backward pass, and no more."""
    if _goes_in_parts(layer, inputs):
        return _in_parts(partial(feed_forward, layer), inputs)
    drops = layer.training and layer.activation_dropout > 0

    def activated(expanded: torch.Tensor) -> torch.Tensor:
        expanded = layer.activation_fn(expanded)
        return nn.functional.dropout(expanded, p=layer.activation_dropout, training=drops)

    expanded = multiply(layer.fc1, inputs)
    if not torch.is_grad_enabled():
        return multiply(layer.fc2, activated(expanded))
    has_weights = any(True for _ in layer.activation_fn.parameters())
    return made_again(activated, expanded, layer.fc2, is_pure=not (drops or has_weights))


def keys_and_values(
    attention: BartAttention, states: torch.Tensor | None, cache: Cache | None, is_own: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of an attention, (batch, heads, keys, head_dim); those that are not its own are made once."""
    stored, layer_idx, is_pair = cache, attention.layer_idx, isinstance(cache, EncoderDecoderCache)
    if is_pair:
        stored = cache.self_attention_cache if is_own else cache.cross_attention_cache
        if not is_own and cache.is_updated.get(layer_idx):
            return stored.layers[layer_idx].keys, stored.layers[layer_idx].values
    shape = (*states.shape[:-1], -1, attention.head_dim)
    key, value = (multiply(part, states).view(shape).transpose(1, 2) for part in (attention.k_proj, attention.v_proj))
    if stored is not None:
        key, value = stored.update(key, value, layer_idx)
        if is_pair and not is_own:
            cache.is_updated[layer_idx] = True
    return key, value

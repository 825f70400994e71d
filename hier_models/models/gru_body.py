"""The GRU body: a bidirectional GRU reads the source, a GRU with hierarchical attention writes the target.

Source: HAM, section 5.2; Wang et al., "Chinese Poetry Generation with Planning based Neural Network" (2016), section
4.
Axes in shape comments: batch, source, width (tokens of the part of a source that has the most), target.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import can_return_tuple

from .bart_body import make_token_embedding
from .hierarchical_attention import HamMemory, HierarchicalAttention
from .input_checks import check_shape, check_source, check_target
from .model_outputs import HamDecoderOutput, HamEncoderOutput
from .pretrained_ham import HamPreTrainedModel
from .recurrent_cache import begin_steps, take_steps


class HamGruEncoderLayer(GradientCheckpointingLayer):
    """Two GRUs, one of which reads backwards."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.forward_gru = nn.GRU(input_size, hidden_size, batch_first=True)
        self.backward_gru = nn.GRU(input_size, hidden_size, batch_first=True)

    def forward(self, states: torch.Tensor, backwards: torch.Tensor) -> torch.Tensor:
        """Read texts that begin at the left, with padding behind them."""
        # states (batch, width, input_size), backwards (batch, width)
        there, _ = self.forward_gru(states)
        back, _ = self.backward_gru(_take(states, backwards))
        return torch.cat([there, _take(back, backwards)], dim=-1)  # (batch, width, 2 * hidden_size)


class HamGruEncoder(HamPreTrainedModel):
    """Reads the source; a keyword apart from the rest. Source: Wang et al., section 4.1."""

    _no_split_modules = ["HamGruEncoderLayer"]

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.embed_tokens = make_token_embedding(config)
        sizes = [config.embedding_size, *[2 * config.d_model] * (config.encoder_layers - 1)]
        self.layers = nn.ModuleList(HamGruEncoderLayer(size, config.d_model) for size in sizes)
        self.dropout = nn.Dropout(config.dropout)
        # Hierarchical attention needs queries, keys and values of one width.
        self.memory = nn.Linear(2 * config.d_model, config.d_model)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,  # (batch, source)
        attention_mask: torch.Tensor | None = None,  # (batch, source)
        keyword_mask: torch.Tensor | None = None,  # (batch, source)
        inputs_embeds: torch.Tensor | None = None,  # (batch, source, embedding_size)
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> HamEncoderOutput:
        """Encode a source; the arguments are those of [`HamModel`]."""
        shape = check_source(self.config, input_ids, inputs_embeds, attention_mask, width="embedding_size")
        check_shape("keyword_mask", keyword_mask, shape)
        embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        device = embeddings.device
        is_text = torch.ones(shape, dtype=torch.bool, device=device)
        if attention_mask is not None:
            is_text = attention_mask.to(device) != 0
        parts = [is_text]
        if keyword_mask is not None:
            is_keyword = is_text & (keyword_mask.to(device) != 0)
            parts = [is_text & ~is_keyword, is_keyword]

        wants_all = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        memory = torch.zeros((*shape, self.config.d_model), dtype=embeddings.dtype, device=device)
        memory_mask = torch.zeros(shape, dtype=torch.long, device=device)
        everything: list[list[torch.Tensor]] = []
        for number, part in enumerate(parts):
            places, lengths = _to_the_left(part)
            states = self._read(embeddings, places, lengths)
            last = states[-1]
            exists = torch.arange(places.shape[1], device=device) < lengths[:, None]
            if number == 0:
                memory, mask = _put(memory, self.memory(last), places, exists), exists
            else:  # the keyword becomes one state: the last one forwards and the last one backwards
                there = _take(last, (lengths - 1).clamp(min=0)[:, None])[..., : self.config.d_model]
                keyword = torch.cat([there, last[:, :1, self.config.d_model :]], dim=-1)
                mask = exists[:, :1]
                memory = _put(memory, self.memory(keyword), places[:, :1], mask)
            memory_mask = memory_mask.scatter_add(1, places[:, : mask.shape[1]], mask.long())
            if wants_all:
                everything.append(
                    [_put(state.new_zeros(*shape, state.shape[-1]), state, places, exists) for state in states]
                )
        hidden_states = None
        if wants_all:
            layers = zip(*(states[1:] for states in everything), strict=True)
            hidden_states = (embeddings, *(torch.stack(states).sum(dim=0) for states in layers))
        return HamEncoderOutput(last_hidden_state=memory, memory_mask=memory_mask, hidden_states=hidden_states)

    def _read(self, embeddings: torch.Tensor, places: torch.Tensor, lengths: torch.Tensor) -> list[torch.Tensor]:
        """Run the layers over a part of each source: embeddings and states of each layer, `(batch, width, size)`."""
        steps = torch.arange(places.shape[1], device=places.device)
        backwards = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
        states = [_take(embeddings, places)]
        for layer in self.layers:
            states.append(layer(self.dropout(states[-1]), backwards))
        return states


class HamGruDecoderStep(GradientCheckpointingLayer):
    """One step of the decoder, from a word and the last state to the next state. Source: Wang et al., section 4.2."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        size = config.d_model
        # The lower layer reads word and context, an upper one the layer below.
        inputs = [config.embedding_size + size, *[size] * (config.decoder_layers - 1)]
        self.cells = nn.ModuleList(nn.GRUCell(width, size) for width in inputs)
        self.dropout = nn.Dropout(config.dropout)
        self.attention = HierarchicalAttention(
            size,
            config.attention_depth,
            config.decoder_attention_heads,
            scoring=config.attention_scoring,
            level_weights=config.level_weights,
            level_weights_init=config.level_weights_init,
            dropout=config.attention_dropout,
        )

    def forward(
        self, word: torch.Tensor, state: torch.Tensor, with_weights: bool, *memory: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:  # word (batch, embedding_size), state (batch, 1 + layers, d_model)
        """Take one step: s_t = f(s_{t-1}, c_{t-1}, y_{t-1}), c_t = HAM-V(s_t)."""
        context, *hidden = state.unbind(dim=1)
        below = torch.cat([word, context], dim=-1)
        for layer, cell in enumerate(self.cells):
            hidden[layer] = below = cell(below if layer == 0 else self.dropout(below), hidden[layer])
        output, weights = self.attention.attend(below.unsqueeze(1), HamMemory(*memory), need_weights=with_weights)
        return torch.stack([output.squeeze(1), *hidden], dim=1), weights  # (batch, depth, heads, 1, source)


class HamGruDecoder(HamPreTrainedModel):
    """Writes the target. Source: Wang et al., section 4.2; section 5.2 of the paper."""

    _no_split_modules = ["HamGruDecoderStep"]

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)
        self.embed_tokens = make_token_embedding(config)
        self.first_state = nn.Linear(config.d_model, config.decoder_layers * config.d_model)
        self.step = HamGruDecoderStep(config)
        self.dropout = nn.Dropout(config.dropout)
        # What is written depends on state, context and last word; as wide as an embedding, so that these can be tied.
        self.readout = nn.Linear(2 * config.d_model + config.embedding_size, config.embedding_size)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,  # (batch, target)
        attention_mask: torch.Tensor | None = None,  # (batch, target)
        encoder_hidden_states: torch.Tensor | None = None,  # (batch, source, d_model)
        encoder_attention_mask: torch.Tensor | None = None,  # (batch, source)
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,  # (batch, target, embedding_size)
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> HamDecoderOutput:
        """Decode a target."""
        check_target(self.config, input_ids, inputs_embeds, encoder_hidden_states, attention_mask, "embedding_size")
        if encoder_hidden_states is None:
            raise ValueError("`encoder_hidden_states` must be given, got none: the decoder begins with them.")
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        with_weights = self.config.output_attentions if output_attentions is None else output_attentions
        embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        words = self.dropout(embeddings)
        recurrent, memory, state, use_cache = begin_steps(
            self,
            cache,
            use_cache,
            lambda: self.step.attention.prepare(encoder_hidden_states, key_padding_mask=encoder_attention_mask),
        )
        if state is None:
            state = self._begin(encoder_hidden_states, encoder_attention_mask)
        states, found = take_steps(self.step, words, state, attention_mask, with_weights, *memory)
        all_states = torch.stack(states, dim=1)  # (batch, target, 1 + layers, d_model)
        read = torch.cat([all_states[:, :, -1], all_states[:, :, 0], words], dim=-1)
        outputs = HamDecoderOutput(last_hidden_state=self.readout(read).tanh())
        if use_cache and recurrent is not None:
            outputs["cache"] = recurrent.keep(memory, states)
        if wants_states:
            outputs["hidden_states"] = (embeddings, *all_states[:, :, 1:].unbind(dim=2))
        if with_weights:
            by_level = torch.cat([weights for (weights,) in found], dim=3)  # (batch, depth, heads, target, source)
            mixture = self.step.attention.mixture.to(by_level)[: by_level.shape[1]]
            outputs["cross_attentions"] = (torch.einsum("bdhts,d->bhts", by_level, mixture),)
            outputs["level_attentions"] = by_level
            outputs["attentions"] = ()  # GRUs have none; assisted decoding wants something to iterate over
        return outputs

    def _begin(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Begin with no context, and hidden states made of the source's mean, `(batch, 1 + layers, d_model)`."""
        if mask is None:
            mean = states.mean(dim=1)
        else:
            is_there = (mask != 0).unsqueeze(-1).to(states.device)
            mean = states.masked_fill(~is_there, 0.0).sum(dim=1) / is_there.sum(dim=1).clamp(min=1)
        hidden = self.first_state(mean).tanh().unflatten(-1, (-1, self.config.d_model))
        return torch.cat([torch.zeros_like(hidden[:, :1]), hidden], dim=1)


def _to_the_left(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each source's tokens of a part are, then others, `(batch, width)`; and how many, `(batch,)`."""
    lengths = part.sum(dim=1)
    places = (~part).to(torch.int8).argsort(dim=1, stable=True)
    if not torch.compiler.is_compiling():
        places = places[:, : max(1, int(lengths.max()))]
    return places, lengths


def _take(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def _put(target: torch.Tensor, states: torch.Tensor, places: torch.Tensor, exists: torch.Tensor) -> torch.Tensor:
    """Put states to their places in the source; what does not exist is left out."""
    states = states.masked_fill(~exists.unsqueeze(-1), 0.0).to(target.dtype)
    return target.scatter_add(1, places.unsqueeze(-1).expand_as(states), states)

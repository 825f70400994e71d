"""HAT-BART: BART with a level of attention over sentences.

Source: Rohde, Wu and Liu, "Hierarchical Learning for Generation with Long Source Sequences", section 3 and figure 1.
A BOS token stands before every sentence of the source. After BART's encoder, the *hierarchical layers* are encoder
layers over the embeddings at these BOS positions only. Every decoder layer has a third attention, over their outputs.

Axes in shape comments: batch (documents), source (source tokens, BOS markers included), sentences (BOS markers of a
document, padded to the most in the batch), target (target tokens), d_model (width).
"""

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache, StaticLayer
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bart.modeling_bart import BartAttention
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bart_body import (
    BartBodyDecoder,
    BartBodyModel,
    BodyAttention,
    BodyEncoderLayer,
    as_output,
    attention_sizes,
    of_both,
    recorded,
    target_of,
    tensor_parallel_plan,
)
from .bart_warm_start import BartWarmStart
from .bos_positions import (
    check_bos_positions,
    fill_unmarked,
    find_bos_positions,
    find_first_tokens,
    silence_markers,
    token_positions,
)
from .configuration_hat_bart import HatBartConfig
from .copy_mechanism import CopyDecoderLayer
from .input_checks import check_length, check_shape, check_source, check_values
from .model_outputs import (
    HatBartDecoderOutput,
    HatBartEncoderOutput,
    HatBartLMOutput,
    HatBartModelOutput,
    with_attentions,
)
from .seq2seq_head import Seq2SeqHead, writes
from .warm_start import begin_attention, begin_layers


class HatBartDecoderLayer(CopyDecoderLayer):
    """BART's decoder layer with a third attention, over sentence states. Source: section 3.3 and figure 1."""

    def __init__(self, config: HatBartConfig, layer_idx: int):
        super().__init__(config, layer_idx=layer_idx)
        self.has_hierarchy = config.hierarchical_layers > 0
        if self.has_hierarchy:
            # Its keys and values are cached behind those of the second attention, see `HatBartDecoder`.
            self.hierarchical_attn = BodyAttention(
                **attention_sizes(config, "decoder", config.decoder_layers + layer_idx)
            )
            self.hierarchical_attn_layer_norm = nn.LayerNorm(config.d_model)

    def begin_as_identity(self, new: set[str]) -> list[str]:
        """Begin the third attention as if it were not there, with the second one's projections."""
        if "hierarchical_attn.out_proj.weight" not in new:
            return []
        third, norm = self.hierarchical_attn, self.hierarchical_attn_layer_norm
        begin_attention(third, third.out_proj, norm, self.encoder_attn, self.encoder_attn_layer_norm)
        return ["hierarchical_attn"]  # the norm is the base's


class HatBartPreTrainedModel(BartWarmStart):
    """What the models of this file share."""

    config: HatBartConfig
    config_class = HatBartConfig
    _no_split_modules = ["BodyEncoderLayer", "HatBartDecoderLayer"]
    _upper_positions = frozenset({"sentence_position_embeddings"})

    def _wanted_above(self) -> list[tuple[str, str, int]]:
        # Sentences have more than eight tokens; what is behind the last position has that one.
        wanted = self.config.max_position_embeddings // 8 if self.config.hierarchical_layers else 0
        return [("sentence_position_embeddings", "embed_sentence_positions", wanted)]


class HatBartEncoder(HatBartPreTrainedModel):
    """BART's encoder, then encoder layers over the embeddings at the BOS markers. Source: section 3.2."""

    _can_record_outputs = {
        "hidden_states": OutputRecorder(BodyEncoderLayer, layer_name="layers"),
        "attentions": OutputRecorder(BartAttention, index=1, layer_name="layers"),
        "hierarchical_attentions": OutputRecorder(BartAttention, index=1, layer_name="hierarchical_layers"),
    }

    def __init__(self, config: HatBartConfig):
        super().__init__(config)
        layers = (BodyEncoderLayer(config, layer_idx=i) for i in range(config.encoder_layers))
        self.add_layers(layers, config.max_position_embeddings, config.num_segments)
        self.hierarchical_layers = nn.ModuleList(
            BodyEncoderLayer(config, layer_idx=i) for i in range(config.hierarchical_layers)
        )
        if config.hierarchical_layers and config.sentence_position_embeddings:
            self.embed_sentence_positions = nn.Embedding(config.sentence_position_embeddings, config.d_model)
        self.post_init()

    def begin_as_identity(self, new: set[str]) -> list[str]:
        """Begin hierarchical layers as the last token-level ones, and embeddings as zeros."""
        begun = []
        for name in ("embed_segments", "embed_sentence_positions"):
            if f"{name}.weight" in new:
                nn.init.zeros_(getattr(self, name).weight)
                begun.append(name)
        if begin_layers(self.hierarchical_layers, self.layers, new, "hierarchical_layers"):
            begun.append("hierarchical_layers")
        return begun

    @with_attentions("hierarchical_attentions")
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        segment_ids: torch.Tensor | None = None,
        bos_positions: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HatBartEncoderOutput:
        """Encode documents into token states and sentence states; the arguments are those of [`HatBartModel`]."""
        shape = check_source(
            self.config, input_ids, inputs_embeds, attention_mask, takes_made_masks=not self.config.use_copy
        )
        if not self.config.silent_markers:  # they take no position, see `silence_markers`
            check_length(self.config, shape[1])
        if segment_ids is not None:
            _check_segment_ids(self.config, segment_ids, shape)
        if bos_positions is not None and (self.config.hierarchical_layers or self.config.silent_markers):
            check_bos_positions(bos_positions, shape, attention_mask)
        if bos_positions is None and (self.config.hierarchical_layers or self.config.silent_markers):
            # Embeddings do not show where the markers are: then no id is a marker.
            ids = input_ids if input_ids is not None else inputs_embeds.new_full(inputs_embeds.shape[:2], -1).long()
            bos_positions = find_bos_positions(ids, attention_mask, self.config.bos_token_id)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, source, d_model)

        position_ids = token_positions(inputs_embeds, attention_mask)  # (batch, source)
        read_mask = None  # (batch, source)
        if self.config.silent_markers:
            read_mask, position_ids = silence_markers(self.config, bos_positions, attention_mask, position_ids)
            is_long = shape[1] > self.config.max_position_embeddings
            if is_long and not torch.compiler.is_compiling():
                check_length(self.config, int((position_ids * read_mask).max()) + 1)
        position_ids = position_ids.clamp(min=0, max=self.config.max_position_embeddings - 1)
        hidden_states = self._add_positions(inputs_embeds, position_ids)
        if segment_ids is not None:
            hidden_states = hidden_states + self.embed_segments(segment_ids).to(hidden_states.device)
        hidden_states = self._begin(hidden_states)

        token_mask = create_bidirectional_mask(
            self.config, inputs_embeds, attention_mask if read_mask is None else read_mask
        )
        for layer in self.layers:
            if not self._drops_layer(self.config.encoder_layerdrop):
                hidden_states = layer(hidden_states, token_mask, **kwargs)

        sentence_states, sentence_mask = None, None
        if self.config.hierarchical_layers:
            first_tokens = find_first_tokens(hidden_states, attention_mask)
            bos_positions = fill_unmarked(bos_positions, first_tokens, hidden_states.device)
            sentence_states, sentence_mask = self._encode_sentences(hidden_states, bos_positions, **kwargs)
        return HatBartEncoderOutput(
            last_hidden_state=hidden_states,
            hierarchical_hidden_state=sentence_states,
            hierarchical_attention_mask=sentence_mask,
            read_mask=read_mask,
            source_ids=input_ids if self.config.use_copy else None,
        )

    def _encode_sentences(
        self, hidden_states: torch.Tensor, bos_positions: torch.Tensor, **kwargs: Unpack[TransformersKwargs]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        is_sentence = bos_positions >= 0
        index = bos_positions.clamp(min=0).unsqueeze(-1).expand(-1, -1, hidden_states.shape[-1])
        states = hidden_states.gather(1, index)  # (batch, sentences, d_model)
        if self.config.sentence_position_embeddings:
            last = self.config.sentence_position_embeddings - 1
            numbers = torch.arange(states.shape[1], device=states.device).clamp(max=last)
            states = states + self.embed_sentence_positions(numbers).to(states.device)
        sentence_mask = is_sentence.long()  # (batch, sentences)
        attention_mask = create_bidirectional_mask(self.config, states, sentence_mask)
        for layer in self.hierarchical_layers:
            states = layer(states, attention_mask, **kwargs)
        return states, sentence_mask


def _check_segment_ids(config: HatBartConfig, segment_ids: torch.Tensor, shape: tuple[int, int]) -> None:
    if not config.num_segments:
        raise ValueError(
            "`segment_ids` were given to a model without segment embeddings. Load it with `num_segments=` set to "
            "the largest number of roles in a document, or make the processor with `num_segments=0`."
        )
    check_shape("segment_ids", segment_ids, shape)
    check_values("segment_ids", segment_ids, config.num_segments, "num_segments")


class HatBartDecoder(BartBodyDecoder, HatBartPreTrainedModel):
    """BART's decoder with a third attention, over sentence states, in every layer. Source: section 3.3."""

    _can_record_outputs = {
        **recorded(HatBartDecoderLayer),
        "hierarchical_attentions": OutputRecorder(BartAttention, index=1, layer_name="hierarchical_attn"),
    }
    layer_class = HatBartDecoderLayer
    shares_sources = True
    output_class = HatBartDecoderOutput

    def make_room(self, cache: Cache | None, sentences: int) -> None:
        """Append a layer for each third attention to the cross-attention cache; beam search moves it with the rest."""
        if not isinstance(cache, EncoderDecoderCache):
            return
        attended = cache.cross_attention_cache
        if attended.layer_class_to_replicate is not None:  # a cache that grows by itself
            return
        make_layer = (lambda: StaticLayer(max_cache_len=sentences)) if attended.is_compileable else DynamicLayer
        first = self.config.decoder_layers
        was_reset = len(attended.layers) > first and not cache.is_updated.get(first)
        # After a reset, the next document may have other sentences.
        if attended.is_compileable and was_reset and attended.layers[first].max_cache_len != sentences:
            del attended.layers[first:]
        while len(attended.layers) < 2 * first:
            attended.layers.append(make_layer())


LAYERS = ("encoder.layers.*", "encoder.hierarchical_layers.*", "decoder.layers.*")


class HatBartModel(BartBodyModel, HatBartPreTrainedModel):
    """HAT-BART without a head. Source: section 3, figure 1. With `hierarchical_layers=0`, equal to [`BartModel`]."""

    _tp_plan = tensor_parallel_plan(
        attentions=[f"{part}.self_attn" for part in LAYERS] + ["decoder.layers.*.hierarchical_attn"], networks=LAYERS
    )
    encoder_class, decoder_class = HatBartEncoder, HatBartDecoder

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @with_attentions("hierarchical_attentions")
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        segment_ids: torch.Tensor | None = None,
        bos_positions: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: HatBartEncoderOutput | tuple[torch.Tensor, ...] | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> HatBartModelOutput:
        """Encode a source and decode a target.

        Args:
            input_ids: source token ids with a BOS token before every sentence, `(batch, source)`. A document without
                any is read as one sentence, with a warning.
            attention_mask: 1 for tokens, 0 for padding, `(batch, source)`.
            segment_ids: number of the role that each token belongs to, in `[0, num_segments)`, `(batch, source)`.
            bos_positions: positions of the BOS markers, -1 for padding, `(batch, sentences)`. Found from `input_ids`
                when not given; a document that has none is one sentence. Give them with `inputs_embeds`, and to keep
                shapes fixed in `torch.compile(…, fullgraph=True)` and `torch.export`.
            decoder_input_ids: target token ids, `(batch, target)`; `input_ids` shifted to the right when not given,
                as in BART.
            decoder_attention_mask: 1 for tokens, 0 for padding, `(batch, target)`.
            encoder_outputs: what the encoder returned for the source; it is not run again.
            cache: cache of earlier decoding steps.
            inputs_embeds: embeddings in place of `input_ids`, `(batch, source, d_model)`.
            decoder_inputs_embeds: embeddings in place of `decoder_input_ids`, `(batch, target, d_model)`.
            use_cache: return the cache for later decoding steps.
            **kwargs: `output_attentions`, `output_hidden_states`, `return_dict` and arguments of the attention
                implementation.

        Returns:
            `last_hidden_state` of the decoder, `(batch, target, d_model)`, and what else was asked for.

        Raises:
            ValueError: if source or target are longer than `max_position_embeddings`, inputs are missing or given
                twice, have a wrong shape or are out of range, or `segment_ids` come to a model without segment
                embeddings.
        """
        decoder_input_ids = target_of(self.config, input_ids, decoder_input_ids, decoder_inputs_embeds)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, segment_ids, bos_positions, inputs_embeds, **kwargs
            )
        upper = ("hierarchical_hidden_state", "hierarchical_attention_mask") if self.config.hierarchical_layers else ()
        names = ("last_hidden_state", *upper, *(("read_mask",) if self.config.silent_markers else ()))
        encoder_outputs = as_output(encoder_outputs, HatBartEncoderOutput, *names, perhaps="source_ids")
        read_mask, source_ids = encoder_outputs.get("read_mask"), encoder_outputs.get("source_ids")
        hierarchical_hidden_state = encoder_outputs.get("hierarchical_hidden_state")
        if hierarchical_hidden_state is None and self.config.hierarchical_layers:
            raise ValueError(
                "`encoder_outputs` hold no `hierarchical_hidden_state`. Give what `model.get_encoder()(…)` returned, "
                "whole, or leave them out."
            )

        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            encoder_attention_mask=attention_mask if read_mask is None else read_mask,
            hierarchical_hidden_states=hierarchical_hidden_state,
            hierarchical_attention_mask=encoder_outputs.get("hierarchical_attention_mask"),
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            source_ids=input_ids if source_ids is None else source_ids,
            **kwargs,
        )
        return HatBartModelOutput(
            **of_both(encoder_outputs, decoder_outputs),
            hierarchical_attentions=decoder_outputs.hierarchical_attentions,
            encoder_hierarchical_attentions=encoder_outputs.get("hierarchical_attentions"),
            copy_attentions=decoder_outputs.copy_attentions,
            source_ids=input_ids if source_ids is None and self.config.use_copy else source_ids,
        )


class HatBartForConditionalGeneration(Seq2SeqHead, HatBartPreTrainedModel, GenerationMixin):
    """HAT-BART with a language modeling head, for summarization and translation. Source: sections 3 and 4.

    Takes what [`HatBartModel`] does, and by name `labels`: target token ids, -100 where there is no loss, `(batch,
    target)`. Shifted to the right they are the `decoder_input_ids` if none are given, and they turn off `use_cache`.
    The loss is a mean over this batch, or over the accumulated one's `num_items_in_batch`. Returns `logits`, `(batch,
    target, vocab_size)`, and what else was asked for. With `use_copy` these are logarithms of probabilities, and
    `output_copying=True` adds `copy_probability` and `copy_attentions`.
    """

    model_class = HatBartModel
    forward = writes(HatBartModel, HatBartLMOutput)

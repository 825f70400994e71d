"""The encoder of the Top-Down Transformer: bottom-up layers see a window, top-down layers segments too.

Source: Pang et al., "Long Document Summarization with Top-down and Bottom-up Inference", section 2 and figure 1.
Axes in shape comments: batch (documents), source (source tokens), segments (segments of a document), d_model (width).
"""

from typing import Any, Self

import torch
from torch import nn
from transformers.models.bart.modeling_bart import BartAttention
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .bart_body import BodyEncoderLayer
from .bart_warm_start import BartWarmStart
from .bos_positions import token_positions
from .configuration_top_down_transformer import TopDownTransformerConfig
from .input_checks import check_length, check_source
from .local_attention import TopDownTransformerLocalAttention, create_local_attention_mask
from .model_outputs import TopDownTransformerEncoderOutput, with_attentions
from .segment_pooling import Segments, check_importance
from .top_down_layers import (
    TopDownTransformerBottomUpLayer,
    TopDownTransformerSegmentAttention,
    TopDownTransformerSegmentLevels,
    TopDownTransformerTopDownLayer,
    find_segments,
)
from .warm_start import begin_layers


logger = logging.get_logger(__name__)


class TopDownTransformerPreTrainedModel(BartWarmStart):
    """What the models of this file share."""

    config: TopDownTransformerConfig
    config_class = TopDownTransformerConfig
    _no_split_modules = [
        "BodyEncoderLayer",
        "TopDownTransformerBottomUpLayer",
        "TopDownTransformerTopDownLayer",
    ]

    @classmethod
    def from_bart(  # type: ignore[override]
        cls,
        pretrained_model_name_or_path: str,
        *,
        max_encoder_position_embeddings: int = 16384,
        max_decoder_position_embeddings: int | None = None,
        extra_positions: str = "tile",
        **kwargs: Any,
    ) -> Self:
        """Warm start from a BART checkpoint, with room for longer documents.

        All of BART's weights are kept: the first encoder layers are the bottom-up layers, the others the top-down
        layers. Only what has to do with segments is new, and begins as if it were not there (`new_modules`): with a
        window of twice the text, the model is BART. Without growing positions, plain `from_pretrained` of the BART
        checkpoint does the same. The checkpoint's tokenizer keeps its own limit: load it with `model_max_length=` the
        new number of positions.

        Source: section 3 and appendix B, which start from `bart-large` (8 and 4 of its 12 encoder layers).

        Args:
            pretrained_model_name_or_path: a BART checkpoint, on the Hub or in a folder.
            max_encoder_position_embeddings: longest source, in tokens.
            max_decoder_position_embeddings: longest target, in tokens; as in the checkpoint when not given.
            extra_positions: `"tile"` repeats the learned positions, and segments get positions of their own
                (`segment_position_embeddings`) unless `new_modules="random"`; `"random"` draws new ones.
            **kwargs: fields of [`TopDownTransformerConfig`], such as `pooling` or `attention_window`, and arguments of
                `from_pretrained`, such as `dtype` or `revision`.

        Returns:
            A model of the class this is called on; with `output_loading_info=True`, the model and the loading report.

        Raises:
            ValueError: if the checkpoint is of another family than BART and this one, `extra_positions` is neither of
                the two, or a number of positions is no integer or less than BART's.
        """
        positions = {
            "max_encoder_position_embeddings": max_encoder_position_embeddings,
            "max_decoder_position_embeddings": max_decoder_position_embeddings,
        }
        return cls.load_bart(pretrained_model_name_or_path, positions, extra_positions, **kwargs)

    _upper_positions = frozenset({"segment_position_embeddings"})

    def _wanted_above(self) -> list[tuple[str, str, int]]:
        wanted = 0
        if self.config.pooling_windows:
            kernel, stride = self.config.pooling_windows[0]
            wanted = -(-max(0, self.config.max_encoder_position_embeddings - kernel) // stride) + 1
        return [("segment_position_embeddings", "embed_segment_positions", wanted)]

    def resize_position_embeddings(  # type: ignore[override]
        self, new_num_position_embeddings: int, side: str = "encoder", extra_positions: str = "tile"
    ) -> None:
        """Grow the positions of one side, "encoder" or "decoder": longer sources or targets, as in [`from_bart`]."""
        if side not in ("encoder", "decoder"):
            raise ValueError(f"`side` must be 'encoder' or 'decoder', got {side!r}.")
        self.grow_positions(new_num_position_embeddings, extra_positions, f"max_{side}_position_embeddings")


class TopDownTransformerEncoder(TopDownTransformerPreTrainedModel):
    """Bottom-up layers, segments, top-down layers. Source: section 2 and figure 1, left and middle."""

    _can_record_outputs = {
        "hidden_states": OutputRecorder(BodyEncoderLayer, layer_name="layers"),
        "attentions": OutputRecorder(TopDownTransformerLocalAttention, index=1, layer_name="layers"),
        "segment_attentions": OutputRecorder(BartAttention, index=1, layer_name="segment_levels"),
        "token_segment_attentions": OutputRecorder(TopDownTransformerSegmentAttention, index=1, layer_name="layers"),
    }

    def __init__(self, config: TopDownTransformerConfig):
        super().__init__(config)
        self.has_segments = config.top_down_update != "none"
        # One list, so that the layers have the names that they have in BART.
        layers = (
            TopDownTransformerTopDownLayer(config, layer_idx=i)
            if self.has_segments and i >= config.bottom_up_layers
            else TopDownTransformerBottomUpLayer(config, layer_idx=i)
            for i in range(config.encoder_layers)
        )
        self.add_layers(layers, config.max_encoder_position_embeddings)
        if self.has_segments:
            self.segment_levels = TopDownTransformerSegmentLevels(config)
        self.embed_segment_positions = None
        if self.has_segments and config.segment_position_embeddings:
            self.embed_segment_positions = nn.Embedding(config.segment_position_embeddings, config.d_model)
        self.post_init()

    def begin_as_identity(self, new: set[str]) -> list[str]:
        """Begin segment layers as the last token layers, and positions of segments as zeros."""
        begun = []
        if "embed_segment_positions.weight" in new:
            nn.init.zeros_(self.embed_segment_positions.weight)
            begun.append("embed_segment_positions")
        for number, level in enumerate(self.segment_levels if self.has_segments else ()):
            if begin_layers(level, self.layers, new, f"segment_levels.{number}"):
                begun.append(f"segment_levels.{number}")
        return begun

    @with_attentions("segment_attentions", "token_segment_attentions")
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_importance: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TopDownTransformerEncoderOutput:
        """Encode documents; the arguments are those of [`TopDownTransformerModel`]."""
        shape = check_source(self.config, input_ids, inputs_embeds, attention_mask)
        check_length(self.config, shape[1], name="max_encoder_position_embeddings")
        if token_importance is not None:
            check_importance(self.config, token_importance, shape, attention_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, source, d_model)
        position_ids = token_positions(inputs_embeds, attention_mask).clamp(min=0)  # (batch, source)
        hidden_states = self._begin(self._add_positions(inputs_embeds, position_ids))

        token_mask = create_local_attention_mask(self.config, inputs_embeds, attention_mask)
        segments: Segments | None = None
        found: dict[str, Any] = {}
        for number, layer in enumerate(self.layers):
            if self.has_segments and number == self.config.bottom_up_layers:
                segments, found = self._make_segments(hidden_states, attention_mask, token_importance, **kwargs)
            if self._drops_layer(self.config.encoder_layerdrop):
                continue
            if segments is None:
                hidden_states = layer(hidden_states, token_mask, **kwargs)
            else:  # the states positional, for gradient checkpointing
                hidden_states = layer(hidden_states, segments.states, token_mask, **found, **kwargs)
        return TopDownTransformerEncoderOutput(
            last_hidden_state=hidden_states,
            segment_hidden_states=None if segments is None else segments.states,
            segment_attention_mask=None if segments is None else segments.exists.long(),
            source_ids=input_ids if self.config.use_copy else None,
        )

    def _make_segments(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        token_importance: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Segments, dict[str, Any]]:
        """Pool tokens into segments and update these; and what the top-down layers need to find them."""
        if token_importance is not None:
            token_importance = token_importance.to(hidden_states.device)
        elif self.config.pooling == "importance" and not torch.compiler.is_compiling():
            logger.warning_once(
                "The model pools by importance, but got no `token_importance`: every token weighs the same."
            )
        exists = hidden_states.new_ones(hidden_states.shape[:2], dtype=torch.bool)
        if attention_mask is not None:
            exists = attention_mask.to(hidden_states.device) != 0
        segments = self.segment_levels(
            Segments(hidden_states, exists, token_importance), self.embed_segment_positions, **kwargs
        )
        return segments, find_segments(self.config, hidden_states, exists, segments)

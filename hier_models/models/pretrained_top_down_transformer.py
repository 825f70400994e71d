"""What the models of the Top-Down Transformer share: capabilities, the warm start from BART, and more positions."""

from typing import Any, Self

from transformers.modeling_utils import PreTrainedModel

from .bart_warm_start import BartWarmStart
from .configuration_top_down_transformer import TopDownTransformerConfig


class TopDownTransformerPreTrainedModel(BartWarmStart, PreTrainedModel):
    """What the models of this family share: capabilities, warm start and positions."""

    config: TopDownTransformerConfig
    config_class = TopDownTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _keys_to_ignore_on_load_unexpected = [r"encoder\.version", r"decoder\.version"]
    _no_split_modules = [
        "BartEncoderLayer",
        "BartDecoderLayer",
        "TopDownTransformerBottomUpLayer",
        "TopDownTransformerTopDownLayer",
    ]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True

    @classmethod
    def from_bart(
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

    def resize_position_embeddings(
        self, new_num_position_embeddings: int, side: str = "encoder", extra_positions: str = "tile"
    ) -> None:
        """Grow the positions, so that the model takes longer sources or targets.

        Args:
            new_num_position_embeddings: longest source or target, in tokens.
            side: `"encoder"` for sources, `"decoder"` for targets.
            extra_positions: `"tile"` repeats the learned positions, and segments get positions of their own unless
                `new_modules="random"`; `"random"` draws new ones.

        Raises:
            ValueError: if it is no integer or less than there are, or another argument is neither of its two.
        """
        if side not in ("encoder", "decoder"):
            raise ValueError(f"`side` must be 'encoder' or 'decoder', got {side!r}.")
        self.grow_positions(new_num_position_embeddings, extra_positions, f"max_{side}_position_embeddings")


__all__ = ["TopDownTransformerPreTrainedModel"]

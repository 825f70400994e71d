"""What the models of HAM share: capabilities, first weights, and the weights of levels."""

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel
from transformers.models.bart.modeling_bart import BartScaledWordEmbedding

from .configuration_ham import HamConfig
from .hierarchical_attention import HamHeadProjection, HamLevelWeights


class HamPreTrainedModel(PreTrainedModel):
    """What the models of this family share."""

    config: HamConfig
    config_class = HamConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = [
        "HamGruEncoderLayer",
        "HamGruDecoderStep",
        "HamTransformerEncoderLayer",
        "HamTransformerDecoderLayer",
    ]
    _keys_to_ignore_on_load_unexpected = [r"encoder\.version", r"decoder\.version"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True

    def get_level_weights(self) -> dict[str, list[float]]:
        """Return how much each level counts.

        Returns:
            For each hierarchical attention, by the name of its module, the weight of each level; they sum to one.
        """
        return {name: weights().tolist() for name, weights in self._level_modules()}

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

    def _level_modules(self) -> list[tuple[str, HamLevelWeights]]:
        """Weights of levels, with the names of the attentions that they are of, in the order that data flows."""
        found = [(name, module) for name, module in self.named_modules() if isinstance(module, HamLevelWeights)]
        return [(name.removesuffix(".level_weights"), module) for name, module in found]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            for name, parameter in module.named_parameters(recurse=False):
                if name.startswith("bias"):
                    init.zeros_(parameter)
                elif name.startswith("weight_hh"):
                    for gate in parameter.chunk(3):
                        init.orthogonal_(gate)
                else:
                    init.xavier_uniform_(parameter)
            return
        super()._init_weights(module)
        if self.config.body == "gru":
            # BART's small weights are for layers with norms between. Without them the states would begin almost the
            # same for all words, and training stay for an epoch where only how common a word is counts.
            if isinstance(module, nn.Linear):
                init.xavier_uniform_(module.weight)
            elif isinstance(module, nn.Embedding):
                init.normal_(module.weight, std=module.embedding_dim**-0.5)
                if module.padding_idx is not None:
                    init.zeros_(module.weight[module.padding_idx])
        if isinstance(module, HamLevelWeights | HamHeadProjection):
            module.reset_parameters()


def make_embedding(config: HamConfig) -> nn.Embedding:
    """Make the embedding that encoder, decoder and head share."""
    assert config.embedding_size is not None
    scale = config.embedding_size**0.5 if config.scale_embedding else 1.0
    return BartScaledWordEmbedding(config.vocab_size, config.embedding_size, config.pad_token_id, embed_scale=scale)


__all__ = ["HamPreTrainedModel", "make_embedding"]

"""What the models of the Coarse-to-Fine LSTM share: capabilities, first weights, embeddings that are not trained."""

import torch
from torch import nn
from transformers import initialization as init

from .configuration_coarse_to_fine_lstm import CoarseToFineLstmConfig
from .reinforce import RewardBaseline
from .warm_start import FreezesEmbeddings


class CoarseToFineLstmPreTrainedModel(FreezesEmbeddings):
    """What the models of this family share."""

    config: CoarseToFineLstmConfig
    config_class = CoarseToFineLstmConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["CoarseToFineLstmEncoderLayer", "CoarseToFineLstmDecoderStep"]
    _reads_source = False
    # Models 2 and 3 load each other's checkpoints.
    _keys_to_ignore_on_load_unexpected = [r"reward_baseline\."]
    _keys_to_ignore_on_load_missing = [r"reward_baseline\."]

    def _freeze(self) -> None:
        """Make embeddings of the source's words untrainable, if they are to be."""
        if not self.config.freeze_source_embeddings:
            return
        for part in self.modules():
            if getattr(part, "_reads_source", False):
                for module in (part, getattr(part, "coarse", None)):
                    if hasattr(module, "embed_tokens"):
                        module.embed_tokens.weight.requires_grad_(False)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Thesis, section 5.4: all weights uniform."""
        for parameter in module.parameters(recurse=False):
            init.uniform_(parameter, -self.config.init_range, self.config.init_range)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            init.zeros_(module.weight[module.padding_idx])
        if isinstance(module, RewardBaseline):
            init.zeros_(module.values)

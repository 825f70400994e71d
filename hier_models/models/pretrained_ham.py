"""What the models of HAM share: capabilities, first weights, and the weights of levels."""

import torch
from torch import nn
from transformers import initialization as init

from .bart_body import BartBodyPreTrainedModel
from .configuration_ham import HamConfig
from .hierarchical_attention import HamHeadProjection, HamLevelWeights, WeighsLevels


class HamPreTrainedModel(WeighsLevels, BartBodyPreTrainedModel):
    """What the models of this family share."""

    config: HamConfig
    config_class = HamConfig
    _no_split_modules = []  # those of the body's parts

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

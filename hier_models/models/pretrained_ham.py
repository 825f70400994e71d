"""What the models of HAM share: capabilities, first weights, and the weights of levels."""

import torch
from torch import nn
from transformers import initialization as init

from .bart_body import BartBodyPreTrainedModel
from .configuration_ham import HamConfig
from .hierarchical_attention import HamHeadProjection, HamLevelWeights


class HamPreTrainedModel(BartBodyPreTrainedModel):
    """What the models of this family share."""

    config: HamConfig
    config_class = HamConfig
    _no_split_modules = [
        "HamGruEncoderLayer",
        "HamGruDecoderStep",
        "HamTransformerEncoderLayer",
        "HamTransformerDecoderLayer",
    ]

    def get_level_weights(self) -> dict[str, list[float]]:
        """Return how much each level counts in each hierarchical attention, by its module's name; they sum to one."""
        return {name: weights().tolist() for name, weights in self._level_modules()}

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

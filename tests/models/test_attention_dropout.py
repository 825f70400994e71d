import pytest
import torch

from hier_models import (
    HighlightTransformerConfig,
    HighlightTransformerModel,
    TopDownTransformerConfig,
    TopDownTransformerModel,
)


SIZES = {"d_model": 16, "encoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_layers": 1, "vocab_size": 9}


@pytest.mark.parametrize(
    ("config_class", "model_class"),
    [(TopDownTransformerConfig, TopDownTransformerModel), (HighlightTransformerConfig, HighlightTransformerModel)],
)
def test_flex_attention_says_how_to_be_rid_of_dropout(config_class, model_class):
    config = config_class(**SIZES, attention_dropout=0.1, attn_implementation="flex_attention")
    attention = model_class(config).get_encoder().layers[0].self_attn.train()
    with pytest.raises(ValueError, match=r"got attention_dropout=0\.1 .*`attention_dropout=0\.0`.*config_overrides"):
        attention(torch.zeros(1, 4, 16))

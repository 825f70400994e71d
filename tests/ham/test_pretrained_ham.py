"""The first weights of HAM's models."""

import math

import pytest
import torch

from hier_models import HamConfig, HamForConditionalGeneration


@pytest.mark.parametrize("depth", [1, 10])
def test_a_new_gru_model_tells_keywords_apart(depth):
    # It did not, with BART's first weights: it learned for an epoch nothing but how common each character is.
    torch.manual_seed(0)
    model = HamForConditionalGeneration(HamConfig(vocab_size=500, d_model=64, attention_depth=depth)).eval()
    keywords = torch.arange(10, 42)[:, None]
    inputs = torch.cat([keywords, torch.full_like(keywords, 2)], dim=1)
    with torch.no_grad():
        outputs = model.model(
            inputs, keyword_mask=torch.tensor([[1, 0]]).expand(32, -1), decoder_input_ids=torch.full((32, 4), 2)
        )
        states = outputs.last_hidden_state  # (keywords, target, d_model)
        assert (states.std(dim=0) / states.abs().mean()).mean() > 0.1
        # And yet it begins with guesses at random.
        logits = model.lm_head(states)
        loss = torch.nn.functional.cross_entropy(logits[:, 0], keywords[:, 0])
    assert loss == pytest.approx(math.log(500), rel=0.05)


def test_the_transformer_body_begins_as_bart_does():
    torch.manual_seed(0)
    config = HamConfig(
        vocab_size=500, d_model=64, body="transformer", encoder_layers=1, decoder_layers=1, init_std=0.3
    )
    model = HamForConditionalGeneration(config)
    assert model.model.shared.weight.std().item() == pytest.approx(0.3, rel=0.05)
    assert model.model.encoder.layers[0].fc1.weight.std().item() == pytest.approx(0.3, rel=0.05)
    assert not model.model.shared.weight[config.pad_token_id].any()

"""The first weights of HAM's models."""

import math

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hier_models import HamConfig, HamForConditionalGeneration, HamReaderConfig, HamReaderForQuestionAnswering


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


@pytest.mark.parametrize("family", ["ham", "ham_reader"])
def test_the_stock_trainer_moves_levels_25_times_as_fast_and_does_not_decay_them(tmp_path, family):
    """The first step of Adam moves every number by the learning rate, what weighs levels by 25 times that."""
    torch.manual_seed(0)
    ids = torch.randint(5, 20, (4, 6))
    model: torch.nn.Module
    if family == "ham":
        model = HamForConditionalGeneration(HamConfig(vocab_size=20, d_model=8, attention_depth=3))
        rows = [{"input_ids": row, "labels": row} for row in ids]
    else:
        sizes = {"vocab_size": 20, "embedding_size": 8, "hidden_size": 4, "attention_depth": 3}
        model = HamReaderForQuestionAnswering(HamReaderConfig(**sizes))
        rows = [{"input_ids": row, "question_ids": row[:3], "start_positions": 1, "end_positions": 2} for row in ids]
    settings = {"max_steps": 1, "learning_rate": 1e-3, "weight_decay": 0.1, "report_to": "none", "use_cpu": True}
    trainer = Trainer(model, TrainingArguments(str(tmp_path), save_strategy="no", **settings), train_dataset=rows)
    (bias,) = [parameter for name, parameter in model.named_parameters() if name.endswith("level_weights.bias")]
    w = 25 * bias.detach().clone()
    assert w.softmax(0).tolist() == pytest.approx([0.9, 0.05, 0.05])
    trainer.train()
    decays = [group["weight_decay"] for group in trainer.optimizer.param_groups if bias in set(group["params"])]
    assert decays == [0.0]
    torch.testing.assert_close((25 * bias.detach() - w).abs(), torch.full((3,), 25e-3), rtol=0.02, atol=0)
    torch.testing.assert_close(torch.tensor(*model.get_level_weights().values()), (25 * bias.detach()).softmax(0))

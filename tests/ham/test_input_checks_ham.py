"""What HAM's models refuse of targets, labels and states of the source, instead of an index error or a wrong loss."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError

from hier_models import HamConfig, HamForConditionalGeneration, HamModel


TRANSFORMER = {"body": "transformer", "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SOURCE = torch.tensor([[7, 8, 9, 2], [5, 2, 1, 1]])
TARGET = torch.tensor([[2, 7, 8], [2, 9, 1]])


@pytest.fixture(params=[{}, TRANSFORMER], ids=["gru", "transformer"], scope="module")
def model(request):
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "d_model": 8, "attention_depth": 2, "decoder_attention_heads": 1, **request.param}
    return HamForConditionalGeneration(HamConfig(**sizes)).eval()


def test_a_mask_that_does_not_fit_the_states_of_the_source_is_refused(model):
    states = model.get_encoder()(SOURCE)
    with pytest.raises(ValueError, match=r"`attention_mask` must be \(2, 4\) like `encoder_outputs`, got .* \(2, 9\)"):
        model(encoder_outputs=states, attention_mask=torch.ones(2, 9), decoder_input_ids=TARGET)


def test_labels_of_minus_100_are_left_out(model):
    labels = torch.tensor([[7, 8, 2], [9, -100, -100]])
    logits = model(SOURCE, labels=labels).logits
    rows = labels != -100
    expected = torch.nn.functional.cross_entropy(logits[rows], labels[rows])
    torch.testing.assert_close(model(SOURCE, labels=labels).loss, expected)
    torch.testing.assert_close(model(SOURCE, labels=labels, num_items_in_batch=8).loss, expected * 4 / 8)


def test_a_gru_decoder_without_a_source_is_refused():
    decoder = HamModel(HamConfig(vocab_size=30, d_model=8)).get_decoder()
    with pytest.raises(ValueError, match="`encoder_hidden_states` must be given, got none"):
        decoder(TARGET)


@pytest.mark.parametrize("body", ["gru", "transformer"])
def test_an_unknown_activation_is_refused(body):
    with pytest.raises(StrictDataclassClassValidationError) as error:
        HamConfig(body=body, activation_function="foo")
    assert "`activation_function` is unknown, got 'foo'. It must be one of gelu, " in str(error.value.__cause__)

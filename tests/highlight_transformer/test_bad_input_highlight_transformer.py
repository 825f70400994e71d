"""What the Highlight-Transformer cannot read is refused: the argument's name, what was got, and what is allowed."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError

from hier_models import (
    HighlightTransformerConfig,
    HighlightTransformerForConditionalGeneration,
    HighlightTransformerModel,
)


MODELS = [HighlightTransformerModel, HighlightTransformerForConditionalGeneration]


def make_config(**kwargs):
    sizes = {
        "vocab_size": 60,
        "max_position_embeddings": 16,
        "d_model": 12,
        "encoder_layers": 2,
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 20,
        "decoder_layers": 1,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 18,
        "max_phrase_length": 4,
    }
    return HighlightTransformerConfig(**{**sizes, **kwargs})


def make_model(cls=HighlightTransformerForConditionalGeneration, **kwargs):
    torch.manual_seed(0)
    return cls(make_config(**kwargs)).eval()


IDS = torch.randint(5, 60, (2, 8), generator=torch.Generator().manual_seed(0))
EMBEDS = torch.zeros(2, 8, 12)
ONES = torch.ones(2, 8)
SHORT = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0]])
POSITIONS = torch.tensor([[[0, 2], [4, 6]], [[1, 4], [-1, -1]]])
VALUES = torch.tensor([[0.5, 1.0], [0.25, 0.0]])


def phrases(positions=POSITIONS, values=VALUES, **others):
    return {"input_ids": IDS, "phrase_positions": positions, "phrase_values": values, **others}


def with_position(span, row=0, phrase=1):
    positions = POSITIONS.clone()
    positions[row, phrase] = torch.tensor(span)
    return positions


def with_value(value, row=0, phrase=1):
    values = VALUES.clone()
    values[row, phrase] = value
    return values


WRONG = {
    "positions without values": (
        {"input_ids": IDS, "phrase_positions": POSITIONS},
        "both of `phrase_positions` and `phrase_values`.*no `phrase_values` came",
    ),
    "values without positions": (
        {"input_ids": IDS, "phrase_values": VALUES},
        "both of `phrase_positions` and `phrase_values`.*no `phrase_positions` came",
    ),
    "positions of one document": (
        phrases(POSITIONS[0]),
        r"`phrase_positions` must be \(batch=2, phrases, 2\), got shape \(2, 2\)",
    ),
    "positions of fewer documents": (phrases(POSITIONS[:1]), r"\(batch=2, phrases, 2\), got shape \(1, 2, 2\)"),
    "positions of one end": (phrases(POSITIONS[..., :1]), r"\(batch=2, phrases, 2\), got shape \(2, 2, 1\)"),
    "positions that are fractions": (phrases(POSITIONS.float()), "must be integers, got torch.float32"),
    "values of other phrases": (
        phrases(values=VALUES[:, :1]),
        r"`phrase_values` must be \(2, 2\), one for each phrase, got shape \(2, 1\)",
    ),
    "a phrase behind the document": (
        phrases(with_position([7, 9])),
        r"inside of the document.*Got \[7, 9\] for phrase 1 of row 0, which has 8 tokens",
    ),
    "a phrase in the padding": (
        phrases(with_position([4, 6], row=1), attention_mask=SHORT),
        r"Got \[4, 6\] for phrase 1 of row 1, which has 5 tokens",
    ),
    "a phrase counted from the padding": (
        phrases(with_position([5, 8]), attention_mask=SHORT),
        r"Got \[5, 8\] for phrase 1 of row 0, which has 6 tokens",
    ),
    "an empty phrase": (phrases(with_position([3, 3])), r"Got \[3, 3\] for phrase 1 of row 0"),
    "a phrase from its end": (phrases(with_position([5, 3])), r"Got \[5, 3\] for phrase 1 of row 0"),
    "a negative place": (phrases(with_position([-2, 1])), r"Got \[-2, 1\] for phrase 1 of row 0"),
    "half of a padding": (phrases(with_position([-1, 2])), r"Got \[-1, 2\] for phrase 1 of row 0"),
    "a phrase longer than the band": (
        phrases(with_position([1, 6])),
        "phrase of 5 tokens, longer than max_phrase_length=4.*`model.config.max_phrase_length` to 5",
    ),
    "a negative value": (
        phrases(values=with_value(-0.5)),
        r"`phrase_values` must be finite and not negative, got values from -0\.5 to 0\.5",
    ),
    "an infinite value": (phrases(values=with_value(float("inf"))), "must be finite .* got values from 0.0 to inf"),
    "a value that is no number": (phrases(values=with_value(float("nan"))), "must be finite .* got values from nan"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs(name):
    inputs, match = WRONG[name]
    for cls in MODELS:
        with pytest.raises(ValueError, match=match):
            make_model(cls)(**inputs, decoder_input_ids=IDS[:, :3])


def test_generate_refuses_what_forward_refuses():
    with pytest.raises(ValueError, match="`phrase_values` must be finite and not negative"):
        make_model().generate(**phrases(values=with_value(-1.0)), max_new_tokens=2)


def test_padding_of_phrases_may_have_any_value():
    model = make_model(HighlightTransformerModel)
    states = [
        model(**phrases(values=with_value(filler, row=1))).encoder_last_hidden_state
        for filler in (0.0, -1.0, float("nan"), 1e30)
    ]
    assert all(torch.equal(other, states[0]) for other in states)


def test_no_phrases_are_fine():
    model = make_model(HighlightTransformerModel)
    expected = model(IDS).encoder_last_hidden_state
    for positions in (torch.full((2, 3, 2), -1), torch.zeros(2, 0, 2, dtype=torch.long)):
        inputs = phrases(positions, torch.zeros(positions.shape[:2]))
        torch.testing.assert_close(model(**inputs).encoder_last_hidden_state, expected)


def test_a_phrase_of_everything_and_a_phrase_of_one_token():
    for span in ([0, 4], [2, 3]):
        model = make_model(HighlightTransformerModel)
        inputs = {"phrase_positions": torch.tensor([[span]]), "phrase_values": torch.ones(1, 1)}
        assert model(IDS[:1, :4], **inputs).last_hidden_state.isfinite().all()


def test_copying_needs_ids():
    model = make_model()
    with pytest.raises(ValueError, match=r"neither `input_ids` nor `source_ids`.*`use_copy=False`"):
        model(inputs_embeds=EMBEDS, decoder_input_ids=IDS)
    assert make_model(use_copy=False)(inputs_embeds=EMBEDS, decoder_input_ids=IDS).logits.isfinite().all()


@pytest.mark.parametrize(
    ("source_ids", "match"),
    [
        (IDS[:, :7], r"`source_ids` must be \(2, 8\) like the tokens, got shape \(2, 7\)"),
        (IDS + 52, r"`source_ids` must be in \[0, vocab_size=60\)"),
    ],
)
def test_ids_that_are_not_of_the_source(source_ids, match):
    with pytest.raises(ValueError, match=match):
        make_model()(inputs_embeds=EMBEDS, source_ids=source_ids, decoder_input_ids=IDS)


@pytest.mark.parametrize("target", [1, 3])
@pytest.mark.parametrize("name", ["source_ids", "input_ids"])
@pytest.mark.parametrize("ids", [IDS[:, :7], IDS[:1]])
def test_ids_that_are_not_of_the_encoded_source(ids, name, target):
    model = make_model()
    encoded = (model.get_encoder()(IDS).last_hidden_state,)
    with pytest.raises(ValueError, match=r"`source_ids` .* must be \(2, 8\) like the encoded source, got shape"):
        model(encoder_outputs=encoded, decoder_input_ids=IDS[:, :target], **{name: ids})


class TestConfig:
    @pytest.mark.parametrize(
        ("fields", "match"),
        [
            ({"highlight_heads": 4}, "`highlight_heads` must be from 0 to encoder_attention_heads=3, got 4"),
            ({"highlight_heads": -1}, "`highlight_heads` must be from 0 .* got -1"),
            ({"highlight_layers": 3}, "`highlight_layers` must be from 0 to encoder_layers=2, got 3"),
            ({"highlight_layers": [0, 2]}, r"`highlight_layers`, as a list, .* in \[0, encoder_layers=2\).*\[0, 2\]"),
            ({"highlight_layers": [1, 1]}, r"`highlight_layers`, as a list, must hold different numbers"),
            ({"brightness": -0.5}, "`brightness` must be finite and not negative, got -0.5"),
            ({"brightness": float("nan")}, "`brightness` must be finite"),
            ({"brightness_decay": float("inf")}, "`brightness_decay` must be finite"),
            ({"max_phrase_length": 0}, "`max_phrase_length` must be at least 1, got 0"),
            ({"copy_head": 2}, r"`copy_head` must be in \[0, decoder_attention_heads=2\), got 2"),
            ({"encoder_layers": 0}, "`encoder_layers` must be at least 1"),
            ({"decoder_layers": 0}, "`decoder_layers` must be at least 1"),
            ({"max_position_embeddings": 0}, "`max_position_embeddings` must be at least 1"),
            ({"encoder_attention_heads": 5}, "must divide `d_model`"),
            ({"decoder_attention_heads": 0}, "`decoder_attention_heads` must be at least 1"),
            ({"d_model": 15, "decoder_attention_heads": 3}, "`d_model` must be even for sinusoidal positions, got 15"),
            ({"activation_dropout": 1.5}, "`activation_dropout` must be between 0 and 1, got 1.5"),
            ({"activation_function": "gelux"}, "activation_function.*got 'gelux'.*one of .*gelu"),
            ({"pad_token_id": None}, "`pad_token_id` must be in .*vocab_size=60"),
            ({"decoder_start_token_id": 60}, "`decoder_start_token_id` must be in .*vocab_size=60"),
        ],
    )
    def test_what_cannot_work_is_refused_at_construction(self, fields, match):
        with pytest.raises(StrictDataclassClassValidationError, match=match):
            make_config(**fields)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("highlighting", "multiplied"),
            ("position_embedding_type", "rotary"),
            ("highlight_heads", 0.25),
            ("highlight_layers", "half"),
            ("highlight_layers", [0, "1"]),
            ("use_copy", "yes"),
        ],
    )
    def test_wrong_types_and_names_are_refused(self, field, value):
        with pytest.raises(StrictDataclassFieldValidationError, match=field):
            make_config(**{field: value})

    @pytest.mark.parametrize(
        ("fields", "heads", "layers"),
        [
            ({}, 1, [0]),
            ({"encoder_attention_heads": 12, "encoder_layers": 6}, 3, [0, 1, 2]),
            ({"num_attention_heads": 12, "num_hidden_layers": 6}, 3, [0, 1, 2]),
            ({"encoder_layers": 1}, 1, [0]),
            ({"highlight_layers": [1]}, 1, [1]),
            ({"highlight_layers": 0}, 1, []),
            ({"highlight_heads": 0}, 0, []),
        ],
    )
    def test_what_is_highlighted(self, fields, heads, layers):
        config = make_config(**fields)
        assert (config.highlight_heads, config.highlighted_layers) == (heads, layers)

    def test_learned_positions_have_a_limit(self):
        assert HighlightTransformerConfig().max_position_embeddings is None
        assert HighlightTransformerConfig(position_embedding_type="learned").max_position_embeddings == 1024


def test_flash_attention_does_not_take_padding_for_the_target(flash_masks):
    """Its mask of the keys would be used for the queries too; without padding there is no mask."""
    model = make_model()
    model.set_attn_implementation(flash_masks)
    with pytest.raises(ValueError, match="sdpa"):
        model(IDS, attention_mask=SHORT)
    assert model(IDS, attention_mask=ONES)[0].isfinite().all()

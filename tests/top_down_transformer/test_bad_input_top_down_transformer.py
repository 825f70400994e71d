"""What the Top-Down Transformer cannot read is refused: the argument's name, what was got, and what is allowed."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError

from hier_models import (
    TopDownTransformerConfig,
    TopDownTransformerEncoderModel,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerForTokenClassification,
    TopDownTransformerModel,
)


MODELS = [
    TopDownTransformerModel,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerForTokenClassification,
    TopDownTransformerEncoderModel,
]


def make_config(**kwargs):
    sizes = {
        "vocab_size": 60,
        "max_encoder_position_embeddings": 20,
        "max_decoder_position_embeddings": 16,
        "d_model": 12,
        "bottom_up_layers": 1,
        "top_down_layers": 1,
        "segment_layers": 1,
        "attention_window": 4,
        "pooling_kernel": 4,
        "pooling_stride": 3,
        "pooling": "importance",
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 20,
        "decoder_layers": 1,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 18,
    }
    return TopDownTransformerConfig(**{**sizes, **kwargs})


def make_model(cls=TopDownTransformerForConditionalGeneration, **kwargs):
    torch.manual_seed(0)
    return cls(make_config(**kwargs)).eval()


IDS = torch.randint(5, 60, (2, 8), generator=torch.Generator().manual_seed(0))
EMBEDS = torch.zeros(2, 8, 12)
ONES = torch.ones(2, 8)


def change_first(value):
    weights = ONES.clone()
    weights[0, 3] = value
    return weights


WRONG = {
    "mask of pairs": (
        {"input_ids": IDS, "attention_mask": torch.ones(2, 1, 8, 8)},
        r"`attention_mask` must be \(2, 8\) like the tokens, got shape \(2, 1, 8, 8\)",
    ),
    "importance of the wrong length": (
        {"input_ids": IDS, "token_importance": ONES[:, :7]},
        r"`token_importance` must be \(2, 8\) like the tokens, got shape \(2, 7\)",
    ),
    "importance of one document": (
        {"input_ids": IDS, "token_importance": ONES[0]},
        r"`token_importance` must be \(2, 8\) like the tokens, got shape \(8,\)",
    ),
    "negative importance": (
        {"input_ids": IDS, "token_importance": change_first(-0.5)},
        r"`token_importance` must be finite and not negative, got values from -0\.5 to 1\.0",
    ),
    "infinite importance": (
        {"input_ids": IDS, "token_importance": change_first(float("inf"))},
        "`token_importance` must be finite and not negative, got values from 1.0 to inf",
    ),
    "importance that is no number": (
        {"input_ids": IDS, "token_importance": change_first(float("nan"))},
        "`token_importance` must be finite .* got values from nan to nan",
    ),
    "nothing important": (
        {"input_ids": IDS, "token_importance": ONES * torch.tensor([[1.0], [0.0]])},
        r"`token_importance` is zero for every token of row 1.*Give ones",
    ),
    "only padding important": (
        {"input_ids": IDS, "attention_mask": 1 - ONES.tril(), "token_importance": ONES.tril()},
        r"`token_importance` is zero for every token of row 0.*Give ones",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs(name):
    inputs, match = WRONG[name]
    for cls in MODELS if name == "nothing important" else MODELS[-1:]:
        with pytest.raises(ValueError, match=match):
            make_model(cls)(**inputs)


def test_generate_refuses_what_forward_refuses():
    with pytest.raises(ValueError, match="`token_importance` must be finite and not negative"):
        make_model().generate(IDS, token_importance=change_first(-1.0), max_new_tokens=2)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        (
            {"pooling": "average"},
            "`token_importance` was given to a model with pooling='average'.*pooling=\"importance",
        ),
        ({"top_down_update": "none"}, "`token_importance` was given to a model with top_down_update='none'"),
    ],
)
def test_importance_that_is_not_read(fields, match):
    with pytest.raises(ValueError, match=match):
        make_model(TopDownTransformerEncoderModel, **fields)(IDS, token_importance=ONES)


def test_padding_may_have_any_importance():
    model = make_model(TopDownTransformerEncoderModel)
    mask = ONES.clone()
    mask[0, 5:] = 0
    states = [
        model(IDS, attention_mask=mask, token_importance=torch.where(mask == 0, filler, ONES)).last_hidden_state
        for filler in (0.0, -1.0, float("nan"), 1e30)
    ]
    assert all(torch.equal(other[mask.bool()], states[0][mask.bool()]) for other in states)


@pytest.mark.parametrize(("window", "length"), [(2, 8), (100, 8), (4, 1), (4, 2)])
def test_any_window_fits_any_length(window, length):
    states = make_model(TopDownTransformerEncoderModel, attention_window=window)(IDS[:, :length]).last_hidden_state
    assert states.isfinite().all()


@pytest.mark.parametrize("shape", [(2, 4), (8, 2), (16,)])
def test_labels_are_one_for_each_token(shape):
    """Also where their number divides that of the logits, which would be taken for more classes."""
    labels = torch.ones(shape, dtype=torch.long)
    with pytest.raises(ValueError, match=r"`labels` must be \(2, 8\), one for each token, got shape \("):
        make_model(TopDownTransformerForTokenClassification)(IDS, labels=labels)
    with pytest.raises(ValueError, match=r"`labels` must be \(2, 8\)"):
        make_model()(IDS, decoder_input_ids=IDS, labels=labels)


class TestConfig:
    @pytest.mark.parametrize(
        ("fields", "match"),
        [
            ({"attention_window": 5}, "`attention_window` must be even and at least 2.*got 5"),
            ({"attention_window": 0}, "`attention_window` must be even and at least 2.*got 0"),
            ({"attention_window": -4}, "`attention_window` must be even and at least 2.*got -4"),
            ({"pooling_stride": 5}, "`pooling_stride` must be .*at most `pooling_kernel`.*got stride 5 and kernel 4"),
            ({"pooling_stride": 0}, "`pooling_stride` must be at least 1.*got stride 0"),
            ({"pooling_kernel": [4, 2], "pooling_stride": [3, 3]}, "got stride 3 and kernel 2"),
            ({"pooling_kernel": [4, 2]}, r"two lists with one number for each level.*got \[4, 2\] and 3"),
            ({"pooling_kernel": [4], "pooling_stride": [3, 2]}, r"got \[4\] and \[3, 2\]"),
            ({"pooling_kernel": [], "pooling_stride": []}, r"got \[\] and \[\]"),
            ({"top_down_layers": 0}, "`top_down_layers` must be at least 1, got 0"),
            ({"bottom_up_layers": -1}, "`bottom_up_layers` must be at least 0, got -1"),
            ({"segment_layers": 0}, "`segment_layers` must be at least 1"),
            ({"decoder_layers": 0}, "`decoder_layers` must be at least 1"),
            ({"max_encoder_position_embeddings": 0}, "`max_encoder_position_embeddings` must be at least 1"),
            ({"encoder_attention_heads": 5}, "must divide `d_model`"),
            ({"decoder_attention_heads": 0}, "`decoder_attention_heads` must be at least 1"),
            ({"classifier_dropout": 1.5}, "`classifier_dropout` must be between 0 and 1, got 1.5"),
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
            ("pooling", "max"),
            ("top_down_update", "add"),
            ("attention_window", "wide"),
            ("pooling_kernel", 2.5),
            ("pooling_kernel", [4, "2"]),
        ],
    )
    def test_wrong_types_and_names_are_refused(self, field, value):
        with pytest.raises(StrictDataclassFieldValidationError, match=field):
            make_config(**{field: value})

    def test_two_ways_to_give_the_layers(self):
        assert make_config(encoder_layers=2).bottom_up_layers == 1
        assert TopDownTransformerConfig(encoder_layers=6).top_down_layers == 2
        with pytest.raises(ValueError, match="or `encoder_layers`, their sum; got 1, 1 and 6"):
            make_config(encoder_layers=6)
        config = make_config()
        config.encoder_layers = 9
        assert (config.bottom_up_layers, config.top_down_layers) == (6, 3)


def test_resizing_knows_two_sides():
    model = make_model()
    with pytest.raises(ValueError, match="`side` must be 'encoder' or 'decoder', got 'both'"):
        model.resize_position_embeddings(40, "both")
    with pytest.raises(ValueError, match="`extra_positions` must be 'tile' or 'random', got 'copy'"):
        model.resize_position_embeddings(40, "decoder", "copy")
    assert model.config.max_encoder_position_embeddings == 20


def test_flash_attention_does_not_take_padding_for_queries(flash_masks):
    """Its mask of the keys would be used for the queries too; without padding there is no mask."""
    mask = ONES.clone()
    mask[0, 3:] = 0  # one segment, where the other document has three
    for cls in (TopDownTransformerEncoderModel, TopDownTransformerForConditionalGeneration):
        model = make_model(cls, pooling="average")
        model.set_attn_implementation(flash_masks)
        with pytest.raises(ValueError, match="sdpa"):
            model(IDS, attention_mask=mask)
        assert model(IDS, attention_mask=ONES)[0].isfinite().all()

"""What the encoder-only HAT cannot read is refused, with the argument's name, what was got, and what is allowed."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError, StrictDataclassFieldValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models import (
    HatEncoderConfig,
    HatEncoderForMaskedLM,
    HatEncoderForMultipleChoice,
    HatEncoderForQuestionAnswering,
    HatEncoderForSequenceClassification,
    HatEncoderForTokenClassification,
    HatEncoderModel,
)


BOS, PAD, EOS = 0, 1, 2
HEADS = [
    HatEncoderModel,
    HatEncoderForMaskedLM,
    HatEncoderForSequenceClassification,
    HatEncoderForQuestionAnswering,
    HatEncoderForTokenClassification,
]


def make_config(**kwargs):
    sizes = {
        "vocab_size": 60,
        "max_position_embeddings": 22,
        "hidden_size": 12,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "type_vocab_size": 1,
    }
    return HatEncoderConfig(**{**sizes, **kwargs})


def make_model(cls=HatEncoderModel, **kwargs):
    torch.manual_seed(0)
    return cls(make_config(**kwargs)).eval()


def make_ids(length=8, batch=2):
    ids = torch.randint(5, 60, (batch, length), generator=torch.Generator().manual_seed(0))
    ids[:, 0] = BOS
    return ids


IDS = make_ids()
EMBEDS = torch.zeros(2, 8, 12)

WRONG = {
    "choices": ({"input_ids": IDS[None]}, r"`input_ids` must be \(batch, tokens\), got shape \(1, 2, 8\)"),
    "token types of a pair": (
        {"input_ids": IDS, "token_type_ids": torch.ones_like(IDS)},
        r"`token_type_ids` must be in \[0, type_vocab_size=1\), got values from 1 to 1",
    ),
    "longer token types": (
        {"input_ids": IDS, "token_type_ids": torch.zeros(2, 9, dtype=torch.long)},
        r"`token_type_ids` must be \(2, 8\) like the tokens, got shape \(2, 9\)",
    ),
    "positions too large": (
        {"input_ids": IDS, "position_ids": torch.arange(15, 23).expand(2, -1)},
        r"`position_ids` must be in \[0, max_position_embeddings=22\), got values from 15 to 22",
    ),
    "positions of other shape": (
        {"input_ids": IDS, "position_ids": torch.arange(8)},
        r"`position_ids` must be \(2, 8\) or \(1, 8\) like the tokens, got shape \(8,\)",
    ),
    "sentence behind the text": (
        {"input_ids": IDS, "bos_positions": torch.tensor([[0], [8]])},
        r"`bos_positions` must be positions of the source's 8 tokens, or -1 for padding, got values from 0 to 8",
    ),
    "sentence before the text": (
        {"input_ids": IDS, "bos_positions": torch.tensor([[0], [-2]])},
        r"`bos_positions` must be positions of .* -1 for padding, got values from -2 to 0",
    ),
    "sentences of one row": (
        {"input_ids": IDS, "bos_positions": torch.tensor([0, 3])},
        r"`bos_positions` must be \(batch=2, sentences\), got shape \(2,\)",
    ),
    "sentences of fewer rows": ({"input_ids": IDS, "bos_positions": torch.tensor([[0, 3]])}, r"got shape \(1, 2\)"),
    "no sentences": ({"input_ids": IDS, "bos_positions": torch.zeros(2, 0, dtype=torch.long)}, r"got shape \(2, 0\)"),
    "sentences as a mask": ({"input_ids": IDS, "bos_positions": IDS == BOS}, r"must be integers, got torch.bool"),
    "sentences as floats": ({"input_ids": IDS, "bos_positions": torch.zeros(2, 1)}, r"must be integers.*float32"),
    "packed texts": (
        {"input_ids": IDS, "cu_seq_lens_q": torch.tensor([0, 8, 16], dtype=torch.int32)},
        "`cu_seq_lens_q` packs several texts into one row.* Pad them",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("cls", HEADS, ids=lambda cls: cls.__name__)
def test_wrong_inputs(cls, name):
    inputs, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make_model(cls)(**inputs)


class TestLength:
    """Positions begin behind that of padding: 22 rows are room for 20 tokens."""

    def test_too_long_says_what_to_do(self):
        model = make_model()
        assert model(make_ids(20)).last_hidden_state.shape[1] == 20
        message = (
            r"text of 21 tokens is longer than the 20 that max_position_embeddings=22.*`truncation=True`.*`stride`"
        )
        with pytest.raises(ValueError, match=message):
            model(make_ids(21))
        with pytest.raises(ValueError, match="text of 30 tokens"):
            model(inputs_embeds=torch.zeros(1, 30, 12))

    def test_padding_does_not_count(self):
        model = make_model()
        ids = make_ids(30)
        ids[:, 20:] = PAD
        mask = (ids != PAD).long()
        padded = model(ids, attention_mask=mask).last_hidden_state[:, :20]
        torch.testing.assert_close(padded, model(ids[:, :20]).last_hidden_state)

    def test_another_padding_token(self):
        model = make_model(pad_token_id=5)
        with pytest.raises(ValueError, match="longer than the 16 that max_position_embeddings=22 and pad_token_id=5"):
            model(torch.full((1, 17), 7))


class TestHeads:
    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({}, "exactly one of .* got none"),
            ({"input_ids": IDS}, r"`input_ids` must be \(batch, choices, tokens\), got shape \(2, 8\)"),
            ({"inputs_embeds": EMBEDS}, r"`inputs_embeds` must be \(batch, choices, tokens, hidden_size\), got shape"),
            (
                {"input_ids": IDS[None], "attention_mask": torch.ones_like(IDS)},
                r"`attention_mask` must be \(batch, choices, tokens\), got shape \(2, 8\)",
            ),
            (
                {"input_ids": IDS[None], "bos_positions": torch.tensor([[0], [0]])},
                r"`bos_positions` must be \(batch, choices, sentences\), got shape \(2, 1\)",
            ),
        ],
    )
    def test_multiple_choice_needs_an_axis_of_choices(self, inputs, message):
        with pytest.raises(ValueError, match=message):
            make_model(HatEncoderForMultipleChoice)(**inputs)

    def test_question_answering(self):
        with pytest.raises(ValueError, match=r"`num_labels` must be 2 for question answering.*got 3"):
            make_model(HatEncoderForQuestionAnswering, num_labels=3)
        for name in ("start_positions", "end_positions"):
            with pytest.raises(
                ValueError, match=f"Give both `start_positions` and `end_positions`.*got `{name}` only"
            ):
                make_model(HatEncoderForQuestionAnswering)(IDS, **{name: torch.tensor([1, 2])})

    def test_labels_that_do_not_fit(self):
        model = make_model(HatEncoderForSequenceClassification, num_labels=3)
        with pytest.raises(
            ValueError, match=r"`labels` must hold \(2, 3\) values for problem_type='multi_label.*\(2,\)"
        ):
            model(IDS, labels=torch.tensor([0.0, 1.0]))
        with pytest.raises(ValueError, match=r"`labels` must hold \(2, 1\) values for problem_type='regression'"):
            make_model(HatEncoderForSequenceClassification, num_labels=1)(IDS, labels=torch.zeros(2, 2))
        for cls in (HatEncoderForSequenceClassification, HatEncoderForTokenClassification):
            labels = torch.full_like(IDS, 3) if cls is HatEncoderForTokenClassification else torch.tensor([0, 3])
            with pytest.raises(IndexError, match=r"3 is out of bounds"):
                make_model(cls, num_labels=3)(IDS, labels=labels)


class TestConfig:
    @pytest.mark.parametrize(
        ("field", "value", "match"),
        [
            ("hierarchical_queries", "tokens", "hierarchical_queries.*'all' or 'bos', got 'tokens'"),
            ("hidden_size", 0, "hidden_size.*at least 1, got 0"),
            ("num_hidden_layers", 0, "num_hidden_layers.*at least 1"),
            ("num_attention_heads", 5, "num_attention_heads.*must divide `hidden_size`.*hidden_size=12"),
            ("num_attention_heads", 0, "num_attention_heads.*at least 1"),
            ("intermediate_size", -1, "intermediate_size.*at least 1, got -1"),
            ("type_vocab_size", 0, "type_vocab_size.*at least 1"),
            ("max_position_embeddings", 2, "max_position_embeddings.*at least pad_token_id . 2 = 3.*got 2"),
            ("hidden_dropout_prob", 1.5, "hidden_dropout_prob.*between 0 and 1, got 1.5"),
            ("attention_probs_dropout_prob", -0.1, "attention_probs_dropout_prob.*between 0 and 1"),
            ("classifier_dropout", 2, "classifier_dropout.*between 0 and 1"),
            ("hidden_act", "gelux", "hidden_act.*got 'gelux'.*one of .*gelu"),
            ("bos_token_id", None, "bos_token_id.*got None. Sentences are marked with it"),
            ("bos_token_id", 60, "bos_token_id.*vocab_size=60"),
            ("pad_token_id", None, "pad_token_id"),
            ("pad_token_id", BOS, "pad_token_id.*must differ from.*bos_token_id"),
            ("eos_token_id", BOS, "eos_token_id.*must differ from.*bos_token_id"),
            ("eos_token_id", [EOS, BOS], "eos_token_id.*must differ from.*bos_token_id"),
            ("is_decoder", True, "is_decoder.*must be False"),
            ("add_cross_attention", True, "add_cross_attention.*must be False"),
        ],
    )
    def test_what_cannot_work_is_refused_at_construction(self, field, value, match):
        with pytest.raises(StrictDataclassClassValidationError, match=match):
            make_config(**{field: value})

    @pytest.mark.parametrize(
        ("field", "value"), [("hierarchical_attention", "yes"), ("hierarchical_queries", 1), ("hidden_size", "12")]
    )
    def test_wrong_types_are_refused(self, field, value):
        with pytest.raises(StrictDataclassFieldValidationError, match=field):
            make_config(**{field: value})

    def test_a_roberta_decoder_is_refused(self, tmp_path):
        (tmp_path / "config.json").write_text('{"model_type": "roberta", "is_decoder": true}')
        with pytest.raises(StrictDataclassClassValidationError, match="`is_decoder` must be False"):
            HatEncoderConfig.from_pretrained(tmp_path)


MODELS = {queries: make_model(hierarchical_queries=queries) for queries in ("all", "bos")}


@settings(max_examples=100, deadline=None)
@given(
    ids=st.lists(st.lists(st.sampled_from([BOS, PAD, EOS, 5, 9]), min_size=5, max_size=5), min_size=1, max_size=3),
    kept=st.lists(st.integers(0, 1), min_size=5, max_size=5),
    queries=st.sampled_from(["all", "bos"]),
)
def test_any_markers_and_any_mask(ids, kept, queries):
    """Whatever stands where: results are finite, and what is masked does not matter."""
    ids = torch.tensor(ids)
    mask = torch.tensor(kept).expand(len(ids), -1)
    model = MODELS[queries]
    with torch.no_grad():
        found = model(ids, attention_mask=mask).last_hidden_state
        assert found.isfinite().all()
        if mask.any():
            other = torch.where((mask == 0) & (ids != PAD), 7, ids)  # padding stays so, since positions count the rest
            again = model(other, attention_mask=mask).last_hidden_state
            torch.testing.assert_close(again[mask.bool()], found[mask.bool()], rtol=0, atol=1e-5)
        backwards = model(ids.flip(0), attention_mask=mask).last_hidden_state
        torch.testing.assert_close(backwards.flip(0), found, rtol=0, atol=1e-5)

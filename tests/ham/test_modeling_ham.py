"""HAM's models: against plain loops, against BART, and at their own edges."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from hier_models import HamConfig, HamForConditionalGeneration, HamModel
from tests.references import ham as reference


BOS, PAD, EOS = 0, 1, 2
LEVEL_RATE = 25  # what weighs the levels is so many times the parameter, which has its gradient
TRANSFORMER = {
    "body": "transformer",
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 24,
}


def make_config(**kwargs):
    return HamConfig(**{"vocab_size": 30, "d_model": 6, "attention_depth": 3, "dropout": 0.0, **kwargs})


def make_model(cls=HamForConditionalGeneration, std=0.5, **kwargs):
    torch.manual_seed(0)
    model = cls(make_config(**kwargs)).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=std / LEVEL_RATE if name.endswith("level_weights.bias") else std)
    return model


# A keyword and lines, a keyword alone (a first line), no keyword.
SOURCES = [
    reference.Source([7, 8], [9, 10, 7, 11]),
    reference.Source([12], []),
    reference.Source([], [20, 21]),
]
TARGET = torch.tensor([[EOS, 15, 16, 9], [EOS, 22, 23, 24], [EOS, 5, 6, 7]])


def make_batch(sources, side="right", extra=1):
    width = max(len(source.keyword) + len(source.words) for source in sources) + extra
    columns = {"input_ids": [], "attention_mask": [], "keyword_mask": []}
    for source in sources:
        ids = source.keyword + source.words
        rows = [ids, [1] * len(ids), [1] * len(source.keyword) + [0] * len(source.words)]
        for name, values, pad in zip(columns, rows, (PAD, 0, 0), strict=True):
            padding = [pad] * (width - len(values))
            columns[name].append(values + padding if side == "right" else padding + values)
    return {name: torch.tensor(rows) for name, rows in columns.items()}


def expected_logits(model, source, target):
    config = model.config
    weights = {name.removeprefix("model."): value for name, value in model.named_parameters(remove_duplicate=False)}
    weights["lm_head"] = model.lm_head.weight
    attention = model.model.decoder.step.attention
    score = reference.scaled_dot_product
    if config.attention_scoring == "bilinear":
        score = reference.bilinear(attention.score_key.weight[0].T)
    elif config.attention_scoring == "additive":
        score = reference.additive(
            attention.score_query.weight[0], attention.score_key.weight[0], attention.score_sum.weight[0, :, 0]
        )
    memory = reference.encode(weights, config.encoder_layers, source)
    logits = LEVEL_RATE * attention.level_weights.bias if config.attention_depth > 1 else torch.zeros(1)
    return torch.stack(
        reference.decode(weights, config.decoder_layers, memory, target.tolist(), logits.double(), score)
    )


VARIANTS = [
    {},
    {"attention_depth": 1},
    {"attention_scoring": "additive", "encoder_layers": 2, "decoder_layers": 2},
    {"attention_scoring": "bilinear", "tie_word_embeddings": False, "embedding_size": 5},
]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gru_body_equals_plain_loops(variant, side):
    """Forward and every gradient, in float64."""
    model = make_model(**variant).double()
    got = model(**make_batch(SOURCES, side), decoder_input_ids=TARGET).logits
    expected = torch.stack([expected_logits(model, *pair) for pair in zip(SOURCES, TARGET, strict=True)])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    weight = torch.randn(got.shape, dtype=got.dtype, generator=torch.Generator().manual_seed(2))
    names = [name for name, _ in model.named_parameters() if name != "model.shared.weight" or "lm" in name]
    leaves = [model.get_parameter(name) for name in names]
    mine = torch.autograd.grad((got * weight).sum(), leaves, allow_unused=True)
    plain = torch.autograd.grad((expected * weight).sum(), leaves, allow_unused=True)
    for name, one, other in zip(names, mine, plain, strict=True):
        if one is None and "shared" in name:
            continue
        assert one is not None, name
        if name.endswith("level_weights.bias"):
            other = other / LEVEL_RATE
        padding = 0 if "embed_tokens" not in name else PAD
        one, other = (
            value.index_fill(0, torch.tensor([padding]), 0.0) if padding else value for value in (one, other)
        )
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize("heads", [1, 2])
def test_attentions_of_the_gru_body(heads):
    model = make_model(decoder_attention_heads=heads)
    batch = make_batch(SOURCES)
    outputs = model(**batch, decoder_input_ids=TARGET, output_attentions=True)
    (attentions,) = outputs.cross_attentions
    assert attentions.shape == (3, heads, 4, 7)
    assert outputs.level_attentions.shape == (3, 3, heads, 4, 7)
    torch.testing.assert_close(attentions.sum(dim=-1), torch.ones(3, heads, 4))
    mixed = torch.einsum("bdhts,d->bhts", outputs.level_attentions, outputs.level_weights[0, 0])
    torch.testing.assert_close(attentions, mixed)
    # The keyword is one state, at its first token; nothing attends to padding.
    assert (attentions[0, 0, :, 0] > 0).all()
    assert attentions[0, 0, :, [1, 6]].abs().max() == 0
    assert attentions[1, 0, :, 1:].abs().max() == 0


def test_a_keyword_at_padding_is_none():
    model, batch = make_model(), make_batch(SOURCES)
    changed = batch["keyword_mask"].masked_fill(batch["attention_mask"] == 0, 1)
    got, expected = (
        model(**{**batch, "keyword_mask": mask}, decoder_input_ids=TARGET).logits
        for mask in (changed, batch["keyword_mask"])
    )
    assert torch.equal(got, expected)


def test_level_weights_are_reported():
    model = make_model()
    outputs = model(**make_batch(SOURCES), decoder_input_ids=TARGET)
    logits = LEVEL_RATE * model.model.decoder.step.attention.level_weights.bias
    torch.testing.assert_close(outputs.level_weights, logits.softmax(0).expand(3, 1, 3))
    (name,) = model.get_level_weights()
    assert name == "model.decoder.step.attention"
    assert model.get_level_weights()[name] == pytest.approx(logits.softmax(0).tolist())
    transformer = make_model(**TRANSFORMER)
    outputs = transformer(**make_batch(SOURCES), decoder_input_ids=TARGET)
    assert outputs.level_weights.shape == (3, 4, 3)
    assert list(transformer.get_level_weights())[:2] == [f"model.encoder.layers.{i}.self_attn" for i in range(2)]


@pytest.mark.parametrize(("choice", "expected"), [("first", [1.0, 0.0, 0.0]), ("last", [0.0, 0.0, 1.0])])
@pytest.mark.parametrize("body", ["gru", "transformer"])
def test_extreme_cases_have_nothing_to_learn(choice, expected, body):
    sizes = TRANSFORMER if body == "transformer" else {}
    model = make_model(level_weights=choice, **sizes)
    assert not [name for name, _ in model.named_parameters() if "level_weights" in name]
    outputs = model(**make_batch(SOURCES), decoder_input_ids=TARGET)
    assert outputs.level_weights[0].tolist() == [expected] * outputs.level_weights.shape[1]
    if choice == "first":  # plain attention
        plain = make_model(attention_depth=1, **sizes)
        plain.load_state_dict(model.state_dict())
        assert torch.equal(plain(**make_batch(SOURCES), decoder_input_ids=TARGET).logits, outputs.logits)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_depth_one_of_the_transformer_body_is_bart(attention):
    model = make_model(attention_depth=1, attn_implementation=attention, **TRANSFORMER)
    names = BartConfig().to_dict().keys() - {"model_type", "architectures", "transformers_version"}
    sizes = {name: getattr(model.config, name) for name in names if hasattr(model.config, name)}
    bart = BartForConditionalGeneration(BartConfig(**sizes, attn_implementation=attention)).eval()
    report = bart.load_state_dict(model.state_dict(), strict=False)
    assert report.unexpected_keys == ["model.encoder.embed_keyword.weight"]
    assert not report.missing_keys
    batch = make_batch(SOURCES)
    batch.pop("keyword_mask")
    got = model(**batch, labels=TARGET)
    expected = bart(**batch, labels=TARGET)
    assert torch.equal(got.logits, expected.logits)
    assert torch.equal(got.loss, expected.loss)


@pytest.mark.parametrize("keys", ["level", "input"])
def test_levels_of_the_transformer_body_equal_those_of_the_module(keys):
    """One layer's attention beside `HierarchicalAttention` with the same weights, and what `eager` reports."""
    from hier_models import HierarchicalAttention

    model = make_model(attention_keys=keys, attn_implementation="eager", **TRANSFORMER)
    layer = model.model.encoder.layers[0].self_attn
    peer = HierarchicalAttention(6, 3, 2, keys=keys)
    peer.load_state_dict(layer.state_dict())
    states = torch.randn(2, 5, 6)
    got, weights = layer(states)
    torch.testing.assert_close(got, peer(states)[0])
    # What is reported is how much of each token's value is in the result.
    value = layer.v_proj(states).unflatten(-1, (2, 3)).transpose(1, 2)
    torch.testing.assert_close(layer.out_proj((weights @ value).transpose(1, 2).flatten(2)), got)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("sizes", [{}, TRANSFORMER])
def test_generation_is_the_same_without_a_cache(num_beams, sizes):
    model = make_model(**sizes)
    batch = make_batch(SOURCES)
    options = {"num_beams": num_beams, "do_sample": False, "max_new_tokens": 7, "num_return_sequences": num_beams}
    got = model.generate(**batch, **options)
    assert torch.equal(got, model.generate(**batch, **options, use_cache=False))
    options |= {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": 1}
    changed = {**batch, "keyword_mask": torch.zeros_like(batch["keyword_mask"])}
    first, other = (model.generate(**inputs, **options).logits[0] for inputs in (batch, changed))
    assert not torch.equal(first, other)


@pytest.mark.parametrize("sizes", [{}, TRANSFORMER])
def test_save_and_load(tmp_path, sizes):
    model = make_model(**sizes)
    model.save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), HamConfig)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    batch = make_batch(SOURCES)
    expected = model(**batch, decoder_input_ids=TARGET).logits
    assert torch.equal(loaded(**batch, decoder_input_ids=TARGET).logits, expected)
    assert isinstance(AutoModel.from_pretrained(tmp_path), HamModel)


@pytest.mark.parametrize("sizes", [{}, TRANSFORMER], ids=["gru", "transformer"])
def test_a_deeper_model_loads_a_plain_one(tmp_path, sizes):
    """The levels are new. The output is at first nearly the plain one's, as with equal levels it is not."""
    plain = make_model(attention_depth=1, **sizes)
    plain.save_pretrained(tmp_path)
    probabilities = {}
    for init in ("first", "equal"):
        model, report = HamForConditionalGeneration.from_pretrained(
            tmp_path, attention_depth=4, level_weights_init=init, output_loading_info=True
        )
        assert set(report["missing_keys"]) == {f"{name}.level_weights.bias" for name in model.get_level_weights()}
        expected = [0.9, *[0.1 / 3] * 3] if init == "first" else [0.25] * 4
        assert all(weights == pytest.approx(expected) for weights in model.get_level_weights().values())
        probabilities[init] = model(**make_batch(SOURCES), decoder_input_ids=TARGET).logits.softmax(-1)
    of_plain = plain(**make_batch(SOURCES), decoder_input_ids=TARGET).logits.softmax(-1)
    near, far = ((found - of_plain).abs().sum(-1).mean() for found in probabilities.values())
    assert 0 < near < far / 4


def test_the_decoder_begins_where_its_cache_ends():
    model = make_model()
    batch = make_batch(SOURCES)
    whole = model(**batch, decoder_input_ids=TARGET).logits
    first = model(**batch, decoder_input_ids=TARGET[:, :2], use_cache=True)
    cache = first.cache
    assert cache.get_seq_length() == 2
    rest = model(**batch, decoder_input_ids=TARGET[:, 2:], cache=cache, use_cache=True)
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], dim=1), whole)
    cache.crop(-1)
    again = model(**batch, decoder_input_ids=TARGET[:, 3:], cache=cache, use_cache=True)
    torch.testing.assert_close(again.logits, whole[:, 3:])


@pytest.mark.parametrize("num_beams", [1, 3])
def test_keys_are_prepared_once(num_beams, monkeypatch):
    model, calls = make_model(), []
    attention = model.model.decoder.step.attention
    prepare = attention.prepare
    monkeypatch.setattr(attention, "prepare", lambda *args, **kwargs: calls.append(1) or prepare(*args, **kwargs))
    model.generate(**make_batch(SOURCES), num_beams=num_beams, min_new_tokens=5, max_new_tokens=5)
    assert len(calls) == 1


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_padding_in_front_of_what_is_continued(use_cache, num_beams):
    """The GRU's state stays as it is, in the beginning of a target and in later steps."""
    model = make_model()
    batch = make_batch(SOURCES)
    begun, mask = (
        torch.tensor([[EOS, 5, 6], [PAD, EOS, 9], [PAD, PAD, EOS]]),
        torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1]]),
    )
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "num_beams": num_beams, "use_cache": use_cache}
    got = model.generate(**batch, decoder_input_ids=begun, decoder_attention_mask=mask, **options)
    logits = model(**batch, decoder_input_ids=begun, decoder_attention_mask=mask).logits
    for i in range(3):
        one = {name: values[i : i + 1] for name, values in batch.items()}
        alone = begun[i : i + 1, i:]
        torch.testing.assert_close(logits[i : i + 1, i:], model(**one, decoder_input_ids=alone).logits)
        assert got[i, 3:].tolist() == model.generate(**one, decoder_input_ids=alone, **options)[0, 3 - i :].tolist()


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_of_the_gru_body(part, layers):
    """All of an input dropped: what it says makes no difference, in any layer."""
    model = make_model(dropout=1.0, encoder_layers=layers, decoder_layers=layers)
    batch = make_batch(SOURCES)
    other = {**batch, "input_ids": torch.where(batch["attention_mask"] == 1, 13, PAD)}
    if part == "encoder":
        one, two = (model.model.encoder.train()(**inputs).last_hidden_state for inputs in (batch, other))
    else:
        states = model.model.encoder(**batch).last_hidden_state
        model.model.decoder.train()
        one, two = (
            model.model.decoder(ids, encoder_hidden_states=states).last_hidden_state
            for ids in (TARGET, torch.full_like(TARGET, 13))
        )
    assert torch.equal(one, two)


def test_dropout_between_layers_of_the_gru_body():
    """What the lower layer gives does not reach the upper one if all of it is dropped."""
    model = make_model(dropout=1.0, encoder_layers=2, decoder_layers=2).train()
    ids = torch.tensor([[7, 8, 9]])
    outputs = [model(ids, decoder_input_ids=ids, output_hidden_states=True)]
    with torch.no_grad():
        model.model.encoder.layers[0].forward_gru.weight_hh_l0 += 1
        model.model.decoder.step.cells[0].bias_ih += 1
    outputs.append(model(ids, decoder_input_ids=ids, output_hidden_states=True))
    for name in ("encoder_hidden_states", "decoder_hidden_states"):
        one, two = (output[name] for output in outputs)
        assert not torch.equal(one[1], two[1])
        assert torch.equal(one[2], two[2])


def test_states_of_somebody_else_s_encoder():
    model = make_model()
    states = torch.randn(3, 7, 6)
    mask = make_batch(SOURCES)["attention_mask"]
    outputs = BaseModelOutput(last_hidden_state=states)
    got = model(encoder_outputs=outputs, attention_mask=mask, decoder_input_ids=TARGET).logits
    alone = model(encoder_outputs=(states[1:2, :1],), decoder_input_ids=TARGET[1:2]).logits
    torch.testing.assert_close(got[1:2], alone)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attention_depth": 0}, "`attention_depth` must be at least 1, got 0"),
        (
            {"d_model": 6, "decoder_attention_heads": 4},
            "must divide `d_model`, got decoder_attention_heads=4 and d_model=6",
        ),
        ({"dropout": 1.5}, "`dropout` must be between 0 and 1, got 1.5"),
        ({"pad_token_id": 99}, "`pad_token_id` must be in"),
        ({"decoder_start_token_id": None}, "`decoder_start_token_id` must be in"),
        ({"attention_keys": "input"}, "`attention_keys` must be 'level' with body='gru', got 'input'"),
        ({"encoder_attention_heads": 2}, "`encoder_attention_heads` must be 1 with body='gru', got 2"),
        ({**TRANSFORMER, "attention_scoring": "additive"}, "`attention_scoring` must be 'scaled_dot_product'"),
        ({**TRANSFORMER, "embedding_size": 5}, "`embedding_size` must be 6 with body='transformer', got 5"),
        ({"init_std": -1.0}, "`init_std` must be finite and not negative"),
    ],
)
def test_bad_configurations_are_refused(values, message):
    with pytest.raises(StrictDataclassClassValidationError) as error:
        make_config(**values)
    assert message in str(error.value.__cause__ or error.value)


@pytest.mark.parametrize("sizes", [{}, TRANSFORMER])
def test_a_mask_of_keywords_that_does_not_fit_is_refused(sizes):
    with pytest.raises(ValueError, match="`keyword_mask` must be"):
        make_model(**sizes)(torch.full((1, 3), 7), keyword_mask=torch.ones(2, 3), decoder_input_ids=TARGET[:1])


def test_more_tokens_than_positions_are_refused():
    model = make_model(**TRANSFORMER)
    ids = torch.full((1, 25), 7)
    with pytest.raises(ValueError, match="source has 25 tokens, more than max_position_embeddings=24"):
        model(input_ids=ids, decoder_input_ids=TARGET[:1])
    with pytest.raises(ValueError, match="target has 25 tokens, more than max_position_embeddings=24"):
        model(input_ids=ids[:, :3], decoder_input_ids=ids)


def test_another_model_s_cache_is_refused():
    transformer, gru = make_model(**TRANSFORMER), make_model()
    batch = make_batch(SOURCES)
    cache = transformer(**batch, decoder_input_ids=TARGET, use_cache=True).cache
    with pytest.raises(ValueError, match="`cache` must be what this model returned"):
        gru(**batch, decoder_input_ids=TARGET, cache=cache)

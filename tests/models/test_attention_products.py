import pytest
import torch
from torch import nn

from hier_models import (
    HatBartConfig,
    HatBartForConditionalGeneration,
    HatEncoderConfig,
    HatEncoderForMaskedLM,
    HighlightTransformerConfig,
    HighlightTransformerModel,
    TopDownTransformerConfig,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerModel,
)
from hier_models.models import attention_products, bart_body, hat_encoder_layers
from hier_models.models.attention_products import attend_by_products, cpu_has


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


needs_bfloat16 = pytest.mark.skipif(
    not cpu_has("avx512_bf16", "amx_bf16", "bf16"), reason="needs a CPU that multiplies bfloat16"
)
BATCH, HEADS, HEAD_DIM, SCALE = 2, 3, 4, 0.4
MASKS = ("none", "keys", "queries and keys", "shared", "all")


@pytest.fixture(params=[2**17, 1], ids=["at once", "in parts"])
def parts(request, monkeypatch):
    monkeypatch.setattr(attention_products, "WEIGHTS_AT_ONCE", request.param)
    monkeypatch.setattr(attention_products, "LEAST_QUERIES", 3)


def make_states(queries=10, keys=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    sizes = (queries, keys, keys)
    return [
        torch.randn(BATCH, HEADS, size, HEAD_DIM, generator=generator, dtype=dtype).requires_grad_() for size in sizes
    ]


def make_mask(kind, queries=10, keys=7):
    if kind == "none":
        return None
    generator = torch.Generator().manual_seed(4)
    shape = {"keys": (BATCH, 1, 1, keys), "queries and keys": (BATCH, 1, queries, keys)}.get(kind, (1, 1, 1, keys))
    mask = torch.rand(shape, generator=generator) < 0.6
    mask[..., 2] = True
    return mask | (kind == "all")


def weights_of(query, key, mask):
    """Weights before dropout, one query at a time."""
    batch, heads, queries, _ = query.shape
    weights = torch.zeros(batch, heads, queries, key.shape[2], dtype=query.dtype)
    for document in range(batch):
        for head in range(heads):
            for number in range(queries):
                scores = (key[document, head] * query[document, head, number]).sum(dim=-1) * SCALE
                seen = torch.ones_like(scores, dtype=torch.bool)
                if mask is not None:
                    seen = mask.expand(batch, 1, queries, -1)[document, 0, number]
                exponentials = scores.exp() * seen
                weights[document, head, number] = exponentials / exponentials.sum()
    return weights


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("kind", MASKS)
def test_weights_are_dropped_or_kept_and_raised(kind):
    query, key, _ = (states.detach() for states in make_states())
    value = torch.eye(7, dtype=torch.float64).expand(BATCH, HEADS, 7, 7)  # what comes out are the weights
    query, key = (torch.nn.functional.pad(states, (0, 7 - HEAD_DIM)) for states in (query, key))
    mask = make_mask(kind)
    expected = weights_of(query, key, mask)
    torch.manual_seed(1)
    drawn = torch.stack([attend_by_products(query, key, value, mask, 0.25, SCALE) for _ in range(200)])
    seen = expected > 1e-9
    assert not drawn[:, ~seen].any()
    kept = drawn > 0
    torch.testing.assert_close(drawn[kept], (expected / 0.75).expand_as(drawn)[kept])
    assert abs((drawn == 0)[:, seen].double().mean() - 0.25) < 0.01
    chances = (drawn == 0)[:, seen].double().mean(dim=0)  # each weight has a chance of its own
    assert chances.min() > 0.08
    assert chances.max() < 0.42


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("kind", MASKS)
def test_gradients_are_of_the_weights_that_were_drawn(kind):
    def attend(*states):
        torch.manual_seed(5)
        return attend_by_products(*states, make_mask(kind), 0.5, SCALE)

    assert torch.autograd.gradcheck(attend, make_states(), fast_mode=True)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("kind", MASKS)
def test_without_dropout_all_weights_are_kept(kind):
    states, mask = make_states(), make_mask(kind)
    attended = attend_by_products(*states, mask, 0.0, SCALE)
    weights = weights_of(*(one.detach() for one in states[:2]), mask)
    torch.testing.assert_close(attended.detach(), weights @ states[2].detach())
    assert torch.autograd.gradcheck(lambda *some: attend_by_products(*some, mask, 0.0, SCALE), states, fast_mode=True)


@pytest.mark.usefixtures("parts")
def test_from_what_sees_nothing_nothing_is_learned():
    states, mask = make_states(), make_mask("queries and keys")
    mask[1, 0, 4:6] = False
    attended = attend_by_products(*states, mask, 0.0, SCALE)
    assert not attended[1, :, 4:6].any()
    assert not any(part.any() for part in torch.autograd.grad(attended[1, :, 4:6].sum(), states, retain_graph=True))
    found = torch.autograd.grad(attended.square().sum(), states)
    seen = nn.functional.scaled_dot_product_attention(*states, mask, scale=SCALE)
    for one, other in zip(found, torch.autograd.grad(seen.square().sum(), states), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dropout", [1e-9, 0.0])  # next to nothing is dropped
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_types_come_close(dtype, dropout):
    found = []
    for kind in (torch.float64, dtype):
        torch.manual_seed(2)
        states = [states.detach().to(kind).requires_grad_() for states in make_states()]
        attended = attend_by_products(*states, make_mask("keys"), dropout, SCALE)
        assert attended.dtype == kind
        found.append([attended.detach(), *torch.autograd.grad(attended.sum(), states)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other.double(), one, rtol=0.05, atol=0.05)


def test_what_sees_nothing_is_finite():
    states = make_states()
    attended = attend_by_products(*states, torch.zeros(BATCH, 1, 1, 7, dtype=torch.bool), 0.1, SCALE)
    assert all(part.isfinite().all() for part in (attended, *torch.autograd.grad(attended.sum(), states)))


@pytest.mark.parametrize(
    ("config_class", "model_class", "attentions"),
    [
        # Of the decoder's two layers two each; one of segments, one to them. Local attention has its own.
        (TopDownTransformerConfig, TopDownTransformerForConditionalGeneration, 6),
        # Two more to sentences, one of sentences, one of the source.
        (HatBartConfig, HatBartForConditionalGeneration, 8),
    ],
)
def test_training_takes_it_and_evaluation_does_not(config_class, model_class, attentions, monkeypatch):
    torch.manual_seed(0)
    layers = {"top_down_layers": 1, "bottom_up_layers": 1, "segment_layers": 1}
    layers = layers if config_class is TopDownTransformerConfig else {"encoder_layers": 1}
    sizes = SIZES | {"decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 8}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = config_class(**sizes, **layers, **special, use_copy=True, attention_dropout=0.1)
    model, calls = model_class(config), []
    monkeypatch.setattr(bart_body, "attend_by_products", lambda *a: calls.append(1) or attend_by_products(*a))
    inputs = {"input_ids": torch.tensor([[1, 5, 6, 1, 7, 2]]), "labels": torch.tensor([[3, 4, 2]])}
    model.eval()(**inputs)
    assert not calls
    model.train()(**inputs).loss.backward()
    assert len(calls) == attentions
    model.set_attn_implementation("eager")
    model(**inputs)
    assert len(calls) == attentions


@needs_bfloat16
def test_learning_in_bfloat16_takes_it_without_dropout_too(monkeypatch):
    torch.manual_seed(0)
    layers = {"encoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 8, "dropout": 0.0}
    model, calls = HatBartForConditionalGeneration(HatBartConfig(**SIZES | layers)), []
    monkeypatch.setattr(bart_body, "attend_by_products", lambda *a: calls.append(1) or attend_by_products(*a))
    inputs = {"input_ids": torch.tensor([[0, 5, 6, 0, 7, 2]] * 2), "labels": torch.tensor([[3, 4, 2]] * 2)}
    gradients = []
    for dtype, expected in ((torch.float32, 0), (torch.bfloat16, 5)):
        with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
            loss = model(**inputs).loss
        found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        gradients.append(torch.cat([one.flatten() for one in found if one is not None]))
        assert len(calls) == expected
    torch.testing.assert_close(*gradients, rtol=0, atol=0.02 * float(gradients[0].abs().max()))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        model(**inputs)
    assert len(calls) == expected


def test_the_encoder_takes_it_for_tokens_and_for_sentences(monkeypatch):
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, "hidden_size": 16}
    config = HatEncoderConfig(**sizes, vocab_size=9, hidden_dropout_prob=0.0, attention_probs_dropout_prob=1e-9)
    model, calls = HatEncoderForMaskedLM(config), []
    inputs = {
        "input_ids": torch.tensor([[0, 5, 6, 0, 7, 2], [0, 5, 3, 2, 1, 1]]),
        "attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2]),
        "labels": torch.tensor([[-100, 4, -100, -100, 5, -100]] * 2),
    }
    expected = model.eval()(**inputs)
    monkeypatch.setattr(hat_encoder_layers, "attend_by_products", lambda *a: calls.append(1) or attend_by_products(*a))
    model(**inputs)
    assert not calls
    found = model.train()(**inputs)  # next to nothing is dropped
    assert len(calls) == 4
    is_token = inputs["attention_mask"].bool()
    torch.testing.assert_close(found.logits[is_token], expected.logits[is_token], rtol=0, atol=1e-4)
    found.loss.backward()
    model.set_attn_implementation("eager")
    model(**inputs)
    assert len(calls) == 4


@needs_bfloat16
def test_no_weight_is_dropped_where_gradients_are_asked_of_an_evaluated_encoder():
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "hidden_size": 16}
    model = HatEncoderForMaskedLM(HatEncoderConfig(**sizes, vocab_size=9)).bfloat16().eval()
    inputs = {"input_ids": torch.tensor([[0, 5, 6, 0, 7, 2]])}
    with torch.no_grad():
        expected = model(**inputs).logits
    found = model(**inputs).logits
    assert found.requires_grad
    torch.testing.assert_close(found.detach(), expected)


def test_targets_see_what_stands_before_them():
    torch.manual_seed(0)
    config = HatBartConfig(**SIZES | {"decoder_layers": 1}, decoder_attention_heads=2, attention_dropout=1e-9)
    attention = HatBartForConditionalGeneration(config).model.decoder.layers[0].self_attn
    states = torch.randn(2, 5, 16)
    expected, _ = attention.eval()(states)  # next to nothing is dropped
    found, _ = attention.train()(states)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
    changed = states.clone()
    changed[:, 3:] += 1
    torch.testing.assert_close(attention(changed)[0][:, :3], expected[:, :3], rtol=0, atol=1e-3)

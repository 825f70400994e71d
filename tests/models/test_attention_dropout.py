import pytest
import torch

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
from hier_models.models.attention_products import attend_with_dropout


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
    drawn = torch.stack([attend_with_dropout(query, key, value, mask, 0.25, SCALE) for _ in range(200)])
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
        return attend_with_dropout(*states, make_mask(kind), 0.5, SCALE)

    assert torch.autograd.gradcheck(attend, make_states(), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_types_come_close(dtype):
    found = []
    for kind in (torch.float64, dtype):
        torch.manual_seed(2)
        states = [states.detach().to(kind).requires_grad_() for states in make_states()]
        attended = attend_with_dropout(*states, make_mask("keys"), 1e-9, SCALE)  # next to nothing is dropped
        assert attended.dtype == kind
        found.append([attended.detach(), *torch.autograd.grad(attended.sum(), states)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other.double(), one, rtol=0.05, atol=0.05)


def test_what_sees_nothing_is_finite():
    states = make_states()
    attended = attend_with_dropout(*states, torch.zeros(BATCH, 1, 1, 7, dtype=torch.bool), 0.1, SCALE)
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
    monkeypatch.setattr(bart_body, "attend_with_dropout", lambda *a: calls.append(1) or attend_with_dropout(*a))
    inputs = {"input_ids": torch.tensor([[1, 5, 6, 1, 7, 2]]), "labels": torch.tensor([[3, 4, 2]])}
    model.eval()(**inputs)
    assert not calls
    model.train()(**inputs).loss.backward()
    assert len(calls) == attentions
    model.set_attn_implementation("eager")
    model(**inputs)
    assert len(calls) == attentions


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
    monkeypatch.setattr(
        hat_encoder_layers, "attend_with_dropout", lambda *a: calls.append(1) or attend_with_dropout(*a)
    )
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

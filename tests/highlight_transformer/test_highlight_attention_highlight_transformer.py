"""Highlighting attention: its band, and all of its ways, against the dense formula, forwards and backwards."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from hier_models import HighlightTransformerConfig, HighlightTransformerModel
from hier_models.models import flash_highlighting as flash_module
from hier_models.models import highlight_attention as module
from hier_models.models import highlight_band as band_module
from hier_models.models.flash_highlighting import attend_on_cpu, correct_rows
from hier_models.models.highlight_attention import highlight_rows
from hier_models.models.highlight_band import make_band


HEADS, LIT, HEAD_DIM = 4, 3, 5
HOW = ("weighted", "additive", "only")
PADDINGS = ("none", "right", "left", "inside", "all of one document")


def make_mask(padding, tokens):
    mask = torch.ones(2, tokens, dtype=torch.long)
    if padding == "right":
        mask[1, tokens - tokens // 3 :] = 0
    if padding == "left":
        mask[1, : tokens // 4] = 0
    if padding == "inside":
        mask[0, tokens // 3 : tokens // 2] = 0
    if padding == "all of one document":
        mask[1] = 0
    return mask


def make_phrases(tokens, count=6, seed=0):
    """Positions and values, in two documents, of phrases of 1 to 5 tokens, some of them padding."""
    generator = torch.Generator().manual_seed(seed)
    length = torch.randint(1, min(5, tokens) + 1, (2, count), generator=generator)
    start = (torch.rand(2, count, generator=generator) * (tokens - length + 1)).long()
    positions = torch.stack([start, start + length], dim=-1)
    values = torch.rand(2, count, generator=generator, dtype=torch.float64) * 3
    positions[1, -2:], values[1, -2:] = -1, 0.0
    return positions, values


def matrix_of(positions, values, mask, brightness=1.0):
    """Section 3.1, in plain loops."""
    batch, tokens = mask.shape
    matrix = torch.zeros(batch, tokens, tokens, dtype=values.dtype)
    for document in range(batch):
        first = mask[document].argmax().item()
        for (start, end), value in zip(positions[document].tolist(), values[document].tolist(), strict=True):
            for i in range(first + start, min(first + end, tokens)) if start >= 0 else ():
                for j in range(first + start, min(first + end, tokens)):
                    if mask[document, j]:
                        matrix[document, i, j] += brightness * value
    return matrix


def densely(query, key, value, exists, matrix, how, scale):
    """Equations 2 and 4, with a dense matrix."""
    scores = query @ key.transpose(-1, -2) * scale
    scores = scores.masked_fill(exists[:, None, None] == 0, torch.finfo(scores.dtype).min)
    lit = torch.zeros(1, query.shape[1], 1, 1, dtype=torch.bool)
    lit[:, :LIT] = True
    entries = matrix[:, None]
    if how == "weighted":
        return torch.softmax(scores + entries * lit, dim=-1) @ value
    plain = torch.softmax(scores, dim=-1)
    some = (entries != 0).any(dim=-1, keepdim=True)
    of_matrix = torch.softmax(entries.masked_fill(entries == 0, -1e300), dim=-1)
    mixed = (plain + of_matrix) / 2 if how == "additive" else of_matrix.expand_as(plain)
    return torch.where(lit & some, mixed, plain) @ value


def make_states(tokens, dtype=torch.float64, scale=1.0):
    """Queries, keys and values laid out as projections give them."""
    generator = torch.Generator().manual_seed(tokens)
    shape = (2, tokens, HEADS, HEAD_DIM)
    return [
        (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype).requires_grad_()
        for _ in range(3)
    ]


def value_and_gradients(attend, states, mask, **kwargs):
    query, key, value = (state.transpose(1, 2) for state in states)
    attended = attend(query, key, value, **kwargs) * mask[:, None, :, None]
    weights = torch.linspace(-1, 1, attended.numel(), dtype=attended.dtype).view_as(attended)
    return attended.detach(), torch.autograd.grad((attended * weights).sum(), states)


def on_cpu(query, key, value, band, how, scale):
    return attend_on_cpu(query, key, value, band, LIT, how, scale)


def by_rows(query, key, value, band, how, scale):
    bias = None if band.exists is None else band.exists[:, None, None]
    if bias is not None:  # as Transformers does, lest a row of padding alone is not a number
        bias = torch.zeros(bias.shape, dtype=query.dtype).masked_fill(~bias, torch.finfo(query.dtype).min)
    plain = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
    return highlight_rows(plain, query, key, value, band, LIT, how, 0.0, scale)


def with_normalizer(query, key, value, band, how, scale):
    """As on top of a kernel that gives the logarithm of the sum of exponentials, and takes its gradient."""
    scores = query @ key.transpose(-1, -2) * scale
    if band.exists is not None:
        scores = scores.masked_fill(~band.exists[:, None, None], torch.finfo(scores.dtype).min)
    normalizer = scores.to(torch.promote_types(scores.dtype, torch.float32)).logsumexp(dim=-1)
    return correct_rows(torch.softmax(scores, dim=-1) @ value, normalizer, query, key, value, band, LIT, scale)


def band_of(positions, values, mask, brightness=1.0, dtype=torch.float64):
    return make_band(positions, values, mask, mask.shape[1], brightness, 8, dtype)


class TestBand:
    @pytest.mark.parametrize("padding", PADDINGS)
    @pytest.mark.parametrize("tokens", [1, 2, 7, 30])
    def test_is_the_matrix_of_the_paper(self, tokens, padding):
        mask = make_mask(padding, tokens)
        positions, values = make_phrases(max(1, tokens // 2))  # whatever the padding, inside of the document
        band = band_of(positions, values, mask, 0.5)
        expected = matrix_of(positions, values, mask, 0.5)
        found = band.dense(tokens)
        attended = mask.bool()
        torch.testing.assert_close(found[attended], expected[attended], rtol=0, atol=1e-12)
        for document in range(2):
            assert band.rows[document].unique().numel() == band.rows.shape[1]  # each once

    def test_is_no_larger_than_what_is_highlighted(self):
        positions = torch.tensor([[[100, 103], [102, 105], [9000, 9001]], [[5, 9], [-1, -1], [-1, -1]]])
        band = make_band(positions, torch.ones(2, 3), None, 10_000, 1.0, 32)
        assert band.rows.tolist() == [[100, 101, 102, 103, 104, 9000], [*band.rows[1].tolist()]]
        assert {5, 6, 7, 8} <= set(band.rows[1].tolist())
        assert band.values.shape == (2, 6, 7)
        assert band.values.dtype == torch.float32

    @pytest.mark.parametrize(
        ("positions", "brightness"),
        [
            (torch.zeros(2, 0, 2, dtype=torch.long), 1.0),
            (torch.full((2, 3, 2), -1), 1.0),
            (torch.tensor([[[0, 2]], [[1, 3]]]), 0.0),
        ],
    )
    def test_of_nothing_is_none(self, positions, brightness):
        values = torch.ones(positions.shape[:2])
        assert make_band(positions, values, None, 9, brightness, 8) is None

    def test_padding_has_no_value(self):
        positions = torch.tensor([[[0, 2], [-1, -1]]])
        band = make_band(positions, torch.tensor([[1.0, float("nan")]]), None, 9, 1.0, 8)
        assert band.values.isfinite().all()


@pytest.mark.parametrize(
    ("way", "how"), [*((way, how) for way in (on_cpu, by_rows) for how in HOW), (with_normalizer, "weighted")]
)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("tokens", [1, 9, 130])
def test_exact_forwards_and_backwards(tokens, padding, how, way):
    mask = make_mask(padding, tokens)
    positions, values = make_phrases(max(1, tokens // 2), seed=tokens)
    matrix = matrix_of(positions, values, mask)
    expected, expected_gradients = value_and_gradients(
        densely, make_states(tokens), mask, exists=mask, matrix=matrix, how=how, scale=0.7
    )
    band = band_of(positions, values, mask)
    found, gradients = value_and_gradients(way, make_states(tokens), mask, band=band, how=how, scale=0.7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", [on_cpu, by_rows])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2), (torch.float16, 6e-3)]
)
def test_keeps_to_the_precision_of_its_type(dtype, tolerance, how, way):
    mask = make_mask("right", 300)
    positions, values = make_phrases(150)
    rounded = [state.detach().to(dtype) for state in make_states(300)]
    exact = [state.double().requires_grad_() for state in rounded]
    matrix = matrix_of(positions, values, mask)
    expected, expected_gradients = value_and_gradients(
        densely, exact, mask, exists=mask, matrix=matrix, how=how, scale=0.5
    )
    band = band_of(positions, values, mask, dtype=torch.float32)
    states = [state.requires_grad_() for state in rounded]
    found, gradients = value_and_gradients(way, states, mask, band=band, how=how, scale=0.5)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert (one.double() - other).abs().max() < tolerance * other.abs().max()


@pytest.mark.parametrize("how", HOW)
def test_large_values_do_not_overflow(how):
    """The softmax saturates, as it does with a dense matrix."""
    mask = make_mask("none", 20)
    positions = torch.tensor([[[0, 3], [2, 5]], [[1, 4], [17, 20]]])
    values = torch.tensor([[500.0, 1e4], [90.0, 30.0]], dtype=torch.float64)
    states = make_states(20, scale=6.0)
    matrix = matrix_of(positions, values, mask)
    expected, expected_gradients = value_and_gradients(
        densely, states, mask, exists=mask, matrix=matrix, how=how, scale=1.0
    )
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 5e-3)):
        low = [state.detach().to(dtype).requires_grad_() for state in states]
        band = band_of(positions, values, mask, dtype=dtype)
        found, gradients = value_and_gradients(on_cpu, low, mask, band=band, how=how, scale=1.0)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
        for one, other in zip(gradients, expected_gradients, strict=True):
            assert (one.double() - other).abs().max() < tolerance * max(1, other.abs().max())


def by_all_pairs(query, key, value, band, how, scale):
    return module._attend_densely(query, key, value, None, band, LIT, how, 0.0, scale)[0]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", [on_cpu, by_rows, by_all_pairs])
def test_values_beyond_half_precision_saturate_too(how, way):
    mask = make_mask("none", 20)
    positions = torch.tensor([[[0, 3], [2, 5]], [[1, 4], [17, 20]]])
    values = torch.tensor([[7e4, 9e4], [2e5, 1e5]], dtype=torch.float64)
    states = [state.detach().half() for state in make_states(20)]
    matrix = matrix_of(positions, values, mask)
    exact = [state.double().requires_grad_() for state in states]
    expected, _ = value_and_gradients(densely, exact, mask, exists=mask, matrix=matrix, how=how, scale=0.5)
    band = band_of(positions, values, mask, dtype=torch.float32)
    low = [state.requires_grad_() for state in states]
    found, gradients = value_and_gradients(way, low, mask, band=band, how=how, scale=0.5)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-2)  # float32 rounds 2e5 to 1/64
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", [on_cpu, by_rows])
def test_rows_in_parts(how, way, monkeypatch):
    mask = make_mask("left", 40)
    positions, values = make_phrases(20)
    band = band_of(positions, values, mask)
    kwargs = {"band": band, "how": how, "scale": 0.5}
    expected = value_and_gradients(way, make_states(40), mask, **kwargs)
    monkeypatch.setattr(flash_module, "NUMBERS_AT_ONCE", 1)
    monkeypatch.setattr(module, "SCORES_AT_ONCE", 100)
    found = value_and_gradients(way, make_states(40), mask, **kwargs)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_autocast_keeps_corrections_in_float32():
    mask = make_mask("none", 60)
    positions, values = make_phrases(60)
    band = band_of(positions, values, mask, dtype=torch.float32)
    states = [state.detach().bfloat16() for state in make_states(60)]
    query, key, value = (state.transpose(1, 2) for state in states)
    for how in HOW:
        expected = on_cpu(query, key, value, band, how, 0.5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(on_cpu(query, key, value, band, how, 0.5), expected)


def make_encoder(**kwargs):
    sizes = {"encoder_layers": 2, "encoder_attention_heads": 3, "highlight_heads": 2, "encoder_ffn_dim": 20}
    decoder = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 18}
    config = HighlightTransformerConfig(vocab_size=60, d_model=12, dropout=0.0, **sizes, **decoder, **kwargs)
    return HighlightTransformerModel(config).encoder.eval()


INPUTS = {
    "input_ids": torch.arange(5, 25)[None],
    "phrase_positions": torch.tensor([[[1, 4], [2, 6], [17, 20]]]),
    "phrase_values": torch.tensor([[0.5, 2.0, 1.0]]),
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("how", HOW)
def test_autocast_leaves_a_model_in_float64_alone(how, attention):
    encoder = make_encoder(highlighting=how).double()
    encoder.set_attn_implementation(attention)
    expected = encoder(**INPUTS).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(encoder(**INPUTS).last_hidden_state, expected)


@pytest.mark.parametrize("how", HOW)
def test_an_exported_program_takes_other_lengths(how):
    encoder = make_encoder(highlighting=how)
    varies = {name: {1: torch.export.Dim.AUTO} for name in INPUTS}
    program = torch.export.export(encoder, (), INPUTS, strict=False, dynamic_shapes=varies).module()
    longer = {**INPUTS, "input_ids": torch.arange(5, 55)[None]}
    for inputs in (INPUTS, longer):
        torch.testing.assert_close(program(**inputs).last_hidden_state, encoder(**inputs).last_hidden_state)


def test_an_exported_program_does_not_cut_phrases_in_silence():
    encoder = make_encoder(max_phrase_length=4)
    program = torch.export.export(encoder, (), INPUTS, strict=False).module()
    inputs = {**INPUTS, "phrase_positions": torch.tensor([[[1, 4], [2, 7], [17, 20]]])}
    with pytest.raises(RuntimeError, match="`phrase_positions` has a phrase longer than max_phrase_length"):
        program(**inputs)


def test_dropout_leaves_out_weights_and_keeps_their_mean():
    torch.manual_seed(0)
    mask = make_mask("none", 40)
    positions, values = make_phrases(40)
    band = band_of(positions, values, mask, dtype=torch.float32)
    query, key, value = (state.detach().float().transpose(1, 2) for state in make_states(40))
    for how in HOW:
        expected = on_cpu(query, key, value, band, how, 0.5)
        runs = []
        for _ in range(400):
            plain = torch.nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.2, scale=0.5)
            runs.append(highlight_rows(plain, query, key, value, band, LIT, how, 0.2, 0.5))
        runs = torch.stack(runs)
        assert (runs[0] - runs[1]).abs().max() > 1e-2
        assert ((runs.mean(dim=0) - expected).abs() / (runs.std(dim=0) / 20 + 1e-3)).max() < 6


def test_flex_attention_with_a_normalizer_is_corrected(monkeypatch):
    """As on a GPU, whose FlexAttention gives it; here another kernel stands in."""
    encoder = make_encoder()
    expected = encoder(**INPUTS).last_hidden_state
    calls = []

    def kernel(query, key, value, block_mask, scale, training):
        calls.append(block_mask)
        scores = query @ key.transpose(-1, -2) * scale
        return scores.softmax(dim=-1) @ value, scores.logsumexp(dim=-1)

    monkeypatch.setattr(module, "_gives_normalizer", lambda implementation, device: True)
    monkeypatch.setattr(module, "_flex", kernel)
    for layer in encoder.layers:
        monkeypatch.setattr(layer.self_attn, "config", SimpleNamespace(_attn_implementation="flex_attention"))
    layer = encoder.layers[1]
    monkeypatch.setattr(layer.self_attn, "config", encoder.config)  # not highlighted: plain
    torch.testing.assert_close(encoder(**INPUTS).last_hidden_state, expected)
    assert len(calls) == 1


def test_softmax_of_entries_of_an_empty_row_is_zero():
    values = torch.tensor([[[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]])
    assert band_module.softmax_of_entries(values).tolist() == [[[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_square_of_the_tokens():
    """A dense matrix of 16,384 tokens would be a gigabyte; the whole process stays well below that."""
    program = """
import json, resource, torch
from hier_models.models.highlight_band import make_band
from hier_models.models.flash_highlighting import attend_on_cpu, correct_rows
tokens = 16384
start = torch.arange(0, tokens - 8, 300)
positions = torch.stack([start, start + 3], dim=-1)[None]
states = [torch.randn(1, tokens, 2, 16).transpose(1, 2).requires_grad_() for _ in range(3)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
band = make_band(positions, torch.ones(positions.shape[:2]), None, tokens, 1.0, 32)
for how in ("weighted", "additive", "only"):
    attend_on_cpu(*states, band, 1, how).sum().backward()
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout) < 200_000  # kilobytes

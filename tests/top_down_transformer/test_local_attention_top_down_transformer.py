import itertools
import json
import subprocess
import sys

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask, flex_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from hier_models import TopDownTransformerConfig
from hier_models.models import local_attention as module
from hier_models.models.attention_products import cpu_has, product_dtype
from hier_models.models.local_attention import TopDownTransformerLocalAttention, create_local_attention_mask
from tests.cases import local_attention
from tests.references.windowed_flash import windowed_flash


HEADS, HEAD_DIM = 2, 3
PADDINGS = ("none", "right", "left", "both", "inside", "all of one document")


def in_plain_loops(query, key, value, window, attention_mask, scale):
    """Figure 2: each token attends to window/2 on its left, window/2 on its right, and itself."""
    batch, heads, tokens, _ = query.shape
    rows = torch.zeros_like(query)
    for document in range(batch):
        for token in range(tokens):
            near = [
                other
                for other in range(max(0, token - window // 2), min(tokens, token + window // 2 + 1))
                if attention_mask[document, other]
            ]
            if near and attention_mask[document, token]:
                for head in range(heads):
                    scores = torch.stack([query[document, head, token] @ key[document, head, other] for other in near])
                    weights = torch.softmax(scores * scale, dim=0)
                    rows[document, head, token] = weights @ value[document, head, near]
    return rows


def densely(query, key, value, window, attention_mask, scale):
    """The same with one dense mask, which the plain loops check, for longer documents."""
    place = torch.arange(query.shape[2])
    near = (place[:, None] - place).abs() <= window // 2
    itself = place[:, None] == place  # keeps rows of padding finite
    mask = (near & attention_mask.bool()[:, None, None]) | itself
    scores = (query @ key.transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, dim=-1) @ value * attention_mask[:, None, :, None]


def make_mask(padding, tokens):
    mask = torch.ones(2, tokens, dtype=torch.long)
    if padding in ("right", "both"):
        mask[1, tokens - tokens // 3 :] = 0
    if padding in ("left", "both"):
        mask[1, : tokens // 4] = 0
    if padding == "inside":
        mask[0, tokens // 3 : tokens // 2] = 0
    if padding == "all of one document":
        mask[1] = 0
    return mask


def make_states(tokens, dtype=torch.float64, batch=2):
    """Queries, keys and values laid out as projections give them."""
    generator = torch.Generator().manual_seed(tokens)
    shape = (batch, tokens, HEADS, HEAD_DIM)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for _ in range(3)]


def value_and_gradients(attend, states, window, mask, scale=0.7, **kwargs):
    query, key, value = (state.transpose(1, 2) for state in states)
    attended = attend(query, key, value, window, mask, scale=scale, **kwargs) * mask[:, None, :, None]
    weights = torch.linspace(-1, 1, attended.numel(), dtype=attended.dtype).view_as(attended)
    return attended.detach(), torch.autograd.grad((attended * weights).sum(), states)


def in_blocks_on_any_device(query, key, value, window, attention_mask, scale):
    return module._attend_in_blocks(query, key, value, window, attention_mask, 0.0, scale)


def as_flash(*states, starts, longest, **settings):
    """What the kernel for GPUs does, of what it takes."""
    assert starts.dtype == torch.int32
    assert longest == starts.diff().max()
    return windowed_flash(*states, starts=starts, longest=longest, **settings)


def packed_as_for_a_gpu(query, key, value, window, attention_mask, scale):
    packing = module._pack(attention_mask.bool())
    whole = [bool(row.diff().abs().sum() <= 1 + (row[0] == 0)) for row in attention_mask]
    assert (packing is None) == bool(attention_mask.all())
    assert packing is None or isinstance(packing, module.Packing) == all(whole)
    if isinstance(packing, torch.Tensor):
        return in_blocks_on_any_device(query, key, value, window, packing, scale)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "windowed_flash", as_flash)
        return module._attend_packed(query, key, value, window, packing, scale)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("tokens", "window"), [(1, 2), (9, 4), (7, 2), (10, 64)])
def test_dense_reference_agrees_with_the_definition(tokens, window, padding):
    mask = make_mask(padding, tokens)
    expected, expected_gradients = value_and_gradients(in_plain_loops, make_states(tokens), window, mask)
    found, gradients = value_and_gradients(densely, make_states(tokens), window, mask)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", [local_attention, in_blocks_on_any_device, packed_as_for_a_gpu])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("window", [2, 64, 130, 600, 1024])
@pytest.mark.parametrize("tokens", [1, 2, 65, 301, 700])
def test_exact_forwards_and_backwards(tokens, window, padding, way):
    mask = make_mask(padding, tokens)
    expected, expected_gradients = value_and_gradients(densely, make_states(tokens), window, mask)
    found, gradients = value_and_gradients(way, make_states(tokens), window, mask)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)]
)
def test_keeps_to_the_precision_of_its_type(dtype, tolerance):
    mask = make_mask("right", 700)
    rounded = [state.detach().to(dtype) for state in make_states(700)]
    exact = [state.double().requires_grad_() for state in rounded]
    expected, expected_gradients = value_and_gradients(densely, exact, 128, mask)
    found, gradients = value_and_gradients(local_attention, [state.requires_grad_() for state in rounded], 128, mask)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert (one.double() - other).abs().max() < tolerance * other.abs().max()


@pytest.mark.parametrize("has_flash", [True, False])
@pytest.mark.parametrize("window", [2, 130, 1024])
@pytest.mark.parametrize("tokens", [1, 65, 700])
def test_float32_is_right_with_the_flash_kernel_and_without(tokens, window, has_flash, monkeypatch):
    def attend(*arguments, **settings):
        assert has_flash, "the kernel was called that is not there"
        calls.append(arguments)
        return flash_attention(*arguments, **settings)

    calls = []
    flash_attention = module.flash_attention
    monkeypatch.setattr(module, "flash_attention", attend)
    monkeypatch.setattr(module, "flash_attention_works", lambda: has_flash)
    for padding in PADDINGS[:4]:
        mask = make_mask(padding, tokens)
        expected, expected_gradients = value_and_gradients(densely, make_states(tokens), window, mask)
        states = make_states(tokens, torch.float32)
        found, gradients = value_and_gradients(local_attention, states, window, mask)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
        for one, other in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)
    assert bool(calls) == has_flash


@pytest.mark.parametrize(
    "capabilities", [{}, {"avx512_bf16": False, "cpu_name": "old"}, {"bf16": True}, {"amx_bf16": True}]
)
def test_bfloat16_is_multiplied_where_the_cpu_can(capabilities, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    calls, flash = [], module.flash_attention
    monkeypatch.setattr(module, "flash_attention", lambda *states, **how: calls.append(1) or flash(*states, **how))
    cpu_has.cache_clear()
    try:
        native = torch.bfloat16 if capabilities.get("bf16") or capabilities.get("amx_bf16") else torch.float32
        assert product_dtype(torch.bfloat16) == native
        assert product_dtype(torch.float16) == torch.float32
        assert product_dtype(torch.float64) == torch.float64
        test_keeps_to_the_precision_of_its_type(torch.bfloat16, 3e-2)
        assert bool(calls) == bool(capabilities.get("amx_bf16"))
    finally:
        cpu_has.cache_clear()


def test_many_blocks_that_look_alike_go_in_several_calls():
    mask = torch.ones(1, 9000, dtype=torch.long)
    calls = [(blocks.count, blocks.keys) for blocks in module._divide(9000, 64)]
    assert max(calls) == (module.WEIGHTS_AT_ONCE // (64 * 128), 64 + 64)
    assert sum(blocks.size * blocks.count for blocks in module._divide(9000, 64)) == 9000
    states = make_states(9000, batch=1)
    inner = [state.detach()[:, 4000:4200].clone().requires_grad_() for state in states]
    found, _ = value_and_gradients(local_attention, states, 64, mask)
    expected, _ = value_and_gradients(densely, inner, 64, mask[:, :200])
    torch.testing.assert_close(found[:, :, 4032:4168], expected[:, :, 32:168], rtol=0, atol=1e-12)


def test_window_that_covers_the_document_is_full_attention():
    query, key, value = (state.transpose(1, 2) for state in make_states(50, torch.float32))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(local_attention(query, key, value, 100), expected, rtol=0, atol=0)


def test_dropout_leaves_out_weights_and_keeps_their_mean():
    torch.manual_seed(0)
    tokens, window = 300, 64
    query, key, _ = (state.detach().transpose(1, 2) for state in make_states(tokens))
    value = torch.eye(tokens, dtype=torch.float64).expand(2, HEADS, tokens, tokens)  # what comes out are the weights
    mask = make_mask("right", tokens)
    wanted = densely(query, key, value, window, mask, 1.0)
    query, key = (torch.nn.functional.pad(state, (0, tokens - HEAD_DIM)) for state in (query, key))
    drawn = torch.stack([local_attention(query, key, value, window, mask, 0.25, scale=1.0) for _ in range(20)])
    drawn = drawn * mask[:, None, :, None]
    seen = wanted > 0
    assert ((drawn > 0) <= seen).all()
    share = (drawn == 0)[:, seen].double().mean()
    assert abs(share - 0.25) < 2e-3
    kept = drawn > 0
    torch.testing.assert_close(drawn[kept], (wanted / 0.75).expand_as(drawn)[kept])


def test_gradients_with_dropout_are_of_the_weights_that_were_drawn():
    tokens, window = 150, 8  # in several blocks
    states = make_states(tokens)
    mask = make_mask("right", tokens)

    def attend(*states):
        torch.manual_seed(5)
        query, key, value = (state.transpose(1, 2) for state in states)
        return local_attention(query, key, value, window, mask, 0.5)

    assert torch.autograd.gradcheck(attend, states, fast_mode=True)


def test_each_document_and_block_drops_weights_of_its_own():
    query, value = torch.zeros(2, 1, 400, 4), torch.arange(400.0)[:, None].expand(2, 1, 400, 4) % 64
    found = local_attention(query, query, value, 64, dropout=0.5)
    parts = [*found[:, :, 64:320].split(64, dim=2)]  # all the same without dropout
    documents = [part[number] for part in parts for number in range(2)]
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(documents, 2))
    assert torch.equal(found[..., 0], found[..., 1])


def test_dropout_of_everything_leaves_nothing():
    query, key, value = (state.transpose(1, 2) for state in make_states(10))
    assert not local_attention(query, key, value, 4, dropout=1.0).any()


def test_flex_block_mask_is_the_band():
    for tokens, window, padding in [(1, 2, "none"), (100, 2, "right"), (300, 128, "both"), (500, 254, "inside")]:
        mask = make_mask(padding, tokens)
        block_mask = module._flex_block_mask(torch.empty(2, tokens, 1), window, mask)
        states = make_states(tokens, torch.float32)
        query, key, value = (state.detach().transpose(1, 2) for state in states)
        place = torch.arange(tokens)
        near = (place[:, None] - place).abs() <= window // 2
        expected = near & mask.bool()[:, None, None]
        assert torch.equal(create_mask(block_mask.mask_mod, 2, 1, tokens, tokens, device="cpu"), expected)
        # The blocks that the kernel visits hold every visible pair.
        visited = block_mask.to_dense().bool()
        visited = visited.repeat_interleave(128, -1).repeat_interleave(128, -2)[..., :tokens, :tokens]
        assert (expected <= visited).all()
        found = flex_attention(query, key, value, block_mask=block_mask) * mask[:, None, :, None]
        wanted = densely(query, key, value, window, mask, HEAD_DIM**-0.5)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_flex_block_mask_visits_only_the_band():
    block_mask = module._flex_block_mask(torch.empty(1, 128 * 100, 1), 256, None)
    visited = block_mask.to_dense().sum(dim=-1)
    assert visited.max() == 3


def make_layer(implementation="sdpa", window=6, dropout=0.0):
    torch.manual_seed(0)
    config = TopDownTransformerConfig(
        d_model=12,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        attention_window=window,
        attention_dropout=dropout,
    )
    config._attn_implementation = implementation
    return TopDownTransformerLocalAttention(config), config


@pytest.mark.parametrize("padding", PADDINGS[:-1])
def test_layer_gives_the_same_through_blocks_and_through_a_dense_mask(padding):
    states = torch.randn(2, 40, 12)
    mask = make_mask(padding, 40)
    results = {}
    for implementation in ("sdpa", "eager"):
        layer, config = make_layer(implementation)
        results[implementation], weights = layer(states, create_local_attention_mask(config, states, mask))
        assert (weights is None) == (implementation == "sdpa")
    attended = {name: result[mask.bool()] for name, result in results.items()}
    torch.testing.assert_close(attended["sdpa"], attended["eager"])
    place = torch.arange(40)
    far = (place[:, None] - place).abs() > 3
    assert not (weights * far * mask[:, None, :, None]).any()


def test_layer_hands_flash_attention_its_window():
    layer, _ = make_layer("emulated_flash")
    seen = {}

    def flash(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, **kwargs):
        seen.update(sliding_window=sliding_window, mask=attention_mask)
        return torch.zeros_like(query).transpose(1, 2), None

    ALL_ATTENTION_FUNCTIONS.register("emulated_flash", flash)
    layer(torch.randn(2, 40, 12), None)
    # Transformers makes (window - 1, window - 1) of it: 3 to the left and 3 to the right.
    assert seen["sliding_window"] == 4


def test_layer_drops_out_in_training_only():
    states = torch.randn(2, 40, 12)
    layer, _ = make_layer(dropout=0.5)
    assert torch.equal(layer.eval()(states)[0], layer(states)[0])
    assert not torch.equal(layer.train()(states)[0], layer(states)[0])


def test_autocast_leaves_float64_alone():
    states = torch.randn(2, 40, 12, dtype=torch.float64)
    layer, _ = make_layer()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.double()(states)[0], layer(states)[0])
        assert layer(states)[0].dtype == torch.float64
        assert layer.float()(states.float())[0].dtype == torch.bfloat16


def test_compiled_is_the_same():
    states = make_states(300, torch.float32)
    query, key, value = (state.detach().transpose(1, 2) for state in states)
    mask = make_mask("inside", 300)
    compiled = torch.compile(local_attention, backend="eager", fullgraph=True)
    found = compiled(query, key, value, 64, mask) * mask[:, None, :, None]
    torch.testing.assert_close(found, densely(query, key, value, 64, mask, HEAD_DIM**-0.5))


LONG = """
import json
from pathlib import Path
import torch
from tests.cases import local_attention

def held():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024

tokens = 131_072
states = [torch.randn(1, 1, tokens, 8, requires_grad=True) for _ in range(3)]
Path("/proc/self/clear_refs").write_text("5")
before = held()
attended = local_attention(*states, 64)
attended.sum().backward()
print(json.dumps(held() - before))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak memory that Linux keeps")
def test_memory_is_linear_in_tokens():
    result = subprocess.run([sys.executable, "-c", LONG], capture_output=True, text=True, check=True)
    # Each state has 4 MiB. A matrix of all pairs would have 16 GiB with one byte for each.
    assert json.loads(result.stdout) < 150

"""Hierarchical attention: against plain loops, its theorems, masks, and its bad input."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models import HierarchicalAttention
from hier_models.models import hierarchical_attention
from hier_models.models.hierarchical_attention import HamLevelWeights
from tests.references import ham as reference


LEVEL_RATE = 25  # what weighs the levels is so many times the parameter, which has its gradient
SCORINGS = ["scaled_dot_product", "additive", "bilinear"]


def make(size=6, depth=3, *args, seed=0, **kwargs):
    torch.manual_seed(seed)
    module = HierarchicalAttention(size, depth, *args, **kwargs).double().eval()
    for name, parameter in module.named_parameters():
        torch.nn.init.normal_(parameter, std=0.7 / LEVEL_RATE if name == "level_weights.bias" else 0.7)
    return module


def random(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed), requires_grad=True)


@pytest.fixture(params=[True, False], ids=["fused", "plain"])
def fused(request, monkeypatch):
    """Both ways to compute levels."""
    monkeypatch.setattr(hierarchical_attention, "_FUSED_KEYS", 1000 if request.param else 0)
    return request.param


def level_logits(module):
    """The reference's numbers of levels: very small ones for what does not count."""
    if module.level_weights.bias is not None:
        return LEVEL_RATE * module.level_weights.bias
    return torch.log(module.mixture.double().clamp(min=1e-300))


def score_of(module, head):
    if module.scoring == "bilinear":
        return reference.bilinear(module.score_key.weight[head].T)
    if module.scoring == "additive":
        vector = module.score_sum.weight[head, :, 0]
        return reference.additive(*(part.weight[head] for part in (module.score_query, module.score_key)), vector)
    return reference.scaled_dot_product


def project(module, name, states, head):
    """The states of one head, plainly."""
    if module.num_heads == 1:
        return list(states)
    layer = getattr(module, name)
    rows = slice(head * module.head_dim, (head + 1) * module.head_dim)
    return [layer.weight[rows] @ state + layer.bias[rows] for state in states]


def expected_of(module, query, key=None, value=None, allowed=None):
    """The reference, query by query and head by head; what may not be attended to, `allowed` says, is left out."""
    outputs = []
    is_self = key is None
    key = query if is_self else key
    value = key if value is None else value
    if allowed is None:
        allowed = torch.ones(len(query), query.shape[1], key.shape[1])
    logits = level_logits(module)
    for row, pairs in enumerate(allowed.bool()):
        by_head = []
        for head in range(module.num_heads):
            score = score_of(module, head)
            queries = project(module, "q_proj", query[row], head)
            keys = project(module, "k_proj", key[row], head)
            values = project(module, "v_proj", value[row], head)
            levels = []
            for _ in logits:
                queries = [
                    reference.attention(one, [keys[i] for i in kept], [values[i] for i in kept], score)[0]
                    if (kept := mask.nonzero().flatten().tolist())
                    else torch.zeros(module.head_dim).double()
                    for one, mask in zip(queries, pairs, strict=True)
                ]
                levels.append(queries)
                if is_self and module.keys == "level":
                    keys = values = queries
            by_head.append(
                torch.stack([reference.mix(list(results), logits) for results in zip(*levels, strict=True)])
            )
        joined = torch.cat(by_head, dim=-1)
        outputs.append(module.out_proj(joined) if module.num_heads > 1 else joined)
    return torch.stack(outputs)


def assert_equal_with_gradients(got, expected, leaves, level_bias=None):
    """What the levels' bias stands for is a multiple of it, and the bias gets the gradient of that."""
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    weight = torch.randn(got.shape, dtype=got.dtype, generator=torch.Generator().manual_seed(2))
    for leaf, mine, plain in zip(
        leaves,
        torch.autograd.grad((got * weight).sum(), leaves, allow_unused=True),
        torch.autograd.grad((expected * weight).sum(), leaves, allow_unused=True),
        strict=True,
    ):
        assert mine is not None
        torch.testing.assert_close(mine, plain / LEVEL_RATE if leaf is level_bias else plain, rtol=0, atol=1e-10)


def masks_of(kind, queries, keys):
    """Arguments of the module, and for the reference which queries may attend to which keys; of one to nothing."""
    padding = torch.ones(2, keys, dtype=torch.long)
    pairs = torch.ones(2, queries, keys, dtype=torch.long)
    arguments = {}
    if "padding" in kind:
        padding[1, 0] = padding[1, -1] = 0
        arguments["key_padding_mask"] = padding
    if "pairs" in kind:
        pairs[0] = pairs[0].tril(1)
        pairs[1, 0] = 0
        arguments["attention_mask"] = pairs
    return arguments, pairs * padding[:, None]


CASES = itertools.product(
    ["to another", "to itself, level", "to itself, input"],
    [(1, "learned"), (3, "learned"), (2, "first"), (2, "last")],
    [1, 2],
    SCORINGS,
    ["none", "padding", "pairs", "padding and pairs"],
)


# Every seventh is enough to see each choice beside each other one.
@pytest.mark.parametrize(("attention", "levels", "heads", "scoring", "masks"), list(CASES)[::7])
def test_equals_plain_loops(fused, attention, levels, heads, scoring, masks):
    """Output and every gradient, in float64."""
    depth, level_weights = levels
    keys = attention.removeprefix("to itself, ") if "itself" in attention else "level"
    module = make(4, depth, heads, scoring, keys=keys, level_weights=level_weights)
    given = [random(2, 3, 4)]
    if attention == "to another":
        given += [random(2, 4, 4, seed=3), random(2, 4, 4, seed=4)]
    arguments, allowed = masks_of(masks, 3, given[-1].shape[1])
    got, weights = module(*given, **arguments, need_weights=masks == "none")
    expected = expected_of(module, *given, allowed=allowed)
    assert_equal_with_gradients(got, expected, [*given, *module.parameters()], module.level_weights.bias)
    assert (weights is None) == (masks != "none")


def test_the_reference_of_ham_s_is_the_same():
    """What the test above builds of attentions is the paper's figure 2."""
    module, states = make(), random(1, 4, 6)
    expected = reference.ham_s(list(states[0]), level_logits(module))
    torch.testing.assert_close(module(states)[0][0], torch.stack(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("scoring", "heads"), [("additive", 1), ("bilinear", 1), *((scoring, 3) for scoring in SCORINGS)]
)
def test_other_widths_of_keys_and_values(fused, scoring, heads):
    """One head projects no values, and with dot products no keys either: other widths are refused there, see below."""
    width = 6 if heads == 1 else 7
    module, value = make(6, 2, heads, scoring, kdim=5, vdim=width), random(2, 4, width, seed=4)
    query, key = random(2, 2, 6), random(2, 4, 5, seed=3)
    expected = expected_of(module, query, key, value)
    assert_equal_with_gradients(module(query, key, value)[0], expected, [query, key, value])


@pytest.mark.parametrize("keys", ["level", "input"])
def test_depth_one_is_torch_s_attention(keys):
    module, query, key = make(6, 1, keys=keys), random(2, 3, 6), random(2, 5, 6, seed=3)
    plain = torch.nn.functional.scaled_dot_product_attention
    assert not list(module.parameters())
    torch.testing.assert_close(module(query, key)[0], plain(query, key, key), rtol=0, atol=1e-15)
    torch.testing.assert_close(module(query)[0], plain(query, query, query), rtol=0, atol=1e-15)


def test_several_heads_of_depth_one_are_torch_s_multi_head_attention():
    module = make(6, 1, 2)
    peer = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    parts = (module.q_proj, module.k_proj, module.v_proj)
    peer.in_proj_weight.data = torch.cat([part.weight for part in parts])
    peer.in_proj_bias.data = torch.cat([part.bias for part in parts])
    peer.out_proj.load_state_dict(module.out_proj.state_dict())
    query, key = random(2, 3, 6), random(2, 5, 6, seed=3)
    torch.testing.assert_close(module(query, key)[0], peer(query, key, key)[0], rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    depth=st.integers(1, 6),
    keys=st.integers(1, 7),
    seed=st.integers(0, 10**6),
    scoring=st.sampled_from(SCORINGS),
    self_attention=st.booleans(),
)
def test_theorem_1(depth, keys, seed, scoring, self_attention):
    """No norm is above the largest of a key's, and no coordinate outside of those of the keys."""
    module = make(4, depth, 1, scoring, seed=seed)
    key = random(1, keys, 4, seed=seed + 1)
    output, _ = module(key) if self_attention else module(random(1, 2, 4, seed=seed), key)
    norms, of_keys = output.norm(dim=-1), key.norm(dim=-1)
    assert (norms <= of_keys.max() * (1 + 1e-12)).all()
    assert (output <= key.amax(dim=1, keepdim=True) + 1e-12).all()
    assert (output >= key.amin(dim=1, keepdim=True) - 1e-12).all()


def test_theorem_1_has_no_least_norm():
    """The paper's lower bound is wrong: keys cancel each other out. It holds of coordinates, and of a single key."""
    key = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    output, _ = HierarchicalAttention(2, 3)(torch.tensor([[[0.0, 1.0]]]), key)
    assert output.norm() == 0 < key.norm(dim=-1).min()
    single, _ = HierarchicalAttention(2, 3)(torch.tensor([[[0.0, 1.0]]]), key[:, :1])
    torch.testing.assert_close(single, key[:, :1])


@settings(max_examples=25, deadline=None)
@given(depth=st.integers(2, 6), level=st.integers(0, 5), seed=st.integers(0, 10**6), self_attention=st.booleans())
def test_extreme_cases(depth, level, seed, self_attention):
    """One weight of one: the first level is plain attention, the last one multi-level attention."""
    level %= depth
    module = make(4, depth, seed=seed)
    with torch.no_grad():
        module.level_weights.bias.fill_(-1e4)
        module.level_weights.bias[level] = 0.0
    query, key = random(1, 2, 4, seed=seed), None if self_attention else random(1, 5, 4, seed=seed + 1)
    states = query
    for _ in range(level + 1):
        source = states if self_attention else key
        states = torch.nn.functional.scaled_dot_product_attention(states, source, source)
    torch.testing.assert_close(module(query, key)[0], states, rtol=0, atol=1e-12)
    if level in (0, depth - 1):
        name = "first" if level == 0 else "last"
        same = make(4, depth, level_weights=name)
        torch.testing.assert_close(same(query, key)[0], states, rtol=0, atol=1e-12)
        torch.testing.assert_close(same.mixture.double(), module.mixture)


@settings(max_examples=25, deadline=None)
@given(
    depth=st.integers(2, 6),
    heads=st.sampled_from([1, 2]),
    seed=st.integers(0, 10**6),
    scoring=st.sampled_from(SCORINGS),
)
def test_theorem_2_a_deeper_model_can_be_the_same(depth, heads, seed, scoring):
    """With a last number of minus infinity, d + 1 levels are d levels, so that their least loss is no larger."""
    module, deeper = make(4, depth, heads, scoring, seed=seed), make(4, depth + 1, heads, scoring, seed=seed)
    weights = dict(module.state_dict())
    weights["level_weights.bias"] = torch.cat(
        [weights["level_weights.bias"], torch.tensor([-torch.inf], dtype=torch.double)]
    )
    deeper.load_state_dict(weights)
    query, key = random(1, 2, 4, seed=seed), random(1, 5, 4, seed=seed + 1)
    for source in (key, None):
        torch.testing.assert_close(deeper(query, source)[0], module(query, source)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("keys", ["level", "input", None])
def test_padding_does_not_matter_whatever_it_holds(fused, scoring, keys):
    module = make(6, 3, 2, scoring, keys=keys or "level")
    states, query = random(2, 4, 6).detach(), random(2, 3, 6, seed=5).detach()
    padded = torch.cat([torch.full((2, 2, 6), torch.nan).double(), states], dim=1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]] * 2)
    if keys is None:
        got, expected = module(query, padded, key_padding_mask=mask)[0], module(query, states)[0]
    else:
        padded[:, :2] = 1e3
        got, expected = module(padded, key_padding_mask=mask)[0][:, 2:], module(states)[0]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2])
def test_nothing_to_attend_to_gives_nothing(fused, heads):
    module = make(6, 3, heads)
    if heads > 1:
        torch.nn.init.zeros_(module.out_proj.bias)
    query, key = random(2, 3, 6), random(2, 4, 6, seed=3)
    got, _ = module(query, key, key_padding_mask=torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]]))
    assert got[0].abs().max() == 0
    assert got[1].abs().max() > 0
    blocked = torch.ones(3, 4, dtype=torch.long)
    blocked[1] = 0
    got, _ = module(query, key, attention_mask=blocked)
    assert got[:, 1].abs().max() == 0


@pytest.mark.parametrize("keys", ["level", "input"])
@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 5), (2, 2, 5, 5), (2, 1, 5, 5)])
def test_a_causal_mask_hides_what_comes(fused, keys, shape):
    """In all shapes; the last is the one that Transformers makes."""
    module = make(6, 3, 2, keys=keys)
    mask = torch.ones(5, 5, dtype=torch.long).tril().expand(shape)
    states = random(2, 5, 6)
    got, _ = module(states, attention_mask=mask)
    for length in range(1, 5):
        expected, _ = module(states[:, :length], attention_mask=torch.ones(length, length, dtype=torch.long).tril())
        torch.testing.assert_close(got[:, :length], expected, rtol=0, atol=1e-12)
    added = torch.zeros(mask.shape).double().masked_fill(mask == 0, -torch.inf)
    torch.testing.assert_close(module(states, attention_mask=added)[0], got, rtol=0, atol=1e-12)
    torch.testing.assert_close(module(states, attention_mask=mask.bool())[0], got, rtol=0, atol=0)


def test_weights_of_every_level(fused):
    module, query, key = make(6, 3), random(1, 2, 6), random(1, 4, 6, seed=3)
    output, weights = module(query, key, need_weights=True)
    assert weights.shape == (1, 3, 1, 2, 4)
    for i, one in enumerate(query[0]):
        expected, levels = reference.ham_v(one, list(key[0]), list(key[0]), level_logits(module))
        torch.testing.assert_close(output[0, i], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(weights[0, :, 0, i], torch.stack([torch.stack(level) for level in levels]))
    assert module(query, key)[1] is None


@pytest.mark.parametrize(
    ("depth", "init", "expected"),
    [
        (2, "first", [0.9, 0.1]),
        (5, "first", [0.9, *[0.025] * 4]),
        (5, "equal", [0.2] * 5),
        (1, "first", [1.0]),
    ],
)
def test_what_levels_begin_with(depth, init, expected):
    module = HierarchicalAttention(4, depth, level_weights_init=init)
    torch.testing.assert_close(module.mixture, torch.tensor(expected))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(3.0)
    module.reset_parameters()
    torch.testing.assert_close(module.mixture, torch.tensor(expected))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adadelta])
def test_what_weighs_levels_learns_25_times_as_fast(optimizer):
    """Under any optimizer; beside numbers that are the parameters themselves."""
    levels = HamLevelWeights(3).double()
    before = LEVEL_RATE * levels.bias.detach()
    w = before.clone().requires_grad_()
    steps = optimizer([levels.bias, w], lr=1e-3, weight_decay=0.0)
    cost = torch.tensor([1.0, 2.0, 4.0]).double()
    ((levels() + w.softmax(0)) @ cost).backward()
    steps.step()
    moved = w.detach() - before
    assert moved.abs().min() > 0
    torch.testing.assert_close(LEVEL_RATE * levels.bias.detach() - before, LEVEL_RATE * moved)


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("keys", [None, "level", "input"])
def test_dropout_is_of_every_level(fused, scoring, keys):
    module, query = make(6, 3, scoring=scoring, keys=keys or "level", dropout=0.5), random(1, 20, 6)
    key = random(1, 20, 6, seed=3) if keys is None else None
    still, weights = module(query, key, need_weights=True)
    assert (weights > 0).all()
    module.train()
    torch.manual_seed(0)
    got, weights = module(query, key, need_weights=True)
    assert not torch.equal(got, still)
    for level in weights[0]:
        assert 0.3 < (level == 0).double().mean() < 0.7
    # What is left of the first level, whose scores are those without dropout, is raised.
    plain = module.eval()(query, key, need_weights=True)[1][0, 0]
    torch.testing.assert_close(weights[0, 0], 2 * plain.masked_fill(weights[0, 0] == 0, 0.0))


@pytest.mark.parametrize("keys", [None, "level", "input"])
def test_dropout_without_weights_is_of_every_level(fused, keys):
    """Where all weights are dropped nothing is left; of levels, each is asked alone."""
    query = random(1, 3, 6)
    key = random(1, 4, 6, seed=3) if keys is None else None
    for level in range(3):
        module = make(6, 3, keys=keys or "level", dropout=1.0).train()
        with torch.no_grad():
            module.level_weights.bias.fill_(-torch.inf)
            module.level_weights.bias[level] = 0.0
        assert module(query, key)[0].abs().max() == 0


@pytest.mark.parametrize("keys", [None, "level", "input"])
def test_memory_is_linear_in_depth(fused, keys):
    """Each further level keeps the same for the backward pass: two numbers for each pair, or two states of a query."""
    query, key = torch.randn(2, 7, 16, requires_grad=True), torch.randn(2, 9, 16, requires_grad=True)
    sizes = []
    for depth in (2, 3, 4, 20):
        module, storages = HierarchicalAttention(16, depth, keys=keys or "level"), {}

        def pack(tensor, storages=storages):
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            module(query, key if keys is None else None)
        sizes.append(sum(storage.nbytes() for storage in storages.values()))
    level = sizes[1] - sizes[0]
    assert [size - sizes[0] for size in sizes] == [0, level, 2 * level, 18 * level]
    queries = 2 * 7
    width = (9 if keys is None else 7) if fused and keys != "level" else 16
    assert level <= 4 * (queries * (2 * width + 1) + 1)  # float32; of a query one number more, and the level's weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_precisions(fused, dtype):
    module, query, key = make(8, 4, 2), random(2, 3, 8).detach(), random(2, 5, 8, seed=3).detach()
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    expected, _ = module(query, key, key_padding_mask=mask)
    got, _ = module.to(dtype)(query.to(dtype), key.to(dtype), key_padding_mask=mask)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_states_whose_products_float16_cannot_hold(fused, depth):
    states, module = 12 * random(1, 8, 512).detach(), make(512, depth)
    expected, _ = module(states, states)
    got, _ = module.half()(states.half(), states.half())
    torch.testing.assert_close(got.double(), expected, rtol=0.01, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("depth", [1, 3])
def test_mixed_precision(fused, depth, heads, scoring, dtype):
    """Numbers stay numbers where there is nothing to attend to."""
    module, query, key = make(8, depth, heads, scoring).float(), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]])
    for inputs in ((query, key), (query,)):
        padding = mask[:, : inputs[-1].shape[1]]
        for pairs in (None, torch.ones(3, padding.shape[1]).tril(-1).bool()):
            expected, _ = module(*inputs, key_padding_mask=padding, attention_mask=pairs)
            with torch.autocast("cpu", dtype=dtype):
                got, _ = module(*inputs, key_padding_mask=padding, attention_mask=pairs)
            torch.testing.assert_close(got.float(), expected, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.double, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("keys", [None, "level", "input"])
@pytest.mark.parametrize("scoring", SCORINGS)
def test_masks_that_are_added(fused, scoring, keys, dtype):
    """Minus infinity and the least number mask as false does; also where padding blocks the same, and all of it."""
    module, query = make(8, 3, 2, scoring, keys=keys or "level").to(dtype), 20 * random(2, 4, 8).detach()
    key = 20 * random(2, 4, 8, seed=3).detach() if keys is None else None
    inputs = [None if states is None else states.to(dtype).requires_grad_() for states in (query, key)]
    allowed = torch.ones(4, 4).tril(-1).bool()
    for padding in (None, torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]])):
        expected, _ = module(*inputs, attention_mask=allowed, key_padding_mask=padding)
        assert expected.isfinite().all()
        for number in (-torch.inf, torch.finfo(dtype).min):
            added = torch.zeros(4, 4, dtype=dtype).masked_fill(~allowed, number)
            got, _ = module(*inputs, attention_mask=added, key_padding_mask=padding)
            assert torch.equal(got, expected)
            leaves = [states for states in inputs if states is not None]
            assert all(part.isfinite().all() for part in torch.autograd.grad(got.sum(), leaves))


def test_fusing_is_for_few_keys():
    module = HierarchicalAttention(4, 3)
    assert module.prepare(torch.randn(1, 8, 4)).step.shape == (1, 8, 8)
    assert module.prepare(torch.randn(1, 9, 4)).step is None
    assert HierarchicalAttention(4, 1).prepare(torch.randn(1, 8, 4)).step is None


@pytest.mark.parametrize("scoring", ["additive", "bilinear"])
def test_first_weights_of_scores_keep_the_size_of_states(scoring):
    torch.manual_seed(0)
    module = HierarchicalAttention(64, 2, 2, scoring)
    states = module.score_key(torch.randn(2, 200, 32))
    assert 0.8 < states.std() < 1.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "`depth` must be an integer of at least 1, got 0"),
        ({"embed_dim": 0}, "`embed_dim` must be an integer of at least 1, got 0"),
        ({"num_heads": 4}, "`num_heads` must divide embed_dim=6, got 4"),
        ({"scoring": "dot"}, "`scoring` must be one of 'scaled_dot_product', 'additive', 'bilinear', got 'dot'"),
        ({"keys": "both"}, "`keys` must be one of"),
        ({"level_weights": "all"}, "`level_weights` must be one of"),
        ({"level_weights_init": "last"}, "`level_weights_init` must be one of 'first', 'equal', got 'last'"),
        ({"dropout": 1.5}, "`dropout` must be between 0 and 1, got 1.5"),
        ({"dropout": "0.1"}, "`dropout` must be between 0 and 1, got '0.1'"),
        ({"kdim": 5}, "`kdim` must be embed_dim=6"),
        ({"vdim": 5}, "`vdim` must be embed_dim=6"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalAttention(**{"embed_dim": 6, "depth": 2, **arguments})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"query": (2, 3, 5)}, "`query` must be"),
        ({"query": (3, 3, 6)}, "`query` must be"),
        ({"key": (2, 4, 5)}, "`key` must be"),
        ({"value": (2, 3, 6)}, "`value` must be"),
        ({"key_padding_mask": (2, 3)}, "`key_padding_mask` must be"),
        ({"attention_mask": (4, 3)}, "`attention_mask` must be"),
    ],
)
def test_bad_shapes_are_refused(inputs, message):
    shapes = {"query": (2, 3, 6), "key": (2, 4, 6), **inputs}
    with pytest.raises(ValueError, match=message):
        make()(**{name: torch.ones(shape).double() for name, shape in shapes.items()})


def test_bad_queries_of_self_attention_are_refused():
    with pytest.raises(ValueError, match=r"`query` must be \(batch, queries, embed_dim=6\), got shape \(2, 3, 5\)"):
        make()(torch.ones(2, 3, 5))
    with pytest.raises(ValueError, match=r"`key` must be given, got none: .* kdim=5 and vdim=6"):
        make(6, 2, 2, kdim=5)(random(1, 2, 6))


def test_a_value_without_a_key_is_refused():
    with pytest.raises(ValueError, match="`value` must come with `key`"):
        make()(random(1, 2, 6), value=random(1, 2, 6))

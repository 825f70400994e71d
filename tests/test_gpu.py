"""What is computed on a GPU, held against the same on the CPU; skipped where there is none."""

import itertools

import pytest
import torch
from transformers import PreTrainedModel, pipeline

from hier_models.models.torch_kernels import windowed_flash_works
from tests.cases import CASES, EOS, Case, collate, local_attention, make_model
from tests.conftest import DOCUMENTS


pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(autouse=True)
def exact_products():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def make_batch(case: Case, side: str = "right") -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    documents = [case.make_document(length, seed) for seed, length in enumerate((17, 9, 24))]
    target = torch.tensor([[EOS, 7, 9, 11], [EOS, 8, 6, 5], [EOS, 5, 5, 9]])
    return collate(case, documents, side), target


def moved(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: tensor.cuda() for key, tensor in batch.items()}


def loss_and_gradients(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    model.zero_grad()
    output = model(**batch)
    output.loss.backward()
    # Copies: what is a gradient on the CPU moves with the model.
    weights = model.named_parameters()
    gradients = {name: weight.grad.cpu().clone() for name, weight in weights if weight.grad is not None}
    return output.loss.detach().cpu(), output.logits.detach().cpu(), gradients


@pytest.mark.parametrize("side", ["right", "left"])
def test_loss_logits_and_gradients_are_those_of_the_cpu(case, side):
    batch, target = make_batch(case, side)
    inputs = case.training_inputs(batch, target)
    model = make_model(case).double()
    expected = loss_and_gradients(model, widened(inputs))
    with torch.backends.cudnn.flags(enabled=False):  # whose LSTM has no gradients but in training
        found = loss_and_gradients(model.cuda(), moved(widened(inputs)))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


def widened(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: tensor.double() if tensor.is_floating_point() else tensor for key, tensor in batch.items()}


@pytest.mark.parametrize("beams", [1, 3])
def test_generates_what_the_cpu_generates(case, beams):
    if not case.decodes:
        pytest.skip("no decoder")
    batch, _ = make_batch(case)
    batch, model = widened(batch), make_model(case).double()
    settings = {"max_new_tokens": 12, "num_beams": beams, "do_sample": False}
    expected = model.generate(**batch, **settings)
    assert torch.equal(model.cuda().generate(**moved(batch), **settings).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(case, dtype):
    batch, target = make_batch(case)
    model = make_model(case, std=0.1, **head_of_16(case)).eval()  # wider layers, whose errors would be larger
    inputs = case.inputs(batch, target)
    with torch.no_grad():
        expected = model(**inputs).logits
        model, inputs = model.to("cuda", dtype), moved(inputs)
        inputs = {key: tensor.to(dtype) if tensor.is_floating_point() else tensor for key, tensor in inputs.items()}
        found = model(**inputs).logits.float().cpu()
    kept = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(found), kept)
    assert (found - expected)[kept].abs().max() < 0.1 * expected[kept].std()


@pytest.mark.filterwarnings("ignore:_compile flag")  # Transformers, with a newer torch
@pytest.mark.parametrize("implementation", ["flex_attention", "eager"])
def test_implementations_of_attention_agree(case, implementation):
    if not case.attention_kernels:
        pytest.skip("one implementation")
    batch, target = make_batch(case)
    inputs = moved(case.inputs(batch, target))
    model = make_model(case, **head_of_16(case)).eval().cuda()
    with torch.no_grad():
        expected = model(**inputs).logits
        model.set_attn_implementation(implementation)
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=1e-3, atol=1e-4)


def head_of_16(case: Case) -> dict[str, int]:
    """A size of 16 for each head: FlexAttention takes none that is smaller, and the flash kernel not any."""
    if not case.attention_kernels:
        return {}
    config = case.make_config()
    return {"hidden_size" if hasattr(config, "type_vocab_size") else "d_model": 64}


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_learns_in_mixed_precision(case, is_checkpointed):
    batch, target = make_batch(case)
    inputs = moved(case.training_inputs(batch, target))
    model = make_model(case, **head_of_16(case)).cuda().train()
    if is_checkpointed:
        if not model.supports_gradient_checkpointing:
            pytest.skip("keeps all")
        model.activation_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(30):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_compiled_is_the_same(case):
    if not case.is_static:
        pytest.skip("shapes depend on values")
    batch, target = make_batch(case)
    inputs = moved(case.inputs(batch, target))
    model = make_model(case).eval().cuda()
    with torch.no_grad():
        expected = model(**inputs).logits
        torch.testing.assert_close(torch.compile(model)(**inputs).logits, expected, rtol=1e-3, atol=1e-4)


def test_compiled_takes_the_kernel_that_knows_windows():
    case = CASES["top_down_transformer"]
    batch, target = make_batch(case)
    inputs = moved(case.inputs(batch, target))
    del inputs["attention_mask"]  # with which a compiled model attends in blocks
    model = make_model(case, std=0.1, **head_of_16(case)).eval().to("cuda", torch.bfloat16)
    inputs["token_importance"] = inputs["token_importance"].bfloat16()
    with torch.no_grad():
        expected = model(**inputs).logits
        found = torch.compile(model)(**inputs).logits
    assert (found - expected).abs().max() < 0.1 * expected.float().std()


PADDINGS = {"none": [300, 300], "right": [300, 170], "left": [-300, -120], "all of one": [300, 0]}


def make_states(dtype: torch.dtype, batch: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(batch, 300, 4, 32, generator=generator).to("cuda", dtype) for _ in range(4)]


def make_mask(lengths: list[int]) -> torch.Tensor:
    places = torch.arange(300)
    rows = [places >= 300 + length if length < 0 else places < length for length in lengths]
    return torch.stack(rows).cuda()


def in_the_window(states: list[torch.Tensor], mask: torch.Tensor, window: int) -> tuple[torch.Tensor, ...]:
    """Local attention by its definition in float64, and gradients."""
    *leaves, grad = (state.double() for state in states)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    query, key, value = (leaf.transpose(1, 2) for leaf in leaves)
    place = torch.arange(300, device="cuda")
    near = ((place[:, None] - place).abs() <= window // 2) & mask[:, None, None]
    scores = (query @ key.transpose(2, 3) / 32**0.5).masked_fill(~(near | (place[:, None] == place)), -torch.inf)
    attended = (scores.softmax(dim=-1) @ value).transpose(1, 2) * mask[..., None, None]
    return attended.detach(), *torch.autograd.grad(attended, leaves, grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("window", [2, 64, 600])
@pytest.mark.parametrize("padding", [*PADDINGS, "inside", "not said"])
def test_local_attention_is_exact(padding, window, dtype):
    states = make_states(dtype)
    mask = make_mask(PADDINGS.get(padding, [300, 250]))
    if padding == "inside":
        mask[0, 100:130] = False
    if padding == "not said":
        mask[:] = True
    expected = in_the_window(states, mask, window)
    leaves = [state.clone().requires_grad_() for state in states[:3]]
    query, key, value = (leaf.transpose(1, 2) for leaf in leaves)
    attended = local_attention(query, key, value, window, None if padding == "not said" else mask)
    attended = attended.transpose(1, 2) * mask[..., None, None]
    found = attended.detach(), *torch.autograd.grad(attended, leaves, states[3])
    tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert (one.double() - other).abs().max() < tolerance * other.abs().max()


def test_local_attention_takes_the_kernel_that_knows_windows():
    capable = torch.cuda.get_device_capability() >= (8, 0)
    for dtype, head_dim in itertools.product((torch.bfloat16, torch.float16), (8, 64, 128)):
        assert windowed_flash_works(torch.empty(1, 1, 1, head_dim, dtype=dtype, device="cuda")) == capable
    assert not windowed_flash_works(torch.empty(1, 1, 1, 64, device="cuda"))
    assert not windowed_flash_works(torch.empty(1, 1, 1, 12, dtype=torch.float16, device="cuda"))


def test_local_attention_holds_no_blocks():
    """Queries, keys, values and what is attended, each 64 MiB; blocks alone would hold keys and values threefold."""
    states = [torch.randn(1, 8, 65_536, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
    local_attention(*states, 1024)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    local_attention(*states, 1024)
    assert torch.cuda.max_memory_allocated() - before < 96 * 2**20


def test_mini_writes_what_it_writes_on_the_cpu():
    on_cpu, on_gpu = (pipeline("summarization", device=device) for device in ("cpu", 0))
    assert [found["summary_text"] for found in on_gpu(DOCUMENTS[:2])] == [
        found["summary_text"] for found in on_cpu(DOCUMENTS[:2])
    ]

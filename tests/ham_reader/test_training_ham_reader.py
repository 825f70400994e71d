"""What holds for models of Transformers, for readers: gradients, resizing, LoRA, outputs, and Theorem 1."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models import HamReaderForQuestionAnswering
from hier_models.models.hierarchical_attention import HamLevelWeights
from hier_models.models.question_attention import BidafAttention, SelfMatchingAttention
from tests.ham_reader.test_modeling_ham_reader import READERS, make_batch, make_config, make_model


STARTS, ENDS = torch.tensor([1, 0]), torch.tensor([2, 2])


@pytest.mark.parametrize("reader", READERS)
def test_training_learns_answers(reader):
    torch.manual_seed(0)
    model = HamReaderForQuestionAnswering(make_config(reader=reader, embedding_size=8, hidden_size=8)).train()
    batch = make_batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(25):
        loss = model(**batch, start_positions=STARTS, end_positions=ENDS).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.6 * losses[0]
    assert model.eval()(**batch).start_logits.argmax(-1).tolist() == STARTS.tolist()


@pytest.mark.parametrize("reader", READERS)
def test_every_weight_gets_a_gradient(reader):
    model = make_model(reader=reader)
    model(**make_batch(), start_positions=STARTS, end_positions=ENDS).loss.backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert not without


@pytest.mark.parametrize("reader", READERS)
def test_embeddings_can_be_resized(reader):
    model = make_model(reader=reader)
    batch = make_batch()
    want = model(**batch).start_logits
    model.resize_token_embeddings(40, mean_resizing=False)
    assert model.config.vocab_size == 40
    torch.testing.assert_close(model(**batch).start_logits, want)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks for it
@pytest.mark.parametrize("reader", READERS)
def test_lora(reader):
    peft = pytest.importorskip("peft")
    model = make_model(reader=reader)
    batch = make_batch()
    want = model(**batch).start_logits
    target = {"bidaf": ["start_score"]}.get(reader, ["query_projection"])
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=1, target_modules=target))
    torch.testing.assert_close(adapted(**batch).start_logits, want)
    adapted(**batch, start_positions=STARTS, end_positions=ENDS).loss.backward()
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora" in name for name in trained)


@pytest.mark.parametrize("reader", READERS)
def test_results_are_batch_first(reader):
    """So that DataParallel can put the results of several devices together."""
    output = make_model(reader=reader)(**make_batch(), output_attentions=True)
    assert {len(value) for value in output.to_tuple()} == {2}
    as_tuple = make_model(reader=reader)(**make_batch(), return_dict=False)
    torch.testing.assert_close(as_tuple[0], output.start_logits)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), depth=st.integers(1, 6), keys=st.sampled_from(["level", "input"]))
def test_no_level_explodes(seed, depth, keys):
    """Theorem 1: what is attended to is no longer than the longest of the values."""
    generator = torch.Generator().manual_seed(seed)
    context, question = (torch.randn(2, size, 4, generator=generator, dtype=torch.float64) for size in (5, 3))
    masks = [torch.ones(states.shape[:2], dtype=torch.bool) for states in (context, question)]
    with torch.no_grad():
        attended, _, _ = BidafAttention(4, HamLevelWeights(depth)).double()(context, masks[0], question, masks[1])
        assert (attended.norm(dim=-1) <= question.norm(dim=-1).amax(-1, keepdim=True) + 1e-9).all()
        matched = SelfMatchingAttention(4, 3, HamLevelWeights(depth), keys).double()(context, masks[0])
        assert (matched.norm(dim=-1) <= context.norm(dim=-1).amax(-1, keepdim=True) + 1e-9).all()

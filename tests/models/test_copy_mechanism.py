"""The mixture of generating and copying, against its definition and where numbers are extreme."""

import pytest
import torch

from hier_models import HatBartConfig
from hier_models.models import copy_mechanism, losses
from hier_models.models.bart_body import copied_tokens
from hier_models.models.copy_mechanism import mix_log_probabilities
from hier_models.models.seq2seq_head import _copy


SOURCES = {
    "each once": [[3, 1, 4, 5, 9], [0, 8, 7, 6, 2]],
    "several times": [[3, 1, 3, 3, 1], [9, 0, 9, 0, 0]],
    "all the same": [[5, 5, 5, 5, 5], [0, 0, 0, 0, 0]],
    "one token": [[7], [0]],
}


def make(source, target=3, dtype=torch.float64, sharpness=1.0):
    generator = torch.Generator().manual_seed(len(source[0]))
    logits = torch.randn(2, target, 10, generator=generator, dtype=torch.float64) * sharpness
    gate = torch.randn(2, target, 1, generator=generator, dtype=torch.float64) * sharpness
    scores = torch.randn(2, target, len(source[0]), generator=generator, dtype=torch.float64) * sharpness
    return [value.to(dtype).requires_grad_() for value in (logits, gate, scores)], torch.tensor(source)


def by_definition(logits, gate, attentions, source_ids):
    """P = (1 - p) softmax + p times the attention to all of the source's tokens that are this one."""
    copying = torch.sigmoid(gate)
    rows = []
    for document, ids in enumerate(source_ids.tolist()):
        of_document = (logits[document].softmax(-1), copying[document], attentions[document])
        for generated, p, weights in zip(*of_document, strict=True):
            of_token = [
                (1 - p[0]) * probability + p[0] * sum(weights[j] for j, other in enumerate(ids) if other == token)
                for token, probability in enumerate(generated)
            ]
            rows.append(torch.stack(of_token))
    return torch.stack(rows).view_as(logits).log()


@pytest.mark.parametrize("how", ["at once", "in chunks", "for the compiler"])
@pytest.mark.parametrize("target", [1, 3])
@pytest.mark.parametrize("name", SOURCES)
def test_is_its_definition_forwards_and_backwards(name, target, how, monkeypatch):
    if how == "in chunks":
        monkeypatch.setattr(losses, "NUMBERS_AT_ONCE", 2 * 10 * 2)  # two tokens of the target, and one
    if how == "for the compiler":
        monkeypatch.setattr(copy_mechanism, "is_compiling", lambda: True)
    (logits, gate, scores), ids = make(SOURCES[name], target)
    direction = torch.randn(2, target, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for mix in (mix_log_probabilities, by_definition):
        mixed = mix(logits, gate, scores.softmax(-1), ids)
        results.append([mixed.detach(), *torch.autograd.grad((mixed * direction).sum(), (logits, gate, scores))])
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)
    with torch.no_grad():  # as a step of generation does it
        torch.testing.assert_close(mix_log_probabilities(logits, gate, scores.softmax(-1), ids), results[1][0])


@pytest.mark.parametrize("target", [1, 3])
@pytest.mark.parametrize("gate_score", [-300.0, 0.0, 300.0])
def test_stays_finite_where_weights_vanish(gate_score, target):
    (logits, gate, scores), ids = make(SOURCES["several times"], target, torch.float32, sharpness=200.0)
    gate.data.fill_(gate_score)
    mixed = mix_log_probabilities(logits, gate, scores.softmax(-1), ids)
    assert mixed.isfinite().all()
    torch.testing.assert_close(mixed.exp().sum(-1), torch.ones(2, target))
    gradients = torch.autograd.grad(mixed.sum(), (logits, gate, scores))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_mixed_in_float32(dtype):
    (logits, gate, scores), ids = make(SOURCES["several times"], dtype=dtype, sharpness=8.0)
    weights = scores.float().softmax(-1)
    mixed = mix_log_probabilities(logits, gate, weights, ids)
    assert mixed.dtype == torch.float32
    expected = by_definition(*(value.double() for value in (logits, gate, weights)), ids)
    torch.testing.assert_close(mixed.double(), expected, rtol=1e-5, atol=1e-5)


def test_padding_gets_nothing_where_it_has_no_weight():
    (logits, gate, scores), ids = make(SOURCES["each once"])
    weights = scores[..., :3].softmax(-1)
    padded = torch.nn.functional.pad(weights, (0, 2))
    expected = mix_log_probabilities(logits, gate, weights, ids[:, :3])
    torch.testing.assert_close(mix_log_probabilities(logits, gate, padded, ids), expected)


def test_of_the_size_of_the_logits_only_the_result_is_kept_for_training():
    (logits, gate, scores), ids = make(SOURCES["several times"], dtype=torch.float32)
    weights, kept = scores.softmax(-1), []

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        mixed = mix_log_probabilities(logits, gate, weights, ids)
    assert {tensor.data_ptr() for tensor in kept if tensor.numel() >= logits.numel()} == {mixed.data_ptr()}


@pytest.mark.parametrize("eos", [2, [2], [2, 4], None])
def test_ends_are_not_copied(eos):
    ids = torch.tensor([[0, 9, 2, 8, 4, 1]])
    config = HatBartConfig(vocab_size=10, eos_token_id=eos, bos_token_id=0, pad_token_id=1)
    ends = eos if isinstance(eos, list) else [eos]
    expected = [[int(token not in (0, 1, *ends)) for token in ids[0].tolist()]]
    for mask in (None, torch.ones_like(ids)):
        assert copied_tokens(config, ids, mask, torch.zeros(1, 6, 4)).tolist() == expected


def test_the_gate_may_be_on_another_device_than_the_head():
    """As `device_map="auto"` puts them on two GPUs: what is tied is on the first, what comes last on the last."""
    (logits, gate, scores), source_ids = make(SOURCES["each once"])
    with torch.no_grad():
        assert _copy(logits.to("meta"), gate, scores.softmax(dim=-1), source_ids).is_meta

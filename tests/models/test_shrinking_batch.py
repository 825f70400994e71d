"""Documents that are done leave the batch, and nothing else changes: against searches that go on with all rows."""

import contextlib

import pytest
import torch
from transformers import (
    BartConfig,
    DynamicCache,
    EncoderDecoderCache,
    EosTokenCriteria,
    GenerationMixin,
    StoppingCriteria,
    StoppingCriteriaList,
)

from hier_models.models import shrinking_batch
from hier_models.models.growing_cache import let_grow
from hier_models.models.shrinking_batch import ShrinkingBatch
from tests.cases import CASES, collate, make_model


GENERATE = (
    "hat_bart",
    "highlight_transformer",
    "highlight_transformer_bart",
    "top_down_transformer",
    "ham_transformer",
)
SEARCHES = {
    "beams": {"num_beams": 3},
    "beams_of_which_two": {"num_beams": 3, "num_return_sequences": 2},
    "beams_that_end_early": {"num_beams": 3, "early_stopping": True},
    "beams_that_never_end": {"num_beams": 3, "early_stopping": "never", "length_penalty": 2.0},
    "sampled_beams": {"num_beams": 3, "do_sample": True},
    "greedy": {"num_beams": 1},
    "samples": {"do_sample": True, "num_return_sequences": 3},
}
LENGTHS = (20, 9, 14, 17, 11, 8)


@pytest.fixture(params=GENERATE)
def case(request):
    return CASES[request.param]


@pytest.fixture
def batch(case):
    return collate(case, [case.make_document(length, seed) for seed, length in enumerate(LENGTHS)])


@pytest.fixture
def model(case):
    """One that ends targets of some documents sooner than those of others."""
    model = make_model(case).double()
    model.final_logits_bias[:, model.config.eos_token_id] += 1.0 if model.config.model_type == "ham" else 2.5
    return model


def count_rows(model, monkeypatch):
    """How many rows the decoder sees in each step."""
    rows, predict = [], model.predict
    monkeypatch.setattr(
        model, "predict", lambda of, *more: rows.append(len(of["last_hidden_state"])) or predict(of, *more)
    )
    return rows


def generate(model, batch, **settings):
    torch.manual_seed(3)
    settings = {"max_new_tokens": 40, "no_repeat_ngram_size": 3} | settings
    return model.generate(**batch, **settings)


@pytest.mark.parametrize("search", SEARCHES)
def test_the_targets_are_those_of_all_rows(model, batch, search, monkeypatch):
    rows = count_rows(model, monkeypatch)
    found = generate(model, batch, **SEARCHES[search])
    shrunk, rows[:] = list(rows), []
    with monkeypatch.context() as patch:
        patch.setattr(shrinking_batch, "_shrinking", lambda *given, **named: contextlib.nullcontext())
        expected = generate(model, batch, **SEARCHES[search])
    assert torch.equal(found, expected)
    assert len(set(rows)) == 1
    assert len(shrunk) == len(rows)
    assert shrunk == sorted(shrunk, reverse=True)
    if "never" not in search and search != "greedy":  # which may end all at once
        assert shrunk[-1] < shrunk[0]


class Never(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.zeros(len(input_ids), dtype=torch.bool)


def hat_bart():
    """One that ends targets at different times, and documents for it."""
    case = CASES["hat_bart"]
    model = make_model(case)
    model.final_logits_bias[:, model.config.eos_token_id] += 2.5
    return model, collate(case, [case.make_document(length, seed) for seed, length in enumerate(LENGTHS)])


@pytest.mark.parametrize("beams", [1, 3])
def test_in_float32_kernels_of_few_rows_find_the_same(beams, monkeypatch):
    model, batch = hat_bart()
    batch = {name: tensor.repeat(4, *(1 for _ in tensor.shape[1:])) for name, tensor in batch.items()}  # 24 documents
    found, rows = generate(model, batch, num_beams=beams), count_rows(model, monkeypatch)
    assert torch.equal(found, generate(model, batch, num_beams=beams))
    assert rows[0] == 24 * beams
    assert rows[-1] <= 12 * beams
    monkeypatch.setattr(shrinking_batch, "_shrinking", lambda *given, **named: contextlib.nullcontext())
    assert torch.equal(found, generate(model, batch, num_beams=beams))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    ("asked", "shrinks"),
    [
        ({}, True),
        ({"max_time": 1000.0}, True),
        ({"stopping_criteria": StoppingCriteriaList([Never()])}, False),
        ({"return_dict_in_generate": True}, False),
        ({"return_dict_in_generate": True, "output_scores": True}, False),
        ({"use_cache": False}, False),
        ({"cache_implementation": "static"}, False),
    ],
    ids=["usual", "max_time", "own_criterion", "dict", "scores", "no_cache", "static"],
)
def test_where_somebody_sees_all_rows_all_stay(beams, asked, shrinks, monkeypatch):
    model, batch = hat_bart()
    rows = count_rows(model, monkeypatch)
    generate(model, batch, num_beams=beams, **asked)
    assert (len(set(rows)) > 1) == shrinks


@pytest.mark.parametrize("beams", [1, 3])
def test_a_cache_of_the_user_keeps_all_rows(beams):
    model, batch = hat_bart()
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    generate(model, batch, num_beams=beams, cache=cache)
    assert len(cache.self_attention_cache.layers[0].keys) == beams * len(LENGTHS)


def test_a_hook_sees_all_rows(monkeypatch):
    model, batch = hat_bart()
    rows = count_rows(model, monkeypatch)
    model.get_decoder().layers[0].register_forward_pre_hook(lambda *given: None)
    generate(model, batch, num_beams=3)
    assert len(set(rows)) == 1


def test_where_transformers_does_not_say_who_is_done_all_stay(monkeypatch):
    model, batch = hat_bart()
    rows = count_rows(model, monkeypatch)
    own = GenerationMixin._check_early_stop_heuristic
    monkeypatch.setattr(type(model), "_check_early_stop_heuristic", staticmethod(own), raising=False)
    generate(model, batch, num_beams=3)
    assert len(set(rows)) == 1


def test_ends_are_those_of_the_criteria(monkeypatch):
    model, batch = hat_bart()
    end = {"stopping_criteria": StoppingCriteriaList([EosTokenCriteria(7)])}
    found = generate(model, batch, num_beams=1, **end)
    monkeypatch.setattr(shrinking_batch, "_shrinking", lambda *given, **named: contextlib.nullcontext())
    assert torch.equal(found, generate(model, batch, num_beams=1, **end))


@pytest.mark.parametrize("beams", [1, 3])
def test_encoder_outputs_that_are_given(beams, monkeypatch):
    model, batch = hat_bart()
    expected, rows = generate(model, batch, num_beams=beams), count_rows(model, monkeypatch)
    encoded = model.get_encoder()(**batch)
    for outputs in (encoded, encoded.to_tuple()):
        found = generate(model, batch, num_beams=beams, encoder_outputs=outputs)
        assert torch.equal(found, expected)
        assert (len(set(rows)) > 1) == (outputs is encoded)
        rows.clear()


def test_a_source_with_several_prompts(monkeypatch):
    model, batch = hat_bart()
    one = {name: tensor[:1] for name, tensor in batch.items()}
    start = model.config.decoder_start_token_id
    prompts = torch.tensor([[start, token] for token in (5, 6, 7, 8)])
    rows = count_rows(model, monkeypatch)
    assert len(generate(model, one, num_beams=3, decoder_input_ids=prompts)) == 4
    assert len(set(rows)) == 1


@pytest.mark.parametrize("search", ["beams", "greedy", "samples"])
def test_a_cache_of_another_kind_stays_whole(search, monkeypatch):
    case = CASES["ham"]
    model = make_model(case)
    model.final_logits_bias[:, model.config.eos_token_id] += 1.5
    rows = count_rows(model, monkeypatch)
    generate(model, collate(case, [case.make_document(length, length) for length in LENGTHS]), **SEARCHES[search])
    assert len(set(rows)) == 1


def test_few_of_many_that_are_done_stay_for_a_while():
    batch = ShrinkingBatch(None, rows=20, begun=1, documents=20, ends=None, pad_token_id=0)
    inputs = {"decoder_input_ids": torch.arange(20)[:, None]}
    unfinished = torch.ones(20, 1, dtype=torch.bool)
    unfinished[:2] = False
    batch.note(unfinished)
    assert batch.shrink(inputs, inputs["decoder_input_ids"]) is inputs  # a tenth


@torch.no_grad()
def test_rows_of_a_cache_are_chosen_with_their_room():
    rows, order = torch.tensor([4, 5, 0]), torch.tensor([1, 1, 2, 3, 5, 4])
    caches = [DynamicCache(config=BartConfig(decoder_layers=2)) for _ in range(2)]
    for cache in caches:
        let_grow(cache)
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            for layer in range(2):
                cache.update(*torch.randn(2, 6, 2, 1, 4, generator=generator), layer)
        cache.reorder_cache(order)
    caches[0].batch_select_indices(rows)
    for chosen, whole in zip(caches[0].layers, caches[1].layers, strict=True):
        assert torch.equal(chosen.keys, whole.keys[rows])
        assert torch.equal(chosen.values, whole.values[rows])
        assert chosen.make_room(1)[0].shape[0] == 3
        assert chosen.keys.data_ptr() == chosen.rooms[0].data_ptr()
    one, other = caches[0].layers
    assert one.origins is other.origins  # so that they go on to find once what moves

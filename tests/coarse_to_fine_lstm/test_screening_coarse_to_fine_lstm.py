"""The best of many rows: keys in 8 bits leave few, and never lose one of the best."""

import pytest
import torch

from hier_models.models import conditional_reading as screening
from hier_models.models.conditional_reading import RowScreen
from tests.coarse_to_fine_lstm.test_generation_coarse_to_fine_lstm import dense, make_batch, make_model


def make_keys(kind, documents=2, rows=3000, size=64):
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(documents, rows, size, generator=generator)
    if kind == "much in common":
        keys = keys * 0.05 + 20 * torch.randn(size, generator=generator)
    if kind == "of all lengths":
        keys = keys * torch.logspace(-6, 3, rows)[:, None]
    if kind == "two kinds":
        keys = keys.sign() * 1e-20
    exists = torch.rand(documents, rows, generator=generator) < 0.9
    return keys, exists, torch.randn(documents, 3, size, generator=generator) * 0.4


@pytest.mark.parametrize("kind", ["plain", "much in common", "of all lengths", "two kinds"])
@pytest.mark.parametrize("number", [1, 4])
def test_no_best_row_is_lost(kind, number):
    keys, exists, queries = make_keys(kind)
    candidates = RowScreen(keys, exists).candidates(queries, number)
    scores = torch.einsum("dbh,drh->dbr", queries.double(), keys.double())
    scores = scores.masked_fill(~exists.unsqueeze(1), float("-inf"))
    best = scores.topk(number, dim=-1).indices
    assert candidates.gather(-1, best).all()
    assert not (candidates & ~exists.unsqueeze(1)).any()
    if kind in ("plain", "much in common"):
        assert candidates.sum(-1).float().mean() < 60


def test_the_keys_in_8_bits_are_off_by_what_is_written_down():
    keys, exists, _ = make_keys("plain", size=500)
    screen = RowScreen(keys, exists)
    for i in range(2):
        others = keys[i] - keys[i][exists[i]].mean(dim=0)
        off = screen.small[i, :, :500].float() * screen.scales[i].float()[:, None] - others
        torch.testing.assert_close(screen.error[i].squeeze(), off[exists[i]].norm(dim=-1).max(), rtol=1e-3, atol=0)
        torch.testing.assert_close(screen.longest[i].squeeze(), others[exists[i]].norm(dim=-1).max())
        assert screen.error[i] < 0.02 * screen.longest[i]


def test_documents_with_few_rows_or_none():
    keys, exists, queries = make_keys("plain")
    exists[0] = False
    exists[1, 5:] = False
    candidates = RowScreen(keys, exists).candidates(queries, 9)
    assert not candidates[0].any()
    assert torch.equal(candidates[1], exists[1].expand(3, -1))


@pytest.mark.parametrize("way", [{}, {"num_beams": 3}, {"use_cache": False}])
@pytest.mark.parametrize("selected", [1, 2])
def test_generation_is_the_same(monkeypatch, way, selected):
    model = make_model(selected_rows=selected)
    batch = make_batch(90, 40)
    expected = model.generate(**batch, encoder_outputs=dense(model, batch), max_new_tokens=8, **way)
    assert torch.equal(model.generate(**batch, max_new_tokens=8, **way), expected)
    monkeypatch.setattr(screening, "_FEWEST_ROWS", 16)
    calls = []
    candidates = RowScreen.candidates

    def watched(self, queries, number):
        calls.append(number)
        return candidates(self, queries, number)

    monkeypatch.setattr(RowScreen, "candidates", watched)
    assert torch.equal(model.generate(**batch, max_new_tokens=8, **way), expected)
    assert set(calls) == {selected}


def test_a_torch_without_the_product(monkeypatch):
    keys, *_ = make_keys("plain")
    assert RowScreen.is_worth_it(keys)
    assert not RowScreen.is_worth_it(keys[:, :100])
    monkeypatch.setattr(screening, "int8_product_works", lambda: False)
    assert not RowScreen.is_worth_it(keys)


def test_other_dtypes_are_scored_in_full(monkeypatch):
    monkeypatch.setattr(screening, "_FEWEST_ROWS", 16)
    batch = make_batch(40)
    for dtype in (torch.float64, torch.bfloat16):
        with torch.no_grad():
            assert make_model().to(dtype).get_encoder()(**batch).row_store.screen is None
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert make_model().generate(**batch, max_new_tokens=4).shape[1] > 1

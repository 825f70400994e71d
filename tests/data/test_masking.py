"""The masking collator: shares, what is never masked, seeds, padding."""

import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from hier_models import HatEncoderProcessor
from hier_models.data.masking import MaskingCollator
from tests.conftest import DOCUMENTS


BOS, PAD, EOS, UNK, MASK = 0, 1, 2, 3, 4


@pytest.fixture(scope="module")
def processor(tokenizer: PreTrainedTokenizerFast) -> HatEncoderProcessor:
    return HatEncoderProcessor(tokenizer)


@pytest.fixture(scope="module")
def windows(processor: HatEncoderProcessor) -> list[dict[str, Any]]:
    return [{"input_ids": ids} for ids in processor(DOCUMENTS)["input_ids"]]


def specials(ids: torch.Tensor) -> torch.Tensor:
    return torch.isin(ids, torch.tensor([BOS, PAD, EOS, UNK]))


def test_shares_and_what_is_never_masked(processor: HatEncoderProcessor, windows: list[dict[str, Any]]) -> None:
    collator = MaskingCollator(processor, seed=3)
    plain = DataCollatorForLanguageModeling(processor.tokenizer, mlm_probability=0.0)(windows)["input_ids"]
    ordinary = drawn = masked = kept = 0
    for _ in range(400):
        batch = collator([dict(window) for window in windows])
        ids, labels = batch["input_ids"], batch["labels"]
        chosen = labels != -100
        assert torch.equal(labels[chosen], plain[chosen])
        assert torch.equal(ids[~chosen], plain[~chosen])
        assert torch.equal(specials(ids), specials(plain))  # no marker masked, and none made
        assert not (chosen & specials(plain)).any()
        ordinary += int((~specials(plain)).sum())
        drawn += int(chosen.sum())
        masked += int((ids == MASK).sum())
        kept += int((chosen & (ids == plain)).sum())
        assert torch.equal(batch["attention_mask"], (plain != PAD).long())
    assert drawn / ordinary == pytest.approx(0.15, abs=0.005)
    assert masked / drawn == pytest.approx(0.8, abs=0.015)
    assert kept / drawn == pytest.approx(0.1, abs=0.015)


def test_replacements_come_from_all_ordinary_tokens(processor: HatEncoderProcessor) -> None:
    collator = MaskingCollator(processor, seed=0, mlm_probability=1.0)
    collator.mask_replace_prob, collator.random_replace_prob = 0.0, 1.0
    ids = [BOS, *[100] * 5000, EOS]
    batch = collator([{"input_ids": ids}] * 10)
    got = batch["input_ids"][:, 1:-1].unique().tolist()
    size = len(processor.tokenizer)
    # Were the mask token itself drawn, it could not be told from a masked token; Transformers may draw it.
    assert set(got) - {MASK} == set(range(size)) - {BOS, PAD, EOS, UNK, MASK}


def test_masks_differ_from_call_to_call_and_the_seed_repeats_them(
    processor: HatEncoderProcessor, windows: list[dict[str, Any]]
) -> None:
    for seed in (0, 1):
        one, other = (MaskingCollator(processor, seed=seed) for _ in range(2))
        first = [one(windows)["labels"] for _ in range(3)]
        torch.manual_seed(seed + 5)  # the global generator does not matter
        second = [other(windows)["labels"] for _ in range(3)]
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert not any(torch.equal(a, b) for a, b in itertools.combinations(first, 2))
    assert not torch.equal(MaskingCollator(processor, seed=0)(windows)["labels"], first[0])


def test_without_a_seed_torchs_generator_decides(
    processor: HatEncoderProcessor, windows: list[dict[str, Any]]
) -> None:
    collator = MaskingCollator(processor)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    first = collator(windows)["labels"]
    torch.set_rng_state(state)
    assert torch.equal(collator(windows)["labels"], first)
    assert not torch.equal(collator(windows)["labels"], first)


def test_static_masks_belong_to_the_window(processor: HatEncoderProcessor, windows: list[dict[str, Any]]) -> None:
    collator = MaskingCollator(processor, static=True)
    together = collator(windows)
    again = collator(windows[::-1])
    for i, window in enumerate(windows):
        alone = collator([window])
        size = len(window["input_ids"])
        for key in ("input_ids", "labels"):
            assert torch.equal(together[key][i, :size], alone[key][0])
            assert torch.equal(again[key][len(windows) - 1 - i, :size], alone[key][0])
    assert (together["labels"] != -100).any()
    assert not (together["labels"][together["attention_mask"] == 0] != -100).any()
    other = MaskingCollator(processor, static=True, seed=1)(windows)
    assert not torch.equal(other["labels"], together["labels"])
    assert torch.equal(specials(together["input_ids"]), together["attention_mask"] == 0) is False


def test_masks_of_a_batch_depend_on_nothing_else(
    processor: HatEncoderProcessor, windows: list[dict[str, Any]]
) -> None:
    first, again = (MaskingCollator(processor, by_batch=True, seed=5) for _ in range(2))
    expected = first(windows[:2])
    first(windows)  # what came before does not matter, nor do torch's own random numbers
    torch.rand(7)
    for found in (first(windows[:2]), again(windows[:2])):
        assert torch.equal(found["input_ids"], expected["input_ids"])
        assert torch.equal(found["labels"], expected["labels"])
    for other in (first(windows[1::-1]), MaskingCollator(processor, by_batch=True, seed=6)(windows[:2])):
        assert not torch.equal(other["labels"], expected["labels"])
    for loaded in DataLoader(windows[:2], batch_size=2, collate_fn=again, num_workers=1):  # type: ignore[arg-type]
        assert torch.equal(loaded["labels"], expected["labels"])


def test_masks_of_a_batch_are_others_in_another_epoch(
    processor: HatEncoderProcessor, windows: list[dict[str, Any]]
) -> None:
    """Also of a batch of one window; and in workers that outlive an epoch, with their copies of the collator."""
    collator = MaskingCollator(processor, by_batch=True, seed=5)
    workers: Any = {"num_workers": 1, "persistent_workers": True}
    loader = DataLoader(windows[:1], batch_size=1, collate_fn=collator, **workers)  # type: ignore[arg-type]
    labels = []
    for epoch in range(3):
        collator.set_epoch(epoch)
        labels += [collator(windows[:1])["labels"]]
        assert all(torch.equal(batch["labels"], labels[-1]) for batch in loader)
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(labels, 2))
    collator.set_epoch(1)
    assert torch.equal(collator(windows[:1])["labels"], labels[1])
    static = MaskingCollator(processor, static=True)
    expected = static(windows[:1])["labels"]
    static.set_epoch(1)
    assert torch.equal(static(windows[:1])["labels"], expected)


def test_left_padding(processor: HatEncoderProcessor, windows: list[dict[str, Any]]) -> None:
    tokenizer = processor.tokenizer
    side = tokenizer.padding_side
    try:
        tokenizer.padding_side = "left"
        batch = MaskingCollator(tokenizer, static=True)(windows)
    finally:
        tokenizer.padding_side = side
    right = MaskingCollator(processor, static=True)(windows)
    for i, window in enumerate(windows):
        size = len(window["input_ids"])
        assert torch.equal(batch["labels"][i, -size:], right["labels"][i, :size])


def test_a_mask_of_ones_own(processor: HatEncoderProcessor, windows: list[dict[str, Any]]) -> None:
    collator = MaskingCollator(processor, mlm_probability=1.0, seed=0)
    window = {**windows[0], "special_tokens_mask": [int(i % 2) for i in range(len(windows[0]["input_ids"]))]}
    labels = collator([window])["labels"][0]
    assert (labels[1::2] == -100).all()
    assert (labels[::2] != -100).any()


def test_workers_draw_differently(processor: HatEncoderProcessor, windows: list[dict[str, Any]]) -> None:
    loader = DataLoader(windows[:1] * 4, batch_size=1, num_workers=2, collate_fn=MaskingCollator(processor, seed=1))
    labels = [batch["labels"] for batch in loader]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(labels, 2))


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([{"text": "a"}], "must have input_ids"),
        ([{"input_ids": [0, 5, 2], "text": "a"}], "columns text cannot be batched"),
    ],
)
def test_bad_examples(processor: HatEncoderProcessor, examples: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskingCollator(processor)(examples)


def test_bad_arguments(processor: HatEncoderProcessor) -> None:
    with pytest.raises(ValueError, match="static and by_batch exclude each other"):
        MaskingCollator(processor, static=True, by_batch=True)
    with pytest.raises(ValueError, match="between 0 and 1"):
        MaskingCollator(processor, mlm_probability=1.5)
    no_mask = PreTrainedTokenizerFast(tokenizer_object=processor.tokenizer.backend_tokenizer, pad_token="<pad>")
    with pytest.raises(ValueError, match="no mask_token"):
        MaskingCollator(no_mask)

import pytest
import torch

from hier_models.models.line_length import LineLengthLogitsProcessor


@pytest.mark.parametrize("length", [5, 7])
def test_characters_and_then_the_end(length):
    limit = LineLengthLogitsProcessor(length, [4, 6, 7], eos_token_id=2)
    scores = torch.randn(3, 9)
    for written in range(length):
        left = limit(torch.zeros(3, 1 + written, dtype=torch.long), scores.clone())
        assert left.isfinite().nonzero()[:, 1].tolist() == [4, 6, 7] * 3
        assert torch.equal(left[:, [4, 6, 7]], scores[:, [4, 6, 7]])
    ended = limit(torch.zeros(3, 1 + length, dtype=torch.long), scores.clone())
    assert ended.isfinite().nonzero()[:, 1].tolist() == [2] * 3
    assert ended[:, 2].eq(0).all()


@pytest.mark.parametrize("length", [0, 4, 6, 8, 7.0, True, "7", None])
def test_other_lengths(length):
    with pytest.raises(ValueError, match="`length` must be 5 or 7"):
        LineLengthLogitsProcessor(length, [4], eos_token_id=2)


def test_no_characters():
    with pytest.raises(ValueError, match="`character_ids` is empty"):
        LineLengthLogitsProcessor(5, [], eos_token_id=2)
    with pytest.raises(ValueError, match=r"`eos_token_id` \(4\) is one of `character_ids`"):
        LineLengthLogitsProcessor(5, [4], eos_token_id=4)

import math
from collections import Counter

import evaluate
import pytest

from hier_models.metrics import PoemBleu, poem_bleu, poem_form
from hier_models.models.poem_sounds import PoemSounds
from tests.ham.poems import FIVE, POEMS, SEVEN


def by_hand(predictions, references):
    """Corpus BLEU of characters and pairs, where both are found and lengths are equal."""
    precisions = []
    for n in (1, 2):
        found = total = 0
        for written, true in zip(predictions, references, strict=True):
            mine = Counter(written[i : i + n] for i in range(len(written) - n + 1))
            theirs = Counter(true[i : i + n] for i in range(len(true) - n + 1))
            found += sum((mine & theirs).values())
            total += sum(mine.values())
        precisions.append(found / total)
    return math.sqrt(math.prod(precisions))


def test_the_scores_are_those_of_the_paper_s_formula():
    # A line of one poem in the place of another's: some characters and pairs are the same.
    written = [[line[1:] + line[0] for line in poem[1:]] for poem in POEMS]
    metric = PoemBleu()
    scores = metric.compute(predictions=written, references=POEMS)
    for length, poems in ((5, FIVE), (7, SEVEN)):
        own = [lines for lines in written if len(lines[0]) == length]
        means = []
        for line in range(3):
            means.append(by_hand([lines[line] for lines in own], [poem[line + 1] for poem in poems]))
            assert scores[f"bleu{line + 1}_{length}"] == pytest.approx(means[-1])
        assert scores[f"bleu_{length}"] == pytest.approx(sum(means) / 3)
        assert scores[f"poems_{length}"] == 3
    assert "nrefs:1" in metric.settings["signature"]


def test_true_lines_score_one_and_others_little():
    perfect = PoemBleu().compute(predictions=[poem[1:] for poem in FIVE], references=FIVE)
    assert perfect["bleu_5"] == pytest.approx(1)
    assert "bleu_7" not in perfect
    nothing = PoemBleu().compute(predictions=[["鱼龙鸡犬羊"] * 3] * 3, references=FIVE, smooth_method="none")
    assert nothing["bleu_5"] == 0


def test_bad_input():
    with pytest.raises(ValueError, match="got 4 and 4 for poem 0"):
        PoemBleu().compute(predictions=FIVE, references=FIVE)
    with pytest.raises(ValueError, match="must be of one length, poem 0 has 1, 5"):
        PoemBleu().compute(predictions=[FIVE[0][1:]], references=[[*FIVE[0][:3], "月"]])
    with pytest.raises(ValueError, match="smooth_method must be one of"):
        PoemBleu().compute(predictions=[FIVE[0][1:]], references=FIVE[:1], smooth_method="much")


def test_loads_by_its_path():
    loaded = evaluate.load(poem_bleu.__file__)
    scores = loaded.compute(predictions=[FIVE[0][1:]], references=FIVE[:1])
    assert scores["bleu_5"] == pytest.approx(1)


def test_without_the_keyword_s_characters():
    keywords = [["花", "客", "月"], ["云", "僧", "心"], ["明月", "白云", "孤雁"]]
    # Nothing is right but the keyword.
    written = [["鱼花龙鸡犬", "鱼客龙鸡犬", "鱼月龙鸡犬"]] * 3
    scores = PoemBleu().compute(predictions=written, references=FIVE, keywords=keywords, smooth_method="add-k")
    none = [["鱼龙鸡犬羊"] * 3] * 3
    assert scores["bleu_5"] > PoemBleu().compute(predictions=none, references=FIVE, smooth_method="add-k")["bleu_5"]
    copied = [[word * 2 for word in words] for words in keywords]
    left = PoemBleu().compute(predictions=copied, references=FIVE, keywords=keywords, smooth_method="none")
    assert (left["bleu_5"], left["bleu_without_keywords_5"]) != (0, 0)
    assert left["bleu_without_keywords_5"] == 0
    right = PoemBleu().compute(predictions=[poem[1:] for poem in FIVE], references=FIVE, keywords=keywords)
    assert right["bleu_without_keywords_5"] == pytest.approx(1)
    assert "bleu_without_keywords_5" not in PoemBleu().compute(predictions=written, references=FIVE)


def test_the_form_of_lines():
    sounds = PoemSounds(["红东风楼", "静寺茗"], "红东风青山花天", "静寺茗月下雨")
    poem = ["月月天天月", "天天月月天", "天天天月月", "月月月天天"]
    own = poem_form([poem[1:]], [poem], sounds)
    assert own == {"repeats_5": 1.0, "earlier_5": 1.0, "rhymes_5": 0.0, "tones_5": 1.0}
    written = ["天青月静东", "鱼龙静雨下", "天天天天红"]
    gold = ["雨月天青寺", "天山月静风", "花山天雨寺", "雨月寺天东"]
    found = poem_form([written], [gold], sounds)
    assert found["repeats_5"] == pytest.approx(1 / 3)
    assert found["earlier_5"] == pytest.approx((3 + 2 + 4) / 15)  # 天青月; 静雨; 天 four times
    assert found["rhymes_5"] == 1.0  # with the poet's second line, 风
    assert found["tones_5"] == pytest.approx(1 / 3)
    assert set(poem_form([gold[1:], SEVEN[0][1:]], [gold, SEVEN[0]])) == {
        *("repeats_5", "earlier_5", "repeats_7", "earlier_7")
    }

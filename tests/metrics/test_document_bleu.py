"""What documents add up to is what the metrics give for all of them, to the last digit that matters."""

import pytest

from hier_models.metrics import AnswerOverlap, Bleu, PoemBleu
from hier_models.metrics.answers import f1_of_characters
from hier_models.metrics.document_bleu import document_answers, document_bleu, document_poem_bleu
from hier_models.metrics.squad import exact_score, f1_score


GERMAN = ["Die Katze  saß\nauf der Matte.", "Ein Hund bellte die Katze an.", "Vögel singen am Morgen in der Sonne."]
GOLD = ["Die Katze saß auf einer Matte.", "Ein Hund bellte laut.", "Am Morgen singen Vögel in der Sonne."]
POEMS = [
    ["小院春风起", "花开一树红", "客来同饮酒", "月在画楼东"],
    ["雨过青山静", "云归古寺深", "老僧闲煮茗", "不问世间心"],
    ["小院春风昨夜来", "满庭花树一时开", "老翁扶杖花前立", "笑看儿童折几枚"],
]
WRITTEN = [["花开满树红", "客来共饮酒", "月上画楼东"], ["云归古寺深", "老僧闲煮 茗", "世问间心不"], POEMS[2][1:]]
ANSWERS = ["in the old town", "seven", ""]
REFERENCES = [["the old town", "in town"], ["seven of them"], ["nobody"]]


@pytest.mark.parametrize("tokenize", ["13a", "char"])
def test_translations(tokenize):
    expected = Bleu().compute(predictions=GERMAN, references=GOLD, tokenize=tokenize)["bleu"]
    assert document_bleu(GERMAN, GOLD, tokenize).score() == pytest.approx(expected, abs=1e-9)


def test_poems():
    expected = PoemBleu().compute(predictions=WRITTEN, references=POEMS)
    found = document_poem_bleu(WRITTEN, POEMS)
    assert found.keys() == {name for name in expected if name.startswith("bleu")}
    for name, statistics in found.items():
        assert statistics.score() == pytest.approx(expected[name], abs=1e-9), name
    assert found["bleu_7"].score() == pytest.approx(1)


@pytest.mark.parametrize("unit", ["words", "characters"])
def test_answers(unit):
    found = document_answers(ANSWERS, REFERENCES, unit)
    expected = AnswerOverlap().compute(predictions=ANSWERS, references=REFERENCES, unit=unit)
    f1 = f1_score if unit == "words" else f1_of_characters
    for name, score in (("exact", exact_score), ("f1", f1)):
        best = [max(score(answer, gold) for gold in golds) for answer, golds in zip(ANSWERS, REFERENCES, strict=True)]
        expected[name] = 100 * sum(best) / 3
    assert found.keys() == expected.keys()
    for name, statistics in found.items():
        assert statistics.score() == pytest.approx(expected[name], abs=1e-9), name

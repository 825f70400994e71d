"""Overlap of training and test documents: what is planted is found, formulas and short phrases are not."""

import json
import random
import time

import pytest

from hier_models.data import BadLineError
from hier_models.data.overlap import documents_of_file, find_overlaps, texts_of_record


WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
HAN = [chr(0x4E00 + number) for number in range(500)]


def text(seed, length=200):
    return " ".join(random.Random(seed).choices(WORDS, k=length))


def chinese(seed, length=120):
    return "".join(random.Random(seed).choices(HAN, k=length))


HELD_OUT = [(f"test{i}", [text(i), text(100 + i, 20)]) for i in range(5)]


def found(train, held_out=HELD_OUT, **options):
    report = find_overlaps(train, held_out, **options)
    return {(overlap.id, overlap.held_out, overlap.reason) for overlap in report.overlaps}


def test_documents_of_their_own_share_nothing():
    report = find_overlaps([(f"train{i}", [text(1000 + i)]) for i in range(20)], HELD_OUT)
    assert (report.overlaps, report.documents, report.held_out) == ([], 20, 5)


@pytest.mark.parametrize("change", [str.upper, lambda t: t.replace(" ", ",\n "), lambda t: f"«{t}»!"])
def test_a_whole_text_is_found_however_it_is_set(change):
    assert found([("a", [text(50)]), ("b", [change(text(3))])]) == {("b", "test3", "text")}


def test_a_summary_counts_too():
    assert found([("a", [text(50), text(102, 20)])]) == {("a", "test2", "text")}


@pytest.mark.parametrize(("length", "is_found"), [(12, False), (13, True), (60, True)])
def test_a_passage_of_13_words_is_found_wherever_it_stands(length, is_found):
    planted = " ".join(text(4).split()[77 : 77 + length])
    for train in (f"{planted} {text(60)}", f"{text(60)} {planted}", f"{text(60, 50)} {planted} {text(61, 50)}"):
        assert found([("a", [train])]) == ({("a", "test4", "passage")} if is_found else set())


def test_the_passage_is_told():
    planted = text(4).split()[77:90]
    (overlap,) = find_overlaps([("a", [f"{text(60)} {' '.join(planted)}"])], HELD_OUT).overlaps
    assert overlap.example == " ".join(planted)
    assert "a and test4" in str(find_overlaps([("a", [text(4)])], HELD_OUT))


def test_a_passage_does_not_go_from_one_field_to_the_next():
    planted = text(4).split()
    assert not found([("a", [" ".join(planted[70:77]), " ".join(planted[77:87])])])


@pytest.mark.parametrize(("length", "is_found"), [(29, False), (30, True)])
def test_chinese_passages_have_30_characters(length, is_found):
    held_out = [("test", [chinese(1)])]
    train = [("a", [chinese(2) + "，" + chinese(1)[40 : 40 + length] + chinese(3)])]
    assert found(train, held_out) == ({("a", "test", "passage")} if is_found else set())
    assert found([("a", [chinese(2) + chinese(1)[40:52]])], held_out, characters=12)


def test_short_documents_are_known_as_a_whole():
    held_out = [("test", ["春眠不觉晓", "处处闻啼鸟"])]
    assert found([("a", ["春眠不觉晓", "处处闻啼鸟"]), ("b", ["春眠不觉晓", "夜来风雨声"])], held_out) == {
        ("a", "test", "text")
    }


def test_formulas_of_many_documents_do_not_count():
    formula = text(7, 30)
    held_out = [("test0", [f"{text(0)} {formula}"]), ("test1", [f"{text(1)} {formula}"])]
    few = [(f"a{i}", [f"{text(200 + i)} {formula}"]) for i in range(8)]
    assert len(found(few, held_out)) == 8
    many = [(f"a{i}", [f"{text(200 + i)} {formula}"]) for i in range(9)]
    report = find_overlaps(many, held_out)
    assert report.overlaps == []
    # Nor does what is half formula, half the words before or behind it.
    edge = [(f"c{i}", [f"{text(400 + i)} {formula} {' '.join(text(1).split()[-6:])}"]) for i in range(9)]
    before = [(f"d{i}", [f"{' '.join(text(1).split()[-6:])} {formula} {text(500)}"]) for i in range(1)]
    assert not found([*edge, *before], held_out)
    before[0][1][0] = f"{' '.join(text(1).split()[-7:])} {formula} {text(500)}"
    assert found([*edge, *before], held_out) == {("d0", "test1", "passage")}
    # What else such a document has in common counts as ever.
    planted = " ".join(text(1).split()[:13])
    assert found([*many, ("b", [f"{formula} {planted}"])], held_out) == {("b", "test1", "passage")}


def test_copies_of_training_documents_make_no_formula():
    """As in a warm-up that reads the training documents too."""
    held_out = [("test0", [f"{text(0)} {text(7, 20)}"])]
    rows = [[f"{text(200 + number)} {text(7, 20)}"] for number in range(5)]
    train = [(f"{name}{number}", row) for name in "abc" for number, row in enumerate(rows)]
    assert len(found(train, held_out)) == 15


def test_many_questions_on_a_paragraph_make_no_formula_of_it():
    passage = text(7, 20)
    train = [(f"a{number}", [f"question {number}", f"{text(200)} {passage}"]) for number in range(12)]
    held_out = [(f"test{number}", [f"another {number}", f"{text(0)} {passage}"]) for number in range(12)]
    assert found(train, held_out) == {(f"a{number}", "test0", "passage") for number in range(12)}


def test_many_copies_of_a_test_document_are_no_formula():
    cut = " ".join(text(2).split()[5:-5])
    assert len(found([(f"a{i}", [f"{cut} {text(300 + i, 20)}"]) for i in range(30)])) == 30


def test_the_same_few_words_again_and_again_are_no_passage():
    held_out = [("test", [f"{text(1)} {'yeah ' * 20} {text(2)} {'la di da ' * 20}"])]
    assert not found([("a", [f"{text(3)} {'yeah ' * 15} {text(4)} {'la di da ' * 6}"])], held_out)


def test_files_and_what_of_a_record_is_text(tmp_path):
    turns = [["Ann", text(2, 60)], ["Bob", "Yes."]]
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    rows = [{"id": "t0", "turns": turns, "split": "train"}, {"text": text(9)}, {"id": "t2", "title": "A", "text": "B"}]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{no json\n", encoding="utf-8")
    test.write_text(
        json.dumps({"id": "e", "turns": [{"role": "Cem", "content": text(2, 60)}]}) + "\n", encoding="utf-8"
    )
    assert [identifier for identifier, _ in documents_of_file(train)] == ["t0", "train.jsonl:2", "t2"]
    report = find_overlaps(documents_of_file(train), documents_of_file(test))
    assert [(overlap.id, overlap.held_out) for overlap in report.overlaps] == [("t0", "e")]
    assert report.documents == 3
    assert texts_of_record({"id": "x", "n": 3, "a": ["b", {"c": "d"}], "e": " "}) == ["b d"]


def test_what_is_not_compared_is_said(tmp_path, caplog):
    file = tmp_path / "train.jsonl"
    file.write_text('{"id": 0, "text": "a"}\n{no json\n{"id": "", "text": "b"}\n{"id": null}\n[]\n', encoding="utf-8")
    assert [identifier for identifier, _ in documents_of_file(file)] == ["0", "train.jsonl:3", "train.jsonl:4"]
    assert "train.jsonl: 2 lines cannot be read, and are compared with nothing; the first is line 2 (" in caplog.text
    with pytest.raises(BadLineError, match=r"train\.jsonl:1: split='test' was asked for, but no file's name"):
        list(documents_of_file(file, "test"))


def test_nothing_to_compare_with():
    assert find_overlaps([("a", [text(1)]), ("b", []), ("c", [""])], []).overlaps == []
    assert find_overlaps([("a", [text(1)]), ("b", []), ("c", [""])], [("d", [""]), ("e", [])]).overlaps == []
    with pytest.raises(ValueError, match="words must be at least 1, got 0"):
        find_overlaps([], [], words=0)


def test_a_million_words_take_seconds():
    held_out = [(f"test{i}", [text(i, 2000)]) for i in range(50)]
    train = [(f"train{i}", [text(1000 + i, 5000)]) for i in range(100)]
    begun = time.process_time()
    assert not found(train, held_out)
    assert time.process_time() - begun < 6

import json
import sys
from types import SimpleNamespace

import pytest

from hier_models import HamProcessor
from hier_models.data import (
    BadLineError,
    LoadReport,
    character_coverage,
    load_poems,
    tokenize_poems,
    train_characters,
    write_quatrains,
)
from hier_models.data.poems import PoemReport, poem_lines, quatrain
from tests.ham.poems import FIVE, POEMS, SEVEN, poem_processor


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "value",
    [
        FIVE[0],
        tuple(FIVE[0]),
        [f"{FIVE[0][0]}，{FIVE[0][1]}。", f"{FIVE[0][2]}，{FIVE[0][3]}。"],
        "\n".join(FIVE[0]),
        "，".join(FIVE[0]) + "！",
    ],
)
def test_four_lines_in_any_form(value):
    assert quatrain(value) == FIVE[0]


def test_poems_are_loaded(tmp_path):
    rows = [{"d": "now", "a": "nobody", "t": f"poem {i}", "l": poem} for i, poem in enumerate(POEMS)]
    poems = load_poems(write(tmp_path / "poems.jsonl", rows))
    assert poems["lines"][:] == POEMS
    assert poems["title"][:] == [f"poem {i}" for i in range(6)]
    assert set(poems.column_names) == {"lines", "title", "author"}
    other = write(tmp_path / "other.jsonl", [{"verses": poem} for poem in SEVEN])
    assert load_poems(other, lines_column="verses")["lines"][:] == SEVEN
    with pytest.raises(ValueError, match="cannot tell which column holds the lines"):
        load_poems(other)
    with pytest.raises(ValueError, match="lines_column='l' is not a column"):
        load_poems(other, lines_column="l")


BAD = [
    (FIVE[0][:3], "a quatrain has four lines, this poem has 3"),
    ([*FIVE[0][:3], "月"], "all lines must have 5 or all 7 characters, these have 5, 5, 5, 1"),
    (["花开一树"] * 4, "these have 4, 4, 4, 4"),
    ([*FIVE[0][:3], "月在□楼东"], "not a Chinese character: '□'"),
    (["abcde"] * 4, "not a Chinese character: 'a' 'b' 'c' 'd' 'e'"),
    (7, "must hold the lines of a poem as strings"),
]


@pytest.mark.parametrize(("lines", "message"), BAD)
def test_what_is_no_quatrain(tmp_path, lines, message):
    path = write(tmp_path / "poems.jsonl", [{"lines": FIVE[0]}, {"lines": lines}])
    with pytest.raises(BadLineError, match=message):
        load_poems(path)


def test_bad_poems_are_set_aside(tmp_path):
    path = write(tmp_path / "poems.jsonl", [{"lines": FIVE[0]}, *({"lines": lines} for lines, _ in BAD[:5])])
    report = LoadReport()
    poems = load_poems(path, bad_lines="set_aside", set_aside_file=tmp_path / "bad.jsonl", report=report)
    assert poems["lines"][:] == [FIVE[0]]
    assert report.set_aside == 5


def test_a_title_that_cannot_be_stored_is_set_aside(tmp_path):
    rows = [{"lines": FIVE[0], "title": "a"}, {"lines": FIVE[1], "title": "\ud800"}]
    path = tmp_path / "poems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = LoadReport()
    poems = load_poems(path, bad_lines="set_aside", set_aside_file=tmp_path / "bad.jsonl", report=report)
    assert poems["title"][:] == ["a"]
    assert report.set_aside == 1


def couplets(poem):
    return [f"{poem[0]}，{poem[1]}。", f"{poem[2]}，{poem[3]}。"]


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    songs = [
        {"author": "nobody", "title": "one", "paragraphs": couplets(FIVE[0]), "id": "1"},
        {"author": "nobody", "title": "long", "paragraphs": couplets(FIVE[1]) * 2},
        {"author": "nobody", "title": "uneven", "paragraphs": ["花开，一树红。", "花，开。"]},
        {"author": "nobody", "title": "again", "paragraphs": couplets(FIVE[0])},
        {"author": "nobody", "title": "lost", "paragraphs": couplets([*FIVE[0][:3], "月在□楼东"])},
    ]
    (folder / "poet.song.0.json").write_text(json.dumps(songs, ensure_ascii=False, indent=1), encoding="utf-8")
    tang = [{"author": None, "title": "two", "paragraphs": couplets(SEVEN[0])}]
    (folder / "poet.tang.1000.json").write_text(json.dumps(tang, ensure_ascii=False), encoding="utf-8")
    (folder / "authors.song.json").write_text(json.dumps([{"name": "nobody"}]), encoding="utf-8")
    return folder


def test_the_quatrains_of_a_package(package, tmp_path):
    report = write_quatrains(package, tmp_path / "q.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows == [
        {"d": "song", "a": "nobody", "t": "one", "l": FIVE[0]},
        {"d": "tang", "a": "", "t": "two", "l": SEVEN[0]},
    ]
    assert report.as_dict() == {
        "poems": 6,
        "quatrains": {"5": 1, "7": 1},
        "left_out": {
            "more or fewer lines": 1,
            "lines of other lengths": 1,
            "written before": 1,
            "other characters": 1,
        },
        "strange": {"□": 1},
    }
    assert load_poems(tmp_path / "q.jsonl")["lines"][:] == [FIVE[0], SEVEN[0]]


def test_what_is_wrong_in_a_package_is_reported(tmp_path, caplog):
    poems = [
        {"author": "nobody", "title": "one", "paragraphs": "，".join(FIVE[0])},
        {"author": "nobody", "title": "null", "paragraphs": None},
        {"author": "\ud800", "title": "two", "paragraphs": couplets(FIVE[1])},
        {"author": "nobody", "title": "three", "paragraphs": couplets(FIVE[2])},
    ]
    (tmp_path / "poet.song.0.json").write_text(json.dumps(poems), encoding="utf-8")
    (tmp_path / "poet.song.1.json").write_text(json.dumps(poems)[:-9] + "\n]", encoding="utf-8")
    (tmp_path / "about.json").write_text(json.dumps({"name": "package"}, indent=1), encoding="utf-8")
    report = write_quatrains(tmp_path, tmp_path / "q.jsonl")
    assert load_poems(tmp_path / "q.jsonl")["lines"][:] == [FIVE[0], FIVE[2]]
    assert report.poems == 7
    assert report.left_out == {
        "columns that cannot be used": 4,
        "written before": 1,
        "files that cannot be read whole": 2,
    }
    assert "poet.song.1.json:1 broken JSON in an array" in caplog.text
    assert "about.json:1 the file is one JSON object, of name" in caplog.text


def test_traditional_characters(package, tmp_path, monkeypatch):
    class OpenCC:
        def __init__(self, name):
            assert name == "t2s"

        def convert(self, text):
            return text.replace("花", "草")

    monkeypatch.setitem(sys.modules, "opencc", SimpleNamespace(OpenCC=OpenCC))
    write_quatrains(package, tmp_path / "q.jsonl", simplify=True)
    assert load_poems(tmp_path / "q.jsonl")["lines"][0][1] == "草开一树红"
    monkeypatch.setitem(sys.modules, "opencc", None)
    with pytest.raises(ImportError, match="pip install opencc-python-reimplemented"):
        write_quatrains(package, tmp_path / "q.jsonl", simplify=True)


def test_no_poems(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        write_quatrains(tmp_path / "nowhere", tmp_path / "q.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no poems"):
        write_quatrains(tmp_path / "empty", tmp_path / "q.jsonl")
    assert not list(tmp_path.glob("q.jsonl*"))


def test_coverage_of_characters():
    poems = [{"lines": poem} for poem in POEMS]
    whole = character_coverage(poems, poem_processor())
    assert whole.as_dict()["covered"] == 1
    assert whole.as_dict()["unknown"] == 0
    assert whole.characters == sum(len(line) for poem in POEMS for line in poem)
    part = character_coverage(poems, train_characters("".join(poem) for poem in FIVE)).as_dict()
    known = set("".join(map("".join, FIVE)))
    missing = [c for poem in SEVEN for line in poem for c in line if c not in known]
    assert part["unknown"] == len(missing)
    assert part["unknown_distinct"] == len(set(missing))
    assert part["lines_with_unknown"] == sum(not known >= set(line) for poem in SEVEN for line in poem)
    assert sum(part["commonest_unknown"].values()) == len(missing)
    assert character_coverage([], poem_processor()).as_dict()["covered"] == 1


def test_a_poem_is_four_examples():
    processor = poem_processor()
    poems = [{"lines": poem} for poem in POEMS]
    report = PoemReport()
    tokenized = tokenize_poems(poems, processor, report)
    assert len(tokenized) == report.lines == 24
    examples = list(poem_lines(poems, processor.poem_keywords))
    for row, example in zip(tokenized, examples, strict=True):
        assert example["line"] == POEMS[example["poem"]][example["number"]]
        assert example["before"] == POEMS[example["poem"]][: example["number"]]
        assert example["keyword"] == processor.poem_keywords.of_line(example["line"])
        expected = processor(keywords=example["keyword"], lines=example["before"], text_target=example["line"])
        assert row == dict(expected)


def test_lines_without_a_word_in_the_vocabulary():
    known = poem_processor()
    poems = [{"lines": FIVE[0]}, {"lines": [*FIVE[0][:3], "鱼龙鸡犬羊"]}]
    report = PoemReport()
    assert len(tokenize_poems(poems, known, report)) == 7
    assert report.as_dict() == {"lines": 7, "unknown_keywords": 1}
    with pytest.raises(ValueError, match="no line can be used"):
        tokenize_poems([{"lines": ["鱼龙鸡犬羊"] * 4}], known)
    with pytest.raises(ValueError, match="has no poem_keywords"):
        tokenize_poems(poems, HamProcessor(known.tokenizer))

import json

import pytest

from hier_models.data import BadLineError, LoadReport, load_documents
from hier_models.data.cleaning import has_words, load_fillers, remove_fillers


ENGLISH = load_fillers("english")


@pytest.mark.parametrize(
    ("text", "expected", "count"),
    [
        ("So, um, we go.", "So, we go.", 1),
        ("Um, I think", "I think", 1),
        ("UH-HUH. Right", "Right", 1),  # any case, and the longer filler rather than "uh"
        ("Okay. Um. Right.", "Okay. Right.", 1),  # a sentence of its own goes with its full stop
        ("Um... Uh? Yes", "Yes", 2),
        ("Mm - hmm . Uh -huh. So", "So", 2),  # as tokenised transcripts write them
        ("um - yes", "- yes", 1),
        ("it, uh.", "it.", 1),
        ("we go um .", "we go .", 1),
        ("we go, uh", "we go", 1),
        ("um, uh, you know, yes", "yes", 3),
        ("um,um,um", "", 3),
        ("do you know the way, you know, home", "do you know the way, home", 1),  # only before a comma
        ("YOU  know , well", "well", 1),
        ("I like it", "I like it", 0),
        ("(um yes) (yes um)", "(yes) (yes)", 2),
        ("umbrella Bochum um", "umbrella Bochum", 1),  # whole words only
        ("non-um um-brella", "non-um um-brella", 0),
        ("um's d'um um\u2019s", "um's d'um um\u2019s", 0),
        ("um\u0301 u\u0301m e\u0301 um", "um\u0301 u\u0301m e\u0301", 1),  # letters with combining accents
        ("5 mm and 5mm mm", "5 mm and 5mm", 1),  # millimetres
        ("{vocalsound} Hi {disfmarker} there{gap}", "Hi there", 3),
        ("x   um   y\t", "x   y\t", 1),
        ("a\r\num\r\nb um\n", "a\r\n\r\nb\n", 2),  # line breaks stay
        ("日本 um 語 👩‍👩‍👧 é", "日本 語 👩‍👩‍👧 é", 1),
        ("", "", 0),
    ],
)
def test_words_that_go_and_what_stays(text, expected, count):
    assert remove_fillers(text, ENGLISH) == (expected, count)


def test_every_other_character_stays():
    """Whatever the fillers, what is left is the text with characters taken out, and without fillers."""
    pieces = [
        "um",
        "uh,",
        "you know,",
        " ",
        "  ",
        "\n",
        ",",
        ".",
        "?",
        "a",
        "é",
        "e\u0301",
        "-",
        "'",
        "(",
        ")",
        "7 mm",
        "👩‍👧",
    ]
    for seed in range(300):
        text = "".join(pieces[(seed * 7 + i * i * (seed % 11 + 1)) % len(pieces)] for i in range(14))
        cleaned, count = remove_fillers(text, ENGLISH)
        rest = iter(text)
        assert all(character in rest for character in cleaned), (text, cleaned)
        lost = len(text) - len(cleaned)
        assert (lost > 0) == (count > 0)
        assert sum(map(str.isalnum, text)) - sum(map(str.isalnum, cleaned)) <= 9 * count
        assert text.count("\n") == cleaned.count("\n")
        assert text.count("é") == cleaned.count("é")


def test_a_long_transcript_takes_no_time():
    text = "Well, um, I think so. " * 20_000 + " " * 100_000 + "um" + " " * 100_000
    cleaned, count = remove_fillers(text, ENGLISH)
    assert count == 20_001
    assert cleaned.startswith("Well, I think so. Well,")


def test_lexicons(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("\ufeff# ours\n\n  at the  end of the day \nno,\n# no more\nno,\n", encoding="utf-8")
    assert load_fillers(path) == load_fillers(str(path)) == ("at the end of the day", "no,")
    assert load_fillers(["b", " a "]) == ("a", "b")
    text = "No, at the end of  the DAY no way"
    assert remove_fillers(text, load_fillers(path)) == ("no way", 2)
    assert {"um", "uh-huh", "you know,"} <= set(ENGLISH)
    assert not {"yeah", "okay", "no", "you know"} & set(ENGLISH)


@pytest.mark.parametrize(
    ("fillers", "error", "message"),
    [
        (
            "englisch",
            FileNotFoundError,
            r"fillers='englisch' is neither a file nor a lexicon of the package \(english\)",
        ),
        ([], ValueError, r"fillers=\[\] holds no filler"),
        (["", " , "], ValueError, "holds no filler"),
        ([3], ValueError, "fillers must be words, got 3"),
    ],
)
def test_lexicons_that_are_none(fillers, error, message):
    with pytest.raises(error, match=message):
        load_fillers(fillers)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"um\n\xff\xfe\n")
    with pytest.raises(ValueError, match=r"fillers: .*a\.txt is not UTF-8"):
        load_fillers(tmp_path / "a.txt")


def test_words():
    assert all(has_words(text) for text in ("a", "语.", "7"))
    assert not any(has_words(text) for text in ("", " .,?—"))


# In load_documents


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


MEETINGS = [
    {"id": "1", "turns": [["Ann", "Um, hello."], ["Bob", "Uh."], ["Bob", " "], ["Ann", None]], "summary": "um, a"},
    {"id": "2", "turns": [["Ann", "Bye."]], "summary": "b"},
]


@pytest.mark.parametrize("streaming", [False, True])
def test_transcripts(tmp_path, streaming, caplog):
    path = write(tmp_path / "a.jsonl", MEETINGS)
    report = LoadReport()
    for times in (1, 2):  # also from the cache
        dataset = load_documents(path, fillers="english", streaming=streaming, report=report)
        assert list(dataset) == [
            {"turns": [{"role": "Ann", "content": "hello."}], "summary": "um, a", "id": "1"},
            {"turns": [{"role": "Ann", "content": "Bye."}], "summary": "b", "id": "2"},
        ]
        assert set(dataset.column_names or dataset.features) == {"turns", "summary", "id"}
        assert (report.filler_words, report.dropped_turns) == (2 * times, 3 * times)
    assert report.as_dict()["dropped_turns"] == 6
    if not streaming:
        assert "2 filler words taken out, 3 turns without words left out" in caplog.text


def test_turns_without_words_are_left_out_and_counted_without_fillers_too(tmp_path):
    report = LoadReport()
    dataset = load_documents(write(tmp_path / "a.jsonl", MEETINGS), report=report)
    assert [[turn["content"] for turn in turns] for turns in dataset["turns"]] == [["Um, hello.", "Uh."], ["Bye."]]
    assert (report.filler_words, report.dropped_turns) == (0, 2)


def test_running_text_and_sentences(tmp_path):
    report = LoadReport()
    path = write(tmp_path / "a.jsonl", [{"text": "Um, hello. Uh. Bye."}])
    assert list(load_documents(path, fillers=["um", "uh"], report=report)["text"]) == ["hello. Bye."]
    path = write(tmp_path / "b.jsonl", [{"sentences": ["Um, hello.", "Uh.", "", "Bye."]}])
    (sentences,) = load_documents(path, fillers=["um", "uh"], report=report)["sentences"]
    assert sentences == ["hello.", "", "Bye."]  # an empty sentence was the user's own
    assert (report.filler_words, report.dropped_turns) == (4, 1)
    plain = LoadReport()
    load_documents(path, report=plain)
    assert plain.as_dict() == {"set_aside": 0, "set_aside_file": None}


@pytest.mark.parametrize("row", [{"turns": [["A", "Um."]]}, {"turns": [["A", "{gap}"], ["B", ""]]}])
def test_nothing_but_fillers(tmp_path, row):
    path = write(tmp_path / "a.jsonl", [*MEETINGS, {**row, "summary": "c", "id": "3"}])
    with pytest.raises(BadLineError, match=r"a\.jsonl:3: column 'turns' has no words left when the fillers are taken"):
        load_documents(path, fillers="english")
    report = LoadReport()
    aside = {"bad_lines": "set_aside", "set_aside_file": tmp_path / "aside.jsonl"}
    dataset = load_documents(path, fillers="english", report=report, **aside)
    assert len(dataset) == 2
    assert (report.set_aside, report.filler_words) == (1, 2)


def test_another_lexicon_is_no_longer_what_was_cached(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": "um hello er"}])
    texts = [load_documents(path, fillers=fillers)["text"][0] for fillers in (None, ["um"], ["um", "er"])]
    assert texts == ["um hello er", "hello er", "hello"]

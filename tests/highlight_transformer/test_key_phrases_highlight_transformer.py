"""KeyPhraseExtractor: candidates, tf-idf against scikit-learn, bounded memory, any script, saving."""

import copy
import itertools
import json
import pickle
import random
import re
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from hier_models.data.stopwords import load_stopwords
from hier_models.models import key_phrase_extraction as key_phrases
from hier_models.models.key_phrase_extraction import KeyPhraseExtractor
from hier_models.models.phrase_spans import Phrase
from hier_models.models.phrase_words import split_words
from tests.conftest import DOCUMENTS, SUMMARIES, document_frequency


STOPWORDS = load_stopwords("en")


def candidates(text: str, stopwords: Any = STOPWORDS, lengths: tuple[int, ...] = (2, 3)) -> list[str]:
    """Candidates of plain English, one by one."""
    found = []
    for piece in re.split(r"[^a-zA-Z0-9\s'-]|\n\s*\n", text):
        words = re.findall(r"[a-z0-9]+(?:'[a-z0-9]+)*", piece.lower())
        for n in lengths:
            for i in range(len(words) - n + 1):
                run = words[i : i + n]
                if all(len(word) > 1 and word not in stopwords for word in run) and not "".join(run).isdigit():
                    found.append(" ".join(run))
    return found


def corpus(size: int, seed: int = 0) -> list[str]:
    """Documents of made-up sentences in which words come as often as in real ones."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 7))) for _ in range(200)]
    weights = [1 / (i + 1) for i in range(len(words))]
    return [
        " ".join(
            " ".join(rng.choices(["the", *words], [1.0, *weights], k=rng.randint(3, 15))) + rng.choice([".", ",", ""])
            for _ in range(rng.randint(1, 12))
        )
        for _ in range(size)
    ]


# ----------------------------------------------------------------------------------------------------- words, scripts


@pytest.mark.parametrize(
    ("text", "words", "beside"),
    [
        ("The U.S. Senate's state-of-the-art", "the u s senate's state of the art", [1, 0, 0, 1, 1, 1, 1]),
        ("Don’t — stop\nnow\n\nplease", "don't stop now please", [0, 1, 0]),
        ("naïve café", "naïve café", [1]),
        ("हिन्दी में समाचार", "हिन्दी में समाचार", [1, 1]),
        ("天气很好。明天", "天 气 很 好 明 天", [1, 1, 1, 0, 1]),
        ("ไทย ง่าย", "ไ ท ย ง่ า ย", [1] * 5),
        ("한국어 뉴스", "한국어 뉴스", [1]),
        ("Привет, мир", "привет мир", [0]),
        ("می‌خواهم بالعالم", "می‌خواهم بالعالم", [1]),
        ("གསར་འགྱུར", "གསར འགྱུར", [1]),
        ("GPT4を使う", "gpt4 を 使 う", [1, 1, 1]),
        ("İstanbul STRASSE", "i̇stanbul strasse", [1]),
        ("a\x00b", "a b", [0]),
        ("a_b", "a b", [0]),
        ("", "", []),
        (" … ", "", []),
    ],
)
def test_words(text: str, words: str, beside: list[int]) -> None:
    found, bounds, linked = split_words(text)
    assert found == words.split()
    assert linked.astype(int).tolist() == beside
    assert len(bounds) == len(found)
    for word, (start, end) in zip(found, bounds.tolist(), strict=True):
        assert text[start:end].lower().replace("’", "'") == word


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_words_of_any_text(text: str) -> None:
    words, bounds, beside = split_words(text)
    assert len(beside) == max(0, len(words) - 1)
    covered = {i for start, end in bounds.tolist() for i in range(start, end)}
    assert all(text[i].isalnum() == (i in covered) for i in range(len(text)) if text[i].isalnum())
    for word, (start, end) in zip(words, bounds.tolist(), strict=True):
        assert text[start:end].lower().replace("’", "'") == word
    KeyPhraseExtractor().fit([text, text], min_documents=1).find(text)


# ------------------------------------------------------------------------------------------------------------ tf-idf


def test_tf_idf_is_scikit_learns() -> None:
    """All of a document's candidates, when it is in the corpus and everything of that is kept."""
    texts = [*corpus(60), *DOCUMENTS, *SUMMARIES]
    vectorizer = TfidfVectorizer(analyzer=candidates).fit(texts)
    names = vectorizer.get_feature_names_out()
    extractor = KeyPhraseExtractor(STOPWORDS, top_k=10**6).fit(texts, min_documents=1)
    assert len(extractor) == len(names)
    for text, row in zip(texts, vectorizer.transform(texts).toarray(), strict=True):
        expected = {name: value for name, value in zip(names, row, strict=True) if value > 0}
        found = {" ".join(split_words(phrase.text)[0]): phrase.value for phrase in extractor.find(text)}
        assert found == pytest.approx(expected, rel=1e-12)
        values = [phrase.value for phrase in extractor.find(text)]
        assert values == sorted(values, reverse=True)


def test_the_top_ten_have_a_norm_of_one() -> None:
    texts = corpus(80)
    extractor = KeyPhraseExtractor(STOPWORDS).fit(texts[:60], min_documents=1)
    vectorizer = TfidfVectorizer(analyzer=candidates, norm=None).fit(texts[:60])
    for text in texts[60:]:
        known = {k: vectorizer.idf_[i] for k, i in vectorizer.vocabulary_.items()}
        rare = np.log(61) + 1  # what no document of the corpus has
        scores = {phrase: n * known.get(phrase, rare) for phrase, n in Counter(candidates(text)).items()}
        best = sorted(scores.values(), reverse=True)[:10]
        found = extractor.find(text)
        assert [phrase.value for phrase in found] == pytest.approx(np.array(best) / np.linalg.norm(best))
        for phrase in found:
            assert scores[phrase.text.lower().replace("-", " ")] == pytest.approx(phrase.value * np.linalg.norm(best))
            assert len(phrase.spans) == candidates(text).count(phrase.text.lower())


def test_places_and_looks_of_a_phrase() -> None:
    text = "Solar  Power grows. But solar power, solar\npower; SOLAR-POWER."
    extractor = KeyPhraseExtractor(["but"]).fit([text, "grows"], min_documents=1)
    first = extractor.find(text)[0]
    assert first.text == "Solar Power"
    assert [text[start:end] for start, end in first.spans] == [
        "Solar  Power", "solar power", "solar\npower", "SOLAR-POWER",
    ]  # fmt: skip


def test_of_equals_the_earlier_comes_first() -> None:
    extractor = KeyPhraseExtractor(top_k=3).fit(["zeta eta", "other"], min_documents=1)
    found = extractor.find("mu nu. kappa lambda. gamma delta epsilon.")
    assert [phrase.text for phrase in found] == ["mu nu", "kappa lambda", "gamma delta"]


def test_numbers_and_letters_alone_are_no_phrases() -> None:
    extractor = KeyPhraseExtractor(STOPWORDS).fit(["x", "y"], min_documents=1)
    assert extractor.find("93 93 93. 2 2 v 3. x y z.") == []
    assert [phrase.text for phrase in extractor.find("Boeing 737 of 2019 2020")] == ["Boeing 737"]


def test_of_stopwords_alone_there_are_no_phrases() -> None:
    extractor = KeyPhraseExtractor(STOPWORDS).fit(DOCUMENTS)
    assert extractor.find("It was what it was, and that is that.") == []
    assert extractor.find("") == []
    assert KeyPhraseExtractor(STOPWORDS).fit(["the of", ""]).find("the of") == []


def test_ranges() -> None:
    text = "solar power grid solar power plant"
    extractor = KeyPhraseExtractor().fit([text, ""], min_documents=1)
    every = {phrase.text for phrase in extractor.find(text)}
    assert {phrase.text for phrase in extractor.find(text, [(0, len(text))])} == every
    assert {phrase.text for phrase in extractor.find(text, [(0, 16)])} == {
        "solar power",
        "power grid",
        "solar power grid",
    }
    # The last word is cut, or the first.
    assert {phrase.text for phrase in extractor.find(text, [(0, 15)])} == {"solar power"}
    assert {phrase.text for phrase in extractor.find(text, [(2, 16)])} == {"power grid"}
    assert extractor.find(text, [(2, 4)]) == []
    assert KeyPhraseExtractor(top_k=9).fit([text]).find("rock's solar don't", [(4, 17)]) == []
    (phrase,) = extractor.find(text, [(0, 11), (17, 28)])
    assert phrase == Phrase("solar power", 1.0, ((0, 11), (17, 28)))
    assert extractor.find(text, [(0, 0), (3, 4)]) == []
    chinese = "今天天气很好"
    assert "天气" in {phrase.text for phrase in extractor.find(chinese, [(1, 4)])}


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("北京天气很好。上海天气不好。", "天气"),
        ("Новости дня. Главные новости дня.", "Новости дня"),
        ("आज का समाचार पत्र और समाचार पत्र", "समाचार पत्र"),
        ("أخبار اليوم، أخبار اليوم", "أخبار اليوم"),
        ("속보 뉴스 기사, 오늘 뉴스 기사", "뉴스 기사"),
        ("ข่าววันนี้ ข่าวด่วน", "ข่า"),
    ],
)
def test_other_scripts(text: str, phrase: str) -> None:
    extractor = KeyPhraseExtractor(STOPWORDS).fit(["x y", text[:1]], min_documents=1)
    found = extractor.find(text)
    assert found[0].text.startswith(phrase)
    for one in found:
        assert {" ".join(text[start:end].lower().split()) for start, end in one.spans} == {one.text.lower()}


# ----------------------------------------------------------------------------------------------------------- fitting


def test_accents_are_part_of_their_letters_or_apart() -> None:
    extractor = KeyPhraseExtractor(["für"]).fit(["das große Café für müde Gäste"] * 3)
    for form in ("NFC", "NFD"):
        text = unicodedata.normalize(form, "große Café für müde Gäste")
        found = extractor.find(text)
        assert [phrase.text for phrase in found] == [
            unicodedata.normalize(form, phrase) for phrase in ("große Café", "müde Gäste")
        ]
        assert [text[start:end] for phrase in found for start, end in phrase.spans] == [p.text for p in found]
        assert [document_frequency(extractor, phrase.text) for phrase in found] == [3, 3]


def test_a_document_may_be_articles_and_the_corpus_a_generator() -> None:
    texts = corpus(30)
    joined = KeyPhraseExtractor(STOPWORDS).fit(f"{a}\n\n{b}" for a, b in itertools.pairwise(texts))
    apart = KeyPhraseExtractor(STOPWORDS).fit([a, b] for a, b in itertools.pairwise(texts))
    assert joined.documents == apart.documents == 29
    assert [joined.find(text) for text in texts] == [apart.find(text) for text in texts]


def test_document_frequencies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_phrases, "_GATHERED", 50)  # many small merges
    texts = corpus(120, seed=1)
    extractor = KeyPhraseExtractor(STOPWORDS).fit(texts, min_documents=1)
    expected = Counter(phrase for text in texts for phrase in set(candidates(text)))
    assert len(extractor) == len(expected)
    assert {phrase: document_frequency(extractor, phrase) for phrase in expected} == expected
    assert document_frequency(extractor, "purple elephants") == 0
    assert extractor.uncounted == 0


def test_what_is_kept() -> None:
    texts = corpus(120, seed=2)
    counts = Counter(phrase for text in texts for phrase in set(candidates(text)))
    extractor = KeyPhraseExtractor(STOPWORDS).fit(texts, min_documents=5)
    assert len(extractor) == sum(n >= 5 for n in counts.values())
    few = KeyPhraseExtractor(STOPWORDS).fit(texts, max_phrases=20)
    assert 0 < len(few) <= 20
    kept = [n for phrase, n in counts.items() if document_frequency(few, phrase)]
    assert min(kept) > sorted(counts.values())[-21] - 1
    # Of a tie some, the same in any order of the documents.
    for size in (1, 50, 200):
        some, backwards = (KeyPhraseExtractor(STOPWORDS).fit(t, max_phrases=size) for t in (texts, texts[::-1]))
        assert len(some) == size
        assert some._keys.tolist() == backwards._keys.tolist() == sorted(some._keys.tolist())
        assert sorted(some._counts.tolist()) == sorted(counts.values())[-size:]


def test_memory_is_bounded_and_the_error_known(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = corpus(400, seed=3)
    counts = Counter(phrase for text in texts for phrase in set(candidates(text)))
    sizes = []
    merge = key_phrases._Table._merge

    def watched(table: Any) -> None:
        merge(table)
        sizes.append(len(table.keys))

    monkeypatch.setattr(key_phrases._Table, "_merge", watched)
    extractor = KeyPhraseExtractor(STOPWORDS).fit(texts, min_documents=1, max_counted=500)
    assert len(counts) > 2000
    assert max(sizes) <= 500
    assert extractor.uncounted > 0
    for phrase, n in counts.items():
        assert 0 <= n - document_frequency(extractor, phrase) <= extractor.uncounted
    most = [phrase for phrase, n in counts.items() if n > extractor.uncounted]
    assert all(document_frequency(extractor, phrase) for phrase in most)


def test_memory_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_phrases, "_WORDS_IN_MEMORY", 10)
    texts = corpus(40, seed=4)
    extractor = KeyPhraseExtractor(STOPWORDS).fit(texts)
    monkeypatch.undo()
    same = KeyPhraseExtractor(STOPWORDS).fit(texts)
    assert [extractor.find(text) for text in texts] == [same.find(text) for text in texts]
    assert len(extractor._hashes) < 10_000


def test_use_does_not_change_what_is_pickled() -> None:
    extractor = KeyPhraseExtractor(STOPWORDS).fit(corpus(20))
    state = pickle.dumps(extractor)
    extractor.find(DOCUMENTS[0])
    assert pickle.dumps(extractor) == state
    for other in (pickle.loads(state), copy.deepcopy(extractor)):
        assert other.find(DOCUMENTS[0]) == extractor.find(DOCUMENTS[0])


# ------------------------------------------------------------------------------------------------------------ saving


def test_save_and_load(tmp_path: Path) -> None:
    texts = corpus(50)
    extractor = KeyPhraseExtractor(STOPWORDS, lengths=(1, 3), top_k=4).fit(texts)
    file = tmp_path / "key_phrases.json"
    extractor.save(file)
    loaded = KeyPhraseExtractor.load(file)
    assert repr(loaded) == repr(extractor)
    assert [loaded.find(text) for text in texts] == [extractor.find(text) for text in texts]
    content = json.loads(file.read_text(encoding="utf-8"))
    assert (content["documents"], content["lengths"], content["top_k"]) == (50, [1, 3], 4)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()
    assert loaded.fit(texts[:3]).documents == 3  # it can be fitted anew


def test_words_are_the_same_numbers_on_every_machine() -> None:
    extractor = KeyPhraseExtractor().fit(["solar power"], min_documents=1)
    assert extractor._keys.tolist() == [SOLAR_POWER]


# Written down once: files that were saved before would be of no use with another.
SOLAR_POWER = 6390167328621022760


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "hier_models key phrases 9"}, "is in the format 'hier_models key phrases 9'"),
        ({"keys": "???"}, "is damaged"),
        ({"counts": "eJwDAAAAAAE="}, r"is damaged: .*\d+ keys, 0 counts"),
        ({"documents": None}, "is damaged"),
        ({"top_k": 0}, "is damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = tmp_path / "key_phrases.json"
    KeyPhraseExtractor().fit(corpus(9), min_documents=1).save(file)
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, **change}), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        KeyPhraseExtractor.load(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", "1"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key_phrases.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="is no file of key phrases"):
        KeyPhraseExtractor.load(file)


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stopwords": "the of"}, "`stopwords` must be a list of words, got the string"),
        ({"stopwords": ["the", 3]}, "`stopwords` must be words, got 3"),
        ({"lengths": ()}, "`lengths` must be numbers of words"),
        ({"lengths": (0, 1)}, "`lengths` must be numbers of words"),
        ({"lengths": (2.0,)}, "`lengths` must be numbers of words"),
        ({"top_k": 0}, "`top_k` must be an integer of at least 1, got 0"),
        ({"top_k": True}, "`top_k` must be an integer"),
    ],
)
def test_bad_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        KeyPhraseExtractor(**arguments)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "`texts` has no document"),
        ("one text", {}, "`texts` must be documents, got one string"),
        (["a", 3], {}, "document 1 of `texts` must be a string or a list of strings, got int"),
        ([["a", None]], {}, "document 0 of `texts` must be"),
        (["a"], {"max_phrases": 0}, "`max_phrases` must be an integer of at least 1"),
        (["a"], {"min_documents": 1.5}, "`min_documents` must be an integer"),
        (["a"], {"max_counted": -1}, "`max_counted` must be an integer"),
    ],
)
def test_bad_documents(texts: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        KeyPhraseExtractor().fit(texts, **options)


def test_not_fitted() -> None:
    with pytest.raises(ValueError, match="the KeyPhraseExtractor is not fitted"):
        KeyPhraseExtractor().find("solar power")

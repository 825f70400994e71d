import itertools
import json
import math
import sys
from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models.models import keywords as keywords_room
from hier_models.models.keywords import STOPWORDS, PoemKeywords, chinese_runs, is_chinese, segment, text_rank
from tests import forks
from tests.ham.poems import POEMS


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def keywords() -> PoemKeywords:
    return PoemKeywords.fit(POEMS, "characters", min_count=1)


def test_chinese_characters():
    assert chinese_runs("春风,abc江南\n二〇〇六 𠀀") == ["春风", "江南", "二〇〇六", "𠀀"]
    assert is_chinese("春风𠀀")
    assert not is_chinese("")
    assert not is_chinese("春风。")
    assert not is_chinese("さくら")


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_runs_are_all_the_chinese_of_a_text(text):
    assert "".join(chinese_runs(text)) == "".join(c for c in text if is_chinese(c))
    assert segment(text, "characters") == [c for c in text if is_chinese(c)]


def test_words_are_jieba_s():
    assert segment("春风吹过江南，hello 明月", "words") == ["春风", "吹", "过", "江南", "明月"]


def test_without_jieba_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    keywords_room._jieba.cache_clear()
    with pytest.raises(ImportError, match="pip install jieba"):
        segment("春风", "words")
    keywords_room._jieba.cache_clear()
    assert segment("春风", "characters") == ["春", "风"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=12), max_size=5))
def test_text_rank_is_networkx_pagerank(sequences):
    graph = networkx.Graph()
    for words in sequences:
        graph.add_nodes_from(words)
        for i, j in itertools.combinations(range(len(words)), 2):
            if j - i < keywords_room.WINDOW and words[i] != words[j]:
                weight = graph.get_edge_data(words[i], words[j], {"weight": 0})["weight"]
                graph.add_edge(words[i], words[j], weight=weight + 1)
    ranked = text_rank(sequences)
    expected = networkx.pagerank(graph, alpha=0.85, max_iter=500, tol=1e-14) if len(graph) else {}
    assert ranked == pytest.approx(expected, abs=1e-9)


def test_the_keyword_of_a_line_is_its_most_important_word(keywords):
    scores = text_rank([[c for line in poem for c in line if c not in STOPWORDS] for poem in POEMS])
    for line in itertools.chain(*POEMS):
        known = [c for c in line if c in scores]
        assert scores[keywords.of_line(line)] == max(scores[c] for c in known)
    assert keywords.of_line("鱼龙") == "鱼"  # none is in the corpus
    assert keywords.of_line("不的鱼") == "鱼"
    assert keywords.of_line("不的") == "不"
    assert keywords.of_line("春风", lambda word: word == "风") == "风"
    assert keywords.of_line("春风", lambda word: False) is None
    with pytest.raises(ValueError, match=r"`line` must have Chinese characters, got 'abc'"):
        keywords.of_line("abc")


def test_plain_verbs_are_no_keywords_but_where_there_is_nothing_else():
    words = PoemKeywords.fit(POEMS, "words", min_count=1)
    assert {"吹", "归", "笑看"}.isdisjoint(words.words)
    assert {"花", "春风", "明月"} <= set(words.words)  # 花 is a verb in jieba's dictionary, but not in its compounds
    assert words.extract("春风吹花") == ["春风", "花"]
    assert words.extract("吹") == ["吹"]
    assert words.of_line("吹春风") == "春风"


def test_without_quatrains_nothing_is_known_of_sounds(keywords, tmp_path):
    assert keywords.sounds.level
    lines = PoemKeywords.fit([["春风", "明月"]], "characters", min_count=1)
    assert lines.sounds is None
    lines.save(tmp_path / "k.json")
    assert PoemKeywords.load(tmp_path / "k.json").sounds is None
    # As it was before there were sounds.
    content = json.loads((tmp_path / "k.json").read_text(encoding="utf-8"))
    del content["sounds"]
    (tmp_path / "k.json").write_text(json.dumps(content), encoding="utf-8")
    assert PoemKeywords.load(tmp_path / "k.json").words == lines.words


def test_keywords_of_a_text(keywords):
    text = "春风吹，春风到江南。江南的春天，青山，明月。"
    found = keywords.extract(text)
    assert len(found) == 4
    ranked = text_rank([[c for c in text if is_chinese(c) and c not in STOPWORDS]])
    assert found[0] == "春" == max(ranked, key=ranked.__getitem__)
    assert [round(ranked[c], 9) for c in found] == sorted((round(ranked[c], 9) for c in found), reverse=True)
    assert keywords.extract("山") == ["山"]
    assert "春" not in keywords.extract(text, usable=lambda word: word != "春")
    assert keywords.extract("的不了") == []
    for nothing in ("", "Spring wind", "。！"):
        with pytest.raises(ValueError, match="`text` must have Chinese characters"):
            keywords.extract(nothing)


def test_words_are_added_by_the_poems_that_they_share(keywords):
    poems = [set("".join(poem)) for poem in POEMS]

    def association(one, other):
        both = sum({one, other} <= poem for poem in poems)
        of_one, of_other = (sum(word in poem for poem in poems) / len(poems) for word in (one, other))
        return both * math.log(both / len(poems) / (of_one * of_other))

    # Three share both of its poems, and one of them is in no other.
    found = keywords.expand(["雨"])
    assert found[:2] == ["雨", "间"]
    assert set(found[2:]) == {"青", "山"}
    numbers = {word: number for number, word in enumerate(keywords.words)}
    near = {keywords.words[number]: value for number, value in keywords._neighbours[numbers["雨"]]}
    assert near == pytest.approx({word: association("雨", word) for word in found[1:]})
    assert keywords.expand(["春", "风", "山", "月"]) == ["春", "风", "山", "月"]
    assert keywords.expand(found) == found


def test_words_that_the_corpus_does_not_have(keywords):
    most = sorted(keywords.words, key=lambda word: -keywords._scores[word])
    assert keywords.expand([]) == most[:4]
    assert keywords.expand(["龙"]) == ["龙", *most[:3]]
    # A word that is not there goes by its parts.
    assert keywords.expand(["雨龙"])[1:] == keywords.expand(["雨"])[1:]
    assert most[0] not in keywords.expand([], usable=lambda word: word != most[0])
    few = PoemKeywords(["春", "风"], [0.5, 0.5], [[], []], "characters")
    with pytest.raises(ValueError, match=r"`keywords`: 4 are needed, and the corpus of 2 words has no more"):
        few.expand(["雨"])


def test_a_word_with_few_neighbours_goes_by_its_characters():
    words = ["人", "春天", "春", "花", "雨", "天", "云"]
    neighbours = [[], [(4, 1.0)], [(3, 2.0), (4, 9.0)], [], [], [(6, 1.5)], []]
    keywords = PoemKeywords(words, [0.5, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05], neighbours)
    assert keywords.expand(["春天"]) == ["春天", "雨", "花", "云"]
    assert keywords.expand(["人"]) == ["人", "春天", "花", "雨"]


def test_pairs_in_few_poems_go_together_by_chance():

    poems = [["雨云"]] * 2 + [["雨山"]] * 3 + [["云水"]] * 3 + [["山"]] * 9
    near = {}
    for least in (1, 3):
        keywords = PoemKeywords.fit(poems, "characters", min_count=least)
        near[least] = {keywords.words[n] for n, _ in keywords._neighbours[keywords.words.index("雨")]}
    assert near == {1: {"云"}, 3: set()}


def test_saved_and_read(keywords, tmp_path):
    keywords.save(tmp_path / "k.json")
    loaded = PoemKeywords.load(tmp_path / "k.json")
    assert (loaded.words, loaded.unit) == (keywords.words, "characters")
    for words in ([], ["雨"], ["春", "龙"]):
        assert loaded.expand(words) == keywords.expand(words)
    loaded.save(str(tmp_path / "again.json"))
    assert PoemKeywords.load(str(tmp_path / "again.json")).words == keywords.words
    (tmp_path / "bad.json").write_text(json.dumps({"version": 9}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.json does not hold keywords of poems \(it has no version 1\)"):
        PoemKeywords.load(tmp_path / "bad.json")


def test_what_cannot_be_fitted():
    with pytest.raises(ValueError, match="`unit` must be one of words, characters, got 'lines'"):
        PoemKeywords.fit(POEMS, "lines")
    with pytest.raises(ValueError, match=r"no word is in 99 poems or more of the 6"):
        PoemKeywords.fit(POEMS, "characters", min_count=99)
    with pytest.raises(ValueError, match="`max_words` must be an integer of at least 1, got 0"):
        PoemKeywords.fit(POEMS, "characters", max_words=0)
    with pytest.raises(TypeError, match="must be lists of lines"):
        PoemKeywords.fit(["春风"], "characters")
    assert len(PoemKeywords.fit(POEMS, "characters", max_words=7, min_count=1).words) == 7


@pytest.mark.slow
def test_fitting_is_the_same_in_every_process(keywords, tmp_path):
    keywords.save(tmp_path / "here.json")
    code = (
        "import sys, pathlib; from tests.ham.poems import POEMS; "
        "from hier_models.models.keywords import PoemKeywords; "
        "PoemKeywords.fit(POEMS, 'characters', min_count=1).save(pathlib.Path(sys.argv[1]))"
    )
    done = forks.run(code, str(tmp_path / "there.json"), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()

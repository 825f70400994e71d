"""What poems say of how their characters sound, and lines that rhyme and have tones."""

import itertools
import random

import pytest
import torch

from hier_models.models.line_length import EARLIER, PoemFormLogitsProcessor, RepeatedCharacterLogitsProcessor
from hier_models.models.poem_sounds import FORMS, LEVEL, OBLIQUE, PATTERNS, PoemSounds


LEVELS, OBLIQUES = "东同风空江窗双邦支枝移吹", "送贡弄冻绛巷降撞寘避智翅"
RHYMES = [LEVELS[i : i + 4] for i in (0, 4, 8)] + [OBLIQUES[i : i + 4] for i in (0, 4, 8)]


def rhyme(character):
    return next(one for one in RHYMES if character in one)


def written_by_rule(number, length, random):
    """A quatrain of one form, its lines 2 and 4 (and a level 1) in rhyme; all free tones by chance."""
    form = random.choice(FORMS)
    level = random.choice(RHYMES[:3])
    lines = []
    for place, name in enumerate(form):
        line = [random.choice({"p": LEVELS, "z": OBLIQUES, "*": LEVELS + OBLIQUES}[t]) for t in PATTERNS[length][name]]
        if name in "BD" and place != 2:
            line[-1] = random.choice([c for c in level if c not in {line[-1] for line in lines}])
        lines.append("".join(line))
    return lines


@pytest.fixture(scope="module")
def sounds():
    chance = random.Random(0)
    return PoemSounds.fit([written_by_rule(n, (5, 7)[n % 2], chance) for n in range(600)])


def test_tones_and_rhymes_are_found_in_poems(sounds):
    assert set(sounds.level) == set(LEVELS)
    assert set(sounds.oblique) == set(OBLIQUES)
    assert {frozenset(one) for one in sounds.rhymes} == {frozenset(one) for one in RHYMES[:3]}
    for one, other in itertools.permutations(LEVELS, 2):
        assert sounds.rhyme(one, other) == (rhyme(one) == rhyme(other))
    assert not sounds.rhyme("东", "东")
    assert not sounds.rhyme("龙", "龙")
    assert not sounds.has_tone("龙", LEVEL)
    assert sounds.has_tone("龙", "*")
    again = PoemSounds(**sounds.as_dict())
    assert vars(again) == vars(sounds)


def test_characters_with_both_tones():
    chance = random.Random(1)
    mixed = str.maketrans({"吹": "看", "翅": "看"})
    poems = [[line.translate(mixed) for line in written_by_rule(n, 7, chance)] for n in range(600)]
    sounds = PoemSounds.fit(poems)
    assert sounds.has_tone("看", LEVEL)
    assert sounds.has_tone("看", OBLIQUE)


def test_forms(sounds):
    chance = random.Random(2)
    for number in range(40):
        lines = written_by_rule(number, 7, chance)
        assert sounds.forms(lines)
        assert set(sounds.forms(lines)) <= set(sounds.forms(lines[:2])) <= set(sounds.forms([])) == set(FORMS)
    # 平平仄仄仄平平 and 仄仄平平仄仄平 begin one form only.
    assert sounds.forms(["东同送贡弄空江", "送贡东同弄冻风"]) == ["DBCD"]
    assert sounds.forms(["东" * 7]) == []


def test_a_level_first_line_is_rhymed_with(sounds):
    assert sounds.to_rhyme_with([]) is None
    assert sounds.to_rhyme_with(["送贡东同东"]) == "东"
    assert sounds.to_rhyme_with(["送贡东同送"]) is None
    assert sounds.to_rhyme_with(["送", "东", "送"]) == "东"
    assert sounds.to_rhyme_with(["送", "东"]) is None


VOCABULARY = LEVELS + OBLIQUES
CHARACTERS = {number + 4: character for number, character in enumerate(VOCABULARY)}
IDS = {character: number for number, character in CHARACTERS.items()}


def left(rules, written, width=40):
    """The characters that may come next, of each row."""
    ids = torch.tensor([[2, *(IDS[c] for c in line)] for line in written])
    scores = rules(ids, torch.zeros(len(ids), width))
    return [{CHARACTERS[i] for i in CHARACTERS if row[i] > -torch.inf} for row in scores]


def test_tones_of_what_is_written_say_what_may_come(sounds):
    rules = PoemFormLogitsProcessor(sounds, [[], ["送贡东同弄"]], 5, CHARACTERS, rhyme=False, tones=True)
    everything, level, oblique = set(VOCABULARY), set(LEVELS), set(OBLIQUES)
    assert left(rules, ["", ""]) == [everything, level]  # after A comes B, which begins level
    assert left(rules, ["送贡", "东同"]) == [everything, everything]
    assert left(rules, ["送贡东", "东同送"]) == [level, oblique]  # of A and D, A is left
    assert left(rules, ["送贡送", "东同送"]) == [level, oblique]  # both are
    assert left(rules, ["送贡送东", "东同送贡"]) == [everything, level]
    assert left(rules, ["送贡东同", "东同送贡"]) == [oblique, level]
    # Each poem has its own beams.
    assert left(rules, [""] * 6) == [everything] * 3 + [level] * 3
    # Where nothing is left, everything is: a line that has gone wrong goes on.
    assert left(rules, ["东东东东", "东送贡东"]) == [everything, everything]


def test_ends_rhyme(sounds):
    poems = [[], ["送贡东同东"], ["送贡东同弄", "东同送贡风", "东东东贡送"], ["送贡东同弄", "东同送贡风"]]
    rules = PoemFormLogitsProcessor(sounds, poems, 5, CHARACTERS, rhyme=True, tones=False)
    ends = left(rules, ["送贡东同"] * 4)
    # The first may end obliquely; others must have something to rhyme with.
    assert ends == [set(VOCABULARY), set("同风空"), set("东同空"), set(VOCABULARY)]
    assert left(rules, ["送贡东"] * 4) == [set(VOCABULARY)] * 4
    second = PoemFormLogitsProcessor(sounds, [["送贡东同弄"]], 5, CHARACTERS, rhyme=True, tones=True)
    assert left(second, ["东同送贡"]) == [set(LEVELS)]


def test_no_character_twice():
    rules = RepeatedCharacterLogitsProcessor()
    assert left(rules, ["东同", "风风"], width=28) == [set(VOCABULARY) - set("东同"), set(VOCABULARY) - {"风"}]
    ids = torch.tensor([[2, IDS["东"]]] * 4)
    scores = RepeatedCharacterLogitsProcessor([[IDS["同"]] * 2, []])(ids, torch.zeros(4, 40))
    assert scores[:, IDS["同"]].tolist() == [-EARLIER, -EARLIER, 0, 0]
    assert scores[:, IDS["东"]].isneginf().all()
    assert scores[:, IDS["风"]].eq(0).all()

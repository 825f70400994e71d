"""How Chinese characters sound in poems, learned from poems: which ones rhyme, and whether their tone is level."""

import importlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np


LEVEL, OBLIQUE, EITHER = "p", "z", "*"  # ping and ze
# The lines of regulated quatrains. Where a tone is free, poets take either.
PATTERNS = {
    5: {"A": "*z*pz", "B": "pp*zp", "C": "*ppzz", "D": "*zzpp"},
    7: {"A": "*p*z*pz", "B": "*zpp*zp", "C": "*z*ppzz", "D": "*p*zzpp"},
}
FORMS = ("ABCD", "DBCD", "CDAB", "BDAB")
# Finer than modularity's own classes (1): without it, rhymes that sound alike become one.
RESOLUTION = 2.0
# A character that poets use as level this often, or as seldom, has one tone; others have both.
SURE = 0.8
ROUNDS = 12


class PoemSounds:
    """Which characters rhyme in a corpus of quatrains, and which tones they have there.

    Args:
        rhymes: The characters of each rhyme.
        level: Characters that can have the level tone (ping).
        oblique: Characters that can have an oblique tone (ze); many can have both.
    """

    def __init__(self, rhymes: Sequence[str], level: str, oblique: str) -> None:
        self.rhymes, self.level, self.oblique = list(rhymes), level, oblique
        self.rhyme_of = {character: number for number, one in enumerate(rhymes) for character in one}
        self._tones = {tone: frozenset(characters) for tone, characters in ((LEVEL, level), (OBLIQUE, oblique))}

    @classmethod
    def fit(cls, poems: Sequence[Sequence[str]]) -> "PoemSounds":
        """Learn from quatrains of 5 or 7 characters a line: rhymes from the ends of second and fourth lines.

        Rhymes are the communities of characters that end these lines of a poem together (Louvain). Tones are learned
        by expectation and maximization: which form each poem has, and which tones its characters then have. What is
        known at first is that second and fourth lines mostly end level, and third ones oblique.
        """
        pairs = Counter(tuple(sorted((poem[1][-1], poem[3][-1]))) for poem in poems)
        networkx: Any = importlib.import_module("networkx")  # comes with torch
        graph = networkx.Graph()
        graph.add_weighted_edges_from((one, other, n) for (one, other), n in sorted(pairs.items()) if one != other)
        found = networkx.community.louvain_communities(graph, resolution=RESOLUTION, seed=0) if graph else []
        rhymes = sorted("".join(sorted(characters)) for characters in found)
        characters = sorted({character for poem in poems for line in poem for character in line})
        level = _learn_tones(poems, characters)
        return cls(
            rhymes,
            "".join(c for c, share in zip(characters, level, strict=True) if share > 1 - SURE),
            "".join(c for c, share in zip(characters, level, strict=True) if share < SURE),
        )

    def has_tone(self, character: str, tone: str) -> bool:
        """Whether a character can have a tone; those that the corpus does not have can have none for sure."""
        return tone == EITHER or character in self._tones[tone]

    def rhyme(self, one: str, other: str) -> bool:
        """Whether two characters rhyme; none does with itself."""
        return one != other and self.rhyme_of.get(one, -1) == self.rhyme_of.get(other, -2)

    def to_rhyme_with(self, lines: Sequence[str]) -> str | None:
        """The end that the next line rhymes with, if any: the fourth with the second, this with a level first line."""
        if len(lines) == 1:
            end = lines[0][-1]
            return end if self.has_tone(end, LEVEL) and not self.has_tone(end, OBLIQUE) else None
        return lines[1][-1] if len(lines) == 3 else None

    def fits(self, line: str, pattern: str) -> bool:
        """Whether a line has the tones of a pattern."""
        return all(map(self.has_tone, line, pattern))

    def forms(self, lines: Sequence[str]) -> list[str]:
        """The forms of regulated quatrains that lines, the first of a poem or all four, have the tones of."""
        names = PATTERNS[len(lines[0])] if lines else {}
        return [form for form in FORMS if all(self.fits(line, names[n]) for line, n in zip(lines, form, strict=False))]

    def as_dict(self) -> dict[str, Any]:
        """What a file keeps."""
        return {"rhymes": self.rhymes, "level": self.level, "oblique": self.oblique}


def line_patterns(length: int, place: int, forms: Sequence[str] = FORMS) -> list[str]:
    """The patterns of tones that the line of a place, 0 to 3, has in forms."""
    return sorted({PATTERNS[length][form[place]] for form in forms})


def _learn_tones(poems: Sequence[Sequence[str]], characters: Sequence[str]) -> Any:
    """How often each character is level, (characters,): 0 never, 1 always."""
    numbers = {character: number for number, character in enumerate(characters)}
    counts = np.ones((2, len(characters)))  # level, oblique; each once, so that rare ones are sure of nothing
    parts = []
    for length, names in PATTERNS.items():
        own = [poem for poem in poems if len(poem[0]) == length]
        ids = np.array([[numbers[c] for line in poem for c in line] for poem in own], dtype=np.int64)
        ids = ids.reshape(len(own), 4 * length)
        tones = np.array([["*pz".index(tone) for name in form for tone in names[name]] for form in FORMS])
        parts.append((ids, tones))  # (poems, characters), (forms, characters)
        for line, tone in ((1, 0), (2, 1), (3, 0)):
            np.add.at(counts[tone], ids[:, (line + 1) * length - 1], 1)
    for _ in range(ROUNDS):
        level = counts[0] / counts.sum(axis=0)
        logs = np.log([np.full_like(level, 0.5), level, 1 - level])  # free, level, oblique
        counts = np.ones_like(counts)
        for ids, tones in parts:
            # The last of the forms is none: every tone by chance.
            of_forms = [logs[form, ids].sum(axis=1) for form in tones]
            scores = np.stack([*of_forms, np.full(len(ids), np.log(0.5) * ids.shape[1])], axis=1)
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            for number, form in enumerate(tones):
                for tone in (1, 2):
                    places = ids[:, form == tone]
                    weights = np.repeat(chances[:, number], places.shape[1])
                    counts[tone - 1] += np.bincount(places.ravel(), weights, minlength=len(characters))
    return counts[0] / counts.sum(axis=0)

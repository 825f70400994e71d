"""Keywords of poems: those of a text and of a poem's lines, by TextRank, and more that go with them in a corpus."""

import importlib
import json
import logging
import math
import os
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from .poem_sounds import PATTERNS, PoemSounds
from .text_inputs import check_integer


UNITS = ("words", "characters")
VERSION = 1

# Chinese characters: the unified ideographs with all extensions, the compatibility ones, and zero.
CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af\u3007"
_RUN = re.compile(f"[{CHINESE}]+")

# TextRank (Mihalcea and Tarau, 2004): words are linked within so many words, and the surfer follows a link so often.
WINDOW, DAMPING = 5, 0.85
# Words that share fewer poems go together by chance, even where single words of as few poems are kept.
LEAST_TOGETHER = 2

# What says nothing of what a poem is about: pronouns, particles, prepositions, negations, of now and of then.
_STOPWORDS = """
的 了 着 过 是 在 有 和 与 及 或 而 且 但 也 都 就 还 又 很 太 更 最 被 把 从 到 对 向 给 让 使 因 为 由 于 以 之
乎 者 矣 焉 哉 兮 其 所 则 乃 若 如 此 彼 这 那 哪 谁 何 什 么 怎 不 无 没 未 非 莫 勿 我 你 您 他 她 它 们 吾 汝
尔 余 咱 自 己 吗 呢 吧 啊 呀 嘛 个 些 只 每 各 某 即 便 亦 皆 既 却 虽 然 可 能 会 要 想 该 应 已 曾 将 正 才 再
须 欲 得 地 上 下 里 中 外 内 前 后 时 一 二 三 两 几 多 少 我们 你们 他们 她们 它们 自己 咱们 这个 那个 这些 那些
这样 那样 这里 那里 一个 一些 一样 一种 什么 怎么 怎样 为什么 为何 如何 如此 何处 何时 何人 何事 不知 不是 不能
不可 不得 不如 不见 没有 可以 可能 应该 能够 已经 曾经 正在 因为 所以 但是 而且 或者 如果 虽然 然而 只是 就是 还是
也是 都是 不要 非常 十分 时候 起来 出来 下来 可是 于是 以及 之间 之中 其中 无人 无事 不须 不堪 不为 一时 来 去 似
见 知 看 作 尽 犹 处 事 相 同 入 归 共 难 成 出 起
"""
STOPWORDS = frozenset(_STOPWORDS.split())


def chinese_runs(text: str) -> list[str]:
    """Find the Chinese characters of a text."""
    return _RUN.findall(text)


def is_chinese(text: str) -> bool:
    """Tell whether a text is all Chinese characters."""
    return _RUN.fullmatch(text) is not None


def segment(text: str, unit: str = "words") -> list[str]:
    """Cut the Chinese of a text into words or characters."""
    if unit not in UNITS:
        raise ValueError(f"`unit` must be one of {', '.join(UNITS)}, got {unit!r}")
    if unit == "characters":
        return [character for run in chinese_runs(text) for character in run]
    return [word for run in chinese_runs(text) for word in _jieba().cut(run, HMM=False)]


@lru_cache(maxsize=1)
def _plain_verbs() -> frozenset[str]:
    """The verbs of jieba's dictionary, such as 吹, but for what most of its compounds show as a noun: 花, 树."""
    with _jieba().get_dict_file() as file:
        parts = {word: part for word, _, part in (line.decode("utf-8").split() for line in file)}
    compounds: defaultdict[str, list[bool]] = defaultdict(list)
    for word, part in parts.items():
        if len(word) == 2:
            compounds[word[1]].append(part.startswith("n"))
    return frozenset(
        word for word, part in parts.items() if part == "v" and 2 * sum(compounds[word]) < max(1, len(compounds[word]))
    )


def _says_something(word: str, unit: str) -> bool:
    """Whether a word can be a keyword: no function word, no plain verb."""
    return word not in STOPWORDS and (unit == "characters" or word not in _plain_verbs())


@lru_cache(maxsize=1)
def _jieba() -> Any:
    """A cutter of jieba's, by name, so that poems of single characters work without the library."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how it is packaged and written
            jieba = importlib.import_module("jieba")
    except ImportError as error:
        raise ImportError(
            "keywords that are words need jieba: pip install jieba. Keywords of single characters need nothing: "
            'unit="characters".'
        ) from error
    jieba.setLogLevel(logging.WARNING)
    return jieba.Tokenizer()


def text_rank(sequences: Iterable[Sequence[str]]) -> dict[str, float]:
    """Rank words by TextRank: PageRank over words that stand near each other. Source: Mihalcea and Tarau (2004)."""
    numbers: dict[str, int] = {}
    links: Counter[tuple[int, int]] = Counter()
    for words in sequences:
        ids = [numbers.setdefault(word, len(numbers)) for word in words]
        for place, one in enumerate(ids):
            for other in ids[place + 1 : place + WINDOW]:
                if one != other:
                    links[min(one, other), max(one, other)] += 1
    size = len(numbers)
    if not size:
        return {}
    ends = np.array(list(links), dtype=np.int64).reshape(-1, 2)
    rows, columns = np.concatenate([ends, ends[:, ::-1]]).T
    weights = np.tile(np.array(list(links.values()), dtype=np.float64), 2)
    sums = np.bincount(rows, weights, minlength=size)

    def follow(rank: Any) -> Any:
        lost = rank[sums == 0].sum()  # from a word without links the surfer jumps
        return np.bincount(columns, rank[rows] * weights / sums[rows], minlength=size) + lost / size

    return dict(zip(numbers, page_rank(size, follow).tolist(), strict=True))


def page_rank(size: int, follow: Callable[[Any], Any]) -> Any:
    """Find where a random surfer is: `follow` gives, of probabilities (size,), those after a step along links."""
    rank = np.full(size, 1 / size)
    # Each step brings the result nearer by a factor of the damping: 200 are more than double precision needs.
    for _ in range(200):
        new = DAMPING * follow(rank) + (1 - DAMPING) / size
        if np.abs(new - rank).sum() < 1e-12:
            return new
        rank = new
    return rank


class PoemKeywords:
    """Finds keywords, and adds to them: what a corpus of poems says of its words.

    Args:
        words: The words that may be keywords.
        scores: How important each is in the corpus (TextRank).
        neighbours: For each word those that it shares most poems with for how common they are: (number of the word,
            pointwise mutual information times the shared poems), the best first.
        unit: What words are: "words" or "characters".
        sounds: How characters sound in the corpus, if it has quatrains: what rhymes and tones of poems need.

    Raises:
        ValueError: If the lists differ in length, or the unit is unknown.

    Source: HAM, section 5.2; Wang et al. (2016), section 3.2.
    """

    def __init__(
        self,
        words: Sequence[str],
        scores: Sequence[float],
        neighbours: Sequence[Sequence[tuple[int, float]]],
        unit: str = "words",
        sounds: PoemSounds | None = None,
    ) -> None:
        if unit not in UNITS:
            raise ValueError(f"`unit` must be one of {', '.join(UNITS)}, got {unit!r}")
        if not len(words) == len(scores) == len(neighbours):
            raise ValueError(
                f"`words`, `scores` and `neighbours` must be of one length, got {len(words)}, {len(scores)} and "
                f"{len(neighbours)}"
            )
        self.words = list(words)
        self.unit = unit
        self.sounds = sounds
        self._scores = dict(zip(self.words, scores, strict=True))
        self._neighbours = [[(int(number), float(value)) for number, value in row] for row in neighbours]
        self._numbers = {word: number for number, word in enumerate(self.words)}

    @classmethod
    def fit(
        cls,
        poems: Iterable[Sequence[str]],
        unit: str = "words",
        *,
        max_words: int = 20_000,
        min_count: int = 3,
        num_neighbours: int = 32,
    ) -> "PoemKeywords":
        """Learn from a corpus which words are important and which go together, and from quatrains how they sound.

        Args:
            poems: Poems as lists of their lines.
            unit: What keywords are: "words" (of jieba) or "characters".
            max_words: Most words to keep, the commonest.
            min_count: Words in fewer poems are left out, and words that share fewer poems, or only one, are no
                neighbours.
            num_neighbours: Neighbours to keep of each word.

        Returns:
            The keywords.

        Raises:
            ValueError: If a number is below 1, or no word is left.
            TypeError: If a poem is a single string.
        """
        for name, number in (("max_words", max_words), ("min_count", min_count), ("num_neighbours", num_neighbours)):
            check_integer(name, number)
        cut: list[list[str]] = []
        quatrains = []
        for poem in poems:
            if isinstance(poem, str):
                raise TypeError("`poems` must be lists of lines, got a single string for a poem")
            if len(poem) == 4 and [len(line) for line in poem] in [[length] * 4 for length in PATTERNS]:
                quatrains.append(poem)
            cut.append([word for line in poem for word in segment(line, unit) if _says_something(word, unit)])
        counts = Counter(word for words in cut for word in set(words))
        # Of equally common words, those that come first by their characters.
        kept = sorted((word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word))
        kept = kept[:max_words]
        if not kept:
            raise ValueError(f"`poems`: no word is in {min_count} poems or more of the {len(cut)}; lower `min_count`")
        numbers = {word: number for number, word in enumerate(kept)}
        scores = text_rank([word for word in words if word in numbers] for words in cut)
        together: Counter[tuple[int, int]] = Counter()
        for words in cut:
            together.update(combinations(sorted({numbers[word] for word in words if word in numbers}), 2))
        rows: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
        for (one, other), number in together.items():
            if number < max(min_count, LEAST_TOGETHER):
                continue
            # Pointwise mutual information times the poems that it rests on, so that rare pairs do not come before all.
            value = number * math.log(number * len(cut) / (counts[kept[one]] * counts[kept[other]]))
            if value > 0:
                rows[one].append((other, value))
                rows[other].append((one, value))
        neighbours = [
            sorted(rows[number], key=lambda entry: (-entry[1], entry[0]))[:num_neighbours]
            for number in range(len(kept))
        ]
        sounds = PoemSounds.fit(quatrains) if quatrains else None
        return cls(kept, [scores[word] for word in kept], neighbours, unit, sounds)

    def of_line(self, line: str, usable: Callable[[str], bool] | None = None) -> str | None:
        """Find the keyword of a line of a poem, as in training; None if no word of it is `usable`.

        It is the word of the highest score in the corpus, of several the first; where the corpus has none of them, the
        first that is no stopword, else the first word, else the first character. Source: Wang et al. (2016), section
        4.1.
        """
        words = segment(line, self.unit)
        if not words:
            raise ValueError(f"`line` must have Chinese characters, got {line!r}")
        candidates = [word for word in words if usable is None or usable(word)]
        if known := [word for word in candidates if word in self._scores]:
            return max(known, key=lambda word: self._scores[word])
        candidates = [word for word in candidates if _says_something(word, self.unit)] or candidates
        candidates = candidates or [c for word in words for c in word if usable is None or usable(c)]
        return candidates[0] if candidates else None

    def extract(self, text: str, count: int = 4, usable: Callable[[str], bool] | None = None) -> list[str]:
        """Find the keywords of a user's text by TextRank over the text itself: at most `count` that are `usable`.

        The most important come first; of equals those that are more important in the corpus, then those that come
        first.
        Source: HAM, section 5.2.
        """
        words = segment(text, self.unit)
        if not words:
            raise ValueError(f"`text` must have Chinese characters to take keywords from, got {text[:60]!r}")
        # Sentences are no bounds: the window goes over them, as in TextRank.
        words = [word for word in words if word not in STOPWORDS]
        ranked = text_rank([[word for word in words if _says_something(word, self.unit)] or words])
        order = sorted(ranked, key=lambda word: (-round(ranked[word], 9), -self._scores.get(word, 0.0)))
        chosen: list[str] = []
        for word in order:
            if len(chosen) == count:
                break
            if (usable is None or usable(word)) and not _overlaps(word, chosen):
                chosen.append(word)
        return chosen

    def expand(
        self, keywords: Sequence[str], count: int = 4, usable: Callable[[str], bool] | None = None
    ) -> list[str]:
        """Add to keywords `usable` ones that go with them, up to `count`, or refuse where the corpus has too few.

        The words with the largest sum of pointwise mutual information with them, each times the number of shared
        poems; then those that go with their characters; then the most important of the corpus. Source: HAM, section
        5.2 (the knowledge-based method); Wang et al. (2016), section 3.2.2.
        """
        found = list(keywords)
        if len(found) >= count:
            return found
        own = self._near([number for keyword in found for number in self._known(keyword)])
        characters = [self._numbers[character] for character in "".join(found) if character in self._numbers]
        others = sorted(self._numbers.values(), key=lambda number: (-self._scores[self.words[number]], number))
        for number in dict.fromkeys([*own, *self._near(characters), *others]):
            word = self.words[number]
            if not _overlaps(word, found) and (usable is None or usable(word)):
                found.append(word)
                if len(found) == count:
                    return found
        raise ValueError(
            f"`keywords`: {count} are needed, and the corpus of {len(self.words)} words has no more to add to "
            f"{', '.join(keywords) or 'none'}; give {count} keywords"
        )

    def _near(self, numbers: Iterable[int]) -> list[int]:
        """The neighbours of words, those first that go with them best."""
        sums: defaultdict[int, float] = defaultdict(float)
        for number in numbers:
            for other, value in self._neighbours[number]:
                sums[other] += value
        return sorted(sums, key=lambda number: (-round(sums[number], 9), -self._scores[self.words[number]], number))

    def _known(self, keyword: str) -> list[int]:
        """The corpus' words that a keyword is, or is made of."""
        if keyword in self._numbers:
            return [self._numbers[keyword]]
        parts = segment(keyword, self.unit)
        parts = [part for part in parts if part in self._numbers] or [c for c in keyword if c in self._numbers]
        return [self._numbers[part] for part in dict.fromkeys(parts)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what there is to a JSON file."""
        content = {
            "version": VERSION,
            "unit": self.unit,
            "words": self.words,
            "scores": [float(f"{self._scores[word]:.6g}") for word in self.words],
            "neighbours": [[[number, round(value, 4)] for number, value in row] for row in self._neighbours],
            "sounds": self.sounds and self.sounds.as_dict(),
        }
        Path(path).write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PoemKeywords":
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(content, Mapping) or content.get("version") != VERSION:
                raise ValueError(f"it has no version {VERSION}")
            sounds = PoemSounds(**content["sounds"]) if content.get("sounds") else None
            return cls(content["words"], content["scores"], content["neighbours"], content["unit"], sounds)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} does not hold keywords of poems ({error})") from error


def _overlaps(word: str, words: Iterable[str]) -> bool:
    """Whether a word is a part of one of the others, or has one as its part."""
    return any(word in other or other in word for other in words)

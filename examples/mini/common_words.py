"""Count the words that the summarizers may always write: those that all kinds of summaries share.

    python examples/mini/common_words.py experiments/mini/pairs/train.jsonl > words.txt    # after prepare.py

Writes them in order of the alphabet, without numbers, names (mostly with a capital inside of sentences) and what names
substances and diseases. What it wrote is `hier_models/pipelines/common_words_hier.py`. With --check, tells instead of
files what share of their references' words stand in the document, or are allowed all the same.
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from hier_models.pipelines.common_words_hier import COMMON_WORDS


WORD = re.compile(r"[^\W_]+")
KINDS = 8  # of sources that a word is in
SMALLEST_KIND = 5_000  # words
TITLES = ("acl_titles",)  # written with capitals throughout
AROUND_APOSTROPHES = "aren couldn d didn doesn don hadn hasn haven i isn ll m re s shouldn t ve wasn weren won wouldn"
LEFT_OUT = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million millions
billion billions trillion dozen dozens third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth zero ii iii iv vi vii viii ix xi xii
al ca co de del di et ex vs alcohol arthritis cancer carbon dementia depression diabetes dioxide glucose hydrogen iron
mrna oxygen potassium ray rays sclerosis sexual stroke suicide tobacco tumor vaginal
"""


def common_words(paths: list[Path], number: int) -> list[str]:
    shares: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    small: Counter[str] = Counter()
    capital: Counter[str] = Counter()
    counts = defaultdict(Counter)
    for row in chain.from_iterable(map(_rows, paths)):
        if row["set"] not in TITLES:
            for word, begins in _words(row["summary"]):
                counts[row["set"]][word.lower()] += 1
                if not begins:
                    (capital if word[0].isupper() else small)[word.lower()] += 1
    for found in counts.values():
        if found.total() >= SMALLEST_KIND:
            kinds.update(found.keys())
            shares.update({word: count / found.total() for word, count in found.items()})
    words = (
        word
        for word, _ in shares.most_common()
        if kinds[word] >= KINDS
        and small[word] > 0
        and small[word] >= capital[word]
        and word not in LEFT_OUT.split()
        and (len(word) > 1 or word == "a")
    )
    return sorted({*islice(words, number), *AROUND_APOSTROPHES.split()})


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _words(text: str):
    """English words, and whether a sentence or quotation begins there."""
    last, begins = 0, True
    for match in WORD.finditer(text):
        begins = begins or not last or bool(set('.!?:\n"“‘(') & set(text[last : match.start()]))  # noqa: RUF001
        if match[0].isascii() and match[0].isalpha():
            yield match[0], begins
        last, begins = match.end(), False


def check(path: Path, rows: int) -> None:
    counts: Counter[str] = Counter()
    for row in islice(_rows(path), rows):
        document = json.dumps(row["document"], ensure_ascii=False).replace("\\n", " ").lower()
        inside = set(WORD.findall(document))
        for word in WORD.findall(row["summary"].lower()):
            common = "common" if word in COMMON_WORDS else "others"
            counts["inside" if word in inside else common] += 1
    if not counts:
        print(f"{path.stem:24}{'no rows':>10}")
        return
    shares = "".join(f"{counts[name] / counts.total():>10.1%}" for name in ("inside", "common", "others"))
    print(f"{path.stem:24}{shares}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines with `document`, `summary` and `set`")
    parser.add_argument("--number", type=int, default=3_000, help="of words")
    parser.add_argument("--check", action="store_true", help="tell what the words of the package do to references")
    parser.add_argument("--rows", type=int, default=400, help="of each file, with --check")
    arguments = parser.parse_args()
    if arguments.check:
        print(f"{'':24}{'inside':>10}{'common':>10}{'others':>10}")
        for path in arguments.files:
            check(path, arguments.rows)
    else:
        print(*common_words(arguments.files, arguments.number), sep="\n")


if __name__ == "__main__":
    main()

"""Learn which sentences a summary is made of: the weights of `hier_models/pipelines/salience_hier.py`.

    python examples/mini/salience.py experiments/mini/pairs/long_train.jsonl    # after prepare.py

A sentence is worth the words and the pairs of words that it shares with the summary, as a share of its own; what it is
worth beside the others of its document is a weighted sum of its features and its words (ridge regression). Kinds of
texts count alike, and documents of a kind. Words that may have a weight are those that most documents have, of those
that summaries of all kinds do, so that it learns how authors speak, not what of. `scores.py salience` scores it.
"""

import argparse
import json
import textwrap
from collections import Counter, defaultdict
from itertools import pairwise
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoProcessor

import hier_models
from hier_models.pipelines.common_words_hier import COMMON_WORDS
from hier_models.pipelines.long_documents_hier import CLOSING, ENDS, sentences_and_headings
from hier_models.pipelines.salience_hier import WORD, Words, features


PROCESSOR = AutoProcessor.from_pretrained(hier_models.MINI)  # which splits sentences
LEAST = 12  # sentences of a document to learn from
PAIRS = 4  # how much more a shared pair of words is worth than a shared word: fewer are
RIDGE = 3e-3
LEAST_WEIGHT = 2  # hundredths, of a word
KINDS = {  # of texts, by their sets; a set that is not here is a kind of its own
    "elife_abstract": "papers",
    "pmc_abstract": "papers",
    "simple_wikipedia": "wikipedia",
    "wikipedia_to_simple": "wikipedia",
}


def worth(words: list[str], summary: list[str]) -> float:
    """How much of a sentence its summary says: of its words, without the commonest, and of its pairs of words."""
    said, pairs = {word for word in summary if word not in COMMON_WORDS}, {*pairwise(summary)}
    own, own_pairs = [word for word in words if word not in COMMON_WORDS], [*pairwise(words)]
    shared = sum(word in said for word in own) / max(1, len(own))
    return (shared + min(1, PAIRS * sum(pair in pairs for pair in own_pairs) / max(1, len(own_pairs)))) / 2


def cue_words(rows: list[dict[str, Any]], number: int) -> list[str]:
    """The words that most documents have, of those that may be in any summary."""
    counts = Counter(word for row in rows for word in {*WORD.findall(row["document"].casefold())} & COMMON_WORDS)
    return [word for word, _ in counts.most_common() if len(word) > 1][:number]


def sums_of(task: tuple[dict[str, Any], list[str]]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A document's part in the normal equations; None if it is too short."""
    row, cues = task
    sentences = [row["document"][start:end] for start, end in sentences_and_headings(row["document"], PROCESSOR)]
    if len(sentences) < LEAST:
        return None
    words = [WORD.findall(sentence.casefold()) for sentence in sentences]
    summary = WORD.findall(row["summary"].casefold())
    has = torch.tensor([[float(cue in own) for cue in cues] for own in map(set, words)]).double()
    ended = [sentence.rstrip(CLOSING).endswith(ENDS) for sentence in sentences]  # others are hardly ever read
    known = torch.cat([torch.from_numpy(features(Words(sentences))), has], dim=1)[ended]
    wanted = torch.tensor([worth(own, summary) for own in words]).double()[ended]
    if len(wanted) < LEAST:
        return None
    known, wanted = known - known.mean(0), wanted - wanted.mean()
    wanted /= wanted.std() + 0.05
    return known.T @ known / len(wanted), known.T @ wanted / len(wanted)


def learn(rows: list[dict[str, Any]], cues: list[str]) -> torch.Tensor:
    """The weights of the features, and of the words."""
    kinds = [KINDS.get(row["set"], row["set"]) for row in rows]
    sums: dict[str, list[Any]] = defaultdict(lambda: [0.0, 0.0, 0])
    with Pool() as pool:
        tasks = ((row, cues) for row in rows)
        for kind, found in zip(
            kinds, tqdm(pool.imap(sums_of, tasks, chunksize=4), total=len(rows), disable=None), strict=True
        ):
            if found is not None:
                sums[kind] = [sums[kind][0] + found[0], sums[kind][1] + found[1], sums[kind][2] + 1]
    products = torch.stack([own / number for own, _, number in sums.values()]).mean(0)
    wanted = torch.stack([own / number for _, own, number in sums.values()]).mean(0)
    scale = torch.ones(len(wanted)).double()
    scale[: -len(cues)] = products.diagonal()[: -len(cues)]  # features have units of their own, words have none
    return torch.linalg.solve(products + RIDGE * scale.diag(), wanted)


def table(weights: torch.Tensor, cues: list[str]) -> str:
    """What the package has: hundredths of the features, and of the words, which stand behind what they are worth."""
    hundredths = (100 * weights).round().int().tolist()
    words = defaultdict(list)
    for word, weight in zip(cues, hundredths[-len(cues) :], strict=True):
        if abs(weight) >= LEAST_WEIGHT:
            words[weight].append(word)
    lines = [f"{weight} {' '.join(sorted(words[weight]))}" for weight in sorted(words, reverse=True)]
    return "\n".join([f"{hundredths[: -len(cues)]}", *(textwrap.fill(line, 119) for line in lines)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines with `document`, `summary` and `set`")
    parser.add_argument("--cues", type=int, default=1000, help="words that may have a weight")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a process for each core
    rows = [json.loads(line) for path in arguments.files for line in path.open(encoding="utf-8")]
    cues = cue_words(rows, arguments.cues)
    print(table(learn(rows, cues), cues))


if __name__ == "__main__":
    main()

"""Pairs of summaries that people judge without knowing whose they are, and what their votes say."""

from __future__ import annotations

import csv
import io
import json
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..inspection.pages import aligned, page
from ..metrics.document_scores import DocumentScores, means, paired_bootstrap


# Those of the Highlight-Transformer's paper.
ASPECTS = {
    "informativeness": "Which covers more of what matters in the document?",
    "fluency": "Which is better organized, and more correct in grammar?",
    "non-redundancy": "Which repeats less?",
}
CHOICES = ("A", "B", "tie")
PAGE_FILE, KEY_FILE = "pairs.html", "key.json"
COLUMNS = ("judge", "pair", "aspect", "vote")


@dataclass(frozen=True)
class Vote:
    """What a judge said of a pair in one aspect.

    Args:
        judge: Who.
        pair: The pair's id.
        aspect: In what.
        choice: "A", "B" or "tie".
    """

    judge: str
    pair: str
    aspect: str
    choice: str


@dataclass(frozen=True)
class Verdict:
    """What all judges said in one aspect, as shares between 0 and 1: means over pairs of the shares of their votes.

    Args:
        win: The first system is better.
        lose: The second is.
        tie: Neither.
        difference: `win` - `lose`.
        interval: Its 95 % interval, by a bootstrap over pairs: votes on one pair are not independent.
        kappa: Fleiss' kappa among the judges; None without two votes on a pair, or if all votes are the same.
        pairs: How many pairs were judged.
        judges: How many people judged.
        votes: How many votes there are.
    """

    win: float
    lose: float
    tie: float
    difference: float
    interval: tuple[float, float]
    kappa: float | None
    pairs: int
    judges: int
    votes: int


def save_blind_pairs(
    folder: str | os.PathLike[str],
    documents: Sequence[str],
    summaries: Mapping[str, Sequence[str]],
    identifiers: Sequence[str] | None = None,
    *,
    aspects: Sequence[str] = tuple(ASPECTS),
    number: int = 50,
    generator: random.Random | None = None,
) -> dict[str, Any]:
    """Write a page with pairs of summaries for people to judge, and in another file whose they are.

    Documents are drawn by chance, of those whose two summaries differ; each system is A in half of the pairs. A judge
    needs nothing but the page, which keeps the votes in the browser, and saves them as a CSV file for `read_votes`.

    Args:
        folder: Gets `pairs.html` for the judges, and `key.json`, which is not for them.
        documents: The running texts.
        summaries: Two systems -> their summaries of the documents.
        identifiers: What the documents are called in the key; their numbers from 1 if None.
        aspects: What to ask of each pair.
        number: How many pairs, if there are so many.
        generator: Decides pairs, order and ids; by default one that nobody can repeat.

    Returns:
        The key: `systems`, `aspects`, and of `pairs` the document's `id` and whose summary `A` and `B` are.

    Raises:
        ValueError: If systems are not two, summaries are not as many as documents or all the same, or there is
            nothing to ask.
        FileExistsError: If the folder has a key, without which votes on its page would say nothing.

    Source: Highlight-Transformer, section 4.4, Table 3.
    """
    if len(summaries) != 2:
        raise ValueError(f"summaries: got those of {', '.join(summaries) or 'nobody'}; a pair is of two systems")
    for name, texts in summaries.items():
        if len(texts) != len(documents):
            raise ValueError(f"summaries: {name} has {len(texts)} for {len(documents)} documents; give one for each")
    if not aspects or len(set(aspects)) < len(aspects) or not all(aspect.strip() for aspect in aspects):
        raise ValueError(f"aspects: got {list(aspects)}; give one or more names, all different")
    if number < 1:
        raise ValueError(f"number: got {number}; give 1 or more")
    folder, chance = Path(folder), generator or random.SystemRandom()
    if (folder / KEY_FILE).exists():
        raise FileExistsError(f"{folder / KEY_FILE} is there already, for the votes on its page; give another folder")
    first, second = summaries
    differ = differing(*summaries.values())
    if not differ:
        raise ValueError(f"summaries: those of {first} and {second} are all the same; there is nothing to judge")
    chosen = chance.sample(differ, min(number, len(differ)))
    swaps = [place % 2 == 1 for place in range(len(chosen))]
    chance.shuffle(swaps)
    # Drawn ids: votes on another page are then told from votes on this one.
    ids = [f"{value:08x}" for value in chance.sample(range(16**8), len(chosen))]
    pairs, shown = {}, []
    for pair, place, swap in zip(ids, chosen, swaps, strict=True):
        names = dict(zip("AB", (second, first) if swap else (first, second), strict=True))
        pairs[pair] = {"id": identifiers[place] if identifiers else str(place + 1), **names}
        written = {letter: summaries[name][place] for letter, name in names.items()}
        shown.append({"pair": pair, "document": documents[place], "texts": written})
    key = {"systems": [first, second], "aspects": list(aspects), "pairs": pairs}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KEY_FILE).write_text(json.dumps(key, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fields = {"pairs": shown, "questions": {aspect: ASPECTS.get(aspect, "") for aspect in aspects}, "choices": CHOICES}
    made = page("experiments/blind_pairs.html", "Which summary is better?", columns=COLUMNS, **fields)
    (folder / PAGE_FILE).write_text(made, encoding="utf-8")
    return key


def differing(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Tell which pairs of summaries have something to judge.

    Args:
        first: The summaries of one system.
        second: Those of the other.

    Returns:
        The places of those that differ in more than white space.
    """
    return [place for place, both in enumerate(zip(first, second, strict=True)) if both[0].split() != both[1].split()]


def read_votes(path: str | os.PathLike[str], key: Mapping[str, Any]) -> list[Vote]:
    """Read votes that the page saved, or that were written by hand.

    Args:
        path: A CSV file with the columns `judge`, `pair`, `aspect` and `vote`, which is A, B or tie.
        key: What `save_blind_pairs` returned, the content of `key.json`.

    Returns:
        The votes; rows without one are left out.

    Raises:
        ValueError: If the file is no CSV file in UTF-8 with these columns, or a row has a pair or an aspect that the
            key does not have, or another vote.
    """
    votes = []
    try:
        rows = csv.DictReader(io.StringIO(Path(path).read_bytes().decode("utf-8-sig"), newline=""))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in UTF-8; save it again, as CSV in UTF-8") from error
    if missing := [column for column in COLUMNS if column not in (rows.fieldnames or [])]:
        raise ValueError(f"{path} has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
    for row in rows:
        vote = Vote(*((row[column] or "").strip() for column in COLUMNS))
        if not vote.choice:
            continue
        where = f"{path}:{rows.line_num}"
        if vote.pair not in key["pairs"]:
            raise ValueError(f"{where}: there is no pair {vote.pair!r} in the key; is it that of another page?")
        if vote.aspect not in key["aspects"]:
            raise ValueError(f"{where}: aspect {vote.aspect!r} is none of {', '.join(key['aspects'])}")
        if vote.choice not in CHOICES:
            raise ValueError(f"{where}: vote {vote.choice!r} is none of {', '.join(CHOICES)}")
        votes.append(vote)
    return votes


def count_votes(votes: Iterable[Vote], key: Mapping[str, Any]) -> dict[str, Verdict]:
    """Count whose summaries are better, and how far the judges agree.

    Args:
        votes: Those of all judges.
        key: What `save_blind_pairs` returned, the content of `key.json`.

    Returns:
        A verdict for each aspect with votes; wins are those of the first system.

    Raises:
        ValueError: If a judge voted twice on a pair in one aspect, or there are no votes.

    Source: Highlight-Transformer, Table 3.
    """
    first = key["systems"][0]
    places = {pair: place for place, pair in enumerate(key["pairs"])}
    counts = {aspect: np.zeros((len(places), 3)) for aspect in key["aspects"]}  # (pairs, [win, lose, tie])
    judges: dict[str, set[str]] = {aspect: set() for aspect in key["aspects"]}
    seen = set()
    for vote in votes:
        if (what := (vote.judge, vote.pair, vote.aspect)) in seen:
            raise ValueError(f"{vote.judge!r} voted twice on pair {vote.pair} in {vote.aspect}; take one out")
        seen.add(what)
        outcome = 2 if vote.choice == "tie" else int(key["pairs"][vote.pair][vote.choice] != first)
        counts[vote.aspect][places[vote.pair], outcome] += 1
        judges[vote.aspect].add(vote.judge)
    if not seen:
        raise ValueError("votes: there are none")
    return {aspect: _verdict(found, len(judges[aspect])) for aspect, found in counts.items() if found.any()}


def _verdict(counts: Any, judges: int) -> Verdict:
    counts = counts[counts.sum(axis=1) > 0]
    shares = counts / counts.sum(axis=1, keepdims=True)
    names = [str(number) for number in range(len(shares))]
    won, lost = (DocumentScores(names, means({"share": shares[:, column]})) for column in (0, 1))
    found = paired_bootstrap([won], [lost], "share")
    win, lose, tie = shares.mean(axis=0).tolist()
    sure = (found.low, found.high)
    kappa = fleiss_kappa(counts)
    return Verdict(win, lose, tie, found.value, sure, kappa, len(counts), judges, int(counts.sum()))


def fleiss_kappa(counts: Any) -> float | None:
    """Measure how far judges agree beyond chance.

    Args:
        counts: (items, categories), how many judges put each item into each category. Items with fewer than two are
            left out; the others may have different numbers of judges.

    Returns:
        1 for full agreement, 0 for that of chance; None if no item has two judges, or all votes are the same.

    Source: Fleiss (1971), Measuring nominal scale agreement among many raters.
    """
    counts = np.asarray(counts, dtype=np.float64)
    judges = counts.sum(axis=1)
    counts, judges = counts[judges > 1], judges[judges > 1]
    if not len(counts):
        return None
    agreed = ((counts * (counts - 1)).sum(axis=1) / (judges * (judges - 1))).mean()
    by_chance = ((counts.sum(axis=0) / judges.sum()) ** 2).sum()
    return None if by_chance == 1 else float((agreed - by_chance) / (1 - by_chance))


def verdict_table(verdicts: Mapping[str, Verdict]) -> str:
    """Lay out verdicts as Table 3 of the Highlight-Transformer's paper, with intervals."""
    rows = [("", "win", "lose", "tie", "win - lose", "95 % interval", "kappa", "pairs", "judges", "votes")]
    for aspect, found in verdicts.items():
        shares = (f"{share:.1%}" for share in (found.win, found.lose, found.tie))
        interval = f"{found.interval[0]:+.1%} to {found.interval[1]:+.1%}"
        kappa = "–" if found.kappa is None else f"{found.kappa:.3f}"
        numbers = map(str, (found.pairs, found.judges, found.votes))
        rows.append((aspect, *shares, f"{found.difference:+.1%}", interval, kappa, *numbers))  # type: ignore[arg-type]
    return aligned(rows)


def save_verdicts(path: str | os.PathLike[str], verdicts: Mapping[str, Verdict], key: Mapping[str, Any]) -> None:
    """Write verdicts as JSON, with the systems, of which the first is the one that wins or loses."""
    content = {"systems": key["systems"], "aspects": {name: asdict(found) for name, found in verdicts.items()}}
    Path(path).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

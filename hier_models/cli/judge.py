"""`hier-models judge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from . import options
from .errors import MistakeError, check_output_folder, given, local_path, mistakes, say
from .loading import given_only
from .options import OptionsKnown, command
from .predictions import (
    check_predictions,
    have_references,
    load_test_set,
    match_predictions,
    read_named,
    read_predictions,
)


@command("judge", cls=OptionsKnown)
def judge(
    data: Annotated[str, typer.Argument(metavar="DATA")],
    predictions: Annotated[list[str] | None, typer.Option("--predictions", "-p", metavar="[NAME=]FILE")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FOLDER")] = None,
    votes: Annotated[list[Path] | None, typer.Option("--votes", metavar="FILE")] = None,
    aspects: Annotated[list[str] | None, typer.Option("--aspect", metavar="NAME")] = None,
    limit: Annotated[int, typer.Option("--documents", min=1, metavar="N")] = 50,
    split: options.Name = None,
    config_name: options.Name = None,
    revision: options.Name = None,
    text_column: options.Name = None,
) -> None:
    """Let people compare two systems' summaries blindly, and count their votes."""
    if votes:
        others = ("predictions", "output", "aspects", "limit", "split", "config_name", "revision", "text_column")
        if other := given(*others):
            raise MistakeError(f"--votes: counts votes on pairs that are there; leave out {', '.join(other)}")
        _count(local_path(data), votes)
        return
    files = read_named("--predictions", predictions)
    if len(files) != 2 or output is None:
        raise MistakeError(f"give two systems' summaries with -p (got {len(files)}) and a folder with -o; or --votes")
    check_predictions(files)
    check_output_folder(output, "--output", data)
    summaries_of = read_predictions(files)
    # References only where predictions have them, which tells whether they are of the same documents.
    on_hub = given_only(config_name=config_name, revision=revision)
    documents = load_test_set(data, split, text_column, None if have_references(summaries_of) else "", None, **on_hub)
    summaries = match_predictions(summaries_of, files, documents)
    from ..data.tokenizing import plain_text, source_kind
    from ..experiments.blind_pairs import KEY_FILE, PAGE_FILE, differing, save_blind_pairs

    rows = [document for _, document in documents]
    texts = [plain_text(kind, row[kind]) for row in rows for kind in [source_kind(list(row))]]
    with mistakes("--aspect, --predictions", ValueError), mistakes("--output", FileExistsError):
        asked = {"number": limit} | given_only(aspects=aspects)
        key = save_blind_pairs(output, texts, summaries, documents.identifiers, **asked)
    if alike := len(texts) - len(differing(*summaries.values())):
        say(f"Left out: {alike} of {len(texts)} documents, whose two summaries are the same.")
    say(f"Written: {len(key['pairs'])} pairs in {output / PAGE_FILE}, for the judges")
    say(f"Written: whose they are, in {output / KEY_FILE}, not for the judges")


def _count(folder: Path, files: list[Path]) -> None:
    from ..experiments.blind_pairs import KEY_FILE, count_votes, read_votes, save_verdicts, verdict_table

    if not (folder / KEY_FILE).is_file():
        raise MistakeError(f"DATA: with --votes, the folder that judge wrote; {folder} has no {KEY_FILE}")
    damaged = f"DATA: {folder / KEY_FILE} is damaged, take it from a copy of the folder"
    with mistakes(damaged, ValueError, KeyError, TypeError, AttributeError):
        key = json.loads((folder / KEY_FILE).read_text(encoding="utf-8"))
        first, second = key["systems"]
        if not key["aspects"] or any({pair["A"], pair["B"]} != {first, second} for pair in key["pairs"].values()):
            raise ValueError("its pairs are not of its two systems, or it has no aspects")
    with mistakes("--votes", OSError, ValueError):
        verdicts = count_votes([vote for file in files for vote in read_votes(file, key)], key)
    print(f"{first} against {second}\n{verdict_table(verdicts)}")
    save_verdicts(folder / "verdicts.json", verdicts, key)
    say(f"Written: {folder / 'verdicts.json'}")

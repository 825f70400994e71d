"""`hier-models poem` and `hier-models quatrains`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.record_readers import DATA_SUFFIXES, data_suffix
from . import options
from .documents import is_document, read_stdin, read_text
from .errors import MistakeError, check_parent, local_path, mistakes, say
from .jobs import POEMS, output_path, run_job, writes_lines
from .loading import generation_settings, load_pipeline, required
from .options import Dtype, InputsFirst, command


@command("poem", cls=InputsFirst)
def poem(
    text: Annotated[str | None, typer.Argument(metavar="TEXT")] = None,
    model: options.RequiredModel = None,
    keywords: Annotated[list[str] | None, typer.Option("--keyword", "-k", metavar="WORD")] = None,
    length: Annotated[int, typer.Option(metavar="N")] = 7,
    rhyme: Annotated[bool, typer.Option("--rhyme")] = False,
    tones: Annotated[bool, typer.Option("--tones")] = False,
    candidates: Annotated[int, typer.Option(min=1, metavar="N")] = 1,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    as_json: options.AsJson = False,
    num_beams: options.NumBeams = None,
    settings: options.Set = None,
    seed: Annotated[int | None, typer.Option(metavar="N")] = None,
    batch_size: options.BatchSize = 1,
    text_column: options.Name = None,
    ray: options.Ray = None,
    device: options.Name = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Write poems."""
    model = required(model, "one of poems", "hier-models poem letter.txt -m ./my-poet")
    if keywords and text is not None:
        raise MistakeError("--keyword: give keywords or TEXT, not both")
    if length not in (5, 7):
        raise MistakeError(f"--length: must be 5 or 7, got {length}")
    asked_for: dict[str, Any] = {"length": length, "num_candidates": candidates}
    asked_for |= {name: True for name, wanted in (("rhyme", rhyme), ("tones", tones)) if wanted}
    file = None if keywords or text in (None, "-") else _file(str(text))
    if file is not None and (output is not None or file.is_dir() or data_suffix(file) in DATA_SUFFIXES):
        path = output_path(output, is_folder=ray is not None)
        if candidates > 1 and not as_json and not writes_lines(path, ray):
            raise MistakeError("--candidates: of many texts only JSON has a place for more; give --json or a .jsonl")
        if seed is not None and batch_size > 1:
            raise MistakeError("--seed: each text is drawn for by itself, so leave out --batch-size")
        job: dict[str, Any] = {"output": path, "as_json": as_json, "batch_size": batch_size, "seed": seed}
        job |= {"text_column": text_column, "set_aside": None, "device": device, "dtype": dtype, "ray": ray}
        run_job(
            POEMS,
            model,
            [str(file)],
            settings=lambda: asked_for | generation_settings(None, None, num_beams, settings),
            check=lambda pipe, documents: _check_texts(pipe, documents, asked_for),
            **job,
        )
        return
    if ray is not None:
        raise MistakeError("--ray: for many texts, from a file or folder into a folder --output; leave it out here")
    if output is not None:
        raise MistakeError("--output: poems of a file or folder go there; that of a text or of keywords is printed")
    asked = None if keywords else _read(text, file)
    pipe = load_pipeline(model, device, dtype, "poem-generation")
    _check_sounds(pipe, asked_for)
    if seed is not None:
        from transformers import set_seed

        set_seed(seed)
    given = generation_settings(None, None, num_beams, settings)
    with mistakes("--keyword" if keywords else "TEXT", ValueError):
        poems = pipe(asked, keywords=keywords or None, **asked_for, **given)
    if as_json:
        for written in poems:
            print(json.dumps({name: written[name] for name in written if name != "poem_text"}, ensure_ascii=False))
        return
    print("\n\n".join(written["poem_text"] for written in poems))
    added = poems[0]["num_added_keywords"]
    say(f"Keywords: {' '.join(poems[0]['keywords'])}" + (f" ({added} of them added from the corpus)" if added else ""))


def _file(text: str) -> Path | None:
    """The file or folder that TEXT names; None if it is the text itself."""
    path = local_path(text)
    if text and os.path.exists(path):  # `Path.exists` refuses texts that are too long for a name
        return path
    has_suffix = data_suffix(path) in (*DATA_SUFFIXES, ".txt") or is_document(path)
    # Verses may have a stroke between them, or at an end.
    is_below = os.sep in text.strip(os.sep) and os.path.isdir(path.parent)
    if text.split() == [text] and (has_suffix or is_below):
        raise MistakeError(f"TEXT: there is no file or folder {text!r}")
    return None


def _read(text: str | None, file: Path | None) -> str:
    """The text itself, or that of a file or of standard input."""
    if text is None or text == "-":
        return read_stdin()
    return text if file is None else read_text(file, f"TEXT: {text}")


def _check_sounds(pipe: Any, asked_for: dict[str, Any]) -> None:
    """Refuse rhymes and tones where the model does not know how characters sound."""
    with mistakes(", ".join(f"--{name}" for name in ("rhyme", "tones") if name in asked_for), ValueError):
        pipe._sanitize_parameters(**asked_for)


def _check_texts(pipe: Any, documents: Iterable[dict[str, Any]], asked_for: dict[str, Any]) -> None:
    """Refuse texts that no poem can be written about, before the first poem is written."""
    _check_sounds(pipe, asked_for)
    for document in documents:
        with mistakes(document.pop("id"), ValueError):
            pipe.preprocess(document)


@command("quatrains")
def quatrains(
    folder: Annotated[str, typer.Argument(metavar="FOLDER")],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT")],
    simplify: Annotated[bool, typer.Option("--simplify")] = False,
) -> None:
    """Collect quatrains."""
    if output.exists():
        raise MistakeError(f"OUTPUT: {output} is there already; remove it, or name another file")
    check_parent(output, "OUTPUT")
    from ..data.poems import write_quatrains

    report = write_quatrains(folder, output, simplify=simplify)
    kept = ", ".join(f"{number} of {length} characters a line" for length, number in sorted(report.quatrains.items()))
    say(f"{report.poems} poems read. Quatrains written to {output}: {kept or 'none'}.")
    for reason, number in report.left_out.most_common():
        say(f"Left out, {reason}: {number}")
    if report.strange:
        say(f"Characters that are not Chinese: {' '.join(name for name, _ in report.strange.most_common(20))}")

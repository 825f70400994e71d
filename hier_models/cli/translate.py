"""`hier-models translate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from ..data.record_readers import PAGE_STARTS
from . import options
from .documents import QUERY
from .errors import MistakeError, say
from .jobs import TRANSLATIONS, output_path, run_job
from .loading import generation_settings, given_only, required
from .options import Dtype, InputsFirst, command


@command("translate", cls=InputsFirst)
def translate(
    inputs: options.Inputs = None,
    model: options.RequiredModel = None,
    src_lang: Annotated[str | None, typer.Option(metavar="CODE")] = None,
    tgt_lang: Annotated[str | None, typer.Option(metavar="CODE")] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    as_json: options.AsJson = False,
    max_length: options.Tokens = None,
    num_beams: options.NumBeams = None,
    settings: options.Set = None,
    chunk_length: options.Tokens = None,
    batch_size: options.AutoBatchSize = options.AUTO,
    text_column: options.Name = None,
    set_aside: options.SetAside = None,
    ray: options.Ray = None,
    device: options.Name = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Translate documents."""
    job: dict[str, Any] = {"as_json": as_json, "batch_size": batch_size, "device": device}
    job |= {"text_column": text_column, "set_aside": set_aside, "dtype": dtype, "ray": ray}
    job["output"] = output_path(output, is_folder=ray is not None)
    counts, *_ = run_job(
        TRANSLATIONS,
        required(model, "one that translates", "hier-models translate letter.txt -m ./my-model"),
        inputs,
        settings=lambda: (
            generation_settings(max_length, None, num_beams, settings)
            | given_only(max_source_length=chunk_length, src_lang=src_lang, tgt_lang=tgt_lang)
        ),
        check=_check_documents,
        **job,
    )
    split, unfinished, chunks = (
        sum(count[name] for count in counts) for name in ("num_split_sentences", "num_unfinished_chunks", "num_chunks")
    )
    if split:
        say(f"{split} sentence{'s were' if split > 1 else ' was'} longer than a chunk and cut into pieces.")
    if unfinished:
        say(
            f"{unfinished} of {chunks} chunk{'s' if chunks > 1 else ''} ended at the maximum length, maybe too soon: "
            "consider --max-length or --chunk-length."
        )


def _check_documents(pipe: Any, documents: Iterable[dict[str, Any]]) -> None:
    """Refuse documents that are no texts, before the first is translated."""
    for document in documents:
        other = set(document) - {"id", "text", "sentences", QUERY, PAGE_STARTS}
        if other:
            raise MistakeError(
                f"{document['id']}: a document to translate must have exactly one of `text`, `sentences`, and this "
                f"has {' and '.join(sorted(other))}; give its words as one string, in a column `text`"
            )

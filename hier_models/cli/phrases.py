"""`hier-models fit-phrases`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..checkpoints import resolve_checkpoint
from . import options
from .errors import MistakeError, given, local_path, mistakes, say
from .loading import check_checkpoint, quiet, required
from .options import InputsFirst, command


TF_IDF = "tf-idf"  # as in `hier_models.models.phrase_finder`, which takes torch to import


@command("fit-phrases", cls=InputsFirst)
def fit_phrases(
    documents: Annotated[str | None, typer.Argument(metavar="DOCUMENTS")] = None,
    model: options.RequiredModel = None,
    finder: Annotated[str, typer.Option(metavar="NAME")] = TF_IDF,
    tagger: Annotated[str | None, typer.Option(metavar="CHECKPOINT")] = None,
    split: options.Name = None,
    config_name: options.Name = None,
    revision: options.Name = None,
    text_column: options.Name = None,
    source_kind: options.SourceKind = None,
    output: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    max_source_length: Annotated[int | None, typer.Option(min=3, metavar="TOKENS")] = None,
    stopwords: Annotated[str | None, typer.Option(metavar="LIST")] = None,
    top_k: Annotated[int, typer.Option(min=1, metavar="N")] = 10,
    max_phrases: Annotated[int, typer.Option(min=1, metavar="N")] = 1_000_000,
    min_documents: Annotated[int, typer.Option(min=1, metavar="N")] = 2,
) -> None:
    """Fit the key phrases of a processor."""
    model = required(model, "a Highlight-Transformer", "hier-models fit-phrases train.jsonl -m ./my-model")
    check_checkpoint(model)
    if tagger is not None:
        check_checkpoint(tagger, "--tagger")
    if output is not None and output.exists() and not output.is_dir():
        raise MistakeError(f"--output: {output} is a file; give a folder")
    model = resolve_checkpoint(model)
    folder = local_path(model)
    if output is None and not folder.is_dir():
        raise MistakeError(f"--output: {model!r} is on the Hub; give a folder to save the processor to")
    quiet()
    from transformers import AutoProcessor

    from ..data import fit_key_phrases, load_documents
    from ..data.key_phrases import FINDERS, IMPORTANCE
    from ..pipelines.document_pipeline_hier import highlights

    with mistakes(f"--model: cannot load the processor of {model!r}", OSError, ValueError, KeyError):
        processor = AutoProcessor.from_pretrained(model)
    if not highlights(processor):
        kind = type(processor).__name__
        raise MistakeError(f"--model: key phrases are for Highlight-Transformers, and {model!r} has a {kind}")
    if finder not in FINDERS:
        raise MistakeError(f"--finder must be one of {', '.join(FINDERS)}, got {finder!r}")
    if (tagger is not None) != (finder == IMPORTANCE):
        raise MistakeError(f"--tagger, a checkpoint, goes with --finder {IMPORTANCE}; give both or neither")
    rows = None
    if finder == TF_IDF:
        if documents is None:
            raise MistakeError("DOCUMENTS are missing, whose phrases are counted: a file, or the id of a dataset")
        path = local_path(documents)
        found: dict[str, Any] = {"split": split, "config_name": config_name, "revision": revision}
        columns: dict[str, Any] = {"text_column": text_column, "summary_column": "", "source_kind": source_kind}
        rows = load_documents(path if path.exists() else documents, **columns, **found, streaming=True)
    else:
        unused = [] if documents is None else [repr(documents)]
        unused += given("split", "config_name", "revision", "text_column", "source_kind")
        unused += given("max_source_length", "max_phrases", "min_documents")
        if unused:
            raise MistakeError(f"DOCUMENTS are counted with --finder {TF_IDF} only; leave out {', '.join(unused)}")
    counting: dict[str, Any] = {"top_k": top_k, "max_phrases": max_phrases, "min_documents": min_documents}
    processor.key_phrases = fit_key_phrases(
        rows,
        processor,
        finder=finder,
        tagger=None if tagger is None else resolve_checkpoint(tagger),
        max_source_length=max_source_length,
        stopwords=stopwords,
        show_progress=True,
        **counting,
    )
    target = output or folder
    processor.save_pretrained(target)
    fitted = processor.key_phrases
    counted = f"{fitted.documents} documents, {len(fitted)} phrases kept. " if finder == TF_IDF else ""
    say(f"{counted}Saved: {target}")

"""`hier-models evaluate`."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..checkpoints import MINI_NAME, resolve_checkpoint
from ..cores import on_cores
from ..families import FAMILIES
from ..journal import is_begun
from . import loading, options
from .documents import PHRASES, QUERY
from .errors import MistakeError, check_not_the_data, check_parent, given, local_path, mistakes, say
from .extractive import check_options, is_extractive, load_extractive
from .options import Dtype, InputsFirst, command
from .reporting import rouge_table, selected_rows_table, tokens_were


# What documents can be made into.
Task = StrEnum(
    "Task", {"summarization": "summarization", "translation": "translation", "poem_generation": "poem-generation"}
)


class _SeveralNumbers(InputsFirst):
    """A command that takes `--selected-rows 1 2 4` for the option given three times."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words: list[str] = []
        for word in args:
            is_further = word.isdecimal() and words[-2:-1] == ["--selected-rows"] and words[-1].isdecimal()
            words += ["--selected-rows", word] if is_further else [word]
        return super().parse_args(ctx, words)


@command("evaluate", cls=_SeveralNumbers)
def evaluate(
    data: options.Data,
    model: options.Model = MINI_NAME,
    split: options.Name = None,
    config_name: options.Name = None,
    revision: options.Name = None,
    text_column: options.Name = None,
    summary_column: options.Name = None,
    source_kind: options.SourceKind = None,
    fillers: Annotated[str | None, typer.Option(metavar="WORDS")] = None,
    several_references: Annotated[bool, typer.Option("--several-references")] = False,
    digits: Annotated[str | None, typer.Option(metavar="MARK")] = None,
    predictions: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE")] = None,
    task: Annotated[Task | None, typer.Option()] = None,
    length: options.SummaryLength = None,
    max_length: options.Tokens = None,
    min_length: options.MinLength = None,
    num_beams: options.NumBeams = None,
    settings: options.Set = None,
    max_source_length: options.Tokens = None,
    cut: Annotated[bool, typer.Option("--cut")] = False,
    perplexity: Annotated[int | None, typer.Option("--perplexity", min=3, metavar="N")] = None,
    bert_score: options.OtherModel = None,
    nli: options.OtherModel = None,
    selected_rows: Annotated[list[int] | None, typer.Option("--selected-rows", min=1, metavar="N …")] = None,
    importance_tagger: options.OtherModel = None,
    oracle_importance: Annotated[bool, typer.Option("--oracle-importance")] = False,
    phrases_column: options.Name = None,
    max_words: options.Number = None,
    max_sentences: options.Number = None,
    language: options.Name = None,
    batch_size: options.BatchSize = 4,
    device: options.Name = None,
    dtype: options.NumberFormat = Dtype.auto,
) -> None:
    """Summarize or translate documents, and score the summaries or translations."""
    if not data:
        raise MistakeError("DATA: an empty string names nothing; for this folder, give '.'")
    path = local_path(data)
    _check_outputs(path, {"--predictions": predictions, "--json": json_file})
    if task not in (None, Task.summarization) and resolve_checkpoint(model) != model:
        raise MistakeError(f"--task {task}: {model} makes summaries; give another model with -m")
    if importance_tagger is not None and oracle_importance:
        raise MistakeError("--importance-tagger and --oracle-importance exclude each other; leave one out")
    loading.check_checkpoint(model)
    generation = loading.generation_settings(max_length, min_length, num_beams, settings, length=length)
    if selected_rows and predictions is not None:
        raise MistakeError("--predictions: not with --selected-rows, whose numbers each have summaries of their own")
    loading.quiet()
    of_models = given(
        *("length", "max_length", "min_length", "num_beams", "settings", "max_source_length", "cut", "perplexity"),
        *("importance_tagger", "oracle_importance", "phrases_column", "selected_rows"),
    )
    translates = ["--task translation"] if task == Task.translation else []
    check_options(model, [*of_models, *translates], given("max_words", "max_sentences", "language"))
    model = resolve_checkpoint(model)
    extractive = is_extractive(model)
    asked = Task.summarization if extractive else task or _task_of(model)
    found: dict[str, Any] = {"split": split, "config_name": config_name, "revision": revision}
    columns = loading.given_only(summary_column=summary_column, source_kind=source_kind, fillers=fillers)
    judges = loading.given_only(bert_score=bert_score, nli=nli)
    if judges and asked != Task.summarization:
        raise MistakeError("--bert-score and --nli are for summaries; leave them out")
    loading.check_judges(bert_score, nli)
    files: dict[str, Any] = {"predictions_file": predictions, "results_file": json_file}
    where = path if path.exists() else data
    if asked == Task.poem_generation:
        if others := given(
            *("summary_column", "source_kind", "fillers", "several_references", "digits", "perplexity"),
            *("phrases_column", "importance_tagger", "oracle_importance", "length", "max_length", "min_length"),
            *("max_source_length", "cut", "selected_rows"),
        ):
            raise MistakeError(f"{', '.join(others)}: not for poems, which {model!r} writes; leave out")
        pipe = loading.load_pipeline(model, device, dtype, str(asked))
        from ..data import load_poems
        from ..training.tasks.poem_generation import poem_table, run_poem_evaluation

        poems: Any = load_poems(where, **loading.given_only(lines_column=text_column, **found))
        kept = {"training_args": loading.trainer_arguments(pipe, batch_size), **files, **generation}
        print(poem_table(run_poem_evaluation(pipe.model, pipe.processor, poems, **kept)))
    elif asked == Task.translation:
        _check_no_summaries(model)
        pipe = loading.load_pipeline(model, device, dtype, str(asked))
        from ..data import load_parallel
        from ..training.tasks.translation import bleu_table, run_translation_evaluation

        pairs = load_parallel(where, split=split, source_column=text_column, target_column=summary_column)
        lengths = {"max_source_length": max_source_length, "max_target_length": perplexity}
        kept = {"training_args": loading.trainer_arguments(pipe, batch_size), **files, **lengths, **generation}
        print(bleu_table(run_translation_evaluation(pipe.model, pipe.processor or pipe.tokenizer, pairs, **kept)))
    elif asked != Task.summarization:
        _check_no_summaries(model, encoder=True)
        if generation or (columns and asked != "importance_tagging"):
            unused = ", ".join(given(*columns)) or "what concerns generation"
            raise MistakeError(f"--model: {model!r} is an encoder and makes no summaries; leave out {unused}")
        columns |= loading.given_only(text_column=text_column, split=split, max_source_length=max_source_length)
        _evaluate_encoder(model, data, device, dtype, batch_size=batch_size, **columns, **files)
    else:
        from ..data import LoadReport, load_documents

        report = LoadReport()
        columns |= {"text_column": text_column, "phrases_column": phrases_column, "query_column": None}
        reading: dict[str, Any] = {"several_references": several_references, "digits": digits, "report": report}
        documents = load_documents(where, **columns, **reading, **found)
        if "summary" not in documents.column_names:
            raise MistakeError(f"DATA: {data} has no reference summaries; --summary-column names their column, if any")
        if extractive:
            from ..experiments import run_extractive_evaluation

            asked_for = loading.given_only(max_words=max_words, max_sentences=max_sentences, language=language)
            summarizer = load_extractive(model, **asked_for)
            print(rouge_table(run_extractive_evaluation(summarizer, documents, device=device, **files, **judges)))
        else:
            pipe = loading.load_pipeline(model, device, dtype, importance_tagger=importance_tagger)
            loading.check_highlights(pipe, phrases_column)
            if QUERY in documents.column_names and not pipe._task_params().get("reads_query"):
                if any(documents[QUERY]):
                    say(f"`{QUERY}` is not looked at here; `hier-models summarize` chooses by it what is read.")
                documents = documents.remove_columns(QUERY)
            generation = loading.with_length(pipe, length, generation)
            from ..training import run_evaluation
            from ..training.evaluation import write_json

            processor = pipe.processor or pipe.tokenizer
            settings_of_all: dict[str, Any] = {
                "max_source_length": max_source_length,
                "long_documents": "cut" if cut else None,
                "training_args": loading.trainer_arguments(pipe, batch_size),
                "importance": "oracle" if oracle_importance else pipe.importance_tagger,
                "max_target_length": perplexity,
                **judges,
                **generation,
            }
            if own := [name for name in ("faithful", "paragraphs") if name in pipe._task_params()]:
                if others := given("oracle_importance", "selected_rows"):
                    raise MistakeError(
                        f"{others[0]}: not for what {model!r} writes for users, which its config.json says with "
                        f"{' and '.join(own)}; remove them from task_specific_params there, or leave {others[0]} out"
                    )
                asked_for = loading.given_only(
                    max_source_length=max_source_length, length=length, truncation=cut or None
                )
                size = batch_size if given("batch_size") else "auto"
                settings_of_all["summarize"] = partial(_as_summarize_does, pipe, size, {**generation, **asked_for})
            if selected_rows:
                from ..training.selected_rows import evaluate_selected_rows

                with mistakes("--selected-rows", ValueError):
                    results = evaluate_selected_rows(
                        pipe.model, processor, documents, selected_rows, **settings_of_all
                    )
                if json_file is not None:
                    write_json(json_file, {"selected_rows": results})
                print(selected_rows_table(results))
            else:
                results = [run_evaluation(pipe.model, processor, documents, **files, **settings_of_all)]
                print(rouge_table(results[0]))
            _say_what_was_cut(results[0], report)
    for file in files.values():
        if file is not None:
            say(f"Written: {file}")


def _as_summarize_does(pipe: Any, batch_size: int | str, settings: dict[str, Any], documents: Any) -> list[str]:
    """Write summaries as the checkpoint has them written for users, not by `generate` alone."""
    from tqdm import tqdm

    from ..data.tokenizing import source_kind

    kind = source_kind(documents.column_names)
    asked = ({name: row[name] for name in (kind, QUERY, PHRASES) if name in row} for row in documents)
    work = partial(pipe, batch_size=batch_size, **settings)
    results = on_cores(pipe, work, asked, total=len(documents), batch_size=batch_size)
    return [result[0]["summary_text"] for result in tqdm(results, "Summarizing", len(documents), disable=None)]


def _check_no_summaries(model: str, encoder: bool = False) -> None:
    """Refuse what is for summaries alone, where none are made."""
    if given("importance_tagger", "oracle_importance"):
        raise MistakeError(f"--importance-tagger and --oracle-importance are for summaries; {model!r} makes none")
    if given("source_kind", "fillers") and not encoder:
        raise MistakeError(f"--source-kind and --fillers are for summaries; {model!r} makes none")
    only = given(
        *("length", "config_name", "revision", "phrases_column", "several_references", "digits"),
        *("selected_rows", "cut"),
    )
    only += given("perplexity") if encoder else []
    if only:
        raise MistakeError(f"{', '.join(only)}: for data to summarize; {model!r} makes no summaries")


def _say_what_was_cut(results: dict[str, Any], report: Any) -> None:
    if report.filler_words or report.dropped_turns:
        say(f"Left out: {report.filler_words:,} filler words, {report.dropped_turns:,} turns without words.")
    cut = results["truncation"]
    if cut.get("without_importance"):
        say(f"{cut['without_importance']} documents have no important token; all of their tokens weigh the same.")
    for name, what in (
        ("without_phrases", "documents have nothing highlighted"),
        ("missing_phrases", "phrases are not in their documents"),
        ("truncated_phrases", "occurrences of phrases lost tokens"),
        ("long_phrases", "occurrences of phrases are too long and not highlighted"),
    ):
        if cut.get(name):
            say(f"{cut[name]:,} {what}.")
    if cut["truncated_documents"]:
        which = f"{cut['truncated_documents']} of {results['documents']} documents were"
        say(f"{which} not read whole: {tokens_were(cut['truncated_tokens'])} left out.")


def _evaluate_encoder(model: str, data: str, device: str | None, dtype: Dtype, **settings: Any) -> None:
    import torch

    from ..training.encoder_evaluation import run_encoder_evaluation
    from ..training.tasks import task_class

    if device not in (None, "cpu", "cuda"):
        raise MistakeError(f"--device: for an encoder, cpu or what there is; got {device!r}")
    number_format = None if dtype == Dtype.auto else getattr(torch, dtype.value)
    results = run_encoder_evaluation(model, data, **settings, use_cpu=device == "cpu", dtype=number_format)
    if results["task"] == "reading_comprehension":
        if not results["total"]:
            raise MistakeError(f"DATA: no question of {data} has an answer to score against")
        if without := results["truncation"]["validation"]["questions"] - results["total"]:
            say(f"{without} questions have no answer and were left out.")
    print(task_class(results["task"]).table(results))
    if left_out := results.get("unlabelled", {}).get("validation", 0):
        say(f"{left_out} rows have no label and were left out.")
    if cut := results["truncation"]["validation"].get("truncated_rows", 0):
        say(f"{cut} rows were longer than the model takes and were cut.")


def _task_of(model: str) -> str:
    """Tell what a checkpoint is for: a `Task`, or what an encoder was trained for; "encoding" if that is not known."""
    from transformers import AutoConfig, AutoProcessor

    from ..hub import task_of
    from ..training.encoder_evaluation import encoder_task_of

    with mistakes(f"--model: cannot load {model!r}", OSError, ValueError, KeyError):
        config = AutoConfig.from_pretrained(model)
        family = FAMILIES.get(config.model_type)
        if trained_for := encoder_task_of(config):
            return trained_for
        if family is not None and "AutoModelForSeq2SeqLM" not in family.models:
            return "encoding"
        found = task_of(config)
        # A poet that no recipe has trained says so by its processor alone.
        if found == Task.summarization and family is not None and "poem-generation" in family.pipelines:
            is_poet = getattr(AutoProcessor.from_pretrained(model), "poem_keywords", None) is not None
            return Task.poem_generation if is_poet else found
        return found


def _check_outputs(data: Path, files: dict[str, Path | None]) -> None:
    """Refuse, before the work begins, what could not be written or would destroy the data."""
    given_files = {option: file for option, file in files.items() if file is not None}
    for option, file in given_files.items():
        if file.is_dir():
            raise MistakeError(f"{option}: {file} is a folder; give a file")
        check_not_the_data(file, option, data)
        if is_begun(file):
            raise MistakeError(f"{option}: {file} is what another command made, and can go on with; give another")
        check_parent(file, option)
    if len({file.resolve() for file in given_files.values()}) < len(given_files):
        raise MistakeError(f"{option}: {file} is also the file of {next(iter(given_files))}; give another")

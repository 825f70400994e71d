"""The `hier-models` command: summarize, train, evaluate, inspect, export.

Exit codes: 0 done, 1 something failed, 2 a mistake in the command or in what it was given, 130 interrupted.

torch and transformers are imported by the commands when they run, so that `hier-models --help` answers at once.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import json
import logging
import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer


P = ParamSpec("P")
R = TypeVar("R")

FAILURE, MISTAKE, INTERRUPTED = 1, 2, 130
DATA_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
KINDS = ("text", "sentences", "turns", "documents")
STDIN = "-"
STDIN_NAME = "standard input"
RECORD_BEGINS = b'{"id": "'
ROUGE_NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def _help(text: str) -> str:
    """Join the lines of each paragraph, which typer would leave broken, but not those of the examples."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in paragraphs)


app = typer.Typer(
    name="hier-models",
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def main() -> None:
    """Run the command line."""
    app()


# Errors


class MistakeError(Exception):
    """Something the user can put right; its message says how."""


@dataclass
class _State:
    debug: bool = False
    # What to tell when the command is stopped with Ctrl-C.
    when_interrupted: str = ""


_state = _State()


def _say(text: str) -> None:
    """Write to standard error, which is for people; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _mistakes(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors that a library raises for a bad argument into mistakes of the user."""
    try:
        yield
    except kinds as error:
        raise MistakeError(f"{what}: {_first_paragraph(error)}") from error


def _first_paragraph(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.split("\n\n")[0]


def _is_mistake(error: BaseException) -> bool:
    """Tell a mistake of the user from a failure.

    A ValueError or TypeError that a line of this package raised is a check of an argument; one from the inside of a
    library is a failure. The last frame of the traceback is where it was raised.
    """
    if isinstance(error, MistakeError | FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError):
        return True
    if isinstance(error, ImportError):
        return "pip install" in str(error)
    if isinstance(error, ValueError | TypeError):
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        module = frame.tb_frame.f_globals.get("__name__", "") if frame is not None else ""
        return module.partition(".")[0] == __package__
    return False


def _guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command its exit codes: errors end in one line, and with --debug in a traceback before it."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        _state.when_interrupted = ""
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            _say(f"\nInterrupted. {_state.when_interrupted}".rstrip())
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            _fail(error)

    return run


def _fail(error: Exception) -> NoReturn:
    if _state.debug:
        _say("".join(traceback.format_exception(error)))
    if _is_mistake(error):
        # str of a KeyError or OSError is more readable with its file than its number.
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        _say(f"Error: {text}")
        raise typer.Exit(MISTAKE)
    _say(f"Error: {type(error).__name__}: {_first_paragraph(error)}")
    if "out of memory" in str(error).lower():
        _say("A smaller --batch-size or --max-source-length needs less memory.")
    if not _state.debug:
        _say("This is a failure, not your mistake: `hier-models --debug …` shows where it happened.")
    raise typer.Exit(FAILURE)


# Options of the command itself, and those that several commands share


def _version(wanted: bool) -> None:
    if not wanted:
        return
    parts = ["hier_models", "transformers", "torch"]
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in parts))
    raise typer.Exit


@app.callback(
    help=_help("""Train and use hierarchical summarizers of long documents.

    \b
    Examples:
      hier-models summarize ./my-model paper.txt
      hier-models train recipe.yaml --learning_rate 1e-4
      hier-models evaluate ./my-model test.jsonl
      hier-models inspect ./my-model paper.txt --output where.html
      hier-models export ./my-model ./to-share

    Every command explains itself: hier-models COMMAND --help
    """),
    epilog="Exit codes: 0 done, 1 failed, 2 a mistake in the command or its input, 130 interrupted.",
)
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks, and everything the libraries say.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the versions and exit.")
    ] = False,
) -> None:
    _state.debug = debug


class Dtype(StrEnum):
    """Number formats of weights and computation."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A checkpoint: a folder, or the id of a model on the Hub.")
]
InputArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT",
        help="Text files, folders of them, or .jsonl, .json, .csv, .tsv files with a document in each record "
        "(all also with .gz, .xz or .bz2). - or nothing: standard input, a text or JSON lines.",
    ),
]
TextColumnOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column with the documents. Recognized by its name if not given."),
]
BatchSizeOption = Annotated[int, typer.Option(min=1, metavar="N", help="Documents at a time.")]
MaxLengthOption = Annotated[
    int | None, typer.Option(min=1, metavar="TOKENS", help="Longest summary. Default: the model's setting.")
]
MinLengthOption = Annotated[
    int | None, typer.Option(min=0, metavar="TOKENS", help="Shortest summary. Default: the model's setting.")
]
NumBeamsOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Beams of the search. Default: the model's setting.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other generation setting of Transformers, such as length_penalty=2.0. May be repeated.",
    ),
]
MaxSourceLengthOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="TOKENS", help="Cut documents to this length. Default: what the model can take."),
]
DeviceOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, mps, … Default: an accelerator if there is one.")
]
DtypeOption = Annotated[Dtype, typer.Option(help="Number format of the weights. auto: as they were saved.")]


# The model


def _quiet() -> None:
    """Keep the libraries' own messages and bars off the screen, but not ours."""
    if _state.debug:
        return
    warnings.filterwarnings("ignore")
    from datasets.utils.logging import disable_progress_bar
    from transformers.utils import logging as transformers_logging

    disable_progress_bar()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    # Weights that are missing in a checkpoint are news in any case.
    transformers_logging.get_logger("transformers.modeling_utils").setLevel(logging.WARNING)
    # The commands say themselves what was cut.
    for name in ("pipelines", "hat_bart", "data.tokenizing"):
        logging.getLogger(f"{__package__}.{name}").setLevel(logging.ERROR)


def _load_pipeline(name: str, device: str | None, dtype: Dtype) -> Any:
    """Load a checkpoint as the summarization pipeline, which holds the model and its processor or tokenizer."""
    _check_checkpoint(name)
    _quiet()
    import torch
    from safetensors import SafetensorError
    from transformers import pipeline

    if device is not None:
        with _mistakes("--device", RuntimeError):
            torch.empty(0, device=torch.device(device))
    with _mistakes(f"MODEL: cannot load {name!r}", OSError, ValueError, KeyError, SafetensorError):
        make: Any = pipeline
        return make("summarization", model=name, device=device, dtype=str(dtype.value))


def _check_checkpoint(name: str) -> None:
    path = Path(name).expanduser()
    if path.is_file():
        raise MistakeError(
            f"MODEL: {name!r} is a file; the first argument is the model: a folder with a config.json, or the id of a "
            "model on the Hub"
        )
    if path.is_dir() and not (path / "config.json").is_file():
        checkpoints = sorted(path.glob("checkpoint-*/config.json"), key=lambda config: config.stat().st_mtime)
        hint = f"; it holds checkpoints, such as {checkpoints[-1].parent}" if checkpoints else ""
        raise MistakeError(f"MODEL: the folder {name!r} is not a checkpoint (it has no config.json){hint}")
    if not path.exists() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise MistakeError(f"MODEL: there is no folder {name!r}")


def _generation_settings(
    max_length: int | None, min_length: int | None, num_beams: int | None, others: list[str] | None
) -> dict[str, Any]:
    """Gather the arguments of `generate` from the options."""
    import yaml
    from transformers import GenerationConfig

    known = vars(GenerationConfig())
    settings: dict[str, Any] = {}
    for entry in others or []:
        name, equals, text = entry.partition("=")
        if not equals:
            raise MistakeError(f"--set: got {entry!r}; write NAME=VALUE, such as --set length_penalty=2.0")
        if name not in known or name.startswith("_"):
            import difflib

            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise MistakeError(f"--set: {name!r} is no generation setting of Transformers{hint}")
        with _mistakes(f"--set: {entry!r}", yaml.YAMLError):
            settings[name] = yaml.safe_load(text)
    # Tokens to be written, whatever the checkpoint says of lengths in other terms.
    return settings | _given(max_new_tokens=max_length, min_new_tokens=min_length, num_beams=num_beams)


# Documents


@dataclass
class _Documents:
    """The documents of a command line; may be read more than once.

    Args:
        inputs: Files and folders.
        text_column: Column with the documents, if given.
        set_aside: Where lines that cannot be used go; they stop the command if None.
        names: What to call files that the user knows under another name.
        set_aside_count: How many lines were set aside.
    """

    inputs: list[Path]
    text_column: str | None = None
    set_aside: Path | None = None
    names: dict[str, str] = field(default_factory=dict)
    set_aside_count: int = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield {"id": …, and one of KINDS}."""
        seen: Counter[str] = Counter()
        for path in self.inputs:
            try:
                for number, (identifier, document) in enumerate(self._read(path), start=1):
                    name = identifier or f"{self.names.get(str(path), path)}:{number}"
                    seen[name] += 1
                    # Two documents of one name would be taken for one when a job is continued.
                    yield {"id": name if seen[name] == 1 else f"{name} ({seen[name]})", **document}
            except (ValueError, OSError) as error:
                text = str(error)
                for actual, known in self.names.items():
                    text = text.replace(actual, known)
                raise MistakeError(text) from error

    def _read(self, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        if path.is_file() and _data_suffix(path) not in DATA_SUFFIXES:
            name = self.names.get(str(path), str(path))
            yield name, {"text": _read_text(path, name)}
            return
        from .data import LoadReport, load_documents

        report = LoadReport()
        rows = load_documents(
            path,
            text_column=self.text_column,
            summary_column="",
            streaming=True,
            bad_lines="stop" if self.set_aside is None else "set_aside",
            set_aside_file=self.set_aside,
            report=report,
        )
        for row in rows:
            yield str(row.get("id") or ""), {kind: row[kind] for kind in KINDS if kind in row}
        self.set_aside_count = report.set_aside


def _data_suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".xz", ".bz2"):
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _read_text(path: Path, name: str) -> str:
    from .data.reading import open_binary

    with open_binary(path) as stream:
        content = stream.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MistakeError(
            f"{name} is not a text file (byte 0x{content[error.start]:02x} at {error.start} is not UTF-8)"
        ) from error
    if not text.strip():
        raise MistakeError(f"{name} is empty")
    return text


@contextmanager
def _open_documents(inputs: list[str] | None, text_column: str | None, set_aside: Path | None) -> Iterator[_Documents]:
    """Check the inputs and bring standard input into a file of its own."""
    given = inputs or [STDIN]
    if set_aside is not None and (len(given) > 1 or given == [STDIN]):
        raise MistakeError("--set-aside works with one INPUT, a file or a folder")
    if given.count(STDIN) > 1:
        raise MistakeError("INPUT: standard input (-) can be read once only")
    with ExitStack() as stack:
        paths, names = [], {}
        for name in given:
            if name == STDIN:
                if sys.stdin.isatty() and not inputs:
                    raise MistakeError("INPUT: nothing to read; give files, a folder, or text on standard input")
                path = _save_stdin(Path(stack.enter_context(tempfile.TemporaryDirectory())))
                names[str(path)] = STDIN_NAME
            else:
                path = Path(name).expanduser()
                if not path.exists():
                    raise MistakeError(f"INPUT: there is no file or folder {name!r}")
            paths.append(path)
        yield _Documents(paths, text_column, set_aside, names)


def _save_stdin(folder: Path) -> Path:
    content = sys.stdin.buffer.read()
    # JSON lines begin with an object; a text hardly ever begins with a line that is one.
    first_line = content.lstrip().partition(b"\n")[0]
    is_json = False
    if first_line.startswith(b"{"):
        try:
            is_json = isinstance(json.loads(first_line), dict)
        except ValueError:
            # A broken first line of JSON lines should be called that, and not be summarized.
            is_json = first_line.startswith(b'{"')
    path = folder / ("stdin.jsonl" if is_json else "stdin")
    path.write_bytes(content)
    return path


# summarize


@app.command(
    help=_help("""Summarize documents: one, or a batch that can be interrupted and continued.

    \b
    Examples:
      hier-models summarize ./my-model paper.txt
      hier-models summarize ./my-model a.txt b.txt --json
      pdftotext paper.pdf - | hier-models summarize ./my-model
      hier-models summarize ./my-model papers/ --output out.jsonl
      hier-models summarize ./my-model test.jsonl -o out.jsonl --batch-size 8
      hier-models summarize ./my-model paper.txt --num-beams 4 --max-length 200

    Summaries go to standard output, one a line, in the order of the documents. With --json each is a JSON object:
    id, summary, num_truncated_tokens (how much of the document did not fit into the model), model, settings.

    An --output that ends in .jsonl is written as JSON lines, each when its document is done. If the file is there
    already, the job goes on where it stopped: run the same command again.

    In records the document is the column text, article, document, … (a string), sentences (a list of strings),
    turns (a list of objects with role and content) or documents (a list of strings to summarize together).
    """)
)
@_guarded
def summarize(
    model: ModelArgument,
    inputs: InputArgument = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here; .jsonl can be continued.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON objects, one a line, to standard output.")
    ] = False,
    max_length: MaxLengthOption = None,
    min_length: MinLengthOption = None,
    num_beams: NumBeamsOption = None,
    settings: SetOption = None,
    max_source_length: MaxSourceLengthOption = None,
    batch_size: BatchSizeOption = 1,
    text_column: TextColumnOption = None,
    set_aside: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write records that cannot be used here and go on. Default: stop at one."),
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = Dtype.auto,
) -> None:
    """Summarize documents."""
    as_lines = output is not None and output.suffix.lower() in (".jsonl", ".ndjson")
    if output is not None and not as_lines:
        if as_json:
            raise MistakeError(f"--output: JSON objects, one a line, go to a file that ends in .jsonl, got {output}")
        if output.suffix.lower() == ".json":
            raise MistakeError(f"--output: got {output}; write JSON lines (.jsonl), which can be continued, or text")
        if output.exists():
            raise MistakeError(f"--output: {output} is there already; only .jsonl files are continued, so remove it")
    if output is not None and not output.absolute().parent.is_dir():
        raise MistakeError(f"--output: there is no folder {output.absolute().parent}")
    _check_checkpoint(model)
    with _open_documents(inputs, text_column, set_aside) as documents:
        # A first look at everything, so that a bad record does not stop the job in its last hour.
        identifiers = [document["id"] for document in documents]
        generation = _generation_settings(max_length, min_length, num_beams, settings)
        # What each record says of its making; a job goes on only with the same.
        making = {"model": model, "settings": generation | _given(max_source_length=max_source_length)}
        done: set[str] = set()
        if output is not None and output.exists():
            done = _finished(output, identifiers, making)
        if done:
            _say(f"{output} holds {len(done)} of {len(identifiers)} summaries; going on with the others.")
        if len(done) == len(identifiers):
            return
        pipe = _load_pipeline(model, device, dtype)
        if output is not None and as_lines:
            _state.when_interrupted = f"What is done is in {output}; the same command goes on from there."
        cut = _write_summaries(
            pipe,
            (document for document in documents if document["id"] not in done),
            total=len(identifiers) - len(done),
            output=output,
            as_json=as_json or as_lines,
            making=making,
            batch_size=batch_size,
        )
    if cut:
        number = f"{len(cut)} of {len(identifiers)} documents were" if len(identifiers) > 1 else "The document was"
        _say(f"{number} longer than the model takes: {_tokens(sum(cut))} cut at the end.")
    if documents.set_aside_count:
        _say(f"{documents.set_aside_count} records could not be used; they are in {set_aside}.")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _finished(output: Path, identifiers: list[str], making: dict[str, Any]) -> set[str]:
    """Read which documents a job has done, and cut off a line that it was interrupted in."""
    content = output.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    lines, rest = whole.splitlines(), content[len(whole) :]
    done: set[str] = set()
    known = set(identifiers)
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            identifier, made = record["id"], {name: record[name] for name in making}
        except (ValueError, TypeError, KeyError) as error:
            raise MistakeError(_no_summary(output, number)) from error
        if identifier not in known:
            raise MistakeError(
                f"--output: {output}:{number} is the summary of {identifier!r}, which is not among the documents; it "
                "belongs to another job, so give another file"
            )
        if made != making:
            raise MistakeError(
                f"--output: {output}:{number} was made with {json.dumps(made)}, and this job has "
                f"{json.dumps(making)}; give another file, or the same model and settings"
            )
        done.add(identifier)
    if not rest.startswith(RECORD_BEGINS) and not RECORD_BEGINS.startswith(rest):
        raise MistakeError(_no_summary(output, len(lines) + 1))
    if rest:
        os.truncate(output, len(whole))
    return done


def _no_summary(output: Path, line: int) -> str:
    return f"--output: {output}:{line} is no summary of an earlier run; give another file"


def _write_summaries(
    pipe: Any,
    documents: Iterator[dict[str, Any]],
    *,
    total: int,
    output: Path | None,
    as_json: bool,
    making: dict[str, Any],
    batch_size: int,
) -> list[int]:
    """Summarize, write each summary when it is there, and return how many tokens were cut of each cut document."""
    waiting: deque[str] = deque()

    def stream() -> Iterator[dict[str, Any]]:
        for document in documents:
            waiting.append(document.pop("id"))
            yield document

    cut: list[int] = []
    with ExitStack() as stack:
        target = sys.stdout if output is None else stack.enter_context(output.open("a", encoding="utf-8"))
        results = pipe(stream(), batch_size=batch_size, return_truncation=True, **making["settings"])
        bar = None
        # Not where the summaries themselves go by.
        if total > 1 and sys.stderr.isatty() and not target.isatty():
            bar = stack.enter_context(
                typer.progressbar(length=total, label="Summarizing", file=sys.stderr, show_pos=True)
            )
        for result in results:
            first = result[0]
            summary = first.pop("summary_text").strip()
            if first["num_truncated_tokens"]:
                cut.append(first["num_truncated_tokens"])
            record = {"id": waiting.popleft(), "summary": summary, **first, **making}
            line = json.dumps(record, ensure_ascii=False) if as_json else _one_line(summary) if total > 1 else summary
            target.write(_encodable(line) + "\n")
            target.flush()
            if bar is not None:
                bar.update(1)
    return cut


def _tokens(count: int) -> str:
    return "1 token was" if count == 1 else f"{count:,} tokens were"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


# train


@app.command(
    help=_help("""Train a model by a recipe.

    \b
    Examples:
      hier-models train recipe.yaml
      hier-models train recipe.yaml --learning_rate 1e-4 --output_dir ./my-model
      hier-models train recipe.yaml --from_bart facebook/bart-base
      hier-models train --tokenizer ./tok --train a.jsonl --output_dir ./my-model

    A recipe is a YAML file with the sections model, data, generation, run and training. Every name in it is also a
    flag, which overrides the recipe. The section training takes everything that Seq2SeqTrainingArguments of
    Transformers takes. --flags lists all flags.

    A run that was interrupted goes on from its last checkpoint when it is started again. The folder --output_dir holds
    the model, its processor, results.json and the summaries of the validation documents.
    """),
    context_settings={"ignore_unknown_options": True},
)
@_guarded
def train(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="RECIPE", help="A YAML file, and any number of --NAME VALUE.")
    ] = None,
    flags: Annotated[bool, typer.Option("--flags", help="List all flags and exit.")] = False,
) -> None:
    """Train a model by a recipe."""
    if flags:
        _list_flags()
        return
    given = list(arguments or [])
    recipe_file = given.pop(0) if given and not given[0].startswith("-") else None
    if recipe_file is None and not given:
        raise MistakeError("train: give a recipe file, or flags; `hier-models train --help` shows how")
    if recipe_file is not None and not Path(recipe_file).is_file():
        raise MistakeError(f"RECIPE: there is no file {recipe_file!r}")
    from .training import load_recipe, run_training

    recipe = load_recipe(recipe_file, given)
    if not _state.debug:
        warnings.filterwarnings("ignore")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    output_dir = recipe.training.output_dir
    _state.when_interrupted = f"The same command goes on from the last checkpoint in {output_dir}, if there is one."
    with _mistakes("model", OSError):
        results = run_training(recipe)
    evaluation = results.get("evaluation")
    if evaluation:
        print(_rouge_table(evaluation))
    print(f"Model, processor and results.json are in {output_dir}")


def _list_flags() -> None:
    import argparse

    from transformers import HfArgumentParser

    from .training import DataArguments, GenerationArguments, ModelArguments, RunArguments

    sections = [ModelArguments, DataArguments, GenerationArguments, RunArguments]
    parser = HfArgumentParser(
        sections,  # type: ignore[arg-type]  # it takes any dataclass types
        prog="hier-models train",
        add_help=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        usage="hier-models train [RECIPE] [--NAME VALUE]...",
        epilog="And everything that transformers.Seq2SeqTrainingArguments takes: --output_dir, --learning_rate, "
        "--num_train_epochs, --per_device_train_batch_size, --bf16, --gradient_checkpointing, --save_steps, …",
    )
    parser.print_help()


# evaluate


@app.command(
    help=_help("""Summarize documents that have reference summaries, and score the summaries with ROUGE.

    \b
    Examples:
      hier-models evaluate ./my-model test.jsonl
      hier-models evaluate ./my-model test.jsonl --predictions out.jsonl
      hier-models evaluate ./my-model corpus/ --split validation --json scores.json
      hier-models evaluate ./my-model ccdv/pubmed-summarization --split test

    The table on standard output gives F1 times 100: rougeL compares the whole texts, rougeLsum sentence by sentence.
    --json also keeps the settings of ROUGE and of the generation, and what of the documents was cut.
    """)
)
@_guarded
def evaluate(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A .jsonl, .json, .csv or .tsv file, a folder of them, or a dataset on the Hub."
        ),
    ],
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Part of the data: test, validation, …")] = None,
    text_column: TextColumnOption = None,
    summary_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column with the references. Recognized by its name if not given."),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each summary and its reference here, as JSON lines.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write scores and settings here, as JSON.")
    ] = None,
    max_length: MaxLengthOption = None,
    min_length: MinLengthOption = None,
    num_beams: NumBeamsOption = None,
    settings: SetOption = None,
    max_source_length: MaxSourceLengthOption = None,
    batch_size: BatchSizeOption = 4,
    device: DeviceOption = None,
    dtype: DtypeOption = Dtype.auto,
) -> None:
    """Summarize documents and score the summaries."""
    _check_checkpoint(model)
    generation = _generation_settings(max_length, min_length, num_beams, settings)
    _quiet()
    from .data import load_documents

    path = Path(data).expanduser()
    documents = load_documents(
        path if path.exists() else data, split=split, text_column=text_column, summary_column=summary_column
    )
    if "summary" not in documents.column_names:
        raise MistakeError(f"DATA: {data} has no reference summaries; --summary-column names their column if it has")
    pipe = _load_pipeline(model, device, dtype)
    from .pipelines.summarization_hier import DEFAULT_MAX_NEW_TOKENS
    from .training import run_evaluation

    own = pipe.model.generation_config
    lengths = [own.max_length, own.max_new_tokens, generation.get("max_length"), generation.get("max_new_tokens")]
    if lengths == [None] * 4:
        # As the pipeline does it; `generate` alone would stop after 20 tokens.
        positions = getattr(pipe.model.config, "max_position_embeddings", None) or DEFAULT_MAX_NEW_TOKENS + 1
        generation["max_new_tokens"] = min(DEFAULT_MAX_NEW_TOKENS, positions - 1)
    results = run_evaluation(
        pipe.model,
        pipe.processor or pipe.tokenizer,
        documents,
        max_source_length=max_source_length,
        batch_size=batch_size,
        predictions_file=predictions,
        results_file=json_file,
        **generation,
    )
    print(_rouge_table(results))
    cut = results["truncation"]
    if cut["truncated_documents"]:
        _say(
            f"{cut['truncated_documents']} of {results['documents']} documents were longer than the model takes: "
            f"{_tokens(cut['truncated_tokens'])} cut at the end."
        )
    for file in (predictions, json_file):
        if file is not None:
            _say(f"Written: {file}")


def _rouge_table(results: dict[str, Any]) -> str:
    rows = [(name, f"{results[name]:.2f}") for name in ROUGE_NAMES]
    rows += [("summary length", f"{results['gen_len']:.1f} tokens"), ("documents", str(results["documents"]))]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value:>6}" for name, value in rows)


# inspect


@app.command(
    name="inspect",
    help=_help("""Draw which sentences of a document the model looks at while it writes the summary.

    \b
    Examples:
      hier-models inspect ./my-model paper.txt
      hier-models inspect ./my-model paper.txt -o where.html -o where.png
      hier-models inspect ./my-model paper.txt --summary abstract.txt
      hier-models inspect ./my-model test.jsonl --document 3

    For each decoder layer a heatmap: a row for each sentence of the document, a column for each token of the summary.
    A page (.html) opens in any browser and shows sentence, token and weight under the pointer; an image (.png) needs
    matplotlib.
    """),
)
@_guarded
def inspect_attention(
    model: ModelArgument,
    inputs: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="A text file or a file of records. - or nothing: standard input."),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", metavar="FILE", help="A .html or .png file; may be repeated. [attention.html]"),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A text file with the summary to look at. Default: the model's."),
    ] = None,
    number: Annotated[
        int, typer.Option("--document", min=1, metavar="N", help="Which document of INPUT, counted from 1.")
    ] = 1,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The heading. Default: the name of INPUT.")] = None,
    top_k: Annotated[int, typer.Option(min=1, metavar="N", help="Sentences kept for each token of the summary.")] = 16,
    max_length: MaxLengthOption = None,
    min_length: MinLengthOption = None,
    num_beams: NumBeamsOption = None,
    settings: SetOption = None,
    max_source_length: MaxSourceLengthOption = None,
    text_column: TextColumnOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = Dtype.auto,
) -> None:
    """Draw the hierarchical attention of one summary."""
    files = output or [Path("attention.html")]
    for file in files:
        if file.suffix.lower() not in (".html", ".htm", ".png"):
            raise MistakeError(f"--output: got {file}; it must end in .html or .png")
        if not file.absolute().parent.is_dir():
            raise MistakeError(f"--output: there is no folder {file.absolute().parent}")
    if any(file.suffix.lower() == ".png" for file in files):
        from .inspection.heatmap import require_matplotlib

        require_matplotlib()
    if summary is not None and (max_length or min_length or num_beams or settings):
        raise MistakeError("--summary: a given summary is not generated, so leave out the settings of its generation")
    _check_checkpoint(model)
    with _open_documents(None if inputs is None else [inputs], text_column, None) as documents:
        document = next((document for place, document in enumerate(documents, start=1) if place == number), None)
        if document is None:
            raise MistakeError(f"--document: there is no document {number} in {inputs or STDIN_NAME}")
    name = document.pop("id")
    summary_text = None if summary is None else _read_text(summary, str(summary)).strip()
    generation = _generation_settings(max_length, min_length, num_beams, settings)
    pipe = _load_pipeline(model, device, dtype)
    from .inspection import hierarchical_attention

    if pipe.processor is None:
        raise MistakeError(
            f"MODEL: {type(pipe.model).__name__} has no hierarchical attention to show; give a model of hier_models"
        )
    attention = hierarchical_attention(
        pipe.model,
        pipe.processor,
        **document,
        summary=summary_text,
        top_k=top_k,
        max_source_length=max_source_length,
        title=title or f"Hierarchical attention: {name}",
        **generation,
    )
    print(attention.summary)
    for file in files:
        (attention.save_png if file.suffix.lower() == ".png" else attention.save_html)(file)
        _say(f"Written: {file}")
    if attention.num_truncated_tokens:
        _say(
            f"The document was longer than the model takes: {_tokens(attention.num_truncated_tokens)} cut at the end."
        )


# export


@app.command(
    help=_help("""Write a checkpoint that loads with plain Transformers, where hier_models is not installed.

    \b
    Examples:
      hier-models export ./my-model ./to-share
      hier-models export ./my-model ./to-share --card card.yaml
      hier-models export ./my-model --push my-name/my-model --private

    The folder holds weights, configuration, processor, the code of the model and of the summarization pipeline, and a
    model card. Others load it with trust_remote_code=True.

    The card file is YAML with any of: name, language, license, base_model, datasets, data, hyperparameters, metrics,
    evaluated_on, intended_use, limits, tags.
    """)
)
@_guarded
def export(
    model: ModelArgument,
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]", help="Where to write.")] = None,
    card: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML: what the model card says.")] = None,
    push: Annotated[
        str | None, typer.Option(metavar="REPO", help="Push to this repository on the Hub, as name/model.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository a private one.")] = False,
) -> None:
    """Write a checkpoint with its code, and push it."""
    if folder is None and push is None:
        raise MistakeError("export: give a FOLDER to write to, or --push REPO, or both")
    if private and push is None:
        raise MistakeError("--private goes with --push")
    details = None if card is None else _read_card(card)
    _check_checkpoint(model)
    if folder is not None and folder.resolve() == Path(model).expanduser().resolve():
        raise MistakeError(f"FOLDER: {folder} is the checkpoint itself; give another folder")
    pipe = _load_pipeline(model, "cpu", Dtype.auto)
    from . import hub

    if pipe.processor is None:
        raise MistakeError(
            f"MODEL: {type(pipe.model).__name__} is not a model of hier_models; its own save_pretrained exports it"
        )
    if folder is not None:
        _say(f"Written: {hub.export(pipe.model, pipe.processor, folder, card=details)}")
    if push is not None:
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

        try:
            address = hub.push_to_hub(pipe.model, pipe.processor, push, card=details, private=private or None)
        except (LocalTokenNotFoundError, HFValidationError) as error:
            raise MistakeError(f"--push: {_first_paragraph(error)}") from error
        except HfHubHTTPError as error:
            status = getattr(error.response, "status_code", 0)
            if status in (401, 403, 404):
                raise MistakeError(
                    f"--push: the Hub refuses {push!r} ({status}); log in with `hf auth login` as someone who may "
                    "write there"
                ) from error
            raise
        print(address)


def _read_card(path: Path) -> dict[str, Any]:
    import yaml

    if not path.is_file():
        raise MistakeError(f"--card: there is no file {str(path)!r}")
    with _mistakes(f"--card: {path}", yaml.YAMLError, UnicodeDecodeError):
        details = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(details, dict):
        raise MistakeError(f"--card: {path} must hold names and values, such as `license: apache-2.0`")
    return details


if __name__ == "__main__":
    main()

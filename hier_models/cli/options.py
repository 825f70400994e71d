"""The command itself, and the options that several commands share."""

from __future__ import annotations

import copy
import importlib.metadata
import os
import re
import shlex
import tomllib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from ..checkpoints import is_hub_id
from .errors import MistakeError, P, R, guarded, local_path, state


HELP = Path(__file__).parent / "help"
# Of arguments and options: command -> parameter -> help; what several commands share stands under "shared".
PARAMETERS = tomllib.loads((HELP / "parameters.toml").read_text(encoding="utf-8"))


def help_text(command: str) -> str:
    """Read the help of a command; lines of paragraphs are joined, which typer would leave broken, but not examples."""
    text = (HELP / f"{command}.txt").read_text(encoding="utf-8")
    return "\n\n".join(
        f"\b\n{part}" if re.search("^  ", part, re.MULTILINE) else " ".join(part.split())
        for part in text.rstrip().split("\n\n")
    )


app = typer.Typer(
    name="hier-models",
    rich_markup_mode="rich",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def command(name: str, **settings: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a command, with its help, that of its parameters, and its exit codes."""

    def register(function: Callable[P, R]) -> Callable[P, R]:
        texts = PARAMETERS["shared"] | PARAMETERS.get(name, {})
        function.__annotations__ = get_type_hints(function, include_extras=True)  # which typer then takes as they are
        for parameter, hint in function.__annotations__.items():
            if metadata := getattr(hint, "__metadata__", ()):
                own = [copy.copy(option) for option in metadata]  # commands share them, and not their help
                for option in own:
                    option.help = option.help or texts[parameter]
                function.__annotations__[parameter] = Annotated[hint.__origin__, *own]
        return app.command(name, help=help_text(name), **settings)(guarded(function))

    return register


def _version(wanted: bool) -> None:
    if not wanted:
        return
    parts = ["hier_models", "transformers", "torch"]
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in parts))
    raise typer.Exit


@app.callback(
    help=help_text("hier-models"),
    epilog="Exit codes: 0 done, 1 failed, 2 a mistake in the command or its input, 75 not finished when its time was "
    "up, 130 interrupted.",
)
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks, and everything the libraries say.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the versions and exit.")
    ] = False,
) -> None:
    state.debug = debug


class OptionsKnown(TyperCommand):
    """A command of which `given` tells the options that the user gave."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and keep the options as the user writes them, for messages."""
        rest: list[str] = super().parse_args(ctx, args)
        state.given = {
            str(each.name): each.opts[0]
            for each in self.params
            if ctx.get_parameter_source(str(each.name)).name != "DEFAULT"
        }
        return rest


class InputsFirst(OptionsKnown):
    """A command whose inputs stand first and whose model is an option; it tells who gives the model first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; too many of them are looked at before they are refused."""
        words = list(args)
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        given = next(ctx.params[each.name] for each in self.params if each.param_type_name == "argument")
        inputs = [str(each) for each in [*(given if isinstance(given, list | tuple) else [given]), *rest] if each]
        if inputs and "model" not in state.given:
            _refuse_model_first(inputs, f"{ctx.info_name}", words)
        if rest:
            ctx.fail(f"Got unexpected extra argument(s) ({' '.join(rest)})")
        return rest


@guarded
def _refuse_model_first(inputs: list[str], command: str, words: list[str]) -> None:
    first, *others = inputs
    if not _is_model(first, alone=not others):
        return
    as_given = next(word for word in words if Path(word) == Path(first))
    words.remove(as_given)
    rest = [*words[:8], *(["..."] if len(words) > 8 else [])]
    what = "is a model" if os.path.isdir(local_path(first)) else "is no file or folder"
    as_meant = shlex.join(["hier-models", command, *rest, "-m", as_given])
    raise MistakeError(f"{as_given!r} {what}; the model is given with -m: {as_meant}")


def _is_model(name: str, alone: bool) -> bool:
    """Tell a checkpoint from documents, and a model on the Hub too unless it may be a dataset or a missing file."""
    path = local_path(name)
    if os.path.exists(path):
        weights = [*path.glob("*.safetensors"), *path.glob("pytorch_model*.bin")]
        return bool(weights) and (path / "config.json").is_file()
    return not alone and name.isascii() and is_hub_id(name) and not re.search(r"\.[a-z]\w*$", name)


def _batch_size(value: str) -> int | str:
    if value == AUTO or (value.isdecimal() and int(value)):
        return AUTO if value == AUTO else int(value)
    raise typer.BadParameter(f"must be {AUTO}, or a number of at least 1; got {value!r}")


AUTO = "auto"  # a number of documents that depends on their length, as in `pipelines.batching_hier`
# Number formats of weights and computation.
Dtype = StrEnum("Dtype", ["auto", "float32", "bfloat16", "float16", "int8"])
Length = StrEnum("Length", ["line", "short", "long"])  # of a summary, for models that were trained to be told so
Model = Annotated[str, typer.Option("--model", "-m", metavar="MODEL")]
RequiredModel = Annotated[str | None, typer.Option("--model", "-m", metavar="MODEL")]  # not every model can do it
Inputs = Annotated[list[str] | None, typer.Argument(metavar="INPUT")]
Data = Annotated[str, typer.Argument(metavar="DATA")]
Name = Annotated[str | None, typer.Option(metavar="NAME")]
SourceKind = Annotated[str | None, typer.Option(metavar="KIND")]
AsJson = Annotated[bool, typer.Option("--json")]
SetAside = Annotated[Path | None, typer.Option(metavar="FILE")]
BatchSize = Annotated[int, typer.Option(min=1, metavar="N")]
AutoBatchSize = Annotated[Any, typer.Option(parser=_batch_size, metavar="N")]  # an int, or AUTO
SummaryLength = Annotated[Length | None, typer.Option()]
Tokens = Annotated[int | None, typer.Option(min=1, metavar="TOKENS")]
MinLength = Annotated[int | None, typer.Option(min=0, metavar="TOKENS")]
NumBeams = Annotated[int | None, typer.Option(min=1, metavar="N")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE")]
OtherModel = Annotated[str | None, typer.Option(metavar="MODEL")]
Query = Annotated[str | None, typer.Option(metavar="TEXT")]
Phrase = Annotated[list[str] | None, typer.Option("--phrase", metavar="TEXT[=VALUE]")]
Number = Annotated[int | None, typer.Option(min=1, metavar="N")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS")]
NumberFormat = Annotated[Dtype, typer.Option()]

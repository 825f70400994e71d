"""The command itself, and the options that several commands share."""

from __future__ import annotations

import importlib.metadata
import inspect
from enum import StrEnum
from typing import Annotated

import typer

from .errors import state


def help_text(text: str) -> str:
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


def _version(wanted: bool) -> None:
    if not wanted:
        return
    parts = ["hier_models", "transformers", "torch"]
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in parts))
    raise typer.Exit


@app.callback(
    help=help_text("""Train and use hierarchical summarizers of long documents.

    \b
    Examples:
      hier-models summarize ./my-model paper.txt
      hier-models train recipe.yaml --learning_rate 1e-4
      hier-models evaluate ./my-model test.jsonl
      hier-models inspect ./my-model paper.txt --output where.html
      hier-models analyze test.jsonl --model ./my-model --output report
      hier-models export ./my-model ./to-share

    Every command explains itself: hier-models COMMAND --help
    """),
    epilog="Exit codes: 0 done, 1 failed, 2 a mistake in the command or its input, 75 not finished when its "
    "time was up, 130 interrupted.",
)
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks, and everything the libraries say.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the versions and exit.")
    ] = False,
) -> None:
    state.debug = debug


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
ConfigNameOption = Annotated[str | None, typer.Option(metavar="NAME", help="Configuration of a dataset on the Hub.")]
RevisionOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Branch, tag or commit of a dataset on the Hub.")
]
SourceKindOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="What the documents are: text, sentences, turns (also of `Name: words` lines), documents (also one text "
        "with ||||| between).",
    ),
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
ImportanceTaggerOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Checkpoint that says how important each token is, for a Top-Down Transformer that pools by importance.",
    ),
]
PhraseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--phrase",
        metavar="TEXT[=VALUE]",
        help="Highlight this phrase in every document, in the place of those that the model finds. May be repeated.",
    ),
]
PhrasesColumnOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column with a list of phrases to highlight in each document."),
]
DeviceOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, mps, … Default: an accelerator if there is one.")
]
DtypeOption = Annotated[Dtype, typer.Option(help="Number format of the weights. auto: as they were saved.")]

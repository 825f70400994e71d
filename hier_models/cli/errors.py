"""Errors of the command line: what the user sees of them, and the exit code."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import typer


P = ParamSpec("P")
R = TypeVar("R")

FAILURE, MISTAKE, INTERRUPTED = 1, 2, 130
NOT_FINISHED = 75  # that of EX_TEMPFAIL in sysexits.h: begun well, to be gone on with


class MistakeError(Exception):
    """Something the user can put right; its message says how."""


@dataclass
class State:
    """What the options before the command, and the command itself, say of its errors."""

    debug: bool = False
    given: dict[str, str] = field(default_factory=dict)  # name of an argument -> the option that the user gave for it
    when_interrupted: str = ""  # what to tell when the command is stopped, by Ctrl-C or a failure


state = State()


def given(*names: str) -> list[str]:
    """Return which options, of the arguments with these names, the user gave."""
    return [state.given[name] for name in names if name in state.given]


def say(text: str) -> None:
    """Write to standard error, which is for people; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def mistakes(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors that a library raises for a bad argument into mistakes of the user."""
    try:
        yield
    except kinds as error:
        raise MistakeError(f"{what}: {first_paragraph(error)}") from error


def local_path(name: str | Path) -> Path:
    """The file that a name stands for; one that only looks as if it began with somebody's home is left as it is."""
    return Path(os.path.expanduser(name))  # `Path.expanduser` raises a RuntimeError, of ~$report.docx for example


def check_parent(file: Path, option: str) -> None:
    """Refuse a file, or folder, to be written into a folder that is not there."""
    if not file.absolute().parent.is_dir():
        raise MistakeError(f"{option}: there is no folder {file.absolute().parent}")


def check_not_the_data(file: Path, option: str, data: Path) -> None:
    """Refuse a file to be written in the place of the data, or where it would be read as a part of it."""
    # The functions of `os`, to which a text is the name of no file.
    if os.path.isfile(data) and file.resolve() == data.resolve():
        raise MistakeError(f"{option}: {file} is the data and would be overwritten; give another file")
    if os.path.isdir(data) and file.resolve().is_relative_to(data.resolve()):
        raise MistakeError(f"{option}: {file} lies in the folder of the data; give a file elsewhere")


def check_output_folder(folder: Path, option: str, data: str) -> None:
    """Refuse a folder that cannot be made, or whose files would be read as a part of the data."""
    if folder.exists() and not folder.is_dir():
        raise MistakeError(f"{option}: {folder} is a file; give a folder")
    check_parent(folder, option)
    source = local_path(data)
    if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
        raise MistakeError(f"{option}: {folder} lies in the folder of the data; give a folder elsewhere")


def first_paragraph(error: BaseException) -> str:
    """Return the first paragraph of an error's text; libraries go on with advice of their own."""
    text = str(error).strip() or type(error).__name__
    return text.split("\n\n")[0]


def lacks_memory(said: str) -> bool:
    """Whether an error, with its class, says that there is too little memory."""
    return any(sign in said.lower() for sign in ("out of memory", "memoryerror", "allocate memory"))


def is_mistake(error: BaseException) -> bool:
    """Tell a mistake of the user from a failure; a ValueError or TypeError is one if this package itself raised it."""
    if isinstance(error, MistakeError | FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError):
        return True
    if isinstance(error, ImportError):
        return "pip install" in str(error)
    if not isinstance(error, ValueError | TypeError):
        return False
    frame, _ = list(traceback.walk_tb(error.__traceback__))[-1]
    module = getattr(error, "raised_in", frame.f_globals.get("__name__", ""))  # the former of another process
    return str(module).partition(".")[0] == __package__.partition(".")[0]


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command its exit codes: errors end in one line, and with --debug in a traceback before it."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        state.when_interrupted = ""
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            say(f"\nInterrupted. {state.when_interrupted}".rstrip())
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            _fail(error)

    return run


def _fail(error: Exception) -> NoReturn:
    if state.debug:
        say("".join(traceback.format_exception(error)))
    if is_mistake(error):
        # str of a KeyError or OSError is more readable with its file than its number.
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        say(f"Error: {text}")
        raise typer.Exit(MISTAKE)
    said = f"{type(error).__name__}: {first_paragraph(error)}"
    say(f"Error: {said}")
    if lacks_memory(said):
        say("A smaller --batch-size or --max-source-length needs less memory.")
    if any(sign in said.lower() for sign in ("no space left", "quota exceeded")):
        say("The disk is full: make room on it.")
    elif not state.debug:
        say("This is a failure, not your mistake: `hier-models --debug …` shows where it happened.")
    if state.when_interrupted:
        say(state.when_interrupted)
    raise typer.Exit(FAILURE)

"""`hier-models export`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..checkpoints import MINI_NAME, resolve_checkpoint
from . import options
from .errors import MistakeError, first_paragraph, local_path, mistakes, say
from .loading import check_checkpoint, quiet
from .options import InputsFirst, command


if TYPE_CHECKING:
    from ..hub import CardDetails


@command("export", cls=InputsFirst)
def export(
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]")] = None,
    model: options.Model = MINI_NAME,
    card: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    push: Annotated[str | None, typer.Option(metavar="REPO")] = None,
    private: Annotated[bool, typer.Option("--private")] = False,
    onnx: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    int8: Annotated[bool, typer.Option("--int8")] = False,
    page: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    onnxruntime_web: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
) -> None:
    """Write a checkpoint with its code, and push it."""
    if folder is None and push is None and onnx is None and page is None:
        raise MistakeError("export: give a FOLDER to write to, or --push REPO, --onnx FOLDER or --page FOLDER")
    for option, given, of, there in (
        ("--card", card, "a FOLDER to write to, or with --push", folder or push),
        ("--private", private, "--push", push),
        ("--int8", int8, "--onnx (a page is always in int8)", onnx),
        ("--onnxruntime-web", onnxruntime_web, "--page", page),
    ):
        if given and there is None:
            raise MistakeError(f"{option} goes with {of}")
    details = None if card is None else _read_card(card)
    check_checkpoint(model)
    called, model = model, resolve_checkpoint(model)
    for name, target in (("FOLDER", folder), ("--onnx", onnx), ("--page", page)):
        if target is not None and target.resolve() == local_path(model).resolve():
            raise MistakeError(f"{name}: {target} is the checkpoint itself; give another folder")
    loaded, processor = _load(model)
    from .. import hub

    if onnx is not None:
        from ..hub.onnx_export import export_onnx

        with mistakes("--onnx", ImportError, ValueError, FileExistsError, NotADirectoryError):
            say(f"Written: {export_onnx(loaded, processor, onnx, int8=int8)}")
    if page is not None:
        from ..hub.browser_page import export_page

        with mistakes("--page", ImportError, ValueError, FileNotFoundError, FileExistsError, NotADirectoryError):
            export_page(loaded, processor, page, name=Path(called).name, onnxruntime_web=onnxruntime_web)
        serve = f"python -m http.server -d {shlex.quote(str(page))}"
        say(f"Written: {page}. Serve it from any web server, such as: {serve}")
    if folder is not None:
        say(f"Written: {hub.export(loaded, processor, folder, card=details)}")
    if push is not None:
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

        try:
            address = hub.push_to_hub(loaded, processor, push, card=details, private=private or None)
        except (LocalTokenNotFoundError, HFValidationError) as error:
            raise MistakeError(f"--push: {first_paragraph(error)}") from error
        except HfHubHTTPError as error:
            status = getattr(error.response, "status_code", 0)
            if status not in (401, 403, 404):
                raise
            raise MistakeError(f"--push: the Hub refuses {push!r} ({status}); see `hf auth login`") from error
        print(address)


def _load(name: str) -> tuple[Any, Any]:
    """Load a checkpoint as what it is, and its processor."""
    quiet()
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoProcessor

    from .. import hub

    with mistakes(f"--model: cannot load {name!r}", OSError, ValueError, KeyError, SafetensorError):
        config = AutoConfig.from_pretrained(name)
        model_class = hub.model_class(config)
        if model_class is None:
            if not config.architectures:
                raise MistakeError(f"--model: config.json of {name!r} does not name the model's class (architectures)")
            found = config.architectures[0]
            raise MistakeError(f"--model: {found} is no model of hier_models; save_pretrained exports it")
        return model_class.from_pretrained(name), AutoProcessor.from_pretrained(name)


def _read_card(path: Path) -> CardDetails:
    import yaml

    if not path.is_file():
        raise MistakeError(f"--card: there is no file {str(path)!r}")
    with mistakes(f"--card: {path}", yaml.YAMLError, UnicodeDecodeError):
        details = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(details, dict):
        raise MistakeError(f"--card: {path} must hold names and values, such as `license: apache-2.0`")
    from ..hub.model_card import card_details

    with mistakes(f"--card: {path}", ValueError):
        return card_details(details)

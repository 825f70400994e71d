"""Names of checkpoints: of a folder, of a model on the Hub, or of the one that comes with the package."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from .journal import digest


# The checkpoint that comes with the package: what users call it, and its folder.
MINI_NAME = "mini"
MINI = str(Path(__file__).parent / "models" / MINI_NAME)

# Files of a checkpoint's folder that decide what its model writes.
_LOADED = (
    *("*.safetensors", "pytorch_model*.bin", "*config.json", "tokenizer.json"),
    *("key_phrases.json", "poem_keywords.json"),
)


def resolve_checkpoint(name: str) -> str:
    """Give the folder of "mini", unless a folder here is called so; every other name as it is."""
    return MINI if name == MINI_NAME and not Path(name).is_dir() else name


def version_of_checkpoints(names: Iterable[str]) -> str | None:
    """Name what is in folders of checkpoints, if any is one: a model that was trained anew there is another one."""
    folders = [Path(name) for name in map(resolve_checkpoint, names) if Path(name).is_dir()]
    digests = []
    for file in (file for folder in folders for pattern in _LOADED for file in sorted(folder.glob(pattern))):
        with file.open("rb") as stream:
            digests.append([file.name, hashlib.file_digest(stream, "sha256").hexdigest()])
    return digest(digests) if digests else None


def is_hub_id(name: str) -> bool:
    """Whether a name can only be that of a model on the Hub: written like one, and nothing here is called so."""
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) is not None and not Path(name).exists()


def why_no_checkpoint(name: str) -> str | None:
    """Say why a name is of no checkpoint, to stand behind that of an argument, before anything is loaded; or None."""
    if not name:
        return "an empty string names no checkpoint; give a folder, or the id of a model on the Hub"
    name = resolve_checkpoint(name)
    path = Path(name)
    if path.is_file():
        return f"{name!r} is a file; give a folder with a config.json, or the id of a model on the Hub"
    if path.is_dir() and not (path / "config.json").is_file():
        if (path / "adapter_config.json").is_file():
            wanted = "load it with peft, and save what its `merge_and_unload()` gives with `save_pretrained`"
            return f"the folder {name!r} is a PEFT adapter and no whole model; {wanted}"
        checkpoints = sorted(path.glob("checkpoint-*/config.json"), key=lambda config: config.stat().st_mtime)
        hint = f"; it holds checkpoints, such as {checkpoints[-1].parent}" if checkpoints else ""
        return f"the folder {name!r} is not a checkpoint (it has no config.json){hint}"
    if not path.exists() and not is_hub_id(name):
        return f"there is no folder {name!r}"
    return None

"""The files of a local source, and those of one split."""

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..checkpoints import is_hub_id
from .document_files import INSTEAD
from .record_readers import DATA_SUFFIXES, DOCUMENT_SUFFIXES, MARKUP_SUFFIXES, data_suffix, document_name


logger = logging.getLogger(__name__)

ENDINGS = f"{', '.join((*DATA_SUFFIXES, *DOCUMENT_SUFFIXES))}, perhaps followed by .gz, .xz or .bz2"
SPLIT_NAMES = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}


def local_files(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[tuple[Path, str]] | None:
    """Find the files of a source."""
    if not isinstance(source, str | os.PathLike):
        files = [file for item in source for file in (local_files(item) or [(Path(item), "")])]
        missing = [str(path) for path, _ in files if not path.is_file()]
        if missing or not files:
            raise FileNotFoundError(f"source: no such files: {', '.join(missing) or 'the list is empty'}")
        return files
    if source == "":
        raise ValueError("source: an empty string names nothing; for this folder, give '.'")
    path = Path(os.path.expanduser(source))
    if path.is_file():
        if data_suffix(path) not in (*DATA_SUFFIXES, *DOCUMENT_SUFFIXES):
            instead = INSTEAD.get(data_suffix(path), f"it must end in {ENDINGS}")
            raise ValueError(f"source: cannot tell the format of {path} from its name; {instead}")
        return [(path, path.name)]
    if path.is_dir():
        return _files_of_folder(path)
    if data_suffix(path) in (*DATA_SUFFIXES, *DOCUMENT_SUFFIXES) or not is_hub_id(str(source)):
        raise FileNotFoundError(f"source: no such file or folder: {path}")
    return None


def _files_of_folder(folder: Path) -> list[tuple[Path, str]]:
    of_dict, of_dataset = ("dataset_dict.json",), ("dataset_info.json", "state.json")
    if any(all((folder / name).is_file() for name in names) for names in (of_dict, of_dataset)):
        wanted = '`datasets.load_from_disk(…).to_json("x.jsonl")`, each split by itself'
        raise ValueError(f"source: folder {folder} is of `save_to_disk`, which is not read; write it with {wanted}")
    found = visible_files(folder)
    data = [path for path in found if data_suffix(path) in DATA_SUFFIXES]
    # Beside data a README.md is no document.
    others = MARKUP_SUFFIXES if data else ()
    texts = [path for path in found if data_suffix(path) in DOCUMENT_SUFFIXES and data_suffix(path) not in others]
    if texts and data:
        raise ValueError(
            f"source: folder {folder} holds both documents ({texts[0].name}, …) and data files ({data[0].name}, …); "
            "put them into folders of their own, or name the file"
        )
    if not texts and not data:
        raise ValueError(f"source: folder {folder} holds no file that ends in {ENDINGS}")
    read = {*texts, *data}
    ignored = [path.name for path in found if path not in read]
    if ignored:
        count = "1 file of another kind is" if len(ignored) == 1 else f"{len(ignored)} files of other kinds are"
        logger.warning("%s: %s not read: %s", folder, count, ", ".join(ignored[:5]))
    return [(path, path.relative_to(folder).as_posix()) for path in texts or data]


def visible_files(folder: Path) -> list[Path]:
    """List the files of a folder and of the folders in it."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def canonical_split(name: str) -> str:
    """Give a split its usual name."""
    return next((split for split, aliases in SPLIT_NAMES.items() if name.strip().lower() in aliases), name)


# What stands between words of a file's name; and between the names of folders and file, perhaps with numbers behind
# them, of documents, which may be called driving-test or train-timetable.
WORDS, WHOLE = r"[-_./]+", r"(?:[-_.]?\d+(?:[-_.]of[-_.]\d+)?)?(?:/|$)"


def _split_of_file(name: str, pattern: str) -> str | None:
    words = re.split(pattern, document_name(Path(name)).lower())
    found = {canonical_split(word) for word in words if canonical_split(word) in SPLIT_NAMES}
    return found.pop() if len(found) == 1 else None


def files_of_split(files: list[tuple[Path, str]], split: str | None) -> tuple[list[tuple[Path, str]], str | None]:
    """Choose the files of a split."""
    are_documents = all(data_suffix(path) in DOCUMENT_SUFFIXES for path, _ in files)
    of_files = {name: _split_of_file(name, WHOLE if are_documents else WORDS) for _, name in files}
    splits = sorted({found for found in of_files.values() if found})
    chosen = [file for file in files if split and of_files[file[1]] == canonical_split(split)]
    if chosen or len(splits) < 2:
        return (chosen, None) if chosen else (files, split)
    named = ", ".join(splits)
    if split is None:
        raise ValueError(f"split: the files belong to several splits ({named}); pass split=… with one of them")
    raise ValueError(f"split={split!r} is in no file's name; there are {named}")

"""Transformers' own model tests: fetched with pip, kept in a cache that git ignores, importable as a package.

The source distribution of a Transformers release carries `tests/test_modeling_common.py`, but leaves out two packages
that it imports, `tests/generation` and `tests/exporters`. They get stand-ins here: base classes without tests.
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


PACKAGE = "transformers_suite"
"""Name that the tests get as a package. Not `tests`, which would clash with our own folder."""

STAND_INS = {
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
}


class SuiteUnavailable(Exception):
    """The source distribution could not be had; the message says why and what to do."""


def fetch_suite(version: str, cache: Path) -> Path:
    """Return a folder to put on `sys.path`, so that `transformers_suite.test_modeling_common` can be imported.

    Args:
        version: Release of Transformers, as in `transformers.__version__`.
        cache: Folder for the tests of every release fetched so far.

    Returns:
        The release's folder inside the cache.

    Raises:
        SuiteUnavailable: If pip does not get the source distribution, or it carries no model tests.
    """
    folder = cache / f"transformers-{version}"
    if (folder / "complete").exists():
        return folder
    with tempfile.TemporaryDirectory() as downloads:
        archive = _download(version, Path(downloads))
        _extract_tests(archive, folder / PACKAGE)
    if not (folder / PACKAGE / "test_modeling_common.py").exists():
        raise SuiteUnavailable(
            f"The source distribution of transformers {version} has no tests/test_modeling_common.py."
        )
    for name, text in STAND_INS.items():
        path = folder / PACKAGE / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for package in {path.parent for path in (folder / PACKAGE).rglob("*.py")}:
        (package / "__init__.py").touch()
    (folder / "complete").touch()
    return folder


def _download(version: str, downloads: Path) -> Path:
    # pip prepares the metadata of a source distribution (seconds), but builds no wheel.
    requirement = f"transformers=={version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "transformers"]
    result = subprocess.run([*command, "--dest", str(downloads), requirement], capture_output=True, text=True)
    archives = list(downloads.glob("transformers-*.tar.gz"))
    if result.returncode or not archives:
        raise SuiteUnavailable(
            f"pip could not download the source distribution of {requirement}, which carries the model tests.\n"
            f"It needs a package index within reach, and a released version of transformers.\n{result.stderr.strip()}"
        )
    return archives[0]


def _extract_tests(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts  # transformers-5.23.0/tests/…/test_….py
            if (
                not member.isfile()
                or len(parts) < 3
                or parts[1] != "tests"
                or ".." in parts
                or parts[-1][-3:] != ".py"
            ):
                continue
            path = target.joinpath(*parts[2:])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tar.extractfile(member).read())

"""The rule that lets a checkpoint carry its code: what the files of models/ may import, and how.

Transformers copies a file and what it imports with `from .name import …`, flat, by file name, and nothing else.
"""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_imports, get_relative_import_files

import hier_models
from hier_models.families import FAMILIES


PACKAGE = Path(hier_models.__file__).parent

# Libraries that the models need at inference.
LIBRARIES = {"punkt"}

MODEL_FILES = sorted(file for file in (PACKAGE / "models").glob("*.py") if file.name != "__init__.py")
PIPELINE_FILES = sorted((PACKAGE / "pipelines").glob("*_hier.py"))  # those that go with a checkpoint
COPIED = [*MODEL_FILES, *PIPELINE_FILES]

# Transformers cannot be without the last two: `huggingface_hub` has the `strict` of its configs.
ALWAYS_ALLOWED = {"torch", "numpy", "transformers", "huggingface_hub", "tokenizers"} | set(sys.stdlib_module_names)

RELATIVE_LINE = re.compile(r"^\s*(from\s+\.|import\s+\.)", re.MULTILINE)


def _imports(tree: ast.AST) -> list[tuple[int, int, str, list[str]]]:
    """Line, level (dots), module, names of every import, wherever it stands."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, 0, alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.lineno, node.level, node.module or "", [alias.name for alias in node.names]))
    return found


def violations(source: str, folder: Path, libraries: set[str]) -> list[str]:
    """What in a file breaks the rule."""
    tree = ast.parse(source)
    found = []
    relative_lines = set()
    for line, level, module, names in _imports(tree):
        where = f"line {line}"
        if level:
            relative_lines.add(line)
            if level > 1 or not module or "." in module:
                found.append(f"{where}: only `from .file_name import …` is copied")
            elif not (folder / f"{module}.py").exists():
                found.append(f"{where}: there is no {module}.py beside this file")
            continue
        if module.split(".")[0] not in ALWAYS_ALLOWED | libraries:
            found.append(f"{where}: {module} may not be imported here")
        path = [*module.split("."), *names]
        if module.split(".")[0] in ("transformers", "huggingface_hub") and any(
            part.startswith("_") and part != "__version__" for part in path
        ):
            found.append(f"{where}: {'.'.join(path)} is private")
    # Transformers finds relative imports with a regular expression, in docstrings too.
    for match in RELATIVE_LINE.finditer(source):
        line = source.count("\n", 0, match.start(1)) + 1
        if line not in relative_lines:
            found.append(f"line {line}: reads like a relative import, but is text")
    return found


def test_there_are_files_to_check():
    names = {file.stem for file in MODEL_FILES}
    assert {f"{kind}_{name}" for name in FAMILIES for kind in ("configuration", "modeling", "processing")} <= names
    assert PIPELINE_FILES


@pytest.mark.parametrize("file", COPIED, ids=lambda file: file.name)
def test_rule(file):
    libraries = LIBRARIES if file in MODEL_FILES else set()
    assert violations(file.read_text(encoding="utf-8"), file.parent, libraries) == []


@pytest.mark.parametrize("file", COPIED, ids=lambda file: file.name)
def test_transformers_finds_every_file_that_is_needed(file):
    needed = {
        file.parent / f"{module}.py"
        for line, level, module, names in _imports(ast.parse(file.read_text(encoding="utf-8")))
        if level
    }
    found = {Path(path) for path in get_relative_import_files(file)}
    assert needed <= found
    assert all(path.exists() and path.parent == file.parent for path in found)
    assert set(get_imports(file)) <= ALWAYS_ALLOWED | (LIBRARIES if file in MODEL_FILES else set())


def test_file_names_are_unique():
    counts = Counter(file.name for file in PACKAGE.rglob("*.py") if file.name != "__init__.py")
    shared = {file.name for file in COPIED if counts[file.name] > 1}
    assert shared == set()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("from ..data import x", "only `from .file_name"),
        ("from . import x", "only `from .file_name"),
        ("from .sub.file import x", "only `from .file_name"),
        ("from .nothing_there import x", "there is no nothing_there.py"),
        ("import hier_models", "hier_models may not be imported"),
        ("from hier_models.data import x", "hier_models.data may not be imported"),
        ("def f():\n    import requests", "requests may not be imported"),
        ("try:\n    import requests\nexcept ImportError:\n    pass", "requests may not be imported"),
        ("from transformers.utils import _private", "is private"),
        ("from transformers._inner import x", "is private"),
        ('"""Text.\n\n    from .modeling_hat_bart import X\n"""', "reads like a relative import"),
        ("x = 1\nfrom . import y", "only `from .file_name"),
    ],
)
def test_the_check_sees(source, message):
    found = violations(source, PACKAGE / "models", set())
    assert any(message in violation for violation in found), found


def test_the_check_passes_what_is_right():
    source = '"""Text."""\nimport torch\nfrom transformers import BartConfig\nfrom .modeling_hat_bart import X\n'
    assert violations(source, PACKAGE / "models", set()) == []

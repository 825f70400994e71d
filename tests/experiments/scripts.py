"""The scripts of examples/experiments and examples/mini as modules, for tests that call their functions."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


EXPERIMENTS = Path(__file__).parents[2] / "examples" / "experiments"
MINI = EXPERIMENTS.with_name("mini")


def load_script(name: str, folder: Path = EXPERIMENTS) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module

"""Compiles the kernels into the wheel where that can be done; the package works without them too."""

import os
import platform
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


FOLDER = Path("hier_models/models")
SOURCES = FOLDER / "attention_kernel.c", FOLDER / "int8_kernel.c"
LIBRARY = FOLDER / "libkernels.so"
FLAGS = "-O3 -shared -fPIC -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx512vnni"


def compile_kernels(sources: Iterable[Path], library: Path) -> bool:
    """Compile kernels, and say whether that went well. A library in use is replaced, not written over."""
    compiler = os.environ.get("CC", "cc").split()
    try:
        library.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder) / library.name
            command = [*compiler, *FLAGS.split(), "-o", str(made), *map(str, sources), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            made.replace(library)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class CustomBuildHook(BuildHookInterface):
    """What hatchling calls before it makes a wheel, or an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the kernels, and say that the wheel is of one platform then, of any Python."""
        sources = (Path(self.root) / source for source in SOURCES)
        is_known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
        if not is_known or not compile_kernels(sources, Path(self.root) / LIBRARY):
            return
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

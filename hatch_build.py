"""Compiles the kernels into the wheel where that can be done; the package works without them too."""

import os
import platform
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


FOLDER = Path("hier_models/models")
LIBRARY = FOLDER / "libkernels.so"
FLAGS = "-O3 -fPIC -mfma"
AVX512 = "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx512vnni"
SOURCES = {"attention_kernel.c": AVX512, "int8_kernel.c": AVX512, "avx2_kernel.c": "-mavx2", "cache_kernel.c": ""}


def compile_kernels(sources: Path, library: Path) -> bool:
    """Compile a folder's kernels, and say whether that went well. A library in use is replaced, not written over."""
    compiler = os.environ.get("CC", "cc").split()
    try:
        library.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made, objects = Path(folder) / library.name, []
            for name, instructions in SOURCES.items():
                objects.append(str(Path(folder) / name) + ".o")
                _run(*compiler, *FLAGS.split(), *instructions.split(), "-c", "-o", objects[-1], str(sources / name))
            _run(*compiler, "-shared", "-o", str(made), *objects, "-lm")
            made.replace(library)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _run(*command: str) -> None:
    """Run a command, which fails if it does."""
    subprocess.run(command, check=True, capture_output=True, timeout=120)


class CustomBuildHook(BuildHookInterface):
    """What hatchling calls before it makes a wheel, or an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the kernels, and say that the wheel is of one platform then, of any Python."""
        is_known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
        if not is_known or not compile_kernels(Path(self.root) / FOLDER, Path(self.root) / LIBRARY):
            return
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

"""Compiles the kernel of attention into the wheel where that can be done; the package works without it too."""

import os
import platform
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


SOURCE = Path("hier_models/models/attention_kernel.c")
LIBRARY = SOURCE.with_name("libattention_kernel.so")
FLAGS = "-O3 -shared -fPIC -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16"


def compile_kernel(source: Path, library: Path) -> bool:
    """Compile a kernel, and say whether that went well. One that is in use is replaced, not written over."""
    compiler = os.environ.get("CC", "cc").split()
    try:
        library.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder) / library.name
            command = [*compiler, *FLAGS.split(), "-o", str(made), str(source), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            made.replace(library)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class CustomBuildHook(BuildHookInterface):
    """What hatchling calls before it makes a wheel, or an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the kernel, and say that the wheel is of one platform then, of any Python."""
        source = Path(self.root) / SOURCE
        is_known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
        if not is_known or not compile_kernel(source, Path(self.root) / LIBRARY):
            return
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

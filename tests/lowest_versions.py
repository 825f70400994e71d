"""Print pip constraints that pin what hier_models depends on to the lowest versions that pyproject.toml allows.

torch is left out: it is what `make TORCH=…` says, since a CPU build of the lowest one is not to be had everywhere. So
are the development tools.
"""

import re
import tomllib
from pathlib import Path


project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
tested = [requirement for name in ("plots", "demo", "files", "importance") for requirement in extras[name]]
for requirement in [*project["dependencies"], *tested]:
    if match := re.match(r"([\w-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement):
        name, version = match.groups()
        if name != "torch":
            print(f"{name}=={version}")

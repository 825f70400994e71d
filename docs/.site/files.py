"""What the site shows of the repository outside docs/: the model cards, and the files that pages link to.

The site has them at the paths that they have in the repository, beside the pages of docs/. So one link works in both.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


ROOT = Path(__file__).parents[2]
SHOWN = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "model_cards/*", "examples/**/*.*", "hier_models/data/*.txt")


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside docs/."""
    for path in sorted({path for pattern in SHOWN for path in ROOT.glob(pattern) if path.is_file()}):
        name = path.relative_to(ROOT).as_posix()
        if "__pycache__" not in name:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that enter or leave docs/ to where the site has the file."""
    if Path(page.file.abs_src_path).is_relative_to(ROOT / "docs"):
        up = "../" * page.file.src_uri.count("/")
        return re.sub(rf"\]\({re.escape(up)}\.\./(?!\.\./)", f"]({up}", markdown)
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)

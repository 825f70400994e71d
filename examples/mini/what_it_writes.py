"""What mini writes of twenty documents that anyone has, chosen by rule, as a page: to be read, not only counted.

    pip install hier_models[demo,files]
    python examples/mini/what_it_writes.py > docs/results/what_mini_writes.md

The documents are the first ten papers of the package aclsum's validation part, without their abstracts (ACL Anthology,
CC BY 4.0), and the READMEs of the ten packages, by the alphabet, that hier_models needs and that have 250 to 2,000
words in Markdown. mini has seen neither.
"""

import re
import tempfile
from collections.abc import Iterator
from importlib.metadata import distributions, metadata, requires
from pathlib import Path

from aclsum import ACLSum
from transformers import pipeline

from hier_models.data.document_files import read_document


DOCUMENTS, WORDS = 10, range(250, 2001)
NAME = re.compile(r"[\w.-]+")


def papers() -> Iterator[tuple[str, str]]:
    """Titles and texts of papers; their tokens have spaces between them, which are taken out."""
    for paper in list(ACLSum("val"))[:DOCUMENTS]:
        text = " ".join(paper.get_all_sentences(["introduction", "conclusion"]))
        text = re.sub(r" ([,.;:?!%)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", text))
        yield paper.title, text.replace(" n't", "n't").replace(" 's", "'s")


def needed(name: str) -> set[str]:
    """Names of the packages that one needs, and that those need."""
    found, new = set[str](), {name}
    while new:
        wanted = [one for name in new for one in requires(name) or () if "extra ==" not in one]
        found |= new
        names = {re.sub("[-_.]+", "-", match[0]).casefold() for one in wanted if (match := NAME.match(one))} - found
        new = {name for name in names if next(distributions(name=name), None)}  # some are for other systems
    return found


def readmes() -> Iterator[tuple[str, str]]:
    """Names and READMEs of packages."""
    with tempfile.TemporaryDirectory() as folder:
        for name in sorted(needed("hier_models") - {"hier_models"}):
            about = metadata(name)
            if "markdown" not in (about["Description-Content-Type"] or ""):
                continue
            path = Path(folder) / "README.md"
            path.write_text(about["Description"] or about.get_payload(), encoding="utf-8")
            text = read_document(path).row()["text"]
            if len(text.split()) in WORDS:
                yield f"{name} {about['Version']}", text


def main() -> None:
    """Print the page."""
    summarize = pipeline("summarization")
    print("# What mini writes\n")
    print("\n".join(__doc__.splitlines()[5:]).strip())
    print("\n<!-- mini: python examples/mini/what_it_writes.py > docs/results/what_mini_writes.md -->")
    for heading, found in (("Papers", papers()), ("READMEs", readmes())):
        print(f"\n## {heading}")
        for (title, text), _ in zip(found, range(DOCUMENTS), strict=False):
            line, short = (summarize(text, length=length)[0]["summary_text"] for length in ("line", "short"))
            print(f"\n**{title}**, {len(text.split()):,} words\n\n- {line}\n- {short}")


if __name__ == "__main__":
    main()

"""How much of a paper comes back from its PDF: papers of known text, set by Chromium and read.

    OMP_NUM_THREADS=1 python benchmarks/pdf.py
    OMP_NUM_THREADS=1 python benchmarks/pdf.py --papers 4 --columns 2

Papers are those of the package aclsum (extra `demo`), evenly chosen, with playwright and Chromium. Each gets what
is not its text: its authors, its reference list, a running head, page numbers, and hyphens where lines are broken.
"""

import argparse
import difflib
import html
import re
import shutil
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pypdfium2
from measuring import papers, table
from playwright.sync_api import Browser, sync_playwright

from hier_models.data.document_files import read_document, say_left_out
from hier_models.models.sentence_splitting import split_sentences


STYLE = """body { font: 9.5pt serif; text-align: justify; hyphens: auto } h1 { font-size: 15pt } h2 { font-size: 11pt }
h1, .authors { column-span: all; text-align: center } p { margin: 0; text-indent: 1em }"""
SMALL = '<div style="font-size: 7pt; width: 100%; text-align: center">{}</div>'
NUMBER = SMALL.format('<i class="pageNumber"></i>')
MARGIN = {"top": "20mm", "bottom": "20mm", "left": "18mm", "right": "18mm"}
OPTIONS: dict[str, Any] = {"display_header_footer": True, "footer_template": NUMBER, "margin": MARGIN}


def text_of(paper: dict[str, Any]) -> list[tuple[str, str]]:
    """Headings and paragraphs, each with its element of HTML."""
    parts, section = [("h1", paper["title"])], None
    for part in [*paper["pdf_parse"]["abstract"], *paper["pdf_parse"]["body_text"]]:
        if part["section"] not in ("", section):
            section = part["section"]
            parts.append(("h2", section))
        parts.append(("p", part["text"]))
    return parts


def set_in_columns(browser: Browser, paper: dict[str, Any], columns: int, file: Path) -> None:
    authors = ", ".join(f"{author['first']} {author['last']}" for author in paper["authors"])
    (first, *others) = [f"<{name}>{html.escape(text)}</{name}>" for name, text in text_of(paper)]
    references = [f"<p>{html.escape(entry['raw_text'])}</p>" for entry in paper["pdf_parse"]["bib_entries"].values()]
    body = [first, f'<div class="authors">{html.escape(authors)}</div>', *others, "<h2>References</h2>", *references]
    page = browser.new_page()
    page.set_content(f'<html lang="en"><style>{STYLE}</style><div style="columns: {columns}">{"".join(body)}</div>')
    page.pdf(path=file, header_template=SMALL.format("Proceedings of the Meeting"), **OPTIONS)
    page.close()


def words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in re.findall(r"\w+(?:-\w+)*", unicodedata.normalize("NFKC", text))]


def judge(known: list[tuple[str, str]], file: Path) -> tuple[Counter[str], Counter[str]]:
    """Count what of a paper was read; and what was left out."""
    document = read_document(file)
    row = document.row()
    written, read = words(text for _, text in known), words([row["text"]])
    blocks = difflib.SequenceMatcher(None, written, read, autojunk=False).get_matching_blocks()
    counts = Counter(written=len(written), read=len(read), same=sum(block.size for block in blocks))
    headings = {" ".join(words([block.text])) for block in document.blocks if block.level}
    given = [" ".join(words([text])) for name, text in known if name != "p"]
    counts.update(headings=len(given), found=sum(heading in headings for heading in given))
    with pypdfium2.PdfDocument(file) as pdf:
        pages = [" ".join(words([page.get_textpage().get_text_range()])) for page in pdf]
    for start, end in split_sentences(row["text"]):
        [number] = [page["page"] for page in row["page_starts"] if page["start"] <= start][-1:]
        counts.update(sentences=1, on_page=" ".join(words([row["text"][start:end]])[:3]) in pages[number - 1])
    return counts, document.left_out


def main() -> None:
    parser = argparse.ArgumentParser(description="Read papers of known text from their PDFs.")
    parser.add_argument("--papers", type=int, default=12)
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 2, 3])
    arguments = parser.parse_args()
    rows = []
    with sync_playwright() as engine, tempfile.TemporaryDirectory() as folder:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for columns in arguments.columns:
            counts: Counter[str] = Counter()
            left_out: Counter[str] = Counter()
            for paper in papers(arguments.papers):
                file = Path(folder) / "paper.pdf"
                set_in_columns(browser, paper, columns, file)
                found, without = judge(text_of(paper), file)
                print(columns, paper["paper_id"], dict(found), flush=True)
                counts.update(found)
                left_out.update(without)
            pairs = [("same", "written"), ("same", "read"), ("found", "headings"), ("on_page", "sentences")]
            rows.append([str(columns), *(f"{counts[part] / counts[whole]:.2%}" for part, whole in pairs)])
            print(f"{columns}: left out {say_left_out(left_out)}")
        browser.close()
    header = ["columns", "words of the paper, in order", "of the words read", "headings", "sentences on their page"]
    print(table(header, rows))


if __name__ == "__main__":
    main()

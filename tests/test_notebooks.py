"""The notebooks of examples/notebooks/: they run as they stand, and show what their text says."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient


FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def executed(name: str, folder: Path) -> nbformat.NotebookNode:
    """A notebook after all its cells have run in a folder, as a user's Jupyter runs them."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    root = str(FOLDER.parent.parent)
    client.execute(env={**os.environ, "PYTHONPATH": root, "HF_HUB_OFFLINE": "1"})
    return notebook


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """What each cell printed and showed as text; nothing of errors, warnings and progress."""
    shown = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        parts = [output.text for output in outputs if output.get("name") == "stdout"]
        parts += [output.data["text/plain"] for output in outputs if "data" in output]
        shown.append("\n".join(parts))
    return shown


def kinds(notebook: nbformat.NotebookNode) -> set[str]:
    """The formats of what cells show, beside text."""
    return {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", ())}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_valid_and_kept_without_outputs(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_first_summary(tmp_path):
    notebook = executed("first_summary", tmp_path)
    shown = "\n".join(texts(notebook))
    assert all(f"{length}: " in shown for length in ("line", "short", "long"))
    assert "100%  " in shown  # a sentence that rests on one of the document
    assert {"text/html", "image/png"} <= kinds(notebook)
    assert "data-sources=" in (tmp_path / "sources.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_fine_tune_mini(tmp_path):
    notebook = executed("fine_tune_mini", tmp_path)
    [scores] = [text for text in texts(notebook) if text.startswith("ROUGE-1") and "after" in text]
    before, after = (float(word) for word in scores.split() if word[0].isdigit())
    assert after > before + 5
    *others, saved = (text for text in texts(notebook) if text)
    assert f"after   {saved[1:-1]}\n" in others[-1]  # the saved model writes what it wrote before it was saved


@pytest.mark.slow
def test_look_inside(tmp_path):
    shown = texts(executed("look_inside", tmp_path))
    text = "\n".join(shown)
    assert text.count("[CLS]") > 8
    assert "words of the summary were copied" in text
    assert "tokens were not read" in text
    weights = [float(word.strip("%")) for part in shown for word in part.split() if word.endswith(".5%")]
    assert len(weights) == 8 * 3  # about the same for each sentence in each layer, as the text says
    asked = next(part for part in reversed(shown) if "[CLS]" in part)
    assert "9. 4 million euros" in asked  # what was asked for was read

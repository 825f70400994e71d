"""The pipeline in LangChain and LlamaIndex, as docs/guides/with_others.md shows it; skipped where they are missing."""

import re
from pathlib import Path

import pytest

import hier_models
from tests.conftest import DOCUMENTS


PAGE = (Path(__file__).parents[2] / "docs/guides/with_others.md").read_text(encoding="utf-8")


@pytest.fixture
def run_section(tiny_model, processor, tmp_path, monkeypatch):
    """Run the Python of a section, with a tiny model in the place of mini; give the names that it leaves."""
    monkeypatch.chdir(tmp_path)
    tiny_model.generation_config.max_length = 12
    tiny_model.save_pretrained("mini")
    processor.save_pretrained("mini")
    monkeypatch.setattr(hier_models, "MINI", "mini")
    Path("paper.txt").write_text(DOCUMENTS[0], encoding="utf-8")

    def run(heading):
        section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        names = {"__name__": heading}
        exec("\n".join(re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)), names)
        return names

    return run


def test_langchain(run_section, capsys):
    pytest.importorskip("langchain_huggingface")
    names = run_section("LangChain")
    llm, chain, summarize, document = (names[name] for name in ("llm", "chain", "summarize", "Document"))
    shown = capsys.readouterr().out
    assert summarize(DOCUMENTS[0], max_length=40)[0]["summary_text"] in shown
    assert llm.batch(DOCUMENTS) == [summary["summary_text"] for summary in summarize(DOCUMENTS)]
    made = chain.invoke([document(text) for text in DOCUMENTS[:2]])
    [expected] = summarize(documents=DOCUMENTS[:2], return_sources=True)
    assert (made.page_content, made.metadata["sources"]) == (expected["summary_text"], expected["sources"])
    with pytest.raises(ValueError, match="`processor` is missing"):
        type(llm).from_model_id("mini", task="summarization")


def test_llama_index(run_section):
    pytest.importorskip("llama_index.core")
    names = run_section("LlamaIndex")
    answer = names["engine"].query("Where was the crack?")
    texts = [node.get_content() for node in answer.source_nodes]
    assert texts == [DOCUMENTS[0], "The library opens at nine."]
    [expected] = names["summarize"](documents=texts, query="Where was the crack?")
    assert str(answer) == expected["summary_text"]

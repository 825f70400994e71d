"""A page in the browser: paste or drop a document, read its summary, see its sources and where the model looked.

    pip install "hier_models[app,files]"
    python examples/app.py ./my-model           # then open http://127.0.0.1:7860

The model is a folder or an id on the Hub, by default mini, which comes with the package; plain BART, T5 and their like
work too, without the heatmap. The page is served to this machine only and loads nothing from elsewhere.
"""

import argparse
import html
import os
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any


os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

try:
    import gradio as gr
except ImportError:
    sys.exit('This example needs gradio, which is not installed: pip install "hier_models[app]"')

from transformers import pipeline

from hier_models.checkpoints import resolve_checkpoint
from hier_models.data import load_documents
from hier_models.data.columns import KINDS
from hier_models.data.record_readers import DOCUMENT_SUFFIXES
from hier_models.inspection import hierarchical_attention, highlighting_report, sources_page
from hier_models.models.summary_lengths import LENGTHS, length_ids


FILES = (*DOCUMENT_SUFFIXES, ".jsonl")
PROSE, DIALOGUE = "a text", "a dialogue, one “Name: utterance” a line"


def first_paragraph(error: Exception) -> str:
    return str(error).split("\n\n")[0]


def read_document(text: str, form: str, file: str | None, number: int) -> dict[str, Any]:
    """The document as the pipeline takes it: {"text": …}, {"turns": …}, or what a record of the file holds."""
    if bool(text.strip()) == bool(file):
        raise ValueError("Give a text or a file." if not file else "Give a text or a file, not both; clear one.")
    if file:
        name = Path(file).name
        try:
            row = next(islice(load_documents(file, summary_column="", streaming=True), int(number) - 1, None), None)
        except ValueError as error:  # names the copy that Gradio keeps
            raise ValueError(str(error).replace(file, name)) from error
        if row is None:
            raise ValueError(f"{name} has no document number {int(number)}.")
        # The row of a file has the pages of a PDF, too, and what was left out.
        return {kind: row[kind] for kind in (*KINDS, "page_starts") if row.get(kind) is not None}
    if form == PROSE:
        return {"text": text}
    turns = []
    for place, line in enumerate(text.splitlines(), start=1):
        role, colon, content = line.partition(":")
        if line.strip() and not (role.strip() and colon):
            raise ValueError(f"Line {place} of the dialogue is not “Name: utterance”, but “{line:.60}”.")
        if line.strip():
            turns.append({"role": role.strip(), "content": content.strip()})
    return {"turns": turns}


def summarize(pipe: Any, document: dict[str, Any], **settings: Any) -> tuple[str, str, str | None]:
    """The summary, what of the document was read, and the page of where the model looked if there is one."""
    config = pipe.model.config
    highlights, attends = hasattr(config, "highlighted_layers"), bool(getattr(config, "hierarchical_layers", None))
    in_parts = not highlights and "parts" in pipe.preprocess(document)["examples"].notes
    if in_parts or not (highlights or attends):
        [result] = pipe(document, return_truncation=True, **settings)
        read = (
            f"It is longer than the model takes, and was read in **{result['num_parts']}** parts. " if in_parts else ""
        )
        none = "of more than one part." if attends else f"{type(pipe.model).__name__} has no hierarchical attention."
        note = f"{read}{said(result['num_truncated_tokens'])} No heatmap{' ' if attends else ': '}{none}"
        return result["summary_text"].strip(), note, None
    show = highlighting_report if highlights else hierarchical_attention
    title = "What it highlighted" if show is highlighting_report else "Where it looked"
    own = {kind: document[kind] for kind in KINDS if kind in document}
    report = show(pipe.model, pipe.processor, **own, title=title, **settings)
    counts = report.counts if show is highlighting_report else vars(report)
    return report.summary.strip(), said(counts["num_truncated_tokens"]), page_of(report)


def said(cut: int) -> str:
    if not cut:
        return "The model saw the whole document; **0** tokens were cut."
    return f"**{cut}** token{'' if cut == 1 else 's'} of the document cut: it is longer than the model takes."


def page_of(report: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return report.save_html(Path(folder) / "page.html").read_text(encoding="utf-8")


def sources_of(pipe: Any, document: dict[str, Any], summary: str) -> str:
    """The page on which a sentence of the summary shows its sources."""
    record = {"summary_text": summary, "sources": pipe.find_sources(document, summary)}
    return sources_page(record, pipe.running_text(document))


def framed(page: str, title: str) -> str:
    """A page in a frame of its own, with scripts but without access to this one."""
    # srcdoc is an attribute, hence escaped.
    return f'<iframe title="{title}" sandbox="allow-scripts" srcdoc="{html.escape(page)}"></iframe>'


def build(pipe: Any, name: str) -> gr.Blocks:
    config, defaults = pipe.model.config, pipe.model.generation_config
    longest = min(getattr(config, "max_position_embeddings", None) or 1025, 1025) - 1
    knows_lengths = bool(length_ids(pipe.tokenizer))
    most = longest if knows_lengths else defaults.max_new_tokens or (defaults.max_length or 257) - 1

    def run(
        text: str, form: str, file: str | None, number: int, length: str, max_tokens: int, beams: int
    ) -> tuple[str, str, str, str]:
        settings = {"max_new_tokens": int(max_tokens), "num_beams": int(beams)}
        settings |= {"length": length} if knows_lengths else {}
        try:
            document = read_document(text, form, file, number)
            summary, note, page = summarize(pipe, document, **settings)
            sources = framed(sources_of(pipe, document, summary), "Sources")
        except Exception as error:
            # A mistake of the user is told on the page only; a failure is told in the terminal too.
            expected = isinstance(error, ValueError | OSError)
            message = first_paragraph(error) if expected else f"{type(error).__name__}: {error}"
            raise gr.Error(html.escape(message, quote=False), print_exception=not expected) from error
        return summary, note, sources, "" if page is None else framed(page, "Heatmap")

    with gr.Blocks(title="hier_models", analytics_enabled=False, fill_width=True) as app:
        gr.Markdown(f"# Summarize a document\nModel: `{name}` ({type(pipe.model).__name__}, on {pipe.device})")
        with gr.Row():
            with gr.Column():
                text = gr.Textbox(label="Document", lines=12, max_lines=12, placeholder="Paste a text here …")
                form = gr.Radio([PROSE, DIALOGUE], value=PROSE, label="It is")
                with gr.Row():
                    file = gr.File(label="… or drop a file: PDF, .docx, .txt, …", file_types=list(FILES), height=170)
                    number = gr.Number(1, label="Which document of a .jsonl file", precision=0, minimum=1)
            with gr.Column():
                length = gr.Radio(list(LENGTHS), value="short", label="Length", visible=knows_lengths)
                max_tokens = gr.Slider(1, longest, min(most, longest), step=1, label="Longest summary, in tokens")
                beams = gr.Slider(1, 8, defaults.num_beams or 1, step=1, label="Beams")
                button = gr.Button("Summarize", variant="primary")
                summary = gr.Textbox(label="Summary", lines=8, interactive=False, buttons=["copy"])
                note = gr.Markdown()
        sources, frame = gr.HTML(), gr.HTML()
        # One at a time: recording the attention switches the model's attention implementation for a while.
        inputs = [text, form, file, number, length, max_tokens, beams]
        outputs = [summary, note, sources, frame]
        button.click(run, inputs, outputs, api_name="summarize", concurrency_limit=1, show_progress_on=summary)
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="Summarize documents on a page in the browser.")
    parser.add_argument("model", nargs="?", default="mini", help="folder, or id of a model on the Hub; default: mini")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    arguments = parser.parse_args()
    try:
        pipe = pipeline("summarization", model=resolve_checkpoint(arguments.model))
    except (OSError, ValueError) as error:
        parser.error(f"cannot load {arguments.model!r}: {first_paragraph(error)}")
    css = ".html-container {padding: 0 !important} iframe {width: 100%; height: 88vh; border: 0; border-radius: 10px}"
    build(pipe, arguments.model).launch(
        server_name="127.0.0.1", server_port=arguments.port, share=False, css=css, footer_links=["api", "settings"]
    )


if __name__ == "__main__":
    main()

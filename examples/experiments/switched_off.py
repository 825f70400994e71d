"""How much of a trained model's perplexity is due to what its family adds? Each part is switched off in turn.

    python examples/experiments/switched_off.py runs/experiments/hat_dialogues/*/seed_*

Of a HAT-BART the decoder's attention to sentences, and the roles (all tokens get the first one's); of a Top-Down
Transformer the tokens' update from the segments; of a Highlight-Transformer the highlighting, and the heads that it is
in altogether. What costs little when it is switched off was hardly used. The documents are those to test on, of the
recipe that each model was trained with.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from datasets import Dataset
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, PreTrainedModel, Seq2SeqTrainingArguments

import hier_models  # noqa: F401  # registers the families
from hier_models.data import chunk_parallel, load_documents, load_parallel, tokenize_documents
from hier_models.data.parallel import DOCUMENT, SENTENCES
from hier_models.pipelines.document_pipeline_hier import prefix_of, task_params
from hier_models.pipelines.importance_tagger_hier import load_importance_tagger
from hier_models.training import DataArguments, perplexity
from hier_models.training.tasks.base import at_most
from hier_models.training.tasks.summarization import READING


# Of runs of these tasks the documents to test on can be read.
TASKS = ("summarization", "translation")

# What switches a part off takes a model, which it may change, and its rows, and gives back rows to be read.
SwitchOff = Callable[[PreTrainedModel, Dataset], Dataset]


def _no_sentences(model: PreTrainedModel, rows: Dataset) -> Dataset:
    """Let the decoder's attention to sentences add nothing."""
    for layer in model.get_decoder().layers:
        _silence(layer.hierarchical_attn.out_proj)
    return rows


def _one_role(model: PreTrainedModel, rows: Dataset) -> Dataset:
    """Give all tokens the first role."""
    return rows.map(lambda row: {"segment_ids": [0] * len(row["segment_ids"])})


def _no_update(model: PreTrainedModel, rows: Dataset) -> Dataset:
    """Let the segments add nothing to the tokens."""
    for layer in model.get_encoder().layers:
        if hasattr(layer, "segment_attn"):
            _silence(layer.segment_attn.out_proj)
        elif hasattr(layer, "segment_concat"):
            nn.init.zeros_(layer.segment_concat.weight[:, model.config.d_model :])
    return rows


def _no_highlighting(model: PreTrainedModel, rows: Dataset) -> Dataset:
    """Give the model no key phrases."""
    return rows.remove_columns([name for name in rows.column_names if name.startswith("phrase_")])


def _no_highlighted_heads(model: PreTrainedModel, rows: Dataset) -> Dataset:
    """Let the highlighted heads of the highlighted layers add nothing."""
    config = model.config
    width = config.highlight_heads * config.d_model // config.encoder_attention_heads
    for number in config.highlighted_layers:
        nn.init.zeros_(model.get_encoder().layers[number].self_attn.out_proj.weight[:, :width])
    return rows


def _silence(linear: nn.Linear) -> None:
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)


def parts(config: Any) -> dict[str, SwitchOff]:
    """List what a model has that its plain twin has not.

    Args:
        config: The model's configuration.

    Returns:
        Name -> what switches it off.
    """
    found: dict[str, SwitchOff] = {}
    if config.model_type == "hat_bart":
        if config.hierarchical_layers:
            found["no attention to sentences"] = _no_sentences
        if config.num_segments:
            found["one role"] = _one_role
    elif config.model_type == "top_down_transformer":
        if config.top_down_update != "none":
            found["no update"] = _no_update
    elif config.model_type == "highlight_transformer" and config.highlighted_layers:
        found["no highlighting"] = _no_highlighting
        found["no highlighted heads"] = _no_highlighted_heads
    return found


def read(data: DataArguments, task: str, processor: Any, config: Any, **columns: str | None) -> Dataset:
    """Tokenize the documents to test on.

    Args:
        data: Where they are, and their lengths.
        task: Of the recipe, summarization or translation.
        processor: The model's processor, or its tokenizer.
        config: The model's configuration, which remembers how it was trained to read.
        columns: Of documents to translate: source_column and target_column of the recipe.

    Returns:
        A row for each document, or for each chunk of a document to translate.
    """
    lengths: dict[str, Any] = {name: getattr(data, name) for name in ("max_source_length", "max_target_length")}
    name, split = data.source_of("test")
    source = data.loading(str(name), split)
    if task == "summarization":
        importance: Any = data.importance
        if data.importance_tagger is not None:
            importance = load_importance_tagger(data.importance_tagger, batch_size=8)
        reading = {name: getattr(data, name) for name in READING} | {"query_column": data.query_column or ""}
        part = at_most(load_documents(**source, **reading), data.max_test_documents)
        # As the task reads them, or the perplexity would be of other documents than those of the test.
        remembered = task_params(config, "summarization").get("long_documents", "cut")
        lengths |= {"long_documents": data.long_documents or remembered, "prefix": prefix_of(config, "summarization")}
        return tokenize_documents(part, processor, importance=importance, **lengths)
    documents = at_most(load_parallel(**source, **columns), data.max_test_documents)
    chunks = chunk_parallel(documents, processor, **lengths)
    return chunks.remove_columns([DOCUMENT, SENTENCES])


def main(
    models: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs of a comparison.")],
    documents: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Test documents to read; as many as the recipe says.")
    ] = None,
) -> None:
    """Print a line for each model and part: the perplexity of the references, whole and switched off."""
    recipes = {folder: _recipe_of(folder) for folder in models}
    for folder, recipe in recipes.items():
        fewer = {} if documents is None else {"max_test_documents": documents}
        data = DataArguments(**{**recipe["data"], **fewer})
        processor = AutoProcessor.from_pretrained(folder)
        whole = AutoModelForSeq2SeqLM.from_pretrained(folder)
        options = recipe.get(recipe["run"]["task"]) or {}
        columns = {name: options.get(name) for name in ("source_column", "target_column")}
        rows = read(data, recipe["run"]["task"], processor, whole.config, **columns)
        cells = [f"{_perplexity(whole, processor, rows):.2f}"]
        for name, switch_off in parts(whole.config).items():
            model = AutoModelForSeq2SeqLM.from_pretrained(folder)
            cells.append(f"{name} {_perplexity(model, processor, switch_off(model, rows)):.2f}")
        typer.echo(f"{'/'.join(folder.parts[-2:])}: {', '.join(cells)}")


def _recipe_of(folder: Path) -> dict[str, Any]:
    file = folder / "recipe.json"
    if not file.exists():
        raise typer.BadParameter(
            f"{folder} is no finished run (it has no recipe.json); of a comparison, give FOLDER/*/seed_*"
        )
    recipe: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["recipe"]
    task = recipe["run"]["task"]
    if task not in TASKS:
        raise typer.BadParameter(f"{folder} is a run of {task}; parts are switched off of {' and '.join(TASKS)}")
    if DataArguments(**recipe["data"]).source_of("test")[0] is None:
        raise typer.BadParameter(f"{folder} was trained without documents to test on (data: test)")
    return recipe


def _perplexity(model: PreTrainedModel, processor: Any, rows: Dataset) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return perplexity(model, processor, rows, Seq2SeqTrainingArguments(folder, report_to="none"))


if __name__ == "__main__":
    typer.run(main)

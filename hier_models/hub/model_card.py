"""The model card of a checkpoint: what its maker, its config and its family's record say, in a template."""

import ast
import dataclasses
import json
import math
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..checkpoints import is_hub_id
from ..families import FAMILIES
from ..pipelines.document_pipeline_hier import positions, task_params
from .auto_classes import auto_class_of, task_of


NOT_GIVEN = "Not given."
_FOLDER = Path(__file__).parent
# How to use a model that does not generate, by its Auto class or the task of our pipeline.
HEADS = tomllib.loads((_FOLDER / "model_card_heads.toml").read_text(encoding="utf-8"))


@dataclass
class CardDetails:
    """What only its maker knows about a checkpoint. The model card says of each field left out that it is not given.

    Args:
        name: name of the checkpoint; its folder's or repository's if left out.
        language: codes of its languages, such as "en".
        license: identifier of the license of the weights, such as "apache-2.0".
        base_model: checkpoint that training started from: a Hub id or a description.
        datasets: Hub ids of the training data.
        data: the training data in words.
        hyperparameters: name -> value.
        metrics: name -> value, such as {"rouge1": 0.41}.
        evaluated_on: the data the metrics were measured on, such as "SAMSum, test split".
        intended_use: what the checkpoint is meant for.
        limits: what it cannot do, and known biases.
        tags: further tags for the Hub.
    """

    name: str | None = None
    language: str | list[str] | None = None
    license: str | None = None
    base_model: str | None = None
    datasets: str | list[str] | None = None
    data: str | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluated_on: str | None = None
    intended_use: str | None = None
    limits: str | None = None
    tags: str | list[str] = field(default_factory=list)


def model_card(model: Any, details: CardDetails, *, source: str, code: Iterable[Path] = ()) -> ModelCard:
    """Write the model card of a checkpoint.

    Args:
        model: the model; its config gives the sizes.
        details: what its maker says about it.
        source: what to load it from: a folder or a repository.
        code: the code files that go with it; the card lists the libraries that they need.

    Returns:
        The card, with its metadata for the Hub.
    """
    config, auto_class, base = model.config, auto_class_of(model), details.base_model
    generates = config.is_encoder_decoder and model.can_generate()
    head = None if generates else HEADS.get(task_of(config)) or HEADS.get(auto_class)
    task = task_of(config) if generates else head["task"] if head else None
    datasets, tags = ([value] if isinstance(value, str) else value for value in (details.datasets, details.tags))
    data_name = details.evaluated_on  # a result needs to say what it was measured on
    results = [
        EvalResult(task or "feature-extraction", data_name, data_name, _metric_type(name), value, metric_name=name)
        for name, value in details.metrics.items()
        if data_name and math.isfinite(value)
    ]
    data = ModelCardData(
        # The Hub and `pipeline` go by this: the checkpoint loads with plain Transformers.
        library_name="transformers",
        pipeline_tag=task,
        language=details.language,
        license=details.license,
        base_model=base if base and is_hub_id(base) else None,
        datasets=datasets,
        tags=list(dict.fromkeys(["hier_models", config.model_type, *(tags or ())])),
        metrics=sorted({_metric_type(name) for name in details.metrics}) or None,
        model_name=details.name if results else None,
        eval_results=results or None,
    )
    whitespace: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    templates = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), **whitespace)
    templates.filters["cell"] = _cell
    templates.filters["quoted"] = partial(json.dumps, ensure_ascii=False)
    text = templates.get_template("model_card.md.jinja").render(
        details=details,
        config=config,
        family=FAMILIES.get(config.model_type, {}),
        source=source,
        libraries=" ".join(_libraries(code)),
        auto_class=auto_class,
        head=head,
        task=task,
        generates=generates,
        sizes={"parameters": f"{model.num_parameters():,}", **_sizes(config)},
        datasets=datasets,
        # Of a folder here only the name: nobody else has its path.
        started_from=Path(base).name if base and os.path.exists(base) else base or NOT_GIVEN,
        generation=_generation(model),
        positions=_positions(config, task if generates else None),
        not_given=NOT_GIVEN,
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")


def card_details(card: CardDetails | Mapping[str, Any] | None) -> CardDetails:
    """Give the details as what they are, and refuse unknown ones."""
    if isinstance(card, CardDetails):
        return card
    card = card or {}
    known = [item.name for item in dataclasses.fields(CardDetails)]
    if unknown := [name for name in card if name not in known]:
        raise ValueError(f"`card` has unknown entries {unknown}; it can have {', '.join(known)}.")
    given = {name: value for name, value in card.items() if value is not None}  # of a file, an entry that is empty
    for name in ("hyperparameters", "metrics"):
        if not isinstance(given.get(name, {}), Mapping):
            raise ValueError(f"`card` needs names and values as {name}, got {given[name]!r}.")
    for name, value in given.items():
        if name in ("hyperparameters", "metrics"):
            continue
        is_list = isinstance(value, list | tuple)
        if (is_list and name not in ("language", "datasets", "tags")) or isinstance(value, Mapping):
            raise ValueError(f"`card` needs one text as {name}, got {value!r}.")
        if not all(isinstance(each, str) for each in (value if is_list else [value])):
            raise ValueError(f"`card` needs text as {name}, got {value!r}; quote it, as YAML takes no for False.")
    for name, value in given.get("metrics", {}).items():
        try:
            math.isfinite(value)
        except TypeError:
            raise ValueError(f"`card` needs a number for each of the metrics, got {value!r} for {name}.") from None
    return CardDetails(**given)


def _metric_type(name: str) -> str:
    return "rouge" if name.lower().startswith("rouge") else name


def _sizes(config: Any) -> dict[str, Any]:
    """Sizes by the names that all have, and then the family's own, with what it has chosen."""
    common = (
        "d_model encoder_layers encoder_attention_heads encoder_ffn_dim decoder_layers decoder_attention_heads "
        "decoder_ffn_dim vocab_size max_position_embeddings"
    )
    family = FAMILIES.get(config.model_type)
    choices = family.choices if family else ()
    sizes = {name: getattr(config, name, None) for name in common.split() if name not in config.attribute_map}
    for name in vars(type(config)).get("__annotations__", {}):
        value = getattr(config, name, None)
        is_size = isinstance(value, int | list) and not isinstance(value, bool) and not name.endswith("token_id")
        if is_size or name in choices:
            sizes[name] = value
    unused = family.unused_by(config) if family else set()
    return {name: value for name, value in sizes.items() if value is not None and name not in unused}


def _generation(model: Any) -> dict[str, Any]:
    if not model.can_generate():
        return {}
    technical = ("_", "output_", "return_dict", "transformers_version", "use_cache")
    return {
        name: value
        for name, value in model.generation_config.to_diff_dict().items()
        if not name.startswith(technical) and not name.endswith("token_id")
    }


def _positions(config: Any, task: str | None) -> int | None:
    """How many tokens a source may have; None where it may be of any length."""
    limits = (positions(config, "encoder"), task and task_params(config, task).get("max_source_length"))
    return min((limit for limit in limits if limit), default=None)


def _cell(value: Any, measured: bool = False) -> str:
    """What stands in a cell of a table; what is measured has four digits."""
    text = f"{value:.4f}" if measured and isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", "\\|")


def _libraries(code: Iterable[Path]) -> list[str]:
    """What to install for these files, by the names of the Python Package Index."""
    from importlib.metadata import packages_distributions

    imported = set()
    for file in code:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    # The last three come with transformers.
    known = {*sys.stdlib_module_names, "torch", "transformers", "huggingface_hub", "numpy", "tokenizers"}
    distributions = packages_distributions()
    others = {distributions.get(name, [name])[0] for name in imported - known}
    return ["torch", '"transformers>=5.24,<6"', *sorted(others)]

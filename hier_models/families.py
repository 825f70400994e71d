"""One record a family: its classes, and all that commands, recipes, reports and model cards say of it.

To add a family, add its record to `families.toml` and its files to `models/`; nothing else names a family. Classes are
imported when they are asked for, so that `import hier_models` is light.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Family:
    """What there is to say of one architecture."""

    model_type: str  # the end of its files' names, and the `model_type` of its config
    prefix: str  # what the names of its classes begin with
    models: Mapping[str, str]  # Auto class -> model class that it finds
    title: str  # its name on a model card
    summary: str  # what it is, in a few sentences
    paper: str  # as it is cited
    made_for: str
    # Class of its tokenizers: one of Transformers that the paper's checkpoints use, or its own. Here any will do.
    tokenizer: str = "PreTrainedTokenizerFast"
    any_tokenizer: bool = False  # whether `AutoTokenizer` takes that class whatever class a checkpoint names
    pipelines: Sequence[str] = ()  # tasks of our pipelines that its models do, the usual one first
    # Auto class -> task of recipes that trains it, where that is another one than the Auto class says.
    tasks: Mapping[str, str] = field(default_factory=dict)
    starts_from: Literal["bart", "roberta"] | None = None  # whose weights it can begin with
    hierarchy: Sequence[str] = ()  # settings of its config that say what it has beyond that family
    plain: Mapping[str, Any] = field(default_factory=dict)  # values of its config that take the hierarchy out
    marked: bool = False  # whether its tokenizers set a marker before every sentence
    # Its config's name for the number of positions of a source; None if it reads any length.
    source_positions: str | None = "max_position_embeddings"
    decoder_starts_with: Literal["bos", "eos"] = "eos"
    # Ends of the names of weights that are made anew where a recipe asks for another size of them.
    resized: Sequence[str] = ()
    of_training: Sequence[str] = ()  # settings of its config that say how it is trained, not what its weights mean
    choices: Sequence[str] = ()  # settings that its model card lists, besides those that are numbers
    # Setting -> value -> settings that mean nothing beside that value.
    unused: Mapping[str, Mapping[Any, Sequence[str]]] = field(default_factory=dict)
    # Settings of a tiny model, for `--smoke`, beyond the usual ones; None for those that it does not get.
    tiny: Mapping[str, int | None] = field(default_factory=dict)
    # Settings that count a part of another one's number, and keep that part in a tiny model.
    tiny_parts: Mapping[str, str] = field(default_factory=dict)
    # Settings that a tiny checkpoint has from the one in whose place it stands, and their value where that is not
    # here; None for the recipe's own.
    kept: Mapping[str, Any] = field(default_factory=dict)
    # What `hier-models inspect` shows: attention to sentences or rows, highlighting, or how much each level counts.
    report: Literal["sentences", "rows", "highlighting", "levels"] = "sentences"

    @property
    def config(self) -> str:
        """The name of its config class."""
        return f"{self.prefix}Config"

    @property
    def processor(self) -> str:
        """The name of its processor class."""
        return f"{self.prefix}Processor"

    @property
    def classes(self) -> dict[str, str]:
        """The names of its own classes, each with that of the module that defines it."""
        named = {self.config: "configuration", self.processor: "processing", self.tokenizer: "tokenization"}
        named |= dict.fromkeys(self.models.values(), "modeling")
        return {
            name: f"hier_models.models.{kind}_{self.model_type}"
            for name, kind in named.items()
            if name.startswith(self.prefix)
        }

    def load(self, name: str) -> Any:
        """Import one of its classes."""
        return getattr(import_module(self.classes[name]), name)

    def unused_by(self, config: Any) -> set[str]:
        """Tell which settings of a config of the family mean nothing beside its others."""
        return {
            name for setting, values in self.unused.items() for name in values.get(getattr(config, setting, None), ())
        }


def _with_none(value: Any) -> Any:
    """Take "null" for None, which TOML has no word for."""
    if isinstance(value, dict):
        return {name: _with_none(item) for name, item in value.items()}
    return None if value == "null" else value


# By `model_type`.
FAMILIES: dict[str, Family] = {
    record["model_type"]: Family(**_with_none(record))
    for record in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["family"]
}

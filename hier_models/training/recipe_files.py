"""Recipe files: what they say, with what the command line changes, as a `Recipe`; and their variants."""

import copy
import functools
import json
import os
import re
from argparse import SUPPRESS, ArgumentError
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import yaml
from transformers import HfArgumentParser

from ..checkpoints import resolve_checkpoint
from .arguments import SECTIONS, PrecisionError, Recipe, RecipeError, RunArguments, nearest
from .run_metadata import has_fast_bfloat16
from .tasks import TASKS, task_class


# What else a recipe file may say, beside its sections.
BASE, VARIANTS, COMPARISON = "base", "variants", "comparison"
# Recipes may use either name; Transformers' old one is deprecated.
_RENAMED = {f"gradient_checkpointing{end}": f"activation_checkpointing{end}" for end in ("", "_kwargs")}
# Of Transformers text, which may be true or false.
TEXT_OR_SWITCH = ("resume_from_checkpoint", "fsdp")

# What changes a recipe: as on the command line, or name -> value.
Overrides = Sequence[str] | Mapping[str, Any]


class _UniqueKeys(yaml.SafeLoader):
    """The safe loader, which refuses a name that is given twice, as YAML has it, where PyYAML takes the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in names:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            names.add(key.value if isinstance(key, yaml.ScalarNode) else key)
        return node


# Numbers of YAML 1.2 such as 1e-4, which PyYAML, as YAML 1.1 has it, takes for text.
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$")
_UniqueKeys.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


class _Word(str):
    """Yes, no, on or off: in YAML 1.1 true or false, which is what turns a switch, and else what stands there."""

    __slots__ = ()


def _bool_or_word(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> bool | _Word:
    return loader.construct_yaml_bool(node) if node.value.lower() in ("true", "false") else _Word(node.value)


_UniqueKeys.add_constructor("tag:yaml.org,2002:bool", _bool_or_word)


def _switched(value: Any) -> Any:
    """Read words as true and false, to any depth."""
    if isinstance(value, dict):
        return {name: _switched(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_switched(item) for item in value]
    return value.lower() in ("yes", "on") if isinstance(value, _Word) else value


class _RecipeParser(HfArgumentParser):
    """The stock parser, which raises instead of ending the program, and tells what was given from defaults."""

    def __init__(self, sections: Mapping[str, type]) -> None:
        super().__init__(cast(Any, list(sections.values())), allow_abbrev=False, add_help=False)
        self.sections = sections
        # Of switches that have an opposite (--no_…), the first.
        self.fields = {action.dest: action for action in reversed(self._actions)}
        for action in self._actions:
            action.default = SUPPRESS

    def error(self, message: str) -> NoReturn:
        raise RecipeError(message)

    def given(self, options: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Read options of the command line: what they set, and what is none of them."""
        found, rest = self.parse_known_args([_renamed_option(option) for option in options])
        return vars(found), rest

    def home(self, name: str, where: str) -> str:
        """The section that a name belongs to."""
        names = {section: [item.name for item in fields(kind) if item.init] for section, kind in self.sections.items()}
        found = next((section for section, own in names.items() if _RENAMED.get(name, name) in own), None)
        if found is None:
            raise RecipeError(f"{where}: unknown name {name!r}{nearest(name, chain(*names.values()))}")
        return found

    def typed(self, name: str, value: Any, where: str) -> dict[str, Any]:
        """A value as its field has it, as if it were written on the command line. Null says nothing."""
        self.home(name, where)
        if value is None:
            return {}
        field = self.fields[_RENAMED.get(name, name)]
        takes_text = (field.type is str or field.choices) and name not in TEXT_OR_SWITCH
        if isinstance(value, dict) or not takes_text:
            value = _switched(value)
        parts = value if isinstance(value, list | tuple) else [value]
        if field.nargs != "+" and len(parts) != 1:
            raise RecipeError(f"{where}: {name!r} takes one value, got {value!r}")
        try:
            return {field.dest: self._get_values(field, [_text(part) for part in parts])}
        except ArgumentError as error:
            raise RecipeError(str(error)) from error


@functools.cache
def _parser(*sections: tuple[str, type]) -> _RecipeParser:
    """The parser of some sections, which takes longer to make than recipes to read."""
    return _RecipeParser(dict(sections))


def load_recipe(
    path: str | os.PathLike[str] | None = None,
    overrides: Overrides = (),
    variant: str | None = None,
    seed: int | None = None,
) -> Recipe:
    """Read a recipe.

    A recipe file has the sections `model`, `data`, `generation`, `run` and `training`, each a mapping of the names of
    `ModelArguments`, `DataArguments`, `GenerationArguments`, `RunArguments` and `Seq2SeqTrainingArguments`; and, where
    the task (`run: task:`) has options of its own, a section that is named like the task.

    With `base:`, another recipe file (its path is taken from the folder of this one), a recipe is that one, but for
    what it says itself; null takes a value of the base back. With `variants:`, a mapping of names to such changes, it
    is a sweep: one recipe for each variant, whose `output_dir` is a folder named like it in the sweep's; see
    `run_sweep`.

    Args:
        path: A YAML file; None to use the overrides alone.
        overrides: What to change, as on the command line (`["--learning_rate", "1e-4"]`) or by name
            (`{"learning_rate": 1e-4}`), without sections.
        variant: Which variant of a sweep to read.
        seed: Which run of a comparison: its seed, and a folder `seed_<n>` in that of the variant.

    Returns:
        The recipe.

    Raises:
        RecipeError: If the file is no such YAML, or a name or a value is not allowed; if it is a sweep and no variant
            is named, or none of that name is in it.
    """
    content = {} if path is None else _content_of_file(Path(path))
    variants, comparison = content.pop(VARIANTS, None), content.pop(COMPARISON, None)
    if comparison is not None and variants is None:
        raise RecipeError(f"{path}: {COMPARISON} compares variants, and there are none; see {VARIANTS}")
    if variants is not None or variant is not None:
        content = _content_of_variant(content, variants, variant, path)
    task = _task(content, overrides)
    options = task_class(task).arguments
    sections = {**SECTIONS, **({} if options is None else {task: options})}
    parser = _parser(*sections.items())
    values = _values_of_content(content, str(path), parser)
    if isinstance(overrides, Mapping):
        for name, value in overrides.items():
            values |= parser.typed(str(name), value, "overrides")
    else:
        given, rest = parser.given(overrides)
        for option in (option for option in rest if option.startswith("--")):
            parser.home(option[2:].split("=")[0].replace("-", "_"), "the command line")
        if rest:
            raise RecipeError(f"cannot use {' '.join(rest)!r}: options are given as --name value")
        values |= given
    if variant is not None:
        if values.get("output_dir") is None:
            raise RecipeError(f"{path}: training: output_dir is not given; each variant gets a folder in it")
        of_seed = [] if seed is None else [f"seed_{seed}"]
        values["output_dir"] = os.path.join(values["output_dir"], variant, *of_seed)
    if seed is not None:
        values["seed"] = seed
    # Else a loss that is no number would be logged as the one before; in float16 a step that has one is passed over.
    logged = {"logging_nan_inf_filter": bool(values.get("fp16"))}
    values = logged | _direction(values) | _source_length(task, values) | values
    try:
        return Recipe(*parser.parse_dict(values | _precision(values)))
    except RecipeError:
        raise
    except (ValueError, TypeError) as error:  # from the arguments' own checks
        if "bf16" in str(error):
            raise PrecisionError(
                "training: bf16: true needs a device with bfloat16, and there is none here. Say --bf16 false, with "
                "--fp16 true on a GPU of before 2020; or --use_cpu true to compute in bfloat16 on the CPU, slowly "
                f"({error})"
            ) from error
        raise RecipeError(str(error)) from error


def comparison_section(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Read what a sweep says of the comparison of its variants."""
    content = _content_of_file(Path(path))
    section = content.get(COMPARISON)
    if COMPARISON in content and not isinstance(section, dict):
        raise RecipeError(f"{path}: {COMPARISON} must be a mapping of names to values, got {section!r}")
    if section and "check_overlap" in section:
        section["check_overlap"] = _switched(section["check_overlap"])
    return section


def variant_names(path: str | os.PathLike[str]) -> list[str]:
    """List the variants of a sweep.

    Args:
        path: A YAML file, as for `load_recipe`.

    Returns:
        Their names, in the order of the file; empty if it is a plain recipe.

    Raises:
        RecipeError: If the file cannot be read, or its variants have no usable names.
    """
    return list(_content_of_file(Path(path)).get(VARIANTS, {}))


def check_overrides(path: str | os.PathLike[str], overrides: Overrides) -> None:
    """Refuse to change for all variants of a sweep what they differ in: they would be one and the same."""
    options = all_options(overrides)
    names = {option[2:].split("=")[0].replace("-", "_") for option in options if option.startswith("--")}
    given = {_RENAMED.get(name, name) for name in names}
    variants = _content_of_file(Path(path)).get(VARIANTS, {})
    for variant, sections in variants.items():
        for values in sections.values() if isinstance(sections, dict) else ():
            for name in values if isinstance(values, dict) else ():
                if _RENAMED.get(name, name) in given:
                    raise RecipeError(
                        f"{name} cannot be changed here: variant {variant!r} of {path} sets it, and variants would "
                        f"be the same. With --variant NAME only one of {', '.join(variants)} runs; what else {name} "
                        "is to be, say in the file"
                    )


def _content_of_file(path: Path, inheriting: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The sections of a recipe file, over those of its `base`."""
    content = _read(path)
    variants = content.get(VARIANTS)
    if VARIANTS in content:
        if not isinstance(variants, dict) or not variants:
            raise RecipeError(f"{path}: {VARIANTS} must be a mapping of names to sections, got {variants!r}")
        for name in variants:
            if not re.fullmatch(r"\w[\w.-]*", str(name)):
                allowed = "becomes that of a folder: letters, digits, _ . and -"
                raise RecipeError(f"{path}: a variant's name {allowed}; got {name!r}")
        content[VARIANTS] = {str(name): sections or {} for name, sections in variants.items()}
    if (base := content.pop(BASE, None)) is None:
        return content
    if not isinstance(base, str):
        raise RecipeError(f"{path}: {BASE} must be the path of another recipe, got {base!r}")
    inheriting = (*inheriting, path.resolve())
    file = path.parent / base
    if file.resolve() in inheriting:
        raise RecipeError(f"{path}: {BASE}: {base} begins with this recipe itself")
    below = _content_of_file(file, inheriting)
    if VARIANTS in below:
        raise RecipeError(f"{path}: {BASE}: {base} is a sweep; give the recipe that it begins with")
    return _merged(below, content)


def _content_of_variant(content: dict[str, Any], variants: Any, variant: str | None, path: Any) -> dict[str, Any]:
    if variants is None:
        raise RecipeError(f"{path} has no variants, so no {variant!r}")
    if variant not in variants:
        problem = "is a sweep, for run_sweep" if variant is None else f"has no variant {variant!r}"
        raise RecipeError(f"{path} {problem}; its variants are {', '.join(variants)}")
    changes = variants[variant]
    if not isinstance(changes, dict):
        raise RecipeError(f"{path}: variant {variant!r} must hold sections, as a recipe does; got {changes!r}")
    return _merged(content, changes)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings in mappings, to any depth; what is above wins."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """What YAML says; a sweep is read again for each of its variants, and PyYAML is slow."""
    return yaml.load(text, _UniqueKeys)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = copy.deepcopy(_parsed(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise RecipeError(f"no such recipe: {path}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} is no YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path} must hold the sections {', '.join(SECTIONS)}")
    return content


def _task(content: Mapping[str, Any], overrides: Overrides) -> str:
    """The task, which decides what else a recipe can say."""
    given = overrides if isinstance(overrides, Mapping) else _parser(("run", RunArguments)).given(overrides)[0]
    run = content.get("run")
    return str(given.get("task") or (run.get("task") if isinstance(run, dict) else None) or RunArguments.task)


def _precision(values: Mapping[str, Any]) -> dict[str, bool]:
    """What `bf16_where_fast` means on this machine."""
    if not values.get("bf16_where_fast"):
        return {}
    if name := next((name for name in ("bf16", "fp16") if values.get(name)), None):
        raise RecipeError(f"run: bf16_where_fast and training: {name} are both given; leave one out")
    if not has_fast_bfloat16(bool(values.get("use_cpu"))):
        return {}
    # Transformers takes bf16 on a CPU only if it is told that a CPU is meant.
    return {"bf16": True, **({} if torch.accelerator.is_available() else {"use_cpu": True})}


def _source_length(task: str, values: Mapping[str, Any]) -> dict[str, int]:
    """As many tokens as a checkpoint that is here was trained to read; nothing is loaded from the Hub yet."""
    name = values.get("model_name_or_path")
    if task not in ("summarization", "book_summarization") or not name:
        return {}
    try:
        config = json.loads((Path(resolve_checkpoint(name)) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # whoever loads it says what is wrong with it
    params = (config.get("task_specific_params") or {}).get("summarization") or {}
    return {name: length for name, length in params.items() if name == "max_source_length"}


def _direction(values: Mapping[str, Any]) -> dict[str, bool]:
    """Of the tasks' metrics one is better where it is lower, which Transformers takes of losses alone."""
    is_perplexity = str(values.get("metric_for_best_model")).removeprefix("eval_") == "perplexity"
    return {"greater_is_better": False} if is_perplexity else {}


def _values_of_content(content: Mapping[str, Any], path: str, parser: _RecipeParser) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for section, values in content.items():
        if section in TASKS and section not in parser.sections:
            raise RecipeError(f"{path}: section {section!r} goes with run: task: {section}")
        if section not in parser.sections:
            raise RecipeError(f"{path}: unknown section {section!r}{nearest(str(section), list(parser.sections))}")
        if not isinstance(values, dict | None):
            raise RecipeError(f"{path}: section {section!r} must be a mapping of names to values, got {values!r}")
        for name, value in (values or {}).items():
            where = f"{path}, section {section!r}"
            if (home := parser.home(str(name), where)) != section:
                raise RecipeError(f"{where}: {name!r} belongs to section {home!r}")
            found |= parser.typed(str(name), value, where)
    return found


def as_options(name: str, value: Any) -> list[str]:
    """Write a value as it is given on the command line."""
    option = f"--{_RENAMED.get(name, name)}"
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [option, *map(str, value)]
    return [f"{option}={_text(value)}"]  # with "=", so that a value may begin with a dash


def all_options(overrides: Overrides) -> list[str]:
    """Write overrides as they are given on the command line."""
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [option for name, value in overrides.items() for option in as_options(str(name), value)]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _renamed_option(option: str) -> str:
    if not option.startswith("--"):
        return option
    name, separator, value = option[2:].partition("=")
    plain = name.replace("-", "_")
    return f"--{_RENAMED[plain]}{separator}{value}" if plain in _RENAMED else option

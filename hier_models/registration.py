"""Registration of every family with the Auto classes and of every task with `transformers.pipeline`.

Registering the plain way (`AutoModel.register(HatBartConfig, HatBartModel)`) would import torch and every model file
as soon as hier_models is imported. So each Auto module is registered with right after Transformers itself imports it,
and what is registered is a reference that is resolved when an Auto class looks it up.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .families import FAMILIES, Family


def register() -> None:
    """Register all families and tasks, now where Transformers' own modules are loaded, else when they will be."""
    finder = _AfterImportFinder(
        {
            "transformers.models.auto.configuration_auto": _register_configs,
            "transformers.models.auto.modeling_auto": _register_models,
            "transformers.models.auto.processing_auto": _register_processors,
            "transformers.models.auto.tokenization_auto": _register_tokenizers,
            "transformers.pipelines": _register_pipelines,
        }
    )
    for name in list(finder.actions):
        if name in sys.modules:
            finder.actions.pop(name)(sys.modules[name])
    if finder.actions:
        sys.meta_path.insert(0, finder)


def _register_configs(auto: ModuleType) -> None:
    for family in FAMILIES.values():
        auto.AutoConfig.register(family.model_type, family.load(family.config), exist_ok=True)


def _register_models(auto: ModuleType) -> None:
    for family in FAMILIES.values():
        for auto_class, model_class in family.models.items():
            _register_reference(getattr(auto, auto_class)._model_mapping, family, model_class)


def _register_processors(auto: ModuleType) -> None:
    for family in FAMILIES.values():
        _register_reference(auto.PROCESSOR_MAPPING, family, family.processor)


def _register_tokenizers(auto: ModuleType) -> None:
    transformers = importlib.import_module("transformers")
    for family in FAMILIES.values():
        own = family.tokenizer in family.classes
        tokenizer_class = family.load(family.tokenizer) if own else getattr(transformers, family.tokenizer)
        auto.AutoTokenizer.register(family.load(family.config), tokenizer_class=tokenizer_class, exist_ok=True)
        # The class that a tokenizer's config names goes before the registered one, but for the model types of this
        # set of Transformers'. In a release without it, checkpoints have to name the class.
        if family.any_tokenizer and hasattr(auto, "MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS"):
            auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS.add(family.model_type)
            auto.TOKENIZER_MAPPING_NAMES[family.model_type] = family.tokenizer


def _register_pipelines(pipelines: ModuleType) -> None:
    importlib.import_module("hier_models.pipelines").register_pipelines()


class _ResolvingDict(dict[Any, Any]):
    """A dict whose values may be functions that import a class, which are called when they are read."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, partial):
            value = self[key] = value()
        return value

    def values(self) -> Any:
        return {key: self[key] for key in self}.values()

    def items(self) -> Any:
        return {key: self[key] for key in self}.items()


def _register_reference(mapping: Any, family: Family, name: str) -> None:
    # `register` stores its value as it is, so the place where it stores it has to call it. Importing the class here
    # instead can run into a half-imported modeling file: those import the Auto classes themselves.
    if not isinstance(mapping._extra_content, _ResolvingDict):
        mapping._extra_content = _ResolvingDict(mapping._extra_content)
    mapping.register(family.load(family.config), partial(family.load, name), exist_ok=True)


class _AfterImportFinder(importlib.abc.MetaPathFinder):
    """Calls `actions[name](module)` once, right after module `name` has been imported."""

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self.actions = actions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        action = self.actions.pop(fullname, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(fullname)
        self.actions[fullname] = action  # to be found is not yet to be imported
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self.actions.pop(fullname, None):
                    action(module)
                if not self.actions and self in sys.meta_path:
                    sys.meta_path.remove(self)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this module's loader alone
        return spec

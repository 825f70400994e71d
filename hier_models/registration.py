"""Registration of every family with the Auto classes and of every task with `transformers.pipeline`.

To add a family, add its line to `FAMILIES`.

Registering the plain way (`AutoModel.register(HatBartConfig, HatBartModel)`) would import torch and every model file
as soon as hier_models is imported. So each Auto module is registered with right after Transformers itself imports it,
and what is registered is a reference that is resolved when an Auto class looks it up.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Family:
    """The classes of one architecture, by name, and the Auto classes that find them.

    Args:
        models: name of the Auto class -> name of the model class.
        config: name of the config class.
        processor: name of the processor class.
        tokenizer: name of the tokenizer class: one of Transformers that the paper's checkpoints use, or the family's
            own in `tokenization_<model_type>.py`.
        any_tokenizer: whether `AutoTokenizer` takes that class whatever class a checkpoint names.
    """

    models: dict[str, str]
    config: str
    processor: str
    tokenizer: str
    any_tokenizer: bool = False


FAMILIES = {
    "coarse_to_fine_lstm": Family(
        models={
            "AutoModel": "CoarseToFineLstmModel",
            "AutoModelForSeq2SeqLM": "CoarseToFineLstmForConditionalGeneration",
        },
        config="CoarseToFineLstmConfig",
        processor="CoarseToFineLstmProcessor",
        tokenizer="PreTrainedTokenizerFast",  # any will do, a word-level one above all
    ),
    "ham": Family(
        models={"AutoModel": "HamModel", "AutoModelForSeq2SeqLM": "HamForConditionalGeneration"},
        config="HamConfig",
        processor="HamProcessor",
        tokenizer="PreTrainedTokenizerFast",  # any will do, one of characters above all
    ),
    "ham_reader": Family(
        models={"AutoModelForQuestionAnswering": "HamReaderForQuestionAnswering"},
        config="HamReaderConfig",
        processor="HamReaderProcessor",
        tokenizer="PreTrainedTokenizerFast",  # any will do, a word-level one above all
    ),
    "hat_bart": Family(
        models={"AutoModel": "HatBartModel", "AutoModelForSeq2SeqLM": "HatBartForConditionalGeneration"},
        config="HatBartConfig",
        processor="HatBartProcessor",
        tokenizer="HatBartTokenizer",  # it sets the markers, for scripts that know tokenizers only
        any_tokenizer=True,
    ),
    "hat_encoder": Family(
        models={
            "AutoModel": "HatEncoderModel",
            "AutoModelForMaskedLM": "HatEncoderForMaskedLM",
            "AutoModelForSequenceClassification": "HatEncoderForSequenceClassification",
            "AutoModelForMultipleChoice": "HatEncoderForMultipleChoice",
            "AutoModelForQuestionAnswering": "HatEncoderForQuestionAnswering",
            "AutoModelForTokenClassification": "HatEncoderForTokenClassification",
        },
        config="HatEncoderConfig",
        processor="HatEncoderProcessor",
        tokenizer="HatEncoderTokenizer",  # it sets the markers, also in pipelines that know tokenizers only
    ),
    "highlight_transformer": Family(
        models={
            "AutoModel": "HighlightTransformerModel",
            "AutoModelForSeq2SeqLM": "HighlightTransformerForConditionalGeneration",
        },
        config="HighlightTransformerConfig",
        processor="HighlightTransformerProcessor",
        tokenizer="RobertaTokenizer",  # what AutoTokenizer gives for BART
    ),
    "top_down_transformer": Family(
        models={
            "AutoModel": "TopDownTransformerModel",
            "AutoModelForSeq2SeqLM": "TopDownTransformerForConditionalGeneration",
            "AutoModelForTextEncoding": "TopDownTransformerEncoderModel",
            "AutoModelForTokenClassification": "TopDownTransformerForTokenClassification",
        },
        config="TopDownTransformerConfig",
        processor="TopDownTransformerProcessor",
        tokenizer="RobertaTokenizer",  # what AutoTokenizer gives for BART
    ),
}


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
    for model_type in FAMILIES:
        auto.AutoConfig.register(model_type, _config_class(model_type), exist_ok=True)


def _register_models(auto: ModuleType) -> None:
    for model_type, family in FAMILIES.items():
        for auto_class, model_class in family.models.items():
            mapping = getattr(auto, auto_class)._model_mapping
            _register_reference(mapping, model_type, _Reference(model_type, "modeling", model_class))


def _register_processors(auto: ModuleType) -> None:
    for model_type, family in FAMILIES.items():
        reference = _Reference(model_type, "processing", family.processor)
        _register_reference(auto.PROCESSOR_MAPPING, model_type, reference)


def _register_tokenizers(auto: ModuleType) -> None:
    transformers = importlib.import_module("transformers")
    for model_type, family in FAMILIES.items():
        tokenizer_class = getattr(transformers, family.tokenizer, None)
        if tokenizer_class is None:
            tokenizer_class = _Reference(model_type, "tokenization", family.tokenizer).resolve()
        auto.AutoTokenizer.register(_config_class(model_type), tokenizer_class=tokenizer_class, exist_ok=True)
        # The class that a tokenizer's config names goes before the registered one, but for the model types of this
        # set of Transformers'. In a release without it, checkpoints have to name the class.
        if family.any_tokenizer and hasattr(auto, "MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS"):
            auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS.add(model_type)
            auto.TOKENIZER_MAPPING_NAMES[model_type] = family.tokenizer


def _register_pipelines(pipelines: ModuleType) -> None:
    importlib.import_module("hier_models.pipelines").register_pipelines()


def _config_class(model_type: str) -> Any:
    return _Reference(model_type, "configuration", FAMILIES[model_type].config).resolve()


@dataclass(frozen=True)
class _Reference:
    """A class of an architecture that has not been imported yet."""

    model_type: str
    kind: str
    name: str

    def resolve(self) -> Any:
        module = importlib.import_module(f"hier_models.models.{self.kind}_{self.model_type}")
        return getattr(module, self.name)


class _ResolvingDict(dict[Any, Any]):
    """A dict whose `_Reference` values are resolved when they are read."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, _Reference):
            value = value.resolve()
            self[key] = value
        return value

    def values(self) -> Any:
        return {key: self[key] for key in self}.values()

    def items(self) -> Any:
        return {key: self[key] for key in self}.items()


def _register_reference(mapping: Any, model_type: str, reference: _Reference) -> None:
    # `register` stores its value as it is, so the place where it stores it has to resolve references. Importing the
    # class here instead can run into a half-imported modeling file: those import the Auto classes themselves.
    if not isinstance(mapping._extra_content, _ResolvingDict):
        mapping._extra_content = _ResolvingDict(mapping._extra_content)
    mapping.register(_config_class(model_type), reference, exist_ok=True)


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
        if not self.actions and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterImportLoader(spec.loader, action)
        return spec


class _AfterImportLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, action: Callable[[ModuleType], None]) -> None:
        self.loader = loader
        self.action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on the module is its own loader's, for `inspect`, `pkgutil` and whoever else asks.
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.action(module)

"""What a checkpoint is: its class, the Auto class that gives it, and the task of its pipeline."""

from typing import Any

from ..families import FAMILIES


# The Auto classes that an exported checkpoint can name, and Transformers' public mapping behind each.
AUTO_MAPPINGS = {
    "AutoModel": "MODEL_MAPPING",
    "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "AutoModelForTextEncoding": "MODEL_FOR_TEXT_ENCODING_MAPPING",
    "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "AutoModelForMultipleChoice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING",
    "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
}


def task_of(config: Any) -> str:
    """Tell which of our pipelines a model is for.

    Args:
        config: its config.

    Returns:
        What its family is for; where that is several, "poem-generation" if the config's `task_specific_params` speak
        of it, "translation" if they speak of that and not of summarization, else "summarization".
    """
    family = FAMILIES.get(config.model_type)
    if family is not None and len(family.pipelines) == 1:
        return family.pipelines[0]
    named = {name.partition("_")[0] for name in getattr(config, "task_specific_params", None) or {}}
    if "poem-generation" in named:
        return "poem-generation"
    return "translation" if "translation" in named and "summarization" not in named else "summarization"


def model_class(config: Any) -> Any:
    """Find the class of a checkpoint.

    Args:
        config: its config.

    Returns:
        The class of hier_models that it names as its architecture; None if it names none.
    """
    named = (getattr(config, "architectures", None) or [""])[0]
    ours = [found for found in classes_of(config).values() if not found.__module__.startswith("transformers.")]
    return next((found for found in ours if found.__name__ == named), None)


def auto_class_of(model: Any) -> str:
    """Name the Auto class that gives this model."""
    return next((auto for auto, found in classes_of(model.config).items() if found is type(model)), "AutoModel")


def classes_of(config: Any) -> dict[str, Any]:
    """Auto class -> what it gives for a config, of those that know it."""
    import transformers

    found = {auto: getattr(transformers, name).get(type(config), None) for auto, name in AUTO_MAPPINGS.items()}
    return {auto: known for auto, known in found.items() if isinstance(known, type)}

"""The test classes: Transformers' `ModelTesterMixin` over every model class of every family. `run.py` runs them."""

import unittest
from unittest import mock

import transformers_suite.test_modeling_common as common

from families import FAMILIES as TESTERS
from hier_models.families import FAMILIES


# The suite asks these tables, by class name, which head a model has (and so, say, which labels it takes).
HEAD_TABLES = {
    "AutoModel": "MODEL_MAPPING_NAMES",
    "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "AutoModelForMultipleChoice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
    "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "AutoModelForSeq2SeqLM": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
}

for auto_class, table in HEAD_TABLES.items():
    ours = {
        model_type: family.models[auto_class] for model_type, family in FAMILIES.items() if auto_class in family.models
    }
    setattr(common, table, {**getattr(common, table), **ours})


class FamilyTests(common.ModelTesterMixin):
    """What all families share; `family` and `all_model_classes` come with the class made for each model."""

    family: type
    test_can_init_all_missing_weights_before_2023 = True  # so that the test looks at models of any year

    def setUp(self):
        self.model_tester = self.family()
        self.additional_model_inputs = list(self.family.extra_inputs)

    def test_attention_outputs(self):
        model_class = self.all_model_classes[0]
        forward = model_class.forward

        def forward_without_extra_outputs(model, *args, **kwargs):
            output = forward(model, *args, **kwargs)
            kept = {name: value for name, value in output.items() if name not in self.family.extra_outputs}
            return type(output)(**kept)

        # The signature stays the model's own: the decorators of forward read it.
        with mock.patch.object(model_class, "forward", forward_without_extra_outputs):
            super().test_attention_outputs()


def make_test_class(family: type, model_class: type) -> type:
    bases: tuple[type, ...] = (FamilyTests, unittest.TestCase)
    if model_class.can_generate():
        bases = (FamilyTests, common.GenerationTesterMixin, unittest.TestCase)
    return type(
        f"Test{model_class.__name__}{family.variant}",
        bases,
        {
            "family": family,
            "all_model_classes": (model_class,),
            "is_encoder_decoder": family.is_encoder_decoder,
            "__module__": __name__,
        },
    )


for family in TESTERS:
    for model_class in family.baselines:
        test_class = make_test_class(family, model_class)
        globals()[test_class.__name__] = test_class

del test_class  # or pytest would collect the last one twice

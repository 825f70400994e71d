"""What conformance runs on: one tester with a tiny configuration for BART, RoBERTa and each of our families.

To add a family, write a tester (most need a configuration class and its few extra fields only) and put it into
`FAMILIES`. A test of Transformers' suite that cannot apply to a family goes into its `not_applicable`, with the
reason.
"""

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForMultipleChoice,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from transformers.testing_utils import torch_device

import hier_models


class ModelTester:
    """Tiny model in the manner of Transformers' own model testers, whose attribute names the suite reads.

    Class attributes that a family sets:
        config_class: The family's configuration.
        extra_config: Its own fields, beyond those of the baseline, with small values.
        baselines: For each model class that the family registers, the class of Transformers it is held against.
        variant: What tells the tester from others of the same classes: their names get it at their end.
        extra_inputs: Names of inputs beyond the baseline's that the tests of attention kernels must hand on.
        extra_outputs: Output fields beyond the baseline's. `test_attention_outputs` counts the fields of an output; it
            runs on what is left when these are taken out.
        not_applicable: Tests that cannot apply, each with the reason. The run fails if one of them passes.
    """

    config_class: type
    extra_config: dict[str, object] = {}
    baselines: dict[type, type] = {}
    variant = ""
    extra_inputs: tuple[str, ...] = ()
    extra_outputs: tuple[str, ...] = ()
    not_applicable: dict[str, str] = {}
    is_encoder_decoder: bool

    batch_size = 13
    seq_length = 7
    vocab_size = 99
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 4
    num_choices = 4
    is_training = True
    bos_token_id, pad_token_id, eos_token_id = 0, 1, 2

    def random_ids(self) -> torch.Tensor:
        ids = torch.randint(5, self.vocab_size, (self.batch_size, self.seq_length), device=torch_device)
        ids[:, 0], ids[:, -1] = self.bos_token_id, self.eos_token_id
        return ids  # (batch, tokens)


class Seq2SeqTester(ModelTester):
    """Tiny encoder-decoder."""

    config_class = BartConfig
    is_encoder_decoder = True

    def get_config(self):
        return self.config_class(
            vocab_size=self.vocab_size,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            encoder_attention_heads=self.num_attention_heads,
            decoder_attention_heads=self.num_attention_heads,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            max_position_embeddings=50,
            bos_token_id=self.bos_token_id,
            pad_token_id=self.pad_token_id,
            eos_token_id=self.eos_token_id,
            decoder_start_token_id=self.eos_token_id,
            **self.extra_config,
        )

    def prepare_config_and_inputs_for_common(self):
        input_ids, decoder_input_ids = self.random_ids(), self.random_ids()
        inputs = {
            "input_ids": input_ids,
            "attention_mask": torch.ones_like(input_ids),
            "decoder_input_ids": decoder_input_ids,
            "decoder_attention_mask": torch.ones_like(decoder_input_ids),
        }
        return self.get_config(), inputs


class EncoderTester(ModelTester):
    """Tiny encoder."""

    config_class = RobertaConfig
    is_encoder_decoder = False

    def get_config(self):
        return self.config_class(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=8,
            max_position_embeddings=50,
            type_vocab_size=2,
            bos_token_id=self.bos_token_id,
            pad_token_id=self.pad_token_id,
            eos_token_id=self.eos_token_id,
            **self.extra_config,
        )

    def prepare_config_and_inputs_for_common(self):
        input_ids = self.random_ids()
        inputs = {
            "input_ids": input_ids,
            "token_type_ids": torch.randint(0, 2, input_ids.shape, device=torch_device),
            "attention_mask": torch.ones_like(input_ids),
        }
        return self.get_config(), inputs


class Sentences:
    """Markers inside of the ids, and where they are."""

    def random_ids(self) -> torch.Tensor:
        ids = super().random_ids()
        ids[:, 3] = self.bos_token_id
        ids[::2, 5] = self.bos_token_id  # every other row has three sentences, the others two
        return ids

    def bos_positions(self) -> torch.Tensor:
        rows = torch.arange(self.batch_size, device=torch_device)[:, None]
        third = torch.where(rows % 2 == 0, 5, -1)  # -1 pads
        return torch.cat([torch.zeros_like(rows), torch.full_like(rows, 3), third], dim=1)


class Importance:
    """Weights of the tokens."""

    extra_inputs = ("token_importance",)
    extra_outputs = ("segment_attentions", "token_segment_attentions")
    top_down_config = {
        "bottom_up_layers": 1,
        "top_down_layers": 1,
        "segment_layers": 1,
        "attention_window": 4,
        "pooling_kernel": 4,
        "pooling_stride": 3,
        "pooling": "importance",
    }

    def get_config(self):
        return hier_models.TopDownTransformerConfig(
            vocab_size=self.vocab_size,
            d_model=self.hidden_size,
            decoder_layers=self.num_hidden_layers,
            encoder_attention_heads=self.num_attention_heads,
            decoder_attention_heads=self.num_attention_heads,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            max_encoder_position_embeddings=50,
            max_decoder_position_embeddings=50,
            bos_token_id=self.bos_token_id,
            pad_token_id=self.pad_token_id,
            eos_token_id=self.eos_token_id,
            decoder_start_token_id=self.eos_token_id,
            **self.top_down_config,
        )

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        inputs.pop("token_type_ids", None)
        inputs["token_importance"] = torch.rand(inputs["input_ids"].shape, device=torch_device)
        return config, inputs


class BartTester(Seq2SeqTester):
    baselines = {model_class: model_class for model_class in (BartModel, BartForConditionalGeneration)}


class RobertaTester(EncoderTester):
    baselines = {
        model_class: model_class
        for model_class in (
            RobertaModel,
            RobertaForMaskedLM,
            RobertaForSequenceClassification,
            RobertaForMultipleChoice,
            RobertaForQuestionAnswering,
            RobertaForTokenClassification,
        )
    }


class HatBartTester(Sentences, Seq2SeqTester):
    config_class = hier_models.HatBartConfig
    extra_config = {"hierarchical_layers": 1, "num_segments": 3}
    baselines = {
        hier_models.HatBartModel: BartModel,
        hier_models.HatBartForConditionalGeneration: BartForConditionalGeneration,
    }
    extra_inputs = ("segment_ids", "bos_positions")
    extra_outputs = ("hierarchical_attentions", "encoder_hierarchical_attentions")

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        inputs["bos_positions"] = self.bos_positions()
        inputs["segment_ids"] = torch.randint(0, config.num_segments, inputs["input_ids"].shape, device=torch_device)
        return config, inputs


class HatEncoderTester(Sentences, EncoderTester):
    config_class = hier_models.HatEncoderConfig
    baselines = {
        hier_models.HatEncoderModel: RobertaModel,
        hier_models.HatEncoderForMaskedLM: RobertaForMaskedLM,
        hier_models.HatEncoderForSequenceClassification: RobertaForSequenceClassification,
        hier_models.HatEncoderForMultipleChoice: RobertaForMultipleChoice,
        hier_models.HatEncoderForQuestionAnswering: RobertaForQuestionAnswering,
        hier_models.HatEncoderForTokenClassification: RobertaForTokenClassification,
    }
    extra_inputs = ("bos_positions",)
    extra_outputs = ("hierarchical_attentions",)

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        inputs["bos_positions"] = self.bos_positions()
        return config, inputs


class HighlightTransformerTester(Seq2SeqTester):
    config_class = hier_models.HighlightTransformerConfig
    extra_config = {"highlight_heads": 2, "max_phrase_length": 4}
    extra_inputs = ("phrase_positions", "phrase_values", "source_ids")
    extra_outputs = ("copy_attentions", "copy_probability", "source_ids")
    not_applicable = {
        "test_encoder_decoder_loss_no_double_shift": "The logits are logarithms of the mixture with what is copied, "
        "and the loss reads them as they are. The suite compares its gradient with that through another softmax.",
    }
    baselines = {
        hier_models.HighlightTransformerModel: BartModel,
        hier_models.HighlightTransformerForConditionalGeneration: BartForConditionalGeneration,
    }

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        spans = torch.tensor([[1, 3], [2, 5], [-1, -1]], device=torch_device)  # -1 pads
        inputs["phrase_positions"] = spans.expand(self.batch_size, -1, -1).clone()
        inputs["phrase_values"] = torch.rand(self.batch_size, len(spans), device=torch_device)
        inputs["source_ids"] = inputs["input_ids"]  # for tests that give embeddings; one tensor, as tests clamp it
        return config, inputs


class TopDownTransformerTester(Importance, Seq2SeqTester):
    baselines = {
        hier_models.TopDownTransformerModel: BartModel,
        hier_models.TopDownTransformerForConditionalGeneration: BartForConditionalGeneration,
    }


class TopDownTransformerTaggerTester(Importance, EncoderTester):
    """What BART has not: the encoder with a head for tokens."""

    top_down_config = {**Importance.top_down_config, "is_encoder_decoder": False}
    baselines = {hier_models.TopDownTransformerForTokenClassification: RobertaForTokenClassification}


class TopDownTransformerEncoderTester(TopDownTransformerTaggerTester):
    baselines = {hier_models.TopDownTransformerEncoderModel: RobertaModel}
    not_applicable = dict.fromkeys(
        (
            "test_training",
            "test_training_gradient_checkpointing",
            "test_training_gradient_checkpointing_use_reentrant_false",
            "test_training_gradient_checkpointing_use_reentrant_true",
        ),
        "An encoder without a head has no loss. The suite knows to leave that out for the classes of AutoModel only.",
    )


_NO_KERNELS = dict.fromkeys(
    ("test_can_set_attention_dynamically", "test_eager_matches_sdpa_inference_*", "test_sdpa_can_dispatch_*"),
    "An LSTM with one bilinear attention has no attention kernels to choose from.",
)
_NO_SELF_ATTENTION = dict.fromkeys(
    ("test_attention_outputs", "test_retain_grad_hidden_states_attentions"),
    "It looks at self-attention, which an LSTM has none of. Attention to the source is tested in our own tests.",
)


class CoarseToFineLstmTester(Seq2SeqTester):
    config_class = hier_models.CoarseToFineLstmConfig
    extra_inputs = ("row_ids",)
    extra_outputs = ("row_attentions", "surrogate", "encoded_rows")
    baselines = {
        hier_models.CoarseToFineLstmForConditionalGeneration: BartForConditionalGeneration,
    }
    not_applicable = {**_NO_KERNELS, **_NO_SELF_ATTENTION}

    def get_config(self):
        return hier_models.CoarseToFineLstmConfig(
            vocab_size=self.vocab_size,
            embedding_size=self.hidden_size,
            hidden_size=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            coarse_filters=8,
            coarse_kernel_size=3,
            bos_token_id=self.bos_token_id,
            pad_token_id=self.pad_token_id,
            eos_token_id=self.eos_token_id,
            decoder_start_token_id=self.eos_token_id,
        )

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        rows = torch.tensor([0, 0, 0, 1, 1, 3, 3], device=torch_device)  # one is empty
        inputs["row_ids"] = rows.expand(self.batch_size, -1).clone()
        return config, inputs


class CoarseToFineLstmModelTester(CoarseToFineLstmTester):
    baselines = {hier_models.CoarseToFineLstmModel: BartModel}
    not_applicable = {
        **CoarseToFineLstmTester.not_applicable,
        "test_inputs_embeds_matches_input_ids": (
            "It embeds the target with the embedding of the source, and these are two. Our own tests use each's own."
        ),
    }


class HamTester(Seq2SeqTester):
    """The GRU body."""

    config_class = hier_models.HamConfig
    extra_inputs = ("keyword_mask",)
    extra_outputs = ("level_weights", "level_attentions")
    baselines = {
        hier_models.HamModel: BartModel,
        hier_models.HamForConditionalGeneration: BartForConditionalGeneration,
    }
    not_applicable = {name: reason.replace("an LSTM", "a GRU") for name, reason in _NO_SELF_ATTENTION.items()}

    def get_config(self):
        return hier_models.HamConfig(
            vocab_size=self.vocab_size,
            d_model=self.hidden_size,
            encoder_layers=self.num_hidden_layers,
            decoder_layers=self.num_hidden_layers,
            attention_depth=3,
            bos_token_id=self.bos_token_id,
            pad_token_id=self.pad_token_id,
            eos_token_id=self.eos_token_id,
            decoder_start_token_id=self.eos_token_id,
        )

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        inputs["keyword_mask"] = torch.zeros_like(inputs["input_ids"])
        inputs["keyword_mask"][:, :2] = 1
        return config, inputs


class HamTransformerTester(HamTester):
    """The Transformer body."""

    variant = "WithTransformerBody"
    extra_config = {"body": "transformer", "attention_depth": 3}
    not_applicable = {
        "test_retain_grad_hidden_states_attentions": "It wants a gradient of the attention that is returned. With "
        "several levels that is a sum of theirs, made for the reader: the gradient runs through each of them."
    }

    def get_config(self):
        return Seq2SeqTester.get_config(self)


class HamReaderTester(EncoderTester):
    """BiDAF, with characters."""

    baselines = {hier_models.HamReaderForQuestionAnswering: RobertaForQuestionAnswering}
    reader = "bidaf"
    not_applicable = {
        **dict.fromkeys(_NO_KERNELS, "A reader's attention scores with a network: no attention kernel computes it."),
        **dict.fromkeys(
            ("test_attention_outputs", "test_hidden_states_output", "test_retain_grad_hidden_states_attentions"),
            "It wants the states and attentions of a stack of equal layers. A reader has none; it returns its "
            "attention to the question, as our own tests check.",
        ),
        "test_enable_input_require_grads_with_gradient_checkpointing": "A reader has no stack of layers between which "
        "to keep states, so it has no gradient checkpointing.",
        "test_torch_save_load": "It loads the body of the model. A reader is one piece, without a class for its body.",
    }

    def get_config(self):
        return hier_models.HamReaderConfig(
            reader=self.reader,
            attention_depth=3,
            vocab_size=self.vocab_size,
            embedding_size=self.hidden_size,
            hidden_size=self.hidden_size,
            char_vocab_size=20,
            char_embedding_size=4,
            char_hidden_size=8,
            char_kernel_size=2,
            encoder_layers=self.num_hidden_layers,
            pad_token_id=self.pad_token_id,
        )

    def prepare_config_and_inputs_for_common(self):
        context = self.random_ids()
        question = context[:, :4]  # one tensor, as a test of vocabularies clamps it
        inputs = {"input_ids": context, "question_ids": question}
        inputs["attention_mask"], inputs["question_attention_mask"] = map(torch.ones_like, (context, question))
        for name, ids in (("char_ids", context), ("question_char_ids", question)):
            inputs[name] = torch.randint(1, 20, (*ids.shape, 5), device=torch_device)
        return self.get_config(), inputs


class HamMatchLstmTester(HamReaderTester):
    variant = "WithMatchLstm"
    reader = "match_lstm"


class HamRNetTester(HamReaderTester):
    variant = "WithRNet"
    reader = "r_net"


FAMILIES: tuple[type[ModelTester], ...] = (
    BartTester,
    RobertaTester,
    CoarseToFineLstmTester,
    CoarseToFineLstmModelTester,
    HamTester,
    HamTransformerTester,
    HamReaderTester,
    HamMatchLstmTester,
    HamRNetTester,
    HatBartTester,
    HatEncoderTester,
    HighlightTransformerTester,
    TopDownTransformerTester,
    TopDownTransformerTaggerTester,
    TopDownTransformerEncoderTester,
)

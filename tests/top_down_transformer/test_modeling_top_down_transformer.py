"""The Top-Down Transformer's model: against the paper, against BART, and at its own edges."""

import copy

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
)
from transformers.utils import logging

from hier_models import (
    TopDownTransformerConfig,
    TopDownTransformerEncoderModel,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerForTokenClassification,
    TopDownTransformerModel,
)
from tests.references import top_down_transformer as reference


PAD, EOS = 1, 2


def make_config(**kwargs):
    sizes = {
        "vocab_size": 60,
        "max_encoder_position_embeddings": 64,
        "max_decoder_position_embeddings": 32,
        "d_model": 12,
        "bottom_up_layers": 1,
        "top_down_layers": 1,
        "segment_layers": 1,
        "attention_window": 4,
        "pooling_kernel": 4,
        "pooling_stride": 3,
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 20,
        "decoder_layers": 1,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 18,
    }
    return TopDownTransformerConfig(**{**sizes, **kwargs})


def make_model(cls=TopDownTransformerForConditionalGeneration, std=0.3, **kwargs):
    torch.manual_seed(0)
    model = cls(make_config(**kwargs)).eval()
    for parameter in model.parameters():  # also norms and biases: at 1 and 0 they would hide a wrong use of them
        torch.nn.init.normal_(parameter, std=std)
    return model


def make_source(length, batch=1, seed=0):
    return torch.randint(5, 60, (batch, length), generator=torch.Generator().manual_seed(seed))


def pad(rows, side, length, filler):
    rows = [list(row) for row in rows]
    padding = [[filler] * (length - len(row)) for row in rows]
    return torch.tensor(
        [row + more if side == "right" else more + row for row, more in zip(rows, padding, strict=True)]
    )


TWO_LEVELS = {"pooling_kernel": [4, 2], "pooling_stride": [3, 1]}
SETTINGS = {
    "paper": {},
    "deeper": {"bottom_up_layers": 2, "top_down_layers": 2, "segment_layers": 2},
    "importance": {"pooling": "importance"},
    "concat": {"top_down_update": "concat"},
    "none": {"top_down_update": "none"},
    "two levels": {**TWO_LEVELS, "pooling": "importance"},
    "two levels, concat": {**TWO_LEVELS, "top_down_update": "concat"},
    "overlap": {"pooling_kernel": 7, "pooling_stride": 2, "pooling": "importance"},
}


class TestAgainstThePaper:
    """Fidelity: the plain re-derivation in tests/references, forward and every gradient."""

    @pytest.mark.parametrize(("name", "side", "attention"), [
        *((name, "right", "sdpa") for name in SETTINGS),
        ("importance", "left", "sdpa"),
        ("two levels", "left", "sdpa"),
        ("two levels, concat", "left", "eager"),
        ("paper", "left", "eager"),
    ])  # fmt: skip
    def test_forward_and_gradients_in_float64(self, name, side, attention):
        model = make_model(TopDownTransformerModel, **SETTINGS[name]).double()
        model.set_attn_implementation(attention)
        config = model.config
        documents = [make_source(11)[0].tolist(), make_source(6, seed=1)[0].tolist()]
        importance = None
        if config.pooling == "importance":  # the first window and the last have no important token
            importance = [[0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 0.25, 3.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 2.0, 1.0]]
        target = torch.tensor([[EOS, 7, 20], [EOS, 9, 31]])

        mask = pad([[1] * len(document) for document in documents], side, 13, 0)
        inputs = {"input_ids": pad(documents, side, 13, PAD), "attention_mask": mask}
        if importance:
            inputs["token_importance"] = pad(importance, side, 13, 0.0)
        result = model(**inputs, decoder_input_ids=target)
        encoded = model.encoder(**inputs)

        weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
        close = {"rtol": 0, "atol": 1e-10}
        expected = []
        for row, document in enumerate(documents):
            tokens, segments = reference.encode(
                weights,
                document,
                bottom_up_layers=config.bottom_up_layers,
                top_down_layers=config.top_down_layers,
                segment_layers=config.segment_layers,
                window=config.attention_window,
                pooling=config.pooling_windows,
                update=config.top_down_update,
                heads=3,
                importance=importance[row] if importance else None,
            )
            states = encoded.last_hidden_state[row][mask[row].bool()]
            torch.testing.assert_close(states, torch.stack(tokens), **close)
            if segments:
                states = encoded.segment_hidden_states[row][encoded.segment_attention_mask[row].bool()]
                torch.testing.assert_close(states, torch.stack(segments), **close)
            decoded = reference.decode(weights, target[row].tolist(), tokens, layers=1, heads=2)
            expected.append(torch.stack(decoded))
        expected = torch.stack(expected)
        torch.testing.assert_close(result.last_hidden_state, expected, **close)

        direction = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        (result.last_hidden_state * direction).sum().backward()
        (expected * direction).sum().backward()
        for name, parameter in model.named_parameters():
            got = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            want = weights[name].grad if weights[name].grad is not None else torch.zeros_like(parameter)
            assert name.startswith("encoder.embed_tokens") or want.abs().max() > 0, f"{name} is not exercised"
            torch.testing.assert_close(got, want, **close, msg=lambda text, name=name: f"{name}: {text}")

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
    @pytest.mark.parametrize("name", ["paper", "two levels"])
    def test_lower_precision_stays_close(self, name, dtype, tolerance):
        model = make_model(TopDownTransformerModel, **SETTINGS[name]).double()
        source, target = make_source(20), torch.tensor([[EOS, 7, 20, 31]])
        inputs = {"token_importance": torch.rand(1, 20)} if model.config.pooling == "importance" else {}
        expected = model(source, decoder_input_ids=target, **inputs).last_hidden_state
        result = model.to(dtype)(source, decoder_input_ids=target, **inputs).last_hidden_state
        assert (result.double() - expected).abs().max() / expected.abs().max() < tolerance

    def test_the_paper_counts_464_million_parameters(self):
        with torch.device("meta"):
            model = TopDownTransformerForConditionalGeneration(TopDownTransformerConfig())
        assert round(model.num_parameters() / 1e6) == 464
        config = model.config
        assert (config.bottom_up_layers, config.top_down_layers, config.segment_layers) == (8, 4, 2)

    def test_far_tokens_meet_through_segments_only(self):
        inputs = {"decoder_input_ids": torch.tensor([[EOS]]), "attention_mask": torch.ones(1, 40)}
        first = make_source(40)
        second = first.clone()
        second[0, 39] = 5 if first[0, 39] != 5 else 6

        def change(update):
            model = make_model(TopDownTransformerModel, top_down_update=update)
            states = [model(source, **inputs).encoder_last_hidden_state[0] for source in (first, second)]
            return (states[0] - states[1]).abs().amax(dim=-1)

        reach = 39 - 2 * 2  # two layers, two tokens each
        assert not change("none")[:reach].any()
        assert change("none")[reach:].all()
        assert change("cross_attention").all()
        # A token reads its own segment only, which has read the others.
        assert change("concat").all()


class TestAgainstBart:
    """Without update and with a wide window it is BART, exactly, and any BART checkpoint loads."""

    @pytest.fixture
    def bart(self):
        torch.manual_seed(0)
        sizes = {"vocab_size": 60, "max_position_embeddings": 32, "d_model": 12}
        layers = {"encoder_layers": 3, "decoder_layers": 1, "encoder_ffn_dim": 20, "decoder_ffn_dim": 18}
        heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 2}
        return BartForConditionalGeneration(BartConfig(**sizes, **layers, **heads)).eval()

    @pytest.fixture
    def bart_folder(self, bart, tmp_path):
        bart.save_pretrained(tmp_path / "bart")
        return str(tmp_path / "bart")

    @pytest.mark.parametrize(
        ("given", "divided"),
        [
            ({}, (2, 1)),
            ({"bottom_up_layers": 1}, (1, 2)),
            ({"top_down_layers": 2}, (1, 2)),
            ({"bottom_up_layers": 0, "top_down_layers": 3}, (0, 3)),
        ],
    )
    def test_the_layers_of_bart_are_divided(self, bart_folder, given, divided):
        config = TopDownTransformerConfig.from_pretrained(bart_folder, **given)
        assert (config.bottom_up_layers, config.top_down_layers) == divided
        assert (config.max_encoder_position_embeddings, config.max_decoder_position_embeddings) == (32, 32)
        assert config.encoder_layers == config.num_hidden_layers == 3
        assert config.num_labels == 2  # files of BART say three, whatever the checkpoint

    @pytest.mark.parametrize("cls", [
        TopDownTransformerModel, TopDownTransformerEncoderModel, TopDownTransformerForTokenClassification,
    ])  # fmt: skip
    def test_the_other_models_load_too(self, bart, bart_folder, cls):
        model, report = cls.from_pretrained(bart_folder, output_loading_info=True)
        assert all("segment_" in key or "classifier" in key for key in report["missing_keys"])
        assert set(report["unexpected_keys"]) <= {"final_logits_bias"}  # BartModel does not take it either
        assert torch.equal(model.get_input_embeddings().weight, bart.model.shared.weight)
        encoder = model.get_encoder()
        assert torch.equal(encoder.layers[2].fc1.weight, bart.model.encoder.layers[2].fc1.weight)

    def test_from_bart_grows_to_the_papers_length(self, bart_folder):
        model, report = TopDownTransformerForTokenClassification.from_bart(bart_folder, output_loading_info=True)
        assert model.config.max_encoder_position_embeddings == 16384
        assert model.model.encoder.embed_positions.weight.shape == (16386, 12)
        assert model.config.max_decoder_position_embeddings == 32
        assert report["missing_keys"]


class TestPositions:
    @pytest.mark.parametrize("cls", [
        TopDownTransformerModel, TopDownTransformerEncoderModel, TopDownTransformerForTokenClassification,
    ])  # fmt: skip
    def test_they_grow_by_what_the_error_says(self, cls):
        model = make_model(cls)
        source = make_source(70)
        with pytest.raises(ValueError, match=r"`model.resize_position_embeddings\(70\)`"):
            model(source)
        model.resize_position_embeddings(70)
        if cls is TopDownTransformerModel:
            with pytest.raises(ValueError, match=r'resize_position_embeddings\(70, side="decoder"\)'):
                model(source)
            model.resize_position_embeddings(70, side="decoder")
        assert model(source)[0].isfinite().all()

    def test_short_documents_stay_what_they_were(self):
        model = make_model()
        source = make_source(20)
        before = model(source, decoder_input_ids=source[:, :4]).logits
        model.resize_position_embeddings(100)
        assert torch.equal(model(source, decoder_input_ids=source[:, :4]).logits, before)


class TestAutoClasses:
    def test_checkpoints_load_into_the_encoder_and_back(self, tmp_path):
        summarizer = make_model()
        source = make_source(20)
        states = summarizer.get_encoder()(source).last_hidden_state
        summarizer.save_pretrained(tmp_path / "summarizer")
        encoder, report = TopDownTransformerEncoderModel.from_pretrained(
            tmp_path / "summarizer", output_loading_info=True
        )
        assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        assert torch.equal(encoder(source).last_hidden_state, states)
        tagger, report = TopDownTransformerForTokenClassification.from_pretrained(
            tmp_path / "summarizer", output_loading_info=True
        )
        assert set(report["missing_keys"]) == {"classifier.weight", "classifier.bias"}
        assert torch.equal(tagger.model(source).last_hidden_state, states)
        tagger.save_pretrained(tmp_path / "tagger")
        encoder, report = TopDownTransformerEncoderModel.from_pretrained(tmp_path / "tagger", output_loading_info=True)
        assert not report["missing_keys"]
        assert torch.equal(encoder(source).last_hidden_state, states)


class TestSegments:
    @pytest.mark.parametrize(("length", "count"), [(1, 1), (4, 1), (5, 2), (7, 2), (8, 3), (11, 4)])
    def test_their_number(self, length, count):
        encoded = make_model(TopDownTransformerEncoderModel)(make_source(length))
        assert encoded.segment_hidden_states.shape == (1, count, 12)
        assert encoded.segment_attention_mask.tolist() == [[1] * count]

    def test_padding_has_none(self):
        mask = torch.tensor([[1] * 11, [1] * 4 + [0] * 7, [0] * 6 + [1] * 5, [0] * 11])
        encoded = make_model(TopDownTransformerEncoderModel)(make_source(11, batch=4), attention_mask=mask)
        assert encoded.segment_attention_mask.tolist() == [[1] * 4, [1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]]
        assert encoded.segment_hidden_states.isfinite().all()

    def test_their_mask_does_not_grow_with_the_tokens(self):
        """A mask of tokens times segments would be the largest tensor of a padded batch."""
        model = make_model(TopDownTransformerEncoderModel)
        masks = []
        for layer in model.encoder.layers[1:]:
            layer.segment_attn.register_forward_pre_hook(
                lambda module, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
            )
        mask = torch.ones(2, 40)
        mask[0, 20:] = 0
        model(make_source(40, batch=2), attention_mask=mask)
        assert [tuple(mask.shape) for mask in masks] == [(2, 1, 1, 13)]
        model(make_source(40, batch=2), attention_mask=torch.ones(2, 40))
        assert masks[-1] is None

    def test_a_gap_in_a_document_has_none(self):
        mask = torch.tensor([[1, 1, 1] + [0] * 6 + [1, 1]])
        encoded = make_model(TopDownTransformerEncoderModel)(make_source(11), attention_mask=mask)
        assert encoded.segment_attention_mask.tolist() == [[1, 0, 1, 1]]

    @pytest.mark.parametrize("update", ["cross_attention", "concat"])
    def test_attentions_are_recorded(self, update):
        settings = {**TWO_LEVELS, "top_down_layers": 2, "segment_layers": 2, "top_down_update": update}
        model = make_model(**settings)
        model.set_attn_implementation("eager")
        source = make_source(11, batch=2)
        outputs = model(source, labels=source[:, :4], output_attentions=True, output_hidden_states=True)
        assert [a.shape for a in outputs.encoder_attentions] == [(2, 3, 11, 11)] * 3
        assert len(outputs.encoder_hidden_states) == 4
        lower = [(2, 3, 4, 4), (2, 3, 4, 3)] if update == "cross_attention" else [(2, 3, 4, 4)]
        assert [a.shape for a in outputs.segment_attentions] == [(2, 3, 3, 3)] * 2 + lower * 2
        to_segments = [(2, 3, 11, 4)] * 2 if update == "cross_attention" else []
        assert [a.shape for a in outputs.token_segment_attentions] == to_segments
        assert outputs.decoder_attentions[0].shape == (2, 2, 4, 4)
        encoded = make_model(TopDownTransformerEncoderModel, **settings)
        encoded.set_attn_implementation("eager")
        assert len(encoded(source, output_attentions=True).token_segment_attentions) == len(to_segments)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_importance_has_no_scale(self, dtype):
        model = make_model(TopDownTransformerEncoderModel, pooling="importance").to(dtype)
        source = make_source(11)
        weights = torch.tensor([[1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4]]).float()
        expected = model(source, token_importance=weights).last_hidden_state
        for scale in (2.0**-40, 2.0**40):
            assert torch.equal(model(source, token_importance=weights * scale).last_hidden_state, expected)
        assert torch.equal(model(source, token_importance=weights.long()).last_hidden_state, expected)

    def test_equal_importance_is_the_average(self):
        average = make_model(TopDownTransformerEncoderModel)
        weighted = make_model(TopDownTransformerEncoderModel, pooling="importance")
        source = make_source(11)
        expected = average(source).last_hidden_state
        result = weighted(source, token_importance=torch.full((1, 11), 0.3)).last_hidden_state
        torch.testing.assert_close(result, expected)
        assert torch.equal(weighted(source).last_hidden_state, expected)

    def test_missing_importance_is_warned_of_once(self, caplog):
        model = make_model(TopDownTransformerEncoderModel, pooling="importance")
        logging.get_logger("x").warning_once.cache_clear()
        for _ in range(2):
            model(make_source(5))
        assert caplog.text.count("`token_importance`") == 1

    def test_importance_has_a_gradient(self):
        """So that weights can be learned together with the summarizer."""
        model = make_model(TopDownTransformerEncoderModel, pooling="importance").double()
        weights = torch.rand(1, 11, dtype=torch.double, requires_grad=True)
        source = make_source(11)
        states = model.shared(source).detach()
        assert torch.autograd.gradcheck(
            lambda w: model(inputs_embeds=states, token_importance=w).segment_hidden_states,
            (weights,),
            fast_mode=True,
        )


class TestTagger:
    def test_it_learns_from_labels_that_are_not_ignored(self):
        model = make_model(TopDownTransformerForTokenClassification)
        source = make_source(11, batch=2)
        labels = (source > 30).long()
        outputs = model(source, labels=labels)
        assert outputs.logits.shape == (2, 11, 2)
        expected = -outputs.logits.log_softmax(-1).gather(-1, labels[..., None])
        torch.testing.assert_close(outputs.loss, expected.mean())
        labels[:, 4:] = -100
        torch.testing.assert_close(model(source, labels=labels).loss, expected[:, :4].mean())
        items = torch.tensor(16)
        torch.testing.assert_close(
            model(source, labels=labels, num_items_in_batch=items).loss, expected[:, :4].sum() / 16
        )

    @pytest.mark.parametrize("side", ["right", "left"])
    def test_a_batch_equals_its_members(self, side):
        model = make_model(TopDownTransformerForTokenClassification)
        documents = [make_source(n, seed=n)[0].tolist() for n in (11, 3, 7)]
        mask = pad([[1] * len(document) for document in documents], side, 14, 0)
        together = model(pad(documents, side, 14, PAD), attention_mask=mask).logits
        for row, document in enumerate(documents):
            alone = model(torch.tensor([document])).logits[0]
            torch.testing.assert_close(together[row][mask[row].bool()], alone, rtol=0, atol=2e-5)

    def test_dropout_stands_before_the_last_layer(self):
        model = make_model(TopDownTransformerForTokenClassification, classifier_dropout=1.0, dropout=0.0).train()
        logits = model(make_source(5)).logits
        assert torch.equal(logits, model.classifier.bias.expand_as(logits))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses deprecated parts of torch itself
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["importance", "two levels, concat"])
def test_the_forward_pass_compiles_as_one_graph(name):
    model = make_model(TopDownTransformerModel, **SETTINGS[name])
    source = make_source(13, batch=2)
    inputs = {"attention_mask": torch.tensor([[0] * 4 + [1] * 9, [1] * 13])}
    if model.config.pooling == "importance":
        inputs["token_importance"] = torch.rand(2, 13)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    expected = model(source, **inputs).last_hidden_state
    torch.testing.assert_close(compiled(source, **inputs).last_hidden_state, expected)


def test_dropped_layers_change_the_training_output_only():
    model = make_model(TopDownTransformerEncoderModel, encoder_layerdrop=1.0, dropout=0.0)
    source = make_source(11)
    plain = copy.deepcopy(model)
    plain.encoder.layers = torch.nn.ModuleList()
    dropped = model.train()(source).last_hidden_state
    assert torch.equal(dropped, plain.train()(source).last_hidden_state)
    assert not torch.equal(model.eval()(source).last_hidden_state, dropped)

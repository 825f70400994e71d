"""The Highlight-Transformer's model: against the papers, against BART, and at its own edges."""

import copy

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
)
from transformers.trainer_pt_utils import LabelSmoother

from hier_models import (
    HighlightTransformerConfig,
    HighlightTransformerForConditionalGeneration,
    HighlightTransformerModel,
)
from tests.references import highlight_transformer as reference


BOS, PAD, EOS = 0, 1, 2


def make_config(**kwargs):
    sizes = {
        "vocab_size": 60,
        "d_model": 12,
        "encoder_layers": 2,
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 20,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 18,
    }
    return HighlightTransformerConfig(**{**sizes, **kwargs})


def make_model(cls=HighlightTransformerForConditionalGeneration, std=0.3, **kwargs):
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


# A document with overlapping, nested, repeated and adjacent phrases, up to both of its ends; one with a single phrase.
PHRASES = [
    [(0, 2, 0.5), (3, 6, 1.0), (4, 5, 0.25), (5, 8, 2.0), (5, 8, 0.75), (9, 11, 0.125)],
    [(2, 4, 1.5)],
]


def phrase_inputs(phrases, dtype=torch.float64):
    most = max(len(row) for row in phrases)
    return {
        "phrase_positions": torch.tensor(
            [[[start, end] for start, end, _ in row] + [[-1, -1]] * (most - len(row)) for row in phrases]
        ),
        "phrase_values": torch.tensor(
            [[value for *_, value in row] + [0.0] * (most - len(row)) for row in phrases], dtype=dtype
        ),
    }


BART_BODY = {
    "normalize_before": False,
    "position_embedding_type": "learned",
    "max_position_embeddings": 32,
    "scale_embedding": False,
    "activation_function": "gelu",
}
SETTINGS = {
    "paper": {},
    "all heads, all layers": {"highlight_heads": 3, "highlight_layers": 2, "brightness": 0.81},
    "the second layer": {"highlight_layers": [1], "highlight_heads": 2, "copy_head": 1},
    "additive": {"highlighting": "additive", "highlight_layers": 2},
    "only": {"highlighting": "only", "highlight_layers": 2},
    "no copying": {"use_copy": False},
    "no highlighting": {"highlight_heads": 0},
    "body of BART": {**BART_BODY, "highlight_layers": 2},
    "body of BART, additive": {**BART_BODY, "highlighting": "additive"},
}


class TestAgainstThePaper:
    """Fidelity: the plain re-derivation in tests/references, forward and every gradient."""

    @pytest.mark.parametrize(("name", "side", "attention"), [
        *((name, "right", "sdpa") for name in SETTINGS),
        ("all heads, all layers", "left", "sdpa"),
        ("additive", "left", "sdpa"),
        ("all heads, all layers", "left", "eager"),
        ("additive", "right", "eager"),
        ("only", "left", "eager"),
    ])  # fmt: skip
    def test_forward_and_gradients_in_float64(self, name, side, attention):
        model = make_model(**SETTINGS[name]).double()
        model.set_attn_implementation(attention)
        config = model.config
        documents = [make_source(11)[0].tolist(), make_source(6, seed=1)[0].tolist()]
        documents[0][7] = documents[0][3]  # the same token twice
        documents[0][0], documents[0][10] = BOS, EOS  # not to be copied
        target = torch.tensor([[EOS, 7, 20], [EOS, 9, 31]])

        mask = pad([[1] * len(document) for document in documents], side, 13, 0)
        inputs = {"input_ids": pad(documents, side, 13, PAD), "attention_mask": mask, **phrase_inputs(PHRASES)}
        logits = model(**inputs, decoder_input_ids=target).logits
        states = model.get_encoder()(**inputs).last_hidden_state

        weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
        base = {name.removeprefix("model."): value for name, value in weights.items()}
        body = reference.Body(
            normalize_before=config.normalize_before,
            sinusoidal=config.position_embedding_type == "sinusoidal",
            scale_embedding=config.scale_embedding,
            activation=config.activation_function,
        )
        gate = (weights["copy_gate.weight"][0], weights["copy_gate.bias"][0]) if config.use_copy else None
        close = {"rtol": 0, "atol": 1e-10}
        expected = []
        for row, document in enumerate(documents):
            layers = config.highlight_layers
            highlighting = reference.Highlighting(
                phrases=PHRASES[row],
                how=config.highlighting,
                heads=config.highlight_heads,
                layers=layers if isinstance(layers, list) else list(range(layers)),
                brightness=config.brightness,
            )
            tokens = reference.encode(base, body, document, layers=2, heads=3, highlighting=highlighting)
            torch.testing.assert_close(states[row][mask[row].bool()], torch.stack(tokens), **close)
            decoded, to_source = reference.decode(base, body, target[row].tolist(), tokens, layers=2, heads=2)
            rows = [
                reference.predict(base["shared.weight"], gate, state, heads[config.copy_head], document, (BOS, EOS))
                for state, heads in zip(decoded, to_source, strict=True)
            ]
            expected.append(torch.stack(rows).log())
        expected = torch.stack(expected)
        torch.testing.assert_close(logits.log_softmax(-1), expected, **close)
        if config.use_copy:
            torch.testing.assert_close(logits, expected, **close)

        direction = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        (logits.log_softmax(-1) * direction).sum().backward()
        (expected * direction).sum().backward()
        for name, parameter in model.named_parameters():
            got = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            want = weights[name].grad if weights[name].grad is not None else torch.zeros_like(parameter)
            assert want.abs().max() > 0, f"{name} is not exercised"
            torch.testing.assert_close(got, want, **close, msg=lambda text, name=name: f"{name}: {text}")

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
    @pytest.mark.parametrize("name", ["all heads, all layers", "additive"])
    def test_lower_precision_stays_close(self, name, dtype, tolerance):
        model = make_model(HighlightTransformerModel, **SETTINGS[name]).double()
        source, target = make_source(11), torch.tensor([[EOS, 7, 20, 31]])
        inputs = {"decoder_input_ids": target, **phrase_inputs(PHRASES[:1], torch.float32)}
        expected = model(source, **inputs).last_hidden_state
        result = model.to(dtype)(source, **inputs).last_hidden_state
        assert (result.double() - expected).abs().max() / expected.abs().max() < tolerance

    def test_the_papers_sizes(self):
        with torch.device("meta"):
            model = HighlightTransformerForConditionalGeneration(HighlightTransformerConfig())
        config = model.config
        assert (config.encoder_layers, config.decoder_layers, config.d_model) == (4, 4, 512)
        assert (config.highlight_heads, config.highlighted_layers) == (2, [0, 1])
        assert round(model.num_parameters() / 1e6) == 55

    def test_rows_of_table_2_and_4_from_the_configuration(self):
        source, inputs = make_source(11), {"labels": make_source(4, seed=3), **phrase_inputs(PHRASES[:1])}
        losses = [
            make_model(**fields)(source, **inputs).loss.item()
            for fields in (
                {},
                {"highlight_heads": 2},
                {"highlight_heads": 3},
                {"highlight_layers": 2},
                {"highlight_layers": 2, "highlight_heads": 2},
                {"highlight_layers": 2, "highlight_heads": 3},
                {"highlighting": "additive"},
                {"highlighting": "only"},
                {"highlight_heads": 0},
            )
        ]
        assert len({round(loss, 6) for loss in losses}) == len(losses)

    def test_brightness_is_read_at_each_call(self):
        model = make_model(brightness=1.0)
        source, phrases = make_source(11), phrase_inputs(PHRASES[:1])
        target = make_source(4, seed=3)
        bright = model(source, decoder_input_ids=target, **phrases).logits
        model.config.brightness *= 0.5
        halved = model(source, decoder_input_ids=target, **phrases).logits
        model.config.brightness *= 2
        phrases["phrase_values"] *= 0.5
        torch.testing.assert_close(model(source, decoder_input_ids=target, **phrases).logits, halved)
        assert (bright - halved).abs().max() > 1e-3

    @pytest.mark.parametrize("off", [{"brightness": 0.0}, {"highlight_heads": 0}, {"highlight_layers": []}, "values"])
    def test_without_light_nothing_is_highlighted(self, off):
        source, phrases = make_source(11), phrase_inputs(PHRASES[:1])
        model = make_model(HighlightTransformerModel, **({} if off == "values" else off))
        if off == "values":
            phrases["phrase_values"] = torch.zeros_like(phrases["phrase_values"])
        states = model(source, **phrases).encoder_last_hidden_state
        torch.testing.assert_close(states, model(source).encoder_last_hidden_state)


class TestAgainstBart:
    """Without highlighting and copying it is BART, exactly, and any BART checkpoint loads."""

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

    def test_a_checkpoint_of_bart_gives_its_body(self, bart_folder):
        config = HighlightTransformerConfig.from_pretrained(bart_folder)
        assert (config.highlight_heads, config.highlighted_layers) == (1, [0])
        assert not config.normalize_before
        assert not config.scale_embedding
        assert (config.position_embedding_type, config.max_position_embeddings) == ("learned", 32)
        assert config.num_labels == 2  # files of BART say three, whatever the checkpoint

    def test_what_a_file_of_bart_leaves_out_is_barts_default(self, tmp_path):
        (tmp_path / "config.json").write_text('{"model_type": "bart", "d_model": 32, "dropout": 0.3}')
        config = HighlightTransformerConfig.from_pretrained(tmp_path)
        assert (config.d_model, config.dropout) == (32, 0.3)
        theirs = BartConfig()
        for name in ("encoder_layers", "decoder_ffn_dim", "activation_function", "activation_dropout", "vocab_size"):
            assert getattr(config, name) == getattr(theirs, name), name
        assert config.highlight_layers == theirs.encoder_layers // 2

    def test_what_is_highlighted_follows_fields_given_beside_the_file(self, bart_folder):
        config = HighlightTransformerConfig.from_pretrained(bart_folder, encoder_layers=2, encoder_attention_heads=12)
        assert (config.highlight_heads, config.highlighted_layers) == (3, [0])
        with pytest.raises(StrictDataclassClassValidationError, match="`highlight_heads` must be from 0"):
            HighlightTransformerConfig.from_pretrained(bart_folder, highlight_heads=4)


class TestPositions:
    def test_sinusoids_have_no_limit_and_no_weights(self):
        model = make_model(HighlightTransformerModel)
        assert not [name for name, _ in model.named_parameters() if "positions" in name]
        assert model(make_source(300)).last_hidden_state.isfinite().all()
        model.resize_position_embeddings(400)
        assert model.config.max_position_embeddings is None

    @pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
    def test_they_grow_by_what_the_error_says(self, kind):
        model = make_model(HighlightTransformerModel, position_embedding_type=kind, max_position_embeddings=16)
        source = make_source(20)
        with pytest.raises(ValueError, match=r"`model.resize_position_embeddings\(20\)`"):
            model(source)
        before = model(source[:, :16]).last_hidden_state
        model.resize_position_embeddings(20)
        assert torch.equal(model(source[:, :16]).last_hidden_state, before)
        assert model(source).last_hidden_state.isfinite().all()

    def test_sinusoids_are_computed_in_float32(self):
        model = make_model(HighlightTransformerModel)
        place = torch.arange(20_000)
        positions = model.encoder.embed_positions(place, torch.bfloat16)
        exact = torch.stack([reference.sinusoid(position, 12) for position in (0, 1, 19_999)])
        assert positions.dtype == torch.bfloat16
        assert (positions[[0, 1, -1]].double() - exact).abs().max() < 8e-3


class TestPhrases:
    def test_an_order_of_phrases_does_not_matter_and_equal_ones_add_up(self):
        model = make_model(HighlightTransformerModel)
        source = make_source(11)
        expected = model(source, **phrase_inputs(PHRASES[:1])).encoder_last_hidden_state
        merged = [(0, 2, 0.5), (3, 6, 1.0), (4, 5, 0.25), (5, 8, 2.75), (9, 11, 0.125)][::-1]
        found = model(source, **phrase_inputs([merged])).encoder_last_hidden_state
        torch.testing.assert_close(found, expected)

    def test_only_highlighted_layers_and_heads_change(self):
        model = make_model(highlight_layers=[0], highlight_heads=2)
        model.set_attn_implementation("eager")
        source, target = make_source(11), make_source(3, seed=4)
        lit, plain = (
            model(source, decoder_input_ids=target, output_attentions=True, **phrases).encoder_attentions[0][0]
            for phrases in (phrase_inputs(PHRASES[:1], torch.float32), {})
        )
        rows = sorted({token for start, end, _ in PHRASES[0] for token in range(start, end)})
        change = (lit - plain).abs().amax(dim=-1)  # (heads, tokens)
        assert (change[:2, rows] > 1e-4).all()
        assert change[2].max() == 0
        others = [token for token in range(11) if token not in rows]
        assert change[:, others].max() == 0
        inside = lit[0, 5, 5:8].sum()
        assert inside > plain[0, 5, 5:8].sum()

    def test_attentions_add_up_to_one(self):
        source, target = make_source(11), make_source(3, seed=4)
        for how in ("weighted", "additive", "only"):
            model = make_model(highlighting=how)
            model.set_attn_implementation("eager")
            outputs = model(source, decoder_input_ids=target, output_attentions=True, **phrase_inputs(PHRASES[:1]))
            for weights in outputs.encoder_attentions:
                torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


class TestCopying:
    def test_logits_are_log_probabilities(self):
        model = make_model()
        logits = model(make_source(11), decoder_input_ids=make_source(5, seed=3)).logits
        torch.testing.assert_close(logits.exp().sum(-1), torch.ones(1, 5))

    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    def test_what_is_copied_can_be_had(self, attention):
        model = make_model(copy_head=1)
        model.set_attn_implementation(attention)
        source, target = make_source(11, batch=2), make_source(5, batch=2, seed=3)
        mask = torch.ones(2, 11, dtype=torch.long)
        mask[1, 7:] = 0
        assert "copy_attentions" not in model(source, attention_mask=mask, decoder_input_ids=target)
        outputs = model(source, attention_mask=mask, decoder_input_ids=target, output_copying=True)
        assert outputs.copy_probability.shape == (2, 5)
        assert outputs.copy_attentions.shape == (2, 5, 11)
        torch.testing.assert_close(outputs.copy_attentions.sum(-1), torch.ones(2, 5))
        assert not outputs.copy_attentions[1, :, 7:].any()
        # Taking away what is copied leaves what is generated: the same ratios as without copying.
        copied = torch.zeros_like(outputs.logits).scatter_add(
            2, source[:, None].expand(-1, 5, -1), outputs.copy_attentions
        )
        generated = outputs.logits.exp() - outputs.copy_probability[..., None] * copied
        model.config.use_copy = False
        plain = model(source, attention_mask=mask, decoder_input_ids=target).logits.softmax(-1)
        torch.testing.assert_close(generated / (1 - outputs.copy_probability[..., None]), plain, rtol=1e-3, atol=1e-6)

    def test_special_tokens_are_not_copied(self):
        """Padding neither, with a mask or without; of a source without words nothing is, whatever the gate says."""
        model = make_model()
        torch.nn.init.constant_(model.copy_gate.bias, 200.0)
        source, target = make_source(6, batch=2), make_source(4, batch=2, seed=3)
        source[0, 0], source[0, 4], source[0, 5] = BOS, EOS, PAD
        source[1] = torch.tensor([BOS, EOS, PAD, PAD, PAD, PAD])
        outputs = model(source, decoder_input_ids=target, labels=target, output_copying=True)
        assert not outputs.copy_attentions[0][:, [0, 4, 5]].any()
        torch.testing.assert_close(outputs.copy_attentions.sum(-1), torch.tensor([[1.0], [0.0]]).expand(2, 4))
        torch.testing.assert_close(outputs.logits.exp().sum(-1), torch.ones(2, 4))
        assert outputs.copy_probability.tolist() == [[1.0] * 4, [0.0] * 4]
        outputs.loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        model.config.use_copy = False
        plain = model(source, decoder_input_ids=target).logits.log_softmax(-1)
        torch.testing.assert_close(outputs.logits[1], plain[1])

    def test_the_copying_head_is_seen_before_dropout(self):
        model = make_model(attention_dropout=0.5, dropout=0.0, activation_dropout=0.0).train()
        source, target = make_source(11), make_source(5, seed=3)
        outputs = model(source, decoder_input_ids=target, output_copying=True)
        torch.testing.assert_close(outputs.copy_attentions.sum(-1), torch.ones(1, 5))

    def test_a_sure_gate_copies_or_generates(self):
        model = make_model()
        source, target = make_source(6), make_source(4, seed=3)
        torch.nn.init.zeros_(model.copy_gate.weight)
        plain = None
        for bias in (200.0, -200.0):
            torch.nn.init.constant_(model.copy_gate.bias, bias)
            outputs = model(source, decoder_input_ids=target, labels=target, output_copying=True)
            assert outputs.logits.isfinite().all()
            assert outputs.loss.isfinite()
            outputs.loss.backward()
            assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
            plain = outputs.logits
            if bias > 0:
                assert set(outputs.logits.topk(3).indices.flatten().tolist()) <= set(source.flatten().tolist())
        model.config.use_copy = False
        torch.testing.assert_close(plain, model(source, decoder_input_ids=target).logits.log_softmax(-1))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_does_not_overflow_or_vanish(self, dtype):
        model = make_model(std=1.0).to(dtype)  # sharp distributions
        source, target = make_source(11), make_source(5, seed=3)
        outputs = model(source, labels=target, **phrase_inputs(PHRASES[:1], torch.float32))
        assert outputs.logits.dtype == dtype
        assert outputs.logits.isfinite().all()
        outputs.loss.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)

    def test_scores_of_copying_do_not_overflow(self):
        """Products of queries and keys are beyond float16 here; scaled, they are within it."""
        model = make_model(d_model=96, decoder_attention_heads=1).half()
        copying = model.model.decoder.layers[-1].encoder_attn
        for projection in (copying.q_proj, copying.k_proj):
            torch.nn.init.normal_(projection.weight, std=1e-3)
            torch.nn.init.constant_(projection.bias, 35.0)
        outputs = model(make_source(11), labels=make_source(5, seed=3), output_copying=True)
        torch.testing.assert_close(outputs.copy_attentions.sum(-1), torch.ones(1, 5))
        assert outputs.loss.isfinite()

    def test_label_smoothing_reads_log_probabilities(self):
        """Trainer's smoothing averages the logarithms of all of the vocabulary: none of them may be infinite."""
        model = make_model()
        source, labels = make_source(11), make_source(5, seed=3)
        outputs = model(source, labels=labels)
        smoothed = LabelSmoother(epsilon=0.1)(outputs, labels)
        nll = -outputs.logits.gather(-1, labels[..., None]).mean()
        expected = 0.9 * nll - 0.1 * outputs.logits.mean()
        torch.testing.assert_close(smoothed, expected)

    def test_sequences_are_scored_by_their_probability(self):
        model = make_model()
        source = make_source(11)
        settings = {"max_new_tokens": 5, "return_dict_in_generate": True, "output_scores": True, "num_beams": 3}
        found = model.generate(source, **settings, **phrase_inputs(PHRASES[:1], torch.float32))
        scores = model.compute_transition_scores(found.sequences, found.scores, found.beam_indices)
        outputs = model(source, labels=found.sequences[:, 1:], **phrase_inputs(PHRASES[:1], torch.float32))
        expected = outputs.logits.gather(-1, found.sequences[:, 1:, None]).squeeze(-1)
        torch.testing.assert_close(scores[:, :-1], expected[:, : scores.shape[1] - 1], rtol=1e-4, atol=1e-5)

    def test_embeddings_are_copied_by_their_ids(self):
        model = make_model()
        source, target = make_source(11), make_source(5, seed=3)
        expected = model(source, decoder_input_ids=target).logits
        embeds = model.get_input_embeddings()(source)
        given = model(inputs_embeds=embeds, source_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(given, expected)
        settings = {"max_new_tokens": 4, "num_beams": 2}
        assert torch.equal(
            model.generate(inputs_embeds=embeds, source_ids=source, **settings), model.generate(source, **settings)
        )

    def test_the_source_is_found_beside_any_encoder_outputs(self):
        model = make_model()
        source, target = make_source(11), make_source(5, seed=3)
        expected = model(source, decoder_input_ids=target).logits
        encoded = model.get_encoder()(source)
        for outputs, others in (
            (encoded, {}),
            (encoded.to_tuple(), {}),
            ((encoded.last_hidden_state,), {"source_ids": source}),
            ((encoded.last_hidden_state,), {"input_ids": source}),
        ):
            found = model(encoder_outputs=outputs, decoder_input_ids=target, **others).logits
            torch.testing.assert_close(found, expected)
        with pytest.raises(ValueError, match="`source_ids`"):
            model(encoder_outputs=(encoded.last_hidden_state,), decoder_input_ids=target)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses deprecated parts of torch itself
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["paper", "additive", "body of BART"])
def test_the_forward_pass_compiles_as_one_graph(name):
    model = make_model(**SETTINGS[name])
    source = make_source(13, batch=2)
    inputs = {"attention_mask": torch.tensor([[0] * 2 + [1] * 11, [1] * 13]), "decoder_input_ids": source[:, :4]}
    inputs |= phrase_inputs(PHRASES, torch.float32)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    expected = model(source, **inputs).logits
    torch.testing.assert_close(compiled(source, **inputs).logits, expected)


def test_the_mask_does_not_grow_with_the_square_of_the_tokens():
    model = make_model(HighlightTransformerModel)
    masks = []
    for layer in model.encoder.layers:
        layer.register_forward_pre_hook(lambda module, args: masks.append(args[1]))
    mask = torch.ones(2, 40)
    mask[0, 20:] = 0
    model(make_source(40, batch=2), attention_mask=mask)
    assert [tuple(mask.shape) for mask in masks] == [(2, 1, 1, 40)] * 2


def test_dropped_layers_change_the_training_output_only():
    model = make_model(encoder_layerdrop=1.0, decoder_layerdrop=1.0, dropout=0.0, activation_dropout=0.0)
    source = make_source(11)
    plain = copy.deepcopy(model)
    plain.model.encoder.layers = torch.nn.ModuleList()
    plain.model.decoder.layers = plain.model.decoder.layers[-1:]  # it is copied from
    dropped = model.train()(source, decoder_input_ids=source[:, :3]).logits
    assert torch.equal(dropped, plain.train()(source, decoder_input_ids=source[:, :3]).logits)
    assert not torch.equal(model.eval()(source, decoder_input_ids=source[:, :3]).logits, dropped)

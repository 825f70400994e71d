"""HAT-BART's model: against the paper, against BART, and at its own edges."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DynamicCache,
    EncoderDecoderCache,
    StaticCache,
)
from transformers.utils import logging

from hier_models import HatBartConfig, HatBartForConditionalGeneration, HatBartModel
from hier_models.models.bos_positions import find_bos_positions
from tests.references import hat_bart as reference


BOS, PAD, EOS = 0, 1, 2


def make_config(**kwargs):
    sizes = {
        "vocab_size": 60,
        "max_position_embeddings": 64,
        "d_model": 12,
        "encoder_layers": 2,
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 20,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 18,
    }
    return HatBartConfig(**{**sizes, **kwargs})


def make_model(cls=HatBartForConditionalGeneration, std=0.3, **kwargs):
    torch.manual_seed(0)
    model = cls(make_config(**kwargs)).eval()
    for parameter in model.parameters():  # also norms and biases: at 1 and 0 they would hide a wrong use of them
        torch.nn.init.normal_(parameter, std=std)
    return model


def make_source(length, bos_at=(0,), batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 60, (batch, length), generator=generator)
    ids[:, list(bos_at)] = BOS
    return ids


class TestAgainstThePaper:
    """Fidelity: the plain re-derivation in tests/references, forward and every gradient."""

    @pytest.mark.parametrize(("hierarchical_layers", "num_segments"), [(1, 0), (2, 3)])
    def test_forward_and_gradients_in_float64(self, hierarchical_layers, num_segments):
        model = make_model(HatBartModel, hierarchical_layers=hierarchical_layers, num_segments=num_segments).double()
        source = make_source(9, bos_at=(0, 3, 4))
        target = torch.tensor([[EOS, 7, 20, 31]])
        segments = torch.tensor([[0, 0, 0, 1, 2, 2, 2, 2, 2]]) if num_segments else None

        result = model(source, segment_ids=segments, decoder_input_ids=target).last_hidden_state[0]
        encoded = model.encoder(source, segment_ids=segments)

        weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
        tokens, sentences = reference.encode(
            weights,
            source[0].tolist(),
            bos=BOS,
            layers=2,
            hierarchical_layers=hierarchical_layers,
            heads=3,
            segments=segments[0].tolist() if num_segments else None,
        )
        expected = torch.stack(reference.decode(weights, target[0].tolist(), tokens, sentences, layers=2, heads=2))

        close = {"rtol": 0, "atol": 1e-10}
        torch.testing.assert_close(encoded.last_hidden_state[0], torch.stack(tokens), **close)
        torch.testing.assert_close(encoded.hierarchical_hidden_state[0], torch.stack(sentences), **close)
        torch.testing.assert_close(result, expected, **close)

        direction = torch.randn(result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        (result * direction).sum().backward()
        (expected * direction).sum().backward()
        for name, parameter in model.named_parameters():
            got = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            want = weights[name].grad if weights[name].grad is not None else torch.zeros_like(parameter)
            assert name.startswith("encoder.embed_tokens") or want.abs().max() > 0, f"{name} is not exercised"
            torch.testing.assert_close(got, want, **close, msg=lambda text, name=name: f"{name}: {text}")

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
    def test_lower_precision_stays_close(self, dtype, tolerance):
        model = make_model(HatBartModel).double()
        source, target = make_source(9, bos_at=(0, 3, 4)), torch.tensor([[EOS, 7, 20, 31]])
        expected = model(source, decoder_input_ids=target).last_hidden_state
        result = model.to(dtype)(source, decoder_input_ids=target).last_hidden_state
        assert (result.double() - expected).abs().max() / expected.abs().max() < tolerance

    def test_the_third_attention_stands_between_the_second_and_the_feed_forward(self):
        names = [name for name, _ in make_model().model.decoder.layers[0].named_children()]
        assert {"self_attn", "encoder_attn", "hierarchical_attn"} <= set(names)

    def test_hierarchical_states_see_other_sentences_only_through_bos(self):
        """A token that no token-level layer can reach must not reach a sentence state either."""
        model = make_model(HatBartModel)
        states = torch.randn(1, 6, 12)
        changed = states.clone()
        changed[0, 4] += 1.0  # not a BOS position
        positions = torch.tensor([[0, 3]])
        first, _ = model.encoder._encode_sentences(states, positions)
        second, _ = model.encoder._encode_sentences(changed, positions)
        assert torch.equal(first, second)
        changed[0, 3] += 1.0
        assert not torch.equal(first, model.encoder._encode_sentences(changed, positions)[0])


class TestAgainstBart:
    """Without hierarchy it is BART, exactly, and any BART checkpoint loads."""

    @pytest.fixture
    def bart(self):
        torch.manual_seed(0)
        fields = make_config().to_dict()
        fields.pop("model_type")
        return BartForConditionalGeneration(BartConfig(**fields)).eval()

    @pytest.fixture
    def bart_folder(self, bart, tmp_path):
        bart.save_pretrained(tmp_path / "bart")
        return str(tmp_path / "bart")

    def test_from_bart_grows_its_own_family(self, bart_folder, tmp_path):
        HatBartModel.from_bart(bart_folder).save_pretrained(tmp_path / "hat")
        model, report = HatBartModel.from_bart(
            tmp_path / "hat", max_position_embeddings=100, local_files_only=True, output_loading_info=True
        )
        assert model.config.max_position_embeddings == 100
        assert not report["missing_keys"]

    def test_from_bart_hands_on_the_loading_report(self, bart_folder):
        model, report = HatBartModel.from_bart(bart_folder, max_position_embeddings=100, output_loading_info=True)
        assert model.encoder.embed_positions.weight.shape == (102, 12)
        assert report["missing_keys"]
        assert all("hierarchical" in key for key in report["missing_keys"])


class TestConfig:
    @pytest.mark.parametrize(
        ("field", "value", "match"),
        [
            ("hierarchical_layers", -1, "hierarchical_layers.*at least 0, got -1"),
            ("num_segments", -1, "num_segments.*at least 0"),
            ("encoder_layers", 0, "encoder_layers.*at least 1"),
            ("decoder_layers", 0, "decoder_layers.*at least 1"),
            ("encoder_attention_heads", 5, "must divide `d_model`"),
            ("decoder_attention_heads", 5, "must divide `d_model`"),
            ("encoder_attention_heads", 0, "at least 1"),
            ("max_position_embeddings", 0, "at least 1"),
            ("bos_token_id", None, "bos_token_id.*got None. Sentences are marked with it"),
            ("bos_token_id", 60, "vocab_size=60"),
            ("pad_token_id", None, "pad_token_id"),
            ("decoder_start_token_id", -1, "decoder_start_token_id"),
            ("d_model", -12, "d_model.*at least 1, got -12"),
            ("encoder_ffn_dim", 0, "encoder_ffn_dim.*at least 1"),
            ("decoder_ffn_dim", -1, "decoder_ffn_dim.*at least 1"),
            ("dropout", 1.5, "dropout.*between 0 and 1, got 1.5"),
            ("attention_dropout", -0.1, "attention_dropout.*between 0 and 1"),
            ("decoder_layerdrop", 2, "decoder_layerdrop.*between 0 and 1"),
            ("activation_function", "gelux", "activation_function.*got 'gelux'.*one of .*gelu"),
            ("pad_token_id", BOS, "pad_token_id.*must differ from.*bos_token_id"),
            ("eos_token_id", BOS, "eos_token_id.*must differ from.*bos_token_id"),
        ],
    )
    def test_what_cannot_work_is_refused_at_construction(self, field, value, match):
        with pytest.raises(StrictDataclassClassValidationError, match=match):
            make_config(**{field: value})

    def test_wrong_types_are_refused(self):
        with pytest.raises(Exception, match="hierarchical_layers"):
            make_config(hierarchical_layers="one")

    def test_common_names_work(self):
        config = make_config()
        assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (12, 2, 3)


class TestBosPositions:
    def test_found_in_order_and_padded(self):
        ids = torch.tensor([[BOS, 5, BOS, 6, EOS], [BOS, 5, 6, 7, EOS]])
        assert find_bos_positions(ids, None, BOS).tolist() == [[0, 2], [0, -1]]

    def test_masked_markers_do_not_count(self):
        ids = torch.tensor([[BOS, 5, EOS, BOS, BOS], [BOS, BOS, 5, BOS, EOS]])
        mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
        assert find_bos_positions(ids, mask, BOS).tolist() == [[0, -1], [1, 3]]

    def test_a_document_without_marker_is_one_sentence_and_warned_of_once(self, caplog):
        ids = torch.tensor([[5, 6, 7, EOS], [PAD, PAD, 8, EOS]])
        mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
        logging.get_logger("x").warning_once.cache_clear()
        for _ in range(2):
            assert find_bos_positions(ids, mask, BOS).tolist() == [[0], [2]]
        assert caplog.text.count("no BOS marker") == 1

    def test_an_empty_row_keeps_one_sentence(self):
        ids = torch.full((1, 3), PAD)
        assert find_bos_positions(ids, torch.zeros(1, 3, dtype=torch.long), BOS).tolist() == [[0]]

    def test_given_positions_equal_found_ones(self):
        model = make_model()
        source = make_source(12, (0, 4, 5))
        found = model(source, decoder_input_ids=source[:, :3]).logits
        padded = torch.tensor([[0, 4, 5, -1, -1]])
        given = model(source, bos_positions=padded, decoder_input_ids=source[:, :3]).logits
        torch.testing.assert_close(given, found)
        embeds = model.model.shared(source)
        given = model(inputs_embeds=embeds, bos_positions=padded, decoder_input_ids=source[:, :3]).logits
        torch.testing.assert_close(given, found)

    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_a_document_given_no_positions_is_one_sentence(self, attention):
        model = make_model(attn_implementation=attention)
        source = make_source(6, (2, 4), batch=2)
        mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
        target = source[:, 2:5]
        none = torch.full((2, 3), -1)
        one = torch.tensor([[0, -1, -1], [2, -1, -1]])
        given, wanted = (
            model(source, attention_mask=mask, bos_positions=positions, decoder_input_ids=target).logits
            for positions in (none, one)
        )
        torch.testing.assert_close(given, wanted)


class TestCache:
    def test_the_third_attention_is_cached(self):
        model = make_model()
        source = make_source(12, (0, 4, 5))
        outputs = model(source, decoder_input_ids=source[:, :3], use_cache=True)
        layers = outputs.cache.cross_attention_cache.layers
        assert [layer.keys.shape[2] for layer in layers] == [12, 12, 3, 3]

        calls = []
        for layer in model.model.decoder.layers:
            layer.hierarchical_attn.k_proj.register_forward_hook(lambda *_: calls.append(1))
        model(
            encoder_outputs=model.get_encoder()(source),
            decoder_input_ids=source[:, 3:4],
            cache=outputs.cache,
        )
        assert not calls

    def test_a_cache_that_grows_by_itself_works(self):
        model = make_model()
        source = make_source(12, (0, 4, 5))
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        expected = model(source, decoder_input_ids=source[:, :3]).logits
        result = model(source, decoder_input_ids=source[:, :3], cache=cache, use_cache=True).logits
        torch.testing.assert_close(result, expected)
        assert len(cache.cross_attention_cache.layers) == 4

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_static_cache_may_be_reset_for_other_sentences(self, order):
        model = make_model()
        sources = [make_source(12, (0, 4, 5)), make_source(12, (0, 2, 3, 7, 9))][::order]
        target = sources[0][:, :3]
        cache = EncoderDecoderCache(
            StaticCache(config=model.config, max_cache_len=8), StaticCache(config=model.config, max_cache_len=12)
        )
        for source in sources:
            expected = model(source, decoder_input_ids=target).logits
            first = model(source, decoder_input_ids=target[:, :2], cache=cache).logits
            second = model(source, decoder_input_ids=target[:, 2:], cache=cache).logits
            torch.testing.assert_close(torch.cat([first, second], dim=1), expected)
            cache.reset()


def test_the_encoder_by_itself_gives_the_attentions_of_its_hierarchy():
    model = make_model(attn_implementation="eager")
    source = make_source(8, (0, 4))
    wanted = model(source, decoder_input_ids=source[:, :3], output_attentions=True).encoder_hierarchical_attentions
    encoded = model.get_encoder()(source, output_attentions=True)
    passed_on = model(encoder_outputs=encoded, decoder_input_ids=source[:, :3]).encoder_hierarchical_attentions
    for got in (encoded.hierarchical_attentions, passed_on):
        assert len(got) == len(wanted) > 0
        assert all(map(torch.equal, got, wanted))


@pytest.mark.parametrize("hierarchical_layers", [0, 1])
def test_states_of_the_encoder_as_a_tuple_with_hidden_states(hierarchical_layers):
    """Without a hierarchy the tuple has no place for sentence states, as BART's has none."""
    model = make_model(hierarchical_layers=hierarchical_layers, attn_implementation="eager")
    source = make_source(8, (0, 4))
    wanted = model(source, decoder_input_ids=source[:, :3], output_hidden_states=True, output_attentions=True)
    encoded = model.get_encoder()(source, output_hidden_states=True, output_attentions=True, return_dict=False)
    got = model(encoder_outputs=encoded, decoder_input_ids=source[:, :3])
    assert torch.equal(got.logits, wanted.logits)
    for name in ("encoder_hidden_states", "encoder_attentions"):
        assert len(got[name]) == len(wanted[name])
        assert all(map(torch.equal, got[name], wanted[name]))


class TestErrors:
    @pytest.mark.parametrize(
        ("inputs", "match"),
        [
            ({"segment_ids": torch.zeros(1, 8).long()}, r"`segment_ids` must be \(2, 8\) like the tokens, got .*1, 8"),
            ({"segment_ids": torch.zeros(2, 1).long()}, r"`segment_ids` must be \(2, 8\) like the tokens, got .*2, 1"),
            ({"segment_ids": torch.full((2, 8), 3)}, r"`segment_ids` must be in \[0, num_segments=3\), got .* 3 to 3"),
            ({"bos_positions": torch.tensor([[0, 4]])}, r"`bos_positions` must be \(batch=2, sentences\), got .*1, 2"),
            ({"bos_positions": torch.tensor([0, 4])}, r"`bos_positions` must be \(batch=2, sentences\), got .*2,"),
            (
                {"bos_positions": torch.zeros(2, 0).long()},
                r"`bos_positions` must be \(batch=2, sentences\), got .*2, 0",
            ),
            ({"bos_positions": torch.zeros(2, 2)}, "`bos_positions` must be integers, got torch.float32"),
            (
                {"bos_positions": torch.tensor([[0, 8]] * 2)},
                "`bos_positions` must be positions of .* 8 tokens.* 0 to 8",
            ),
            ({"bos_positions": torch.tensor([[0, -2]] * 2)}, "`bos_positions` must be positions of .* from -2 to 0"),
            ({"bos_positions": torch.tensor([[0, 5]] * 2)}, "`bos_positions` must be .* 5 in row 1 is padding"),
        ],
    )
    def test_segments_and_markers_that_do_not_fit_the_tokens(self, inputs, match):
        """One row for two documents would be read as that of both; a marker on padding would read the padding."""
        mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
        source = make_source(8, (0, 4), batch=2)
        with pytest.raises(ValueError, match=match):
            make_model(num_segments=3)(source, attention_mask=mask, decoder_input_ids=source[:, :3], **inputs)

    def test_segment_ids_without_embeddings(self):
        source = make_source(5)
        with pytest.raises(ValueError, match="num_segments"):
            make_model()(source, segment_ids=torch.zeros_like(source), decoder_input_ids=source)

    def test_encoder_outputs_of_another_model(self):
        model = make_model()
        source = make_source(5)
        tokens = model.get_encoder()(source).last_hidden_state
        with pytest.raises(ValueError, match="hierarchical_hidden_state"):
            model(encoder_outputs=(tokens,), decoder_input_ids=source)

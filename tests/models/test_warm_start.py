"""Warm starts: every family begins as good as its base, and training can only add to it."""

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)
from transformers.utils import logging

from hier_models import (
    HatBartConfig,
    HatBartForConditionalGeneration,
    HatBartModel,
    HatEncoderForMaskedLM,
    HatEncoderForSequenceClassification,
    HighlightTransformerForConditionalGeneration,
    TopDownTransformerForConditionalGeneration,
    TopDownTransformerForTokenClassification,
)
from hier_models.models.bos_positions import MANY_TOKENS, find_bos_positions
from hier_models.models.warm_start import begin_as_identity


BOS, PAD, EOS = 0, 1, 2
POSITIONS = 40
LENGTHS = (30, 17, 24)
# Where sentences begin behind the first one, in tokens of the unmarked text.
CUTS = ((5, 11, 20, 21), (8,), ())


@dataclass
class Family:
    """A class that begins with BART's weights, with arguments of `from_bart`."""

    cls: type[PreTrainedModel]
    arguments: dict[str, Any] = field(default_factory=dict)
    has_markers: bool = False
    gives_logs: bool = False


def top_down(**arguments: Any) -> Family:
    copies = arguments.get("use_copy", False)
    arguments = {"max_encoder_position_embeddings": POSITIONS, "attention_window": 2 * POSITIONS, **arguments}
    return Family(TopDownTransformerForConditionalGeneration, arguments, gives_logs=copies)


COPYING = {"use_copy": True}
SMALL = {"pooling_kernel": 6, "pooling_stride": 4}
LEVELS = {"pooling_kernel": [4, 3], "pooling_stride": [3, 2]}
FAMILIES = {
    "hat_bart": Family(HatBartForConditionalGeneration, has_markers=True),
    "hat_bart_roles": Family(
        HatBartForConditionalGeneration, {"hierarchical_layers": 3, "num_segments": 2}, has_markers=True
    ),
    "hat_bart_copying": Family(HatBartForConditionalGeneration, COPYING, has_markers=True, gives_logs=True),
    "highlight_transformer": Family(HighlightTransformerForConditionalGeneration, gives_logs=True),
    "highlight_transformer_without_copying": Family(HighlightTransformerForConditionalGeneration, {"use_copy": False}),
    "top_down_cross_attention": top_down(**SMALL),
    "top_down_concat": top_down(**SMALL, top_down_update="concat"),
    "top_down_copying": top_down(**SMALL, **COPYING),
    "top_down_levels": top_down(**LEVELS),
    "top_down_levels_concat": top_down(**LEVELS, top_down_update="concat"),
}
TOP_DOWN = [name for name in FAMILIES if name.startswith("top_down")]


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def disturb(model: PreTrainedModel) -> None:
    """Make norms and biases what they are in trained models: at 1 and 0 they would hide a wrong use of them."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)


@pytest.fixture(scope="module")
def bart() -> BartForConditionalGeneration:
    """BART, trained until it writes every third token of its source, without doubt."""
    torch.manual_seed(0)
    sizes = {f"{side}_{name}": 4 if name == "attention_heads" else 48 for side in ("encoder", "decoder")
             for name in ("attention_heads", "ffn_dim")}  # fmt: skip
    config = BartConfig(
        vocab_size=40, d_model=32, encoder_layers=3, decoder_layers=2, max_position_embeddings=POSITIONS,
        init_std=0.15, dropout=0.0, **sizes,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    disturb(model)
    model.generation_config.forced_eos_token_id = None
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(2)
    for _ in range(250):
        sources = torch.randint(5, 40, (32, 13), generator=generator)
        sources[:, 0] = BOS
        labels = torch.cat([sources[:, 1::3], torch.full((32, 1), EOS)], dim=1)
        loss = model(input_ids=sources, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.5
    return model.eval()


@pytest.fixture(scope="module")
def bart_folder(bart, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bart")
    bart.save_pretrained(folder)
    return folder


def texts() -> list[list[int]]:
    """Texts as BART's tokenizer gives them: one BOS in front, one EOS behind."""
    generator = torch.Generator().manual_seed(3)
    return [[BOS, *torch.randint(5, 40, (n - 2,), generator=generator).tolist(), EOS] for n in LENGTHS]


def marked(text: list[int], cuts: tuple[int, ...]) -> list[int]:
    """The text with a BOS before every sentence."""
    return [token for i, own in enumerate(text) for token in ([BOS, own] if i in cuts else [own])]


def pad(rows: list[list[int]], side: str = "right") -> dict[str, torch.Tensor]:
    most = max(map(len, rows)) + 1
    fill = [[PAD] * (most - len(row)) for row in rows]
    rows = [f + row if side == "left" else row + f for f, row in zip(fill, rows, strict=True)]
    ids = torch.tensor(rows)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def sources_of(family: Family, side: str = "right") -> dict[str, torch.Tensor]:
    rows = texts()
    return pad([marked(*pair) for pair in zip(rows, CUTS, strict=True)] if family.has_markers else rows, side)


def target() -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.cat([torch.full((3, 1), EOS), torch.randint(5, 40, (3, 7), generator=generator)], dim=1)


def load(family: Family, folder: Any, **arguments: Any) -> PreTrainedModel:
    return family.cls.from_bart(folder, **{**family.arguments, **arguments}).eval()


class TestBeginsAsBart:
    """Whatever it adds, the model computes what BART computes of the unmarked text."""

    @pytest.mark.parametrize("side", ["right", "left"])
    def test_logits(self, family, bart, bart_folder, side):
        model = load(family, bart_folder)
        with torch.no_grad():
            expected = bart(**pad(texts()), decoder_input_ids=target()).logits
            found = model(**sources_of(family, side), decoder_input_ids=target()).logits
        if family.gives_logs:  # copying begins closed, not out
            assert (found.exp() - expected.softmax(dim=-1)).abs().max() < 1e-3
        else:
            assert (found - expected).abs().max() < 1e-4

    @pytest.mark.parametrize("num_beams", [1, 4])
    def test_generated_tokens(self, family, bart, bart_folder, num_beams):
        settings = {"num_beams": num_beams, "max_new_tokens": 12, "do_sample": False}
        expected = bart.generate(**pad(texts()), **settings)
        found = load(family, bart_folder).generate(**sources_of(family), **settings)
        assert len({tuple(row) for row in expected.tolist()}) == 3  # what is written depends on the text
        assert torch.equal(found, expected)

    def test_plain_from_pretrained_does_the_same(self, family, bart_folder):
        arguments = {key: value for key, value in family.arguments.items() if "position" not in key}
        torch.manual_seed(5)
        plain = family.cls.from_pretrained(bart_folder, **arguments).eval()
        torch.manual_seed(5)
        grown = load(family, bart_folder).state_dict()
        for name, value in plain.state_dict().items():
            assert torch.equal(value, grown[name]), name

    def test_bfloat16_keeps_the_base_as_well_as_it_can(self, family, bart, bart_folder):
        model = load(family, bart_folder, dtype=torch.bfloat16)
        base = copy.deepcopy(bart).to(torch.bfloat16)
        with torch.no_grad():
            expected = base(**pad(texts()), decoder_input_ids=target()).logits.softmax(dim=-1)
            found = model(**sources_of(family), decoder_input_ids=target()).logits.softmax(dim=-1)
        assert (found - expected).abs().max() < 0.1

    @pytest.mark.parametrize("family", TOP_DOWN, indirect=True)
    def test_a_smaller_window_is_that_of_the_model_without_segments(self, family, bart_folder):
        smaller = {"attention_window": 6}
        with torch.no_grad():
            expected = load(family, bart_folder, **smaller, top_down_update="none")
            expected = expected(**sources_of(family), decoder_input_ids=target()).logits
            found = load(family, bart_folder, **smaller)(**sources_of(family), decoder_input_ids=target()).logits
        assert (found - expected).abs().max() < 1e-4

    def test_random_is_the_papers_and_leaves_the_base_alone(self, family, bart, bart_folder):
        model = load(family, bart_folder, new_modules="random")
        state = model.state_dict()
        for name, value in bart.state_dict().items():
            assert torch.equal(state[name], value), name
        assert model.new_parameters == ()
        assert not getattr(model.config, "silent_markers", False)
        if family.arguments.get("use_copy", True):
            with torch.no_grad():
                expected = bart(**pad(texts()), decoder_input_ids=target()).logits.softmax(dim=-1)
                found = model(**sources_of(family), decoder_input_ids=target()).logits.softmax(dim=-1)
            assert (found - expected).abs().max() > 0.01

    def test_the_part_without_a_head_and_the_tagger(self, bart, bart_folder):
        with torch.no_grad():
            expected = bart.model(**pad(texts()), decoder_input_ids=target()).last_hidden_state
            marked_sources = sources_of(FAMILIES["hat_bart"])
            found = HatBartModel.from_pretrained(bart_folder).eval()(**marked_sources, decoder_input_ids=target())
            assert (found.last_hidden_state - expected).abs().max() < 1e-4
            tagger = TopDownTransformerForTokenClassification.from_bart(
                bart_folder, max_encoder_position_embeddings=POSITIONS, attention_window=2 * POSITIONS, **SMALL
            ).eval()
            states = tagger.model(**pad(texts())).last_hidden_state
            expected = bart.model.encoder(**pad(texts())).last_hidden_state
        is_token = pad(texts())["attention_mask"].bool()
        assert (states - expected)[is_token].abs().max() < 1e-4
        assert "classifier.weight" not in tagger.new_parameters  # begun at random, as every head


class TestTraining:
    def test_every_new_parameter_has_a_gradient_in_the_second_step(self, family, bart_folder):
        model = load(family, bart_folder)
        inputs = {**sources_of(family), "labels": target()}
        if "num_segments" in family.arguments:
            inputs["segment_ids"] = inputs["input_ids"] % 2
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            model(**inputs).loss.backward()
            optimizer.step()
        parameters = dict(model.named_parameters())
        assert bool(model.new_parameters) == family.arguments.get("use_copy", True)
        for name in model.new_parameters:
            gradient = parameters[name].grad
            assert gradient is not None, name
            if not name.endswith("k_proj.bias"):  # which softmax takes out again
                assert gradient.abs().max() > 0, name

    def test_new_parameters_are_those_that_the_base_lacks(self, family, bart, bart_folder):
        model = load(family, bart_folder)
        lacking = {name for name, _ in model.named_parameters()} - set(bart.state_dict())
        norms = ("hierarchical_attn_layer_norm.", "segment_attn_layer_norm.", "segment_concat_layer_norm.")
        taken_over = {name for name in lacking if ".layers." in name and any(norm in name for norm in norms)}
        assert set(model.new_parameters) == lacking - taken_over  # norms with scale and shift of the base's

    def test_a_trained_model_reloads_bit_for_bit(self, family, bart_folder, tmp_path):
        model = load(family, bart_folder)
        disturb(model)
        model.save_pretrained(tmp_path)
        again = family.cls.from_pretrained(tmp_path)
        for name, value in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], value), name
        assert again.new_parameters == ()
        assert again.config.to_diff_dict() == model.config.to_diff_dict()

    def test_only_what_a_checkpoint_lacks_is_touched(self, bart_folder, tmp_path):
        """A model trained on news that is to tell roles apart: the hierarchy stays, the roles begin at zero."""
        model = HatBartForConditionalGeneration.from_pretrained(bart_folder)
        disturb(model)
        model.save_pretrained(tmp_path)
        with_roles = HatBartForConditionalGeneration.from_pretrained(tmp_path, num_segments=2)
        assert with_roles.new_parameters == ("model.encoder.embed_segments.weight",)
        assert not with_roles.model.encoder.embed_segments.weight.any()
        for name, value in model.state_dict().items():
            assert torch.equal(with_roles.state_dict()[name], value), name

    def test_other_roles_than_the_checkpoint_has_begin_at_zero_too(self, bart_folder, tmp_path):
        model = HatBartForConditionalGeneration.from_pretrained(bart_folder, num_segments=2)
        disturb(model)
        model.save_pretrained(tmp_path)
        more = HatBartForConditionalGeneration.from_pretrained(tmp_path, num_segments=3, ignore_mismatched_sizes=True)
        assert more.model.encoder.embed_segments.weight.shape == (3, 32)
        assert not more.model.encoder.embed_segments.weight.any()

    @pytest.mark.parametrize(
        ("cls", "before", "after"),
        [
            (HatBartForConditionalGeneration, {}, {"hierarchical_layers": 3}),
            (HatBartForConditionalGeneration, {"hierarchical_layers": 0}, {"hierarchical_layers": 1}),
            (TopDownTransformerForConditionalGeneration, {**SMALL, "segment_layers": 1}, {"segment_layers": 3}),
            (
                TopDownTransformerForConditionalGeneration,
                {"pooling_kernel": 4, "pooling_stride": 3},
                {"pooling_kernel": [4, 3], "pooling_stride": [3, 2]},
            ),
            (
                TopDownTransformerForConditionalGeneration,
                {**LEVELS, "segment_layers": 1},
                {"segment_layers": 2},
            ),
            (
                TopDownTransformerForConditionalGeneration,
                {**LEVELS, "segment_layers": 1, "top_down_update": "concat"},
                {"segment_layers": 2},
            ),
        ],
    )
    def test_more_layers_on_trained_ones_begin_as_the_identity(self, bart_folder, tmp_path, cls, before, after):
        model = cls.from_pretrained(bart_folder, **before)
        disturb(model)
        model.save_pretrained(tmp_path)
        deeper = cls.from_pretrained(tmp_path, **after)
        assert deeper.new_parameters
        inputs = {**pad([marked(*pair) for pair in zip(texts(), CUTS, strict=True)]), "decoder_input_ids": target()}
        with torch.no_grad():
            expected, found = (m.eval()(**inputs).logits for m in (model, deeper))
        assert (found - expected).abs().max() < 1e-4

    def test_the_user_s_own_base_is_left_alone(self, bart):
        before = copy.deepcopy(bart.state_dict())
        config = HatBartConfig(**{**bart.config.to_dict(), "model_type": "hat_bart", "architectures": None})
        HatBartForConditionalGeneration.from_pretrained(None, config=config, state_dict=bart.state_dict())
        for name, value in bart.state_dict().items():
            assert torch.equal(value, before[name]), name

    def test_a_model_from_scratch_is_random(self):
        model = HatBartForConditionalGeneration(HatBartConfig(vocab_size=40, d_model=32, encoder_layers=1))
        assert model.new_parameters == ()
        assert model.model.decoder.layers[0].hierarchical_attn.out_proj.weight.any()
        assert not model.config.silent_markers

    def test_without_a_base_all_is_random(self, tmp_path):
        config = HatBartConfig(vocab_size=40, d_model=32, encoder_layers=1, decoder_layers=1)
        config.save_pretrained(tmp_path)
        save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
        model = HatBartForConditionalGeneration.from_pretrained(tmp_path)
        assert model.new_parameters == ()
        assert model.model.decoder.layers[0].hierarchical_attn.out_proj.weight.any()

    def test_parameters_that_cannot_be_written_to(self, bart_folder):
        with torch.device("meta"):
            model = HatBartForConditionalGeneration(HatBartConfig.from_pretrained(bart_folder))
        lacking = {name for name, _ in model.named_parameters() if "hierarchical" in name}
        with pytest.raises(ValueError, match=r'Load the base once without that.*`new_modules="random"`'):
            begin_as_identity(model, lacking)


class TestSilentMarkers:
    def test_default_of_bases_explicit_values_and_earlier_checkpoints(self, bart_folder, tmp_path):
        cls = HatBartForConditionalGeneration
        assert cls.from_pretrained(bart_folder).config.silent_markers
        assert not cls.from_pretrained(bart_folder, silent_markers=False).config.silent_markers
        assert not cls.from_pretrained(bart_folder, new_modules="random").config.silent_markers
        assert cls.from_pretrained(bart_folder, new_modules="random", silent_markers=True).config.silent_markers
        assert not cls.from_pretrained(bart_folder, hierarchical_layers=0).config.silent_markers
        HatBartForConditionalGeneration.from_pretrained(bart_folder).save_pretrained(tmp_path)
        assert cls.from_pretrained(tmp_path).config.silent_markers
        config = (tmp_path / "config.json").read_text(encoding="utf-8")
        (tmp_path / "config.json").write_text(config.replace('  "silent_markers": true,\n', ""), encoding="utf-8")
        assert not cls.from_pretrained(tmp_path).config.silent_markers

    def test_they_read_and_only_the_hierarchy_reads_them(self, bart_folder):
        model = HatBartForConditionalGeneration.from_pretrained(bart_folder).eval()
        text = torch.tensor([marked(texts()[0], CUTS[0])])
        positions = find_bos_positions(text, None, BOS)
        embeddings = model.get_input_embeddings()(text)
        changed = embeddings.clone()
        changed[0, positions[0, 2]] += 1.0  # a marker
        encoder = model.get_encoder()
        with torch.no_grad():
            one, other = (encoder(inputs_embeds=e, bos_positions=positions) for e in (embeddings, changed))
            read = embeddings.clone()
            read[0, positions[0, 2] + 1] += 1.0  # the token behind it
            third = encoder(inputs_embeds=read, bos_positions=positions)
        same = (one.last_hidden_state == other.last_hidden_state).all(dim=-1)[0]
        assert (~same).nonzero().flatten().tolist() == [positions[0, 2]]
        assert not torch.equal(one.hierarchical_hidden_state, other.hierarchical_hidden_state)
        at_marker = [e.last_hidden_state[0, positions[0, 2]] for e in (one, third)]
        assert not torch.equal(*at_marker)
        assert one.read_mask[0].tolist() == [int(p not in positions[0, 1:].tolist()) for p in range(text.shape[1])]

    def test_places_of_markers_in_any_order(self, bart, bart_folder):
        model = HatBartForConditionalGeneration.from_pretrained(bart_folder).eval()
        sources = sources_of(FAMILIES["hat_bart"])
        positions = find_bos_positions(sources["input_ids"], sources["attention_mask"], BOS)
        padding = torch.full((3, 1), -1)
        with torch.no_grad():
            expected = bart(**pad(texts()), decoder_input_ids=target()).logits
            for places in (torch.cat([padding, positions], dim=1), positions.flip(1)):
                found = model(**sources, bos_positions=places, decoder_input_ids=target()).logits
                assert (found - expected).abs().max() < 1e-4
        plain = HatBartForConditionalGeneration.from_pretrained(
            bart_folder, hierarchical_layers=0, silent_markers=True
        )
        with pytest.raises(ValueError, match="`bos_positions` must be positions of the source's"):
            plain.get_encoder()(**sources, bos_positions=torch.full((3, 2), 99))

    def test_markers_that_speak_change_the_tokens(self, bart, bart_folder):
        model = HatBartForConditionalGeneration.from_pretrained(bart_folder, silent_markers=False).eval()
        family = FAMILIES["hat_bart"]
        with torch.no_grad():
            expected = bart(**pad(texts()), decoder_input_ids=target()).logits
            found = model(**sources_of(family), decoder_input_ids=target()).logits
        differs = (found - expected).abs().amax(dim=(1, 2))
        assert differs[0] > 0.01
        assert differs[2] < 1e-4  # one sentence

    def test_without_hierarchy_they_can_be_left_unread(self, bart, bart_folder):
        """The fair twin: BART on the unmarked text, from the marked one."""
        arguments = {"hierarchical_layers": 0, "silent_markers": True}
        model = HatBartForConditionalGeneration.from_pretrained(bart_folder, **arguments).eval()
        with torch.no_grad():
            expected = bart(**pad(texts()), decoder_input_ids=target()).logits
            found = model(**sources_of(FAMILIES["hat_bart"]), decoder_input_ids=target()).logits
        assert (found - expected).abs().max() < 1e-4

    def test_what_cannot_be_silent_is_refused(self, bart_folder):
        model = HatBartForConditionalGeneration.from_pretrained(bart_folder).eval()
        sources = sources_of(FAMILIES["hat_bart"])
        too_long = torch.full((1, POSITIONS + 3), 7)
        too_long[0, [0, 4, 8]] = BOS  # one token too many, and two markers that take no position
        with pytest.raises(ValueError, match=f"A source of {POSITIONS + 1} tokens is longer"):
            model.get_encoder()(too_long)
        assert model.get_encoder()(too_long[:, :-1])[0].isfinite().all()
        four = sources["attention_mask"][:, None, None].expand(-1, 1, sources["input_ids"].shape[1], -1)
        with pytest.raises(ValueError, match=r"`attention_mask` must be \(batch, tokens\) beside silent markers"):
            model.get_encoder()(sources["input_ids"], attention_mask=four)
        model.config._attn_implementation_internal = "flash_attention_2"
        with pytest.raises(ValueError, match=r"Flash attention cannot leave markers out.*silent_markers=False"):
            model.get_encoder()(**sources)


@pytest.mark.parametrize("queries", ["all", "bos"])
class TestBeginsAsRoberta:
    @pytest.fixture(scope="class")
    @classmethod
    def roberta(cls):
        torch.manual_seed(0)
        config = RobertaConfig(
            vocab_size=40, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=32,
            max_position_embeddings=60, type_vocab_size=1, initializer_range=0.2, layer_norm_eps=1e-5,
        )  # fmt: skip
        model = RobertaForMaskedLM(config)
        disturb(model)
        return model.eval()

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, roberta, tmp_path_factory):
        folder = tmp_path_factory.mktemp("roberta")
        roberta.save_pretrained(folder)
        return folder

    @pytest.mark.parametrize("side", ["right", "left"])
    def test_logits_of_all_tokens_but_markers(self, roberta, folder, queries, side):
        model = HatEncoderForMaskedLM.from_pretrained(folder, hierarchical_queries=queries).eval()
        rows = texts()
        with torch.no_grad():
            expected = roberta(**pad(rows)).logits
            sources = pad([marked(*pair) for pair in zip(rows, CUTS, strict=True)], side)
            found = model(**sources).logits
        for row, text in enumerate(rows):
            is_marker = sources["input_ids"][row] == BOS
            is_marker[is_marker.nonzero()[0]] = False  # the first is RoBERTa's own
            is_token = sources["attention_mask"][row].bool() & ~is_marker
            assert (found[row][is_token] - expected[row][: len(text)]).abs().max() < 1e-4

    def test_every_new_parameter_has_a_gradient_in_the_second_step(self, folder, queries):
        model = HatEncoderForMaskedLM.from_pretrained(folder, hierarchical_queries=queries)
        sources = pad([marked(*pair) for pair in zip(texts(), CUTS, strict=True)])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(2):
            optimizer.zero_grad()
            model(**sources, labels=(sources["input_ids"] * 7) % 40).loss.backward()
            optimizer.step()
        parameters = dict(model.named_parameters())
        assert len(model.new_parameters) == 3 * 8
        for name in model.new_parameters:
            if not name.endswith("key.bias"):
                assert parameters[name].grad.abs().max() > 0, name

    def test_a_trained_model_reloads_bit_for_bit(self, folder, tmp_path, queries):
        model = HatEncoderForSequenceClassification.from_pretrained(folder, hierarchical_queries=queries)
        disturb(model)
        model.save_pretrained(tmp_path)
        again = HatEncoderForSequenceClassification.from_pretrained(tmp_path)
        for name, value in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], value), name
        assert again.new_parameters == ()
        assert again.config.silent_markers
        assert again.config.hierarchical_queries == queries


class TestPositionsOfSentencesAndSegments:
    """Copied positions make the same text look the same in two places, to what stands above the tokens too."""

    def models(self, folder, **arguments):
        """Models of each family with positions grown by copies."""
        return [self.model(folder, number, **arguments) for number in range(2)]

    def model(self, folder, number, **arguments):
        if number == 0:
            cls, own = HatBartForConditionalGeneration, {"max_position_embeddings": 2 * POSITIONS}
            own["silent_markers"] = False
        else:
            cls, own = TopDownTransformerForConditionalGeneration, {"max_encoder_position_embeddings": 2 * POSITIONS}
            own |= {"attention_window": 4 * POSITIONS, "pooling_kernel": 8, "pooling_stride": 8}
        return cls.from_bart(folder, **{**own, **arguments})

    def upper_states(self, model, half):
        """States of the sentences or segments of a text that is the same twice, from one half of it to the other."""
        with torch.no_grad():
            outputs = model.get_encoder()(torch.tensor([half * 2]))
        states = outputs.get("hierarchical_hidden_state")
        states = (outputs["segment_hidden_states"] if states is None else states)[0]
        return states[: len(states) // 2], states[len(states) // 2 :]

    def half(self):
        """As many tokens as BART has positions; the markers speak here, or the first would not be as the fifth is."""
        text = [BOS, *(5 + (7 * i) % 31 for i in range(POSITIONS - 5))]
        return marked(text, (8, 16, 24, 30))

    def test_set_only_where_positions_were_grown_by_copies_with_identity(self, bart_folder):
        hat, top_down = self.models(bart_folder)
        assert hat.config.sentence_position_embeddings == 2 * POSITIONS // 8
        assert top_down.config.segment_position_embeddings == 2 * POSITIONS // 8
        for arguments in ({"new_modules": "random"}, {"extra_positions": "random"}):
            hat, top_down = self.models(bart_folder, **arguments)
            assert hat.config.sentence_position_embeddings == top_down.config.segment_position_embeddings == 0
        hat = HatBartForConditionalGeneration.from_bart(bart_folder, max_position_embeddings=POSITIONS)
        assert hat.config.sentence_position_embeddings == 0

    @pytest.mark.parametrize("number", [0, 1], ids=["hat_bart", "top_down_transformer"])
    def test_growing_twice_keeps_what_was_learned(self, bart_folder, tmp_path, number):
        name, field = (
            ("max_position_embeddings", "sentence_position_embeddings"),
            ("max_encoder_position_embeddings", "segment_position_embeddings"),
        )[number]
        once = self.model(bart_folder, number)
        encoder = once.get_encoder()
        attribute = "embed_segment_positions" if number else "embed_sentence_positions"
        nn.init.normal_(getattr(encoder, attribute).weight)
        once.save_pretrained(tmp_path)
        twice = type(once).from_bart(tmp_path, **{name: 4 * POSITIONS})
        rows = getattr(once.config, field)
        learned, grown = (getattr(model.get_encoder(), attribute).weight for model in (once, twice))
        assert getattr(twice.config, field) == len(grown) == 2 * rows
        assert torch.equal(grown[:rows], learned)
        assert torch.equal(grown[rows:], learned[-1:].expand(rows, -1))
        inputs = {"input_ids": torch.tensor([self.half() * 2]), "decoder_input_ids": target()[:1]}
        with torch.no_grad():
            before, after = (model.eval()(**inputs).logits for model in (once, twice))
        assert (after - before).abs().max() < 1e-5
        twice.save_pretrained(tmp_path / "twice")
        assert torch.equal(
            getattr(type(once).from_pretrained(tmp_path / "twice").get_encoder(), attribute).weight, grown
        )

    def test_all_ways_of_growing_set_them(self, bart_folder):
        config = HatBartConfig.from_pretrained(bart_folder)
        hat = HatBartForConditionalGeneration.from_bart(
            bart_folder, config=config, max_position_embeddings=2 * POSITIONS
        )
        assert hat.config.sentence_position_embeddings == 2 * POSITIONS // 8
        assert "model.encoder.embed_sentence_positions.weight" in hat.new_parameters
        top_down = TopDownTransformerForConditionalGeneration.from_pretrained(bart_folder, **SMALL)
        top_down.resize_position_embeddings(2 * POSITIONS)
        assert top_down.config.segment_position_embeddings == len(
            top_down.model.encoder.embed_segment_positions.weight
        )
        longer_target = TopDownTransformerForConditionalGeneration.from_bart(
            bart_folder,
            max_encoder_position_embeddings=POSITIONS,
            max_decoder_position_embeddings=2 * POSITIONS,
        )
        assert longer_target.config.segment_position_embeddings == 0
        plain = HatBartForConditionalGeneration.from_bart(
            bart_folder, hierarchical_layers=0, max_position_embeddings=2 * POSITIONS
        )
        assert plain.config.sentence_position_embeddings == 0

    @pytest.mark.parametrize("number", [0, 1], ids=["hat_bart", "top_down_transformer"])
    def test_order_is_visible_after_training_and_the_start_is_exact(self, bart, bart_folder, number):
        model = self.model(bart_folder, number).eval()
        text = self.half()
        first, second = self.upper_states(model, text)
        assert (first - second).abs().max() < 1e-5  # zero but for the order of sums

        with torch.no_grad():
            expected = bart(torch.tensor([text]), decoder_input_ids=target()[:1]).logits
            found = model(torch.tensor([text]), decoder_input_ids=target()[:1]).logits
        assert (found - expected).abs().max() < 1e-4

        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        other = [BOS, *(5 + (7 * i * i) % 31 for i in range(60))]  # whose second half is not its first one
        other = marked(other, (9, 20, 31, 40, 50)) if number == 0 else other
        for _ in range(4):
            optimizer.zero_grad()
            model(input_ids=torch.tensor([other]), labels=target()[:1]).loss.backward()
            optimizer.step()
        first, second = self.upper_states(model, text)
        assert (first - second).abs().max() > 0.01

    @pytest.mark.parametrize("number", [0, 1], ids=["hat_bart", "top_down_transformer"])
    def test_more_sentences_than_positions_share_the_last(self, bart_folder, number):
        field = ("sentence_position_embeddings", "segment_position_embeddings")[number]
        model = self.model(bart_folder, number, **{field: 2})
        encoder = model.get_encoder()
        nn.init.normal_((encoder.embed_segment_positions if number else encoder.embed_sentence_positions).weight)
        first, second = self.upper_states(model.eval(), self.half())
        assert first.isfinite().all()
        assert not torch.allclose(first, second)


class TestWarningOfUnsplitTexts:
    @pytest.fixture(autouse=True)
    def fresh_warnings(self):
        logger = logging.get_logger("hier_models.models.bos_positions")
        logger.warning_once.cache_clear()
        yield
        logger.warning_once.cache_clear()

    @pytest.mark.parametrize(
        ("tokens", "markers", "warns"),
        [(MANY_TOKENS, [0], True), (MANY_TOKENS - 1, [0], False), (MANY_TOKENS, [0, 9], False)],
    )
    def test_one_marker_before_many_tokens(self, caplog, tokens, markers, warns):
        ids = torch.full((2, tokens + 3), 7)
        mask = torch.ones_like(ids)
        mask[:, tokens:] = 0
        ids[:, markers] = BOS
        for _ in range(2):
            find_bos_positions(ids, mask, BOS)
        assert caplog.text.count("has only one BOS marker") == int(warns)
        if warns:
            assert "AutoTokenizer" in caplog.text

    def test_a_mask_for_each_pair_of_tokens_counts_none_twice(self, caplog):
        ids = torch.tensor([[BOS, *[7] * 14, 2]])
        find_bos_positions(ids, torch.ones(1, 1, 16, 16), BOS)
        assert "BOS marker" not in caplog.text

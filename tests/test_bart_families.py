"""What holds for every family that begins as BART: the same without what is its own, its weights, its positions."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    LEDConfig,
    MBartConfig,
    PreTrainedModel,
    T5Config,
)

import hier_models
from hier_models.models import bart_body
from tests.cases import BOS, CASES, collate, make_model


@dataclass(frozen=True)
class BartCase:
    """A family.

    `plain` makes it BART, `new` are its new weights by their names, `asked` the settings that give all of them. Where
    it has not the `same_masks`, torch's attention rounds in another way. `source` and `target` limit their positions.
    """

    prefix: str
    plain: dict[str, Any]
    new: tuple[str, ...]
    asked: dict[str, Any] = field(default_factory=dict)
    same_masks: bool = True
    source: str = "max_position_embeddings"
    target: str = "max_position_embeddings"

    @property
    def summarizer(self) -> type[PreTrainedModel]:
        return getattr(hier_models, f"{self.prefix}ForConditionalGeneration")

    @property
    def body(self) -> type[PreTrainedModel]:
        return getattr(hier_models, f"{self.prefix}Model")


FAMILIES = {
    "hat_bart": BartCase(
        "HatBart", {"hierarchical_layers": 0}, ("hierarchical", "embed_segments"), {"num_segments": 2}
    ),
    "highlight_transformer": BartCase("HighlightTransformer", {"use_copy": False}, ("copy_gate",)),
    "top_down_transformer": BartCase(
        "TopDownTransformer",
        {"top_down_update": "none", "attention_window": 40},
        ("segment_",),
        same_masks=False,
        source="max_encoder_position_embeddings",
        target="max_decoder_position_embeddings",
    ),
}
# Of the invariants' cases, those that have learned positions.
WITH_POSITIONS = {
    "hat_bart": "hat_bart",
    "highlight_transformer_bart": "highlight_transformer",
    "top_down_transformer": "top_down_transformer",
    "top_down_transformer_levels": "top_down_transformer",
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> BartCase:
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def bart() -> BartForConditionalGeneration:
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "max_position_embeddings": 32, "d_model": 12}
    layers = {"encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 18}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 2}
    return BartForConditionalGeneration(BartConfig(**sizes, **layers, **heads)).eval()


@pytest.fixture(scope="module")
def folder(bart: BartForConditionalGeneration, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bart")
    bart.save_pretrained(path)
    return str(path)


def make_source(length: int, batch: int = 1, seed: int = 0) -> torch.Tensor:
    ids = torch.randint(5, 60, (batch, length), generator=torch.Generator().manual_seed(seed))
    ids[:, ::7] = BOS
    return ids


# ------------------------------------------------------------------------------------------------------ BART, exactly


@pytest.mark.parametrize(("attention", "padding"), [("sdpa", 0), ("sdpa", 5), ("eager", 0), ("eager", 5)])
def test_without_what_is_its_own_it_is_bart(family, bart, folder, attention, padding):
    if padding and attention == "sdpa" and not family.same_masks:
        pytest.skip("it has other masks")
    bart.set_attn_implementation(attention)
    bart.zero_grad()
    model = family.summarizer.from_pretrained(folder, attn_implementation=attention, **family.plain).eval()
    shapes = [{name: value.shape for name, value in one.state_dict().items()} for one in (model, bart)]
    assert shapes[0] == shapes[1]
    inputs = {"input_ids": make_source(20, batch=2), "decoder_input_ids": make_source(6, batch=2, seed=1)}
    inputs["attention_mask"] = torch.ones(2, 20, dtype=torch.long)
    inputs["attention_mask"][1, 20 - padding :] = 0
    inputs["labels"] = torch.where(inputs["decoder_input_ids"] > 50, -100, inputs["decoder_input_ids"])
    ours, theirs = model(**inputs), bart(**inputs)
    assert torch.equal(ours.logits, theirs.logits)
    assert torch.equal(ours.loss, theirs.loss)
    ours.loss.backward()
    theirs.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, parameter in bart.named_parameters():
        assert torch.equal(gradients[name], parameter.grad), name
    settings = {"num_beams": 3, "max_new_tokens": 8, "attention_mask": inputs["attention_mask"]}
    assert torch.equal(model.generate(inputs["input_ids"], **settings), bart.generate(inputs["input_ids"], **settings))


def test_without_gradients_many_tokens_widen_in_parts(family, folder, monkeypatch):
    monkeypatch.setattr(bart_body, "TOKENS_AT_ONCE", 8)
    encoder = family.summarizer.from_pretrained(folder, **family.plain).eval().get_encoder()
    widths: list[torch.Size] = []
    for layer in encoder.layers:
        layer.fc1.register_forward_hook(lambda *call: widths.append(call[-1].shape))
    whole = encoder(make_source(15, batch=2)).last_hidden_state
    assert widths == [(2, 15, 20)] * 3
    with torch.no_grad():
        torch.testing.assert_close(encoder(make_source(15, batch=2)).last_hidden_state, whole.detach())
        encoder(make_source(8))
    assert widths[3:] == [(8, 20), (8, 20), (8, 20), (6, 20)] * 3 + [(1, 8, 20)] * 3


@pytest.mark.parametrize("autocast", [False, True])
def test_behind_attention_some_tokens_at_a_time_are_updated(family, folder, autocast, monkeypatch):
    """So that what is between stays in the processor's cache: norms too see no more of them."""
    encoder = family.summarizer.from_pretrained(folder, **family.plain).eval().get_encoder()
    sizes: list[int] = []
    for layer in encoder.layers:
        layer.final_layer_norm.register_forward_hook(lambda *call: sizes.append(call[-1].shape[:-1].numel()))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        whole = encoder(make_source(15, batch=2)).last_hidden_state
        monkeypatch.setattr(bart_body, "TOKENS_AT_ONCE", 8)
        parts = encoder(make_source(15, batch=2)).last_hidden_state
    assert sizes == [30] * 3 + [8, 8, 8, 6] * 3
    torch.testing.assert_close(parts, whole)  # types too


@pytest.mark.parametrize("dropout", ["dropout", "activation_dropout"])
def test_what_is_drawn_twice_is_drawn_alike(family, folder, dropout, monkeypatch):
    """Reentrant checkpointing runs a layer without gradients, and then once more with them."""
    encoder = family.summarizer.from_pretrained(folder, **family.plain, **{dropout: 0.5}).get_encoder().train()
    found = []
    for at_once in (8, 1024):
        monkeypatch.setattr(bart_body, "TOKENS_AT_ONCE", at_once)
        torch.manual_seed(0)
        with torch.no_grad():
            found.append(encoder(make_source(15, batch=2)).last_hidden_state)
    assert torch.equal(*found)


@pytest.mark.parametrize("activation_dropout", [0.0, 0.3])
def test_training_keeps_expanded_states_once(family, folder, activation_dropout):
    """What becomes of them is made again, with the same dropout: loss and gradients are BART's, which keeps it."""
    dropouts = {
        "activation_dropout": activation_dropout,
        "dropout": 0.2,
        "attention_dropout": 0.0,
        "attn_implementation": "sdpa",
    }
    inputs = {"input_ids": make_source(16, batch=2), "labels": make_source(7, batch=2, seed=1)}
    sizes = {(2 * 16 * 20, 20), (2 * 7 * 18, 18)}  # of both sides' states, the width behind
    losses, gradients, kept = [], [], []
    for model in (
        family.summarizer.from_pretrained(folder, **family.plain, **dropouts).train(),
        BartForConditionalGeneration.from_pretrained(folder, **dropouts).train(),
    ):
        found: list[torch.Tensor] = []

        def keep(each: torch.Tensor, found: list[torch.Tensor] = found) -> torch.Tensor:
            found.append(each)
            return each

        torch.manual_seed(0)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
            losses.append(model(**inputs).loss)
        losses[-1].backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        kept.append(sum((each.numel(), each.shape[-1]) in sizes for each in found if each.dim()))
    assert kept == [5, 15 if activation_dropout else 10]  # of five layers
    assert torch.equal(*losses)
    for name, gradient in gradients[1].items():
        assert torch.equal(gradients[0][name], gradient), name


def test_plain_from_pretrained_leaves_only_what_is_its_own_new(family, bart, folder, caplog):
    model, report = family.summarizer.from_pretrained(folder, **family.asked, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert report["missing_keys"]
    assert all(any(part in key for part in family.new) for key in report["missing_keys"])
    assert all(any(part in key for key in report["missing_keys"]) for part in family.new)
    state = model.state_dict()
    for name, value in bart.state_dict().items():
        assert torch.equal(state[name], value), name
    assert type(model.config) is getattr(hier_models, f"{family.prefix}Config")
    assert "instantiate a model of type" not in caplog.text


def test_the_model_without_a_head_loads_too(family, bart, folder):
    model, report = family.body.from_pretrained(folder, output_loading_info=True)
    assert all(any(part in key for part in family.new) for key in report["missing_keys"])
    assert set(report["unexpected_keys"]) <= {"final_logits_bias"}  # BartModel does not take it either
    assert torch.equal(model.get_input_embeddings().weight, bart.model.shared.weight)
    assert torch.equal(model.encoder.layers[2].fc1.weight, bart.model.encoder.layers[2].fc1.weight)


# --------------------------------------------------------------------------------------------------- growing positions


@pytest.mark.parametrize("how", ["tile", "random"])
def test_from_bart_grows_positions(family, bart, folder, how, tmp_path):
    counts = {family.target: 40} | {family.source: 150}
    model = family.summarizer.from_bart(folder, **counts, extra_positions=how, dropout=0.3)
    assert model.config.dropout == 0.3
    for side, name in (("encoder", family.source), ("decoder", family.target)):
        count = counts[name]
        assert getattr(model.config, name) == count
        old = getattr(bart.model, side).embed_positions.weight
        new = getattr(model.model, side).embed_positions.weight
        assert new.shape == (count + 2, 12)
        assert torch.equal(new[:34], old)
        if how == "tile":
            for start in range(34, count + 2, 32):
                assert torch.equal(new[start : start + 32], old[2 : 2 + len(new[start : start + 32])])
        elif count == 150:
            assert 0.01 < new[34:].std() < 0.03
    source = make_source(140)
    logits = model.eval()(source, decoder_input_ids=source[:, :4]).logits
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(source, decoder_input_ids=source[:, :4]).logits, logits)


def test_from_bart_refuses_what_it_cannot_do(family, folder):
    with pytest.raises(ValueError, match="`extra_positions` must be 'tile' or 'random', got 'copy'"):
        family.body.from_bart(folder, extra_positions="copy")
    for name in {family.source, family.target}:
        with pytest.raises(ValueError, match=f"`{name}` must be at least the checkpoint's 32, got 8"):
            family.body.from_bart(folder, **{family.source: 64, name: 8})
        for value in ("64", 64.0, True):
            with pytest.raises(ValueError, match=f"`{name}` must be an integer, got {value!r}"):
                family.body.from_bart(folder, **{family.source: 64, name: value})


def test_from_bart_of_other_families(family, tmp_path):
    """What is not BART's would be left out with a warning, or read as if it were, as mBART's layers."""
    model_type = getattr(hier_models, f"{family.prefix}Config").model_type
    sizes = {"vocab_size": 60, "d_model": 12, "encoder_layers": 1, "decoder_layers": 1}
    others = {"t5": T5Config(), "mbart": MBartConfig(**sizes), "led": LEDConfig(**sizes, attention_window=4)}
    for name, config in others.items():
        config.save_pretrained(tmp_path / name)
        with pytest.raises(ValueError, match=f"a checkpoint of BART or of {model_type}, got one of '{name}'"):
            family.body.from_bart(tmp_path / name)


def test_resizing_refuses_what_it_cannot_do(family, folder):
    model = family.body.from_pretrained(folder)
    for arguments, match in (
        ({"extra_positions": "copy"}, "`extra_positions` must be 'tile' or 'random', got 'copy'"),
        ({"new_num_position_embeddings": 8}, f"`{family.source}` must be at least the checkpoint's 32, got 8"),
        ({"new_num_position_embeddings": 40.0}, f"`{family.source}` must be an integer, got 40.0"),
    ):
        with pytest.raises(ValueError, match=match):
            model.resize_position_embeddings(**{"new_num_position_embeddings": 40, **arguments})
    assert getattr(model.config, family.source) == 32


# --------------------------------------------------------------------------------------------- more than there are


@pytest.fixture(params=WITH_POSITIONS)
def short(request: pytest.FixtureRequest) -> tuple[BartCase, PreTrainedModel, dict[str, torch.Tensor]]:
    """A family, a model of 20 positions of the source and 16 of the target (or 20), and a document."""
    case, family = CASES[request.param], FAMILIES[WITH_POSITIONS[request.param]]
    model = make_model(case, **({family.target: 16} | {family.source: 20}))
    return family, model, collate(case, [case.make_document(9, 0)])


def test_too_long_a_source_says_what_to_do(short):
    family, model, _ = short
    message = (
        rf"source of 24 tokens is longer than {family.source}=20.*`truncation=True`.*"
        rf"resize_position_embeddings\(24\).*from_bart\(…, {family.source}=24\)"
    )
    for cls in (type(model), family.body):
        with pytest.raises(ValueError, match=message):
            cls(model.config)(make_source(24), decoder_input_ids=make_source(3))


def test_too_long_a_target_says_what_to_do(short):
    family, model, document = short
    side = "" if family.target == family.source else ', side="decoder"'
    message = rf"target of 24 tokens.*`max_target_length`.*resize_position_embeddings\(24{side}\)"
    with pytest.raises(ValueError, match=message):
        model(**document, decoder_input_ids=make_source(24))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generating_past_the_positions_says_what_to_do(short, cache):
    family, model, document = short
    settings = {"max_new_tokens": 30, "min_new_tokens": 30, "cache_implementation": cache}
    with pytest.raises(ValueError, match=rf"target of .*{family.target}=(16|20).*`max_new_tokens`"):
        model.generate(**document, **settings)


def test_a_source_of_embeddings_needs_a_target(short):
    with pytest.raises(ValueError, match="`decoder_input_ids`"):
        short[1](inputs_embeds=torch.zeros(1, 8, short[1].config.d_model))

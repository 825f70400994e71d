"""Every recipe and every experiment of examples runs, from beginning to end, on a few rows made on the spot."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, AutoProcessor

from hier_models import HatBartProcessor
from hier_models.experiments import read_comparison, run_sweep
from hier_models.experiments.comparison_checks import check_recipes, check_tasks
from hier_models.training import RecipeError, load_recipe, run_smoke, smoke, smoke_rows, task_class, variant_names
from hier_models.training.recipe_files import check_overrides
from hier_models.training.smoke import shrink
from tests.conftest import DOCUMENTS


FOLDER = Path(__file__).parents[2] / "examples" / "recipes"
RECIPES = sorted(FOLDER.rglob("*.yaml"))
SWEEPS = [path for path in RECIPES if variant_names(path)]
# What is no comparison: the section that they share, and the models that some begin with.
FIRST = (
    "summaries",
    "long_summaries",
    "queries",
    "tagger",
    "mini_phrases_tagger",
    "warm_up_64",
    "warm_up_256",
    "warm_up_512",
    "warm_up",
    "chapters_warm_up",
    "chapters_warm_up_128",
    "coarse_to_fine_warm_up",
    "ham_reader_warm_up",
    "ham_reader_cmrc_warm_up",
    "ham_transformer_warm_up",
    "mini_plain",
    "mini_tagger",
)
# The same task and family as of another recipe, whose examples come from processes of their own: that costs seconds.
READ_AS_OTHERS = (
    *(f"hat_bart/{name}" for name in ("cnn_dailymail", "pubmed", "xsum")),
    *(f"top_down_transformer/{name}" for name in ("booksum_chapters", "cnn_dailymail", "forever_dreaming")),
    *(f"top_down_transformer/{name}" for name in ("pubmed", "tvmegasite")),
)
EXPERIMENTS = sorted(path for path in FOLDER.with_name("experiments").glob("*.yaml") if path.stem not in FIRST)
HAT_BART = FOLDER / "hat_bart"
TOP_DOWN = FOLDER / "top_down_transformer"
COARSE_TO_FINE = FOLDER / "coarse_to_fine_lstm"
HAM = FOLDER / "ham"
HAM_READER = FOLDER / "ham_reader"
# What becomes of 2 heads of 8 in 2 layers of 4 where there are 4 heads and 2 layers; and the decay of the brightness.
HIGHLIGHTING = {
    "copy_transformer": ("weighted", 0, 1, 0.9),
    "weighted": ("weighted", 1, 1, 0.9),
    "additive": ("additive", 1, 1, 0.9),
    "quarter_heads_half_layers": ("weighted", 1, 1, 0.9),
    "half_heads_half_layers": ("weighted", 2, 1, 0.9),
    "all_heads_half_layers": ("weighted", 4, 1, 0.9),
    "quarter_heads_all_layers": ("weighted", 1, 2, 0.9),
    "half_heads_all_layers": ("weighted", 2, 2, 0.9),
    "all_heads_all_layers": ("weighted", 4, 2, 0.9),
    "highlight_transformer": ("weighted", 1, 1, 0.9),
    "without_brightness": ("weighted", 1, 1, 1.0),
    "without_highlight_attention": ("weighted", 0, 1, 0.9),
    "without_self_attention": ("only", 1, 1, 0.9),
}


def sections(path):
    """What a recipe says, by itself or through its base."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "base" not in content:
        return content
    base = sections(path.parent / content.pop("base"))
    return {name: base.get(name, {}) | content.get(name, {}) for name in base | content}


def kinds(path):
    """The variants that a recipe has, without those that set what an earlier one sets, to other values."""
    found = {}
    for name, variant in sections(path).get("variants", {}).items():
        names = {key for values in variant.values() for key in (*values, *(values.get("config_overrides") or ()))}
        found.setdefault(frozenset(names), name)
    return list(found.values())


def to_train(path):
    """The variants of a sweep, without those that only set other numbers than an earlier one; and the last."""
    found = {}
    variants = sections(path)["variants"]
    for name, variant in variants.items():
        found.setdefault(frozenset(settings(variant)), name)
    return list(dict.fromkeys((*found.values(), list(variants)[-1])))


def settings(values):
    """What is set, in whichever section; with its value, where that is no number."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from settings(value)
        else:
            yield name if isinstance(value, int | float) and not isinstance(value, bool) else (name, value)


def sweep_of(path, names, file):
    """A sweep as it is, but for the variants."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if "base" in content:
        content["base"] = str(path.parent / content["base"])
    content["variants"] = {name: content["variants"][name] for name in names}
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return file


def begin(path, changes, name, folder):
    """What a variant begins with: its recipe, the model's configuration, and the processor."""
    folder.mkdir()
    recipe, _ = shrink(path, changes, folder, name)
    model, processor = task_class(recipe.run.task)(recipe, folder).load_model_and_processor()
    return recipe.as_dict(), model.config, processor


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in RECIPES if path not in SWEEPS], ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_recipe_runs(path, tmp_path):
    workers = {"dataloader_num_workers": 0} if f"{path.parent.name}/{path.stem}" in READ_AS_OTHERS else {}
    results = run_smoke(path, {"output_dir": str(tmp_path / "run"), **workers})
    assert (tmp_path / "run" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "run" / "results.json").read_text())["train"]["train_loss"] > 0
    content = sections(path)
    given = content["training"]
    # What the recipe is about was not changed, apart from sizes.
    used = results["recipe"]["training"]
    for name in ("learning_rate", "label_smoothing_factor", "weight_decay", "adam_beta2", "lr_scheduler_type"):
        if name in given:
            assert used[name] == given[name], name
    if given.get("predict_with_generate"):
        assert results["evaluation"]["generation"]["num_beams"] == content["generation"]["num_beams"]
    if content["data"].get("test_split"):
        assert results["test"]["documents"] == 2
    if results["recipe"]["run"]["task"] in ("summarization", "book_summarization"):
        model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
        assert model.config.model_type == path.parent.name
        for name, value in content["model"]["config_overrides"].items():
            assert getattr(model.config, name) == smoke.SIZES.get(name, value), name
    if path.parent == HAT_BART and results["recipe"]["run"]["task"] == "summarization":
        longer = "max_position_embeddings" in content["model"]
        assert model.config.max_position_embeddings == (smoke.GROWN_POSITIONS if longer else smoke.POSITIONS)


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_sweep_runs(path, tmp_path):
    """One variant of each kind is trained; of the others the model is made."""
    trained = to_train(path)
    # Processes that load data are a matter of `test_every_recipe_runs`.
    changes = {"output_dir": str(tmp_path / "run"), "max_steps": 1, "dataloader_num_workers": 0}
    results = run_sweep(sweep_of(path, trained, tmp_path / path.name), changes, smoke=True)
    assert [line.split(" | ")[0] for line in results["table"].splitlines()[2:]] == [f"| {name}" for name in trained]
    assert results["table"] + "\n" == (tmp_path / "run" / "table.md").read_text(encoding="utf-8")
    for name in variant_names(path):
        if name in trained:
            recipe, folder = results["variants"][name]["recipe"], tmp_path / "run" / name
            auto_class = AutoModelForQuestionAnswering if path.parent == HAM_READER else AutoModelForSeq2SeqLM
            config, processor = auto_class.from_pretrained(folder).config, AutoProcessor.from_pretrained(folder)
        else:
            recipe, config, processor = begin(path, changes, name, tmp_path / name)
        if path.parent == HAM_READER:
            assert path.stem.startswith(config.reader)
            assert config.attention_depth == int(name.removeprefix("depth_"))
        elif path.parent == HAT_BART or (path.parent == TOP_DOWN and path.stem != "table_14"):
            check_baseline(name, config, from_scratch=path.stem == "table_7")
        elif path.parent == TOP_DOWN:
            update, _, window = name.rpartition("_")
            assert (config.top_down_update, config.attention_window) == (update, int(window))
        elif path.parent == HAM:
            depth = 1 if name == "ppg" else int(name.removeprefix("ham_"))
            assert (config.model_type, config.body, config.attention_depth) == ("ham", "gru", depth)
            assert config.attention_scoring == ("additive" if name == "ppg" else "scaled_dot_product")
        elif path.parent == COARSE_TO_FINE:
            check_row_of_table_6_1(name, config, processor, recipe)
        else:
            assert highlighting(config) == HIGHLIGHTING[name]
    for found in results["variants"].values():
        if path.parent == HAM:
            assert found["test"]["poems"] == 2
        elif path.parent == COARSE_TO_FINE:
            assert found["test"]["perplexity"] > 1


def check_baseline(name, config, from_scratch):
    """The name of a baseline says which model it is; `--smoke` has one size for all that are from scratch."""
    kind = name.removesuffix("_wide")
    expected = {
        **dict.fromkeys(("hat_bart", "hat"), ("hat_bart", 1, None)),
        "markers": ("hat_bart", 0, None),
        **dict.fromkeys(("bart", "transformer"), ("bart", None, None)),
        "top_down": ("top_down_transformer", None, "cross_attention"),
        "longformer": ("top_down_transformer", None, "none"),
    }[kind]
    found = (getattr(config, field, None) for field in ("hierarchical_layers", "top_down_update"))
    assert (config.model_type, *found) == expected
    assert (config.encoder_ffn_dim == smoke.WIDENED) == (kind != name and not from_scratch)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_compares_fairly(path):
    """Three seeds, one recipe for a variant and its twin, and the model of the lowest validation loss is tested."""
    comparison = read_comparison(path)
    names = variant_names(path)
    recipes = {name: load_recipe(path, (), name, 1) for name in names}
    check_tasks(comparison, recipes)
    differing = set()
    for name, twin in comparison.twins(names).items():
        differing |= set(check_recipes(comparison, name, recipes[name], twin, recipes[twin]))
    assert set(comparison.differs) <= differing
    check_overrides(path, {"seed": 0})
    assert len(comparison.seeds) == 3
    for recipe in recipes.values():
        assert recipe.training.load_best_model_at_end
        assert (recipe.training.metric_for_best_model, recipe.training.greater_is_better) == ("loss", False)
        assert Path(recipe.data.train).parent == Path(recipe.data.test).parent
        assert len({recipe.data.train, recipe.data.validation, recipe.data.test}) == 3
        assert recipe.training.output_dir.startswith(f"runs/experiments/{path.stem}/")


def test_all_experiments_are_found():
    assert len(EXPERIMENTS) > 12
    text = EXPERIMENTS[0].with_name("README.md").read_text(encoding="utf-8")
    assert not [path.stem for path in EXPERIMENTS if f"`{path.stem}`" not in text]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_runs(path, tmp_path):
    changes = {"output_dir": str(tmp_path / "run"), "max_steps": 1, "eval_steps": 1, "save_steps": 1}
    metrics = read_comparison(path).metrics
    for name in kinds(path):
        found = run_smoke(path, changes, name)
        assert metrics[0] in found["test"], name  # made-up poems have no lines of seven characters
        assert (tmp_path / "run" / name / "document_scores.json").is_file()
        body = getattr(AutoConfig.from_pretrained(tmp_path / "run" / name), "body", None)
        assert (body == "transformer") == (path.stem == "ham_transformer")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST[1:])
def test_what_experiments_begin_with_runs(name, tmp_path):
    path, changes = EXPERIMENTS[0].with_name(f"{name}.yaml"), {"output_dir": str(tmp_path / "run"), "max_steps": 1}
    for variant in kinds(path) or [None]:
        run_smoke(path, changes, variant)
        assert (tmp_path / "run" / (variant or "") / "model.safetensors").is_file()


def check_row_of_table_6_1(name, config, processor, recipe):
    model, _, options = name.removeprefix("model_").partition("_")
    assert config.attention == ["standard", "flat", "coarse_to_fine", "hard"][int(model)]
    assert config.row_position_size == (25 if "pos" in options else 0)
    assert config.num_samples == (int(options[-1]) if "multi" in options else 1)
    assert config.alternate_soft == (0.5 if "alternate" in options else 0)
    assert (config.coarse_representation == "bag_of_words") == config.freeze_source_embeddings == ("bow" in options)
    assert recipe["run"]["soft_epochs"] == (1 if "pretrain" in options else None)
    shape = options if options in ("5x80", "2x200") else "10x40"
    assert (f"{processor.num_rows}x{processor.row_length}", processor.pad_grid) == (shape, True)


def highlighting(config):
    assert config.use_copy
    return config.highlighting, config.highlight_heads, config.highlight_layers, config.brightness_decay


@pytest.mark.slow
@pytest.mark.parametrize("tagger", [False, True], ids=["OracleAdaPool", "AdaPool"])
def test_the_rows_that_pool_by_importance_run(tagger, tmp_path):
    """As the head of the recipe says; a tiny tagger stands in for the one that it names."""
    options = ["--importance", "oracle", "--output_dir", str(tmp_path / "run"), "--max_steps=1"]
    options.append("--dataloader_num_workers=0")
    if tagger:
        options += ["--importance_tagger", "runs/top_down_transformer_pubmed_tagger"]
    results = run_smoke(TOP_DOWN / "pubmed.yaml", options)
    at_test = results["smoke"]["importance_tagger"][1] if tagger else "oracle"
    assert results["importance"] == {"train": "oracle", "validation": at_test, "test": at_test}
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").config.pooling == "importance"


@pytest.mark.slow
def test_longformer_s_row_runs(tmp_path):
    changes = {"output_dir": str(tmp_path / "run"), "plain": True, "max_steps": 1, "dataloader_num_workers": 0}
    run_smoke(TOP_DOWN / "pubmed.yaml", changes)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert (model.config.top_down_update, model.config.attention_window) == ("none", 1024)
    assert not any("segment" in key for key in model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn_dailymail", "ami"])
def test_the_plain_rows_run(name, tmp_path):
    changes = {"output_dir": str(tmp_path / "run"), "plain": True, "dataloader_num_workers": 0}
    run_smoke(HAT_BART / f"{name}.yaml", changes)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert (model.config.hierarchical_layers, model.config.num_segments) == (0, 0)
    assert not any("hierarchical" in key or "segments" in key for key in model.state_dict())


def test_meetings_with_everything_that_belongs_to_them(tmp_path):
    """Roles, segments new in a checkpoint that has none, more positions, fillers taken out and counted."""
    results = run_smoke(HAT_BART / "ami.yaml", ["--output_dir", str(tmp_path / "run"), "--max_steps=1"])
    assert results["loading"]["new_weights"] == ["model.encoder.embed_segments.weight"]
    assert results["loading"]["resized_weights"] == results["loading"]["unused_weights"] == []
    assert results["set_aside"]["train"]["filler_words"] > 8
    assert results["set_aside"]["train"]["dropped_turns"] > 4
    processor = HatBartProcessor.from_pretrained(tmp_path / "run")
    assert processor.num_segments == 4
    changed = results["smoke"]
    assert changed["max_source_length"] == (3072, 160)
    assert changed["total_train_batch_size"] == (8, 4)
    assert not {"num_beams", "config_overrides"} & set(changed)


def test_documents_with_phrases_of_their_own(tmp_path):
    recipe = FOLDER / "highlight_transformer" / "multi_news.yaml"
    options = ["--output_dir", str(tmp_path / "run"), "--dataloader_num_workers=0"]
    results = run_smoke(recipe, [*options, "--max_steps=1", "--phrases_column=ours"])
    found = results["truncation"]["train"]
    assert found["without_phrases"] == 0
    assert 0 < found["missing_phrases"] < 5 * found["documents"]


def test_nothing_is_left_behind_and_the_user_s_cache_is_not_touched(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(smoke.tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path)
    # Loaders in processes would need a socket there, and paths of sockets have at most 108 characters.
    results = run_smoke(HAT_BART / "cnn_dailymail.yaml", {"max_steps": 1, "dataloader_num_workers": 0})
    assert results["recipe"]["training"]["output_dir"].startswith(str(tmp_path / "temporary"))
    assert tmp_path / "cache" == datasets.config.HF_DATASETS_CACHE
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_recipe_s_mistakes_come_to_light(tmp_path):
    path = tmp_path / "a.yaml"
    content = sections(HAT_BART / "xsum.yaml")
    del content["data"]["validation_split"]
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(RecipeError, match="eval_strategy is on, but data: validation is not given"):
        run_smoke(path)
    with pytest.raises(RecipeError, match="unknown name 'learning_rte'"):
        run_smoke(HAT_BART / "xsum.yaml", ["--learning_rte", "1"])


def test_one_process_only(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="smoke: runs in one process"):
        run_smoke(HAT_BART / "xsum.yaml")


def test_bfloat16_where_there_is_none(tmp_path, monkeypatch):
    """The recipes compute in bfloat16: a message that helps, and --smoke runs without."""
    refusal = "Your setup doesn't support bf16/gpu."

    def refuse(self):
        if self.bf16:
            raise ValueError(refusal)

    monkeypatch.setattr("transformers.Seq2SeqTrainingArguments.__post_init__", refuse)
    with pytest.raises(RecipeError, match=r"bf16: true needs a device with bfloat16.*--fp16 true.*--use_cpu true"):
        load_recipe(HAT_BART / "xsum.yaml")
    monkeypatch.undo()
    post_init = load_recipe(None, ["--use_cpu"]).training.__class__.__post_init__

    def refuse_then_go_on(self):
        refuse(self)
        post_init(self)

    monkeypatch.setattr("transformers.Seq2SeqTrainingArguments.__post_init__", refuse_then_go_on)
    recipe, changes = shrink(HAT_BART / "xsum.yaml", ["--num_beams", "1"], tmp_path)
    assert not recipe.training.bf16
    assert changes["bf16"] == (True, False)


def test_half_precision_on_the_cpu(tmp_path):
    if torch.accelerator.is_available():
        recipe, changes = shrink(HAT_BART / "xsum.yaml", ["--use_cpu", "--bf16=false", "--fp16"], tmp_path)
    else:
        recipe, changes = shrink(HAT_BART / "xsum.yaml", ["--bf16=false", "--fp16"], tmp_path)
    assert not recipe.training.fp16
    assert changes["fp16"] == (True, False)


def test_tokenizer_and_rows():
    tokenizer = smoke_rows.train_tokenizer([{"a": DOCUMENTS, "b": [{"c": "zebra"}]}, {"a": 1}])
    assert tokenizer.decode(tokenizer("zebra").input_ids) == "zebra"
    assert tokenizer.bos_token_id != tokenizer.eos_token_id

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from hier_models.training import Recipe, RecipeError, load_recipe, variant_names
from hier_models.training.arguments import SECTIONS
from hier_models.training.models import _without_hierarchy, source_length
from hier_models.training.recipe_files import comparison_section


RECIPES = sorted((Path(__file__).parents[2] / "examples" / "recipes").rglob("*.yaml"))
EXPERIMENTS = sorted((Path(__file__).parents[2] / "examples" / "experiments").glob("*.yaml"))

JSON_OPTIONS = ("config_overrides", "processor_overrides", "learning_rates")


def write(path: Path, content: dict | str) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_recipe_loads_and_means_what_it_says(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content.pop("base", None)
    variants = content.pop("variants", {})
    assert list(variants) == variant_names(path)
    for name, changes in variants.items():
        recipe = load_recipe(path, ["--use_cpu"], name)
        for section, values in changes.items():
            for option, value in values.items():
                loaded = getattr(getattr(recipe, section), option)
                if option in JSON_OPTIONS and value is not None:  # merged with those of the base
                    assert value.items() <= json.loads(loaded).items()
                else:
                    assert loaded == value, option
        assert recipe.training.output_dir == f"{content['training']['output_dir']}/{name}"
    if variants:
        return
    recipe = load_recipe(path, ["--use_cpu"])
    for section, values in content.items():
        for name, value in values.items():
            loaded = getattr(getattr(recipe, section if hasattr(recipe, section) else "options"), name)
            if name in JSON_OPTIONS:
                loaded = json.loads(loaded)
            assert loaded == value, name


def recipe_of(name, family="hat_bart"):
    (path,) = [path for path in RECIPES if (path.parent.name, path.stem) == (family, name)]
    return load_recipe(path, ["--use_cpu"])


@pytest.mark.parametrize(
    ("name", "source"), [("pubmed", "ccdv/pubmed-summarization"), ("arxiv", "ccdv/arxiv-summarization")]
)
def test_the_recipes_of_papers_are_the_paper_s(name, source):
    """Section 4.1, "Long sequence datasets"."""
    recipe = recipe_of(name)
    data, training, generation = recipe.data, recipe.training, recipe.generation
    assert data.train == source
    assert (data.max_source_length, data.max_target_length) == (3072, 512)
    assert recipe.run.total_train_batch_size == 128
    assert (training.weight_decay, training.adam_beta1, training.adam_beta2) == (0.01, 0.9, 0.999)
    assert (training.max_steps, training.warmup_steps, training.learning_rate) == (30000, 900, 3e-5)
    assert (training.lr_scheduler_type, training.label_smoothing_factor) == ("linear", 0.1)
    assert training.adam_epsilon == 1e-8
    assert training.bf16
    assert (generation.num_beams, generation.length_penalty) == (2, 1.0)
    assert (generation.min_length, generation.max_length) == (72, 966)
    # Its decoding is given whole; left out, these would be bart-large's.
    assert (generation.no_repeat_ngram_size, generation.early_stopping) == (0, False)
    assert recipe.model.overrides() == {"hierarchical_layers": 1, "dropout": 0.1, "attention_dropout": 0.1}
    assert (recipe.model.max_position_embeddings, recipe.model.extra_positions) == (3072, "random")


@pytest.mark.parametrize(
    ("name", "source"), [("cnn_dailymail", "abisee/cnn_dailymail"), ("xsum", "EdinburghNLP/xsum")]
)
def test_the_recipes_of_news_are_the_paper_s(name, source):
    """Section 4.1, "News datasets"."""
    recipe = recipe_of(name)
    data, training, generation = recipe.data, recipe.training, recipe.generation
    assert data.train == source
    assert (data.max_source_length, data.max_target_length) == (1024, 256)
    assert recipe.run.total_train_batch_size == 64
    assert (training.max_steps, training.learning_rate, training.lr_scheduler_type) == (20000, 3e-5, "linear")
    assert (generation.num_beams, generation.length_penalty) == (1, None)
    if name == "cnn_dailymail":
        assert (generation.min_length, generation.max_length, generation.no_repeat_ngram_size) == (40, 120, 0)


@pytest.mark.parametrize("name", ["samsum", "ami", "icsi"])
def test_the_recipes_of_conversations_are_the_paper_s(name):
    """Section 4.1, "Conversational datasets" and "Meeting datasets"."""
    recipe = recipe_of(name)
    assert recipe.data.source_kind == "turns"
    assert recipe.model.overrides()["num_segments"] >= 4
    assert recipe.model.model_name_or_path == recipe_of("cnn_dailymail").training.output_dir
    assert recipe.data.fillers == (None if name == "samsum" else "english")


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("pubmed", 8192),
        ("arxiv", 16384),
        ("cnn_dailymail", 1024),
        ("tvmegasite", 12288),
        ("forever_dreaming", 12288),
        ("booksum_chapters", 12288),
        ("booksum_books", 12288),
    ],
)
def test_the_recipes_of_the_top_down_transformer_are_the_paper_s(name, length):
    """Section 3 and appendix B."""
    recipe = recipe_of(name, "top_down_transformer")
    assert recipe.data.max_source_length == length
    assert recipe.model.model_type == "top_down_transformer"
    assert recipe.model.overrides() == {
        "bottom_up_layers": 8,
        "top_down_layers": 4,
        "segment_layers": 2,
        "attention_window": 1024,
        "pooling_kernel": 32,
        "pooling_stride": 24,
        "attention_dropout": 0.0,
    }
    training = recipe.training
    assert training.load_best_model_at_end
    assert (training.metric_for_best_model, training.greater_is_better) == ("rouge2", True)
    if name == "booksum_books":
        chapters = recipe_of("booksum_chapters", "top_down_transformer")
        assert (recipe.model.from_bart, recipe.model.model_name_or_path) == (None, chapters.training.output_dir)
    else:
        assert recipe.model.from_bart == "facebook/bart-large"


def with_bases(path):
    """What a recipe and those that it begins with say."""
    text = path.read_text(encoding="utf-8")
    base = yaml.safe_load(text).get("base")
    return text + (with_bases(path.parent / base) if base else "")


@pytest.mark.parametrize("path", [*RECIPES, *EXPERIMENTS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_new_modules_begin_as_in_the_papers_and_as_they_were_measured(path):
    for variant in variant_names(path) or [None]:
        model = load_recipe(path, ["--use_cpu"], variant).model
        is_warm = model.from_bart or model.from_roberta or "num_segments" in model.overrides()
        text = with_bases(path)
        if is_warm or "new_modules" in text:
            assert model.new_modules == ("identity" if "new_modules: identity" in text else "random")
            # BART's own of 0.1 makes local attention slow; of HAT's the paper says that it is 0.1.
            if "bart-large" in str(model.from_bart):
                expected = 0.1 if model.model_type == "hat_bart" else 0.0
                assert model.overrides()["attention_dropout"] == expected


@pytest.mark.parametrize(
    "path",
    [path for path in RECIPES if "tagger.yaml's" in path.read_text(encoding="utf-8")],
    ids=lambda path: path.stem,
)
def test_taggers_are_trained_on_the_summarizer_s_data(path):
    """By the options that stand in the head of the summarizer's recipe."""
    (lines,) = re.findall(r"tagger\.yaml's, with\n#\n((?:#   .*\n)+)", path.read_text(encoding="utf-8"))
    options = re.sub(r"^#|\\$", "", lines, flags=re.MULTILINE).split()
    data = load_recipe(path, ["--use_cpu"]).data
    tagger = load_recipe(path.with_name("tagger.yaml"), ["--use_cpu", *options]).data
    for name in ("train", "train_split", "validation_split", "text_column", "summary_column", "max_source_length"):
        assert getattr(tagger, name) == getattr(data, name), name
    if not str(data.train).startswith("data/"):  # on the Hub, where what has no configurations has this one
        assert tagger.config_name == (data.config_name or "default")


@pytest.mark.parametrize(
    ("table", "twins"),
    [
        ("hat_bart/table_3", {"bart_wide": "hat_bart", "markers_wide": "hat_bart", "markers": "bart"}),
        ("hat_bart/table_4", {"bart_wide": "hat_bart"}),
        ("hat_bart/table_7", {"transformer_wide": "hat", "markers_wide": "hat", "markers": "transformer"}),
        ("top_down_transformer/table_2", {"longformer_wide": "top_down"}),
        ("top_down_transformer/table_3", {"bart_wide": "top_down", "longformer": "bart"}),
    ],
)
def test_the_baselines_of_a_table_are_as_large_as_they_say(table, twins):
    """And all have one recipe but for the model."""
    (path,) = [path for path in RECIPES if f"{path.parent.name}/{path.stem}" == table]
    recipes = {name: load_recipe(path, ["--use_cpu"], name) for name in variant_names(path)}
    first = next(iter(recipes.values()))
    for recipe in recipes.values():
        assert (recipe.data, recipe.generation) == (first.data, first.generation)
        assert recipe.training.max_steps == first.training.max_steps

    def parameters(model):
        overrides = model.overrides()
        if model.plain:
            overrides = _without_hierarchy(model.model_type, overrides)
        overrides |= source_length(model.model_type, 1024)  # the same for all
        with torch.device("meta"):
            made = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(model.model_type, **overrides))
        return sum(parameter.numel() for parameter in made.parameters())

    names = {*twins, *twins.values()}
    counted = {name: parameters(recipes[name].model) for name in names}  # their defaults have bart-large's sizes
    for name, twin in twins.items():
        assert counted[name] == pytest.approx(counted[twin], rel=0.002), name


def test_the_sweep_is_table_14():
    (path,) = [path for path in RECIPES if path.stem == "table_14"]
    pubmed = recipe_of("pubmed", "top_down_transformer")
    found = set()
    for name in variant_names(path):
        recipe = load_recipe(path, ["--use_cpu"], name)
        assert recipe.data == pubmed.data
        overrides = pubmed.model.overrides() | {"top_down_update": "cross_attention"} | recipe.model.overrides()
        found.add((overrides["top_down_update"], overrides["attention_window"]))
    windows = {("cross_attention", window) for window in (32, 64, 128, 256, 512, 1024)}
    assert found == windows | {("concat", 1024), ("none", 1024)}


@pytest.mark.parametrize(
    "path", [path for path in RECIPES if path.parent.name != "hat_encoder"], ids=lambda path: path.stem
)
def test_a_recipe_begins_with_its_command_and_its_row(path):
    head = re.split(r"^\w+:", path.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
    assert f"hier-models train examples/recipes/{path.parent.name}/{path.name}" in head
    assert re.search("of the (paper's|thesis') Table", head)
    # What stands in no paper is said to be ours; a sweep says nothing of its own.
    assert "ours" in path.read_text(encoding="utf-8") or variant_names(path)


def test_the_command_line_wins_over_the_file(tmp_path):
    path = write(
        tmp_path / "a.yaml",
        {"training": {"learning_rate": "3e-5", "max_steps": -1, "bf16": False}, "data": {"train": "a.jsonl"}},
    )
    plain = load_recipe(path)
    assert isinstance(plain, Recipe)
    assert (plain.training.learning_rate, plain.training.max_steps, plain.data.train) == (3e-5, -1, "a.jsonl")
    for overrides in (
        ["--learning_rate", "1e-4", "--max-steps=7", "--streaming", "--num_beams", "3"],
        {"learning_rate": 1e-4, "max_steps": 7, "streaming": True, "num_beams": 3},
    ):
        recipe = load_recipe(path, overrides)
        assert (recipe.training.learning_rate, recipe.training.max_steps) == (1e-4, 7)
        assert (recipe.data.streaming, recipe.data.train) == (True, "a.jsonl")
        assert recipe.generation.settings() == {"num_beams": 3}


def test_sources_are_as_long_as_the_checkpoint_was_trained_to_read(tmp_path):
    def length(**values):
        return load_recipe(None, values).data.max_source_length

    assert (length(), length(model_name_or_path="mini")) == (1024, 512)
    assert length(model_name_or_path="mini", max_source_length=300) == 300
    assert length(model_name_or_path="mini", task="denoising") == 1024
    for content, found in (
        ({"task_specific_params": {"summarization": {"max_source_length": 77}}}, 77),
        ({"task_specific_params": {"translation": {"max_source_length": 77}}}, 1024),
        ({"task_specific_params": None}, 1024),
        ("no JSON", 1024),
    ):
        write(tmp_path / "config.json", content if isinstance(content, str) else json.dumps(content))
        for task in ("summarization", "book_summarization"):
            assert length(model_name_or_path=str(tmp_path), task=task) == found
    assert length(model_name_or_path="facebook/bart-base") == 1024


def test_mappings_lists_and_nothing(tmp_path):
    path = write(
        tmp_path / "a.yaml",
        {
            "model": {"config_overrides": {"dropout": 0.2}, "tokenizer": None},
            "training": {"lr_scheduler_kwargs": {"num_cycles": 2}, "report_to": "none", "label_names": ["labels"]},
            "data": None,
        },
    )
    recipe = load_recipe(path)
    assert recipe.model.overrides() == {"dropout": 0.2}
    assert recipe.model.tokenizer is None
    assert recipe.training.lr_scheduler_kwargs == {"num_cycles": 2}
    assert recipe.training.label_names == ["labels"]


@pytest.mark.parametrize("number", ["1e-4", "1E-4", "-1e+2", "1.5e3", ".5e1", "0.1", "-.5", "3."])
def test_numbers_in_mappings_and_lists_are_numbers(tmp_path, number):
    what = f"{{encoder: {number}, decoder: [{number}]}}"
    text = f"run: {{learning_rates: {what}}}\nvariants: {{a: {{}}}}\ncomparison: {{tolerance: {number}}}\n"
    (tmp_path / "a.yaml").write_text(f"{text}training: {{learning_rate: {number}, output_dir: x}}\n")
    recipe = load_recipe(tmp_path / "a.yaml", variant="a")
    assert recipe.run.rates() == {"encoder": float(number), "decoder": [float(number)]}
    assert recipe.training.learning_rate == float(number)
    assert comparison_section(tmp_path / "a.yaml") == {"tolerance": float(number)}


@pytest.mark.parametrize("text", ["1e", "e4", "1e-4m", "1.2.3", "x1e4", "1-2"])
def test_what_is_no_number_stays_text(tmp_path, text):
    (tmp_path / "a.yaml").write_text(f"model: {{config_overrides: {{name: {text}}}}}\n")
    assert load_recipe(tmp_path / "a.yaml").model.overrides() == {"name": text}


def test_yes_and_no_are_words_where_text_is_meant_and_turn_switches(tmp_path):
    """YAML 1.1, which PyYAML reads, has them be true and false everywhere."""
    text = """
run: {task: classification, overwrite: yes}
model: {language: no, plain: on, config_overrides: {use_cache: off, labels: [yes, true]}}
data: {config_name: No, streaming: off}
classification: {classes: [yes, no, true]}
training: {save_strategy: no, eval_on_start: YES, resume_from_checkpoint: no, output_dir: x, greater_is_better: off}
variants: {on: {}, off: {data: {streaming: true}}}
comparison: {check_overlap: off, twin: off}
"""
    (tmp_path / "a.yaml").write_text(text)
    assert variant_names(tmp_path / "a.yaml") == ["on", "off"]
    assert comparison_section(tmp_path / "a.yaml") == {"check_overlap": False, "twin": "off"}
    recipe = load_recipe(tmp_path / "a.yaml", variant="on")
    assert (recipe.model.language, recipe.data.config_name, recipe.training.save_strategy) == ("no", "No", "no")
    assert recipe.options.classes == ["yes", "no", "true"]
    assert (recipe.run.overwrite, recipe.model.plain, recipe.data.streaming) == (True, True, False)
    assert recipe.model.overrides() == {"use_cache": False, "labels": [True, True]}
    assert (recipe.training.eval_on_start, recipe.training.greater_is_better) == (True, False)
    assert recipe.training.resume_from_checkpoint == "false"
    assert load_recipe(tmp_path / "a.yaml", variant="off").data.streaming is True


@pytest.mark.parametrize("name", ["gradient_checkpointing", "activation_checkpointing"])
def test_both_names_of_gradient_checkpointing_work(tmp_path, name):
    for recipe in (
        load_recipe(write(tmp_path / "a.yaml", {"training": {name: True}})),
        load_recipe(None, {name: True}),
        load_recipe(None, [f"--{name}"]),
        load_recipe(None, [f"--{name.replace('_', '-')}=true"]),
    ):
        assert recipe.training.gradient_checkpointing is True


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"training": {"learning_rte": 1}},
            r"section 'training': unknown name 'learning_rte'; did you mean learning_rate",
        ),
        ({"data": {"max_source_len": 1}}, "unknown name 'max_source_len'; did you mean max_source_length"),
        ({"data": {"learning_rate": 1}}, "'learning_rate' belongs to section 'training'"),
        ({"mdel": {}}, "unknown section 'mdel'; did you mean model"),
        ({"xyz": {}}, "unknown section 'xyz'; allowed are data, generation, model, run, training"),
        ({"data": ["train"]}, "section 'data' must be a mapping"),
        ("- a\n- b\n", "must hold the sections model, data, generation, run, training"),
        ("a: [", "is no YAML"),
        ("data: {train: a}\nrun: {}\ndata: {validation: b}\n", "is no YAML: 'data' is given twice"),
        ("data:\n  train: a\n  train: b\n", r"'train' is given twice\n.*line 3"),
        ({"data": {"train": ["a", "b"]}}, r"section 'data': 'train' takes one value, got \['a', 'b'\]"),
        ({"data": {"max_train_documents": 0}}, "data: max_train_documents must be at least 1, got 0; leave it out"),
        ({"data": {"max_test_documents": -1}}, "data: max_test_documents must be at least 1, got -1"),
        ({"data": {"max_source_length": 0}}, "data: max_source_length must be at least 1, got 0"),
        ({"run": {"total_train_batch_size": 0}}, "run: total_train_batch_size must be at least 1, got 0"),
        ({"generation": {"num_beams": 0}}, "generation: num_beams must be at least 1, got 0"),
        ({"generation": {"max_length": 1}}, "generation: max_length must be at least 2, got 1; the decoder's start"),
        ({"training": {"max_steps": "many"}}, "argument --max_steps.*invalid int value: 'many'"),
        ({"data": {"bad_lines": "skip"}}, "argument --bad_lines.*invalid choice: 'skip'"),
        ({"training": {"lr_scheduler_type": "lineal"}}, "lineal"),
        ({"model": {"from_bart": "a", "model_name_or_path": "b"}}, "model_name_or_path and from_bart are both given"),
        ({"run": {"task": "summaries"}}, "run: task must be one of summarization, .* got 'summaries'"),
        ({"masked_lm": {}}, "section 'masked_lm' goes with run: task: masked_lm"),
        ({"data": {"source_kind": "turn"}}, "argument --source_kind.*invalid choice: 'turn'"),
        ({"model": {"config_overrides": "{"}}, "config_overrides is no JSON"),
        ({"model": {"config_overrides": "3"}}, "config_overrides must be a JSON object"),
    ],
)
def test_mistakes_in_a_file(tmp_path, content, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(write(tmp_path / "a.yaml", content))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--learning_rte", "1"], "the command line: unknown name 'learning_rte'; did you mean learning_rate"),
        (["--learn", "1"], "unknown name 'learn'"),
        (["learning_rate", "1"], "cannot use 'learning_rate 1': options are given as --name value"),
        ({"learning_rte": 1}, "overrides: unknown name 'learning_rte'; did you mean learning_rate"),
        (["--max_steps"], "argument --max_steps.*expected one argument"),
    ],
)
def test_mistakes_on_the_command_line(overrides, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(None, overrides)


def test_a_missing_file(tmp_path):
    with pytest.raises(RecipeError, match=r"no such recipe: .*none.yaml"):
        load_recipe(tmp_path / "none.yaml")


def test_a_recipe_can_be_written_as_json(tmp_path):
    recipe = load_recipe(None, {"output_dir": str(tmp_path), "train": "a"})
    content = json.loads(json.dumps(recipe.as_dict()))
    assert set(content) == set(SECTIONS)
    assert content["data"]["train"] == "a"
    assert content["training"]["output_dir"] == str(tmp_path)


def test_the_recipes_of_poems_are_the_paper_s():
    """HAM, section 5.2 and Table 2."""
    recipe = recipe_of("poems", "ham")
    assert (recipe.run.task, recipe.model.model_type) == ("poem_generation", "ham")
    assert recipe.model.overrides() == {
        "body": "gru",
        "attention_depth": 10,
        "attention_scoring": "scaled_dot_product",
        "d_model": 512,
        "embedding_size": 512,
        "dropout": 0.2,
    }
    assert (recipe.options.held_out_validation, recipe.options.held_out_test) == (2000, 2000)
    (path,) = [path for path in RECIPES if path.parent.name == "ham" and path.stem == "table_2"]
    variants = {name: load_recipe(path, ["--use_cpu"], name).model.overrides() for name in variant_names(path)}
    assert {name: (made["attention_depth"], made["attention_scoring"]) for name, made in variants.items()} == {
        "ppg": (1, "additive"),  # as in its released code
        **{f"ham_{depth}": (depth, "scaled_dot_product") for depth in (1, 5, 10, 20)},
    }

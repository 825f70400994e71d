"""What a newcomer meets first: the README, docs/, the Makefile, the version, and how long the import takes."""

import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest
from transformers import BartConfig, BartForConditionalGeneration, RobertaConfig, RobertaForMaskedLM

import hier_models
from hier_models.books import read_book
from hier_models.data import train_word_level
from hier_models.training import variant_names
from tests import forks
from tests.conftest import pytest_collection_modifyitems


ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
# With the pages of the site that stand elsewhere, which have no code to run in a folder of a user's.
LINKING = PAGES | {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "model_cards/*.md", "examples/*/README.md")
    for path in sorted(ROOT.glob(pattern))
}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([a-z][a-z-]*):(?!=)", MAKEFILE, re.MULTILINE)

# Commands of the pages that set up a machine. `.ci/run` goes through them, in its own way.
SET_UP = (
    "git clone ",
    "npm install ",
    "cd ",
    "pip install ",
    "python -m pip install ",
    "python3 -m venv ",
    ". .venv/",
    "source .venv/",
)

# Commands that try a recipe: tests/training/test_smoke.py runs them all.
TRIED = re.compile(r"hier-models train (examples/recipes/\S+\.yaml)(?: --variant (\w+))? --smoke")

# Proofs of mechanisms, minutes each: a test of its own runs each of them in its smallest form.
PROOF = re.compile(r"python examples/mechanisms/(\w+)\.py(?: --[\w .\"-]+)?")

# Pages on packages that are not ours to install: tests/pipelines/test_with_others.py runs them where they are.
OTHERS = ("docs/guides/with_others.md",)

IMPORT_TIMER = """
import sys, time
import transformers
loaded, begun = set(sys.modules), time.perf_counter()
import hier_models
print(time.perf_counter() - begun)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - loaded}))
"""


def test_import_is_light():
    seconds = []
    for _ in range(5):  # the least of several runs: what else the machine does only adds
        result = subprocess.run([sys.executable, "-c", IMPORT_TIMER], capture_output=True, text=True, check=True)
        time_taken, packages = result.stdout.splitlines()
        seconds.append(float(time_taken))
        assert not {"torch", "datasets", "evaluate", "matplotlib", "fastapi"} & set(packages.split())
        if seconds[-1] < 0.5:
            return
    pytest.fail(f"`import hier_models` adds {min(seconds):.2f} s to `import transformers`, at best; 0.5 is allowed.")


@pytest.mark.parametrize("name", hier_models.__all__)
def test_public_name_is_there_and_documented(name):
    assert getattr(hier_models, name).__doc__
    assert name in dir(hier_models)


@pytest.mark.parametrize("name", [name for name in hier_models.__all__ if name.endswith("Tokenizer")])
def test_tokenizer_may_be_the_first_thing_that_is_imported(name):
    """Registration asks for it as soon as something asks for AutoTokenizer, which it may do itself."""
    command = f"from hier_models import {name}; print({name}.__name__)"
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout.strip() == name, result.stderr


def test_a_look_for_a_module_leaves_its_registration_to_come():
    """As of those who ask whether something is installed."""
    command = (
        "import importlib.util, hier_models; assert importlib.util.find_spec('transformers.pipelines'); "
        "from transformers.pipelines import PIPELINE_REGISTRY; print(*PIPELINE_REGISTRY.check_task('summarization'))"
    )
    result = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert "SummarizationPipeline" in result.stdout, result.stderr


def test_public_names_are_sorted_and_unique():
    names = set(hier_models.__all__)
    assert hier_models.__all__ == sorted(names)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="HatBrat"):
        hier_models.HatBrat  # noqa: B018


def test_version_is_the_same_everywhere():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)
    assert hier_models.__version__ == PROJECT["version"] == newest[1]


def test_package_is_typed():
    assert (ROOT / "hier_models" / "py.typed").exists()


def test_make_help_lists_every_target():
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"help", "demo", "test"} <= set(TARGETS)
    assert re.findall(r"^  ([a-z-]+) +\S", listed.partition("Variables:")[0], re.MULTILINE) == TARGETS


def test_every_target_without_a_file_is_phony():
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)[1].replace("\\\n", " ").split()
    assert set(phony) == {*TARGETS, "FORCE"}


def code_blocks(page: str, *languages: str) -> list[str]:
    """A page's fenced blocks in these languages."""
    return [
        text
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
        if language in languages
    ]


def shell_commands(*pages: str) -> list[str]:
    """The commands of pages' shell blocks, with continued lines joined; output after `$ ` prompts left out."""
    commands = []
    for block in [block for page in pages for block in code_blocks(page, "console", "bash", "sh", "shell")]:
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        commands += [re.sub(r"\s+#.*", "", line) for line in lines if line and not line.startswith("#")]
    return list(dict.fromkeys(commands))


def test_readme_is_short_and_names_the_two_commands():
    assert len(README.splitlines()) <= 200
    assert {"make demo", "make test"} <= set(shell_commands("README.md"))


def test_readme_shows_the_text_that_it_summarizes():
    quoted = " ".join(line.removeprefix("> ") for line in README.splitlines() if line.startswith(">"))
    assert " ".join((ROOT / "docs" / "ferry.txt").read_text(encoding="utf-8").split()) in quoted
    assert (ROOT / "docs" / "ferry.svg").stat().st_size < 100_000


def test_readme_as_a_book_is_what_the_guide_says_of_it():
    for line in read_book(ROOT / "README.md").report().splitlines():
        assert line in PAGES["docs/guides/books.md"]


def test_commands_of_pages_are_known():
    for command in shell_commands(*PAGES):
        if command.startswith("make "):
            assert command.split()[1] in TARGETS, command
        elif tried := TRIED.fullmatch(command):
            assert tried[2] in (None, *variant_names(ROOT / tried[1])), command
        elif proof := PROOF.fullmatch(command):
            assert (ROOT / "tests" / "experiments" / f"test_mechanisms_{proof[1]}.py").is_file(), command
        else:
            assert "hier-models " in command or command.startswith(SET_UP), f"not covered by a test: {command}"


def test_api_pages_have_every_public_name():
    shown = re.findall(r"^::: hier_models\.(\S+)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert len(shown) == len(set(shown))
    assert {name for name in shown if "." not in name} == set(hier_models.__all__) - {"MINI"}


@pytest.mark.parametrize("room", ["books", "data", "experiments", "hub", "inspection", "metrics", "pipelines"])
def test_api_page_of_a_room_has_its_names(room):
    shown = re.findall(r"^::: hier_models\.(?:\w+\.)?(\w+)$", "\n".join(PAGES.values()), re.MULTILINE)
    names = importlib.import_module(f"hier_models.{room}").__all__
    assert set(names) - {"register_pipelines"} <= set(shown)


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", LINKING[page]):
        assert (ROOT / page).parent.joinpath(link).exists(), f"{page}: {link}"


@pytest.fixture(scope="module")
def made() -> list[Path]:
    """The folder that `user_folder` copies, once it is made: of fixtures that are made for each test."""
    return []


@pytest.fixture
def user_folder(request, tmp_path, tmp_path_factory, made):
    """A folder as the pages' reader has it after `make demo`, with tiny models in the places that they name."""
    if not made:
        names = list(inspect.signature(make_user_folder).parameters)[1:]
        made.append(tmp_path_factory.mktemp("user"))
        make_user_folder(made[0], *map(request.getfixturevalue, names))
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def make_user_folder(
    folder,
    tiny_model,
    processor,
    tiny_top_down,
    tiny_tagger,
    top_down_processor,
    tiny_highlight,
    highlight_processor,
    coarse_model,
    coarse_processor,
    tokenizer,
):
    from tests.conftest import DOCUMENTS, SUMMARIES
    from tests.data.pdf_files import column, write_pdf

    hier_models.export(tiny_model, processor, folder / "outputs/demo/model")
    tiny_model.config.task_specific_params = {"translation": {"max_source_length": 64}}
    hier_models.export(tiny_model, processor, folder / "runs/hat_wmt19_en_de")
    runs = folder / "runs"
    hier_models.export(tiny_tagger, top_down_processor, runs / "top_down_transformer_pubmed_tagger")
    hier_models.export(tiny_top_down, top_down_processor, runs / "top_down_transformer_pubmed_adapool")
    tiny_top_down.config.pooling = "average"
    hier_models.export(tiny_top_down, top_down_processor, runs / "top_down_transformer_pubmed")
    hier_models.export(tiny_highlight, highlight_processor, runs / "highlight_transformer_multi_news")
    hier_models.export(coarse_model("hard"), coarse_processor, runs / "coarse_to_fine_lstm_cnn_dailymail")
    sizes = {name: getattr(tiny_model.config, name) for name in ("vocab_size", "d_model", "max_position_embeddings")}
    bart = BartForConditionalGeneration(
        BartConfig(**sizes, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4)
    )
    for name in ("facebook/bart-base", "facebook/bart-large"):
        bart.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    roberta = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=130,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    RobertaForMaskedLM(roberta).save_pretrained(folder / "FacebookAI/roberta-base")
    tokenizer.save_pretrained(folder / "FacebookAI/roberta-base")
    (folder / "paper.txt").write_text(DOCUMENTS[0], encoding="utf-8")
    write_pdf(folder / "paper.pdf", [column(textwrap.wrap(text, 60)) for text in DOCUMENTS[:2]])
    (folder / "notes.md").write_text(f"# Notes\n\n{DOCUMENTS[1]}\n", encoding="utf-8")
    (folder / "talk.vtt").write_text(f"WEBVTT\n\n00:01.000 --> 00:09.000\n{DOCUMENTS[2]}\n", encoding="utf-8")
    (folder / "papers").mkdir()
    lines = []
    for number, (document, summary) in enumerate(zip(DOCUMENTS, SUMMARIES, strict=True)):
        (folder / "papers" / f"{number}.txt").write_text(document, encoding="utf-8")
        lines.append(json.dumps({"text": document, "summary": summary}))
    (folder / "papers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "articles.jsonl").write_text(json.dumps({"documents": DOCUMENTS[:3]}) + "\n", encoding="utf-8")
    chat = 'chat\n"Ann: Um, hello.\nBob: Uh.\nAnn: Bye."\n'
    (folder / "chats.csv").write_text(chat, encoding="utf-8")
    write_poems(folder)
    write_questions(folder)
    shutil.copytree(ROOT / "examples" / "recipes", folder / "examples" / "recipes")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "ferry.txt", folder / "docs")


def write_poems(folder: Path) -> None:
    """Poems as users have them, those of the npm package, and a tiny model that writes them."""
    from tests.ham.poems import POEMS, poem_processor

    # Three times each: rarer words are no keywords.
    lines = [json.dumps({"lines": poem}, ensure_ascii=False) for poem in POEMS * 3]
    (folder / "poems.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "letters.jsonl").write_text(json.dumps({"text": "春风吹青山"}) + "\n", encoding="utf-8")
    package = folder / "node_modules/chinese-poetry/dist/quantangshi"
    package.mkdir(parents=True)
    records = [{"author": "", "title": "", "paragraphs": [f"{a}，{b}。", f"{c}，{d}。"]} for a, b, c, d in POEMS]
    (package / "poet.tang.0.json").write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    processor = poem_processor("words")
    config = hier_models.HamConfig(vocab_size=len(processor.tokenizer), d_model=8, attention_depth=2)
    config.task_specific_params = {"poem-generation": {"lengths": [5, 7]}}
    hier_models.HamForConditionalGeneration(config).save_pretrained(folder / "runs/ham_poems")
    processor.save_pretrained(folder / "runs/ham_poems")


def write_questions(folder: Path) -> None:
    """Questions on a paper, and a tiny model that answers them."""
    from tests.conftest import DOCUMENTS

    words = train_word_level(DOCUMENTS)
    answer = DOCUMENTS[0].split()[2]
    answers = {"text": [answer], "answer_start": [DOCUMENTS[0].index(answer)]}
    row = {"question": "What is it?", "context": DOCUMENTS[0], "answers": answers}
    (folder / "questions.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    sizes = {"vocab_size": len(words), "char_vocab_size": 0, "embedding_size": 8, "hidden_size": 8}
    config = hier_models.HamReaderConfig(reader="match_lstm", attention_depth=5, **sizes)
    reader = folder / "runs/ham_reader_match_lstm/depth_5"
    hier_models.HamReaderForQuestionAnswering(config).save_pretrained(reader)
    hier_models.HamReaderProcessor(words).save_pretrained(reader)


def run_in(folder: Path, command: list[str]) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert result.returncode == 0, f"{command[-1]}\n{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("parts", [1, 5])
def test_each_slow_test_is_in_one_part_of_them(parts):
    """What `.ci/run` relies on."""
    slow = [Mock(get_closest_marker={"slow": True}.get) for _ in range(10)]
    fast, run = Mock(get_closest_marker={}.get), []
    for part in range(1, parts + 1):
        config = Mock(getoption={"--slow-part": f"{part}/{parts}"}.get)
        items = [*slow[:5], fast, *slow[5:]]
        pytest_collection_modifyitems(config, items)
        (left_out,) = config.hook.pytest_deselected.call_args.kwargs.values()
        assert Counter([*items, *left_out]) == Counter([*slow, fast])
        run += items
    assert Counter(run) == Counter([*slow, *[fast] * parts])


@pytest.mark.parametrize("part", ["6/5", "0/5", "2", "two/5", "2/-5"])
def test_a_part_of_the_slow_tests_that_there_is_not(part):
    with pytest.raises(pytest.UsageError, match=rf"--slow-part {part}: give it as I/N"):
        pytest_collection_modifyitems(Mock(getoption={"--slow-part": part}.get), [])


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if code_blocks(page, "python") and page not in OTHERS])
def test_python_of_page_runs_as_written(user_folder, page):
    result = forks.run("\n".join(code_blocks(page, "python")), cwd=user_folder, timeout=600)
    assert result.returncode == 0, f"{page}\n{result.stdout}\n{result.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [command for command in shell_commands(*PAGES) if "hier-models " in command and not TRIED.fullmatch(command)],
)
def test_shell_of_pages_runs_as_written(user_folder, command):
    """A simple command without bash; that the command is installed is a test of its own."""
    name, *arguments = shlex.split(command)
    if name == "hier-models" and not {"|", ">", "&&"} & set(arguments):
        result = forks.run(forks.COMMAND, *arguments, cwd=user_folder)
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    else:
        run_in(user_folder, ["bash", "-c", command])


@pytest.mark.parametrize(
    "script",
    [path for path in sorted((ROOT / "benchmarks").glob("*_*.py")) if path.stem != "end_to_end"],  # of many models
    ids=lambda path: path.stem,
)
def test_benchmark_explains_itself_and_its_model_has_a_card_for_the_table(script):
    result = forks.run(forks.SCRIPT, str(script), "--help")
    assert result.returncode == 0, result.stderr
    assert "--update CARD" in result.stdout
    card = (ROOT / "model_cards" / f"{script.stem}.md").read_text(encoding="utf-8")
    assert card.index("<!-- benchmark: begin -->") < card.index("<!-- benchmark: end -->")

"""Fixtures for all tests: nothing is downloaded; checkpoints are tiny and random, the tokenizer is trained here."""

import os


# Before anything of Hugging Face is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_EVALUATE_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Jobs run in this process, where tests count what they do, unless a test wants several.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# With a worker on every core, compilers of their own would only be in each other's way.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import ctypes
import gc
import importlib.util
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedTokenizerFast
from transformers.masking_utils import flash_attention_mask

import hier_models


ROOT = Path(__file__).parents[1]
MOST_OBJECTS = 100_000  # that each collection of garbage looks at
DOCUMENTS = [
    "The bridge was closed on Monday. Engineers had found a crack in the second pillar. Traffic now takes the old "
    "road, which is narrow. Dr. Meyer, who led the inspection, said that repairs will take six weeks. The town will "
    "pay for them. A ferry runs every hour.",
    "Bees find their way home by the sun. On cloudy days they use landmarks. A bee that has found food dances for the "
    "others. The angle of the dance gives the direction. Its length gives the distance.",
    "The library opens at nine. It closes at six.",
    "A single sentence without much in it",
]
SUMMARIES = [
    "A cracked pillar closed the bridge for six weeks.",
    "Bees navigate by sun and landmarks and tell each other by dancing.",
    "The library is open from nine to six.",
    "One sentence.",
]
TURNS = [
    {"role": "Ann", "content": "Did you book the room?"},
    {"role": "Bob", "content": "Not yet. I will do it today."},
    {"role": "Ann", "content": "Thanks! We are eight people."},
    {"role": "Cem", "content": "Nine, with me."},
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow-part", metavar="I/N", default="1/1", help="every N-th slow test, from the I-th on")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests of other parts. Neighbours, which take about as long, are in different ones."""
    part = config.getoption("--slow-part")
    first, _, parts = (int(number) if number.isdecimal() else 0 for number in part.partition("/"))
    if not 1 <= first <= parts:
        raise pytest.UsageError(f"--slow-part {part}: give it as I/N, with I from 1 to N, such as 2/5")
    slow = [item for item in items if item.get_closest_marker("slow")]
    left_out = set(slow).difference(slow[first - 1 :: parts])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later collection of garbage, which each training run asks for."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def later_imports() -> Iterator[None]:
    """Likewise what tests import later, once that is much."""
    yield
    if len(gc.get_objects()) > MOST_OBJECTS:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def datasets_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What datasets keeps does not outlive the tests."""
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("datasets_cache")


@pytest.fixture(autouse=True)
def library_settings() -> Iterator[None]:
    """The command line quiets libraries for its process, which here is that of many tests."""

    def loggers() -> dict[str, logging.Logger]:
        known = logging.root.manager.loggerDict.items()
        ours = ("hier_models", "transformers")
        return {name: known for name, known in known if isinstance(known, logging.Logger) and name.startswith(ours)}

    before = {name: (logger.level, logger.propagate) for name, logger in loggers().items()}
    bars = transformers.utils.logging.is_progress_bar_enabled(), datasets.are_progress_bars_disabled()
    yield
    for name, logger in loggers().items():
        level, logger.propagate = before.get(name, (logging.NOTSET, True))
        if logger.level != level:
            logger.setLevel(level)
    if bars[0]:
        transformers.utils.logging.enable_progress_bar()
    if not bars[1]:
        datasets.enable_progress_bars()


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Jobs run on two cores, in forks."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def fresh_compiler() -> None:
    """torch's compiler anew; after some variants of a function, as of Transformers' wrappers, it silently gives up."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()


@pytest.fixture
def flash_masks() -> Iterator[str]:
    """An attention on CPU with the masks of flash attention, which it does not read; its name is no kernel's."""
    name, sdpa = "masks_as_in_varlen", AttentionInterface._global_mapping["sdpa"]
    AttentionInterface.register(name, lambda *args, **kwargs: sdpa(*args[:4], None, **kwargs))
    AttentionMaskInterface.register(name, flash_attention_mask)
    yield name
    AttentionInterface._global_mapping.pop(name)
    AttentionMaskInterface._global_mapping.pop(name)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with BART's special tokens, trained on the sample texts."""
    backend = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    texts = [*DOCUMENTS, *SUMMARIES, *(turn["content"] for turn in TURNS)]
    backend.train_from_iterator(texts, vocab_size=400, special_tokens=special, show_progress=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend._tokenizer,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=128,
    )


@pytest.fixture
def tiny_config(tokenizer: PreTrainedTokenizerFast) -> "hier_models.HatBartConfig":
    return hier_models.HatBartConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=128,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
        num_segments=4,
    )


@pytest.fixture
def tiny_model(tiny_config: "hier_models.HatBartConfig") -> "hier_models.HatBartForConditionalGeneration":
    torch.manual_seed(0)
    model = hier_models.HatBartForConditionalGeneration(tiny_config)
    # Weights this large make every input matter visibly to the output.
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    return model.eval()


@pytest.fixture
def processor(tokenizer: PreTrainedTokenizerFast) -> "hier_models.HatBartProcessor":
    return hier_models.HatBartProcessor(tokenizer, num_segments=4)


TOP_DOWN_SIZES = {
    "d_model": 32,
    "bottom_up_layers": 1,
    "top_down_layers": 1,
    "segment_layers": 1,
    "attention_window": 8,
    "pooling_kernel": 6,
    "pooling_stride": 4,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
    "dropout": 0.0,
}


@pytest.fixture
def top_down_config(tokenizer: PreTrainedTokenizerFast) -> "hier_models.TopDownTransformerConfig":
    return hier_models.TopDownTransformerConfig(
        vocab_size=len(tokenizer),
        max_encoder_position_embeddings=128,
        max_decoder_position_embeddings=64,
        pooling="importance",
        **TOP_DOWN_SIZES,
    )


@pytest.fixture
def tiny_top_down(
    top_down_config: "hier_models.TopDownTransformerConfig",
) -> "hier_models.TopDownTransformerForConditionalGeneration":
    """A summarizer that pools by importance."""
    torch.manual_seed(0)
    model = hier_models.TopDownTransformerForConditionalGeneration(top_down_config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture
def tiny_tagger(
    top_down_config: "hier_models.TopDownTransformerConfig",
) -> "hier_models.TopDownTransformerForTokenClassification":
    """An importance tagger."""
    torch.manual_seed(1)
    config = type(top_down_config)(**{**top_down_config.to_dict(), "pooling": "average"})
    model = hier_models.TopDownTransformerForTokenClassification(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.fixture
def top_down_processor(tokenizer: PreTrainedTokenizerFast) -> "hier_models.TopDownTransformerProcessor":
    return hier_models.TopDownTransformerProcessor(tokenizer)


@pytest.fixture
def tiny_highlight(tokenizer: PreTrainedTokenizerFast) -> "hier_models.HighlightTransformerForConditionalGeneration":
    """A summarizer of several articles; phrases change what it writes."""
    torch.manual_seed(0)
    config = hier_models.HighlightTransformerConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=256,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
        dropout=0.0,
        brightness=20.0,
    )
    model = hier_models.HighlightTransformerForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    model.generation_config.max_length = 12
    return model.eval()


@pytest.fixture
def highlight_processor(tokenizer: PreTrainedTokenizerFast) -> "hier_models.HighlightTransformerProcessor":
    """A processor that finds key phrases by the sample texts."""
    from hier_models.models.key_phrase_extraction import KeyPhraseExtractor

    extractor = KeyPhraseExtractor(["the", "a", "in", "of", "is", "which"]).fit(DOCUMENTS)
    return hier_models.HighlightTransformerProcessor(tokenizer, key_phrases=extractor)


@pytest.fixture(scope="session")
def word_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of whole words, fitted on the sample texts."""
    from hier_models.data import train_word_level

    return train_word_level([*DOCUMENTS, *SUMMARIES, *(f"{turn['role']}: {turn['content']}" for turn in TURNS)])


@pytest.fixture
def coarse_processor(word_tokenizer: PreTrainedTokenizerFast) -> "hier_models.CoarseToFineLstmProcessor":
    return hier_models.CoarseToFineLstmProcessor(word_tokenizer)


@pytest.fixture
def coarse_model(
    word_tokenizer: PreTrainedTokenizerFast,
) -> "Callable[..., hier_models.CoarseToFineLstmForConditionalGeneration]":
    """Makes tiny models with any attention; rows and words change what they write."""

    def make(
        attention: str = "coarse_to_fine", **settings: Any
    ) -> "hier_models.CoarseToFineLstmForConditionalGeneration":
        torch.manual_seed(0)
        sizes = {"embedding_size": 12, "hidden_size": 16, "coarse_filters": 12, "coarse_kernel_size": 3}
        config = hier_models.CoarseToFineLstmConfig(
            vocab_size=len(word_tokenizer), attention=attention, **{**sizes, "init_range": 0.8, **settings}
        )
        model = hier_models.CoarseToFineLstmForConditionalGeneration(config)
        model.generation_config.max_length = 10
        return model.eval()

    return make


@pytest.fixture(scope="session")
def build() -> Any:
    """The script that compiles the kernels."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="session")
def compiler(build: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where there is none that knows the instructions."""
    source = tmp_path_factory.mktemp("compiler") / "tried.c"
    includes = "".join(f"#include <{name}.h>\n" for name in ("immintrin", "math", "stdint", "stdlib", "string"))
    product = "__m512 f(__m512 sum, __m512bh one) { return _mm512_dpbf16_ps(sum, one, one); }\n"
    source.write_text(includes + product, encoding="utf-8")
    library = str(source.with_suffix(".so"))
    flags = f"{build.FLAGS} {build.AVX512} -shared".split()
    command = [*os.environ.get("CC", "cc").split(), *flags, "-o", library, str(source), "-lm"]
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs a C compiler that knows AVX512-BF16")


def put_kernels_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute as where the package is not installed: code that travels with a checkpoint has no compiled kernels."""
    for name in ("attention_kernel", "decoder_kernel", "growing_cache"):
        monkeypatch.setattr(f"hier_models.models.{name}.kernels", lambda: None)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, for all of a test."""
    put_kernels_aside(monkeypatch)


@pytest.fixture(scope="session")
def compiled(build: Any, compiler: None, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels of this checkout."""
    library = tmp_path_factory.mktemp("kernel") / "kernels.so"
    assert build.compile_kernels(ROOT / build.FOLDER, library)
    return ctypes.CDLL(str(library))


def document_frequency(extractor: Any, phrase: str) -> int:
    """In how many documents of its corpus a KeyPhraseExtractor has found a phrase; 0 where it is not kept."""
    keys, bounds = extractor._candidates(phrase, None)
    whole = keys[(bounds == (0, len(phrase))).all(axis=1)]
    assert len(whole) == 1
    return int(extractor._frequencies(whole)[0])

"""Export of every model with a head: what is written, and that it works where hier_models is not installed.

A new family adds an `ExportCase`. The same function looks at what was exported and, where hier_models is not, at what
was loaded.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from tokenizers import AddedToken
from transformers import AutoConfig, AutoProcessor, PreTrainedModel, ProcessorMixin, RobertaTokenizer, pipeline

import hier_models
from hier_models.families import FAMILIES
from hier_models.models.processing_ham_reader import fit_characters
from tests.conftest import DOCUMENTS, TURNS
from tests.ham.poems import poem_processor
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


Made = tuple[PreTrainedModel, ProcessorMixin]

LOOK = """
import torch

def look(model, processor, write, call, more, asked):
    inputs = processor(**call, padding=True, return_tensors="pt")
    found = {"inputs": dict(inputs), "modules": [type(part).__module__ for part in (model, model.config, processor)]}
    labels = {}
    with torch.no_grad():
        if model.can_generate():
            labels = {"labels": inputs["input_ids"][:, :5]}
            outputs = model(**inputs, decoder_input_ids=labels["labels"], **more)
            settings = {"num_beams": 2, "min_length": 8, "max_length": 12, "return_dict_in_generate": True}
            generated = model.generate(**inputs, **settings)
            found["generated"] = {name: value for name, value in generated.items() if isinstance(value, torch.Tensor)}
        else:
            outputs = model(**inputs)
    found["outputs"] = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
    if write is not None:
        found["written"] = [write(*arguments, **settings) for arguments, settings in asked]
        found["modules"].append(type(write).__module__)
    if labels:
        assert model.train()(**inputs, **labels).loss.isfinite()
        model.eval()
    return found
"""
# `source`, `trust` and `file` are set before.
USE = """
import sys, transformers

auto, task, blocks, call, more, asked = torch.load(file + ".in")
for block in blocks:
    exec(block, {"__name__": "__main__"})
    print("end of block")
model = getattr(transformers, auto).from_pretrained(source, trust_remote_code=True).eval()
processor = transformers.AutoProcessor.from_pretrained(source, trust_remote_code=True)
write = task and transformers.pipeline(task, model=source, device="cpu", trust_remote_code=True)
torch.save(look(model, processor, write, call, more, asked), file)
"""


@dataclass(frozen=True)
class ExportCase:
    """A model with a head.

    `make` makes it and its processor, from tokenizers of pieces and of words. `call` is what the processor is called
    with, `more` what the model is called with beside it, `task` the pipeline and `asked` its calls. The card has the
    `tag`, the `lines`, so many `blocks` of code, and not what is `absent`. A recurrent model rounds by where in memory
    a file puts its weights: hence the `tolerance`.
    """

    make: Callable[[Any, Any], Made]
    call: dict[str, Any]
    lines: list[str]
    more: dict[str, Any] = field(default_factory=dict)
    auto: str = "AutoModelForSeq2SeqLM"
    task: str | None = "summarization"
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=lambda: [((DOCUMENTS,), {"max_length": 12})]
    )
    tag: str = "summarization"
    absent: list[str] = field(default_factory=list)
    blocks: int = 2
    tolerance: float = 0.0


def with_large_weights(model: PreTrainedModel, std: float = 0.2) -> PreTrainedModel:
    """So that every input matters visibly."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=std)
    return model.eval()


BART_SIZES = {
    "d_model": 32,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
}
TEXTS = {"text": DOCUMENTS, "truncation": True}


def hat_bart(tokenizer: Any, words: Any) -> Made:
    config = hier_models.HatBartConfig(
        vocab_size=len(tokenizer), max_position_embeddings=128, encoder_layers=2, num_segments=4, **BART_SIZES
    )
    model = with_large_weights(hier_models.HatBartForConditionalGeneration(config))
    return model, hier_models.HatBartProcessor(tokenizer, num_segments=4)


def coarse_to_fine(tokenizer: Any, words: Any, **settings: Any) -> Made:
    sizes = {"embedding_size": 12, "hidden_size": 16, "coarse_filters": 12, "coarse_kernel_size": 3}
    config = hier_models.CoarseToFineLstmConfig(vocab_size=len(words), init_range=0.8, **sizes, **settings)
    model = hier_models.CoarseToFineLstmForConditionalGeneration(config).eval()
    return model, hier_models.CoarseToFineLstmProcessor(words)


def ham(tokenizer: Any, words: Any, **settings: Any) -> Made:
    processor = poem_processor("words")
    config = hier_models.HamConfig(vocab_size=len(processor.tokenizer), d_model=16, attention_depth=3, **settings)
    return with_large_weights(hier_models.HamForConditionalGeneration(config), 0.4), processor


def ham_poet(tokenizer: Any, words: Any) -> Made:
    model, processor = ham(tokenizer, words)
    model.config.task_specific_params = {"poem-generation": {"lengths": [5, 7]}}
    return model, processor


CONTEXTS = ["Marta keeps a bakery. She lights the oven at four.", "The lamp was lit by a keeper."]
QUESTIONS = ["When does she light the oven?", "Who lit the lamp?"]


def ham_reader(tokenizer: Any, words: Any) -> Made:
    processor = hier_models.HamReaderProcessor(words, characters=fit_characters([*CONTEXTS, *QUESTIONS]))
    sizes = {"embedding_size": 6, "char_hidden_size": 4, "hidden_size": 5, "attention_depth": 3}
    vocabularies = {"vocab_size": len(words), "char_vocab_size": processor.char_vocab_size}
    config = hier_models.HamReaderConfig(reader="r_net", **vocabularies, **sizes)
    return hier_models.HamReaderForQuestionAnswering(config).eval(), processor


def hat_encoder(tokenizer: Any, words: Any, head: str) -> Made:
    mask = AddedToken("<mask>", lstrip=True, special=True, normalized=False)
    roberta = RobertaTokenizer(tokenizer_object=tokenizer.backend_tokenizer, mask_token=mask, model_max_length=128)
    processor = hier_models.HatEncoderProcessor(roberta)
    config = hier_models.HatEncoderConfig(
        vocab_size=len(processor.tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=130,
        hierarchical_queries="bos",
    )
    return with_large_weights(getattr(hier_models, f"HatEncoderFor{head}")(config)), processor


def highlight(tokenizer: Any, words: Any, **settings: Any) -> Made:
    config = hier_models.HighlightTransformerConfig(
        vocab_size=len(tokenizer), encoder_layers=2, brightness=0.9, **BART_SIZES, **settings
    )
    key_phrases = hier_models.KeyPhraseExtractor(["the", "a", "is", "on", "of", "by"]).fit(DOCUMENTS)
    model = with_large_weights(hier_models.HighlightTransformerForConditionalGeneration(config))
    return model, hier_models.HighlightTransformerProcessor(tokenizer, key_phrases=key_phrases)


def top_down(tokenizer: Any, words: Any, head: str) -> Made:
    config = hier_models.TopDownTransformerConfig(
        vocab_size=len(tokenizer),
        max_encoder_position_embeddings=128,
        max_decoder_position_embeddings=32,
        bottom_up_layers=1,
        top_down_layers=1,
        segment_layers=1,
        attention_window=8,
        pooling_kernel=8,
        pooling_stride=6,
        pooling="importance",
        **BART_SIZES,
    )
    model = with_large_weights(getattr(hier_models, f"TopDownTransformer{head}")(config))
    return model, hier_models.TopDownTransformerProcessor(tokenizer)


COARSE_TO_FINE = ExportCase(
    make=partial(coarse_to_fine, attention="standard"),
    call=TEXTS,
    lines=["| hidden_size | 16 |", "| attention | standard |", "Coarse-to-Fine Attention Models"],
    absent=["d_model", "source tokens at most"],
    tolerance=1e-5,
)
HAM = ExportCase(
    make=partial(ham, body="transformer", encoder_layers=1, decoder_layers=1),
    call={"keywords": ["春风", "花"], "lines": [["小院春风起", "花开一树红"], []]},
    task=None,
    lines=["| body | transformer |", "| attention_depth | 3 |", "What Really Counts"],
    tolerance=1e-5,
)
HIGHLIGHT = ExportCase(
    make=highlight,
    call={
        **TEXTS,
        "phrases": [[("second pillar", 1.0), ("a crack", 0.5), (0, 10, 0.25)], [("Bees", 2.0)], [], None],
    },
    more={"output_copying": True},
    asked=[((DOCUMENTS,), {"max_length": 12}), (({"documents": DOCUMENTS[:3]},), {"max_length": 12})],
    lines=[
        "| encoder_layers | 2 |",
        "| highlighting | weighted |",
        "| highlight_heads | 1 |",
        "| highlight_layers | 1 |",
        "| brightness | 0.9 |",
        "| use_copy | True |",
        "Key Phrase Aware Attention",
    ],
    absent=["128 source tokens at most"],
)
TOP_DOWN = ExportCase(
    make=partial(top_down, head="ForConditionalGeneration"),
    call={**TEXTS, "importance": [[(0, 20, 1.0), (30, 60, 0.5)], [(4, 40, 2.0)], [(0, 5, 1.0)], [(2, 10, 1.0)]]},
    lines=[
        "| encoder_layers | 2 |",
        "| attention_window | 8 |",
        "| pooling_kernel | 8 |",
        "| pooling | importance |",
        "| top_down_update | cross_attention |",
        "Top-down and Bottom-up Inference",
        "128 source tokens at most",
    ],
)
TAKES = "It takes 128 tokens at most"
HAT_ENCODER = {
    # The head, the tag of its card, and the number of blocks of code in it.
    "MaskedLM": ("fill-mask", 2),
    "SequenceClassification": ("text-classification", 2),
    "MultipleChoice": ("multiple-choice", 1),
    "QuestionAnswering": ("question-answering", 1),
    "TokenClassification": ("token-classification", 2),
}
CASES = {
    "coarse_to_fine_lstm": COARSE_TO_FINE,
    "coarse_to_fine_lstm_hard": replace(
        COARSE_TO_FINE,
        make=partial(coarse_to_fine, attention="hard", num_samples=2),
        lines=[
            COARSE_TO_FINE.lines[0],
            "| attention | hard |",
            "| coarse_representation | convolution |",
            "| num_samples | 2 |",
            COARSE_TO_FINE.lines[2],
        ],
    ),
    "ham": replace(
        HAM,
        make=ham_poet,
        task="poem-generation",
        asked=[
            (("春风明月",), {"length": 5, "num_candidates": 2, "num_beams": 2}),
            ((), {"keywords": ["花", "雨"]}),
        ],
        tag="poem-generation",
        lines=["| body | gru |", "| attention_depth | 3 |", "What Really Counts", "jieba"],
        absent=["ffn_dim", "max_position_embeddings", "attention_keys", "tokens at most"],
    ),
    "ham_transformer": HAM,
    "ham_reader": ExportCase(
        make=ham_reader,
        call={"question": QUESTIONS, "documents": [CONTEXTS, CONTEXTS[:1]]},
        auto="AutoModelForQuestionAnswering",
        task="reading-comprehension",
        asked=[((), {"question": QUESTIONS, "context": CONTEXTS, "top_k": 3})],
        tag="reading-comprehension",
        lines=["HAM reader", "question="],
        tolerance=1e-5,
    ),
    "hat_bart": ExportCase(
        make=hat_bart,
        call={"turns": [TURNS, TURNS[1:]]},
        lines=["| hierarchical_layers | 1 |", "Hierarchical Learning for Generation"],
    ),
    **{
        f"hat_encoder_{head}": ExportCase(
            make=partial(hat_encoder, head=head),
            call={**TEXTS, **({"choices": [["Yes.", "No."]] * len(DOCUMENTS)} if head == "MultipleChoice" else {})},
            auto=f"AutoModelFor{head}",
            task=None,
            tag=tag,
            lines=["| hierarchical_queries | bos |", "| hidden_size | 32 |", TAKES, f"AutoModelFor{head}"],
            blocks=blocks,
        )
        for head, (tag, blocks) in HAT_ENCODER.items()
    },
    "highlight_transformer": HIGHLIGHT,
    "highlight_transformer_bart": replace(
        HIGHLIGHT,
        make=partial(
            highlight,
            normalize_before=False,
            position_embedding_type="learned",
            max_position_embeddings=128,
            highlighting="additive",
        ),
        lines=["| highlighting | additive |", "128 source tokens at most", *HIGHLIGHT.lines[2:]],
        absent=[],
    ),
    "top_down_transformer": TOP_DOWN,
    "top_down_transformer_tagger": replace(
        TOP_DOWN,
        make=partial(top_down, head="ForTokenClassification"),
        auto="AutoModelForTokenClassification",
        task=None,
        tag="token-classification",
        lines=[*TOP_DOWN.lines[:-1], TAKES],
    ),
    "top_down_transformer_encoder": replace(
        TOP_DOWN,
        make=partial(top_down, head="EncoderModel"),
        auto="AutoModelForTextEncoding",
        task=None,
        tag="feature-extraction",
        lines=[*TOP_DOWN.lines[:-1], TAKES],
        blocks=1,
    ),
}
# One case of each family is fast.
PARAMETERS = [
    pytest.param(name, marks=() if name in ("coarse_to_fine_lstm_hard", *FAMILIES) else pytest.mark.slow)
    for name in CASES
]


@pytest.fixture
def made(request: pytest.FixtureRequest, tokenizer: Any, word_tokenizer: Any) -> Made:
    torch.manual_seed(0)
    return CASES[request.getfixturevalue("name")].make(tokenizer, word_tokenizer)


def blocks_of(folder: Path) -> list[str]:
    """The Python code of the card."""
    return [part.split("```")[0] for part in ModelCard.load(folder / "README.md").text.split("```python\n")[1:]]


def assert_same(got: Any, want: Any, tolerance: float) -> None:
    if isinstance(want, torch.Tensor):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0, atol=tolerance if want.is_floating_point() else 0)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for name in want:
            assert_same(got[name], want[name], tolerance)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other, tolerance)
    elif isinstance(want, float):
        assert got == pytest.approx(want, abs=100 * tolerance)
    else:
        assert got == want


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_works_where_hier_models_is_not_installed(name, made, tmp_path, without_kernels):
    """What it computes and writes, and the lines of its card."""
    case = CASES[name]
    folder = hier_models.export(*made, tmp_path / "check.point-1")
    blocks = blocks_of(folder)
    torch.save((case.auto, case.task, blocks, case.call, case.more, case.asked), tmp_path / "results.pt.in")
    code = "\n".join([WITHOUT_HIER_MODELS, "#header", LOOK, USE])
    printed = run_python(code, tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1")
    *printed, rest = printed.split("end of block\n")
    assert len(printed) == len(blocks)
    assert all(text.strip() for text in printed)
    assert not rest
    if case.task == "poem-generation":
        assert [len(line) for line in "".join(printed).split()] == [5] * 4 + [7]

    got = torch.load(tmp_path / "results.pt")
    assert all(module.startswith("transformers_modules.") for module in got.pop("modules"))
    model, processor = made
    write = case.task and pipeline(case.task, model=model, processor=processor, device="cpu")
    looking: dict[str, Any] = {}
    exec(LOOK, looking)
    want = looking["look"](model, processor, write, case.call, case.more, case.asked)
    assert all(module.startswith("hier_models.") for module in want.pop("modules"))
    assert_same(got, want, case.tolerance)
    assert set(processor.extra_inputs) <= set(want["inputs"])


@pytest.mark.parametrize("name", CASES)
def test_what_is_written(name, made, tmp_path):
    case = CASES[name]
    model, processor = made
    folder = hier_models.export(model, processor, tmp_path / "mine")
    models = Path(hier_models.__file__).parent / "models"
    own = {f"{kind}_{model.config.model_type}.py" for kind in ("configuration", "modeling", "processing")}
    assert own <= {path.name for path in folder.glob("*.py")}
    for path in folder.glob("*.py"):
        source = models / path.name
        if not source.exists():
            source = models.parent / "pipelines" / path.name
        assert path.read_bytes() == source.read_bytes()
    assert type(AutoConfig.from_pretrained(folder)) is type(model.config)
    assert type(AutoProcessor.from_pretrained(folder)) is type(processor)
    has_pipeline = case.task is not None or case.auto == "AutoModelForSeq2SeqLM"
    assert ("custom_pipelines" in json.loads((folder / "config.json").read_text())) is has_pipeline
    assert any(path.name == "document_pipeline_hier.py" for path in folder.iterdir()) is has_pipeline
    card = ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == case.tag
    assert card.data.tags == ["hier_models", model.config.model_type]
    assert len(blocks_of(folder)) == case.blocks
    for line in case.lines:
        assert line in card.text, line
    for line in case.absent:
        assert line not in card.text, line


def test_a_tagger_that_began_as_an_exported_summarizer_is_none(tokenizer, tmp_path):
    summarizer = hier_models.export(*top_down(tokenizer, None, "ForConditionalGeneration"), tmp_path / "summarizer")
    tagger = hier_models.TopDownTransformerForTokenClassification.from_pretrained(summarizer)
    tagger.config.custom_pipelines = {**vars(tagger.config)["custom_pipelines"], "of-my-own": {}}
    folder = hier_models.export(tagger, AutoProcessor.from_pretrained(summarizer), tmp_path / "tagger")
    assert json.loads((folder / "config.json").read_text())["custom_pipelines"] == {"of-my-own": {}}


TAG = """
import torch
from transformers import AutoModelForTokenClassification, pipeline

tagger = AutoModelForTokenClassification.from_pretrained(source, trust_remote_code=True)
summarize = pipeline(
    "summarization", model=summarizer, importance_tagger=tagger, device="cpu", trust_remote_code=True
)
torch.save(summarize(torch.load(file + ".in"), max_length=12), file)
"""


@pytest.mark.slow
def test_a_tagger_tags_where_hier_models_is_not_installed(tokenizer, tmp_path):
    torch.manual_seed(0)
    model, processor = top_down(tokenizer, None, "ForConditionalGeneration")
    tagger, _ = top_down(tokenizer, None, "ForTokenClassification")
    tagger.config.pooling = "average"
    summarizer = hier_models.export(model, processor, tmp_path / "summarizer")
    folder = hier_models.export(tagger, processor, tmp_path / "tagger")
    torch.save(DOCUMENTS, tmp_path / "results.pt.in")
    code = f"{WITHOUT_HIER_MODELS}#header\nsummarizer = {str(summarizer)!r}\n{TAG}"
    run_python(code, tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1")
    own = pipeline("summarization", model=model, processor=processor, importance_tagger=tagger, device="cpu")
    expected = own(DOCUMENTS, max_length=12)
    assert torch.load(tmp_path / "results.pt") == expected
    plain = pipeline("summarization", model=model, processor=processor, device="cpu")
    assert plain(DOCUMENTS, max_length=12) != expected

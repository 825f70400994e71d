"""examples/experiments/levels.py on tiny models."""

import itertools
import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from hier_models import (
    HamConfig,
    HamForConditionalGeneration,
    HamReaderConfig,
    HamReaderForQuestionAnswering,
    HamReaderProcessor,
)
from hier_models.data.poems import in_vocabulary, poem_lines
from hier_models.data.tokenizer_training import train_word_level
from tests.experiments.scripts import load_script
from tests.ham.poems import POEMS, poem_processor


@pytest.fixture(scope="module")
def levels():
    return load_script("levels")


@pytest.fixture(scope="module")
def poems(tmp_path_factory):
    file = tmp_path_factory.mktemp("poems") / "poems.jsonl"
    file.write_text("".join(json.dumps({"lines": lines}) + "\n" for lines in POEMS), encoding="utf-8")
    return file


QUESTIONS = [
    {"question": "Who lit the oven?", "context": "Every morning Marta lit the oven at four."},
    {"question": "When?", "context": "It was dark at four and cold at five."},
]


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    file = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    rows = [
        {**row, "answers": {"text": ["four"], "answer_start": [row["context"].index("four")]}} for row in QUESTIONS
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    texts = [text for row in QUESTIONS for text in (row["question"], row["context"])]
    return file, HamReaderProcessor(train_word_level(texts, digits=None))


def reader(processor, **kwargs):
    torch.manual_seed(0)
    config = HamReaderConfig(
        vocab_size=len(processor.tokenizer), embedding_size=8, hidden_size=8, char_vocab_size=0, **kwargs
    )
    return HamReaderForQuestionAnswering(config).eval()


def make(processor, **kwargs):
    torch.manual_seed(0)
    sizes = {"d_model": 16, "embedding_size": 16, "vocab_size": len(processor.tokenizer), "body": "gru"}
    return HamForConditionalGeneration(HamConfig(**sizes, **kwargs)).eval()


def test_distances(levels, poems):
    processor = poem_processor()
    model = make(processor, attention_depth=3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed" in name:
                weight.mul_(20)  # so that attention is not the same everywhere
    sums, lines = torch.zeros(3, dtype=torch.float64), 0
    for row in poem_lines([{"lines": poem} for poem in POEMS], processor.poem_keywords, in_vocabulary(processor)):
        if row["keyword"] is None or lines == 7:
            continue
        inputs = processor(keywords=row["keyword"], lines=row["before"], text_target=row["line"], return_tensors="pt")
        with torch.no_grad():
            attention = model(**inputs, output_attentions=True).level_attentions[0, :, 0]
        pairs = list(itertools.combinations(range(attention.shape[1]), 2))
        for level in range(3):
            parts = [0.5 * sum(abs(a - b) for a, b in zip(*attention[level, pair], strict=True)) for pair in pairs]
            sums[level] += float(sum(parts)) / len(pairs)
        lines += 1
    found = levels.distances(levels.of_poems(model, processor, poems), 7)
    torch.testing.assert_close(found, sums / 7, atol=1e-6, rtol=1e-5)
    assert found[0] > 0.001


def test_distances_of_a_reader(levels, questions):
    """BiDAF's attention of a level, written out: w·[h; u; h∘u], where h is what the level before attended to."""
    file, processor = questions
    model = reader(processor, attention_depth=3)
    layer = model.reader.attention
    torch.nn.init.normal_(layer.product_score, std=8.0)
    seen = {}
    layer.register_forward_pre_hook(lambda _, inputs: seen.update(h=inputs[0][0], u=inputs[2][0]))
    sums = torch.zeros(3)
    for row in QUESTIONS:
        with torch.no_grad():
            model(**processor(row["question"], row["context"], return_tensors="pt"))
        h, u = seen["h"], seen["u"]
        for level in range(3):
            joint = torch.cat([h[:, None].expand(-1, len(u), -1), u.expand(len(h), -1, -1), h[:, None] * u], dim=-1)
            w = [layer.context_score.weight[0], layer.question_score.weight[0], layer.product_score]
            attention = (joint @ torch.cat(w)).softmax(-1)
            pairs = list(itertools.combinations(range(len(h)), 2))
            sums[level] += sum(0.5 * (attention[a] - attention[b]).abs().sum() for a, b in pairs) / len(pairs)
            h = attention @ u
    found = levels.distances(levels.of_questions(model, processor, file), 9)
    torch.testing.assert_close(found.float(), sums / len(QUESTIONS), atol=1e-5, rtol=1e-4)
    assert found[0] > 0.001


def test_the_table_of_readers(levels, questions, tmp_path):
    file, processor = questions
    for depth in (1, 2):
        reader(processor, attention_depth=depth).save_pretrained(tmp_path / f"depth_{depth}")
        processor.save_pretrained(tmp_path / f"depth_{depth}")
    app = typer.Typer()
    app.command()(levels.main)
    folders = [str(tmp_path / f"depth_{depth}") for depth in (1, 2)]
    result = CliRunner().invoke(app, [str(file), *folders], catch_exceptions=False)
    rows = [line.split() for line in result.stdout.splitlines() if "depth" in line]
    assert [row[2::2] for row in rows] == [["(1.00)"], ["(0.90)", "(0.10)"]]


def test_the_table(levels, poems, tmp_path):
    processor = poem_processor()
    for name, settings in (("a", {"attention_depth": 1}), ("b", {"attention_depth": 5, "level_weights": "last"})):
        model = make(processor, **settings)
        if name == "b":
            torch.nn.init.zeros_(model.get_input_embeddings().weight)
        model.save_pretrained(tmp_path / name / "seed_1")
        processor.save_pretrained(tmp_path / name / "seed_1")
    app = typer.Typer()
    app.command()(levels.main)
    folders = [str(tmp_path / name / "seed_1") for name in "ab"]
    result = CliRunner().invoke(app, [str(poems), *folders, "--number", "3"], catch_exceptions=False)
    head, first, second = [line for line in result.stdout.splitlines() if "level" in line or "seed_1" in line]
    assert head.split() == ["model", *" ".join(f"level {level}" for level in levels.SHOWN).split()]
    assert first.split()[0] == "a/seed_1"
    assert first.split()[2:] == ["(1.00)"]
    # Without embeddings every key is the same, and so is the attention at every character.
    assert second.split()[1:] == ["0.000", "(0.00)"] * 3 + ["0.000", "(1.00)"]


def test_what_cannot_be_read_is_said(levels, tmp_path):
    processor = poem_processor()
    file = tmp_path / "poems.jsonl"
    file.write_text(json.dumps({"lines": ["鱻鱻鱻鱻鱻"] * 4}) + "\n", encoding="utf-8")
    with pytest.raises(typer.BadParameter, match="no line has a keyword that the model knows"):
        levels.distances(levels.of_poems(make(processor), processor, file), 3)
    sizes = {"d_model": 16, "vocab_size": len(processor.tokenizer), "body": "transformer", "encoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_layers": 1}
    HamForConditionalGeneration(HamConfig(**sizes, **heads)).save_pretrained(tmp_path / "model")
    with pytest.raises(typer.BadParameter, match="is transformer; only poem models"):
        levels.main(file, [tmp_path / "model"])

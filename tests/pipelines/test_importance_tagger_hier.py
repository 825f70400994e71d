"""`importance_tagger` of the summarization pipeline and of the command line."""

import json
import logging

import pytest
import torch
from transformers import pipeline
from typer.testing import CliRunner

import hier_models
from hier_models import ImportanceTagger
from hier_models.cli import app
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


# Named, since the command line quiets those above it.
LOGGER = "hier_models.pipelines.importance_tagger_hier"


SETTINGS = {"max_new_tokens": 8, "num_beams": 2}


@pytest.fixture
def tagger(tiny_tagger, top_down_processor):
    return ImportanceTagger(tiny_tagger, top_down_processor)


@pytest.fixture
def checkpoints(tiny_top_down, tiny_tagger, top_down_processor, tmp_path):
    """Folders of a summarizer and of a tagger."""
    for name, model in (("summarizer", tiny_top_down), ("tagger", tiny_tagger)):
        model.save_pretrained(tmp_path / name)
        top_down_processor.save_pretrained(tmp_path / name)
    return str(tmp_path / "summarizer"), str(tmp_path / "tagger")


@pytest.fixture
def expected(tiny_top_down, top_down_processor, tagger):
    """Summarizes by hand: tags, weighs, generates."""

    def summarize(**source):
        text = top_down_processor.running_text(**source)
        encoded = top_down_processor(text=text, importance=tagger(text), return_tensors="pt")
        ids = tiny_top_down.generate(**encoded, **SETTINGS)
        return top_down_processor.decode(ids[0], skip_special_tokens=True)

    return summarize


def make(model, processor, **options):
    return pipeline("summarization", model=model, processor=processor, device="cpu", **options)


def texts(results):
    return [result["summary_text"] for result in results]


def test_a_tagger_a_model_or_a_checkpoint(checkpoints, tiny_tagger, tagger, expected):
    summarizer, folder = checkpoints
    wanted = expected(text=DOCUMENTS[0])
    for given in (tagger, tiny_tagger, folder):
        pipe = pipeline("summarization", model=summarizer, importance_tagger=given, device="cpu")
        assert texts(pipe(DOCUMENTS[0], **SETTINGS)) == [wanted]
    plain = pipeline("summarization", model=summarizer, device="cpu")
    assert texts(plain(DOCUMENTS[0], **SETTINGS)) != [wanted]


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (3, 0), (2, 1)])
def test_every_kind_of_document_alone_and_in_batches(
    tiny_top_down, top_down_processor, tagger, expected, batch_size, workers
):
    pipe = make(tiny_top_down, top_down_processor, importance_tagger=tagger)
    sources = [
        {"text": DOCUMENTS[0]},
        {"turns": TURNS},
        {"sentences": ["A bridge closed.", "A ferry runs."]},
        {"documents": DOCUMENTS[1:3]},
        {"text": DOCUMENTS[1]},
    ]
    results = pipe(iter(sources), batch_size=batch_size, num_workers=workers, return_truncation=True, **SETTINGS)
    results = [result[0] for result in results]
    assert texts(results) == [expected(**source) for source in sources]
    assert all(result["num_truncated_tokens"] == 0 for result in results)


def test_what_is_cut_is_counted_and_not_tagged(tiny_top_down, top_down_processor, tagger, caplog):
    pipe = make(tiny_top_down, top_down_processor, importance_tagger=tagger)
    text = " ".join(DOCUMENTS * 2)
    with caplog.at_level(logging.WARNING, LOGGER):
        (result,) = pipe(text, max_source_length=30, truncation=True, return_truncation=True, **SETTINGS)
    full = len(top_down_processor(text=text)["input_ids"])
    assert result["num_truncated_tokens"] == full - 30
    assert "num_truncated_sentences" not in result
    assert tagger.windows == 1
    assert "tagged in windows" not in caplog.text
    encoded = top_down_processor(text=text, truncation=True, max_length=30, return_offsets_mapping=True)
    kept = text[: encoded["offset_mapping"][-2][1]]
    weighed = top_down_processor(
        text=text, importance=tagger(kept), truncation=True, max_length=30, return_tensors="pt"
    )
    ids = tiny_top_down.generate(**weighed, **SETTINGS)
    assert result["summary_text"] == top_down_processor.decode(ids[0], skip_special_tokens=True)


def test_sampling_several_summaries_and_an_empty_document(tiny_top_down, top_down_processor, tagger):
    pipe = make(tiny_top_down, top_down_processor, importance_tagger=tagger)
    torch.manual_seed(0)
    many = pipe(DOCUMENTS[:2], do_sample=True, num_return_sequences=3, max_new_tokens=5, batch_size=2)
    assert [len(results) for results in many] == [3, 3]
    assert len(pipe(["", "One."], batch_size=2, **SETTINGS)) == 2


def test_models_that_do_not_pool_by_importance_refuse_a_tagger(
    tiny_model, processor, tiny_top_down, top_down_processor, tagger
):
    with pytest.raises(ValueError, match="HatBartForConditionalGeneration does not pool"):
        make(tiny_model, processor, importance_tagger=tagger)
    config = type(tiny_top_down.config)(**{**tiny_top_down.config.to_dict(), "pooling": "average"})
    average = type(tiny_top_down)(config)
    with pytest.raises(ValueError, match="has pooling='average'"):
        make(average, top_down_processor, importance_tagger=tagger)
    with pytest.raises(ValueError, match=r"`importance_tagger` must be a checkpoint.*got list"):
        make(tiny_top_down, top_down_processor, importance_tagger=[1])
    with pytest.raises(ValueError, match="must be a token classification model"):
        make(tiny_top_down, top_down_processor, importance_tagger=tiny_top_down)


def test_a_tagger_with_another_vocabulary_needs_its_own_processor(tiny_top_down, top_down_processor, tiny_tagger):
    config = type(tiny_tagger.config)(**{**tiny_tagger.config.to_dict(), "vocab_size": 50})
    with pytest.raises(ValueError, match=r"knows 50 tokens .*ImportanceTagger\(model, processor\)"):
        make(tiny_top_down, top_down_processor, importance_tagger=type(tiny_tagger)(config))


def test_a_tagger_with_another_tokenizer(tiny_top_down, top_down_processor, tiny_tagger):
    """Words are words in both: a tagger that finds one token of a word important weighs all that overlap it."""

    class Fixed(ImportanceTagger):
        def __call__(self, texts, *, progress=False):
            return [[(4, 10, 0.5)] for _ in texts]

    pipe = make(tiny_top_down, top_down_processor, importance_tagger=Fixed(tiny_tagger, top_down_processor))
    encoded = top_down_processor(text=DOCUMENTS[0], importance=[(4, 10, 0.5)], return_tensors="pt")
    ids = tiny_top_down.generate(**encoded, **SETTINGS)
    assert texts(pipe(DOCUMENTS[0], **SETTINGS)) == [top_down_processor.decode(ids[0], skip_special_tokens=True)]


# The command line


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(DOCUMENTS[0])
    return path


def test_summarize(checkpoints, document, expected, tmp_path):
    summarizer, tagger = checkpoints
    options = ["--max-length", 8, "--num-beams", 2, "--device", "cpu"]
    result = invoke("summarize", "-m", summarizer, document, "--importance-tagger", tagger, "--json", *options)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["summary"] == expected(text=DOCUMENTS[0]).strip()
    assert record["settings"]["importance_tagger"] == tagger

    # A tagger writes nothing itself.
    alone = invoke("summarize", "-m", tagger, document, *options)
    assert alone.exit_code == 2
    assert "as `importance_tagger`" in alone.stderr

    # A job goes on with the same tagger only.
    output = tmp_path / "out.jsonl"
    assert invoke("summarize", "-m", summarizer, document, "-o", output, *options).exit_code == 0
    other = invoke("summarize", "-m", summarizer, document, "-o", output, "--importance-tagger", tagger, *options)
    assert other.exit_code == 2
    assert "was made with" in other.output


def test_evaluate(checkpoints, expected, tmp_path):
    summarizer, tagger = checkpoints
    data = tmp_path / "data.jsonl"
    rows = [{"text": text, "summary": summary} for text, summary in zip(DOCUMENTS, SUMMARIES, strict=True)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--max-length", 8, "--num-beams", 2, "--device", "cpu", "--json", tmp_path / "scores.json"]
    options += ["--predictions", tmp_path / "predictions.jsonl"]
    written = {}
    for kind, given in {"tagger": ["--importance-tagger", tagger], "oracle": ["--oracle-importance"]}.items():
        result = invoke("evaluate", "-m", summarizer, data, *given, *options)
        assert result.exit_code == 0, result.output
        assert json.loads((tmp_path / "scores.json").read_text())["importance"] == kind
        lines = (tmp_path / "predictions.jsonl").read_text().splitlines()
        written[kind] = [json.loads(line)["summary"] for line in lines]
    assert written["tagger"] == [expected(text=document).strip() for document in DOCUMENTS]
    assert written["tagger"] != written["oracle"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--importance-tagger", "/nowhere"], "--importance-tagger: there is no folder '/nowhere'"),
        (
            ["--importance-tagger", "SUMMARIZER"],
            "is no trained token classification model: it lacks classifier.bias, classifier.weight",
        ),
        (["--importance-tagger", "FILE"], "--importance-tagger: "),
    ],
)
def test_mistakes(checkpoints, document, arguments, message):
    replaced = {"SUMMARIZER": checkpoints[0], "FILE": str(document)}
    result = invoke("summarize", "-m", checkpoints[0], document, *(replaced.get(item, item) for item in arguments))
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())


def test_mistakes_of_evaluation(checkpoints, document):
    summarizer, tagger = checkpoints
    result = invoke("evaluate", "-m", summarizer, document, "--importance-tagger", tagger, "--oracle-importance")
    assert result.exit_code == 2
    assert "exclude each other" in result.output
    result = invoke("evaluate", "-m", tagger, document, "--oracle-importance")
    assert result.exit_code == 2
    assert "are for summaries" in " ".join(result.output.split())


def test_it_is_public():
    assert hier_models.ImportanceTagger is ImportanceTagger

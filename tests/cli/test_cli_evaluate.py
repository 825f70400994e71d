"""`hier-models evaluate`."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hier_models import HamReaderConfig, HamReaderForQuestionAnswering, HamReaderProcessor
from hier_models.cli import loading
from hier_models.cli.errors import MistakeError
from hier_models.cores import on_cores
from hier_models.data import train_word_level
from hier_models.metrics import reference_free_counts, reference_free_scores
from hier_models.pipelines import SummarizationPipeline
from tests.cli.commands import expected, jsonl, mistake, run, save_judge, write_jsonl
from tests.conftest import DOCUMENTS, SUMMARIES


def test_evaluate(checkpoint: str, records: str):
    result = run(
        "evaluate",
        "-m",
        checkpoint,
        records,
        "--predictions",
        "p.jsonl",
        "--json",
        "scores.json",
        "--max-source-length",
        "40",
    )
    table = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if line.startswith(("rouge", "doc")))
    scores = json.loads(Path("scores.json").read_text())
    assert table == {
        **{name: f"{scores[name]:.2f}" for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeSU4")},
        "documents": "4",
    }
    written = jsonl(Path("p.jsonl").read_text())
    assert [row["reference"] for row in written] == SUMMARIES
    assert [row["id"] for row in written] == ["r0", "r1", "r2", "r3"]
    assert "documents were not read whole" in result.stderr


def test_evaluate_scores_against_the_documents(checkpoint: str, records: str):
    """The baselines copy all of what they write; a model's numbers are those of the summaries that it wrote."""
    lead = run("evaluate", "-m", "lead", records, "--max-sentences", "1", "--json", "lead.json")
    found = json.loads(Path("lead.json").read_text())["reference_free"]
    assert (found["coverage"], found["novel_1"], found["novel_4"], found["finished"]) == (1, 0, 0, 0.75)
    lengths = [len(text.split(". ")[0].split()) for text in DOCUMENTS]
    assert found["density"] == pytest.approx(sum(lengths) / 4)
    table = {line[:25].strip(): line[25:].strip() for line in lead.stdout.splitlines()}
    assert (table["coverage"], table["density"], table["novel 4-grams"]) == (
        "100.0%",
        f"{sum(lengths) / 4:.2f}",
        "0.0%",
    )
    assert table["names and numbers found"] == "100.0%"  # Monday
    run(
        "evaluate", "-m", checkpoint, records, "--predictions", "p.jsonl", "--json", "scores.json", "--max-length", "9"
    )
    written = [row["summary"] for row in jsonl(Path("p.jsonl").read_text())]
    counts = map(reference_free_counts, written, DOCUMENTS)
    assert json.loads(Path("scores.json").read_text())["reference_free"] == reference_free_scores(counts)


def test_evaluate_scores_what_summarize_writes(checkpoint: str):
    rows = [{"document": text, "abstract": "A reference."} for text in DOCUMENTS]
    write_jsonl("data.jsonl", rows)
    run(
        "evaluate", "-m", checkpoint, "data.jsonl", "--predictions", "p.jsonl", "--num-beams", "2", "--max-length", "7"
    )
    summaries = [row["summary"].strip() for row in jsonl(Path("p.jsonl").read_text())]
    assert summaries == expected(checkpoint, *DOCUMENTS, num_beams=2, max_new_tokens=7, truncation=True)
    rows = [{"document": DOCUMENTS[i], "abstract": f"{summary} abc"} for i, summary in enumerate(summaries)]
    write_jsonl("data.jsonl", rows)
    arguments = ["--num-beams", "2", "--max-length", "7", "--json", "scores.json"]
    run("evaluate", "-m", checkpoint, "data.jsonl", *arguments)
    assert json.loads(Path("scores.json").read_text())["rouge1"] > 0


def test_evaluate_reads_of_long_documents_what_the_checkpoint_was_trained_to(checkpoint: str) -> None:
    config = AutoConfig.from_pretrained(checkpoint)
    text = " ".join(f"Sentence {number} says {DOCUMENTS[number % 2]}" for number in range(40))
    write_jsonl("data.jsonl", [{"document": text, "abstract": "A reference."}])

    def read(*options: str) -> dict[str, Any]:
        run("evaluate", "data.jsonl", "-m", "trained", "--max-length", "5", "--json", "scores.json", *options)
        return json.loads(Path("scores.json").read_text())["truncation"]

    shutil.copytree(checkpoint, "trained")
    config.task_specific_params = {"summarization": {"long_documents": "condense", "max_source_length": 50}}
    config.save_pretrained("trained")
    condensed, cut = read(), read("--cut")
    assert condensed["truncated_sentences"] == 0 < condensed["truncated_tokens"]  # whole sentences are left out
    assert cut["truncated_sentences"] > 0
    config.task_specific_params = None
    config.save_pretrained("trained")
    assert read()["truncated_tokens"] < cut["truncated_tokens"]  # as many tokens as the model has positions
    assert read("--max-source-length", "50") == cut


@pytest.mark.usefixtures("two_threads")
def test_evaluate_scores_what_mini_writes_for_users() -> None:
    """In the words of the document, of what is central to it, and in pages."""
    text = (Path(__file__).parents[2] / "docs" / "ferry.txt").read_text()
    write_jsonl("data.jsonl", [{"text": text * 3, "summary": "A ferry."}, {"text": text[:400], "summary": "A ferry."}])
    for options in (
        [],
        ["--length", "long", "--max-length", "96"],  # four paragraphs of 24 tokens at most
        ["--cut", "--max-source-length", "60", "--max-length", "24"],
    ):
        run("evaluate", "data.jsonl", "--predictions", "p.jsonl", *options)
        run("summarize", "data.jsonl", "-o", "out.jsonl", *options)
        written = [[row["summary"] for row in jsonl(Path(name).read_text())] for name in ("p.jsonl", "out.jsonl")]
        assert written[0] == written[1]
        Path("out.jsonl").unlink()


def test_evaluate_of_what_is_written_for_users_takes_its_options(
    checkpoint: str, records: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(checkpoint) / "config.json"
    params = {"summarization": {"faithful": True}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"task_specific_params": params}))
    sizes: list[int] = []
    usual = SummarizationPipeline._forward

    def forward(self: Any, inputs: Any, **settings: Any) -> Any:
        sizes.append(len(inputs["examples"]))
        return usual(self, inputs, **settings)

    monkeypatch.setattr(SummarizationPipeline, "_forward", forward)
    command = ("evaluate", "-m", checkpoint, records, "--max-length", "5")
    run(*command, "--batch-size", "3")
    assert sizes == [3, 1]
    for option in (["--oracle-importance"], ["--selected-rows", "1"]):
        mistake(*command, *option, says=[f"{option[0]}: ", "faithful", "remove", "task_specific_params"])


def test_evaluate_without_a_length_does_not_stop_at_20_tokens(checkpoint: str, records: str):
    """Like the pipeline, and unlike `generate` alone."""
    settings = json.loads(Path("model/generation_config.json").read_text())
    del settings["max_length"]
    Path("model/generation_config.json").write_text(json.dumps(settings | {"min_new_tokens": 40}))
    run("evaluate", "-m", checkpoint, records, "--json", "scores.json")
    assert json.loads(Path("scores.json").read_text())["gen_len"] >= 40


def test_evaluate_mistakes(checkpoint: str, paper: str):
    Path("plain.jsonl").write_text(json.dumps({"text": "One. Two."}) + "\n")
    mistake("evaluate", "-m", checkpoint, "plain.jsonl", says="has no reference summaries")
    mistake("evaluate", "-m", checkpoint, "plain.jsonl", "--summary-column", "nope", says=["'nope'", "'text'"])
    mistake("evaluate", "-m", checkpoint, "missing.jsonl", says="no such file or folder: missing.jsonl")
    mistake("evaluate", "-m", "nowhere/at/all", "plain.jsonl", says="--model: there is no folder")


@pytest.mark.parametrize("option", ["--predictions", "--json"])
def test_evaluate_writes_over_no_data(checkpoint: str, records: str, option: str):
    before = Path(records).read_bytes()
    mistake("evaluate", "-m", checkpoint, records, option, records, says=f"{option}: {records} is the data")
    Path("corpus").mkdir()
    Path("corpus/test.jsonl").write_bytes(before)
    mistake("evaluate", "-m", checkpoint, "corpus", option, "corpus/test.jsonl", says="lies in the folder of the data")
    # Known before the hours of summarizing, not after.
    mistake("evaluate", "-m", checkpoint, records, option, "no/where.jsonl", says=f"{option}: there is no folder")
    mistake("evaluate", "-m", checkpoint, records, option, "corpus", says=f"{option}: corpus is a folder")
    mistake(
        "evaluate", "-m", checkpoint, records, "--json", "same", "--predictions", "same", says="--json: same is also"
    )
    assert Path(records).read_bytes() == Path("corpus/test.jsonl").read_bytes() == before


def test_evaluate_transcripts(checkpoint: str):
    row = {"talk": "Ann: Um, hello. We are eight.\nBob: Uh.\nAnn: Bye.", "summary": "Eight."}
    Path("talk.jsonl").write_text(json.dumps(row) + "\n")
    options = ["--text-column", "talk", "--source-kind", "turns", "--fillers", "english", "--max-length", "8"]
    result = run("evaluate", "-m", checkpoint, "talk.jsonl", *options)
    assert "Left out: 2 filler words, 1 turns without words." in result.stderr
    mistake(
        "evaluate",
        "-m",
        checkpoint,
        "talk.jsonl",
        "--fillers",
        "none.txt",
        says="fillers='none.txt' is neither a file",
    )
    mistake("evaluate", "-m", checkpoint, "talk.jsonl", *options[:2], "--source-kind", "turn", says="got 'turn'")


def test_evaluate_by_models_that_are_none(checkpoint: str, records: str):
    mistake("evaluate", records, "--nli", "./nothing", says="--nli: there is no folder './nothing'")
    mistake("evaluate", records, "--bert-score", "./nothing", says="--bert-score: there is no folder './nothing'")
    mistake("evaluate", records, "-m", "lead", "--nli", checkpoint, says="must be entailment, got LABEL_0")


def test_evaluate_by_models(checkpoint: str, records: str):
    """BERTScore and an NLI model of the same tiny vocabulary."""
    save_judge("judge", checkpoint)
    judges = ("--bert-score", "judge", "--nli", "judge", "--device", "cpu")
    for model in (["-m", "lead", "--max-sentences", "1"], ["-m", checkpoint, "--max-length", "9"]):
        result = run("evaluate", *model, records, "--json", "scores.json", *judges)
        scores = json.loads(Path("scores.json").read_text())
        assert {"bert_score": "judge", "entailment": "judge"}.items() <= scores["settings"].items()
        assert f"BERTScore {scores['bert_score']:.2f}" in " ".join(result.stdout.split())
        assert f"entailed (NLI) {scores['entailment']:.2f}" in " ".join(result.stdout.split())


def test_questions_without_an_answer_are_counted():
    text = "Marta keeps a bakery."
    processor = HamReaderProcessor(train_word_level([text]))
    sizes = {"embedding_size": 4, "char_hidden_size": 3, "hidden_size": 4, "attention_depth": 1}
    config = HamReaderConfig(vocab_size=len(processor.tokenizer), **sizes)
    HamReaderForQuestionAnswering(config).save_pretrained("reader")
    processor.save_pretrained("reader")
    given, none = {"text": ["Marta"], "answer_start": [0]}, {"text": [], "answer_start": []}
    row = {"question": "Who keeps it?", "context": text}
    write_jsonl("questions.jsonl", [{**row, "answers": answers} for answers in (given, none, none)])
    result = run("evaluate", "-m", "reader", "questions.jsonl")
    assert "total" in result.stdout
    assert "2 questions have no answer and were left out." in result.stderr
    write_jsonl("questions.jsonl", [{**row, "answers": none}])
    refused = run("evaluate", "-m", "reader", "questions.jsonl", code=2)
    assert "DATA: no question of questions.jsonl has an answer to score against" in refused.stderr
    assert not refused.stdout


def test_queries_are_for_models_that_read_them(checkpoint: str):
    write_jsonl("asked.jsonl", [{"text": DOCUMENTS[1], "summary": SUMMARIES[1], "query": "How do bees find food?"}])
    command = ("evaluate", "-m", checkpoint, "asked.jsonl", "--max-source-length", "20", "--json", "scores.json")
    cut = []
    for reads_query in (False, True):
        path = Path(checkpoint) / "config.json"
        params = {"summarization": {"reads_query": reads_query}}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"task_specific_params": params}))
        result = run(*command)
        assert ("`query` is not looked at here" in result.stderr) != reads_query
        cut.append(json.loads(Path("scores.json").read_text())["truncation"]["truncated_tokens"])
    assert cut[0] < cut[1]


def test_a_column_may_be_called_query(checkpoint: str):
    write_jsonl("asked.jsonl", [{"text": DOCUMENTS[1], "query": "How do bees find food?"}])
    result = run("evaluate", "-m", checkpoint, "asked.jsonl", "--summary-column", "query", "--max-length", "9")
    assert "rouge1" in result.stdout
    assert "not looked at" not in result.stderr


def test_what_a_job_has_written_is_not_overwritten(checkpoint: str, records: str):
    run("summarize", "-m", checkpoint, records, "-o", "out.jsonl", "--max-length", "9")
    before = Path("out.jsonl").read_bytes()
    for option in ("--predictions", "--json"):
        says = f"{option}: out.jsonl is what another command made"
        mistake("evaluate", "-m", checkpoint, records, option, "out.jsonl", says=says)
    assert Path("out.jsonl").read_bytes() == before
    for _ in range(2):  # its own it may
        run("evaluate", "-m", checkpoint, records, "--predictions", "predictions.jsonl", "--max-length", "9")


@pytest.mark.parametrize(("options", "size"), [([], "auto"), (["--batch-size", "3"], 3)])
def test_documents_at_once_are_many_unless_it_is_said(checkpoint: str, records: str, options, size, monkeypatch):
    path = Path(checkpoint) / "config.json"
    params = {"task_specific_params": {"summarization": {"faithful": False}}}  # written as `summarize` does
    path.write_text(json.dumps(json.loads(path.read_text()) | params))
    sizes: list[Any] = []

    def work(*given: Any, batch_size: Any, **others: Any) -> Any:
        sizes.append(batch_size)
        return on_cores(*given, batch_size=batch_size, **others)

    monkeypatch.setattr("hier_models.cli.evaluate.on_cores", work)
    run("evaluate", "-m", checkpoint, records, "--max-length", "9", *options)
    assert sizes == [size]


def test_it_generates_where_it_is_told(checkpoint: str, records: str, monkeypatch: pytest.MonkeyPatch):
    """A Trainer by itself takes the accelerator that there is, whatever device its model is on."""
    made: list[Seq2SeqTrainingArguments] = []

    class Trainer(Seq2SeqTrainer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self.args)

    monkeypatch.setattr("hier_models.training.evaluation.Seq2SeqTrainer", Trainer)
    run("evaluate", "-m", checkpoint, records, "--device", "cpu", "--batch-size", "3", "--perplexity", "20")
    assert [(args.use_cpu, args.per_device_eval_batch_size) for args in made] == [(True, 3)] * len(made)
    assert len(made) > 1  # what generates, and what gives the perplexities
    pipe = SimpleNamespace(device=torch.device("cuda:0"))
    assert not loading.trainer_arguments(pipe, 3).use_cpu
    pipe.device = torch.device("cuda:1")
    with pytest.raises(MistakeError, match="CUDA_VISIBLE_DEVICES=1"):
        loading.trainer_arguments(pipe, 3)

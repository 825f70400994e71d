"""The reading-comprehension pipeline: spans of the original text, top-k, documents, windows, batches, bad input."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import pipeline

from hier_models import HamReaderConfig, HamReaderForQuestionAnswering, HamReaderProcessor
from hier_models.data.tokenizer_training import train_characters, train_word_level
from hier_models.models.processing_ham_reader import fit_characters
from hier_models.pipelines.reading_comprehension_hier import ReadingComprehensionPipeline, best_spans


CONTEXT = "Marta keeps a bakery.  Every morning, she lights the Oven at four."
OTHER = "The lamp was lit by a keeper. Today a machine turns it."
QUESTION = "When does Marta light the oven?"


@pytest.fixture(scope="module")
def processor():
    texts = [CONTEXT, OTHER, QUESTION]
    return HamReaderProcessor(train_word_level(texts, digits=None), characters=fit_characters(texts))


@pytest.fixture(scope="module")
def model(processor):
    torch.manual_seed(0)
    config = HamReaderConfig(
        vocab_size=len(processor.tokenizer),
        char_vocab_size=processor.char_vocab_size,
        embedding_size=6,
        char_hidden_size=4,
        hidden_size=5,
        attention_depth=2,
        pad_token_id=processor.tokenizer.pad_token_id,
    )
    model = HamReaderForQuestionAnswering(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.fixture(scope="module")
def read(model, processor):
    return pipeline("reading-comprehension", model=model, processor=processor, device="cpu")


def test_an_answer_is_a_span_of_the_text(read):
    answer = read(question=QUESTION, context=CONTEXT)
    assert isinstance(read, ReadingComprehensionPipeline)
    assert set(answer) == {"answer", "start", "end", "score"}
    assert CONTEXT[answer["start"] : answer["end"]] == answer["answer"]
    assert answer["answer"]
    assert 0 < answer["score"] <= 1


def test_the_best_of_all_spans(read, model, processor):
    made = processor([QUESTION], [CONTEXT], return_tensors="pt", return_spans=True)
    spans = made.pop("context_spans")[0]
    made.pop("example_index")
    with torch.no_grad():
        output = model(**made)
    start, end = output.start_logits[0].softmax(-1), output.end_logits[0].softmax(-1)
    want = sorted(
        (
            (float(start[i] * end[j]), spans[i][0], spans[j][1])
            for i in range(len(spans))
            for j in range(i, min(len(spans), i + 4))
        ),
        reverse=True,
    )[:5]
    got = read(question=QUESTION, context=CONTEXT, top_k=5, max_answer_length=4)
    assert [(answer["start"], answer["end"]) for answer in got] == [place[1:] for place in want]
    np.testing.assert_allclose([answer["score"] for answer in got], [place[0] for place in want], rtol=1e-4)


def test_documents(read):
    for answer in read(question=QUESTION, documents=[OTHER, CONTEXT], top_k=20):
        text = [OTHER, CONTEXT][answer["document"]]
        assert text[answer["start"] : answer["end"]] == answer["answer"]
    assert {a["document"] for a in read(question=QUESTION, documents=[OTHER, CONTEXT], top_k=200)} == {0, 1}


def test_windows_cover_the_context(read):
    answers = read(question=QUESTION, context=CONTEXT, max_length=5, stride=2, max_answer_length=1, top_k=50)
    assert len(answers) == len({(answer["start"], answer["end"]) for answer in answers}) == 15
    assert all(CONTEXT[answer["start"] : answer["end"]] == answer["answer"] for answer in answers)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_batches_change_nothing(read, batch_size):
    items = [
        {"question": QUESTION, "context": CONTEXT},
        {"question": "Who?", "documents": [OTHER, CONTEXT]},
        {"question": "What turns the lamp today?", "context": OTHER},
    ]
    want = [read(item) for item in items]
    for got in (read(items, batch_size=batch_size), list(read(iter(items), batch_size=batch_size))):
        assert [answer["answer"] for answer in got] == [answer["answer"] for answer in want]
        np.testing.assert_allclose([a["score"] for a in got], [a["score"] for a in want], rtol=1e-4)


def test_several_questions_on_one_context(read):
    answers = read(question=[QUESTION, "Who?"], context=CONTEXT)
    alone = [read(question=QUESTION, context=CONTEXT), read(question="Who?", context=CONTEXT)]
    assert [answer["answer"] for answer in answers] == [answer["answer"] for answer in alone]


def test_from_a_folder(model, processor, read, tmp_path):
    read.save_pretrained(tmp_path)
    loaded = pipeline("reading-comprehension", model=str(tmp_path), device="cpu")
    got, want = loaded(question=QUESTION, context=CONTEXT), read(question=QUESTION, context=CONTEXT)
    assert got.pop("score") == pytest.approx(want.pop("score"), rel=1e-5)
    assert got == want


def test_a_span_of_two_windows_has_its_better_score():
    windows = [{"context_spans": [(0, 1), (2, 3)]}, {"context_spans": [(2, 3), (4, 5)]}]
    zeros = np.zeros(2)
    for places in ((1, 0), (0, 1)):
        logits = [[zeros, zeros] for _ in windows]
        logits[places[0]] = [np.array([3.0, 3.0]), zeros]
        scores = dict(best_spans(windows, logits, 9, 1))
        total = 2 * np.exp(3.0) + 1
        assert scores[2, 3] == pytest.approx(np.exp(3.0) / total / 3)


def test_words_that_windows_share_count_once():
    first, second = np.array([0.0, 1.0, 9.0, 2.0]), np.array([0.5, 1.0, 8.0, 0.0])
    windows = [{"context_spans": [(i, i + 1) for i in range(at, at + 4)]} for at in (0, 1, 2)]
    whole = [np.append(logits, (0.25, 0.75)) for logits in (first, second)]
    logits = [[part[at : at + 4] for part in whole] for at in (0, 1, 2)]
    everything = {"context_spans": [(i, i + 1) for i in range(6)]}
    assert dict(best_spans(windows, logits, 5, 3)) == pytest.approx(dict(best_spans([everything], [whole], 5, 3)))


def test_no_span_goes_from_one_document_into_the_next():
    window = {"context_spans": [(0, 1), (2, 3), (4, 5)], "document_ids": [0, 0, 1]}
    start, end = np.array([0.0, 5.0, 0.0]), np.array([1.0, 0.0, 5.0])
    spans = [span for span, _ in best_spans([window], [(start, end)], 9, 3)]
    assert (2, 5) not in spans
    assert (0, 5) not in spans
    assert spans[0] == (4, 5) or spans[0] == (2, 3)
    assert len(spans) == 4


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"question": QUESTION}, ValueError, "give exactly one of `context` and `documents`"),
        ({"context": CONTEXT}, ValueError, "give a `question`"),
        ({"question": 3, "context": CONTEXT}, TypeError, "`question` must be text, or a list of text, got int"),
        ({"question": [QUESTION], "context": 3}, TypeError, "`context` must be text, or a list of text, got int"),
        ({"question": QUESTION, "context": " "}, ValueError, "must have a word"),
        ({"question": [QUESTION], "context": [CONTEXT, OTHER]}, ValueError, "for each of 1 questions, got 2"),
        ({"inputs": {"question": QUESTION}}, ValueError, '`inputs` must have "question" and one of'),
        ({"inputs": []}, ValueError, "empty list"),
        (
            {"question": [QUESTION, " "], "context": CONTEXT},
            ValueError,
            r"`inputs\[1\]`: `question` must have a word",
        ),
        ({"inputs": iter([{"question": 3, "context": CONTEXT}])}, TypeError, "`question.*must be a string, got int"),
        ({"inputs": [QUESTION]}, TypeError, r"`inputs\[0\]` must be a dictionary"),
        ({"inputs": QUESTION}, TypeError, "`inputs` must be a dictionary"),
        ({"question": QUESTION, "context": CONTEXT, "top_k": 0}, ValueError, "`top_k` must be an integer"),
        ({"question": QUESTION, "context": CONTEXT, "batch_size": 0}, ValueError, "`batch_size` must be an integer"),
        ({"inputs": iter([]), "batch_size": 0}, ValueError, "`batch_size` must be an integer"),
        ({"question": QUESTION, "context": CONTEXT, "depth": 2}, TypeError, "'depth' is no argument"),
        (
            {"question": QUESTION, "context": CONTEXT, "max_length": 4, "stride": 4},
            ValueError,
            "`stride` must be less",
        ),
    ],
)
def test_bad_input(read, arguments, error, message):
    with pytest.raises(error, match=message):
        list(read(**arguments))


@pytest.mark.parametrize("batch_size", [1, 2, 3])
@pytest.mark.parametrize("bad", [{"question": " ", "context": CONTEXT}, {"q": QUESTION}])
def test_the_number_of_a_bad_question_in_a_stream(read, batch_size, bad):
    items = [{"question": QUESTION, "context": CONTEXT}] * 3
    with pytest.raises(ValueError, match=r"`inputs\[3\]`"):
        list(read(iter([*items, bad]), batch_size=batch_size))


def test_rows_with_a_column_that_is_missing(read):
    """In a dataset that is null, where other rows have it."""
    items = [{"question": QUESTION, "context": CONTEXT}, {"question": "Who?", "documents": [OTHER, CONTEXT]}]
    columns = {name: [item.get(name) for item in items] for name in ("question", "context", "documents")}
    assert list(read(Dataset.from_dict(columns))) == [read(item) for item in items]
    with pytest.raises(ValueError, match='`inputs` must have "question" and one of'):
        read({"question": QUESTION, "context": None, "documents": None})


def test_without_a_processor(model):
    with pytest.raises(ValueError, match="`processor` must be a reader's"):
        ReadingComprehensionPipeline(model=model)


@pytest.mark.parametrize(
    ("characters", "in_model", "message"),
    [
        (None, 9, "`processor` has 0 ids of characters, and the model char_vocab_size=9"),
        ("abc", 0, "`processor` has 5 ids of characters, and the model char_vocab_size=0"),
        ("abc", 4, "`processor` has 5 ids of characters, and the model char_vocab_size=4"),
    ],
)
def test_characters_must_be_those_of_the_model(processor, characters, in_model, message):
    other = HamReaderProcessor(processor.tokenizer, characters=characters)
    sizes = {"embedding_size": 6, "char_hidden_size": 4, "hidden_size": 5, "attention_depth": 1}
    config = HamReaderConfig(vocab_size=len(processor.tokenizer), char_vocab_size=in_model, **sizes)
    with pytest.raises(ValueError, match=message):
        ReadingComprehensionPipeline(model=HamReaderForQuestionAnswering(config), processor=other)


def test_tokens_of_one_character():
    """Of a Chinese reader; its words have one character each, and answers may begin anywhere."""
    context = "小桥在村南。老王早上四点起床。"
    tokens = HamReaderProcessor(train_characters([context]), characters=fit_characters([context]))
    sizes = {"embedding_size": 6, "char_hidden_size": 4, "hidden_size": 5, "attention_depth": 2}
    config = HamReaderConfig(vocab_size=len(tokens.tokenizer), char_vocab_size=tokens.char_vocab_size, **sizes)
    read = ReadingComprehensionPipeline(model=HamReaderForQuestionAnswering(config).eval(), processor=tokens)
    answers = read(question="几点𠮷？", context=context, top_k=999, max_answer_length=2)
    assert len(answers) == 2 * len(context) - 1
    assert {answer["answer"] for answer in answers} >= {"四点", "老", "。老"}


def test_without_a_model():
    with pytest.raises(ValueError, match="or a model with its `processor`"):
        pipeline("reading-comprehension")

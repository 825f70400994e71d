"""Questions on a context: windows, the answer's place, and answers from logits."""

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.processors import RobertaProcessing
from transformers import PreTrainedTokenizerFast

from hier_models import HatEncoderConfig, HatEncoderForQuestionAnswering, HatEncoderProcessor
from hier_models.data import HierDataCollator
from hier_models.data.question_answering import (
    EXAMPLE,
    SPANS,
    QuestionReport,
    find_answers,
    tokenize_questions,
)
from tests.conftest import DOCUMENTS


BOS, EOS = 0, 2
LONG = " ".join(DOCUMENTS)
ODD = "  Zwei  Sätze!\n\n他来了。“她走了。”是的。 🙂🙂 <s> no marker. It cost 3,50 € (“much”).  End."


@pytest.fixture(scope="module")
def processor(tokenizer: PreTrainedTokenizerFast) -> HatEncoderProcessor:
    return HatEncoderProcessor(tokenizer)


def row(context: str, *answers: str, question: str = " What was it? ") -> dict[str, Any]:
    return {
        "question": question,
        "context": context,
        "answers": {"text": list(answers), "answer_start": [context.index(answer) for answer in answers]},
    }


def tokenized(rows: list[dict[str, Any]], processor: Any, **options: Any) -> Dataset:
    return tokenize_questions(
        Dataset.from_list(rows), processor, **{"max_length": 60, "stride": 20, "max_question_length": 24, **options}
    )


def logits_for(windows: Dataset, place: dict[int, tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Logits that point at these tokens of these windows, padded."""
    width = max(map(len, windows["input_ids"])) + 3
    start, end = np.zeros((len(windows), width)), np.zeros((len(windows), width))
    for window, (first, last) in place.items():
        start[window, first] = end[window, last] = 10.0
    return start, end


# ------------------------------------------------------------------------------------------------------------ windows


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        (LONG, "the second pillar"),
        (LONG, "The"),
        (LONG, "six weeks. The town"),  # over a marker
        (LONG, "A single sentence without much in it"),
        (ODD, "Zwei"),
        (ODD, "她"),
        (ODD, "🙂"),
        (ODD, "<s>"),
        (ODD, "3,50 €"),
        (ODD, "“much”"),
        (ODD, "End."),
    ],
)
def test_the_answer_is_found_again_to_the_character(processor: HatEncoderProcessor, context: str, answer: str) -> None:
    windows = tokenized([row(LONG), row(context, answer)], processor)
    holding = [w for w in range(len(windows)) if windows["end_positions"][w]]
    assert holding
    for window in holding:
        assert windows[EXAMPLE][window] == 1
        place = windows["start_positions"][window], windows["end_positions"][window]
        first, last = (windows[SPANS][window][token] for token in place)
        assert context[first[0] : last[1]] == answer
        found = find_answers([LONG, context], windows, *logits_for(windows, {window: place}))
        assert found[1].text == answer
        best = found[1].n_best[0]
        assert (best.start, best.end) == (first[0], last[1])
        assert best.probability > 0.5
        assert best.score == 20.0


def test_windows_without_the_answer_point_to_the_first_marker(processor: HatEncoderProcessor) -> None:
    report = QuestionReport()
    rows = [row(LONG, "six weeks"), row(LONG), row("Short.", "Short")]
    windows = tokenized(rows, processor, report=report)
    answer = LONG.index("six weeks"), LONG.index("six weeks") + len("six weeks")
    assert len(windows) > 5
    for window in windows:
        inside = [span for span in window[SPANS] if span[0] >= 0]
        whole = window[EXAMPLE] == 0 and inside[0][0] <= answer[0] and inside[-1][1] >= answer[1]
        assert window["input_ids"][0] == BOS
        if window[EXAMPLE] < 2:
            assert bool(window["end_positions"]) == bool(window["start_positions"]) == whole
    assert report.as_dict() == {
        "questions": 3,
        "windows": len(windows),
        "unanswerable": 1,
        "windows_without_answer": windows["end_positions"].count(0)
        if isinstance(windows["end_positions"], list)
        else sum(end == 0 for end in windows["end_positions"]),
        "lost_answers": 0,
        "cut_questions": 0,
    }
    assert "3 questions (1 without an answer)" in str(report)


def test_each_window_is_question_and_context_with_markers(processor: HatEncoderProcessor) -> None:
    windows = tokenized([row(LONG, "Bees")], processor)
    alone = processor("What was it?")["input_ids"]
    for window in windows:
        ids = window["input_ids"]
        assert ids[: len(alone) + 1] == [*alone, EOS]  # `<s> question </s></s>`
        assert ids[len(alone) + 1] == BOS
        assert ids[-1] == EOS
        assert len(ids) <= 60
        for token, span in zip(ids, window[SPANS], strict=True):
            if token in (BOS, EOS):
                assert span == [-1, -1]
        assert all(span == [-1, -1] for span in window[SPANS][: len(alone) + 1])


def test_answers_that_no_window_holds_are_counted(processor: HatEncoderProcessor) -> None:
    report = QuestionReport()
    windows = tokenized([row(LONG, LONG[:400]), row(LONG, "Bees")], processor, report=report)
    assert report.lost_answers == 1
    assert "no window holds them" in str(report)
    assert not any(
        end for end, example in zip(windows["end_positions"], windows[EXAMPLE], strict=True) if example == 0
    )


def test_long_questions_are_cut_and_counted(processor: HatEncoderProcessor) -> None:
    report = QuestionReport()
    long = "Who said what to whom, when and where? " * 5
    windows = tokenized([row(LONG, "Bees", question=long)], processor, max_question_length=20, report=report)
    assert report.cut_questions == 1
    for window in windows:
        assert window["input_ids"].index(EOS) <= 20
        assert any(window["attention_mask"])


def test_streams_and_training_without_spans(processor: HatEncoderProcessor) -> None:
    rows = Dataset.from_list([row(LONG, "Bees"), row(ODD), row(LONG, "six weeks")])
    options: dict[str, Any] = {"max_length": 60, "stride": 20, "max_question_length": 24, "return_spans": False}
    report, streamed = QuestionReport(), QuestionReport()
    windows = tokenize_questions(rows, processor, report=report, **options)
    assert set(windows.column_names) == {"input_ids", "attention_mask", EXAMPLE, "start_positions", "end_positions"}
    stream = tokenize_questions(rows.to_iterable_dataset(), processor, report=streamed, **options)
    assert list(stream) == list(windows)
    assert streamed.as_dict() == report.as_dict()


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_answer_of_any_context(processor: HatEncoderProcessor, data: st.DataObject) -> None:
    context = data.draw(st.text(st.sampled_from("ab cé.!?\n🙂她。<s>"), min_size=1, max_size=80))
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    answer = context[start:end]
    if not answer.strip():
        return
    from hier_models.data.question_answering import _first_answer, _place, _Windows

    assert _first_answer("answers", {"text": [answer], "answer_start": [start]}, context) is not None
    batch = {
        "question": ["Who?"],
        "context": [context],
        "answers": [{"text": [answer], "answer_start": [start]}],
    }
    columns = _Windows(processor, 40, 10, 16, True)(batch, [0])
    for ids, spans, first, last in zip(
        *(columns[name] for name in ("input_ids", SPANS, "start_positions", "end_positions")), strict=True
    ):
        assert _place([(-1, -1)] * len(ids), (0, 1)) == (0, 0)
        stripped = start + len(answer) - len(answer.lstrip()), start + len(answer.rstrip())
        if last:
            # The least tokens that cover the answer: their ends may go beyond it, in the middle of a token.
            assert spans[first][0] <= stripped[0] < spans[first][1]
            assert spans[last][0] < stripped[1] <= spans[last][1]
        else:
            inside = [span for span in spans if span != (-1, -1)]
            assert inside[0][0] > stripped[0] or inside[-1][1] < stripped[1]


# ------------------------------------------------------------------------------------------------------------ answers


def brute_force(context: str, windows: Dataset, start: Any, end: Any, limit: int) -> dict[tuple[int, int], float]:
    """Every span of every window, its best score by its characters without white space around them."""
    found: dict[tuple[int, int], float] = {}
    for w, window in enumerate(windows):
        spans = window[SPANS]
        for i, j in itertools.product(range(len(spans)), repeat=2):
            if not i <= j < i + limit or spans[i][0] < 0 or spans[j][0] < 0:
                continue
            if not context[slice(*spans[i])].strip() or not context[slice(*spans[j])].strip():
                continue
            a, b = spans[i][0], spans[j][1]
            text = context[a:b]
            key = a + len(text) - len(text.lstrip()), b - len(text) + len(text.rstrip())
            found[key] = max(found.get(key, -np.inf), start[w, i] + end[w, j])
    return found


@pytest.mark.parametrize("context", [LONG, ODD])
@pytest.mark.parametrize("limit", [1, 7, 30])
def test_n_best_are_the_best_of_all_spans(processor: HatEncoderProcessor, context: str, limit: int) -> None:
    windows = tokenized([row(context)], processor)
    width = max(map(len, windows["input_ids"]))
    for seed in range(3):
        random = np.random.default_rng(seed)
        start, end = random.normal(size=(2, len(windows), width))
        expected = sorted(
            brute_force(context, windows, start, end, limit).items(), key=lambda item: (-item[1], item[0])
        )[:20]
        null = min(start[:, 0] + end[:, 0])
        (found,) = find_answers([context], windows, start, end, max_answer_length=limit, null_threshold=None)
        assert [((answer.start, answer.end), answer.score) for answer in found.n_best] == [
            (key, pytest.approx(score)) for key, score in expected
        ]
        assert all(answer.text == context[answer.start : answer.end] for answer in found.n_best)
        assert found.text == found.n_best[0].text
        assert found.no_answer_score == pytest.approx(null - expected[0][1])
        assert sum(answer.probability for answer in found.n_best) == pytest.approx(1.0)


def test_the_threshold(processor: HatEncoderProcessor) -> None:
    windows = tokenized([row(LONG, "six weeks")], processor)
    holding = [w for w in range(len(windows)) if windows["end_positions"][w]]
    place = {w: (windows["start_positions"][w], windows["end_positions"][w]) for w in holding}
    start, end = logits_for(windows, place)
    start[:, 0] = end[:, 0] = 12.0
    start[0, 0] = end[0, 0] = 11.0  # the least: 22 against 20
    (found,) = find_answers([LONG], windows, start, end)
    assert found.no_answer_score == 2.0
    assert found.text == ""
    assert (found.n_best[0].text, found.n_best[0].start, found.n_best[0].score) == ("", None, 22.0)
    assert found.n_best[1].text == "six weeks"
    for threshold, text in ((1.9, ""), (2.0, "six weeks"), (5.0, "six weeks"), (None, "six weeks")):
        (found,) = find_answers([LONG], windows, start, end, null_threshold=threshold)
        assert found.text == text
    assert all(answer.text for answer in found.n_best)


def test_no_span_begins_or_ends_outside_the_context(processor: HatEncoderProcessor) -> None:
    """Whatever the logits of question, markers, separators and padding."""
    windows = tokenized([row(LONG)], processor)
    start, end = logits_for(windows, {})
    for w, window in enumerate(windows):
        for i, span in enumerate([*window[SPANS], *[(-1, -1)] * (start.shape[1] - len(window[SPANS]))]):
            if span[0] < 0 and i:
                start[w, i] = end[w, i] = 100.0
    (found,) = find_answers([LONG], windows, start, end, null_threshold=None)
    assert all(answer.score == 0.0 for answer in found.n_best)


def test_torch_logits_and_an_empty_context(processor: HatEncoderProcessor) -> None:
    windows = tokenized([row("")], processor)
    shape = (1, len(windows["input_ids"][0]))
    start, end = torch.zeros(shape, dtype=torch.bfloat16), torch.zeros(shape, requires_grad=True)
    (found,) = find_answers([""], windows, start, end)
    assert found.text == ""
    assert found.no_answer_score == np.inf
    assert [answer.text for answer in found.n_best] == [""]


@pytest.mark.slow
def test_a_model_learns_to_answer(processor: HatEncoderProcessor) -> None:
    """From text to text: what the windows say is what the model learns, and what is found again."""
    rows = [
        row(LONG, "six weeks", question="How long will repairs take?"),
        row(LONG, "by the sun", question="How do bees find home?"),
        row(LONG, question="Who wrote the book?"),
        row(ODD, "3,50 €", question="What did it cost?"),
        row(ODD, "她走了。”是的。", question="Was she there?"),
    ]
    windows = tokenized(rows, processor)
    torch.manual_seed(0)
    config = HatEncoderConfig(
        vocab_size=len(processor.tokenizer),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=66,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = HatEncoderForQuestionAnswering(config)
    names = ["input_ids", "attention_mask", "start_positions", "end_positions"]
    batch = HierDataCollator(processor)(list(windows.select_columns(names)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(150):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    with torch.no_grad():
        output = model.eval()(batch["input_ids"], batch["attention_mask"])
    contexts = [example["context"] for example in rows]
    found = find_answers(contexts, windows, output.start_logits, output.end_logits)
    assert [prediction.text for prediction in found] == [
        example["answers"]["text"][0] if example["answers"]["text"] else "" for example in rows
    ]


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"text": ["bridge"], "answer_start": [5]}, r"`answers\[0\]`: the answer 'bridge' does not stand"),
        ({"text": [" "], "answer_start": [3]}, "the answer is empty"),
        ({"text": "The", "answer_start": [0]}, r"`answers\[0\]` must be \{\"text\": \[…\], .* as in SQuAD"),
        ({"text": ["The"]}, r"`answers\[0\]` must be \{\"text\": \[…\], .* as in SQuAD"),
    ],
)
def test_bad_answers(processor: HatEncoderProcessor, answers: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenized([{**row(LONG), "answers": answers}], processor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 20, "max_question_length": 17}, "at least 4 more"),
        ({"max_question_length": 2}, "at least 3"),
        ({"stride": 60}, "`stride` must be"),
        ({"stride": -1}, "`stride` must be"),
        ({"stride": 34}, "`stride` must be .* 0 to below 34, .* max_length=60 .* max_question_length=24 .*; got 34"),
    ],
)
def test_bad_lengths(processor: HatEncoderProcessor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenized([row(LONG)], processor, **options)


def test_any_stride_that_is_allowed_leaves_room_for_a_long_question(tokenizer: PreTrainedTokenizerFast) -> None:
    """As a tokenizer of RoBERTa's has it, whose pairs have two separators more than its texts."""
    plain = copy.deepcopy(tokenizer)
    plain.backend_tokenizer.post_processor = RobertaProcessing(("</s>", EOS), ("<s>", BOS))
    assert len(tokenized([row(LONG, question=LONG)], plain, stride=33)) > 1
    with pytest.raises(ValueError, match=r"`stride` must be .* 0 to below 34, .* and 2 separators; got 34"):
        tokenized([row(LONG, question=LONG)], plain, stride=34)


def test_a_dataset_without_rows(processor: HatEncoderProcessor) -> None:
    rows = Dataset.from_list([row(LONG)]).select([])
    with pytest.raises(ValueError, match="`dataset` has no rows"):
        tokenize_questions(rows, processor)
    with pytest.raises(ValueError, match="`dataset` has no rows"):
        tokenize_questions(IterableDataset.from_generator(lambda: iter(())), processor)


def test_bad_columns_and_padding_side(processor: HatEncoderProcessor) -> None:
    with pytest.raises(ValueError, match="columns question and context, got q"):
        tokenized([{"q": "a"}], processor)
    side = processor.tokenizer.padding_side
    try:
        processor.tokenizer.padding_side = "left"
        with pytest.raises(ValueError, match="must pad on the right"):
            tokenized([row(LONG)], processor)
    finally:
        processor.tokenizer.padding_side = side


def test_logits_that_do_not_match(processor: HatEncoderProcessor) -> None:
    windows = tokenized([row(LONG)], processor)
    start, end = logits_for(windows, {})
    with pytest.raises(ValueError, match="a row for each of the"):
        find_answers([LONG], windows, start[1:], end)
    with pytest.raises(ValueError, match="tokens, and logits for 9"):
        find_answers([LONG], windows, start[:, :9], end)
    with pytest.raises(ValueError, match=r"must have the shape \(windows, tokens\)"):
        find_answers([LONG], windows, start[0], end)
    with pytest.raises(ValueError, match="not all finite"):
        find_answers([LONG], windows, np.where(start == 0, np.nan, start), end)
    with pytest.raises(ValueError, match="no window of question 1"):
        find_answers([LONG, LONG], windows, start, end)
    with pytest.raises(ValueError, match="there are 0 contexts"):
        find_answers([], windows, start, end)
    with pytest.raises(ValueError, match="`n_best` must be"):
        find_answers([LONG], windows, start, end, n_best=0)
    with pytest.raises(ValueError, match="return_spans=True"):
        find_answers([LONG], windows.remove_columns(SPANS), start, end)

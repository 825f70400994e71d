"""The thread that summarizes: which documents come together, which are dropped, and what a fault does to others."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hier_models.pipelines import SummarizationPipeline, written_form_hier
from hier_models.serving import batching
from hier_models.serving.batching import Batcher, Job, RefusedError
from tests.conftest import DOCUMENTS


class Pipe:
    """A pipeline that writes the document's own text, a batch each time it is let, and keeps what came together."""

    processor = None
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: " ".join(map(str, ids.tolist())))

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.go = threading.Semaphore(0)
        self.steps = 0

    def _sanitize_parameters(self, **settings: Any) -> tuple[dict, dict, dict]:
        if settings.get("length") == "unknown":
            raise ValueError("`length` must be known.\n\nAnd more.")
        return {}, {}, {}

    def preprocess(self, document: dict[str, Any]) -> dict[str, Any]:
        if "unreadable" in document["text"]:
            raise RuntimeError("a secret")
        notes = {"parts": document["text"].split("|")} if "|" in document["text"] else {}
        return {"examples": SimpleNamespace(text=document["text"], notes=notes, counts={})}

    def forward(self, inputs: dict[str, Any], stopping_criteria: list[Any]) -> dict[str, Any]:
        texts = [example.text for example in inputs["examples"]]
        self.batches.append(texts)
        assert self.go.acquire(timeout=30)
        rows = 2 * sum(len(example.notes.get("parts", "1")) for example in inputs["examples"])
        for length in range(2, 5):
            self.steps += 1
            assert not stopping_criteria[0](torch.arange(rows * length).reshape(rows, length), None).any()
            time.sleep(0.01)
        if any("bad" in text for text in texts):
            raise RuntimeError("a secret")
        return {"texts": texts}

    def postprocess(self, outputs: dict[str, Any]) -> list[dict[str, Any]]:
        [text] = outputs["texts"]
        return [{"summary_text": f" {text}"}]


class Desk:
    """A batcher, and what it tells."""

    def __init__(self, batch_size: int = 3, wait: float = 0.05, capacity: int = 10) -> None:
        self.pipe, self.told = Pipe(), []
        self.batcher = Batcher(self.pipe, batch_size, wait, capacity, lambda size, seconds: None)

    def bring(self, text: str, shows: bool = False, **settings: Any) -> Job:
        job = Job({"text": text}, settings, lambda *event: self.told.append((text, *event)), shows=shows)
        self.batcher.submit(job)
        return job

    def finish(self, batches: int = 20) -> list[tuple[str, str, dict[str, Any]]]:
        for _ in range(batches):
            self.pipe.go.release()
        self.batcher.finish(30)
        assert not self.batcher.waiting
        assert not self.batcher.running
        return self.told

    def until(self, condition: Any) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.005)


def test_those_of_like_length_and_settings_come_together_the_oldest_first():
    desk = Desk(wait=0.5)
    texts = ["one", "x" * 2000, "two", "three", "four", "y" * 3000]
    for text in texts:
        desk.bring(text)
    desk.bring("line", length="line")
    told = desk.finish()
    assert desk.pipe.batches == [["one", "two", "three"], ["x" * 2000, "y" * 3000], ["four"], ["line"]]
    assert sorted(told, key=str) == sorted(((t, "summary", {"summary": t}) for t in [*texts, "line"]), key=str)


def test_a_full_batch_waits_for_no_one():
    desk = Desk(wait=600)
    for text in ("one", "two", "three"):
        desk.bring(text)
    assert len(desk.finish()) == 3


def test_waits_may_have_no_end():
    desk = Desk(wait=math.inf)
    desk.bring("one")
    time.sleep(0.1)  # in which it waits for others
    desk.bring("two")
    desk.bring("three")
    with ThreadPoolExecutor() as pool:
        desk.until(lambda: desk.batcher.running)
        done = pool.submit(desk.batcher.finish, math.inf)
        time.sleep(0.1)
        desk.pipe.go.release()
        done.result(30)
    assert len(desk.told) == 3


def test_too_many_are_refused():
    desk = Desk(wait=600, batch_size=9, capacity=2)
    first, _ = desk.bring("one"), desk.bring("two")
    with pytest.raises(RefusedError) as refused:
        desk.bring("three")
    assert refused.value.status == 429
    assert refused.value.retry_after >= 1
    desk.batcher.abandon(first)
    desk.bring("three")
    desk.batcher.stopping = True
    with pytest.raises(RefusedError) as refused:
        desk.bring("four")
    assert refused.value.status == 503


def test_the_abandoned_are_dropped():
    desk = Desk(batch_size=1)
    running = desk.bring("running")
    desk.until(lambda: desk.pipe.batches == [["running"]])
    waiting, other = desk.bring("waiting"), desk.bring("other")
    desk.batcher.abandon(waiting)
    desk.batcher.abandon(running)
    told = desk.finish()
    assert told == [("other", "summary", {"summary": "other"})]
    assert desk.pipe.batches == [["running"], ["other"]]
    assert desk.pipe.steps == 1 + 3  # what was being written stopped at once
    desk.batcher.abandon(other)  # which is done


def test_one_that_is_abandoned_does_not_stop_the_others_of_its_batch():
    desk = Desk()
    first = desk.bring("one")
    desk.bring("two")
    desk.until(lambda: desk.pipe.batches)
    desk.batcher.abandon(first)
    assert ("two", "summary", {"summary": "two"}) in desk.finish()


def test_a_fault_is_of_the_one_who_has_it(caplog: pytest.LogCaptureFixture):
    desk = Desk(wait=0.5)
    for text in ("good", "bad", "unreadable"):
        desk.bring(text)
    told = {text: rest for text, *rest in desk.finish()}
    assert told["good"] == ["summary", {"summary": "good"}]
    assert desk.pipe.batches == [["good", "bad"], ["good"], ["bad"]]
    for text in ("bad", "unreadable"):
        name, data = told[text]
        assert (name, data["status"]) == ("error", 500)
        assert "secret" not in data["detail"]
    assert caplog.text.count("a secret") >= 2
    desk.bring("again", length="unknown")
    assert desk.finish()[-1] == ("again", "error", {"status": 422, "detail": "`length` must be known."})


def test_a_summary_stays_where_its_heatmap_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    def no_memory(*_: Any) -> str:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Batcher, "_heatmap", no_memory)
    desk = Desk()
    desk.batcher.submit(Job({"text": "good"}, {}, lambda *event: desk.told.append(event), heatmap=True))
    assert desk.finish() == [("summary", {"summary": "good", "heatmap": None})]
    assert "a secret" in caplog.text


def test_a_map_of_rows_is_drawn_too(coarse_model: Any, coarse_processor: Any):
    pipe = SummarizationPipeline(model=coarse_model(), processor=coarse_processor)
    told = []
    batcher = Batcher(pipe, 1, 0, 1, lambda size, seconds: None)
    batcher.submit(Job({"text": DOCUMENTS[1]}, {}, lambda *event: told.append(event), heatmap=True))
    batcher.finish(60)
    [(_, answer)] = told
    assert "Hierarchical attention" in answer["heatmap"]


@pytest.mark.parametrize(
    ("first", "seen"),
    [
        # Of two documents and two beams the third row, without the token that begins all.
        ("one", ["5", "7 8", "9 10 11"]),
        ("o|n|e|s", ["17", "25 26", "33 34 35"]),  # the ninth, behind those of four paragraphs
    ],
)
def test_who_looks_on_sees_their_own(monkeypatch: pytest.MonkeyPatch, first: str, seen: list[str]):
    monkeypatch.setattr(batching, "SHOWN_EVERY", 0)
    desk = Desk(wait=0.5)
    desk.bring(first)
    desk.bring("two", shows=True)
    told = desk.finish()
    assert [event for event in told if event[0] == first] == [(first, "summary", {"summary": first})]
    texts = [data["text"] for text, name, data in told if (text, name) == ("two", "writing")]
    assert texts == seen


def watch(documents: list[str], tell: Any, written: str = "bees fly") -> Callable[[], Any]:
    """Somebody looks on at each of the documents; the result is a step of writing."""
    jobs = [Job({"text": text}, {}, lambda *event, text=text: tell(text, *event), shows=True) for text in documents]
    batch = [(job, SimpleNamespace(notes={"document": job.document["text"]})) for job in jobs]
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: written)
    looks_on = batching._Watch(SimpleNamespace(tokenizer=tokenizer), batch)
    return lambda: looks_on(torch.ones(2 * len(batch), 3), None)


def test_the_words_of_a_document_are_learned_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batching, "SHOWN_EVERY", 0)
    tokens, read, told = written_form_hier._tokens, [], []
    monkeypatch.setattr(written_form_hier, "_tokens", lambda text: read.append(text) or tokens(text))
    documents = ["So the Bees fly.", "So bees Fly."]
    step = watch(documents, lambda *event: told.append(event))
    for _ in range(5):
        step()
    seen = [(documents[0], "writing", {"text": "Bees fly"}), (documents[1], "writing", {"text": "Bees Fly"})]
    assert told == seen * 5
    assert [read.count(document) for document in documents] == [1, 1]


def test_a_very_long_document_is_shown_without_its_capitals(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batching, "SHOWN_EVERY", 0)
    told = []
    watch(["So the Bees fly. " * 6000], lambda _, *event: told.append(event))()
    assert told == [("writing", {"text": "bees fly"})]


def test_a_long_look_is_not_followed_by_another_at_once(monkeypatch: pytest.MonkeyPatch):
    now, looks = 0.0, []
    monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: now))

    def look(*event: Any) -> None:
        nonlocal now
        looks.append(now)
        now += 10

    step = watch(["So the Bees fly."], look)
    for seconds in (1, 0, 0.1, 1, 0):
        now += seconds
        step()
    assert looks == [1, pytest.approx(12.1)]

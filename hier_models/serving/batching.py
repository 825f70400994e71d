"""One thread that summarizes the documents of many requests, those of like length and settings at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from transformers import StoppingCriteria

from ..inspection.row_attention import attends_to_rows
from ..pipelines.batching_hier import alike


logger = logging.getLogger(__name__)

SHORT = 500  # characters; among shorter ones the length does not matter
BESIDES = ("page_starts", "query", "phrases")  # what a document may come with
LONGEST_LEARNED = 100_000  # characters of a document, of whose words capitals are learned for those who look on
SHOWN_EVERY = 0.25  # seconds between two looks at what is being written

Tell = Callable[[str, dict[str, Any]], None]


class RefusedError(Exception):
    """A job is not taken, or comes to nothing; with the HTTP status that says so, and when to try again."""

    def __init__(self, status: int, detail: str, retry_after: int) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after = status, detail, retry_after


class _AbandonedError(Exception):
    """Nobody waits for any document of the batch any more."""


@dataclass(eq=False)
class Job:
    """A document that waits for its summary."""

    document: dict[str, Any]  # {"text": …}, {"turns": …}, …; perhaps with "query" and "phrases"
    settings: dict[str, Any]  # arguments of the pipeline's call
    tell: Tell  # is told "writing", and at last once "summary" or "error"; from another thread
    heatmap: bool = False
    shows: bool = False  # whether somebody looks on while it is written
    arrived: float = field(default_factory=time.monotonic)
    abandoned: bool = False

    @cached_property
    def size(self) -> int:
        """Characters."""
        [parts] = [value for name, value in self.document.items() if name not in BESIDES]
        return max(SHORT, len(parts) if isinstance(parts, str) else sum(len(str(part)) for part in parts))

    def goes_with(self, other: Job) -> bool:
        """Whether both can be in one batch."""
        return self.settings == other.settings and alike(self.size, other.size)


class Batcher:
    """Documents that wait, and the thread that summarizes them.

    The oldest document is always of the next batch, so none waits forever; those that go with it come with it.

    Args:
        pipe: a summarization pipeline.
        batch_size: most documents at once.
        wait: how long the oldest document waits for others, in seconds.
        capacity: how many documents may wait.
        observe: is told of each batch how many documents it had and how many seconds it took.
    """

    def __init__(
        self, pipe: Any, batch_size: int, wait: float, capacity: int, observe: Callable[[int, float], None]
    ) -> None:
        self.pipe, self.batch_size, self.capacity, self.observe = pipe, batch_size, capacity, observe
        self.wait = min(wait, threading.TIMEOUT_MAX)  # Python waits no longer
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.pace = 1.0  # seconds a document, of late
        self.stopping = False  # set by a signal's handler, which may take no lock
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="summarizing", daemon=True).start()

    def submit(self, job: Job) -> int:
        """Let a document wait, and return how many are before it."""
        with self._changed:
            if self.stopping:
                raise RefusedError(
                    503, "The server is about to stop. Send it again to the one that takes its place.", 5
                )
            if len(self.waiting) >= self.capacity:
                soon = max(1, round(self.pace * len(self.waiting)))
                detail = f"{self.capacity} documents are waiting, as many as may. Send it again in {soon} s."
                raise RefusedError(429, detail, soon)
            self.waiting.append(job)
            self._changed.notify_all()
            return len(self.waiting) - 1 + len(self.running)

    def abandon(self, job: Job) -> None:
        """Nobody waits for this document any more: it makes room, and what is being written of it alone stops."""
        with self._changed:
            job.abandoned = True
            if job in self.waiting:
                self.waiting.remove(job)
            self._changed.notify_all()

    def finish(self, timeout: float) -> None:
        """Wait until all is done."""
        with self._changed:
            self._changed.wait_for(lambda: not (self.waiting or self.running), min(timeout, threading.TIMEOUT_MAX))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.waiting)
                left = self.waiting[0].arrived + self.wait - time.monotonic()
                self._changed.wait_for(lambda: len(self._batch()) in (0, self.batch_size), timeout=left)
                self.running = self._batch()
                self.waiting = [job for job in self.waiting if job not in self.running]
            begun = time.monotonic()
            self._summarize(self.running)
            if self.running:
                seconds = time.monotonic() - begun
                self.pace += 0.2 * (seconds / len(self.running) - self.pace)
                self.observe(len(self.running), seconds)
            with self._changed:
                self.running = []
                self._changed.notify_all()

    def _batch(self) -> list[Job]:
        """The oldest document that waits, and the oldest of those that go with it."""
        return [job for job in self.waiting if job.goes_with(self.waiting[0])][: self.batch_size]

    def _summarize(self, jobs: list[Job]) -> None:
        """Tell each job its summary, or why there is none. Nothing that happens here ends the thread."""
        read: list[tuple[Job, Any]] = []
        for job in jobs:
            try:
                before, during, after = self.pipe._sanitize_parameters(**job.settings)
                read.append((job, self.pipe.preprocess(job.document, **before)["examples"]))
            except (ValueError, TypeError) as error:  # what a user can put right
                _refuse(job, 422, str(error).split("\n\n")[0])
            except Exception as error:
                _fail(job, error)
        if read:
            self._write(read, during, after)

    def _write(self, batch: list[tuple[Job, Any]], during: dict[str, Any], after: dict[str, Any]) -> None:
        """Write the summaries of documents that were read."""
        try:
            watch = _Watch(self.pipe, batch)
            outputs = self.pipe.forward({"examples": [each for _, each in batch]}, **during, stopping_criteria=[watch])
        except _AbandonedError:
            return
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][0], error)
                return
            for one in batch:  # the fault may be of one of them
                self._write([one], during, after)
            return
        for number, (job, example) in enumerate(batch):
            try:
                own = {name: value[number : number + 1] for name, value in outputs.items()}
                job.tell("summary", self._answer(job, example, self.pipe.postprocess(own, **after)[0]))
            except Exception as error:
                _fail(job, error)

    def _answer(self, job: Job, example: Any, record: dict[str, Any]) -> dict[str, Any]:
        whole = record.pop("summary_text")
        answer = {"summary": whole.strip(), **record}
        for part in record.get("sources", ()):
            spaces = len(whole) - len(whole.lstrip())
            part |= {"start": part["start"] - spaces, "end": part["end"] - spaces}
        if "sources" in record:
            answer["document"] = self.pipe.running_text(job.document)
        if job.heatmap and answer["summary"] and not job.abandoned:
            try:
                answer["heatmap"] = self._heatmap(job, example, answer["summary"])
            except Exception:  # of memory, for example: the summary is there all the same
                logger.exception("A heatmap failed.")
                answer["heatmap"] = None
        return answer

    def _heatmap(self, job: Job, example: Any, summary: str) -> str | None:
        """The page of where the model looked in what it read, if it has something to show."""
        from ..inspection import hierarchical_attention, highlighting_report

        kind = shows(self.pipe)
        if kind is None:
            return None
        show: Any = {"heatmap": hierarchical_attention, "highlights": highlighting_report}[kind]
        name, value, _ = example.source
        named = {name: value}
        if kind == "highlights" and "phrases" in job.document:
            named["phrases"] = job.document["phrases"]
        page: str = show(self.pipe.model, self.pipe.processor, **named, summary=summary).page()
        return page


class _Watch(StoppingCriteria):
    """Looks on while a batch is written: shows it to those who look on, and stops it when nobody waits any more."""

    def __init__(self, pipe: Any, batch: list[tuple[Job, Any]]) -> None:
        self.pipe, self.batch = pipe, batch
        self.learned: dict[int, Any] = {}  # of each document that is shown
        self.shown = time.monotonic()

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Stop nothing by itself."""
        if all(job.abandoned for job, _ in self.batch):
            raise _AbandonedError
        rows = len(input_ids)  # paragraphs of all documents * beams
        if time.monotonic() - self.shown >= SHOWN_EVERY:
            counts = [len(example.notes.get("parts", [example])) for _, example in self.batch]
            beams = rows // sum(counts)
            for place, (job, example) in enumerate(self.batch):
                if job.shows:
                    ids = input_ids[beams * sum(counts[:place])]  # of a page the first paragraph
                    job.tell("writing", {"text": self._text(ids, place, example)})
            self.shown = time.monotonic()
        return torch.zeros(rows, dtype=torch.bool, device=input_ids.device)

    def _text(self, ids: torch.Tensor, place: int, example: Any) -> str:
        """What is written so far, of the best beam; of a very long document without its capitals."""
        from ..pipelines.written_form_hier import learn_written_form, restore_written_form

        text: str = self.pipe.tokenizer.decode(ids[1:], skip_special_tokens=True)
        document = example.notes.get("document")
        if document is None or len(document) > LONGEST_LEARNED:
            return text.strip()
        if place not in self.learned:
            self.learned[place] = learn_written_form(document)
        return restore_written_form(text, document, self.learned[place]).strip()


def shows(pipe: Any) -> str | None:
    """What a model has to show of where it looked."""
    if hasattr(pipe.model.config, "highlighted_layers"):
        return "highlights"
    is_hierarchical = getattr(pipe.model.config, "hierarchical_layers", None) or attends_to_rows(pipe.processor)
    return "heatmap" if is_hierarchical else None


def _refuse(job: Job, status: int, detail: str) -> None:
    job.tell("error", {"status": status, "detail": detail})


def _fail(job: Job, error: Exception) -> None:
    """Tell a failure here, and of its cause no more than that the log has it to those outside."""
    logger.error("A document could not be summarized.", exc_info=error)
    _refuse(job, 500, "The model failed on this document; the server's log says why.")

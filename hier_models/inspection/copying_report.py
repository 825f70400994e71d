"""The report on copied sentences: over a test set, for several models side by side, as numbers, a chart and a page."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.tokenizing import plain_text, source_kind
from ..metrics import Rouge
from ..metrics.reference_free import (
    ReferenceFreeCounts,
    reference_free_counts,
    reference_free_rows,
    reference_free_scores,
)
from ..pipelines.sources_hier import DocumentSentences, Span, find_sources
from .copying import Copy, CopyRule, SourceText, find_copies, is_judged, source_text, split_summary
from .pages import Page, aligned, counted, printable, require_matplotlib, save_figure


if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The first model is the paper's blue, the second its bold; told apart by people who see few colors, too.
COLORS = ("#1f66ad", "#c8500a", "#0a7d5c", "#8b4aa8", "#7a6a00", "#46505e")
DARK_COLORS = ("#7db8ff", "#ff9e5e", "#4fd0a5", "#d79cf0", "#d8c64a", "#aab4c4")
INK, SOFT, LINE = "#1d2129", "#55606e", "#c9ced6"
BINS = 20  # of the histogram
RESAMPLES = 2000
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-Lsum"}
JUDGED = {"bert_score": "BERTScore", "entailment": "entailed (NLI)"}


@dataclass(frozen=True)
class _Copies:
    """What one summary copied."""

    identifier: str
    sentences: int
    judged: int
    copies: tuple[tuple[int, Copy], ...]  # with the number of the summary's sentence
    num_blocks: int
    counts: ReferenceFreeCounts
    scores: dict[str, float]


class CopyingReport(Page):
    """How far into their documents the sentences lie that models copy into their summaries.

    Documents are added one by one. The page has a table of them, to be sorted by each model's scores, and each
    document beside its summaries: their copied sentences are marked, the first model's in blue and the second's in
    bold type, as in Appendix A of the paper; other sentences lead to those that they have most words in common with.

    Args:
        rule: When a sentence counts as copied; the default rule if None.
        language: For the sentence splitter.
        shown: How many documents the page has, the first ones; all if None. Of others only numbers are kept.
        title: Heading of chart and page.

    Raises:
        ValueError: If `shown` is below 0.

    Source: HAT-BART, section 6 and appendix A.
    """

    template = "inspection/copying.html"

    def __init__(
        self,
        rule: CopyRule | None = None,
        *,
        language: str = "english",
        shown: int | None = None,
        title: str = "Where the copied sentences stand",
    ) -> None:
        if shown is not None and shown < 0:
            raise ValueError(f"shown: got {shown}; it is a number of documents, 0 or more")
        self.rule = rule or CopyRule()
        self.language, self.shown, self.title = language, shown, title
        self.block_name = "paragraph"
        self._rouge = Rouge()
        self._copies: dict[str, list[_Copies]] = {}
        self._listed: list[dict[str, Any]] = []
        self._pages: list[dict[str, Any]] = []

    @property
    def names(self) -> list[str]:
        """The models, in the order in which they were given."""
        return list(self._copies)

    @property
    def documents(self) -> int:
        """How many documents were added."""
        return len(next(iter(self._copies.values()), []))

    def add(
        self,
        document: Mapping[str, Any],
        summaries: Mapping[str, str],
        identifier: str | None = None,
        reference: str | None = None,
        judged: Mapping[str, Mapping[str, float]] | None = None,
    ) -> dict[str, list[Copy | None]]:
        """Take in a document and its summaries.

        Args:
            document: Has one of `text`, `sentences`, `turns` and `documents`.
            summaries: Model -> its summary; the same models every time.
            identifier: What to call the document; its number if None.
            reference: Its reference summary, for ROUGE; of all documents or of none.
            judged: Model -> its summary's `bert_score` and `entailment`, for all documents or none.

        Returns:
            Model -> for each sentence of its summary where it was copied from, or None.

        Raises:
            ValueError: If the models are not those of the documents before, the document is none, or a score is not
                finite.
        """
        if not summaries:
            raise ValueError("summaries: got none; give at least one model's")
        if self._copies and list(summaries) != self.names:
            got, had = ", ".join(summaries), ", ".join(self.names)
            raise ValueError(f"summaries: got those of {got}, but the documents before had {had}")
        for model, own in (judged or {}).items():
            if wrong := [f"{name} {score}" for name, score in own.items() if not math.isfinite(score)]:
                raise ValueError(f"judged: got {', '.join(wrong)} of {model}; give finite numbers")  # as JSON has them
        source = source_text(document, self.language)
        if source.blocks is not None:
            self.block_name = source.block_name
        kind = source_kind([kind for kind, value in document.items() if value is not None])
        text = plain_text(kind, document[kind])
        number = self.documents + 1
        name = identifier or str(number)
        found: dict[str, list[Copy | None]] = {}
        texts: dict[str, list[str]] = {}
        scores = [
            rouge | dict((judged or {}).get(model, {}))
            for model, rouge in zip(summaries, self._rouge_of(list(summaries.values()), reference), strict=True)
        ]
        for (model, summary), own in zip(summaries.items(), scores, strict=True):
            texts[model] = split_summary(summary, self.language)
            found[model] = find_copies(source, texts[model], self.rule)
            copies = tuple((place, copy) for place, copy in enumerate(found[model]) if copy is not None)
            long_enough = sum(is_judged(sentence, self.rule) for sentence in texts[model])
            counts = reference_free_counts(summary, text)
            entry = _Copies(name, len(texts[model]), long_enough, copies, source.num_blocks, counts, own)
            self._copies.setdefault(model, []).append(entry)
        if self.shown is None or len(self._pages) < self.shown:
            listed = [_listed_scores(entries[-1]) for entries in self._copies.values()]
            self._listed.append({"id": printable(name), "scores": listed})
            self._pages.append(self._page(source, texts, found))
        return found

    def _rouge_of(self, summaries: list[str], reference: str | None) -> list[dict[str, float]]:
        """What each summary of a document has in common with its reference, as `evaluate` scores it."""
        if reference is None:
            return [{}] * len(summaries)
        texts = {"predictions": summaries, "references": [reference] * len(summaries)}
        options = {"use_stemmer": True, "use_aggregator": False, "sentence_splitter": "punkt"}
        scores = self._rouge.compute(**texts, **options)
        return [{name: 100 * scores[name][place] for name in ROUGE} for place in range(len(summaries))]

    def as_dict(self) -> dict[str, Any]:
        """Give all numbers.

        Returns:
            `rule`, `documents`, and for each of `models` how many sentences its summaries have (`sentences`), how many
            of them are long enough to be judged and how many are copied; of the copied ones the `entire_share` (at
            least `threshold` of the document's sentence was taken), the `position` (share of the document's words
            before the sentence: mean with its 95 % interval, resampled over documents; quartiles), the number of the
            `sentence` (from 1), the `block` (paragraph, turn or article, from 1; only documents with several count:
            mean, median, the share in the first one, and from how many blocks a summary copies on average), and the
            `histogram` of positions; and as `reference_free` the scores of the summaries against their documents (see
            `hier_models.metrics.reference_free_scores`), as `rouge` the mean F1 against the references, and
            `bert_score` and `entailment`, all times 100.
            Numbers that there are none of are None.
        """
        return {
            "title": self.title,
            "rule": {**asdict(self.rule), "text": str(self.rule)},
            "documents": self.documents,
            "models": {name: self._numbers(entries) for name, entries in self._copies.items()},
        }

    def table(self) -> str:
        """Lay out the main numbers for a terminal.

        Returns:
            A line for each number, a column for each model.
        """
        return aligned([("", *self.names), *((label, *cells) for label, cells in self._rows())])

    def save_json(self, path: str | os.PathLike[str]) -> Path:
        """Write what `as_dict` gives.

        Args:
            path: The file to write.

        Returns:
            The path written.
        """
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False)
        Path(path).write_text(text + "\n", encoding="utf-8", errors="replace")
        return Path(path)

    def save_copies(self, path: str | os.PathLike[str]) -> Path:
        """Write every copied sentence as a line of JSON, for analyses of your own.

        Args:
            path: The file to write.

        Returns:
            The path written. A line has `model`, `id`, `summary_sentence` and `sentence` (from 1), `position`, `block`
            (from 1, or null), `coverage`, `extent` and `run`.
        """
        with Path(path).open("w", encoding="utf-8", errors="replace") as stream:
            for model, entry in ((model, entry) for model, entries in self._copies.items() for entry in entries):
                for place, copy in entry.copies:
                    row = {"model": model, "id": entry.identifier, "summary_sentence": place + 1}
                    row |= {"sentence": copy.sentence + 1, "position": round(copy.position, 6)}
                    row |= {"block": None if copy.block is None else copy.block + 1, "run": copy.run}
                    row |= {"coverage": round(copy.coverage, 6), "extent": round(copy.extent, 6)}
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return Path(path)

    def save_png(self, path: str | os.PathLike[str]) -> Path:
        """Draw a histogram of positions for each model, and all of them as shares that add up.

        Args:
            path: The file to write.

        Returns:
            The path written.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        require_matplotlib()
        from matplotlib.figure import Figure

        self._check_filled()
        numbers = self.as_dict()["models"]
        figure = Figure(figsize=(11, 1.6 + max(1.95 * len(numbers), 3.1)), facecolor="white", layout="constrained")
        grid = figure.add_gridspec(len(numbers), 2, width_ratios=(5.9, 3.45))
        shares = {
            name: [count / max(entry["copied"], 1) for count in entry["histogram"]["counts"]]
            for name, entry in numbers.items()
        }
        highest = max([1.25 / BINS, *(share for values in shares.values() for share in values)]) * 1.12
        for row, (name, entry) in enumerate(numbers.items()):
            axes = figure.add_subplot(grid[row, 0])
            self._draw_histogram(axes, name, entry, shares[name], COLORS[row % len(COLORS)], highest)
            axes.tick_params(labelbottom=row == len(numbers) - 1)
        axes.set_xlabel("position of the copied sentence in its document", fontsize=8.5, color=SOFT)
        self._draw_sums(figure.add_subplot(grid[:, 1]))
        left = {"x": 0.01, "horizontalalignment": "left"}
        figure.suptitle(printable(self.title), fontsize=13, weight="bold", **left).set_parse_math(False)
        figure.supxlabel(
            f"{counted(self.documents, 'document')}. Copied: at least {self.rule.threshold:.0%} of a summary "
            f"sentence's words in one sentence of the document, in order, {self.rule.min_run} or more in one piece. "
            "Dashed: if they lay evenly.",
            fontsize=8,
            color=SOFT,
            **left,
        )
        return save_figure(figure, path)

    def _fields(self) -> dict[str, Any]:
        self._check_filled()
        numbers = self.as_dict()["models"]
        data = {
            "names": [printable(name) for name in self.names],
            "colors": {"light": COLORS, "dark": DARK_COLORS},
            "rows": self._rows(),
            "histograms": [numbers[name]["histogram"]["counts"] for name in self.names],
            "medians": [numbers[name]["position"]["median"] for name in self.names],
            "block": self.block_name,
            "documents": self._listed,
            "total": self.documents,
        }
        return {"caption": str(self.rule), "data": data, "pages": self._pages}

    def _numbers(self, entries: list[_Copies]) -> dict[str, Any]:
        copies = [copy for entry in entries for _, copy in entry.copies]
        judged = sum(entry.judged for entry in entries)
        positions = [copy.position for copy in copies]
        counts, edges = np.histogram(positions, bins=BINS, range=(0.0, 1.0))
        return {
            "documents": len(entries),
            "empty_summaries": sum(entry.sentences == 0 for entry in entries),
            "sentences": sum(entry.sentences for entry in entries),
            "judged": judged,
            "copied": len(copies),
            "copied_share": len(copies) / judged if judged else None,
            "reference_free": reference_free_scores(entry.counts for entry in entries),
            "rouge": {name: _mean_score(entries, name) for name in ROUGE},
            **{name: _mean_score(entries, name) for name in JUDGED},
            "documents_with_copies": sum(bool(entry.copies) for entry in entries),
            "entire_share": _mean([copy.extent >= self.rule.threshold for copy in copies]),
            "position": _center(positions)
            | {
                "mean_interval": _interval(entries),
                "quartiles": np.quantile(positions, [0.25, 0.5, 0.75]).tolist() if positions else None,
            },
            "sentence": _center([copy.sentence + 1 for copy in copies]),
            "block": self._block_numbers(entries),
            "histogram": {"edges": edges.round(6).tolist(), "counts": counts.tolist()},
        }

    def _block_numbers(self, entries: list[_Copies]) -> dict[str, Any]:
        several = [entry for entry in entries if entry.num_blocks > 1]
        numbers = [copy.block + 1 for entry in several for _, copy in entry.copies if copy.block is not None]
        spread = [len({copy.block for _, copy in entry.copies}) for entry in several if entry.copies]
        shares = {"first_share": _mean([number == 1 for number in numbers]), "per_summary": _mean(spread)}
        return {"name": self.block_name, "documents": len(several), **_center(numbers), **shares}

    def _rows(self) -> list[tuple[str, list[str]]]:
        """Lay out the numbers for people: label, and a text for each model."""
        numbers = list(self.as_dict()["models"].values())
        intervals: list[list[float | None]] = [entry["position"]["mean_interval"] or [None] for entry in numbers]
        scores = [{**entry["rouge"], **{name: entry[name] for name in JUDGED}} for entry in numbers]
        rows = [
            (label, [_number(own[name]) for own in scores])
            for name, label in (ROUGE | JUDGED).items()
            if any(own[name] is not None for own in scores)
        ]
        rows += [
            ("summary sentences", [f"{entry['sentences']:,}" for entry in numbers]),
            ("copied (of those judged)", [_percent(entry["copied_share"]) for entry in numbers]),
            ("of the copied: whole sentences", [_percent(entry["entire_share"]) for entry in numbers]),
            ("position, mean", [_percent(entry["position"]["mean"]) for entry in numbers]),
            ("  95 % interval of the mean", [" to ".join(map(_percent, ends)) for ends in intervals]),
            ("position, median", [_percent(entry["position"]["median"]) for entry in numbers]),
            ("sentence number, median", [_number(entry["sentence"]["median"]) for entry in numbers]),
        ]
        if any(entry["block"]["documents"] for entry in numbers):
            blocks = [entry["block"] for entry in numbers]
            rows += [
                (f"{self.block_name} number, median", [_number(block["median"]) for block in blocks]),
                (f"in the first {self.block_name}", [_percent(block["first_share"]) for block in blocks]),
                (f"{self.block_name}s a summary copies from", [_number(block["per_summary"]) for block in blocks]),
            ]
        others = [reference_free_rows(entry["reference_free"]) for entry in numbers]
        return rows + [(row[0][0], [text for _, text in row]) for row in zip(*others, strict=True)]

    def _check_filled(self) -> None:
        if not self._copies:
            raise ValueError("nothing to draw: no document was added")

    def _draw_histogram(
        self, axes: Axes, name: str, entry: dict[str, Any], shares: list[float], color: str, highest: float
    ) -> None:
        edges = np.linspace(0, 1, BINS + 1)
        axes.bar(edges[:-1], shares, width=1 / BINS, align="edge", color=color, edgecolor="white", linewidth=0.8)
        axes.axhline(1 / BINS, color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
        _style(axes, highest)
        axes.locator_params(axis="y", nbins=4)
        median = entry["position"]["median"]
        if median is None:
            axes.text(0.5, 0.5, "nothing copied", transform=axes.transAxes, ha="center", fontsize=9, color=SOFT)
        else:
            axes.plot([median], [0], marker="^", markersize=8, color=INK, clip_on=False, zorder=5)
        label = axes.set_title(printable(name), loc="left", fontsize=10, weight="bold", color=color)
        label.set_parse_math(False)
        notes = [f"{entry['copied']:,} of {entry['judged']:,} sentences copied ({_percent(entry['copied_share'])})"]
        if median is not None:
            notes.append(f"median {median:.0%} (triangle)")
        if entry["block"]["first_share"] is not None:
            notes.append(f"{entry['block']['first_share']:.0%} in the first {self.block_name}")
        axes.set_title(" · ".join(notes), loc="right", fontsize=8, color=SOFT)

    def _draw_sums(self, axes: Axes) -> None:
        """Draw which share of the copied sentences lies within the first part of the document, for every part."""
        axes.plot([0, 1], [0, 1], color=SOFT, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.text(0.6, 0.555, "evenly", rotation=45, rotation_mode="anchor", fontsize=8, color=SOFT)
        styles = ("-", (0, (6, 1.5)), "-.", (0, (1, 1)))
        lines = {}
        for number, (name, entries) in enumerate(self._copies.items()):
            positions = sorted(copy.position for entry in entries for _, copy in entry.copies)
            if not positions:
                continue
            color, style = COLORS[number % len(COLORS)], styles[number % len(styles)]
            heights = [0.0, *(np.arange(1, len(positions) + 1) / len(positions)), 1.0]
            [lines[name]] = axes.step(
                [0.0, *positions, 1.0], heights, where="post", color=color, linestyle=style, linewidth=2
            )
        _style(axes, 1.01)
        axes.set_xlabel("first part of the document", fontsize=8.5, color=SOFT)
        axes.set_title("copied sentences that lie within it", loc="left", fontsize=8.5, color=SOFT)
        if lines:
            places = map(str, range(len(lines)))  # a name that begins with _ would be left out
            legend = axes.legend(lines.values(), places, loc="lower right", fontsize=8, frameon=False, labelcolor=INK)
            for text, name in zip(legend.get_texts(), lines, strict=True):
                text.set(text=printable(name), parse_math=False)

    def _page(
        self, source: SourceText, texts: dict[str, list[str]], found: dict[str, list[Copy | None]]
    ) -> dict[str, Any]:
        """Gather what the page shows of a document; characters are counted as JavaScript does, in UTF-16."""

        def marks(copy: Copy) -> list[list[int]]:
            sentence = source.sentences[copy.sentence]
            return [[_utf16(sentence[:start]), _utf16(sentence[:end])] for start, end in copy.marks]

        def shown(sentence: str, copy: Copy | None, places: list[int]) -> dict[str, Any]:
            numbers = copy and {
                "sentence": copy.sentence,
                "position": round(copy.position, 4),
                "coverage": round(copy.coverage, 3),
                "extent": round(copy.extent, 3),
                "marks": marks(copy),
            }
            text = printable(sentence, keep_spaces=True)
            judged = is_judged(sentence, self.rule)
            return {"text": text, "judged": judged, "copy": numbers, "sources": [copy.sentence] if copy else places}

        sources = iter(_sources(source.sentences, [sentence for own in texts.values() for sentence in own]))
        return {
            "sentences": [printable(sentence, keep_spaces=True) for sentence in source.sentences],
            "blocks": source.blocks,
            "summaries": [list(map(shown, texts[model], found[model], sources)) for model in texts],
        }


def _listed_scores(entry: _Copies) -> dict[str, float | None]:
    """What the page's table has of a summary."""
    counts = entry.counts
    return {
        **{name: round(score, 2) for name, score in entry.scores.items()},
        "copied": round(100 * len(entry.copies) / entry.judged, 2) if entry.judged else None,
        "facts": round(100 * counts.found / counts.facts, 2) if counts.facts else None,
        "words": counts.words,
    }


def _sources(document: Sequence[str], summary: list[str]) -> list[list[int]]:
    """Find which sentences of a document each one of its summaries has most words in common with."""
    (text, spans), (written, own) = _joined(document), _joined(summary)
    places = {start: number for number, (start, _) in enumerate(spans)}
    found = find_sources(written, own, DocumentSentences(text, spans))
    return [[places[source["start"]] for source in sentence["sources"]] for sentence in found]


def _joined(sentences: Sequence[str]) -> tuple[str, list[Span]]:
    ends = list(itertools.accumulate(len(sentence) + 1 for sentence in sentences))
    spans = [(end - 1 - len(sentence), end - 1) for end, sentence in zip(ends, sentences, strict=True)]
    return " ".join(sentences), spans


def _style(axes: Axes, highest: float) -> None:
    """Shares of the documents to the right, shares of the sentences up to the highest; thin lines."""
    axes.set(xlim=(0, 1), ylim=(0, highest))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:.0%}")
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=LINE, linewidth=0.8)
    axes.tick_params(labelsize=8, length=3, width=0.8, color=LINE, labelcolor=INK)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#e8ebef", linewidth=0.8)


def _mean(values: list[Any]) -> float | None:
    return float(sum(values) / len(values)) if values else None


def _mean_score(entries: list[_Copies], name: str) -> float | None:
    return _mean([entry.scores[name] for entry in entries if name in entry.scores])


def _center(values: list[Any]) -> dict[str, Any]:
    return {"mean": _mean(values), "median": statistics.median(values) if values else None}


def _interval(entries: list[_Copies]) -> list[float] | None:
    """The mean position's 95 % interval, by a bootstrap of documents: sentences of one summary are not independent."""
    sums = np.array([sum(copy.position for _, copy in entry.copies) for entry in entries if entry.copies])
    counts = np.array([len(entry.copies) for entry in entries if entry.copies])
    if len(counts) < 2:
        return None
    generator = np.random.default_rng(0)
    means = []
    for _ in range(RESAMPLES):
        drawn = generator.integers(len(counts), size=len(counts))
        means.append(sums[drawn].sum() / counts[drawn].sum())
    low, high = np.quantile(means, [0.025, 0.975])
    return [float(low), float(high)]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}".removesuffix(".0")


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2

"""What a Highlight-Transformer highlighted, what its heads made of it, what its summary copied: numbers and a page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from ..pipelines import SummarizationPipeline
from ..pipelines.copied_words_hier import copied_words, copy_shares
from ..pipelines.document_pipeline_hier import evaluating
from ..pipelines.sources_hier import eager_attention
from .capture import check_generation, given_document, summary_ids
from .heatmap import PAGE_SCALE, FloatArray
from .pages import Page, aligned, counted, printable


_DECODING = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}


@dataclass
class HighlightingReport(Page):
    """A document with its key phrases, the attention inside of them, and the summary with its copied words.

    Args:
        text: The document's running text, whose characters are counted.
        articles: Where each article begins and ends.
        tokens: Where each token that the model read begins and ends.
        phrases: What was looked for: `text`, `value`, `spans` (characters) and `positions` (tokens, counted with the
            BOS token as 0) of each.
        heads: Layer and head, from 0, of each highlighted head.
        inside: The attention that tokens of a phrase give to the phrase, as a share of 1, without and with
            highlighting, (heads, phrases, 2); the mean over its tokens, NaN where no token of it was read.
        received: The attention that each token receives from all tokens on average, without and with highlighting,
            (heads, tokens, 2).
        summary: The summary.
        copied: Its copied words, as the summarization pipeline gives them.
        counts: What was cut, or not found, as the pipeline counts it.
        settings: `highlighting` and `brightness` of the model.
        title: The heading of the page.
    """

    template: ClassVar[str] = "inspection/highlighting.html"

    text: str
    articles: list[tuple[int, int]]
    tokens: list[tuple[int, int]]
    phrases: list[dict[str, Any]]
    heads: list[tuple[int, int]]
    inside: FloatArray
    received: FloatArray
    summary: str
    copied: list[dict[str, Any]]
    counts: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    title: str = "Highlighting"

    def values(self) -> list[float]:
        """How much each token is highlighted: the diagonal of the highlighting matrix.

        Returns:
            For each token the sum of the values of the phrases that hold it. Source: section 3.1.
        """
        values = [0.0] * len(self.tokens)
        for phrase in self.phrases:
            for start, end in phrase["positions"]:
                for place in range(start - 1, end - 1):  # without the BOS token
                    values[place] += phrase["value"]
        return values

    def as_dict(self) -> dict[str, Any]:
        """Give everything for JSON.

        Returns:
            Every field by its name; numbers that there are none of are None.
        """
        fields = {key: value for key, value in asdict(self).items() if key not in ("inside", "received")}
        for name in ("inside", "received"):
            rounded = np.round(getattr(self, name).astype(float), 6).astype(object)
            rounded[np.isnan(getattr(self, name))] = None
            fields[name] = rounded.tolist()
        return fields

    def table(self) -> str:
        """Lay the attention inside of phrases out for a terminal.

        Returns:
            A line for each phrase with its value and, for each highlighted head, the share without and with
            highlighting.
        """
        rows = [["phrase", "value", "times", *(f"layer {layer + 1} head {head + 1}" for layer, head in self.heads)]]
        for phrase, by_head in zip(self.phrases, self.inside.swapaxes(0, 1), strict=True):
            cells = ["–" if np.isnan(without) else f"{without:.3f} → {lit:.3f}" for without, lit in by_head]
            text = " ".join(phrase["text"].split())
            rows.append([text, f"{phrase['value']:.2f}", str(len(phrase["positions"])), *cells])
        return aligned(rows)

    def _caption(self) -> str:
        found = sum(bool(phrase["positions"]) for phrase in self.phrases)
        parts = [
            counted(len(self.articles), "article"),
            f"{len(self.tokens):,} tokens",
            f"{found} of {len(self.phrases)} phrases in the text",
            f"{self.settings.get('highlighting', 'no')} highlighting",
            f"brightness {self.settings.get('brightness', 0):.3g}",
        ]
        if cut := self.counts.get("num_truncated_tokens", 0):
            parts.append(f"{counted(cut, 'token')} cut")
        if omitted := self.counts.get("num_omitted_tokens", 0):
            parts.append(f"{counted(omitted, 'token')} left out")
        if cut := self.counts.get("num_truncated_phrases", 0):
            parts.append(f"{counted(cut, 'occurrence')} of phrases cut")
        return "  ·  ".join(parts)

    def _fields(self) -> dict[str, Any]:
        """Gather what the page's script reads, shares in ten-thousandths."""
        inside = np.where(np.isnan(self.inside), -1, np.rint(self.inside * PAGE_SCALE)).astype(int)
        even = 1 / max(self.received.shape[1], 1)
        received = np.rint(self.received / even * 100).astype(int)  # hundredths of an even share
        data = {
            "scale": PAGE_SCALE,
            # One text for all, so that characters count alike in Python and, by code points, in the script.
            "text": printable(self.text, keep_spaces=True),
            "articles": self.articles,
            "tokens": self.tokens,
            "values": [round(value, 4) for value in self.values()],
            "phrases": [
                {"text": printable(phrase["text"]), "value": round(phrase["value"], 4), "spans": phrase["spans"]}
                | {"read": len(phrase["positions"])}
                for phrase in self.phrases
            ],
            "heads": self.heads,
            "inside": inside.tolist(),
            "received": received.tolist(),
            "summary": printable(self.summary, keep_spaces=True),
            "copied": [{**word, "share": round(word["share"], 4)} for word in self.copied],
        }
        return {"caption": self._caption(), "data": data}


def highlighting_report(
    model: Any,
    processor: Any,
    *,
    text: str | None = None,
    sentences: Sequence[str] | None = None,
    turns: Sequence[Mapping[str, str]] | None = None,
    documents: Sequence[str] | None = None,
    phrases: Sequence[Any] | None = None,
    summary: str | None = None,
    max_source_length: int | None = None,
    title: str | None = None,
    **generate_kwargs: Any,
) -> HighlightingReport:
    """Run a Highlight-Transformer on a document and keep what its highlighting did.

    The encoder runs twice with eager attention, the only one that returns weights, with and without phrases: memory
    grows with the square of the document's tokens, for one layer at a time. The model comes back as it was.

    Args:
        model: A Highlight-Transformer that generates.
        processor: Its processor.
        text: The document as one string; this or one of the next three.
        sentences: The document as its sentences.
        turns: A dialogue as `{"role": …, "content": …}`.
        documents: The articles of one input.
        phrases: What to highlight, as the processor takes it; None for what it finds.
        summary: The summary to look at; generated if None, as the summarization pipeline does it.
        max_source_length: Cut the document to so many tokens; None for as many as the model takes.
        title: The heading of the page.
        **generate_kwargs: Arguments of `generate`, such as `num_beams`, for the summary that is not given.

    Returns:
        The report.

    Raises:
        ValueError: If not exactly one document is given, if `generate_kwargs` come with a summary or ask for several
            summaries, or if the model is no Highlight-Transformer.
    """
    kind, source = given_document(text=text, sentences=sentences, turns=turns, documents=documents)
    check_generation(summary, generate_kwargs, "a report shows one summary")
    if not hasattr(model.config, "highlighted_layers") or not hasattr(processor, "article_spans"):
        name = type(model).__name__
        raise ValueError(f"model: {name} highlights nothing; give a Highlight-Transformer and its processor")
    with evaluating(model):
        pipeline = SummarizationPipeline(model=model, processor=processor, device=model.device)
        limit, _ = pipeline.limits(max_source_length=max_source_length)
        read: dict[str, Any] = {"truncation": limit is not None, "max_length": limit, "return_offsets_mapping": True}
        encoded = processor(**{kind: source}, **read, phrases=phrases, return_phrases=True, return_truncation=True)
        names = ("input_ids", "attention_mask", *processor.extra_inputs)
        # Of phrases there may be none at all, and a tensor of none would have no second axis.
        inputs = {
            name: torch.tensor([encoded[name]], device=model.device) for name in names if len(encoded.get(name) or [])
        }
        found = encoded.get("phrases") or []
        settings = {"truncation": True, "max_source_length": max_source_length, **generate_kwargs}
        ids = summary_ids(pipeline, processor, {kind: source, "phrases": phrases}, summary, **settings)
        offsets = [tuple(places) for places in encoded["offset_mapping"]]
        copied: list[dict[str, Any]] = []
        summary_text = processor.tokenizer.decode(ids, **_DECODING)
        if model.config.use_copy:
            shares = copy_shares(model, inputs, ids[None, None])
            of_tokens, places = (shares[name][0, 0].tolist() for name in ("copy_shares", "copy_places"))
            copied = copied_words(
                processor.tokenizer, ids[1:].tolist(), summary_text, of_tokens, places, offsets, _DECODING
            )
        heads, inside, received = _attention(model, inputs, [phrase["positions"] for phrase in found])

    running_text = processor.running_text(**{kind: source})
    articles = processor.article_spans(source) if kind == "documents" else [(0, len(running_text))]
    counts = [name for name in encoded if name.startswith("num_") or name == "without_phrases"]
    return HighlightingReport(
        text=running_text,
        articles=[tuple(span) for span in articles],
        tokens=offsets[1:-1],
        phrases=found,
        heads=heads,
        inside=inside,
        received=received[:, 1:-1],
        summary=summary_text,
        copied=copied,
        counts={name: int(encoded[name]) for name in counts},
        settings={"highlighting": model.config.highlighting, "brightness": float(model.config.brightness)},
        **({} if title is None else {"title": title}),
    )


@torch.no_grad()
def _attention(
    model: Any, inputs: dict[str, torch.Tensor], positions: list[list[tuple[int, int]]]
) -> tuple[list[tuple[int, int]], FloatArray, FloatArray]:
    """Attention inside of phrases (heads, phrases, 2) and to tokens (heads, tokens, 2), without and with phrases."""
    encoder = model.get_encoder()
    accepted = inspect.signature(encoder.forward).parameters
    plain = {name: value for name, value in inputs.items() if name in accepted and not name.startswith("phrase_")}
    lit = {name: value for name, value in inputs.items() if name in accepted}
    config = model.config
    heads = [(layer, head) for layer in config.highlighted_layers for head in range(config.highlight_heads)]
    no_heads = np.zeros((0, len(positions)), np.float32), np.zeros((0, inputs["input_ids"].shape[1]), np.float32)
    inside, received = [], []
    with eager_attention(model):
        for given in (plain, lit):
            with _watched(encoder, config.highlighted_layers, config.highlight_heads, positions) as seen:
                encoder(**given)
            inside.append(np.concatenate([no_heads[0], *(seen[layer][0] for layer in config.highlighted_layers)]))
            received.append(np.concatenate([no_heads[1], *(seen[layer][1] for layer in config.highlighted_layers)]))
    return heads, np.stack(inside, axis=-1), np.stack(received, axis=-1)


@contextmanager
def _watched(
    encoder: Any, layers: Sequence[int], heads: int, positions: list[list[tuple[int, int]]]
) -> Iterator[dict[int, tuple[FloatArray, FloatArray]]]:
    """Keep of each highlighted layer's weights what the report shows, and not the weights."""
    seen: dict[int, tuple[FloatArray, FloatArray]] = {}

    def keep(layer: int, output: Any) -> None:
        weights = output[1][0, :heads].float()  # (heads, tokens, tokens)
        inside = []
        for places in positions:
            # A token that is in two occurrences counts in both.
            rows = [weights[:, start:end, start:end].sum(dim=-1) for start, end in places]
            mean = torch.cat(rows, dim=1).mean(dim=1) if rows else weights.new_full((heads,), float("nan"))
            inside.append(mean)
        by_head = torch.stack(inside, dim=1) if inside else weights.new_zeros(heads, 0)
        seen[layer] = (by_head.cpu().numpy(), weights.mean(dim=1).cpu().numpy())

    handles = [
        encoder.layers[layer].self_attn.register_forward_hook(
            lambda module, arguments, output, layer=layer: keep(layer, output)
        )
        for layer in layers
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()

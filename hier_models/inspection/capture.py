"""Runs a model on one document and keeps what its hierarchical attention looked at."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ..pipelines import SummarizationPipeline
from ..pipelines.copied_words_hier import token_ends
from ..pipelines.document_pipeline_hier import evaluating
from ..pipelines.sources_hier import eager_attention
from ..pipelines.written_form_hier import restore_written_form
from .heatmap import FloatArray, HierarchicalAttentionMap, top_sentences
from .row_attention import attends_to_rows, row_attention_weights, row_texts


# Eager attention keeps every weight of a step, the attention over all source tokens among them. So many summary tokens
# at a time keep that to some hundred MB for the paper's largest model.
CHUNK = 64
TOP_K = 16  # sentences that each summary token keeps, as in the paper


def hierarchical_attention(
    model: Any,
    processor: Any,
    *,
    text: str | None = None,
    sentences: Sequence[str] | None = None,
    turns: Sequence[Mapping[str, str]] | None = None,
    documents: Sequence[str] | None = None,
    summary: str | None = None,
    top_k: int | None = None,
    max_source_length: int | None = None,
    title: str | None = None,
    **generate_kwargs: Any,
) -> HierarchicalAttentionMap:
    """Record which sentences of a document the decoder looks at while it writes the summary.

    A summary that is not given is first generated as the summarization pipeline does it, with the model's
    `generation_config`. The attention is then recorded in a pass over the finished summary: at each position it is the
    attention of the step that wrote that token, whatever the search (greedy, beam, sampling) that chose it.

    The heads are aggregated by `top_sentences`. The model comes back as it was: its attention implementation is set to
    "eager", the only one that returns weights, and its modules to evaluation, for the length of the call.

    Of a Coarse-to-Fine LSTM it is the attention over rows, before hard attention selects; of one that has none, the
    sum of the attention over the words of each row (Figures 6.5 to 6.12 of its thesis).

    Args:
        model: An encoder-decoder model whose output has `hierarchical_attentions`, a (batch, heads, target, sentences)
            for each decoder layer, under `output_attentions=True`; or a Coarse-to-Fine LSTM.
        processor: Its processor.
        text: The document as one string; this or one of the next three.
        sentences: The document as its sentences.
        turns: A dialogue as `{"role": …, "content": …}`.
        documents: The articles of one input.
        summary: The summary to look at; generated if None.
        top_k: How many sentences each summary token keeps; by default 16. A Coarse-to-Fine LSTM's keeps all rows.
        max_source_length: Cut the document to so many tokens; None for as many as the model takes. What was cut is
            counted in `num_truncated_tokens`.
        title: The heading of the pictures.
        **generate_kwargs: Arguments of `generate`, such as `num_beams`, for the summary that is not given.

    Returns:
        The map, one row for each sentence that the model saw and one column for each token of the summary.

    Raises:
        ValueError: If not exactly one document is given, if `generate_kwargs` come with a summary or ask for several
            summaries, if the summary is longer than the decoder, if the model has no hierarchical attention, or if
            `top_k` is below 1 or for a Coarse-to-Fine LSTM.

    Source: HAT-BART, section 6.
    """
    kind, source = given_document(text=text, sentences=sentences, turns=turns, documents=documents)
    check_generation(summary, generate_kwargs, "a map shows one summary")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k: got {top_k}; at least 1 sentence must be kept")
    by_rows = attends_to_rows(processor)
    if by_rows and top_k is not None:
        raise ValueError(f"top_k: got {top_k}; the weights of a {type(model).__name__} are shown for all rows")
    if not by_rows and top_k is None:
        top_k = TOP_K
    if getattr(model.config, "hierarchical_layers", None) == 0:
        raise ValueError(_no_hierarchy(model))

    with evaluating(model):
        pipeline = SummarizationPipeline(model=model, processor=processor, device=model.device)
        document = {kind: source}
        limit: dict[str, Any] = {"truncation": True, "max_source_length": max_source_length}
        example = pipeline.preprocess(document, **limit)["examples"]
        inputs = {name: torch.tensor([row], device=model.device) for name, row in example.inputs.items()}
        ids = summary_ids(pipeline, processor, document, summary, **limit, **generate_kwargs)
        decoder_input_ids, target_ids = ids[None, :-1], ids[1:].tolist()
        # (decoder_layers, sentences, target)
        if top_k is None:
            weights, _ = row_attention_weights(model, inputs, decoder_input_ids)
        else:
            weights = _attention_weights(model, inputs, decoder_input_ids, top_k)

    tokenizer = processor.tokenizer
    unit = "turn" if kind == "turns" else "sentence"
    if by_rows:
        rows = row_texts(tokenizer, inputs, weights.shape[1])
        unit = unit if processor.rows == "sentences" and processor.row_length is None else "row"
    else:
        rows, unit = _row_texts(tokenizer, inputs, weights.shape[1], unit)
    written = tokenizer.decode(target_ids, skip_special_tokens=True).strip()
    if "document" in example.notes:
        written = restore_written_form(written, example.notes["document"])
    return HierarchicalAttentionMap(
        weights=weights,
        sentences=rows,
        tokens=_token_texts(tokenizer, target_ids),
        summary=written,
        top_k=top_k,
        num_truncated_tokens=example.counts["num_truncated_tokens"],
        unit=unit,
        title=HierarchicalAttentionMap.title if title is None else title,
    )


def given_document(**named: Any) -> tuple[str, Any]:
    """Give the kind and the content of the one document that is given."""
    given = [(kind, value) for kind, value in named.items() if value is not None]
    if len(given) != 1:
        got = ", ".join(kind for kind, _ in given) or "none"
        raise ValueError(f"Give the document as exactly one of text, sentences, turns and documents; got {got}")
    [(kind, value)] = given
    return kind, value if isinstance(value, str) else list(value)


def check_generation(summary: str | None, settings: Mapping[str, Any], shown: str) -> None:
    """Refuse settings of a generation that there is none of, or of several summaries."""
    if summary is not None and settings:
        raise ValueError(f"{', '.join(settings)}: settings for generating a summary, but `summary` is given")
    if settings.get("num_return_sequences", 1) != 1:
        raise ValueError(f"num_return_sequences: got {settings['num_return_sequences']}; {shown}")


def summary_ids(pipeline: Any, processor: Any, document: Any, summary: str | None, **settings: Any) -> torch.Tensor:
    """The token that begins a summary, and its tokens, (target + 1,); without a summary one is generated."""
    model = pipeline.model
    if summary is None:
        ids: torch.Tensor = pipeline(document, return_tensors=True, **settings)[0]["summary_token_ids"]
        return ids.to(model.device)
    labels = torch.tensor([processor(text_target=summary)["labels"]], device=model.device)
    return torch.cat([model.prepare_decoder_input_ids_from_labels(labels)[0, :1], labels[0]])


def _no_hierarchy(model: Any) -> str:
    kind = type(model).__name__
    return f"model: {kind} has no hierarchical attention to show; hierarchical_layers must be at least 1"


@torch.no_grad()
def _attention_weights(
    model: Any, inputs: dict[str, torch.Tensor], decoder_input_ids: torch.Tensor, top_k: int
) -> FloatArray:
    """Run the encoder once and the decoder over the whole summary, a chunk of tokens at a time."""
    encoder = model.get_encoder()
    accepted = inspect.signature(encoder.forward).parameters
    # The encoder runs with its own fast attention: its weights, (source, source) for each head, are not needed.
    encoder_outputs = encoder(**{name: value for name, value in inputs.items() if name in accepted}, return_dict=True)
    others = {name: value for name, value in inputs.items() if name != "input_ids"}
    chunks: list[FloatArray] = []
    cache = None
    options = {"use_cache": True, "output_attentions": True, "return_dict": True}
    with eager_attention(model):
        for part in decoder_input_ids.split(CHUNK, dim=1):
            outputs = model(**others, encoder_outputs=encoder_outputs, decoder_input_ids=part, cache=cache, **options)
            attentions = getattr(outputs, "hierarchical_attentions", None)
            if not attentions:
                raise ValueError(_no_hierarchy(model))
            cache = outputs.cache
            layers = [top_sentences(layer[0].float().cpu().numpy(), top_k) for layer in attentions]
            chunks.append(np.stack(layers))  # (decoder_layers, sentences, part of target)
    return np.concatenate(chunks, axis=2)


def _row_texts(tokenizer: Any, inputs: dict[str, torch.Tensor], count: int, unit: str) -> tuple[list[str], str]:
    """Give the texts between the BOS markers, or numbers where the rows are not what the markers mark."""
    ids = inputs["input_ids"][0].tolist()
    attended = inputs["attention_mask"][0].tolist() if "attention_mask" in inputs else [1] * len(ids)
    ids = [token for token, seen in zip(ids, attended, strict=True) if seen]
    starts = [place for place, token in enumerate(ids) if token == tokenizer.bos_token_id] or [0]
    if len(starts) != count:
        return [f"segment {number + 1}" for number in range(count)], "segment"
    ends = [*starts[1:], len(ids)]
    pieces = [ids[start:end] for start, end in zip(starts, ends, strict=True)]
    return [tokenizer.decode(piece, skip_special_tokens=True).strip() for piece in pieces], unit


def _token_texts(tokenizer: Any, ids: list[int]) -> list[str]:
    """Give the text of each token, spaces included; a character of several tokens stands with the last of them."""
    decoding = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    text = tokenizer.decode(ids, **decoding)
    return [text[start:end] for start, end in pairwise([0, *token_ends(tokenizer, ids, text, decoding)])]

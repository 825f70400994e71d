"""How often the right sentence is among the three sources of a summary's sentence: by words, by the model, by both.

    python examples/mini/sources.py experiments/mini/pairs/{wikipedia,papers,proposals,documentation,lines}.jsonl
    python examples/mini/sources.py … --model runs/mini/pairs           # that copies, or has hierarchical attention

References are the summaries, forced through the model. The right sentence has the highest mean F measure of ROUGE-1,
-2 and -L, by `rouge_score`, of those that the model reads (without a model: of all).
"""

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rouge_score.rouge_scorer import RougeScorer
from transformers import pipeline

from hier_models.pipelines import sources_hier
from hier_models.pipelines.copied_words_hier import copy_shares


ROUGE = RougeScorer(["rouge1", "rouge2", "rougeL"])
DECODING = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}


def model_shares(pipe: Any, example: Any, summary: str, spans: list[Any]) -> dict[str, Any]:
    """For each way in which the model tells, how much of each summary sentence comes from each document sentence."""
    batch = {name: torch.tensor([row]) for name, row in example.inputs.items()}
    labels = pipe.processor(text_target=summary)["labels"][: pipe.limits()[1]]
    ids = torch.tensor([[[pipe.model.config.decoder_start_token_id, *labels]]])
    given, shares = (pipe.model, batch, ids, torch.tensor([example.notes["sentences"].tokens])), {}
    if getattr(pipe.model.config, "use_copy", False):
        shares["copy"] = copy_shares(*given)["source_shares"][0, 0]
    if getattr(pipe.model.config, "hierarchical_layers", None):
        shares["attention"] = sources_hier.attended_sentences(*given)[0, 0]
    written = (pipe.tokenizer, labels, summary, pipe.tokenizer.decode(labels, **DECODING), spans)
    return {name: sources_hier.shares_of_sentences(*written, of, DECODING) for name, of in shares.items()}


def places(pipe: Any, text: str, summary: str) -> Iterator[tuple[list[float], dict[str, list[int]]]]:
    """For each summary sentence the ROUGE of all document sentences, and the places of the sources by each way."""
    example = pipe.preprocess(text, return_sources=True)["examples"] if pipe else None
    document = example.notes["sentences"] if example else sources_hier.document_sentences("text", text, text)
    spans = sources_hier.summary_spans(summary, pipe.processor if pipe else None)
    shares = model_shares(pipe, example, summary, spans) if pipe and pipe.processor else {}
    found = {"words": sources_hier.find_sources(summary, spans, document)}
    found |= {f"words+{name}": sources_hier.find_sources(summary, spans, document, of) for name, of in shares.items()}
    starts = [start for start, _ in document.spans]
    for n, (start, end) in enumerate(spans):
        rouge = [ROUGE.score(summary[start:end], document.text[a:b]).values() for a, b in document.spans]
        top = {name: [starts.index(source["start"]) for source in of[n]["sources"]] for name, of in found.items()}
        top |= {name: sorted(range(len(starts)), key=lambda k, of=of: -of[n][k])[:3] for name, of in shares.items()}
        yield [sum(score.fmeasure for score in scores) / 3 for scores in rouge], top


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines with `document` and `summary`")
    parser.add_argument("--model", help="a checkpoint; by default words alone are measured")
    parser.add_argument("--rows", type=int, default=60, help="of each file")
    arguments = parser.parse_args()
    pipe = pipeline("summarization", model=arguments.model, device="cpu") if arguments.model else None
    for path in arguments.files:
        hits: dict[str, list[bool]] = {}
        for row in map(json.loads, islice(path.open(encoding="utf-8"), arguments.rows)):
            for rouge, top in places(pipe, row["document"], row["summary"]):
                for name, found in top.items() if any(rouge) else ():
                    right = max((rouge[k] for k in found), default=0) > max(rouge) - 1e-9
                    hits.setdefault(name, []).append(right)
        print(
            f"{path.stem:14}", *(f"{name} {sum(of) / len(of):.0%} of {len(of)}" for name, of in hits.items()), sep="  "
        )


if __name__ == "__main__":
    main()

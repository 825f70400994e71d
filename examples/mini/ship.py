"""Put a trained checkpoint into the package as `mini`: weights in bfloat16, settings of the generation, tokenizer.

    python examples/mini/ship.py runs/mini/last --mean FOLDER --texts experiments/mini/warm_up/train.jsonl

With `--mean`, what is kept is the mean of two models' weights, one of which was trained from the other. Of the word
pieces the commonest of the texts stay, as many as fit into 60 MB; others are put together from them. After it, `hier-
models summarize` and `pipeline("summarization")` use it.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from base import chosen, count, cut
from passages import HANGING
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

import hier_models
from hier_models.models.summary_lengths import length_ids


MOST, SPARE = 60e6, 150e3  # bytes of the weights; the file has a head
READ = 512  # tokens that it reads of a document, as in training
# Words that ask, with which no summary begins either.
ASKING = (
    *("where", "what", "which", "why", "when", "is", "are", "was", "were", "do", "does", "did", "can", "could"),
    *("should", "would"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help="folder of the trained model")
    parser.add_argument("--mean", help="folder of a model that it was trained from, to take the mean with")
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines with `text`, to count pieces in")
    parser.add_argument("--documents", type=int, default=20000, help="how many of them are counted")
    parser.add_argument("--output", type=Path, default=Path(hier_models.MINI), help="folder to write to")
    arguments = parser.parse_args()
    model = AutoModelForSeq2SeqLM.from_pretrained(arguments.checkpoint, dtype=torch.float32)
    if arguments.mean:
        others = AutoModelForSeq2SeqLM.from_pretrained(arguments.mean, dtype=torch.float32).parameters()
        for parameter, other in zip(model.parameters(), others, strict=True):
            parameter.data = parameter.data.lerp(other.data, 0.5)
    model.to(torch.bfloat16)
    model.config.dropout = 0.1  # for those who train it on; passages.yaml did without
    processor = AutoProcessor.from_pretrained(arguments.checkpoint)
    tokenizer = processor.tokenizer
    entries = len(tokenizer) - math.ceil((2 * model.num_parameters() - MOST + SPARE) / (2 * model.config.d_model))
    counts = count(tokenizer, arguments.texts, arguments.documents)
    special = set(tokenizer.all_special_tokens)
    cut(model, tokenizer, chosen(tokenizer.get_vocab(), special, counts, min(entries, len(tokenizer))))
    model.config.task_specific_params = {
        "summarization": {"faithful": True, "long_documents": "condense", "max_source_length": READ, "paragraphs": 4}
    }
    model.generation_config.update(
        num_beams=4,
        max_length=None,
        max_new_tokens=192,
        no_repeat_ngram_size=3,
        early_stopping=False,
        forced_bos_token_id=length_ids(tokenizer)["short"],
        begin_suppress_tokens=sorted(
            set(tokenizer.convert_tokens_to_ids([*HANGING, *ASKING])) - {tokenizer.unk_token_id}
        ),
    )
    model.save_pretrained(arguments.output)
    processor.save_pretrained(arguments.output)
    # bfloat16 is how the weights are kept, not what a CPU computes in: few multiply it fast.
    path = arguments.output / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"dtype": "float32"}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    size = (arguments.output / "model.safetensors").stat().st_size
    print(f"{arguments.output}: {size / 1e6:.1f} MB")
    if size > MOST:
        raise SystemExit(f"{size / 1e6:.1f} MB are more than {MOST / 1e6:.0f}")


if __name__ == "__main__":
    main()

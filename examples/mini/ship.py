"""Put a trained checkpoint into the package as `mini`: weights in bfloat16, settings of the generation, tokenizer.

    python examples/mini/ship.py runs/mini/pairs

After it, `hier-models summarize` and `pipeline("summarization")` use it.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoProcessor

import hier_models
from hier_models.models.summary_lengths import length_ids


MOST = 60e6  # bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", help="folder of the trained model")
    parser.add_argument("--output", type=Path, default=Path(hier_models.MINI), help="folder to write to")
    arguments = parser.parse_args()
    model = AutoModelForSeq2SeqLM.from_pretrained(arguments.checkpoint, dtype=torch.bfloat16)
    processor = AutoProcessor.from_pretrained(arguments.checkpoint)
    model.generation_config.update(
        num_beams=4,
        max_length=None,
        max_new_tokens=192,
        no_repeat_ngram_size=3,
        early_stopping=True,
        forced_bos_token_id=length_ids(processor.tokenizer)["short"],
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

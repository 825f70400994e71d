"""What mini_highlights.yaml reads: mini as BART with a copy head, and the key phrases of the summaries themselves.

hier-models train examples/experiments/mini_plain.yaml
python examples/experiments/mini_highlights.py
"""

import json
import shutil
from pathlib import Path

from prepare import with_phrases_of_summaries, write
from tqdm import tqdm


PLAIN = Path("runs/experiments/mini_plain")
PAIRS = Path("experiments/mini/pairs")


def main() -> None:
    """Write runs/experiments/mini_bart and experiments/mini_phrases."""
    base = Path("runs/experiments/mini_bart")
    base.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(PLAIN / name, base / name)
    config = json.loads((PLAIN / "config.json").read_text(encoding="utf-8"))
    # HAT-BART without hierarchical layers is BART.
    config |= {"model_type": "bart", "architectures": ["BartForConditionalGeneration"]}
    (base / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")

    files = {"train": "last", "validation": "compared_validation", "test": "compared_test"}
    parts = {}
    for part, name in files.items():
        lines = (PAIRS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in tqdm(lines, desc=part, unit=" documents")]
        parts[part] = [{**row, "documents": [row["document"]]} for row in rows]
    for part, rows in with_phrases_of_summaries(parts).items():
        kept = ({key: value for key, value in row.items() if key != "documents"} for row in rows)
        write(Path("experiments/mini_phrases") / f"{part}.jsonl", kept)


if __name__ == "__main__":
    main()

"""How much of their written form summaries are given back: references, without it and with it again.

    python examples/mini/written_form.py experiments/mini/pairs/*.jsonl    # after prepare.py and base.py

Each reference is encoded and decoded by the uncased tokenizer, and restored from its document. Words are right if they
have the reference's capitals and accents; references whose words the tokenizer changes otherwise are left out.
"""

import argparse
import json
from itertools import islice
from pathlib import Path

from transformers import AutoTokenizer

from hier_models import MINI
from hier_models.pipelines.written_form_hier import TOKEN, restore_written_form


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines with `document` and `summary`")
    parser.add_argument("--tokenizer", default=MINI, help="an uncased one")
    parser.add_argument("--rows", type=int, default=60, help="of each file")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    print(f"{'':24}{'references':>11}{'words':>8}{'right':>8}{'as decoded':>12}")
    for path in arguments.files:
        references = words = right = plain = 0
        with path.open(encoding="utf-8") as lines:
            for row in map(json.loads, islice(lines, arguments.rows)):
                reference = " ".join(row["summary"].split())
                decoded = tokenizer.decode(tokenizer(reference, add_special_tokens=False)["input_ids"])
                texts = (reference, restore_written_form(decoded, row["document"]), decoded)
                wanted, restored, lower = ([match[0] for match in TOKEN.finditer(text)] for text in texts)
                if not len(wanted) == len(restored) == len(lower):
                    continue
                references += 1
                for word, found, before in zip(wanted, restored, lower, strict=True):
                    if word[0].isalnum():
                        words, right, plain = words + 1, right + (word == found), plain + (word == before)
        if words:
            print(f"{path.stem:24}{references:>11}{words:>8}{right / words:>8.1%}{plain / words:>12.1%}")


if __name__ == "__main__":
    main()

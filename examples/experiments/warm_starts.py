"""How good each family is before it is trained: how often it writes the next token that its base would write.

    python examples/experiments/warm_starts.py                            # a small BART, trained here in a minute
    python examples/experiments/warm_starts.py facebook/bart-large-cnn    # any BART, on the Hub or in a folder

A checkpoint reads this project's licence. The BART that is trained here reads random words and writes every third of
them. Both continue what the base itself has written; HAT-BART reads the same with a marker before every sentence.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration, PreTrainedModel

from hier_models import (
    HatBartForConditionalGeneration,
    HatBartProcessor,
    HighlightTransformerForConditionalGeneration,
    TopDownTransformerForConditionalGeneration,
)


SOURCE, TARGET = 512, 48  # tokens
WORDS, SENTENCE, STEPS = 48, 12, 1000  # of the base that is trained here: tokens of a source, and of a sentence
WINDOW = {"attention_window": 2 * SOURCE, "pooling_kernel": 8, "pooling_stride": 6}
FAMILIES = {
    "HAT-BART": (HatBartForConditionalGeneration, {}),
    "Top-Down, cross-attention": (TopDownTransformerForConditionalGeneration, WINDOW),
    "Top-Down, concat": (TopDownTransformerForConditionalGeneration, {**WINDOW, "top_down_update": "concat"}),
    "Highlight-Transformer": (HighlightTransformerForConditionalGeneration, {}),
}


def words(documents: int) -> torch.Tensor:
    """Random sources with one BOS, (documents, WORDS + 2)."""
    ids = torch.randint(5, 200, (documents, WORDS + 2))
    ids[:, 0], ids[:, -1] = 0, 2
    return ids


def train_base(folder: str) -> None:
    torch.manual_seed(0)
    heads = {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
    sizes = {f"{side}_ffn_dim": 256 for side in ("encoder", "decoder")}
    layers = {"encoder_layers": 3, "decoder_layers": 2}
    config = BartConfig(
        vocab_size=200, d_model=64, max_position_embeddings=64, init_std=0.12, **heads, **sizes, **layers
    )
    model = BartForConditionalGeneration(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(STEPS):
        sources = words(32)
        loss = model(input_ids=sources, labels=sources[:, 1::3].contiguous()).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


def read(name: str | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The source without and with markers, each (1, tokens)."""
    if name is None:
        plain = words(1)[0].tolist()
        marked = [token for i, own in enumerate(plain) for token in ([0, own] if i and i % SENTENCE == 0 else [own])]
        return torch.tensor([plain]), torch.tensor([marked])
    tokenizer = AutoTokenizer.from_pretrained(name)
    text = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")
    marked = HatBartProcessor(tokenizer)(text, max_length=SOURCE, return_tensors="pt")["input_ids"]
    is_text = marked[0] != tokenizer.bos_token_id
    is_text[0] = True  # the base's own
    return marked[:, is_text], marked


@torch.no_grad()
def next_tokens(model: PreTrainedModel, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Probabilities of the next token behind each of the target, (target, vocabulary)."""
    return model.eval()(input_ids=source, decoder_input_ids=target).logits[0].softmax(dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", metavar="BART", help="on the Hub or in a folder; a small one, trained here")
    name = parser.parse_args().name
    with tempfile.TemporaryDirectory() as folder:
        if name is None:
            train_base(folder)
        base = BartForConditionalGeneration.from_pretrained(name or folder)
        plain, marked = read(name)
        target = base.generate(plain, max_new_tokens=TARGET, num_beams=1)
        expected = next_tokens(base, plain, target)
        print(f"{'':28}{'new modules':14}{'same next token':>16}{'probability, at most off by':>30}")
        for title, (cls, arguments) in FAMILIES.items():
            for begins in ("identity", "random"):
                torch.manual_seed(1)
                model = cls.from_pretrained(name or folder, new_modules=begins, **arguments)
                found = next_tokens(model, marked if title == "HAT-BART" else plain, target)
                same = (found.argmax(dim=-1) == expected.argmax(dim=-1)).float().mean().item()
                print(f"{title:28}{begins:14}{same:>15.0%} {(found - expected).abs().max().item():>30.1e}", flush=True)


if __name__ == "__main__":
    main()

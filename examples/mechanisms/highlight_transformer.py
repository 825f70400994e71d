"""Does highlighting tell a model what to write? The target is what is lit, and a user's phrase steers the output.

    python examples/mechanisms/highlight_transformer.py

Nothing but the light says what the target is: the documents are random tokens, and the phrases are drawn. So the model
without highlighted heads, which is the CopyTransformer, can only guess.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from trials import Batch, arguments, figure, keep, named_by, repeat, table, train

from hier_models import HighlightTransformerConfig, HighlightTransformerForConditionalGeneration


TOKENS, PHRASES = 24, 3  # of a document, and bigrams of it that are lit
SENTENCES, WORDS = 4, 5  # of a document that is steered, and tokens of each
FIRST, VOCABULARY = 4, 64  # ids below are special
BATCH, TESTED, RATE = 32, 256, 2e-3  # documents, documents, learning rate
SIZES: dict[str, Any] = {
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128),
    **dict.fromkeys(("dropout", "activation_dropout"), 0.0),
    "d_model": 64,
    "vocab_size": VOCABULARY,
    "init_std": 0.125,
}


def lit_bigrams(batch: int) -> Batch:
    """Documents with some bigrams lit, drawn so that none overlap; the target is these, in order."""
    ids = torch.randint(FIRST, VOCABULARY, (batch, TOKENS))
    slots = torch.rand(batch, TOKENS - PHRASES).argsort(dim=1)[:, :PHRASES].sort(dim=1).values
    starts = slots + torch.arange(PHRASES)  # (batch, phrases)
    target = ids.gather(1, torch.stack([starts, starts + 1], dim=2).flatten(1))  # (batch, 2 * phrases)
    return {
        "input_ids": ids,
        "labels": target,
        "phrase_positions": torch.stack([starts, starts + 2], dim=2),
        "phrase_values": torch.full(starts.shape, PHRASES**-0.5),  # an L2 norm of 1, as a processor gives them
    }


def lit_sentence(batch: int) -> Batch:
    """Documents of sentences, of which one's first bigram is lit, as a user may; the target is this sentence."""
    ids = torch.randint(FIRST, VOCABULARY, (batch, SENTENCES * WORDS))
    sentence = torch.randint(SENTENCES, (batch,))
    start = sentence * WORDS
    return {
        "input_ids": ids,
        "labels": ids.unflatten(1, (SENTENCES, WORDS))[torch.arange(batch), sentence],
        "phrase_positions": torch.stack([start, start + 2], dim=1)[:, None],
        "phrase_values": torch.ones(batch, 1),
    }


def batches(make: Any) -> Iterator[Batch]:
    """Give documents without an end."""
    while True:
        yield make(BATCH)


def model_of(**settings: Any) -> HighlightTransformerForConditionalGeneration:
    """Make a small model, with the sizes of the trials."""
    return HighlightTransformerForConditionalGeneration(HighlightTransformerConfig(**SIZES, **settings))


def perplexity(model: Any, tested: Batch) -> float:
    """Perplexity of the targets."""
    with torch.inference_mode():
        return float(model.eval()(**tested).loss.exp())


def written(model: Any, tested: Batch) -> torch.Tensor:
    """What the model writes of documents, and whether it is the target, (documents,)."""
    length = tested["labels"].shape[1]
    inputs = {name: value for name, value in tested.items() if name != "labels"}
    ids = model.eval().generate(
        **inputs, min_new_tokens=length, max_new_tokens=length, forced_eos_token_id=None, use_cache=True
    )
    return (ids[:, 1:] == tested["labels"]).all(dim=1)


def what_is_lit(seed: int, steps: int, curve: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    """Train on lit bigrams, with highlighted heads or without."""
    tested, model = lit_bigrams(TESTED), model_of(**settings)
    name = {"highlighting": "without" if settings else "with", "seed": seed}

    def watch(step: int) -> bool:
        if step % max(1, steps // 10) == 0:
            curve.append({**name, "steps": step, "perplexity": perplexity(model, tested)})
            model.train()
        return False

    train(model, batches(lit_bigrams), steps, RATE, watch=watch)
    return {"perplexity": perplexity(model, tested), "written, %": 100 * float(written(model, tested).float().mean())}


def steering(seed: int, steps: int, brightness: float) -> dict[str, Any]:
    """Train on lit sentences, at a brightness, and tell how often the output is the sentence of the user's phrase."""
    tested, model = lit_sentence(TESTED), model_of(brightness=brightness)
    train(model, batches(lit_sentence), steps, RATE)
    return {"follows, %": 100 * float(written(model, tested).float().mean()), "perplexity": perplexity(model, tested)}


def main() -> None:
    """Run the trials."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--steps", type=int, default=600, help="of each training")
    parser.add_argument("--trials", nargs="+", choices=("lit", "steering"), default=["lit", "steering"])
    given = parser.parse_args()
    steps, seeds = given.steps, 1 if given.quick else given.seeds
    settings_given = named_by(parser, given, "trials")
    if given.quick:
        SIZES["encoder_layers"] = 1  # which is highlighted

    if "lit" in given.trials:
        curve: list[dict[str, Any]] = []
        rows = []
        for name, settings in (("with", {}), ("without", {"highlight_heads": 0})):
            rows += repeat(partial(what_is_lit, steps=steps, curve=curve, **settings), seeds, highlighting=name)
        print("\n" + table(rows, ["highlighting"], ["perplexity", "written, %"]), flush=True)
        keep(rows, given.output / f"highlight_transformer{settings_given}.jsonl")
        path = given.output / f"highlight_transformer{settings_given}.svg"
        figure(curve, "steps", "perplexity", "highlighting", path)
    if "steering" in given.trials:
        rows = []
        for brightness in (0.0, 10.0) if given.quick else (0.0, 1.0, 10.0):
            rows += repeat(partial(steering, steps=steps, brightness=brightness), seeds, brightness=brightness)
        print("\n" + table(rows, ["brightness"], ["follows, %", "perplexity"]), flush=True)
        keep(rows, given.output / f"highlight_transformer_steering{settings_given}.jsonl")


if __name__ == "__main__":
    main()

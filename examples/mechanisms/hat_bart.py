"""Does HAT learn to translate or to find sentences from scratch sooner than its markers alone, or than neither?

Documents of made-up sentences, of three to five words each and a full stop. "translation": each word is mapped to
another, and a sentence's words are reversed; what is to be learned is which sentence is next, and where in it the
decoder is. "Steps" is when 90 % of a new batch's tokens are right, given those before them; a run that comes so far
has learned it. "retrieval": behind its words, each sentence has a name. The decoder is given two words, which other
sentences have too, but only one has both, and is to write the name of this one; four queries for each document.

    python examples/mechanisms/hat_bart.py --sentences 6 12 24 48
    python examples/mechanisms/hat_bart.py --task retrieval --sentences 6

The twins have one more encoder layer for the hierarchical one, and wider decoder blocks for its third attentions. In
"sentences above", the last decoder layer of a HAT reads sentences only.
"""

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trials import Batch, arguments, keep, named_by, repeat, table, train

from hier_models import HatBartConfig, HatBartForConditionalGeneration
from hier_models.models.model_outputs import HatBartEncoderOutput


BOS, PAD, EOS, STOP = 0, 1, 2, 3
WORDS = range(STOP + 1, STOP + 17)
SIZES = {"translation": 96, "retrieval": 192}  # sentences of a batch, about
LONGEST = {"translation": 7, "retrieval": 8}  # tokens of a sentence
MODELS = ("hat", "markers", "plain", "sentences above")
QUERIES = 4  # of a document
ENOUGH = 0.9
RATES = (1.5e-3, 3e-3, 6e-3)


class NoAttention(torch.nn.Module):
    """Finds nothing, in place of a decoder layer's attention to tokens."""

    def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> tuple[torch.Tensor, None]:
        """Give what changes nothing."""
        return torch.zeros_like(hidden_states), None


def model_of(kind: str, positions: int) -> HatBartForConditionalGeneration:
    """Make a model of width 32; "hat" and its twins have as many parameters, within a hundredth."""
    has_hierarchy, width = kind in ("hat", "sentences above"), 32
    config = HatBartConfig(
        vocab_size=100,  # more than there are
        max_position_embeddings=positions,
        d_model=width,
        encoder_layers=1 if has_hierarchy else 2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64 if has_hierarchy else 64 + 2 * width,
        hierarchical_layers=1 if has_hierarchy else 0,
        dropout=0.0,
        init_std=0.1,
    )
    model = HatBartForConditionalGeneration(config)
    for part in (model.model.encoder, model.model.decoder):  # positions begin as sinusoids: places are learned sooner
        weight = part.embed_positions.weight
        angle = torch.arange(len(weight))[:, None] * 1000.0 ** (-torch.arange(0, width, 2) / width)
        weight.data = torch.cat([angle.sin(), angle.cos()], dim=1) / 2
    if kind == "sentences above":
        model.model.decoder.layers[-1].encoder_attn = NoAttention()
    return model


def translation(document: list[list[int]]) -> tuple[list[list[int]], list[int], list[int]] | None:
    """Make the sentences to be read, what the decoder is given, and what it is to write: all, mapped and reversed."""
    target = [token for words in document for token in [*(word + len(WORDS) for word in reversed(words)), STOP]]
    return document, [EOS, *target], [*target, EOS]


def retrieval(document: list[list[int]]) -> tuple[list[list[int]], list[int], list[int]] | None:
    """Make the same of queries: two words that others have too, but only one sentence both, and this one's name."""
    having = Counter(word for words in document for word in {*words})
    pairs = Counter(pair for words in document for pair in combinations(sorted({*words}), 2))
    found = [pair for pair, count in pairs.items() if count == 1 and min(having[word] for word in pair) > 1]
    if len(found) < QUERIES:
        return None
    names = [random.choice(WORDS) + len(WORDS) for _ in document]
    given, wanted = [], []
    for pair in random.sample(found, QUERIES):
        name = next(name for words, name in zip(document, names, strict=True) if {*pair} <= {*words})
        given += [*random.sample(pair, 2), name]
        wanted += [-100, name, -100]
    return [[*words, name] for words, name in zip(document, names, strict=True)], given, wanted


def batch_of(size: int, sentences: int, marked: bool, task: str = "translation") -> Batch:
    """Make documents and their targets, with a marker before each sentence or without."""
    marker = [BOS] if marked else []
    make = {"translation": translation, "retrieval": retrieval}[task]
    sources, given, wanted = [], [], []
    while len(sources) < size:
        if made := make([random.choices(WORDS, k=random.randint(3, 5)) for _ in range(sentences)]):
            sources.append([token for words in made[0] for token in [*marker, *words, STOP]])
            given.append(made[1])
            wanted.append(made[2])
    rows_of = {"input_ids": (sources, PAD), "decoder_input_ids": (given, PAD), "labels": (wanted, -100)}
    batch = {
        name: pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=padding)
        for name, (rows, padding) in rows_of.items()
    }
    return {**batch, "attention_mask": (batch["input_ids"] != PAD).long()}


def batches(kind: str, sentences: int, task: str) -> Iterator[Batch]:
    """Make batches without end."""
    while True:
        yield batch_of(max(1, SIZES[task] // sentences), sentences, marked=kind != "plain", task=task)


@torch.no_grad()
def right(model: HatBartForConditionalGeneration, batch: Batch) -> float:
    """Share of the tokens that are right when those before them are given."""
    labels = batch["labels"]
    return float((model(**batch).logits.argmax(-1) == labels)[labels >= 0].float().mean())


def trial(seed: int, kind: str, sentences: int, steps: int, task: str, learning_rate: float = 3e-3) -> dict[str, Any]:
    """Train one of the models until enough is right, or for so many steps."""
    random.seed(seed)
    model = model_of(kind, LONGEST[task] * sentences + 2)
    new = batches(kind, sentences, task)
    learned = False  # the steps do not tell: the last one may be when it is

    def is_enough(step: int) -> bool:
        nonlocal learned
        learned = step % 50 == 0 and right(model, next(new)) >= ENOUGH
        return learned

    taken = len(train(model, new, steps, learning_rate, watch=is_enough))
    accuracy = sum(right(model, next(new)) for _ in range(8)) / 8
    return {"steps": taken, "accuracy": accuracy, "learned": float(learned)}


@torch.no_grad()
def decoding_step(reading: int, tokens: int, beams: int = 4, steps: int = 9) -> float:
    """Milliseconds of a step of decoding, a median; so many layers of a HAT of bart-base's shape read tokens."""
    torch.manual_seed(0)
    sizes = {"d_model": 768, "encoder_layers": 1, "decoder_layers": 6, "decoder_ffn_dim": 3072, "vocab_size": 1000}
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 12)
    model = HatBartForConditionalGeneration(HatBartConfig(**sizes, **heads, max_position_embeddings=64)).eval()
    for layer in model.model.decoder.layers[reading:]:
        layer.encoder_attn = NoAttention()
    sentences = tokens // 25
    encoded = HatBartEncoderOutput(
        last_hidden_state=torch.randn(beams, tokens, 768),
        hierarchical_hidden_state=torch.randn(beams, sentences, 768),
        hierarchical_attention_mask=torch.ones(beams, sentences, dtype=torch.long),
    )
    inputs = {"encoder_outputs": encoded, "attention_mask": torch.ones(beams, tokens, dtype=torch.long)}
    cache, seconds = None, []
    for _ in range(steps + 1):
        began = time.process_time()
        written = torch.full((beams, 1), EOS)
        cache = model(**inputs, decoder_input_ids=written, cache=cache, use_cache=True).cache
        seconds.append(time.process_time() - began)
    return 1000 * statistics.median(seconds[1:])  # the first projects keys and values


def main() -> None:
    """Run all trials and print their table."""
    parser = arguments(__doc__)
    parser.add_argument("--task", choices=SIZES, default="translation", help="what is to be learned")
    parser.add_argument("--sentences", type=int, nargs="+", default=[6, 12, 24, 48], help="sentences of a document")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS[:3], help="which ones are trained")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates to try")
    parser.add_argument("--steps", type=int, default=4000, help="most steps of each training")
    parser.add_argument("--speed", action="store_true", help="only what a step of decoding costs")
    given = parser.parse_args()
    if given.speed:
        for tokens in (1024, 4096):
            print(tokens, *(f"{decoding_step(reading, tokens):.1f} ms" for reading in (6, 3, 1)), flush=True)
        return
    lengths, rates, steps, seeds = (given.sentences, given.rates, given.steps, given.seeds)
    if given.quick:
        lengths, steps = ([2], 300) if given.task == "translation" else ([6], 700)
        rates, seeds = RATES[1:2], 1
    if given.task == "retrieval" and min(lengths) < 4:
        parser.error("--sentences must be at least 4 for retrieval: others have each word of a query")
    path = given.output / f"hat_bart_{given.task}{named_by(parser, given, 'task', 'speed')}.jsonl"
    rows = []
    for sentences in lengths:
        for kind in given.models:
            run = partial(trial, kind=kind, sentences=sentences, steps=steps, task=given.task)
            # Each model has the rate with which its first seed is the soonest; other seeds then have the same.
            tried = {rate: repeat(partial(run, learning_rate=rate), 1, rate=rate) for rate in rates}
            best = min(tried, key=lambda rate: (tried[rate][0]["steps"], -tried[rate][0]["accuracy"]))
            others = repeat(partial(run, learning_rate=best), seeds, first=1, rate=best)
            rows += [{"model": kind, "sentences": sentences, **row} for row in (*tried[best], *others)]
            keep(rows, path)
    print(table(rows, ("model", "sentences", "rate"), ("steps", "learned", "accuracy")))


if __name__ == "__main__":
    main()

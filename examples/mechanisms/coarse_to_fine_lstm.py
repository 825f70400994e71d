"""What hard attention finds: the right row among 10 to 1,000, by how the choice of rows is trained.

    python examples/mechanisms/coarse_to_fine_lstm.py              # about two minutes on a core of its own
    python examples/mechanisms/coarse_to_fine_lstm.py --quick      # seconds: one seed, three models, up to 30 rows
    python examples/mechanisms/coarse_to_fine_lstm.py --speed      # what a step of training costs, with 100 rows
    python examples/mechanisms/coarse_to_fine_lstm.py --texts needle   # only files of a task like it, for commands

A document is rows of four words, one of which is a value. Four rows begin with a word of their own, a question; the
others with filler. The decoder is given the questions in any order, and is to write the value of each one's row. All
models are trained among 10 rows and asked among more. In a wrong row, one value in 8 is right by chance.

"flat" is Model 1, "soft" Model 2, the others Model 3, which reads one row at a step. "top_k" trains on the two best
rows, "reinforce" on one that is drawn; "soft first" attends softly in the first half of training. "unrewarded" is
REINFORCE without rewards: nothing teaches it which row to read.
"""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from trials import Batch, arguments, figure, keep, named_by, repeat, table, train

from hier_models import CoarseToFineLstmConfig, CoarseToFineLstmForConditionalGeneration


ROWS, TRAINED = (10, 30, 100, 300, 1000), 10
WORDS, QUESTIONS, ASKED, VALUES, FILLERS = 4, 4, 4, 8, 8
DOCUMENTS, TESTED = 16, 8  # in a batch of training, and of the test
FIRST_QUESTION = 3  # behind BOS, padding and EOS
FIRST_VALUE = FIRST_QUESTION + QUESTIONS
FIRST_FILLER = FIRST_VALUE + VALUES

HARD: dict[str, Any] = {"attention": "hard", "selected_rows": 1}
TOP_K = {**HARD, "estimator": "top_k", "num_samples": 2}
# The settings of each model, and the share of its training that is soft.
MODELS: dict[str, tuple[dict[str, Any], float]] = {
    "flat": ({"attention": "flat"}, 0.0),
    "soft": ({"attention": "coarse_to_fine"}, 0.0),
    "top_k, soft first": (TOP_K, 0.5),
    "top_k": (TOP_K, 0.0),
    "reinforce, soft first": (HARD, 0.5),
    "reinforce": (HARD, 0.0),
    "unrewarded": ({**HARD, "reward_scale": 0.0}, 0.0),
}
# That REINFORCE is tried with; all others have the second. At the third, with one seed of three soft attention learns
# nothing, and so does REINFORCE behind it.
RATES = (3e-3, 1e-2, 3e-2, 1e-1)


def make_documents(documents: int, rows: int, generator: torch.Generator) -> tuple[Batch, torch.Tensor]:
    """Documents, what is asked and to be answered, and the right row for each question, `(documents, ASKED)`."""
    words = torch.randint(FIRST_FILLER, FIRST_FILLER + FILLERS, (documents, rows, WORDS), generator=generator)
    values = torch.randint(FIRST_VALUE, FIRST_FILLER, (documents, rows), generator=generator)
    places = torch.randint(1, WORDS, (documents, rows, 1), generator=generator)
    words.scatter_(2, places, values.unsqueeze(-1))
    marked = torch.rand(documents, rows, generator=generator).argsort(dim=1)[:, :QUESTIONS]  # (documents, QUESTIONS)
    for document, own in enumerate(marked):
        words[document, own, 0] = torch.arange(FIRST_QUESTION, FIRST_VALUE)
    asked = torch.rand(documents, QUESTIONS, generator=generator).argsort(dim=1)[:, :ASKED]
    right = marked.gather(1, asked)
    row_ids = torch.arange(rows).repeat_interleave(WORDS).expand(documents, -1)
    batch = {"input_ids": words.flatten(1), "row_ids": row_ids, "decoder_input_ids": FIRST_QUESTION + asked}
    return {**batch, "labels": values.gather(1, right)}, right


def batches(seed: int) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield make_documents(DOCUMENTS, TRAINED, generator)[0]


def trained(name: str, seed: int, steps: int, rate: float) -> tuple[Any, list[float]]:
    """Train a model, and give the loss of each step."""
    settings, soft_share = MODELS[name]
    sizes = {"embedding_size": 24, "hidden_size": 48, "coarse_filters": 48, "coarse_kernel_size": 2, "init_range": 0.4}
    config = CoarseToFineLstmConfig(
        **sizes, vocab_size=FIRST_FILLER + FILLERS, encoder_layers=1, decoder_layers=1, dropout=0.0, **settings
    )
    model = CoarseToFineLstmForConditionalGeneration(config)
    soft_steps = int(soft_share * steps)

    def watch(step: int) -> bool:
        model.soft_attention = step < soft_steps
        return False

    model.soft_attention = soft_steps > 0
    return model, train(model, batches(seed), steps, rate, watch=watch)


@torch.no_grad()
def tested(model: Any, rows: int, batches_of_test: int) -> dict[str, float]:
    """How often the best row is the right one, and the token; rows that are read, and milliseconds a step."""
    model.eval()
    generator = torch.Generator().manual_seed(1)
    right_rows, right_tokens, read, seconds = 0.0, 0.0, 0.0, []
    for _ in range(batches_of_test):
        batch, right = make_documents(TESTED, rows, generator)
        labels, questions = batch.pop("labels"), batch.pop("decoder_input_ids")
        encoded = model.get_encoder()(**batch)
        began = time.process_time()
        found = model(encoder_outputs=encoded, decoder_input_ids=questions)
        seconds.append((time.process_time() - began) / ASKED)
        looked = model(**batch, decoder_input_ids=questions, output_attentions=True)
        right_rows += (looked.row_attentions.argmax(-1) == right).float().mean().item()
        right_tokens += (found.logits.argmax(-1) == labels).float().mean().item()
        read += rows if found.encoded_rows is None else found.encoded_rows.float().mean().item()
    parts = {"right row, %": 100 * right_rows, "right token, %": 100 * right_tokens, "rows read": read}
    return {**{name: value / batches_of_test for name, value in parts.items()}, "ms a step": 1000 * min(seconds)}


def training_step(name: str, documents: int = 4, rows: int = 100, words: int = 20, target: int = 10) -> float:
    """Milliseconds of a step of training, the second best of five; larger models, random words."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 5000, "embedding_size": 128, "hidden_size": 256, "coarse_filters": 256}
    model = CoarseToFineLstmForConditionalGeneration(CoarseToFineLstmConfig(**sizes, **MODELS[name][0])).train()
    batch = {
        "input_ids": torch.randint(3, 5000, (documents, rows * words)),
        "row_ids": torch.arange(rows).repeat_interleave(words).expand(documents, -1),
        "labels": torch.randint(3, 5000, (documents, target)),
    }
    seconds = []
    for _ in range(5):
        began = time.process_time()
        model(**batch).loss.backward()
        seconds.append(time.process_time() - began)
    return 1000 * sorted(seconds)[1]


def write_texts(folder: Path) -> None:
    """Write a task like it as documents of sentences, whose summaries are the questions, each with its value.

    Here each question begins three rows, of which two have its value and one any: one row does not always tell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    for part, rows, documents in (("train", 20, 9600), ("validation", 20, 100), ("test", 30, 200)):
        with (folder / f"{part}.jsonl").open("w") as file:
            for _ in range(documents):
                answers = [chance.randrange(VALUES) for _ in range(QUESTIONS)]
                said = [
                    (f"q{i}", own) for i, own in enumerate(answers) for own in (own, own, chance.randrange(VALUES))
                ]
                said += [(f"f{chance.randrange(FILLERS)}", chance.randrange(VALUES)) for _ in range(rows - len(said))]
                chance.shuffle(said)
                sentences = [f"{first} f{chance.randrange(FILLERS)} v{value}" for first, value in said]
                summary = " ".join(f"q{i} v{own}" for i, own in enumerate(answers))
                file.write(json.dumps({"sentences": sentences, "summary": summary}) + "\n")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="only write a task like it there, as texts")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which ones; all")
    parser.add_argument("--steps", type=int, default=300, help="of training")
    parser.add_argument("--speed", action="store_true", help="only what a step of training costs, with 100 rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.texts:
        write_texts(options.texts)
        return
    if options.speed:
        for name in ("flat", "soft", "top_k", "reinforce"):
            print(f"{name}: {training_step(name):.0f} ms", flush=True)
        return
    steps, seeds, sizes, models = options.steps, options.seeds, ROWS, options.models
    rates = RATES if "reinforce" in models else ()
    if options.quick:
        steps, seeds, sizes, rates = 240, 1, ROWS[:2], ()
        models = ["soft", "top_k, soft first", "unrewarded"]

    # REINFORCE has the rate of the lowest loss at the end, with the first seed.
    losses = {}
    for rate in rates:
        torch.manual_seed(0)
        losses[rate] = sum(trained("reinforce", 0, steps, rate)[1][-20:]) / 20
        print(f"reinforce at {rate:g}: a loss of {losses[rate]:.2f}", flush=True)
    best = min(losses, key=losses.__getitem__, default=RATES[1])

    rows: list[dict[str, Any]] = []
    for name in models:
        rate = best if name == "reinforce" else RATES[1]

        def trial(seed: int, name: str = name, rate: float = rate) -> dict[str, Any]:
            model, losses = trained(name, seed, steps, rate)
            return {"loss": losses[-1], "of": {size: tested(model, size, 4) for size in sizes}}

        for found in repeat(trial, seeds, model=name):
            shared = {key: value for key, value in found.items() if key != "of"}
            rows += [{**shared, "rows": size, **values} for size, values in found["of"].items()]
    name = f"coarse_to_fine_lstm{named_by(parser, options, 'texts', 'speed')}"
    keep(rows, options.output / f"{name}.jsonl")
    print(table(rows, ("model", "rows"), ("right row, %", "right token, %", "rows read", "ms a step")))
    shown = [{**row, "log10 of rows": torch.tensor(float(row["rows"])).log10().item()} for row in rows]
    path = options.output / f"{name}.svg"
    figure(shown, "log10 of rows", "right token, %", "model", path, chance=100 / VALUES)


if __name__ == "__main__":
    main()

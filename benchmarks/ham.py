"""What depth costs: HAM with 1 to 20 levels beside plain attention, and a reader beside a plain PyTorch BiDAF.

    python benchmarks/ham.py                                  # all rows, about three minutes on 2 cores
    python benchmarks/ham.py --depths 1 10 --repeats 9
    python benchmarks/ham.py --update model_cards/ham.md

The poem model has the paper's sizes (512 units, embeddings of 512, a vocabulary of 8,000) and random weights.
Training is one step of AdamW on a batch of 64 lines of 7 characters, each written from a keyword of 2 characters and
three lines before it, with their ends; decoding writes the 8 tokens of such a line for a batch of 16 with 5 beams.
Plain levels are the same model without fusing: each level multiplies with all keys and values.

The reader is BiDAF with one level, 100 units, characters and a vocabulary of 20,000, beside the one that is written
down plainly in tests/references/bidaf.py, in the same sizes: a training step on 16 contexts of 150 words and questions
of 12.

Times are medians of runs in turn. Memory is what one training step of the poem model keeps for its backward pass,
beside the weights; and the peak of a process that takes two such steps, less what it had before, measured in a process
of its own for each depth.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import DEVICE, Run, machine, medians, peak_of_training, publish, training_step


sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the references, which are no part of the package

DEPTHS = (1, 2, 5, 10, 20)
VOCABULARY = 8000
TRAINING = {"lines": 64, "keyword": 2, "before": 24, "target": 8}
DECODING = {"lines": 16, "beams": 5, "tokens": 8}
READING = {"contexts": 16, "words": 150, "question": 12, "characters": 10, "vocabulary": 20000, "alphabet": 100}
HEADER = ("", "depth", "time")


def make_poem_model(depth: int) -> torch.nn.Module:
    from hier_models import HamConfig, HamForConditionalGeneration

    torch.manual_seed(0)
    config = HamConfig(vocab_size=VOCABULARY, attention_depth=depth)
    return HamForConditionalGeneration(config).to(DEVICE)


def make_poems(lines: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    source = TRAINING["keyword"] + TRAINING["before"]
    ids = torch.randint(5, VOCABULARY, (lines, source), generator=generator)
    keyword = (torch.arange(source) < TRAINING["keyword"]).long().expand(lines, -1)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "keyword_mask": keyword.contiguous()}
    inputs["labels"] = torch.randint(5, VOCABULARY, (lines, TRAINING["target"]), generator=generator)
    return {name: value.to(DEVICE) for name, value in inputs.items()}


def poem_training(depth: int) -> Run:
    return training_step(make_poem_model(depth), make_poems(TRAINING["lines"]), torch.float32)


def poem_decoding(depth: int) -> Run:
    model = make_poem_model(depth).eval()
    inputs = make_poems(DECODING["lines"])
    inputs.pop("labels")
    tokens = DECODING["tokens"]

    def run() -> None:
        model.generate(**inputs, num_beams=DECODING["beams"], min_new_tokens=tokens, max_new_tokens=tokens)

    return run


def without_fusing(make: Callable[[int], Run]) -> Callable[[int], Run]:
    """The same, but every level is computed by torch's own attention."""
    from hier_models.models import hierarchical_attention

    def make_plain(depth: int) -> Run:
        run = make(depth)

        def plain() -> None:
            fused = hierarchical_attention._FUSED_KEYS
            hierarchical_attention._FUSED_KEYS = 0
            try:
                run()
            finally:
                hierarchical_attention._FUSED_KEYS = fused

        return plain

    return make_plain


def readers() -> dict[str, Run]:
    """A training step of our BiDAF and of the plain one."""
    from hier_models import HamReaderConfig, HamReaderForQuestionAnswering
    from tests.references.bidaf import PlainBidaf

    torch.manual_seed(0)
    size, batch = READING, READING["contexts"]
    config = HamReaderConfig(
        reader="bidaf",
        attention_depth=1,
        vocab_size=size["vocabulary"],
        embedding_size=100,
        char_vocab_size=size["alphabet"],
        hidden_size=100,
    )
    ours = HamReaderForQuestionAnswering(config).to(DEVICE)
    plain = PlainBidaf(size["vocabulary"], size["alphabet"]).to(DEVICE)
    words, question = (torch.randint(5, size["vocabulary"], (batch, size[name])) for name in ("words", "question"))
    letters = [torch.randint(2, size["alphabet"], (*ids.shape, size["characters"])) for ids in (words, question)]
    words, question, *letters = (ids.to(DEVICE) for ids in (words, question, *letters))
    start = torch.randint(0, size["words"], (batch,), device=DEVICE)
    inputs = {
        "input_ids": words,
        "attention_mask": torch.ones_like(words),
        "char_ids": letters[0],
        "question_ids": question,
        "question_attention_mask": torch.ones_like(question),
        "question_char_ids": letters[1],
        "start_positions": start,
        "end_positions": start,
    }
    optimizer = torch.optim.AdamW(plain.train().parameters(), lr=1e-5, fused=True)
    masks = [torch.ones_like(ids, dtype=torch.bool) for ids in (words, question)]

    def plain_step() -> None:
        scores = plain(words, letters[0], question, letters[1], *masks)
        loss = sum(torch.nn.functional.cross_entropy(score, start) for score in scores) / 2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"ours": training_step(ours, inputs, torch.float32), "plain": plain_step}


def kept(depth: int) -> int:
    """Bytes that a training step keeps between forward and backward pass, beside the weights."""
    model = make_poem_model(depth).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}  # kept here, so that no place is given to two of them

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(**make_poems(TRAINING["lines"]))
    return sum(storage.nbytes() for storage in storages.values())


def peak(depth: int) -> int:
    """Bytes, of a process of its own."""
    command = [sys.executable, __file__, "--peak-of", str(depth)]
    return int(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def measure(arguments: argparse.Namespace) -> list[tuple[str, ...]]:
    rows = []
    for task, make in {"training": poem_training, "decoding": poem_decoding}.items():
        kinds = {f"poem model, {task}": make, f"{task}, plain levels": without_fusing(make)}
        runs = {(kind, depth): of_depth(depth) for kind, of_depth in kinds.items() for depth in arguments.depths}
        times = medians(runs, arguments.repeats)
        first = times[f"poem model, {task}", arguments.depths[0]]
        for (kind, depth), time in times.items():
            rows.append((kind, str(depth), f"{1000 * time:.0f} ms", f"{time / first:.2f}"))
    if arguments.memory:
        for kind, of_depth in {
            "poem model, kept for the backward pass": kept,
            "poem model, peak memory": peak,
        }.items():
            found = {depth: of_depth(depth) for depth in arguments.depths}
            for depth, size in found.items():
                ratio = size / found[arguments.depths[0]]
                rows.append((kind, str(depth), f"{size / 2**20:.1f} MiB", f"{ratio:.2f}"))
    if arguments.readers:
        times = medians(readers(), arguments.repeats)
        rows.append(("BiDAF, training, plain PyTorch", "–", f"{1000 * times['plain']:.0f} ms", "–"))
        ratio = times["ours"] / times["plain"]
        rows.append(
            ("BiDAF, training, ours", "1", f"{1000 * times['ours']:.0f} ms", f"{ratio:.2f} times plain PyTorch")
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", nargs="+", type=int, default=list(DEPTHS), help="the first is compared with")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each case")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="do not measure memory")
    parser.add_argument("--no-readers", dest="readers", action="store_false", help="do not measure BiDAF")
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak_of:
        print(json.dumps(peak_of_training(lambda: poem_training(arguments.peak_of))))
        return
    setting = f"512 units, vocabulary {VOCABULARY:,}, float32; {machine()}."
    header = (*HEADER, f"times depth {arguments.depths[0]}")
    publish(arguments.update, setting, header, lambda: measure(arguments))


if __name__ == "__main__":
    main()

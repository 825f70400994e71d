"""What conditional computation saves: the Coarse-to-Fine LSTM with hard attention beside its soft models.

    python benchmarks/coarse_to_fine_lstm.py                       # all rows, about ten minutes on 2 cores
    python benchmarks/coarse_to_fine_lstm.py --sentences 10 10000 --models "Model 3" --repeats 5
    python benchmarks/coarse_to_fine_lstm.py --limit 600 --memory 12   # the soft models on longer documents too
    python benchmarks/coarse_to_fine_lstm.py --update model_cards/coarse_to_fine_lstm.md

The models have the thesis' sizes, a vocabulary of 50,000 and random weights; 50 tokens are generated, for documents of
10 to 10,000 sentences of 40 words. Model 3 reads only the sentences that are selected, once each. "All rows" is the
same model as the thesis computes it: the words of all sentences are read before the first step. Models 0 to 2 are
standard, flat and coarse-to-fine soft attention.

Encoding is of one document, without beams: for Model 3 the coarse representations, for the others everything. The
documents of a batch are all the same one, and what was encoded of it is copied for the others, so that long batches
can be measured; a batch takes that time for each of its documents. A step is what `generate` takes after encoding,
reading what is selected included, over 50; the processor's is that of all threads. Times are medians; memory is the
peak of process or device while generating, what was encoded included, less what it had when the model was made. A
model is not measured where a run would take longer than `--limit` seconds or its word states, for all beams, more than
`--memory` GiB.

Training is one step of SGD on a batch of 20 documents of 10 sentences with targets of 15 tokens, as in the thesis.
"""

import argparse
import gc
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from measuring import DEVICE, Cost, cost, machine, peak_so_far, publish, seconds


OURS, ALL_ROWS = "Model 3", "Model 3, all rows"
KINDS = {
    OURS: "hard",
    ALL_ROWS: "hard",
    "Model 2": "coarse_to_fine",
    "Model 1": "flat",
    "Model 0": "standard",
}
SENTENCES, WORDS, TOKENS = (10, 100, 1000, 10000), 40, 50
BATCHES, BEAMS = (1, 16), (1, 5)
TRAINING = {"documents": 20, "sentences": 10, "target": 15}
NOISE = 16 * 2**20  # bytes: malloc keeps and gives back about as much
HEADER = ("", "batch", "beams", "sentences", *KINDS)


def make_model(kind: str) -> torch.nn.Module:
    from hier_models import CoarseToFineLstmConfig, CoarseToFineLstmForConditionalGeneration

    torch.manual_seed(0)
    config = CoarseToFineLstmConfig(attention=KINDS[kind])
    return CoarseToFineLstmForConditionalGeneration(config).to(DEVICE)


def make_inputs(documents: int, sentences: int) -> dict[str, torch.Tensor]:
    """The same random document so often."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 50000, (1, sentences * WORDS), generator=generator)
    rows = torch.arange(sentences).repeat_interleave(WORDS)[None]
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "row_ids": rows}
    return {name: value.to(DEVICE).expand(documents, -1) for name, value in inputs.items()}


class Encoded:
    """A batch of one document: encoded once, copied for the others, and as new for each run.

    Args:
        kind: which model.
        model: the model.
        documents: how many.
        sentences: of each.
        repeats: how often the document is encoded to time it, after once to warm up.
        budget: seconds after which it is not encoded again.
    """

    def __init__(self, kind: str, model: Any, documents: int, sentences: int, repeats: float, budget: float):
        self.kind, self.encoder, self.documents = kind, model.get_encoder(), documents
        self.one, self.inputs = make_inputs(1, sentences), make_inputs(documents, sentences)
        self.found: Any = None
        seconds(self._encode)
        taken: list[float] = []
        while len(taken) < repeats and sum(taken) < budget:
            self.found = None  # two would count as memory
            taken.append(seconds(self._encode))
        self.seconds = statistics.median(taken)

    def output(self) -> Any:
        """What the encoder returns for the batch; nothing has been read on demand yet."""
        if self.kind != OURS:
            copied = {
                name: value.repeat(self.documents, *[1] * (value.dim() - 1)) for name, value in self.found.items()
            }
            return type(self.found)(**copied)
        # Rows that were read stay with what the encoder returned, so it runs again, without its costly part.
        forward = self.encoder.coarse.forward
        self.encoder.coarse.forward = lambda *given, **named: self.found.expand(self.documents, -1, -1)
        try:
            with torch.no_grad():
                return self.encoder(**self.inputs)
        finally:
            self.encoder.coarse.forward = forward

    def _encode(self) -> None:
        with torch.no_grad():
            if self.kind == OURS:
                hook = self.encoder.coarse.register_forward_hook(self._keep)
                self.encoder(**self.one)
                hook.remove()
            else:
                # Asked for all states, hard attention reads all rows too.
                found = self.encoder(**self.one, output_hidden_states=self.kind == ALL_ROWS or None)
                found["hidden_states"] = None
                names = ("last_hidden_state", "row_ids", "row_keys", "row_tokens")
                self.found = type(found)(**{name: found.get(name) for name in names})

    def _keep(self, module: Any, given: Any, representations: torch.Tensor) -> None:
        self.found = representations


def measure(
    kind: str, documents: int, beams: list[int], sentences: list[int], arguments: dict[str, float]
) -> Iterator[dict[str, Any]]:
    """Measure one model on one size of batch; call it in a fresh process."""
    model: Any = make_model(kind).eval()
    model.generate(**make_inputs(1, 2), max_new_tokens=2)  # whatever is done once
    known: list[tuple[int, float, float]] = []  # sentences, seconds of encoding and of the slowest decoding
    for length in sorted(sentences):
        words = length * WORDS * model.config.hidden_size * 4
        if (kind != OURS and _expected(known, length) > arguments["limit"]) or (
            kind != OURS and documents * words > arguments["memory"] * 2**30
        ):
            return
        before = peak_so_far(reset=True)
        encoded = Encoded(kind, model, documents, length, arguments["repeats"], arguments["budget"])
        longest = 0.0
        for number in beams:
            if kind != OURS and documents * number * words > arguments["memory"] * 2**30:
                continue
            taken: list[Cost] = []
            rows, _ = None, peak_so_far(reset=True)
            while len(taken) < arguments["repeats"] and sum(found.clock for found in taken) < arguments["budget"]:
                output = encoded.output()
                mask = encoded.inputs["attention_mask"]

                def run(output: Any = output, mask: torch.Tensor = mask, number: int = number) -> None:
                    nonlocal rows
                    given = {"encoder_outputs": output, "attention_mask": mask, "num_beams": number}
                    found = model.generate(
                        **given, min_new_tokens=TOKENS, max_new_tokens=TOKENS, return_dict_in_generate=True
                    )
                    rows = found.get("encoded_rows")

                taken.append(cost(run))
            processor, clock = map(statistics.median, zip(*taken, strict=True))
            yield {
                "beams": number,
                "sentences": length,
                "encoding": encoded.seconds,
                "step": clock / TOKENS,
                "processor": processor / TOKENS,
                "memory": peak_so_far() - before,
                "rows": length if rows is None else rows.float().mean().item(),
            }
            longest = max(longest, clock)
        known.append((length, encoded.seconds, longest))
        del encoded
        gc.collect()


def _expected(known: list[tuple[int, float, float]], length: int) -> float:
    """Seconds of a longer document: encoding grows with it, and decoding as much as it did lately."""
    if not known:
        return 0.0
    last, encoding, decoding = known[-1]
    if len(known) > 1:
        before, _, faster = known[-2]
        decoding += max(0.0, decoding - faster) * (length - last) / (last - before)
    return encoding * length / last + decoding


def measure_training(kind: str, repeats: int) -> float:
    """Median seconds of one step; call it in a fresh process."""
    model = make_model(kind).train()
    inputs = make_inputs(TRAINING["documents"], TRAINING["sentences"])
    labels = torch.randint(5, 50000, (TRAINING["documents"], TRAINING["target"]), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        model(**inputs, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()

    step()
    return statistics.median(seconds(step) for _ in range(repeats))


def measure_all(arguments: argparse.Namespace) -> list[list[str]]:
    limits = {name: getattr(arguments, name) for name in ("limit", "memory", "repeats", "budget")}
    found: dict[tuple[int, int, int], dict[str, dict[str, float]]] = {}
    training: dict[str, float] = {}
    for kind in arguments.models:
        for documents in arguments.batches:
            print(f"{kind}, batch {documents} …", file=sys.stderr)
            for case in _in_fresh_process([kind, documents, arguments.beams, arguments.sentences, limits]):
                found.setdefault((documents, int(case["beams"]), int(case["sentences"])), {})[kind] = case
        if arguments.training and kind != ALL_ROWS:
            print(f"{kind}, training …", file=sys.stderr)
            for case in _in_fresh_process([kind, arguments.repeats]):
                training[kind] = case["step"]
    return [*_rows(found), *_training_rows(training)]


def _in_fresh_process(case: list[Any]) -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, __file__, "--case", json.dumps(case)], stdout=subprocess.PIPE, text=True)
    if done.returncode:  # out of memory, say; what was measured before counts
        print(f"{case[0]} ended early", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _rows(found: dict[tuple[int, int, int], dict[str, dict[str, float]]]) -> list[list[str]]:
    rows = []
    least = min((sentences for _, _, sentences in found), default=0)
    for (batch, beams, sentences), cases in sorted(found.items()):
        key = [str(batch), str(beams), str(sentences)]
        shortest = found.get((batch, beams, least), {})

        def growth(kind: str, cases: Any = cases, shortest: Any = shortest) -> float | None:
            return cases[kind]["step"] / shortest[kind]["step"] if kind in shortest else None

        whole = {kind: batch * case["encoding"] + TOKENS * case["step"] for kind, case in cases.items()}
        rows.append(["decoding step", *key, *_cells(cases, lambda kind, cases=cases: cases[kind]["step"], 1e-3, "ms")])
        used = _cells(cases, lambda kind, cases=cases: cases[kind]["processor"], 1e-3, "ms")
        rows.append(["decoding step, processor", *key, *used])
        if sentences != least:
            rows.append([f"decoding step, times that of {least} sentences", *key, *_cells(cases, growth, 1, "×", 2)])
        rows.append(["sentences read", *key, *_cells(cases, lambda kind, cases=cases: cases[kind]["rows"], 1, "")])
        rows.append(["encoding and 50 steps", *key, *_cells(cases, whole.get, 1, "s", 2, ratio=True)])
        rows.append(
            [
                "extra memory",
                *key,
                *_cells(cases, lambda kind, cases=cases: cases[kind]["memory"], 2**20, "MiB", ratio=True),
            ]
        )
    for sentences in sorted({sentences for _, _, sentences in found}):
        cases = next((case for key, case in sorted(found.items()) if key[2] == sentences), {})
        cells = _cells(cases, lambda kind, cases=cases: cases[kind]["encoding"], 1, "s", 3, ratio=True)
        rows.append(["encoding a document", "1", "–", str(sentences), *cells])
    return rows


def _training_rows(training: dict[str, float]) -> list[list[str]]:
    if not training:
        return []
    key = [str(TRAINING["documents"]), "–", str(TRAINING["sentences"])]
    words = TRAINING["documents"] * TRAINING["sentences"] * WORDS
    return [
        ["training step", *key, *_cells(training, training.get, 1, "s", 2, ratio=True)],
        ["training, source words a second", *key, *_cells(training, lambda kind: words / training[kind], 1, "")],
    ]


def _cells(cases: Any, value_of: Any, scale: float, unit: str, digits: int = 1, ratio: bool = False) -> list[str]:
    cells = []
    first = value_of(OURS) if OURS in cases else None
    for kind in KINDS:
        value = value_of(kind) if kind in cases else None
        if value is None or math.isnan(value):
            cells.append("–")
            continue
        if unit == "MiB" and value < NOISE:
            cells.append(f"under {NOISE / scale:.0f} MiB")
            continue
        text = f"{value / scale:,.{digits}f} {unit}".strip()
        ratio = ratio and (unit != "MiB" or (first is not None and first >= NOISE))
        times = f" ({value / first:.2f}×)" if ratio and first and kind != OURS else ""
        cells.append(text.replace(" ×", "×") + times)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES), help="documents")
    parser.add_argument("--beams", nargs="+", type=int, default=list(BEAMS))
    parser.add_argument("--sentences", nargs="+", type=int, default=list(SENTENCES), help=f"of {WORDS} words")
    parser.add_argument("--limit", type=float, default=20, help="seconds that one run may take")
    parser.add_argument("--memory", type=float, default=2, help="GiB that word states may take")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each case")
    parser.add_argument("--budget", type=float, default=5, help="seconds after which a case is not run again")
    parser.add_argument("--no-training", dest="training", action="store_false", help="do not measure training")
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        case = json.loads(arguments.case)
        if len(case) == 2:
            print(json.dumps({"step": measure_training(*case)}))
            return
        for found in measure(*case):
            print(json.dumps(found), flush=True)
        return
    setting = (
        f"The thesis' sizes, vocabulary 50,000, {TOKENS} tokens generated; {machine()}. In brackets, times Model 3."
    )
    publish(arguments.update, setting, HEADER, lambda: measure_all(arguments), keys=4)


if __name__ == "__main__":
    main()

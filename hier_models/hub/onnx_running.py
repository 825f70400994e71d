"""Summaries by onnxruntime, with numpy in place of torch: greedy, one document at a time."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np


VERSION = 1
FRACTIONS = ("phrase_values", "token_importance")  # the other inputs are integers
GREEDY = {"num_beams": 1, "do_sample": False}
ENCODER, DECODER, SETTINGS = "encoder.onnx", "decoder.onnx", "onnx.json"
SHARED = "shared.bin"  # of an export in int8: weights that both have


class OnnxSummarizer:
    """Generates as `model.generate(num_beams=1, do_sample=False)` does.

    Args:
        folder: what `hier-models export --onnx` wrote.

    Raises:
        ValueError: If the folder holds no such export, or that of another version, or files that cannot be loaded.
        ImportError: If onnxruntime is missing.
    """

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        if not (folder / SETTINGS).is_file():
            raise ValueError(f"{folder} has no {SETTINGS}: write it with `hier-models export --onnx {folder}`.")
        self.settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        version = self.settings.get("version")
        if version != VERSION:
            raise ValueError(
                f"{folder} was exported as version {version}, this reads version {VERSION}: export it again with "
                f"`hier-models export --onnx {folder}`."
            )
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError('onnxruntime is missing: pip install "hier_models[onnx]"') from error
        self.folder = folder
        try:
            self._encoder, self._decoder = (
                onnxruntime.InferenceSession(folder / name, providers=["CPUExecutionProvider"])
                for name in (ENCODER, DECODER)
            )
        except Exception as error:  # onnxruntime's own have no class of their own
            raise ValueError(
                f"onnxruntime {onnxruntime.__version__} cannot load what is in {folder}: {error}. Export it again "
                f"with `hier-models export --onnx {folder}`."
            ) from error

    def __call__(self, text: str, **settings: Any) -> str:
        """Summarize a text; the settings are those that `generate` takes here."""
        inputs = self._processor(text=[text], truncation=True, return_tensors="np")
        ids = self.generate(**inputs, **settings)
        return str(self._processor.decode(ids, skip_special_tokens=True)).strip()

    @cached_property
    def _processor(self) -> Any:
        from transformers import AutoProcessor

        return AutoProcessor.from_pretrained(self.folder)

    def generate(
        self,
        input_ids: np.ndarray[Any, Any],
        *,
        max_new_tokens: int | None = None,
        min_new_tokens: int | None = None,
        no_repeat_ngram_size: int | None = None,
        forced_bos_token_id: int | None = None,
        logits_processor: Any = None,
        **inputs: np.ndarray[Any, Any],
    ) -> list[int]:
        """Generate token ids greedily; what is not given is as it was in the model's generation config.

        Args:
            input_ids: source token ids of one document, `(1, source)`, with no padding.
            max_new_tokens: most tokens.
            min_new_tokens: tokens before which there is no end.
            no_repeat_ngram_size: tokens in a row that come only once; 0 for any.
            forced_bos_token_id: the first token, such as that of a length.
            logits_processor: what else changes scores, of torch's tensors, as Transformers' `generate` takes it.
            **inputs: what else the processor gave. `num_beams=1` and `do_sample=False` may be among them.

        Returns:
            The ids, without the start token.
        """
        self._check(inputs)
        given = dict(self.settings["generation"])
        if min_new_tokens is not None:
            given["min_length"] = 0
        asked = {
            "max_new_tokens": max_new_tokens,
            "min_new_tokens": min_new_tokens,
            "no_repeat_ngram_size": no_repeat_ngram_size,
            "forced_bos_token_id": forced_bos_token_id,
        }
        given |= {name: value for name, value in asked.items() if value is not None}
        ends = given["eos_token_id"] if isinstance(given["eos_token_id"], list) else [given["eos_token_id"]]
        least = max(given["min_new_tokens"] or 0, (given["min_length"] or 0) - 1)  # a length counts the start token
        size, most = given["no_repeat_ngram_size"], given["max_new_tokens"]
        first = int(given["forced_bos_token_id"] is not None)  # token that is chosen
        names = [output.name for output in self._encoder.get_outputs()]
        wanted = self._decoder.get_inputs()
        memory = dict(zip(names, self._encoder.run(None, self._feed(input_ids, inputs)), strict=True))
        # No steps before the first: (1, heads, 0, head_dim).
        past = {value.name: value.shape for value in wanted if value.name.startswith("self_")}
        memory |= {name: np.zeros((*shape[:2], 0, shape[3]), np.float32) for name, shape in past.items()}
        ids = [self.settings["start_token_id"]]
        while True:
            feed = {"decoder_input_ids": np.array([[ids[-1]]])} | memory
            outputs = self._decoder.run(None, {value.name: feed[value.name] for value in wanted})
            results = zip((value.name for value in self._decoder.get_outputs()), outputs, strict=True)
            memory |= {name.removeprefix("next_"): value for name, value in results}
            scores = memory.pop("logits")[0].copy()
            made = len(ids) - 1
            if made < least:
                scores[ends] = -np.inf
            scores[_repeated(ids, size)] = -np.inf
            if made == first:
                scores[given.get("begin_suppress_tokens") or []] = -np.inf  # older exports had none
            if logits_processor:
                scores = _processed(logits_processor, ids, scores)
            token = int(scores.argmax())
            if made == 0 and given["forced_bos_token_id"] is not None:
                token = given["forced_bos_token_id"]
            if made == most - 1 and given["forced_eos_token_id"] is not None:
                token = given["forced_eos_token_id"]
            ids.append(token)
            if token in ends or len(ids) > most:
                return ids[1:]

    def _check(self, inputs: dict[str, Any]) -> None:
        """Refuse what would be left out silently, such as a setting of `generate` that an export has not."""
        for name, value in inputs.items():
            if value is None:
                continue
            if name in GREEDY:
                if value != GREEDY[name]:
                    raise ValueError(f"`{name}` must be {GREEDY[name]}, got {value}: an export decodes greedily.")
            elif name not in ("attention_mask", *self.settings["inputs"]):
                raise ValueError(
                    f"`{name}` is not known here: give the inputs that the processor makes, or max_new_tokens, "
                    "min_new_tokens, no_repeat_ngram_size, forced_bos_token_id or logits_processor."
                )

    def _feed(self, input_ids: np.ndarray[Any, Any], inputs: dict[str, Any]) -> dict[str, Any]:
        if len(input_ids) != 1:
            raise ValueError(f"`input_ids` must be those of one document, (1, source), got shape {input_ids.shape}.")
        mask = inputs.get("attention_mask")
        if mask is not None and not np.all(mask):
            raise ValueError("`attention_mask` has padding: give one document, without `padding=`.")
        feed: dict[str, Any] = {"input_ids": input_ids}
        for name in self.settings["inputs"]:
            if inputs.get(name) is not None:
                feed[name] = inputs[name]
            elif name == "bos_positions":
                feed[name] = np.flatnonzero(input_ids[0] == self.settings["bos_token_id"])[None]
            elif name == "phrase_positions":
                feed[name] = np.full((1, 1, 2), -1)
            elif name == "phrase_values":
                feed[name] = np.zeros((1, 1))
            else:
                raise ValueError(f"`{name}` is missing: give what the model's processor returns.")
            if name == "bos_positions" and not feed[name].size:
                feed[name] = np.zeros((1, 1), dtype=np.int64)
        return {name: np.asarray(v, np.float32 if name in FRACTIONS else np.int64) for name, v in feed.items()}


def _repeated(ids: list[int], size: int) -> list[int]:
    """Tokens that would end `size` tokens that were there before."""
    if not size or len(ids) < size:
        return []
    last = ids[len(ids) - size + 1 :]
    return [ids[at + size - 1] for at in range(len(ids) - size + 1) if ids[at : at + size - 1] == last]


def _processed(processor: Any, ids: list[int], scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import torch

    return processor(torch.tensor([ids]), torch.from_numpy(scores)[None])[0].numpy()  # type: ignore[no-any-return]

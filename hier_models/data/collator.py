"""The one collator, for every family and for plain encoder-decoder models."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from .tokenizing import COUNT_COLUMNS, plain_tokenizer


class HierDataCollator:
    """Pads examples to a batch: tokens, every extra input the processor declares, and labels.

    A drop-in for `DataCollatorForSeq2Seq`. Per-token extra inputs are padded like the tokens, on the tokenizer's side;
    an extra input with a length of its own (one value a sentence, say) is padded on the right to the longest in the
    batch, and to one entry at least. Which they are shows in their lengths, or the processor says so. Labels are
    padded on the right whatever the tokenizer's side: decoders count positions from the left and have no mask for a
    prefix, so only there an example in a batch equals the example alone. The counts that `tokenize_documents` adds are
    left out. A reader's questions and contexts are padded by its processor, `HamReaderProcessor.pad`.

    Args:
        processor: A processor that declares `extra_inputs` (name -> what pads it: a number, or one for each number of
            an entry) and perhaps `own_length_inputs` (names of those that have not an entry for each token), or a
            plain tokenizer.
        model: The model, if it can prepare `decoder_input_ids` from labels. Needed for label smoothing, where Trainer
            keeps the labels away from the model. LED's batches get `global_attention_mask`, for the first token.
        padding: True or "longest" pads to the longest example of the batch, "max_length" to `max_length`.
        max_length: Tokens to pad sources to, with `padding="max_length"`.
        pad_to_multiple_of: Rounds the lengths of sources and labels up to a multiple of this.

    Raises:
        ValueError: If the tokenizer has no padding token, or `padding` and `max_length` do not go together.
    """

    def __init__(
        self,
        processor: ProcessorMixin | PreTrainedTokenizerBase,
        model: PreTrainedModel | None = None,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
    ) -> None:
        self.tokenizer: PreTrainedTokenizerBase = plain_tokenizer(processor)
        # A reader's rows hold two texts, the question and its context, and its processor pads both.
        is_reader = "question_ids" in getattr(processor, "model_input_names", ())
        self._pad: Callable[..., Any] | None = cast(Any, processor).pad if is_reader else None
        self.extra_inputs: dict[str, Any] = dict(getattr(processor, "extra_inputs", {}))
        self.own_length_inputs: tuple[str, ...] = tuple(getattr(processor, "own_length_inputs", ()))
        if self.tokenizer.pad_token_id is None:
            raise ValueError("processor: its tokenizer has no pad_token, which batches need; set tokenizer.pad_token")
        if padding not in (True, "longest", "max_length"):
            raise ValueError(f"padding must be True, 'longest' or 'max_length', got {padding!r}")
        if (padding == "max_length") != (max_length is not None):
            raise ValueError(f"max_length goes with padding='max_length'; got {max_length=} and {padding=}")
        self.model = model
        self.padding = padding
        self.max_length = max_length
        self.pad_to_multiple_of = pad_to_multiple_of

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Make a batch.

        Args:
            features: Examples with `input_ids` and perhaps `attention_mask`, the extra inputs, `labels` and numbers.

        Returns:
            Tensors of shape (batch, length), and `decoder_input_ids` if there are labels and a model to prepare them.

        Raises:
            ValueError: If the examples differ in their columns, if a column is neither a known input nor a number, or
                if `max_length` is exceeded.
        """
        names = [name for name in features[0] if name not in COUNT_COLUMNS]
        for number, feature in enumerate(features):
            if set(names) != {name for name in feature if name not in COUNT_COLUMNS}:
                found = f"example 0 has {', '.join(names)}, example {number} has {', '.join(feature)}"
                raise ValueError(f"the examples of a batch must have the same columns: {found}")
        if self._pad is not None:
            rows = [{name: feature[name] for name in names} for feature in features]
            options: dict[str, Any] = {"padding": self.padding, "pad_to_multiple_of": self.pad_to_multiple_of}
            return dict(self._pad(rows, max_length=self.max_length, return_tensors="pt", **options))
        columns = {name: [feature[name] for feature in features] for name in names}
        if "input_ids" not in columns:
            raise ValueError(f"examples must have input_ids, got the columns {', '.join(names)}")
        labels = columns.pop("labels", None)
        known = (*self.tokenizer.model_input_names, "input_ids", "attention_mask")
        batch = self._tokens({name: columns.pop(name) for name in names if name in columns and name in known})
        lengths = [len(feature["input_ids"]) for feature in features]
        for name, values in columns.items():
            if name in self.extra_inputs:
                batch[name] = self._extra(name, values, lengths, batch["input_ids"].shape[1])
            else:
                batch[name] = self._numbers(name, values)
        if getattr(getattr(self.model, "config", None), "model_type", None) == "led":
            # Without it LED would see no further than half a window anywhere.
            mask = batch["attention_mask"]
            batch.setdefault("global_attention_mask", ((mask.cumsum(1) == 1) & (mask == 1)).long())
        if labels is not None and any(label is not None for label in labels):
            batch["labels"] = self._labels(labels)
            prepare: Callable[..., Any] | None = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
            if prepare is not None:
                batch["decoder_input_ids"] = prepare(labels=batch["labels"])
        return dict(batch)

    def _tokens(self, columns: dict[str, list[Any]]) -> BatchEncoding:
        if self.max_length is not None:
            longest = max(len(ids) for ids in columns["input_ids"])
            if longest > self.max_length:
                problem = f"an example has {longest} tokens, more than max_length={self.max_length} to pad to"
                raise ValueError(f"{problem}; truncate when tokenizing (max_source_length) or pad to more")
        lists = {name: [torch.as_tensor(value).tolist() for value in values] for name, values in columns.items()}
        # As a BatchEncoding, since the tokenizer advises against padding a dict that it could have made itself.
        options: dict[str, Any] = {"padding": self.padding, "pad_to_multiple_of": self.pad_to_multiple_of}
        return self.tokenizer.pad(BatchEncoding(lists), max_length=self.max_length, return_tensors="pt", **options)

    def _extra(self, name: str, values: list[Any], lengths: list[int], padded: int) -> torch.Tensor:
        pad = torch.as_tensor(self.extra_inputs[name])
        # Of no entries, numpy makes an array of objects.
        tensors = [torch.as_tensor(value if len(value) else []) for value in values]
        # What has no entry does not tell the shape and type of one.
        entries = next((tensor for tensor in tensors if len(tensor)), pad[None])
        tensors = [tensor if len(tensor) else entries[:0] for tensor in tensors]
        own = name in self.own_length_inputs
        per_token = not own and [len(tensor) for tensor in tensors] == lengths
        length = padded if per_token else max(1, *(len(tensor) for tensor in tensors))
        left = per_token and self.tokenizer.padding_side == "left"
        return self._stack(name, tensors, length, pad, left)

    def _labels(self, labels: list[Any]) -> torch.Tensor:
        if any(label is None for label in labels):
            raise ValueError("labels: some examples of the batch have none; give all or none of them labels")
        tensors = [torch.as_tensor(label, dtype=torch.long) for label in labels]
        length = max(len(tensor) for tensor in tensors)
        if self.pad_to_multiple_of is not None:
            length = -(-length // self.pad_to_multiple_of) * self.pad_to_multiple_of
        return self._stack("labels", tensors, length, torch.tensor(-100), left=False)

    def _stack(
        self, name: str, tensors: list[torch.Tensor], length: int, pad: torch.Tensor, left: bool
    ) -> torch.Tensor:
        inner = tensors[0].shape[1:]
        if any(tensor.shape[1:] != inner for tensor in tensors):
            raise ValueError(f"{name}: only the first dimension may differ between the examples of a batch")
        dtype = torch.float if any(part.is_floating_point() for part in (pad, *tensors)) else torch.long
        stacked = pad.to(dtype).expand(len(tensors), length, *inner).clone()
        for row, tensor in zip(stacked, tensors, strict=True):
            start = length - len(tensor) if left else 0
            row[start : start + len(tensor)] = tensor
        return stacked

    def _numbers(self, name: str, values: list[Any]) -> torch.Tensor:
        tensors = [torch.as_tensor(value) for value in values if isinstance(value, bool | int | float | torch.Tensor)]
        if len(tensors) == len(values) and all(tensor.dim() == 0 for tensor in tensors):
            return torch.stack(tensors)
        declared = ", ".join(self.extra_inputs) or "none"
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(
            f"column {name!r} ({kinds}) cannot be batched: it is no input of the tokenizer, and none the processor "
            f"declares (they are: {declared}). Remove it (remove_columns), or use the processor that made it"
        )

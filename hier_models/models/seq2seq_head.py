"""The language modeling head of the families with BART's body: it generates, and may copy.

Axes in shape comments: batch (documents), source (source tokens), target (target tokens), d_model (width).
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.bart.modeling_bart import shift_tokens_right
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.deprecation import deprecate_kwarg

from .bart_body import with_rows
from .copy_mechanism import CLOSED, CopyGate, mix_log_probabilities
from .decoder_kernel import multiply
from .growing_cache import let_grow
from .input_checks import check_labels
from .losses import token_loss
from .model_outputs import CopyLMOutput, takes
from .shrinking_batch import ShrinksBatch, batch_of


# Score of copying where there is nothing to copy: a probability of 0 in any number format.
NOTHING = -1e4


def writes(model_class: Any, output_class: Any) -> Callable[..., Any]:
    """Make the forward of a head that writes targets."""
    also = ("labels", "output_copying") if issubclass(output_class, CopyLMOutput) else ("labels",)

    @can_return_tuple
    @deprecate_kwarg("past_key_values", "5.40.0", new_name="cache")
    @takes(model_class, *also)
    def forward(
        self: Any, labels: Any = None, output_copying: Any = None, num_items_in_batch: Any = None, **inputs: Any
    ) -> Any:
        """Predict the target; the mean of the loss is over `num_items_in_batch` labels, where these are given."""
        if labels is not None:
            ids, embeds = inputs.get("decoder_input_ids"), inputs.get("decoder_inputs_embeds")
            check_labels(self.config, labels, embeds if ids is None else ids)
            if ids is None and embeds is None:
                inputs["decoder_input_ids"] = self.prepare_decoder_input_ids_from_labels(labels)
            inputs["use_cache"] = False
        outputs = self.model(**inputs)
        wants_copying = output_copying or inputs.get("output_attentions", self.config.output_attentions)
        return output_class(**self.predict(outputs, labels, num_items_in_batch, wants_copying))

    return forward


class WritesTargets:
    """Makes a target of labels; stands before `PreTrainedModel` among a model's bases."""

    config: Any

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Shift `labels` to the right, behind the start token; -100 becomes padding."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)


class Seq2SeqHead(ShrinksBatch, WritesTargets, nn.Module):
    """BART's head, and the gate between generating and copying; stands before `PreTrainedModel` among the bases."""

    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}
    _keys_to_ignore_on_load_missing: Any = ["final_logits_bias"]

    model_class: Any

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config)  # type: ignore[call-arg]  # of the model that stands behind
        self.model = self.model_class(config)
        self.final_logits_bias = nn.Buffer(torch.zeros(1, config.vocab_size))
        self.lm_head = nn.Linear(getattr(config, "embedding_size", config.d_model), config.vocab_size, bias=False)
        if getattr(config, "use_copy", False):
            self.copy_gate = CopyGate(config.d_model, 1)
        cast(Any, self).post_init()

    def _init_weights(self, module: nn.Module) -> None:
        cast(Any, super())._init_weights(module)
        if module is self:
            init.zeros_(module.final_logits_bias)

    def begin_as_identity(self, new: set[str]) -> list[str]:
        """Begin with a closed gate: copying has a probability of less than 1e-3, everywhere."""
        if "copy_gate.weight" not in new:
            return []
        nn.init.zeros_(self.copy_gate.weight)
        nn.init.constant_(self.copy_gate.bias, CLOSED)
        return ["copy_gate"]

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Resize the shared embedding, the head and its bias; see `PreTrainedModel.resize_token_embeddings`."""
        embeddings: nn.Embedding = cast(Any, super()).resize_token_embeddings(*args, **kwargs)
        bias = self.final_logits_bias
        new = bias.new_zeros(1, embeddings.num_embeddings)
        kept = min(new.shape[1], bias.shape[1])
        new[:, :kept] = bias[:, :kept]
        self.final_logits_bias = nn.Buffer(new)
        return embeddings

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, input_ids: Any = None, **kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Repeat for each beam or sample what is its own; what was read is there once for all of a document's."""
        encoder_outputs = kwargs.pop("encoder_outputs", None)
        shares = encoder_outputs is not None and getattr(self.model.decoder, "shares_sources", False)
        ids, kwargs = cast(Any, super())._expand_inputs_for_generation(
            expand_size, is_encoder_decoder, input_ids, encoder_outputs={} if shares else encoder_outputs, **kwargs
        )
        return ids, kwargs | ({"encoder_outputs": encoder_outputs} if shares else {})

    def prepare_inputs_for_generation(self, *args: Any, cache: Cache | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return what `generate` gives the model at a step."""
        let_grow(cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache)
        prepared: dict[str, Any] = cast(Any, super()).prepare_inputs_for_generation(*args, cache=cache, **kwargs)
        return prepared

    def _reorder_cache(self, cache: Cache, beam_idx: torch.Tensor) -> Cache:
        """Move what each beam has written; what a document's beams see of it is the same for all, and stays."""
        moved, batch = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache, batch_of(cache)
        moved.reorder_cache(cast(torch.LongTensor, beam_idx if batch is None else batch.reordered(beam_idx)))
        return cache

    def predict(
        self,
        outputs: ModelOutput,  # (batch, target, d_model)
        labels: torch.Tensor | None,  # (batch, target)
        num_items_in_batch: torch.Tensor | int | None,
        wants_copying: bool | None = False,
    ) -> dict[str, Any]:
        """Turn the decoder's states into logits, and a loss if there are labels."""
        hidden_states = outputs["last_hidden_state"]
        logits = multiply(self.lm_head, hidden_states)  # (batch, target, vocab_size)
        logits = logits + self.final_logits_bias.to(logits.device, logits.dtype)
        gate, copy_attentions = None, outputs.get("copy_attentions")
        if getattr(self.config, "use_copy", False):
            gate = self.copy_gate(hidden_states)  # (batch, target, 1)
            if copy_attentions is not None:
                gate = gate.masked_fill(~copy_attentions.any(dim=-1, keepdim=True).to(gate.device), NOTHING)
            source_ids, encoded = outputs.get("source_ids"), outputs["encoder_last_hidden_state"]
            if source_ids is not None and source_ids.shape[0] == encoded.shape[0]:
                source_ids = with_rows(source_ids, logits.shape[0])  # a source may have several targets
            logits = _copy(logits, gate, copy_attentions, source_ids)
        loss = None if labels is None else token_loss(logits, labels, num_items_in_batch, are_logs=gate is not None)
        without = ("last_hidden_state", "source_ids", "copy_attentions")
        result = {name: value for name, value in outputs.items() if name not in without}
        result |= {"loss": loss, "logits": logits.to(hidden_states.dtype)}
        if wants_copying and gate is not None and copy_attentions is not None:
            result["copy_probability"] = gate.squeeze(-1).to(copy_attentions.dtype).sigmoid()
            result["copy_attentions"] = copy_attentions
        return result  # (batch, target)


def _copy(
    logits: torch.Tensor, gate: torch.Tensor, copy_attentions: torch.Tensor | None, source_ids: torch.Tensor | None
) -> torch.Tensor:
    if source_ids is None or copy_attentions is None:
        raise ValueError(
            "The model copies tokens of the source and does not know them: got neither `input_ids` nor "
            "`source_ids`, nor `encoder_outputs` that hold `source_ids`. Give `input_ids` (to the "
            "Highlight-Transformer, `source_ids` beside embeddings), or load the model with `use_copy=False`."
        )
    batch, _, source = copy_attentions.shape
    if source_ids.shape != (batch, source):  # with encoder outputs they come past the checks of the encoder
        raise ValueError(
            f"`source_ids` (or `input_ids` in their place) must be {(batch, source)} like the encoded source, got "
            f"shape {tuple(source_ids.shape)}."
        )
    device = logits.device
    return mix_log_probabilities(logits, gate.to(device), copy_attentions.to(device), source_ids.to(device))

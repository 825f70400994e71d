"""A BART made of an encoder: of BERT, RoBERTa, XLM-R, or what has their shape, such as MiniLM."""

import dataclasses
import os
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)

from ..checkpoints import why_no_checkpoint
from ..models.bart_warm_start import grow_positions
from .arguments import ModelArguments, mistakes_of


# They have the same layers under the same names.
ENCODERS = ("bert", "roberta", "xlm-roberta")
# What BART calls the parts of a layer: its own name -> theirs.
SELF_ATTENTION = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
}
CROSS_ATTENTION = {name.replace("self_attn", "encoder_attn"): part for name, part in SELF_ATTENTION.items()}
FEED_FORWARD = {"fc1": "intermediate.dense", "fc2": "output.dense", "final_layer_norm": "output.LayerNorm"}


@torch.no_grad()
def bart_from_encoder(
    name_or_path: str | os.PathLike[str],
    *,
    decoder_layers: int | None = None,
    max_position_embeddings: int | None = None,
) -> tuple[BartForConditionalGeneration, PreTrainedTokenizerBase]:
    """Make a BART, and its tokenizer, of a pretrained encoder, for `from_bart` and everything else that takes a BART.

    The encoder is the checkpoint's: on inputs padded on the right it gives the same states, but for the eps of its
    norms, which is 1e-5 in BART and 1e-12 in BERT (states of all-MiniLM-L6-v2 then differ by less than 0.01). The
    decoder has to be trained: until then it writes nothing of use. Its layers begin as evenly spaced layers of the
    encoder, and their attention to the source as those layers' self-attention, with which it reads its source after
    100 steps (`model_cards/hat_bart.md`, "From any BERT"). Embeddings are shared, with the head too; what a head for
    masked words adds, its bias included, is left out: it belongs to states that have passed through that head.

    The tokenizer's [CLS] or <s> is BOS, and its [SEP] or </s> EOS, with which the decoder starts, as BART's does.
    Attention weights have no dropout, as in BART: FlexAttention and the fast local attention on CPUs have none.

    Args:
        name_or_path: A checkpoint of BERT, RoBERTa or XLM-R, with or without a head, on the Hub or in a folder.
        decoder_layers: Layers of the decoder, at most as many as the encoder's, which is the default.
        max_position_embeddings: Positions to grow to, in tokens, by copies of those that there are; by default the
            checkpoint's. Source and target have the same number.

    Returns:
        The model, in float32 and in evaluation mode, and its tokenizer.

    Raises:
        ValueError: If there is no such checkpoint, it is of another kind, or of a variant that BART cannot be; its
            tokenizer lacks a token; or a number is out of range.

    Source: Rothe et al., 2020, section 3 (there, attention to the source begins with random weights); the
        rest is ours, measured by `examples/experiments/bart_from_encoder.py`.
    """
    name = os.fspath(name_or_path)
    source = _checked_config(name)
    most = source.num_hidden_layers
    number = most if decoder_layers is None else decoder_layers
    if type(number) is not int or not 1 <= number <= most:
        raise ValueError(f"`decoder_layers` must be an integer from 1 to {most}, the encoder's, got {number!r}")
    options: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True}
    encoder, report = AutoModel.from_pretrained(name, add_pooling_layer=False, **options)
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"`name_or_path`: {name!r} lacks {len(missing)} weights of the encoder, such as {missing[0]}")
    embeddings = encoder.embeddings
    learned = embeddings.position_embeddings.weight
    if source.model_type != "bert":  # the others number theirs from the padding token's id on
        learned = learned[source.pad_token_id + 1 :]
    tokenizer = _tokenizer_for_bart(name, len(learned), source.vocab_size)

    bart = BartForConditionalGeneration(_config(source, tokenizer, number, len(learned)))
    bart.model.shared.load_state_dict(embeddings.word_embeddings.state_dict())
    for part in (bart.model.encoder, bart.model.decoder):
        positions = part.embed_positions
        positions.weight[: positions.offset] = 0.0  # which no token has
        positions.weight[positions.offset :] = learned + embeddings.token_type_embeddings.weight[0]
        part.layernorm_embedding.load_state_dict(embeddings.LayerNorm.state_dict())
    layers = encoder.encoder.layer
    for own, layer in zip(bart.model.encoder.layers, layers, strict=True):
        _take_over(layer, own, SELF_ATTENTION | FEED_FORWARD)
    for i, own in enumerate(bart.model.decoder.layers):
        evenly = round(i * (len(layers) - 1) / max(1, number - 1))  # from the first to the last
        _take_over(layers[evenly], own, SELF_ATTENTION | CROSS_ATTENTION | FEED_FORWARD)
    if max_position_embeddings is not None:
        grow_positions(bart, max_position_embeddings)
        tokenizer.model_max_length = max_position_embeddings
    return bart.eval(), tokenizer


def as_warm_start(arguments: ModelArguments, folder: Path) -> ModelArguments:
    """Make the BART of a recipe's `from_encoder`."""
    with mistakes_of("model: from_encoder"):
        layers = arguments.overrides().get("decoder_layers")
        bart, tokenizer = bart_from_encoder(str(arguments.from_encoder), decoder_layers=layers)
    bart.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    named: dict[str, Any] = {"model_name_or_path" if arguments.model_type == "bart" else "from_bart": str(folder)}
    return dataclasses.replace(arguments, from_encoder=None, **named)


def _checked_config(name: str) -> PretrainedConfig:
    """The encoder's configuration; what BART would silently compute otherwise is refused."""
    if reason := why_no_checkpoint(name):
        raise ValueError(f"`name_or_path`: {reason}")
    config = cast(PretrainedConfig, AutoConfig.from_pretrained(name))
    if config.model_type not in ENCODERS:
        raise ValueError(f"`name_or_path` must be of {', '.join(ENCODERS)}, got one of {config.model_type!r}: {name}")
    wanted = {"position_embedding_type": "absolute", "embedding_size": config.hidden_size}
    for setting, value in {**wanted, "is_decoder": False, "add_cross_attention": False}.items():
        if (found := getattr(config, setting, value)) not in (value, None):
            raise ValueError(f"`name_or_path`: {setting} must be {value!r} to make a BART, got {found!r} in {name!r}.")
    if config.type_vocab_size < 1:
        raise ValueError(f"`name_or_path`: type_vocab_size must be at least 1, got {config.type_vocab_size}.")
    return config


def _tokenizer_for_bart(name: str, positions: int, vocab_size: int) -> PreTrainedTokenizerBase:
    """The encoder's tokenizer with BART's names for what stands at the ends of a text, and without token types."""
    tokenizer = AutoTokenizer.from_pretrained(name)
    of_tokenizer = f"`name_or_path`: the tokenizer of {name!r}"
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what Transformers makes where its files are missing
        raise ValueError(f"{of_tokenizer} knows nothing but {tokenizer.all_special_tokens}: its files are missing")
    bos, eos = tokenizer.cls_token or tokenizer.bos_token, tokenizer.sep_token or tokenizer.eos_token
    if None in (bos, eos, tokenizer.pad_token) or bos == eos:
        raise ValueError(f"{of_tokenizer} must have cls, sep and pad tokens, got {bos}, {eos}, {tokenizer.pad_token}")
    if len(tokenizer) > vocab_size:
        raise ValueError(f"{of_tokenizer} has {len(tokenizer)} tokens, but the model only {vocab_size}")
    # Loaded with these, it saves them too.
    ends: dict[str, Any] = {"bos_token": bos, "eos_token": eos, "model_max_length": positions}
    tokenizer = AutoTokenizer.from_pretrained(name, **ends, model_input_names=["input_ids", "attention_mask"])
    ids = tokenizer("a")["input_ids"]
    special = [(bos, tokenizer.bos_token_id), (eos, tokenizer.eos_token_id)]
    if [ids[0], ids[-1]] != [number for _, number in special]:  # as of tokenizers that were trained and not told to
        template = TemplateProcessing(single=[bos, "$A", eos], special_tokens=special)
        tokenizer.backend_tokenizer.post_processor = template
    return tokenizer


def _config(source: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, layers: int, positions: int) -> BartConfig:
    sizes = {"attention_heads": source.num_attention_heads, "ffn_dim": source.intermediate_size}
    ids: dict[str, Any] = {name: getattr(tokenizer, name) for name in ("bos_token_id", "pad_token_id", "eos_token_id")}
    return BartConfig(
        vocab_size=source.vocab_size,
        max_position_embeddings=positions,
        d_model=source.hidden_size,
        encoder_layers=source.num_hidden_layers,
        decoder_layers=layers,
        **{f"{side}_{size}": value for side in ("encoder", "decoder") for size, value in sizes.items()},
        activation_function=source.hidden_act,
        dropout=source.hidden_dropout_prob,
        attention_dropout=0.0,
        init_std=source.initializer_range,
        scale_embedding=False,
        **ids,
        **dict.fromkeys(("decoder_start_token_id", "forced_eos_token_id"), ids["eos_token_id"]),
    )


def _take_over(layer: nn.Module, own: nn.Module, names: dict[str, str]) -> None:
    for name, part in names.items():
        own.get_submodule(name).load_state_dict(layer.get_submodule(part).state_dict())

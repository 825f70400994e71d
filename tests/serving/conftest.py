"""A tiny checkpoint for servers, which every document moves to say something else."""

import random
from collections.abc import Iterator

import pytest
import torch
from transformers import pipeline

import hier_models
from tests.conftest import DOCUMENTS
from tests.serving.servers import Running, serving


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> str:
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = hier_models.HatBartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=128,
        **sizes,
    )
    tiny = hier_models.HatBartForConditionalGeneration(config)
    for parameter in tiny.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    tiny.generation_config.max_length = 12
    tiny.generation_config.no_repeat_ngram_size = 1
    folder = tmp_path_factory.mktemp("served")
    tiny.save_pretrained(folder)
    hier_models.HatBartProcessor(tokenizer).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def answers(model: str) -> dict[str, str]:
    """Texts, and the summary of each alone."""
    words = sorted({word for document in DOCUMENTS for word in document.split()})
    choose = random.Random(0)
    texts = [" ".join(choose.sample(words, choose.randint(3, 30))) + "." for _ in range(40)]
    summarize = pipeline("summarization", model=model, device="cpu")
    found = {text: summarize(text)[0]["summary_text"].strip() for text in texts}
    assert len(set(found.values())) > 30  # so that another's summary would be noticed
    return found


@pytest.fixture(scope="module")
def server(model: str) -> Iterator[Running]:
    with serving(model) as running:
        yield running

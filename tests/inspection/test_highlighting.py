import json
import re

import numpy as np
import pytest
import torch

from hier_models import (
    HighlightTransformerConfig,
    HighlightTransformerForConditionalGeneration,
    HighlightTransformerProcessor,
)
from hier_models.inspection import HighlightingReport, highlighting_report
from hier_models.pipelines import SummarizationPipeline
from tests.conftest import DOCUMENTS


ARTICLES = DOCUMENTS[:3]


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(0)
    model = HighlightTransformerForConditionalGeneration(
        HighlightTransformerConfig(
            vocab_size=len(tokenizer),
            max_position_embeddings=256,
            d_model=32,
            encoder_layers=3,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            highlight_heads=2,
            highlight_layers=[0, 2],
            brightness=5.0,
        )
    )
    model.generation_config.max_length = 12
    return model.train()


def test_the_numbers_are_those_of_the_attention(model, highlight_processor):
    phrases = [("second pillar", 0.5), ("the second", 0.25), ("six", 1.0), ("no such thing", 1.0)]
    before = model.config._attn_implementation
    report = highlighting_report(model, highlight_processor, documents=ARTICLES, phrases=phrases)
    assert model.training
    assert model.config._attn_implementation == before
    assert report.heads == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert report.articles == highlight_processor.article_spans(ARTICLES)
    assert report.settings == {"highlighting": "weighted", "brightness": 5.0}
    assert report.counts["num_missing_phrases"] == 1

    model.eval()
    model.set_attn_implementation("eager")
    inputs = highlight_processor(documents=[ARTICLES], phrases=[phrases], return_tensors="pt")
    length = inputs["input_ids"].shape[1]
    assert report.received.shape == (4, length - 2, 2)
    assert report.inside.shape == (4, 4, 2)
    for lit in (0, 1):
        given = dict(inputs) if lit else {name: inputs[name] for name in ("input_ids", "attention_mask")}
        attentions = model.get_encoder()(**given, output_attentions=True).attentions
        for number, (layer, head) in enumerate(report.heads):
            weights = attentions[layer][0, head].detach().numpy()
            np.testing.assert_allclose(report.received[number, :, lit], weights.mean(axis=0)[1:-1], atol=1e-6)
            for place, phrase in enumerate(report.phrases[:3]):
                rows = [weights[i, a:b].sum() for a, b in phrase["positions"] for i in range(a, b)]
                assert report.inside[number, place, lit] == pytest.approx(np.mean(rows), abs=1e-6)
    assert len(report.phrases[2]["positions"]) == 2  # in two articles
    assert np.isnan(report.inside[:, 3]).all()
    assert (report.inside[:, :3, 1] > report.inside[:, :3, 0]).all()

    # Where phrases overlap, their values add up.
    values = dict(zip((report.text[a:b].strip() for a, b in report.tokens), report.values(), strict=True))
    start = report.text.index("second")
    token = next(n for n, (a, b) in enumerate(report.tokens) if a <= start < b)
    assert report.values()[token] == 0.75
    assert set(values.values()) <= {0.0, 0.25, 0.5, 0.75, 1.0}


def test_the_summary_is_the_pipelines(model, highlight_processor):
    model.eval()
    summarize = SummarizationPipeline(model=model, processor=highlight_processor, device="cpu")
    asked = {"return_copied": True, "return_phrases": True, "num_beams": 2}
    (expected,) = summarize(documents=ARTICLES, **asked)
    report = highlighting_report(model, highlight_processor, documents=ARTICLES, num_beams=2)
    assert report.summary == expected["summary_text"]
    assert report.phrases == expected["phrases"]
    assert [word["text"] for word in report.copied] == [word["text"] for word in expected["copied"]]
    assert [word["source"] for word in report.copied] == [word["source"] for word in expected["copied"]]


def test_a_given_summary(model, highlight_processor):
    with torch.no_grad():
        model.copy_gate.bias.fill_(30.0)
    report = highlighting_report(model, highlight_processor, text=DOCUMENTS[0], summary="The crack closed the bridge.")
    assert report.summary == "The crack closed the bridge."
    copied = {word["text"]: word["source"] for word in report.copied}
    assert {"crack", "closed", "bridge"} <= copied.keys()
    with pytest.raises(ValueError, match="num_beams: settings for generating a summary"):
        highlighting_report(model, highlight_processor, text=DOCUMENTS[0], summary="The crack.", num_beams=2)


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_page(model, highlight_processor, tmp_path):
    articles = [*ARTICLES, "A </script><b>tag</b> & {{title}} 😀 in the second pillar."]
    report = highlighting_report(
        model, highlight_processor, documents=articles, title="<Storm> & {{data}}", max_source_length=80
    )
    page = report.save_html(tmp_path / "page.html").read_text(encoding="utf-8")
    data = data_of(page)
    assert data["text"] == report.text
    assert data["articles"] == [list(span) for span in report.articles]
    assert [phrase["text"] for phrase in data["phrases"]] == [phrase["text"] for phrase in report.phrases]
    assert len(data["tokens"]) == len(data["values"]) == 78
    assert len(data["received"]) == len(data["inside"]) == 4
    assert "&lt;Storm&gt; &amp; {{data}}" in page
    assert "</script><b>" not in page
    assert "http:" not in page
    assert "https:" not in page
    assert "tokens cut" in page
    whole = report.as_dict()
    json.dumps(whole)
    assert whole["heads"] == report.heads
    table = report.table().splitlines()
    assert len(table) == 1 + len(report.phrases)
    assert table[0].split()[:3] == ["phrase", "value", "times"]
    assert "layer 3 head 2" in table[0]


def test_nothing_highlighted_or_copied(tokenizer, tmp_path):
    torch.manual_seed(0)
    config = HighlightTransformerConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        highlight_heads=0,
        use_copy=False,
    )
    model = HighlightTransformerForConditionalGeneration(config)
    processor = HighlightTransformerProcessor(tokenizer)
    for phrases in (None, [], [("second pillar", 1.0)]):
        report = highlighting_report(
            model, processor, text=DOCUMENTS[0], phrases=phrases, max_source_length=64, max_length=6
        )
        assert (report.heads, report.copied) == ([], [])
        assert report.inside.shape == (0, len(phrases or []), 2)
        assert report.save_html(tmp_path / "page.html").is_file()
        assert len(report.table().splitlines()) == 1 + len(phrases or [])


def test_other_models_and_documents_are_refused(model, highlight_processor, tiny_model, processor):
    with pytest.raises(ValueError, match="highlights nothing; give a Highlight-Transformer"):
        highlighting_report(tiny_model, processor, text=DOCUMENTS[0])
    with pytest.raises(ValueError, match="exactly one of text, sentences, turns and documents; got none"):
        highlighting_report(model, highlight_processor)
    with pytest.raises(ValueError, match="got text, documents"):
        highlighting_report(model, highlight_processor, text="a", documents=["b"])
    with pytest.raises(ValueError, match="a report shows one summary"):
        highlighting_report(model, highlight_processor, text="a", num_return_sequences=2)


def test_a_report_without_tokens(tmp_path):
    report = HighlightingReport(
        text="",
        articles=[(0, 0)],
        tokens=[],
        phrases=[],
        heads=[(0, 0)],
        inside=np.zeros((1, 0, 2), dtype=np.float32),
        received=np.zeros((1, 0, 2), dtype=np.float32),
        summary="",
        copied=[],
    )
    assert data_of(report.save_html(tmp_path / "page.html").read_text())["received"] == [[]]

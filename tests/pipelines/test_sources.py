"""The sources of a summary: which sentences of its document each of its sentences rests on."""

import re
from itertools import pairwise

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, pipeline

import hier_models
from hier_models.inspection import sources_page
from hier_models.pipelines.sources_hier import (
    document_sentences,
    find_sources,
    format_sources,
    sentence_spans,
    shares_of_sentences,
)
from tests.conftest import DOCUMENTS, TURNS


BRIDGE, BEES = DOCUMENTS[:2]
SHAPES = [
    {"text": BRIDGE},
    {"text": "One"},
    {"text": "no punctuation at all in this text and no line either"},
    {"text": "Again. Again. Other.\n\nAgain."},
    {"sentences": ["The bridge. It was closed", "", "  Traffic takes the old road. "]},
    {"turns": TURNS},
    {"documents": [BRIDGE, BEES]},
]
GENERATE = {"max_new_tokens": 12, "num_beams": 2}
KINDS = ["bart", "hat", "hat that copies", "highlight", "top-down", "coarse"]


@pytest.fixture(params=KINDS)
def summarize(request):
    """A pipeline of each family."""
    get = request.getfixturevalue
    if request.param == "bart":
        sizes = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
        sizes |= {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "d_model": 8, "max_position_embeddings": 128}
        tokenizer = get("tokenizer")
        model = BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **sizes)).eval()
        return pipeline("summarization", model=model, tokenizer=tokenizer)
    if request.param == "hat that copies":
        config = get("tiny_config")
        config.use_copy = config.silent_markers = True
        torch.manual_seed(0)
        model = hier_models.HatBartForConditionalGeneration(config).eval()
        return pipeline("summarization", model=model, processor=get("processor"))
    if request.param == "coarse":
        return pipeline("summarization", model=get("coarse_model")(), processor=get("coarse_processor"))
    names = {
        "hat": ("tiny_model", "processor"),
        "highlight": ("tiny_highlight", "highlight_processor"),
        "top-down": ("tiny_top_down", "top_down_processor"),
    }
    model, processor = map(get, names[request.param])
    return pipeline("summarization", model=model, processor=processor)


def check(sources, summary, text):
    """What holds of the sources of any summary."""
    for sentence in sources:
        assert summary[sentence["start"] : sentence["end"]] == sentence["text"]
        assert sentence["text"].strip()
        for source in sentence["sources"]:
            assert text[source["start"] : source["end"]] == source["text"]
        weights = [source["weight"] for source in sentence["sources"]]
        assert len(weights) <= 3
        assert all(a >= b > 0 for a, b in pairwise(weights))
        assert not weights or sum(weights) == pytest.approx(1)
    assert "".join("".join(s["text"] for s in sources).split()) == "".join(summary.split())


def test_every_family_and_every_shape(summarize):
    for document in SHAPES:
        [record] = summarize(document, return_sources=True, **GENERATE)
        assert list(record) == ["summary_text", "sources"]
        assert summarize(document, **GENERATE) == [{"summary_text": record["summary_text"]}]
        check(record["sources"], record["summary_text"], summarize.running_text(document))


def test_batches_and_several_summaries(summarize):
    options = {"return_sources": True, "num_return_sequences": 2, **GENERATE}
    single = [summarize(document, **options) for document in SHAPES]
    assert [len(records) for records in single] == [2] * len(SHAPES)
    for records, batched in zip(single, summarize(SHAPES, batch_size=3, **options), strict=True):
        assert [record["summary_text"] for record in records] == [record["summary_text"] for record in batched]
        for one, other in zip(records, batched, strict=True):
            for sentence, same in zip(one["sources"], other["sources"], strict=True):
                weights, others = ([s["weight"] for s in found["sources"]] for found in (sentence, same))
                assert weights == pytest.approx(others, rel=1e-3)


def test_given_summaries(summarize):
    for document in SHAPES:
        text = summarize.running_text(document)
        summary = "Nothing of it: xyzzy! Traffic takes the old road."
        check(summarize.find_sources(document, summary), summary, text)
        assert summarize.find_sources(document, "") == []
    # A sentence of the document rests on itself.
    planted = "On cloudy days they use landmarks. Its length gives the distance."
    found = summarize.find_sources(BEES, planted)
    assert [sentence["sources"][0]["text"] for sentence in found] == [s["text"] for s in found] != []


def test_the_end_that_is_not_read_is_no_source(summarize):
    if summarize.processor is not None and not hasattr(summarize.processor, "running_text"):
        pytest.skip("its processor does not tell where tokens stand")
    document = BRIDGE * 10 + " Zebras graze there."
    [[sentence]] = [summarize.find_sources(document, "Zebras graze there.")]  # where all of it is chosen from
    assert sentence["sources"][0]["text"] == "Zebras graze there."
    [record] = summarize(document, return_sources=True, truncation=True, **GENERATE)
    found = [source["text"] for sentence in record["sources"] for source in sentence["sources"]]
    assert not any("Zebras" in text for text in found)
    [record] = summarize(BEES, return_sources=True, truncation=True, max_source_length=12, **GENERATE)
    sources = [source for sentence in record["sources"] for source in sentence["sources"]]
    assert {source["text"] for source in sources} <= {BEES[a:b] for a, b in sentence_spans(BEES)[:2]}


def test_sources_of_given_summaries_are_as_the_pipeline_was_set_up(tiny_model, processor):
    given = {"truncation": True, "max_source_length": 12}
    summarize = pipeline("summarization", model=tiny_model, processor=processor, **given)
    found = [sentence["sources"] for sentence in summarize.find_sources(BEES, "Bees dance. It is far.")]
    texts = {source["text"] for sources in found for source in sources}
    assert texts <= {BEES[a:b] for a, b in sentence_spans(BEES)[:2]}
    tiny_model.train()
    again = [sentence["sources"] for sentence in summarize.find_sources(BEES, "Bees dance. It is far.")]
    assert again == found  # without dropout
    assert tiny_model.training


def test_copied_and_sources_in_one_call(summarize):
    if not getattr(summarize.model.config, "use_copy", False):
        pytest.skip("does not copy")
    wanted = [summarize(BEES, **{name: True}, **GENERATE)[0] for name in ("return_copied", "return_sources")]
    assert summarize(BEES, return_copied=True, return_sources=True, **GENERATE)[0] == {**wanted[0], **wanted[1]}


def test_what_the_model_says_decides_between_equal_sentences(tiny_config, processor, monkeypatch):
    """The second of two equal sentences is the one that the model copies from, or looks at."""
    text = "Bees fly home. A ferry runs. Bees fly home."

    def ask(model):
        summarize = pipeline("summarization", model=model.eval(), processor=processor)
        offsets = processor(text=text, return_offsets_mapping=True)["offset_mapping"]
        second = torch.tensor([start > 25 for start, _ in offsets])
        forward = type(model).forward

        def looks_there(self, *args, **kwargs):
            outputs = forward(self, *args, **kwargs)
            if outputs.copy_attentions is not None:
                outputs.copy_attentions = (second / second.sum()).expand_as(outputs.copy_attentions)
                outputs.copy_probability = torch.full_like(outputs.copy_probability, 0.9)
                outputs.logits = torch.zeros_like(outputs.logits)
            if outputs.hierarchical_attentions is not None:
                there = torch.tensor([0.1, 0.0, 0.9])
                outputs.hierarchical_attentions = tuple(there.expand_as(a) for a in outputs.hierarchical_attentions)
            return outputs

        monkeypatch.setattr(type(model), "forward", looks_there)
        [sentence] = summarize.find_sources(text, "Bees fly home.")
        monkeypatch.undo()
        return [source["start"] for source in sentence["sources"]], sentence["sources"][0]["weight"]

    places, weight = ask(hier_models.HatBartForConditionalGeneration(tiny_config))
    assert places[:2] == [29, 0]
    assert weight > 0.5
    tiny_config.use_copy = tiny_config.silent_markers = True
    places, weight = ask(hier_models.HatBartForConditionalGeneration(tiny_config))
    assert places[:2] == [29, 0]
    assert weight > 0.5


def test_attention_implementation_is_set_back(tiny_model, processor):
    before = tiny_model.config._attn_implementation
    pipeline("summarization", model=tiny_model, processor=processor).find_sources(BEES, "Bees dance.")
    assert tiny_model.config._attn_implementation == before


def test_tokens_belong_to_sentences_whatever_the_spaces():
    words = ["[short]", "a", "co", "-", "founder", ".", "bees", "dance", "."]

    class Words:
        def decode(self, ids, **decoding):
            return " ".join(words[i] for i in ids if i)  # the first writes nothing

    ids, summary = list(range(len(words))), "A co-founder. Bees dance."
    decoded = Words().decode(ids)
    shares = torch.tensor([[9.0], *[[0.2]] * 5, *[[0.5]] * 3])
    found = shares_of_sentences(Words(), ids, summary, decoded, [(0, 13), (14, 25)], shares, {})
    assert [share for [share] in found] == pytest.approx([0.2, 0.5])


def test_running_text(processor):
    for document in SHAPES:
        [(name, value)] = document.items()
        text = processor.running_text(**document)
        offsets = processor(**document, return_offsets_mapping=True)["offset_mapping"]
        assert max(end for _, end in offsets) == len(text.rstrip())
        assert processor.running_text(**{name: [value, value]}) == [text, text]
    assert processor.running_text(turns=TURNS[:2]).startswith("Ann: Did you book the room? Bob: Not yet.")
    with pytest.raises(ValueError, match=r"exactly one of `text`, .*, got none"):
        processor.running_text()


def plain(document, summary, name="text", text=None):
    text = document if text is None else text
    return find_sources(summary, sentence_spans(summary), document_sentences(name, document, text))


@pytest.mark.parametrize(
    ("document", "summary", "best"),
    [
        (BRIDGE, "Repairs take six weeks, Dr. Meyer said.", "Dr. Meyer, who led"),
        (BRIDGE, "THE TOWN WILL PAY", "The town will pay"),
        ("Zoë kam an. Der Zug fuhr ab. Es regnete.", "zoe kam", "Zoë kam an."),
        ("桥在星期一关闭了。蜜蜂靠太阳找到家。图书馆九点开门。", "蜜蜂靠太阳回家", "蜜蜂靠太阳找到家。"),
        ("One. Two.", "Nine", None),
        ("", "Nine", None),
        ("…", "!", None),
    ],
)
def test_overlap(document, summary, best):
    [sentence] = plain(document, summary)
    check([sentence], summary, document)
    found = [source["text"] for source in sentence["sources"]]
    assert found[0].startswith(best) if best else not found


def test_repeated_sentences_share_the_weight():
    [sentence] = plain("Bees dance. Ants walk. Bees dance.", "Bees dance.")
    assert [(source["start"], source["weight"]) for source in sentence["sources"]] == [(0, 0.5), (23, 0.5)]


def test_turns_are_not_joined():
    text = "\n".join(f"{turn['role']}: {turn['content']}" for turn in TURNS)
    spans = document_sentences("turns", TURNS, text).spans
    assert [text[a:b] for a, b in spans][:3] == ["Ann: Did you book the room?", "Bob: Not yet.", "I will do it today."]


def test_lines_of_text():
    sources = plain(BEES, "Bees find their way home by the sun. Qwerty?")
    assert format_sources(sources) == [
        "  [1] Bees find their way home by the sun.",
        "      100%  Bees find their way home by the sun.",
        "  [2] Qwerty?",
        "         –  nothing in common with the document",
    ]


# The page


def test_page():
    document = 'A <b>bold</b> bee & "others" dance. {{summary}} stays.\nAnts walk.'
    summary = "Bold <b>bees</b> dance & walk. {{document}}? Ants walk."
    record = {"summary_text": summary, "sources": plain(document, summary)}
    page = sources_page(record, document, title="<i>Title</i>")
    for text in ("<b>", "<i>", "{{title}}"):
        assert text not in page
    assert "&lt;b&gt;bold&lt;/b&gt; bee &amp; &quot;others&quot;" in page
    assert "{{summary}}" in page  # of the document
    assert re.search(r'(src|href)="(?!#)', page) is None  # nothing from elsewhere
    for sentence in re.findall(r'<a href="#s(\d+)" data-sources="([^"]+)">', page):
        for source in sentence[1].split():
            assert f'<mark id="s{source.split(":")[0]}">' in page


def test_page_of_a_record_without_text():
    sources = plain(BEES, "Bees dance.  The angle.")
    assert "Bees dance.</a> <a " in sources_page({"sources": sources}, BEES)
    assert "The model wrote nothing." in sources_page({"summary_text": "", "sources": []}, BEES)


def test_page_refuses():
    with pytest.raises(ValueError, match="return_sources=True"):
        sources_page({"summary_text": "Bees."}, BEES)
    with pytest.raises(ValueError, match="it is not the running text"):
        sources_page({"sources": plain(BEES, "Bees dance.")}, BRIDGE)

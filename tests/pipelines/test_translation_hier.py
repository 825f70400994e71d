"""The translation pipeline: documents of any length, on our models and on others."""

import json
import logging
import re
import time
from typing import Any

import datasets
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)
from transformers import pipelines as transformers_pipelines

import hier_models
from hier_models.pipelines import TranslationPipeline, register_pipelines
from hier_models.pipelines.chunking_hier import join_chunks, pack, plain_sentences, smaller_parts
from tests.conftest import DOCUMENTS, TURNS
from tests.hub.test_hub import WITHOUT_HIER_MODELS, run_python


LENGTH = {"min_length": 4, "max_length": 9}
COUNTS = {"num_chunks", "num_split_sentences", "num_unfinished_chunks", "num_truncated_tokens"}
BART = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
}
LONG = " ".join(DOCUMENTS)


def randomized(model: Any) -> Any:
    """Weights large enough for different texts to get different translations."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.fixture
def bart(tokenizer: PreTrainedTokenizerFast) -> BartForConditionalGeneration:
    return randomized(BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **BART)))


@pytest.fixture
def translate(bart: Any, tokenizer: PreTrainedTokenizerFast) -> TranslationPipeline:
    return pipeline("translation", model=bart, tokenizer=tokenizer, device="cpu")


@pytest.fixture
def translate_hat(tiny_model: Any, processor: Any) -> TranslationPipeline:
    return pipeline("translation", model=tiny_model, processor=processor, device="cpu")


def languages_of(tokenizer: PreTrainedTokenizerFast, *tokens: str) -> PreTrainedTokenizerFast:
    """A tokenizer with languages as those of mBART and M2M100 have them: a token before the text, and attributes."""

    class WithLanguages(PreTrainedTokenizerFast):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            encoded = super().__call__(*args, **kwargs)
            if kwargs.get("add_special_tokens", True) and isinstance(args[0], str):
                code = self.convert_tokens_to_ids(next(t for t in tokens if self.src_lang in (t, t.strip("_"))))
                encoded["input_ids"] = [code, *encoded["input_ids"], self.eos_token_id]
                encoded["attention_mask"] = [1] * len(encoded["input_ids"])
            return encoded

    with_languages = WithLanguages(
        tokenizer_object=tokenizer.backend_tokenizer,
        **{f"{name}_token": getattr(tokenizer, f"{name}_token") for name in ("bos", "eos", "pad", "unk")},
        additional_special_tokens=list(tokens),
        model_max_length=64,
    )
    with_languages.src_lang, with_languages.tgt_lang = "en", None
    return with_languages


# Registration


def test_the_task_and_its_names_are_available():
    register_pipelines()  # a second time does no harm
    assert "translation" in transformers_pipelines.get_supported_tasks()
    assert "translation" not in getattr(transformers_pipelines, "REMOVED_TASKS", {})
    for name in ("translation", "translation_en_to_de", "translation_en_XX_to_de_DE"):
        assert transformers_pipelines.check_task(name)[1]["impl"] is TranslationPipeline
    for name in ("translation_en", "translations", "translation_"):
        with pytest.raises(KeyError, match=r"Unknown task|removed"):
            transformers_pipelines.check_task(name)
    assert transformers_pipelines.check_task("ner")[0] == "token-classification"


def test_without_a_model_it_says_what_to_pass():
    with pytest.raises(ValueError, match=r'`model` is missing.*pipeline\("translation", model='):
        pipeline("translation_en_to_de")


# Models that are not ours


def test_a_short_text_gives_what_generate_gives(translate, bart, tokenizer):
    text = DOCUMENTS[2]
    expected = bart.generate(**tokenizer(text, return_tensors="pt"), **LENGTH)
    assert translate(text, **LENGTH) == [{"translation_text": tokenizer.decode(expected[0], skip_special_tokens=True)}]
    ids = translate(text, return_tensors=True, **LENGTH)
    assert list(ids[0]) == ["translation_token_ids"]
    assert torch.equal(ids[0]["translation_token_ids"], expected[0])


def test_marian(tokenizer):
    config = MarianConfig(
        vocab_size=len(tokenizer),
        **BART,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=2,
    )
    model = randomized(MarianMTModel(config))
    text = "The library opens."
    expected = model.generate(**tokenizer(text, return_tensors="pt"), num_beams=2, **LENGTH)[0]
    for name in ("translation", "translation_en_to_de"):
        translate = pipeline(name, model=model, tokenizer=tokenizer, device="cpu")
        got = translate(text, num_beams=2, return_tensors=True, **LENGTH)[0]["translation_token_ids"]
        assert torch.equal(got, expected)


@pytest.fixture
def t5(tokenizer):
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=16,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        task_specific_params={
            "summarization": {"prefix": "summarize: ", "max_length": 5},
            "translation_en_to_de": {"prefix": "translate English to German: ", "num_beams": 2, "max_length": 40},
            "translation_en_to_fr": {"prefix": "translate English to French: ", "num_beams": 3, "max_length": 30},
        },
    )
    return randomized(T5ForConditionalGeneration(config))


@pytest.mark.parametrize(
    ("task", "languages"),
    [("translation_en_to_fr", {}), ("translation", {"src_lang": "en", "tgt_lang": "fr"})],
)
def test_t5_gets_the_prefix_and_settings_of_its_pair(t5, tokenizer, task, languages):
    translate = pipeline(task, model=t5, tokenizer=tokenizer, device="cpu")
    inputs = tokenizer("translate English to French: A ferry.", return_tensors="pt")
    expected = t5.generate(**inputs, num_beams=3, max_length=30)[0]
    assert torch.equal(translate("A ferry.", return_tensors=True, **languages)[0]["translation_token_ids"], expected)
    # The prefix stands before each chunk.
    record = translate(LONG, return_chunks=True, max_source_length=60, max_new_tokens=3, **languages)[0]
    assert record["num_chunks"] > 2
    chunk = next(translate.preprocess(LONG, max_source_length=60, **languages))["examples"]
    assert tokenizer.decode(chunk.inputs["input_ids"]).startswith("translate English to French: The bridge")


def test_t5_without_a_pair_is_told(t5, tokenizer, caplog):
    translate = pipeline("translation", model=t5, tokenizer=tokenizer, device="cpu")
    with caplog.at_level(logging.WARNING):
        translate("A ferry.", max_new_tokens=3)
        translate("A ferry.", max_new_tokens=3)
    assert sum("trained for translation_en_to_de, translation_en_to_fr" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(("tokens", "target"), [(("en", "de"), "de"), (("__en__", "__de__"), "__de__")])
def test_models_of_many_languages(tokenizer, tokens, target):
    with_languages = languages_of(tokenizer, *tokens)
    config = M2M100Config(vocab_size=len(with_languages), **BART)
    model = randomized(M2M100ForConditionalGeneration(config))
    translate = pipeline("translation", model=model, tokenizer=with_languages, device="cpu")
    code = with_languages.convert_tokens_to_ids(target)
    with_languages.src_lang = "en"
    inputs = with_languages(DOCUMENTS[2])
    tensors = {name: torch.tensor([inputs[name]]) for name in ("input_ids", "attention_mask")}
    expected = model.generate(**tensors, forced_bos_token_id=code, **LENGTH)[0]
    assert expected[1] == code
    with_languages.src_lang = "de"  # from an earlier call
    got = translate(DOCUMENTS[2], src_lang="en", tgt_lang="de", return_tensors=True, **LENGTH)[0]
    assert torch.equal(got["translation_token_ids"], expected)
    named = pipeline("translation_en_to_de", model=model, tokenizer=with_languages, device="cpu")
    assert torch.equal(named(DOCUMENTS[2], return_tensors=True, **LENGTH)[0]["translation_token_ids"], expected)
    many = translate([DOCUMENTS[2], LONG], src_lang="en", tgt_lang="de", batch_size=3, return_tensors=True, **LENGTH)
    assert torch.equal(many[0]["translation_token_ids"], expected)
    assert (many[1]["translation_token_ids"] == code).sum() > 1  # every chunk begins with the language

    for languages, missing in (({}, "`src_lang` and `tgt_lang`"), ({"src_lang": "en"}, "`tgt_lang`")):
        with pytest.raises(ValueError, match=f"^{missing} must be given"):
            translate("a", **languages)
    with pytest.raises(ValueError, match="`tgt_lang` must be a language of WithLanguages, got 'xx'"):
        translate("a", src_lang="en", tgt_lang="xx")
    with_languages.tgt_lang = "de"  # a checkpoint made for one pair says so itself
    with_languages.src_lang = "en"
    assert torch.equal(translate(DOCUMENTS[2], return_tensors=True, **LENGTH)[0]["translation_token_ids"], expected)


def test_languages_that_change_nothing_are_said_once(translate, caplog):
    with caplog.at_level(logging.WARNING):
        translate("a", src_lang="en", tgt_lang="de", **LENGTH)
        translate("a", src_lang="en", tgt_lang="fr", **LENGTH)
    assert sum("`src_lang` and `tgt_lang` change nothing" in line for line in caplog.messages) == 1


def test_as_in_transformers_4_a_text_can_be_cut(translate, bart, tokenizer):
    ids = tokenizer(LONG)["input_ids"]
    record = translate(LONG, truncation=True, return_chunks=True, **LENGTH)[0]
    expected = bart.generate(input_ids=torch.tensor([ids[:64]]), **LENGTH)[0]
    assert record["translation_text"] == tokenizer.decode(expected, skip_special_tokens=True)
    assert record["num_truncated_tokens"] == len(ids) - 64
    assert record["num_chunks"] == 1


def test_from_a_folder_without_processor(bart, tokenizer, translate, tmp_path):
    bart.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = pipeline("translation", model=str(tmp_path), device="cpu")
    assert loaded.processor is None
    assert loaded([*DOCUMENTS, LONG], **LENGTH) == translate([*DOCUMENTS, LONG], **LENGTH)


# Chunks


@pytest.mark.parametrize("source_length", [20, 33, 64])
def test_chunks_are_whole_sentences_and_nothing_is_lost(translate_hat, processor, source_length):
    sentences = [LONG[start:end] for start, end in processor.split_sentences(LONG)]
    chunks = [item["examples"] for item in translate_hat.preprocess(LONG, max_source_length=source_length)]
    assert all(len(chunk) <= source_length for chunk in chunks)
    assert [chunk.counts["is_last"] for chunk in chunks] == [0] * (len(chunks) - 1) + [1]
    split = sum(chunk.counts["num_split_sentences"] for chunk in chunks)
    assert split == sum(len(processor(sentences=[sentence])["input_ids"]) > source_length for sentence in sentences)
    texts = [processor.decode(chunk.inputs["input_ids"], skip_special_tokens=True).strip() for chunk in chunks]
    assert " ".join(texts) == LONG
    if not split:
        assert len(chunks) < len(sentences)
        # Each chunk is what the processor makes of its sentences, and one more would be too much.
        start = 0
        for chunk in chunks:
            count = chunk.inputs["input_ids"].count(processor.tokenizer.bos_token_id)
            assert chunk.inputs["input_ids"] == processor(sentences=sentences[start : start + count])["input_ids"]
            longer = processor(sentences=sentences[start : start + count + 1])["input_ids"]
            assert len(longer) > source_length or start + count == len(sentences)
            start += count


def test_a_long_document_is_its_chunks_joined(translate_hat, tiny_model, processor):
    record = translate_hat(LONG, return_chunks=True, max_source_length=40, num_beams=2, **LENGTH)[0]
    chunks = [item["examples"].inputs for item in translate_hat.preprocess(LONG, max_source_length=40)]
    texts = []
    for chunk in chunks:
        tensors = {name: torch.tensor([values]) for name, values in chunk.items()}
        ids = tiny_model.generate(**tensors, num_beams=2, **LENGTH)[0]
        texts.append(processor.decode(ids, skip_special_tokens=True))
    assert record["translation_text"] == join_chunks(texts)
    assert record["num_chunks"] == len(chunks) > 4
    assert len(set(texts)) > 1
    assert set(record) == {"translation_text", *COUNTS}


@pytest.mark.parametrize("batch_size", [2, 3, 50, "auto"])
def test_batches_of_chunks_give_what_single_chunks_give(translate, translate_hat, batch_size):
    documents = [LONG, DOCUMENTS[2], "", " ".join(DOCUMENTS[1:3]), {"sentences": [*DOCUMENTS[1:], ""]}]
    kwargs = {"num_beams": 3, "num_return_sequences": 2, "return_chunks": True, "max_source_length": 40, **LENGTH}
    for pipe in (translate, translate_hat):
        single = [pipe(document, **kwargs) for document in documents]
        assert [len(records) for records in single] == [2] * len(documents)
        assert single[0][0]["translation_text"] != single[0][1]["translation_text"]
        assert pipe(documents, batch_size=batch_size, **kwargs) == single
        assert pipe(LONG, batch_size=batch_size, **kwargs) == single[0]


def test_every_container_gives_the_same(translate_hat):
    kwargs = {"max_source_length": 30, **LENGTH}
    expected = translate_hat(DOCUMENTS, **kwargs)
    assert [list(record) for record in expected] == [["translation_text"]] * len(DOCUMENTS)
    assert translate_hat(text=DOCUMENTS, **kwargs) == expected
    assert translate_hat([{"text": text, "id": 7} for text in DOCUMENTS], **kwargs) == expected
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS, "id": [1, 2, 3, 4]})
    for inputs in (rows, rows.to_iterable_dataset(), (text for text in DOCUMENTS)):
        stream = translate_hat(inputs, batch_size=2, **kwargs)
        assert not isinstance(stream, list)
        assert list(stream) == [[record] for record in expected]
    assert translate_hat([]) == []


def test_sentences_are_the_users_own(translate_hat, processor):
    own = ["the bridge was closed", "on monday. engineers", "had found a crack"]
    (item,) = translate_hat.preprocess({"sentences": own})
    assert item["examples"].inputs["input_ids"] == processor(sentences=own)["input_ids"]
    chunks = list(translate_hat.preprocess({"sentences": own}, max_source_length=20))
    limits = [len(processor(sentences=own[:n])["input_ids"]) for n in (1, 2, 3)]
    assert limits[0] <= 20 < limits[2]
    assert len(chunks) > 1
    batch = translate_hat(sentences=[own, own[:1]], **LENGTH)
    assert batch == [translate_hat(sentences=own, **LENGTH)[0], translate_hat(sentences=own[:1], **LENGTH)[0]]


def test_a_sentence_longer_than_a_chunk_is_split_counted_and_said(translate_hat, translate, caplog):
    long = "the narrow road " * 30 + "that ends, as we know, at the old bridge " + "x" * 300 + "."
    text = f"Bees fly. {long} The sun set."
    for pipe in (translate_hat, translate):
        with caplog.at_level(logging.WARNING):
            record = pipe(text, return_chunks=True, max_source_length=24, **LENGTH)[0]
        assert record["num_split_sentences"] == 1
        assert record["num_truncated_tokens"] == 0
        assert record["num_chunks"] > 10
        chunks = [item["examples"].inputs["input_ids"] for item in pipe.preprocess(text, max_source_length=24)]
        assert all(len(ids) <= 24 for ids in chunks)
        pieces = "".join(pipe.tokenizer.decode(ids, skip_special_tokens=True) for ids in chunks)
        assert "".join(pieces.split()) == "".join(text.split())
    assert sum("longer than the 24 tokens of a chunk" in line for line in caplog.messages) == 2  # once for each
    # A piece ends between words where it can.
    words = {word for ids in chunks for word in pipe.tokenizer.decode(ids, skip_special_tokens=True).split()}
    assert {word for word in words if "x" not in word} <= set(text.split()) | {"."}


def test_no_room_for_a_single_character(translate_hat):
    with pytest.raises(ValueError, match="`max_source_length` of 4 tokens is too little for the character '🐝'"):
        translate_hat("🐝🐝🐝", max_source_length=4)


def test_an_end_that_was_forced_is_counted_and_said(translate_hat, tiny_model, caplog):
    with caplog.at_level(logging.WARNING):
        record = translate_hat(LONG, return_chunks=True, max_source_length=40, min_length=6, max_length=6)[0]
    assert record["num_unfinished_chunks"] == record["num_chunks"] > 1
    assert sum("before its end" in line for line in caplog.messages) == 1

    # A model that ends at once is finished, also where the longest of the batch just fits.
    tiny_model.generation_config.forced_eos_token_id = None
    tiny_model.final_logits_bias[..., tiny_model.config.eos_token_id] = 1e4
    for longest in (2, 9):
        record = translate_hat(LONG, return_chunks=True, max_source_length=40, max_length=longest, batch_size=4)[0]
        assert record["num_unfinished_chunks"] == 0


def test_a_text_without_text(translate_hat, translate):
    for pipe in (translate_hat, translate):
        for blank in ("", " \n ", {"sentences": []}, {"sentences": ["", " "]}):
            record = pipe(blank, return_chunks=True, **LENGTH)[0]
            assert record == {"translation_text": "", **dict.fromkeys(COUNTS, 0)}
        assert len(pipe("", return_tensors=True, **LENGTH)[0]["translation_token_ids"]) == 0


def test_the_length_of_a_chunk_comes_from_the_checkpoint(tiny_model, processor, tmp_path):
    tiny_model.config.task_specific_params = {"translation": {"max_source_length": 30, "num_beams": 2}}
    tiny_model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded = pipeline("translation", model=str(tmp_path), device="cpu")
    chunks = [item["examples"] for item in loaded.preprocess(LONG)]
    assert 20 < max(map(len, chunks)) <= 30
    assert loaded(LONG, max_source_length=120, **LENGTH) == loaded(LONG, max_source_length=120, num_beams=2, **LENGTH)
    # No longer than what can be written at once.
    loaded.model.generation_config.max_length = 20
    assert max(len(item["examples"]) for item in loaded.preprocess(LONG)) <= 20
    with pytest.raises(ValueError, match=r"`max_source_length` must be at least 3 and at most 128.*got 2"):
        loaded("a", max_source_length=2)


def test_if_nobody_sets_a_length_it_grows_with_the_chunk(translate_hat, translate):
    shortest = translate_hat("Bees fly.", return_tensors=True)[0]["translation_token_ids"]
    assert len(shortest) <= 51 + 2 * 20
    ids = translate("Bees fly.", min_length=50, return_tensors=True)[0]["translation_token_ids"]
    assert 50 <= len(ids) <= 64  # and never beyond the decoder's positions
    with pytest.raises(ValueError, match=r"At most 63 new tokens .*, got 64 \(`max_length=65`\)"):
        translate("short", max_length=65)


def test_line_breaks_in_a_sentence_are_spaces_to_our_models(translate_hat):
    wrapped = "The library opens\nat nine. It closes\n  at six."
    plain = "The library opens at nine. It closes at six."
    (first,), (second,) = (list(translate_hat.preprocess(text)) for text in (wrapped, plain))
    assert first["examples"].inputs == second["examples"].inputs


# The pieces


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12),
    limits=st.tuples(st.integers(3, 20), st.integers(3, 20)),
    seam=st.integers(-1, 1),
)
def test_packing(sizes, limits, seam):
    def encode(start, end):
        return (start, end), [sum(size[side] for size in sizes[start:end]) + seam for side in (0, 1)]

    chunks = list(pack(sizes, limits, encode))
    assert [number for start, end, *_ in chunks for number in range(start, end)] == list(range(len(sizes)))
    for start, end, item, fits in chunks:
        assert item == (start, end)
        assert fits == all(length <= limit for length, limit in zip(encode(start, end)[1], limits, strict=True))
        assert fits or end == start + 1


def test_plain_sentences():
    text = 'Dr. Smith came on the 3. Mai. He left. "Why?" she asked. Es war z.B. gut. Über alles! Er sagte: „Ja.“ 4.'
    assert plain_sentences(text) == [
        "Dr. Smith came on the 3. Mai.",
        "He left.",
        '"Why?" she asked.',
        "Es war z.B. gut.",
        "Über alles!",
        "Er sagte: „Ja.“ 4.",
    ]
    assert plain_sentences("你好。世界！") == ["你好。", "世界！"]
    assert plain_sentences("A title\n\nThen text") == ["A title", "Then text"]
    assert plain_sentences(" \n") == []


def test_plain_sentences_of_long_rows_of_marks():
    start = time.perf_counter()
    assert plain_sentences("." * 50_000) == ["." * 50_000]
    assert plain_sentences("." * 50_000 + " A") == ["." * 50_000, "A"]
    assert len(plain_sentences("J. Smith " * 20_000)) == 1
    assert time.perf_counter() - start < 5


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_pieces_keep_every_character(text):
    assert "".join("".join(plain_sentences(text)).split()) == "".join(text.split())
    parts, joiner = smaller_parts(text)
    assert "".join(joiner.join(parts).split()) == "".join(text.split())


# Checkpoints


def test_saving_and_loading(translate_hat, translate, tmp_path):
    for name, pipe in {"ours": translate_hat, "bart": translate}.items():
        pipe.save_pretrained(tmp_path / name)
        loaded = pipeline("translation", model=str(tmp_path / name), device="cpu")
        assert loaded(LONG, **LENGTH) == pipe(LONG, **LENGTH)


def test_an_export_names_this_pipeline_and_works_alone(tiny_model, processor, tmp_path):
    tiny_model.config.task_specific_params = {"translation": {"max_source_length": 40}}
    folder = hier_models.export(tiny_model, processor, tmp_path / "exported")
    config = json.loads((folder / "config.json").read_text())
    assert list(config["custom_pipelines"]) == ["translation"]
    assert config["custom_pipelines"]["translation"]["impl"] == "translation_hier.TranslationPipeline"
    copied = {path.name for path in folder.glob("*_hier.py")}
    names = ("batching_hier", "chunking_hier", "document_pipeline_hier", "int8_hier", "translation_hier")
    assert copied == {f"{name}.py" for name in names}
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: translation" in card
    assert 'translate = pipeline("translation", model=' in card
    assert "return_chunks=True" in card

    code = f"""
import json
from transformers import pipeline
#header
translate = pipeline("translation", model=source, device="cpu", trust_remote_code=trust)
records = translate({LONG!r}, return_chunks=True, batch_size=3, min_length=4, max_length=9)
print(json.dumps([type(translate).__module__, records]))
"""
    printed = run_python(WITHOUT_HIER_MODELS + code, tmp_path, source=str(folder), trust=True, HF_HUB_OFFLINE="1")
    module, records = json.loads(printed.splitlines()[-1])
    assert module.startswith("transformers_modules.")
    translate = pipeline("translation", model=str(folder), device="cpu")
    assert type(translate) is TranslationPipeline
    assert records == translate(LONG, return_chunks=True, batch_size=3, **LENGTH)
    assert records[0]["num_chunks"] > 3


# Mistakes


def test_models_that_cannot_translate(tokenizer):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(ValueError, match="must be an encoder-decoder model that can generate"):
        pipeline("translation", model=model, tokenizer=tokenizer, device="cpu")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "one of `text`, `sentences`; got none"),
        (3, "`inputs` must be a string, a list"),
        ([3], "must be a string or a dictionary, got int"),
        ([["a", "b"]], r'pass \{"sentences": \[…\]\} instead'),
        ({"text": "a", "sentences": ["a"]}, "exactly one of `text`, `sentences`"),
        ({"documents": ["a"]}, r"exactly one of `text`, `sentences`.*\['documents'\]"),
        (TURNS, r"exactly one of `text`, `sentences`.*\['turns'\]"),
        ({"text": 3}, "`text` must be text, got int"),
        ({"sentences": "A b. C d."}, "`sentences` must be a list"),
        ({"sentences": ["a", 3]}, "`sentences` must be text, got int"),
    ],
)
def test_bad_input(translate, translate_hat, inputs, message):
    for pipe in (translate, translate_hat):
        with pytest.raises(ValueError, match=message):
            pipe(inputs)


def test_bad_arguments(translate):
    with pytest.raises(ValueError, match=r"as `inputs` or as one of .*got \['inputs', 'sentences'\]"):
        translate("a", sentences=["a"])
    with pytest.raises(ValueError, match="max_lenght"):  # typos: ignore
        translate("a", max_lenght=3)  # typos: ignore
    with pytest.raises(ValueError, match="unpaired surrogate"):
        translate("\ud800")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=200))
def test_any_text_is_translated_whole_or_refused_clearly(translate, translate_hat, text):
    for pipe in (translate, translate_hat):
        try:
            records = pipe(text, max_length=4, return_chunks=True, max_source_length=20)
        except ValueError as error:
            if "`" not in str(error):
                raise
            continue
        assert isinstance(records[0]["translation_text"], str)
        assert (records[0]["num_chunks"] == 0) == (not re.sub(r"\s", "", text))


def test_a_model_whose_processor_knows_no_sentences_translates_them_all(top_down_config, top_down_processor):
    """A Top-Down Transformer's text is cut into sentences only where it is too long, and no marker is counted."""
    config = type(top_down_config)(**{**top_down_config.to_dict(), "pooling": "average"})
    torch.manual_seed(0)
    model = hier_models.TopDownTransformerForConditionalGeneration(config).eval()
    pipe = pipeline("translation", model=model, processor=top_down_processor, device="cpu")
    (short,) = pipe(DOCUMENTS[2], max_new_tokens=6)
    inputs = top_down_processor(text=DOCUMENTS[2], return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=6)
    assert short["translation_text"] == top_down_processor.decode(ids[0], skip_special_tokens=True).strip()
    (long,) = pipe(" ".join(DOCUMENTS[:2]), max_source_length=40, max_new_tokens=6, return_chunks=True)
    assert long["num_chunks"] > 2
    assert long["num_truncated_tokens"] == 0

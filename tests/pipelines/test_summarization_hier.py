"""The summarization pipeline, on our models and on others."""

import logging
from typing import Any

import datasets
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MBartConfig,
    MBartForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)
from transformers import pipelines as transformers_pipelines
from transformers.pipelines.pt_utils import KeyDataset

import hier_models
from hier_models.pipelines import SummarizationPipeline, register_pipelines
from tests.conftest import DOCUMENTS, TURNS


LENGTH = {"min_length": 8, "max_length": 12}
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


def _randomize(model: Any) -> Any:
    """Weights large enough for different documents to get different summaries."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.fixture
def bart(tokenizer: PreTrainedTokenizerFast) -> BartForConditionalGeneration:
    return _randomize(BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **BART)))


@pytest.fixture
def summarize(bart: BartForConditionalGeneration, tokenizer: PreTrainedTokenizerFast) -> SummarizationPipeline:
    return pipeline("summarization", model=bart, tokenizer=tokenizer, device="cpu")


@pytest.fixture
def summarize_hat(tiny_model: Any, processor: Any) -> SummarizationPipeline:
    return pipeline("summarization", model=tiny_model, processor=processor, device="cpu")


def _t5(tokenizer: PreTrainedTokenizerFast) -> T5ForConditionalGeneration:
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
            "summarization": {"prefix": "summarize: ", "num_beams": 2, "max_length": 9, "min_length": 7},
            "translation_en_to_de": {"prefix": "translate English to German: "},
        },
    )
    return _randomize(T5ForConditionalGeneration(config))


# Registration


def test_task_is_available():
    register_pipelines()  # a second time does no harm
    assert "summarization" in transformers_pipelines.get_supported_tasks()
    assert "summarization" not in getattr(transformers_pipelines, "REMOVED_TASKS", {})
    assert transformers_pipelines.check_task("summarization")[1]["impl"] is SummarizationPipeline


def test_without_a_model_it_is_mini():
    summarize = pipeline("summarization", device="cpu")
    assert summarize.model.name_or_path == hier_models.MINI


@pytest.mark.parametrize("task", ["translation", "poem-generation", "reading-comprehension"])
def test_other_tasks_say_what_to_pass(task):
    with pytest.raises(ValueError, match=rf'`model` is missing.*pipeline\("{task}", model='):
        pipeline(task)


# Models that are not ours


def test_bart_gives_what_generate_gives(summarize, bart, tokenizer):
    text = DOCUMENTS[2]
    expected = bart.generate(**tokenizer(text, return_tensors="pt"), **LENGTH)
    assert summarize(text, **LENGTH) == [{"summary_text": tokenizer.decode(expected[0], skip_special_tokens=True)}]
    ids = summarize(text, return_tensors=True, **LENGTH)
    assert list(ids[0]) == ["summary_token_ids"]
    assert torch.equal(ids[0]["summary_token_ids"], expected[0])


def test_a_model_in_training_is_not_summarized_with_dropout(summarize_hat, tiny_model):
    """As it is after `trainer.train()`; it stays in training."""
    expected = summarize_hat(DOCUMENTS, **LENGTH)
    tiny_model.train()
    assert summarize_hat(DOCUMENTS, **LENGTH) == expected
    assert all(module.training for module in tiny_model.modules())


def test_summaries_differ_between_documents(summarize):
    summaries = [record["summary_text"] for record in summarize(DOCUMENTS, truncation=True, **LENGTH)]
    assert len(set(summaries)) == len(DOCUMENTS)
    assert all(summaries)


@pytest.mark.parametrize("batch_size", [2, 3, 8, "auto"])
def test_batches_give_what_single_documents_give(summarize, batch_size):
    kwargs = {"num_beams": 3, "num_return_sequences": 2, "return_truncation": True, **LENGTH}
    single = [summarize(text, **kwargs) for text in DOCUMENTS]
    assert [len(records) for records in single] == [2] * len(DOCUMENTS)
    assert summarize(DOCUMENTS, batch_size=batch_size, **kwargs) == single


def test_every_container_gives_the_same(summarize):
    expected = summarize(DOCUMENTS, **LENGTH)
    assert [list(record) for record in expected] == [["summary_text"]] * len(DOCUMENTS)
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": ["…"] * len(DOCUMENTS), "id": [1, 2, 3, 4]})
    lists = [tuple(DOCUMENTS), [{"text": text, "id": 7} for text in DOCUMENTS]]
    streams = [
        rows,
        rows.to_iterable_dataset(),
        rows.with_format("torch"),
        KeyDataset(rows, "text"),
        (text for text in DOCUMENTS),
        map(str, DOCUMENTS),
    ]
    for inputs in lists:
        assert summarize(inputs, **LENGTH) == expected
    assert summarize(text=DOCUMENTS, batch_size=2, **LENGTH) == expected
    for inputs in streams:
        stream = summarize(inputs, batch_size="auto" if inputs is rows else 2, **LENGTH)
        assert not isinstance(stream, list)
        assert list(stream) == [[record] for record in expected]


def test_worker_processes(summarize_hat):
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS})
    stream = summarize_hat(rows, num_workers=1, batch_size=2, **LENGTH)
    assert [record for (record,) in stream] == summarize_hat(DOCUMENTS, **LENGTH)


def test_nothing_to_summarize(summarize):
    assert summarize([]) == summarize([], batch_size="auto") == []
    assert list(summarize(text for text in [])) == []
    assert list(summarize(datasets.Dataset.from_dict({"text": []}))) == []


def test_a_generator_may_begin_with_a_dialogue(summarize_hat):
    items = [TURNS, "A text that stands alone.", {"turns": TURNS}]
    expected = summarize_hat(items, **LENGTH)
    assert [record for (record,) in summarize_hat((item for item in items), **LENGTH)] == expected


def test_generators_are_read_as_they_are_needed(summarize):
    taken = []

    def documents():
        for text in DOCUMENTS:
            taken.append(text)
            yield text

    stream = iter(summarize(documents(), **LENGTH))
    next(stream)
    assert len(taken) < len(DOCUMENTS)


def test_structure_becomes_plain_text(summarize):
    kwargs = {"return_tensors": True, **LENGTH}

    def same(first, second):
        return torch.equal(first[0]["summary_token_ids"], second[0]["summary_token_ids"])

    assert same(summarize(sentences=["A b.", "C d."], **kwargs), summarize("A b. C d.", **kwargs))
    assert same(summarize(documents=["A b.", "C d."], **kwargs), summarize("A b.\n\nC d.", **kwargs))
    assert same(summarize(TURNS[:2], **kwargs), summarize("\n".join(_lines(TURNS[:2])), **kwargs))


def _lines(turns: list[dict[str, str]]) -> list[str]:
    return [f"{turn['role']}: {turn['content']}" for turn in turns]


def test_t5_gets_its_prefix_and_settings(tokenizer):
    model = _t5(tokenizer)
    summarize = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu")
    text = DOCUMENTS[1]
    inputs = tokenizer(f"summarize: {text}", return_tensors="pt")
    expected = model.generate(**inputs, num_beams=2, min_length=7, max_length=9)
    got = summarize(text, return_tensors=True)[0]["summary_token_ids"]
    assert torch.equal(got, expected[0])
    # The generation config and the call both win over the task's settings, and nothing is changed for later calls.
    model.generation_config.num_beams = 1
    expected = model.generate(**inputs, min_length=3, max_length=5)
    got = summarize(text, return_tensors=True, min_length=3, max_length=5)[0]["summary_token_ids"]
    assert torch.equal(got, expected[0])
    assert model.config.task_specific_params["summarization"]["prefix"] == "summarize: "
    assert model.generation_config.max_length is None


def test_t5_has_no_positions_to_run_out_of(tokenizer):
    summarize = pipeline("summarization", model=_t5(tokenizer), tokenizer=tokenizer, device="cpu")
    long = " ".join(DOCUMENTS * 3)
    length = len(tokenizer(f"summarize: {long}")["input_ids"])
    assert length > tokenizer.model_max_length
    # What is left is the tokenizer's limit.
    record = summarize(long, truncation=True, return_truncation=True)[0]
    assert record["num_truncated_tokens"] == length - tokenizer.model_max_length


def test_mbart(tokenizer):
    model = _randomize(MBartForConditionalGeneration(MBartConfig(vocab_size=len(tokenizer), **BART)))
    summarize = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu")
    inputs = tokenizer(DOCUMENTS[2], return_tensors="pt")
    expected = model.generate(**inputs, forced_bos_token_id=7, decoder_start_token_id=5, **LENGTH)
    got = summarize(DOCUMENTS[2], forced_bos_token_id=7, decoder_start_token_id=5, return_tensors=True, **LENGTH)[0][
        "summary_token_ids"
    ]
    assert torch.equal(got, expected[0])
    assert got[:2].tolist() == [5, 7]


def test_from_a_folder_without_processor(bart, tokenizer, tmp_path):
    bart.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    summarize = pipeline("summarization", model=str(tmp_path), device="cpu")
    assert summarize.processor is None
    expected = pipeline("summarization", model=bart, tokenizer=tokenizer, device="cpu")(DOCUMENTS, **LENGTH)
    assert summarize(DOCUMENTS, **LENGTH) == expected


# Lengths


def test_too_long_is_cut_counted_and_said_once(summarize, bart, tokenizer, caplog):
    text = DOCUMENTS[0]
    ids = tokenizer(text)["input_ids"]
    assert len(ids) > 64
    with caplog.at_level(logging.WARNING):
        records = summarize([text, text], truncation=True, return_truncation=True, return_tensors=True, **LENGTH)
    assert [record["num_truncated_tokens"] for record in records] == [len(ids) - 64] * 2
    assert sum("was cut" in message for message in caplog.messages) == 1
    expected = bart.generate(input_ids=torch.tensor([ids[:64]]), **LENGTH)
    assert torch.equal(records[0]["summary_token_ids"], expected[0])
    assert summarize(DOCUMENTS[3], return_truncation=True)[0]["num_truncated_tokens"] == 0


def test_max_source_length(summarize, tokenizer):
    length = len(tokenizer(DOCUMENTS[2])["input_ids"])
    record = summarize(DOCUMENTS[2], max_source_length=10, truncation=True, return_truncation=True)[0]
    assert record["num_truncated_tokens"] == length - 10
    for wrong in (0, 65, "10"):
        with pytest.raises(ValueError, match=r"`max_source_length` must be at least 1 and at most 64"):
            summarize(DOCUMENTS[2], max_source_length=wrong)


@pytest.mark.parametrize("truncation", [False, "do_not_truncate"])
def test_too_long_without_truncation_is_an_error(summarize, truncation):
    with pytest.raises(ValueError, match="tokens long, more than the 64 that BartForConditionalGeneration allows"):
        summarize(DOCUMENTS[0], truncation=truncation)
    assert summarize("short", truncation=truncation)
    assert summarize(DOCUMENTS[0], truncation="longest_first")
    with pytest.raises(ValueError, match="`truncation` must be"):
        summarize(DOCUMENTS[0], truncation="tail")


def test_summary_longer_than_the_decoder_is_an_error(summarize):
    for lengths in ({"max_length": 65}, {"max_new_tokens": 64}):
        with pytest.raises(ValueError, match=r"At most 63 new tokens .*, got 64 \(`max_length=65`\)"):
            summarize("short", **lengths)
    ids = summarize("short", max_new_tokens=63, min_new_tokens=63, return_tensors=True)[0]["summary_token_ids"]
    assert len(ids) == 64


def test_default_length_is_not_that_of_generate(summarize):
    ids = summarize("short", min_length=30, return_tensors=True)[0]["summary_token_ids"]
    assert 30 <= len(ids) <= 64


@pytest.mark.parametrize(
    "config", [{"max_length": 20, "min_length": 15}, {"max_new_tokens": 19, "min_new_tokens": 14}]
)
@pytest.mark.parametrize("call", [{"max_length": 10, "min_length": 10}, {"max_new_tokens": 9, "min_new_tokens": 9}])
def test_the_call_wins_over_the_generation_config(summarize, bart, config, call, caplog):
    bart.generation_config.update(**config)
    with caplog.at_level(logging.WARNING):
        first = summarize(DOCUMENTS[0], return_tensors=True)[0]["summary_token_ids"]
        second = summarize(DOCUMENTS[0], return_tensors=True, **call)[0]["summary_token_ids"]
    assert 15 <= len(first) <= 20
    assert len(second) == 10
    assert not [message for message in caplog.messages if "precedence" in message]
    for name, value in config.items():
        assert getattr(bart.generation_config, name) == value


def test_a_generation_config_can_be_passed(summarize, bart):
    given_config = GenerationConfig(max_length=11, min_length=11, num_beams=2)
    got = summarize(DOCUMENTS[0], generation_config=given_config, return_tensors=True)[0]["summary_token_ids"]
    assert len(got) == 11
    bart.generation_config.max_length = 13
    given_config = GenerationConfig(min_length=13)
    got = summarize(DOCUMENTS[0], generation_config=given_config, return_tensors=True)[0]["summary_token_ids"]
    assert len(got) == 13


@pytest.mark.parametrize(
    "others", [{}, {"forced_bos_token_id": 7}, {"decoder_input_ids": [[2, 9, 11]]}, {"num_beams": 3}]
)
def test_tokens_that_no_summary_begins_with(summarize, bart, tokenizer, others):
    inputs = tokenizer(DOCUMENTS[2], return_tensors="pt")
    others = {name: torch.tensor(value) if name == "decoder_input_ids" else value for name, value in others.items()}
    prompt = others["decoder_input_ids"].shape[1] if "decoder_input_ids" in others else 1
    free = bart.generate(**inputs, **LENGTH, **others)[0]
    begin = prompt + ("forced_bos_token_id" in others)
    bart.generation_config.begin_suppress_tokens = barred = free[begin : begin + 2].tolist()
    wanted = bart.generate(**inputs, **LENGTH, **others)[0]
    assert wanted[begin] not in barred
    for _ in range(2):  # what the pipeline does is not for the model to keep
        got = summarize(DOCUMENTS[2], return_tensors=True, **LENGTH, **others)[0]["summary_token_ids"]
        assert torch.equal(got, wanted)
    assert bart.generation_config.begin_suppress_tokens == barred


def test_settings_given_at_construction(bart, tokenizer):
    summarize = pipeline(
        "summarization", model=bart, tokenizer=tokenizer, device="cpu", return_tensors=True, batch_size=2, **LENGTH
    )
    records = summarize(DOCUMENTS)
    assert all(8 <= len(record["summary_token_ids"]) <= 12 for record in records)
    assert len(summarize(DOCUMENTS[0], min_length=14, max_length=14)[0]["summary_token_ids"]) == 14


def test_warning_when_the_summary_is_longer_than_the_text(summarize, caplog):
    with caplog.at_level(logging.WARNING):
        summarize("a", min_length=8, max_length=12)
        summarize("a", min_length=8, max_length=12)
    assert sum("summary gets longer" in message for message in caplog.messages) == 1


# Our models


def test_hat_bart_gives_what_its_processor_and_generate_give(summarize_hat, tiny_model, processor):
    cases = {"text": DOCUMENTS[1], "sentences": ["A b.", "C d e."], "turns": TURNS, "documents": DOCUMENTS[1:3]}
    for name, value in cases.items():
        inputs = processor(**{name: value}, return_tensors="pt")
        assert "segment_ids" in inputs
        assert (inputs["input_ids"] == tiny_model.config.bos_token_id).sum() > 1
        expected = tiny_model.generate(**inputs, num_beams=2, **LENGTH)
        for got in (
            summarize_hat({name: value, "id": "x"}, num_beams=2, return_tensors=True, **LENGTH),
            summarize_hat(**{name: value}, num_beams=2, return_tensors=True, **LENGTH),
        ):
            assert len(got) == 1
            assert torch.equal(got[0]["summary_token_ids"], expected[0])


def test_hat_bart_batches_of_every_structure(summarize_hat, processor):
    inputs = [*DOCUMENTS, TURNS, {"turns": TURNS[:2]}, {"sentences": ["One.", "Two."]}, {"documents": DOCUMENTS[2:]}]
    kwargs = {"return_truncation": True, "num_beams": 2, **LENGTH}
    single = [summarize_hat(item, **kwargs)[0] for item in inputs]
    assert len({record["summary_text"] for record in single}) > len(single) // 2
    for batch_size in (3, len(inputs), "auto"):
        assert summarize_hat(inputs, batch_size=batch_size, **kwargs) == single


def test_extra_inputs_are_padded_as_the_processor_says(summarize_hat, tiny_model, monkeypatch):
    seen = {}
    generate = tiny_model.generate
    monkeypatch.setattr(tiny_model, "generate", lambda **kwargs: seen.update(kwargs) or generate(**kwargs))
    monkeypatch.setattr(type(summarize_hat.processor), "extra_inputs", {"segment_ids": 3})
    summarize_hat([TURNS, TURNS[:1]], batch_size=2, **LENGTH)
    padding = seen["attention_mask"] == 0
    assert padding[1].any()
    assert not padding[0].any()
    assert (seen["segment_ids"][padding] == 3).all()
    assert (seen["input_ids"][padding] == tiny_model.config.pad_token_id).all()
    assert not padding[:, 0].any()  # on the right


def test_hat_bart_truncation_is_counted(summarize_hat, processor):
    sentences = [f"Sentence number {number} is about bees." for number in range(40)]
    limit = summarize_hat.model.config.max_position_embeddings
    record = summarize_hat(sentences=sentences, truncation=True, return_truncation=True, **LENGTH)[0]
    length = len(processor(sentences=sentences)["input_ids"])
    assert record["num_truncated_tokens"] == length - limit
    assert 0 < record["num_truncated_sentences"] < 40
    with pytest.raises(ValueError, match=f"more than the {limit}"):
        summarize_hat(sentences=sentences, truncation=False)


def test_hat_bart_from_a_folder(tiny_model, processor, summarize_hat, tmp_path):
    tiny_model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded = pipeline("summarization", model=str(tmp_path), device="cpu")
    assert type(loaded.processor) is hier_models.HatBartProcessor
    assert loaded(DOCUMENTS, **LENGTH) == summarize_hat(DOCUMENTS, **LENGTH)


def test_hat_bart_needs_its_processor(tiny_model, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=r"`processor` is missing: HatBartForConditionalGeneration needs one"):
        pipeline("summarization", model=tiny_model, tokenizer=tokenizer, device="cpu")
    tiny_model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is missing|are missing"):
        pipeline("summarization", model=str(tmp_path), device="cpu")


@pytest.mark.parametrize("num_segments", [0, 9])
def test_a_processor_with_other_segments_than_the_model(tiny_model, tokenizer, num_segments):
    """Without segments the model would run, not knowing who speaks; with too many it would fail in a late document."""
    other = hier_models.HatBartProcessor(tokenizer, num_segments=num_segments)
    with pytest.raises(ValueError, match=f"num_segments={num_segments} and the model's config has num_segments=4"):
        pipeline("summarization", model=tiny_model, processor=other, device="cpu")


def test_hat_bart_max_source_length(summarize_hat):
    assert summarize_hat("Word", max_source_length=3, **LENGTH)
    with pytest.raises(ValueError, match=r"`max_source_length` must be at least 3 and at most 128.*got 2"):
        summarize_hat("Word", max_source_length=2)


def test_a_model_without_processor_gets_plain_text(bart, processor, summarize, tmp_path):
    bart.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    for pipe in (
        pipeline("summarization", model=str(tmp_path), device="cpu"),
        pipeline("summarization", model=bart, processor=processor, device="cpu"),
    ):
        assert pipe(DOCUMENTS, **LENGTH) == summarize(DOCUMENTS, **LENGTH)


def test_saving_and_loading(summarize_hat, summarize, tmp_path):
    for name, pipe in {"ours": summarize_hat, "bart": summarize}.items():
        pipe.save_pretrained(tmp_path / name)
        loaded = pipeline("summarization", model=str(tmp_path / name), device="cpu")
        assert loaded(DOCUMENTS, **LENGTH) == pipe(DOCUMENTS, **LENGTH)
        assert "custom_pipelines" not in pipe.model.config.to_dict()


# Mistakes


def test_models_that_cannot_summarize(tokenizer):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(ValueError, match="must be an encoder-decoder model that can generate"):
        pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu")


def test_nothing_to_tokenize_with(bart):
    with pytest.raises(ValueError, match="`tokenizer` is missing"):
        pipeline("summarization", model=bart, device="cpu")


def test_tokenizer_files_are_missing(bart, tmp_path):
    bart.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"`tokenizer` (is missing|knows nothing but)"):
        pipeline("summarization", model=str(tmp_path), device="cpu")


def test_two_different_tokenizers(tiny_model, processor):
    other = PreTrainedTokenizerFast(tokenizer_object=processor.tokenizer.backend_tokenizer)
    other.add_tokens(["<new>"])
    with pytest.raises(ValueError, match="Pass only `processor`"):
        pipeline("summarization", model=tiny_model, processor=processor, tokenizer=other, device="cpu")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (None, "got none"),
        (3, "`inputs` must be a string, a list"),
        (b"text", "`inputs` must be a string, a list"),
        (datasets.Dataset.from_dict({"text": DOCUMENTS}).to_pandas(), "A DataFrame was given as `inputs`"),
        ([3], "must be a string, a list of turns or a dictionary, got int"),
        ([["a", "b"]], "can be sentences or articles"),
        ({"text": "a", "sentences": ["a"]}, "exactly one of `text`"),
        ({"article": "a"}, r"exactly one of `text`.*\['article'\]"),
        ({"text": None}, "The `text` of a document is None"),
        ({"role": "Ann", "content": "a"}, "Pass the turns of a dialogue as a list"),
        ({"text": 3}, "`text` must be text, got int"),
        (
            [{"speaker": "Ann", "text": "a"}, {"speaker": "Bob", "text": "b"}],
            r"needs role and content.*got .*'speaker'",
        ),
        ({"sentences": "A b. C d."}, "`sentences` must be a list"),
        ({"sentences": ["a", 3]}, "`sentences` must be text, got int"),
        ({"turns": ["a"]}, "`turns` must be a list of"),
        ([{"role": "Ann", "content": [{"type": "image"}]}], "`turns` must be a list of .* with text as their content"),
        ("\ud800", "unpaired surrogate at character 0"),
        ("", "is empty"),
    ],
)
def test_bad_input(summarize, inputs, message):
    with pytest.raises(ValueError, match=message):
        summarize(inputs)


def test_bad_arguments(summarize):
    with pytest.raises(ValueError, match='`num_workers` does not go with batch_size="auto"'):
        summarize(["a"], batch_size="auto", num_workers=1)
    with pytest.raises(ValueError, match=r"as `inputs` or as one of .*got \['inputs', 'turns'\]"):
        summarize("a", turns=TURNS)
    with pytest.raises(ValueError, match="`sentences` must be a list, got a string"):
        summarize(sentences="a")
    with pytest.raises(ValueError, match="`documents` must be a list"):
        summarize(documents=3)
    with pytest.raises(ValueError, match="max_lenght"):  # typos: ignore
        summarize("a", max_lenght=3)  # typos: ignore


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=300))
def test_any_text_gives_a_summary_or_a_clear_error(summarize, summarize_hat, text):
    for pipe in (summarize, summarize_hat):
        try:
            records = pipe(text, max_length=6, return_truncation=True)
        except ValueError as error:
            if "`" not in str(error):
                raise
            continue
        assert isinstance(records[0]["summary_text"], str)
        assert records[0]["num_truncated_tokens"] >= 0


def test_model_loaded_by_the_auto_class_is_the_same(bart, tokenizer, tmp_path, summarize):
    bart.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    again = pipeline("summarization", model=loaded, tokenizer=tokenizer, device="cpu")
    assert again(DOCUMENTS, **LENGTH) == summarize(DOCUMENTS, **LENGTH)

import json

import datasets
import pytest
from datasets import Dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hier_models import HatBartProcessor
from hier_models.data import BadLineError, ChunkReport, LoadReport, chunk_parallel, load_parallel


EN = ["The bridge was closed.", "A ferry runs every hour.", "Nobody was hurt.", "It rains."]
DE = ["Die Brücke war gesperrt.", "Eine Fähre fährt jede Stunde.", "Niemand wurde verletzt.", "Es regnet."]
SENTENCE = st.text("ab .é", min_size=1, max_size=30).map(str.strip).filter(bool)


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


# Loading


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"source": EN, "target": DE, "id": "a"}, {}),
        ({"src": EN, "tgt": DE, "doc_id": "a"}, {}),
        ({"en": EN, "de": DE, "id": "a"}, {"source_column": "en", "target_column": "de"}),
        ({"source": "\n".join(EN), "target": "\n".join(DE), "id": "a"}, {}),
        ({"source": "\n\n".join([*EN, ""]), "target": "\r\n\r\n".join([*DE, ""]), "id": "a"}, {}),
        ({"translation": {"en": EN, "de": DE}, "id": "a"}, {"source_column": "en", "target_column": "de"}),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_columns(tmp_path, row, columns, streaming):
    documents = load_parallel(write(tmp_path / "a.jsonl", [row, row]), streaming=streaming, **columns)
    assert list(documents) == [{"id": "a", "source": EN, "target": DE}] * 2


def test_spaces_and_direction(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"en": [" It \t rains. "], "de": ["Es\u00a0regnet."]}])
    documents = load_parallel(path, source_column="de", target_column="en")
    assert list(documents) == [{"source": ["Es regnet."], "target": ["It rains."]}]


def test_a_csv_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('source,target\n"It rains.\nYes.","Es regnet.\nJa."\n', encoding="utf-8")
    assert list(load_parallel(path)) == [{"source": ["It rains.", "Yes."], "target": ["Es regnet.", "Ja."]}]


def test_a_dataset_of_the_hub(tmp_path, monkeypatch):
    rows = [
        {"translation": {"en": EN, "de": DE}},
        {"translation": {"en": EN, "de": ["", *DE[1:]]}},
        {"translation": {"en": EN, "de": DE[1:]}},
    ]
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: Dataset.from_list(rows))
    options = {"source_column": "en", "target_column": "de"}
    with pytest.raises(BadLineError, match="some/corpus: row 2: sentence 1: column 'de' is empty"):
        load_parallel("some/corpus", **options)
    report = LoadReport()
    aside = tmp_path / "aside.jsonl"
    documents = load_parallel("some/corpus", bad_lines="set_aside", set_aside_file=aside, report=report, **options)
    assert list(documents) == [{"source": EN, "target": DE}, {"source": EN[1:], "target": DE[1:]}]
    assert report.set_aside == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"source": EN, "target": [DE[0], "", *DE[2:]]}, "sentence 2: column 'target' is empty and the other is not"),
        ({"source": [*EN[:3], " "], "target": DE}, "sentence 4: column 'source' is empty and the other is not"),
        ({"source": EN, "target": []}, "sentence by sentence, but have 4 and 0 sentences"),
        ({"source": EN, "target": [""] * 4}, "column 'target' is empty: a document needs at least one sentence"),
        ({"source": "a\n", "target": "b\n\nc\n"}, "have 1 and 3 sentences"),
        ({"source": "", "target": ""}, "column 'source' is empty"),
        ({"source": ["a", ""], "target": ["", "b"]}, "no sentence has text in both columns"),
        ({"source": EN, "target": DE[:3]}, "sentence by sentence, but have 4 and 3 sentences"),
        ({"source": EN}, "column 'target' is missing; this record has 'source'"),
        ({"source": EN, "target": [1, 2, 3, 4]}, "column 'target' must hold a list of sentences, .*got a list of int"),
        ({"source": EN, "target": None}, "column 'target' must hold a list of sentences, .*got nothing"),
        ({"source": ["\ud800"], "target": ["a"]}, "unpaired surrogate"),
    ],
)
def test_bad_records_stop_or_are_set_aside(tmp_path, bad, message):
    good = {"source": EN, "target": DE}
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, bad, good)))
    with pytest.raises(BadLineError, match=rf"a\.jsonl:2: .*{message}"):
        load_parallel(path)
    for streaming in (False, True):
        report, aside = LoadReport(), tmp_path / f"aside_{streaming}.jsonl"
        documents = load_parallel(
            path, bad_lines="set_aside", set_aside_file=aside, report=report, streaming=streaming
        )
        rows = list(documents)
        entries = [json.loads(line) for line in aside.read_text(encoding="utf-8").splitlines()]
        assert report.set_aside == len(entries) == 1
        assert entries[0]["line"] == 2
        assert rows[0] == rows[-1] == good
        if message.startswith("sentence ") and "by sentence" not in message:
            # Only the pair is left out, and it stands in the file.
            assert len(rows) == 3
            number = int(message.split()[1][:-1]) - 1
            assert rows[1] == {"source": EN[:number] + EN[number + 1 :], "target": DE[:number] + DE[number + 1 :]}
            pair = json.loads(entries[0]["raw"])
            assert pair == {"source": bad["source"][number].strip(), "target": bad["target"][number]}
        else:
            assert len(rows) == 2


def test_a_first_record_without_its_translation(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"source": EN}, {"source": EN, "target": DE}])
    with pytest.raises(BadLineError, match=r"a\.jsonl:1: column 'target' is missing"):
        load_parallel(path)
    assert len(load_parallel(path, bad_lines="set_aside", set_aside_file=tmp_path / "aside.jsonl")) == 1


@pytest.mark.parametrize(("value", "got"), [(5, "a value of type int"), (None, "nothing"), ("ab", "type str")])
def test_languages_that_are_no_mapping(tmp_path, value, got):
    rows = [{"translation": {"en": EN, "de": DE}}, {"translation": value}]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(BadLineError, match=rf"a\.jsonl:2: column 'translation' must hold both languages .*{got}"):
        load_parallel(path, source_column="en", target_column="de")


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (
            {"en": EN, "de": DE},
            {},
            "cannot tell which column holds the source: the columns are 'en', 'de'. Pass s",
        ),
        ({"source": EN, "de": DE}, {}, "cannot tell which column holds the target"),
        ({"source": EN, "src": EN, "target": DE}, {}, "cannot tell which column holds the source"),
        ({"source": EN, "target": DE}, {"target_column": "fr"}, "target_column='fr' is not a column"),
        ({"source": EN, "target": DE}, {"target_column": "source"}, "are both 'source'; they must differ"),
        ({"translation": {"en": EN, "de": DE}}, {"source_column": "fr"}, "source_column='fr' .* 'en', 'de'"),
    ],
)
def test_columns_that_cannot_be_told(tmp_path, row, options, message):
    with pytest.raises(ValueError, match=message):
        load_parallel(write(tmp_path / "a.jsonl", [row]), **options)


# Chunks


@pytest.fixture
def documents():
    return Dataset.from_list([{"source": EN, "target": DE}, {"source": EN[:1], "target": DE[:1]}])


def texts(tokenizer, rows):
    return [tokenizer.decode(row, skip_special_tokens=True).strip() for row in rows]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=9),
    limits=st.tuples(st.integers(12, 60), st.integers(12, 60)),
)
@pytest.mark.parametrize("kind", ["processor", "tokenizer"])
def test_chunks_are_aligned_fit_and_lose_nothing(kind, tokenizer, pairs, limits):
    from hier_models.data.parallel import _Chunking

    maker = HatBartProcessor(tokenizer) if kind == "processor" else tokenizer
    pairs = [(" ".join(a.split()), " ".join(b.split())) for a, b in pairs]
    source, target = [a for a, _ in pairs], [b for _, b in pairs]
    chunks = list(_Chunking(maker, limits)._chunks(source, target))

    def encoded(start, end):
        reference = " ".join(target[start:end])
        if kind == "processor":
            return maker(sentences=source[start:end], text_target=reference)
        return maker(" ".join(source[start:end]), text_target=reference)

    def fits(start, end):
        made = encoded(start, end)
        return len(made["input_ids"]) <= limits[0] and len(made["labels"]) <= limits[1]

    start = 0
    for chunk in chunks:
        while not fits(start, start + 1):  # a pair that fits nowhere is left out, and only such
            start += 1
        end = start + chunk["num_sentences"]
        made = encoded(start, end)
        assert chunk["input_ids"] == list(made["input_ids"])
        assert chunk["labels"] == list(made["labels"])
        assert fits(start, end)
        start = end
    assert not any(fits(number, number + 1) for number in range(start, len(pairs)))


def test_rows_and_report(documents, processor, tokenizer):
    report = ChunkReport()
    chunks = chunk_parallel(documents, processor, max_source_length=50, max_target_length=60, report=report)
    assert chunks.column_names == ["input_ids", "attention_mask", "segment_ids", "labels", "num_sentences", "document"]
    assert chunks["document"] == [0] * (len(chunks) - 1) + [1]
    assert sum(chunks["num_sentences"]) == 5
    assert " ".join(texts(tokenizer, chunks["input_ids"])) == " ".join([*EN, EN[0]])
    assert " ".join(texts(tokenizer, chunks["labels"])) == " ".join([*DE, DE[0]])
    assert all(len(row) <= 50 for row in chunks["input_ids"])
    markers = [row.count(tokenizer.bos_token_id) for row in chunks["input_ids"]]
    assert markers == list(chunks["num_sentences"])
    assert all(row[0] == tokenizer.bos_token_id and row[-1] == tokenizer.eos_token_id for row in chunks["labels"])
    assert report.as_dict() == {
        "documents": 2,
        "sentences": 5,
        "chunks": len(chunks),
        "left_out_sentences": 0,
        "left_out_documents": 0,
    }
    assert str(report) == f"2 documents (5 sentences) made {len(chunks)} chunks"
    streamed = chunk_parallel(documents.to_iterable_dataset(), processor, max_source_length=50, max_target_length=60)
    assert list(streamed) == list(chunks)


def test_a_sentence_longer_than_a_chunk_is_left_out_and_counted(processor, caplog):
    long = "word " * 40
    rows = [
        {"source": [EN[0], long, EN[3]], "target": [DE[0], "kurz", DE[3]]},
        {"source": ["short"], "target": [long]},
        {"source": EN, "target": DE},
    ]
    documents = Dataset.from_list(rows)
    for data in (documents, documents.to_iterable_dataset()):
        report = ChunkReport()
        chunks = list(chunk_parallel(data, processor, max_source_length=60, max_target_length=60, report=report))
        assert report.as_dict() == {
            "documents": 3,
            "sentences": 8,
            "chunks": len(chunks),
            "left_out_sentences": 2,
            "left_out_documents": 1,
        }
        assert {chunk["document"] for chunk in chunks} == {0, 2}
        assert sum(chunk["num_sentences"] for chunk in chunks) == 6
    assert "2 sentences were left out, longer than a chunk by themselves, and with them 1 whole doc" in caplog.text
    with pytest.raises(ValueError, match=r"no chunk is left .*raise max_source_length"):
        chunk_parallel(documents.select([1]), processor, max_source_length=60, max_target_length=60)


def test_the_report_is_right_when_the_chunks_come_from_the_cache(tmp_path, processor):
    path = write(tmp_path / "a.jsonl", [{"source": [*EN, "word " * 40], "target": [*DE, "kurz"]}])
    counts = []
    for _ in range(2):
        report = ChunkReport()
        chunk_parallel(load_parallel(path), processor, max_source_length=60, max_target_length=60, report=report)
        counts.append(report.as_dict())
    assert counts[0] == counts[1]
    assert counts[0]["left_out_sentences"] == 1


def test_mistakes(documents, processor):
    with pytest.raises(ValueError, match="max_target_length must be at least 3"):
        chunk_parallel(documents, processor, max_target_length=2)
    with pytest.raises(ValueError, match="must have the columns source and target, got text"):
        chunk_parallel(Dataset.from_dict({"text": ["a"]}), processor)


def test_inputs_that_a_processor_makes_only_on_demand_are_no_columns(top_down_processor):
    rows = datasets.Dataset.from_dict({"source": [["One bridge.", "Two bees."]], "target": [["Eins.", "Zwei."]]})
    chunks = chunk_parallel(rows, top_down_processor, max_source_length=64, max_target_length=64)
    assert {"input_ids", "attention_mask", "labels"} < set(chunks.column_names)
    assert "token_importance" not in chunks.column_names
    assert chunks[0]["input_ids"] == top_down_processor(text="One bridge. Two bees.")["input_ids"]

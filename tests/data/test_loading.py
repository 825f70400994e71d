import bz2
import gzip
import json
import logging
import lzma
import tracemalloc
from pathlib import Path

import datasets
import pytest
from datasets import Dataset, IterableDataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from hier_models.data import BadLineError, LoadReport, load_documents, record_readers
from hier_models.data.loading import load_rows
from hier_models.data.record_readers import read_records
from hier_models.data.task_rows import resolve_pairs


ROWS = [{"id": f"d{i}", "article": f"Text {i}. It goes on — über.", "abstract": f"Summary {i}."} for i in range(5)]
LOADED = [{"text": row["article"], "summary": row["abstract"], "id": row["id"]} for row in ROWS]


def as_json_lines(rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_csv(rows, delimiter=",") -> bytes:
    quoted = [
        '"' + value.replace('"', '""') + '"' for row in [{k: k for k in rows[0]}, *rows] for value in row.values()
    ]
    width = len(rows[0])
    lines = [delimiter.join(quoted[i : i + width]) for i in range(0, len(quoted), width)]
    return ("\r\n".join(lines) + "\r\n").encode()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", as_json_lines(ROWS)),
        ("a.jsonl", b"\xef\xbb\xbf" + as_json_lines(ROWS).replace(b"\n", b"\r\n\n")),
        ("a.ndjson", as_json_lines(ROWS).rstrip()),
        ("a.json", as_json_lines(ROWS)),
        ("a.json", json.dumps(ROWS, indent=2).encode()),
        ("a.jsonl.gz", gzip.compress(as_json_lines(ROWS), mtime=0)),
        ("a.jsonl.xz", lzma.compress(as_json_lines(ROWS))),
        ("a.json.bz2", bz2.compress(json.dumps(ROWS).encode())),
        ("a.csv", as_csv(ROWS)),
        ("a.csv", b"\xef\xbb\xbf" + as_csv(ROWS)),
        ("a.CSV.XZ", lzma.compress(as_csv(ROWS))),
        ("a.tsv", as_csv(ROWS, "\t")),
    ],
)
def test_files(tmp_path, name, content, streaming):
    dataset = load_documents(write(tmp_path / name, content), streaming=streaming)
    assert isinstance(dataset, IterableDataset if streaming else Dataset)
    assert set(dataset.column_names) == {"text", "summary", "id"}
    assert list(dataset) == LOADED


def test_lines_end_at_line_feeds_alone(tmp_path):
    row = {"text": "one\u2028two\x0bthree\x85four\r\nfive\0six"}
    path = write(tmp_path / "a.jsonl", as_json_lines([row, row]))
    assert list(load_documents(path)) == [row, row]


def test_csv_with_long_and_many_line_fields(tmp_path):
    rows = [{"text": "word " * 100_000 + '"quoted"\nnext', "summary": "a\nb"}, {"text": "x", "summary": "y"}]
    path = write(tmp_path / "a.csv", as_csv(rows))
    assert list(load_documents(path)) == rows
    assert [record.line for record in read_records(path)] == [2, 5]


def test_folder_of_texts(tmp_path):
    write(tmp_path / "docs" / "b.txt", b"Second text.")
    write(tmp_path / "docs" / "sub" / "a.v2.txt.gz", gzip.compress(b"First text."))
    write(tmp_path / "docs" / ".hidden.txt", b"no")
    expected = [{"text": "Second text.", "id": "b"}, {"text": "First text.", "id": "sub/a.v2"}]
    assert list(load_documents(tmp_path / "docs")) == expected
    assert list(load_documents(str(tmp_path / "docs"), streaming=True)) == expected
    assert list(load_documents(tmp_path / "docs" / "b.txt")) == expected[:1]


def test_texts_of_a_folder_are_read_as_files_are(tmp_path):
    """In UTF-16 where they say so; and what is no text is named."""
    (tmp_path / "a.txt").write_text("Grüße.", encoding="utf-16")
    assert load_documents(tmp_path)["text"] == ["Grüße."]
    (tmp_path / "b.txt").write_bytes(b"\xff\xfeodd")  # half a character at its end
    with pytest.raises(ValueError, match=r"b\.txt:1: invalid UTF-16-LE: byte 0x64 at offset 4"):
        load_documents(tmp_path)
    (tmp_path / "b.txt").write_bytes(b"Zero\0byte.")
    with pytest.raises(ValueError, match=r"b\.txt:1: no text: a zero byte at offset 4"):
        load_documents(tmp_path)


def test_folder_says_what_it_does_not_read(tmp_path, caplog):
    write(tmp_path / "a.txt", b"Text.")
    write(tmp_path / "notes.odt", b"PK")
    load_documents(tmp_path)
    assert "1 file of another kind is not read: notes.odt" in caplog.text
    write(tmp_path / "a.odt", b"PK")
    load_documents(tmp_path)
    assert "2 files of other kinds are not read: a.odt, notes.odt" in caplog.text


def test_list_of_files(tmp_path):
    paths = [write(tmp_path / f"{i}.jsonl", as_json_lines([row])) for i, row in enumerate(ROWS)]
    assert list(load_documents(paths)) == LOADED


@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.docx", "a.vtt"])
def test_a_mixed_folder_is_refused(tmp_path, name):
    """As is one of papers with the list of them that reference managers write; but a README.md is no document."""
    write(tmp_path / "b.jsonl", as_json_lines(ROWS))
    write(tmp_path / "README.md", b"# Data")
    assert list(load_documents(tmp_path)) == LOADED
    write(tmp_path / name, b"Text.")
    with pytest.raises(ValueError, match=rf"both documents \({name}, …\) and data files \(b.jsonl, …\)"):
        load_documents(tmp_path)


def test_what_is_left_out_is_counted_whatever_the_first_file_is(tmp_path):
    write(tmp_path / "a.txt", b"A plain text.")
    write(tmp_path / "b.md", b"A page.\n\n```\nprint(1)\n```\n")
    left_out = [row["left_out"]["code_words"] for row in load_documents(tmp_path)]
    assert left_out == [0, 1]


@pytest.mark.parametrize("source", ["missing.jsonl", "./missing", "/no/such/folder", "a/b/c"])
def test_missing_sources(source):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        load_documents(source)


def test_unknown_formats_and_empty_folders(tmp_path):
    with pytest.raises(ValueError, match=r"cannot tell the format of .*a.xls.*\.jsonl"):
        load_documents(write(tmp_path / "a.xls", b"PAR1"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"holds no file that ends in \.jsonl"):
        load_documents(tmp_path / "empty")
    with pytest.raises(ValueError, match="no records"):
        load_documents(write(tmp_path / "a.jsonl", b"\n\n"))


def test_what_datasets_writes_is_refused_with_what_makes_it_json_lines(tmp_path):
    rows = Dataset.from_list(ROWS)
    rows.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=rows).save_to_disk(tmp_path / "several")
    for source in ("one", "several", "several/train"):
        with pytest.raises(ValueError, match=rf"{source} is of `save_to_disk`.*load_from_disk\(…\)\.to_json\("):
            load_documents(tmp_path / source)
    rows.to_parquet(tmp_path / "a.parquet")
    (arrow,) = (tmp_path / "one").glob("*.arrow")
    for source, reader in ((tmp_path / "a.parquet", "from_parquet"), (arrow, "from_file")):
        with pytest.raises(ValueError, match=rf'write it as JSON lines: .*{reader}\("x.*to_json\("x\.jsonl'):
            load_documents(source)
        getattr(Dataset, reader)(str(source)).to_json(tmp_path / "a.jsonl")
        assert list(load_documents(tmp_path / "a.jsonl")) == LOADED


def test_a_first_record_that_lacks_a_column(tmp_path):
    """It is as bad as any other; and without an identifier it is as good."""
    whole = {"text": "a", "summary": "b", "phrases": None}
    for name in ("summary", "phrases"):
        row = {column: value for column, value in whole.items() if column != name}
        file = write(tmp_path / f"{name}.jsonl", as_json_lines([row, whole]))
        for columns in ({"summary_column": "summary"}, {}):
            columns |= {"phrases_column": "phrases"}
            with pytest.raises(BadLineError, match=f"jsonl:1: column '{name}' is missing"):
                load_documents(file, **columns)
            aside = {"bad_lines": "set_aside", "set_aside_file": tmp_path / f"{name}.aside"}
            assert load_documents(file, **columns, **aside)["summary"][:] == ["b"]
    with pytest.raises(BadLineError, match="summary_column='' reads no summaries"):
        load_documents(file.with_name("summary.jsonl"), phrases_column="phrases")
    rows = [{"text": "a"}, {"text": "b", "id": 1, "asked": "c"}, {"text": "d"}]
    documents = load_documents(write(tmp_path / "a.json", json.dumps(rows).encode()), query_column="asked")
    assert (documents["id"][:], documents["query"][:]) == (["", "1", ""], [None, "c", None])


def test_what_is_said_of_columns_is_said_once(tmp_path, caplog):
    rows = [{"text": "a", "summary": ["b", "c"]}, {"text": "d", "summary": ["e"]}]
    load_documents(write(tmp_path / "a.jsonl", as_json_lines(rows)))
    assert caplog.text.count("'summary' holds lists") == 1


def test_what_one_record_has_more_changes_no_column_of_the_others(tmp_path):
    rows = [{"text": f"a {number}", "doc_id": number} for number in range(9)]
    file = write(tmp_path / "a.jsonl", as_json_lines([*rows, rows[0] | {"id": "z"}]))
    assert load_documents(file)["id"][:] == [str(row["doc_id"]) for row in [*rows, rows[0]]]
    pairs = [{"sentence": f"a {number}", "label": "x"} for number in range(9)]
    file = write(tmp_path / "b.jsonl", as_json_lines([*pairs, pairs[0] | {"text": "z"}]))
    assert load_rows(file, resolve_pairs)["text"][:] == [row["sentence"] for row in [*pairs, pairs[0]]]


def test_a_column_of_others_makes_no_clear_one_doubtful(tmp_path):
    rows = [{"text": "a", "summary": "b"}, {"text": "c", "summary": "d", "content": "e", "reference": "f"}]
    documents = load_documents(write(tmp_path / "a.jsonl", as_json_lines(rows)))
    assert documents.to_list() == [{"text": "a", "summary": "b"}, {"text": "c", "summary": "d"}]


# Splits


def test_splits_by_file_name_folder_and_record(tmp_path, caplog):
    for name, row in (("train", ROWS[0]), ("dev", ROWS[1])):
        write(tmp_path / "files" / f"{name}.jsonl", as_json_lines([row]))
        write(tmp_path / "folders" / name / "part-0.jsonl", as_json_lines([row]))
    both = [{**ROWS[0], "split": "train"}, {**ROWS[1], "split": "val"}]
    write(tmp_path / "records.jsonl", as_json_lines(both))
    for source in ("files", "folders", "records.jsonl"):
        assert list(load_documents(tmp_path / source, split="train")) == LOADED[:1]
        assert list(load_documents(tmp_path / source, split="validation")) == LOADED[1:2]
        with pytest.raises(ValueError, match="'test'"):
            load_documents(tmp_path / source, split="test")
    with pytest.raises(ValueError, match=r"several splits \(train, validation\); pass split="):
        load_documents(tmp_path / "files")
    assert len(load_documents(tmp_path / "records.jsonl")) == 2
    assert "the records belong to several splits (train, val, …)" in caplog.text


def test_documents_whose_names_have_words_of_splits(tmp_path):
    names = ("bridge.txt", "driving-test.txt", "train-timetable.txt", "sub/dev.notes.md")
    files = [write(tmp_path / "docs" / name, b"A text.") for name in names]
    for source in (tmp_path / "docs", files):
        for streaming in (False, True):
            assert len(list(load_documents(source, streaming=streaming))) == 4
    assert len(load_documents(files[:3:2])) == len(load_documents(files[1:3])) == 2


def test_documents_of_splits_with_numbers(tmp_path):
    for name in ("train_01.txt", "train-00002-of-00003.txt", "test_1.txt", "README.txt"):
        write(tmp_path / name, b"A text.")
    assert len(load_documents(tmp_path, split="train")) == 2
    assert load_documents(tmp_path, split="test")["id"][:] == ["test_1"]
    with pytest.raises(ValueError, match=r"several splits \(test, train\); pass split="):
        load_documents(tmp_path)


def test_documents_in_folders_of_splits(tmp_path):
    for name in ("train/bridge.txt", "train/driving-lesson.md", "test/bees.txt", "README.md"):
        write(tmp_path / name, b"A text.")
    assert load_documents(tmp_path, split="train")["id"][:] == ["train/bridge", "train/driving-lesson"]
    assert load_documents(tmp_path, split="test")["id"][:] == ["test/bees"]
    with pytest.raises(ValueError, match=r"several splits \(test, train\); pass split="):
        load_documents(tmp_path)


def test_a_split_that_nothing_tells_of(tmp_path):
    with pytest.raises(BadLineError, match=r"a.jsonl:1: split='train' was asked for"):
        load_documents(write(tmp_path / "a.jsonl", as_json_lines(ROWS)), split="train")


# Bad lines

BAD_JSON = [
    (b'{"article": "cut off', "broken JSON"),
    (b'["a", "b"]', "one JSON object, got an array"),
    (b'{"abstract": "b", "id": 3}', "column 'article' is missing"),
    (b'{"article": 3, "abstract": "b", "id": 3}', "must hold a string"),
    (b'{"article": "  ", "abstract": "b", "id": 3}', "'article' is empty"),
    (b'{"article": "abc\xe9", "abstract": "b", "id": 3}', "invalid UTF-8: byte 0xe9 at offset 16"),
    (b'{"article": "\\ud800", "abstract": "b", "id": 3}', "unpaired surrogate"),
    (b"[" * 100_000, "nested too deeply"),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("line", "reason"), BAD_JSON)
def test_a_bad_line_stops_with_its_place(tmp_path, line, reason, streaming):
    lines = as_json_lines(ROWS).splitlines()
    path = write(tmp_path / "a.jsonl", b"\n".join([*lines[:2], line, *lines[2:]]))
    with pytest.raises(BadLineError, match=rf"a\.jsonl:3: .*{reason}"):
        list(load_documents(path, streaming=streaming))


@pytest.mark.parametrize("streaming", [False, True])
def test_bad_lines_are_set_aside(tmp_path, streaming, caplog):
    good = as_json_lines(ROWS).splitlines()
    lines = [line for pair in zip([line for line, _ in BAD_JSON], good * 2, strict=False) for line in pair]
    path = write(tmp_path / "a.jsonl", b"\n".join(lines))
    aside = tmp_path / "new" / "aside.jsonl"
    report = LoadReport()
    dataset = load_documents(path, streaming=streaming, bad_lines="set_aside", set_aside_file=aside, report=report)
    assert list(dataset) == (LOADED * 2)[: len(BAD_JSON)]
    assert list(dataset) == (LOADED * 2)[: len(BAD_JSON)]  # a second pass sets nothing aside again
    entries = [json.loads(line) for line in aside.read_text(encoding="utf-8").splitlines()]
    assert [entry["line"] for entry in entries] == list(range(1, 2 * len(BAD_JSON), 2))
    assert {entry["file"] for entry in entries} == {str(path)}
    for entry, (line, reason) in zip(entries, BAD_JSON, strict=True):
        assert reason in entry["reason"]
        assert entry["raw"].encode("utf-8", "surrogateescape") == line  # nothing of it is lost
    assert report.as_dict() == {"set_aside": len(BAD_JSON), "set_aside_file": str(aside)}
    assert f"{path}:1 set aside in {aside}: broken JSON" in caplog.text


def test_bad_lines_are_reported_again_when_the_cache_answers(tmp_path):
    path = write(tmp_path / "a.jsonl", as_json_lines(ROWS) + b"{\n")
    for name in ("first", "second"):
        report = LoadReport()
        aside = tmp_path / name
        load_documents(path, bad_lines="set_aside", set_aside_file=aside, report=report)
        assert report.set_aside == 1
        assert json.loads(aside.read_text())["line"] == 6


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path / "a.jsonl", as_json_lines(ROWS))
    assert len(load_documents(path)) == 5
    write(path, as_json_lines(ROWS[:2]))
    assert list(load_documents(path)) == LOADED[:2]


def test_empty_columns_of_csv(tmp_path):
    """As spreadsheets leave them at the end."""
    path = write(tmp_path / "a.csv", b"text,summary,,\r\nIt rained.,Rain.,,\r\n")
    assert load_documents(path)[0] == {"text": "It rained.", "summary": "Rain."}


@pytest.mark.parametrize(("mark", "says"), [(";", "between semicolons.*with commas"), ("\t", "between tabs.*in .tsv")])
def test_other_marks_between_the_columns_of_csv_are_said(tmp_path, mark, says):
    path = write(tmp_path / "a.csv", as_csv([{"text": "It rained, and rained.", "summary": "Rain."}], mark))
    with pytest.raises(BadLineError, match=says):
        load_documents(path)


def test_bad_rows_of_csv(tmp_path):
    content = (
        as_csv(ROWS[:1]) + b'one,two\r\n"open "quote",a,b\r\nid,abc\xe9,c\r\n' + as_csv(ROWS).split(b"\r\n", 1)[1]
    )
    path = write(tmp_path / "a.csv", content)
    aside = tmp_path / "aside.jsonl"
    dataset = load_documents(path, bad_lines="set_aside", set_aside_file=aside)
    assert list(dataset) == LOADED[:1] + LOADED
    entries = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(entry["line"], entry["reason"].split(":")[0]) for entry in entries] == [
        (3, "2 fields where the header has 3"),
        (4, "broken CSV"),
        (5, "invalid UTF-8"),
    ]
    assert [entry["raw"].encode("utf-8", "surrogateescape") for entry in entries] == content.splitlines(True)[2:5]


def test_bad_elements_of_an_array(tmp_path):
    content = b'[\n{"text": "a"},\n3,\n{"text": ""},\n{"text": "b"},\n{"text": \n]'
    aside = tmp_path / "aside.jsonl"
    dataset = load_documents(write(tmp_path / "a.json", content), bad_lines="set_aside", set_aside_file=aside)
    assert list(dataset) == [{"text": "a"}, {"text": "b"}]
    assert [json.loads(line)["line"] for line in aside.read_text().splitlines()] == [3, 4, 6]


def test_an_object_over_several_lines_is_told_from_broken_lines(tmp_path, monkeypatch):
    content = json.dumps({"version": 1, "data": ROWS}, indent=1).encode()
    path = write(tmp_path / "a.json", content)
    with pytest.raises(BadLineError, match=r"a\.json:1: the file is one JSON object, of version, data; rows must"):
        load_documents(path)
    for name, lines in (("a.json", content[:-1]), ("b.jsonl", content), ("c.json", as_json_lines(ROWS) + b"{")):
        with pytest.raises(BadLineError, match="broken JSON"):
            load_documents(write(tmp_path / name, lines))
    monkeypatch.setattr(record_readers, "LOOKED_AT", len(content) - 1)
    with pytest.raises(BadLineError, match=r"a\.json:1: broken JSON"):
        load_documents(write(path, content))


@pytest.mark.parametrize("rest", [b'\n[{"text": "c"}]\n', b'{"text": "c"}', b",", b"]"])
def test_what_follows_an_array_is_a_bad_record(tmp_path, rest):
    path = write(tmp_path / "a.json", b'[\n{"text": "a"},\n{"text": "b"}\n] ' + rest)
    with pytest.raises(BadLineError, match=r"a\.json:4: broken JSON: the file goes on after the end of its array"):
        list(load_documents(path))
    aside = tmp_path / "aside.jsonl"
    dataset = load_documents(path, bad_lines="set_aside", set_aside_file=aside)
    assert list(dataset) == [{"text": "a"}, {"text": "b"}]
    assert json.loads(aside.read_text())["raw"] == rest.decode().strip()


def test_bad_text_files(tmp_path):
    write(tmp_path / "docs" / "a.txt", b"Fine.")
    write(tmp_path / "docs" / "b.txt", b"One line.\nThen \xff.")
    write(tmp_path / "docs" / "c.txt", b" \n")
    aside = tmp_path / "aside.jsonl"
    dataset = load_documents(tmp_path / "docs", bad_lines="set_aside", set_aside_file=aside)
    assert list(dataset) == [{"text": "Fine.", "id": "a"}]
    entries = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(Path(entry["file"]).name, entry["line"]) for entry in entries] == [("b.txt", 2), ("c.txt", 1)]


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_a_damaged_archive_is_a_bad_line(tmp_path, suffix, compress):
    rows = [{"text": f"{i} " + "abc" * (i % 97)} for i in range(20_000)]
    path = write(tmp_path / f"a.jsonl.{suffix}", compress(as_json_lines(rows))[:-40])
    with pytest.raises(BadLineError, match=rf"a\.jsonl\.{suffix}:\d+: the file is damaged after this line"):
        list(load_documents(path))


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_damage_in_the_middle_of_an_archive_is_a_bad_record(tmp_path, suffix, compress):
    rows = [{"text": f"{i} " + "abc" * (i % 97)} for i in range(20_000)]
    content = bytearray(compress(as_json_lines(rows)))
    content[len(content) // 2 : len(content) // 2 + 100] = b"\xff" * 100
    path = write(tmp_path / f"a.jsonl.{suffix}", bytes(content))
    *_, last = read_records(path)
    assert last.problem is not None
    assert last.problem.startswith("the file is damaged after this line and cannot be decompressed further (")


def test_the_first_record_may_be_bad_too(tmp_path):
    path = write(tmp_path / "a.jsonl", b'{"foo": 1}\n' + as_json_lines(ROWS))
    with pytest.raises(BadLineError, match=r"a\.jsonl:1: column 'article' is missing; this record has 'foo'"):
        load_documents(path)
    dataset = load_documents(path, bad_lines="set_aside", set_aside_file=tmp_path / "aside")
    assert list(dataset) == LOADED
    other = write(tmp_path / "b.jsonl", as_json_lines(ROWS))
    with pytest.raises(ValueError, match=r"no usable documents in .*b\.jsonl; the bad lines are in .*aside"):
        load_documents(other, split="test", bad_lines="set_aside", set_aside_file=tmp_path / "aside")


@pytest.mark.parametrize("streaming", [False, True])
def test_bad_lines_overwrite_nothing_of_the_user(tmp_path, streaming):
    content = b'{"text": "A text."}\nbroken\n'
    path = write(tmp_path / "docs" / "a.jsonl", content)
    other = write(tmp_path / "notes.txt", b"Not to be lost.\n")
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    options = {"bad_lines": "set_aside", "streaming": streaming}
    for source, aside, message in (
        (path, path, "is a file of the source"),
        (path, link, "is a file of the source"),
        (path, other, "is there already and holds something else"),
        (path, tmp_path, "is a folder"),
        (tmp_path / "docs", tmp_path / "docs" / "bad.jsonl", "lies in the folder of the source"),
    ):
        with pytest.raises(ValueError, match=f"set_aside_file: .*{message}"):
            load_documents(source, set_aside_file=aside, **options)
    assert path.read_bytes() == content
    assert other.read_bytes() == b"Not to be lost.\n"
    for _ in range(2):  # what a run before has set aside is written anew
        list(load_documents(path, set_aside_file=tmp_path / "bad.jsonl", **options))
    assert (tmp_path / "bad.jsonl").read_text().count("\n") == 1


def test_arguments_that_do_not_fit_cost_nothing(tmp_path):
    path = write(tmp_path / "a.jsonl", as_json_lines(ROWS))
    kept = b'{"file": "of the last run", "line": 3, "reason": "broken", "raw": "{"}\n'
    aside = write(tmp_path / "aside", kept)
    with pytest.raises(ValueError, match="bad_lines must be 'stop' or 'set_aside', got 'skip'"):
        load_documents(path, bad_lines="skip")
    with pytest.raises(ValueError, match="set_aside_file goes with bad_lines='set_aside'"):
        load_documents(path, bad_lines="set_aside")
    with pytest.raises(ValueError, match="set_aside_file goes with bad_lines='set_aside'"):
        load_documents(path, set_aside_file=aside)
    with pytest.raises(ValueError, match="config_name='x' is for datasets on the Hub"):
        load_documents(path, config_name="x")
    with pytest.raises(ValueError, match="text_column='nothing'"):
        load_documents(path, bad_lines="set_aside", set_aside_file=aside, text_column="nothing")
    assert aside.read_bytes() == kept


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.binary(max_size=40), min_size=1, max_size=8))
def test_no_bytes_crash_the_readers_and_none_are_lost(tmp_path, lines):
    lines = [line.replace(b"\n", b" ") for line in lines]
    path = write(tmp_path / "a.jsonl", b"\n".join([b'{"text": "good"}', *lines]))
    records = list(read_records(path))
    assert records[0].row == {"text": "good"}
    kept = {record.line for record in records}
    assert kept == {1} | {number for number, line in enumerate(lines, start=2) if line.strip()}
    for record in records[1:]:
        assert (record.row is None) != (record.problem is None)
        assert record.raw.encode("utf-8", "surrogateescape") == lines[record.line - 2].strip()
    for name in ("a.csv", "a.json", "a.txt"):
        for record in read_records(write(tmp_path / name, b"\n".join(lines))):
            assert (record.row is None) != (record.problem is None)


# Streaming


def test_streaming_reads_no_further_than_asked(tmp_path):
    path = write(tmp_path / "a.jsonl", as_json_lines(ROWS) + b"broken\n")
    stream = load_documents(path, streaming=True)
    assert list(stream.take(3)) == LOADED[:3]
    with pytest.raises(BadLineError):
        list(stream)


def test_streaming_needs_little_memory(tmp_path):
    rows = ({"text": f"{i} " + "word " * 20_000} for i in range(200))
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", compresslevel=1) as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)  # 20 million characters
    dataset = load_documents(tmp_path / "a.jsonl.gz", streaming=True)
    tracemalloc.start()
    assert sum(1 for _ in dataset) == 200
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000


def test_workers_share_out_the_files_and_count_together(tmp_path):
    for i, row in enumerate(ROWS):
        write(tmp_path / "data" / f"{i}.jsonl", as_json_lines([row]) + b"broken\n")
    report = LoadReport()
    aside = tmp_path / "aside"
    dataset = load_documents(
        tmp_path / "data", streaming=True, bad_lines="set_aside", set_aside_file=aside, report=report
    )
    for _ in range(2):  # each epoch has new workers
        batches = list(DataLoader(dataset, num_workers=2, batch_size=None))
        assert sorted(row["id"] for row in batches) == [row["id"] for row in ROWS]
    assert report.set_aside == 5
    assert len(aside.read_text().splitlines()) == 5


# The Hub


@pytest.fixture
def hub(monkeypatch):
    calls = []
    rows = [*ROWS, {"id": "bad", "article": "", "abstract": "b"}]

    def load_dataset(path, name, revision=None, split=None, streaming=False):
        calls.append((path, name, split, streaming) if revision is None else (path, name, revision))
        if path == "no/such":
            raise datasets.exceptions.DatasetNotFoundError("Dataset 'no/such' doesn't exist on the Hub")
        dataset = Dataset.from_list(rows)
        dataset = dataset.to_iterable_dataset(num_shards=2) if streaming else dataset
        if split is not None:
            return dataset
        return {"train": dataset} if path == "one/split" else {"train": dataset, "test": dataset}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


@pytest.mark.parametrize("streaming", [False, True])
def test_hub(hub, tmp_path, streaming):
    report = LoadReport()
    dataset = load_documents(
        "some/papers",
        split="train[:90%]",
        config_name="full",
        streaming=streaming,
        bad_lines="set_aside",
        set_aside_file=tmp_path / "aside",
        report=report,
    )
    assert list(dataset) == LOADED
    assert set(dataset.column_names) == {"text", "summary", "id"}
    assert hub == [("some/papers", "full", "train[:90%]", streaming)]
    assert report.set_aside == 1
    entry = json.loads((tmp_path / "aside").read_text())
    assert (entry["file"], entry["line"]) == ("some/papers", 6)
    assert "'article' is empty" in entry["reason"]
    with pytest.raises(BadLineError, match=r"some/papers: row 6: column 'article' is empty"):
        list(load_documents("some/papers", split="train", streaming=streaming))


def test_hub_splits_and_errors(hub, tmp_path):
    with pytest.raises(ValueError, match="has the splits train, test; pass split="):
        load_documents("some/papers")
    dataset = load_documents("one/split", bad_lines="set_aside", set_aside_file=tmp_path / "aside")
    assert len(dataset) == 5
    with pytest.raises(
        FileNotFoundError, match="'no/such' is no file or folder here, and loading it from the Hub failed"
    ):
        load_documents("no/such")


def test_logging_of_many_bad_lines_is_brief(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", as_json_lines(ROWS) + b"broken\n" * 500)
    with caplog.at_level(logging.WARNING):
        load_documents(path, bad_lines="set_aside", set_aside_file=tmp_path / "aside")
    assert len(caplog.records) <= 5
    assert "500 of 505 lines set aside" in caplog.text


def test_revision(hub, tmp_path):
    load_documents("some/papers", split="train", revision="refs/convert/parquet", summary_column="", **aside(tmp_path))
    assert hub == [("some/papers", None, "refs/convert/parquet")]
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match=r"revision='main' is for datasets on the Hub; .* is local"):
        load_documents(tmp_path / "a.jsonl", revision="main")


def aside(tmp_path):
    return {"bad_lines": "set_aside", "set_aside_file": tmp_path / "aside"}


# Kinds by name


def test_a_dialogue_in_any_column(tmp_path):
    """SAMSum's dialogues are lines of text."""
    dialogue = "Ann: Hi: you?\r\nBob Lee: Yes.\r\nand more\r\n\r\nAnn:\r\nAnn: http://a.b/c"
    row = json.dumps({"chat": dialogue, "summary": "a"})
    (tmp_path / "a.jsonl").write_text(row + "\n")
    report = LoadReport()
    (turns,) = load_documents(tmp_path / "a.jsonl", text_column="chat", source_kind="turns", report=report)["turns"]
    assert turns == [
        {"role": "Ann", "content": "Hi: you?"},
        {"role": "Bob Lee", "content": "Yes.\nand more"},
        {"role": "Ann", "content": "http://a.b/c"},
    ]
    assert report.dropped_turns == 1
    assert load_documents(tmp_path / "a.jsonl", text_column="chat")["text"] == [dialogue]
    (tmp_path / "a.jsonl").write_text(row + "\n" + json.dumps({"chat": "no one speaks", "summary": "a"}) + "\n")
    with pytest.raises(
        BadLineError, match=r"a\.jsonl:2: column 'chat' is a dialogue, but its first line has no 'role: '"
    ):
        load_documents(tmp_path / "a.jsonl", text_column="chat", source_kind="turns")


def test_kinds_by_name(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"parts": ["a", "b"]}\n')
    assert load_documents(path, text_column="parts")["sentences"] == [["a", "b"]]
    assert load_documents(path, text_column="parts", source_kind="documents")["documents"] == [["a", "b"]]
    with pytest.raises(BadLineError, match="'parts' must hold a string"):
        load_documents(path, text_column="parts", source_kind="text")
    with pytest.raises(ValueError, match="source_kind must be one of text, sentences, turns, documents, got 'turn'"):
        load_documents(path, source_kind="turn")


def test_several_references_and_digits(tmp_path):
    file = tmp_path / "news.jsonl"
    file.write_text(
        '{"article": "Won 3 of 4.", "highlights": "3 won .\\nIt rained ."}\n{"article": "b", "highlights": "c"}\n'
    )
    for streaming in (False, True):
        documents = load_documents(file, several_references=True, digits="#", streaming=streaming)
        assert list(documents) == [
            {"text": "Won # of #.", "summary": "# won .", "references": ["# won .", "It rained ."]},
            {"text": "b", "summary": "c", "references": ["c"]},
        ]
    assert load_documents(file)[0]["summary"] == "3 won .\nIt rained ."
    table = write(tmp_path / "news.csv", as_csv([{"article": "b", "highlights": '["3 won .", "It rained ."]'}]))
    assert load_documents(table, several_references=True)[0]["references"] == ["3 won .", "It rained ."]
    assert load_documents(table)[0]["summary"] == "3 won .\nIt rained ."
    with pytest.raises(ValueError, match="digits must be a single character"):
        load_documents(file, digits="12")

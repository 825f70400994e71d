"""The scripts of examples/mini, and queries.py, on made-up rows: what is kept, counted and written."""

import bz2
import gzip
import json
import lzma
import random
import re
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, EvalPrediction

import hier_models
from tests.experiments.scripts import MINI, load_script


ROWS = [
    {
        "document": f"Bee {name} dances at noon. The {name} hive hums.",
        "summary": f"Bee {name} dances.",
        "length": length,
    }
    for name, length in zip(("Ada", "Bea", "Cleo", "Dora"), ("line", "short", "long", "short"), strict=True)
]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scores.py, whose systems write their name and the beginning of the document; `calls` says for what."""
    script = load_script("scores", MINI)
    script.calls = []
    script.sizes = []

    def system(name: str) -> Any:
        def summarize(documents: list[str], length: str) -> list[str]:
            script.calls += [(name, document, length) for document in documents]
            script.sizes.append(len(documents))
            return [f"{name}: {document[:7]}." for document in documents]

        return summarize

    monkeypatch.setattr(script, "system", system)
    return script


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [script.__file__, *map(str, arguments)])
    script.main()


def test_a_kept_summary_is_of_the_same_document_length_and_system(
    scores: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def written(name: str, rows: list[dict[str, str]]) -> list[str]:
        return [entry["summary"] for entry in scores.summaries(name, rows, "bees", tmp_path, [scores.system(name)])]

    first = written("bee=a", ROWS[:2])
    assert written("bee=a", ROWS) == [*first, "bee=a: Bee Cle.", "bee=a: Bee Dor."]  # goes on
    assert len(scores.calls) == 4
    assert written("bee=a", ROWS[2:]) == ["bee=a: Bee Cle.", "bee=a: Bee Dor."]
    assert len(scores.calls) == 4
    assert written("bee=b", ROWS[:1]) == ["bee=b: Bee Ada."]
    written("bee=a", [{**ROWS[0], "length": "long"}])
    assert scores.calls[4:] == [("bee=b", ROWS[0]["document"], "line"), ("bee=a", ROWS[0]["document"], "long")]


def test_batches_are_of_one_length_and_in_the_order_of_rows(scores: ModuleType, tmp_path: Path) -> None:
    rows = [*ROWS, {**ROWS[1], "document": "Bee Eve rests."}]
    entries = scores.summaries("bee", rows, "bees", tmp_path, [scores.system("bee")], batch=2)
    assert [entry["summary"] for entry in entries] == [f"bee: {row['document'][:7]}." for row in rows]
    assert scores.sizes == [1, 2, 1, 1]
    assert [document for _, document, length in scores.calls if length == "short"] == [
        rows[n]["document"] for n in (4, 1, 3)
    ]


def test_a_kept_summary_is_of_the_same_weights(scores: ModuleType, tmp_path: Path) -> None:
    weights = tmp_path / "bee" / "model.safetensors"
    write_rows(weights, ROWS)
    name = f"bee={weights.parent}"
    for _ in range(2):
        scores.summaries(name, ROWS, "bees", tmp_path, [scores.system("bee")])
    assert len(scores.calls) == 4
    write_rows(weights, ROWS[:1])
    scores.summaries(name, ROWS, "bees", tmp_path, [scores.system("bee")])
    assert len(scores.calls) == 8


def test_rows_that_were_kept_without_a_digest_are_written_anew(scores: ModuleType, tmp_path: Path) -> None:
    write_rows(tmp_path / "bee" / "bees.jsonl", [{"summary": "Whose?", "seconds": 1.0, "memory": 1.0}])
    entries = scores.summaries("bee", ROWS[:1], "bees", tmp_path, [scores.system("bee")])
    assert [entry["summary"] for entry in entries] == ["bee: Bee Ada."]


def test_what_is_not_counted_has_no_number_and_empty_domains_are_said(
    scores: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / "lines.jsonl", ROWS[:1])
    write_rows(tmp_path / "empty.jsonl", [])
    common = ("bee", "--pairs", tmp_path, "--output", tmp_path / "out", "--domains")
    run(scores, monkeypatch, *common, "empty", "lines", "missing")
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if "rows" in line] == ["empty: no rows", "missing: no rows"]
    (row,) = printed.out.splitlines()[2:]
    assert row.split(" | ")[6] == "–"
    assert row.startswith("| lines | bee |")
    with pytest.raises(SystemExit, match="nothing to score"):
        run(scores, monkeypatch, *common, "missing")


def test_what_people_wrote_is_scored_like_a_system(
    scores: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"document": "Ada saw bees.", "summary": "Ada saw 12 bees. Ada saw 12 bees.", "length": "short"}
    write_rows(tmp_path / "bees.jsonl", [told])
    run(scores, monkeypatch, "reference", "--pairs", tmp_path, "--output", tmp_path / "out", "--domains", "bees")
    (row,) = capsys.readouterr().out.splitlines()[2:]
    quality = scores.quality([told], [{**told, "seconds": 0, "memory": 0}])
    shares = [scores.cell(key, quality[key]) for key in ("facts", "repeated", "finished")]
    assert row.split(" | ")[1:7] == ["reference", "100.0 / 100.0 / 100.0", "", *shares]
    assert float(shares[0]) < 100
    assert float(shares[1]) > 0
    assert not scores.calls


def test_all_is_written_before_anything_is_scored(
    scores: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for domain in ("one", "two"):
        write_rows(tmp_path / f"{domain}.jsonl", ROWS)
    score = scores.score_documents
    seen: list[int] = []
    monkeypatch.setattr(scores, "score_documents", lambda *args: (seen.append(len(scores.calls)), score(*args))[1])
    run(scores, monkeypatch, "bee", "--pairs", tmp_path, "--output", tmp_path / "out", "--domains", "one", "two")
    assert seen == [8, 8]


def test_seconds_are_a_median_and_memory_is_in_megabytes(scores: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [{"summary": "A bee.", "seconds": seconds, "memory": 1.0} for seconds in (1.0, 2.0, 4.0, 9.0)]
    assert scores.quality(ROWS, written)["seconds"] == 3.0
    peak = scores.peak_memory()
    monkeypatch.setattr(scores.sys, "platform", "darwin" if sys.platform != "darwin" else "linux")
    assert scores.peak_memory() != pytest.approx(peak, rel=0.5)


def test_answers_are_of_the_same_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("prepare", "scores"):  # those of mini, which no other test is to find
        monkeypatch.delitem(sys.modules, name, raising=False)
    script = load_script("queries")
    for name in ("prepare", "scores"):
        sys.modules.pop(name, None)
    rows = [
        {"kind": kind, "text": row["document"], "query": "Who?", "answers": [row["summary"]]}
        for row in ROWS
        for kind in ("stories", "meetings")
    ]
    calls: list[tuple[str, int]] = []

    def system(name: str) -> Any:
        def answer(asked: list[dict[str, Any]]) -> list[str]:
            calls.append((name, len(asked)))
            return [name] * len(asked)

        return answer

    monkeypatch.setattr(script, "system", system)
    monkeypatch.setattr(script, "held_out", lambda folder: rows)
    output = tmp_path / "not" / "there"
    script.scores(tmp_path, output, ["variant=a"])
    assert [entry["answer"] for entry in lines(output / "variant.jsonl")] == ["variant=a"] * 8
    (output / "variant.jsonl").write_text(
        "".join((output / "variant.jsonl").read_text().splitlines(keepends=True)[:6])
    )
    calls.clear()
    script.scores(tmp_path, output, ["variant=a"])  # goes on
    assert calls == [("variant=a", 2)]
    calls.clear()
    script.scores(tmp_path, output, ["variant=b"])
    assert calls == [("variant=b", 6), ("variant=b", 2)]


def test_common_words_are_those_of_all_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load_script("common_words", MINI)
    monkeypatch.setattr(script, "SMALLEST_KIND", 1)
    monkeypatch.setattr(script, "KINDS", 1)
    for name in ("hums", "dances"):
        write_rows(tmp_path / f"{name}.jsonl", [{"document": "A bee", "summary": f"The bee {name}", "set": name}])
    write_rows(tmp_path / "empty.jsonl", [])
    files = [tmp_path / f"{name}.jsonl" for name in ("hums", "empty", "dances")]
    run(script, monkeypatch, *files)
    assert {"hums", "dances"} <= set(capsys.readouterr().out.split())
    run(script, monkeypatch, "--check", *files)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in printed[1:]] == ["hums", "empty", "dances"]
    assert printed[2] == ["empty", "no", "rows"]


# prepare.py

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]


def text(seed: str) -> str:
    generator = random.Random(seed)
    return " ".join(f"{' '.join(generator.choices(WORDS, k=14)).capitalize()}." for _ in range(4))


def rows_of_a_set(script: ModuleType, name: str) -> list[dict[str, str]]:
    """Two documents to train on, a held-out one, and one that has a passage of it and nothing to learn."""
    keys = [f"{name} {number}" for number in range(400)]
    held = next(key for key in keys if script.is_development(key))
    train = [key for key in keys if not script.is_development(key)][:3]
    rows = [{"source": key, "document": text(key), "summary": text(key).split(".")[0] + "."} for key in (*train, held)]
    rows[0] |= {"document": f"{text('other')} {text(held)}", "summary": "Nothing of this was ever in there."}
    return rows


@pytest.fixture
def prepare() -> ModuleType:
    return load_script("prepare", MINI)


def test_what_is_held_out_is_not_in_the_warm_up(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = rows_of_a_set(prepare, "elife_abstract")
    (tmp_path / "elife_abstract.jsonl.xz").write_bytes(lzma.compress("\n".join(map(json.dumps, rows)).encode()))
    run(prepare, monkeypatch, "--data", tmp_path, "--output", tmp_path / "out")
    documents = [row["document"] for row in rows]
    assert [row["document"] for row in lines(tmp_path / "out" / "pairs" / "papers.jsonl")] == documents[3:]
    assert {row["document"] for row in lines(tmp_path / "out" / "pairs" / "train.jsonl")} == set(documents[1:3])
    warm_up = lines(tmp_path / "out" / "warm_up" / "train.jsonl")
    assert sorted(row["text"] for row in warm_up) == sorted(documents[1:3])
    assert lines(tmp_path / "out" / "warm_up" / "validation.jsonl") == [{"text": documents[3]}]
    assert (tmp_path / "out" / "pairs" / "gaps.jsonl").exists()


def test_the_order_of_what_is_held_out_does_not_hang_on_what_is_kept(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = [f"paper {number}" for number in range(400)]
    held = [key for key in keys if prepare.is_development(key)]
    train = [key for key in keys if not prepare.is_development(key)]
    orders = []
    for kept in (8, 9):
        chosen = (*train[:kept], *held)
        rows = [{"source": key, "document": text(key), "summary": text(key).split(".")[0] + "."} for key in chosen]
        write_rows(tmp_path / "elife_abstract.jsonl", rows)
        run(prepare, monkeypatch, "--data", tmp_path, "--output", tmp_path / "out")
        orders.append([row["document"] for row in lines(tmp_path / "out" / "pairs" / "papers.jsonl")])
    assert len(orders[0]) == len(held) > 5
    assert orders[0] == orders[1] != [text(key) for key in held]


def test_of_texts_with_gaps_what_is_asked_for_stands_where_it_was_or_is_missing_there(prepare: ModuleType) -> None:
    sentences = [sentence for part in range(20) for sentence in re.findall(r"[^.]+\.", text(f"gaps {part}"))]
    whole = [sentence.strip() for sentence in sentences]
    whole[0] = f"Of Bees\n{whole[0]}"
    rows = prepare.with_gaps(" ".join(whole), random.Random(0))
    assert len(rows) == prepare.PARTS
    stay, asked_for = 0, 0
    for row in rows:
        assert len(row["document"].split()) < prepare.PART.stop
        parts, asked = row["document"].split(prepare.GAP), re.findall(r"[^.]+\.", row["summary"])
        missing = [one.strip() for one in asked if one.strip() not in row["document"]]
        assert len(missing) == len(parts) - 1
        filled = "".join(chain.from_iterable(zip(parts, [*missing, ""], strict=True)))
        assert filled in " ".join(whole)
        stay, asked_for = stay + len(asked) - len(missing), asked_for + len(asked)
    assert 0 < stay < asked_for
    assert not prepare.with_gaps("Bees dance. Hives hum.", random.Random(0))
    assert not prepare.with_gaps("bees and hives " * 60, random.Random(0))


def test_sets_are_read_as_they_are_compressed(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ways = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    (tmp_path / "pairs").mkdir()
    for suffix, way in ways.items():
        rows = "\n".join(map(json.dumps, rows_of_a_set(prepare, "digitalgov")))
        place = tmp_path / "pairs" if suffix == ".gz" else tmp_path
        path = place / f"digitalgov.jsonl{suffix}"
        path.write_bytes(way(rows.encode()))
        assert prepare.file_of(tmp_path, "digitalgov") == path
        assert len(list(prepare.read(tmp_path, "digitalgov"))) == 4
        path.unlink()
    (tmp_path / "digitalgov.jsonl").write_text("{")
    with pytest.raises(SystemExit, match=r"digitalgov.jsonl:1: broken JSON"):
        list(prepare.read(tmp_path, "digitalgov"))


@pytest.mark.parametrize("there", [False, True], ids=["no folder", "no set"])
def test_a_wrong_folder_leaves_what_was_written(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: bool
) -> None:
    write_rows(tmp_path / "out" / "pairs" / "train.jsonl", ROWS)
    if there:
        write_rows(tmp_path / "data" / "others.jsonl", ROWS)
    with pytest.raises(SystemExit, match="has none of the sets"):
        run(prepare, monkeypatch, "--data", tmp_path / "data", "--output", tmp_path / "out")
    assert lines(tmp_path / "out" / "pairs" / "train.jsonl") == ROWS


def test_of_nothing_held_out_no_file_is_written_and_a_stopped_one_leaves_the_old(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_rows(tmp_path / "elife_abstract.jsonl", rows_of_a_set(prepare, "elife_abstract")[1:3])
    run(prepare, monkeypatch, "--data", tmp_path, "--output", tmp_path / "out")
    train = tmp_path / "out" / "pairs" / "train.jsonl"
    assert len(lines(train)) == 2
    assert not (tmp_path / "out" / "pairs" / "papers.jsonl").exists()
    with pytest.raises(TypeError):
        prepare.write(train, [{"document": "a"}, {"document": {1, 2}}])
    assert len(lines(train)) == 2


# passages.py


@pytest.fixture
def passages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(MINI)
    return load_script("passages", MINI)


TURNS = [[who, text(f"{who} {number}")] for number in range(60) for who in ("Ann", "Bob")]


def test_what_is_said_goes_with_the_passage_that_it_is_said_of(passages: ModuleType) -> None:
    units = [f"{who}: {said} So much of zebra{place} and quince{place}." for place, (who, said) in enumerate(TURNS)]
    for place in (0, 47, len(units) - 1):
        said = f"{TURNS[place][1].split('. ')[0]} with zebra{place} and quince{place}."
        (pair,) = passages.said_of("qmsum", units, [said], random.Random(0))
        assert units[place] in pair["document"].split("\n")
        assert len(pair["document"].split()) <= passages.LONGEST
        assert pair["summary"] == said
    unknown = "Nobody in this talk ever spoke of zebras, quince or marble."
    assert not passages.said_of("qmsum", units, [unknown], random.Random(0))
    assert not passages.said_of("qmsum", ["word " * 400], ["word " * 10], random.Random(0))  # too long for a passage


def test_long_summaries_are_of_several_passages(passages: ModuleType) -> None:
    units = [f"{who}: {said}" for who, said in TURNS]
    summary = " ".join(said for _, said in TURNS[::20])
    pairs = passages.said_of("crd3", units, [summary], random.Random(0))
    assert " ".join(pair["summary"] for pair in pairs) == summary
    assert len({pair["document"] for pair in pairs}) > 1
    for pair in pairs:
        words = set(re.findall(r"\w+", pair["summary"].casefold()))
        assert len(words & set(re.findall(r"\w+", pair["document"].casefold()))) >= 0.5 * len(words)


def test_of_a_talk_its_own_sentences_are_asked_for_without_names(passages: ModuleType) -> None:
    units = [f"{who}: {said}" for who, said in TURNS]
    pairs = passages.with_own("qmsum", units, random.Random(0))
    stay = asked = 0
    for pair in pairs:
        sentences = re.findall(r"[^.]+\.", pair["summary"])
        stay += sum(one.strip() in pair["document"] for one in sentences)
        asked += len(sentences)
        assert not re.search("Ann|Bob", pair["summary"])
        assert re.search("(?m)^(Ann|Bob): ", pair["document"])
        assert pair["document"].count(passages.GAP) == sum(one.strip() not in pair["document"] for one in sentences)
    assert 0.5 < stay / asked < 0.9
    assert not passages.with_own("qmsum", ["Ann: yes", "Bob: no"] * 100, random.Random(0))  # nothing is a sentence


def test_both_files_of_passages(passages: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    held = next(name for name in map(str, range(400)) if passages.is_development(name))
    own = next(name for name in map(str, range(400)) if not passages.is_development(name))
    held_out = [[who, text(f"held out {number}")] for number, (who, _) in enumerate(TURNS)]
    queries = [["What?", said] for _, said in TURNS[::7]]
    noisy = [[who, said.replace(". ", " . {disfmarker} Um , ")] for who, said in TURNS]
    rows = [{"id": own, "turns": noisy, "queries": queries}, {"id": held, "turns": held_out, "queries": queries}]
    write_rows(tmp_path / "qmsum.jsonl", rows)
    pairs = tmp_path / "pairs"
    for name in ("train", "extracts", "last"):
        sets = [("She hums.", "asrs"), (f"Bees {name}.", "asrs"), ("What do bees eat?", "meqsum")]
        write_rows(pairs / f"{name}.jsonl", [{"document": "Bees.", "summary": one, "set": its} for one, its in sets])
    run(passages, monkeypatch, "--data", tmp_path, "--pairs", pairs)
    first, last = (lines(pairs / f"{name}.jsonl") for name in ("passages", "passages_last"))
    assert {"She hums.", "Bees train.", "Bees extracts.", "What do bees eat?"} < {row["summary"] for row in first}
    summaries = {row["summary"] for row in last}
    assert "Bees last." in summaries
    assert not summaries & {"She hums.", "What do bees eat?"}
    assert {said for _, said in queries} <= {row["summary"] for row in first}
    for row in first + last:
        assert "disfmarker" not in row["document"] + row["summary"]
        assert not any(said in row["document"] for _, said in held_out)
    before = (pairs / "passages.jsonl").read_bytes()
    run(passages, monkeypatch, "--data", tmp_path, "--pairs", pairs)
    assert (pairs / "passages.jsonl").read_bytes() == before


# candidates.py and ranked.py


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with candidates for a few documents of two lengths, one of them a page."""
    monkeypatch.syspath_prepend(MINI)
    script, prepare = load_script("candidates", MINI), load_script("prepare", MINI)
    keys = [key for key in map(str, range(100)) if not prepare.is_development(key)]
    told = [
        f"On day {key} the keeper of the bees rode to the market in Aldenport and sold twelve jars." for key in keys
    ]
    page = " ".join(told[10:50])
    rows = [
        *(
            {"source": key, "document": " ".join(told[n : n + 3]), "summary": told[n]}
            for n, key in enumerate(keys[:3])
        ),
        {"source": keys[3], "document": page, "summary": " ".join(told[10:20])},
    ]
    write_rows(tmp_path / "data" / "elife_abstract.jsonl", rows)
    write_rows(tmp_path / "train.jsonl", [{"set": "elife_abstract", "summary": row["summary"]} for row in rows])
    run(script, monkeypatch, "--data", tmp_path / "data", "--pairs", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_signs_that_the_tokenizer_in_the_package_reads_are_those_of_the_script() -> None:
    state = json.loads((Path(hier_models.MINI) / "tokenizer.json").read_text(encoding="utf-8"))
    again = json.loads(json.dumps(state))
    load_script("base", MINI).read_signs(again)
    assert again == state
    assert len(again["normalizer"]["normalizers"]) > 20


def test_candidates_are_written_and_scored_and_their_order_is_learned(
    candidates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = lines(candidates / "candidates_0.jsonl")
    assert len(rows) > 4  # a page has several
    tokenizer = AutoTokenizer.from_pretrained(hier_models.MINI)
    begin = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(["[line]", "[short]"])]
    for row in rows:
        assert len(row["candidates"]) == len(row["scores"]) == len(row["rouge"]) > 1
        assert len({tuple(one) for one in row["candidates"]}) == len(row["candidates"])
        for one, score, rouge in zip(row["candidates"], row["scores"], row["rouge"], strict=True):
            assert (one[0], one[1] in begin[1:], one.count(begin[1]) + one.count(begin[2])) == (begin[0], True, 1)
            assert score <= rouge
    assert sum(max(row["rouge"]) == pytest.approx(100) for row in rows) == 3  # the sentence itself
    parts = [row["candidates"] for row in rows if row["candidates"][0][1] == begin[2]]  # of the page
    begun = [
        [one for one in part for other in part if one[:-1] == other[: len(one) - 1] != other[:-1]] for part in parts
    ]
    assert all(begun)  # some end early
    script = load_script("ranked", MINI)
    model = AutoModelForSeq2SeqLM.from_pretrained(hier_models.MINI, dtype=torch.float32)

    def likelihoods(model: Any, row: dict[str, Any]) -> torch.Tensor:
        batch = script.collate([row])
        labels, scores, _ = (batch.pop(name) for name in ("labels", "scores", "rouge"))
        assert scores.tolist() == [pytest.approx(row["scores"])]
        with torch.no_grad():
            means: torch.Tensor = script.mean_log_probabilities(model(**batch).logits, labels)
        return means

    for row in rows[:2]:
        inputs = {"input_ids": torch.tensor([row["inputs"]["input_ids"]])}
        for mean, ids in zip(likelihoods(model, row), row["candidates"], strict=True):
            with torch.no_grad():
                logs = model(**inputs, decoder_input_ids=torch.tensor([ids[:-1]])).logits[0]
            expected = sum(float(logs[n, token]) for n, token in enumerate(ids[1:]) if n > 0) / len(ids[1:])
            assert float(mean) == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(script, "STEP", 2)
    output = candidates / "ranked"
    run(script, monkeypatch, "--pairs", candidates, "--output", output, "--steps", 12)
    trained = AutoModelForSeq2SeqLM.from_pretrained(output, dtype=torch.float32)

    def wrong(model: Any) -> float:
        return sum(float(script.losses(likelihoods(model, row), torch.tensor(row["scores"]))[0]) for row in rows)

    assert wrong(trained) < 0.8 * wrong(model)
    weights = (output / "model.safetensors").read_bytes()
    run(script, monkeypatch, "--pairs", candidates, "--output", output, "--steps", 12)  # has nothing left to do
    assert (output / "model.safetensors").read_bytes() == weights


def test_the_order_loss_is_that_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("ranked", MINI)
    means = torch.tensor([-0.5, -0.2, -0.9], requires_grad=True)
    order, likelihood = script.losses(means, torch.tensor([40.0, 20.0, 30.0]))
    pairs = [max(0, other - own + script.MARGIN * gap) for own, other, gap in ((-0.5, -0.2, 0.2), (-0.5, -0.9, 0.1))]
    pairs.append(max(0, -0.2 + 0.9 + script.MARGIN * 0.1))  # the second is likelier, and worse, than the third
    assert order.item() == pytest.approx(sum(pairs) / 3)
    assert likelihood.item() == pytest.approx(0.5)
    order, _ = script.losses(means, torch.tensor([10.0, 10.0, 10.0]))  # no order
    order.backward()
    assert means.grad.tolist() == [0, 0, 0]


def test_of_held_out_documents_the_likeliest_candidate_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("ranked", MINI)
    means = np.array([[-0.5, -0.2, -0.9], [-0.7, -0.9, -100.0]])
    rouge = np.array([[40.0, 20.0, 30.0], [10.0, 12.0, -100.0]])
    found = script.compute_metrics(EvalPrediction(means, (rouge, rouge)))
    assert found == {"chosen": 15.0, "searched": 25.0, "best": 26.0}

import gzip
import json
import shutil
from pathlib import Path

import docx
import pytest

from hier_models import HamConfig, HamForConditionalGeneration
from tests.cli.commands import run, write_jsonl
from tests.ham.poems import FIVE, POEMS, poem_processor


def test_a_poem_from_a_text_a_file_or_standard_input(poet):
    result = run("poem", "-m", poet, "春风吹青山", "--length", "5")
    assert [len(line) for line in result.stdout.splitlines()] == [5] * 4
    assert "Keywords: 山 青 风 春" in result.stderr
    Path("text.txt").write_text("春风吹青山", encoding="utf-8")
    assert run("poem", "-m", poet, "text.txt", "--length", "5").stdout == result.stdout
    assert run("poem", "-m", poet, "--length", "5", stdin="春风吹青山").stdout == result.stdout
    assert run("poem", "-m", poet, "--length", "5", stdin="\ufeff春风吹青山").stdout == result.stdout
    refused = run("poem", "-m", poet, "--length", "5", stdin="春风".encode("gb18030"), code=2).stderr
    assert "standard input is not a text file" in refused
    Path("text.txt.gz").write_bytes(gzip.compress("春风吹青山".encode()))
    assert run("poem", "-m", poet, "text.txt.gz", "--length", "5").stdout == result.stdout
    document = docx.Document()
    document.add_paragraph("春风吹青山")
    document.save("text.docx")
    assert run("poem", "-m", poet, "text.docx", "--length", "5").stdout == result.stdout
    page = "<html><body><p>春风 吹青山</p><pre><code>明月</code></pre></body></html>"
    Path("text.html").write_text(page, encoding="utf-8")
    of_page = run("poem", "-m", poet, "text.html", "--length", "5")
    assert of_page.stdout == result.stdout
    assert "Left out of the pages: 1 word of code" in of_page.stderr
    Path("text.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ann>春风\n", encoding="utf-8")
    assert "text.vtt is a dialogue; give a text" in run("poem", "-m", poet, "text.vtt", code=2).stderr
    assert [len(line) for line in run("poem", "-m", poet, "春风").stdout.splitlines()] == [7] * 4


def test_an_empty_text_is_not_the_folder(poet):
    Path("text.txt").write_text("春风吹青山", encoding="utf-8")
    result = run("poem", "-m", poet, "", code=2)
    assert result.stdout == ""
    assert "TEXT: " in result.stderr


def test_a_file_that_is_not_there_is_no_text(poet):
    for name in ("letters.jsonl", "春天.txt", "春天.txt.gz", "春天.docx", "./春天", "春/天.md"):
        assert f"TEXT: there is no file or folder '{name}'" in run("poem", "-m", poet, name, code=2).stderr
    for text in ("春风/青山", "看 春天.txt", "春天。/", "/春风"):
        assert run("poem", "-m", poet, text).stdout


def test_keywords_and_candidates(poet):
    result = run("poem", "-m", poet, "-k", "花", "-k", "月", "--candidates", "2", "--num-beams", "3")
    assert [len(line) for line in result.stdout.splitlines()] == [7, 7, 7, 7, 0, 7, 7, 7, 7]
    assert "Keywords: 花 月" in result.stderr
    assert "2 of them added" in result.stderr
    result = run("poem", "-m", poet, "-k", "花", "-k", "月", "--candidates", "2", "--json")
    poems = [json.loads(line) for line in result.stdout.splitlines()]
    assert [set(poem) for poem in poems] == [{"lines", "keywords", "num_added_keywords", "score"}] * 2
    sampled = [run("poem", "-m", poet, "春风", "--set", "do_sample=true", "--seed", "7").stdout for _ in range(2)]
    assert sampled[0] == sampled[1]


def test_rhymes_and_tones(poet):
    options = ("--rhyme", "--tones", "--candidates", "3", "--json", "--length", "5", "--seed", "1")
    poems = [json.loads(line) for line in run("poem", "-m", poet, "春风", *options).stdout.splitlines()]
    assert [set(poem) for poem in poems] == [
        {"lines", "keywords", "num_added_keywords", "score", "rhyme", "tones"}
    ] * 3
    sounds = poem_processor().poem_keywords.sounds
    for poem in poems:
        assert poem["rhyme"] == sounds.rhyme(poem["lines"][1][-1], poem["lines"][3][-1])
        assert poem["tones"] == bool(sounds.forms(poem["lines"]))
    assert any(poem["rhyme"] for poem in poems)
    write_jsonl("texts.jsonl", [{"text": "春风"}])
    run("poem", "-m", poet, "texts.jsonl", "-o", "out.jsonl", "--rhyme")
    (record,) = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert record["settings"]["rhyme"] is True
    assert record["rhyme"] in (True, False)
    # A poet that was trained before poems had sounds.
    old = Path(shutil.copytree(poet, "old"))
    content = json.loads((old / "poem_keywords.json").read_text(encoding="utf-8"))
    del content["sounds"]
    (old / "poem_keywords.json").write_text(json.dumps(content), encoding="utf-8")
    for text in ("春风", "texts.jsonl"):
        error = run("poem", "-m", str(old), text, "--tones", code=2).stderr
        assert "--tones: `rhyme` and `tones` need to know how characters sound" in error
    assert run("poem", "-m", str(old), "春风").stdout


def test_a_file_of_texts_can_be_continued(poet):
    texts = {"a": "春风吹青山", "b": "明月", "c": "小院花开"}
    rows = [json.dumps({"id": name, "text": text}, ensure_ascii=False) for name, text in texts.items()]
    Path("texts.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    job = (
        "poem",
        "-m",
        poet,
        "texts.jsonl",
        "-o",
        "out.jsonl",
        "--length",
        "5",
        "--candidates",
        "2",
        "--num-beams",
        "2",
        "--batch-size",
        "2",
    )
    run(*job)
    whole = Path("out.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in whole.splitlines()]
    assert [record["id"] for record in records] == list(texts)
    for record in records:
        assert record["poem"].splitlines() == record["lines"]
        assert len(record["keywords"]) == 4
        assert [len(line) for poem in (record, *record["candidates"]) for line in poem["lines"]] == [5] * 8
        assert record["settings"] == {"length": 5, "num_candidates": 2, "num_beams": 2}
    options = ("--length", "5", "--candidates", "2", "--num-beams", "2")
    alone = run("poem", "-m", poet, "小院花开", *options).stdout.split()
    assert alone == [line for poem in (records[2], *records[2]["candidates"]) for line in poem["lines"]]
    # Stopped in the second poem.
    Path("out.jsonl").write_text(whole[: len(whole) // 2], encoding="utf-8")
    assert "holds 1 of 3 poems; going on" in run(*job).stderr
    assert Path("out.jsonl").read_text(encoding="utf-8") == whole
    assert "this job has" in run(*job[:-2], "--seed", "3", code=2).stderr
    # Sampling: what a poem is like does not depend on where the job began.
    drawing = ("poem", "-m", poet, "texts.jsonl", "-o", "drawn.jsonl", "--length", "5", "--set", "do_sample=true")
    run(*drawing, "--seed", "7")
    drawn = Path("drawn.jsonl").read_text(encoding="utf-8")
    Path("drawn.jsonl").write_text("".join(drawn.splitlines(keepends=True)[:1]), encoding="utf-8")
    run(*drawing, "--seed", "7")
    assert Path("drawn.jsonl").read_text(encoding="utf-8") == drawn
    assert "leave out --batch-size" in run(*drawing, "--seed", "7", "--batch-size", "2", code=2).stderr
    # To people: a poem a line.
    lines = run("poem", "-m", poet, "texts.jsonl", "--length", "5").stdout.splitlines()
    assert [[len(line) for line in poem.split()] for poem in lines] == [[5] * 4] * 3
    Path("folder").mkdir()
    Path("folder/a.txt").write_text("春风吹青山", encoding="utf-8")
    assert run("poem", "-m", poet, "folder", "--length", "5").stdout.split() == lines[0].split()


def test_mistakes_in_files_of_texts_show_before_the_first_poem(poet):
    rows = [{"text": "春风"}, {"text": "Spring"}]
    write_jsonl("texts.jsonl", rows)
    error = run("poem", "-m", poet, "texts.jsonl", "-o", "out.jsonl", code=2).stderr
    assert "texts.jsonl:2: `text` must have Chinese characters" in error
    assert not Path("out.jsonl").exists()
    Path("dialogues.jsonl").write_text(json.dumps({"turns": [["a", "春风"]]}) + "\n", encoding="utf-8")
    assert "must have `text` or `keywords`" in run("poem", "-m", poet, "dialogues.jsonl", code=2).stderr
    error = run("poem", "-m", poet, "texts.jsonl", "--candidates", "2", code=2).stderr
    assert "--candidates: of many texts only JSON has a place for more" in error
    error = run("poem", "-m", poet, "春风", "-o", "out.jsonl", code=2).stderr
    assert "--output: poems of a file or folder go there" in error
    assert "--output: poems of a file" in run("poem", "-m", poet, "-k", "花", "-o", "out.jsonl", code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("春风", "--length", "6"), "--length: must be 5 or 7, got 6"),
        (("春风", "-k", "花"), "give keywords or TEXT, not both"),
        (("Spring",), "TEXT: `text` must have Chinese characters"),
        (("-k", "龙"), "--keyword: `keywords`: '龙' is not in the vocabulary"),
    ],
)
def test_mistakes(poet, arguments, message):
    assert message in run("poem", "-m", poet, *arguments, code=2).stderr


def test_quatrains_of_a_package():
    Path("package").mkdir()
    records = [
        {
            "author": "nobody",
            "title": "one",
            "paragraphs": [f"{FIVE[0][0]}，{FIVE[0][1]}。", f"{FIVE[0][2]}，{FIVE[0][3]}。"],
        },
        {"author": "nobody", "title": "two", "paragraphs": ["花开，一树红。"]},
    ]
    Path("package/poet.tang.0.json").write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    result = run("quatrains", "package", "q.jsonl")
    assert "2 poems read. Quatrains written to q.jsonl: 1 of 5 characters a line." in result.stderr
    assert "Left out, more or fewer lines: 1" in result.stderr
    assert json.loads(Path("q.jsonl").read_text(encoding="utf-8"))["l"] == FIVE[0]
    assert "is there already" in run("quatrains", "package", "q.jsonl", code=2).stderr
    assert "no such folder" in run("quatrains", "nowhere", "r.jsonl", code=2).stderr
    assert "an empty string names nothing" in run("quatrains", "", "r.jsonl", code=2).stderr


def test_a_poet_that_no_recipe_has_trained_is_scored_as_one(tmp_path):
    processor = poem_processor()
    HamForConditionalGeneration(
        HamConfig(vocab_size=len(processor.tokenizer), d_model=8, attention_depth=2)
    ).save_pretrained("made")
    processor.save_pretrained("made")
    write_jsonl("poems.jsonl", [{"lines": lines} for lines in POEMS])
    assert run("evaluate", "-m", "made", "poems.jsonl").stdout.split()[:2] == ["5-Char", "7-Char"]


def test_evaluate(poet):
    lines = [json.dumps({"verses": poem}, ensure_ascii=False) for poem in POEMS]
    Path("poems.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ("--text-column", "verses", "--predictions", "p.jsonl", "--json", "s.json", "--num-beams", "2")
    out = run("evaluate", "-m", poet, "poems.jsonl", *options).stdout
    assert out.split()[:2] == ["5-Char", "7-Char"]
    scores = json.loads(Path("s.json").read_text(encoding="utf-8"))
    assert f"{scores['bleu_5']:.3f}" in out
    table = {line[:30].strip(): line.split()[-2:] for line in out.splitlines()}
    assert table["lines that repeat a character"] == ["0.000", "0.000"]
    for label, name in (("BLEU without keywords", "bleu_without_keywords"), ("fourth lines that rhyme", "rhymes")):
        assert table[label] == [f"{scores[f'{name}_{length}']:.3f}" for length in (5, 7)]
    assert scores["poets_rhymes_5"] == 1.0
    assert (scores["poems"], scores["generation"]["num_beams"]) == (6, 2)
    written = [json.loads(line)["written"] for line in Path("p.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [[len(line) for line in lines] for lines in written] == [[5] * 3] * 3 + [[7] * 3] * 3
    result = run("evaluate", "-m", poet, "poems.jsonl", "--max-length", "9", "--digits", "#", code=2)
    assert "--digits, --max-length: not for poems" in result.stderr

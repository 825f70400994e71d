"""examples/experiments/prepare.py on made-up data sets with planted overlaps, and the loaders on what it writes."""

import json
import lzma
import random

import pytest
import typer
from typer.testing import CliRunner

from hier_models.data import load_documents, load_parallel, load_poems
from hier_models.data.loading import load_rows
from hier_models.data.overlap import documents_of_file, find_overlaps
from hier_models.data.reading_comprehension_rows import resolve_reading
from hier_models.training.recipe_files import load_recipe
from hier_models.training.word_vectors import read_word_vectors
from tests.experiments.scripts import EXPERIMENTS, load_script


WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]


@pytest.fixture(scope="module")
def prepare():
    return load_script("prepare")


def text(seed, length=60):
    return " ".join(random.Random(str(seed)).choices(WORDS, k=length))


def sentences(*seed):
    return " ".join(f"{text((*seed, number), 12).capitalize()}." for number in range(4))


def han(seed, length):
    return "".join(chr(0x4E00 + random.Random(f"{seed}/{i}").randrange(3000)) for i in range(length))


def rows_of(name, number=20):
    """A made-up data set with the fields of a real one."""

    def row(i):
        key = f"{name}{i}"
        turns = [[f"Role {t}", text(f"{key}t{t}", 20)] for t in range(4)]
        sections = [["1 Introduction", text(f"{key}a")], ["", text(f"{key}b")]]
        return {
            "dialogsum_nc": {
                "id": key,
                "split": "dev" if i > 15 else "train",
                "dialogue": f"#Person1#: {text(key + 'x', 20)}\n #PErson2#: {text(key + 'y', 20)}\nwithout a role",
                "summary": text(f"{key}s", 10),
                "topic": "t",
            },
            "qmsum": {
                "id": key,
                "split": "val" if i > 15 else "train",
                "turns": turns,
                "summary": text(f"{key}s", 20),
            },
            "crd3": {"id": key, "split": "train", "turns": turns, "summary": f'"{text(key + "s", 20)}'},
            "scisummnet": {
                "id": key,
                "abstract": "" if i == 2 else text(f"{key}s", 30),
                "sections": sections,
                "citances": [{"citing": "a", "text": text(f"{key}c", 20)}],
                "summary": f"A title\n{text(key + 'z', 30)}",
            },
            "aclsum": {
                "id": key,
                "split": "val" if i > 15 else "train",
                "abstract": text(f"{key}s", 30),
                "sections": sections,
            },
            "proposals_cc0": {
                "id": key,
                "abstract": text(f"{key}s", 30),
                "sections": sections,
                "tldr": None if i % 2 else text(f"{key}l", 8),
            },
            "scitldr_a": {
                "id": key,
                "split": "dev" if i > 15 else "train",
                "source": [text(f"{key}1", 20), text(f"{key}2", 20)],
                "summary": [text(f"{key}3", 8), text(f"{key}4", 8)],
            },
            "bible_ende": {
                "id": key,
                "en": [text(f"{key}{v}en", 12) for v in range(3)] + [""],
                "de": ["", *(text(f"{key}{v}de", 12) for v in range(3))],
            },
            "quatrains": {"t": "题", "a": "人", "l": [han(f"{key}{v}", 5 if i % 3 else 7) for v in range(4)]},
            "squad_cs224n": {
                "context": f"{text(f'{name}{i // 2}', 30)} Marta Lopez end . They are cold .",
                "question": f"What {text(key, 4)} ?",
                "answer": "",
                "span": "3 5",
            },
            "cmrc2018_dev": {
                "id": key,
                "context": (context := han(key, 60)),
                "qas": [
                    {
                        "question": "问？",
                        "id": f"{key}q{q}",
                        "answers": [{"text": context[4:8], "answer_start": 4}] * 2
                        + [{"text": "错", "answer_start": 0}],
                    }
                    for q in range(2)
                ],
            },
            "se_books": {
                "id": key,
                "chapters": [{"id": f"c{c}", "paragraphs": [text(f"{key}{c}"), sentences(key, c)]} for c in range(2)],
            },
        }[name]

    return [row(i) for i in range(number)]


NAMES = (
    *("dialogsum_nc", "qmsum", "crd3", "scisummnet", "aclsum", "proposals_cc0", "scitldr_a", "bible_ende"),
    *("quatrains", "squad_cs224n", "cmrc2018_dev", "se_books"),
)


@pytest.fixture(scope="module")
def made(prepare, tmp_path_factory):
    """The folder that it writes, from data with overlaps in four places."""
    data, output = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("experiments")
    sets = {name: rows_of(name) for name in NAMES}
    # A training dialogue with the words of a test dialogue, and a validation one with another's.
    sets["dialogsum_nc"][3]["dialogue"] = sets["dialogsum_nc"][17]["dialogue"]
    sets["dialogsum_nc"][15]["dialogue"] = sets["dialogsum_nc"][18]["dialogue"]
    # A passage of a test paper of one data set in a paper of the other.
    passage = " ".join(sets["aclsum"][18]["sections"][0][1].split()[10:30])
    sets["scisummnet"][0]["sections"][1][1] += f" {passage}"
    # A summary with words of its abstract, and one of its own.
    own = " ".join(sets["scisummnet"][3]["abstract"].split()[4:9])
    sets["scisummnet"][3]["summary"] = f"A title\n{own}. Wholly new verbiage."
    # A book that quotes a meeting to test on.
    sets["se_books"][4]["chapters"][1]["paragraphs"].append(sets["qmsum"][17]["turns"][2][1])
    # A poem with two lines of another.
    sets["quatrains"][0]["l"] = [*sets["quatrains"][0]["l"][:2], *sets["quatrains"][18]["l"][2:]]
    for name, rows in sets.items():
        with lzma.open(data / f"{name}.jsonl.xz", "wt", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    prepare.prepare(data, output)
    return output


def lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_what_shares_text_is_left_out_and_listed(made):
    found = {(row["experiment"], row["id"], row["held_out"]) for row in lines(made / "left_out.jsonl")}
    assert found == {
        ("dialogues", "dialogsum_nc3", "dialogsum_nc17"),
        ("dialogues", "dialogsum_nc15", "dialogsum_nc18"),
        ("papers", "scisummnet0", "aclsum18"),
        ("warm_up", "se_books4/c1", "meetings/qmsum17"),
        ("poems", "quatrains-train-0", "quatrains-test-0"),
    }
    counts = json.loads((made / "counts.json").read_text())
    assert counts["dialogues"]["left_out"] == {"validation": 1, "train": 1}
    assert counts["papers"]["unusable"] == {"no abstract": 1}
    assert counts["proposals_tldr"]["unusable"] == {"no tldr": 10}


def test_no_training_document_shares_text_with_a_test_document(prepare, made):
    for name in prepare.EXPERIMENTS:
        files = [made / name / "train.jsonl"]
        if name not in prepare.CHINESE:
            files.append(made / "warm_up" / "train.jsonl")
        documents = (document for file in files for document in documents_of_file(file))
        assert not find_overlaps(documents, documents_of_file(made / name / "test.jsonl")).overlaps, name


def test_parts(made):
    sizes = {name: [len(lines(made / name / f"{part}.jsonl")) for part in ("train", "validation", "test")]
             for name in ("dialogues", "meetings", "transcripts", "squad", "cmrc", "papers")}  # fmt: skip
    assert sizes == {
        "dialogues": [14, 0, 4],
        "meetings": [15, 1, 4],
        "transcripts": [16, 2, 2],
        "squad": [16, 2, 2],
        "cmrc": [32, 4, 4],
        "papers": [29, 3, 6],
    }
    contexts = [{row["context"] for row in lines(made / "squad" / f"{part}.jsonl")} for part in ("train", "test")]
    assert not contexts[0] & contexts[1]
    ids = [row["id"] for row in lines(made / "warm_up" / "train.jsonl")]
    assert not any(row.startswith("dialogues/") for row in ids)
    assert {row.split("/")[0] for row in ids if not row.startswith("se_books")} == {
        *("meetings", "transcripts", "papers", "proposals", "one_line", "chapters")
    }


def test_passages(prepare, made):
    """Whole sentences, as they stand in the texts; short and longer ones in turn, a few of each text."""
    for part in ("train", "validation"):
        texts = {row["id"]: " ".join(row["text"].split()) for row in lines(made / "warm_up" / f"{part}.jsonl")}
        found = lines(made / "passages" / f"{part}.jsonl")
        assert {row["id"].rsplit("/", 1)[0] for row in found} <= set(texts)
        assert all(row["summary"] in texts[row["id"].rsplit("/", 1)[0]] for row in found)
        assert all(row["summary"] == " ".join(row["sentences"]) for row in found)
    rows = [{"id": "a", "text": "One two.\n\nThree  four. " + "Five six seven. " * 99}, {"id": "b", "text": "w " * 61}]
    found = list(prepare.passages(rows, prepare.PASSAGE_WORDS))
    assert [len(row["sentences"]) for row in found] == [4, 6, 13, 20, 3, 6, 13, 20, 3, 6, 7]
    assert found[0] == {
        "id": "a/0",
        "sentences": ["One two.", "Three four.", "Five six seven.", "Five six seven."],
        "summary": "One two. Three four. Five six seven. Five six seven.",
    }


def test_phrases_of_summaries_stand_in_the_documents(made):
    row = next(row for row in lines(made / "citances_phrases" / "train.jsonl") if "verbiage" in row["summary"])
    words = row["summary"].split(".")[0].split()
    runs = {" ".join(words[i : i + n]) for n in (2, 3) for i in range(len(words) - n + 1)}
    assert {phrase for phrase, _ in row["phrases"]} == runs
    assert all(value > 0 for _, value in row["phrases"])
    for part in ("train", "validation", "test"):
        rows = lines(made / "citances_phrases" / f"{part}.jsonl")
        for row in rows:
            del row["phrases"]
        assert rows == lines(made / "citances" / f"{part}.jsonl")


def test_questions_are_made_of_paragraphs(prepare, made):
    """What is asked for is in the paragraph and replaced in the question; people's questions are there too."""
    train = lines(made / "squad" / "train.jsonl")
    found = lines(made / "cloze" / "train.jsonl")
    assert [row for row in found if not row["id"].startswith("cloze")] == train
    contexts = {row["context"] for row in train}
    assert {row["context"] for row in found} == contexts
    assert len(found) == len(train) + len(contexts)
    rows = load_rows(made / "cloze" / "validation.jsonl", resolve_reading)
    assert {row["context"] for row in lines(made / "squad" / "validation.jsonl")} == {
        row["documents"][0] for row in rows
    }

    context = "It was Marta Lopez de Vega who lit the 12 ovens . They were cold ."
    for row in prepare.cloze([{"context": context}] * 2):
        (answer,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert context[start:].startswith(answer)
        left, right = row["question"].split("what")
        before, after = context[:start], context[start + len(answer) :]
        assert is_subsequence(left.split(), before.split())
        assert is_subsequence(right.split()[:-1], after.split())
    answers = sorted(row["answers"]["text"][0] for row in prepare.cloze([{"context": context}]))
    # "They" begins its sentence.
    assert answers == ["12", "Marta Lopez", "Vega"]


def test_questions_become_summaries_of_their_paragraphs(prepare, made):
    """The right sentence is the one with the answer; paragraphs of one sentence have nothing to choose from."""
    for part, source in (("train", "cloze"), ("validation", "squad"), ("test", "squad")):
        rows = lines(made / source / f"{part}.jsonl")
        found = lines(made / "questions" / f"{part}.jsonl")
        assert [row["id"] for row in found] == [row["id"] for row in rows]
        for row, question in zip(found, rows, strict=True):
            assert row["summary"] == question["question"]
            assert question["answers"]["text"][0] in row["sentences"][row["gold"]]
            assert " ".join(row["sentences"]) == question["context"]

    row = {"id": "q", "question": "Who was cold ?", "context": "Marta lit it . She was cold .", "answers": {}}
    for start, gold in ((0, 0), (15, 1), (19, 1)):
        (found,) = prepare.questions([row | {"answers": {"answer_start": [start]}}])
        assert found["gold"] == gold
    assert not list(prepare.questions([row | {"context": "Marta lit it .", "answers": {"answer_start": [0]}}]))


def test_questions_are_made_of_chinese_paragraphs(prepare, made):
    """Characters stand for words; asked for are numbers, dates, and parts of what stands between marks."""
    for part in ("train", "validation"):
        people = lines(made / "cmrc" / f"{part}.jsonl")
        found = lines(made / "cloze_cmrc" / f"{part}.jsonl")
        clozes = [row for row in found if row["id"].startswith("cloze")]
        assert {row["context"] for row in clozes} == {row["context"] for row in people}
        assert [row for row in found if row not in clozes] == (people if part == "train" else [])

    context = (
        "林溪小站建于1907年5月12日的一个早晨，那里共有12间很小的房屋和一棵树。她从来不肯到这个Mansfield来看我们。"
    )
    answers = set()
    for row in prepare.cloze([{"context": context}], "zh"):
        (answer,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        answers.add(answer)
        assert context[start:].startswith(answer)
        left, right = row["question"].removesuffix("？").split("什么")
        assert len(left + right) >= 4
        assert (left + right).isalnum()
        assert is_subsequence(left, context[:start])
        assert is_subsequence(right, context[start + len(answer) :])
        edges = {start, start + len(answer)}
        assert not edges & set(range(context.index("Mansfield") + 1, context.index("来看")))
    assert {"1907年5月12日", "12间很"} <= answers
    assert any(answer in ("和一棵树", "一棵树", "棵树", "树") or answer.endswith("早晨") for answer in answers)


def is_subsequence(some, of):
    words = iter(of)
    return all(word in words for word in some)


def test_word_vectors_of_the_package(prepare, tmp_path):
    """As winkNLP's package has them: behind the numbers come their length and an index."""
    numbers = {"oven": [0.25, -1.5, 1.52069, 7], "dough": [1.0, 2.0, 2.236, 8]}
    (tmp_path / "wink.json").write_text(json.dumps({"dimensions": 2, "size": 2, "vectors": numbers}))
    prepare.write_glove(tmp_path / "wink.json", tmp_path / "glove.txt")
    assert (tmp_path / "glove.txt").read_text() == "oven 0.25 -1.5\ndough 1.0 2.0\n"
    assert [list(vector) for _, vector in read_word_vectors(tmp_path / "glove.txt")] == [[0.25, -1.5], [1.0, 2.0]]


def test_the_loaders_read_it(prepare, made):
    dialogue = load_documents(made / "dialogues" / "train.jsonl")[0]
    assert [turn["role"] for turn in dialogue["turns"]] == ["#Person1#", "#Person2#"]
    assert dialogue["turns"][1]["content"].endswith("without a role")
    meeting = load_documents(made / "meetings" / "test.jsonl")[0]
    assert meeting["turns"][0]["role"] == "Role 0"
    paper = load_documents(made / "papers" / "train.jsonl")[0]
    assert paper["text"].startswith("1 Introduction\n")
    assert paper["summary"] == text("scisummnet1s", 30)
    citances = load_documents(made / "citances" / "train.jsonl")[0]
    assert citances["documents"] == [text("scisummnet0s", 30), text("scisummnet0c", 20)]
    assert citances["summary"] == text("scisummnet0z", 30)
    assert len(load_documents(made / "proposals_sections" / "train.jsonl")[0]["documents"]) == 2
    assert load_documents(made / "proposals_tldr" / "train.jsonl")[0]["summary"] == text("proposals_cc00l", 8)
    one = load_documents(made / "one_line" / "test.jsonl", several_references=True)[0]
    assert len(one["sentences"]) == len(one["references"]) == 2
    name = "bible_ende"
    chapter = load_parallel(made / "chapters" / "train.jsonl")[0]
    assert len(chapter["source"]) == len(chapter["target"]) == 2
    assert chapter["source"][0] == f"{text(name + '00en', 12)} {text(name + '01en', 12)}"
    poem = load_poems(made / "poems" / "test.jsonl")[0]
    assert len(poem["lines"]) == 4
    questions = [row for part in prepare.PARTS for row in load_rows(made / "squad" / f"{part}.jsonl", resolve_reading)]
    answers = [" ".join(text(f"squad_cs224n{number // 2}", 30).split()[3:6]) for number in range(20)]
    found = [row["answers"]["text"][0] for row in questions]
    assert found != answers  # by chance
    assert sorted(found) == sorted(answers)
    answers = load_rows(made / "cmrc" / "train.jsonl", resolve_reading)[0]
    assert answers["references"] == [han("cmrc2018_dev0", 60)[4:8]]
    assert len(load_documents(made / "warm_up" / "train.jsonl", summary_column="")) > 50
    passage = load_documents(made / "passages" / "train.jsonl")[0]
    assert " ".join(passage["sentences"]) == passage["summary"]


def test_only_what_is_there_is_made(prepare, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "qmsum.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of("qmsum")), encoding="utf-8")
    app = typer.Typer()
    app.command()(prepare.prepare)
    done = CliRunner().invoke(app, ["--data", str(data), "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("counts.json", "left_out.jsonl", "long_passages", "meetings", "passages", "warm_up")
    ]
    assert "meetings" in done.output
    assert "quatrains: not in" in done.output


@pytest.mark.parametrize("there", ["nothing", "another", "poems"])
def test_finished_files_are_not_replaced_by_empty_ones(prepare, tmp_path, there):
    data, output = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    if there == "another":
        (data / "other.jsonl").write_text("{}\n", encoding="utf-8")
    elif there == "poems":
        rows = [json.dumps(row) + "\n" for row in rows_of("quatrains")]
        (data / "quatrains.jsonl").write_text("".join(rows), encoding="utf-8")
    folders = ("warm_up", "passages", "long_passages")
    finished = [output / name / f"{part}.jsonl" for name in folders for part in ("train", "validation")]
    finished += [output / "left_out.jsonl", output / "counts.json"] if there != "poems" else []
    for file in finished:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("finished", encoding="utf-8")
    app = typer.Typer()
    app.command()(prepare.prepare)
    options = ["--data", str(data), "-o", str(output)]
    done = CliRunner().invoke(app, options, env={"COLUMNS": "400"})
    assert done.exit_code == (0 if there == "poems" else 2), done.output
    assert ("all data sets of no experiment" in done.output) == (there != "poems")
    assert {file.read_text(encoding="utf-8") for file in finished} == {"finished"}
    assert (output / "poems").exists() == (there == "poems")


# The recipes


def settings(name, variant):
    return load_recipe(EXPERIMENTS / f"{name}.yaml", variant=variant).model.overrides()


def test_the_roles_of_a_parliament_have_room():
    """Of the meetings to test on one has 84 speakers; more roles than segments are refused."""
    assert settings("hat_meetings", "roles")["num_segments"] >= 84


def test_every_share_of_heads_goes_with_every_share_of_layers():
    variants = ("weighted", "half_of_heads", "all_heads", "all_layers", "half_of_heads_all_layers",
                "all_heads_all_layers")  # fmt: skip
    found = [settings("highlight_citances", variant) for variant in variants]
    shares = {(row["highlight_heads"], row["highlight_layers"]) for row in found}
    assert shares == {(heads, layers) for heads in (1, 2, 4) for layers in (2, 3)}


def test_chinese_is_read_character_by_character():
    """Words would be what stands between two commas: most answers would begin or end inside of one."""
    recipe = load_recipe(EXPERIMENTS / "ham_reader_cmrc_warm_up.yaml", variant="depth_1")
    assert recipe.options.split_into == "characters"


def test_rows_that_are_all_of_one_part_are_divided_by_their_order(prepare):
    rows = [{"id": number, "split": "test"} for number in range(40)]
    parts = prepare.divide(rows)
    assert [row["id"] for part in ("train", "validation", "test") for row in parts[part]] == list(range(40))
    assert {part: len(found) for part, found in parts.items()} == {"train": 32, "validation": 4, "test": 4}
    rows[7]["split"] = "train"
    assert [row["id"] for row in prepare.divide(rows)["test"]] == [n for n in range(40) if n != 7]

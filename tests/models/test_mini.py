"""The summarizer that comes with the package: what a newcomer types, and what they may type by mistake."""

import logging
import re
import unicodedata
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForSeq2SeqLM, AutoProcessor, GenerationConfig, pipeline

import hier_models
from hier_models.models.sentence_splitting import split_sentences
from tests import forks


FERRY = (
    "For eleven years the ferry Marianne carried people, sheep and the post between Aldenport and Skerra "
    "Island. In March 2024 a crack was found in her hull, and the harbour office took her out of service. "
    "Since then the islanders have crossed the sound in fishing boats, which carry no cars and do not sail in "
    "a strong wind. Of the 212 people who live on Skerra, 38 have moved to the mainland. On Tuesday the county "
    "council decided to buy a new ferry. She will run on batteries, which are charged at night from the wind "
    "turbines above Aldenport, and will take 120 passengers and 14 cars. The ferry costs 9.4 million euros; "
    "the county pays two thirds of it. She is to make her first crossing in May 2027."
)
DIALOGUE = [
    {"role": "Ann", "content": "The heating in the reading room has been off since Friday."},
    {"role": "Bob", "content": "The boiler lost pressure, and the part that we need comes on Wednesday."},
    {"role": "Ann", "content": "We have forty children here tomorrow for the story hour."},
]
LETTERS = {
    "boots": (
        "Dear Sir or Madam, on 2 October I ordered a pair of hiking boots in size 42 from your shop. On "
        "Monday a parcel arrived with boots in size 39. I sent them back the same day. Since then I have "
        "written to you twice, and I have had no answer. I need the boots for a trip that begins on 1 "
        "November. Please send me the right size by then, or return my 129 euros. Yours faithfully, Anna "
        "Weber"
    ),
    "cough": (
        "Hello Dr Singh, I have had a cough for three weeks now and it gets worse at night. The syrup that "
        "you gave me helped for two days only. I do not have a fever. My son had the same cough in September."
        " Could I come to see you on Thursday or Friday, after five? I have to work until half past four. "
        "Thank you, Martin Kowalski"
    ),
    "renovation": (
        "Dear neighbours, from Monday on we are going to renovate our bathroom. The work will take about ten "
        "days. It will be loud in the mornings between eight and eleven, and we are sorry about that. On "
        "Wednesday the water will be turned off from nine to twelve. If you need anything during that time, "
        "ring our bell. We have put a key to the cellar in the box by the door. Best wishes, Nora and Felix, "
        "second floor"
    ),
    "release": (
        "Hi team, the release of version 4.2 is moved from Tuesday to Thursday. The tests of the payment "
        "module failed last night on two of five servers. Priya found the cause, a time zone that was read "
        "twice. She needs a day to mend it and another one to test it. The documentation is ready. Please do "
        "not merge anything else until Thursday noon. Marketing knows about the delay."
    ),
    "gardener": (
        "Dear Ms Ortega, I read your advertisement for a gardener in Saturday's paper. I have worked in the "
        "city's parks for eleven years, for the last four as the head of a team of six. I know roses and old "
        "fruit trees best. My contract ends in March, since the city gives the work to a company. I have a "
        "driving licence for small lorries. I would be glad to show you some of the gardens that I look "
        "after. Yours sincerely, David Mensah"
    ),
    "kettle": (
        "I bought this kettle in January and used it every day. It boils a litre of water in two minutes, "
        "which is faster than my old one. In May the lid began to stick, and last week the switch broke. The "
        "seller answered within a day and sent a new kettle without asking for the old one. The new one has a"
        " different lid. So far it works. I would buy it again because of the service, but I would not expect"
        " it to last for years."
    ),
}
LENGTHS = ("line", "short", "long")


@pytest.fixture(scope="module")
def summarize():
    return pipeline("summarization", device="cpu")


def words(text: str) -> set[str]:
    return {word.casefold() for word in re.findall(r"[^\W_]+", text)}


def test_it_is_small_and_loads_by_itself():
    folder = Path(hier_models.MINI)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 61e6
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
    model = AutoModelForSeq2SeqLM.from_pretrained(hier_models.MINI)
    assert model.dtype == torch.float32  # what a CPU computes in
    assert type(AutoProcessor.from_pretrained(hier_models.MINI)) is hier_models.HatBartProcessor


@pytest.mark.parametrize("length", LENGTHS)
def test_a_summary_has_what_the_document_has(summarize, length):
    summary = summarize(FERRY, length=length)[0]["summary_text"]
    assert summary[0].isupper()
    assert summary.endswith(".")
    assert summary.count(". ") == 0 or length != "line"
    assert "[" not in summary
    assert len(words(summary) & words(FERRY)) >= 4
    numbers_and_names = {
        word for word in re.findall(r"[^\W_]+", summary[1:]) if word[0].isupper() or word[0].isdigit()
    }
    assert {word.casefold() for word in numbers_and_names} <= words(FERRY)


@pytest.mark.parametrize("length", ["line", "short"])
@pytest.mark.parametrize("name", LETTERS)
def test_letters_are_summed_up_in_their_own_sentences(summarize, name, length):
    """And not answered with a question, as it once did."""
    letter = LETTERS[name]
    summary = summarize(letter, length=length)[0]["summary_text"]
    sentences = [letter[a:b] for a, b in split_sentences(letter)]
    written = [summary[a:b] for a, b in split_sentences(summary)]
    assert set(written) <= set(sentences)
    assert len(written) == 1 or length == "short"


def test_documents_of_every_kind(summarize):
    documents = [
        DIALOGUE,
        {"sentences": ["Bees dance.", "The dance tells a direction."]},
        {"documents": [FERRY, FERRY]},
    ]
    assert all(record["summary_text"].strip() for record in summarize(documents))
    record = summarize(FERRY, return_sources=True, return_copied=True)[0]
    for sentence in record["sources"]:
        assert sentence["sources"]
        assert all(FERRY[source["start"] : source["end"]] == source["text"] for source in sentence["sources"])
    assert record["copied"]


@pytest.mark.parametrize(
    "text",
    [
        "word",
        "!?",
        "   \n",
        "12 34\n56 78\n" * 20,
        "<html><body><p>Bees dance.</p><script>alert(1)</script></body></html>",
        "| a | b |\n|---|---|\n| 1 | 2 |\n" * 10,
        "def f(x):\n    return {x: [y for y in x]}\n\n" * 10,
        "\ud800 lone \x00 control \u202e",
        "蜜蜂跳舞。" * 40,
    ],
    ids=["word", "signs", "blank", "numbers", "markup", "table", "code", "broken", "chinese"],
)
def test_odd_documents(summarize, text):
    record = summarize(text, return_truncation=True)[0]
    assert isinstance(record["summary_text"], str)
    assert record["num_truncated_tokens"] == 0
    assert words(record["summary_text"]) <= words(text) | hier_models.pipelines.common_words_hier.COMMON_WORDS


def test_a_paragraph_is_not_longer_than_its_text(summarize):
    text = "The museum opens on Monday. The first room shows pictures of ships. Children pay nothing on Sundays."
    assert summarize(text, num_beams=1)[0]["summary_text"] in text
    assert summarize([text, FERRY], batch_size=2)[0]["summary_text"] in text


MAIL = """Subject: Office move

Hi all,

The move to the new office takes place on Friday 12 March. Please pack your desks by Thursday noon. Boxes are at \
reception.

What to label

- Your name
- The new room

What not to pack

- Plants
- Monitors (IT moves them)

The phones work again on Monday from 10 o'clock. Parking is behind the building, and the first floor has the canteen. \
If you have questions, ask Maria in room 214.

Best regards,
Tom"""


@pytest.mark.parametrize(
    "text",
    [
        "Photosynthesis",
        "Xylophonists of Kraczewo",
        "Marianne carried sheep between Aldenport and Skerra Island",
        "The ferry costs 9.4 million euros.",
    ],
)
def test_of_a_few_words_none_is_cut(summarize, text):
    written = words(summarize(text)[0]["summary_text"])
    assert written
    assert written <= words(text)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("text", ["   ", "\x00", "😀 😀 😀"])
def test_of_nothing_nothing_is_written(summarize, text, length):
    assert summarize(text, length=length)[0]["summary_text"] == ""


def test_settings_of_an_object_are_those_of_arguments(summarize):
    asked = {"length": "short", "generation_config": GenerationConfig(num_beams=1)}
    assert summarize(FERRY, **asked) == summarize(FERRY, length="short", num_beams=1)


def test_a_length_of_the_call_stands_for_that_of_the_pipeline():
    short = pipeline("summarization", device="cpu", length="short", num_beams=1)
    assert short.limits(max_length=30)[1] == 29
    assert short.limits(length="line")[1] == short.limits(max_new_tokens=64)[1] == 64
    assert len(short(FERRY, max_length=12, return_tensors=True)[0]["summary_token_ids"]) <= 12
    assert pipeline("summarization", device="cpu", max_new_tokens=100).limits(max_length=30)[1] == 29


def test_names_of_speakers_are_barred_in_their_own_dialogue(summarize):
    text = "The bank gave its answer: the money is gone. The teller counted it twice, and the police came at noon."
    dialogue = {"turns": [{"role": "Answer", "content": turn["content"]} for turn in DIALOGUE]}
    alone = summarize(text, num_beams=1)[0]
    assert "answer:" in alone["summary_text"]
    assert summarize([text, dialogue], num_beams=1, batch_size=2)[0] == alone


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "The ticket for the ferry now costs 50€ in summer. A pass for the year costs 300€, which is 20€ more than "
            "before. Children under six years travel free.",
            ["costs 50€ in summer", "costs 300€, which is 20€ more"],
        ),
        (
            "The drug was given to patients aged ≥65 years. Risk fell by 12% in those with BMI≥30, and by 3% in the "
            "others. No deaths were seen.",
            ["by 12% in those with BMI≥30, and by 3%"],
        ),
        (
            "CO₂ emissions of the city fell by 12 percent last year. Most of it was due to the H₂ buses, which "
            "replaced 140 diesel buses in March.",
            ["CO₂ emissions", "the H₂ buses"],
        ),
        (
            "The ﬁrst ofﬁce of the ﬁnancial group was opened in Cardiff in 1987. It has grown since then, and its "
            "proﬁts reached 12 million pounds last year.",
            ["The first office of the financial group", "its profits"],
        ),
    ],
)
def test_no_word_is_lost_for_a_sign_beside_it(summarize, text, kept):
    """Where the sign is not in the vocabulary, or not inside of words."""
    [record] = summarize(text, return_copied=True)
    assert all(part in record["summary_text"] for part in kept)
    figures = [word for word in record["copied"] if word["source"] and word["text"].isdecimal()]
    assert all(text[slice(*word["source"])] == word["text"] for word in figures)


def test_signs_without_a_piece_are_passed_over(summarize):
    tokenize = summarize.tokenizer.tokenize
    assert tokenize("300₹ Windows™ ✓done ☎️ † 🎉🏳️‍🌈x") == ["300", "windows", "done", "x"]
    known = {
        "3½ R² 5°C €5 ≥65 5× −€5": "3 ##½ r ##² 5 ##° ##c € ##5 ≥ ##65 5 ##× − € 5",  # noqa: RUF001
        "10⁻⁵ ∼30 co‑operation 20℃": "10 ##− ##5 ~ 30 co ‐ operation 20 ##° ##c",  # noqa: RUF001
    }
    assert [" ".join(tokenize(text)) for text in known] == list(known.values())


def test_a_text_with_signs_without_a_piece_is_summarized_as_without_them(summarize):
    text = (
        "Great news! 🎉 The clinic opens on Monday. 🏥 Bring your insurance card. 🚗 Parking is free behind the "
        "building. ☎️ Call us to make an appointment. 📞"
    )
    plain = "".join(sign for sign in text if sign.isascii()).replace("  ", " ")
    assert summarize(text) == summarize(plain)


def test_names_with_signs_that_are_not_known_are_barred_too(summarize):
    names = ["Zoë 😀", "B\ud83d", "😀"]
    turns = [{"role": name, "content": turn["content"]} for name, turn in zip(names, DIALOGUE, strict=True)]
    summary = summarize({"turns": turns}, num_beams=1)[0]["summary_text"]
    assert summary
    assert "Zoë:" not in summary


def test_what_takes_no_batch_is_no_way_to_write_a_page(summarize):
    text = "\n\n".join([FERRY] * 3)
    with pytest.raises(ValueError, match=r"`prompt_lookup_num_tokens` is for one text at a time.*truncation=True"):
        summarize(text, length="long", num_beams=1, prompt_lookup_num_tokens=3)
    asked = {"length": "long", "num_beams": 1, "truncation": True}
    assert summarize(text, prompt_lookup_num_tokens=3, **asked) == summarize(text, **asked)


def test_copied_words_stand_where_they_are_said_to_of_whatever_encoding(summarize):
    text = unicodedata.normalize("NFD", "Émile sold the café in Genève to José on Monday. He paid 30 francs for it.")
    [record] = summarize(text, return_copied=True)
    assert "Genève" in record["summary_text"]
    assert all(record["summary_text"][word["start"] : word["end"]] == word["text"] for word in record["copied"])


def test_a_page_has_as_many_parts_as_are_asked_for(summarize):
    whole, one = (summarize(f"{FERRY}\n\n{MAIL}", length="long", **asked)[0] for asked in ({}, {"paragraphs": 1}))
    assert whole != one
    asked = [summarize(FERRY, length="line", return_tensors=True, **how) for how in ({}, {"paragraphs": 3})]
    assert torch.equal(*(record["summary_token_ids"] for [record] in asked))


def test_headings_and_lists_are_no_parts_of_sentences(summarize):
    record = summarize(MAIL, return_truncation=True)[0]
    assert record["num_omitted_tokens"] > 10
    sentences = re.split(r"(?<=\.) ", record["summary_text"])
    assert len(sentences) >= 2
    assert all(sentence in MAIL for sentence in sentences[:2])
    assert not words(record["summary_text"]) & {"subject", "label", "plants", "monitors", "regards"}


def test_a_text_in_another_language_is_said(caplog):
    summarize = pipeline("summarization", device="cpu")
    german = (
        "Am Dienstag beschloss der Kreistag, eine neue Fähre zu kaufen. Sie wird in Lund gebaut und fährt mit Strom."
    )
    with caplog.at_level(logging.WARNING):
        summarize(german)
    assert any("does not look like English" in message for message in caplog.messages)


@pytest.mark.slow
def test_a_long_document_is_condensed(summarize):
    text = " ".join(f"In chapter {number} {FERRY}" for number in range(30))
    record = summarize(text, return_truncation=True)[0]
    assert record["num_omitted_tokens"] > 512
    assert record["num_truncated_tokens"] == 0
    assert words(record["summary_text"]) <= words(text) | hier_models.pipelines.common_words_hier.COMMON_WORDS


def test_the_command_takes_it_when_no_model_is_named(tmp_path, summarize):
    (tmp_path / "ferry.txt").write_text(FERRY, encoding="utf-8")
    result = forks.run(forks.COMMAND, "summarize", "ferry.txt", "--length", "line", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == summarize(FERRY, length="line")[0]["summary_text"].strip()
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    result = forks.run(forks.COMMAND, "summarize", "empty.txt", cwd=tmp_path)
    assert result.returncode == 2
    assert "empty.txt is empty" in result.stderr

"""Who finds key phrases: by TextRank, the title, a tagger or a function of one's own, saved and loaded by name."""

import copy
import json
import pickle
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoProcessor, PreTrainedTokenizerFast, RobertaConfig, RobertaForTokenClassification

from hier_models import (
    HatEncoderConfig,
    HatEncoderForTokenClassification,
    HighlightTransformerProcessor,
    KeyPhraseExtractor,
    PhraseFinder,
    PhraseFunction,
)
from hier_models.data import fit_key_phrases
from hier_models.data.stopwords import load_stopwords
from hier_models.models.keywords import text_rank
from hier_models.models.phrase_ranking import ImportantPhrases, TextRankPhrases, TitlePhrases
from hier_models.models.phrase_spans import Phrase


STOPWORDS = load_stopwords("en")
TEXT = (
    "A new bridge for the harbour\n\nThe harbour bridge was opened by the mayor. Ferry boats cross the harbour too, "
    "and the old harbour bridge stays. Nobody asked the ferry crews."
)


class Capitals(PhraseFinder, name="capitals of a test"):
    """Names, as words with capitals; of a user's own."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def find(self, text: str, ranges: Any = None) -> list[Phrase]:
        at = text.find("Ferry boats")
        return [Phrase("Ferry boats", self.value, ((at, at + 11),))]

    def as_dict(self) -> dict[str, Any]:
        return {"value": self.value}


def ferries(text: str) -> list[Any]:
    """Give phrases in two of the forms that a processor takes."""
    return [("ferry crews", 0.5), (0, 12, 0.25)]


def test_a_finder_of_the_users_is_loaded_by_name(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    processor = HighlightTransformerProcessor(tokenizer, key_phrases=Capitals(2.0))
    processor.save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert type(loaded.key_phrases) is Capitals
    found = loaded(text=TEXT, return_phrases=True)
    assert found["phrases"][0]["text"] == "Ferry boats"
    assert found["phrase_values"] == [2.0]
    assert found == processor(text=TEXT, return_phrases=True)


def test_a_function_of_the_users(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    processor = HighlightTransformerProcessor(tokenizer, key_phrases=ferries)
    found = processor(text=TEXT, return_phrases=True)
    assert [(phrase["text"], phrase["value"]) for phrase in found["phrases"]] == [
        ("ferry crews", 0.5),
        ("A new bridge", 0.25),
    ]
    processor.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "key_phrases.json").read_text())["finder"] == "ferries"
    assert AutoProcessor.from_pretrained(tmp_path)(text=TEXT) == processor(text=TEXT)
    assert pickle.loads(pickle.dumps(processor))(text=TEXT) == processor(text=TEXT)
    # Of what truncation leaves.
    short = processor(text=TEXT, truncation=True, max_length=12, return_phrases=True)
    assert [len(phrase["spans"]) for phrase in short["phrases"]] == [0, 1]


@pytest.mark.parametrize("limit", [2, 12, 30, 44, None])
def test_of_what_a_function_finds_is_counted_what_truncation_took(
    tokenizer: PreTrainedTokenizerFast, limit: int | None
) -> None:
    """As of phrases that are given."""
    phrases = [("harbour bridge", 0.5), (2, 12, 0.25), ("purple elephants", 1.0), ("crews", 1.0), ("yes ferry", 1.0)]
    documents = [TEXT, "Yes", "Ferry crews, a harbour bridge. Ferry crews again."]
    options: dict[str, Any] = {"return_truncation": True, "truncation": limit is not None, "max_length": limit}
    finding = HighlightTransformerProcessor(tokenizer, key_phrases=PhraseFunction(lambda text: phrases, "given"))
    found = finding(documents=documents, **options)
    given = finding(documents=documents, phrases=phrases, **options)
    for name in ("num_missing_phrases", "num_truncated_phrases"):
        assert found[name] == given[name]
    assert found["num_missing_phrases"] == 2  # one of them would go from one article to the next
    assert bool(found["num_truncated_phrases"]) == (limit is not None)


def test_where_the_function_is_not_known_it_is_said_what_to_do(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HighlightTransformerProcessor(tokenizer, key_phrases=PhraseFunction(ferries, "mine")).save_pretrained(tmp_path)
    monkeypatch.delitem(PhraseFinder._known, "mine")
    with pytest.raises(ValueError, match=r"named 'mine'.*define it first.*PhraseFunction\(function, 'mine'\)"):
        HighlightTransformerProcessor.from_pretrained(tmp_path)
    for others, kind in ((ferries, PhraseFunction), (None, type(None))):
        loaded = HighlightTransformerProcessor.from_pretrained(tmp_path, key_phrases=others)
        assert type(loaded.key_phrases) is kind


def test_names(tmp_path: Path) -> None:
    class Nameless(KeyPhraseExtractor):
        """It would be loaded as what it comes from."""

    with pytest.raises(ValueError, match="Nameless cannot be saved without a name"):
        Nameless().save(tmp_path / "key_phrases.json")
    with pytest.raises(ValueError, match=r"cannot be saved without a name: PhraseFunction\(function, name\)"):
        PhraseFunction(lambda text: ["ferry"]).save(tmp_path / "key_phrases.json")
    with pytest.raises(ValueError, match="the name 'title' is taken; give another"):
        PhraseFunction(ferries, "title")
    with pytest.raises(TypeError, match="`function` must take a text"):
        PhraseFunction("ferries")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="PhraseFinder has no `find`"):
        PhraseFinder().find("text")
    with pytest.raises(ValueError, match=r"no finder of key phrases is named 'yake', only .*textrank"):
        PhraseFinder.named("yake")


def test_files_of_before_are_of_tf_idf(tmp_path: Path) -> None:
    file = tmp_path / "key_phrases.json"
    extractor = KeyPhraseExtractor(STOPWORDS).fit([TEXT], min_documents=1)
    extractor.save(file)
    content = json.loads(file.read_text())
    del content["finder"]
    file.write_text(json.dumps(content))
    assert repr(PhraseFinder.load(file)) == repr(extractor)


def test_text_rank_takes_phrases_of_the_upper_third() -> None:
    found = TextRankPhrases(STOPWORDS).find(TEXT)
    words = [w.strip(".,").lower() for w in TEXT.split()]
    ranks = text_rank([[w for w in words if w not in STOPWORDS and len(w) > 1]])
    best = sorted(ranks, key=lambda word: -ranks[word])[: round(len(ranks) / 3)]
    assert found[0].text == "old harbour bridge"
    assert all(word.lower() in best for phrase in found for word in phrase.text.split())
    assert sum(phrase.value**2 for phrase in found) == pytest.approx(1)
    values = [sum(ranks[word.lower()] for word in phrase.text.split()) for phrase in found]
    assert [phrase.value / found[0].value for phrase in found] == pytest.approx([v / values[0] for v in values])


def test_title() -> None:
    found = {phrase.text: phrase for phrase in TitlePhrases(STOPWORDS).find(TEXT)}
    assert len(found["harbour bridge"].spans) == 2
    # Twice with both words in the title, and once with one of two.
    assert found["harbour bridge"].value == pytest.approx(4 * found["bridge stays"].value)
    assert "ferry crews" not in found
    # Without a line of its own, the first sentence.
    found_there = TitlePhrases(STOPWORDS).find("Solar power pays. Wind power, too, and old wind mills.")
    assert [phrase.text for phrase in found_there] == ["Solar power", "Solar power pays", "power pays", "Wind power"]
    # Of each article its own.
    two = "Old bridge\nA ferry boat.\n\nFerry boat\nThe old bridge."
    ranges = [(0, 24), (26, len(two))]
    assert {p.text.lower() for p in TitlePhrases(STOPWORDS).find(two, ranges)} == {"old bridge", "ferry boat"}
    assert TitlePhrases(STOPWORDS).find("") == []


@pytest.mark.parametrize("kind", [TextRankPhrases, TitlePhrases])
def test_accents_are_part_of_their_letters_or_apart(kind: Any) -> None:
    title = "Café für Gäste\n"
    text = "Das große Café für müde Gäste ist für kleine müde Gäste und über der Fähre, ein Café à la é."
    apart, found = unicodedata.normalize("NFD", text), []
    for document in (title + text, title + apart, unicodedata.normalize("NFD", title) + apart):
        phrases = kind(["für", "über", "la"]).find(document)
        found.append([(unicodedata.normalize("NFC", phrase.text), phrase.value) for phrase in phrases])
    assert found[0]
    assert found[0] == found[1] == found[2]


@pytest.fixture(scope="module")
def tagger(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint that tags by itself what a token is, whatever stands beside it."""
    folder = tmp_path_factory.mktemp("tagger")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=200, num_labels=2, **sizes)
    model = RobertaForTokenClassification(config)
    for module in (model.roberta.embeddings.position_embeddings, model.roberta.encoder.layer[0].attention.self.value):
        torch.nn.init.zeros_(module.weight)
    torch.nn.init.normal_(model.classifier.weight, std=4.0)
    model.save_pretrained(folder)
    limited = copy.deepcopy(tokenizer)
    limited.model_max_length = 64
    limited.save_pretrained(folder)
    return str(folder)


def test_a_tagger(tokenizer: PreTrainedTokenizerFast, tagger: str, tmp_path: Path) -> None:
    finder = ImportantPhrases(tagger, STOPWORDS, lengths=(2,))
    found = finder.find(TEXT)
    assert found
    model = RobertaForTokenClassification.from_pretrained(tagger).eval()
    encoded = tokenizer(TEXT, return_offsets_mapping=True)
    with torch.inference_mode():
        rows = torch.tensor([encoded["input_ids"]])
        weights = model(rows).logits[0].softmax(-1)[:, 1].tolist()
    letters = [0.0] * len(TEXT)
    for weight, (start, end) in zip(weights, encoded["offset_mapping"], strict=True):
        letters[start:end] = [weight] * (end - start)
    scores = [sum(sum(letters[a:b]) / (b - a) for a, b in phrase.spans) for phrase in found]
    assert [p.value / found[0].value for p in found] == pytest.approx([s / scores[0] for s in scores], abs=1e-6)
    assert scores == sorted(scores, reverse=True)
    # In windows, a long document is tagged to its end.
    long = " ".join([TEXT] * 8)
    assert all(len(phrase.spans) >= 8 for phrase in finder.find(long)[:3])
    processor = HighlightTransformerProcessor(tokenizer, key_phrases=finder)
    state = pickle.dumps(processor)
    processor(text=TEXT)
    assert pickle.dumps(processor) == state
    processor.save_pretrained(tmp_path)
    assert AutoProcessor.from_pretrained(tmp_path)(text=TEXT) == processor(text=TEXT)


@pytest.mark.parametrize("kind", ["top-down", "hat-encoder", "roberta"])
def test_a_tagger_is_asked_no_more_than_it_takes(
    tokenizer: PreTrainedTokenizerFast, tiny_tagger: Any, kind: str, tmp_path: Path
) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 66, "num_labels": 2}
    model = {
        "top-down": lambda: tiny_tagger,
        "hat-encoder": lambda: HatEncoderForTokenClassification(HatEncoderConfig(**sizes)),
        "roberta": lambda: RobertaForTokenClassification(RobertaConfig(**sizes)),
    }[kind]()
    for part in (model, tokenizer):  # whose own limit is none
        part.save_pretrained(tmp_path)
    long = " ".join([TEXT] * 8)
    assert all(len(phrase.spans) >= 8 for phrase in ImportantPhrases(str(tmp_path), STOPWORDS).find(long)[:3])


def test_made_by_name(tokenizer: PreTrainedTokenizerFast, tagger: str) -> None:
    processor = HighlightTransformerProcessor(tokenizer)
    made = fit_key_phrases(None, processor, finder="textrank", top_k=3)
    assert (type(made), made.top_k, made.stopwords) == (TextRankPhrases, 3, KeyPhraseExtractor(STOPWORDS).stopwords)
    made = fit_key_phrases(None, processor, finder="importance", tagger=tagger)
    assert made.as_dict()["tagger"] == tagger
    for options, message in (
        ({"finder": "yake"}, "finder must be one of tf-idf, textrank, title, importance, got 'yake'"),
        ({"finder": "importance"}, "tagger, a checkpoint, goes with finder='importance'"),
        ({"tagger": tagger, "finder": "title"}, "tagger, a checkpoint, goes with finder='importance'"),
        ({}, "finder='tf-idf' counts the phrases of documents; give a dataset"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_key_phrases(None, processor, **options)


def test_a_function_finds_no_half_words() -> None:
    finder = PhraseFunction(lambda text: ["honey bee"], "bees")
    text = "The honey bee and honey bees."
    assert finder.find(text, [(0, 13), (18, 27)])[0].spans == ((4, 13),)

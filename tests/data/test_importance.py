"""Importance labels, oracle weights and a tagger's weights in tokenized documents."""

import unicodedata

import datasets
import pytest
import simplemma
from hypothesis import given, settings
from hypothesis import strategies as st

from hier_models.data import TruncationReport, load_documents, tokenize_documents
from hier_models.data import importance as importance_module
from hier_models.data.importance import importance_spans, token_labels
from hier_models.models.processing_top_down_transformer import TopDownTransformerProcessor
from tests.conftest import DOCUMENTS, SUMMARIES, TURNS


@pytest.fixture
def processor(tokenizer):
    return TopDownTransformerProcessor(tokenizer)


def important(document, reference, language="en"):
    spans = importance_spans(document, reference, language)
    assert all(weight == 1.0 for _, _, weight in spans)
    return [document[start:end] for start, end, _ in spans]


# Labels


def test_words_whose_lemma_is_in_the_reference_are_important():
    document = "Bridges were closed. The bridge's pillars cracked; repairing THE BRIDGE takes 6 weeks, said Li."
    reference = "A closed bridge: it is being repaired, a week or 6."
    assert important(document, reference) == ["Bridges", "closed", "bridge's", "repairing", "BRIDGE", "6", "weeks"]


def test_stopwords_are_never_important():
    document = "It isn’t what they're after, and don't we know that he was there."
    assert important(document, document) == ["know"]
    assert important(document, "was, is; it? they’re") == []


def test_parts_of_compounds_and_words_with_accents_count():
    words = ["art", "naïve", "model", "models", "2"]
    assert important("A state-of-the-art naïve model (models_2).", "Art: naïve model 2") == words
    assert important("", "a bridge") == important("a bridge", "") == []


def test_a_genitive_is_its_word():
    assert important("Kepler's laws and EINSTEIN’S", "Kepler, Einstein") == ["Kepler's", "EINSTEIN’S"]
    assert important("Kepler and the other's", "Kepler’s, another's, the other's") == ["Kepler"]


def test_accents_may_be_characters_of_their_own():
    """Files of some systems write é as e and an accent."""
    apart = [unicodedata.normalize("NFD", word) for word in ("café", "résumé", "naïve")]
    assert important(" ".join(apart), "Café, résumé") == apart[:2]
    assert important("café", apart[0]) == ["café"]
    apart = [unicodedata.normalize("NFD", word) for word in ("über", "Häuser")]
    assert important(" ".join(apart), "über ein Haus", "de") == apart[1:]


def test_german():
    document = "Die Häuser standen am Fluss. Gehen sie über die Brücken zum Haus?"
    assert important(document, "Ein Haus, viele Brücken, und ich gehe.", "de") == [
        "Häuser",
        "Gehen",
        "Brücken",
        "Haus",
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["The", "bridges", "was", "closed", "cities", "City", "3rd", "in"]), max_size=12),
    st.lists(st.sampled_from(["bridge", "closing", "city", "the", "3rd", "mice"]), max_size=5),
    st.sampled_from([" ", ", ", "-", "\n"]),
)
def test_spans_are_those_of_a_plain_rereading(document, reference, separator):
    """Word by word, without the cache, the stopword file or the pattern of words."""
    stopwords = {"the", "was", "in"}
    lemmas = {simplemma.lemmatize(word, lang="en").lower() for word in reference if word not in stopwords}
    text, expected = "", []
    for word in document:
        if word.lower() not in stopwords and simplemma.lemmatize(word, lang="en").lower() in lemmas:
            expected.append((len(text), len(text) + len(word), 1.0))
        text += word + separator
    assert importance_spans(text, separator.join(reference)) == expected


def test_a_language_without_a_list_is_refused():
    with pytest.raises(ValueError, match=r"language must be one .*\(de, en\), got 'fr'"):
        importance_spans("a", "b", "fr")


def test_without_simplemma_it_says_what_to_install(monkeypatch):
    importance_module._lemma.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "simplemma", None)
    with pytest.raises(ImportError, match=r"hier_models\[importance\]"):
        importance_spans("bridge", "bridge")


def test_labels_stand_at_the_tokens_of_important_words(processor):
    encoded = processor(
        text=DOCUMENTS,
        importance=[importance_spans(*pair) for pair in zip(DOCUMENTS, SUMMARIES, strict=True)],
        return_offsets_mapping=True,
        return_truncation=True,
    )
    for number, labels in enumerate(token_labels(encoded)):
        assert [labels[0], labels[-1]] == [-100, -100]
        assert len(labels) == len(encoded["input_ids"][number])
        spans = importance_spans(DOCUMENTS[number], SUMMARIES[number])
        for label, (start, end) in zip(labels[1:-1], encoded["offset_mapping"][number][1:-1], strict=True):
            assert label == any(start < stop and begin < end for begin, stop, _ in spans)


def test_a_document_without_important_words_has_labels_of_0(processor):
    encoded = processor(text=["One two."], importance=[[]], return_offsets_mapping=True, return_truncation=True)
    (labels,) = token_labels(encoded)
    assert set(labels[1:-1]) == {0}


# Weights in tokenized documents


@pytest.mark.parametrize("kind", ["text", "turns", "sentences", "documents"])
def test_oracle_weights_of_every_kind_of_source(processor, kind):
    sources = {
        "text": DOCUMENTS[0],
        "turns": TURNS,
        "sentences": ["Bridges closed.", " ", "A ferry runs."],
        "documents": [DOCUMENTS[1], DOCUMENTS[2]],
    }
    rows = datasets.Dataset.from_list([{kind: sources[kind], "summary": "The bridge, a bee or rooms; library."}])
    (row,) = tokenize_documents(rows, processor, importance="oracle")
    text = processor.running_text(**{kind: sources[kind]})
    expected = processor(text=text, importance=importance_spans(text, "The bridge, a bee or rooms; library."))
    assert row["input_ids"] == expected["input_ids"]
    assert row["token_importance"] == expected["token_importance"]
    assert set(row["token_importance"]) == {0.0, 1.0}
    assert row["without_importance"] == 0
    assert "labels" in row


def test_what_no_token_is_important_in_is_counted(processor, caplog):
    rows = datasets.Dataset.from_dict(
        {
            "text": ["A bridge closed.", "Two three.", " ".join(["word"] * 9) + " end"],
            "summary": ["bridge", "x", "end"],
        }
    )
    report = TruncationReport()
    tokenized = tokenize_documents(rows, processor, importance="oracle", max_source_length=12, report=report)
    assert tokenized["without_importance"] == [0, 1, 1]
    assert tokenized["token_importance"][1] == [1.0] * len(tokenized["input_ids"][1])
    assert report.as_dict()["without_importance"] == report.without_importance == 2
    assert "2 have no important token" in str(report)
    plain = TruncationReport()
    assert "token_importance" not in tokenize_documents(rows, processor, report=plain).column_names
    assert "without_importance" not in plain.as_dict()


def test_a_stream_and_two_processes_give_the_same_weights(processor, tmp_path):
    path = tmp_path / "a.jsonl"
    datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES}).to_json(path)
    whole = tokenize_documents(load_documents(path), processor, importance="oracle")
    report = TruncationReport()
    streamed = tokenize_documents(load_documents(path, streaming=True), processor, importance="oracle", report=report)
    assert [row["token_importance"] for row in streamed] == list(whole["token_importance"])
    assert report.as_dict()["without_importance"] == sum(whole["without_importance"])


@pytest.mark.slow
def test_two_processes_give_the_same_weights(processor):
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    alone = tokenize_documents(rows, processor, importance="oracle")
    assert list(tokenize_documents(rows, processor, importance="oracle", num_proc=2)) == list(alone)


def test_labels_are_made_once(processor, tmp_path, monkeypatch):
    """The cache of datasets knows them by what decides them, the kind of weights among it."""
    path = tmp_path / "a.jsonl"
    datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES}).to_json(path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    weighted = tokenize_documents(load_documents(path), processor, importance="oracle")
    plain = tokenize_documents(load_documents(path), processor)
    assert "token_importance" not in plain.column_names
    monkeypatch.setattr("hier_models.data.tokenizing.oracle_spans", None)  # not called again
    again = tokenize_documents(load_documents(path), processor, importance="oracle")
    assert list(again) == list(weighted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"importance": "tagger"}, "importance must be 'oracle', an ImportanceTagger or None, got 'tagger'"),
        ({"processor": "tokenizer"}, "importance is for processors that give token_importance"),
        ({"summary": False}, "importance='oracle' needs the column summary, got text"),
        ({"language": "fr"}, "must be one that has a list of stopwords"),
    ],
)
def test_weights_that_cannot_be_made_are_refused(processor, tokenizer, changes, message):
    rows = datasets.Dataset.from_dict({"text": DOCUMENTS, "summary": SUMMARIES})
    if not changes.get("summary", True):
        rows = rows.remove_columns("summary")
    processor.language = changes.get("language", "en")
    chosen = tokenizer if "processor" in changes else processor
    with pytest.raises(ValueError, match=message):
        tokenize_documents(rows, chosen, importance=changes.get("importance", "oracle"))

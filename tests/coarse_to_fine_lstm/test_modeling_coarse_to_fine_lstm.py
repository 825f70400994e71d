"""The Coarse-to-Fine LSTM's model: against the thesis, in training with hard attention, and at its own edges."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import logging

from hier_models import (
    CoarseToFineLstmConfig,
    CoarseToFineLstmForConditionalGeneration,
    CoarseToFineLstmModel,
)
from hier_models.models import (
    decoder_coarse_to_fine_lstm,
    encoder_coarse_to_fine_lstm,
    modeling_coarse_to_fine_lstm,
)
from tests.cases import coarse_to_fine_config
from tests.references import coarse_to_fine_lstm as reference


BOS, PAD, EOS = 0, 1, 2
MODELS = ["standard", "flat", "coarse_to_fine", "hard"]


def make_config(**kwargs):
    sizes = {
        "vocab_size": 40,
        "embedding_size": 5,
        "hidden_size": 6,
        "coarse_filters": 4,
        "coarse_kernel_size": 3,
        "max_rows": 6,
        "dropout": 0.0,
    }
    return CoarseToFineLstmConfig(**{**sizes, **kwargs})


def make_model(cls=CoarseToFineLstmForConditionalGeneration, std=0.5, **kwargs):
    torch.manual_seed(0)
    model = cls(make_config(**kwargs)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


# Rows of one word, shorter than the kernel, longer, empty in the middle; a document with one row only.
DOCUMENTS = [
    reference.Document([[7, 8, 9, 10, 7], [11], [], [12, 13, 14, 8]]),
    reference.Document([[20, 21]]),
]
TARGET = torch.tensor([[BOS, 15, 16, 9], [BOS, 30, 31, 32]])


def make_batch(documents, side="right", extra=1):
    """Inputs of a batch; padding inside of rows has a row but no mask."""
    columns = {"input_ids": [], "attention_mask": [], "row_ids": []}
    for document in documents:
        ids, mask, rows = [], [], []
        for number, words in enumerate(document.rows):
            padding = document.padding_of(number)
            ids += words + [PAD] * padding
            mask += [1] * len(words) + [0] * padding
            rows += [number] * (len(words) + padding)
        for name, values in zip(columns, (ids, mask, rows), strict=True):
            columns[name].append(values)
    length = max(map(len, columns["row_ids"])) + extra
    for name, filler in (("input_ids", PAD), ("attention_mask", 0), ("row_ids", -1)):
        padding = [[filler] * (length - len(values)) for values in columns[name]]
        pairs = zip(columns[name], padding, strict=True)
        columns[name] = torch.tensor([a + b if side == "right" else b + a for a, b in pairs])
    return columns


def parameters_of(model):
    return {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}


def assert_gradients_agree(model, weights, **close):
    for name, parameter in model.named_parameters():
        got = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        want = weights[name].grad if weights[name].grad is not None else torch.zeros_like(parameter)
        torch.testing.assert_close(got, want, **close, msg=lambda text, name=name: f"{name}: {text}")


POS, BOW = {"row_position_size": 2}, {"coarse_representation": "bag_of_words"}
SETTINGS = {
    "model 0": {"attention": "standard"},
    "model 1": {"attention": "flat"},
    "model 2": {"attention": "coarse_to_fine"},
    "model 2, bag of words": {"attention": "coarse_to_fine", **BOW},
    "model 2, positions": {"attention": "coarse_to_fine", **POS},
    "model 2, one layer": {"attention": "coarse_to_fine", "encoder_layers": 1, "decoder_layers": 1},
    "model 2, three layers": {"attention": "coarse_to_fine", "encoder_layers": 3, "decoder_layers": 3},
    "model 3": {"attention": "hard", **POS},
    "model 3, two rows": {"attention": "hard", "selected_rows": 2, **BOW, **POS},
    "model 3, more rows than there are": {"attention": "hard", "num_samples": 9},
}
CLOSE = {"rtol": 0, "atol": 1e-10}


class TestAgainstTheThesis:
    """Fidelity: the plain re-derivation in tests/references, forward and every gradient."""

    @pytest.mark.parametrize(("name", "side", "padding"), [
        *((name, "right", None) for name in SETTINGS),
        ("model 0", "left", None),
        ("model 2, positions", "left", None),
        ("model 3, two rows", "left", None),
        ("model 0", "right", [1, 0, 3, 2]),
        ("model 1", "left", [1, 0, 3, 2]),
        ("model 2, positions", "right", [1, 4, 3, 0]),
        ("model 2, bag of words", "left", [1, 4, 3, 0]),
        ("model 3, more rows than there are", "right", [1, 4, 3, 0]),
    ])  # fmt: skip
    def test_forward_and_gradients_in_float64(self, name, side, padding):
        model = make_model(**SETTINGS[name], attend_padding=padding is not None).double()
        config = model.config
        documents = [reference.Document(document.rows, padding or []) for document in DOCUMENTS]
        batch = make_batch(documents, side)
        outputs = model(**batch, decoder_input_ids=TARGET, output_attentions=True)

        weights = parameters_of(model)
        expected = []
        for i, document in enumerate(documents):
            encoded = reference.Encoded(weights, document, config.attention, config.encoder_layers)
            states = torch.stack([state for row in encoded.states for state in row])
            inside = batch["row_ids"][i] >= 0
            torch.testing.assert_close(outputs.encoder_last_hidden_state[i][inside], states, **CLOSE)
            steps = reference.decode(
                weights,
                encoded,
                TARGET[i].tolist(),
                layers=config.decoder_layers,
                attention=config.attention,
                best=config.selected_rows or config.num_samples,
            )
            words = torch.stack([torch.stack([weight for row in step.words for weight in row]) for step in steps])
            torch.testing.assert_close(outputs.cross_attentions[0][i, 0][:, inside], words, **CLOSE)
            rows = torch.stack([torch.stack(step.rows) for step in steps])
            torch.testing.assert_close(outputs.row_attentions[i, :, : rows.shape[1]], rows, **CLOSE)
            assert not outputs.row_attentions[i, :, rows.shape[1] :].any()
            assert not outputs.cross_attentions[0][i, 0][:, ~inside].any()
            expected.append(torch.stack([torch.stack(row) for row in reference.predict(weights, steps)]))
        expected = torch.stack(expected)
        torch.testing.assert_close(outputs.logits.log_softmax(-1), expected, **CLOSE)

        direction = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        (outputs.logits.log_softmax(-1) * direction).sum().backward()
        (expected * direction).sum().backward()
        assert_gradients_agree(model, weights, **CLOSE)
        unused = {name for name, weight in weights.items() if weight.grad is None or not weight.grad.any()}
        best_row_only = config.attention == "hard" and (config.selected_rows or config.num_samples) == 1
        assert all(best_row_only and (".coarse." in name or "row_keys" in name) for name in unused)

    @pytest.mark.parametrize(("num_samples", "per_batch", "kind"), [
        (1, None, "moving_average"), (3, None, "moving_average"), (3, 50, "moving_average"),
        (2, None, "leave_one_out"), (3, 50, "leave_one_out"),
    ])  # fmt: skip
    @pytest.mark.parametrize("on_demand", [True, False])
    def test_training_with_hard_attention(self, monkeypatch, num_samples, per_batch, kind, on_demand):
        """Algorithm 1: the gradient of what was drawn, and of the likelihood."""
        settings = {"reward_discount": 0.6, "reward_scale": 0.4, "baseline": kind, **POS}
        model = make_model(attention="hard", num_samples=num_samples, **settings)
        model = model.double().train()
        baseline = torch.linspace(-3, -2, 4, dtype=torch.float64)
        model.reward_baseline.values[:4] = baseline
        labels = torch.tensor([[15, 16, 9, EOS], [30, 31, EOS, -100]])
        drawn = []
        draw = modeling_coarse_to_fine_lstm.surrogate_loss

        def remember(log_attention, counts, *rest):
            drawn.append(counts)
            return draw(log_attention, counts, *rest)

        monkeypatch.setattr(modeling_coarse_to_fine_lstm, "surrogate_loss", remember)
        given = {} if per_batch is None else {"num_items_in_batch": per_batch}
        outputs = model(**make_batch(DOCUMENTS), labels=labels, output_hidden_states=not on_demand, **given)
        assert (outputs.encoded_rows is not None) == on_demand
        outputs.loss.backward()
        counts = drawn[0]
        assert (counts.sum(-1) == num_samples).all()
        assert not counts[0, :, 2].any()  # the empty row
        assert not counts[1, :, 1:].any()

        weights = parameters_of(model)
        normalizer = per_batch or 7
        likelihood = sampled = 0
        for i, document in enumerate(DOCUMENTS):
            encoded = reference.Encoded(weights, document, "hard", 2)
            target = [BOS, *labels[i, :-1].tolist()]
            length = int((labels[i] != -100).sum())
            of_document = [row[: len(document.rows)] for row in counts[i].tolist()]
            steps = reference.decode(weights, encoded, target[:length], layers=2, attention="hard", counts=of_document)
            found = reference.predict(weights, steps)
            gold = [found[t][labels[i, t]] for t in range(length)]
            likelihood = likelihood - sum(gold) / normalizer
            rewards = [value.item() for value in gold]
            left_out = None
            if kind == "leave_one_out":
                gold_ids = labels[i, :length].tolist()
                left_out = reference.rewards_left_out(weights, encoded, target[:length], gold_ids, of_document, 2)
            term = reference.surrogate(steps, of_document, rewards, baseline.tolist(), 0.6, left_out)
            sampled = sampled + 0.4 * term / normalizer
        torch.testing.assert_close(outputs.loss, likelihood, **CLOSE)
        torch.testing.assert_close(outputs.surrogate, sampled.detach(), **CLOSE)
        (likelihood + sampled).backward()
        assert_gradients_agree(model, weights, **CLOSE)
        assert all(weight.grad.any() for weight in weights.values())

    @pytest.mark.parametrize("noise", [0.0, 2.0])
    def test_training_with_the_best_rows(self, monkeypatch, noise):
        """The gradient flows through the weights of the rows that are taken."""
        settings = {"estimator": "top_k", "num_samples": 2, "selected_rows": 1, "gumbel_noise": noise, **POS}
        model = make_model(attention="hard", **settings).double().train()
        drawn = []

        def draw(scores):
            drawn.append(torch.randn(scores.shape, dtype=torch.float64))
            return drawn[-1]

        monkeypatch.setattr(decoder_coarse_to_fine_lstm, "draw_gumbel", draw)
        outputs = model(**make_batch(DOCUMENTS), labels=TARGET, decoder_input_ids=TARGET)
        assert outputs.surrogate is None
        outputs.loss.backward()
        assert len(drawn) == (TARGET.shape[1] if noise else 0)

        weights = parameters_of(model)
        loss = 0
        for i, document in enumerate(DOCUMENTS):
            encoded = reference.Encoded(weights, document, "hard", 2)
            of_document = [(noise * step[i]).tolist() for step in drawn] if noise else None
            target = TARGET[i].tolist()
            steps = reference.decode(weights, encoded, target, layers=2, attention="hard", best=2, noise=of_document)
            found = reference.predict(weights, steps)
            loss = loss - sum(found[t][word] for t, word in enumerate(target)) / TARGET.numel()
        torch.testing.assert_close(outputs.loss, loss, **CLOSE)
        loss.backward()
        assert_gradients_agree(model, weights, **CLOSE)
        assert all(weight.grad.any() for weight in weights.values())

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
    @pytest.mark.parametrize("attention", MODELS)
    def test_lower_precision_stays_close(self, attention, dtype, tolerance):
        # With all rows selected: which one is the best can turn on a rounding.
        all_rows = {"selected_rows": 9} if attention == "hard" else {}
        model = make_model(CoarseToFineLstmModel, attention=attention, **all_rows).double()
        inputs = {**make_batch(DOCUMENTS), "decoder_input_ids": TARGET}
        expected = model(**inputs).last_hidden_state
        result = model.to(dtype)(**inputs).last_hidden_state
        assert (result.double() - expected).abs().max() / expected.abs().max() < tolerance

    def test_the_thesis_sizes(self):
        with torch.device("meta"):
            model = CoarseToFineLstmForConditionalGeneration(CoarseToFineLstmConfig())
        sizes = {name: tuple(value.shape) for name, value in model.named_parameters()}
        assert sizes["model.encoder.embed_tokens.weight"] == sizes["model.decoder.embed_tokens.weight"] == (50000, 300)
        assert sizes["model.encoder.coarse.convolution.weight"] == (600, 300, 6)
        assert sizes["model.encoder.row_keys.weight"] == (500, 600)
        assert sizes["model.encoder.layers.1.lstm.weight_hh_l0"] == (2000, 500)
        assert sizes["lm_head.weight"] == (50000, 500)
        assert round(model.num_parameters() / 1e6) == 65

    def test_first_weights_are_uniform(self):
        model = CoarseToFineLstmForConditionalGeneration(make_config(hidden_size=30, attention="hard", **POS))
        for name, value in model.named_parameters():
            assert value.abs().max() <= 0.1, name
            assert value.numel() < 100 or value.abs().max() > 0.08, name
        for embedding in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
            assert not embedding.weight[PAD].any()
        assert not model.reward_baseline.values.any()


class TestTraining:
    """What training with hard attention does beside its gradient."""

    batch = make_batch(DOCUMENTS)
    labels = torch.tensor([[15, 16, 9, EOS], [30, 31, EOS, -100]])

    def loss(self, model, **kwargs):
        return model(**self.batch, labels=self.labels, **kwargs)

    def test_without_labels_hard_attention_says_that_it_does_not_learn(self, caplog):
        """As with a Trainer whose label smoothing takes them out."""
        logging.get_logger("x").warning_once.cache_clear()
        for attention in ("coarse_to_fine", "hard"):
            make_model(attention=attention).train()(**self.batch, decoder_input_ids=TARGET)
            assert ("does not learn which rows to read" in caplog.text) == (attention == "hard")

    def test_the_loss_is_the_likelihood(self):
        model = make_model(attention="hard", num_samples=2).train()
        torch.manual_seed(3)
        outputs = self.loss(model)
        log_probabilities = outputs.logits.log_softmax(-1)
        mask = self.labels != -100
        gold = log_probabilities.gather(-1, self.labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(outputs.loss, -gold[mask].mean())
        assert not outputs.surrogate.requires_grad

    def test_the_baseline_moves_in_training_only(self):
        model = make_model(attention="hard", baseline_rate=0.25)
        self.loss(model)
        with torch.no_grad():
            self.loss(model)
        assert not model.reward_baseline.values.any()
        outputs = self.loss(model.train())
        log_probabilities = outputs.logits.log_softmax(-1)
        gold = log_probabilities.gather(-1, self.labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        want = torch.stack([gold[:, 0].mean(), gold[:, 1].mean(), gold[:, 2].mean(), gold[0, 3]])
        torch.testing.assert_close(model.reward_baseline.values[:4], 0.25 * want.detach())

    def test_evaluation_takes_the_best_row(self):
        model = make_model(attention="hard")
        assert torch.equal(self.loss(model).loss, self.loss(model).loss)
        assert self.loss(model).surrogate is None
        torch.manual_seed(0)
        model.train()
        assert len({self.loss(model).loss.item() for _ in range(6)}) > 1

    @pytest.mark.parametrize("how", ["attribute", "always alternate"])
    def test_soft_attention_in_training_is_model_2(self, how):
        hard = make_model(attention="hard", alternate_soft=1.0 if how == "always alternate" else 0.0).train()
        soft = make_model(attention="coarse_to_fine").train()
        if how == "attribute":
            hard.soft_attention = True
        outputs = self.loss(hard)
        torch.testing.assert_close(outputs.loss, self.loss(soft).loss, rtol=0, atol=0)
        assert outputs.surrogate is None
        hard.eval()
        assert self.loss(hard).loss != self.loss(soft).loss

    def test_alternating(self):
        model = make_model(attention="hard", alternate_soft=0.3).train()
        torch.manual_seed(0)
        soft = [model.model._row_choice().how == "soft" for _ in range(500)]
        assert 120 < sum(soft) < 180
        assert (self.loss(model).surrogate is None) in (True, False)

    def test_dropout_is_between_layers_and_before_the_generator(self):
        model = make_model(attention="coarse_to_fine", dropout=0.5)
        expected = self.loss(model).logits
        model.train()
        assert (self.loss(model).logits - expected).abs().max() > 1e-2
        for module in (model, model.model.encoder, model.model.decoder.step):
            module.dropout.p = 0.0
        torch.testing.assert_close(self.loss(model).logits, expected)

    def test_frozen_embeddings_of_the_source(self, tmp_path):
        model = make_model(attention="coarse_to_fine", freeze_source_embeddings=True, **BOW)
        frozen = {"model.encoder.embed_tokens.weight", "model.encoder.coarse.embed_tokens.weight"}
        model.save_pretrained(tmp_path)
        for each in (model, AutoModelForSeq2SeqLM.from_pretrained(tmp_path)):
            assert {name for name, value in each.named_parameters() if not value.requires_grad} == frozen

    def test_the_chunks_of_the_convolution_do_not_matter(self, monkeypatch):
        model = make_model(attention="coarse_to_fine")
        expected = self.loss(model).loss
        monkeypatch.setattr(encoder_coarse_to_fine_lstm, "_VALUES_AT_ONCE", 1)
        torch.testing.assert_close(self.loss(model).loss, expected)


class TestCheckpoints:
    """Models 2 and 3 load each other."""

    def test_model_2_becomes_model_3_and_back(self, tmp_path):
        soft = make_model(attention="coarse_to_fine")
        soft.save_pretrained(tmp_path / "soft")
        hard, report = AutoModelForSeq2SeqLM.from_pretrained(
            tmp_path / "soft", attention="hard", num_samples=2, output_loading_info=True
        )
        assert not report["missing_keys"]
        assert not hard.reward_baseline.values.any()
        hard.reward_baseline.values += 1
        hard.save_pretrained(tmp_path / "hard")
        again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hard")
        assert (again.reward_baseline.values == 1).all()
        back, report = AutoModelForSeq2SeqLM.from_pretrained(
            tmp_path / "hard", attention="coarse_to_fine", output_loading_info=True
        )
        assert not report["unexpected_keys"]
        inputs = {**make_batch(DOCUMENTS), "labels": TARGET}
        assert torch.equal(back(**inputs).loss, soft(**inputs).loss)

    @pytest.mark.parametrize("settings", [BOW, POS], ids=["bag of words", "positions"])
    @pytest.mark.parametrize("cls", [CoarseToFineLstmForConditionalGeneration, CoarseToFineLstmModel])
    def test_resizing_all_embeddings(self, cls, settings):
        model = make_model(cls, **settings)
        inputs = {**make_batch(DOCUMENTS), "decoder_input_ids": TARGET}
        expected = model(**inputs)[0]
        model.resize_token_embeddings(50)
        got = model(**inputs)[0]
        torch.testing.assert_close(got[..., : expected.shape[-1]], expected)
        inputs["decoder_input_ids"] = torch.full_like(TARGET, 49)
        inputs["input_ids"][0, 0] = 49
        assert model(**inputs)[0].isfinite().all()
        model.resize_token_embeddings(38)
        tables = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) and m.embedding_dim == 5]
        assert {table.num_embeddings for table in tables} == {38}

    @pytest.mark.parametrize("padding", [False, True])
    def test_neftune(self, padding, tmp_path):
        """`Trainer` scales noise by the shape of embeddings; rows are read packed, but looked up in the source's."""
        model = make_model(attend_padding=padding).float()
        inputs = {**make_batch(DOCUMENTS), "labels": TARGET}
        rows = [{name: value[i] for name, value in inputs.items()} for i in range(len(TARGET))]
        shapes = []
        model.get_input_embeddings().register_forward_hook(lambda module, ids, found: shapes.append(found.shape))
        losses = []
        for alpha in (None, 5.0):
            arguments = TrainingArguments(
                str(tmp_path),
                neftune_noise_alpha=alpha,
                learning_rate=0.0,
                max_steps=1,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            )
            trainer = Trainer(model, arguments, train_dataset=rows)
            trainer.train()
            losses.append(trainer.state.log_history[0]["loss"])
        assert shapes == [(*inputs["input_ids"].shape, 5)] * 2
        assert losses[0] != losses[1]


class TestEdges:
    """Documents that have little in them, and inputs of other kinds."""

    def test_without_row_ids_the_source_is_one_row(self):
        model = make_model()
        batch = make_batch(DOCUMENTS)
        one_row = torch.where(batch["attention_mask"] == 1, 0, -1)
        expected = model(**{**batch, "row_ids": one_row}, decoder_input_ids=TARGET).logits
        del batch["row_ids"]
        torch.testing.assert_close(model(**batch, decoder_input_ids=TARGET).logits, expected)

    def test_a_document_of_one_row_is_the_same_for_models_1_to_3(self):
        batch = make_batch(DOCUMENTS[1:])
        logits = []
        for attention in MODELS:
            model = make_model(attention=attention)
            model.load_state_dict(make_model(attention="hard").state_dict(), strict=False)
            logits.append(model(**batch, decoder_input_ids=TARGET[:1]).logits)
        for other in logits[1:]:
            torch.testing.assert_close(other, logits[0])

    @pytest.mark.parametrize("attention", MODELS)
    @pytest.mark.parametrize("grad", [True, False])
    def test_nothing_but_padding(self, attention, grad):
        model = make_model(attention=attention)
        batch = {name: value[:, -1:].expand(2, 5).clone() for name, value in make_batch(DOCUMENTS).items()}
        with torch.set_grad_enabled(grad):
            outputs = model(**batch, decoder_input_ids=TARGET, output_attentions=True)
        assert outputs.logits.isfinite().all()
        assert not outputs.cross_attentions[0].any()
        assert not outputs.row_attentions.any()
        with torch.no_grad():
            model.train()
            assert model(**batch, labels=TARGET).loss.isfinite()

    def test_rows_of_one_document_of_the_batch_only(self):
        model = make_model()
        batch = make_batch(DOCUMENTS)
        batch["attention_mask"][0] = 0
        outputs = model(**batch, decoder_input_ids=TARGET)
        outputs.logits.sum().backward()
        assert all(value.grad.isfinite().all() for value in model.parameters())
        alone = model(**make_batch(DOCUMENTS[1:]), decoder_input_ids=TARGET[1:]).logits
        torch.testing.assert_close(outputs.logits[1:], alone)

    def test_embeddings_in_place_of_ids(self):
        model = make_model()
        batch = make_batch(DOCUMENTS)
        expected = model(**batch, decoder_input_ids=TARGET).logits
        ids = batch.pop("input_ids")
        batch["inputs_embeds"] = model.get_input_embeddings()(ids)
        batch["decoder_inputs_embeds"] = model.get_decoder().get_input_embeddings()(TARGET)
        torch.testing.assert_close(model(**batch).logits, expected)

    @pytest.mark.parametrize("attention", ["standard", "flat"])
    def test_states_of_another_encoder(self, attention):
        model = make_model(attention=attention)
        batch = make_batch(DOCUMENTS)
        expected = model(**batch, decoder_input_ids=TARGET)
        states = BaseModelOutput(last_hidden_state=expected.encoder_last_hidden_state)
        mask = batch["attention_mask"]
        got = model(encoder_outputs=states, attention_mask=mask, decoder_input_ids=TARGET).logits
        torch.testing.assert_close(got, expected.logits)

    def test_padding_of_the_target_leaves_the_state_as_it_is(self):
        model = make_model()
        batch = make_batch(DOCUMENTS)
        expected = model(**batch, decoder_input_ids=TARGET).logits
        padded = torch.cat([torch.full((2, 2), PAD), TARGET], dim=1)
        mask = (torch.arange(6) > 1).long().expand(2, -1)
        got = model(**batch, decoder_input_ids=padded, decoder_attention_mask=mask).logits
        torch.testing.assert_close(got[:, 2:], expected)

    def test_hidden_states_of_all_layers(self):
        for attention in MODELS:
            model = make_model(attention=attention, encoder_layers=3)
            with torch.no_grad():
                outputs = model(**make_batch(DOCUMENTS), decoder_input_ids=TARGET, output_hidden_states=True)
            assert [states.shape[-1] for states in outputs.encoder_hidden_states] == [5, 6, 6, 6]
            torch.testing.assert_close(outputs.encoder_hidden_states[-1], outputs.encoder_last_hidden_state)
            assert [tuple(states.shape) for states in outputs.decoder_hidden_states] == [(2, 4, 5)] + [(2, 4, 6)] * 2


class TestBadInput:
    """A mistake is refused at once: the argument's name, what was got, what is allowed."""

    @pytest.mark.parametrize(("change", "message"), [
        ({"row_ids": [[0, 1, 0, -1]]}, "`row_ids` must not decrease in a document, got 0 after 1 at token 2 of"),
        ({"row_ids": [[0, -2, 0, 0]]}, "`row_ids` must count from 0, or be -1 for padding; got -2"),
        ({"row_ids": [[0, 0]]}, r"`row_ids` must be \(1, 4\) like the tokens, got shape \(1, 2\)"),
        ({"row_ids": [[0.0, 0.0, 0.0, 0.0]]}, "`row_ids` must be integers, got torch.float32"),
        ({"row_ids": [[0, 1, 2, 6]]}, "`row_ids` has 7 rows, more than max_rows=6 row positions"),
    ])  # fmt: skip
    def test_inputs(self, change, message):
        model = make_model(**POS)
        inputs = {"input_ids": [[5, 6, 7, 8]], "row_ids": [[0, 0, 1, 1]], "decoder_input_ids": [[BOS, 5]], **change}
        inputs = {name: value if value is None else torch.tensor(value) for name, value in inputs.items()}
        with pytest.raises(ValueError, match=message):
            model(**inputs)

    def test_a_bag_of_words_needs_words(self):
        with pytest.raises(ValueError, match="`inputs_embeds` must not be given with coarse_representation='bag_of_"):
            make_model(**BOW)(inputs_embeds=torch.zeros(1, 4, 5), decoder_input_ids=TARGET[:1])
        make_model(attention="flat", **BOW)(inputs_embeds=torch.zeros(1, 4, 5), decoder_input_ids=TARGET[:1])

    def test_encoder_outputs_of_somebody_else(self):
        states = BaseModelOutput(last_hidden_state=torch.zeros(2, 3, 6))
        with pytest.raises(ValueError, match="`encoder_outputs` must be what this model's encoder returns"):
            make_model()(encoder_outputs=states, decoder_input_ids=TARGET)

    @pytest.mark.parametrize("attention", MODELS)
    def test_a_mask_that_does_not_fit_the_encoder_outputs(self, attention):
        model, batch = make_model(attention=attention), make_batch(DOCUMENTS)
        with torch.no_grad():
            encoded = model.get_encoder()(**batch)
        settings = {"encoder_outputs": encoded, "num_beams": 2, "max_new_tokens": 3}
        assert len(model.generate(**settings, attention_mask=batch["attention_mask"])) == 2
        # Transformers repeated the encoding for the beams, in its place.
        with pytest.raises(ValueError, match=r"`attention_mask` must be .* like `encoder_outputs`"):
            model.generate(**settings, attention_mask=batch["attention_mask"])
        with pytest.raises(ValueError, match=r"`attention_mask` must be .* like `encoder_outputs`"):
            model(encoder_outputs=encoded, attention_mask=torch.ones(7, 5), decoder_input_ids=TARGET)

    def test_encoder_outputs_of_another_batch(self):
        model = make_model()
        encoded = model.get_encoder()(**make_batch(DOCUMENTS))
        with pytest.raises(ValueError, match="The target must have batch=2 like the source, got batch=1"):
            model(encoder_outputs=encoded, decoder_input_ids=TARGET[:1])

    @pytest.mark.parametrize(("fields", "message"), [
        ({"attention": "hard", "reward_scale": -0.3}, "`reward_scale` must be finite and not negative, got -0.3"),
        ({"attention": "hard", "num_samples": 0}, "`num_samples` must be at least 1, got 0"),
        ({"attention": "hard", "selected_rows": 0}, "`selected_rows` must be at least 1, got 0"),
        ({"attention": "hard", "reward_discount": 1.5}, "`reward_discount` must be between 0 and 1, got 1.5"),
        ({"attention": "hard", "alternate_soft": -0.1}, "`alternate_soft` must be between 0 and 1, got -0.1"),
        ({"baseline_rate": 2}, "`baseline_rate` must be between 0 and 1, got 2"),
        ({"num_samples": 2}, "`num_samples` must be 1 with attention='coarse_to_fine'"),
        ({"estimator": "top_k"}, "`estimator` must be 'reinforce' with attention='coarse_to_fine'"),
        ({"attention": "hard", "estimator": "top_k"}, "`num_samples` must be at least 2 with estimator='top_k'"),
        ({"attention": "hard", "baseline": "leave_one_out"}, "`num_samples` must be at least 2 with baseline='leave"),
        ({"attention": "hard", "gumbel_noise": 1}, "`gumbel_noise` must be 0 with estimator='reinforce'"),
        (
            {"attention": "hard", "num_samples": 2, "estimator": "top_k", "baseline": "leave_one_out"},
            "`baseline` must be 'moving_average' with estimator='top_k'",
        ),
        ({"selected_rows": 2}, "`selected_rows` must be None with attention='coarse_to_fine'"),
        ({"alternate_soft": 0.5}, "`alternate_soft` must be 0 with attention='coarse_to_fine'"),
        ({"attention": "flat", "row_position_size": 25}, "`row_position_size` must be 0 with attention='flat'"),
        ({"coarse_kernel_size": 0}, "`coarse_kernel_size` must be at least 1, got 0"),
        ({"tie_word_embeddings": True}, "`tie_word_embeddings` must be false, got True"),
        ({"pad_token_id": 50000}, r"`pad_token_id` must be in \[0, vocab_size=50000\), got 50000"),
    ])  # fmt: skip
    def test_configurations(self, fields, message):
        with pytest.raises(StrictDataclassClassValidationError, match=message):
            CoarseToFineLstmConfig(**fields)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_of_any_precision_run_in_mixed_precision(dtype):
    model = CoarseToFineLstmForConditionalGeneration(coarse_to_fine_config()).eval().to(dtype)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(input_ids=ids, labels=ids).loss.isfinite()

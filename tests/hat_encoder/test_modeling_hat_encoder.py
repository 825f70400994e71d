"""The encoder-only HAT: against the paper, against RoBERTa, and at its own edges."""

import itertools

import pytest
import torch
import transformers
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, RobertaConfig, XLMRobertaForMaskedLM
from transformers.utils import logging

import hier_models
from hier_models import (
    HatEncoderConfig,
    HatEncoderForMaskedLM,
    HatEncoderForMultipleChoice,
    HatEncoderForQuestionAnswering,
    HatEncoderForSequenceClassification,
    HatEncoderForTokenClassification,
    HatEncoderModel,
)
from hier_models.models.bos_positions import find_bos_positions
from tests.references import hat_encoder as reference


BOS, PAD, EOS = 0, 1, 2

# Ours, and the class of Transformers that it extends.
PAIRS = {
    HatEncoderModel: transformers.RobertaModel,
    HatEncoderForMaskedLM: transformers.RobertaForMaskedLM,
    HatEncoderForSequenceClassification: transformers.RobertaForSequenceClassification,
    HatEncoderForMultipleChoice: transformers.RobertaForMultipleChoice,
    HatEncoderForQuestionAnswering: transformers.RobertaForQuestionAnswering,
    HatEncoderForTokenClassification: transformers.RobertaForTokenClassification,
}


def fields(**kwargs):
    sizes = {
        "vocab_size": 60,
        "max_position_embeddings": 40,
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-5,
    }
    return {**sizes, **kwargs}


def randomize(model, std=0.3):
    for name, parameter in model.named_parameters():  # norms and biases too: at 1 and 0 they hide a wrong use of them
        is_gain = name.lower().endswith(("layernorm.weight", "layer_norm.weight"))
        nn.init.normal_(parameter, mean=float(is_gain), std=std)
    return model.eval()


def make_model(cls=HatEncoderModel, **kwargs):
    torch.manual_seed(0)
    return randomize(cls(HatEncoderConfig(**fields(**kwargs))))


def make_ids(length, bos_at=(0,), batch=1, seed=0):
    ids = torch.randint(5, 60, (batch, length), generator=torch.Generator().manual_seed(seed))
    ids[:, list(bos_at)] = BOS
    return ids


def make_inputs(cls, padded=True):
    """A batch of two texts for any of the classes, with labels."""
    ids = make_ids(14, (0, 3, 9), batch=2)
    mask = torch.ones_like(ids)
    if padded:
        ids[1, 9:], mask[1, 9:] = PAD, 0
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": (torch.arange(14) > 5).long().expand(2, -1)}
    if cls.__name__.endswith("MultipleChoice"):
        inputs = {name: torch.stack([value, value.flip(0)], dim=1) for name, value in inputs.items()}
    if cls.__name__.endswith("QuestionAnswering"):
        inputs |= {"start_positions": torch.tensor([3, 0]), "end_positions": torch.tensor([5, 14])}
    elif cls.__name__.endswith(("MaskedLM", "TokenClassification")):
        inputs["labels"] = torch.where((ids % 3 == 0) & (mask > 0), ids % 2, -100)
    elif not cls.__name__.endswith("Model"):
        inputs["labels"] = torch.tensor([1, 0])
    return inputs


def total(outputs):
    """A scalar that every output of a model without loss has a part in."""
    return outputs.loss if "loss" in outputs else sum((value * value).sum() for value in outputs.values())


class TestAgainstThePaper:
    """Fidelity: the plain re-derivation in tests/references, forward and every gradient."""

    @pytest.mark.parametrize("queries", ["all", "bos"])
    def test_forward_and_gradients_in_float64(self, queries):
        model = make_model(hierarchical_queries=queries).double()
        ids = make_ids(8, bos_at=(0, 3, 4))
        types = torch.tensor([[0, 0, 0, 1, 1, 1, 0, 0]])
        result = model(ids, token_type_ids=types)

        weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
        rows = reference.encode(
            weights,
            ids[0].tolist(),
            types[0].tolist(),
            bos=BOS,
            pad=PAD,
            layers=2,
            heads=3,
            eps=1e-5,
            queries=queries,
        )
        expected, pooled = torch.stack(rows), reference.pool(weights, rows)
        close = {"rtol": 0, "atol": 1e-10}
        torch.testing.assert_close(result.last_hidden_state[0], expected, **close)
        torch.testing.assert_close(result.pooler_output[0], pooled, **close)

        direction = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        ((result.last_hidden_state[0] * direction).sum() + result.pooler_output.sum()).backward()
        ((expected * direction).sum() + pooled.sum()).backward()
        for name, parameter in model.named_parameters():
            assert weights[name].grad.abs().max() > 0, f"{name} is not exercised"
            torch.testing.assert_close(
                parameter.grad, weights[name].grad, **close, msg=lambda text, name=name: f"{name}: {text}"
            )

    def test_the_two_settings_differ(self):
        ids = make_ids(8, bos_at=(0, 3, 4))
        both = [make_model(hierarchical_queries=queries)(ids).last_hidden_state for queries in ("all", "bos")]
        assert (both[0] - both[1]).abs().max() > 0.1

    @pytest.mark.parametrize("queries", ["all", "bos"])
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 6e-2)])
    def test_lower_precision_stays_close(self, dtype, tolerance, queries):
        model = make_model(hierarchical_queries=queries).double()
        ids = make_ids(9, bos_at=(0, 3, 4))
        expected = model(ids).last_hidden_state
        result = model.to(dtype)(ids).last_hidden_state
        assert (result.double() - expected).abs().max() / expected.abs().max() < tolerance

    @pytest.mark.parametrize("queries", ["all", "bos"])
    def test_the_hierarchical_attention_reads_marker_states_only(self, queries):
        """What another token's state is does not matter to it; and with "bos" it changes markers only."""
        model = make_model(hierarchical_queries=queries, num_hidden_layers=1)
        ids, seen = make_ids(8, bos_at=(0, 3)), {}
        layer = model.encoder.layer[0]
        norm = layer.hierarchical_attention.output.LayerNorm
        layer.attention.register_forward_hook(lambda module, args, output: seen.update(before=output[0]))
        layer.hierarchical_attention.register_forward_hook(
            lambda module, args, kwargs, output: seen.update(keys=kwargs["encoder_hidden_states"], n=len(args[0][0])),
            with_kwargs=True,
        )
        layer.intermediate.register_forward_hook(lambda module, args, output: seen.update(after=args[0]))
        model(ids)
        assert torch.equal(seen["keys"], seen["before"][:, [0, 3]])
        changed = (seen["after"] != norm(seen["before"])).any(dim=-1)[0]
        assert changed.nonzero().flatten().tolist() == (list(range(8)) if queries == "all" else [0, 3])
        assert seen["n"] == (8 if queries == "all" else 2)


class TestAgainstRoberta:
    """Without hierarchy it is RoBERTa, exactly, and any RoBERTa checkpoint loads."""

    @pytest.fixture(params=PAIRS, ids=lambda cls: cls.__name__)
    def ours(self, request):
        return request.param

    @pytest.fixture
    def roberta(self, ours):
        torch.manual_seed(0)
        return randomize(PAIRS[ours](RobertaConfig(**fields())))

    @pytest.fixture
    def folder(self, roberta, tmp_path):
        roberta.save_pretrained(tmp_path / "roberta")
        return str(tmp_path / "roberta")

    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    @pytest.mark.parametrize("padded", [False, True])
    def test_no_hierarchy_is_roberta(self, ours, roberta, folder, implementation, padded):
        model = ours.from_pretrained(folder, hierarchical_attention=False, attn_implementation=implementation).eval()
        roberta.set_attn_implementation(implementation)
        assert {n: p.shape for n, p in model.state_dict().items()} == {
            n: p.shape for n, p in roberta.state_dict().items()
        }
        inputs = make_inputs(ours, padded)
        got, want = model(**inputs), roberta(**inputs)
        assert list(got) == list(want)
        for name, value in want.items():
            assert torch.equal(got[name], value), name
        total(got).backward()
        total(want).backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        for name, parameter in roberta.named_parameters():
            assert torch.equal(gradients[name], parameter.grad), name

    def test_no_hierarchy_trains_as_roberta(self, ours, roberta, folder):
        """The same seed drops the same values."""
        model = ours.from_pretrained(folder, hierarchical_attention=False).train()
        roberta.train()
        inputs = make_inputs(ours)
        torch.manual_seed(1)
        got = total(model(**inputs))
        torch.manual_seed(1)
        assert torch.equal(got, total(roberta(**inputs)))

    def test_plain_from_pretrained_leaves_only_the_hierarchy_new(self, ours, roberta, folder):
        model, report = ours.from_pretrained(folder, new_modules="random", output_loading_info=True)
        assert not report["unexpected_keys"]
        assert not report["mismatched_keys"]
        assert len(report["missing_keys"]) == 2 * 10  # in each layer four projections and a norm
        assert all(".hierarchical_attention." in key for key in report["missing_keys"])
        state = model.state_dict()
        for name, value in roberta.state_dict().items():
            assert torch.equal(state[name], value), name
        new = {key: state[key] for key in report["missing_keys"]}
        for name, value in new.items():
            expected = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            if value.dim() == 1:
                assert (value == expected).all(), name
            else:
                assert 0.01 < value.std() < 0.03, name
        assert type(model.config) is HatEncoderConfig

    def test_plain_from_pretrained_warns_of_nothing_but_the_new_weights(self, ours, folder, caplog):
        ours.from_pretrained(folder)
        assert "instantiate a model of type" not in caplog.text

    @pytest.mark.parametrize("head", list(PAIRS)[1:], ids=lambda cls: cls.__name__)
    def test_a_masked_lm_checkpoint_warm_starts_every_head(self, head, tmp_path):
        torch.manual_seed(0)
        pretrained = randomize(transformers.RobertaForMaskedLM(RobertaConfig(**fields())))
        pretrained.save_pretrained(tmp_path)
        model, report = head.from_pretrained(tmp_path, new_modules="random", output_loading_info=True)
        body = {name: value for name, value in pretrained.state_dict().items() if name.startswith("roberta.")}
        state = model.state_dict()
        assert all(torch.equal(state[name], value) for name, value in body.items())
        heads = ("lm_head.", "classifier.", "qa_outputs.", "roberta.pooler.")
        assert all(".hierarchical_attention." in key or key.startswith(heads) for key in report["missing_keys"])

    def test_files_that_leave_out_roberta_s_defaults(self, tmp_path):
        """A config file may hold only what differs from RoBERTa's defaults, which are not all ours."""
        config = RobertaConfig(hidden_size=12, num_attention_heads=3)
        (tmp_path / "config.json").write_text(
            '{"model_type": "roberta", "hidden_size": 12, "num_attention_heads": 3, "use_cache": true}'
        )
        ours = HatEncoderConfig.from_pretrained(tmp_path)
        for name in ("max_position_embeddings", "type_vocab_size", "layer_norm_eps", "vocab_size", "hidden_act"):
            assert getattr(ours, name) == getattr(config, name), name

    def test_xlm_roberta_loads_too(self, tmp_path):
        theirs = randomize(XLMRobertaForMaskedLM(transformers.XLMRobertaConfig(**fields())))
        theirs.save_pretrained(tmp_path)
        model = HatEncoderForMaskedLM.from_pretrained(tmp_path, hierarchical_attention=False).eval()
        ids = make_ids(9)
        assert torch.equal(model(ids).logits, theirs(ids).logits)


class TestAutoClasses:
    @pytest.mark.parametrize("ours", PAIRS, ids=lambda cls: cls.__name__)
    def test_auto_classes_find_the_family(self, ours, tmp_path):
        name = ours.__name__.removeprefix("HatEncoder").removesuffix("Model")
        auto = getattr(transformers, f"AutoModel{name}")
        assert type(auto.from_config(HatEncoderConfig(**fields()))) is ours
        model = make_model(ours)
        model.save_pretrained(tmp_path)
        assert type(AutoConfig.from_pretrained(tmp_path)) is HatEncoderConfig
        loaded, report = auto.from_pretrained(tmp_path, output_loading_info=True)
        assert type(loaded) is ours
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
        inputs = make_inputs(ours)
        for got, want in zip(loaded(**inputs).values(), model(**inputs).values(), strict=True):
            assert torch.equal(got, want)

    def test_public_names(self):
        for cls in PAIRS:
            assert getattr(hier_models, cls.__name__) is cls


class TestPadding:
    """Wherever the padding is, heads that read one token read the text's first."""

    @pytest.mark.parametrize("queries", ["all", "bos"])
    @pytest.mark.parametrize("hierarchical_attention", [True, False])
    @pytest.mark.parametrize("cls", PAIRS, ids=lambda cls: cls.__name__)
    def test_padding_on_the_left(self, cls, queries, hierarchical_attention):
        model = make_model(cls, hierarchical_queries=queries, hierarchical_attention=hierarchical_attention)
        inputs = make_inputs(cls, padded=False)
        names = ("input_ids", "attention_mask", "token_type_ids")
        fill = {"input_ids": PAD, "attention_mask": 0, "token_type_ids": 0}
        left = {name: nn.functional.pad(inputs[name], (4, 0), value=fill[name]) for name in names}
        right = {name: nn.functional.pad(inputs[name], (0, 4), value=fill[name]) for name in names}
        for name, value in model(**right).items():
            per_token = value.dim() > 1 and value.shape[1] == 18
            got = model(**left)[name]
            torch.testing.assert_close(
                got[:, 4:] if per_token else got, value[:, :14] if per_token else value, rtol=0, atol=1e-5
            )

    def test_a_given_row_without_sentences_counts_as_one(self):
        model = make_model()
        ids, mask = make_ids(8, (0,)), torch.ones(1, 8, dtype=torch.long)
        none = torch.tensor([[-1, -1]])
        torch.testing.assert_close(model(ids, bos_positions=none).last_hidden_state, model(ids).last_hidden_state)
        mask[0, :2] = 0
        given = model(ids, attention_mask=mask, bos_positions=none).last_hidden_state
        at_two = model(ids, attention_mask=mask, bos_positions=torch.tensor([[2]])).last_hidden_state
        torch.testing.assert_close(given, at_two)


def varlen_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    """Attention by lengths, with what flash attention takes: a 2-D mask of keys that are queries too, or lengths."""
    batch, heads, length, size = query.shape
    if attention_mask is not None:
        assert attention_mask.dim() == 2
        assert key.shape[2] == length, "flash attention takes the mask of the keys for the queries"
        kept = attention_mask.bool()
        output = torch.zeros_like(query)
        for row in range(batch):
            q, k, v = (tensor[row][:, kept[row]] for tensor in (query, key, value))
            output[row][:, kept[row]] = nn.functional.scaled_dot_product_attention(q, k, v, scale=scaling)
    elif kwargs.get("cu_seq_lens_k") is not None:
        queries, keys = kwargs["cu_seq_lens_q"].tolist(), kwargs["cu_seq_lens_k"].tolist()
        assert kwargs["max_length_q"] >= max(b - a for a, b in itertools.pairwise(queries))
        assert kwargs["max_length_k"] >= max(b - a for a, b in itertools.pairwise(keys))
        q, k, v = (tensor.transpose(1, 2).reshape(-1, heads, size).transpose(0, 1) for tensor in (query, key, value))
        assert (queries[-1], keys[-1]) == (q.shape[1], k.shape[1])
        parts = [
            nn.functional.scaled_dot_product_attention(q[:, a:b], k[:, c:d], v[:, c:d], scale=scaling)
            for a, b, c, d in zip(queries[:-1], queries[1:], keys[:-1], keys[1:], strict=True)
        ]
        output = torch.cat(parts, dim=1).view(heads, batch, length, size).transpose(0, 1)
    else:
        output = nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling)
    return output.transpose(1, 2).contiguous(), None


class TestAttentionImplementations:
    @pytest.fixture
    def varlen(self):
        """An implementation with flash attention's interface, which needs no GPU."""
        AttentionInterface.register("varlen_test", varlen_attention)
        flash_masks = transformers.masking_utils.flash_attention_mask
        AttentionMaskInterface.register("varlen_test", flash_masks)
        yield "varlen_test"
        AttentionInterface._global_mapping.pop("varlen_test")
        AttentionMaskInterface._global_mapping.pop("varlen_test")

    @pytest.mark.parametrize("queries", ["all", "bos"])
    @pytest.mark.parametrize("sentences", [(0, 3, 5), tuple(range(9))])  # fewer than tokens, as many as tokens
    def test_padded_sentences_with_lengths_in_place_of_masks(self, varlen, queries, sentences):
        """What flash attention gets: its mask of the keys would be used for the queries too, and wrongly."""
        model = make_model(HatEncoderForMaskedLM, hierarchical_queries=queries)
        ids = make_ids(9, (0,), batch=2)
        ids[0, list(sentences)] = BOS
        mask = torch.ones_like(ids)
        mask[1, 7:], ids[1, 7:] = 0, PAD
        expected = model(ids, attention_mask=mask, labels=ids)
        model.set_attn_implementation(varlen)
        got = model(ids, attention_mask=mask, labels=ids)
        kept = mask.bool()
        torch.testing.assert_close(got.logits[kept], expected.logits[kept], rtol=0, atol=1e-5)

    def test_output_attentions(self):
        for queries, asked in (("all", 9), ("bos", 3)):
            model = make_model(hierarchical_queries=queries)
            model.set_attn_implementation("eager")
            ids = make_ids(9, (0, 3, 5), batch=2)
            ids[1, 5] = 7
            outputs = model(ids, output_attentions=True, output_hidden_states=True)
            assert [tuple(weights.shape) for weights in outputs.attentions] == [(2, 3, 9, 9)] * 2
            assert [tuple(weights.shape) for weights in outputs.hierarchical_attentions] == [(2, 3, asked, 3)] * 2
            assert len(outputs.hidden_states) == 3
            assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
            for weights in outputs.hierarchical_attentions:
                torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, asked))
                assert (weights[1, ..., 2] == 0).all()  # the second text has two sentences
            assert model(ids).hierarchical_attentions is None

    def test_nothing_of_tokens_times_tokens_is_added(self):
        """The hierarchical attention costs tokens times sentences: no tensor of it has two axes of tokens."""
        model = make_model(max_position_embeddings=120, num_hidden_layers=1)
        length, largest = 101, {"attention": 0, "hierarchical": 0}
        ids = make_ids(length, (0, 50), batch=2)
        ids[1, 50] = 9  # so that the mask of sentences is not left out
        hierarchical = model.encoder.layer[0].hierarchical_attention

        class Watch(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                result = function(*args, **(kwargs or {}))
                if isinstance(result, torch.Tensor):
                    largest["attention"] = max(largest["attention"], result.numel())
                return result

        inputs = []
        handle = hierarchical.register_forward_hook(
            lambda module, args, kwargs, output: inputs.append((args, kwargs)), with_kwargs=True
        )
        model.set_attn_implementation("eager")
        model(ids)
        handle.remove()
        args, kwargs = inputs[0]
        with Watch():
            hierarchical(*args, **kwargs)
        assert 0 < largest["attention"] <= 2 * length * 12  # a state of every token; 2 * 3 * length**2 is 5 times that
        assert kwargs["encoder_attention_mask"].shape == (2, 1, length, 2)


class TestBosPositions:
    def test_found_in_order_and_padded(self):
        ids = torch.tensor([[BOS, 5, BOS, 6, EOS], [BOS, 5, 6, 7, EOS]])
        assert find_bos_positions(ids, None, BOS).tolist() == [[0, 2], [0, -1]]

    def test_masked_markers_do_not_count(self):
        ids = torch.tensor([[BOS, 5, EOS, BOS, BOS], [BOS, BOS, 5, BOS, EOS]])
        mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
        assert find_bos_positions(ids, mask, BOS).tolist() == [[0, -1], [1, 3]]

    def test_a_text_without_marker_is_one_sentence_and_warned_of_once(self, caplog):
        ids = torch.tensor([[5, 6, 7, EOS], [PAD, PAD, 8, EOS]])
        mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
        logging.get_logger("x").warning_once.cache_clear()
        for _ in range(2):
            assert find_bos_positions(ids, mask, BOS).tolist() == [[0], [2]]
        assert caplog.text.count("no BOS marker") == 1

    def test_an_empty_row_keeps_one_sentence(self):
        ids = torch.full((1, 3), PAD)
        assert find_bos_positions(ids, torch.zeros(1, 3, dtype=torch.long), BOS).tolist() == [[0]]

    @pytest.mark.parametrize("queries", ["all", "bos"])
    def test_given_positions_equal_found_ones(self, queries):
        model = make_model(hierarchical_queries=queries)
        ids = make_ids(12, (0, 4, 5))
        found = model(ids).last_hidden_state
        padded = torch.tensor([[0, 4, 5, -1, -1]])
        torch.testing.assert_close(model(ids, bos_positions=padded).last_hidden_state, found)
        embeds = model.embeddings.word_embeddings(ids)
        torch.testing.assert_close(model(inputs_embeds=embeds, bos_positions=padded).last_hidden_state, found)
        padding_between = torch.tensor([[0, -1, 4, -1, 5]])
        torch.testing.assert_close(model(ids, bos_positions=padding_between).last_hidden_state, found)
        other = model(ids, bos_positions=torch.tensor([[0, 4]])).last_hidden_state
        assert (other - found).abs().max() > 1e-2

    @pytest.mark.parametrize("given", [True, False])
    def test_multiple_choice_takes_them_per_choice(self, given):
        model = make_model(HatEncoderForMultipleChoice)
        ids = torch.stack([make_ids(9, (0, 4), 2), make_ids(9, (0, 2, 4), 2, seed=1)], dim=1)
        positions = torch.tensor([[0, 4, -1], [0, 2, 4]]).expand(2, -1, -1)
        logits = model(ids, bos_positions=positions if given else None).logits
        for choice in range(2):
            alone = model(ids[:, choice : choice + 1]).logits
            torch.testing.assert_close(logits[:, choice], alone[:, 0])


class TestLoss:
    @pytest.mark.parametrize("cls", [cls for cls in PAIRS if "Question" not in cls.__name__][1:])
    def test_accumulated_batches_weigh_each_label_the_same(self, cls):
        model = make_model(cls)
        inputs = make_inputs(cls, padded=False)
        labels = inputs["labels"]
        whole = model(**inputs).loss
        items = (labels != -100).sum()
        parts = [
            model(**{name: value[i : i + 1] for name, value in inputs.items()}, num_items_in_batch=items).loss
            for i in range(2)
        ]
        torch.testing.assert_close(sum(parts), whole)

    @pytest.mark.parametrize(
        ("num_labels", "labels", "problem_type"),
        [
            (1, torch.tensor([0.5, -1.0]), "regression"),
            (3, torch.tensor([2, 0]), "single_label_classification"),
            (3, torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]), "multi_label_classification"),
        ],
    )
    def test_problem_types_are_told_from_the_labels_as_in_roberta(self, num_labels, labels, problem_type, tmp_path):
        config = RobertaConfig(**fields(num_labels=num_labels))
        roberta = randomize(transformers.RobertaForSequenceClassification(config))
        roberta.save_pretrained(tmp_path)
        model = HatEncoderForSequenceClassification.from_pretrained(tmp_path, hierarchical_attention=False).eval()
        ids = make_ids(9, (0,), batch=2)
        got = model(ids, labels=labels)
        assert torch.equal(got.loss, roberta(ids, labels=labels).loss)
        assert model.config.problem_type == problem_type
        shares = [model(ids[i : i + 1], labels=labels[i : i + 1], num_items_in_batch=labels.numel()) for i in (0, 1)]
        torch.testing.assert_close(sum(share.loss for share in shares), got.loss)

    def test_spans_outside_of_the_window_have_no_part_in_the_loss(self):
        model = make_model(HatEncoderForQuestionAnswering)
        ids = make_ids(9, (0,), batch=2)
        inside = model(ids[:1], start_positions=torch.tensor([2]), end_positions=torch.tensor([4])).loss
        both = model(ids, start_positions=torch.tensor([2, 30]), end_positions=torch.tensor([4, 9])).loss
        torch.testing.assert_close(both, inside)
        before = model(ids, start_positions=torch.tensor([2, -1]), end_positions=torch.tensor([4, -1])).loss
        torch.testing.assert_close(before, inside)
        none = model(ids, start_positions=torch.tensor([9, -1]), end_positions=torch.tensor([30, 9])).loss
        none.backward()
        assert none == 0
        assert not any(part.grad.any() for part in model.qa_outputs.parameters())


class TestResizing:
    @pytest.mark.parametrize("is_tied", [True, False])
    @pytest.mark.parametrize("vocab_size", [71, 55])
    def test_the_head_of_masked_lm_follows(self, vocab_size, is_tied, tmp_path):
        model = make_model(HatEncoderForMaskedLM, tie_word_embeddings=is_tied)
        ids = make_ids(9).clamp(max=54)
        before = model(ids).logits
        model.resize_token_embeddings(vocab_size)
        after = model(ids, labels=ids).logits
        assert after.shape[-1] == vocab_size == model.config.vocab_size
        torch.testing.assert_close(after[..., :55], before[..., :55])
        assert (model.lm_head.decoder.weight is model.roberta.embeddings.word_embeddings.weight) == is_tied
        assert (model.lm_head.decoder.bias is model.lm_head.bias) == is_tied
        model.save_pretrained(tmp_path)
        loaded = HatEncoderForMaskedLM.from_pretrained(tmp_path)
        torch.testing.assert_close(loaded(ids).logits, after)


class TestCompile:
    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses deprecated parts of torch itself
    @pytest.mark.usefixtures("fresh_compiler")
    @pytest.mark.parametrize("queries", ["all", "bos"])
    def test_one_graph_with_given_positions(self, queries):
        model = make_model(HatEncoderForMaskedLM, hierarchical_queries=queries)
        ids = make_ids(12, (0, 4, 5), batch=2)
        positions = torch.tensor([[0, 4, 5, -1]] * 2)
        expected = model(ids, bos_positions=positions, labels=ids)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        got = compiled(ids, bos_positions=positions, labels=ids)
        torch.testing.assert_close(got.logits, expected.logits, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("given", [True, False])
    @pytest.mark.parametrize("queries", ["all", "bos"])
    def test_export(self, queries, given):
        model = make_model(hierarchical_queries=queries)
        ids = make_ids(12, (0, 4, 5), batch=2)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if given:
            inputs["bos_positions"] = torch.tensor([[0, 4, 5, -1]] * 2)
        program = torch.export.export(model, (), inputs, strict=False)
        got = program.module()(**inputs).last_hidden_state
        torch.testing.assert_close(got, model(**inputs).last_hidden_state, rtol=0, atol=1e-5)

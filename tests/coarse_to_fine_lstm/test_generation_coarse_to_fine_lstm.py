"""Generation with the Coarse-to-Fine LSTM: rows are read when they are selected, once each, and the state reorders."""

import copy
import pickle

import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache

from hier_models import CoarseToFineLstmConfig, CoarseToFineLstmForConditionalGeneration
from hier_models.models.recurrent_cache import RecurrentCache


BOS, PAD, EOS = 0, 1, 2
WAYS = {
    "greedy": {},
    "beam search": {"num_beams": 4},
    "sampling": {"do_sample": True, "num_return_sequences": 3},
    "sampling of beams": {"do_sample": True, "num_beams": 3, "num_return_sequences": 2},
    "assisted": {"prompt_lookup_num_tokens": 2},
}


def make_model(attention="hard", std=0.6, **kwargs):
    torch.manual_seed(0)
    sizes = {"embedding_size": 8, "hidden_size": 12, "coarse_filters": 9, "coarse_kernel_size": 3, "vocab_size": 50}
    config = CoarseToFineLstmConfig(**{**sizes, "attention": attention, "dropout": 0.0, **kwargs})
    model = CoarseToFineLstmForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


def make_batch(*numbers_of_rows, seed=0):
    """Documents with rows of 1 to 6 words, one of which is empty; left-padded."""
    generator = torch.Generator().manual_seed(seed)
    columns = []
    for number in numbers_of_rows:
        lengths = torch.randint(1, 7, (number,), generator=generator)
        if number > 2:
            lengths[1] = 0
        rows = torch.arange(number).repeat_interleave(lengths)
        columns.append((torch.randint(5, 50, rows.shape, generator=generator), rows))
    longest = max(len(rows) for _, rows in columns) + 1
    batch = {"input_ids": [], "row_ids": [], "attention_mask": []}
    for ids, rows in columns:
        missing = longest - len(ids)
        batch["input_ids"].append(torch.nn.functional.pad(ids, (missing, 0), value=PAD))
        batch["row_ids"].append(torch.nn.functional.pad(rows, (missing, 0), value=-1))
        batch["attention_mask"].append((batch["row_ids"][-1] >= 0).long())
    return {name: torch.stack(values) for name, values in batch.items()}


def words_read(model):
    """Watch how many words the LSTM reads."""
    read = []
    model.model.encoder.layers[0].register_forward_hook(lambda module, args, output: read.append(len(args[0])))
    return read


def dense(model, batch):
    """What the encoder returns when it reads all rows at once."""
    with torch.enable_grad():
        encoded = model.get_encoder()(**batch)
    assert encoded.row_store is None
    return type(encoded)(**{name: value.detach() for name, value in encoded.items()})


SETTINGS = {
    "one row": {},
    "two rows": {"selected_rows": 2, "row_position_size": 4},
    "two rows, as drawn": {"num_samples": 2, "coarse_representation": "bag_of_words"},
    "more rows than there are": {"selected_rows": 30},
    "padding": {"attend_padding": True, "selected_rows": 3},
}


class TestReadingOnDemand:
    """With hard attention and no gradient, only selected rows are read, and nothing else changes."""

    @pytest.mark.parametrize("name", SETTINGS)
    def test_equal_to_reading_everything(self, name):
        model = make_model(**SETTINGS[name])
        batch = make_batch(9, 1, 4)
        if name == "padding":  # inside of rows: the last words of some
            batch["attention_mask"] *= batch["input_ids"] % 4 != 0
        target = torch.randint(5, 50, (3, 6), generator=torch.Generator().manual_seed(1))
        inputs = {**batch, "decoder_input_ids": target, "output_attentions": True}
        expected = model(**inputs)
        with torch.no_grad():
            got = model(**inputs)
            assert got.encoded_rows is not None
            assert got.encoder_last_hidden_state is None
        for key in ("logits", "row_attentions"):
            torch.testing.assert_close(got[key], expected[key])
        torch.testing.assert_close(got.cross_attentions[0], expected.cross_attentions[0])
        torch.testing.assert_close(got.cross_attentions[0].sum(-1), torch.ones(3, 1, 6))
        torch.testing.assert_close(got.row_attentions.sum(-1), torch.ones(3, 6))

    @pytest.mark.parametrize("selected", [1, 3])
    def test_only_what_is_selected_is_read_and_once(self, selected):
        model = make_model(selected_rows=selected)
        batch = make_batch(40, 12)
        read = words_read(model)
        target = torch.randint(5, 50, (2, 5), generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            outputs = model(**batch, decoder_input_ids=target, output_attentions=True)
        weights = outputs.cross_attentions[0][:, 0]  # (batch, target, source)
        chosen = [set(batch["row_ids"][i][(weights[i] > 0).any(dim=0)].tolist()) for i in range(2)]
        assert outputs.encoded_rows.tolist() == [len(rows) for rows in chosen]
        assert all(2 <= len(rows) <= 5 * selected for rows in chosen)
        lengths = [int((batch["row_ids"][i] == row).sum()) for i, rows in enumerate(chosen) for row in rows]
        assert sum(read) == sum(lengths)

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("selected", [1, 2])
    def test_generation_is_that_of_reading_everything(self, way, selected):
        model = make_model(selected_rows=selected)
        batch = make_batch(30) if way == "assisted" else make_batch(30, 1, 11)
        settings = {"max_new_tokens": 8, "return_dict_in_generate": True, **WAYS[way]}
        read = words_read(model)
        torch.manual_seed(0)
        found = model.generate(**batch, **settings)
        assert sum(read) < int((batch["row_ids"] >= 0).sum())
        lengths = [(batch["row_ids"] == row).sum(dim=1) for row in range(30)]
        rows = torch.stack([length > 0 for length in lengths]).sum(dim=0)  # that are not empty, of each document
        assert found.encoded_rows.shape == rows.shape
        assert (found.encoded_rows <= rows).all()
        assert (found.encoded_rows >= 1).all()
        torch.manual_seed(0)
        expected = model.generate(**batch, encoder_outputs=dense(model, batch), **settings)
        assert torch.equal(found.sequences, expected.sequences)
        assert "encoded_rows" not in expected

    def test_a_batch_reads_what_its_members_read(self):
        model = make_model()
        settings = {"max_new_tokens": 8, "num_beams": 3, "return_dict_in_generate": True}
        batch = make_batch(30, 17)
        together = model.generate(**batch, **settings)
        alone = [
            model.generate(**{name: value[i : i + 1] for name, value in batch.items()}, **settings) for i in range(2)
        ]
        assert together.encoded_rows.tolist() == [found.encoded_rows.item() for found in alone]

    def test_what_was_read_stays(self):
        model = make_model()
        batch = make_batch(30, 11)
        with torch.no_grad():
            encoded = model.get_encoder()(**batch)
        read = words_read(model)
        settings = {"max_new_tokens": 8, "return_dict_in_generate": True}
        first = model.generate(**batch, encoder_outputs=copy.copy(encoded), **settings)
        before = sum(read)
        again = model.generate(encoder_outputs=copy.copy(encoded), attention_mask=batch["attention_mask"], **settings)
        assert sum(read) == before
        assert torch.equal(first.sequences, again.sequences)
        beams = model.generate(**batch, encoder_outputs=copy.copy(encoded), num_beams=3, **settings)
        assert (beams.encoded_rows >= first.encoded_rows).all()
        assert sum(read) < int((batch["row_ids"] >= 0).sum())

    def test_a_tuple_holds_the_rows_too(self):
        model = make_model()
        batch = make_batch(8, 3)
        target = torch.tensor([[BOS, 7, 8], [BOS, 9, 10]])
        with torch.no_grad():
            expected = model(**batch, decoder_input_ids=target).logits
            encoded = model.get_encoder()(**batch, return_dict=False)
            torch.testing.assert_close(model(encoder_outputs=encoded, decoder_input_ids=target).logits, expected)

    def test_beams_that_do_not_stand_in_order(self):
        model = make_model()
        batch = make_batch(12, 7)
        target = torch.tensor([[BOS, 7, 8], [BOS, 9, 10], [BOS, 11, 12]])
        with torch.no_grad():
            encoded = model.get_encoder()(**batch)
            order = torch.tensor([1, 0, 1])
            mixed = type(encoded)(
                last_hidden_state=encoded.last_hidden_state[order],
                document_ids=order,
                row_store=encoded.row_store,
            )
            got = model(encoder_outputs=mixed, decoder_input_ids=target)
            repeated = {name: value[order] for name, value in batch.items()}
            expected = model(**repeated, decoder_input_ids=target)
        torch.testing.assert_close(got.logits, expected.logits)

    @pytest.mark.parametrize("way", ["greedy", "beam search"])
    def test_documents_with_nothing_in_them(self, way):
        model = make_model(selected_rows=2)
        batch = make_batch(6, 4)
        batch["attention_mask"][1] = 0
        found = model.generate(**batch, max_new_tokens=5, return_dict_in_generate=True, **WAYS[way])
        assert found.encoded_rows[1] == 0
        one = {name: value[:1] for name, value in batch.items()}
        alone = model.generate(**one, max_new_tokens=5, **WAYS[way])[0]
        assert found.sequences[0, : len(alone)].tolist() == alone.tolist()

    def test_a_document_with_nothing_in_it_sees_nothing_of_others(self):
        model = make_model(selected_rows=2)
        batch, target = make_batch(6, 4), torch.tensor([[BOS, 7, 8], [BOS, 9, 10]])
        batch["attention_mask"][1] = 0
        expected = model(**batch, decoder_input_ids=target).logits
        with torch.no_grad():
            together = model(**batch, decoder_input_ids=target).logits
            alone = model(**{name: value[1:] for name, value in batch.items()}, decoder_input_ids=target[1:]).logits
        torch.testing.assert_close(together[1:], alone)
        torch.testing.assert_close(together, expected)

    @pytest.mark.parametrize("settings", [{"num_samples": 3}, {"alternate_soft": 1.0}], ids=["draws", "soft"])
    def test_in_training_it_is_what_training_is(self, settings):
        """Also without gradient, so in generation with a model that was left in training mode."""
        model = make_model(**settings).train()
        batch, labels = make_batch(6, 1, 4), torch.tensor([[7, 8, EOS], [9, 10, EOS], [11, 12, EOS]])
        model.reward_baseline.rate = 0.0
        torch.manual_seed(0)
        expected = model(**batch, labels=labels, output_attentions=True)
        torch.manual_seed(0)
        with torch.no_grad():
            got = model(**batch, labels=labels, output_attentions=True)
        assert got.encoded_rows is not None
        torch.testing.assert_close(got.logits, expected.logits)
        torch.testing.assert_close(got.cross_attentions[0], expected.cross_attentions[0])
        torch.testing.assert_close(got.surrogate, expected.surrogate)
        torch.manual_seed(0)
        sequences = model.generate(**batch, max_new_tokens=6)
        torch.manual_seed(0)
        assert torch.equal(sequences, model.generate(**batch, encoder_outputs=dense(model, batch), max_new_tokens=6))

    def test_what_was_read_without_gradient_has_none(self):
        model = make_model()
        batch, target = make_batch(6, 4), torch.tensor([[BOS, 7, 8], [BOS, 9, 10]])
        with torch.no_grad():
            encoded = model.get_encoder()(**batch)
        for _ in range(2):
            model(encoder_outputs=encoded, decoder_input_ids=target).logits.sum().backward()
        assert model.model.encoder.layers[0].lstm.weight_hh_l0.grad is None
        assert model.model.decoder.word_gates.weight.grad.any()

    def test_encoded_in_inference_mode(self):
        model = make_model()
        batch, target = make_batch(30, 11), torch.tensor([[BOS, 7], [BOS, 9]])
        expected = model.generate(**batch, max_new_tokens=8, num_beams=2)
        with torch.inference_mode():
            encoded = model.get_encoder()(**batch)
            model(encoder_outputs=encoded, decoder_input_ids=target)
        assert torch.equal(model.generate(encoder_outputs=encoded, max_new_tokens=8, num_beams=2), expected)

    def test_the_report_stays_as_it_was(self):
        model = make_model()
        batch = make_batch(30, 11)
        with torch.no_grad():
            encoded = model.get_encoder()(**batch)
        settings = {"return_dict_in_generate": True, "max_new_tokens": 20}
        first = model.generate(**batch, encoder_outputs=copy.copy(encoded), **{**settings, "max_new_tokens": 1})
        before = first.encoded_rows.tolist()
        beams = model.generate(**batch, encoder_outputs=copy.copy(encoded), num_beams=4, **settings)
        assert beams.encoded_rows.sum() > sum(before)
        assert first.encoded_rows.tolist() == before

    def test_copies_and_files(self):
        """Without the model; what is in a file was read."""
        model = make_model()
        batch = make_batch(30, 11)
        size = sum(value.nbytes for value in model.state_dict().values())
        with torch.no_grad():
            encoded = model.get_encoder()(**batch)
        found = model.generate(encoder_outputs=copy.copy(encoded), max_new_tokens=8, return_dict_in_generate=True)
        copied = copy.deepcopy(encoded)
        assert copied.row_store.encoded_rows.tolist() == found.encoded_rows.tolist()
        assert copied.row_store.encoded_rows is not encoded.row_store.encoded_rows
        assert torch.equal(model.generate(encoder_outputs=copied, max_new_tokens=8), found.sequences)
        file = pickle.dumps(encoded)
        assert torch.equal(model.generate(encoder_outputs=pickle.loads(file), max_new_tokens=8), found.sequences)
        assert copied.row_store.encoded_rows.sum() < 20
        again = pickle.loads(pickle.dumps(found))
        assert again.encoded_rows.tolist() == found.encoded_rows.tolist()
        assert len(pickle.dumps(found.cache)) < size / 2

    def test_states_of_all_layers_read_everything(self):
        model = make_model()
        batch = make_batch(6, 4)
        settings = {"max_new_tokens": 5, "return_dict_in_generate": True, "output_hidden_states": True}
        found = model.generate(**batch, **settings)
        assert len(found.encoder_hidden_states) == 3
        assert torch.equal(found.sequences, model.generate(**batch, max_new_tokens=5))

    def test_soft_attention_reads_everything(self):
        found = make_model("coarse_to_fine").generate(**make_batch(6), max_new_tokens=3, return_dict_in_generate=True)
        assert "encoded_rows" not in found


class TestCache:
    """The state of the decoder's LSTM."""

    @pytest.fixture
    def model(self):
        return make_model("coarse_to_fine")

    def test_it_takes_the_place_of_transformers_empty_one(self, model):
        batch, target = make_batch(5, 3), torch.tensor([[BOS, 7], [BOS, 9]])
        for given in (None, EncoderDecoderCache(DynamicCache(), DynamicCache()), RecurrentCache()):
            cache = model(**batch, decoder_input_ids=target, cache=given, use_cache=True).cache
            assert type(cache) is RecurrentCache
            assert (cache.get_seq_length(), cache.batch_size, cache.is_initialized) == (2, 2, True)

    def test_another_kind_of_cache_is_refused(self, model):
        cache = DynamicCache()
        cache.update(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3, 2), 0)
        with pytest.raises(ValueError, match="`cache` must be what this model returned, got a DynamicCache"):
            model(**make_batch(3), decoder_input_ids=torch.tensor([[BOS]]), cache=cache)

    def test_reordering_and_going_back(self, model):
        batch = {name: value.expand(2, -1) for name, value in make_batch(5).items()}
        target = torch.tensor([[BOS, 7, 8, 9], [BOS, 10, 11, 12]])

        def after(ids, cache):
            return model(**batch, decoder_input_ids=ids, cache=cache, use_cache=True)

        expected = model(**batch, decoder_input_ids=target).logits
        cache = after(target[:, :3], None).cache
        cache.crop(0)
        cache.crop(-1)
        assert cache.get_seq_length() == 2
        torch.testing.assert_close(after(target[:, 2:], cache).logits, expected[:, 2:])
        cache.crop(-1)
        cache.reorder_cache(torch.tensor([1, 1]))
        got = after(target[:, 3:], cache).logits
        swapped = torch.cat([target[[1, 1], :3], target[:, 3:]], dim=1)
        torch.testing.assert_close(got, model(**batch, decoder_input_ids=swapped).logits[:, 3:])
        with pytest.raises(ValueError, match="`tokens_to_remove` must be at most the 1 tokens whose states are kept"):
            cache.crop(-2)
        with pytest.raises(ValueError, match="`tokens_to_remove` must be 0 or negative, got 3"):
            cache.crop(3)

    def test_going_back_to_the_beginning(self, model):
        batch, target = make_batch(5), torch.tensor([[BOS, 7, 8]])
        outputs = model(**batch, decoder_input_ids=target, use_cache=True)
        cache = outputs.cache
        cache.crop(-3)
        assert not cache.is_initialized
        got = model(**batch, decoder_input_ids=target, cache=cache, use_cache=True).logits
        torch.testing.assert_close(got, outputs.logits)

    def test_selecting_and_repeating_sequences(self, model):
        batch = make_batch(5, 3)
        cache = model(**batch, decoder_input_ids=torch.tensor([[BOS, 7], [BOS, 9]]), use_cache=True).cache
        state = cache.state
        cache.batch_repeat_interleave(2)
        assert torch.equal(cache.state, state.repeat_interleave(2, dim=0))
        cache.batch_select_indices(torch.tensor([3, 0]))
        assert torch.equal(cache.state, state[[1, 0]])
        cache.reset()
        assert (cache.get_seq_length(), cache.batch_size) == (0, -1)

    def test_generation_goes_on_from_a_cache(self, model):
        batch = make_batch(5)
        whole = model.generate(**batch, max_new_tokens=8, forced_eos_token_id=None)
        first = model.generate(**batch, max_new_tokens=4, forced_eos_token_id=None, return_dict_in_generate=True)
        further = model.generate(
            **batch,
            decoder_input_ids=first.sequences,
            decoder_attention_mask=torch.ones_like(first.sequences),
            cache=first.cache,
            max_new_tokens=4,
            forced_eos_token_id=None,
        )
        assert torch.equal(further, whole)

    def test_a_copy_goes_on_by_itself(self):
        model = make_model()
        batch, target = make_batch(7, 3), torch.tensor([[BOS, 7, 8], [BOS, 9, 10]])
        with torch.no_grad():
            expected = model(**batch, decoder_input_ids=target).logits[:, 2:]
            cache = model(**batch, decoder_input_ids=target[:, :2], use_cache=True).cache
            copied = copy.deepcopy(cache)
            for each in (cache, copied):
                got = model(**batch, decoder_input_ids=target[:, 2:], cache=each, use_cache=True).logits
                torch.testing.assert_close(got, expected)

    @pytest.mark.parametrize("attention", ["standard", "hard"])
    @pytest.mark.parametrize("kind", ["static", "dynamic"])
    def test_kinds_of_caches_of_transformers(self, attention, kind):
        model = make_model(attention)
        batch = make_batch(7, 3)
        expected = model.generate(**batch, max_new_tokens=6, num_beams=2)
        got = model.generate(**batch, max_new_tokens=6, num_beams=2, cache_implementation=kind)
        assert torch.equal(got, expected)

    @pytest.mark.parametrize("attention", ["standard", "hard"])
    def test_without_a_cache(self, attention):
        model = make_model(attention)
        batch = make_batch(7, 3)
        for way in ({}, {"num_beams": 3}):
            expected = model.generate(**batch, max_new_tokens=6, **way)
            assert torch.equal(model.generate(**batch, max_new_tokens=6, use_cache=False, **way), expected)

    def test_a_prompt(self):
        model = make_model()
        batch = make_batch(7, 3)
        prompt = torch.tensor([[BOS, 7, 8], [PAD, BOS, 9]])
        mask = torch.tensor([[1, 1, 1], [0, 1, 1]])
        together = model.generate(**batch, decoder_input_ids=prompt, decoder_attention_mask=mask, max_new_tokens=5)
        for i, start in enumerate((0, 1)):
            one = {name: value[i : i + 1] for name, value in batch.items()}
            alone = model.generate(**one, decoder_input_ids=prompt[i : i + 1, start:], max_new_tokens=5)[0]
            assert together[i, start : start + len(alone)].tolist() == alone.tolist()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_draws_the_same_rows_again(use_reentrant):
    model = make_model(num_samples=2).train()
    batch, labels = make_batch(6, 4), torch.tensor([[7, 8, EOS], [9, 10, EOS]])

    def gradients():
        model.zero_grad()
        torch.manual_seed(5)
        model(**batch, labels=labels).loss.backward()
        model.reward_baseline.values.zero_()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    expected = gradients()
    assert all(gradient.any() for gradient in expected.values())
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})
    if use_reentrant:
        model.enable_input_require_grads()
    for name, gradient in gradients().items():
        torch.testing.assert_close(gradient, expected[name])

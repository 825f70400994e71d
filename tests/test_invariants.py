"""What holds for every family (DESIGN 5.2). A new family adds one `Case` to cases.py and gets all of it.

A family without a decoder gets what is not about decoding.
"""

import copy
import inspect
import statistics
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
import transformers
from accelerate import cpu_offload
from accelerate.utils import convert_outputs_to_fp32, extract_model_from_parallel
from transformers import AutoConfig, Cache, DynamicCache, EncoderDecoderCache, PreTrainedModel, TrainerState

import hier_models
from hier_models.families import FAMILIES
from hier_models.training import DropoutSchedule
from tests import forks
from tests.cases import BOS, CASES, EOS, Case, Document, collate, make_model


ROOT = Path(__file__).parents[1]


def uses_the_compiler(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test; torch's compiler uses deprecated parts of torch itself."""
    return pytest.mark.usefixtures("fresh_compiler")(pytest.mark.filterwarnings("ignore::DeprecationWarning")(test))


def only(chosen: Callable[[Case], bool]) -> pytest.MarkDecorator:
    """Run a test for the cases that are chosen."""
    names = [name for name, case in CASES.items() if chosen(case)]
    return pytest.mark.parametrize("case", names, indirect=True, scope="module")


decoders_only = only(lambda case: case.decodes)
kernels_only = only(lambda case: case.attention_kernels)  # for tests about implementations of attention
static_only = only(lambda case: case.is_static)  # for tests of a graph of the forward pass
static_decoders_only = only(lambda case: case.decodes and case.is_static)  # of a graph of the decoding step
markers_only = only(lambda case: case.has_markers)  # for tests about the markers of sentences


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def model(case: Case) -> PreTrainedModel:
    return make_model(case)


# Compilers take each layer anew. Of a family's own case this leaves a layer of each kind.
ONE_LAYER = {
    "ham": {"encoder_layers": 1, "decoder_layers": 1},
    "hat_bart": {"encoder_layers": 1},  # its decoder has a cache of sentences, behind those of all layers
    "hat_encoder": {"num_hidden_layers": 1},
    "highlight_transformer": {"encoder_layers": 1, "decoder_layers": 1, "highlight_layers": 1},
    "top_down_transformer": {"decoder_layers": 1},
}


@pytest.fixture
def shallow_model(case: Case) -> PreTrainedModel:
    if case is CASES["highlight_transformer"]:  # one layer is highlighted and one not, one copies and one does not
        return make_model(case)
    return make_model(case, **ONE_LAYER[case.model_class.config_class.model_type])


@pytest.fixture
def documents(case: Case) -> list[Document]:
    return [case.make_document(length, seed) for seed, length in enumerate((17, 9, 24))]


@pytest.fixture
def batch(case: Case, documents: list[Document]) -> dict[str, torch.Tensor]:
    return collate(case, documents)


@pytest.fixture
def target() -> torch.Tensor:
    ids = torch.randint(5, 60, (3, 7), generator=torch.Generator().manual_seed(9))
    ids[:, 0] = EOS
    return ids


def assert_close(got: torch.Tensor, want: torch.Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance * max(1.0, want.abs().max().item()))


def is_the_family_s_own(case: Case) -> bool:
    """Whether torch's compiler shall generate code, which takes its time: for one case of each family.

    For the others it makes the graphs, in which they differ, and runs their operations as they are.
    """
    return case is CASES[case.model_class.config_class.model_type]


def upper_states(case: Case, outputs: Any, row: int) -> torch.Tensor:
    """Return the states of the upper level of one document without its padding."""
    states, mask = (outputs[name][row] for name in case.upper_states)
    return states[mask.bool()]


def gradients(model: PreTrainedModel, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(**inputs).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@decoders_only
def test_cached_decoding_equals_uncached(model, batch, target):
    expected = model(**batch, decoder_input_ids=target).logits
    encoded = model.get_encoder()(**batch)
    cache, steps = None, []
    for position in range(target.shape[1]):
        outputs = model(
            encoder_outputs=encoded,
            attention_mask=batch["attention_mask"],
            decoder_input_ids=target[:, position : position + 1],
            cache=cache,
            use_cache=True,
        )
        cache = outputs.cache
        steps.append(outputs.logits)
    assert_close(torch.cat(steps, dim=1), expected)


@decoders_only
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_generates_in_training_what_it_generates(case, batch, is_checkpointed):
    """As reinforcement learning does, on a model that drops attention weights; next to none here."""
    drops = {"attention_dropout": 1e-9} if hasattr(case.make_config(), "attention_dropout") else {}
    settings = {"max_new_tokens": 8, "output_logits": True, "return_dict_in_generate": True}
    expected = make_model(case, dropout=0.0, **drops).generate(**batch, **settings)
    model = make_model(case, dropout=0.0, **drops).train()
    if is_checkpointed:
        model.activation_checkpointing_enable()
    found = model.generate(**batch, **settings)
    assert torch.equal(found.sequences, expected.sequences)
    assert_close(torch.cat(found.logits), torch.cat(expected.logits), 1e-4)  # dropout rounds in another order


@static_decoders_only
def test_a_cache_that_is_no_pair_is_for_the_target(model, batch, target):
    expected = model(**batch, decoder_input_ids=target).logits
    cache = DynamicCache(config=model.config)
    for cut in (target[:, :3], target[:, 3:]):
        found = model(**batch, decoder_input_ids=cut, cache=cache, use_cache=True).logits
    assert_close(found, expected[:, 3:])


@decoders_only
@pytest.mark.filterwarnings("ignore:`past_key_values`")
def test_a_cache_under_its_old_name_is_the_cache(model, batch, target):
    encoded = model.get_encoder()(**batch)
    read = {"encoder_outputs": encoded, "attention_mask": batch["attention_mask"], "use_cache": True}
    steps = []
    for name in ("cache", "past_key_values"):
        cache = model(**read, decoder_input_ids=target[:, :2]).cache
        steps.append(model(**read, decoder_input_ids=target[:, 2:3], **{name: cache}).logits)
        cache = model.model(**read, decoder_input_ids=target[:, :2]).cache
        steps.append(model.model(**read, decoder_input_ids=target[:, 2:3], **{name: cache}).last_hidden_state)
    assert torch.equal(steps[0], steps[2])
    assert torch.equal(steps[1], steps[3])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("extra", [0, 5])
def test_a_batch_equals_its_members(case, model, documents, target, side, extra):
    batch = collate(case, documents, side, extra)
    together = model(**case.inputs(batch, target)).logits
    encoded = case.encode(model, batch)
    for row, document in enumerate(documents):
        single = collate(case, [document])
        want = model(**case.inputs(single, target[row : row + 1])).logits[0]
        assert_close(case.predictions(together, batch, row), want)
        alone = case.encode(model, single)
        assert_close(encoded.last_hidden_state[row][batch["attention_mask"][row].bool()], alone.last_hidden_state[0])
        if case.decodes and case.upper_states:
            assert_close(upper_states(case, encoded, row), upper_states(case, alone, 0))


@decoders_only
@pytest.mark.parametrize("side", ["right", "left"])
def test_generation_of_a_batch_equals_its_members(case, model, documents, side):
    settings = {"max_new_tokens": 8, "num_beams": 2}
    together = model.generate(**collate(case, documents, side, 3), **settings)
    for row, document in enumerate(documents):
        alone = model.generate(**collate(case, [document]), **settings)[0]
        assert together[row, : len(alone)].tolist() == alone.tolist()


@kernels_only
@uses_the_compiler
@pytest.mark.parametrize("implementation", ["sdpa", pytest.param("flex_attention", marks=pytest.mark.slow)])
def test_attention_implementations_agree(case, model, shallow_model, batch, target, implementation):
    eager = shallow_model if implementation == "flex_attention" else model
    other = copy.deepcopy(eager)
    eager.set_attn_implementation("eager")
    other.set_attn_implementation(implementation)
    # FlexAttention is compiled for the one family with a window of its own; on a GPU for all (test_gpu.py).
    generates_code = case is CASES["top_down_transformer"]
    with torch.no_grad(), torch.compiler.set_stance("default" if generates_code else "force_eager"):
        want, got = (m(**case.inputs(batch, target)).logits for m in (eager, other))
    for row in range(3):
        assert_close(case.predictions(got, batch, row), case.predictions(want, batch, row))
    if implementation != "flex_attention":  # on CPU, FlexAttention has no backward
        want, got = (gradients(m, **case.training_inputs(batch, target)) for m in (eager, other))
        for name in want:
            assert_close(got[name], want[name])


def test_edge_documents(case, model, documents, target):
    for name, document in case.edge_documents.items():
        batch = collate(case, [document, documents[0]])
        logits = model(**case.inputs(batch, target[:2])).logits
        assert logits.isfinite().all(), name
        alone = collate(case, [document])
        want = model(**case.inputs(alone, target[:1])).logits[0]
        assert_close(case.predictions(logits, batch, 0), want)
        if case.decodes:
            assert model.generate(**alone, max_new_tokens=4).shape[1] > 1, name


def test_a_fully_masked_row_stays_finite(case, model, batch, target):
    batch["attention_mask"][1] = 0
    found = gradients(model, **case.training_inputs(batch, target))
    assert all(gradient.isfinite().all() for gradient in found.values())


def test_every_extra_input_changes_forward_and_generation(case, model, documents, target):
    batch = collate(case, documents)
    logits = model(**case.inputs(batch, target)).logits
    settings = {"max_new_tokens": 6, "output_logits": True, "return_dict_in_generate": True}
    for name, change in case.change.items():
        changed = collate(case, [{**document, name: change(document)} for document in documents])
        assert (model(**case.inputs(changed, target)).logits - logits).abs().max() > 1e-3, name
        for num_beams in (1, 2) if case.decodes else ():
            before, after = (
                model.generate(**inputs, num_beams=num_beams, **settings).logits[0] for inputs in (batch, changed)
            )
            assert (before - after).abs().max() > 1e-3, f"{name} is lost in generate with {num_beams} beams"


@markers_only
def test_given_bos_positions_are_the_ones_used(case, model, batch, target):
    inputs = case.inputs(batch, target)
    found = [row.nonzero().flatten().tolist() for row in (batch["input_ids"] == BOS) & (batch["attention_mask"] != 0)]
    most = max(len(row) for row in found) + 2  # more padding than needed
    positions = torch.tensor([row + [-1] * (most - len(row)) for row in found])
    logits = model(**inputs).logits
    assert_close(model(**inputs, bos_positions=positions).logits, logits)
    for row in range(3):
        others = positions.clone()
        others[row] = -1
        others[row, 0] = 4  # one sentence, that does not begin where it did
        change = (model(**inputs, bos_positions=others).logits - logits).abs()
        assert case.predictions(change, batch, row).max() > 1e-3
        assert all(case.predictions(change, batch, other).max() < 1e-4 for other in range(3) if other != row)


@decoders_only
def test_beam_search_scores_are_those_of_the_model(model, batch):
    settings = {"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}
    found = model.generate(**batch, **settings, return_dict_in_generate=True, output_scores=True)
    repeated = {name: tensor.repeat_interleave(3, dim=0) for name, tensor in batch.items()}
    log_probs = model(**repeated, decoder_input_ids=found.sequences[:, :-1]).logits.log_softmax(-1)
    targets = found.sequences[:, 1:]
    per_token = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    is_end = targets == EOS
    per_token = per_token.masked_fill(is_end.cumsum(dim=1) > is_end.int(), 0.0)  # padding; a PAD before it was written
    # The forced last token has score 0 in beam search.
    forced = is_end & (torch.arange(targets.shape[1]) == 5)
    assert_close(found.sequences_scores, per_token.masked_fill(forced, 0.0).sum(-1), 1e-4)


@decoders_only
def test_sampling_follows_the_distribution_of_a_single_document(case, model, documents):
    settings = {"max_new_tokens": 5, "do_sample": True, "num_return_sequences": 2}
    torch.manual_seed(3)
    first = model.generate(**collate(case, documents[:1]), **settings)
    torch.manual_seed(3)
    second = model.generate(**collate(case, documents[:1], "left", 4), **settings)
    assert torch.equal(first, second)


@decoders_only
def test_assisted_decoding_equals_greedy(case, model, documents):
    single = collate(case, documents[:1])
    assistant = make_model(case, std=0.2)
    settings = {"max_new_tokens": 12, "do_sample": False}
    expected = model.generate(**single, **settings)
    assert torch.equal(model.generate(**single, assistant_model=assistant, **settings), expected)
    found = model.generate(
        **single, assistant_model=assistant, output_attentions=True, return_dict_in_generate=True, **settings
    )
    assert torch.equal(found.sequences, expected)
    assert len(found.cross_attentions) == expected.shape[1] - 1


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_gives_equal_gradients(case, model, batch, target, use_reentrant):
    model.train()  # dropout is 0 in evaluation; here it is set so, since checkpointing is for training
    for module in model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if hasattr(model.config, "dropout"):
        model.config.dropout = 0.0
    inputs = case.training_inputs(batch, target)
    plain = gradients(model, **inputs)
    model.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    if use_reentrant:
        model.enable_input_require_grads()
    for name, gradient in gradients(model, **inputs).items():
        assert_close(gradient, plain[name], 1e-6)


@only(lambda case: case is not CASES["coarse_to_fine_lstm_hard"])  # whose training draws rows
def test_a_schedule_turns_all_dropout_off(case, model, batch, target):
    inputs, schedule = case.training_inputs(batch, target), DropoutSchedule(1)
    model.train()
    schedule.on_train_begin(None, TrainerState(), None, model=model)
    schedule.on_step_begin(None, TrainerState(epoch=0.0), None)
    assert torch.equal(model(**inputs).loss, model(**inputs).loss)
    schedule.on_train_end(None, TrainerState(), None)
    assert not torch.equal(model(**inputs).loss, model(**inputs).loss)


def test_every_parameter_gets_a_gradient(case, model, batch, target):
    for name, gradient in gradients(model, **case.training_inputs(batch, target)).items():
        assert gradient.abs().max() > 0, name


def with_id(target: torch.Tensor, value: int) -> torch.Tensor:
    return target.index_fill(1, torch.tensor([1]), value)


BAD_TARGETS = {
    "labels beyond the vocabulary": (
        lambda target: {"labels": with_id(target, 60)},
        r"`labels` must be in \[0, vocab_size=60\), or -100, got values from .* to 60",
    ),
    "labels padded with -1": (
        lambda target: {"labels": with_id(target, -1)},
        r"`labels` must be in \[0, vocab_size=60\), or -100, got values from -1 to",
    ),
    "labels of one document without its batch": (
        lambda target: {"labels": target[0]},
        r"`labels` must be \(batch, target\) with tokens, got shape \(\d+,\)",
    ),
    "no labels": (
        lambda target: {"labels": target[:, :0]},
        r"`labels` must be \(batch, target\) with tokens, got shape \(3, 0\)",
    ),
    "labels for one document of three": (
        lambda target: {"labels": target[:1]},
        "The target must have batch=3 like the source, got batch=1",
    ),
    "fewer labels than the target has tokens": (
        lambda target: {"decoder_input_ids": target, "labels": target[:, 1:]},
        r"`labels` must be \(3, \d+\) like the target, got shape \(3, \d+\)",
    ),
    "a third as many labels as the target has tokens": (
        lambda target: {"decoder_input_ids": target, "labels": target[:1]},
        r"`labels` must be \(3, \d+\) like the target, got shape \(1, \d+\)",
    ),
    "ids beyond the vocabulary": (
        lambda target: {"decoder_input_ids": with_id(target, 60)},
        r"`decoder_input_ids` must be in \[0, vocab_size=60\), got values from .* to 60",
    ),
    "ids with -100": (
        lambda target: {"decoder_input_ids": with_id(target, -100)},
        r"`decoder_input_ids` must be in \[0, vocab_size=60\), got values from -100 to",
    ),
    "ids of one document without its batch": (
        lambda target: {"decoder_input_ids": target[0]},
        r"`decoder_input_ids` must be \(batch, target\), got shape \(\d+,\)",
    ),
    "no ids": (
        lambda target: {"decoder_input_ids": target[:, :0]},
        r"`decoder_input_ids` must be \(batch, target\), got shape \(3, 0\)",
    ),
    "ids for two documents of three": (
        lambda target: {"decoder_input_ids": target[:2]},
        "The target must have batch=3 like the source, got batch=2",
    ),
    "ids and embeddings": (
        lambda target: {"decoder_input_ids": target, "decoder_inputs_embeds": torch.zeros(*target.shape, 7)},
        "Give exactly one of `decoder_input_ids` and `decoder_inputs_embeds`, got both",
    ),
    "embeddings of another width": (
        lambda target: {"decoder_inputs_embeds": torch.zeros(*target.shape, 7)},
        r"`decoder_inputs_embeds` must be \(batch, target, \w+=\d+\), got shape \(3, \d+, 7\)",
    ),
    "a mask of fewer tokens": (
        lambda target: {"decoder_input_ids": target, "decoder_attention_mask": torch.ones_like(target[:, 1:])},
        r"`decoder_attention_mask` must be \(3, \d+\) like the target, .* got shape \(3, \d+\)",
    ),
    "a mask of one document": (
        lambda target: {"decoder_input_ids": target, "decoder_attention_mask": torch.ones_like(target[:1])},
        r"`decoder_attention_mask` must be \(3, \d+\) like the target, .* got shape \(1, \d+\)",
    ),
}


@decoders_only
@pytest.mark.parametrize("wrong", BAD_TARGETS)
def test_bad_targets_are_refused(model, batch, target, wrong):
    make, message = BAD_TARGETS[wrong]
    with pytest.raises(ValueError, match=message):
        model(**batch, **make(target))


BAD_SOURCES = {
    "nothing": (lambda ids, embeds: {}, "Give exactly one of `input_ids` and `inputs_embeds`, got none"),
    "both": (
        lambda ids, embeds: {"input_ids": ids, "inputs_embeds": embeds},
        "Give exactly one of `input_ids` and `inputs_embeds`, got both",
    ),
    "one document without a batch": (
        lambda ids, embeds: {"input_ids": ids[0]},
        r"`input_ids` must be \(batch, AXIS\), got shape \(24,\)",
    ),
    "no tokens": (
        lambda ids, embeds: {"input_ids": ids[:, :0]},
        r"`input_ids` must be \(batch, AXIS\), got shape \(3, 0\)",
    ),
    "no documents": (
        lambda ids, embeds: {"input_ids": ids[:0]},
        r"`input_ids` must be \(batch, AXIS\), got shape \(0, 24\)",
    ),
    "an id beyond the vocabulary": (
        lambda ids, embeds: {"input_ids": with_id(ids, 60)},
        r"`input_ids` must be in \[0, vocab_size=60\), got values from \d+ to 60",
    ),
    "a negative id": (
        lambda ids, embeds: {"input_ids": with_id(ids, -1)},
        r"`input_ids` must be in \[0, vocab_size=60\), got values from -1 to \d+",
    ),
    "embeddings of another width": (
        lambda ids, embeds: {"inputs_embeds": embeds[..., :7]},
        r"`inputs_embeds` must be \(batch, AXIS, WIDTH\), got shape \(3, 24, 7\)",
    ),
    "embeddings of one document without a batch": (
        lambda ids, embeds: {"inputs_embeds": embeds[0]},
        r"`inputs_embeds` must be \(batch, AXIS, WIDTH\), got shape \(24, \d+\)",
    ),
    "a mask of fewer tokens": (
        lambda ids, embeds: {"input_ids": ids, "attention_mask": torch.ones_like(ids[:, 1:])},
        r"`attention_mask` must be \(3, 24\) like the tokens, got shape \(3, 23\)",
    ),
}


@pytest.mark.parametrize("wrong", BAD_SOURCES)
def test_bad_sources_are_refused(case, batch, target, wrong):
    make, message = BAD_SOURCES[wrong]
    config = case.make_config()
    width = getattr(config, case.width)
    inputs = make(batch["input_ids"], torch.zeros(3, 24, width))
    if "inputs_embeds" in inputs and not case.has_embeds:
        pytest.skip("it reads words")
    message = message.replace("AXIS", case.axis).replace("WIDTH", f"{case.width}={width}")
    for cls in (case.model_class, *(getattr(hier_models, name) for name in case.others)):
        takes_target = "decoder_input_ids" in inspect.signature(cls.forward).parameters
        with pytest.raises(ValueError, match=message):
            cls(config).eval()(**inputs, **({"decoder_input_ids": target} if takes_target else {}))


def test_outputs_are_batch_first(case, model, batch, target):
    """DataParallel and the Trainer's gathering put outputs together along the first axis."""
    model.set_attn_implementation("eager")
    inputs = case.training_inputs(batch, target)
    outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    assert case.attentions in outputs
    for name, value in outputs.items():
        if name == "loss":
            continue
        for tensor in value if isinstance(value, tuple) else (value,):
            assert tensor.shape[0] == 3, name
    for name, value in case.encode(model, batch).items():
        assert isinstance(value, torch.Tensor), name
        assert value.shape[0] == 3, name


def test_tuples_hold_the_same(case, model, batch, target):
    inputs = case.training_inputs(batch, target)
    outputs = model(**inputs)
    as_tuple = model(**inputs, return_dict=False)
    assert torch.equal(as_tuple[0], outputs.loss)
    assert torch.equal(as_tuple[1], outputs.logits)
    encoded = case.encode(model, batch, return_dict=False)
    assert isinstance(encoded, tuple)
    assert torch.equal(encoded[0], case.encode(model, batch).last_hidden_state)


def test_what_mixed_precision_put_around_a_forward_is_taken_off_again(case, model, batch, target):
    """As `Accelerator` does, whose precision is that of the first one of a process."""
    signature, loss = inspect.signature(model.forward), model(**case.training_inputs(batch, target)).loss
    model._original_forward = model.forward
    model.forward = MethodType(convert_outputs_to_fp32(model.forward.__func__), model)
    again = extract_model_from_parallel(model, keep_fp32_wrapper=False)
    assert inspect.signature(again.forward) == signature
    assert torch.equal(again(**case.training_inputs(batch, target)).loss, loss)


@decoders_only
def test_the_decoder_takes_encoder_outputs_as_a_tuple(model, batch, target):
    outputs = model(**batch, labels=target)
    encoded = model.get_encoder()(**batch, return_dict=False)
    mask = batch["attention_mask"]
    assert_close(model(encoder_outputs=encoded, attention_mask=mask, labels=target).logits, outputs.logits)


def test_save_and_load(case, model, batch, target, tmp_path):
    inputs = case.inputs(batch, target)
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded, report = case.auto_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert torch.equal(loaded(**inputs).logits, expected)
    embeddings = [loaded.get_input_embeddings().weight, loaded.get_output_embeddings().weight]
    encoder = loaded.get_encoder() if case.decodes else loaded.base_model
    embeddings.append(encoder.get_input_embeddings().weight)
    assert (len({weight.data_ptr() for weight in embeddings}) == 1) == case.is_tied


def test_auto_classes_find_the_family(case, tmp_path):
    config = case.make_config()
    classes = {}
    for auto, name in FAMILIES[config.model_type].models.items():
        classes[auto] = getattr(hier_models, name)
        assert type(getattr(transformers, auto).from_config(config)) is classes[auto]
    model = case.auto_class.from_config(config)
    assert type(model) is case.model_class is classes[case.auto_class.__name__]
    model.save_pretrained(tmp_path)
    assert type(case.auto_class.from_pretrained(tmp_path)) is case.model_class
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is type(config)
    assert loaded.to_diff_dict() == model.config.to_diff_dict()


@decoders_only
@pytest.mark.parametrize("scores", [False, True])
def test_accumulated_batches_weigh_each_token_the_same(case, documents, target, scores):
    model = make_model(case, **(case.with_scores if scores else {}))
    labels = target.masked_fill(torch.arange(7) > torch.tensor([[6], [1], [3]]), -100)
    whole = model(**collate(case, documents), labels=labels).loss
    items = (labels != -100).sum()
    parts = [
        model(**collate(case, [document]), labels=labels[i : i + 1], num_items_in_batch=items).loss
        for i, document in enumerate(documents)
    ]
    assert_close(sum(parts), whole)


def test_what_may_not_be_split_is_there(case):
    """accelerate's FSDP refuses a model that names another class."""
    for model_class in (case.model_class, *(getattr(hier_models, name) for name in case.others)):
        model = model_class(case.make_config())
        assert model._no_split_modules
        assert model._no_split_modules <= {type(module).__name__ for module in model.modules()}


def test_offloaded_weights(case, model, batch, target):
    """`device_map` moves weights in and out by hooks on the modules, so every module has to be called as one."""
    inputs = case.inputs(batch, target)
    expected = model(**inputs).logits
    generated = model.generate(**batch, max_new_tokens=4) if case.decodes else None
    offloaded = cpu_offload(model, execution_device=torch.device("cpu"))
    assert next(offloaded.parameters()).device.type == "meta"
    assert torch.equal(offloaded(**inputs).logits, expected)
    if case.decodes:
        assert torch.equal(offloaded.generate(**batch, max_new_tokens=4), generated)


@pytest.mark.parametrize("vocab_size", [71, 55])
def test_resized_embeddings(case, batch, target, vocab_size, tmp_path):
    model = make_model(case, **case.with_scores)
    batch["input_ids"].clamp_(max=54)
    inputs = case.training_inputs(batch, target.clamp_(max=54))
    before = model(**inputs).logits
    model.resize_token_embeddings(vocab_size)
    assert model.config.vocab_size == vocab_size
    after = model(**inputs).logits
    assert after.shape[-1] == vocab_size
    assert_close(after[..., :55], before[..., :55])
    model.save_pretrained(tmp_path)
    loaded = case.auto_class.from_pretrained(tmp_path)
    # An LSTM rounds by where in memory a checkpoint's file puts its weights.
    assert_close(loaded(**inputs).logits, after, 0.0 if case.is_static else 1e-6)


@decoders_only
@pytest.mark.parametrize("headless", [False, True])
@pytest.mark.parametrize("vocab_size", [71, 55])
def test_embeddings_that_are_not_shared_are_kept_when_they_are_resized(case, batch, target, vocab_size, headless):
    """Transformers resizes one, and puts it in the place of the others, as they share it in most models."""
    model = make_model(case, tie_word_embeddings=False, **case.with_scores)
    batch["input_ids"].clamp_(max=54)
    inputs = {**batch, "decoder_input_ids": target.clamp_(max=54)}
    part = model.model if headless else model
    before = part(**inputs)[0]
    part.resize_token_embeddings(vocab_size)
    assert_close(part(**inputs)[0][..., :55], before[..., :55])
    assert part.config.vocab_size == vocab_size
    for side in (model.get_encoder(), model.get_decoder()):
        assert side.embed_tokens.num_embeddings == vocab_size


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_half_precision(case, model, target, dtype, tolerance):
    half = copy.deepcopy(model).to(dtype)
    errors = []
    for draw in range(6):  # the largest error of one batch is a matter of luck, a factor of two from one to the next
        batch = collate(case, [case.make_document(length, 3 * draw + i) for i, length in enumerate((17, 9, 24))])
        inputs = case.training_inputs(batch, target)
        expected = model(**inputs).logits
        outputs = half(**inputs)
        assert outputs.logits.dtype == dtype
        assert outputs.loss.isfinite()
        with torch.autocast("cpu", dtype=dtype):
            mixed = model(**inputs).logits
        scale = max(1.0, expected.abs().max().item())
        errors.append([(logits.float() - expected).abs().max().item() / scale for logits in (outputs.logits, mixed)])
    assert max(map(statistics.mean, zip(*errors, strict=True))) < tolerance, errors
    if case.decodes:
        assert half.generate(**batch, max_new_tokens=4, num_beams=2).shape[0] == 3


@static_only
def test_export(case, shallow_model, batch, target):
    inputs = {**case.inputs(batch, target), **({"use_cache": False} if case.decodes else {})}
    expected = shallow_model(**inputs).logits
    program = torch.export.export(shallow_model, (), inputs, strict=False)
    assert_close(program.module()(**inputs).logits, expected)


@static_only
@uses_the_compiler
@pytest.mark.slow
def test_compiled_forward_and_gradients(case, shallow_model, batch, target):
    inputs = case.training_inputs(batch, target)
    expected = gradients(shallow_model, **inputs)
    compiled = torch.compile(
        copy.deepcopy(shallow_model), backend="inductor" if is_the_family_s_own(case) else "aot_eager"
    )
    assert_close(compiled(**inputs).logits, shallow_model(**inputs).logits)
    compiled(**inputs).loss.backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for name, parameter in compiled.named_parameters():
        assert_close(parameter.grad, expected[name.removeprefix("_orig_mod.")])


@decoders_only
def test_beams_move_what_they_wrote_and_not_what_they_read(case, model, batch, monkeypatch):
    """A document's beams see the same of it: to copy that at each step costs more than the step if it is long."""
    settings = {"max_new_tokens": 10, "num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}
    settings |= {"return_dict_in_generate": True, "output_scores": True}
    monkeypatch.setattr(type(model.get_decoder()), "shares_sources", False, raising=False)
    moved, usual = [], Cache.reorder_cache
    monkeypatch.setattr(Cache, "reorder_cache", lambda self, beams: (moved.append(self), usual(self, beams))[1])
    few = model.generate(**batch, **settings)
    cache = few.past_key_values if "past_key_values" in few else few.cache
    if not isinstance(cache, EncoderDecoderCache):
        pytest.skip("a recurrent state moves by itself")
    assert moved
    assert not any(one is cache.cross_attention_cache for one in moved)
    monkeypatch.setattr(model, "_reorder_cache", lambda cache, beams: (cache.reorder_cache(beams), cache)[1])
    every = model.generate(**batch, **settings)
    assert torch.equal(few.sequences, every.sequences)
    assert torch.equal(few.sequences_scores, every.sequences_scores)


@decoders_only
@pytest.mark.parametrize("how", [{"num_beams": 3, "length_penalty": 0.0}, {"do_sample": True}])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_what_beams_and_samples_read_is_there_once(case, model, batch, how, implementation, monkeypatch):
    decoder = model.get_decoder()
    if not getattr(decoder, "shares_sources", False):
        pytest.skip("this family's sources are repeated")
    model.set_attn_implementation(implementation)
    settings = {"max_new_tokens": 8, "num_return_sequences": 3, "return_dict_in_generate": True, **how}

    def written(**also: Any) -> tuple[Any, torch.Tensor]:
        torch.manual_seed(0)
        found = model.generate(**batch, **settings, output_logits=True, **also)
        return found, torch.stack(found.logits)

    def rows_read(found: Any) -> set[int]:
        return {layer.keys.shape[0] for layer in found.cache.cross_attention_cache.layers}

    once, once_logits = written()
    watched, watched_logits = written(output_attentions=True)
    monkeypatch.setattr(type(decoder), "shares_sources", False)
    each, each_logits = written()
    assert (rows_read(once), rows_read(watched), rows_read(each)) == ({3}, {9}, {9})
    for found, logits in ((once, once_logits), (watched, watched_logits)):
        assert torch.equal(found.sequences, each.sequences)
        assert_close(logits, each_logits)
    if implementation == "eager":
        assert watched.cross_attentions[0][0].shape[0] == 9


@decoders_only
@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_is_the_same_with_any_cache(case, model, batch, num_beams):
    settings = {"max_new_tokens": 10, "num_beams": num_beams}
    expected = model.generate(**batch, **settings)
    assert torch.equal(model.generate(**batch, use_cache=False, **settings), expected)
    if case.is_static:
        assert torch.equal(model.generate(**batch, cache_implementation="static", **settings), expected)


@static_decoders_only
def test_a_static_cache_may_have_more_room_than_there_are_positions(model, batch):
    """`generate` keeps the largest room that a model was ever asked for."""
    expected = model.generate(**batch, max_new_tokens=8)
    at_once = [lambda ids, scores: torch.ones(len(ids), dtype=torch.bool)]
    model.generate(**batch, max_length=3000, stopping_criteria=at_once, cache_implementation="static")
    assert torch.equal(model.generate(**batch, max_new_tokens=8, cache_implementation="static"), expected)


@static_decoders_only
@uses_the_compiler
@pytest.mark.slow
def test_compiled_generation(case, shallow_model, batch):
    """The decoding step compiles as one graph, with a static cache; the variants of a family search with beams."""
    settings = {"max_new_tokens": 8, "num_beams": 1 if is_the_family_s_own(case) else 2}
    expected = shallow_model.generate(**batch, **settings)
    # One family is enough for code of cached steps; test_compiled_forward_and_gradients has that of the others.
    shallow_model.forward = torch.compile(
        shallow_model.forward, backend="inductor" if case is CASES["hat_bart"] else "aot_eager"
    )
    assert torch.equal(shallow_model.generate(**batch, cache_implementation="static", **settings), expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"]
    breaks = [reason for reason in torch._dynamo.utils.counters["graph_break"] if "bos" in reason.lower()]
    assert not breaks


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT asks for it
def test_lora_attaches_and_trains(case, model, batch, target):
    peft = pytest.importorskip("peft")
    inputs = case.training_inputs(batch, target)
    before = model(**inputs)
    lora = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=list(case.lora_targets)))
    assert_close(lora(**inputs).logits, before.logits)
    lora(**inputs).loss.backward()
    trained = {name for name, parameter in lora.named_parameters() if parameter.grad is not None}
    assert trained
    assert all("lora_" in name for name in trained)
    if case.decodes:
        assert torch.equal(lora.generate(**batch, max_new_tokens=4), model.generate(**batch, max_new_tokens=4))


# What each of two processes does; only the first writes down what it found.
TRAIN_STEP = """
import os
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
from tests.cases import CASES, EOS, collate, make_model

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
# The meeting place is a file and not a port, which another test could take.
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
for name, case in CASES.items():
    model = DistributedDataParallel(make_model(case))
    shard = collate(case, [case.make_document(12 + 5 * rank, rank)])
    model(**case.training_inputs(shard, torch.tensor([[5, 6, 7 + rank, EOS]]))).loss.backward()
    if rank == 0:
        found = {key: parameter.grad for key, parameter in model.module.named_parameters()}
        torch.save(found, f"{folder}/{name}.pt")
torch.distributed.barrier()
# Taken apart in order, a process group waits for its thread, which may wait for this one to let go of the interpreter:
# on a busy machine that is for ever.
os._exit(0)
"""


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of every case's gradients."""
    folder = tmp_path_factory.mktemp("gradients")
    processes = [forks.start(TRAIN_STEP, str(rank), str(folder), cwd=ROOT) for rank in range(2)]
    for process in processes:
        assert process.wait() == 0, process.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_the_gradients_of_one(name, of_two_processes):
    case = CASES[name]
    documents = [case.make_document(12 + 5 * rank, rank) for rank in range(2)]
    labels = torch.tensor([[5, 6, 7, EOS], [5, 6, 8, EOS]])
    expected = gradients(make_model(case), **case.training_inputs(collate(case, documents), labels))
    found = torch.load(of_two_processes / f"{name}.pt")
    for parameter, gradient in expected.items():
        assert_close(found[parameter], gradient)

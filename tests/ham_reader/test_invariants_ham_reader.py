"""What holds for every family (DESIGN 5.2), in the form that it has for readers: see test_invariants.py."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload

from tests import forks
from tests.ham_reader.test_modeling_ham_reader import (
    QUESTIONS,
    READERS,
    SEVERAL,
    make_batch,
    make_model,
    scores_of,
)
from tests.ham_reader.test_training_ham_reader import ENDS, STARTS


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("reader", READERS)
def test_offloaded_weights(reader):
    """`device_map` moves weights in and out by hooks on the modules, so every module has to be called as one."""
    model = make_model(reader=reader)
    batch = make_batch()
    expected = model(**batch).start_logits
    offloaded = cpu_offload(model, execution_device=torch.device("cpu"))
    assert next(offloaded.parameters()).device.type == "meta"
    assert torch.equal(offloaded(**batch).start_logits, expected)


@pytest.mark.parametrize("reader", READERS)
def test_what_may_not_be_split_is_there(reader):
    model = make_model(reader=reader)
    assert model._no_split_modules == {"WordEncoder", type(model.reader).__name__}
    assert model._no_split_modules <= {type(module).__name__ for module in model.modules()}


@pytest.mark.parametrize(("dtype", "close"), [(torch.bfloat16, 0.25), (torch.float16, 0.05)])
@pytest.mark.parametrize("reader", READERS)
def test_mixed_and_half_precision(reader, dtype, close):
    model = make_model(reader=reader)
    batch = make_batch(SEVERAL, documents=True, side="left")
    half = copy.deepcopy(model).to(dtype)
    want = scores_of(model(**batch), batch)
    output = half(**batch, start_positions=STARTS, end_positions=ENDS)
    assert output.start_logits.dtype == dtype
    output.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in half.parameters())
    found = [scores_of(output, batch)]
    if dtype == torch.bfloat16:  # torch's own LSTM has no mixed precision of float16 on CPU
        with torch.autocast("cpu", dtype=dtype):
            found.append(scores_of(model(**batch), batch))
    for got in found:
        for pair, other in zip(got, want, strict=True):
            for mine, exact in zip(pair, other, strict=True):
                torch.testing.assert_close(mine.float(), exact, rtol=close, atol=close)


@pytest.mark.parametrize("reader", READERS)
def test_no_dropout_in_evaluation(reader):
    model = make_model(reader=reader, dropout=0.5)
    batch = make_batch()
    assert torch.equal(model(**batch).end_logits, model(**batch).end_logits)
    model.train()
    assert not torch.equal(model(**batch).end_logits, model(**batch).end_logits)


def gradients(model: Any, rows: slice) -> dict[str, torch.Tensor]:
    batch = make_batch(SEVERAL[rows], QUESTIONS[rows], documents=True)
    model(**batch, start_positions=STARTS[rows], end_positions=ENDS[rows]).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


# What each of two processes does; only the first writes down what it found.
TRAIN_STEP = """
import os
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
from tests.ham_reader.test_invariants_ham_reader import gradients, make_model

reader, rank, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
# The meeting place is a file and not a port, which another test could take.
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
found = gradients(DistributedDataParallel(make_model(reader=reader)), slice(rank, rank + 1))
if rank == 0:
    torch.save({name.removeprefix("module."): value for name, value in found.items()}, f"{folder}/gradients.pt")
torch.distributed.barrier()
os._exit(0)  # see test_invariants.py
"""


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_two_processes_give_the_gradients_of_one(reader, tmp_path):
    expected = gradients(make_model(reader=reader), slice(None))
    processes = [forks.start(TRAIN_STEP, reader, str(rank), str(tmp_path), cwd=ROOT) for rank in range(2)]
    for process in processes:
        assert process.wait() == 0, process.stderr
    found = torch.load(tmp_path / "gradients.pt")
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=2e-5)

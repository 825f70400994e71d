"""HAT-BART with its heads and feed-forward networks shared out between two processes."""

import os
from pathlib import Path

import pytest

from tests import forks
from tests.cases import CASES, make_model


IN_PROCESS = """
import os
import sys
import torch
from transformers import AutoModelForSeq2SeqLM
from transformers.distributed import DistributedConfig
from tests.cases import CASES, collate, make_model

folder, name, rank = *sys.argv[1:], int(os.environ["RANK"])
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
case = CASES[name]
model = make_model(case)
shared_out = AutoModelForSeq2SeqLM.from_pretrained(f"{folder}/model", distributed_config=DistributedConfig(tp_size=2))
attention = shared_out.model.decoder.layers[0].hierarchical_attn
assert attention.k_proj.weight.to_local().shape == (12, 24)
batch = collate(case, [case.make_document(12, 0), case.make_document(17, 1)])
labels = torch.tensor([[5, 6, 7, 2], [5, 6, 8, 2]])
expected, found = (each(**batch, labels=labels) for each in (model, shared_out))
torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-4)
for cache in (None, "static"):
    options = {"max_new_tokens": 6, "num_beams": 2, "cache_implementation": cache}
    assert torch.equal(shared_out.generate(**batch, **options), model.generate(**batch, **options)), cache
expected.loss.backward()
found.loss.backward()
gradient = attention.k_proj.weight.grad.full_tensor()
torch.testing.assert_close(gradient, model.model.decoder.layers[0].hierarchical_attn.k_proj.weight.grad)
torch.distributed.barrier()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hat_bart", "hat_bart_options"])
def test_two_processes_with_half_of_the_heads_each_are_the_model(tmp_path, name):
    make_model(CASES[name]).save_pretrained(tmp_path / "model")
    settings = os.environ | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    processes = [
        forks.start(
            IN_PROCESS,
            str(tmp_path),
            name,
            env=settings | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=Path(__file__).parents[2],
        )
        for rank in range(2)
    ]
    for process in processes:
        assert process.wait() == 0, process.stderr

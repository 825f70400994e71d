"""Models with heads and feed-forward networks shared out between two processes."""

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

folder, *names, rank = *sys.argv[1:], int(os.environ["RANK"])
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
for name in names:
    case = CASES[name]
    model = make_model(case)
    config = DistributedConfig(tp_size=2)
    shared_out = AutoModelForSeq2SeqLM.from_pretrained(f"{folder}/{name}", distributed_config=config)
    parts = [part for part, weight in shared_out.named_parameters() if hasattr(weight, "to_local")]
    halves = {part: shared_out.get_parameter(part).to_local().numel() for part in parts}
    assert all(2 * half == model.get_parameter(part).numel() for part, half in halves.items() if "weight" in part)
    batch = collate(case, [case.make_document(12, 0), case.make_document(17, 1)])
    labels = torch.tensor([[5, 6, 7, 2], [5, 6, 8, 2]])
    expected, found = (each(**batch, labels=labels) for each in (model, shared_out))
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-4)
    for cache in (None, "static"):
        options = {"max_new_tokens": 6, "num_beams": 2, "cache_implementation": cache}
        assert torch.equal(shared_out.generate(**batch, **options), model.generate(**batch, **options)), (name, cache)
    expected.loss.backward()
    found.loss.backward()
    for part in parts:
        gradient = shared_out.get_parameter(part).grad.full_tensor()
        torch.testing.assert_close(gradient, model.get_parameter(part).grad, msg=f"{name}: {part}")
    if rank == 0:
        print(name, *parts)
torch.distributed.barrier()
sys.stdout.flush()
os._exit(0)
"""
# What is shared out, beside what all have: attentions and feed-forward networks that only some families have.
SHARED_OUT = {
    "hat_bart": (
        "encoder.layers.0.self_attn",
        "encoder.hierarchical_layers.0.fc1",
        "decoder.layers.1.hierarchical_attn",
    ),
    "hat_bart_options": ("encoder.hierarchical_layers.0.self_attn",),
    "top_down_transformer": (
        "encoder.layers.0.self_attn",
        "encoder.layers.1.segment_attn",
    ),
    "top_down_transformer_levels": ("encoder.layers.1.self_attn",),
    "highlight_transformer": (),
    "highlight_transformer_bart": (),
}


@pytest.mark.slow
def test_two_processes_with_half_of_the_heads_each_are_the_model(tmp_path):
    for name in SHARED_OUT:
        make_model(CASES[name]).save_pretrained(tmp_path / name)
    settings = os.environ | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    processes = [
        forks.start(
            IN_PROCESS,
            str(tmp_path),
            *SHARED_OUT,
            env=settings | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=Path(__file__).parents[2],
        )
        for rank in range(2)
    ]
    for process in processes:
        assert process.wait() == 0, process.stderr
    for line in processes[0].stdout.splitlines():
        name, *parts = line.split()
        own = {part.removeprefix("model.").rpartition(".")[0] for part in parts}
        whole = {part.rpartition(".")[0] if part.endswith("_proj") else part for part in own}
        assert {
            "encoder.layers.0.fc1",
            "decoder.layers.1.fc2",
            "decoder.layers.0.self_attn",
            *SHARED_OUT[name],
        } <= whole
        assert ("encoder.layers.0.self_attn" in whole) == ("highlight" not in name)
        assert "decoder.layers.1.encoder_attn" not in whole

"""The Trainer of all tasks."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast

import pyarrow
import torch
from datasets import Dataset
from pyarrow import compute
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Seq2SeqTrainer, Trainer, TrainerCallback, TrainerState
from transformers.trainer_pt_utils import LengthGroupedSampler

from .arguments import AS_ONE, IN_ORDER, RecipeError
from .distributed import NO_LOSS, check_zero3, prepare_sharding


class HierTrainer(Seq2SeqTrainer):
    """Learns from the same examples in each step on any number of processes, and after resuming."""

    # With `in_order` it evaluates on every row in the order of the data, by which windows and chunks are put together.
    # Transformers refuses one in `optimizers` with FSDP and DeepSpeed, which can share out the weights of one.
    def __init__(
        self, *args: Any, in_order: bool = False, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.in_order = in_order
        if hasattr(self.data_collator, "set_epoch"):
            self.add_callback(_EpochOfCollator(self.data_collator))
        self.own_optimizer = optimizer
        if optimizer is not None and self.is_fsdp_enabled and not self.accelerator.is_fsdp2:
            raise RecipeError("run: learning rates of parts and of new modules need FSDP2; set fsdp_version: 2")

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        if self.is_fsdp_enabled:
            prepare_sharding(cast(PreTrainedModel, self.model), self.accelerator.state.fsdp_plugin)
        elif self.is_deepspeed_enabled and self.accelerator.state.deepspeed_plugin.zero_stage == 3:
            check_zero3(cast(PreTrainedModel, self.model))
        if self.own_optimizer is not None:
            self.optimizer = self.own_optimizer  # now, since with DeepSpeed another one is forgotten
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        return optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        loader: DataLoader[Any] = super().get_train_dataloader()
        # accelerate does not know it in an epoch that is gone on with.
        self.remainder = 0 if self.args.dataloader_drop_last else _remainder(loader)
        sampler: Any = loader.batch_sampler
        while sampler is not None and not isinstance(sampler, LengthGroupedSampler):
            sampler = getattr(sampler, "batch_sampler", None) or getattr(sampler, "sampler", None)
        if sampler is not None:
            # Transformers draws the order from dropout's numbers, which differ between processes and after resuming.
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            sampler.generator = torch.Generator()
            sampler.batch_size *= self.args.world_size  # the batches of all processes are grouped together
            sampler.lengths = _with_targets(sampler.lengths, self.train_dataset)
            self.add_callback(_SeedEachEpoch(sampler.generator, seed))
        return loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        return self._loader(super().get_eval_dataloader, eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        return self._loader(super().get_test_dataloader, test_dataset)

    def _loader(self, make: Callable[..., DataLoader[Any]], dataset: Any) -> DataLoader[Any]:
        with _changed(self.args, IN_ORDER if self.in_order else {}):
            return make(dataset)

    def evaluation_loop(self, dataloader: Any, description: str, *args: Any, **kwargs: Any) -> Any:
        """Evaluate on each example once, without those that fill up the last batches of several processes."""
        self.gather_function = self.accelerator.gather_for_metrics  # `Seq2SeqTrainer` keeps them
        if description == "Prediction":  # which is scored
            kwargs["prediction_loss_only"] = False
        with _changed(self.args, AS_ONE):
            return super().evaluation_loop(dataloader, description, *args, **kwargs)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if state_dict is not None:  # gathered from several processes, where weights that are one are no more
            tied = getattr(self.model, "all_tied_weights_keys", {})
            state_dict = {name: weight for name, weight in state_dict.items() if tied.get(name) not in state_dict}
        super()._save(output_dir, state_dict)

    def prediction_step(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict a batch, by generating where the model can; see `Seq2SeqTrainer`."""
        if cast(PreTrainedModel, self.model).can_generate():
            return super().prediction_step(model, *args, **kwargs)
        return Trainer.prediction_step(self, model, *args, **kwargs)

    def get_batch_samples(
        self, epoch_iterator: Iterator[dict[str, Any]], num_batches: int, device: torch.device
    ) -> tuple[list[dict[str, Any]], torch.Tensor | int | None]:
        if self.state.global_step >= self.state.max_steps:
            # Gone on with after the last step, in the middle of an epoch: Transformers would make one more.
            self.control.should_training_stop = True
            return [], None
        normalized = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        if self.args.world_size > 1 and normalized and self.args.average_tokens_across_devices:
            epoch_iterator = self._unlabel_repeats(epoch_iterator)
        found: tuple[list[dict[str, Any]], torch.Tensor | int | None]
        found = super().get_batch_samples(epoch_iterator, num_batches, device)
        return found

    def _unlabel_repeats(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for batch in batches:
            # accelerate fills up an epoch's last batches with repeated examples, so that every process has one.
            labels = batch.get("labels")
            # The examples of all processes together, in the order of the processes, that are no repetitions.
            if self.accelerator.gradient_state.end_of_dataloader and self.remainder and labels is not None:
                first = self.args.process_index * len(labels)
                rows = torch.arange(first, first + len(labels), device=labels.device)
                batch = {**batch, "labels": labels.clone()}
                batch["labels"][rows >= self.remainder] = NO_LOSS
            yield batch


@contextmanager
def _changed(arguments: Any, changes: Mapping[str, Any]) -> Iterator[None]:
    """Change arguments for a while."""
    before = {name: getattr(arguments, name) for name in changes}
    try:
        for name, value in changes.items():
            setattr(arguments, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(arguments, name, value)


def _remainder(loader: Any) -> int:
    """How many examples the last batches of an epoch have, those of all processes together; 0 if they are full."""
    with suppress(TypeError, AttributeError):  # of a stream, which has no length
        return int(loader.total_dataset_length % loader.total_batch_size)
    return 0


def _with_targets(lengths: list[int], dataset: Any) -> list[int]:
    """Count the tokens of the targets too, by which Transformers does not group: padding them costs as much."""
    if not isinstance(dataset, Dataset) or "labels" not in dataset.column_names:
        return lengths
    labels = dataset.select_columns("labels").with_format("arrow")[:]["labels"]
    if not pyarrow.types.is_list(labels.type):
        return lengths
    return [a + b for a, b in zip(lengths, compute.list_value_length(labels).to_pylist(), strict=True)]


class _EpochOfCollator(TrainerCallback):
    """Tells a collator the epoch that begins, or that is gone on with."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self.collator.set_epoch(int(state.epoch or 0))


class _SeedEachEpoch(TrainerCallback):
    """Seeds a generator with the epoch that begins, or that is gone on with."""

    def __init__(self, generator: torch.Generator, seed: int) -> None:
        self.generator, self.seed = generator, seed

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self.generator.manual_seed(self.seed + int(state.epoch or 0))

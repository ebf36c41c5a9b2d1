"""Batches that depend only on the seed and the step, so that a continued run sees the same batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from deelbo._seeds import mix
from deelbo.data.examples import Examples
from deelbo.data.targets import as_tensor

Inputs = Any  # a tensor, or a dictionary of keyword arguments for the network


def indices_of_step(number: int, batch_size: int, seed: int, step: int) -> list[int]:
    """Return the indices of a step's examples; each epoch is a new permutation, without its incomplete last batch."""
    size = min(batch_size, number)
    epoch, batch = divmod(step, steps_per_epoch(number, batch_size))
    order = torch.randperm(number, generator=torch.Generator().manual_seed(mix(seed, 1, epoch)))
    return order[batch * size : (batch + 1) * size].tolist()


def steps_per_epoch(number: int, batch_size: int) -> int:
    """Return how many full batches an epoch has; at least one."""
    return max(1, number // batch_size)


def fetch(dataset: Dataset, indices: Sequence[int], device: torch.device) -> tuple[Inputs, Tensor]:
    """Return inputs and labels of some examples, collated on the device."""
    return on_device(collated(dataset, indices), device)


def collated(dataset: Dataset, indices: Sequence[int], part: int = 0, parts: int = 1) -> Any:
    """Return some examples as a batch, or every so-many-th of them, augmented as in the whole batch.

    A dataset may have its own `collate(list of examples)`, such as one that pads texts to the longest of a batch. Its
    method `skip`, if it has one, draws the random numbers of an example without making it.

    Args:
        dataset: Examples.
        indices: Indices of the whole batch.
        part: Number of the part that is wanted, from 0.
        parts: Number of parts, of which each process takes one.
    """
    skip = getattr(dataset, "skip", lambda index: None)
    made = [dataset[index] if i % parts == part else skip(index) for i, index in enumerate(indices)]
    return getattr(dataset, "collate", default_collate)(made[part::parts])


def on_device(batch: Any, device: torch.device) -> tuple[Inputs, Tensor]:
    """Divide a batch into inputs and labels, and move both to the device."""
    inputs, labels = split_labels(batch)
    if isinstance(labels, (list, tuple)) and labels and isinstance(labels[0], Tensor):
        labels = torch.stack(list(labels), 1)  # of examples whose labels are lists
    labels = torch.as_tensor(labels)
    if not (labels.is_floating_point() or labels.is_complex()):
        labels = labels.long()  # also booleans and short integers
    if device.type == "mps" and labels.dtype == torch.float64:
        labels = labels.float()
    return to_device(inputs, device), labels.to(device)


def split_labels(batch: Any) -> tuple[Inputs, Any]:
    """Divide a batch, a pair or a dictionary with a key "labels" or "label", into inputs and labels.

    Raises:
        ValueError: If the batch is neither.
    """
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, dict):
        for key in ("labels", "label"):
            if key in batch:
                return {name: value for name, value in batch.items() if name != key}, batch[key]
    raise ValueError('a dataset must give pairs (input, label) or dictionaries with a key "labels"')


def to_device(inputs: Inputs, device: torch.device) -> Inputs:
    """Move a tensor, or the tensors of a dictionary, to a device."""
    if isinstance(inputs, dict):
        return {name: value.to(device) for name, value in inputs.items()}
    return inputs.to(device)


def in_order(
    dataset: Dataset, batch_size: int, device: torch.device, indices: Sequence[int] | None = None
) -> Iterator[tuple[Inputs, Tensor]]:
    """Yield the whole dataset, or the examples with some indices, in batches and in order."""
    order = range(len(dataset)) if indices is None else indices  # type: ignore[arg-type]
    for start in range(0, len(order), batch_size):
        prepare(dataset, order[start + batch_size : start + 2 * batch_size])
        yield fetch(dataset, order[start : start + batch_size], device)


def labels_of(dataset: Dataset) -> Tensor:
    """Return the labels of all examples; deelbo's own datasets know them without decoding the inputs."""
    if isinstance(examples := getattr(dataset, "examples", None), Examples):
        return as_tensor(examples.labels)
    return torch.cat([labels.cpu() for _, labels in in_order(dataset, 256, torch.device("cpu"))])


def kind_of(inputs: Inputs) -> str:
    """Return the kind of inputs, on which default settings depend: "text" for tokens, "image" for all others."""
    return "text" if isinstance(inputs, dict) and "input_ids" in inputs else "image"


def even_parts(indices: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """Divide indices at random into batches of nearly equal size, none larger than the batch size.

    For averages over batches, which a small last batch, or a batch of a single class, would distort.
    """
    order = torch.randperm(len(indices), generator=torch.Generator().manual_seed(mix(seed, 3))).tolist()
    number = -(-len(indices) // batch_size)
    return [[indices[i] for i in order[part::number]] for part in range(number)]


def prepare(dataset: Dataset, indices: Sequence[int]) -> None:
    """Let a dataset begin to decode the examples of the next batch, if it has a method `prepare`."""
    if begin := getattr(dataset, "prepare", None):
        begin(indices)


def network_output(network: nn.Module, inputs: Inputs) -> Tensor:
    """Call a network that takes a tensor or keyword arguments, and gives a tensor or an object with `logits`."""
    output = network(**inputs) if isinstance(inputs, dict) else network(inputs)
    return output if isinstance(output, Tensor) else output.logits

"""A training that is measured after every epoch, and continued after the last whole epoch if it was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from deelbo._modules import eval_mode
from deelbo._seeds import own_randomness
from deelbo.likelihoods import LIKELIHOODS
from deelbo.reproduce.kept_networks import Prepared
from deelbo.training.batch_norm import train_mode
from deelbo.training.batches import in_order, network_output, steps_per_epoch
from deelbo.training.device import Execution
from deelbo.training.loop import Candidate
from deelbo.training.method import METHODS, MethodInputs
from deelbo.training.pipeline import StepBatches
from deelbo.training.search import FolderStore
from deelbo.training.settings import Settings

Row = dict[str, float]


def make_candidate(prepared: Prepared, settings: Settings, device: str | None = None) -> Candidate:
    """Return a training at the first of the settings' learning rates, from a network at its initial state.

    Args:
        prepared: The network with its examples and prior.
        settings: Settings of the run; the classifier starts as the network has it.
        device: "cpu" to stay off the GPU; accelerate's choice if None.
    """
    accelerator = Execution(device).accelerator(None)
    likelihood = LIKELIHOODS[settings.likelihood].for_training(settings.class_weights)
    inputs = MethodInputs(
        network=prepared.network.to(accelerator.device),
        prior=prepared.prior,
        likelihood=likelihood.to(accelerator.device),
        num_data=prepared.sets.number,
        num_outputs=prepared.data.targets.num_outputs,
        settings=settings,
    )
    return Candidate(
        inputs.network,
        method=METHODS[settings.method].make(inputs),
        likelihood=inputs.likelihood,
        batches=StepBatches(prepared.sets.augmented, settings, accelerator),
        plain_set=prepared.sets.plain,
        learning_rate=settings.learning_rates[0],
        settings=settings,
        accelerator=accelerator,
        batch_norm="running" if settings.batch_norm == "auto" else settings.batch_norm,
    )


def train_by_epochs(candidate: Candidate, folder: Path, measure: Callable[[Candidate], Row] | None = None) -> list[Row]:
    """Train to the end, and measure after every epoch.

    Args:
        candidate: The training, at its initial state.
        folder: Folder for its state, from which it continues.
        measure: Function that returns numbers by name; it must leave the candidate as it was. Nothing if None.

    Returns:
        A row for each epoch: the numbers with "epoch" and "step".
    """
    store, rows = FolderStore(folder), []
    if (stored := store.get(candidate.learning_rate)) is not None:
        candidate.restore(stored)
        rows = stored[1]["rows"]
    epoch = steps_per_epoch(candidate.num_data, candidate.settings.batch_size)
    with own_randomness(candidate.accelerator.device):
        while candidate.step < candidate.settings.steps and not candidate.diverged:
            for _ in candidate.advance(min(candidate.step + epoch, candidate.settings.steps)):
                pass
            measured = {} if measure is None else measure(candidate)
            rows.append({"epoch": candidate.step / epoch, "step": candidate.step, **measured})
            tensors, notes = candidate.state()
            store.put(candidate.learning_rate, (tensors, {**notes, "rows": rows}))
    return rows


@torch.no_grad()
def both_modes(candidate: Candidate) -> Row:
    """Return objective and accuracy on the training set in train and in eval mode of the network.

    The objective is J / (kappa N) with one draw of the weights; the accuracy is that of the mean weights. In train mode
    batch normalisation uses the statistics of each batch, in eval mode its running averages.
    """
    network, posterior = candidate.network, candidate.method.posterior
    assert posterior is not None
    settings = candidate.settings
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    kl = candidate.method.learned()["kl"]
    row: Row = {}
    for mode in ("train", "eval"):
        with eval_mode(network):
            if mode == "train":
                train_mode(network, "running", settings.dropout)
            with posterior.sample(seed=0):
                log_likelihood, _ = _pass(candidate)
            _, accuracy = _pass(candidate)
        row[f"objective_{mode}"] = log_likelihood - kl
        row[f"accuracy_{mode}"] = accuracy
        for name, buffer in network.named_buffers():
            buffer.copy_(buffers[name])
    return row


def _pass(candidate: Candidate) -> tuple[float, float]:
    """Return the mean log-likelihood and the accuracy of the plain training examples at the current weights."""
    total, right = 0.0, 0
    device: Any = candidate.accelerator.device
    for inputs, labels in in_order(candidate.plain_set, candidate.settings.batch_size, device):
        output = network_output(candidate.network, inputs).float()
        total += float(candidate.likelihood.log_likelihood(output, labels))
        right += int((output.argmax(1) == labels).sum())
    return total / candidate.num_data, right / candidate.num_data

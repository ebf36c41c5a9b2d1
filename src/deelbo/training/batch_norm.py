"""Batch-normalisation statistics: those of the pretrained network, or those of the training examples.

- "frozen" keeps the pretrained network's statistics, in training as in prediction.
- "batch" trains with the statistics of each batch, and estimates those for predictions anew on the training examples
  without augmentation: the running averages were gathered under noisy weights and augmentation, and lag behind.
- "running" trains with the statistics of each batch, and predicts with their running averages: the usual way.
- "auto" takes whichever of "frozen" and "batch" has the better features before training (`start.py`), and "batch" for
  a network that was never trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from deelbo._modules import eval_mode
from deelbo.training.batches import Inputs, network_output

BATCH_NORMS = ("auto", "frozen", "batch", "running")


def batch_norm_layers(network: nn.Module) -> list[_BatchNorm]:
    """Return the layers whose statistics change in train mode, without those that the network itself freezes."""
    with eval_mode(network):
        network.train()
        return [m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats and m.training]


def has_statistics(network: nn.Module) -> bool:
    """Tell whether the running statistics come from a training, and are not those of a new layer, 0 and 1."""
    return any(
        bool((layer.running_mean != 0).any() or (layer.running_var != 1).any())  # type: ignore[union-attr]
        for layer in batch_norm_layers(network)
    )


def train_mode(network: nn.Module, batch_norm: str, dropout: bool) -> None:
    """Put a network into the mode of training.

    Args:
        network: Any network.
        batch_norm: "frozen" to use and keep the running statistics; their scales and shifts are still trained.
        dropout: Whether dropout and drop-path are active. They have too many forms to find, so without them everything
            but batch normalisation is in eval mode.
    """
    layers = batch_norm_layers(network)
    network.train(dropout)
    for layer in layers:
        layer.train(batch_norm != "frozen")


@torch.no_grad()
def refresh_batch_norm(
    network: nn.Module, batches: Iterable[Inputs], forward: Callable[[nn.Module, Inputs], object] = network_output
) -> None:
    """Replace running means and variances by their averages over the batches, at the current weights.

    Args:
        network: Any network; without batch normalisation nothing happens. Modes and momenta are left as they were, and
            so are layers that the network itself keeps in eval mode while it trains.
        batches: Inputs without labels, of nearly equal sizes: each counts the same.
        forward: Function that runs the network on a batch.
    """
    layers = batch_norm_layers(network)
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    with eval_mode(network):
        try:
            for layer in layers:
                layer.reset_running_stats()
                layer.momentum = None  # a plain average
                layer.train()
            for inputs in batches:
                forward(network, inputs)
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum

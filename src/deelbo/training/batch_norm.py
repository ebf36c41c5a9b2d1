"""Batch-normalisation statistics, estimated anew on the training examples without augmentation.

The running statistics were gathered under noisy weights and augmentation, and lag behind. Estimating them anew before
the objective is estimated, and for the final network, is worth several points of accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from deelbo._modules import eval_mode
from deelbo.training.batches import Inputs, network_output


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
    with eval_mode(network):
        network.train()
        layers = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats and m.training]
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

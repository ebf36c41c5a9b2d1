"""Stochastic gradient descent with Nesterov momentum: the paper's optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from deelbo.optimizers.base import OPTIMIZERS, OptimizerSettings


@OPTIMIZERS.register("sgd", "stochastic gradient descent with Nesterov momentum")
def sgd(parameters: Sequence[nn.Parameter], learning_rate: float, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return SGD with the settings' momentum; without weight decay, because the prior regularises."""
    momentum = settings.momentum
    return torch.optim.SGD(parameters, lr=learning_rate, momentum=momentum, nesterov=momentum > 0)


sgd.buffers = 1

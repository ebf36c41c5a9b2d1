"""AdamW, for networks that SGD trains badly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from deelbo.optimizers.base import OPTIMIZERS, OptimizerSettings


@OPTIMIZERS.register("adamw", "AdamW")
def adamw(
    parameters: Sequence[nn.Parameter], learning_rate: float, settings: OptimizerSettings
) -> torch.optim.Optimizer:
    """Return AdamW with the settings' weight decay, which is zero where the prior regularises."""
    return torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=settings.weight_decay)


adamw.buffers = 2

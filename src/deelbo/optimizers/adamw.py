"""AdamW, for networks that SGD trains badly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from deelbo.optimizers.base import OPTIMIZERS, OptimizerSettings


@OPTIMIZERS.register("adamw", "AdamW without weight decay")
def adamw(
    parameters: Sequence[nn.Parameter], learning_rate: float, settings: OptimizerSettings
) -> torch.optim.Optimizer:
    """Return AdamW without weight decay, because the prior regularises."""
    return torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=0.0)


adamw.buffers = 2

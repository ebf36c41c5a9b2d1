"""The registry of optimizers, and what an optimizer's function takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from deelbo._registry import Registry


class OptimizerSettings(Protocol):
    """The settings of a run that an optimizer may use."""

    @property
    def momentum(self) -> float:
        """Momentum of SGD."""

    @property
    def weight_decay(self) -> float:
        """Weight decay of AdamW, in addition to the prior."""


class MakeOptimizer(Protocol):
    """A function that makes an optimizer; its attribute `buffers` is how many numbers it keeps for each weight."""

    buffers: int

    def __call__(
        self, parameters: Sequence[nn.Parameter], learning_rate: float, settings: OptimizerSettings
    ) -> torch.optim.Optimizer:
        """Return the optimizer of these parameters."""


OPTIMIZERS: Registry[MakeOptimizer] = Registry("optimizer", "deelbo.optimizers")

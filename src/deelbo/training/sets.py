"""The training examples of a run, with and without augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from deelbo._modules import eval_mode
from deelbo._seeds import own_randomness
from deelbo.training.batches import Inputs, fetch, network_output


@dataclass(frozen=True)
class FirstOutputs:
    """Inputs and labels of the first few examples, and what the network gives for them."""

    inputs: Inputs
    labels: Tensor
    outputs: Tensor


@dataclass(frozen=True)
class TrainingSets:
    """The training examples with and without augmentation.

    Args:
        augmented: Training examples with augmentation, if there is any.
        plain: The same examples without augmentation.

    Raises:
        ValueError: If there are no examples, or the two sets have different sizes.
    """

    augmented: Dataset
    plain: Dataset

    def __post_init__(self) -> None:
        number, plain = len(self.augmented), len(self.plain)  # type: ignore[arg-type]
        if number == 0:
            raise ValueError("the training set is empty")
        if number != plain:
            raise ValueError(f"plain_train_set has {plain} examples, and train_set {number}")

    @property
    def number(self) -> int:
        """N, the number of training examples."""
        return len(self.plain)  # type: ignore[arg-type]

    def first_outputs(self, network: nn.Module, accelerator: Any) -> FirstOutputs:
        """Run a network on the first examples, two of them because some networks cannot take a batch of one."""
        with (
            own_randomness(accelerator.device),
            torch.no_grad(),
            accelerator.autocast(),
            eval_mode(network),
        ):
            inputs, labels = fetch(self.plain, range(min(2, self.number)), accelerator.device)
            return FirstOutputs(inputs, labels, network_output(network, inputs))

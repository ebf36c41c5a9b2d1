"""Likelihoods: mean negative log-likelihoods to train on, and log-likelihoods to estimate the objective with.

None of them is needed: any mean negative log-likelihood of your own works in the training loop.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deelbo.posteriors.base import inverse_softplus


class Likelihood(nn.Module, ABC):
    """p(y | network output). Calling it gives the mean negative log-likelihood of a batch."""

    @abstractmethod
    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return log p(y_i | output_i) for every example i."""

    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the sum of log p(y_i | output_i) over the batch."""
        return self.log_prob(output, target).sum()

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of the batch."""
        return -self.log_prob(output, target).mean()


class Categorical(Likelihood):
    """p(y | logits) = softmax(logits)_y; training on it is training on `cross_entropy`."""

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return log softmax(output_i)[target_i].

        Args:
            output: Logits, [N, C].
            target: Class indices, [N].
        """
        return -F.cross_entropy(output, target, reduction="none")

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Return `cross_entropy(output, target)`, a mean over the examples whose target is not -100 (ignored)."""
        return F.cross_entropy(output, target)


class Gaussian(Likelihood):
    r"""p(y | output) = N(y | output, noise^2 I) with a learned noise.

    Give `likelihood.parameters()` to the optimizer: the noise is learned by gradient beside the weights. It is scaled
    like the weights' loss, so the same learning rate serves. With kappa N > D and a network that interpolates, the
    objective has no maximum as noise -> 0; that is one reason to keep kappa <= D/N.

    Args:
        noise: Standard deviation sigma_y, where learning starts.
    """

    def __init__(self, noise: float = 1.0) -> None:
        super().__init__()
        self.raw_noise = nn.Parameter(torch.tensor(inverse_softplus(noise)))

    @property
    def noise(self) -> Tensor:
        """sigma_y, a positive zero-dimensional tensor."""
        return F.softplus(self.raw_noise)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return log N(target_i | output_i, noise^2 I), summed over the dimensions of an example.

        Args:
            output: Predicted means, [N] or [N, ...].
            target: Of the same shape.

        Raises:
            ValueError: If the shapes differ, where broadcasting would silently compare all with all.
        """
        if output.shape != target.shape:
            raise ValueError(f"output {tuple(output.shape)} and target {tuple(target.shape)} must have the same shape")
        squares = ((target - output) / self.noise).square() + 2 * self.noise.log() + math.log(2 * math.pi)
        return -0.5 * squares.reshape(len(squares), -1).sum(1)

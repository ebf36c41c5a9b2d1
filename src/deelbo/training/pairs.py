r"""Pairs before classes: features of one class are drawn together, those of others apart; then a classifier is trained.

With cos_ij the cosine of the features of examples i and j of a batch, the loss of the first phase is

    1/2 mean over pairs of one class of (1 - cos_ij)^2  +  1/2 mean over all other pairs of cos_ij^2 ,

the loss that sentence encoders know from their own training, and by which SetFit fine-tunes them. It takes the place of
the negative log-likelihood in the objective: weights are drawn, variances and scale are learned as in other runs. In
the second phase the loss is the negative log-likelihood, and only the classifier is trained; the learning rate follows
its schedule once more. docs/choosing.md#pairs-before-classes has what was measured; it is off by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deelbo.likelihoods.categorical import IGNORED


def pair_loss(features: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of all pairs of a batch; the half without any pair counts as zero.

    Args:
        features: Features of the examples, [examples, features].
        labels: Classes of the examples; those that are ignored are left out.

    Example:
        >>> import torch
        >>> from deelbo.training.pairs import pair_loss
        >>> features = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])  # the first two in one direction
        >>> pair_loss(features, torch.tensor([0, 0, 1])).item()
        0.0
        >>> pair_loss(features, torch.tensor([0, 1, 1])).item()  # (1/2) (1 - 0)^2 + (1/2) (1 + 0) / 2
        0.75
    """
    known = labels != IGNORED
    unit = F.normalize(features[known], dim=1)
    cosines, labels = unit @ unit.T, labels[known]
    same = labels[:, None] == labels
    other = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return 0.5 * _mean_square(1 - cosines, same & other) + 0.5 * _mean_square(cosines, ~same)


def _mean_square(values: Tensor, chosen: Tensor) -> Tensor:
    return (values.square() * chosen).sum() / chosen.sum().clamp(min=1)


@dataclass(frozen=True)
class PairPhase:
    """The first steps of a run, whose loss is that of pairs; later ones train only the classifier.

    Args:
        layer: The classifier, whose inputs are the features.
        steps: Number of steps of this phase.
    """

    layer: nn.Module
    steps: int

    @contextmanager
    def features(self) -> Iterator[list[Tensor]]:
        """Collect the classifier's inputs, one tensor for each call of the network in the block."""
        found: list[Tensor] = []
        hook = self.layer.register_forward_pre_hook(lambda layer, inputs: found.append(inputs[0].float()))
        try:
            yield found
        finally:
            hook.remove()

    def keep_features(self, network: nn.Module) -> None:
        """Let the optimizer leave all weights but the classifier's as they are, by taking their gradients away."""
        own = {id(weight) for weight in self.layer.parameters()}
        for weight in network.parameters():
            if id(weight) not in own:
                weight.grad = None

"""MAP: a point estimate under a prior of fixed variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
from torch import nn

from deelbo._modules import eval_mode, trainable, unwrap
from deelbo.training.method import METHODS, Method, MethodInputs, Quantity, TrainingView, variances_by_column


@METHODS.register("map", "a point estimate under fixed prior variances")
class MaximumAPosteriori(Method):
    """Minimises mean NLL - log p(theta) / N.

    Args:
        inputs: Network, prior, likelihood and number of examples.
        variances: Variance of each group of the prior; infinity for no regularisation.

    Raises:
        ValueError: If a group has no variance, or a trainable weight no group.
    """

    name = "map"
    own_settings: ClassVar[tuple[str, ...]] = ("prior_variances",)
    needed_settings: ClassVar[tuple[str, ...]] = ("prior_variances",)
    penalty = Quantity("penalty", "prior / N", "prior's part of the loss")

    def __init__(self, inputs: MethodInputs, variances: dict[str, float]) -> None:
        prior, network = inputs.prior, inputs.network
        if missing := sorted(set(prior.variances) - set(variances)):
            raise ValueError(f"prior_variances=... lacks the groups {', '.join(missing)}")
        covered = {id(weight) for group in prior.named_groups().values() for weight in group.weights}
        if missing := [name for name, weight in trainable(unwrap(network)).items() if id(weight) not in covered]:
            raise ValueError(f"the prior has no group for {len(missing)} weights, such as {missing[0]!r}")
        prior.set_variances(variances)
        self.network, self.prior, self.num_data = network, prior, inputs.num_data
        self.likelihood = inputs.likelihood

    @classmethod
    def make(cls, inputs: MethodInputs) -> MaximumAPosteriori:
        """Return the method with the settings' prior variances."""
        return cls(inputs, inputs.settings.prior_variances or {})

    @property
    def objective_scale(self) -> float:
        """Return N."""
        return float(self.num_data)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the trainable weights."""
        return (weight for group in self.prior.named_groups().values() for weight in group.weights)

    def add_gradients(self, add_loss_gradient: Callable[[], None], unscale: Callable[[], None]) -> None:
        """Add the prior's gradient to the loss's."""
        add_loss_gradient()
        unscale()
        self.prior.add_gradient(1 / self.num_data)

    @torch.no_grad()
    def objective(self, examples: TrainingView, samples: int) -> float:
        """Return log p(y | theta) + log p(theta)."""
        with eval_mode(self.network):
            return float(examples.log_likelihood()) + self._log_prior()

    def _log_prior(self) -> float:
        """Return log p(theta); a group of infinite variance (a flat prior) counts as 0."""
        groups = self.prior.named_groups().values()
        return sum(group.log_prob() for group in groups if group.variance < math.inf)

    def learned(self) -> dict[str, float]:
        """Return the prior's variances, which stay fixed, and its part of the loss."""
        return {**variances_by_column(self.prior), "penalty": -self._log_prior() / self.num_data}

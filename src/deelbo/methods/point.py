"""MAP: a point estimate under a prior of fixed variances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from deelbo._modules import trainable, unwrap
from deelbo.priors import GaussianPrior
from deelbo.training.method import TrainingView


class MaximumAPosteriori:
    """Trains mean NLL - log p(theta) / N.

    Args:
        network: Bare, or wrapped for data parallelism.
        prior: Over its trainable parameters.
        num_data: N.
        variances: Of each group of the prior; infinity for no regularisation.

    Raises:
        ValueError: If a group has no variance, or a trainable weight no group.
    """

    def __init__(self, network: nn.Module, prior: GaussianPrior, num_data: int, variances: dict[str, float]) -> None:
        if missing := sorted(set(prior.variances) - set(variances)):
            raise ValueError(f"prior_variances lacks the groups {', '.join(missing)}")
        covered = {id(weight) for group in prior.named_groups().values() for weight in group.weights}
        if missing := [name for name, weight in trainable(unwrap(network)).items() if id(weight) not in covered]:
            raise ValueError(f"the prior has no group for {len(missing)} weights, such as {missing[0]!r}")
        prior.set_variances(variances)
        self.network, self.prior, self.num_data = network, prior, num_data

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the trainable weights."""
        return (weight for group in self.prior.named_groups().values() for weight in group.weights)

    def gradients(self, backward: Callable[[], None], before_prior: Callable[[], None]) -> None:
        """Add the prior's gradient to the loss's."""
        backward()
        before_prior()
        self.prior.add_gradient(1 / self.num_data)

    def end_epoch(self, examples: TrainingView) -> None:
        """Nothing: the variances stay."""

    @torch.no_grad()
    def value(self, examples: TrainingView, samples: int) -> float:
        """Return log p(y | theta) + log p(theta)."""
        training = self.network.training
        self.network.eval()
        try:
            return float(examples.log_likelihood()) + self._log_prior()
        finally:
            self.network.train(training)

    def _log_prior(self) -> float:
        """A flat prior has a density of its own choice: that of a unit volume."""
        groups = self.prior.named_groups().values()
        return sum(group.log_prob() for group in groups if group.variance < math.inf)

    def early_value(self, examples: TrainingView, samples: int) -> float:
        """Return the same: there are no other parameters."""
        return self.value(examples, samples)

    def learned(self) -> dict[str, float]:
        """Return the prior's part of the loss and its variances, which stay."""
        return {
            **{f"variance_{name}": value for name, value in self.prior.variances.items()},
            "penalty": -self._log_prior() / self.num_data,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return nothing: all that is learned is in the network."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Nothing to load."""

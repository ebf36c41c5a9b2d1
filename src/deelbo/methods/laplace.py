"""LA-LML: a point estimate whose prior variances are learned by Laplace's marginal likelihood (Immer et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deelbo.laplace import LaplacePosterior, laplace_posterior
from deelbo.methods.point import MaximumAPosteriori
from deelbo.priors import GaussianPrior
from deelbo.training.method import TrainingView


class LaplaceMarginalLikelihood(MaximumAPosteriori):
    """Trains mean NLL - log p(theta) / N, and after every epoch sets the prior variances to the evidence's maximum.

    The evidence is that of a diagonal empirical Fisher over the training set, in eval mode.

    Args:
        network: Bare, or wrapped for data parallelism.
        prior: Over its trainable parameters; its variances start at 1.
        num_data: N.
    """

    def __init__(self, network: nn.Module, prior: GaussianPrior, num_data: int) -> None:
        super().__init__(network, prior, num_data, prior.variances)
        self._evidence: float | None = None

    def end_epoch(self, examples: TrainingView) -> None:
        """Learn the prior variances."""
        self._evidence = self.value(examples, samples=0)

    def value(self, examples: TrainingView, samples: int) -> float:
        """Set the prior variances to Laplace's best, and return the log marginal likelihood there."""
        posterior = self._posterior(examples)
        posterior.best_variances()
        return posterior.log_marginal_likelihood()

    def _posterior(self, examples: TrainingView) -> LaplacePosterior:
        training = self.network.training
        self.network.eval()
        try:
            log_likelihood = float(examples.log_likelihood())
            return laplace_posterior(self.network, self.prior, examples.batches(), log_likelihood, examples.share)
        finally:
            self.network.train(training)

    def learned(self) -> dict[str, float]:
        """Return the prior variances, the prior's part of the loss, and the evidence for each example."""
        evidence = {} if self._evidence is None else {"evidence": self._evidence / self.num_data}
        return {**super().learned(), **evidence}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the variances."""
        return {
            **{f"variance.{name}": group.get_extra_state() for name, group in self.prior.named_groups().items()},
            "evidence": torch.tensor(float("nan") if self._evidence is None else self._evidence, dtype=torch.float64),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        for name, group in self.prior.named_groups().items():
            group.set_extra_state(state[f"variance.{name}"])
        self._evidence = None if state["evidence"].isnan() else float(state["evidence"])

"""LA-LML: a point estimate whose prior variances are learned by Laplace's marginal likelihood (Immer et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from deelbo._modules import eval_mode
from deelbo.laplace import laplace_posterior
from deelbo.methods.point import MaximumAPosteriori
from deelbo.training.method import METHODS, MethodInputs, TrainingView, load_variance_state, variance_state


@METHODS.register("la-lml", "prior variances learned by Laplace's marginal likelihood after every epoch")
class LaplaceMarginalLikelihood(MaximumAPosteriori):
    """Minimises mean NLL - log p(theta) / N, and after every epoch sets the prior variances to the evidence's maximum.

    The evidence uses the diagonal empirical Fisher over the training set, in eval mode. The variances start at 1.

    Every learning rate is trained in full: the evidence moves with the variances after every epoch, and it was never
    shown that an early comparison of it finds the best rate.

    Args:
        inputs: Network, prior, likelihood and number of examples.
    """

    name = "la-lml"
    own_settings = ()
    needed_settings = ()
    variances_are_learned = "after every epoch"
    lr_search = "grid"

    def __init__(self, inputs: MethodInputs) -> None:
        super().__init__(inputs, inputs.prior.variances)
        self._evidence: float | None = None

    @classmethod
    def make(cls, inputs: MethodInputs) -> LaplaceMarginalLikelihood:
        """Return the method."""
        return cls(inputs)

    def end_epoch(self, examples: TrainingView) -> None:
        """Learn the prior variances."""
        self._evidence = self.objective(examples, samples=0)

    def objective(self, examples: TrainingView, samples: int) -> float:
        """Set the prior variances to the maximum of Laplace's log marginal likelihood, and return its value there."""
        with eval_mode(self.network):
            posterior = laplace_posterior(
                self.network,
                self.prior,
                examples.batches(),
                log_likelihood=float(examples.log_likelihood()),
                share=examples.share,
                likelihood=self.likelihood,
            )
        posterior.best_variances()
        return posterior.log_marginal_likelihood()

    def learned(self) -> dict[str, float]:
        """Return the prior variances, the prior's part of the loss, and the evidence divided by N."""
        evidence = {} if self._evidence is None else {"evidence": self._evidence / self.num_data}
        return {**super().learned(), **evidence}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the variances and the evidence."""
        evidence = float("nan") if self._evidence is None else self._evidence
        return {**variance_state(self.prior), "evidence": torch.tensor(evidence, dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that `state_dict` returned."""
        load_variance_state(self.prior, state)
        self._evidence = None if state["evidence"].isnan() else float(state["evidence"])

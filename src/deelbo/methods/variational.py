"""DE-ELBO, and the ELBO as its case kappa = 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from torch import Tensor, nn

from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import IsotropicPosterior
from deelbo.priors import GaussianPrior
from deelbo.training.method import TrainingView


class Variational:
    """Trains mean NLL + KL/(kappa N) under draws from an isotropic posterior; the prior variances are learned.

    Args:
        network: Bare, or wrapped for data parallelism.
        prior: Over its trainable parameters.
        num_data: N.
        kappa: None for max(1, D/N).
        init_scale: Where the posterior's scale starts.
        seed: Of the draws.
    """

    def __init__(
        self, network: nn.Module, prior: GaussianPrior, num_data: int, kappa: float | None, init_scale: float, seed: int
    ) -> None:
        posterior = IsotropicPosterior(network, init_scale=init_scale, seed=seed)
        self.posterior = posterior
        self.prior = prior
        self.objective = DataEmphasizedELBO(posterior, prior, num_data, kappa)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return means and unconstrained scale."""
        return self.posterior.parameters()

    def gradients(self, backward: Callable[[], None], before_prior: Callable[[], None]) -> None:
        """One draw of the weights a step, then the KL."""
        with self.posterior.sample():
            backward()
        before_prior()
        self.objective.backward()

    def end_epoch(self, examples: TrainingView) -> None:
        """Nothing: every step learns."""

    def value(self, examples: TrainingView, samples: int) -> float:
        """Return J at the optimal prior variances."""
        self.prior.update_variances(self.posterior)
        return float(self.objective.estimate(examples.log_likelihood, samples))

    def early_value(self, examples: TrainingView, samples: int) -> float:
        """Return max over the scale of J, on a grid upwards from the current one.

        The scale starts tiny and is learned by gradient, so at first every move of the means costs D/2 log(1 + |move|^2
        / (D scale^2)): J falls before it rises, the deeper the larger the learning rate. At the best scale it does not.
        """
        best = -math.inf
        while (value := self.value(examples, samples)) > best:
            best = value
            self.posterior.set_scale(4 * self.posterior.scale.item())
        return best

    def learned(self) -> dict[str, float]:
        """Return the prior variances, the scale, kappa and KL/(kappa N)."""
        return {
            **{f"variance_{name}": value for name, value in self.prior.variances.items()},
            "scale": self.posterior.scale.item(),
            "kappa": self.objective.kappa,
            "kl": float(self.objective.kl()) / (self.objective.kappa * self.objective.num_data),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the posterior and the variances; the prior's mean is the initial network's."""
        variances = {f"variance.{n}": group.get_extra_state() for n, group in self.prior.named_groups().items()}
        return {**{f"posterior.{n}": v for n, v in self.posterior.state_dict().items()}, **variances}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        self.posterior.load_state_dict(
            {n.removeprefix("posterior."): v for n, v in state.items() if n.startswith("posterior.")}
        )
        for name, group in self.prior.named_groups().items():
            group.set_extra_state(state[f"variance.{name}"])

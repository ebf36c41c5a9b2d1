"""DE-ELBO, the data-emphasized ELBO, and the ELBO as its special case kappa = 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

from torch import Tensor, nn

from deelbo.objective import DataEmphasizedELBO
from deelbo.posteriors import POSTERIORS, GaussianPosterior
from deelbo.training.method import (
    METHODS,
    Method,
    MethodInputs,
    Quantity,
    TrainingView,
    load_variance_state,
    variance_state,
    variances_by_column,
)


@METHODS.register("de-elbo", "learned regularisation, the data emphasised by kappa = D/N")
class DataEmphasized(Method):
    """Minimises mean NLL + KL/(kappa N) under draws from a Gaussian posterior; the prior variances are learned.

    Args:
        inputs: Network, prior, likelihood and settings.
        kappa: How much the data are emphasised.
    """

    name = "de-elbo"
    own_settings: ClassVar[tuple[str, ...]] = ("kappa",)
    penalty = Quantity("kl", "KL / (κN)", "KL divergence per example")
    quantities = (
        Quantity("scale", "σ (posterior)", "σ posterior scale"),
        Quantity("kappa", "κ", "κ emphasis of the data", large=True, charted=False),
    )
    variances_are_learned = "in closed form at every step"
    draws_weights = True
    pairs = True

    def __init__(self, inputs: MethodInputs, kappa: float) -> None:
        settings = inputs.settings
        self._posterior = POSTERIORS[settings.posterior](
            inputs.network, init_scale=settings.init_scale, seed=settings.seed, scale_update=settings.scale_update
        )
        self.settings = settings
        self.prior = inputs.prior
        self.elbo = DataEmphasizedELBO(self._posterior, inputs.prior, inputs.num_data, kappa)

    @classmethod
    def make(cls, inputs: MethodInputs) -> DataEmphasized:
        """Return the method with the settings' kappa, or the likelihood's default."""
        kappa = inputs.settings.kappa
        if kappa is None:
            num_params = sum(group.num_params for group in inputs.prior.named_groups().values())
            kappa = inputs.likelihood.default_kappa(num_params, inputs.num_data, inputs.num_outputs)
        return cls(inputs, kappa)

    @property
    def objective_scale(self) -> float:
        """Return kappa N."""
        return self.elbo.kappa * self.elbo.num_data

    @property
    def posterior(self) -> GaussianPosterior:
        """The posterior over the weights."""
        return self._posterior

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the means of the posterior and its unconstrained scale."""
        return self._posterior.parameters()

    def add_gradients(self, add_loss_gradient: Callable[[], None], unscale: Callable[[], None]) -> None:
        """Add the loss's gradient under each draw of the weights, then the KL's."""
        for _ in range(self.settings.draws):
            with self._posterior.sample():
                add_loss_gradient()
        unscale()
        self.elbo.backward()

    def objective(self, examples: TrainingView, samples: int) -> float:
        """Return the objective J at the optimal prior variances."""
        self.prior.update_variances(self._posterior)
        return float(self.elbo.estimate(examples.log_likelihood, samples))

    def optimistic_objective(self, examples: TrainingView, samples: int) -> float:
        """Return the maximum of J over the scale, on a grid upwards from the current scale.

        The scale starts tiny and is learned by gradient, so at first every move of the means costs D/2 log(1 + |move|^2
        / (D scale^2)): J falls before it rises, deeper for larger learning rates. At the best scale it does not.
        """
        best = -math.inf
        while (value := self.objective(examples, samples)) > best:
            best = value
            self._posterior.multiply_scale(4)
        return best

    def learned(self) -> dict[str, float]:
        """Return the prior variances, the scale, kappa and KL/(kappa N)."""
        return {
            **variances_by_column(self.prior),
            "scale": self._posterior.typical_scale,
            "kappa": self.elbo.kappa,
            "kl": float(self.elbo.kl()) / self.objective_scale,
        }

    def warnings(self) -> list[str]:
        """Warn of scales that the optimizer cannot learn."""
        if self.settings.posterior == "isotropic" or self.settings.optimizer != "sgd":
            return []
        return [
            f"posterior={self.settings.posterior!r}: each of its scales has a gradient of about 1/D, so small that SGD "
            "leaves all of them alike; optimizer='adamw' lets them differ, at learning rates such as 0.003 and 0.001"
        ]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the posterior and the variances; the prior's mean is the initial network's."""
        posterior = {f"posterior.{name}": value for name, value in self._posterior.state_dict().items()}
        return {**posterior, **variance_state(self.prior)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that `state_dict` returned."""
        self._posterior.load_state_dict(
            {name.removeprefix("posterior."): v for name, v in state.items() if name.startswith("posterior.")}
        )
        load_variance_state(self.prior, state)


@METHODS.register("elbo", "like de-elbo without emphasis (kappa = 1)")
class EvidenceLowerBound(DataEmphasized):
    """DE-ELBO with kappa = 1: the evidence lower bound."""

    name = "elbo"
    own_settings = ()
    pairs = False

    @classmethod
    def make(cls, inputs: MethodInputs) -> EvidenceLowerBound:
        """Return the method with kappa = 1."""
        return cls(inputs, 1.0)

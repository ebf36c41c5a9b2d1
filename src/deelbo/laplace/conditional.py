"""The conditional log marginal likelihood of held-out data given training data (Lotfi et al., 2022), by sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deelbo.laplace.posterior import LaplacePosterior
from deelbo.likelihoods import Categorical, Likelihood

SAMPLES = 20  # draws of the weights at each temperature
# Factors of the posterior's standard deviations to choose from, as in the code of the DE-ELBO paper. As factors of the
# covariance, the narrowest would leave draws so wide that the best MAP cells look bad (docs/fidelity.md).
TEMPERATURES = (1.0, 0.1, 0.01, 1e-3, 1e-4)


@dataclass(frozen=True)
class Conditional:
    """Conditional log marginal likelihood of held-out examples, and how it was obtained.

    Args:
        value: log p(held-out y | training y).
        temperature: Factor of the posterior's standard deviations with the best averaged prediction.
        score: How good the averaged prediction of the held-out examples is, larger being better: for classes their
            accuracy, averaged over the classes.
    """

    value: float
    temperature: float
    score: float


def conditional_likelihood(
    posterior: LaplacePosterior,
    outputs: Callable[[], Tensor],
    targets: Tensor,
    likelihood: Likelihood | None = None,
    *,
    samples: int = SAMPLES,
    temperatures: Sequence[float] = TEMPERATURES,
) -> Conditional:
    """Return the conditional log marginal likelihood at the temperature whose averaged prediction is best.

    Args:
        posterior: Laplace approximation given the training examples.
        outputs: Function that returns the network's outputs for the held-out examples at the current weights.
        targets: Targets of the held-out examples.
        likelihood: Likelihood of the targets; categorical (classes) if None.
        samples: Number of draws of the weights at each temperature.
        temperatures: Factors of the posterior's standard deviations to choose from. Of equally good ones the first
            wins; one whose draws all have likelihood zero is chosen only if this is so at every temperature.

    Returns:
        The conditional log marginal likelihood, with the chosen temperature and its score.

    Example:
        >>> import torch
        >>> from deelbo.laplace import conditional_likelihood, laplace_posterior
        >>> from deelbo.priors import GaussianPrior, PriorGroup
        >>> _ = torch.manual_seed(0)
        >>> model, x = torch.nn.Linear(2, 2), torch.randn(30, 2)
        >>> y = model(x).argmax(1)
        >>> prior = GaussianPrior({"all": PriorGroup(model.parameters())})
        >>> log_likelihood = -torch.nn.functional.cross_entropy(model(x[:20]), y[:20], reduction="sum").item()
        >>> posterior = laplace_posterior(model, prior, [(x[:20], y[:20])], log_likelihood)
        >>> held_out = conditional_likelihood(posterior, lambda: model(x[20:]), y[20:])
        >>> held_out.value < 0 and held_out.score > 0.8
        True
    """
    likelihood = likelihood or Categorical()
    candidates = []
    for temperature in temperatures:
        log_likelihoods, parts = [], []
        for seed in range(samples):
            with torch.no_grad(), posterior.sample(seed, temperature):
                drawn = outputs().double().cpu()
                log_likelihoods.append(likelihood.log_likelihood(drawn, targets))
                parts.append(likelihood.averageable(drawn))
        score = likelihood.score(likelihood.shown(likelihood.prediction(likelihood.average(parts))), targets)
        candidates.append(Conditional(log_mean(torch.stack(log_likelihoods)), temperature, score))
    # Under a flat prior, weights that no example depends on have an infinite variance; such draws have likelihood zero.
    return max(candidates, key=lambda candidate: (candidate.value > -math.inf, candidate.score))


def log_mean(log_likelihoods: Tensor) -> float:
    """Return log( 1/S sum_s p(y | theta_s) ) from S values log p(y | theta_s), each summed over all examples."""
    value = float(torch.logsumexp(log_likelihoods, 0)) - math.log(len(log_likelihoods))
    return value if math.isfinite(value) else -math.inf

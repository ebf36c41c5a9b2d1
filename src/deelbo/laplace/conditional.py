"""The conditional log marginal likelihood of held-out data given the rest, by sampling (Lotfi et al., 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deelbo.laplace.posterior import LaplacePosterior
from deelbo.likelihoods import Categorical, Likelihood

SAMPLES = 20
TEMPERATURES = (1.0, 0.1, 0.01, 1e-3, 1e-4)


@dataclass(frozen=True)
class Conditional:
    """What sampling from a posterior says about held-out examples.

    Args:
        value: log p(held-out y | training y).
        temperature: Temperature of the posterior's covariance, chosen among several.
        score: How good the averaged prediction of the held-out examples is, larger being better (their accuracy).
    """

    value: float
    temperature: float
    score: float


def conditional_likelihood(
    posterior: LaplacePosterior,
    outputs: Callable[[], Tensor],
    targets: Tensor,
    likelihood: Likelihood | None = None,
    samples: int = SAMPLES,
    temperatures: Sequence[float] = TEMPERATURES,
) -> Conditional:
    """Return the conditional log marginal likelihood at the temperature whose averaged prediction is best.

    Args:
        posterior: Laplace's approximation from the training examples.
        outputs: Returns the network's outputs for the held-out examples at the weights in place.
        targets: Targets of the held-out examples.
        likelihood: Likelihood of the targets; categorical (classes) if None.
        samples: Number of draws at each temperature.
        temperatures: Temperatures to choose from; the first of several that are equally good. One whose draws have no
            likelihood is chosen only if none has.
    """
    likelihood = likelihood or Categorical()
    candidates = []
    for temperature in temperatures:
        log_likelihoods, average = [], torch.zeros(())
        for seed in range(samples):
            with torch.no_grad(), posterior.sample(seed, temperature):
                drawn = outputs().double().cpu()
                log_likelihoods.append(likelihood.log_likelihood(drawn, targets))
                average = average + likelihood.averageable(drawn) / samples
        score = likelihood.score(likelihood.prediction(average), targets)
        candidates.append(Conditional(log_mean(torch.stack(log_likelihoods)), temperature, score))
    # Draws from a posterior without bounds (a flat prior, and weights that no example moves) have no likelihood.
    return max(candidates, key=lambda candidate: (candidate.value > -math.inf, candidate.score))


def log_mean(log_likelihoods: Tensor) -> float:
    """Return log( 1/S sum_s p(y | theta_s) ) from the S values log p(y | theta_s), each a sum over all examples."""
    value = float(torch.logsumexp(log_likelihoods, 0)) - math.log(len(log_likelihoods))
    return value if math.isfinite(value) else -math.inf

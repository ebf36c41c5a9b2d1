"""The conditional log marginal likelihood of held-out data given the rest, by sampling (Lotfi et al., 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deelbo.laplace.posterior import LaplacePosterior

SAMPLES = 20
TEMPERATURES = (1.0, 0.1, 0.01, 1e-3, 1e-4)


@dataclass(frozen=True)
class Conditional:
    """What sampling from a posterior says about held-out examples.

    Args:
        value: log p(held-out y | training y).
        temperature: Of the posterior's covariance, chosen among several.
        accuracy: Of the averaged prediction on the held-out examples.
    """

    value: float
    temperature: float
    accuracy: float


def conditional_likelihood(
    posterior: LaplacePosterior,
    log_probabilities: Callable[[], Tensor],
    labels: Tensor,
    samples: int = SAMPLES,
    temperatures: Sequence[float] = TEMPERATURES,
) -> Conditional:
    """Return the conditional log marginal likelihood at the temperature whose averaged prediction is most accurate.

    Args:
        posterior: Of the training examples.
        log_probabilities: Returns log p(class | x) of the held-out examples at the weights in place, [examples,
            classes].
        labels: Of the held-out examples.
        samples: Draws at each temperature.
        temperatures: To choose from; the first of several that are equally accurate. One whose draws have no likelihood
            is chosen only if none has.
    """
    found = []
    for temperature in temperatures:
        likelihoods, average = [], torch.zeros(())
        for seed in range(samples):
            with posterior.sample(seed, temperature):
                drawn = log_probabilities().double().cpu()
            likelihoods.append(drawn[torch.arange(len(labels)), labels].sum())
            average = average + drawn.exp() / samples
        accuracy = float((average.argmax(1) == labels).double().mean())
        found.append(Conditional(log_mean(torch.stack(likelihoods)), temperature, accuracy))
    # Draws from a posterior without bounds (a flat prior, and weights that no example moves) have no likelihood.
    return max(found, key=lambda each: (each.value > -math.inf, each.accuracy))


def log_mean(log_likelihoods: Tensor) -> float:
    """Return log( 1/S sum_s p(y | theta_s) ) from the S values log p(y | theta_s), each a sum over all examples."""
    value = float(torch.logsumexp(log_likelihoods, 0)) - math.log(len(log_likelihoods))
    return value if math.isfinite(value) else -math.inf

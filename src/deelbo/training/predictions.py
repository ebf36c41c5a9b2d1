"""Predictions of a network: at its mean weights, or averaged over draws from its posterior."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from deelbo._modules import eval_mode
from deelbo.likelihoods import Likelihood
from deelbo.posteriors import GaussianPosterior
from deelbo.training.batches import Inputs, network_output


@torch.no_grad()
def predict(
    network: nn.Module,
    likelihood: Likelihood,
    batches: Iterable[Inputs],
    posterior: GaussianPosterior | None = None,
    samples: int = 0,
) -> Any:
    """Return predictions in float64 as `Likelihood.prediction` gives them; `Likelihood.shown` makes probabilities.

    Args:
        network: The network, in any mode; predictions are made in eval mode.
        likelihood: Likelihood that the network was trained with.
        batches: Inputs; read once for each draw, so not a generator if samples > 1.
        posterior: Posterior to draw weights from.
        samples: 0 plugs in the mean weights; S > 0 averages the predictions of S draws.

    Raises:
        ValueError: If draws are asked for without a posterior.
    """
    if samples < 0:
        raise ValueError(f"samples={samples}: 0 plugs in the mean weights, S > 0 averages S draws")
    if samples and posterior is None:
        raise ValueError(f"samples={samples}: this run is a point estimate and has no posterior to draw from")
    with eval_mode(network):
        if not samples or posterior is None:
            return likelihood.prediction(_averageable(network, likelihood, batches))
        return likelihood.prediction(likelihood.average(_draws(network, likelihood, batches, posterior, samples)))


def _draws(
    network: nn.Module, likelihood: Likelihood, batches: Iterable[Inputs], posterior: GaussianPosterior, samples: int
) -> Iterator[Tensor]:
    for sample in range(samples):
        with posterior.sample(seed=sample):
            part = _averageable(network, likelihood, batches)
        yield part


def _averageable(network: nn.Module, likelihood: Likelihood, batches: Iterable[Inputs]) -> Tensor:
    return torch.cat([likelihood.averageable(network_output(network, inputs)).cpu() for inputs in batches])

"""Metrics for regression, from predicted means and standard deviations, averaged over the numbers of an example."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deelbo.likelihoods.gaussian import GaussianPrediction
from deelbo.metrics.base import metric

QUANTILE = 1.6448536269514722  # 90 % of a Gaussian lie within this many standard deviations


def _targets(targets: Tensor) -> Tensor:
    return targets.double().reshape(len(targets), -1)


@metric("rmse", "gaussian", "root mean squared error", better="lower", main=True)
def root_mean_squared_error(prediction: GaussianPrediction, targets: Tensor) -> float:
    """Return the root of the mean squared error, in the targets' units."""
    return float((prediction.mean - _targets(targets)).square().mean(0).sqrt().mean())


@metric("mae", "gaussian", "mean absolute error", better="lower")
def mean_absolute_error(prediction: GaussianPrediction, targets: Tensor) -> float:
    """Return the mean absolute error, in the targets' units."""
    return float((prediction.mean - _targets(targets)).abs().mean())


@metric("r2", "gaussian", "R²", better="higher")
def coefficient_of_determination(prediction: GaussianPrediction, targets: Tensor) -> float:
    """Return R² = 1 - squared errors / squared deviations from the targets' mean: 1 is perfect, 0 like the mean."""
    rows = _targets(targets)
    errors = (prediction.mean - rows).square().sum(0)
    return float((1 - errors / (rows - rows.mean(0)).square().sum(0).clamp(min=1e-300)).mean())


@metric("nll", "gaussian", "negative log-likelihood", better="lower")
def negative_log_likelihood(prediction: GaussianPrediction, targets: Tensor) -> float:
    """Return the mean of -log N(target | mean, std²), summed over the numbers of an example, in the targets' units."""
    std = prediction.std.clamp(min=torch.finfo(torch.float64).tiny)
    scaled = (prediction.mean - _targets(targets)) / std
    return float((0.5 * scaled.square() + std.log() + 0.5 * math.log(2 * math.pi)).sum(1).mean())


@metric("coverage", "gaussian", "targets inside the 90 % interval", percent=True)
def coverage(prediction: GaussianPrediction, targets: Tensor) -> float:
    """Return the share of targets within 1.645 standard deviations of the mean; 90 % if the noise is right."""
    inside = (prediction.mean - _targets(targets)).abs() <= QUANTILE * prediction.std
    return float(inside.double().mean())

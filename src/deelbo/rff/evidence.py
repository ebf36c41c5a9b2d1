"""Objectives of RFF regression as functions of the hyperparameters alone: the best q is a closed form.

With Phi [N, R], targets y [N, T], noise variance s2, weights v ~ N(0, I) and D = R T:

- q isotropic, N(m, sigma^2 I). For given hyperparameters the maximum of J = kappa E_q log p(y | v) - KL(q || p) is at
  m = (Phi^T Phi + s2/kappa I)^-1 Phi^T y and sigma^2 = 1 / (1 + kappa tr(Phi^T Phi) / (s2 R)) (Lemmas 1 and 2), where
  J = -kappa N T/2 log(2 pi s2) - kappa/(2 s2) tr(y^T (y - Phi m)) + D/2 log sigma^2.
- q exact: the log marginal likelihood, log N(y | 0, Phi Phi^T + s2 I).

Both need only Phi^T Phi, Phi^T y and y^T y (primal: N in chunks, memory R^2), or Phi Phi^T (dual, for N < R).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Primal:
    """Sufficient statistics when N >= R: `gram` = Phi^T Phi [R, R], `cross` = Phi^T y [R, T], `total` = tr(y^T y)."""

    gram: Tensor
    cross: Tensor
    total: Tensor
    number: int

    def ridge(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return tr(y^T K^-1 y) and log det K of K = Phi Phi^T + delta I, and m = (Phi^T Phi + delta I)^-1 Phi^T y."""
        size = self.gram.shape[0]
        factor = torch.linalg.cholesky(self.gram + delta * torch.eye(size, dtype=self.gram.dtype))
        mean = torch.cholesky_solve(self.cross, factor)
        quadratic = (self.total - (self.cross * mean).sum()) / delta
        log_det = 2 * factor.diagonal().log().sum() + (self.number - size) * delta.log()
        return quadratic, log_det, mean

    def trace(self) -> Tensor:
        """tr(Phi^T Phi)."""
        return self.gram.diagonal().sum()


@dataclass
class Dual:
    """The same for N < R, from `features` = Phi [N, R] and `targets` = y [N, T] themselves."""

    features: Tensor
    targets: Tensor

    def ridge(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Primal.ridge`."""
        number = len(self.features)
        kernel = self.features @ self.features.T + delta * torch.eye(number, dtype=self.features.dtype)
        factor = torch.linalg.cholesky(kernel)
        solved = torch.cholesky_solve(self.targets, factor)
        log_det = 2 * factor.diagonal().log().sum()
        return (self.targets * solved).sum(), log_det, self.features.T @ solved

    def trace(self) -> Tensor:
        """tr(Phi^T Phi)."""
        return self.features.square().sum()


def isotropic_objective(
    stats: Primal | Dual, noise: Tensor, kappa: float, sizes: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return J at the best isotropic q, its mean [R, T] and its variance.

    Args:
        stats: Of features and targets.
        noise: Variance s2.
        kappa: 1 for the ELBO, max(1, D/N) for the DE-ELBO.
        sizes: N, R and T.
    """
    number, features, outputs = sizes
    quadratic, _, mean = stats.ridge(noise / kappa)
    variance = 1 / (1 + kappa * stats.trace() / (noise * features))
    fit = -0.5 * kappa * number * outputs * (2 * math.pi * noise).log()
    # kappa/s2 tr(y^T (y - Phi m)) = tr(y^T (Phi Phi^T + s2/kappa I)^-1 y)
    return fit - 0.5 * quadratic + 0.5 * features * outputs * variance.log(), mean, variance


def log_marginal_likelihood(stats: Primal | Dual, noise: Tensor, sizes: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Return log N(y | 0, Phi Phi^T + s2 I), summed over outputs, and the posterior's mean [R, T]."""
    number, _, outputs = sizes
    quadratic, log_det, mean = stats.ridge(noise)
    return -0.5 * (quadratic + outputs * (log_det + number * math.log(2 * math.pi))), mean

"""Objectives of RFF regression as functions of the hyperparameters alone: the optimal q has a closed form.

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
from typing import Any

import torch
from torch import Tensor


class _Solve(torch.autograd.Function):
    """Compute tr(c^T K^-1 c), log det K and K^-1 c; a backward pass by hand is 4 times cheaper than autograd's."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        factor = torch.linalg.cholesky(K)
        solved = torch.cholesky_solve(c, factor)
        ctx.save_for_backward(factor, solved)
        ctx.mark_non_differentiable(solved)
        ctx.set_materialize_grads(False)
        return (c * solved).sum(), 2 * factor.diagonal().log().sum(), solved

    @staticmethod
    def backward(ctx: Any, quadratic: Tensor | None, log_det: Tensor | None, _: Any) -> tuple[Tensor, Tensor | None]:
        factor, solved = ctx.saved_tensors
        by_K, by_c = torch.zeros_like(factor), None
        if quadratic is not None:
            by_K -= quadratic * (solved @ solved.T)
            by_c = 2 * quadratic * solved
        if log_det is not None:
            by_K += log_det * torch.cholesky_inverse(factor)
        return by_K, by_c


def _plus_identity(matrix: Tensor, delta: Tensor) -> Tensor:
    return matrix + delta * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)


@dataclass
class Primal:
    """Sufficient statistics for N >= R.

    Args:
        gram: Phi^T Phi, [R, R].
        cross: Phi^T y, [R, T].
        total: tr(y^T y), a number.
        number: N, the number of rows.
    """

    gram: Tensor
    cross: Tensor
    total: Tensor
    number: int

    def ridge(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return tr(y^T K^-1 y) and log det K of K = Phi Phi^T + delta I, and m = (Phi^T Phi + delta I)^-1 Phi^T y."""
        explained, log_det, mean = _Solve.apply(_plus_identity(self.gram, delta), self.cross)
        return (self.total - explained) / delta, log_det + (self.number - len(self.gram)) * delta.log(), mean

    def trace(self) -> Tensor:
        """Return tr(Phi^T Phi)."""
        return self.gram.diagonal().sum()


@dataclass
class Dual:
    """Sufficient statistics for N < R.

    Args:
        kernel: Phi Phi^T, [N, N].
        features: Phi, [N, R].
        targets: y, [N, T].
    """

    kernel: Tensor
    features: Tensor
    targets: Tensor

    def ridge(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return tr(y^T K^-1 y) and log det K of K = Phi Phi^T + delta I, and m = Phi^T K^-1 y."""
        quadratic, log_det, solved = _Solve.apply(_plus_identity(self.kernel, delta), self.targets)
        return quadratic, log_det, self.features.T @ solved.to(self.features.dtype)

    def trace(self) -> Tensor:
        """Return tr(Phi^T Phi)."""
        return self.kernel.diagonal().sum()


def isotropic_objective(
    stats: Primal | Dual, noise: Tensor, kappa: float, sizes: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return J at the best isotropic q, its mean [R, T] and its variance.

    Args:
        stats: Sufficient statistics of the features and targets.
        noise: Variance s2 of the noise.
        kappa: Weight of the log-likelihood: 1 for the ELBO, max(1, D/N) for the DE-ELBO.
        sizes: N, R and T: the numbers of rows, features and outputs.
    """
    number, features, outputs = sizes
    quadratic, _, mean = stats.ridge(noise / kappa)
    variance = 1 / (1 + kappa * stats.trace() / (noise * features))
    fit = -0.5 * kappa * number * outputs * (2 * math.pi * noise).log()
    # kappa/s2 tr(y^T (y - Phi m)) = tr(y^T (Phi Phi^T + s2/kappa I)^-1 y)
    return fit - 0.5 * quadratic + 0.5 * features * outputs * variance.log(), mean, variance


def log_marginal_likelihood(stats: Primal | Dual, noise: Tensor, sizes: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Return log N(y | 0, Phi Phi^T + s2 I), summed over the outputs, and the mean [R, T] of the exact posterior.

    Args:
        stats: Sufficient statistics of the features and targets.
        noise: Variance s2 of the noise.
        sizes: N, R and T: the numbers of rows, features and outputs.
    """
    number, _, outputs = sizes
    quadratic, log_det, mean = stats.ridge(noise)
    return -0.5 * (quadratic + outputs * (log_det + number * math.log(2 * math.pi))), mean

"""An objective of RFF regression and its gradient as functions of the log hyperparameters, in chunks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from deelbo.rff.evidence import Dual, Primal, isotropic_objective, log_marginal_likelihood
from deelbo.rff.features import fourier_features

CHUNK = 2**20  # numbers in a chunk of Phi: just enough to keep a matrix product efficient


@dataclass(frozen=True)
class Problem:
    """An objective as a function of `logs`: log lengthscale(s), log outputscale and log noise, in float64.

    Args:
        x: Inputs, [N, H].
        targets: Targets, [N, T].
        A: Random frequencies, [H, R].
        b: Random phases, [R].
        objective: "lml" (log marginal likelihood), "de-elbo" or "elbo".
        kappa: Weight of the log-likelihood in "de-elbo" and "elbo"; "lml" ignores it.
    """

    x: Tensor
    targets: Tensor
    A: Tensor
    b: Tensor
    objective: str
    kappa: float

    @property
    def sizes(self) -> tuple[int, int, int]:
        """N, R and T: the numbers of rows, features and outputs."""
        return len(self.x), self.A.shape[1], self.targets.shape[1]

    @property
    def unit(self) -> float:
        """Number of terms in the objective, by which the search divides it to work with an average."""
        return self.sizes[0] * self.sizes[2] * (1.0 if self.objective == "lml" else self.kappa)

    def features(self, x: Tensor, logs: Tensor) -> Tensor:
        """Return the features Phi of inputs x at the hyperparameters `logs`."""
        lengthscale, outputscale, _ = split(logs.to(self.A.dtype).to(self.A.device))
        return fourier_features(x, self.A, self.b, lengthscale, outputscale)

    def value(self, stats: Primal | Dual, noise: Tensor) -> Tensor:
        """Return the objective from the sufficient statistics and the standard deviation of the noise."""
        if self.objective == "lml":
            return log_marginal_likelihood(stats, noise**2, self.sizes)[0]
        return isotropic_objective(stats, noise**2, self.kappa, self.sizes)[0]

    @torch.no_grad()
    def statistics(self, logs: Tensor) -> Primal | Dual:
        """Return the sufficient statistics of the features at the hyperparameters `logs`, in float64."""
        number, size, outputs = self.sizes
        y = self.targets.double()
        if number < size:
            phi = self.features(self.x, logs)
            return Dual((phi @ phi.T).double(), phi, y)
        gram = torch.zeros(size, size, dtype=torch.float64, device=y.device)
        cross = torch.zeros(size, outputs, dtype=torch.float64, device=y.device)
        for rows, part in self._chunks():
            phi = self.features(rows, logs)
            # Single precision must not sum over many rows: its error is to be small against the noise.
            if phi.dtype == torch.float64:
                gram.addmm_(phi.T, phi)
            else:
                gram += phi.T @ phi
            cross += phi.T @ part
        return Primal(gram, cross, y.square().sum(), number)

    def value_and_gradient(self, logs: Tensor) -> tuple[float, Tensor]:
        """Return the objective and its gradient by two passes over the rows, so that no graph holds N R numbers.

        The first pass computes the sufficient statistics and the gradient with respect to them; the second propagates
        this gradient through the features of each chunk of rows to the hyperparameters.
        """
        logs = logs.detach().requires_grad_()
        stats = self.statistics(logs)
        leaves = (stats.kernel,) if isinstance(stats, Dual) else (stats.gram, stats.cross)
        for leaf in leaves:
            leaf.requires_grad_()
        value = self.value(stats, split(logs)[2])
        *by_stats, gradient = torch.autograd.grad(value, (*leaves, logs))
        by_stats = [by.to(self.A.dtype) for by in by_stats]  # symmetric
        if isinstance(stats, Dual):
            return value.item(), gradient + self._pull_back(self.x, logs, lambda phi: 2 * by_stats[0] @ phi)
        for rows, part in self._chunks():
            weigh = partial(_weigh, part @ by_stats[1].T, by_stats[0])
            gradient += self._pull_back(rows, logs, weigh)
        return value.item(), gradient

    @torch.no_grad()
    def _pull_back(self, x: Tensor, logs: Tensor, weigh: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the gradient of sum(W * phi) with respect to the logs, for W = weigh(phi) held fixed.

        With phi = c cos(z), z = (x / l) A + b: d/dlog outputscale is sum(W phi), and d/dlog l_h is
        sum_n (x_nh / l_h) sum_r W_nr c sin(z_nr) A_hr. Written by hand because autograd needs twice as many passes.
        """
        lengthscale, outputscale, _ = split(logs.to(self.A.dtype).to(self.A.device))
        scaled = x / lengthscale
        z = torch.addmm(self.b, scaled, self.A)
        amplitude = outputscale * math.sqrt(2 / self.A.shape[1])
        phi = z.cos().mul_(amplitude)
        weights = weigh(phi)
        by_outputscale = torch.dot(weights.flatten(), phi.flatten())
        by_phase = weights.mul_(z.sin_()).mul_(amplitude)
        by_lengthscale = ((by_phase @ self.A.T) * scaled).sum(0)
        if len(logs) == 3:
            by_lengthscale = by_lengthscale.sum(0, keepdim=True)
        return torch.cat([by_lengthscale, by_outputscale[None], by_outputscale.new_zeros(1)]).double().cpu()

    def subset(self, rows: Tensor) -> Problem:
        """Return the problem for some of the rows; under "elbo" and "de-elbo" they get the weight of all rows."""
        weight = 1.0 if self.objective == "lml" else self.sizes[0] / len(rows)
        return replace(self, x=self.x[rows], targets=self.targets[rows], kappa=self.kappa * weight)

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = max(256, CHUNK // self.A.shape[1])
        return zip(self.x.split(size), self.targets.split(size), strict=True)


def _weigh(linear: Tensor, quadratic: Tensor, phi: Tensor) -> Tensor:
    return torch.addmm(linear, phi, quadratic, alpha=2)


def split(logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return lengthscale(s), outputscale and noise from their logarithms."""
    positive = logs.exp()
    return positive[:-2], positive[-2], positive[-1]

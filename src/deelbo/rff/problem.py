"""An objective of RFF regression as a smooth function of a few numbers, whatever N is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deelbo.rff.evidence import Dual, Primal, isotropic_objective, log_marginal_likelihood
from deelbo.rff.features import fourier_features

CHUNK = 2**23  # features in memory at once
BLOCK = 2048  # rows in one sum


@dataclass(frozen=True)
class Problem:
    """An objective as a function of `logs`: log lengthscale(s), log outputscale and log noise, in float64.

    Args:
        x: Inputs, [N, H].
        targets: [N, T].
        A: Frequencies, [H, R].
        b: Phases, [R].
        objective: "lml", "de-elbo" or "elbo".
        kappa: Of the isotropic objectives.
    """

    x: Tensor
    targets: Tensor
    A: Tensor
    b: Tensor
    objective: str
    kappa: float

    @property
    def sizes(self) -> tuple[int, int, int]:
        """N, R and T."""
        return len(self.x), self.A.shape[1], self.targets.shape[1]

    @property
    def unit(self) -> float:
        """Objectives are sums over this many numbers; the search sees their average."""
        return self.sizes[0] * self.sizes[2] * (1.0 if self.objective == "lml" else self.kappa)

    def features(self, x: Tensor, logs: Tensor) -> Tensor:
        """Phi of inputs."""
        lengthscale, outputscale, _ = split(logs.to(self.A.dtype).to(self.A.device))
        return fourier_features(x, self.A, self.b, lengthscale, outputscale)

    def value(self, stats: Primal | Dual, noise: Tensor) -> Tensor:
        """The objective from statistics of the features."""
        if self.objective == "lml":
            return log_marginal_likelihood(stats, noise**2, self.sizes)[0]
        return isotropic_objective(stats, noise**2, self.kappa, self.sizes)[0]

    @torch.no_grad()
    def statistics(self, logs: Tensor) -> Primal | Dual:
        """What the objective needs to know of the features, summed up in float64."""
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
            for block, values in zip(phi.split(BLOCK), part.split(BLOCK), strict=True):
                gram += block.T @ block
                cross += block.T @ values
        return Primal(gram, cross, y.square().sum(), number)

    def value_and_gradient(self, logs: Tensor) -> tuple[float, Tensor]:
        """The objective and its gradient in two passes over the rows, so that no graph holds N R numbers.

        The first gives the statistics and the gradient with respect to them, the second what each chunk of features
        contributes to that.
        """
        logs = logs.detach().requires_grad_()
        stats = self.statistics(logs)
        leaves = (stats.kernel,) if isinstance(stats, Dual) else (stats.gram, stats.cross)
        for leaf in leaves:
            leaf.requires_grad_()
        value = self.value(stats, split(logs)[2])
        *by_stats, gradient = torch.autograd.grad(value, (*leaves, logs))
        by_stats = [by.to(self.A.dtype) for by in by_stats]
        for rows, part in [(self.x, self.targets)] if isinstance(stats, Dual) else self._chunks():
            phi = self.features(rows, logs)
            if isinstance(stats, Dual):
                weights = 2 * by_stats[0] @ phi.detach()  # by_stats are symmetric
            else:
                weights = 2 * phi.detach() @ by_stats[0] + part @ by_stats[1].T
            gradient = gradient + torch.autograd.grad((phi * weights).sum(), logs)[0]
        return value.item(), gradient

    def subset(self, rows: Tensor) -> Problem:
        """The same with some of the rows, each counting for several where the objective is a weighted one."""
        weight = 1.0 if self.objective == "lml" else self.sizes[0] / len(rows)
        return replace(self, x=self.x[rows], targets=self.targets[rows], kappa=self.kappa * weight)

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = max(256, CHUNK // self.A.shape[1])
        return zip(self.x.split(size), self.targets.split(size), strict=True)


def split(logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return lengthscale(s), outputscale and noise."""
    positive = logs.exp()
    return positive[:-2], positive[-2], positive[-1]

"""Laplace approximations for Fig. 2: RFF regression with a diagonal empirical Fisher, and LML or CLML.

At the MAP weights m the empirical Fisher is F_r = sum_n (d log p(y_n | v) / d v_r)^2, which is
sum_n (y_n - f_n)^2 phi_nr^2 / s^4, and the posterior is N(m, diag(1 / (1 + F))). In this model m is a ridge solution,
so the log marginal likelihood (LML) and its conditional form (CLML) are functions of three hyperparameters, here
maximised by L-BFGS from several starts with the noise bounded from below.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from deelbo._extras import require
from deelbo.reproduce.rff.demos import GRID, NUM_FEATURES, Fit, held_out
from deelbo.rff.features import fourier_features

STARTS = tuple(
    itertools.product((0.03, 0.1, 0.3, 1.0, 3.0), (0.3, 1.0), (0.03, 0.1, 0.5))
)  # initial lengthscale, outputscale and noise
BOUNDS = [(math.log(1e-2), math.log(1e2)), (math.log(1e-3), math.log(1e3)), (math.log(1e-3), math.log(1e1))]


Criterion = Callable[[Tensor], Tensor]


class LaplaceRFF:
    """RFF regression with a diagonal empirical-Fisher Laplace posterior.

    Args:
        x: Inputs, [N, 1].
        y: Targets, [N].
        seed: Seed for the random features.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, seed: int) -> None:
        random = np.random.RandomState(seed)  # as in the estimators: the same features
        self.A = torch.from_numpy(random.standard_normal((1, NUM_FEATURES)))
        self.b = torch.from_numpy(random.uniform(0, 2 * math.pi, NUM_FEATURES))
        self.center = x.mean(0)  # as in the estimators
        self.x, self.y = torch.from_numpy(x - self.center), torch.from_numpy(y)

    def features(self, x: Tensor, logs: Tensor) -> Tensor:
        """Return the features Phi of inputs x at the log hyperparameters `logs`."""
        return fourier_features(x, self.A, self.b, logs[0].exp(), logs[1].exp())

    def posterior(self, logs: Tensor, rows: np.ndarray | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Return the mean and the variances of the Laplace posterior given some of the rows, both [R]."""
        phi, y, noise = self.features(self.x[rows], logs), self.y[rows], (2 * logs[2]).exp()
        kernel = phi @ phi.T + noise * torch.eye(len(y), dtype=torch.float64)
        mean = phi.T @ torch.linalg.solve(kernel, y)
        fisher = ((y - phi @ mean)[:, None] * phi / noise).square().sum(0)
        return mean, 1 / (1 + fisher)

    def log_marginal_likelihood(self, logs: Tensor) -> Tensor:
        """Return log p(y | m) + log p(m) + R/2 log(2 pi) - 1/2 log det(I + F)."""
        mean, variance = self.posterior(logs)
        fit = Normal(self.features(self.x, logs) @ mean, logs[2].exp()).log_prob(self.y).sum()
        return fit - 0.5 * mean.square().sum() + 0.5 * variance.log().sum()

    def conditional(self, logs: Tensor, train: np.ndarray, rest: np.ndarray) -> Tensor:
        """Return log p(y_rest | y_train) under the Laplace posterior given y_train; this Gaussian integral is exact."""
        mean, variance = self.posterior(logs, train)
        phi = self.features(self.x[rest], logs)
        noise = (2 * logs[2]).exp() * torch.eye(len(rest), dtype=torch.float64)
        return MultivariateNormal(phi @ mean, (phi * variance) @ phi.T + noise).log_prob(self.y[rest])

    def fit(self, title: str, criterion: Criterion, maximise: Callable[[Criterion], Tensor] | None = None) -> Fit:
        """Choose the hyperparameters by a criterion, and return the fit to all rows.

        Args:
            title: Title of the panel.
            criterion: Function of the log hyperparameters to maximise.
            maximise: Function that returns the log hyperparameters with the largest criterion; `l_bfgs` if None.
        """
        logs = (maximise or l_bfgs)(criterion)
        mean, variance = self.posterior(logs)
        phi, noise = self.features(torch.from_numpy(GRID[:, None] - self.center), logs), logs[2].exp()
        std = (phi.square() @ variance + noise**2).sqrt()
        learned = dict(zip(("lengthscale", "outputscale", "noise"), logs.exp().tolist(), strict=True))
        return Fit(
            title, (phi @ mean).numpy(), std.numpy(), {**learned, "scale": None, "objective": criterion(logs).item()}
        )


def l_bfgs(criterion: Criterion) -> Tensor:
    """Return the log hyperparameters with the largest criterion, by L-BFGS from several starts."""
    optimize = require("scipy.optimize", "rff")

    def negative(values: np.ndarray) -> tuple[float, np.ndarray]:
        logs = torch.tensor(values, requires_grad=True)
        try:
            value = criterion(logs)
            (gradient,) = torch.autograd.grad(value, logs)
        except (torch.linalg.LinAlgError, ValueError):  # singular to working precision
            return 1e100, np.zeros(3)
        return -value.item(), -gradient.numpy()

    runs = [optimize.minimize(negative, np.log(start), jac=True, method="L-BFGS-B", bounds=BOUNDS) for start in STARTS]
    return torch.from_numpy(min(runs, key=lambda run: run.fun).x)


def la_lml(x: np.ndarray, y: np.ndarray, seed: int) -> Fit:
    """Return the fit whose hyperparameters maximise the Laplace marginal likelihood of all rows (LA-LML)."""
    model = LaplaceRFF(x, y, seed)
    return model.fit("diagEF LA-LML", model.log_marginal_likelihood)


def la_clml(x: np.ndarray, y: np.ndarray, seed: int) -> Fit:
    """Return the fit whose hyperparameters maximise the likelihood of a fifth of the rows given the rest (LA-CLML)."""
    model, (train, rest) = LaplaceRFF(x, y, seed), held_out(len(x))
    return model.fit("diagEF LA-CLML", lambda logs: model.conditional(logs, train, rest))

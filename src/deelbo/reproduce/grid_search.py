"""MAP with a fixed lengthscale and a grid search, the usual way to use random Fourier features."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.distributions import Normal

from deelbo.reproduce.demos import GRID, NUM_FEATURES, Fit, held_out
from deelbo.rff.features import fourier_features

OUTPUTSCALES = (10.0, 1.0, 0.1, 0.01, 0.001)
NOISES = (1.0, 0.1, 0.01)


class FixedFeatures:
    """Features with a lengthscale that nobody learns.

    Args:
        x: Inputs; their mean is subtracted, as in the estimators.
        lengthscale: Fixed.
        seed: Of the random features.
    """

    def __init__(self, x: np.ndarray, lengthscale: float, seed: int) -> None:
        self.center, inputs = x.mean(0), x.shape[1]
        random = np.random.RandomState(seed)  # as in the estimators: the same features
        self.A = torch.from_numpy(random.standard_normal((inputs, NUM_FEATURES)))
        self.b = torch.from_numpy(random.uniform(0, 2 * math.pi, NUM_FEATURES))
        self.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)

    def __call__(self, x: np.ndarray, outputscale: float) -> torch.Tensor:
        """Phi of inputs."""
        scale = torch.tensor(outputscale, dtype=torch.float64)
        return fourier_features(torch.from_numpy(x - self.center), self.A, self.b, self.lengthscale, scale)


def regression_fit(x: np.ndarray, y: np.ndarray, lengthscale: float, seed: int) -> Fit:
    """Outputscale and noise with the best likelihood of a fifth of the rows, then the MAP weights of all."""
    features, (train, rest) = FixedFeatures(x, lengthscale, seed), held_out(len(x))
    targets = torch.from_numpy(y)

    def predict(rows: np.ndarray, new: np.ndarray, outputscale: float, noise: float) -> torch.Tensor:
        phi = features(x[rows], outputscale)
        kernel = phi @ phi.T + noise**2 * torch.eye(len(rows), dtype=torch.float64)
        return features(new, outputscale) @ (phi.T @ torch.linalg.solve(kernel, targets[rows]))

    def validation(cell: tuple[float, float]) -> float:
        return float(Normal(predict(train, x[rest], *cell), cell[1]).log_prob(targets[rest]).sum())

    best = max(itertools.product(OUTPUTSCALES, NOISES), key=validation)
    mean = predict(np.arange(len(x)), GRID[:, None], *best).numpy()
    learned = {"lengthscale": lengthscale, "outputscale": best[0], "noise": best[1], "scale": None}
    title = f"RFF (lengthscale {lengthscale:g})\nMAP + grid search"
    return Fit(title, mean, np.full_like(mean, best[1]), {**learned, "objective": validation(best)})


def classification_probabilities(
    x: np.ndarray, labels: np.ndarray, x_new: np.ndarray, lengthscale: float, seed: int
) -> tuple[np.ndarray, dict[str, float]]:
    """The same for classes: softmax regression with the prior N(0, I), by L-BFGS."""
    features, (train, rest) = FixedFeatures(x, lengthscale, seed), held_out(len(x))
    y = torch.from_numpy(labels)

    def logits(rows: np.ndarray, new: np.ndarray, outputscale: float) -> torch.Tensor:
        phi, weights = features(x[rows], outputscale), torch.zeros(NUM_FEATURES, int(y.max()) + 1, dtype=torch.float64)
        optimizer = torch.optim.LBFGS([weights.requires_grad_()], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> float:
            optimizer.zero_grad()
            value = F.cross_entropy(phi @ weights, y[rows], reduction="sum") + 0.5 * weights.square().sum()
            value.backward()
            return value.item()

        optimizer.step(loss)
        return (features(new, outputscale) @ weights).detach()

    def validation(outputscale: float) -> float:
        return -float(F.cross_entropy(logits(train, x[rest], outputscale), y[rest], reduction="sum"))

    best = max(OUTPUTSCALES, key=validation)
    probabilities = logits(np.arange(len(x)), x_new, best).softmax(1).numpy()
    return probabilities, {"lengthscale": lengthscale, "outputscale": best, "objective": validation(best)}

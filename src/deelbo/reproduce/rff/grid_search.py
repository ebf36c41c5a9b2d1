"""The usual way to use random Fourier features: MAP with a fixed lengthscale, the rest chosen by grid search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.distributions import Normal

from deelbo.reproduce.rff.demos import GRID, NUM_FEATURES, Fit, held_out
from deelbo.rff.features import fourier_features

OUTPUTSCALES = (10.0, 1.0, 0.1, 0.01, 0.001)  # grid of outputscales
NOISES = (1.0, 0.1, 0.01)  # grid of standard deviations of the noise


class FixedFeatures:
    """Random Fourier features with a fixed lengthscale.

    Args:
        x: Training inputs, whose mean is subtracted from all inputs as in the estimators.
        lengthscale: Lengthscale of the features.
        seed: Seed for the random features.
    """

    def __init__(self, x: np.ndarray, lengthscale: float, seed: int) -> None:
        self.center, inputs = x.mean(0), x.shape[1]
        random = np.random.RandomState(seed)  # as in the estimators: the same features
        self.A = torch.from_numpy(random.standard_normal((inputs, NUM_FEATURES)))
        self.b = torch.from_numpy(random.uniform(0, 2 * math.pi, NUM_FEATURES))
        self.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)

    def __call__(self, x: np.ndarray, outputscale: float) -> torch.Tensor:
        """Return the features Phi of inputs x."""
        scale = torch.tensor(outputscale, dtype=torch.float64)
        return fourier_features(torch.from_numpy(x - self.center), self.A, self.b, self.lengthscale, scale)


def regression_fit(x: np.ndarray, y: np.ndarray, lengthscale: float, seed: int) -> Fit:
    """Return the MAP fit on all rows, with the outputscale and noise that predict a held-out fifth of them best."""
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
    """Return class probabilities of MAP softmax regression, with the outputscale that predicts held-out rows best.

    Args:
        x: Training inputs, [N, 2].
        labels: Class numbers, [N].
        x_new: Inputs to predict, [M, 2].
        lengthscale: Lengthscale of the features.
        seed: Seed for the random features.

    Returns:
        The probabilities, [M, classes], and the chosen hyperparameters and validation score by name.
    """
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

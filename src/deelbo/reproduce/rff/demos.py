"""The paper's toy data, the fits that its figures show, and the error of a fit against a reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

NUM_FEATURES = 1024
GRID = np.linspace(-4.0, 4.0, 401)  # inputs at which a fit is drawn and compared
FAR = 1.0  # distance from the range of the data beyond which an input counts as far


@dataclass
class Fit:
    """A regression fit, which is one panel of a figure.

    Args:
        title: Title of the panel.
        mean: Predictive mean on `GRID`, [401].
        std: Predictive standard deviation on `GRID`, of function and noise together, [401].
        learned: Learned hyperparameters and objective by name; None where a method has no such value.
        warnings: Warnings of the fit, such as a value at its bound.
    """

    title: str
    mean: np.ndarray
    std: np.ndarray
    learned: dict[str, float | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def regression() -> tuple[np.ndarray, np.ndarray]:
    """Return 20 inputs x [20, 1] and targets y = sin(3 x) + noise with standard deviation 0.1, [20]."""
    random = np.random.RandomState(42)  # the seed of the paper
    x = random.randn(20, 1)
    return x, (np.sin(3 * x) + 0.1 * random.randn(20, 1))[:, 0]


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Return 20 inputs [20, 2] and labels [20] of scikit-learn's two moons."""
    from sklearn.datasets import make_moons

    return make_moons(20, noise=0.1, random_state=42)


def held_out(number: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of training rows (4/5) and validation rows, for methods that need a validation set."""
    order = np.random.default_rng(seed).permutation(number)
    return order[number // 5 :], order[: number // 5]


def rff_fit(title: str, model: Any) -> Fit:
    """Return the panel of a fitted `RFFRegressor`."""
    names = ("lengthscale", "outputscale", "noise", "scale", "objective")
    mean, std = model.predict(GRID[:, None], return_std=True)
    return Fit(title, mean, std, {n: getattr(model, f"{n}_") for n in names})


def errors(fit: Fit, reference: Fit, x: np.ndarray) -> dict[str, float]:
    """Return root mean squared differences between the means, and between the standard deviations, of two fits.

    Args:
        fit: Fit to judge.
        reference: Fit to compare with.
        x: Training inputs, which decide what is near (within their range) and far (more than `FAR` outside).

    Returns:
        The differences by name: mean_near, std_near, mean_far, std_far.
    """
    outside = np.maximum(x.min() - GRID, GRID - x.max())
    near, far = outside <= 0, outside > FAR
    differences = {}
    for where, mask in (("near", near), ("far", far)):
        for name in ("mean", "std"):
            difference = getattr(fit, name)[mask] - getattr(reference, name)[mask]
            differences[f"{name}_{where}"] = float(np.sqrt(np.mean(difference**2)))
    return differences

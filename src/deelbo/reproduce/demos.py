"""The paper's toy data, where its figures look at a fit, and how far a fit is from a reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

NUM_FEATURES = 1024
GRID = np.linspace(-4.0, 4.0, 401)
FAR = 1.0  # beyond the data by this much


@dataclass
class Fit:
    """One panel: predictive mean and standard deviation on `GRID`, and what was learned.

    Args:
        title: Of the panel.
        mean: [401].
        std: [401], of function and noise together.
        learned: Names and values.
        warnings: Such as that a value is at its bound.
    """

    title: str
    mean: np.ndarray
    std: np.ndarray
    learned: dict[str, float | None] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def regression() -> tuple[np.ndarray, np.ndarray]:
    """Return 20 rows of y = sin(3 x) + noise of 0.1."""
    random = np.random.RandomState(42)  # the paper's own
    x = random.randn(20, 1)
    return x, (np.sin(3 * x) + 0.1 * random.randn(20, 1))[:, 0]


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Two moons, 20 rows."""
    from sklearn.datasets import make_moons

    return make_moons(20, noise=0.1, random_state=42)


def held_out(number: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on (4/5) and to validate on, for methods that need them."""
    order = np.random.default_rng(seed).permutation(number)
    return order[number // 5 :], order[: number // 5]


def rff_fit(title: str, model: Any) -> Fit:
    """The panel of a fitted `RFFRegressor`."""
    names = ("lengthscale", "outputscale", "noise", "scale", "objective")
    mean, std = model.predict(GRID[:, None], return_std=True)
    return Fit(title, mean, std, {n: getattr(model, f"{n}_") for n in names})


def errors(fit: Fit, reference: Fit, x: np.ndarray) -> dict[str, float]:
    """Root mean squared differences of mean and standard deviation, among the data and far from them."""
    outside = np.maximum(x.min() - GRID, GRID - x.max())
    near, far = outside <= 0, outside > FAR
    found = {}
    for where, mask in (("near", near), ("far", far)):
        for name in ("mean", "std"):
            difference = getattr(fit, name)[mask] - getattr(reference, name)[mask]
            found[f"{name}_{where}"] = float(np.sqrt(np.mean(difference**2)))
    return found

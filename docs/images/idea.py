"""Draw the pictures of docs/idea.md: `python docs/images/idea.py` (ten seconds).

`idea-weights.png` is a sketch; the fits of the other two are deelbo's own.
Backgrounds are white; the site's style sheet turns them dark for readers who prefer that.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import torch
from sklearn.linear_model import Ridge

from deelbo.rff import RandomFourierFeatures, RFFRegressor

matplotlib.use("Agg")
from matplotlib import pyplot as plt

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREEN, GREY = "#3f6fd1", "#d9822b", "#2a9d6f", "#7a828c"


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture beside this file."""
    figure.savefig(FOLDER / name, dpi=130, bbox_inches="tight", facecolor="white")
    plt.close(figure)


def draw_weights() -> None:
    """Sketch how far two weights may move: the prior around their pretrained values, the posterior around the mean."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    u, v = np.meshgrid(np.linspace(-4, 5, 300), np.linspace(-3, 3, 300))
    valley = (0.35 * (u - 2.6) + 0.5 * v) ** 2 + (v - 0.35 * (u - 2.6)) ** 2
    axes.contourf(u, v, np.sqrt(valley), levels=[0, 0.45, 0.9], colors=["#d3d7dc", "#eceef0"])
    start, mean = (-1.0, -0.2), (1.5, 0.05)
    axes.add_patch(plt.Circle(start, 2.51, fill=False, color=BLUE, linestyle="--", linewidth=1.6))
    axes.add_patch(plt.Circle(mean, 0.36, color=GREEN, alpha=0.35, linewidth=0))
    axes.annotate("", mean, start, arrowprops={"arrowstyle": "->", "color": ORANGE, "linewidth": 2})
    axes.plot(*start, "o", color=BLUE, markersize=8)
    axes.plot(*mean, "o", color=GREEN, markersize=8)
    axes.text(-1.0, -0.65, "pretrained weights", color=BLUE, ha="center", fontsize=11)
    axes.text(-1.0, -1.95, "how far they may go\n(the prior)", color=BLUE, ha="center", fontsize=11)
    axes.text(1.85, -1.15, "trained weights\nand their noise", color=GREEN, ha="left", fontsize=11, va="center")
    axes.text(3.2, 1.3, "here the training\nexamples are fitted", color=GREY, ha="center", fontsize=11)
    axes.set(xlim=(-4, 4.9), ylim=(-2.9, 2.5), xticks=[], yticks=[], aspect="equal")
    axes.set_xlabel("one weight", color=GREY)
    axes.set_ylabel("another weight", color=GREY)
    for side in axes.spines.values():
        side.set_color(GREY)
    save(figure, "idea-weights.png")


def noisy_points(noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return 20 points of a curve with noise, and where to draw fits to them."""
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(-3, 3, 20))
    return x, np.sin(2 * x) + noise * random.standard_normal(20), np.linspace(-3.4, 3.4, 400)


def draw_strength() -> None:
    """Draw fits to 20 points by 1,024 weights: with a weak and a strong penalty, and with a learned one."""
    x, y, line = noisy_points(0.3)
    features = RandomFourierFeatures(1, 1024, lengthscale=0.2, seed=0, dtype=torch.float64)
    with torch.no_grad():
        near, far = (features(torch.tensor(rows[:, None])).numpy() for rows in (x, line))
    learned = RFFRegressor(num_features=1024, random_state=0).fit(x[:, None], y)
    fits = {
        "too weak": (BLUE, far @ Ridge(1e-4, fit_intercept=False).fit(near, y).coef_),
        "too strong": (ORANGE, far @ Ridge(10.0, fit_intercept=False).fit(near, y).coef_),
        "learned": (GREEN, learned.predict(line[:, None])),
    }
    figure, panels = plt.subplots(1, 3, figsize=(7.4, 2.3), sharey=True)
    for axes, (title, (colour, fit)) in zip(panels, fits.items(), strict=True):
        axes.plot(line, fit, color=colour, linewidth=2)
        finish(axes, x, y, title, colour)
    save(figure, "idea-strength.png")


def draw_emphasis() -> None:
    """Draw fits to 20 points, with and without emphasis on the data."""
    x, y, line = noisy_points(0.1)
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 2.7), sharey=True)
    titles = {"elbo": "every example counts once (ELBO)", "de-elbo": "every example counts more (DE-ELBO)"}
    for axes, objective, colour in zip(panels, titles, (ORANGE, GREEN), strict=True):
        model = RFFRegressor(num_features=1024, objective=objective, random_state=0).fit(x[:, None], y)
        middle, std = model.predict(line[:, None], return_std=True)
        axes.fill_between(line, middle - 2 * std, middle + 2 * std, color=colour, alpha=0.2, linewidth=0)
        axes.plot(line, middle, color=colour, linewidth=2)
        finish(axes, x, y, titles[objective], colour)
    save(figure, "idea-emphasis.png")


def finish(axes: plt.Axes, x: np.ndarray, y: np.ndarray, title: str, colour: str) -> None:
    """Add the points and a title to a panel."""
    axes.plot(x, y, "o", color="#30363d", markersize=4)
    axes.set_title(title, color=colour, fontsize=11)
    axes.set(xticks=[], yticks=[], ylim=(-2.4, 2.4))
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    draw_weights()
    draw_strength()
    draw_emphasis()

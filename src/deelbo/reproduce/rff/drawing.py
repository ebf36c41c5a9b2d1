"""Drawing of the paper's figures with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deelbo._extras import require
from deelbo.reproduce.rff.demos import GRID, Fit

BLUE, INK, FAINT = "#2a6fb0", "#1c1c1c", "#777777"
SIDE = 81  # points along each side of the grid on which class probabilities are drawn
MARGIN = 1.5  # distance between the data and the border of that grid


def plane(x: np.ndarray) -> np.ndarray:
    """Return a grid of points over and around the data, [SIDE * SIDE, 2]."""
    sides = [np.linspace(low - MARGIN, high + MARGIN, SIDE) for low, high in zip(x.min(0), x.max(0), strict=True)]
    return np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)


def row(fits: Sequence[Fit], data: tuple[np.ndarray, np.ndarray]) -> Any:
    """Draw regression fits side by side, each with its mean and a band of two standard deviations."""
    figure, axes = _figure(1, len(fits))
    for i, (axis, fit) in enumerate(zip(axes[0], fits, strict=True)):
        _regression(axis, fit, data, i)
    _legend(figure, axes[0][0])
    return figure


def demos(
    fits: Sequence[Fit],
    data: tuple[np.ndarray, np.ndarray],
    maps: Sequence[np.ndarray],
    classes: tuple[np.ndarray, np.ndarray],
) -> Any:
    """Draw a row of regression fits above a row of maps of class probabilities.

    Args:
        fits: Regression fits, one for each column.
        data: Inputs and targets of the regression.
        maps: Probabilities of the second class, [SIDE, SIDE], one map for each column.
        classes: Inputs and labels of the classification.
    """
    figure, axes = _figure(2, len(fits))
    for i, (axis, fit) in enumerate(zip(axes[0], fits, strict=True)):
        _regression(axis, fit, data, i)
    x, labels = classes
    low, high = x.min(0) - MARGIN, x.max(0) + MARGIN
    for i, (axis, values) in enumerate(zip(axes[1], maps, strict=True)):
        extent = (low[0], high[0], low[1], high[1])
        image = axis.imshow(values, origin="lower", extent=extent, vmin=0, vmax=1, cmap="RdBu_r", aspect="auto")
        if values.min() < 0.5 < values.max():
            axis.contour(values, levels=[0.5], extent=extent, colors=INK, linewidths=0.8)
        for label, marker in ((0, "o"), (1, "s")):
            chosen = x[labels == label]
            axis.scatter(*chosen.T, marker=marker, s=18, color="white", edgecolor=INK, linewidth=0.9)
        axis.set_xlabel("$x_1$")
        if i == 0:
            axis.set_ylabel("$x_2$")
    bar = figure.colorbar(image, ax=axes[1][-1], fraction=0.05)
    bar.set_label("p(second class)")
    _legend(figure, axes[0][0])
    return figure


def _figure(rows: int, columns: int) -> tuple[Any, Any]:
    module = require("matplotlib.figure", "reproduce")
    figure = module.Figure(figsize=(2.5 * columns + 0.6, 2.3 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, colors=INK)
    return figure, axes


def _regression(axis: Any, fit: Fit, data: tuple[np.ndarray, np.ndarray], column: int) -> None:
    x, y = data
    band = axis.fill_between(GRID, fit.mean - 2 * fit.std, fit.mean + 2 * fit.std, color=BLUE, alpha=0.22, linewidth=0)
    band.set_label("two standard deviations")
    axis.plot(GRID, fit.mean, color=BLUE, linewidth=1.6, label="mean")
    axis.plot(GRID, np.sin(3 * GRID), color=FAINT, linewidth=0.8, linestyle="--", label="sin 3x")
    axis.scatter(x[:, 0], y, color=INK, s=10, zorder=3, label="training rows")
    axis.set(xlim=(GRID[0], GRID[-1]), ylim=(-3, 3), xlabel="x")
    axis.set_title(fit.title, fontsize=9, color=INK)
    if column == 0:
        axis.set_ylabel("y")
    else:
        axis.set_yticklabels([])
    names = (("lengthscale", "ℓ"), ("outputscale", "σ_k"), ("noise", "σ_y"), ("scale", "σ_q"))
    values = [f"{symbol} {value:.2g}" for name, symbol in names if (value := fit.learned.get(name)) is not None]
    text = (
        "   ".join(values)
        .replace("σ_k", "$\\sigma_k$")
        .replace("σ_y", "$\\sigma_y$")
        .replace("σ_q", "$\\bar\\sigma_q$")
    )
    axis.text(0.5, 0.02, text, transform=axis.transAxes, fontsize=6.5, ha="center", va="bottom", color=INK)


def _legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)

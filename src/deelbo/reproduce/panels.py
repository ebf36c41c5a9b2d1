"""Figures of several panels: one for each dataset and training size, in colours that print well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deelbo._extras import require

INK, FAINT = "#1c1c1c", "#8a8a8a"
# By the numbers that the strategies of `compare` have; the paper's colours for those that it shows.
COLOURS = (
    *("#9467bd", "#1f77b4", "#2ca02c", "#ff7f0e", "#8c564b", "#e377c2"),
    *("#7f7f7f", "#bcbd22", "#17becf", "#d62728"),
)
PURPLE, PINK = COLOURS[0], COLOURS[5]  # DE-ELBO and ELBO, as in Fig. 1
COLUMNS = 4
WIDTH, LEGEND_WIDTH = 2.9, 1.5  # of a panel, and of a name in the legend, in inches

Draw = Callable[[Any], None]


def panel_figure(panels: Sequence[tuple[str, Draw]], x: str, y: str, columns: int = COLUMNS) -> Any:
    """Return a figure with a panel for each title, and one legend for all.

    Args:
        panels: Title and drawing function of each panel, which takes axes of matplotlib.
        x: Title of the horizontal axes.
        y: Title of the vertical axes, at the first panel of each row; "" if the panels have titles of their own.
        columns: Number of panels in a row at most.
    """
    across = min(columns, len(panels))
    rows = -(-len(panels) // across)
    figure, axes = new_figure(rows, across, WIDTH if across > 1 else 1.5 * WIDTH)
    handles: dict[str, Any] = {}
    for number, (axis, (title, draw)) in enumerate(zip(axes.flat, panels, strict=False)):
        draw(axis)
        axis.set_title(title, fontsize=9, color=INK)
        axis.set_xlabel(x, fontsize=8)
        if y and number % across == 0:
            axis.set_ylabel(y, fontsize=8)
        drawn, labels = axis.get_legend_handles_labels()
        handles = {**handles, **{name: line for name, line in zip(labels, drawn, strict=True) if name not in handles}}
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    fitting = int(figure.get_size_inches()[0] / LEGEND_WIDTH)
    names = {"ncols": min(6, fitting), "fontsize": 8, "frameon": False}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", **names)
    return figure


def new_figure(rows: int, columns: int, width: float = WIDTH) -> tuple[Any, Any]:
    """Return a figure and its axes, [rows, columns].

    Args:
        rows: Number of rows of panels.
        columns: Number of panels in a row.
        width: Width of a panel in inches.
    """
    module = require("matplotlib.figure", "reproduce")
    figure = module.Figure(figsize=(width * columns + 0.4, 2.4 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, colors=INK)
        axis.grid(color=FAINT, alpha=0.2, linewidth=0.6)
    return figure, axes


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])

"""Charts as SVG that follow the page's colours, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from deelbo._extras import require

# Drawn with stand-ins that no chart uses otherwise, replaced by the variables of the style sheet.
_COLOURS = {
    "--ink": "#010203",
    "--faint": "#040506",
    "--a": "#070809",
    "--b": "#0a0b0c",
    "--c": "#0d0e0f",
    "--d": "#101112",
    "--e": "#131415",
    "--f": "#161718",
}
INK, FAINT, *SERIES = _COLOURS.values()

Row = dict[str, float]


def objective_chart(rows: Sequence[Row]) -> str:
    """Draw the loss and its two terms over the training of the best candidate (Fig. 1b of the paper)."""
    figure, axes = new_figure()
    steps = [row["step"] for row in rows]
    other, name = ("kl", "KL / (κN)") if "kl" in rows[0] else ("penalty", "prior / N")
    axes.plot(steps, [row["nll"] + row[other] for row in rows], color=SERIES[0], label="loss", linewidth=2)
    axes.plot(steps, [row["nll"] for row in rows], color=SERIES[1], label="training NLL")
    axes.plot(steps, [row[other] for row in rows], color=SERIES[2], label=name)
    return finish(figure, axes, "step", "nats per example")


def learned_chart(rows: Sequence[Row], symbols: dict[str, str]) -> str:
    """Draw the prior variances and the posterior's scale over training.

    Args:
        rows: Of the best candidate.
        symbols: Column and its name in the legend; no more are drawn than there are colours.
    """
    figure, axes = new_figure()
    for (column, symbol), colour in zip(symbols.items(), SERIES, strict=False):
        axes.plot([row["step"] for row in rows], [row[column] for row in rows], color=colour, label=symbol)
    axes.set_yscale("log")
    return finish(figure, axes, "step", "")


def race_chart(history: Sequence[Row], best: float) -> str:
    """Draw the loss of every candidate as far as it ran."""
    figure, axes = new_figure()
    rates = list(dict.fromkeys(row["learning_rate"] for row in history))
    other = "kl" if "kl" in history[0] else "penalty"
    for i, rate in enumerate(rates):
        rows = [row for row in history if row["learning_rate"] == rate]
        steps, losses = [row["step"] for row in rows], [row["nll"] + row[other] for row in rows]
        width = 2.2 if rate == best else 1.2
        axes.plot(steps, losses, color=SERIES[i % len(SERIES)], label=f"{rate:g}", linewidth=width)
        axes.plot(steps[-1:], losses[-1:], marker="o", markersize=4, color=SERIES[i % len(SERIES)])
    if all(row["nll"] + row[other] > 0 for row in history):
        axes.set_yscale("log")
    return finish(figure, axes, "step", "loss, nats per example")


def reliability_chart(bins: Sequence[Row]) -> str:
    """Draw accuracy against confidence, and the gap to calibration; the area of a dot is its share of the examples."""
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1], color=FAINT, linestyle="--", linewidth=1, label="calibrated")
    filled = [row for row in bins if row["examples"]]
    total = sum(row["examples"] for row in filled)
    x, y = [row["confidence"] for row in filled], [row["accuracy"] for row in filled]
    axes.vlines(x, x, y, color=SERIES[1], linewidth=1.2, label="gap")
    areas = [12 + 300 * row["examples"] / total for row in filled]
    axes.scatter(x, y, s=areas, color=SERIES[0], alpha=0.8, zorder=3, label="this model")
    axes.set_xlim(0, 1.03)
    axes.set_ylim(0, 1.03)
    return finish(figure, axes, "confidence", "accuracy")


def new_figure() -> tuple[Any, Any]:
    """Return a figure and its axes in the pages' style."""
    matplotlib = require("matplotlib.figure", "training")
    figure = matplotlib.Figure(figsize=(4.2, 2.9), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, which="both", labelsize=9.5)
    axes.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    return figure, axes


def finish(figure: Any, axes: Any, x: str, y: str, above: int = 0) -> str:
    """Label the axes and return the figure as SVG whose colours are the style sheet's.

    Args:
        figure: Drawn.
        axes: Of the figure.
        x: What is on the axis.
        y: Likewise.
        above: Columns of a legend above the axes; 0 for one where there is room inside.
    """
    axes.set_xlabel(x, color=INK, fontsize=9.5)
    axes.set_ylabel(y, color=INK, fontsize=9.5)
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": above, "columnspacing": 1.2} if above else {}
    legend = axes.legend(fontsize=9.5, frameon=False, labelcolor=INK, **place)
    assert legend is not None
    matplotlib = require("matplotlib", "training")
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "deelbo"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for size in ("width", "height"):  # of the first tag, so that the page decides
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("'DejaVu Sans'", "system-ui")
    for variable, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg

"""Charts as SVG that use the page's colours, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from deelbo._extras import require

# Charts are drawn in these placeholder colours, which are then replaced by variables of the style sheet.
_COLOURS = {
    "--ink": "#010203",
    "--faint": "#040506",
    "--a": "#070809",
    "--b": "#0a0b0c",
    "--c": "#0d0e0f",
    "--d": "#101112",
    "--e": "#131415",
    "--f": "#161718",
    "--g": "#191a1b",
    "--h": "#1c1d1e",
    "--i": "#1f2021",
    "--j": "#222324",
}
INK, FAINT, *SERIES = _COLOURS.values()

Row = dict[str, float]


def objective_chart(rows: Sequence[Row], penalty: str, symbol: str) -> str:
    """Draw the loss and its two terms over the training of the best candidate (Fig. 1b of the paper).

    Args:
        rows: History of the best candidate.
        penalty: Name of the history's column with the regularisation's part of the loss.
        symbol: Name of the regularisation's part in the legend.
    """
    figure, axes = new_figure()
    steps = [row["step"] for row in rows]
    axes.plot(steps, [row["data_loss"] + row[penalty] for row in rows], color=SERIES[0], label="loss", linewidth=2)
    axes.plot(steps, [row["nll"] for row in rows], color=SERIES[1], label="training NLL")
    axes.plot(steps, [row[penalty] for row in rows], color=SERIES[2], label=symbol)
    return finish(figure, axes, "step", "nats per example")


def learned_chart(rows: Sequence[Row], symbols: dict[str, str]) -> str:
    """Draw learned values, such as the prior variances and the posterior's scale, over training.

    Args:
        rows: History of the best candidate.
        symbols: Columns of the history to draw, with their names in the legend; at most as many as there are colours.
    """
    figure, axes = new_figure()
    for (column, symbol), colour in zip(symbols.items(), SERIES, strict=False):
        axes.plot([row["step"] for row in rows], [row[column] for row in rows], color=colour, label=symbol)
    axes.set_yscale("log")
    return finish(figure, axes, "step", "")


def race_chart(history: Sequence[Row], best: float, penalty: str) -> str:
    """Draw the loss of every candidate, up to the step where it was stopped.

    Args:
        history: History of all candidates.
        best: Learning rate of the best candidate.
        penalty: Name of the history's column with the regularisation's part of the loss.
    """
    figure, axes = new_figure()
    rates = list(dict.fromkeys(row["learning_rate"] for row in history))
    for i, rate in enumerate(rates):
        rows = [row for row in history if row["learning_rate"] == rate]
        steps, losses = [row["step"] for row in rows], [row["data_loss"] + row[penalty] for row in rows]
        width = 2.2 if rate == best else 1.2
        axes.plot(steps, losses, color=SERIES[i % len(SERIES)], label=f"{rate:g}", linewidth=width)
        axes.plot(steps[-1:], losses[-1:], marker="o", markersize=4, color=SERIES[i % len(SERIES)])
    if all(row["data_loss"] + row[penalty] > 0 for row in history):
        axes.set_yscale("log")
    return finish(figure, axes, "step", "loss, nats per example")


def reliability_chart(
    bins: Sequence[Row], x_title: str = "confidence", y_title: str = "accuracy", *, before: Sequence[Row] | None = None
) -> str:
    """Draw how often predictions are right against their probability; the area of a dot is its share of the cases.

    Args:
        bins: Rows of `reliability`.
        x_title: Title of the horizontal axis.
        y_title: Title of the vertical axis.
        before: The same rows before calibration, if there was any.
    """
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1], color=FAINT, linestyle="--", linewidth=1, label="calibrated")
    if before is not None:
        old = [row for row in before if row["examples"]]
        points = [row["confidence"] for row in old], [row["accuracy"] for row in old]
        axes.plot(*points, color=SERIES[2], marker="x", markersize=5, linewidth=1, label="before calibration")
    filled = [row for row in bins if row["examples"]]
    total = sum(row["examples"] for row in filled)
    x, y = [row["confidence"] for row in filled], [row["accuracy"] for row in filled]
    axes.vlines(x, x, y, color=SERIES[1], linewidth=1.2, label="gap")
    areas = [12 + 300 * row["examples"] / total for row in filled]
    axes.scatter(x, y, s=areas, color=SERIES[0], alpha=0.8, zorder=3, label="this model")
    axes.set_xlim(0, 1.03)
    axes.set_ylim(0, 1.03)
    return finish(figure, axes, x_title, y_title)


def scatter_chart(points: dict[str, Any], name: str) -> str:
    """Draw predicted means with their 90 % intervals against targets.

    Args:
        points: Lists "target", "mean" and "std".
        name: Name of the number that is predicted.
    """
    figure, axes = new_figure()
    targets, means = points["target"], points["mean"]
    ends = [min(targets + means), max(targets + means)]
    axes.plot(ends, ends, color=FAINT, linestyle="--", linewidth=1, label="exact")
    axes.errorbar(
        targets,
        means,
        yerr=[1.645 * std for std in points["std"]],
        fmt="none",
        ecolor=SERIES[0],
        alpha=0.15,
        linewidth=1,
    )
    axes.scatter(targets, means, s=10, color=SERIES[0], alpha=0.6, linewidths=0, zorder=3, label="test example")
    return finish(figure, axes, f"true {name}", f"predicted {name}", above=2)


def residual_chart(points: dict[str, Any], name: str) -> str:
    """Draw errors (target minus prediction) over predictions.

    Args:
        points: Lists "target", "mean" and "std".
        name: Name of the number that is predicted.
    """
    figure, axes = new_figure()
    errors = [target - mean for target, mean in zip(points["target"], points["mean"], strict=True)]
    axes.axhline(0, color=FAINT, linestyle="--", linewidth=1)
    axes.scatter(points["mean"], errors, s=10, color=SERIES[1], alpha=0.6, linewidths=0, label="test example")
    low, high, least = min(points["mean"]), max(points["mean"]), max(points["std"]) / 10
    if least > 0 and high - low < least:  # all predictions are nearly the same: their last digits are no pattern
        axes.set_xlim((low + high - least) / 2, (low + high + least) / 2)
    return finish(figure, axes, f"predicted {name}", "true − predicted", above=2)


def coverage_chart(rows: Sequence[Row], before: Sequence[Row] | None = None) -> str:
    """Draw the share of targets inside central intervals against the probability of the intervals.

    Args:
        rows: Probabilities ("level") and shares.
        before: The same rows before calibration, if there was any.
    """
    figure, axes = new_figure()
    axes.plot([0, 1], [0, 1], color=FAINT, linestyle="--", linewidth=1, label="calibrated")
    if before is not None:
        points = [row["level"] for row in before], [row["share"] for row in before]
        axes.plot(*points, color=SERIES[2], marker="x", markersize=5, linewidth=1, label="before calibration")
    levels, shares = [row["level"] for row in rows], [row["share"] for row in rows]
    axes.plot(levels, shares, color=SERIES[0], marker="o", markersize=4, label="this model")
    axes.set_xlim(0, 1.03)
    axes.set_ylim(0, 1.03)
    return finish(figure, axes, "probability of the interval", "targets inside")


def confidence_chart(shares: dict[str, Sequence[float]]) -> str:
    """Draw how confident predictions are, for several sets of inputs.

    Args:
        shares: Shares of the inputs in bins of confidence between 0 and 1, by the name of the inputs.
    """
    figure, axes = new_figure()
    for (name, values), colour in zip(shares.items(), SERIES, strict=False):
        edges = [i / len(values) for i in range(len(values) + 1)]
        axes.stairs([100 * value for value in values], edges, color=colour, fill=True, alpha=0.25)
        axes.stairs([100 * value for value in values], edges, color=colour, label=name, linewidth=1.6)
    axes.set_xlim(0, 1.03)
    return finish(figure, axes, "confidence", "inputs, %")


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
        figure: The figure, with everything drawn.
        axes: The figure's axes.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        above: Number of columns of a legend above the axes; 0 for a legend inside, where there is room.
    """
    figure.draw_without_rendering()  # so that the ticks are known
    for axis, title in ((axes.xaxis, x), (axes.yaxis, y)):
        if offset := axis.get_major_formatter().get_offset():  # beside the axis it would cover its title
            title = f"{title} ({offset if offset.startswith('+') else '× ' + offset})"
            axis.get_offset_text().set_visible(False)
        axis.set_label_text(title, color=INK, fontsize=9.5)
    position = (
        {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": above, "columnspacing": 1.2} if above else {}
    )
    legend = axes.legend(fontsize=9.5, frameon=False, labelcolor=INK, **position)
    assert legend is not None
    matplotlib = require("matplotlib", "training")
    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "deelbo"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    for size in ("width", "height"):  # removed from the first tag, so that the page sets the size
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("'DejaVu Sans'", "system-ui")
    for variable, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg

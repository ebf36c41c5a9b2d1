"""Charts of a comparison: test results over time (Fig. 3 of the paper), and test results over kappa."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deelbo._wording import duration
from deelbo.compare.strategies import Curve
from deelbo.metrics import Metric
from deelbo.report.charts import SERIES, finish, new_figure

MARKERS = ("o", "s", "^", "D", "v", "P")  # one for each training set


@dataclass(frozen=True)
class MethodCurves:
    """Test results of one method over time.

    Args:
        label: Name of the method in the legend.
        colour: Number of the method's colour.
        curves: Number of each training set, with the method's curve on it.
    """

    label: str
    colour: int
    curves: list[tuple[int, Curve]]


def about_lines(methods: Sequence[MethodCurves]) -> str:
    """Return what must be said under a chart of results over time: which networks the lines of searches are about.

    Args:
        methods: Curves of the methods that are drawn.
    """
    lines = {m.label: [curve.retrained for _, curve in m.curves if len(curve.points) > 1] for m in methods}
    again = [label for label, kinds in lines.items() if kinds and all(kinds)]
    part = [label for label, kinds in lines.items() if False in kinds]
    sentences = []
    if again:
        sentences.append(
            f"Lines of {', '.join(again)}: networks trained again on all examples, with the time for it, as in the "
            "paper."
        )
    if part:
        sentences.append(
            f"Lines of {', '.join(part)}: networks trained on four fifths, without the time of training again. The "
            "paper's are of networks trained again; compare --retrain all makes the runs for that."
        )
    return " ".join(sentences)


def time_chart(methods: Sequence[MethodCurves], metric: Metric) -> str:
    """Draw the main metric on the test set over time, as SVG for a page.

    Args:
        methods: Curves of the methods to draw.
        metric: The main metric.
    """
    figure, axes = new_figure()
    draw_times(axes, methods, metric)
    return finish(figure, axes, "time", metric_title(metric), above=3)


def draw_times(axes: Any, methods: Sequence[MethodCurves], metric: Metric, colours: Sequence[str] = SERIES) -> None:
    """Draw the main metric on the test set over time into axes of matplotlib.

    Args:
        axes: The axes.
        methods: Curves of the methods to draw.
        metric: The main metric.
        colours: Colours, of which each method has the number of one.
    """
    factor = 100 if metric.percent else 1

    def scaled(values: Sequence[float]) -> list[float]:
        return [factor * value for value in values]

    for method in methods:
        colour = colours[method.colour % len(colours)]
        title = {"label": method.label}
        for number, curve in method.curves:
            if len(curve.points) > 1:
                seconds, reached, low, high = zip(*curve.points, strict=True)
                axes.plot(seconds, scaled(reached), color=colour, linewidth=1.6, **title)
                axes.fill_between(seconds, scaled(low), scaled(high), color=colour, alpha=0.13, linewidth=0)
                title = {}
            marker = MARKERS[number % len(MARKERS)]
            times, reached = zip(*curve.finals, strict=True)
            axes.plot(times, scaled(reached), color=colour, linestyle="", marker=marker, markersize=7, **title)
            title = {}
    axes.set_xscale("log")
    _show_times(axes)


def kappa_chart(rows: Sequence[dict[str, Any]], metric: Metric) -> str:
    """Draw a metric over kappa, as SVG for a page; see `draw_kappas`.

    Args:
        rows: Result rows of one model and prior, with several kappas.
        metric: Metric to draw.
    """
    figure, axes = new_figure()
    draw_kappas(axes, rows, metric)
    return finish(figure, axes, "κ (ring: D/N)", metric_title(metric), above=3)


def draw_kappas(axes: Any, rows: Sequence[dict[str, Any]], metric: Metric, colours: Sequence[str] = SERIES) -> None:
    """Draw a metric over kappa into axes of matplotlib: a line with a band for each training size, a ring at D/N.

    The line is the mean over training sets, the band one standard deviation around it. Where no run has kappa = D/N
    itself, as in a sweep from 1 to D, the ring lies on the line between its neighbours.

    Args:
        axes: The axes.
        rows: Result rows of one model and prior, with several kappas.
        metric: Metric to draw.
        colours: Colours, one for each training size.
    """
    factor = 100 if metric.percent else 1
    for number, size in enumerate(dict.fromkeys(row["train_size"] for row in rows)):
        of_size = [row for row in rows if row["train_size"] == size and row.get(metric.name) is not None]
        if not of_size:
            continue
        kappas = sorted({row["kappa"] for row in of_size})
        values = [[factor * row[metric.name] for row in of_size if row["kappa"] == kappa] for kappa in kappas]
        colour, means = colours[number % len(colours)], [statistics.fmean(group) for group in values]
        deviations = [statistics.stdev(group) if len(group) > 1 else 0.0 for group in values]
        axes.plot(kappas, means, color=colour, marker="o", markersize=4, label=f"N = {size}")
        low, high = ([m + sign * d for m, d in zip(means, deviations, strict=True)] for sign in (-1, 1))
        axes.fill_between(kappas, low, high, color=colour, alpha=0.13, linewidth=0)
        if (ring := _ring(of_size, kappas, means)) is not None:
            axes.plot(*ring, marker="o", markersize=11, markerfacecolor="none", linestyle="", color=colour)
    axes.set_xscale("log")


def _ring(
    rows: Sequence[dict[str, Any]], kappas: Sequence[float], means: Sequence[float]
) -> tuple[list[float], list[float]] | None:
    """Return where kappa = D/N is on a line; None if it is outside of the kappas that were tried."""
    own = [row["kappa"] for row in rows if row["default_kappa"]]
    ratio = own[0] if own else rows[0].get("data_ratio")
    if ratio is None or not kappas[0] <= ratio <= kappas[-1]:
        return None
    return [ratio], [float(np.interp(math.log(ratio), [math.log(kappa) for kappa in kappas], means))]


def metric_title(metric: Metric) -> str:
    """Return the title of an axis that shows a metric of the test set."""
    return f"test {metric.title}" + (", %" if metric.percent else "")


def _show_times(axes: Any) -> None:
    """Label the time axis in seconds, minutes and hours."""
    low, high = axes.get_xlim()
    roundest_first = [n * unit for n in (1, 3, 2, 5) for unit in (1, 10, 60, 600, 3600, 36000, 360000)]
    apart = 0.12 * math.log(high / low)  # or the labels would overlap
    chosen: list[float] = []
    for second in roundest_first:
        if low <= second <= high and all(abs(math.log(second / other)) > apart for other in chosen):
            chosen.append(second)
    chosen.sort()
    axes.minorticks_off()
    axes.set_xticks(chosen or [low, high], [duration(second) for second in chosen or [low, high]])

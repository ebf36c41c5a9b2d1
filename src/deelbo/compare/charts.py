"""Charts of a comparison: test results over time (Fig. 3 of the paper), and test results over kappa."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    """Draw the main metric on the test set over time.

    Args:
        methods: Curves of the methods to draw.
        metric: The main metric.
    """
    figure, axes = new_figure()
    factor = 100 if metric.percent else 1

    def scaled(values: Sequence[float]) -> list[float]:
        return [factor * value for value in values]

    for method in methods:
        colour = SERIES[method.colour % len(SERIES)]
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
    return finish(figure, axes, "time", f"test {metric.title}" + (", %" if metric.percent else ""), above=3)


def kappa_chart(rows: Sequence[dict[str, Any]], metric: Metric) -> str:
    """Draw a metric over kappa, one line for each training size; a ring is at D/N.

    Args:
        rows: Result rows of one model and prior, with several kappas.
        metric: Metric to draw.
    """
    figure, axes = new_figure()
    factor = 100 if metric.percent else 1
    for number, size in enumerate(dict.fromkeys(row["train_size"] for row in rows)):
        of_size = [row for row in rows if row["train_size"] == size and row.get(metric.name) is not None]
        of_size.sort(key=lambda row: row["kappa"])
        kappas = list(dict.fromkeys(row["kappa"] for row in of_size))
        values = [[factor * row[metric.name] for row in of_size if row["kappa"] == kappa] for kappa in kappas]
        colour, means = SERIES[number % len(SERIES)], [sum(group) / len(group) for group in values]
        axes.plot(kappas, means, color=colour, marker="o", markersize=4, label=f"N = {size}")
        axes.fill_between(kappas, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.13)
        for kappa, mean in zip(kappas, means, strict=True):
            if any(row["kappa"] == kappa and row["default_kappa"] for row in of_size):
                axes.plot([kappa], [mean], marker="o", markersize=11, markerfacecolor="none", color=colour)
    axes.set_xscale("log")
    return finish(figure, axes, "κ (ring: D/N)", f"test {metric.title}" + (", %" if metric.percent else ""), above=3)


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

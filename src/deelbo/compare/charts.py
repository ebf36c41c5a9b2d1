"""Charts of a comparison: accuracy over time (Fig. 3 of the paper), and what kappa does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deelbo.compare.results import duration
from deelbo.compare.strategies import Curve
from deelbo.report.charts import SERIES, finish, new_figure

MARKERS = ("o", "s", "^", "D", "v", "P")  # one for each training set
# Ours in the first colour; the others in the order of the paper's legend.
COLOURS = dict(zip(("de-elbo", "map-grid", "map-bo", "la-lml", "la-clml", "elbo"), SERIES, strict=True))


def time_chart(curves: Mapping[str, Sequence[tuple[int, Curve]]]) -> str:
    """Draw test accuracy over time.

    Args:
        curves: By the method's label, its curve for each seed (by number).
    """
    figure, axes = new_figure()
    for place, (name, found) in enumerate(curves.items()):
        colour = COLOURS.get(name.split(",")[0], SERIES[place % len(SERIES)])
        named = False
        for number, curve in found:
            title = {} if named else {"label": name}
            if len(curve.points) > 1:
                seconds, reached, low, high = zip(*curve.points, strict=True)
                axes.plot(seconds, _percent(reached), color=colour, linewidth=1.6, **title)
                axes.fill_between(seconds, _percent(low), _percent(high), color=colour, alpha=0.13, linewidth=0)
                title = {}
            marker = MARKERS[number % len(MARKERS)]
            times, reached = zip(*curve.finals, strict=True)
            axes.plot(times, _percent(reached), color=colour, linestyle="", marker=marker, markersize=7, **title)
            named = True
    axes.set_xscale("log")
    _show_times(axes)
    return finish(figure, axes, "time", "test accuracy, %", above=3)


def kappa_chart(rows: Sequence[dict[str, Any]], metric: str, title: str) -> str:
    """Draw a metric of DE-ELBO over kappa, one line for each training size; a ring is at D/N.

    Args:
        rows: Of method "de-elbo", of one model and prior.
        metric: Column.
        title: Of the axis.
    """
    figure, axes = new_figure()
    factor = 100 if "accuracy" in metric else 1
    for place, size in enumerate(dict.fromkeys(row["train_size"] for row in rows)):
        own = sorted((row for row in rows if row["train_size"] == size and row.get(metric) is not None),
                     key=lambda row: row["kappa"])  # fmt: skip
        kappas = list(dict.fromkeys(row["kappa"] for row in own))
        values = [[factor * row[metric] for row in own if row["kappa"] == kappa] for kappa in kappas]
        colour, means = SERIES[place % len(SERIES)], [sum(each) / len(each) for each in values]
        axes.plot(kappas, means, color=colour, marker="o", markersize=4, label=f"N = {size}")
        axes.fill_between(kappas, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.13)
        for kappa, mean in zip(kappas, means, strict=True):
            if any(row["kappa"] == kappa and row["default_kappa"] for row in own):
                axes.plot([kappa], [mean], marker="o", markersize=11, markerfacecolor="none", color=colour)
    axes.set_xscale("log")
    return finish(figure, axes, "κ (ring: D/N)", title, above=3)


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


def _show_times(axes: Any) -> None:
    """Label the time axis in seconds, minutes and hours."""
    low, high = axes.get_xlim()
    round_ones = [n * unit for unit in (1, 10, 60, 600, 3600, 36000, 360000) for n in (1, 2, 3, 5)]
    chosen = sorted({second for second in round_ones if low <= second <= high})
    while len(chosen) > 7:
        chosen = chosen[::2]
    axes.minorticks_off()
    axes.set_xticks(chosen or [low, high], [duration(second) for second in chosen or [low, high]])

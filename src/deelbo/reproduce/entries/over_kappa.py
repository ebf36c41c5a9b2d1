"""Test results over kappa: Fig. 1c, B.1 (accuracy) and B.2 (NLL), with standard deviations and a ring at D/N."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from deelbo._wording import counted
from deelbo.compare.charts import draw_kappas, metric_title
from deelbo.compare.results import Row, summary
from deelbo.metrics import Metric, metrics_of
from deelbo.reproduce.entry import ENTRIES, Claim, Reproduction, judge
from deelbo.reproduce.panels import COLOURS, markdown_table, panel_figure
from deelbo.reproduce.scales import DATASETS, IMAGES
from deelbo.reproduce.setup import Setup
from deelbo.reproduce.study import EntryOfStudies, Study, make_studies

NEAR = {"balanced_accuracy": 0.02, "nll": 0.1}  # of the best kappa, to be competitive
METRICS = metrics_of("categorical")


class OverKappa(EntryOfStudies):
    """DE-ELBO with kappas from 1 to D.

    Args:
        title: What it shows.
        metrics: Names of the metrics, each a panel for every dataset.
        datasets: Names of the datasets.
        largest: Whether only the largest training size is shown.
    """

    def __init__(self, title: str, metrics: Sequence[str], datasets: Sequence[str], largest: bool = False) -> None:
        self.title = title
        self.metrics = [METRICS[name] for name in metrics]
        self.studies = [
            Study("ConvNeXt-Tiny", name, methods=("de-elbo",), sweep=True, largest=largest) for name in datasets
        ]

    def make(self, setup: Setup) -> Reproduction:
        """Make all runs and draw the metrics over kappa."""
        made, notes = make_studies(self.studies, setup)
        rows = {}
        for study, comparison in made:
            found = study.rows(comparison)
            rows[study.dataset] = [row for row in found if not row["diverged"]]
            if lost := len(found) - len(rows[study.dataset]):
                notes.append(f"{counted(lost, 'run')} on {DATASETS[study.dataset].title} diverged and are not shown")
        numbers = {"rows": [row for of in rows.values() for row in of]}
        sizes = sorted({row["train_size"] for row in numbers["rows"]})
        colour = {size: COLOURS[number % len(COLOURS)] for number, size in enumerate(sizes)}  # the same in all panels
        panels = [
            (DATASETS[name].title, partial(_draw, rows=of, metric=metric, colour=colour))
            for metric in self.metrics
            for name, of in rows.items()
        ]
        figure = panel_figure(panels, "κ (ring: D/N)", "", columns=max(2, len(rows)))
        claims = [claim for metric in self.metrics for claim in _claims(rows, metric)]
        return Reproduction(numbers, figure, _table(rows, self.metrics), claims, notes)


def _draw(axes: Any, rows: list[Row], metric: Metric, colour: dict[int, str]) -> None:
    draw_kappas(axes, rows, metric, [colour[size] for size in dict.fromkeys(row["train_size"] for row in rows)])
    axes.set_ylabel(metric_title(metric), fontsize=8)


def _cells(rows: list[Row]) -> dict[tuple[int, float], list[Row]]:
    """Return rows by training size and kappa."""
    cells: dict[tuple[int, float], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["train_size"], row["kappa"] or 0)):
        cells.setdefault((row["train_size"], row["kappa"]), []).append(row)
    return cells


def _table(rows: dict[str, list[Row]], metrics: list[Metric]) -> str:
    lines = []
    for name, of in rows.items():
        for (size, kappa), group in _cells(of).items():
            default = " = D/N" if any(row["default_kappa"] for row in group) else ""
            cells = [summary([row.get(metric.name) for row in group], metric.show_number) for metric in metrics]
            lines.append([DATASETS[name].title, str(size), f"{kappa:.4g}{default}", *cells])
    return markdown_table(["data", "N", "kappa", *(metric_title(metric) for metric in metrics)], lines)


def _claims(rows: dict[str, list[Row]], metric: Metric) -> list[Claim]:
    competitive, better, words = [], [], []
    sign, near = 1 if metric.better == "higher" else -1, NEAR[metric.name]
    for name, of in rows.items():
        for size in dict.fromkeys(row["train_size"] for row in of):
            means = {
                (kappa, any(row["default_kappa"] for row in group)): statistics.fmean(row[metric.name] for row in group)
                for (n, kappa), group in _cells(of).items() if n == size
            }  # fmt: skip
            ours = next(value for (_, default), value in means.items() if default)
            best, one = max(means.values(), key=lambda value: sign * value), means[min(means)]
            competitive.append(sign * (ours - best) >= -near)
            better.append(sign * (ours - one) > 0)
            shown, of_best, of_one = (metric.show(value) for value in (ours, best, one))
            where = f"{DATASETS[name].title}, N = {size}"
            words.append(f"{where}: {shown} at D/N, {of_best} at the best kappa, {of_one} at kappa = 1")
    title, evidence = metric.title, "; ".join(words)
    distance = f"{100 * near:g} points" if metric.percent else f"{near:g}"
    return [
        judge(f"{title}: kappa = D/N is competitive, within {distance} of the best kappa", competitive, evidence),
        judge(f"{title}: kappa = D/N is better than the ELBO (kappa = 1)", better, evidence),
    ]


ENTRIES.register("fig-1c", "accuracy and NLL over kappa, CIFAR-10")(
    OverKappa("test accuracy and NLL over kappa, CIFAR-10", ("balanced_accuracy", "nll"), ["cifar10"], largest=True)
)
ENTRIES.register("fig-b1", "accuracy over kappa")(
    OverKappa("test accuracy over kappa on three datasets", ("balanced_accuracy",), IMAGES)
)
ENTRIES.register("fig-b2", "NLL over kappa")(OverKappa("test NLL over kappa on three datasets", ("nll",), IMAGES))

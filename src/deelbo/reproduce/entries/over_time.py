"""Test accuracy over time, a panel for each dataset and training size: Fig. 3, B.3, B.4, B.5 and B.6."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from deelbo._wording import duration
from deelbo.compare.charts import MethodCurves, about_lines, draw_times, metric_title
from deelbo.compare.page import curves_of
from deelbo.compare.results import Row, summary
from deelbo.metrics import main_metric
from deelbo.reproduce.entry import ENTRIES, Claim, Reproduction, judge
from deelbo.reproduce.panels import COLOURS, markdown_table, panel_figure
from deelbo.reproduce.scales import DATASETS, IMAGES, TEXTS, TITLES, Scale
from deelbo.reproduce.setup import Setup
from deelbo.reproduce.study import EntryOfStudies, Study, make_studies

NEAR = 1.0  # points of accuracy that count as similar
METRIC = main_metric("categorical")


class OverTime(EntryOfStudies):
    """What each search would have reached if it had stopped earlier.

    Args:
        title: What it shows.
        tasks: Network and dataset of each row of panels.
    """

    def __init__(self, title: str, tasks: Sequence[tuple[str, str]]) -> None:
        self.title = title
        self.studies = [Study(network, dataset) for network, dataset in tasks]

    def make(self, setup: Setup) -> Reproduction:
        """Make all runs and draw the accuracy over their times."""
        made, notes = make_studies(self.studies, setup)
        panels, rows, about = [], [], []
        for study, comparison in made:
            of_study = study.rows(comparison)
            rows += of_study
            wanted = {row["method"] for row in of_study}
            for (_, _, size), methods in curves_of(comparison).items():
                shown = [
                    MethodCurves(TITLES[method.label], method.colour, method.curves)
                    for method in methods
                    if method.label in wanted
                ]
                about.append(about_lines(shown))
                title = f"{_trained(study, setup.scale)}, {DATASETS[study.dataset].title}, N = {size}"
                panels.append((title, partial(_draw, methods=shown)))
        notes += dict.fromkeys(about)
        notes.append("Markers are the final networks, trained on the whole training set; a shape is a training set")
        if setup.scale.name == "laptop":
            notes.append("ResNet-50, ViT-B/16 and ConvNeXt-Tiny are the same small network here, so their runs are too")
        figure = panel_figure(panels, "time of one search", metric_title(METRIC))
        return Reproduction({"rows": rows}, figure, _table(rows), _claims(rows), notes)


def _trained(study: Study, scale: Scale) -> str:
    """Return the name of the network that was trained, which on a laptop is not the paper's."""
    return study.network if scale.name == "paper" else re.split("[:/]", scale.models[study.network].model)[-1]


def _draw(axes: Any, methods: list[MethodCurves]) -> None:
    draw_times(axes, methods, METRIC, COLOURS)


def _groups(rows: list[Row]) -> dict[tuple[str, str, int], dict[str, list[Row]]]:
    """Return rows by network, dataset and training size, and by method."""
    groups: dict[tuple[str, str, int], dict[str, list[Row]]] = {}
    for row in rows:
        place = row["network"], row["dataset"], row["train_size"]
        groups.setdefault(place, {}).setdefault(row["method"], []).append(row)
    return groups


def _table(rows: list[Row]) -> str:
    lines = [
        [
            network,
            DATASETS[dataset].title,
            str(size),
            TITLES[method],
            summary([row.get(METRIC.name) for row in group], METRIC.show_number),
            summary([row["seconds"] for row in group], duration),
            f"{sum(row['runs'] for row in group) / len(group):.3g}",
        ]
        for (network, dataset, size), methods in _groups(rows).items()
        for method, group in methods.items()
    ]
    return markdown_table(["network", "data", "N", "method", "accuracy, %", "time of one search", "full runs"], lines)


def _claims(rows: list[Row]) -> list[Claim]:
    near: list[tuple[bool, str]] = []
    faster: list[tuple[bool, str]] = []
    better: list[tuple[bool, str]] = []
    for (network, dataset, size), methods in _groups(rows).items():
        accuracy = {name: 100 * _mean(group, METRIC.name) for name, group in methods.items()}
        seconds = {name: _mean(group, "seconds") for name, group in methods.items()}
        best = max((name for name in methods if name not in ("de-elbo", "elbo")), key=lambda name: accuracy[name])
        ours, time = accuracy["de-elbo"], seconds["de-elbo"]
        where = f"{network}, {DATASETS[dataset].title}, N = {size}:"
        words = f"{where} {ours:.1f} % against {accuracy[best]:.1f} % of {TITLES[best]} in {duration(seconds[best])}"
        near.append((ours >= accuracy[best] - NEAR, words))
        words = f"{where} {duration(time)} against {duration(seconds['map-grid'])}"
        faster.append((time < seconds["map-grid"], words))
        if "elbo" in methods:
            better.append((ours > accuracy["elbo"], f"{where} {ours:.1f} % against {accuracy['elbo']:.1f} %"))
    claims = {
        f"DE-ELBO is as accurate as the best rival, within {NEAR:g} point": near,
        "DE-ELBO takes less time than grid search": faster,
        "DE-ELBO is more accurate than the ELBO": better,
    }
    return [
        judge(claim, [holds for holds, _ in found], "; ".join(words for _, words in found))
        for claim, found in claims.items()
        if found
    ]


def _mean(rows: list[Row], name: str) -> float:
    return sum(row.get(name) or 0.0 for row in rows) / len(rows)


def _images(network: str) -> list[tuple[str, str]]:
    return [(network, dataset) for dataset in IMAGES]


_TEXTS = [("BERT-base", dataset) for dataset in TEXTS]

ENTRIES.register("fig-3", "accuracy over time, images and texts")(
    OverTime("test accuracy over time, images and texts", [*_images("ConvNeXt-Tiny"), *_TEXTS])
)
for _name, _network in (("fig-b3", "ConvNeXt-Tiny"), ("fig-b4", "ViT-B/16"), ("fig-b5", "ResNet-50")):
    ENTRIES.register(_name, f"accuracy over time, {_network}")(
        OverTime(f"test accuracy over time, {_network} on three datasets", _images(_network))
    )
ENTRIES.register("fig-b6", "accuracy over time, BERT-base")(
    OverTime("test accuracy over time, BERT-base on News-4", _TEXTS)
)

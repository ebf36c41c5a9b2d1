"""What a comparison found, as rows, as tables like the paper's, and as curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deelbo._words import csv_text
from deelbo.compare.comparison import Comparison, Entry
from deelbo.compare.strategies.base import accuracy
from deelbo.compare.task import model_name, prior_name
from deelbo.training.checkpoint import write_text

Row = dict[str, Any]

COLUMNS = (
    "model", "prior", "train_size", "seed", "method", "kappa", "repetition", "accuracy", "balanced_accuracy", "nll",
    "ece", "seconds", "runs", "learning_rate", "variance_backbone", "variance_head", "scale", "score", "diverged",
    "key",
)  # fmt: skip
# Title, how a value is shown, and which is best.
METRICS: dict[str, tuple[str, Callable[[float], str], Callable[..., float] | None]] = {
    "balanced_accuracy": ("Accuracy, mean of classes, %", lambda v: f"{100 * v:.1f}", max),
    "nll": ("NLL", lambda v: f"{v:.3f}", min),
    "ece": ("ECE, %", lambda v: f"{100 * v:.1f}", min),
    "seconds": ("Time of one search, with its final run", lambda v: duration(v), None),
    "runs": ("Training runs of one search", lambda v: f"{v:.3g}", None),
}


def rows_of(comparison: Comparison) -> list[Row]:
    """Return a row for every finished answer: task, method, what it reached and what it cost."""
    return [row for entry in comparison.entries if entry.finished() for row in _rows(entry)]


def _rows(entry: Entry) -> list[Row]:
    task, strategy, done, plan = entry.task, entry.strategy, entry.done, entry.plan()
    costs = [seconds for seconds, _ in strategy.curve(task, done).finals]
    runs = sum(record["runs"] for record in entry.records()) / len(plan.finals)
    rows = []
    for repetition, (final, chosen, seconds) in enumerate(zip(plan.finals, plan.chosen, costs, strict=True)):
        record, best = done(final), done(chosen)
        assert record is not None
        assert best is not None
        variances = {name: math.inf if v is None else v for name, v in (record.get("prior_variances") or {}).items()}
        rows.append(
            {
                "model": model_name(task.job.model),
                "prior": prior_name(task.prior),
                "train_size": task.number,
                "seed": task.seed,
                "method": strategy.name,
                "kappa": record.get("kappa"),
                "repetition": repetition,
                **(record["test"] or {}),
                "seconds": seconds,
                "runs": runs,
                "learning_rate": record.get("learning_rate"),
                "variance_backbone": variances.get("backbone"),
                "variance_head": variances.get("head"),
                "scale": record.get("scale"),
                "score": strategy.score(best),
                "diverged": record["diverged"],
                "key": final.key,
                "label": label(entry),
                "default_kappa": default_kappa(entry),
            }
        )
    return rows


def default_kappa(entry: Entry) -> bool:
    """Tell whether this is DE-ELBO as it is meant: with D/N, or the only kappa that was asked for."""
    return entry.strategy.kappa is None or len(entry.task.options.kappas) == 1


def label(entry: Entry) -> str:
    """Return the method's name, with kappa where there are several."""
    strategy, several = entry.strategy, len(entry.task.options.kappas) > 1
    if strategy.name != "de-elbo" or not several:
        return strategy.name
    return f"de-elbo, kappa {'D/N' if strategy.kappa is None else format(strategy.kappa, '.3g')}"


def leaders(comparison: Comparison) -> list[list[str]]:
    """Return, for each method on each task, how many runs are done and the test accuracy of its best one so far.

    What is at work comes first, then what waits, then what is finished.
    """
    lines = []
    for entry in sorted(comparison.entries, key=lambda entry: (entry.finished(), not entry.records())):
        task, plan, found = entry.task, entry.plan(), entry.records()
        known = [record for record in found if record["test"]]
        finals = [record for trial in plan.finals if (record := comparison.done(trial)) is not None]
        best = max(finals or known, key=entry.strategy.score, default=None)
        reached = "" if best is None else f"{100 * accuracy(best):.1f} %" + (", final" if finals else "")
        where = [model_name(task.job.model), prior_name(task.prior), str(task.number), str(task.seed)]
        lines.append([*where, label(entry), f"{len(found)} of {plan.expected}", reached])
    return lines


def write_results(comparison: Comparison, folder: Path) -> list[Row]:
    """Write `results.csv` and `results.md`.

    Args:
        comparison: As far as it is finished.
        folder: Where to.

    Returns:
        The rows.
    """
    rows = rows_of(comparison)
    write_text(folder / "results.csv", csv_text(rows, COLUMNS))
    write_text(folder / "results.md", markdown(rows))
    return rows


@dataclass(frozen=True)
class ResultTable:
    """One metric of one model.

    Args:
        title: Model and metric.
        head: Names of the columns.
        cells: Prior, method, and "mean (min-max)" over seeds and repetitions for each training size.
        best: Row and column of the best cell of each training size, where one is best.
    """

    title: str
    head: list[str]
    cells: list[list[str]]
    best: set[tuple[int, int]]


def tables(rows: Sequence[Row]) -> Iterator[ResultTable]:
    """Yield a table for each model and metric."""
    for model in _different(rows, "model"):
        own = [row for row in rows if row["model"] == model]
        sizes = _different(own, "train_size")
        lines = list(dict.fromkeys((row["prior"], row["label"]) for row in own))
        found = {
            (line, size): [row for row in own if (row["prior"], row["label"], row["train_size"]) == (*line, size)]
            for line in lines
            for size in sizes
        }
        for metric, (title, show, better) in METRICS.items():
            cells: list[list[str]] = [list(line) for line in lines]
            best: set[tuple[int, int]] = set()
            for column, size in enumerate(sizes, 2):
                values = [[row.get(metric) for row in found[line, size]] for line in lines]
                for cell, each in zip(cells, values, strict=True):
                    cell.append(summary(each, show))
                means = {place: mean for place, each in enumerate(values) if (mean := _mean(each)) is not None}
                complete = len({len(each) for each in values if each}) <= 1  # no means over different training sets
                if better is not None and means and complete:
                    top = better(means.values())
                    best |= {(place, column) for place, mean in means.items() if mean == top}
            yield ResultTable(f"{model}: {title}", ["prior", "method", *(f"N = {s}" for s in sizes)], cells, best)


def markdown(rows: Sequence[Row]) -> str:
    """Return the tables in Markdown."""
    parts = []
    for table in tables(rows):
        cells = [
            [f"**{cell}**" if (i, j) in table.best else cell for j, cell in enumerate(line)]
            for i, line in enumerate(table.cells)
        ]
        lines = ["| " + " | ".join(line) + " |" for line in [table.head, ["---"] * len(table.head), *cells]]
        parts.append(f"### {table.title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def summary(values: Sequence[float | None], show: Callable[[float], str]) -> str:
    """Return "mean (min-max)", or the only value."""
    known = _known(values)
    if not known:
        return "diverged" if values else ""
    mean, low, high = (show(value) for value in (sum(known) / len(known), min(known), max(known)))
    lost = f", {len(values) - len(known)} diverged" if len(known) < len(values) else ""
    return (mean if low == high else f"{mean} ({low}–{high})") + lost


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h" if seconds < 3.6e6 else f"{seconds / 3600:,.0f} h"


def _different(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))

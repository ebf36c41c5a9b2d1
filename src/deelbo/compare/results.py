"""The results of a comparison as rows, and as tables like the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deelbo._files import write_text
from deelbo._wording import csv_text, duration
from deelbo.compare.comparison import Comparison, Entry
from deelbo.compare.model_choice import choice_markdown
from deelbo.compare.problem import model_name
from deelbo.compare.strategies import make_strategies
from deelbo.compare.strategies.base import test_result
from deelbo.metrics import main_metric, metrics_of
from deelbo.priors import short_name

Row = dict[str, Any]

BEFORE_METRICS = ("model", "prior", "train_size", "seed", "method", "kappa", "repetition")
AFTER_METRICS = (
    "seconds", "runs", "learning_rate", "variance_backbone", "variance_head", "scale", "posterior", "score", "diverged",
    "key",
)  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """How a column is shown in the tables.

    Args:
        title: Title of the column's table.
        show: Function that returns a value as text.
        best: Function that returns the best of several values; None if no value is better than another.
    """

    title: str
    show: Callable[[float], str]
    best: Callable[..., float] | None = None


def shown_columns(likelihood: str) -> dict[str, Shown]:
    """Return the columns that have a table of their own: the likelihood's metrics, time and number of runs."""
    best = {"higher": max, "lower": min}
    metrics = {
        name: Shown(metric.title + (", %" if metric.percent else ""), metric.show_number, best.get(metric.better))
        for name, metric in metrics_of(likelihood).items()
    }
    calibrated = {
        f"calibrated_{name}": replace(shown, title=f"{shown.title}, calibrated on the training set")
        for name, shown in metrics.items()
        if name in ("nll", "ece")
    }
    return {
        **metrics,
        **calibrated,
        "seconds": Shown("time of one search, with its final run", duration),
        "runs": Shown("training runs of one search", lambda value: f"{value:.3g}"),
    }


def rows_of(comparison: Comparison) -> list[Row]:
    """Return a row for every finished search: problem, method, test results and cost."""
    return [row for entry in comparison.entries if entry.finished() for row in _rows(entry)]


def _rows(entry: Entry) -> list[Row]:
    problem, strategy, known, plan = entry.problem, entry.strategy, entry.known, entry.plan()
    costs = [seconds for seconds, _ in strategy.curve(problem, known).finals]
    runs = sum(record["runs"] for record in entry.records()) / len(plan.finals)
    rows = []
    for repetition, (final, chosen, seconds) in enumerate(zip(plan.finals, plan.chosen, costs, strict=True)):
        record, best = known(final), known(chosen)
        assert record is not None
        assert best is not None
        variances = {name: math.inf if v is None else v for name, v in (record.get("prior_variances") or {}).items()}
        rows.append(
            {
                "model": model_name(problem.model_spec.model),
                "prior": short_name(problem.prior),
                "train_size": problem.number,
                "seed": problem.seed,
                "method": strategy.name,
                "kappa": record.get("kappa"),
                "repetition": repetition,
                **(record["test"] or {}),
                "temperature": record.get("temperature"),
                **{f"calibrated_{name}": value for name, value in (record.get("calibrated") or {}).items()},
                "seconds": seconds,
                "runs": runs,
                "learning_rate": record.get("learning_rate"),
                "variance_backbone": variances.get("backbone"),
                "variance_head": variances.get("head"),
                "scale": record.get("scale"),
                "posterior": None if record.get("scale") is None else final.settings.posterior,
                "score": strategy.score(best),
                "kl": record.get("kl"),
                "diverged": record["diverged"],
                "key": final.key,
                "label": label(entry),
                "default_kappa": default_kappa(entry),
                "data_ratio": _data_ratio(record),
                "role": strategy.role,
                "likelihood": problem.likelihood,
            }
        )
    return rows


def _data_ratio(record: dict[str, Any]) -> float | None:
    """Return max(1, D/N) of a run, which is the default of kappa for classes; None if its record has no D."""
    return max(1.0, record["num_params"] / record["num_data"]) if record.get("num_params") else None


def default_kappa(entry: Entry) -> bool:
    """Tell whether a method runs with kappa = D/N, or with the only kappa that was asked for."""
    return entry.strategy.kappa is None or len(entry.problem.options.kappas) == 1


def label(entry: Entry) -> str:
    """Return the method's name, with kappa where it is run with several, and with its variant."""
    strategy, variant = entry.strategy, getattr(entry.strategy, "variant", "")
    kappas = {other.kappa for other in make_strategies(entry.problem.options) if other.name == strategy.name}
    kappa = f"kappa {'D/N' if strategy.kappa is None else format(strategy.kappa, '.3g')}" if len(kappas) > 1 else ""
    return ", ".join(part for part in (strategy.name, kappa, variant) if part)


def leaders(comparison: Comparison) -> list[list[str]]:
    """Return, for each method on each problem, how many runs are done and the test result of its best one so far.

    Searches with some finished runs come first, then those without any, then finished searches.
    """
    lines = []
    for entry in sorted(comparison.entries, key=lambda entry: (entry.finished(), not entry.records())):
        problem, plan, finished = entry.problem, entry.plan(), entry.records()
        tested = [record for record in finished if record["test"]]
        finals = [record for trial in plan.finals if (record := comparison.known(trial)) is not None]
        best = max(finals or tested, key=entry.strategy.score, default=None)
        metric = main_metric(problem.likelihood)
        reached = "" if best is None else metric.show(test_result(best)) + (", final" if finals else "")
        where = [
            model_name(problem.model_spec.model),
            short_name(problem.prior),
            str(problem.number),
            str(problem.seed),
        ]
        lines.append([*where, label(entry), f"{len(finished)} of {plan.expected}", reached])
    return lines


def write_results(comparison: Comparison, folder: Path) -> list[Row]:
    """Write `results.csv` and `results.md`.

    Args:
        comparison: The comparison, finished or not.
        folder: Folder for the files.

    Returns:
        A row for every finished search.
    """
    rows = rows_of(comparison)
    metrics = list(metrics_of(comparison.entries[0].problem.likelihood))
    calibrated = ("temperature", *(f"calibrated_{name}" for name in metrics))
    columns = (*BEFORE_METRICS, *metrics, *calibrated, *AFTER_METRICS)
    write_text(folder / "results.csv", csv_text(rows, columns))
    write_text(folder / "results.md", "\n".join(part for part in (markdown(rows), choice_markdown(rows)) if part))
    return rows


@dataclass(frozen=True)
class ResultTable:
    """A table of one metric for one model.

    Args:
        title: Model and metric.
        head: Names of the columns.
        cells: Rows with prior, method, and for each training size "mean (min-max)" over seeds and repetitions.
        best: Row and column of the best cells of each training size.
    """

    title: str
    head: list[str]
    cells: list[list[str]]
    best: set[tuple[int, int]]


def tables(rows: Sequence[Row]) -> Iterator[ResultTable]:
    """Yield a table for each model and metric."""
    for model in _different(rows, "model"):
        of_model = [row for row in rows if row["model"] == model]
        sizes = _different(of_model, "train_size")
        lines = list(dict.fromkeys((row["prior"], row["label"]) for row in of_model))
        by_cell = {
            (line, size): [row for row in of_model if (row["prior"], row["label"], row["train_size"]) == (*line, size)]
            for line in lines
            for size in sizes
        }
        for metric, shown in shown_columns(of_model[0]["likelihood"]).items():
            if metric.startswith("calibrated") and not all(
                metric in row for row in of_model if not row.get("diverged")
            ):
                continue  # records from before there was calibration
            cells: list[list[str]] = [list(line) for line in lines]
            best: set[tuple[int, int]] = set()
            for column, size in enumerate(sizes, 2):
                values = [[row.get(metric) for row in by_cell[line, size]] for line in lines]
                for cell, repeated in zip(cells, values, strict=True):
                    cell.append(summary(repeated, shown.show))
                means = {
                    row_number: mean
                    for row_number, repeated in enumerate(values)
                    if (mean := _mean(repeated)) is not None
                }
                complete = len({len(repeated) for repeated in values if repeated}) <= 1  # else means are not comparable
                if shown.best is not None and means and complete:
                    top = shown.best(means.values())
                    best |= {(row_number, column) for row_number, mean in means.items() if mean == top}
            yield ResultTable(f"{model}: {shown.title}", ["prior", "method", *(f"N = {s}" for s in sizes)], cells, best)


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
    to = " to " if low.startswith("-") else "–"  # a dash before a minus sign is unreadable
    return (mean if low == high else f"{mean} ({low}{to}{high})") + lost


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _different(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))

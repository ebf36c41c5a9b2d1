"""`compare.html`: a self-contained page, made from the records of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deelbo._files import write_text
from deelbo._wording import duration
from deelbo.compare.charts import MethodCurves, about_lines, kappa_chart, time_chart
from deelbo.compare.comparison import Comparison
from deelbo.compare.model_choice import model_choices
from deelbo.compare.problem import model_name
from deelbo.compare.results import Row, default_kappa, label, tables
from deelbo.compare.strategies.base import SUBSETS
from deelbo.metrics import main_metric, metrics_of
from deelbo.priors import short_name
from deelbo.report.page import render


def write_page(comparison: Comparison, rows: list[Row], folder: Path) -> Path:
    """Write the page of a comparison with the results so far.

    Args:
        comparison: The comparison, with its records.
        rows: Result rows, one for every finished search.
        folder: Folder for the page.

    Returns:
        Path of the page.
    """
    path = folder / "compare.html"
    write_text(path, render("page.html", _facts(comparison, rows, folder.absolute().name), Path(__file__).parent))
    return path


def _facts(comparison: Comparison, rows: list[Row], name: str) -> dict[str, Any]:
    entries = comparison.entries
    problem = entries[0].problem
    tests = [record["tested"] for entry in entries for record in entry.records() if "tested" in record]
    return {
        "name": name,
        "data": Path(problem.data_spec.data).name,
        "methods": list(problem.options.methods),
        "entries": len(entries),
        "unfinished": sum(not entry.finished() for entry in entries),
        "cost": _cost(comparison),
        "cards": _cards(rows),
        "metric": main_metric(problem.likelihood),
        "subsets": SUBSETS,
        "panels": _panels(comparison),
        "sweeps": _sweeps(rows),
        "test": tests[0] if tests else 0,
        "choices": model_choices(rows),
        "tables": list(tables(rows)),
        "rows": rows,
        "settings": {
            **problem.options.settings,
            **{k: v for k, v in vars(problem.options).items() if k not in ("settings", "kappas")},
            "kappas": list(dict.fromkeys("D/N" if k is None else k for e in entries for k in e.problem.options.kappas)),
            **{
                name: size
                for name in ("image_size", "max_length", "resize", "normalize")
                if (size := getattr(problem.model_spec, name)) is not None
            },
            "precision": problem.precision,
        },
    }


def _cost(comparison: Comparison) -> dict[str, str]:
    """Return what all runs cost together, each counted once."""
    records = {record["key"]: record for entry in comparison.entries for record in entry.records()}
    seconds = sum(v for r in records.values() for part, v in r["seconds"].items() if part != "test")
    equivalents = sum(record["runs"] for record in records.values())
    return {"runs": str(len(records)), "equivalents": f"{equivalents:.3g}", "time": duration(seconds)}


def _cards(rows: list[Row]) -> list[dict[str, str]]:
    """Return a card for each rival: how the reference (DE-ELBO) differs from it in the main metric and in time."""

    def problem_of(row: Row) -> tuple[Any, ...]:
        return row["model"], row["prior"], row["train_size"], row["seed"]

    reference = {
        problem_of(r): r for r in rows if r["role"] == "reference" and r["default_kappa"] and not r["diverged"]
    }
    cards = []
    for method in dict.fromkeys(row["method"] for row in rows if row["role"] == "rival"):
        rivals = [
            row for row in rows if row["method"] == method and not row["diverged"] and problem_of(row) in reference
        ]
        metric = main_metric(rows[0]["likelihood"])
        pairs = [(reference[problem_of(row)], row) for row in rivals]
        pairs = [pair for pair in pairs if None not in (pair[0][metric.name], pair[1][metric.name])]
        if pairs:
            gain = sum(ours[metric.name] - rival[metric.name] for ours, rival in pairs) / len(pairs)
            faster = sum(rival["seconds"] for _, rival in pairs) / sum(ours["seconds"] for ours, _ in pairs)
            unit = "points" if metric.percent else f"{metric.title} ({metric.better} is better)"
            title = f"{unit}, {pairs[0][0]['method']} against {method}, at {faster:.1f} times its speed"
            cards.append({"value": f"{100 * gain:+.1f}" if metric.percent else f"{gain:+.3g}", "title": title})
    return cards


def _panels(comparison: Comparison) -> list[dict[str, str]]:
    """Return a chart of the main metric over time for each model, prior and training size."""
    metric = main_metric(comparison.entries[0].problem.likelihood)
    return [
        {
            "title": f"{model}, {prior}, N = {size}",
            "chart": time_chart(methods, metric),
            "note": about_lines(methods),
        }
        for (model, prior, size), methods in curves_of(comparison).items()
    ]


def curves_of(comparison: Comparison) -> dict[tuple[str, str, int], list[MethodCurves]]:
    """Return the curves of all finished methods over time, by model, prior and training size."""
    panels: dict[tuple[str, str, int], dict[str, MethodCurves]] = {}
    seeds: dict[int, int] = {}
    for entry in comparison.entries:
        problem = entry.problem
        number = seeds.setdefault(problem.seed, len(seeds))
        if entry.finished() and default_kappa(entry):
            key = model_name(problem.model_spec.model), short_name(problem.prior), problem.number
            methods = panels.setdefault(key, {})
            method = methods.setdefault(label(entry), MethodCurves(label(entry), entry.strategy.colour, []))
            method.curves.append((number, entry.strategy.curve(problem, comparison.known)))
    return {key: list(methods.values()) for key, methods in panels.items()}


def _sweeps(rows: list[Row]) -> list[dict[str, str]]:
    """Return charts of the main metric and NLL over kappa, for models and priors with several kappas."""
    charts = []
    for model, prior in dict.fromkeys((row["model"], row["prior"]) for row in rows):
        reference_rows = [
            row
            for row in rows
            if (row["model"], row["prior"], row["role"]) == (model, prior, "reference") and not row["diverged"]
        ]
        if len({row["label"] for row in reference_rows}) > 1:
            likelihood = reference_rows[0]["likelihood"]
            for metric in (main_metric(likelihood), metrics_of(likelihood)["nll"]):
                charts.append({"title": f"{model}, {prior}", "chart": kappa_chart(reference_rows, metric)})
    return charts

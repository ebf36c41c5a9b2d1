"""`compare.html`: one file that needs nothing else, from the records of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deelbo.compare.charts import kappa_chart, time_chart
from deelbo.compare.comparison import Comparison
from deelbo.compare.results import Row, default_kappa, duration, label, tables
from deelbo.compare.strategies.base import SUBSETS
from deelbo.compare.task import model_name, prior_name
from deelbo.report.page import render
from deelbo.training.checkpoint import write_text


def write_page(comparison: Comparison, rows: list[Row], folder: Path) -> Path:
    """Write the page of a comparison, as far as it is finished.

    Args:
        comparison: With its records.
        rows: Of its finished answers.
        folder: Where to.

    Returns:
        Where it is.
    """
    path = folder / "compare.html"
    write_text(path, render(Path(__file__).with_name("page.html"), _facts(comparison, rows, folder.absolute().name)))
    return path


def _facts(comparison: Comparison, rows: list[Row], name: str) -> dict[str, Any]:
    entries = comparison.entries
    task = entries[0].task
    tests = [record["tested"] for entry in entries for record in entry.records() if "tested" in record]
    return {
        "name": name,
        "data": Path(task.job.data).name,
        "methods": list(task.options.methods),
        "entries": len(entries),
        "unfinished": sum(not entry.finished() for entry in entries),
        "cost": _cost(comparison),
        "cards": _cards(rows),
        "subsets": SUBSETS,
        "panels": _panels(comparison),
        "sweeps": _sweeps(rows),
        "test": tests[0] if tests else 0,
        "tables": list(tables(rows)),
        "rows": rows,
        "settings": {
            **task.options.settings,
            **{k: v for k, v in vars(task.options).items() if k not in ("settings", "kappas")},
            "kappas": list(dict.fromkeys("D/N" if k is None else k for e in entries for k in e.task.options.kappas)),
            **{name: size for name in ("image_size", "max_length") if (size := getattr(task.job, name)) is not None},
            "precision": task.precision,
        },
    }


def _cost(comparison: Comparison) -> dict[str, str]:
    """What all runs cost together, each counted once."""
    found = {record["key"]: record for entry in comparison.entries for record in entry.records()}
    seconds = sum(v for r in found.values() for part, v in r["seconds"].items() if part != "test")
    equivalents = sum(record["runs"] for record in found.values())
    return {"runs": str(len(found)), "equivalents": f"{equivalents:.3g}", "time": duration(seconds)}


def _cards(rows: list[Row]) -> list[dict[str, str]]:
    """DE-ELBO beside the best search by its own choice: difference in accuracy, and in time."""
    ours = {(r["model"], r["prior"], r["train_size"], r["seed"]): r for r in rows
            if r["method"] == "de-elbo" and r["default_kappa"]}  # fmt: skip
    cards = []
    for method in dict.fromkeys(row["method"] for row in rows if row["method"] not in ("de-elbo", "elbo")):
        pairs = [
            (own, row) for row in rows if row["method"] == method and not row["diverged"]
            and (own := ours.get((row["model"], row["prior"], row["train_size"], row["seed"]))) and not own["diverged"]
        ]  # fmt: skip
        if pairs:
            gain = sum(own["balanced_accuracy"] - row["balanced_accuracy"] for own, row in pairs) / len(pairs)
            faster = sum(row["seconds"] for _, row in pairs) / sum(own["seconds"] for own, _ in pairs)
            title = f"points, de-elbo against {method}, at {faster:.1f} times its speed"
            cards.append({"value": f"{100 * gain:+.1f}", "title": title})
    return cards


def _panels(comparison: Comparison) -> list[dict[str, str]]:
    """One chart of accuracy over time for each model, prior and size."""
    places: dict[tuple[str, str, int], dict[str, list[Any]]] = {}
    seeds: dict[int, int] = {}
    for entry in comparison.entries:
        task = entry.task
        number = seeds.setdefault(task.seed, len(seeds))
        if entry.finished() and default_kappa(entry):
            panel = places.setdefault((model_name(task.job.model), prior_name(task.prior), task.number), {})
            panel.setdefault(label(entry), []).append((number, entry.strategy.curve(task, comparison.done)))
    return [
        {"title": f"{model}, {prior}, N = {size}", "chart": time_chart(curves)}
        for (model, prior, size), curves in places.items()
    ]


def _sweeps(rows: list[Row]) -> list[dict[str, str]]:
    """Accuracy and NLL over kappa, where several were tried."""
    charts = []
    for model, prior in dict.fromkeys((row["model"], row["prior"]) for row in rows):
        own = [row for row in rows if (row["model"], row["prior"], row["method"]) == (model, prior, "de-elbo")
               and not row["diverged"]]  # fmt: skip
        if len({row["label"] for row in own}) > 1:
            for metric, title in (("balanced_accuracy", "test accuracy, %"), ("nll", "test NLL")):
                charts.append({"title": f"{model}, {prior}", "chart": kappa_chart(own, metric, title)})
    return charts

"""`report.html`: one file that needs nothing else, from a run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo.report.charts import learned_chart, objective_chart, race_chart, reliability_chart
from deelbo.result import read_history
from deelbo.training.checkpoint import read_json, write_text

SYMBOLS = {"backbone": "λ (backbone)", "head": "τ (head)"}
WIDEST = 12  # classes whose whole confusion matrix is shown


def write_report(folder: Path, assessment: dict[str, Any] | None = None) -> Path:
    """Write the report of a finished run.

    Args:
        folder: With `run.json`, `history.csv` and, if the run was tested, `assessment.json`.
        assessment: Of other test data, instead.

    Returns:
        Where it is.
    """
    run = read_json(folder / "run.json")
    if assessment is None and (folder / "assessment.json").is_file():
        assessment = read_json(folder / "assessment.json")
    path = folder / "report.html"
    facts = _facts(run, read_history(folder), assessment, folder.name)
    write_text(path, render(Path(__file__).with_name("page.html"), facts))
    return path


def render(template: Path, facts: dict[str, Any]) -> str:
    """Fill a page's template, with the style that all pages share."""
    jinja2 = require("jinja2", "training")
    page = jinja2.Template(template.read_text(encoding="utf-8"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return page.render(style=Path(__file__).with_name("style.css").read_text(encoding="utf-8"), **facts)


def _facts(
    run: dict[str, Any], history: list[dict[str, float]], assessment: dict[str, Any] | None, name: str
) -> dict[str, Any]:
    learned, settings, about = run["learned"], run["settings"], run.get("about", {})
    best = learned["learning_rate"]
    rows = [row for row in history if row["learning_rate"] == best]
    kappa = rows[-1].get("kappa", 1.0)
    symbols = {f"variance_{group}": SYMBOLS.get(group, group) for group in learned["prior_variances"]}
    if learned["scale"] is not None:
        symbols["scale"] = "σ (posterior)"
    classes = (run.get("model") or {}).get("classes")
    model = (run.get("model") or {}).get("spec")
    return {
        "name": name,
        "run": run,
        "settings": {k: v for k, v in {**settings, **about}.items() if v is not None and k != "classes"},
        "learned": learned,
        "model": model,
        "kappa": kappa,
        "objective_per_example": learned["objective"] / (kappa * run["num_data"]),
        "groups": {SYMBOLS.get(group, group): float(value) for group, value in learned["prior_variances"].items()},
        "last": rows[-1],
        "charts": {
            "objective": objective_chart(rows),
            "learned": learned_chart(rows, symbols) if settings["method"] != "map" else None,
            "race": race_chart(history, best) if len(settings["learning_rates"]) > 1 else None,
            "reliability": reliability_chart(assessment["reliability"]) if assessment else None,
        },
        "search": _search_table(learned["search"], settings["learning_rates"], kappa * run["num_data"]),
        "assessment": assessment,
        "classes": classes,
        "matrix": assessment and classes and len(classes) <= WIDEST,
        "confusions": _confusions(assessment, classes) if assessment and classes else [],
    }


def _search_table(search: dict[str, dict[str, float]], rates: list[float], scale: float) -> dict[str, Any]:
    """Objective per example of each candidate at each rung."""
    steps = list(search)
    values = {rate: [search[step].get(str(float(rate))) for step in steps] for rate in rates}
    return {
        "steps": steps,
        "rows": {rate: [None if v is None else v / scale for v in row] for rate, row in values.items()},
    }


def _confusions(assessment: dict[str, Any], classes: list[str]) -> list[tuple[str, str, int]]:
    """The most frequent confusions: true class, predicted class, how often."""
    pairs = [
        (classes[i], classes[j], count)
        for i, row in enumerate(assessment["confusion"])
        for j, count in enumerate(row)
        if i != j and count
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:10]

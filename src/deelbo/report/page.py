"""`report.html`: a self-contained page, made from a run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deelbo._extras import require
from deelbo.data.targets import Targets
from deelbo.likelihoods import LIKELIHOODS
from deelbo.metrics import Metric, main_metric, metrics_of
from deelbo.report.charts import confidence_chart, learned_chart, objective_chart, race_chart
from deelbo.report.views import VIEWS
from deelbo.run_folder import RunFolder
from deelbo.training.method import METHODS

SYMBOLS = {"backbone": "λ (backbone)", "head": "τ (head)"}
HERE = Path(__file__).parent


def write_report(
    folder: RunFolder, assessment: dict[str, Any] | None = None, other: dict[str, Any] | None = None
) -> Path:
    """Write the report of a finished run.

    Args:
        folder: Folder of the run.
        assessment: Results on other test data, instead of those in the folder.
        other: How confident the run is on inputs of another kind; see `deelbo.report.confidence`.

    Returns:
        Path of the page.
    """
    assessment = assessment or folder.read_assessment()
    facts = _facts(folder.read(), folder.read_history(), assessment, other)
    return folder.write_report(render("page.html", {"name": folder.path.absolute().name, **facts}))


def render(template: str, facts: dict[str, Any], folder: Path = HERE) -> str:
    """Fill a page's template, with the style that all pages share.

    Args:
        template: File name of the template.
        facts: Values that the template shows, by name.
        folder: Folder of the template.
    """
    jinja2 = require("jinja2", "training")
    loader = jinja2.FileSystemLoader([folder, HERE / "views"], encoding="utf-8")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(template).render(style=(HERE / "style.css").read_text(encoding="utf-8"), **facts)


def _facts(
    run: dict[str, Any],
    history: list[dict[str, float]],
    assessment: dict[str, Any] | None,
    other: dict[str, Any] | None = None,
) -> dict[str, Any]:
    learned, settings, about = run["learned"], run["settings"], run.get("about", {})
    method, likelihood = METHODS[settings["method"]], settings["likelihood"]
    best, scale = learned["learning_rate"], learned["objective_scale"]
    rows = [row for row in history if row["learning_rate"] == best]
    symbols = {f"variance_{group}": SYMBOLS.get(group, group) for group in learned["prior_variances"]}
    symbols |= {quantity.column: quantity.symbol for quantity in method.quantities if quantity.charted}
    model = run.get("model") or {}
    targets = Targets(**model["targets"]) if model else None
    names = targets.names if targets else []
    unseen = (run.get("calibration") or {}).get("unseen", {})
    return {
        "run": run,
        "settings": {k: v for k, v in {**settings, **about}.items() if v is not None and k not in ("classes", "names")},
        "learned": learned,
        "model": model.get("spec"),
        "targets": targets and targets.describe(),
        "metrics": _metrics(likelihood, assessment) if assessment else [],
        "quantities": [(quantity, learned[quantity.column]) for quantity in method.quantities],
        "likelihood_learned": [(title, learned[n]) for n, title in LIKELIHOODS[likelihood].learned_titles.items()],
        "has_posterior": learned["scale"] is not None,
        "variances_are_learned": method.variances_are_learned,
        "objective_per_example": learned["objective"] / scale,
        "groups": {
            SYMBOLS.get(group, group): float(value)
            for group, value in learned["prior_variances"].items()
            if method.trains
        },
        "charts": {
            "objective": objective_chart(rows, method.penalty.column, method.penalty.symbol) if rows else None,
            "learned": learned_chart(rows, symbols) if method.variances_are_learned else None,
            "race": race_chart(history, best, method.penalty.column) if len(settings["learning_rates"]) > 1 else None,
        },
        "frozen": _frozen(likelihood, run.get("start", {})),
        "search": _search_table(learned["search"], settings["learning_rates"], scale),
        "assessment": assessment,
        "calibration": run.get("calibration") or {},
        "uncalibrated": _uncalibrated(likelihood, assessment),
        "unseen": [(metric.title, metric.show(value)) for metric, value in _metrics(likelihood, {"metrics": unseen})],
        "other": other and {**other, "chart": confidence_chart({title: other[key] for title, key in _shown(other)})},
        "names": names,
        **(_view(likelihood, assessment, names) if assessment and names else {}),
    }


def _metrics(likelihood: str, assessment: dict[str, Any]) -> list[tuple[Metric, float]]:
    """Return the metrics of the assessment; metrics that were added to deelbo after it was made are left out."""
    values = assessment.get("metrics", {})
    return [(metric, values[name]) for name, metric in metrics_of(likelihood).items() if name in values]


def _uncalibrated(likelihood: str, assessment: dict[str, Any] | None) -> list[tuple[Metric, float, float]]:
    """Return the metrics that calibration changed, each before and after."""
    before = ((assessment or {}).get("uncalibrated") or {}).get("metrics", {})
    rows = [(metric, before.get(metric.name), value) for metric, value in _metrics(likelihood, assessment or {})]
    return [(metric, old, new) for metric, old, new in rows if old is not None and old != new]


def _shown(other: dict[str, Any]) -> list[tuple[str, str]]:
    """Return titles and keys of the confidences that the chart of other inputs shows."""
    return [("test set", "test_shares")] * ("test_shares" in other) + [("other inputs", "shares")]


def _frozen(likelihood: str, start: dict[str, Any]) -> tuple[Metric, float] | None:
    """Return the main metric of the frozen network's features before training, if it is known."""
    metric, known = main_metric(likelihood), start.get("frozen_features", {})
    return (metric, known[metric.name]) if metric.name in known else None


def _view(likelihood: str, assessment: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the template and the values of the view of the test results."""
    if likelihood not in VIEWS:
        return {}
    view = VIEWS[likelihood]
    return {"view_template": view.template, "view": view.facts(assessment, names)}


def _search_table(search: dict[str, dict[str, float]], rates: list[float], scale: float) -> dict[str, Any]:
    """Return the objective per example of each candidate at each comparison."""
    steps = list(search)
    values = {rate: [search[step].get(str(float(rate))) for step in steps] for rate in rates}
    return {
        "steps": steps,
        "rows": {rate: [None if v is None else v / scale for v in row] for rate, row in values.items()},
    }

"""Detailed test results of a run, as the report shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.metrics import measure
from deelbo.report.views import VIEWS
from deelbo.result import Result
from deelbo.training.batches import labels_of


def assess(
    result: Result,
    dataset: ImageSet | TextSet,
    samples: int = 0,
    progress: Callable[[int, int], None] | None = None,
    temperature: float | None = None,
) -> dict[str, Any]:
    """Return metrics and details of single examples for the report, as plain values for JSON.

    Args:
        result: The finished run.
        dataset: Labelled examples, made by the run's reader.
        samples: Number of draws to average; 0 plugs in the mean weights.
        progress: Called after each batch with (done, total).
        temperature: Temperature instead of the run's own; 1 for the network's plain outputs.
    """
    plain, targets = result.raw_predictions(dataset, samples, progress=progress), labels_of(dataset)
    prediction = result.tempered(plain, temperature)
    temperature = result.temperature if temperature is None else temperature
    likelihood = result.likelihood
    view = VIEWS[likelihood.name] if likelihood.name in VIEWS else None  # noqa: SIM401 - a registry raises an error
    details = {} if view is None else view.details(likelihood.shown(prediction), targets, dataset)
    if temperature != 1:
        details["uncalibrated"] = {
            "metrics": measure(likelihood, plain, targets),
            **({} if view is None else {"calibration": view.calibration(likelihood.shown(plain), targets)}),
        }
    return {
        "metrics": measure(likelihood, prediction, targets),
        "temperature": temperature,
        "samples": samples,
        "examples": len(targets),
        **details,
    }

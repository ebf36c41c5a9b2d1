"""Detailed test results of a run, as the report shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.metrics import compute_metrics
from deelbo.report.views import VIEWS
from deelbo.result import Result
from deelbo.training.batches import labels_of


def assess(
    result: Result, dataset: ImageSet | TextSet, samples: int = 0, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Return metrics and details of single examples for the report, as plain values for JSON.

    Args:
        result: The finished run.
        dataset: Labelled examples, made by the run's reader.
        samples: Number of draws to average; 0 plugs in the mean weights.
        progress: Called after each batch with (done, total).
    """
    prediction, targets = result.predict_dataset(dataset, samples, progress=progress), labels_of(dataset)
    likelihood = result.likelihood.name
    details = VIEWS[likelihood].details(prediction, targets, dataset) if likelihood in VIEWS else {}
    return {
        "metrics": compute_metrics(likelihood, prediction, targets),
        "samples": samples,
        "examples": len(targets),
        **details,
    }

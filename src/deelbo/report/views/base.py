"""The protocol of views of test results, and what views share."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from deelbo._extras import require
from deelbo._registry import Registry
from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet

BINS = 15  # number of bins in reliability diagrams, the same as in the calibration error
SHOWN = 12  # number of examples that are shown with their errors


class View(Protocol):
    """Shows the test results of one likelihood."""

    template: str  # file name of the template, in this folder

    def details(self, prediction: Any, targets: Tensor, dataset: ImageSet | TextSet) -> dict[str, Any]:
        """Return the details that `assessment.json` keeps beside the metrics, as plain values.

        Args:
            prediction: Predictions for the examples of the dataset.
            targets: True targets of the examples.
            dataset: The test set.
        """

    def calibration(self, prediction: Any, targets: Tensor) -> list[dict[str, float]]:
        """Return how often predictions are right against how certain they are, as rows of a chart.

        Args:
            prediction: Predictions for some examples.
            targets: True targets of the examples.
        """

    def facts(self, assessment: dict[str, Any], names: list[str]) -> dict[str, Any]:
        """Return the charts and tables that the template shows.

        Args:
            assessment: Metrics and details.
            names: Names of the classes, labels or numbers.
        """


VIEWS: Registry[View] = Registry("likelihood", "deelbo.report.views")


def reliability(probabilities: Tensor, happened: Tensor) -> list[dict[str, float]]:
    """Return for each bin of probability the number of cases, their mean probability and how often they are true.

    Args:
        probabilities: Predicted probabilities, of any shape.
        happened: Whether what was predicted is true, of the same shape.
    """
    bins = (probabilities * BINS).long().clamp(max=BINS - 1)
    rows = []
    for i in range(BINS):
        inside = bins == i
        number = int(inside.sum())
        means = [float(values[inside].double().mean()) if number else 0.0 for values in (probabilities, happened)]
        rows.append({"examples": number, "confidence": means[0], "accuracy": means[1]})
    return rows


def before_calibration(assessment: dict[str, Any]) -> list[dict[str, float]] | None:
    """Return the rows of `View.calibration` for the network's plain outputs, if calibration changed them."""
    return (assessment.get("uncalibrated") or {}).get("calibration")


def shown_example(dataset: ImageSet | TextSet, index: int) -> dict[str, str]:
    """Return an example's name with a small picture, or with the beginning of its text."""
    name = {"name": "/".join(Path(dataset.examples.names[index]).parts[-2:])}
    if not isinstance(dataset, ImageSet):
        text = str(dataset.examples.inputs[index])
        return {**name, "text": text if len(text) <= 280 else text[:279] + "…"}
    pixels = dataset[index][0].permute(1, 2, 0).squeeze(2).numpy()
    image = require("PIL.Image", "vision").fromarray(pixels)
    image.thumbnail((160, 160))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return {**name, "image": "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()}

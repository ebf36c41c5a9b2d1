"""How good a run's predictions are, in the detail that the report shows."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from deelbo._extras import require
from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.training.evaluation import metrics

if TYPE_CHECKING:
    from deelbo.result import Result

BINS = 15  # of the reliability diagram, as of the ECE
MISTAKES = 12


def assess(
    result: Result, dataset: ImageSet | TextSet, samples: int = 0, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Return metrics, reliability, confusion matrix and the most confident mistakes, as plain values for JSON.

    Args:
        result: The run.
        dataset: Labelled examples, made by its `source`.
        samples: Draws to average; 0 plugs in the means.
        progress: Called with (done, total).
    """
    probabilities = result.probabilities(dataset, samples, progress=progress)
    examples = dataset.examples
    labels = torch.tensor(examples.labels)
    confidences, predicted = probabilities.max(1)
    wrong = (predicted != labels).nonzero().flatten()
    order = wrong[confidences[wrong].argsort(descending=True)][:MISTAKES].tolist()
    return {
        "metrics": metrics(probabilities, labels),
        "samples": samples,
        "examples": len(labels),
        "reliability": reliability(confidences, predicted == labels),
        "confusion": confusion(predicted, labels, probabilities.shape[1]),
        "mistakes": [
            {
                "name": "/".join(Path(examples.names[i]).parts[-2:]),
                "label": int(labels[i]),
                "predicted": int(predicted[i]),
                "confidence": float(confidences[i]),
                **_shown(dataset, i),
            }
            for i in order
        ],
    }


def reliability(confidences: Tensor, correct: Tensor) -> list[dict[str, float]]:
    """Return, for each bin of confidence, how many examples it has, their mean confidence and their accuracy.

    Args:
        confidences: Largest probability of each example.
        correct: Whether its class is right.
    """
    bins = (confidences * BINS).long().clamp(max=BINS - 1)
    rows = []
    for i in range(BINS):
        inside = bins == i
        number = int(inside.sum())
        mean = [float(values[inside].double().mean()) if number else 0.0 for values in (confidences, correct)]
        rows.append({"examples": number, "confidence": mean[0], "accuracy": mean[1]})
    return rows


def confusion(predicted: Tensor, labels: Tensor, classes: int) -> list[list[int]]:
    """Return how often each class (row) was taken for each (column)."""
    counts = torch.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.view(classes, classes).tolist()


def _shown(dataset: ImageSet | TextSet, index: int) -> dict[str, str]:
    """A small picture, or the beginning of a text."""
    if not isinstance(dataset, ImageSet):
        text = str(dataset.examples.sources[index])
        return {"text": text if len(text) <= 280 else text[:279] + "…"}
    pixels = dataset[index][0].permute(1, 2, 0).squeeze(2).numpy()
    image = require("PIL.Image", "vision").fromarray(pixels)
    image.thumbnail((160, 160))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return {"image": "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()}

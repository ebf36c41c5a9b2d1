"""View of classification: reliability, confusions and the most confident mistakes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.report.charts import reliability_chart
from deelbo.report.views.base import SHOWN, VIEWS, before_calibration, reliability, shown_example

MOST = 10_000  # largest number of confidences that are kept, to compare those of other inputs with
WIDEST = 12  # largest number of classes for which the whole confusion matrix is shown


class ClassificationView:
    """Shows class probabilities."""

    template = "classification.html"

    def details(self, prediction: Tensor, targets: Tensor, dataset: ImageSet | TextSet) -> dict[str, Any]:
        """Return confidences, reliability, confusion matrix and the most confident mistakes."""
        confidences, predicted = prediction.max(1)
        wrong = (predicted != targets).nonzero().flatten()
        worst = wrong[confidences[wrong].argsort(descending=True)][:SHOWN].tolist()
        return {
            "confidences": confidences[:: -(-len(confidences) // MOST)].tolist(),
            "reliability": self.calibration(prediction, targets),
            "confusion": confusion(predicted, targets, prediction.shape[1]),
            "mistakes": [
                {
                    "label": int(targets[i]),
                    "predicted": int(predicted[i]),
                    "confidence": float(confidences[i]),
                    **shown_example(dataset, i),
                }
                for i in worst
            ],
        }

    def calibration(self, prediction: Tensor, targets: Tensor) -> list[dict[str, float]]:
        """Return for each bin of confidence how often the most probable class is right."""
        confidences, predicted = prediction.max(1)
        return reliability(confidences, predicted == targets)

    def facts(self, assessment: dict[str, Any], names: list[str]) -> dict[str, Any]:
        """Return the reliability diagram and the most frequent confusions."""
        pairs = [
            (names[i], names[j], count)
            for i, row in enumerate(assessment["confusion"])
            for j, count in enumerate(row)
            if i != j and count
        ]
        return {
            "reliability": reliability_chart(assessment["reliability"], before=before_calibration(assessment)),
            "confusions": sorted(pairs, key=lambda pair: -pair[2])[:10],
            "matrix": len(names) <= WIDEST,
        }


def confusion(predicted: Tensor, labels: Tensor, classes: int) -> list[list[int]]:
    """Return how often each true class (row) was predicted as each class (column)."""
    counts = torch.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.view(classes, classes).tolist()


VIEWS.register("categorical", "classes")(ClassificationView())

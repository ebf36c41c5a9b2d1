"""View of several labels: reliability over all labels, each label's precision, the most confident wrong labels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.metrics.bernoulli import average_precisions
from deelbo.report.charts import reliability_chart
from deelbo.report.views.base import SHOWN, VIEWS, before_calibration, reliability, shown_example

ROWS = 40  # largest number of labels in the table


class MultilabelView:
    """Shows the probabilities of several labels."""

    template = "multilabel.html"

    def details(self, prediction: Tensor, targets: Tensor, dataset: ImageSet | TextSet) -> dict[str, Any]:
        """Return reliability, a row for each label, and the most confident wrong labels."""
        said, have = prediction > 0.5, targets > 0
        confidence = prediction.where(said, 1 - prediction)
        wrong = (said != have).nonzero()
        order = confidence[said != have].argsort(descending=True)[:SHOWN]
        precisions = average_precisions(prediction, targets)
        return {
            "reliability": self.calibration(prediction, targets),
            "labels": [
                {
                    "examples": int(have[:, k].sum()),
                    "said": int(said[:, k].sum()),
                    "right": int((said & have)[:, k].sum()),
                    "average_precision": float(precisions[k]) if have[:, k].any() else None,
                }
                for k in range(targets.shape[1])
            ],
            "mistakes": [
                {
                    "label": k,
                    "said": bool(said[i, k]),
                    "confidence": float(confidence[i, k]),
                    **shown_example(dataset, i),
                }
                for i, k in wrong[order].tolist()
            ],
        }

    def calibration(self, prediction: Tensor, targets: Tensor) -> list[dict[str, float]]:
        """Return for each bin of probability how often labels are there."""
        return reliability(prediction, targets > 0)

    def facts(self, assessment: dict[str, Any], names: list[str]) -> dict[str, Any]:
        """Return the reliability diagram and a table of labels, the most frequent first."""
        rows = sorted(zip(names, assessment["labels"], strict=True), key=lambda row: -row[1]["examples"])
        return {
            "reliability": reliability_chart(
                assessment["reliability"],
                "probability of a label",
                "how often it is there",
                before=before_calibration(assessment),
            ),
            "labels": rows[:ROWS],
        }


VIEWS.register("bernoulli", "labels")(MultilabelView())

"""View of regression: predictions against targets, residuals, coverage of intervals, the largest errors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from deelbo.data.images import ImageSet
from deelbo.data.texts import TextSet
from deelbo.likelihoods import GaussianPrediction
from deelbo.likelihoods.gaussian import rounded
from deelbo.report.charts import coverage_chart, residual_chart, scatter_chart
from deelbo.report.views.base import SHOWN, VIEWS, before_calibration, shown_example

POINTS = 1000  # largest number of points in a chart
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # probabilities of central intervals


class RegressionView:
    """Shows predicted means and standard deviations."""

    template = "regression.html"

    def details(self, prediction: GaussianPrediction, targets: Tensor, dataset: ImageSet | TextSet) -> dict[str, Any]:
        """Return points for the charts, coverage of central intervals, and the largest errors in units of the noise."""
        rows = targets.double().reshape(len(targets), -1)
        residual = rows - prediction.mean
        scaled = residual / prediction.std.clamp(min=1e-300)
        worst = scaled.abs().amax(1).argsort(descending=True)[:SHOWN].tolist()
        shown = torch.linspace(0, len(rows) - 1, min(POINTS, len(rows))).round().long()
        return {
            "points": [
                {
                    "target": rows[shown, k].tolist(),
                    "mean": prediction.mean[shown, k].tolist(),
                    "std": prediction.std[shown, k].tolist(),
                    "rmse": float(residual[:, k].square().mean().sqrt()),
                }
                for k in range(rows.shape[1])
            ],
            "coverage": self.calibration(prediction, targets),
            "mistakes": [
                {
                    "target": rows[i].tolist(),
                    "mean": prediction.mean[i].tolist(),
                    "std": prediction.std[i].tolist(),
                    **shown_example(dataset, i),
                }
                for i in worst
            ],
        }

    def calibration(self, prediction: GaussianPrediction, targets: Tensor) -> list[dict[str, float]]:
        """Return how many targets lie inside central intervals."""
        residual = targets.double().reshape(len(targets), -1) - prediction.mean
        scaled = residual.abs() / prediction.std.clamp(min=1e-300)
        rows = []
        for level in LEVELS:
            width = math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
            rows.append({"level": level, "share": float((scaled <= width).double().mean())})
        return rows

    def facts(self, assessment: dict[str, Any], names: list[str]) -> dict[str, Any]:
        """Return a scatter plot and residuals for each number, and the coverage of intervals."""
        points = assessment["points"]
        return {
            "scatters": [
                (name, part["rmse"], scatter_chart(part, name)) for name, part in zip(names, points, strict=True)
            ],
            "residuals": [residual_chart(part, name) for name, part in zip(names, points, strict=True)],
            "coverage": coverage_chart(assessment["coverage"], before_calibration(assessment)),
            "mistakes": [{**mistake, "numbers": _numbers(mistake, names)} for mistake in assessment["mistakes"]],
        }


def _numbers(mistake: dict[str, Any], names: list[str]) -> list[tuple[str, str, str]]:
    """Return for each number its name, its prediction and its target as texts."""
    rows = zip(names, mistake["mean"], mistake["std"], mistake["target"], strict=True)
    return [(name, f"{rounded(mean, std, 4)} ± {std:.2g}", rounded(target, std, 4)) for name, mean, std, target in rows]


VIEWS.register("gaussian", "numbers")(RegressionView())

"""Metrics for several labels, from their probabilities, [examples, labels]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deelbo._extras import require
from deelbo.metrics.base import metric


def _torchmetrics() -> Any:
    return require("torchmetrics.functional.classification", "training")


def average_precisions(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the average precision of each label; NaN for a label that no example has."""
    seen = labels.sum(0) > 0
    values = torch.full((labels.shape[1],), torch.nan, dtype=torch.float64)
    for k in seen.nonzero().flatten().tolist():
        values[k] = _torchmetrics().binary_average_precision(probabilities[:, k], labels[:, k].long())
    return values


@metric("mean_average_precision", "bernoulli", "mean average precision", percent=True, better="higher", main=True)
def mean_average_precision(probabilities: Tensor, labels: Tensor) -> float:
    """Return the area under the precision-recall curve, averaged over the labels that some example has."""
    return float(average_precisions(probabilities, labels).nanmean())


@metric("f1", "bernoulli", "F1 at 0.5, all labels together", percent=True, better="higher")
def f1(probabilities: Tensor, labels: Tensor) -> float:
    """Return 2 TP / (2 TP + FP + FN) at the threshold 0.5, counted over all labels together."""
    return float(
        _torchmetrics().multilabel_f1_score(probabilities, labels.long(), probabilities.shape[1], average="micro")
    )


@metric("nll", "bernoulli", "negative log-likelihood", better="lower")
def negative_log_likelihood(probabilities: Tensor, labels: Tensor) -> float:
    """Return the mean over examples of -log p(labels), summed over the labels (see `measure` for exact ones)."""
    p = probabilities.double()
    return float(-torch.where(labels > 0, p.log(), torch.log1p(-p)).sum(1).mean())


@metric("ece", "bernoulli", "calibration error (ECE)", percent=True, better="lower")
def calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Return the mean gap between the probability of a label and its frequency, in 15 bins over all labels."""
    # Not torchmetrics' version: it bins the confidence of yes or no, and we bin the probability of yes.
    p, y = probabilities.flatten().double(), labels.flatten().double()
    bins = (p * 15).long().clamp(max=14)
    count = torch.bincount(bins, minlength=15).clamp(min=1)
    gaps = (torch.bincount(bins, p, minlength=15) - torch.bincount(bins, y, minlength=15)).abs() / count
    return float((gaps * torch.bincount(bins, minlength=15)).sum() / len(p))

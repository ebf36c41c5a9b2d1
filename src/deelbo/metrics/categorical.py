"""Metrics for classes, from their probabilities, [examples, classes]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from deelbo._extras import require
from deelbo.metrics.base import metric


def _torchmetrics() -> Any:
    return require("torchmetrics.functional.classification", "training")


@metric("accuracy", "categorical", "accuracy", percent=True, better="higher")
def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Return the share of examples whose most probable class is right."""
    return float((probabilities.argmax(1) == labels).double().mean())


@metric("balanced_accuracy", "categorical", "accuracy, mean over classes", percent=True, better="higher", main=True)
def balanced_accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Return the mean over classes of the share of a class's examples that are right (the paper's accuracy)."""
    recalls = _torchmetrics().multiclass_accuracy(probabilities, labels, probabilities.shape[1], average="none")
    return float(
        recalls[labels.unique()].double().mean()
    )  # leaves out classes without test examples, whose recall would be 0


@metric("nll", "categorical", "negative log-likelihood", better="lower")
def negative_log_likelihood(probabilities: Tensor, labels: Tensor) -> float:
    """Return the mean of -log p(right class); infinity if a probability is zero (see `measure` for exact ones)."""
    return float(-probabilities.double()[torch.arange(len(labels)), labels].log().mean())


@metric("ece", "categorical", "calibration error (ECE)", percent=True, better="lower")
def calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy in 15 bins of confidence."""
    error = _torchmetrics().multiclass_calibration_error(probabilities, labels, probabilities.shape[1], n_bins=15)
    return float(error)

"""How confident a run is on inputs of another kind, beside its test set."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from deelbo.report.views.base import BINS

MOST_NAMED = 5  # number of most frequent predictions that are named
CONFIDENT = 0.9


def confidence_on(probabilities: Tensor, names: list[str], usual: list[float] | None = None) -> dict[str, Any]:
    """Return how confident class probabilities are, as plain values for the report.

    Args:
        probabilities: Class probabilities of the other inputs, [inputs, classes].
        names: Names of the classes.
        usual: Probabilities of the most probable classes of the test examples, if there are some.
    """
    confidence, predicted = probabilities.max(1)
    counts = Counter(names[i] for i in predicted.tolist())
    facts = {
        "inputs": len(confidence),
        "mean": float(confidence.mean()),
        "above": float((confidence > CONFIDENT).double().mean()),
        "predicted": counts.most_common(MOST_NAMED),
        "shares": _shares(confidence),
    }
    if not usual:
        return facts
    tested = torch.tensor(usual, dtype=confidence.dtype)
    return {**facts, "test_shares": _shares(tested), "auroc": area_under_curve(tested, confidence)}


def area_under_curve(higher: Tensor, lower: Tensor) -> float:
    """Return how often a value of the first set is above one of the second; equal values count half (AUROC)."""
    values = torch.cat([higher, lower])
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[place]  # mean rank of equal values
    first = len(higher)
    return float((ranks[:first].sum() - first * (first + 1) / 2) / (first * len(lower)))


def _shares(confidence: Tensor) -> list[float]:
    counts = torch.bincount((confidence * BINS).long().clamp(max=BINS - 1), minlength=BINS)
    return (counts / len(confidence)).tolist()

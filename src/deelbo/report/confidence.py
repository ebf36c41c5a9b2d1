"""How confident a run is on inputs of another kind, beside its test set."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from deelbo._extras import require
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
    is_test = torch.cat([torch.ones(len(tested)), torch.zeros(len(confidence))]).long()
    auroc = require("torchmetrics.functional.classification", "training").binary_auroc
    return {**facts, "test_shares": _shares(tested), "auroc": float(auroc(torch.cat([tested, confidence]), is_test))}


def _shares(confidence: Tensor) -> list[float]:
    counts = torch.bincount((confidence * BINS).long().clamp(max=BINS - 1), minlength=BINS)
    return (counts / len(confidence)).tolist()

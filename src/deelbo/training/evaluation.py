"""Class probabilities, and how good they are."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from deelbo._extras import require
from deelbo.posteriors import GaussianPosterior
from deelbo.training.batches import Inputs, logits


@torch.no_grad()
def probabilities(
    network: nn.Module, batches: Iterable[Inputs], posterior: GaussianPosterior | None = None, samples: int = 0
) -> Tensor:
    """Return class probabilities, [examples, classes], in float64.

    Args:
        network: In any mode; predictions are made in eval mode.
        batches: Inputs; read once for each draw, so no generator if samples > 1.
        posterior: Where draws come from.
        samples: 0 plugs in the means; S > 0 averages the probabilities of S draws.

    Raises:
        ValueError: If draws are asked for without a posterior.
    """
    if samples < 0:
        raise ValueError(f"samples={samples}: 0 plugs in the means, S > 0 averages S draws")
    if samples and posterior is None:
        raise ValueError("this run has no posterior to draw from (it is a point estimate): use samples=0")
    training = network.training
    network.eval()
    try:
        if not samples or posterior is None:
            return _softmax(network, batches)
        total: Tensor | float = 0.0
        for sample in range(samples):
            with posterior.sample(seed=sample):
                total = total + _softmax(network, batches)
        return torch.as_tensor(total) / samples
    finally:
        network.train(training)


def _softmax(network: nn.Module, batches: Iterable[Inputs]) -> Tensor:
    return torch.cat([logits(network, inputs).double().softmax(1).cpu() for inputs in batches])


def metrics(probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    """Return accuracy, balanced accuracy (the mean over classes, the paper's), NLL and ECE (15 bins).

    Args:
        probabilities: [examples, classes].
        labels: [examples].
    """
    classification = require("torchmetrics.functional.classification", "training")
    labels = labels.cpu()
    classes = probabilities.shape[1]
    # A class that the labels lack has no accuracy, and must not count as zero.
    recalls = classification.multiclass_accuracy(probabilities, labels, classes, average="none")[labels.unique()]
    tiny = torch.finfo(torch.float32).tiny
    chosen = probabilities[torch.arange(len(labels)), labels].clamp(min=tiny)
    return {
        "accuracy": float((probabilities.argmax(1) == labels).double().mean()),
        "balanced_accuracy": float(recalls.double().mean()),
        "nll": float(-chosen.log().mean()),
        "ece": float(classification.multiclass_calibration_error(probabilities, labels, classes, n_bins=15)),
    }

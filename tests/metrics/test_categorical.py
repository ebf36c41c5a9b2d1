"""Metrics of class probabilities against scikit-learn or a formula written out."""

import numpy as np
import pytest
import sklearn.metrics as reference
import torch

from deelbo.metrics import compute_metrics


def test_categorical():
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(200, 4, dtype=torch.float64, generator=generator).softmax(1)
    y = torch.randint(3, (200,), generator=generator)  # no example of the last class
    values = compute_metrics("categorical", p, y)
    predicted = p.argmax(1)
    assert values["accuracy"] == pytest.approx(reference.accuracy_score(y, predicted))
    recalls = [float((predicted[y == c] == c).double().mean()) for c in range(3)]
    assert values["balanced_accuracy"] == pytest.approx(sum(recalls) / 3)
    assert values["nll"] == pytest.approx(reference.log_loss(y, p.numpy(), labels=range(4)))
    confidence, correct = p.max(1).values.numpy(), (predicted == y).numpy()
    bins = np.minimum((confidence * 15).astype(int), 14)
    ece = sum(abs(confidence[bins == b].mean() - correct[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    assert values["ece"] == pytest.approx(ece, abs=1e-6)

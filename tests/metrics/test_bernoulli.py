"""Metrics of several labels against scikit-learn or a formula written out."""

import numpy as np
import pytest
import sklearn.metrics as reference
import torch

from deelbo.metrics import compute_metrics


def test_bernoulli():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(200, 3, dtype=torch.float64, generator=generator)
    y = (torch.rand(200, 3, generator=generator) < p).long()
    y[:, 2] = 0  # a label that no example has
    values = compute_metrics("bernoulli", p, y)
    each = [reference.average_precision_score(y[:, k], p[:, k]) for k in range(2)]
    assert values["mean_average_precision"] == pytest.approx(sum(each) / 2, abs=1e-6)
    assert values["f1"] == pytest.approx(reference.f1_score(y, p > 0.5, average="micro"), abs=1e-6)
    log_p = torch.distributions.Bernoulli(p).log_prob(y.double())
    assert values["nll"] == pytest.approx(float(-log_p.sum(1).mean()))
    flat_p, flat_y = p.flatten().numpy(), y.flatten().numpy()
    bins = np.minimum((flat_p * 15).astype(int), 14)
    ece = sum(abs(flat_p[bins == b].mean() - flat_y[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    assert values["ece"] == pytest.approx(ece)

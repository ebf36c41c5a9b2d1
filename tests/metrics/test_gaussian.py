"""Metrics of predicted numbers against scikit-learn and SciPy."""

import math

import pytest
import sklearn.metrics as reference
import torch
from scipy import stats

from deelbo.likelihoods import GaussianPrediction
from deelbo.metrics import compute_metrics


def test_gaussian():
    generator = torch.Generator().manual_seed(0)
    y = 10 * torch.randn(300, 1, dtype=torch.float64, generator=generator)
    mean = y + 2 * torch.randn(300, 1, dtype=torch.float64, generator=generator)
    std = torch.full((300, 1), 2.0, dtype=torch.float64)
    values = compute_metrics("gaussian", GaussianPrediction(mean, std), y[:, 0])
    assert values["rmse"] == pytest.approx(reference.root_mean_squared_error(y, mean))
    assert values["mae"] == pytest.approx(reference.mean_absolute_error(y, mean))
    assert values["r2"] == pytest.approx(reference.r2_score(y, mean))
    assert values["nll"] == pytest.approx(-stats.norm(mean, std).logpdf(y).mean())
    low, high = stats.norm(mean, std).interval(0.9)
    assert values["coverage"] == pytest.approx(float(((low <= y.numpy()) & (y.numpy() <= high)).mean()))
    assert abs(values["coverage"] - 0.9) < 0.05


def test_gaussian_with_several_numbers():
    y, mean = torch.zeros(50, 2, dtype=torch.float64), torch.zeros(50, 2, dtype=torch.float64)
    y[:, 0] = torch.linspace(-1, 1, 50)
    y[:, 1] = 100 * torch.linspace(-1, 1, 50)
    values = compute_metrics("gaussian", GaussianPrediction(mean, torch.ones_like(mean)), y)
    each = [math.sqrt(float(y[:, k].square().mean())) for k in range(2)]
    assert values["rmse"] == pytest.approx(sum(each) / 2)
    assert values["r2"] == pytest.approx(0.0, abs=1e-12)

"""Every metric against scikit-learn or a formula written out."""

import math

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
from scipy import stats

from deelbo.likelihoods import GaussianPrediction
from deelbo.metrics import METRICS, compute_metrics, main_metric, metrics_of


def test_each_likelihood_has_one_main_metric_and_nll():
    for likelihood, main in (
        ("categorical", "balanced_accuracy"),
        ("gaussian", "rmse"),
        ("bernoulli", "mean_average_precision"),
    ):
        assert main_metric(likelihood).name == main
        assert sum(metric.main for metric in metrics_of(likelihood).values()) == 1
        assert "nll" in metrics_of(likelihood)
    assert "categorical:ece" in METRICS


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


def test_values_as_text():
    assert metrics_of("categorical")["accuracy"].show(0.9321) == "93.2 %"
    assert metrics_of("gaussian")["rmse"].show(12.34567) == "12.35"

"""The registry of metrics, and the NLL of predictions that no probability can hold."""

import math

import pytest
import torch

from deelbo.likelihoods import Bernoulli, Categorical
from deelbo.metrics import METRICS, main_metric, measure, metrics_of


def test_a_likelihood_without_a_main_metric_is_named():
    with pytest.raises(ValueError, match=r'"smoothed" has no main metric: register one with @metric'):
        main_metric("smoothed")


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


def test_values_as_text():
    assert metrics_of("categorical")["accuracy"].show(0.9321) == "93.2 %"
    assert metrics_of("gaussian")["rmse"].show(12.34567) == "12.35"


@pytest.mark.parametrize("size", [500.0, 5000.0])
def test_a_confident_mistake_has_its_true_nll(size):
    """Logits that are wrong by `size` nats: 87.3 if probabilities are clamped in float32, 744 in float64."""
    classes, logits = Categorical(), torch.tensor([[size, 0.0, -size], [0.0, 0.0, size]])
    prediction = classes.prediction(classes.averageable(logits))
    values = measure(classes, prediction, torch.tensor([2, 2]))
    assert values["nll"] == pytest.approx((2 * size + 0) / 2, rel=1e-12)
    assert values["accuracy"] == 0.5
    halved = measure(classes, classes.tempered(prediction, 2.0), torch.tensor([2, 2]))
    assert halved["nll"] == pytest.approx(size / 2, rel=1e-12)

    labels, logits = Bernoulli(), torch.tensor([[size, -size], [size, -size]])
    prediction = labels.prediction(labels.averageable(logits))
    assert measure(labels, prediction, torch.tensor([[0, 1], [1, 0]]))["nll"] == pytest.approx(size, rel=1e-12)


def test_averages_of_confident_draws_are_exact():
    """Two draws, each sure of another wrong class: log( (exp(-900) + exp(-1000)) / 2 ), and for labels alike."""
    drawn = torch.tensor([[[900.0, 0.0]], [[1000.0, 0.0]]])
    expected = -900 + math.log1p(math.exp(-100)) - math.log(2)
    classes = Categorical()
    prediction = classes.prediction(classes.average(classes.averageable(draw) for draw in drawn))
    assert measure(classes, prediction, torch.tensor([1]))["nll"] == pytest.approx(-expected, rel=1e-12)
    labels = Bernoulli()
    prediction = labels.prediction(labels.average(labels.averageable(draw) for draw in drawn))
    found = measure(labels, prediction, torch.tensor([[0, 1]]))["nll"]  # the second label has the logit 0 in both
    assert found == pytest.approx(math.log(2) - expected, rel=1e-12)

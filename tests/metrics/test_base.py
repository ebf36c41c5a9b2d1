"""The registry of metrics."""

from deelbo.metrics import METRICS, main_metric, metrics_of


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

"""How good predictions are: one function for each number, known to the report, the commands and the comparison."""

from deelbo.metrics.base import METRICS, Metric, compute_metrics, main_metric, metric, metrics_of

__all__ = ["METRICS", "Metric", "compute_metrics", "main_metric", "metric", "metrics_of"]

"""Metrics of predictions: one function for each, which the report, the commands and the comparison use."""

from deelbo.metrics.base import METRICS, Metric, compute_metrics, main_metric, measure, metric, metrics_of

__all__ = ["METRICS", "Metric", "compute_metrics", "main_metric", "measure", "metric", "metrics_of"]

"""The registry of metrics: each belongs to a likelihood, and has its title and the way it is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from deelbo._registry import Registry
from deelbo.likelihoods import Likelihood

METRICS: Registry[Metric] = Registry("metric", "deelbo.metrics")


@dataclass(frozen=True)
class Metric:
    """A measure of how good predictions are.

    Args:
        name: Name of the metric as a key in `run.json` and as a column in tables.
        likelihood: Name of the likelihood whose predictions the metric judges.
        title: Name of the metric for people, such as "mean absolute error".
        compute: Function that takes predictions and targets of all examples and returns the value.
        percent: Whether the value is a share that is shown in per cent.
        better: "higher" or "lower", whichever values are better; "" if neither.
        main: Whether charts and rankings show this metric of the likelihood.
    """

    name: str
    likelihood: str
    title: str
    compute: Callable[[Any, Tensor], float]
    percent: bool = False
    better: str = ""
    main: bool = False

    def show(self, value: float) -> str:
        """Return a value as text, with its unit."""
        return self.show_number(value) + (" %" if self.percent else "")

    def show_number(self, value: float) -> str:
        """Return a value as text, without its unit."""
        return f"{100 * value:.1f}" if self.percent else f"{value:.4g}"


def metric(
    name: str, likelihood: str, title: str, **shown: Any
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Return a decorator that registers a function of predictions and targets as a metric; see `Metric`."""

    def keep(compute: Callable[..., float]) -> Callable[..., float]:
        METRICS.register(f"{likelihood}:{name}", title)(Metric(name, likelihood, title, compute, **shown))
        return compute

    return keep


def metrics_of(likelihood: str) -> dict[str, Metric]:
    """Return the metrics of a likelihood by name, in the order in which they are defined."""
    return {entry.name: entry for entry in METRICS.entries() if entry.likelihood == likelihood}


def main_metric(likelihood: str) -> Metric:
    """Return the metric of a likelihood that charts and rankings show.

    Raises:
        ValueError: If none is registered.
    """
    for entry in metrics_of(likelihood).values():
        if entry.main:
            return entry
    raise ValueError(f'the likelihood "{likelihood}" has no main metric: register one with @metric(..., main=True)')


def compute_metrics(likelihood: str, prediction: Any, targets: Tensor) -> dict[str, float]:
    """Return all metrics of a likelihood by name.

    Args:
        likelihood: Name of the likelihood.
        prediction: Predictions for the examples, as `Result.predict` returns them.
        targets: True targets of the examples.
    """
    return {name: entry.compute(prediction, targets.cpu()) for name, entry in metrics_of(likelihood).items()}


def measure(likelihood: Likelihood, prediction: Any, targets: Tensor) -> dict[str, float]:
    """Return all metrics of predictions before they are shown, whose NLL is exact however confident they are.

    Args:
        likelihood: The likelihood.
        prediction: Predictions as `Likelihood.prediction` and `tempered` return them.
        targets: True targets of the examples.
    """
    values = compute_metrics(likelihood.name, likelihood.shown(prediction), targets)
    log_prob = likelihood.predictive_log_prob(prediction, targets)
    return values if log_prob is None else {**values, "nll": -float(log_prob.mean())}

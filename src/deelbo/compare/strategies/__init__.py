"""Strategies by which each method arrives at one network. A new strategy is a new file in this folder."""

from __future__ import annotations

from deelbo.compare.problem import Options
from deelbo.compare.strategies.base import STRATEGIES, Curve, Plan, Strategy

__all__ = ["STRATEGIES", "Curve", "Plan", "Strategy", "make_strategies"]


def make_strategies(options: Options) -> list[Strategy]:
    """Return the strategies of the options' methods.

    Raises:
        ValueError: If a name is unknown, or given twice.
    """
    if len(set(options.methods)) != len(options.methods):
        raise ValueError(f"methods={','.join(options.methods)} has a name twice")
    return [strategy for name in options.methods for strategy in STRATEGIES[name](options)]

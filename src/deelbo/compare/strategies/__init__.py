"""How each method spends training runs to arrive at one classifier. A new method is a new file in this folder."""

from __future__ import annotations

import importlib
import pkgutil

from deelbo.compare.strategies.base import REGISTRY, Curve, Plan, Strategy, register
from deelbo.compare.task import Options

__all__ = ["Curve", "Plan", "Strategy", "make_strategies", "names", "register"]

for _module in pkgutil.iter_modules(__path__):  # each registers itself
    importlib.import_module(f"{__name__}.{_module.name}")


def names() -> list[str]:
    """Return the names of all methods."""
    return sorted(REGISTRY)


def make_strategies(options: Options) -> list[Strategy]:
    """Return the strategies of the options' methods.

    Raises:
        ValueError: If a name is unknown.
    """
    if unknown := [name for name in options.methods if name not in REGISTRY]:
        raise ValueError(f"unknown method {', '.join(unknown)}: it is one of {', '.join(names())}")
    if len(set(options.methods)) != len(options.methods):
        raise ValueError(f"a method is given twice: {', '.join(options.methods)}")
    return [strategy for name in options.methods for strategy in REGISTRY[name](options)]

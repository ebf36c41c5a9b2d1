"""Optimizers by name; a new one is a new file in this folder."""

from deelbo.optimizers.base import OPTIMIZERS, OptimizerSettings

__all__ = ["OPTIMIZERS", "OptimizerSettings"]

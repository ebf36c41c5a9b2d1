"""Engines that make training runs: on this machine, or on a Ray cluster. A new engine is a new file here."""

from deelbo.compare.engines.base import ENGINES, Engine, Outcome
from deelbo.compare.engines.local import LocalEngine
from deelbo.compare.engines.ray import RayEngine

__all__ = ["ENGINES", "Engine", "LocalEngine", "Outcome", "RayEngine"]

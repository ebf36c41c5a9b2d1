"""Where training runs are run: on this machine, or on a Ray cluster."""

from deelbo.compare.engines.base import Engine, Outcome
from deelbo.compare.engines.local import LocalEngine
from deelbo.compare.engines.ray import RayEngine

__all__ = ["Engine", "LocalEngine", "Outcome", "RayEngine"]

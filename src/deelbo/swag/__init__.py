"""Gaussian posteriors of source tasks, for the prior PTYL: gathered by SWAG, kept in a file, or released by others."""

from deelbo.swag.collection import DivergedError, collect, cross_entropy
from deelbo.swag.moments import Moments
from deelbo.swag.released import read_released
from deelbo.swag.source import SourcePosterior, load_source

__all__ = ["DivergedError", "Moments", "SourcePosterior", "collect", "cross_entropy", "load_source", "read_released"]

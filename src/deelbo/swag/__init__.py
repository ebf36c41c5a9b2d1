"""Posteriors of source tasks for the prior PTYL: gathered by SWAG, or converted from files that others released."""

from deelbo.errors import DivergedError
from deelbo.priors import SourcePosterior, load_source_posterior
from deelbo.swag.collection import collect, likelihood_loss
from deelbo.swag.moments import Moments
from deelbo.swag.released import read_released

__all__ = [
    "DivergedError",
    "Moments",
    "SourcePosterior",
    "collect",
    "likelihood_loss",
    "load_source_posterior",
    "read_released",
]

"""Gaussian posteriors over the weights of a network."""

from deelbo.posteriors.base import POSTERIORS, GaussianPosterior
from deelbo.posteriors.diagonal import DiagonalPosterior
from deelbo.posteriors.isotropic import IsotropicPosterior

__all__ = ["POSTERIORS", "DiagonalPosterior", "GaussianPosterior", "IsotropicPosterior"]

"""Laplace approximation with a diagonal empirical Fisher, for any network and any Gaussian prior."""

from deelbo.laplace.conditional import Conditional, conditional_likelihood
from deelbo.laplace.fisher import empirical_fisher
from deelbo.laplace.posterior import LaplacePosterior, laplace_posterior

__all__ = ["Conditional", "LaplacePosterior", "conditional_likelihood", "empirical_fisher", "laplace_posterior"]

"""Methods of regularised training, all on the same loop."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from deelbo.methods.laplace import LaplaceMarginalLikelihood
from deelbo.methods.point import MaximumAPosteriori
from deelbo.methods.variational import Variational
from deelbo.priors import GaussianPrior, l2_sp, l2_zero, per_layer
from deelbo.priors.transfer import Head
from deelbo.swag import SourcePosterior, load_source
from deelbo.training.method import Method
from deelbo.training.settings import Settings

__all__ = ["LaplaceMarginalLikelihood", "MaximumAPosteriori", "Variational", "make_method", "make_prior"]


def make_prior(
    settings: Settings, network: nn.Module, head: Head, source: SourcePosterior | None = None
) -> GaussianPrior:
    """Return the prior of the settings: around the network's current weights, zero, or a source task's mean.

    Args:
        settings: Of the run.
        network: At its initial state.
        head: Name of the classifier.
        source: The source task's posterior; read from its file if None.
    """
    if settings.source is not None:
        source = source or load_source(settings.source, settings.rank)
        return source.prior(network, head, settings.rank, settings.diagonal)
    priors: dict[str, Callable[..., GaussianPrior]] = {"l2-sp": l2_sp, "l2-zero": l2_zero, "per-layer": per_layer}
    return priors[settings.prior](network, head)


def make_method(
    settings: Settings, network: nn.Module, head: Head, num_data: int, source: SourcePosterior | None = None
) -> Method:
    """Return the method of the settings, for a network at its initial state; see `make_prior`."""
    prior = make_prior(settings, network, head, source)
    if settings.method == "map":
        return MaximumAPosteriori(network, prior, num_data, settings.prior_variances or {})
    if settings.method == "la-lml":
        return LaplaceMarginalLikelihood(network, prior, num_data)
    kappa = 1.0 if settings.method == "elbo" else settings.kappa
    return Variational(network, prior, num_data, kappa, settings.init_scale, settings.seed)

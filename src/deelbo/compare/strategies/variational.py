"""DE-ELBO and ELBO: the regularisation is learned, the objective chooses the learning rate."""

from __future__ import annotations

from deelbo.compare.strategies.base import ByObjective, register
from deelbo.compare.task import Options


@register("de-elbo")
def de_elbo(options: Options) -> list[ByObjective]:
    """One for each kappa."""
    return [ByObjective("de-elbo", options.lr_search, kappa) for kappa in options.kappas]


@register("elbo")
def elbo(options: Options) -> list[ByObjective]:
    """DE-ELBO with kappa = 1."""
    return [ByObjective("elbo", options.lr_search)]

"""DE-ELBO and ELBO in a comparison: the regularisation is learned, the objective chooses the learning rate."""

from __future__ import annotations

from deelbo.compare.problem import Options
from deelbo.compare.strategies.base import STRATEGIES, ByObjective


@STRATEGIES.register("de-elbo", "learned regularisation, the data emphasised by kappa = D/N")
def de_elbo(options: Options) -> list[ByObjective]:
    """Return DE-ELBO, once for each kappa."""
    return [ByObjective("de-elbo", options.lr_search, kappa, role="reference", colour=0) for kappa in options.kappas]


@STRATEGIES.register("elbo", "like de-elbo without emphasis (kappa = 1)")
def elbo(options: Options) -> list[ByObjective]:
    """Return the ELBO: DE-ELBO with kappa = 1."""
    return [ByObjective("elbo", options.lr_search, role="ablation", colour=5)]

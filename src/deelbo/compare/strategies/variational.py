"""DE-ELBO and ELBO in a comparison: the regularisation is learned, the objective chooses the learning rate."""

from __future__ import annotations

from deelbo.compare.problem import Options
from deelbo.compare.strategies.base import STRATEGIES, ByObjective

COLOURS = {"de-elbo": (0, 10), "elbo": (5, 11)}  # with the first posterior, and with others


@STRATEGIES.register("de-elbo", "learned regularisation, the data emphasised by kappa = D/N")
def de_elbo(options: Options) -> list[ByObjective]:
    """Return DE-ELBO, once for each kappa and posterior."""
    return [strategy for kappa in options.kappas for strategy in _each_posterior("de-elbo", options, kappa)]


@STRATEGIES.register("elbo", "like de-elbo without emphasis (kappa = 1)")
def elbo(options: Options) -> list[ByObjective]:
    """Return the ELBO: DE-ELBO with kappa = 1, once for each posterior."""
    return _each_posterior("elbo", options, None)


def _each_posterior(name: str, options: Options, kappa: float | None) -> list[ByObjective]:
    """Return the method with every posterior; the first one is what others are compared with."""
    return [
        ByObjective(
            name,
            options.lr_search,
            kappa,
            role="reference" if (name, number) == ("de-elbo", 0) else "ablation",
            colour=COLOURS[name][min(number, 1)],
            variant="" if posterior == "isotropic" else f"{posterior} posterior",
            posterior=posterior,
            draws=options.draws,
        )
        for number, posterior in enumerate(options.posteriors)
    ]

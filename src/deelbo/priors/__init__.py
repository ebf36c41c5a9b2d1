"""Gaussian priors over groups of parameters, whose variances are learned in closed form (Table 1 of the paper).

| prior   | p(w), backbone            | p(V), classifier |
| ------- | ------------------------- | ---------------- |
| L2-zero | N(0, lambda I)            | N(0, tau I)      |
| L2-SP   | N(mu, lambda I)           | N(0, tau I)      |
| PTYL    | N(mu, lambda Sigma)       | N(0, tau I)      |

and `adapters` for low-rank adapters (LoRA), whose A is around its start and whose B is around zero.

mu are the weights at the time of the call, so make the prior before training starts.
"""

from deelbo._head import find_head
from deelbo.priors.adapters import adapters
from deelbo.priors.base import PRIORS, PriorRecipe, SearchAxis, make_recipe, short_name
from deelbo.priors.covariance import Covariance, DiagonalPlusLowRank, Identity
from deelbo.priors.gaussian import GaussianPrior, PriorGroup
from deelbo.priors.l2_sp import l2_sp
from deelbo.priors.l2_zero import l2_zero
from deelbo.priors.per_layer import per_layer
from deelbo.priors.ptyl import prior_from_source, ptyl
from deelbo.priors.source_posterior import SourcePosterior, load_source_posterior

__all__ = [
    "PRIORS",
    "Covariance",
    "DiagonalPlusLowRank",
    "GaussianPrior",
    "Identity",
    "PriorGroup",
    "PriorRecipe",
    "SearchAxis",
    "SourcePosterior",
    "adapters",
    "find_head",
    "l2_sp",
    "l2_zero",
    "load_source_posterior",
    "make_recipe",
    "per_layer",
    "prior_from_source",
    "ptyl",
    "short_name",
]

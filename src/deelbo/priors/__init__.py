"""Gaussian priors over groups of parameters, whose variances are learned in closed form."""

from deelbo.priors.covariance import Covariance, DiagonalPlusLowRank, Identity
from deelbo.priors.gaussian import GaussianPrior, PriorGroup
from deelbo.priors.head import find_head
from deelbo.priors.transfer import l2_sp, l2_zero, per_layer, ptyl

__all__ = [
    "Covariance",
    "DiagonalPlusLowRank",
    "GaussianPrior",
    "Identity",
    "PriorGroup",
    "find_head",
    "l2_sp",
    "l2_zero",
    "per_layer",
    "ptyl",
]

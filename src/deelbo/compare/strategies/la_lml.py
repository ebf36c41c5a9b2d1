"""LA-LML (Immer et al., 2021): Laplace's marginal likelihood learns the regularisation and chooses the learning rate.

Every learning rate is trained in full, because the race was not tested with this objective.
"""

from __future__ import annotations

from deelbo.compare.problem import Options
from deelbo.compare.strategies.base import STRATEGIES, ByObjective


@STRATEGIES.register("la-lml", "prior variances learned by Laplace's marginal likelihood")
def la_lml(options: Options) -> list[ByObjective]:
    """Return LA-LML with every learning rate trained in full."""
    return [ByObjective("la-lml", "grid")]

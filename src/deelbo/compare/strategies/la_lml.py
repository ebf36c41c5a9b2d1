"""LA-LML (Immer et al., 2021): Laplace's marginal likelihood learns the regularisation and chooses the learning rate.

Every learning rate is trained in full: that the race suits this objective as well has not been shown.
"""

from __future__ import annotations

from deelbo.compare.strategies.base import ByObjective, register
from deelbo.compare.task import Options


@register("la-lml")
def la_lml(options: Options) -> list[ByObjective]:
    """One."""
    return [ByObjective("la-lml", "grid")]

"""LA-CLML (Lotfi et al., 2022): the grid of MAP, chosen by the conditional marginal likelihood of held-out data."""

from __future__ import annotations

import math

from deelbo.compare.records import Record
from deelbo.compare.strategies.base import Done, GridSearch, register
from deelbo.compare.task import Options, Task, Trial


class ConditionalGrid(GridSearch):
    """Every cell of the paper's grid, chosen by draws from its Laplace posterior."""

    name = "la-clml"

    def trial(self, task: Task, cell: tuple[dict[str, float], float], done: Done) -> Trial:
        """Return the run of a cell."""
        return task.point(*cell, whole=False, clml=True)

    def score(self, record: Record) -> float:
        """Return the conditional log marginal likelihood."""
        value = None if record["clml"] is None else record["clml"]["value"]
        return -math.inf if value is None else value

    def seconds(self, record: Record) -> float:
        """Return the time of training, of the Fisher information and of the draws."""
        return record["seconds"]["training"] + record["seconds"]["clml"]


@register("la-clml")
def la_clml(options: Options) -> list[ConditionalGrid]:
    """One."""
    return [ConditionalGrid()]

"""LA-CLML (Lotfi et al., 2022): the grid of MAP, chosen by the conditional marginal likelihood of held-out data."""

from __future__ import annotations

import math

from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.records import KnownRecords, Record
from deelbo.compare.strategies.base import STRATEGIES, Cell, GridSearch


class ConditionalGrid(GridSearch):
    """Every cell of the paper's grid; the best one is chosen by draws from its Laplace posterior."""

    name, colour = "la-clml", 4

    def trial(self, problem: Problem, cell: Cell, known: KnownRecords) -> Trial:
        """Return the run of a cell."""
        return problem.point(*cell, whole=False, clml=True)

    def score(self, record: Record) -> float:
        """Return the conditional log marginal likelihood."""
        value = None if record["clml"] is None else record["clml"]["value"]
        return -math.inf if value is None else value

    def seconds(self, record: Record) -> float:
        """Return the time of training, of the Fisher information and of the draws."""
        return record["seconds"]["training"] + record["seconds"]["clml"]


@STRATEGIES.register("la-clml", "MAP with a grid search by the conditional marginal likelihood of held-out data")
def la_clml(options: Options) -> list[ConditionalGrid]:
    """Return the grid search by conditional marginal likelihood."""
    return [ConditionalGrid()]


la_clml.conditional = True  # map-grid can use its runs as well

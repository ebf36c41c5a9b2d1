"""MAP with a grid search, which is common practice."""

from __future__ import annotations

import math

from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.records import KnownRecords, Record
from deelbo.compare.strategies.base import STRATEGIES, Cell, GridSearch


def validation_score(record: Record) -> float:
    """Return minus the validation NLL; -inf if the run has none because it diverged."""
    nll = None if record["validation"] is None else record["validation"]["nll"]
    return -math.inf if nll is None else -nll


class MAPGrid(GridSearch):
    """Every cell of the paper's grid; the best one is chosen by validation NLL.

    Args:
        shared: Whether LA-CLML is compared as well, whose runs on the same cells can be used for both.
    """

    name = "map-grid"

    def __init__(self, shared: bool = False) -> None:
        self.shared = shared

    def trial(self, problem: Problem, cell: Cell, known: KnownRecords) -> Trial:
        """Return the run of a cell; a run that LA-CLML needs as well is used for both."""
        plain, full = (problem.point(*cell, whole=False, clml=clml) for clml in (False, True))
        shared = self.shared or known(full) is not None
        return full if shared and known(plain) is None else plain

    def score(self, record: Record) -> float:
        """Return minus the validation NLL."""
        return validation_score(record)


@STRATEGIES.register("map-grid", "MAP with a grid search on held-out data (common practice)")
def map_grid(options: Options) -> list[MAPGrid]:
    """Return the grid search by validation NLL."""
    shared = any(getattr(STRATEGIES[name], "conditional", False) for name in options.methods)
    return [MAPGrid(shared)]

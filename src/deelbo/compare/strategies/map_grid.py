"""MAP with a grid search: what people do."""

from __future__ import annotations

import math

from deelbo.compare.records import Record
from deelbo.compare.strategies.base import Done, GridSearch, register
from deelbo.compare.task import Options, Task, Trial


def validation_score(record: Record) -> float:
    """Return minus the validation NLL; -inf where it is none."""
    nll = None if record["validation"] is None else record["validation"]["nll"]
    return -math.inf if nll is None else -nll


class MAPGrid(GridSearch):
    """Every cell of the paper's grid, chosen by validation NLL."""

    name = "map-grid"

    def trial(self, task: Task, cell: tuple[dict[str, float], float], done: Done) -> Trial:
        """Return the run of a cell; one that LA-CLML makes as well serves both."""
        plain, full = (task.point(*cell, whole=False, clml=clml) for clml in (False, True))
        shared = "la-clml" in task.options.methods or done(full) is not None
        return full if shared and done(plain) is None else plain

    def score(self, record: Record) -> float:
        """Return minus the validation NLL."""
        return validation_score(record)


@register("map-grid")
def map_grid(options: Options) -> list[MAPGrid]:
    """One."""
    return [MAPGrid()]

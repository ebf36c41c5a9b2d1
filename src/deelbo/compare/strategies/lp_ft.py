"""LP-FT (Kumar et al., 2022): linear probing and then fine-tuning, the learning rate by held-out data."""

from __future__ import annotations

from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.records import KnownRecords, Record
from deelbo.compare.strategies.base import STRATEGIES, Cell, GridSearch
from deelbo.compare.strategies.map_grid import validation_score


class ProbeThenFinetune(GridSearch):
    """All weights trained from the probe's classifier, without regularisation; the rate is chosen by validation NLL."""

    name, colour = "lp-ft", 7

    def cells(self, problem: Problem) -> list[Cell]:
        """Return a cell for each learning rate."""
        return [((), rate) for rate in problem.options.learning_rates]

    def trial(self, problem: Problem, cell: Cell, known: KnownRecords) -> Trial:
        """Return the run of a learning rate on four fifths."""
        return self._trial(problem, cell[1], held_out=True)

    def final(self, problem: Problem, cell: Cell) -> Trial:
        """Return the run of the best learning rate on the whole training set."""
        return self._trial(problem, cell[1], held_out=False)

    def _trial(self, problem: Problem, rate: float, held_out: bool) -> Trial:
        return problem.trial(
            held_out=held_out,
            method="map",
            prior_variances=problem.no_regularisation,
            learning_rates=(rate,),
            lr_search="grid",
            head_start="probe",
        )

    def score(self, record: Record) -> float:
        """Return minus the validation NLL."""
        return validation_score(record)


@STRATEGIES.register("lp-ft", "the probe's classifier, then fine-tuning, the learning rate by held-out data")
def lp_ft(options: Options) -> list[ProbeThenFinetune]:
    """Return linear probing and then fine-tuning."""
    return [ProbeThenFinetune()]

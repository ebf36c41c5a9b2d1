"""The probe: a classifier on the features of the frozen network, which takes seconds."""

from __future__ import annotations

from deelbo.compare.problem import Options
from deelbo.compare.strategies.base import STRATEGIES, OneRun


@STRATEGIES.register("probe", "a classifier on frozen features, its strength by cross-validation")
def probe(options: Options) -> list[OneRun]:
    """Return the probe."""
    return [OneRun("probe", 6, lambda problem: problem.trial(method="probe"))]

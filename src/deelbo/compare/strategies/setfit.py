"""SetFit (Tunstall et al., 2022): contrastive training of a sentence encoder, then a logistic regression."""

from __future__ import annotations

from deelbo.compare.problem import Options
from deelbo.compare.strategies.base import STRATEGIES, OneRun


@STRATEGIES.register("setfit", "the library SetFit, for classes of texts")
def setfit(options: Options) -> list[OneRun]:
    """Return SetFit, with as many steps as all methods have."""
    return [OneRun("setfit", 9, lambda problem: problem.trial(library="setfit"))]

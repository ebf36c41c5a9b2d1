"""Plain fine-tuning with the defaults of a popular library, for as many steps as all methods have."""

from __future__ import annotations

from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.strategies.base import STRATEGIES, OneRun


@STRATEGIES.register("default", "plain fine-tuning as the Hugging Face Trainer does it: AdamW, rate 5e-5, decay 0.01")
def default(options: Options) -> list[OneRun]:
    """Return fine-tuning with common defaults."""
    return [OneRun("default", 8, default_trial)]


def default_trial(problem: Problem) -> Trial:
    """Return the run: AdamW with rate 5e-5 falling linearly and weight decay 0.01, from a random classifier."""
    return problem.trial(
        method="map",
        prior_variances=problem.no_regularisation,
        learning_rates=(5e-5,),
        lr_search="grid",
        optimizer="adamw",
        weight_decay=0.01,
        schedule="linear",
        head_start="random",
        batch_norm="running",
    )

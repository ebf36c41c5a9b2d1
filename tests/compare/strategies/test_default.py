"""Plain fine-tuning with common defaults as a strategy."""

import math

from deelbo.compare.strategies.default import default_trial
from shared.comparisons import strategy_setup


def test_its_settings_are_those_of_the_trainer(tmp_path):
    problem, strategy, _, known = strategy_setup(tmp_path, "default")
    (trial,) = strategy.plan(problem, known).trials
    assert trial == default_trial(problem)
    settings = trial.settings
    assert (settings.optimizer, settings.learning_rates, settings.weight_decay) == ("adamw", (5e-5,), 0.01)
    assert (settings.schedule, settings.head_start, settings.batch_norm, settings.clip) == (
        "linear",
        "random",
        "running",
        1.0,
    )
    assert set(settings.prior_variances.values()) == {math.inf}
    assert settings.steps == 8

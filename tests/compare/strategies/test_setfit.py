"""SetFit as a strategy."""

from shared.comparisons import strategy_setup


def test_it_is_one_run_of_another_library(tmp_path):
    problem, strategy, _, known = strategy_setup(tmp_path, "setfit")
    (trial,) = strategy.plan(problem, known).trials
    assert trial.library == trial.identity()["library"] == "setfit"
    assert trial.key != problem.trial().key
    assert trial.describe().startswith("setfit, shared.pictures:small")

"""The probe as a strategy."""

from shared.comparisons import put_record, strategy_setup


def test_it_is_one_run(tmp_path):
    problem, strategy, records, known = strategy_setup(tmp_path, "probe")
    plan = strategy.plan(problem, known)
    (trial,) = plan.trials
    assert (trial.settings.method, trial.settings.steps, trial.held_out) == ("probe", 0, False)
    assert plan.finals == []
    put_record(records, trial, accuracy=0.7, seconds=3.0)
    plan = strategy.plan(problem, known)
    assert plan.finals == plan.chosen == [trial]
    assert strategy.curve(problem, known).finals == [(3.0, 0.7)]
    assert strategy.score(known(trial)) == 0

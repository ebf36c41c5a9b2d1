"""Linear probing and then fine-tuning, with records written out by hand."""

import math

from shared.comparisons import put_record, strategy_setup


def test_the_rate_is_chosen_on_four_fifths_and_trained_on_all(tmp_path):
    problem, strategy, records, known = strategy_setup(tmp_path, "lp-ft")
    plan = strategy.plan(problem, known)
    assert (len(plan.trials), plan.finals, plan.expected) == (2, [], 3)
    for trial, nll in zip(plan.trials, (2.0, 1.0), strict=True):
        settings = trial.settings
        assert (settings.method, settings.head_start, trial.held_out) == ("map", "probe", True)
        assert set(settings.prior_variances.values()) == {math.inf}
        put_record(records, trial, nll=nll)
    plan = strategy.plan(problem, known)
    (final,) = plan.finals
    assert final.settings.learning_rates == (0.01,)
    assert not final.held_out
    put_record(records, final, accuracy=0.8)
    assert strategy.curve(problem, known).finals == [(4.0, 0.8)]  # two runs with validation, and the final one

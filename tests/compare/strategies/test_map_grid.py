"""The grid of MAP, with records written out by hand."""

import pytest

from shared.comparisons import put_record, strategy_setup


def test_grid_retrains_the_best_cell_on_everything(tmp_path):
    problem, strategy, records, known = strategy_setup(tmp_path, "map-grid")
    plan = strategy.plan(problem, known)
    assert (len(plan.trials), plan.expected, plan.finals) == (8, 9, [])
    assert all(trial.held_out and trial.clml is None for trial in plan.trials)
    for i, trial in enumerate(plan.trials):
        put_record(records, trial, nll=None if i == 0 else 2.0 - (i == 5), accuracy=0.1 * i)
    (final,) = strategy.plan(problem, known).finals
    chosen = plan.trials[5]
    assert strategy.plan(problem, known).chosen == [chosen]
    assert not final.held_out
    assert final.settings.learning_rates == chosen.settings.learning_rates
    expected = {g: v * 14 / 18 for g, v in chosen.settings.prior_variances.items()}  # alpha/N is the same
    assert final.settings.prior_variances == pytest.approx(expected)
    put_record(records, final, accuracy=0.9, seconds=3.0)
    curve = strategy.curve(problem, known)
    assert len(curve.points) == 8
    assert curve.points[0][0] == pytest.approx(1.5)
    assert curve.points[-1][:2] == pytest.approx((12.0, 0.5))
    assert curve.finals == [pytest.approx((15.0, 0.9))]

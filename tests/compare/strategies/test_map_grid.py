"""The grid of MAP, with records written out by hand."""

import itertools
import math
import statistics

import pytest

from deelbo.compare.strategies.base import SUBSETS
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
    assert curve.retrained is False


def test_the_line_of_networks_trained_again(tmp_path):
    """The paper's definition: accuracy after training again on all examples, whose time is added."""
    problem, strategy, records, known = strategy_setup(tmp_path, "map-grid", retrain="all")
    trials = strategy.plan(problem, known).trials
    nll = [5.0, 3.0, 8.0, 1.0, 6.0, 2.0, 7.0, 4.0]
    for trial, value in zip(trials, nll, strict=True):
        put_record(records, trial, nll=value, accuracy=0.1)
    plan = strategy.plan(problem, known)
    assert (len(plan.trials), len(plan.again), len(plan.everything), plan.expected) == (9, 8, 16, 16)
    assert [trial.held_out for trial in plan.again] == [False] * 8
    for i, trial in enumerate(plan.again):
        put_record(records, trial, accuracy=0.1 * (i + 1), seconds=10.0 * (i + 1))
    curve = strategy.curve(problem, known)
    assert curve.retrained is True
    # By hand, over all subsets of each size instead of 500 at random: 1.5 s a cell, then the best one again.
    for size, (seconds, value, _, _) in enumerate(curve.points, 1):
        winners = [min(subset, key=lambda i: nll[i]) + 1 for subset in itertools.combinations(range(8), size)]
        spread = 4 * statistics.pstdev(winners) / math.sqrt(SUBSETS)
        assert value == pytest.approx(0.1 * statistics.mean(winners), abs=0.1 * spread + 1e-12)
        assert seconds == pytest.approx(1.5 * size + 10 * statistics.mean(winners), abs=10 * spread + 1e-9)
    assert curve.points[-1][:2] == pytest.approx((12 + 40.0, 0.4)) == curve.finals[0]

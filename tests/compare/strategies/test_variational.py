"""DE-ELBO and ELBO as strategies."""

import pytest

from deelbo.compare import KnownRecords, Records, make_strategies
from shared.comparisons import small_options, small_problems


def test_several_kappas_are_several_strategies(tmp_path):
    options = small_options(methods=("de-elbo",), kappas=(1.0, None))
    (problem,) = small_problems(tmp_path, options)
    known = KnownRecords(Records(tmp_path / "records"))
    kappas = [strategy.plan(problem, known).trials[0].settings.kappa for strategy in make_strategies(options)]
    assert kappas == [1.0, None]


@pytest.mark.parametrize(("lr_search", "runs"), [("race", 1), ("grid", 2)])
@pytest.mark.parametrize("name", ["de-elbo", "elbo"])
def test_a_race_is_one_run_and_a_grid_one_for_each_rate(tmp_path, name, lr_search, runs):
    options = small_options(methods=(name,), lr_search=lr_search)
    (problem,), (strategy,) = small_problems(tmp_path, options), make_strategies(options)
    plan = strategy.plan(problem, KnownRecords(Records(tmp_path / "records")))
    assert (len(plan.trials), plan.expected) == (runs, runs)
    assert {rate for trial in plan.trials for rate in trial.settings.learning_rates} == {0.1, 0.01}
    assert {(t.settings.method, t.settings.lr_search, t.held_out) for t in plan.trials} == {(name, lr_search, False)}
    assert strategy.role == {"de-elbo": "reference", "elbo": "ablation"}[name]

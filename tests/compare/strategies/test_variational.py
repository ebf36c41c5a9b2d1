"""DE-ELBO and ELBO as strategies."""

import pytest

from deelbo.compare import Comparison, KnownRecords, Records, make_strategies
from deelbo.compare.results import label
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


def test_several_posteriors_are_several_lines_and_draws_are_for_both_methods(tmp_path):
    options = small_options(methods=("de-elbo", "elbo", "la-lml"), posteriors=("isotropic", "diagonal"), draws=2)
    (problem,) = small_problems(tmp_path, options)
    comparison = Comparison([problem], Records(tmp_path / "records"))
    assert [label(entry) for entry in comparison.entries] == [
        "de-elbo",
        "de-elbo, diagonal posterior",
        "elbo",
        "elbo, diagonal posterior",
        "la-lml",
    ]
    assert [entry.strategy.role for entry in comparison.entries] == ["reference", *["ablation"] * 3, "rival"]
    settings = [entry.plan().trials[0].settings for entry in comparison.entries]
    assert [each.posterior for each in settings] == [*["isotropic", "diagonal"] * 2, "isotropic"]
    assert [each.draws for each in settings] == [2, 2, 2, 2, 1]
    assert "diagonal posterior" in comparison.entries[1].plan().trials[0].describe()
    alone = small_options(methods=("de-elbo",), posteriors=("diagonal",))
    assert make_strategies(alone)[0].role == "reference"


def test_defaults_leave_no_trace_in_a_key(tmp_path):
    """Or the records of older comparisons would not be found again."""
    (problem,) = small_problems(tmp_path, small_options(methods=("de-elbo",)))
    known = KnownRecords(Records(tmp_path / "records"))
    (trial,) = make_strategies(problem.options)[0].plan(problem, known).trials
    assert not {"posterior", "draws"} & set(trial.identity()["settings"])
    other = problem.trial(draws=2, posterior="diagonal")
    assert {"posterior", "draws"} < set(other.identity()["settings"])

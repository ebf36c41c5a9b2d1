"""Strategies as functions of records, with records written out by hand."""

import math
from itertools import combinations

import pytest
import torch

from deelbo.compare import STRATEGIES, Comparison, KnownRecords, Records, make_strategies
from deelbo.compare.strategies.base import SUBSETS, subset_curve
from deelbo.compare.strategies.map_bo import propose
from deelbo.compare.strategies.map_grid import MAPGrid
from shared.comparisons import small_options, small_problems


def fill(records, trial, nll=1.0, accuracy=0.5, objective=0.0, clml=None, seconds=1.0):
    records.put(trial.key, {
        "key": trial.key, "trial": trial.identity(), "diverged": nll is None, "objective": objective, "runs": 1.0,
        "validation": {"nll": nll} if trial.held_out and nll is not None else None,
        "clml": None if trial.clml is None else {"value": clml},
        "test": {"balanced_accuracy": accuracy},
        "seconds": {"training": seconds, "objective": 0.25, "validation": 0.5, "clml": 4.0},
    })  # fmt: skip


def setup(folder, method, **changes):
    (problem,) = small_problems(folder, small_options(methods=(method,), **changes))
    (strategy,) = make_strategies(problem.options)
    return problem, strategy, Records(folder / "records"), KnownRecords(Records(folder / "records"))


def test_all_methods_are_registered():
    assert STRATEGIES.names() == ["de-elbo", "elbo", "la-clml", "la-lml", "map-bo", "map-grid"]
    with pytest.raises(ValueError, match="methods='map', but it is one of de-elbo"):
        make_strategies(small_options(methods=("map",)))
    with pytest.raises(ValueError, match="twice"):
        make_strategies(small_options(methods=("elbo", "elbo")))


def test_grid_retrains_the_best_cell_on_everything(tmp_path):
    problem, strategy, records, known = setup(tmp_path, "map-grid")
    plan = strategy.plan(problem, known)
    assert (len(plan.trials), plan.expected, plan.finals) == (8, 9, [])
    assert all(trial.held_out and trial.clml is None for trial in plan.trials)
    for i, trial in enumerate(plan.trials):
        fill(records, trial, nll=None if i == 0 else 2.0 - (i == 5), accuracy=0.1 * i)
    (final,) = strategy.plan(problem, known).finals
    chosen = plan.trials[5]
    assert strategy.plan(problem, known).chosen == [chosen]
    assert not final.held_out
    assert final.settings.learning_rates == chosen.settings.learning_rates
    expected = {g: v * 14 / 18 for g, v in chosen.settings.prior_variances.items()}  # alpha/N is the same
    assert final.settings.prior_variances == pytest.approx(expected)
    fill(records, final, accuracy=0.9, seconds=3.0)
    curve = strategy.curve(problem, known)
    assert len(curve.points) == 8
    assert curve.points[0][0] == pytest.approx(1.5)
    assert curve.points[-1][:2] == pytest.approx((12.0, 0.5))
    assert curve.finals == [pytest.approx((15.0, 0.9))]


def test_clml_chooses_by_its_own_value_and_serves_the_grid(tmp_path):
    (problem,) = small_problems(tmp_path, small_options(methods=("la-clml", "map-grid")))
    conditional, grid = make_strategies(problem.options)
    records, known = Records(tmp_path / "records"), KnownRecords(Records(tmp_path / "records"))
    cells = conditional.plan(problem, known).trials
    assert [t.key for t in cells] == [t.key for t in grid.plan(problem, known).trials]
    for i, trial in enumerate(cells):
        fill(records, trial, nll=float(i), clml=None if i == 7 else float(i))
    by_clml, by_nll = (strategy.plan(problem, known).finals[0] for strategy in (conditional, grid))
    assert by_clml.settings.learning_rates == cells[6].settings.learning_rates
    assert by_nll.settings.prior_variances == pytest.approx(
        {g: v * 14 / 18 for g, v in cells[0].settings.prior_variances.items()}
    )
    assert conditional.seconds(known(cells[0])) == 5.0
    assert grid.seconds(known(cells[0])) == 1.5


def test_objective_chooses_among_full_runs(tmp_path):
    problem, strategy, records, known = setup(tmp_path, "la-lml")
    first, second = strategy.plan(problem, known).trials
    assert strategy.plan(problem, known).finals == []
    fill(records, first, objective=-5.0, accuracy=0.9)
    fill(records, second, objective=-3.0, accuracy=0.4)
    assert strategy.plan(problem, known).finals == [second]
    curve = strategy.curve(problem, known)
    assert [point[:2] for point in curve.points] == [pytest.approx((1.25, 0.9)), pytest.approx((2.5, 0.4))]
    assert curve.finals == [pytest.approx((2.5, 0.4))]


def test_several_kappas_are_several_strategies(tmp_path):
    options = small_options(methods=("de-elbo",), kappas=(1.0, None))
    (problem,) = small_problems(tmp_path, options)
    known = KnownRecords(Records(tmp_path / "records"))
    kappas = [strategy.plan(problem, known).trials[0].settings.kappa for strategy in make_strategies(options)]
    assert kappas == [1.0, None]


def test_subset_curve_is_the_expectation():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(9, generator=generator).tolist()
    accuracies = torch.rand(9, generator=generator).tolist()
    curve = subset_curve(scores, accuracies)
    for size, (mean, low, high) in enumerate(curve, 1):
        best = [accuracies[max(subset, key=lambda i: scores[i])] for subset in combinations(range(9), size)]
        exact = sum(best) / len(best)
        spread = (sum((b - exact) ** 2 for b in best) / len(best)) ** 0.5
        assert mean == pytest.approx(exact, abs=4 * spread / math.sqrt(SUBSETS) + 1e-12)
        assert min(accuracies) <= low <= high <= max(accuracies)
    assert curve[-1] == pytest.approx((accuracies[scores.index(max(scores))],) * 3)


# ---- Bayesian optimisation ----

BOX = [(-6.0, -2.0), (-6.0, -2.0), (-4.0, -1.0)]
BEST = (-3.3, -5.1, -2.2)


def known_function(point):
    """One maximum of 0 at BEST, curved differently along each axis."""
    return -sum(weight * (p - b) ** 2 for weight, p, b in zip((1.0, 0.3, 2.0), point, BEST, strict=True))


def search(seed, iterations=12):
    points, values = [], []
    for _ in range(iterations):
        point = propose(points, values, BOX, seed)
        assert all(low <= p <= high for p, (low, high) in zip(point, BOX, strict=True))
        points.append(point)
        values.append(known_function(point))
    return values


def botorch_example(seed, iterations=12):
    """BoTorch's own loop, from its tutorial: one random point, then log expected improvement."""
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize, Standardize
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(seed)
    bounds = torch.tensor(BOX, dtype=torch.double).T
    X = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(1, 3, dtype=torch.double)
    Y = torch.tensor([[known_function(X[0].tolist())]], dtype=torch.double)
    while len(X) < iterations:
        gp = SingleTaskGP(X, Y, input_transform=Normalize(d=3), outcome_transform=Standardize(m=1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
        new, _ = optimize_acqf(LogExpectedImprovement(gp, Y.max()), bounds, q=1, num_restarts=5, raw_samples=20)
        X, Y = torch.cat([X, new]), torch.cat([Y, Y.new_tensor([[known_function(new[0].tolist())]])])
    return Y.flatten().tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_bo_finds_a_known_optimum_as_fast_as_botorchs_example():
    seeds = range(3)
    ours, theirs = ([max(run(seed)) for seed in seeds] for run in (search, botorch_example))
    random = [
        max(known_function([torch.empty(()).uniform_(*b).item() for b in BOX]) for _ in range(12)) for _ in range(30)
    ]
    assert min(ours) > -0.3  # of a function that falls to -19 in the box's corners
    assert sum(ours) / 3 > sum(theirs) / 3 - 0.15  # ten seeds each are in docs/results.md
    assert sum(ours) / 3 > sum(random) / 30 + 0.5


@pytest.mark.filterwarnings("ignore")
def test_bo_survives_failures_and_repeats_itself():
    torch.manual_seed(4)
    points = [[-3.0, -3.0, -1.0], [-4.0, -4.0, -2.0], [-5.0, -2.5, -3.0]]
    assert propose(points[:1], [-math.inf], BOX, 3) != propose([], [], BOX, 3)
    found = propose(points, [-math.inf, -1.0, -2.0], BOX, 3)
    assert all(low <= p <= high for p, (low, high) in zip(found, BOX, strict=True))
    state = torch.get_rng_state()
    assert propose(points, [-math.inf, -1.0, -2.0], BOX, 3) == found
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore")
def test_bo_goes_on_with_what_it_proposed(tmp_path):
    problem, strategy, records, known = setup(tmp_path, "map-bo", bo_iterations=3, bo_runs=2)
    trials = strategy.plan(problem, known).trials
    assert len(trials) == 2
    assert trials[0].key != trials[1].key
    assert strategy.plan(problem, known).expected == 8
    for nll in (3.0, 2.0, 5.0):
        for trial in strategy.plan(problem, known).trials:
            if known(trial) is None:
                fill(records, trial, nll=nll, accuracy=1 / nll)
    again = KnownRecords(Records(tmp_path / "records"))
    plan = strategy.plan(problem, again)
    assert len(plan.trials) == 8
    finals = [trial for trial in plan.trials if not trial.held_out]
    for final in finals:
        fill(records, final, accuracy=0.8)
    assert [f.key for f in strategy.plan(problem, known).finals] == [f.key for f in finals]
    curve = strategy.curve(problem, known)
    assert [point[1] for point in curve.points] == pytest.approx([1 / 3, 1 / 2, 1 / 2])
    assert curve.finals == [pytest.approx((5.5, 0.8))] * 2


def test_searches_refuse_a_prior_of_many_variances(tmp_path):
    with pytest.raises(ValueError, match="too many variances"):
        small_problems(tmp_path, small_options(methods=("map-grid",)), priors=["per-layer"])
    assert small_problems(tmp_path, small_options(methods=("la-lml",)), priors=["per-layer"])


def test_a_method_of_ones_own_is_one_registration(tmp_path):
    class Narrow(MAPGrid):
        name = "my-grid"

        def cells(self, problem):
            return [((0.01, 0.01), rate) for rate in problem.options.learning_rates]

    STRATEGIES.register("my-grid", "fewer cells")(lambda options: [Narrow()])
    try:
        problem, strategy, _, known = setup(tmp_path, "my-grid")
        assert (problem.held_out, strategy.plan(problem, known).expected) == (4, 3)
    finally:
        del STRATEGIES._entries["my-grid"]


@pytest.mark.filterwarnings("ignore")
def test_methods_take_turns(tmp_path):
    comparison = Comparison(
        small_problems(tmp_path, small_options(methods=("map-grid", "map-bo"))), Records(tmp_path / "r")
    )
    grid, optimisation = comparison.entries
    first, second, *_ = comparison.wanted()
    assert first == grid.plan().trials[0]
    assert [second] == optimisation.plan().trials
    assert comparison.counts() == (0, 9 + 3)

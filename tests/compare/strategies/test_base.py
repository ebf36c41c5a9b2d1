"""Strategies as functions of records, with records written out by hand."""

import math
from itertools import combinations

import pytest
import torch

from deelbo.compare import STRATEGIES, make_strategies
from deelbo.compare.strategies.base import SUBSETS, subset_curve
from deelbo.compare.strategies.map_grid import MAPGrid
from shared.comparisons import put_record, small_options, small_problems, strategy_setup


def test_all_methods_are_registered():
    assert STRATEGIES.names() == [
        "de-elbo",
        "default",
        "elbo",
        "la-clml",
        "la-lml",
        "lp-ft",
        "map-bo",
        "map-grid",
        "probe",
        "setfit",
    ]
    with pytest.raises(ValueError, match="methods='map', but it is one of de-elbo"):
        make_strategies(small_options(methods=("map",)))
    with pytest.raises(ValueError, match="twice"):
        make_strategies(small_options(methods=("elbo", "elbo")))


def test_objective_chooses_among_full_runs(tmp_path):
    problem, strategy, records, known = strategy_setup(tmp_path, "la-lml")
    first, second = strategy.plan(problem, known).trials
    assert strategy.plan(problem, known).finals == []
    put_record(records, first, objective=-5.0, accuracy=0.9)
    put_record(records, second, objective=-3.0, accuracy=0.4)
    assert strategy.plan(problem, known).finals == [second]
    curve = strategy.curve(problem, known)
    assert [point[:2] for point in curve.points] == [pytest.approx((1.25, 0.9)), pytest.approx((2.5, 0.4))]
    assert curve.finals == [pytest.approx((2.5, 0.4))]


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
        problem, strategy, _, known = strategy_setup(tmp_path, "my-grid")
        assert (problem.held_out, strategy.plan(problem, known).expected) == (4, 3)
    finally:
        del STRATEGIES._entries["my-grid"]

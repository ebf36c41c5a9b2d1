"""Numbers as people read them."""

import math

import pytest

from deelbo.compare.page import _cards
from deelbo.compare.results import markdown, summary
from deelbo.compare.strategies.base import test_result as main_result


def test_summaries_say_what_was_lost():
    assert summary([0.5], "{:.1f}".format) == "0.5"
    assert summary([0.2, 0.4, None, math.inf], "{:.1f}".format) == "0.3 (0.2–0.4), 2 diverged"
    assert summary([None], "{:.1f}".format) == "diverged"
    assert summary([], "{:.1f}".format) == ""


def row(method, seed, accuracy):
    metrics = {"balanced_accuracy": accuracy, "accuracy": accuracy, "nll": 1 - accuracy, "ece": 0.1}
    where = {"model": "m", "prior": "l2-sp", "label": method, "train_size": 10, "seed": seed}
    return {**where, "likelihood": "categorical", "runs": 1, **metrics}


def test_the_best_mean_is_marked_where_all_have_the_same_training_sets():
    rows = [row("a", 1, 0.6), row("a", 2, 0.8), row("b", 1, 0.5), row("b", 2, 0.5)]
    table = markdown(rows).split("###")[1]
    assert "**70.0" in table
    assert "**50.0" not in table
    assert "**" not in markdown(rows[:3]).split("###")[1]


def test_negative_ranges_are_readable():
    assert summary([-0.5, -0.25], lambda value: f"{value:.2f}") == "-0.38 (-0.50 to -0.25)"


@pytest.mark.parametrize(("likelihood", "none"), [("gaussian", math.nan), ("categorical", 0.0)])
def test_a_run_without_a_finite_test_result(likelihood, none):
    name = {"gaussian": "rmse", "categorical": "balanced_accuracy"}[likelihood]
    for test in (None, {name: None}):
        record = {"trial": {"settings": {"likelihood": likelihood}}, "test": test}
        assert main_result(record) == pytest.approx(none, nan_ok=True)


def test_cards_say_which_direction_is_better():
    place = {"model": "m", "prior": "p", "train_size": 9, "seed": 1, "default_kappa": True, "diverged": False}
    place |= {"likelihood": "gaussian", "seconds": 1.0}
    rows = [
        {**place, "method": "de-elbo", "role": "reference", "rmse": 1.0},
        {**place, "method": "map-grid", "role": "rival", "rmse": 1.5},
        {**place, "method": "map-bo", "role": "rival", "rmse": None},
    ]
    (card,) = _cards(rows)
    assert card["value"] == "-0.5"
    assert "root mean squared error (lower is better), de-elbo against map-grid" in card["title"]

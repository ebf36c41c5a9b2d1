"""Rank correlations over models, against scipy and orders counted by hand."""

import math

import pytest
from scipy.stats import spearmanr

from deelbo.compare import Comparison, Records, write_results
from deelbo.compare.model_choice import choice_markdown, model_choices, own_score, score_at
from shared.comparisons import small_options, small_problems


def row(model, accuracy, score, seed=1, **more):
    place = {"model": model, "prior": "l2-sp", "train_size": 10, "seed": seed, "likelihood": "categorical"}
    known = {"role": "reference", "default_kappa": True, "diverged": False, "kappa": 100.0}
    return {**place, **known, "balanced_accuracy": accuracy, "score": 1000.0 * score, **more}


def test_the_correlation_is_that_of_scipy():
    accuracies, scores = [0.5, 0.9, 0.7, 0.6], [-3.0, -1.0, -0.5, -2.0]
    (choice,) = model_choices([row(f"m{i}", *pair) for i, pair in enumerate(zip(accuracies, scores, strict=True))])
    assert choice.mean == pytest.approx(spearmanr(accuracies, scores).statistic, abs=1e-5)
    assert choice.lost == pytest.approx(0.2)  # the best score is that of the model with 0.7
    # Of the 24 orders, one agrees fully and three have a correlation of 0.8, the observed one.
    assert choice.mean == pytest.approx(0.8, abs=1e-5)
    assert choice.chance == pytest.approx(4 / 24)
    assert "17% of all orders agree" in choice.verdict


def test_more_training_sets_of_three_models_are_not_more_evidence():
    rows = [row(f"m{i}", 0.5 + 0.1 * i, -5.0 + i, seed) for i in range(3) for seed in range(9)]
    (choice,) = model_choices(rows)
    assert choice.mean == pytest.approx(1, abs=1e-5)
    assert choice.chance == pytest.approx(1 / 6)
    assert "3 models are too few to tell" in choice.verdict


def test_five_models_in_the_right_order_are_believed_and_in_the_opposite_not():
    rows = [row(f"m{i}", 0.5 + 0.1 * i, -5.0 + i) for i in range(5)]
    (choice,) = model_choices(rows)
    assert choice.chance == pytest.approx(1 / 120)
    assert choice.verdict.startswith("It can be trusted")
    (opposite,) = model_choices([{**line, "score": -line["score"]} for line in rows])
    assert opposite.mean == pytest.approx(-1, abs=1e-5)
    assert opposite.verdict.startswith("Do not trust it")


def test_of_errors_lower_is_better():
    rows = [row(f"m{i}", 0, -1.0 * i, likelihood="gaussian", rmse=float(i)) for i in range(3)]
    assert model_choices(rows)[0].mean == pytest.approx(1, abs=1e-5)


def test_two_models_or_missing_runs_say_nothing():
    assert model_choices([row("a", 0.5, 1.0), row("b", 0.6, 2.0)]) == []
    rows = [row("a", 0.5, 1.0), row("b", 0.6, 2.0), row("c", 0.7, 3.0, seed=2)]
    assert model_choices(rows) == []
    assert choice_markdown(rows) == ""
    others = [row(model, 0.5, 1.0, role="rival") for model in "abcd"]
    assert model_choices(others) == []


def test_a_common_kappa_charges_a_large_network_its_whole_kl():
    small, large = (row(name, 0.5, -0.4, kappa=kappa, kl=0.1) for name, kappa in (("s", 10.0), ("l", 1000.0)))
    small["score"], large["score"] = -0.4 * 10 * 10, -0.4 * 1000 * 10
    assert own_score(small) == own_score(large) == pytest.approx(-0.4)
    # The log-likelihood of an example is -0.4 + 0.1, and KL = 0.1 kappa N.
    assert score_at(small, 100.0) == pytest.approx(-0.3 - 0.1 * 10 / 100)
    assert score_at(large, 100.0) == pytest.approx(-0.3 - 0.1 * 1000 / 100)
    middle = row("m", 0.6, -0.4, kappa=100.0, kl=0.1)
    names = [choice.score for choice in model_choices([small, middle, large])]
    assert names == ["J / (kappa N), each at its own kappa", "J / (kappa N) at a common kappa"]
    accuracies = {"s": 0.9, "m": 0.8, "l": 0.7}
    _, common = model_choices([{**r, "balanced_accuracy": accuracies[r["model"]]} for r in (small, middle, large)])
    assert common.mean == pytest.approx(1, abs=1e-5)


def test_kl_of_a_real_run_fits_its_objective(tmp_path):
    """The record's KL and J give back the log-likelihood that a network can have, at most zero."""
    from deelbo.compare.engines.base import attempt

    problems = small_problems(tmp_path, small_options(methods=("de-elbo",)))
    comparison = Comparison(problems, Records(tmp_path / "records"))
    for trial in comparison.wanted():
        assert attempt(trial, tmp_path / "records", "cpu").status == "done"
    (found,) = write_results(comparison, tmp_path)
    log_likelihood = own_score(found) + found["kl"]
    assert found["kl"] > 0
    assert -2 * math.log(3) < log_likelihood <= 0
    assert score_at(found, found["kappa"]) == pytest.approx(own_score(found))
    assert "choose the model" not in (tmp_path / "results.md").read_text()

"""The page of a comparison: its numbers computed again by hand."""

import pytest

from deelbo.compare import Comparison, Records, write_results
from deelbo.compare.page import _cards, _cost, _sweeps, write_page
from shared.comparisons import put_record, small_options, small_problems


def row(method, role, seed, accuracy, seconds, **more):
    place = {"model": "m", "prior": "l2-sp", "train_size": 10, "seed": seed, "likelihood": "categorical"}
    known = {"default_kappa": True, "diverged": False, "label": method, "kappa": None}
    metrics = {"balanced_accuracy": accuracy, "nll": 1 - accuracy}
    return {**place, **known, "method": method, "role": role, **metrics, "seconds": seconds, **more}


def test_cards_are_differences_at_the_same_place():
    rows = [
        row("de-elbo", "reference", 1, 0.9, 10.0),
        row("de-elbo", "reference", 2, 0.8, 10.0),
        row("de-elbo", "reference", 1, 0.1, 1.0, default_kappa=False, label="de-elbo, kappa 1"),
        row("map-grid", "rival", 1, 0.85, 100.0),
        row("map-grid", "rival", 2, 0.81, 140.0),
        row("map-bo", "rival", 1, 0.95, 30.0),
        row("map-bo", "rival", 2, 0.0, 1.0, diverged=True),
        row("la-lml", "rival", 3, 0.5, 1.0),  # where there is no reference
        row("elbo", "ablation", 1, 0.3, 1.0),
    ]
    grid, optimisation = _cards(rows)
    assert grid["value"] == "+2.0"  # (5 - 1) / 2
    assert grid["title"] == "points, de-elbo against map-grid, at 12.0 times its speed"
    assert optimisation["value"] == "-5.0"
    assert "3.0 times" in optimisation["title"]


def test_cards_of_a_regression_are_in_its_units():
    rows = [
        row("de-elbo", "reference", 1, 0, 10.0, rmse=1.5, likelihood="gaussian"),
        row("map-grid", "rival", 1, 0, 20.0, rmse=2.0, likelihood="gaussian"),
    ]
    (card,) = _cards(rows)
    assert card["value"] == "-0.5"
    assert card["title"].startswith("root mean squared error (lower is better), de-elbo against map-grid")


def test_sweeps_only_where_several_kappas_were_tried():
    one = row("de-elbo", "reference", 1, 0.9, 1.0, kappa=5.0)
    other = row("de-elbo", "reference", 1, 0.5, 1.0, kappa=1.0, label="de-elbo, kappa 1", default_kappa=False)
    assert _sweeps([one, row("elbo", "ablation", 1, 0.5, 1.0)]) == []
    assert _sweeps([one, {**other, "diverged": True}]) == []
    charts = _sweeps([one, other])
    assert [chart["title"] for chart in charts] == ["m, l2-sp"] * 2
    assert "accuracy" in charts[0]["chart"]
    assert "negative log-likelihood" in charts[1]["chart"]


@pytest.fixture
def comparison(tmp_path):
    problems = small_problems(tmp_path, small_options(methods=("elbo", "la-lml")))
    return Comparison(problems, Records(tmp_path / "records"))


def test_what_all_runs_cost(comparison):
    elbo, laplace = comparison.entries
    for trial in (*elbo.plan().trials, *laplace.plan().trials):
        put_record(comparison.known.records, trial, seconds=10.0)
    # One race and two learning rates, each with 10 + 0.25 + 0.5 + 4 seconds.
    assert _cost(comparison) == {"runs": "3", "equivalents": "3", "time": "44.2 s"}


def test_the_page_says_what_is_missing(comparison, tmp_path):
    elbo, _ = comparison.entries
    for trial in elbo.plan().trials:
        put_record(comparison.known.records, trial)
    path = write_page(comparison, write_results(comparison, tmp_path), tmp_path)
    text = path.read_text()
    assert path == tmp_path / "compare.html"
    assert "unfinished" in text
    assert "Lines of" not in text  # neither method holds anything out
    assert text.count("<svg") == 1
    assert "shared.pictures:small" in text


@pytest.mark.parametrize("retrain", ["best", "all"])
def test_under_the_chart_it_says_which_networks_are_shown(tmp_path, retrain):
    problems = small_problems(tmp_path, small_options(methods=("map-grid",), retrain=retrain))
    comparison = Comparison(problems, Records(tmp_path / "records"))
    while wanted := comparison.wanted():
        for trial in wanted:
            put_record(comparison.known.records, trial)
    (row,) = rows = write_results(comparison, tmp_path)
    assert row["runs"] == 9  # the runs for the chart alone are not charged
    text = write_page(comparison, rows, tmp_path).read_text()
    kind = "trained on four fifths" if retrain == "best" else "trained again on all examples, with the time for it"
    assert f"Lines of map-grid: networks {kind}" in text
    assert comparison.counts() == ((9, 9) if retrain == "best" else (16, 16))

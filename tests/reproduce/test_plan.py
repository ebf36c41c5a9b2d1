"""The plan of the paper's scale against the numbers in the paper."""

import itertools
import math

import pytest

from deelbo.reproduce import ENTRIES, PAPER
from deelbo.reproduce.plan import PlannedRun, available, distinct, hours, plan_lines, plan_text
from deelbo.reproduce.published import TIMING
from deelbo.reproduce.scales import METHODS
from deelbo.reproduce.study import Study


def lines(*names):
    return {(line.network, line.prior, line.method): line for line in plan_lines(runs(*names))}


def runs(*names):
    return [run for name in names for run in ENTRIES[name].trials(PAPER)]


def test_runs_of_one_search_are_those_that_the_paper_counts():
    """24 for L2-zero, 144 for L2-SP, 240 for PTYL, and 4 for the methods that learn."""
    found = lines("tab-image-acc")
    expected = {"L2-zero": 24, "L2-SP": 144, "PTYL": 240, "PTYL (SSL)": 240}
    for (_, prior, method), line in found.items():
        if method in ("map-grid", "la-clml"):
            assert (line.search_runs, line.final_runs) == (expected[prior], 1)
        else:
            assert (line.search_runs, line.final_runs) == (4, 0)
        assert line.searches == 3 * 8  # training sets, and sizes of three datasets
    assert {(network, prior) for network, prior, _ in found} == {
        (network, prior) for network, prior in METHODS if network != "BERT-base"
    }


def test_bayesian_optimisation_is_repeated():
    found = lines("fig-3")
    images, texts = found["ConvNeXt-Tiny", "L2-SP", "map-bo"], found["BERT-base", "L2-SP", "map-bo"]
    assert (images.search_runs, images.final_runs, images.searches) == (35, 1, 5 * 3 * 8)
    assert (texts.search_runs, texts.final_runs, texts.searches) == (11, 1, 10 * 3 * 4)


def test_a_sweep_has_ten_kappas_beside_d_over_n():
    (line,) = lines("fig-1c").values()
    assert (line.search_runs, line.searches) == (4 * 11, 3)
    kappas = sorted({run.trial.settings.kappa or 0 for run in runs("fig-1c")})
    assert len(kappas) == 11
    assert kappas[1] == 1
    assert kappas[-1] == pytest.approx(27_827_818, rel=1e-5)
    steps = [b / a for a, b in itertools.pairwise(kappas[1:])]
    assert steps == pytest.approx([steps[0]] * 9, rel=1e-4)


def test_hours_are_those_of_table_2():
    for (prior, method), (minutes, total) in TIMING.items():
        of = [run for run in runs("tab-2") if (run.prior, run.method) == (prior, method)]
        search = [run for run in of if not run.final]
        assert hours(search) == pytest.approx(total, rel=0.02)
        assert search[0].seconds == 60 * minutes
        assert {(run.network, run.dataset, run.size) for run in of} == {("ResNet-50", "cifar10", 50_000)}


@pytest.mark.parametrize("kind", ["image", "text"])
def test_settings_of_every_run(kind):
    study = Study("ConvNeXt-Tiny", "cifar10") if kind == "image" else Study("BERT-base", "agnews")
    planned = study.runs_of_a_set(PAPER)
    assert {run.method for run in planned} == {"map-grid", "map-bo", "la-lml", "la-clml", "elbo", "de-elbo"}
    for run in (run for run in planned if not run.final):
        settings = run.trial.settings
        length = (settings.steps, settings.batch_size)
        assert length == ((6000, 128) if kind == "image" else (12000, 32))
        assert (settings.optimizer, settings.momentum, settings.schedule) == ("sgd", 0.9, "cosine")
        assert (settings.samples, settings.init_scale, settings.clip) == (10, 1e-4, 1.0)
        assert (settings.head_start, settings.scale_update, settings.batch_norm) == ("random", "gradient", "running")
        assert settings.lr_search == "grid"
        assert len(settings.learning_rates) == 1
        assert run.trial.held_out == (run.method in ("map-grid", "map-bo", "la-clml"))
        assert (run.trial.clml is not None) == (run.method in ("map-grid", "la-clml"))
    learned = [run.trial.settings for run in planned if run.method == "de-elbo"]
    assert sorted(settings.learning_rates[0] for settings in learned) == [0.0001, 0.001, 0.01, 0.1]


@pytest.mark.parametrize(("prior", "cells"), [("L2-zero", 24), ("L2-SP", 144), ("PTYL", 240)])
def test_cells_of_the_grid(prior, cells):
    """alpha/N and beta/N from 0.01 to 0; with PTYL lambda from 1 to 1e9, as the authors' code scales it."""
    grid = [run for run in Study("ResNet-50", "cifar10", prior).runs_of_a_set(PAPER) if run.method == "map-grid"]
    found = {
        (run.trial.settings.learning_rates[0], *run.trial.settings.prior_variances.values())
        for run in grid
        if not run.final
    }
    assert len(found) == cells
    strengths = [0.01, 0.001, 0.0001, 1e-5, 1e-6, 0.0]
    variances = [math.inf if s == 0 else 1 / (s * 80) for s in strengths]  # of the 80 that 100 leave to train on
    groups = {name for run in grid if not run.final for name in run.trial.settings.prior_variances}
    assert groups == {"backbone", "head"}
    backbone = sorted({values[1] for values in found})
    assert backbone == pytest.approx(sorted(variances) if prior != "PTYL" else [10.0**k / 80 for k in range(10)])
    assert sorted({values[2] for values in found}) == pytest.approx(sorted(variances))
    if prior == "L2-zero":  # one strength for both
        assert all(values[1] == values[2] for values in found)


def test_runs_that_entries_share_count_once():
    separate = sum(len(distinct(runs(name))) for name in ("fig-3", "fig-b3", "tab-image-nll", "tab-image-acc"))
    together = distinct(runs("fig-3", "fig-b3", "tab-image-nll", "tab-image-acc"))
    assert len(together) < separate / 2
    assert len(distinct(runs("fig-3", "fig-b3"))) == len(distinct(runs("fig-3")))
    assert len(distinct(runs("tab-image-acc", "tab-image-nll"))) == len(distinct(runs("tab-image-acc")))
    keys = [run.key for run in runs("fig-b3") if run.method == "map-grid" and not run.final]
    assert set(keys) == {run.key for run in runs("fig-b3") if run.method == "la-clml" and not run.final}


def test_a_line_counts_the_runs_of_several_entries_once():
    assert lines("tab-image-acc", "tab-image-nll") == lines("tab-image-acc")


def test_networks_of_figure_1_are_trained_once():
    assert distinct(runs("fig-1a", "fig-1b", "fig-b8")) == distinct(runs("fig-1a"))
    assert {(run.network, run.size, run.seed, run.runs) for run in runs("fig-1a")} == {("ResNet-50", 1000, 1001, 4.0)}


def run(key, seconds, **more):
    place = {"network": "ResNet-50", "dataset": "cifar10", "prior": "L2-SP", "method": "map-grid", "size": 9, "seed": 1}
    return PlannedRun(**{**place, **more}, key=key, trial=None, runs=1.0, seconds=seconds)


def test_what_a_user_can_run():
    all_runs = [run("a", 1.0), run("b", 1.0, dataset="pets"), run("c", 1.0, prior="PTYL"), run("a", 1.0)]
    assert [r.key for r in available(all_runs, None, None)] == ["a", "b", "c"]
    assert [r.key for r in available(all_runs, ("cifar10",), ())] == ["a"]
    assert [r.key for r in available(all_runs, ("pets", "cifar10"), ("PTYL",))] == ["a", "b", "c"]


def test_hours_by_hand():
    assert hours([run("a", 1800.0), run("b", 5400.0), run("a", 1800.0)]) == 2
    assert hours([run("a", 1800.0), run("b", None)]) is None


def test_the_plan_as_text():
    text = plan_text(runs("tab-2"), PAPER)
    assert "| ResNet-50 | L2-SP | MAP + GS | CIFAR-10 50000 | 1 | 144 + 1 | 145 | 89.4 |" in text
    assert "| ResNet-50 | PTYL | iso DE-ELBO (ours) | CIFAR-10 50000 | 1 | 4 | 4 | 2.4 |" in text
    assert "steps 6000, batch_size 128" in text
    assert "seeds 1001/2001/3001" in text
    assert "whose time the paper does not tell" in plan_text(runs("tab-text-acc"), PAPER)

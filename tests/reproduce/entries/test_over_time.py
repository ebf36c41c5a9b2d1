"""Accuracy over time as a panel of several datasets, from records written by hand."""

import json

import pytest

from deelbo.reproduce import ENTRIES, reproduce
from shared.reproductions import fill, tiny_setup

METHODS = {"map": 0.8, "la-lml": 0.4, "elbo": 0.3, "de-elbo": 0.85}


@pytest.fixture
def setup(tmp_path):
    setup = tiny_setup(tmp_path, ("cifar10", "pets"))
    for study in ENTRIES["fig-b3"].studies:
        if study.dataset in setup.data:
            fill(setup, study, lambda trial: METHODS[trial.settings.method])
    return setup


def test_a_panel_for_each_dataset_and_size(setup):
    reproduction = ENTRIES["fig-b3"].make(setup)
    axes = [axis for axis in reproduction.figure.axes if axis.get_visible()]
    assert [axis.get_title() for axis in axes] == [
        "small, CIFAR-10, N = 15",
        "small, CIFAR-10, N = 18",
        "small, Pet-37, N = 15",
    ]
    labels = [text.get_text() for text in reproduction.figure.legends[0].get_texts()]
    assert sorted(labels) == sorted(
        ["MAP + GS", "MAP + BO", "diagEF LA-LML", "diagEF LA-CLML", "iso ELBO", "iso DE-ELBO (ours)"]
    )
    assert [claim.verdict for claim in reproduction.claims] == ["holds"] * 3
    # A grid of eight cells and a final run, ten seconds each.
    assert "| ConvNeXt-Tiny | Pet-37 | 15 | MAP + GS | 80.0 | 1.5 min | 9 |" in reproduction.table


def test_methods_are_those_of_the_papers_figure(setup):
    reproduction = ENTRIES["fig-b4"].make(setup)
    assert {row["method"] for row in reproduction.numbers["rows"]} == {"map-grid", "elbo", "de-elbo"}
    assert "ViT-B/16" in reproduction.table


def test_claims_are_judged_at_every_place(tmp_path):
    setup = tiny_setup(tmp_path)

    def accuracy(trial):
        better = trial.settings.method == "de-elbo" and trial.data_spec.train_size == 15
        return 0.9 if better else METHODS[trial.settings.method] if trial.settings.method != "de-elbo" else 0.2

    fill(setup, ENTRIES["fig-b3"].studies[0], accuracy)
    reproduce("fig-b3", setup)
    found = json.loads((setup.out / "fig-b3.json").read_text())
    assert [claim["verdict"] for claim in found["claims"]] == ["holds partly", "holds", "holds partly"]
    assert f"N = 18: 20.0 % against {100 * METHODS['elbo']:.1f} %" in found["claims"][2]["evidence"]
    assert len(found["notes"]) == 5  # two datasets left out, what lines and markers are, which networks are the same

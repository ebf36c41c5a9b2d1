"""Times of runs."""

from dataclasses import replace

import pytest

from deelbo.reproduce import LAPTOP, PAPER
from deelbo.reproduce.costs import CLML_FACTOR, STEP_SECONDS, laptop_seconds, paper_seconds
from deelbo.reproduce.study import Study


def trials(scale, study):
    return {run.method: run.trial for run in study.runs_of_a_set(scale) if not run.final}


def test_the_papers_minutes():
    of = trials(PAPER, Study("ResNet-50", "cifar10"))
    assert {name: paper_seconds("ResNet-50", trial) / 60 for name, trial in of.items()} == {
        "map-grid": 37,
        "la-lml": 70,
        "elbo": 33,
        "de-elbo": 33,
    }
    ptyl = trials(PAPER, Study("ResNet-50", "cifar10", "PTYL"))
    assert paper_seconds("ResNet-50", ptyl["de-elbo"]) == 36 * 60
    assert paper_seconds("ResNet-50", ptyl["map-grid"]) == 37 * 60
    assert paper_seconds("BERT-base", trials(PAPER, Study("BERT-base", "agnews"))["map-grid"]) is None


def test_a_laptop_counts_steps():
    of = trials(LAPTOP, Study("ConvNeXt-Tiny", "cifar10"))
    cell = of["map-grid"]
    assert cell.clml is not None
    assert laptop_seconds("image", cell) == pytest.approx(100 * STEP_SECONDS["image"] * CLML_FACTOR)
    plain = replace(cell, clml=None)
    assert laptop_seconds("image", plain) == pytest.approx(100 * STEP_SECONDS["image"])
    race = of["de-elbo"]  # two rates for the first tenth, then the better one
    assert laptop_seconds("image", race) > 1.1 * laptop_seconds("image", plain)

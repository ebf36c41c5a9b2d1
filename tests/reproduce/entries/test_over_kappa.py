"""Figures over kappa, from records written by hand."""

import json

import pytest

from deelbo.reproduce import ENTRIES, reproduce
from shared.reproductions import fill, tiny_setup


def accuracy(trial):
    """Best at D/N, where kappa is None."""
    return {None: 0.9, 1.0: 0.3}.get(trial.settings.kappa, 0.5) + 0.02 * (trial.settings.seed == 2001)


@pytest.fixture
def setup(tmp_path):
    setup = tiny_setup(tmp_path, ("cifar10", "pets"))
    for study in ENTRIES["fig-b1"].studies:
        if study.dataset in setup.data:
            fill(setup, study, accuracy)
    return setup


def test_panels_and_claims(setup):
    reproduce("fig-b1", setup)
    found = json.loads((setup.out / "fig-b1.json").read_text())
    assert [claim["verdict"] for claim in found["claims"]] == ["holds", "holds"]
    assert (
        "CIFAR-10, N = 15: 91.0 % at D/N, 91.0 % at the best kappa, 31.0 % at kappa = 1"
        in (found["claims"][0]["evidence"])
    )
    assert found["notes"] == ["Flower-102 was left out: data=flowers102=FOLDER was not given"]
    text = (setup.out / "fig-b1.md").read_text()
    assert "| CIFAR-10 | 18 | 40 = D/N | 91.0 (90.0–92.0) |" in text
    assert "| Pet-37 | 15 | 1 | 31.0 (30.0–32.0) |" in text


def test_figure_1c_is_the_largest_training_set_with_two_metrics(setup):
    reproduction = ENTRIES["fig-1c"].make(setup)
    assert {row["train_size"] for row in reproduction.numbers["rows"]} == {18}
    assert [(axis.get_title(), axis.get_ylabel()) for axis in reproduction.figure.axes] == [
        ("CIFAR-10", "test accuracy, mean over classes, %"),
        ("CIFAR-10", "test negative log-likelihood"),
    ]
    assert "0.18 (0.16–0.2)" in reproduction.table  # 2 (1 - accuracy)
    assert [claim.verdict for claim in reproduction.claims] == ["holds"] * 4
    assert "0.18 at D/N, 0.18 at the best kappa, 1.38 at kappa = 1" in reproduction.claims[2].evidence


def test_no_run_is_made_twice(setup):
    before = set(setup.records.folder.glob("*.json"))
    reproduce("fig-b1", setup)
    reproduce("fig-b2", setup)
    assert set(setup.records.folder.glob("*.json")) == before


def test_the_figure_of_the_nll_is_judged_by_the_nll(setup):
    for path in setup.records.folder.glob("*.json"):
        record = json.loads(path.read_text())
        if record["trial"]["settings"]["kappa"] is None:  # D/N: as accurate as before, but too certain
            record["test"]["nll"] += 1.0
            path.write_text(json.dumps(record))
    assert [claim.verdict for claim in ENTRIES["fig-b1"].make(setup).claims] == ["holds", "holds"]
    assert [claim.verdict for claim in ENTRIES["fig-b2"].make(setup).claims] == ["does not hold", "holds"]


def test_a_training_size_has_the_same_colour_in_all_panels_and_no_other_size_has_it(tmp_path):
    setup = tiny_setup(tmp_path, ("cifar10", "pets"), scale={"sizes": {"cifar10": (18,), "pets": (15,)}})
    for study in ENTRIES["fig-b1"].studies:
        if study.dataset in setup.data:
            fill(setup, study, accuracy)
    panels = ENTRIES["fig-b1"].make(setup).figure.axes
    lines = {panel.get_lines()[0].get_label(): panel.get_lines()[0].get_color() for panel in panels}
    assert list(lines) == ["N = 18", "N = 15"]
    assert lines["N = 18"] != lines["N = 15"]

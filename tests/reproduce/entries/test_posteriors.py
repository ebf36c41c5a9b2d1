"""The diagonal posterior beside the isotropic one."""

import json

from deelbo.reproduce import ENTRIES, PAPER, reproduce
from deelbo.reproduce.entries.posteriors import _claims
from shared.reproductions import tiny_setup


def test_both_are_trained_and_tested(tmp_path):
    setup = tiny_setup(tmp_path, scale={"seeds": (1001,)})
    reproduce("diagonal", setup)
    rows = json.loads((setup.out / "diagonal.json").read_text())["rows"]
    isotropic, diagonal = rows
    assert (isotropic["posterior"], diagonal["posterior"]) == ("isotropic", "diagonal")
    assert diagonal["parameters"] == 2 * (isotropic["parameters"] - 1)
    assert isotropic["kappa"] == diagonal["kappa"]
    assert isotropic["objective"] != diagonal["objective"]
    states = list((setup.out / "runs").glob("*/learning-rate-*.safetensors"))
    assert len(states) == 4  # two posteriors, two rates
    times = [path.stat().st_mtime_ns for path in states]
    (setup.out / "diagonal.json").unlink()
    reproduce("diagonal", setup)
    assert [path.stat().st_mtime_ns for path in states] == times  # nothing was trained again
    assert json.loads((setup.out / "diagonal.json").read_text())["rows"] == rows


def test_claim():
    names = ("balanced_accuracy", "nll", "ece", "objective", "scale", "kl", "seconds", "parameters")

    def row(posterior, accuracy):
        return {"posterior": posterior, **dict.fromkeys(names, 1.0), "balanced_accuracy": accuracy}

    assert _claims([row("isotropic", 0.8), row("diagonal", 0.79)])[0].verdict == "holds"
    assert _claims([row("isotropic", 0.8), row("diagonal", 0.7)])[0].verdict == "does not hold"


def test_the_plan_has_each_posterior_and_rate():
    assert len({run.key for run in ENTRIES["diagonal"].trials(PAPER)}) == 2 * 4 * 3

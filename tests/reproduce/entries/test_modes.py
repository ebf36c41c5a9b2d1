"""Figure B.7: train mode against eval mode."""

import json

from deelbo.reproduce import ENTRIES, PAPER, reproduce
from shared.reproductions import tiny_setup


def test_from_training_to_the_picture(tmp_path):
    setup = tiny_setup(tmp_path)
    assert [file.suffix for file in reproduce("fig-b7", setup)] == [".png", ".svg", ".md", ".json"]
    found = json.loads((tmp_path / "out" / "fig-b7.json").read_text())
    assert [row["step"] for row in found["rows"]] == [3, 6, 8]
    assert found["learning_rate"] == 0.03


def test_the_papers_run():
    (run,) = ENTRIES["fig-b7"].trials(PAPER)
    settings = run.trial.settings
    assert (run.network, run.dataset, run.size) == ("ResNet-50", "cifar10", 1000)
    assert (settings.batch_norm, settings.learning_rates, settings.steps) == ("running", (0.001,), 6000)


def test_claim():
    def row(gap, points):
        return {"objective_train": -1.0, "objective_eval": -1.0 - gap, "accuracy_train": 0.9,
                "accuracy_eval": 0.9 - points / 100}  # fmt: skip

    judge = ENTRIES["fig-b7"]._claims
    assert judge([row(0.0, 0.0), row(0.5, 20.0)])[0].verdict == "holds"
    assert judge([row(0.5, 0.0)])[0].verdict == "holds partly"
    assert judge([row(0.0, 0.0)])[0].verdict == "does not hold"

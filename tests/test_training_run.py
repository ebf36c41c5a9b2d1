"""A training run without the call around it."""

import torch

from deelbo import Settings
from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets
from deelbo.training_run import TrainingRun, _speed, about_run
from shared.digits import FAST, digits, network, quick

SETTINGS = {name: value for name, value in FAST.items() if name != "device"}


def test_it_is_what_finetune_does():
    data = digits()[0]
    run = TrainingRun(network(), TrainingSets(data, data), Settings(**SETTINGS), Execution("cpu"), head="4")
    result, called = run.train(), quick()
    assert result.objective == called.objective
    assert (result.settings.pairs, result.blend) == (False, 1.0)  # decided, though the settings left it open
    assert all(torch.equal(a, b) for a, b in zip(result.model.parameters(), called.model.parameters(), strict=True))


def test_what_must_be_the_same_to_continue():
    assert about_run(Settings(), Execution(precision="bf16")) == {"precision": "bf16"}


def test_clocks_are_summed_up():
    clock = {"data": 1.0, "network": 6.0, "steps": 8.0, "objective": 2.0, "number": 10.0, "examples": 40.0}
    speed = _speed([clock, clock], 0.0)
    assert speed == {
        "examples_per_second": 5.0,
        "outside_network": 0.25,
        "data": 0.125,
        "seconds": 16.0,
        "seconds_objective": 4.0,
    }

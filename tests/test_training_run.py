"""A training run without the call around it."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from deelbo import Settings
from deelbo.training.device import Execution
from deelbo.training_run import TrainingRun, TrainingSets, _speed, about_run
from shared.digits import FAST, digits, network, quick

SETTINGS = {name: value for name, value in FAST.items() if name != "device"}


def test_it_is_what_finetune_does():
    data = digits()[0]
    run = TrainingRun(network(), TrainingSets(data, data), Settings(**SETTINGS), Execution("cpu"), head="4")
    result, called = run.train(), quick()
    assert result.objective == called.objective
    assert all(torch.equal(a, b) for a, b in zip(result.model.parameters(), called.model.parameters(), strict=True))


def test_sets_are_checked():
    three, four = (TensorDataset(torch.zeros(n, 2), torch.zeros(n).long()) for n in (3, 4))
    assert TrainingSets(four, four).number == 4
    with pytest.raises(ValueError, match="3 examples, and train_set 4"):
        TrainingSets(four, three)
    with pytest.raises(ValueError, match="is empty"):
        TrainingSets(TensorDataset(torch.zeros(0, 2), torch.zeros(0)), four)


def test_modes_of_the_network_survive_the_first_outputs():
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(), nn.Linear(3, 2))
    net[1].eval()
    data = TensorDataset(torch.randn(5, 2), torch.zeros(5).long())
    few = TrainingSets(data, data).first_outputs(net, Execution("cpu").accelerator(None))
    assert (few.outputs.shape, len(few.labels)) == ((2, 2), 2)
    assert [module.training for module in net] == [True, False, True]


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

"""Training examples with and without augmentation."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from deelbo.training.device import Execution
from deelbo.training.sets import TrainingSets


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

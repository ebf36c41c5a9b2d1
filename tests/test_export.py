"""Exported networks predict the same without deelbo."""

import json

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils.data import TensorDataset

import deelbo
from deelbo.training.calibration import Calibration
from shared.digits import FAST
from shared.regressors import regression_run, regressor


def test_an_exported_regression_is_in_the_users_units(tmp_path):
    x, result = regression_run()
    before = {name: value.clone() for name, value in result.model.state_dict().items()}
    result.export(tmp_path / "network")
    plain = regressor()
    plain.load_state_dict(safetensors.torch.load_file(tmp_path / "network" / "model.safetensors"))
    mean, std = result.predict(x)
    assert mean.abs().max() > 900
    torch.testing.assert_close(plain(x).detach().double(), mean.double(), rtol=1e-4, atol=1e-2)
    assert (std > 0).all()
    assert all(torch.equal(value, before[name]) for name, value in result.model.state_dict().items())
    with pytest.raises(FileExistsError, match="is not empty"):
        result.export(tmp_path / "network")


class Scaled(nn.Module):
    """A network with something after its last linear layer, into which units cannot be folded."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return 3 * self.fc(x)


def test_a_regression_whose_units_cannot_be_folded_is_exported_with_them(tmp_path):
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = 1000 + 50 * x.sum(1, keepdim=True) * torch.tensor([1.0, -2.0])
    result = deelbo.finetune(Scaled(), TensorDataset(x, y), "fc", **FAST)
    with pytest.warns(UserWarning, match="standard"):
        result.export(tmp_path / "network")
    plain = Scaled()
    plain.load_state_dict(safetensors.torch.load_file(tmp_path / "network" / "model.safetensors"))
    units = json.loads((tmp_path / "network" / "model.json").read_text())["units"]
    numbers = plain(x).detach().double() * torch.tensor(units["std"]) + torch.tensor(units["mean"])
    torch.testing.assert_close(numbers, result.predict(x).mean.double(), rtol=1e-5, atol=1e-3)


def test_a_classifier_whose_temperature_cannot_be_folded_is_exported_with_it(tmp_path):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(x).tanh()

    x = torch.randn(20, 3)
    result = deelbo.finetune(Scaled(), TensorDataset(x, (x[:, 0] > 0).long()), "fc", **FAST)
    result.calibration = Calibration(temperature=4.0)
    with pytest.warns(UserWarning, match="not calibrated"):
        result.export(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "model.json").read_text())["units"] == {"mean": [0.0], "std": [0.25]}


def test_a_linear_layer_without_biases_takes_the_temperature(tmp_path):
    x = torch.randn(20, 3)
    network = torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False))
    result = deelbo.finetune(network, TensorDataset(x, (x[:, 0] > 0).long()), "0", **FAST)
    result.calibration = Calibration(temperature=4.0)
    result.export(tmp_path / "out")
    exported = torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False))
    exported.load_state_dict(safetensors.torch.load_file(tmp_path / "out" / "model.safetensors"))
    torch.testing.assert_close(exported(x).double().softmax(1), result.predict(x), atol=1e-6, rtol=1e-5)

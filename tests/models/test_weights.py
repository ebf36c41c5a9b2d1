"""Weights from files, and changes to a classifier."""

import pytest
import safetensors.torch
import timm
import torch
from torch import nn

from deelbo.models import load_model
from deelbo.models.weights import fit_weights, fold_units, read_weights
from shared.models import CLASSES

INPUTS = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
LOCATION, SPREAD = torch.tensor([100.0, -3.0], dtype=torch.float64), torch.tensor([5.0, 0.1], dtype=torch.float64)


def test_local_weights_with_another_classifier(tmp_path):
    torch.manual_seed(1)
    source = timm.create_model("resnet10t", num_classes=1000)
    safetensors.torch.save_file(source.state_dict(), tmp_path / "w.safetensors")
    torch.save({"state_dict": {f"module.{k}": v for k, v in source.state_dict().items()}}, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        network, _ = load_model("timm:resnet10t", "image", CLASSES, weights=tmp_path / name)
        own = network.state_dict()
        assert own["fc.weight"].shape[0] == 3
        assert all(torch.equal(own[k], v) for k, v in source.state_dict().items() if not k.startswith("fc."))


def test_weights_that_do_not_fit(tmp_path):
    network = timm.create_model("resnet10t", num_classes=3)
    state = network.state_dict()
    state.pop("bn1.weight")
    state["extra"] = torch.zeros(1)
    state["bn1.bias"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"x.pth does not fit ResNet: missing bn1.weight; unknown extra; other"):
        fit_weights(network, state, "x.pth")
    same = timm.create_model("resnet10t", num_classes=3)
    fit_weights(network, same.state_dict(), "x")
    assert torch.equal(network.fc.weight, same.fc.weight)  # a classifier of the same size comes along
    torch.save({"a": 1}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="is no state dict"):
        read_weights(tmp_path / "a.pth")
    (tmp_path / "b.pth").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match="safe to load"):
        read_weights(tmp_path / "b.pth")
    with pytest.raises(FileNotFoundError, match="no such file of weights"):
        load_model("timm:resnet10t", "image", CLASSES, weights=tmp_path / "none.pth")


class Ends(nn.Module):
    """Ends with a linear layer, or with what is given after it."""

    def __init__(self, after=nn.Identity()):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(3, 4)  # a usual name of a classifier, but it is none
        self.out, self.after = nn.Linear(4, 2), after

    def forward(self, x):
        return self.after(self.out(self.fc(x).tanh()))


def call(network):
    return network(INPUTS)


@torch.no_grad()
def test_the_layer_that_is_called_last():
    network = Ends()
    wanted = LOCATION + SPREAD * call(network)
    assert fold_units(network, LOCATION, SPREAD, call)
    torch.testing.assert_close(call(network).double(), wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_network_whose_outputs_would_be_wrong_stays_as_it_is():
    far = torch.tensor([1e9, 0.0], dtype=torch.float64)  # more digits than float32 has
    for network, location in ((Ends(nn.Tanh()), LOCATION), (Ends(nn.Softplus()), LOCATION), (Ends(), far)):
        before = call(network)
        assert not fold_units(network, location, SPREAD, call)
        assert torch.equal(call(network), before)


@torch.no_grad()
def test_without_inputs_only_a_sequence_is_certain():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    wanted = LOCATION + SPREAD * call(network)
    assert fold_units(network, LOCATION, SPREAD)
    torch.testing.assert_close(call(network).double(), wanted, rtol=1e-5, atol=1e-5)
    assert not fold_units(Ends(), LOCATION, SPREAD)
    assert not fold_units(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), LOCATION, SPREAD)
    assert not fold_units(nn.Sequential(nn.Linear(3, 2, bias=False)), LOCATION, SPREAD)

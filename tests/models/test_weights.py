"""Weights from files, and changes to a classifier."""

from collections import OrderedDict

import pytest
import safetensors.torch
import timm
import torch
from torch import nn

from deelbo.models import load_model
from deelbo.models.weights import fit_weights, fold_units, read_weights
from shared.cases import Net, copies, same
from shared.models import CLASSES


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


def test_units_are_folded_into_the_last_layer():
    net = Net()
    x, location, spread = (
        torch.randn(4, 5, dtype=torch.float64),
        torch.tensor([1.0, -2.0, 3.0]),
        torch.tensor([2, 5, 0.5]),
    )
    expected = location + spread * net(x)
    assert fold_units(net, location, spread)
    torch.testing.assert_close(net(x), expected)


def test_units_stay_outside_where_they_cannot_be_folded():
    location, spread = torch.zeros(3), torch.full((3,), 2.0)
    without_bias = Net()
    without_bias.head = nn.Linear(7, 3, bias=False, dtype=torch.float64)
    unknown = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))  # none of them is called a classifier
    convolution = nn.Sequential(OrderedDict(body=nn.Conv2d(3, 4, 1), fc=nn.Conv2d(4, 3, 1)))
    two = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=3, img_size=32, depth=1)  # gives their mean
    for network in (without_bias, unknown, convolution, two):
        before = copies(network)
        assert not fold_units(network, location, spread)
        assert same(network, before)
    assert not fold_units(Net(), location[:2], spread[:2])

"""Weights from files, and changes to a classifier."""

import pytest
import safetensors.torch
import timm
import torch

from deelbo.models import load_model
from deelbo.models.weights import fit_weights, read_weights
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

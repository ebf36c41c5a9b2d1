"""Downloads, and what is said when they fail."""

import socket

import pytest

from deelbo.models import load_model
from shared.models import CLASSES


@pytest.mark.parametrize("spec", ["timm:resnet10t", "torchvision:resnet18", "hf:bert-base-uncased"])
def test_without_network(spec, monkeypatch, tmp_path):
    def fail(*arguments, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=f"cannot download {spec}: no network, or no such model"):
        load_model(spec, "text" if spec.startswith("hf") else "image", CLASSES)

"""Downloads, and what is said when they fail."""

import socket
from urllib.parse import urlparse

import pytest

from deelbo._hub import cache_without_network, unavailable, unknown
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


@pytest.fixture
def constants(monkeypatch):
    from huggingface_hub import constants

    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return constants


def test_the_cache_alone_is_read_where_the_hub_has_no_address(constants, monkeypatch):
    asked = []

    def nowhere(host, *rest):
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with cache_without_network():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    with pytest.raises(ZeroDivisionError), cache_without_network():
        raise ZeroDivisionError
    assert not constants.HF_HUB_OFFLINE
    assert set(asked) == {urlparse(constants.ENDPOINT).hostname}
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")  # which knows the address
    with cache_without_network():
        assert not constants.HF_HUB_OFFLINE


def test_the_hub_is_asked_where_it_has_an_address(constants, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: ["somewhere"])
    with cache_without_network():
        assert not constants.HF_HUB_OFFLINE
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)  # a user's own wish
    with cache_without_network():
        assert constants.HF_HUB_OFFLINE
    assert constants.HF_HUB_OFFLINE


def test_errors_name_the_model_and_the_nearest_ones():
    assert str(unavailable("timm:a", OSError("refused\nlong story"))) == (
        "cannot download timm:a: no network, or no such model (refused)"
    )
    known = ["resnet18", "resnet50", "vgg11", "vgg13", "alexnet", "densenet"]
    assert str(unknown("timm:resnet51", "resnet51", known)).startswith(
        "unknown model 'timm:resnet51'; there are resnet50"
    )
    assert str(unknown("x:zzz", "zzz", known)) == (
        "unknown model 'x:zzz'; there are resnet18, resnet50, vgg11, vgg13, alexnet, ..."
    )
    assert str(unknown("x:zzz", "zzz", ["a", "b"])) == "unknown model 'x:zzz'; there are a, b"

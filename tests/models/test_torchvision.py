"""Networks of torchvision, without their weights."""

import pytest
import torch
import torchvision

from deelbo._head import find_head
from deelbo.models import load_model
from deelbo.models.weights import replace_head
from shared.models import CLASSES, logits


@pytest.mark.parametrize("name", ["alexnet", "squeezenet1_0", "mobilenet_v3_small", "vit_b_32", "convnext_tiny"])
def test_heads_of_torchvision_are_replaced(name):
    with torch.device("meta"):
        network = torchvision.models.get_model(name)
        replace_head(network, 7)
    owner = network.get_submodule(find_head(network)[0])
    assert owner.weight.shape[0] == 7


def test_architecture_and_input_of_its_own():
    network, reader = load_model("torchvision:resnet18", "image", CLASSES, pretrained=False)
    assert (reader.image.size, reader.image.mean) == (224, pytest.approx((0.485, 0.456, 0.406)))
    assert len(reader.image.std) == 3
    assert logits(network, 224).shape == (2, 3)


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(ValueError, match="there are resnet18"):
        load_model("torchvision:resnet19", "image", CLASSES)


def test_weights_by_version(tmp_path, monkeypatch):
    """Files as torchvision downloads them, one for each version; the network must get the one that is named."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    state = torchvision.models.mobilenet_v2().state_dict()
    for number, weights in enumerate(torchvision.models.get_model_weights("mobilenet_v2"), 1):
        first = {"features.0.0.weight": torch.full_like(state["features.0.0.weight"], float(number))}
        torch.save({**state, **first}, folder / weights.url.rsplit("/", 1)[1])
    for spec, number in (("@IMAGENET1K_V1", 1), ("@IMAGENET1K_V2", 2), ("", 2)):
        network, reader = load_model(f"torchvision:mobilenet_v2{spec}", "image", CLASSES)
        assert network.features[0][0].weight.unique().tolist() == [number]
        assert reader.spec == f"torchvision:mobilenet_v2{spec}"
    with pytest.raises(
        ValueError, match="no weights 'IMAGENET1K_V3' in torchvision; there are IMAGENET1K_V1, IMAGENET1K"
    ):
        load_model("torchvision:mobilenet_v2@IMAGENET1K_V3", "image", CLASSES)
